//! What callers of nodes and clients can be told.

use crate::config::InvalidConfig;
use crate::domain::canonical::NotCanonical;
use crate::domain::{Failure, InvalidJson, InvalidRunId, RunStatus};
use crate::store::StoreError;

/// An error of a node or a client. [`Error::code`] is stable; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A setting.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// A run id.
    #[error(transparent)]
    RunId(#[from] InvalidRunId),
    /// A value that cannot be kept.
    #[error(transparent)]
    Value(#[from] InvalidJson),
    /// An input that has no canonical form.
    #[error(transparent)]
    Canonical(#[from] NotCanonical),
    /// Another input, or another workflow, stands under that run id.
    #[error("run `{0}` exists with another input: choose another id, or enqueue the same input")]
    DuplicateRun(String),
    /// No run has that id.
    #[error("there is no run `{0}`")]
    UnknownRun(String),
    /// It ended long ago, and its records were removed.
    #[error("the records of run `{0}`, which is over, were kept long enough and are gone")]
    Removed(String),
    /// The run ended with an error.
    #[error("run `{run}` failed: {failure}")]
    RunFailed {
        /// Its id.
        run: String,
        /// Why.
        failure: Failure,
    },
    /// The run ended without an output for another reason.
    #[error("run `{run}` is {status}: it has no output")]
    NoOutput {
        /// Its id.
        run: String,
        /// What it is.
        status: RunStatus,
    },
    /// The run asks nobody.
    #[error("run `{0}` asks nobody")]
    NotWaiting(String),
    /// Somebody else was quicker.
    #[error("the question of run `{0}` is answered already")]
    AlreadyAnswered(String),
    /// The time for an answer is over.
    #[error("the time to answer run `{0}` is over")]
    Expired(String),
    /// The run is over.
    #[error("run `{run}` is {status}: there is nothing to answer")]
    RunOver {
        /// Its id.
        run: String,
        /// How it ended.
        status: RunStatus,
    },
    /// Only a failed or parked run can be set going again.
    #[error("run `{run}` is {status}: only a failed or parked run can be set going again")]
    NotRetryable {
        /// Its id.
        run: String,
        /// What it is.
        status: RunStatus,
    },
    /// The answer does not fit the question's schema; the question stays open.
    #[error("this is no answer to the question of run `{run}`: {why}")]
    Answer {
        /// Its id.
        run: String,
        /// What does not fit.
        why: String,
    },
    /// The output does not fit the type that was asked for.
    #[error("the output of run `{run}` does not fit: {why}")]
    Output {
        /// Its id.
        run: String,
        /// What serde says.
        why: String,
    },
    /// Two things of one name were registered.
    #[error("{kind} `{name}` is registered twice")]
    Registered {
        /// What kind of thing.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// Something was named that is not registered.
    #[error("{kind} `{name}` is not registered")]
    NotRegistered {
        /// What kind of thing.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// An actor could not be started, or is gone.
    #[error("the node cannot run: {0}")]
    Node(String),
    /// The deadline passed.
    #[error("the deadline passed: {0}")]
    Deadline(&'static str),
}

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Config(_) => "invalid-config",
            Self::RunId(_) => "invalid-run-id",
            Self::Value(_) => "invalid-value",
            Self::Canonical(_) => "not-canonical",
            Self::DuplicateRun(_) => "duplicate-run",
            Self::UnknownRun(_) => "unknown-run",
            Self::Removed(_) => "removed",
            Self::RunFailed { .. } => "run-failed",
            Self::NoOutput { .. } => "no-output",
            Self::NotWaiting(_) => "not-waiting",
            Self::AlreadyAnswered(_) => "already-answered",
            Self::Expired(_) => "expired",
            Self::RunOver { .. } => "run-terminal",
            Self::NotRetryable { .. } => "not-retryable",
            Self::Answer { .. } => "answer-mismatch",
            Self::Output { .. } => "output-mismatch",
            Self::Registered { .. } => "registered-twice",
            Self::NotRegistered { .. } => "not-registered",
            Self::Node(_) => "node-failed",
            Self::Deadline(_) => "deadline",
        }
    }
}
