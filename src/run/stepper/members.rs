//! The runs of a stepper, and what happens to them: what the tables are to a node.

use super::LedgerEvent;
use super::snapshot::stack;
use crate::domain::json::text;
use crate::domain::{Change, EventType, Failure, FailureCode, Fence, JoinRule, JsonText, NewBranch, NewEvent, NewWait};
use crate::domain::{Frame, Ordinal, Position, RunKey, Transition, WaitKey, WaitKind};
use crate::run::flow::Manifest;
use crate::run::trampoline::{self, Ended, Held, Started, event};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// The key of the run itself.
pub(super) const ROOT: RunKey = RunKey(1);

/// The run and the branches below it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Members {
    #[serde(with = "text")]
    pub(super) input: JsonText,
    runs: BTreeMap<i64, Member>,
    /// Events that nobody has taken yet.
    pub(super) told: Vec<LedgerEvent>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Member {
    pub(super) run_id: String,
    parent: Option<i64>,
    cursor: Ordinal,
    pub(super) position: At,
    #[serde(with = "text::option", default)]
    pub(super) state: Option<JsonText>,
    /// Failed attempts of the present step.
    pub(super) errors: u32,
    /// Its starts without an outcome.
    starts: u32,
    /// The wait of a model whose answer no step has taken yet.
    unapplied: Option<Ordinal>,
    /// The branches whose states are brought together with what the next step finds, as long as no step has completed with it.
    pub(super) merging: Vec<Opened>,
    pub(super) status: Status,
}

/// A [`Position`] that any format can keep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct At {
    pub(super) step: String,
    #[serde(with = "text::option", default)]
    arg: Option<JsonText>,
    #[serde(with = "stack", default)]
    stack: Vec<Frame>,
}

/// What it is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Ready {
        after_ms: u64,
    },
    Waiting {
        ordinal: Ordinal,
        wait: NewWait,
    },
    Forked {
        ordinal: Ordinal,
        branches: Vec<Opened>,
        rule: JoinRule,
    },
    Completed {
        #[serde(with = "text")]
        output: JsonText,
    },
    /// With what it goes on when it is set going again.
    Failed {
        failure: Failure,
        again: Box<Status>,
    },
    /// With what it goes on, if it was stopped because its fork did not wait.
    Canceled {
        again: Option<Box<Status>>,
    },
    Parked {
        reason: String,
    },
}

/// A branch, in the hands of the run that opened it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Opened {
    pub(super) name: String,
    run: i64,
}

impl Opened {
    pub(super) fn run(&self) -> RunKey {
        RunKey(self.run)
    }
}

impl Status {
    pub(super) const READY: Self = Self::Ready { after_ms: 0 };

    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Completed { .. } | Self::Failed { .. } | Self::Canceled { .. })
    }

    /// The branches that it waits for, or would wait for if it went on.
    fn fork(&self) -> Option<&[Opened]> {
        match self {
            Self::Forked { branches, .. } => Some(branches),
            Self::Failed { again, .. } | Self::Canceled { again: Some(again) } => again.fork(),
            Self::Ready { .. }
            | Self::Waiting { .. }
            | Self::Completed { .. }
            | Self::Canceled { again: None }
            | Self::Parked { .. } => None,
        }
    }

    /// What it goes on with when it is set going again: what failed, is parked, or was stopped.
    fn again(&self) -> Option<Self> {
        match self {
            Self::Failed { again, .. } | Self::Canceled { again: Some(again) } => Some((**again).clone()),
            Self::Parked { .. } => Some(Self::READY),
            Self::Ready { .. }
            | Self::Waiting { .. }
            | Self::Forked { .. }
            | Self::Completed { .. }
            | Self::Canceled { again: None } => None,
        }
    }

    /// The word that the ledger has for it.
    fn word(&self) -> &'static str {
        match self {
            Self::Ready { .. } => "runnable",
            Self::Waiting { .. } | Self::Forked { .. } => "waiting",
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
            Self::Canceled { .. } => "canceled",
            Self::Parked { .. } => "parked",
        }
    }
}

impl From<Position> for At {
    fn from(Position { step, arg, stack }: Position) -> Self {
        Self { step, arg, stack }
    }
}

impl At {
    fn position(&self) -> Position {
        Position { step: self.step.clone(), arg: self.arg.clone(), stack: self.stack.clone() }
    }
}

impl Members {
    pub(super) fn new(manifest: &Manifest, run_id: &str, input: JsonText) -> Self {
        let at = At { step: manifest.entry.to_string(), arg: None, stack: Vec::new() };
        let root = Member::new(run_id.to_owned(), None, at, None);
        let mut members = Self { input, runs: BTreeMap::from([(ROOT.0, root)]), told: Vec::new() };
        let bytes = members.input.as_str().len();
        members.tell(ROOT, &event(EventType::RunEnqueued, &json!({"bytes": bytes})));
        members
    }

    pub(super) fn find(&self, run: RunKey) -> Option<&Member> {
        self.runs.get(&run.0)
    }

    /// A run that is known to be there.
    pub(super) fn get(&self, run: RunKey) -> &Member {
        &self.runs[&run.0]
    }

    /// Whether a snapshot from outside holds together: every run that another one names is there.
    pub(super) fn is_whole(&self) -> bool {
        let there = |run: &i64| self.runs.contains_key(run);
        let opened = |branches: &[Opened]| branches.iter().all(|branch| there(&branch.run));
        let whole = |member: &Member| {
            let branches = member.status.fork().unwrap_or_default();
            opened(branches) && opened(&member.merging) && member.parent.iter().all(there) && member.cursor > 0
        };
        there(&ROOT.0) && self.runs.values().all(whole)
    }

    /// The runs that are not over and that the root still waits for, depth first, branches before who opened
    /// them unless that one is through with them.
    pub(super) fn under_way(&self) -> Vec<RunKey> {
        let mut found = Vec::new();
        self.walk(ROOT, &mut found);
        found
    }

    fn walk(&self, run: RunKey, found: &mut Vec<RunKey>) {
        let member = self.get(run);
        // A fork that does not wait comes before what is left of its branches.
        let first = self.is_decided(run);
        found.extend(first.then_some(run));
        if let Status::Forked { branches, .. } = &member.status {
            for branch in branches {
                self.walk(branch.run(), found);
            }
        }
        found.extend((!first && !member.status.is_over()).then_some(run));
    }

    /// The request of a wait that is open.
    pub(super) fn waiting(&self, key: WaitKey) -> Option<&NewWait> {
        match &self.find(key.run)?.status {
            Status::Waiting { ordinal, wait } if *ordinal == key.ordinal => Some(wait),
            _ => None,
        }
    }

    /// What the holder of a run that is ready knows of it.
    pub(super) fn held(&self, run: RunKey) -> Option<Held> {
        let member = self.find(run).filter(|member| matches!(member.status, Status::Ready { .. }))?;
        Some(Held {
            run,
            parent: member.parent.map(RunKey),
            fence: Fence(1),
            cursor: member.cursor,
            position: member.position.position(),
            errors: member.errors,
            starts: member.starts,
        })
    }

    /// Starts the step of a run that is ready, as a claim does.
    pub(super) fn start(&mut self, run: RunKey) -> Option<Held> {
        self.held(run)?;
        let applied = self.change(run, |member| member.unapplied.take());
        if let Some(wait) = applied.flatten() {
            self.tell(run, &event(EventType::ModelApplied, &json!({"wait": wait})));
        }
        let attempt = self.change(run, |member| {
            member.starts = member.starts.saturating_add(1);
            member.errors + member.starts
        })?;
        let step = self.get(run).position.step.clone();
        self.tell(run, &event(EventType::StepStarted, &Started { step: &step, attempt }));
        self.held(run)
    }

    /// Writes a transition. Whether what its steps left in memory is what the run is now.
    pub(super) fn apply(&mut self, transition: Transition) -> bool {
        let run = transition.run;
        for new in &transition.events {
            self.tell(run, new);
        }
        let opened = transition.next_cursor() - 1;
        let (mut at, mut errors) = (None, 0);
        let status = match transition.change {
            Change::Continue(position) => {
                at = Some(position);
                Status::READY
            }
            Change::Release { position, delay, errors: failed } => {
                (at, errors) = (Some(position), failed);
                Status::Ready { after_ms: millis(delay) }
            }
            Change::Suspend { position, wait } => {
                at = Some(position);
                Status::Waiting { ordinal: opened, wait }
            }
            Change::Fork { position, branches, rule } => {
                at = Some(position);
                if let Some(state) = &transition.state {
                    self.change(run, |member| member.state = Some(state.clone()));
                }
                Status::Forked { ordinal: opened, branches: self.open(run, opened, branches), rule }
            }
            Change::Complete(output) => Status::Completed { output },
            Change::Fail(failure) => Status::Failed { failure, again: Box::new(Status::READY) },
            Change::Park(reason) => Status::Parked { reason },
        };
        let in_memory = at.is_some();
        let moved = in_memory && errors == 0;
        self.change(run, |member| {
            member.status = status;
            if moved {
                member.merging.clear();
            }
            (member.errors, member.starts) = (errors, 0);
            if let Some(position) = at {
                member.position = position.into();
            }
            if let Some(state) = transition.state {
                member.state = Some(state);
            }
        });
        in_memory
    }

    /// Opens branches: each has a copy of the state.
    fn open(&mut self, parent: RunKey, fork: Ordinal, branches: Vec<NewBranch>) -> Vec<Opened> {
        let state = self.get(parent).state.clone();
        let mut opened = Vec::with_capacity(branches.len());
        for (k, NewBranch { name, step, arg }) in branches.into_iter().enumerate() {
            let run = self.runs.last_key_value().map_or(ROOT.0, |(last, _)| last + 1);
            let at = At { step, arg, stack: Vec::new() };
            let run_id = format!("~{}.{fork}.{k}", parent.0);
            self.runs.insert(run, Member::new(run_id, Some(parent.0), at, state.clone()));
            let payload = json!({"parent": parent.0, "fork": fork, "branch": k});
            self.tell(RunKey(run), &event(EventType::RunEnqueued, &payload));
            opened.push(Opened { name, run });
        }
        opened
    }

    /// Gives a run the answer that it waits for.
    pub(super) fn answer(&mut self, key: WaitKey, asked: &NewWait, answer: &JsonText, by_time: bool) {
        let kind = match (asked.kind, by_time) {
            (WaitKind::Human, false) => EventType::HumanAnswered,
            (WaitKind::Human, true) => EventType::HumanExpired,
            (WaitKind::External, false) => EventType::ExternalAnswered,
            (WaitKind::External, true) => EventType::ExternalExpired,
            (WaitKind::Timer, _) => EventType::TimerFired,
            (WaitKind::Model | WaitKind::Tools | WaitKind::Fork | WaitKind::Unknown(_), _) => EventType::ModelAnswered,
        };
        self.tell(key.run, &event(kind, &json!({"wait": key.ordinal})));
        self.change(key.run, |member| {
            let position = trampoline::resume(member.position.position(), answer, Some(&asked.request));
            member.position = position.into();
            member.unapplied = (kind == EventType::ModelAnswered).then_some(key.ordinal);
            member.status = Status::READY;
        });
    }

    /// No answer will come to what a run waits for.
    pub(super) fn refuse(&mut self, run: RunKey, why: &str) {
        let step = self.get(run).position.step.clone();
        let failure = Failure::new(FailureCode::ModelFailed, &step, why);
        self.tell(run, &event(EventType::ModelFailed, &json!({})));
        self.fail(run, failure);
    }

    /// Ends a run that waits.
    pub(super) fn fail(&mut self, run: RunKey, failure: Failure) {
        let ended = Ended { step: &failure.step, code: failure.code.as_str() };
        self.tell(run, &event(EventType::RunFailed, &ended));
        self.change(run, |member| {
            let again = Box::new(std::mem::replace(&mut member.status, Status::READY));
            member.status = Status::Failed { failure, again };
        });
    }

    /// Ends a run by request, and the branches that it waits for.
    pub(super) fn cancel(&mut self, run: RunKey) -> bool {
        self.end(run, false)
    }

    /// Ends a branch whose fork does not wait for it any more, and what it waits for itself. It may go on later.
    pub(super) fn stop(&mut self, run: RunKey) {
        self.end(run, true);
    }

    fn end(&mut self, run: RunKey, stopped: bool) -> bool {
        let Some(was) = self.find(run).map(|member| member.status.clone()).filter(|was| !was.is_over()) else {
            return false;
        };
        let payload = match stopped {
            true => json!({"was": was.word(), "by": "fail-fast"}),
            false => json!({"was": was.word()}),
        };
        self.tell(run, &event(EventType::RunCanceled, &payload));
        let below: Vec<RunKey> = was.fork().unwrap_or_default().iter().map(Opened::run).collect();
        let again = match was {
            Status::Parked { .. } => Status::READY,
            other => other,
        };
        self.change(run, |member| member.status = Status::Canceled { again: stopped.then(|| Box::new(again)) });
        for branch in below {
            self.end(branch, stopped);
        }
        true
    }

    /// Sets a run going again that failed, is parked or was stopped, after the branches that it fell with; then whoever fell because
    /// of it, and so on upwards.
    pub(super) fn retry(&mut self, run: RunKey) -> bool {
        if !self.revive(run) {
            return false;
        }
        let mut child = run;
        while let Some(parent) = self.get(child).parent.map(RunKey) {
            let status = &self.get(parent).status;
            let waits = status.fork().is_some_and(|branches| branches.iter().any(|branch| branch.run() == child));
            if !(waits && status.is_over() && self.revive(parent)) {
                break;
            }
            child = parent;
        }
        true
    }

    fn revive(&mut self, run: RunKey) -> bool {
        let Some(was) = self.find(run).map(|member| member.status.clone()) else { return false };
        let Some(again) = was.again() else { return false };
        for branch in was.fork().unwrap_or_default() {
            if self.get(branch.run()).status.is_over() {
                self.revive(branch.run());
            }
        }
        self.tell(run, &event(EventType::RunRetried, &json!({"was": was.word()})));
        self.change(run, |member| {
            member.status = again;
            (member.errors, member.starts) = (0, 0);
        });
        true
    }

    pub(super) fn change<T>(&mut self, run: RunKey, change: impl FnOnce(&mut Member) -> T) -> Option<T> {
        self.runs.get_mut(&run.0).map(change)
    }

    /// Adds an event to a run's ledger.
    pub(super) fn tell(&mut self, run: RunKey, new: &NewEvent) {
        let Some(member) = self.runs.get_mut(&run.0) else { return };
        self.told.push(LedgerEvent::of(run, member.cursor, new));
        member.cursor = member.cursor.saturating_add(1);
    }
}

impl Member {
    fn new(run_id: String, parent: Option<i64>, position: At, state: Option<JsonText>) -> Self {
        Self {
            run_id,
            parent,
            cursor: 0,
            position,
            state,
            errors: 0,
            starts: 0,
            unapplied: None,
            merging: Vec::new(),
            status: Status::READY,
        }
    }

    pub(super) fn take(&mut self, results: &JsonText) {
        self.position = trampoline::resume(self.position.position(), results, None).into();
        self.status = Status::READY;
    }
}

fn millis(delay: Duration) -> u64 {
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
}
