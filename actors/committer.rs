//! The committer: the only writer of owned transitions. It gathers what senders hand it while its lanes are flushing, cuts
//! flushes by count and bytes, never puts two transitions of one run into one flush, and answers each sender after COMMIT
//! with its own verdict.
//!
//! Who talks to it: the tasks that run steps, and the heart. It owns the waiting transitions and the lanes' turns; a flush
//! runs in a task of its own that nobody can drop half-way. A restart loses waiting transitions, whose senders hear that
//! their port is gone, forget their runs, and the next claim reads them again. It never awaits the database in a handler.

use super::Handled;
use super::ctx::Ctx;
use super::heart::{self, Organ};
use crate::domain::{Change, Due, RunKey, Transition, Verdict, WaitKind};
use crate::observe::count;
use crate::store::{Hint, Lane};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Transitions per flush at most.
const FLUSH_TRANSITIONS: usize = 512;
/// Bytes per flush at most; the first transition goes whatever its size.
const FLUSH_BYTES: usize = 8 << 20;
/// Lanes: while one flush waits for its COMMIT, another is prepared.
const LANES: usize = 2;
/// With this many runs in flight a flush waits a moment for a good number of transitions.
const CROWD: usize = 256;
/// A good number.
const WORTHWHILE: usize = 128;
/// A moment.
const LINGER: Duration = Duration::from_millis(1);

pub(crate) struct Committer;

#[derive(Clone)]
pub(crate) struct Args {
    pub ctx: Arc<Ctx>,
}

/// What the committer is told.
pub(crate) enum Msg {
    /// Write this, and say what became of it. A port that is dropped unanswered means that nobody knows.
    Commit(Box<Transition>, RpcReplyPort<Verdict>),
    /// A lane is back from its flush of these runs.
    Flushed(Box<Lane>, Vec<RunKey>),
    /// The moment of waiting for company is over.
    Lingered,
    /// The heart asks whether messages are handled.
    Ping(u64),
}

struct Waiting {
    transition: Box<Transition>,
    port: RpcReplyPort<Verdict>,
}

pub(crate) struct State {
    ctx: Arc<Ctx>,
    waiting: VecDeque<Waiting>,
    idle: Vec<Lane>,
    in_flight: HashSet<RunKey>,
    /// Since when a flush waits for company.
    lingering: Option<Instant>,
}

impl Actor for Committer {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        args.ctx.board.committer.enter(myself);
        let database = args.ctx.store().database();
        let idle = (0..LANES).map(|_| Lane::new(database.clone())).collect();
        Ok(State { ctx: args.ctx, waiting: VecDeque::new(), idle, in_flight: HashSet::new(), lingering: None })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Handled {
        match message {
            Msg::Commit(transition, port) => state.waiting.push_back(Waiting { transition, port }),
            Msg::Flushed(lane, runs) => state.flushed(*lane, &runs),
            Msg::Lingered => state.lingering = state.lingering.and(Some(Instant::now() - LINGER)),
            Msg::Ping(round) => {
                state.ctx.board.heart.send(heart::Msg::Pong(Organ::Committer, round));
            }
        }
        state.flush(&myself);
        Ok(())
    }
}

impl State {
    fn flushed(&mut self, lane: Lane, runs: &[RunKey]) {
        self.idle.push(lane);
        for run in runs {
            self.in_flight.remove(run);
        }
    }

    fn flush(&mut self, myself: &ActorRef<Msg>) {
        while !self.waiting.is_empty() && !self.idle.is_empty() {
            if self.waits_for_company(myself) {
                return;
            }
            let chosen = self.choose();
            if chosen.is_empty() {
                return;
            }
            if let Some(lane) = self.idle.pop() {
                self.send(myself, lane, chosen);
            }
        }
    }

    fn waits_for_company(&mut self, myself: &ActorRef<Msg>) -> bool {
        let crowd = self.ctx.running.load(Ordering::Relaxed) > CROWD;
        if !crowd || self.waiting.len() >= WORTHWHILE {
            self.lingering = None;
            return false;
        }
        match self.lingering {
            Some(since) if since.elapsed() >= LINGER => {
                self.lingering = None;
                false
            }
            Some(_) => true,
            None => {
                self.lingering = Some(Instant::now());
                myself.send_after(LINGER, || Msg::Lingered);
                true
            }
        }
    }

    /// The next flush: one transition per run, none of a run that is being flushed, cut by count and bytes.
    fn choose(&mut self) -> Vec<Waiting> {
        let (mut chosen, mut later, mut bytes) = (Vec::new(), VecDeque::new(), 0);
        while let Some(next) = self.waiting.pop_front() {
            let size = next.transition.bytes();
            if chosen.len() >= FLUSH_TRANSITIONS || (!chosen.is_empty() && bytes + size > FLUSH_BYTES) {
                later.push_back(next);
                break;
            }
            if self.in_flight.insert(next.transition.run) {
                bytes += size;
                chosen.push(next);
            } else {
                later.push_back(next);
            }
        }
        later.append(&mut self.waiting);
        self.waiting = later;
        chosen
    }

    fn send(&self, myself: &ActorRef<Msg>, mut lane: Lane, chosen: Vec<Waiting>) {
        let ctx = self.ctx.clone();
        let runs = chosen.iter().map(|waiting| waiting.transition.run).collect();
        let turn = Turn { myself: myself.clone(), runs, lane: None, ctx: ctx.clone() };
        tokio::spawn(async move {
            let mut turn = turn;
            let n = chosen.len();
            let mut ports = HashMap::with_capacity(n);
            let mut transitions = Vec::with_capacity(n);
            for waiting in chosen {
                ports.insert(waiting.transition.run, waiting.port);
                transitions.push(*waiting.transition);
            }
            let answered = lane.commit(transitions).await;
            debug_assert_eq!(answered.len(), n, "a verdict for each transition");
            let asked = tally(&ctx, &answered);
            let live =
                answered.iter().any(|(t, _)| matches!(&t.change, Change::Suspend { wait, .. } if wait.live.is_some()));
            let (parents, failed) = bereaved(&answered);
            for (transition, verdict) in answered {
                if let Some(port) = ports.remove(&transition.run) {
                    let _ = port.send(verdict);
                }
            }
            if asked {
                ctx.board.wake_submitters();
                ctx.board.notifier.send(super::notifier::Msg::Tell(Hint::Requests));
            }
            if live {
                ctx.board.wake_callers();
                ctx.board.notifier.send(super::notifier::Msg::Tell(Hint::Calls));
            }
            turn.lane = Some(lane);
            drop(turn);
            join(&ctx, parents, failed).await;
        });
    }
}

/// The runs that wait for branches which are over now, and whether one of those failed.
fn bereaved(answered: &[(Transition, Verdict)]) -> (Vec<RunKey>, bool) {
    let over = |t: &Transition| matches!(t.change, Change::Complete(_) | Change::Fail(_));
    let committed = answered.iter().filter(|(t, verdict)| *verdict == Verdict::Committed && over(t));
    let branches = committed.filter_map(|(t, _)| Some((t.parent?, matches!(t.change, Change::Fail(_)))));
    branches.fold((Vec::new(), false), |(mut parents, any), (parent, failed)| {
        parents.push(parent);
        (parents, any || failed)
    })
}

/// Joins what can be joined. Should this node die before, the sweep of any node does.
async fn join(ctx: &Ctx, parents: Vec<RunKey>, failed: bool) {
    if parents.is_empty() {
        return;
    }
    match ctx.store().join_all(parents, failed).await {
        Ok(true) => ctx.runs_ready(),
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, "branches were not joined: the next sweep does"),
    }
}

/// Brings a lane back, in whatever way its flush ends; a lane that is lost is replaced.
struct Turn {
    myself: ActorRef<Msg>,
    ctx: Arc<Ctx>,
    runs: Vec<RunKey>,
    lane: Option<Lane>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let lane = self.lane.take().unwrap_or_else(|| Lane::new(self.ctx.store().database().clone()));
        let _ = self.myself.cast(Msg::Flushed(Box::new(lane), std::mem::take(&mut self.runs)));
    }
}

/// Counts what was committed; answers whether requests for models are among it.
fn tally(ctx: &Ctx, answered: &[(Transition, Verdict)]) -> bool {
    let counters = ctx.counters();
    let (mut asked, mut opened) = (false, false);
    count(&counters.flushes, 1);
    for (transition, verdict) in answered {
        if *verdict != Verdict::Committed {
            count(&counters.superseded, u64::from(*verdict == Verdict::Superseded));
            continue;
        }
        count(&counters.runs_advanced, 1);
        count(&counters.events_committed, transition.events.len() as u64);
        match &transition.change {
            Change::Complete(_) => {
                count(&counters.runs_completed, 1);
                count(&counters.branches_completed, u64::from(transition.parent.is_some()));
            }
            Change::Fail(_) => count(&counters.runs_failed, 1),
            Change::Suspend { wait, .. } => {
                count(&counters.waits_opened, 1);
                asked |= wait.kind == WaitKind::Model;
                // Only a hint, so that a node's clock will do.
                let due = wait.due.map(|due| match due {
                    Due::After(delay) => delay,
                    Due::At(moment) => (moment - chrono::Utc::now()).to_std().unwrap_or_default(),
                });
                if let Some(due) = due {
                    ctx.board.timekeeper.send(super::timekeeper::Msg::Due(due));
                }
            }
            Change::Fork { .. } => {
                count(&counters.waits_opened, 1);
                opened = true;
            }
            Change::Continue(_) | Change::Release { .. } | Change::Park(_) => {}
        }
    }
    if opened {
        ctx.runs_ready();
    }
    asked
}
