//! The ledger's entries: what happened, in words, counts and digests, never in bodies.

use super::ids::{EventId, Ordinal, RunKey};
use super::json::{InvalidJson, JsonText};
use super::limits::EVENT_PAYLOAD_BYTES;
use super::status::status;
use serde::Serialize;

status! {
    /// What an event tells of.
    EventType {
        /// The run was accepted.
        RunEnqueued = "run.enqueued",
        /// It ended with an output.
        RunCompleted = "run.completed",
        /// It ended with an error.
        RunFailed = "run.failed",
        /// It was ended by request.
        RunCanceled = "run.canceled",
        /// It is held back until an operator acts.
        RunParked = "run.parked",
        /// It was taken from a dead node.
        RunTakenOver = "run.taken_over",
        /// An operator set it going again.
        RunRetried = "run.retried",
        /// It became a run of a newer version.
        RunUpgraded = "run.upgraded",
        /// User code is about to run.
        StepStarted = "step.started",
        /// User code returned, and what it asked for is done.
        StepCompleted = "step.completed",
        /// User code failed.
        StepFailed = "step.failed",
        /// A model call is wanted.
        ModelAsked = "model.asked",
        /// The provider has the request.
        ModelSubmitted = "model.submitted",
        /// The provider's answer is stored.
        ModelAnswered = "model.answered",
        /// The run has taken the answer.
        ModelApplied = "model.applied",
        /// No answer will come.
        ModelFailed = "model.failed",
        /// The request goes out again.
        ModelRetried = "model.retried",
        /// A person is asked.
        HumanAsked = "human.asked",
        /// A person's answer is stored.
        HumanAnswered = "human.answered",
        /// Nobody answered in time: the answer agreed on for that is stored.
        HumanExpired = "human.expired",
        /// Another service is waited for.
        ExternalAsked = "external.asked",
        /// Its answer is stored.
        ExternalAnswered = "external.answered",
        /// Nobody answered in time.
        ExternalExpired = "external.expired",
        /// The run sleeps.
        TimerSet = "timer.set",
        /// It is woken.
        TimerFired = "timer.fired",
        /// Branches are opened.
        ForkOpened = "fork.opened",
        /// They are all over, and the run goes on.
        ForkJoined = "fork.joined",
        /// They are all over, and one of them failed.
        ForkFailed = "fork.failed",
        /// Tools were used.
        ToolsCompleted = "tools.completed",
        /// Recorded by a step: its name is in the payload.
        Custom = "custom",
    }
}

/// What an event was caused by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cause {
    /// The run's previous event.
    #[default]
    Previous,
    /// A certain event, of this run or another.
    Event(EventId),
}

/// An event that is about to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// What it tells of.
    pub kind: EventType,
    /// Its nonce: with run and ordinal, its id.
    pub nonce: i64,
    /// What caused it.
    pub cause: Cause,
    /// Names, counts, digests.
    pub payload: JsonText,
}

impl NewEvent {
    /// An event with a payload that is known to be small and plain.
    pub(crate) fn new<T: Serialize>(kind: EventType, payload: &T) -> Result<Self, InvalidJson> {
        let payload = JsonText::of(payload, "the payload of an event", EVENT_PAYLOAD_BYTES)?;
        Ok(Self { kind, nonce: super::ids::nonce(), cause: Cause::Previous, payload })
    }

    /// The id it will have at that place.
    pub fn id(&self, run: RunKey, ordinal: Ordinal) -> EventId {
        EventId { run, ordinal, nonce: self.nonce }
    }
}
