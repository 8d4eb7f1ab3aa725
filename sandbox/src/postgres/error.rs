//! What can go wrong between "I need a Postgres" and having one.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why there is no server, or why it did not do what was asked.
///
/// Messages say what to do next; none carries a password or a connection string.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No PostgreSQL server was found on this machine.
    #[error("{}", INSTALL)]
    NotInstalled,
    /// A server was found, but its major version is not one of 15 to 18.
    #[error("PostgreSQL {version} at {place} is not supported: Longhaul needs 15, 16, 17 or 18")]
    UnsupportedVersion {
        /// The version as the server states it.
        version: String,
        /// The folder of its programs, or `LONGHAUL_DATABASE_URL`.
        place: String,
    },
    /// This process is root and has no account to run the server as.
    #[error("PostgreSQL refuses to run as root, and there is no account `postgres` or `nobody` to run it as")]
    NoAccount,
    /// Neither the temp dir nor `/tmp` can hold the server's socket.
    #[error("no folder for the server's socket: {0} and /tmp are too long a path, or closed to the server's account")]
    NoFolder(PathBuf),
    /// A folder in the shared temp dir that should be ours belongs to somebody else, or is open to others.
    #[error("{0} is not a folder of ours alone (owner and mode 0700): remove it, or point TMPDIR elsewhere")]
    Untrusted(PathBuf),
    /// A file or folder could not be made, read or written.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program could not be run.
    #[error("cannot run {program}: {source}")]
    Program {
        /// Which one.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// `initdb` failed or the server ended while starting.
    #[error("PostgreSQL did not {step}; the end of its log:\n{log}")]
    Failed {
        /// `initialise` or `start`.
        step: &'static str,
        /// The last lines of the log.
        log: String,
    },
    /// The process that keeps the server ended, or did not answer.
    #[error("the server's keeper process is gone")]
    KeeperGone,
    /// Something took longer than it may.
    #[error("gave up waiting for {what} after {} s", after.as_secs())]
    Deadline {
        /// What was waited for.
        what: &'static str,
        /// How long.
        after: Duration,
    },
    /// The operation needs a private server, and this one was given by `LONGHAUL_DATABASE_URL`.
    #[error("a server that was given with LONGHAUL_DATABASE_URL is not ours to stop or crash")]
    NotPrivate,
    /// The server's archive could not be fetched or is not what its checksum says.
    #[error("cannot download PostgreSQL: {0}")]
    Download(String),
    /// The server answered with an error, or the connection failed.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    /// The `migrate` function of a test template failed.
    #[error("migrating the template database failed: {0}")]
    Migrate(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// A short code that stays the same from version to version, for programs that tell errors apart.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotInstalled => "postgres_not_installed",
            Self::UnsupportedVersion { .. } => "postgres_unsupported_version",
            Self::NoAccount => "postgres_no_account",
            Self::NoFolder(_) => "postgres_no_folder",
            Self::Untrusted(_) => "postgres_untrusted_folder",
            Self::File { .. } => "postgres_file",
            Self::Program { .. } => "postgres_program",
            Self::Failed { .. } => "postgres_failed",
            Self::KeeperGone => "postgres_keeper_gone",
            Self::Deadline { .. } => "postgres_deadline",
            Self::NotPrivate => "postgres_not_private",
            Self::Download(_) => "postgres_download",
            Self::Database(_) => "postgres_database",
            Self::Migrate(_) => "postgres_migrate",
        }
    }

    /// For `map_err`: an error about the file or folder at `path`.
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { path, source }
    }

    /// For `map_err`: an error about running `program`.
    pub(super) fn program(program: &Path) -> impl FnOnce(io::Error) -> Self {
        let program = program.to_path_buf();
        move |source| Self::Program { program, source }
    }
}

const INSTALL: &str = "\
no PostgreSQL server (15 to 18) was found on this machine. Install one:
  Debian, Ubuntu   sudo apt install postgresql
  Fedora, RHEL     sudo dnf install postgresql-server
  Arch             sudo pacman -S postgresql
  macOS            brew install postgresql@17
  Windows          use WSL, or winget install PostgreSQL.PostgreSQL.17 and the variable below
or name a running server: LONGHAUL_DATABASE_URL=postgres://user:password@host:5432/database
or allow a download of the server's programs: LONGHAUL_POSTGRES_DOWNLOAD=1";
