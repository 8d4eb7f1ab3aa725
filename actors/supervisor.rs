//! A supervisor: starts its children in order and starts them again as [`supervision`](super::supervision) decides. A thin
//! shell: who talks to it is ractor alone (exits of children) and its own timer. It owns nothing durable, a restart loses
//! nothing, and it never waits for a child.

use super::Handled;
use super::board::Kind;
use super::ctx::Ctx;
use super::supervision::{Core, Decision, Intensity, Strategy};
use crate::domain::Backoff;
use futures::future::BoxFuture;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Restarts that a supervisor bears before it gives up.
const INTENSITY: Intensity = Intensity { restarts: 10, within: Duration::from_secs(10) };
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(10), most: Duration::from_secs(2) };

type Start = dyn Fn(Arc<Ctx>, ActorCell) -> BoxFuture<'static, Result<ActorCell, SpawnErr>> + Send + Sync;

/// A child, and how it is started.
#[derive(Clone)]
pub(crate) struct Child {
    pub kind: Kind,
    start: Arc<Start>,
}

impl Child {
    /// A child made from an actor whose only argument is the context, or something made from it.
    pub(crate) fn new<A>(kind: Kind, make: impl Fn(Arc<Ctx>) -> (A, A::Arguments) + Send + Sync + 'static) -> Self
    where
        A: Actor,
    {
        let start = move |ctx: Arc<Ctx>, supervisor: ActorCell| {
            let (actor, args) = make(ctx);
            let spawned = A::spawn_linked(None, actor, args, supervisor);
            Box::pin(async move { Ok(spawned.await?.0.get_cell()) }) as BoxFuture<'static, _>
        };
        Self { kind, start: Arc::new(start) }
    }
}

pub(crate) struct Supervisor;

/// What a supervisor is made from.
#[derive(Clone)]
pub(crate) struct Args {
    pub ctx: Arc<Ctx>,
    pub strategy: Strategy,
    pub children: Vec<Child>,
}

/// Its only message: a delay is over.
pub(crate) enum Msg {
    /// Start these children.
    Start(Range<usize>),
}

pub(crate) struct State {
    ctx: Arc<Ctx>,
    children: Vec<Child>,
    living: Vec<Option<ActorCell>>,
    core: Core,
    born: Instant,
}

impl Actor for Supervisor {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, _: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        let n = args.children.len();
        let core = Core::new(args.strategy, n, INTENSITY, BACKOFF);
        Ok(State { ctx: args.ctx, living: vec![None; n], children: args.children, core, born: Instant::now() })
    }

    async fn post_start(&self, myself: ActorRef<Msg>, state: &mut State) -> Handled {
        let all = 0..state.children.len();
        state.start(&myself, all).await
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Handled {
        match message {
            Msg::Start(children) => state.start(&myself, children).await,
        }
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Handled {
        match event {
            SupervisionEvent::ActorTerminated(who, ..) => state.exited(&myself, &who, "it stopped"),
            SupervisionEvent::ActorFailed(who, error) => state.exited(&myself, &who, &error.to_string()),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => Ok(()),
        }
    }
}

impl State {
    async fn start(&mut self, myself: &ActorRef<Msg>, children: Range<usize>) -> Handled {
        for place in children {
            if self.living[place].is_some() {
                continue;
            }
            let child = self.children[place].clone();
            match (child.start)(self.ctx.clone(), myself.get_cell()).await {
                Ok(cell) => {
                    self.ctx.board.enter(child.kind, cell.clone());
                    self.living[place] = Some(cell);
                }
                Err(error) => {
                    tracing::error!(actor = %child.kind, %error, "an actor could not be started");
                    return self.decide(myself, place);
                }
            }
        }
        Ok(())
    }

    /// A child has ended. Exits of actors that were replaced already are of no interest.
    fn exited(&mut self, myself: &ActorRef<Msg>, who: &ActorCell, why: &str) -> Handled {
        let id = who.get_id();
        let Some(place) = self.living.iter().position(|c| c.as_ref().is_some_and(|c| c.get_id() == id)) else {
            return Ok(());
        };
        tracing::warn!(actor = %self.children[place].kind, why, "an actor ended");
        self.living[place] = None;
        self.decide(myself, place)
    }

    fn decide(&mut self, myself: &ActorRef<Msg>, place: usize) -> Handled {
        match self.core.on_exit(place, self.born.elapsed(), rand::random()) {
            Decision::GiveUp => Err("too many restarts of its children".into()),
            Decision::Restart { children, after } => {
                for cell in self.living[children.clone()].iter_mut().filter_map(Option::take) {
                    cell.kill();
                }
                myself.send_after(after, move || Msg::Start(children.clone()));
                Ok(())
            }
        }
    }
}
