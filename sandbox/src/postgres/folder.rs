//! Folders below the temp dir that the server's account and this process share with nobody else.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::Error;
use super::account::Account;

/// The port in the socket's name; nothing listens on TCP.
pub(super) const PORT: u16 = 5432;

/// Bytes that the path of a Unix socket may have on every supported system (macOS allows 104 with the final NUL).
const SOCKET_PATH_MAX: usize = 103;

/// Bytes that the longest name we add below the chosen temp dir takes: folder, server and `.s.PGSQL.5432.lock`.
const OUR_PART: usize = 60;

/// The temp dir, or `/tmp` when the temp dir's path is too long for a socket or closed to the server's account.
pub(super) fn temp(account: Account) -> Result<PathBuf, Error> {
    let usual = std::env::temp_dir();
    [usual.clone(), PathBuf::from("/tmp")]
        .into_iter()
        .find(|path| path.as_os_str().len() + OUR_PART <= SOCKET_PATH_MAX && is_open_to(account, path))
        .ok_or(Error::NoFolder(usual))
}

/// Whether a stand-in account can walk to `path` and make folders there (our own account finds out by trying).
fn is_open_to(account: Account, path: &Path) -> bool {
    let mode = |path: &Path| fs::metadata(path).map(|meta| meta.mode()).unwrap_or(0);
    !account.steps_down() || (path.ancestors().all(|part| mode(part) & 0o001 != 0) && mode(path) & 0o002 != 0)
}

/// A new folder with mode 0700 that belongs to the server's account.
pub(super) fn create(path: &Path, account: Account) -> Result<(), Error> {
    DirBuilder::new().mode(0o700).create(path).map_err(Error::file(path))?;
    account.own(path)
}

/// A new folder below the temp dir with a name that nobody can guess.
pub(super) fn create_temporary(account: Account) -> Result<PathBuf, Error> {
    let path = temp(account)?.join(format!("longhaul-pg-{}", unguessable()));
    create(&path, account)?;
    Ok(path)
}

/// The folder at a name that others can guess: made if missing, refused unless it is ours alone.
pub(super) fn create_or_trust(path: &Path, account: Account) -> Result<(), Error> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::file(path)(error)),
    }
    let meta = fs::symlink_metadata(path).map_err(Error::file(path))?;
    let ours = [rustix::process::geteuid().as_raw(), account.uid()].contains(&meta.uid());
    if !meta.is_dir() || !ours || meta.mode() & 0o077 != 0 {
        return Err(Error::Untrusted(path.to_path_buf()));
    }
    account.own(path)
}

/// A data folder that the user chose: made if missing, and handed to the server's account while it is empty.
pub(super) fn prepare_data(path: &Path, account: Account) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(Error::file(path))?;
    let is_empty = fs::read_dir(path).map_err(Error::file(path))?.next().is_none();
    if is_empty {
        fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(Error::file(path))?;
        account.own(path)?;
    }
    Ok(())
}

/// Twelve hexadecimal digits of a random UUID.
pub(super) fn unguessable() -> String {
    let mut digits = uuid::Uuid::new_v4().simple().to_string();
    digits.truncate(12);
    digits
}
