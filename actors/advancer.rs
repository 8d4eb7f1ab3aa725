//! The advancer: claims runs by demand (what it may hold less what it holds), runs each in a task of its own, and releases
//! rows that carry this node's id but that no task of it holds.
//!
//! Who talks to it: everybody that knows of runnable runs (`Wake`), its own tasks, the heart. It owns the tasks and the set
//! of held (run, fence); when it dies its tasks are aborted, and what cannot be aborted is fenced. A restart loses nothing:
//! the first thing that a new one does is to release what the old one held. It never awaits the database in a handler, and
//! at most one statement of its own is under way.

use super::ctx::Ctx;
use super::heart::{self, Organ};
use super::{Handled, runner};
use crate::domain::{Fence, RunKey};
use crate::observe::count;
use crate::store::{Claimed, Claimer, Demand, Floor, StoreError};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Runs per claim at most.
const CLAIM: usize = 256;
/// How often the queue is looked at from its head again.
const SWEEP: Duration = Duration::from_secs(1);
/// How long to leave the database alone after an error.
const ERROR_PAUSE: Duration = Duration::from_millis(250);

pub(crate) struct Advancer;

#[derive(Clone)]
pub(crate) struct Args {
    pub ctx: Arc<Ctx>,
}

/// What the advancer is told.
pub(crate) enum Msg {
    /// There may be runs to claim.
    Wake,
    /// Time to look without having been told.
    Tick,
    /// The claimer is back from a claim that asked for that many.
    Claimed(Box<Claimer>, Result<Vec<Claimed>, StoreError>, usize),
    /// The claimer is back from releasing what is not held.
    Released(Box<Claimer>, Result<u64, StoreError>),
    /// A task has let go of its run.
    Over(RunKey),
    /// The heart asks whether messages are handled.
    Ping(u64),
    /// Take nothing new; answer when nothing is held any more.
    Drain(RpcReplyPort<()>),
}

pub(crate) struct State {
    ctx: Arc<Ctx>,
    /// Away while a statement is under way.
    claimer: Option<Box<Claimer>>,
    held: HashMap<RunKey, Fence>,
    tasks: JoinSet<()>,
    floors: Vec<Floor>,
    swept: Instant,
    released: Instant,
    /// Something may be claimable.
    wanted: bool,
    /// Runs of workflows with a ceiling were claimed: the end of one makes room for another.
    limited: bool,
    /// It is time to fill even a few free places.
    eager: bool,
    /// Rows may carry our id without being held.
    must_release: bool,
    pause_until: Option<Instant>,
    drains: Vec<RpcReplyPort<()>>,
}

impl Actor for Advancer {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        let ctx = args.ctx;
        ctx.board.advancer.enter(myself);
        // The tasks of an earlier advancer are gone, and with them what they counted.
        ctx.running.store(0, Ordering::Relaxed);
        let claimer = Claimer::new(ctx.store().database().clone(), ctx.node);
        Ok(State {
            claimer: Some(Box::new(claimer)),
            held: HashMap::new(),
            tasks: JoinSet::new(),
            floors: heads(&ctx),
            swept: Instant::now(),
            released: Instant::now(),
            wanted: true,
            limited: false,
            eager: true,
            must_release: true,
            pause_until: None,
            drains: Vec::new(),
            ctx,
        })
    }

    async fn post_start(&self, myself: ActorRef<Msg>, _: &mut State) -> Handled {
        myself.cast(Msg::Tick)?;
        Ok(())
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Handled {
        match message {
            Msg::Wake => state.wanted = true,
            Msg::Tick => state.tick(&myself),
            Msg::Claimed(claimer, claimed, asked) => state.claimed(&myself, claimer, claimed, asked),
            Msg::Released(claimer, released) => state.released(&myself, claimer, released),
            Msg::Over(run) => state.over(run),
            Msg::Ping(round) => {
                state.ctx.board.heart.send(heart::Msg::Pong(Organ::Advancer, round));
            }
            Msg::Drain(port) => state.drains.push(port),
        }
        state.next(&myself);
        Ok(())
    }
}

/// The floors of all queues at their heads.
fn heads(ctx: &Ctx) -> Vec<Floor> {
    ctx.shared.flows.keys().into_iter().map(Floor::head).collect()
}

impl State {
    fn tick(&mut self, myself: &ActorRef<Msg>) {
        self.wanted = true;
        self.eager = true;
        self.limited = false;
        if self.released.elapsed() > self.ctx.config().lease {
            self.must_release = true;
        }
        myself.send_after(self.ctx.config().poll_interval, || Msg::Tick);
    }

    /// What to do next with the claimer, if it is here.
    fn next(&mut self, myself: &ActorRef<Msg>) {
        if self.held.is_empty() && self.ctx.draining() && self.claimer.is_some() {
            for port in self.drains.drain(..) {
                let _ = port.send(());
            }
        }
        if self.pause_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let free = self.ctx.config().runs_in_flight.saturating_sub(self.held.len());
        let ask = free.min(CLAIM);
        // A claim for a few free places costs as much as one for many: wait for some room, but no longer than a tick.
        let room =
            self.eager || ask >= CLAIM / 4 || ask * 2 >= self.ctx.config().runs_in_flight || self.held.is_empty();
        let claim = self.wanted && ask > 0 && room && !self.ctx.leaving() && !self.floors.is_empty();
        if !claim && !self.must_release {
            return;
        }
        let Some(mut claimer) = self.claimer.take() else { return };
        let myself = myself.clone();
        if self.must_release {
            self.must_release = false;
            self.released = Instant::now();
            let held: Vec<_> = self.held.iter().map(|(run, fence)| (*run, *fence)).collect();
            tokio::spawn(async move {
                let released = claimer.release_unheld(&held).await;
                let _ = myself.cast(Msg::Released(claimer, released));
            });
            return;
        }
        self.wanted = false;
        self.eager = false;
        if self.swept.elapsed() > SWEEP {
            self.swept = Instant::now();
            self.floors = heads(&self.ctx);
        }
        let floors = self.floors.clone();
        let demand = Demand { runs: ask as i64, bytes: self.ctx.config().claim_bytes as i64 };
        tokio::spawn(async move {
            let claimed = claimer.claim(&floors, demand).await;
            let _ = myself.cast(Msg::Claimed(claimer, claimed, ask));
        });
    }

    fn claimed(
        &mut self,
        myself: &ActorRef<Msg>,
        claimer: Box<Claimer>,
        claimed: Result<Vec<Claimed>, StoreError>,
        asked: usize,
    ) {
        self.claimer = Some(claimer);
        let claimed = match claimed {
            Ok(claimed) => claimed,
            Err(error) => {
                // The claim may have been committed although its answer was lost: what is not held is released first.
                tracing::warn!(%error, "a claim was not answered");
                self.must_release = true;
                self.wanted = true;
                return self.pause(myself);
            }
        };
        count(&self.ctx.counters().runs_claimed, claimed.len() as u64);
        // Fewer than asked for: the queues are empty down from their floors; look from the head when told again.
        if claimed.is_empty() {
            self.floors = heads(&self.ctx);
        }
        self.wanted |= claimed.len() == asked;
        self.limited |= claimed.iter().any(|run| run.limited);
        for run in claimed {
            self.begin(myself, run);
        }
        self.ctx.running.store(self.held.len(), Ordering::Relaxed);
    }

    fn begin(&mut self, myself: &ActorRef<Msg>, claimed: Claimed) {
        if let Some(floor) = self.floors.iter_mut().find(|f| f.workflow == claimed.workflow) {
            *floor = claimed.floor.max(*floor);
        }
        let run = claimed.run;
        self.held.insert(run, claimed.fence);
        let over = Over { run, myself: myself.clone() };
        let ctx = self.ctx.clone();
        self.tasks.spawn(async move {
            let _over = over;
            runner::run(ctx, claimed).await;
        });
    }

    fn released(&mut self, myself: &ActorRef<Msg>, claimer: Box<Claimer>, released: Result<u64, StoreError>) {
        self.claimer = Some(claimer);
        match released {
            Ok(0) => {}
            Ok(runs) => {
                tracing::info!(runs, "released runs that carried this node's id but were not held");
                self.wanted = true;
            }
            Err(error) => {
                tracing::warn!(%error, "what is not held could not be released yet");
                self.must_release = true;
                self.pause(myself);
            }
        }
    }

    fn over(&mut self, run: RunKey) {
        self.held.remove(&run);
        self.wanted |= self.limited;
        self.eager |= self.limited;
        self.ctx.running.store(self.held.len(), Ordering::Relaxed);
        // Finished tasks are reaped as they end, so that the set does not grow.
        while self.tasks.try_join_next().is_some() {}
    }

    fn pause(&mut self, myself: &ActorRef<Msg>) {
        self.pause_until = Some(Instant::now() + ERROR_PAUSE);
        myself.send_after(ERROR_PAUSE + Duration::from_millis(1), || Msg::Wake);
    }
}

/// Tells the advancer that a task has ended, in whatever way.
struct Over {
    run: RunKey,
    myself: ActorRef<Msg>,
}

impl Drop for Over {
    fn drop(&mut self) {
        let _ = self.myself.cast(Msg::Over(self.run));
    }
}
