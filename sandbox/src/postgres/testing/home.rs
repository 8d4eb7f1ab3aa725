//! The state folder that the test processes of one workspace share.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use crate::postgres::account::Account;
use crate::postgres::{Error, folder};

/// Names another state folder, for tests that need a shared server apart from all others.
const STATE_DIR: &str = "LONGHAUL_TEST_SERVER_DIR";

/// Changes whenever processes of different versions of this crate must not share a server.
const PROTOCOL: &str = "longhaul test server 1";

/// Pause between two attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(20);

/// How long others may take to start the server.
const TURN: Duration = Duration::from_secs(240);

/// What the folder of a server that can be shared begins with.
const SERVER: &str = "s-";

/// The state folder.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) account: Account,
    path: PathBuf,
}

impl Home {
    /// Makes the folder, or checks that it is ours alone.
    pub(super) fn open() -> Result<Self, Error> {
        let account = Account::of_server()?;
        let path = match std::env::var_os(STATE_DIR).filter(|value| !value.is_empty()) {
            Some(chosen) => PathBuf::from(chosen),
            None => folder::temp(account)?.join(usual_name()),
        };
        folder::create_or_trust(&path, account)?;
        Ok(Self { account, path })
    }

    /// Waits for the right to look at and change what is in the folder; it ends when the file is dropped.
    pub(super) async fn turn(&self) -> Result<File, Error> {
        let path = self.path.join("turn");
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(Error::file(&path))?;
        let deadline = Instant::now() + TURN;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => sleep(PAUSE).await,
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::Deadline { what: "another process that starts the test server", after: TURN });
                }
                Err(TryLockError::Error(error)) => return Err(Error::file(&path)(error)),
            }
        }
    }

    /// The folder of the server to use, if there is one.
    pub(super) fn current(&self) -> Option<PathBuf> {
        let name = fs::read_to_string(self.path.join("current")).ok()?;
        Some(self.path.join(name)).filter(|path| path.is_dir())
    }

    /// Makes this server's folder the one to use.
    pub(super) fn set_current(&self, server: &Path) -> Result<(), Error> {
        let (path, draft) = (self.path.join("current"), self.path.join("current.new"));
        let name = server.file_name().unwrap_or_default().to_string_lossy().into_owned();
        fs::write(&draft, name).map_err(Error::file(&draft))?;
        fs::rename(&draft, &path).map_err(Error::file(&path))
    }

    /// A new folder for a server.
    pub(super) fn add_server(&self) -> Result<PathBuf, Error> {
        let path = self.path.join(format!("{SERVER}{}", folder::unguessable()));
        folder::create(&path, self.account)?;
        Ok(path)
    }

    /// The folders of all servers, those that are about to end and those that lost their keeper included.
    pub(super) fn servers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(SERVER))
            .map(|entry| entry.path())
            .collect()
    }
}

/// One name per user, workspace and protocol.
fn usual_name() -> String {
    let workspace = workspace().unwrap_or_default();
    let digest = Sha256::digest(format!("{PROTOCOL}\n{}", workspace.display()));
    let hash: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("longhaul-test-{}-{hash}", rustix::process::geteuid().as_raw())
}

/// The outermost folder with a `Cargo.lock`, from the package whose tests run (cargo and nextest both name it) upwards.
fn workspace() -> Option<PathBuf> {
    let start = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).or_else(|| std::env::current_dir().ok())?;
    let start = start.canonicalize().unwrap_or(start);
    let root = start.ancestors().filter(|folder| folder.join("Cargo.lock").is_file()).last();
    Some(root.unwrap_or(&start).to_path_buf())
}
