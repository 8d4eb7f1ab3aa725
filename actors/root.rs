//! The root of a node. It begins a life (a node id, a board, two supervisors), ends it when the node was declared dead or a
//! supervisor gave up, and begins another under a new id. Who talks to it: the heart (`Lost`), and the task that registers a
//! new life (`Begin`). A restart of it does not happen: when it ends, the node is over.

use super::board::Kind;
use super::ctx::{Ctx, Shared};
use super::supervision::Strategy;
use super::supervisor::{self, Child, Supervisor};
use super::{Handled, advancer, committer, heart, ingester, janitor, notifier, submitter, timekeeper};
use crate::domain::NodeId;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;

pub(crate) struct Root;

/// What the root is made from: the first life is registered already.
#[derive(Clone)]
pub(crate) struct Args {
    pub shared: Arc<Shared>,
    pub first: Arc<Ctx>,
    /// Tells the present life.
    pub life: Arc<watch::Sender<Arc<Ctx>>>,
}

/// What the root is told.
pub(crate) enum Msg {
    /// A new life is registered.
    Begin(Arc<Ctx>),
    /// This life was declared dead, or makes no progress.
    Lost(NodeId),
}

pub(crate) struct State {
    args: Args,
    ctx: Arc<Ctx>,
    supervisors: Vec<ActorCell>,
}

impl Actor for Root {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, _: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        Ok(State { ctx: args.first.clone(), args, supervisors: Vec::new() })
    }

    async fn post_start(&self, myself: ActorRef<Msg>, state: &mut State) -> Handled {
        let first = state.ctx.clone();
        state.begin(&myself, first).await
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Handled {
        match message {
            Msg::Begin(ctx) => state.begin(&myself, ctx).await,
            Msg::Lost(node) => state.lost(&myself, node),
        }
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Handled {
        let who = match event {
            SupervisionEvent::ActorTerminated(who, ..) | SupervisionEvent::ActorFailed(who, _) => who,
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => return Ok(()),
        };
        if state.supervisors.iter().any(|cell| cell.get_id() == who.get_id()) {
            let node = state.ctx.node;
            return state.lost(&myself, node);
        }
        Ok(())
    }
}

impl State {
    async fn begin(&mut self, myself: &ActorRef<Msg>, ctx: Arc<Ctx>) -> Handled {
        ctx.board.root.enter(myself.clone());
        self.ctx = ctx.clone();
        for (kind, strategy, children) in
            [(Kind::Core, Strategy::RestForOne, core()), (Kind::Satellites, Strategy::OneForOne, satellites(&ctx))]
        {
            let args = supervisor::Args { ctx: ctx.clone(), strategy, children };
            let (actor, _) = Actor::spawn_linked(None, Supervisor, args, myself.get_cell()).await?;
            ctx.board.enter(kind, actor.get_cell());
            self.supervisors.push(actor.get_cell());
        }
        let _ = self.args.life.send_replace(ctx);
        Ok(())
    }

    /// Drops everything and begins again under a new id. What the old life held is taken over like any dead node's.
    fn lost(&mut self, myself: &ActorRef<Msg>, node: NodeId) -> Handled {
        if node != self.ctx.node || self.supervisors.is_empty() {
            return Ok(());
        }
        tracing::warn!(%node, "this node's life is over: it begins again under a new id");
        for cell in self.supervisors.drain(..) {
            cell.kill();
        }
        let (shared, myself) = (self.args.shared.clone(), myself.clone());
        tokio::spawn(async move {
            if let Some(next) = register(&shared, node).await {
                let _ = myself.cast(Msg::Begin(Arc::new(Ctx::new(shared, next))));
            }
        });
        Ok(())
    }
}

/// Ends the old id for good and registers a new one, however long that takes; `None` when the node is to end meanwhile.
async fn register(shared: &Shared, old: NodeId) -> Option<NodeId> {
    let mut wait = Duration::from_millis(50);
    while !shared.draining.load(Ordering::Acquire) {
        let next = NodeId::random();
        let done = async {
            // This process lives, so none of its steps took it down: what it held is released before others take it over.
            shared.store.release_runs(old).await?;
            shared.store.leave(old).await?;
            let workflows = shared.flows.keys();
            let config = &shared.config;
            shared.store.register(next, &config.name, env!("CARGO_PKG_VERSION"), config.lease, &workflows).await
        };
        match done.await {
            Ok(()) => return Some(next),
            Err(error) => tracing::warn!(%error, "a new life could not be registered yet"),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(1));
    }
    None
}

fn core() -> Vec<Child> {
    vec![
        Child::new(Kind::Heart, |ctx| (heart::Heart, heart::Args { ctx })),
        Child::new(Kind::Committer, |ctx| (committer::Committer, committer::Args { ctx })),
        Child::new(Kind::Advancer, |ctx| (advancer::Advancer, advancer::Args { ctx })),
        Child::new(Kind::Timekeeper, |ctx| (timekeeper::Timekeeper, timekeeper::Args { ctx })),
    ]
}

fn satellites(ctx: &Ctx) -> Vec<Child> {
    let mut children = vec![
        Child::new(Kind::Notifier, |ctx| (notifier::Notifier, notifier::Args { ctx })),
        Child::new(Kind::Janitor, |ctx| (janitor::Janitor, janitor::Args { ctx })),
    ];
    for provider in ctx.shared.providers.keys() {
        let name = provider.clone();
        children.push(Child::new(Kind::Submitter(name.clone()), move |ctx| {
            (submitter::Submitter, submitter::Args { ctx, provider: name.clone() })
        }));
        let name = provider.clone();
        children.push(Child::new(Kind::Ingester(name.clone()), move |ctx| {
            (ingester::Ingester, ingester::Args { ctx, provider: name.clone() })
        }));
    }
    children
}
