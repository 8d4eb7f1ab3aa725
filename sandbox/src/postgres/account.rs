//! Which account the server runs as: this user, or another one when this user is root.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Error;

/// Accounts to run the server as when this process is root, best first.
const STAND_INS: [&str; 2] = ["postgres", "nobody"];

/// Who owns the server's process and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    /// Set when this process is root and steps down to this user and group.
    stand_in: Option<(u32, u32)>,
}

impl Account {
    /// This user, or a stand-in when this user is root.
    pub(super) fn of_server() -> Result<Self, Error> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self { stand_in: None });
        }
        STAND_INS
            .iter()
            .find_map(|name| Some((id("-u", name)?, id("-g", name)?)))
            .map(|ids| Self { stand_in: Some(ids) })
            .ok_or(Error::NoAccount)
    }

    /// The user id the server runs as.
    pub(super) fn uid(self) -> u32 {
        self.stand_in.map_or_else(|| rustix::process::geteuid().as_raw(), |(uid, _)| uid)
    }

    /// Whether this process steps down from root to another account.
    pub(super) fn steps_down(self) -> bool {
        self.stand_in.is_some()
    }

    /// Makes a command run as this account, away from any folder that may be closed to it.
    pub(super) fn run(self, command: &mut Command) -> &mut Command {
        command.current_dir("/").env("LC_ALL", "C");
        match self.stand_in {
            Some((uid, gid)) => command.uid(uid).gid(gid),
            None => command,
        }
    }

    /// Hands a file or folder over to this account.
    pub(super) fn own(self, path: &Path) -> Result<(), Error> {
        match self.stand_in {
            Some((uid, gid)) => std::os::unix::fs::chown(path, Some(uid), Some(gid)).map_err(Error::file(path)),
            None => Ok(()),
        }
    }
}

/// One number from `id`, which also knows accounts that are not in `/etc/passwd`.
fn id(flag: &str, name: &str) -> Option<u32> {
    let output = Command::new("id").args([flag, name]).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
