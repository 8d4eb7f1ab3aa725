//! What can go wrong, and what the command's exit code says of it.

use longhaul::store::{StoreError, audit_plant::PlantError};
use longhaul_sandbox::{postgres, provider};
use std::path::PathBuf;
use std::process::ExitCode;

/// What a command ends with. The numbers are part of its interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It is done, and all is well.
    Well,
    /// Something was found.
    Finding,
    /// The command line or an input file is wrong.
    Usage,
    /// The database or the provider cannot be reached or used.
    Unreachable,
    /// The command itself broke.
    Broken,
    /// Ctrl-C or SIGTERM.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Well => 0,
            Exit::Finding => 1,
            Exit::Usage => 2,
            Exit::Unreachable => 3,
            Exit::Broken => 4,
            Exit::Interrupted => 130,
        })
    }
}

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Library(#[from] longhaul::Error),
    #[error(transparent)]
    Postgres(#[from] postgres::Error),
    #[error(transparent)]
    Provider(#[from] provider::Error),
    #[error("the provider cannot be used: {0}")]
    Adapter(#[from] longhaul::provider::ProviderError),
    #[error(transparent)]
    Plant(#[from] PlantError),
    /// A line of a JSONL file.
    #[error("{} line {line}: {why}", file.display())]
    Line { file: PathBuf, line: usize, why: String },
    #[error("{}: {why}", file.display())]
    File { file: PathBuf, why: String },
    #[error("cannot {doing}: {source}")]
    Io { doing: &'static str, source: std::io::Error },
    /// A worker of the demo that nobody killed.
    #[error("{name} ended by itself ({status}){last}")]
    WorkerEnded { name: String, status: String, last: String },
    /// Nothing happened for too long.
    #[error("gave up: nothing has moved for {seconds} s while {what}")]
    Stalled { what: &'static str, seconds: u64 },
    #[error("{0}")]
    Usage(&'static str),
    #[error("interrupted")]
    Interrupted,
}

impl CliError {
    pub(crate) fn io(doing: &'static str, source: std::io::Error) -> Self {
        Self::Io { doing, source }
    }

    /// A stable name for programs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Library(error) => error.code(),
            Self::Postgres(error) => error.code(),
            Self::Provider(_) => "sandbox",
            Self::Adapter(_) => "provider",
            Self::Plant(PlantError::Unknown(_)) => "unknown-plant",
            Self::Plant(PlantError::Store(error)) => error.code(),
            Self::Line { .. } => "invalid-line",
            Self::File { .. } => "invalid-file",
            Self::Io { .. } => "io",
            Self::WorkerEnded { .. } => "worker-ended",
            Self::Stalled { .. } => "stalled",
            Self::Usage(_) => "usage",
            Self::Interrupted => "interrupted",
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Library(error) if nothing_to_do(error) => Exit::Finding,
            Self::Stalled { .. } => Exit::Finding,
            Self::Library(longhaul::Error::Store(_)) | Self::Plant(PlantError::Store(_)) => Exit::Unreachable,
            Self::Postgres(_) | Self::Provider(provider::Error::Bind { .. }) | Self::Adapter(_) => Exit::Unreachable,
            Self::Library(error) if wrong_words(error) => Exit::Usage,
            Self::Usage(_) => Exit::Usage,
            Self::Library(longhaul::Error::RunId(_) | longhaul::Error::Answer { .. })
            | Self::Plant(PlantError::Unknown(_)) => Exit::Usage,
            Self::Line { .. } | Self::File { .. } => Exit::Usage,
            Self::Provider(provider::Error::Ledger { .. } | provider::Error::LedgerLine { .. }) => Exit::Usage,
            Self::Library(_) | Self::Provider(_) | Self::Io { .. } | Self::WorkerEnded { .. } => Exit::Broken,
            Self::Interrupted => Exit::Interrupted,
        }
    }
}

/// The run is not there, or not such that this can be done to it.
fn nothing_to_do(error: &longhaul::Error) -> bool {
    use longhaul::Error::{AlreadyAnswered, Expired, NotRetryable, NotWaiting, RunOver, UnknownRun};
    use longhaul::Error::{BulkChanged, NotParkable, UnknownNode, UnknownQuestion, UnknownWorkflow};
    matches!(
        error,
        UnknownRun(_)
            | NotWaiting(_)
            | AlreadyAnswered(_)
            | Expired(_)
            | RunOver { .. }
            | NotRetryable { .. }
            | BulkChanged { .. }
            | NotParkable { .. }
            | UnknownNode(_)
            | UnknownQuestion { .. }
            | UnknownWorkflow(_)
    )
}

/// What was written on the command line cannot be meant.
fn wrong_words(error: &longhaul::Error) -> bool {
    use longhaul::Error::{InvalidCursor, InvalidFilter, InvalidLimit, InvalidName, Options};
    matches!(error, InvalidCursor(_) | InvalidFilter(_) | InvalidLimit(_) | InvalidName(_) | Options(_))
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        Self::Library(error.into())
    }
}
