//! What callers of nodes and clients can be told.

use crate::client::InvalidOptions;
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
    /// Tags that cannot be kept.
    #[error(transparent)]
    Options(#[from] InvalidOptions),
    /// Another input, or another workflow, stands under that run id.
    #[error("run `{0}` exists with another input: choose another id, or enqueue the same input")]
    DuplicateRun(String),
    /// No run has that id.
    #[error("there is no run `{0}`")]
    UnknownRun(String),
    /// It ended long ago, and its records were removed.
    #[error("the records of run `{0}`, which is over, were kept long enough and are gone")]
    Removed(String),
    /// No account has that id.
    #[error("there is no account {0}: `longhaul accounts` lists them")]
    UnknownAccount(i32),
    /// A budget that cannot be.
    #[error("this budget cannot be: {0}")]
    Budget(String),
    /// No version of a workflow of that name was ever registered.
    #[error("no workflow `{0}` is registered: start a node that has it, or look at the name")]
    UnknownWorkflow(String),
    /// No run can ever fit the filter, or it says too little for what is to be done.
    #[error("this filter cannot be used: {0}")]
    InvalidFilter(String),
    /// A text that is no cursor of this list.
    #[error("`{0}` is no place in this list: pass what the page before answered")]
    InvalidCursor(String),
    /// A name of who does something that cannot be kept.
    #[error("`{0}` is no name: write 1 to 128 bytes without control characters")]
    InvalidName(String),
    /// A ceiling that is none.
    #[error("{0} is no ceiling: take 1 or more; to stop a workflow, pause it")]
    InvalidLimit(u32),
    /// No living node has that name or id.
    #[error("no living node is called `{0}`, nor has that id")]
    UnknownNode(String),
    /// Only a runnable or owned run can be held back.
    #[error("run `{run}` is {status}: only a runnable or owned run can be parked")]
    NotParkable {
        /// Its id.
        run: String,
        /// What it is.
        status: RunStatus,
    },
    /// More runs fit than the dry run has counted.
    #[error("more than the {counted} runs that were counted fit by now: count again")]
    BulkChanged {
        /// How many were counted.
        counted: u64,
    },
    /// The ends of runs carry numbers of another server's transactions: the database was restored from a dump.
    #[error(
        "the ends of runs were written on another server: run `update longhaul.outputs set finished_in = default` once, \
         and follow them from the start"
    )]
    ForeignCursor,
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
    /// The run never asked that.
    #[error("run `{run}` has no question {question}: look at what it asks now")]
    UnknownQuestion {
        /// Its id.
        run: String,
        /// The number that was named.
        question: i32,
    },
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
            Self::Options(_) => "invalid-options",
            Self::DuplicateRun(_) => "duplicate-run",
            Self::UnknownRun(_) => "unknown-run",
            Self::Removed(_) => "removed",
            Self::UnknownAccount(_) => "unknown-account",
            Self::Budget(_) => "invalid-budget",
            Self::UnknownWorkflow(_) => "unknown-workflow",
            Self::InvalidFilter(_) => "invalid-filter",
            Self::InvalidCursor(_) => "invalid-cursor",
            Self::InvalidName(_) => "invalid-name",
            Self::InvalidLimit(_) => "invalid-limit",
            Self::UnknownNode(_) => "unknown-node",
            Self::NotParkable { .. } => "not-parkable",
            Self::BulkChanged { .. } => "bulk-changed",
            Self::ForeignCursor => "foreign-cursor",
            Self::RunFailed { .. } => "run-failed",
            Self::NoOutput { .. } => "no-output",
            Self::NotWaiting(_) => "not-waiting",
            Self::AlreadyAnswered(_) => "already-answered",
            Self::UnknownQuestion { .. } => "unknown-question",
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
