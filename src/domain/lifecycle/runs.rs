//! The moves of a run.

use super::{By, Move, Rule};
use crate::domain::{Change, EventType, RunStatus};

/// Every way in which a run's row changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMove {
    /// It is accepted.
    Enqueued,
    /// A node takes it and starts its step.
    Claimed,
    /// Owned: the next step starts under the same holder.
    Continue,
    /// Owned: the holder lets go, after a completed step or a failed attempt.
    Release,
    /// Owned: it waits.
    Suspend,
    /// Owned: it ends with an output.
    Complete,
    /// Owned: it ends with an error.
    Fail,
    /// Owned: it is held back for an operator.
    Park,
    /// A node lets go of what it does not hold.
    Released,
    /// A transition whose commit was in doubt is decided not to be in.
    Decided,
    /// It is taken from a dead node.
    TakenOver,
    /// Its request is at the provider.
    Submitted,
    /// Its answer is stored.
    Answered,
    /// Its request goes out again.
    Requeued,
    /// No answer will come.
    ModelFailed,
}

impl RunMove {
    /// The move that a transition makes.
    pub fn of(change: &Change) -> Self {
        match change {
            Change::Continue(_) => Self::Continue,
            Change::Release { .. } => Self::Release,
            Change::Suspend { .. } => Self::Suspend,
            Change::Complete(_) => Self::Complete,
            Change::Fail(_) => Self::Fail,
            Change::Park(_) => Self::Park,
        }
    }

    /// The owned moves: events and statement are the same for all.
    fn owned(self) -> (&'static str, &'static [(Option<RunStatus>, RunStatus)], &'static [EventType], &'static str) {
        use EventType::{ModelAsked, RunCompleted, RunFailed, RunParked, StepCompleted, StepFailed, StepStarted};
        use RunStatus::{Completed, Failed, Owned, Parked, Runnable, Waiting};
        match self {
            Self::Continue => ("continue", &[(Some(Owned), Owned)], &[StepCompleted, StepStarted], "goes on"),
            Self::Release => (
                "release",
                &[(Some(Owned), Runnable)],
                &[StepCompleted],
                "holds it no longer; a failed attempt tells `step.failed`",
            ),
            Self::Suspend => {
                ("suspend", &[(Some(Owned), Waiting)], &[StepCompleted, ModelAsked], "holds it no longer; makes a wait")
            }
            Self::Complete => (
                "complete",
                &[(Some(Owned), Completed)],
                &[StepCompleted, RunCompleted],
                "holds it no longer; stores the output",
            ),
            Self::Fail => {
                ("fail", &[(Some(Owned), Failed)], &[StepFailed, RunFailed], "holds it no longer; stores the error")
            }
            Self::Park => ("park", &[(Some(Owned), Parked)], &[RunParked], "holds it no longer; the reason is stored"),
            Self::Enqueued
            | Self::Claimed
            | Self::Released
            | Self::Decided
            | Self::TakenOver
            | Self::Submitted
            | Self::Answered
            | Self::Requeued
            | Self::ModelFailed => ("", &[], &[], ""),
        }
    }
}

impl Move for RunMove {
    type Status = RunStatus;
    const ALL: &'static [Self] = &[
        Self::Enqueued,
        Self::Claimed,
        Self::Continue,
        Self::Release,
        Self::Suspend,
        Self::Complete,
        Self::Fail,
        Self::Park,
        Self::Released,
        Self::Decided,
        Self::TakenOver,
        Self::Submitted,
        Self::Answered,
        Self::Requeued,
        Self::ModelFailed,
    ];
    const STATUSES: &'static [RunStatus] = RunStatus::ALL;

    fn rule(self) -> Rule<RunStatus> {
        use RunStatus::{Failed, Owned, Runnable, Waiting};
        let superseded = "the old owner hears `Superseded`";
        match self {
            Self::Continue | Self::Release | Self::Suspend | Self::Complete | Self::Fail | Self::Park => {
                let (name, paths, events, note) = self.owned();
                Rule { name, statement: "flush::flush", by: By::Owner, paths, fence_rises: false, events, note }
            }
            Self::Enqueued => Rule {
                name: "enqueued",
                statement: "enqueue::enqueue",
                by: By::Anyone,
                paths: &[(None, Runnable)],
                fence_rises: false,
                events: &[EventType::RunEnqueued],
                note: "idempotent by run id and digest",
            },
            Self::Claimed => Rule {
                name: "claimed",
                statement: "claim::claim",
                by: By::LivingNode,
                paths: &[(Some(Runnable), Owned)],
                fence_rises: true,
                events: &[EventType::StepStarted],
                note: "counts the start; with an answer to take up, `model.applied` comes first",
            },
            Self::Released => Rule {
                name: "released",
                statement: "claim::release_unheld",
                by: By::Anyone,
                paths: &[(Some(Owned), Runnable)],
                fence_rises: true,
                events: &[],
                note: superseded,
            },
            Self::Decided => Rule {
                name: "decided",
                statement: "decide::decide",
                by: By::Owner,
                paths: &[(Some(Owned), Runnable)],
                fence_rises: true,
                events: &[],
                note: superseded,
            },
            Self::TakenOver => Rule {
                name: "taken over",
                statement: "nodes::take_over_runs",
                by: By::Anyone,
                paths: &[(Some(Owned), Runnable)],
                fence_rises: true,
                events: &[EventType::RunTakenOver],
                note: "only from a node that is declared dead; it hears `Superseded`, if it hears anything",
            },
            Self::Submitted => Rule {
                name: "submitted",
                statement: "submit::tell_submitted",
                by: By::Anyone,
                paths: &[(Some(Waiting), Waiting)],
                fence_rises: false,
                events: &[EventType::ModelSubmitted],
                note: "nobody owns it",
            },
            Self::Answered => Rule {
                name: "answered",
                statement: "ingest::answer",
                by: By::Keeper,
                paths: &[(Some(Waiting), Runnable)],
                fence_rises: false,
                events: &[EventType::ModelAnswered],
                note: "nobody owns it",
            },
            Self::Requeued => Rule {
                name: "requeued",
                statement: "ingest::retry",
                by: By::Keeper,
                paths: &[(Some(Waiting), Waiting)],
                fence_rises: false,
                events: &[EventType::ModelRetried],
                note: "nobody owns it",
            },
            Self::ModelFailed => Rule {
                name: "failed by provider",
                statement: "ingest::fail",
                by: By::Keeper,
                paths: &[(Some(Waiting), Failed)],
                fence_rises: false,
                events: &[EventType::ModelFailed, EventType::RunFailed],
                note: "nobody owns it; stores the error",
            },
        }
    }
}
