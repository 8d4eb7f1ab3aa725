//! What a ledger's last event says about its run.

use crate::domain::{EventType, RunStatus};

/// The statuses that a run may have when this is the last event of its ledger. Letting go of a run that nobody holds any more
/// writes no event, so a started step may also be runnable. Empty: the event says nothing about the status, and the one
/// before it counts.
pub fn statuses_after(last: EventType) -> &'static [RunStatus] {
    use RunStatus::{Canceled, Completed, Failed, Owned, Parked, Runnable, Waiting};
    match last {
        EventType::StepStarted => &[Owned, Runnable],
        EventType::RunRetried => &[Runnable, Waiting, Parked],
        EventType::RunEnqueued
        | EventType::RunTakenOver
        | EventType::StepCompleted
        | EventType::StepFailed
        | EventType::ModelAnswered
        | EventType::HumanAnswered
        | EventType::HumanExpired
        | EventType::ExternalAnswered
        | EventType::ExternalExpired
        | EventType::TimerFired
        | EventType::ForkJoined => &[Runnable],
        EventType::ModelAsked
        | EventType::ModelSubmitted
        | EventType::ModelRetried
        | EventType::HumanAsked
        | EventType::ExternalAsked
        | EventType::TimerSet
        | EventType::ForkOpened => &[Waiting],
        // Each of these is written together with the one that follows it.
        EventType::ModelApplied
        | EventType::ModelFailed
        | EventType::ForkFailed
        | EventType::ToolsCompleted
        | EventType::RunUpgraded => &[],
        EventType::RunCompleted => &[Completed],
        EventType::RunFailed => &[Failed],
        EventType::RunCanceled => &[Canceled],
        EventType::RunParked => &[Parked],
        EventType::Custom | EventType::Unknown(_) => &[],
    }
}
