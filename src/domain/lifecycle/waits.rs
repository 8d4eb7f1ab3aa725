//! The moves of a wait.

use super::{By, Move, Rule};
use crate::domain::{EventType, WaitStatus};

/// Every way in which a wait's row changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMove {
    /// A step asks.
    Asked,
    /// It becomes an item of a batch.
    Reserved,
    /// Its batch was never created.
    GivenBack,
    /// Its batch is at the provider.
    Submitted,
    /// The answer is stored.
    Answered,
    /// The request goes out again.
    Requeued,
    /// No answer will come.
    Failed,
    /// The run takes the answer.
    Applied,
}

impl Move for WaitMove {
    type Status = WaitStatus;
    const ALL: &'static [Self] = &[
        Self::Asked,
        Self::Reserved,
        Self::GivenBack,
        Self::Submitted,
        Self::Answered,
        Self::Requeued,
        Self::Failed,
        Self::Applied,
    ];
    const STATUSES: &'static [WaitStatus] = WaitStatus::ALL;

    fn rule(self) -> Rule<WaitStatus> {
        use WaitStatus::{Answered, Applied, Failed, Open, Reserved, Sent};
        let (name, statement, by, paths, events, note): (_, _, _, &[_], &[_], _) = match self {
            Self::Asked => (
                "asked",
                "flush::flush",
                By::Owner,
                &[(None, Open)],
                &[EventType::ModelAsked],
                "part of the run's suspend",
            ),
            Self::Reserved => {
                ("reserved", "reserve::fill", By::LeaseHolder, &[(Some(Open), Reserved)], &[], "counts the attempt")
            }
            Self::GivenBack => (
                "given back",
                "submit::give_back",
                By::LeaseHolder,
                &[(Some(Reserved), Open), (Some(Sent), Open)],
                &[],
                "the next attempt has another custom id",
            ),
            Self::Submitted => (
                "submitted",
                "submit::tell_submitted",
                By::Anyone,
                &[(Some(Reserved), Sent)],
                &[EventType::ModelSubmitted],
                "while its run waits on it, and its batch is this one",
            ),
            Self::Answered => (
                "answered",
                "ingest::answer",
                By::Keeper,
                &[(Some(Open), Answered), (Some(Reserved), Answered), (Some(Sent), Answered)],
                &[EventType::ModelAnswered],
                "by any attempt, a late one too, while its run waits on it",
            ),
            Self::Requeued => (
                "requeued",
                "ingest::retry",
                By::Keeper,
                &[(Some(Reserved), Open), (Some(Sent), Open)],
                &[EventType::ModelRetried],
                "within its budget of errors",
            ),
            Self::Failed => (
                "failed",
                "ingest::fail",
                By::Keeper,
                &[(Some(Reserved), Failed), (Some(Sent), Failed)],
                &[EventType::ModelFailed],
                "with its run",
            ),
            Self::Applied => (
                "applied",
                "claim::claim",
                By::LivingNode,
                &[(Some(Answered), Applied)],
                &[EventType::ModelApplied],
                "an answered wait never expires",
            ),
        };
        Rule { name, statement, by, paths, fence_rises: false, events, note }
    }
}
