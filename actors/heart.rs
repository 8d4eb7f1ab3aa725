//! The heart: tells the other nodes that this one lives. A thread of its own with a runtime and a connection of its own
//! beats, so that neither user code nor a busy pool can make a healthy node look dead; *progress*, by which others judge, is
//! written only when advancer and committer have answered a ping, so that a deadlocked node does look dead.
//!
//! It owns the thread, which ends when the actor does. A restart loses nothing. It never waits for another actor.

use super::Handled;
use super::ctx::{Ctx, Shared};
use super::{advancer, committer, root};
use crate::domain::NodeId;
use crate::store::Pulse;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

pub(crate) struct Heart;

#[derive(Clone)]
pub(crate) struct Args {
    pub ctx: Arc<Ctx>,
}

/// Who answers pings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Organ {
    Advancer,
    Committer,
}

/// What the heart is told.
pub(crate) enum Msg {
    /// Time to ping.
    Tick,
    /// An answer to the ping of that round.
    Pong(Organ, u64),
    /// The thread ended: this node is dead, or makes no progress.
    Stopped,
}

pub(crate) struct State {
    ctx: Arc<Ctx>,
    round: u64,
    advancer: u64,
    committer: u64,
    /// The latest round that both have answered.
    both: u64,
    progress: Arc<AtomicI64>,
    /// Dropped with the state: the thread ends.
    _stop: oneshot::Sender<()>,
}

impl Actor for Heart {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        args.ctx.board.heart.enter(myself.clone());
        let progress = Arc::new(AtomicI64::new(1));
        let (stop, stopped) = oneshot::channel();
        let beating = Beating {
            pulse: Pulse::new(args.ctx.store().database().clone(), args.ctx.node),
            node: args.ctx.node,
            heartbeat: args.ctx.config().heartbeat,
            lease: args.ctx.config().lease,
            progress: progress.clone(),
            shared: args.ctx.shared.clone(),
        };
        std::thread::Builder::new().name("longhaul-heart".into()).spawn(move || {
            if beating.run(stopped) {
                let _ = myself.cast(Msg::Stopped);
            }
        })?;
        Ok(State { ctx: args.ctx, round: 0, advancer: 0, committer: 0, both: 0, progress, _stop: stop })
    }

    async fn post_start(&self, myself: ActorRef<Msg>, _: &mut State) -> Handled {
        myself.cast(Msg::Tick)?;
        Ok(())
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Handled {
        match message {
            Msg::Tick => state.tick(&myself),
            Msg::Pong(organ, round) => state.pong(organ, round),
            Msg::Stopped => {
                state.ctx.board.root.send(root::Msg::Lost(state.ctx.node));
            }
        }
        Ok(())
    }
}

impl State {
    fn tick(&mut self, myself: &ActorRef<Msg>) {
        self.round += 1;
        self.ctx.board.advancer.send(advancer::Msg::Ping(self.round));
        self.ctx.board.committer.send(committer::Msg::Ping(self.round));
        myself.send_after(self.ctx.config().heartbeat, || Msg::Tick);
    }

    fn pong(&mut self, organ: Organ, round: u64) {
        match organ {
            Organ::Advancer => self.advancer = self.advancer.max(round),
            Organ::Committer => self.committer = self.committer.max(round),
        }
        // Progress is a round that both have answered.
        let both = self.advancer.min(self.committer);
        if both > self.both {
            self.both = both;
            self.progress.fetch_add(1, Ordering::Release);
        }
    }
}

/// What the thread does.
struct Beating {
    pulse: Pulse,
    node: NodeId,
    heartbeat: Duration,
    lease: Duration,
    progress: Arc<AtomicI64>,
    shared: Arc<Shared>,
}

impl Beating {
    /// Beats until it is stopped (`false`), or the node must not go on (`true`).
    fn run(mut self, mut stop: oneshot::Receiver<()>) -> bool {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "no runtime for the heart");
                return true;
            }
        };
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = &mut stop => false,
                () = self.beat() => true,
            }
        })
    }

    /// An operator has asked the node to drain: from here on nothing is claimed.
    fn asked(&self, drain: bool) {
        let first = |leaving: &mut bool| drain && !std::mem::replace(leaving, true);
        if self.shared.leaving.send_if_modified(first) && !self.shared.draining.load(Ordering::Acquire) {
            tracing::info!(node = %self.node, "this node was asked to drain: it takes no more runs");
        }
    }

    /// Returns when the node was declared dead, or its actors have not answered for a lease.
    async fn beat(&mut self) {
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            let progress = self.progress.load(Ordering::Acquire);
            if progress != seen {
                (seen, since) = (progress, Instant::now());
            } else if since.elapsed() > self.lease {
                tracing::error!(node = %self.node, "the actors of this node have not answered for a lease");
                return;
            }
            let leaving = *self.shared.leaving.borrow() || self.shared.draining.load(Ordering::Acquire);
            match self.pulse.beat(progress, leaving).await {
                Ok(Some(drain)) => self.asked(drain),
                Ok(None) => {
                    tracing::error!(node = %self.node, "this node was declared dead");
                    return;
                }
                Err(error) => tracing::warn!(%error, "a heartbeat was not written"),
            }
            tokio::time::sleep(self.heartbeat).await;
        }
    }
}
