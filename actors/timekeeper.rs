//! The timekeeper: ends waits whose time is over (sleepers, questions that nobody answered), and wakes the advancer at the moment
//! when the next run becomes due (a step that is to be tried again). Who talks to it: the tasks that let a run go with a delay,
//! and the committer when it has opened a wait that time may end. It owns the next moment it knows of; a restart looks it up again.
//! It never claims anything itself.

use super::ctx::Ctx;
use super::{Handled, advancer};
use crate::store::StoreError;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct Timekeeper;

#[derive(Clone)]
pub(crate) struct Args {
    pub ctx: Arc<Ctx>,
}

/// What the timekeeper is told.
pub(crate) enum Msg {
    /// Time to look without having been told.
    Tick,
    /// What a look has found: the next run is due in that long, or none is known.
    Found(Option<Duration>),
    /// A run was let go and is due in that long.
    Due(Duration),
    /// The moment has come.
    Ring,
}

pub(crate) struct State {
    ctx: Arc<Ctx>,
    rings_at: Option<Instant>,
    /// A look is under way, and whether another one is wanted after it.
    looking: bool,
    again: bool,
}

impl Actor for Timekeeper {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        args.ctx.board.timekeeper.enter(myself);
        Ok(State { ctx: args.ctx, rings_at: None, looking: false, again: false })
    }

    async fn post_start(&self, myself: ActorRef<Msg>, _: &mut State) -> Handled {
        myself.cast(Msg::Tick)?;
        Ok(())
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Handled {
        match message {
            Msg::Tick => {
                state.look(&myself);
                myself.send_after(state.ctx.config().poll_interval, || Msg::Tick);
            }
            Msg::Found(due) => state.found(&myself, due),
            Msg::Due(due) => state.due(&myself, Some(due)),
            Msg::Ring => state.ring(&myself),
        }
        Ok(())
    }
}

/// How soon a look is followed by another.
const SOONEST: Duration = Duration::from_millis(20);
/// Waits ended per statement.
const BATCH: i64 = 500;

/// Ends what is over, and says in how long the next thing is.
async fn look(ctx: &Ctx) -> Result<Option<Duration>, StoreError> {
    let mut ended = 0;
    loop {
        let batch = ctx.store().expire(BATCH).await?;
        ended += batch;
        if batch < BATCH {
            break;
        }
    }
    // What cannot be joined keeps nobody else from being woken.
    let joined = ctx.store().sweep_forks(BATCH).await;
    if let Err(error) = &joined {
        tracing::warn!(%error, "branches could not be joined yet");
    }
    if matches!(joined, Ok(true)) || ended > 0 {
        ctx.runs_ready();
    }
    let workflows = ctx.shared.flows.keys();
    let (run, wait) = (ctx.store().next_ready(&workflows).await?, ctx.store().next_wait_due().await?);
    let due = [run, wait].into_iter().flatten().min();
    Ok(due.map(|ms| Duration::from_millis(ms.max(0) as u64)))
}

impl State {
    fn look(&mut self, myself: &ActorRef<Msg>) {
        if std::mem::replace(&mut self.looking, true) {
            self.again = true;
            return;
        }
        let (ctx, myself) = (self.ctx.clone(), myself.clone());
        tokio::spawn(async move {
            let due = match look(&ctx).await {
                Ok(due) => due,
                Err(error) => {
                    tracing::debug!(%error, "what is due could not be looked at");
                    None
                }
            };
            let _ = myself.cast(Msg::Found(due));
        });
    }

    fn found(&mut self, myself: &ActorRef<Msg>, due: Option<Duration>) {
        self.looking = false;
        // Something may be due that a look could not end: it is not looked at without a pause.
        self.due(myself, due.map(|due| due.max(SOONEST)));
        if std::mem::take(&mut self.again) {
            self.look(myself);
        }
    }

    fn due(&mut self, myself: &ActorRef<Msg>, due: Option<Duration>) {
        let Some(due) = due else { return };
        let at = Instant::now() + due;
        if self.rings_at.is_none_or(|rings| at < rings) {
            self.rings_at = Some(at);
            myself.send_after(due + Duration::from_millis(1), || Msg::Ring);
        }
    }

    /// Rings; also for timers that an earlier moment has replaced, which is harmless.
    fn ring(&mut self, myself: &ActorRef<Msg>) {
        if self.rings_at.is_some_and(|at| at <= Instant::now()) {
            self.rings_at = None;
            self.look(myself);
        }
        self.ctx.board.advancer.send(advancer::Msg::Wake);
    }
}
