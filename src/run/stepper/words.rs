//! What a stepper says and hears.

use crate::domain::limits::REQUEST_BYTES;
use crate::domain::status::word;
use crate::domain::{Cause, Due, EventId, EventType, Failure, InvalidJson, InvalidRunId, JsonText, NewEvent, NewWait};
use crate::domain::{Ordinal, RunKey, WaitKey, WaitKind};
use crate::run::reply::Reply;
use serde::Serialize;
use std::time::Duration;

/// What can be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A step is to be run.
    RunStep {
        /// Of which run: the run itself, or a branch of a fork.
        run: RunKey,
        /// Which step.
        step: String,
        /// Which attempt it will be, from 1.
        attempt: u32,
        /// Not before so much time has passed: the backoff of a step that failed.
        after: Duration,
        /// How long it may take.
        timeout: Option<Duration>,
    },
    /// The branches of a fork have come far enough for their run to go on, or to fail with them.
    Join {
        /// Whose fork.
        run: RunKey,
    },
    /// Nothing can be done until one of these is answered, or its time is over.
    Wait(Vec<Ask>),
    /// The run is over, with this output.
    Finished(JsonText),
    /// The run is over, with this failure. It can be set going again.
    Failed(Failure),
    /// The run was canceled.
    Canceled,
    /// A run is held back, for this reason; nothing can be done until it is set going again.
    Parked {
        /// Which run.
        run: RunKey,
        /// Why.
        reason: String,
    },
}

/// What a run waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub(super) key: WaitKey,
    pub(super) wait: NewWait,
}

impl Ask {
    /// The name of this wait.
    pub fn wait(&self) -> WaitKey {
        self.key
    }

    /// What kind of answer is waited for.
    pub fn kind(&self) -> WaitKind {
        self.wait.kind
    }

    /// The provider that is asked; empty if it is not a model.
    pub fn provider(&self) -> &str {
        self.wait.provider.as_deref().unwrap_or_default()
    }

    /// The request; `null` if it has numbers that [`serde_json::Value`] cannot hold.
    pub fn request(&self) -> serde_json::Value {
        self.wait.request.read().unwrap_or_default()
    }

    /// The request, as it would be sent.
    pub fn raw(&self) -> &str {
        self.wait.request.as_str()
    }

    /// When it is over without an answer.
    pub fn due(&self) -> Option<Due> {
        self.wait.due
    }
}

/// An answer to an [`Ask`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer(pub(super) Result<JsonText, String>);

impl Answer {
    /// No answer will come, and that is why: the run fails with `model-failed`.
    pub fn refused(why: impl Into<String>) -> Self {
        Self(Err(why.into()))
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self::from(JsonText::parse(reply.raw(), "an answer", REQUEST_BYTES))
    }
}

impl From<serde_json::Value> for Answer {
    fn from(answer: serde_json::Value) -> Self {
        Self::from(JsonText::of(&answer, "an answer", REQUEST_BYTES))
    }
}

impl From<Result<JsonText, InvalidJson>> for Answer {
    fn from(answer: Result<JsonText, InvalidJson>) -> Self {
        Self(answer.map_err(|why| why.to_string()))
    }
}

/// An event of a ledger in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct LedgerEvent {
    /// Its id: run, ordinal and nonce.
    #[serde(with = "word")]
    pub id: EventId,
    /// What it tells of.
    #[serde(with = "word")]
    pub kind: EventType,
    /// What caused it; `None` is the run's previous event.
    #[serde(with = "word::option")]
    pub cause: Option<EventId>,
    /// Names, counts and digests.
    #[serde(with = "crate::domain::json::text")]
    pub payload: JsonText,
}

/// Why a stepper did not do what it was told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepperError {
    /// The id cannot be one of a run.
    #[error(transparent)]
    RunId(#[from] InvalidRunId),
    /// The input cannot be kept.
    #[error(transparent)]
    Input(#[from] InvalidJson),
    /// There is no step to run and no fork to join: see what [`Stepper::next_action`](super::Stepper::next_action) says.
    #[error("nothing can be done with run {} now", .0.0)]
    NothingToDo(RunKey),
    /// This wait is not open: it was answered, or its run has gone on without it.
    #[error("wait {0} is not open (any more)")]
    NotWaiting(WaitKey),
    /// A wait without a time at which it is over.
    #[error("wait {0} has no time at which it is over")]
    NeverDue(WaitKey),
    /// The answer does not fit the schema of the question, which stays open.
    #[error("the answer does not fit the question: {0}")]
    Answer(String),
    /// Only runs that failed, are parked or were stopped can be set going again.
    #[error("run {} is neither failed nor parked nor stopped", .0.0)]
    NotRetryable(RunKey),
    /// The snapshot is of another workflow or version, or not a snapshot that this version of the library can read.
    #[error("the snapshot cannot be taken up: {0}")]
    Snapshot(String),
}

impl StepperError {
    /// The stable name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::RunId(_) => "invalid-run-id",
            Self::Input(_) => "invalid-value",
            Self::NothingToDo(_) => "nothing-to-do",
            Self::NotWaiting(_) => "not-waiting",
            Self::NeverDue(_) => "never-due",
            Self::Answer(_) => "answer-mismatch",
            Self::NotRetryable(_) => "not-retryable",
            Self::Snapshot(_) => "invalid-snapshot",
        }
    }
}

impl LedgerEvent {
    pub(super) fn of(run: RunKey, ordinal: Ordinal, event: &NewEvent) -> Self {
        let cause = match event.cause {
            Cause::Previous => None,
            Cause::Event(id) => Some(id),
        };
        Self { id: event.id(run, ordinal), kind: event.kind, cause, payload: event.payload.clone() }
    }
}
