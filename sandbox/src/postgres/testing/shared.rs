//! Coming to a shared server: joining the one that runs, or starting one.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use sqlx::{Connection, PgConnection};
use tokio::sync::Mutex;

use super::home::Home;
use crate::postgres::keeper::{Charge, Keeper};
use crate::postgres::{DATABASE_URL, Error, Options, admin, private, server, url};

/// Seconds that a server waits for the next process after the last one is gone, unless the variable says otherwise.
const LINGER: u32 = 5;
const LINGER_VARIABLE: &str = "LONGHAUL_TEST_SERVER_LINGER";

/// A server that this process may use for as long as it lives.
#[derive(Debug)]
pub(super) struct Host {
    /// The database to make others from.
    pub(super) home: String,
    /// Our part in keeping the server alive: the pipe `users`, open for writing. `None` on a given server.
    _hold: Option<File>,
}

/// The server of this process. It is never dropped: the kernel closes the pipe when the process ends.
static HOST: Mutex<Option<Arc<Host>>> = Mutex::const_new(None);

/// The server to use and a connection to it. A shared server that does not answer any more is replaced.
pub(super) async fn host() -> Result<(Arc<Host>, PgConnection), Error> {
    let known = HOST.lock().await.clone();
    if let Some(host) = &known
        && let Ok(connection) = admin::connect(&host.home).await
    {
        return Ok((Arc::clone(host), connection));
    }
    let host = replace(known).await?;
    let connection = admin::connect(&host.home).await?;
    Ok((host, connection))
}

/// Finds a server in place of `useless`, unless another test of this process has just done so.
async fn replace(useless: Option<Arc<Host>>) -> Result<Arc<Host>, Error> {
    let mut current = HOST.lock().await;
    if let Some(host) = current.as_ref()
        && !useless.is_some_and(|useless| Arc::ptr_eq(host, &useless))
    {
        return Ok(Arc::clone(host));
    }
    let host = Arc::new(find().await?);
    *current = Some(Arc::clone(&host));
    Ok(host)
}

async fn find() -> Result<Host, Error> {
    match std::env::var(DATABASE_URL) {
        Ok(url) if !url.is_empty() => {
            let mut connection = admin::connect(&url).await?;
            admin::supported_version(&mut connection).await?;
            connection.close().await?;
            Ok(Host { home: url, _hold: None })
        }
        _ => {
            let home = Home::open()?;
            let _turn = home.turn().await?;
            match join(&home).await {
                Some(host) => Ok(host),
                None => start(&home).await,
            }
        }
    }
}

/// Joins the server that runs, if there is one that will stay.
async fn join(home: &Home) -> Option<Host> {
    let folder = home.current()?;
    let mut hold = come_in(&folder)?;
    // This order is what the promise rests on: we are in, we said so, and only now we look at the door.
    hold.write_all(b"use\n").ok()?;
    if !door(&folder).exists() {
        return None;
    }
    let url = url::of_socket(&folder, "postgres");
    match admin::connect(&url).await {
        Ok(connection) => {
            // A failing goodbye does not make the server less usable.
            let _ = connection.close().await;
            Some(Host { home: url, _hold: Some(hold) })
        }
        Err(_) => {
            // It runs no more, whatever its keeper believes: nobody shall come in again.
            let _ = fs::remove_file(door(&folder));
            None
        }
    }
}

/// Starts a server and makes it the one to use. The caller has its turn, so nobody else does the same.
async fn start(home: &Home) -> Result<Host, Error> {
    sweep(home);
    let options = options();
    let installation = server::installation(&options).await?;
    let folder = home.add_server()?;
    let charge =
        private::charge(home.account, &installation, &options, folder.clone(), Some((door(&folder), linger())));
    let began = begin(home, &charge, &folder);
    // Until there is a keeper, the folder is ours to remove.
    let (mut keeper, hold) = began.inspect_err(|_| drop(fs::remove_dir_all(&folder)))?;
    keeper.init(&charge).await?;
    private::up(&mut keeper, &charge).await?;
    fs::write(door(&folder), "").map_err(Error::file(&door(&folder)))?;
    home.set_current(&folder)?;
    Ok(Host { home: url::of_socket(&folder, "postgres"), _hold: Some(hold) })
}

/// Makes the pipe and starts the keeper at its other end.
fn begin(home: &Home, charge: &Charge, folder: &Path) -> Result<(Keeper, File), Error> {
    let users = users(folder);
    let mut mkfifo = Command::new("mkfifo");
    mkfifo.arg("-m").arg("600").arg(&users).stdout(Stdio::null()).stderr(Stdio::null());
    home.account.run(&mut mkfifo).status().map_err(Error::program(Path::new("mkfifo")))?;
    // Opened for both, a pipe waits for nobody; with that in place, neither of the other two does.
    let both = OpenOptions::new().read(true).write(true).open(&users).map_err(Error::file(&users))?;
    let input = File::open(&users).map_err(Error::file(&users))?;
    let hold = OpenOptions::new().write(true).open(&users).map_err(Error::file(&users))?;
    let commands = hold.try_clone().map_err(Error::file(&users))?;
    let keeper = Keeper::of_many(charge, input, commands)?;
    drop(both);
    Ok((keeper, hold))
}

/// Removes what keepers that are gone have left. A server without keeper stops by itself when its folder is gone.
fn sweep(home: &Home) {
    for folder in home.servers() {
        if come_in(&folder).is_none() {
            // What cannot be removed now is tried again by the next process.
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

/// Opens the pipe for writing, which fails if no keeper reads it.
fn come_in(folder: &Path) -> Option<File> {
    let no_waiting = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).ok()?;
    OpenOptions::new().write(true).custom_flags(no_waiting).open(users(folder)).ok()
}

fn linger() -> u32 {
    std::env::var(LINGER_VARIABLE).ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(LINGER)
}

fn users(folder: &Path) -> PathBuf {
    folder.join("users")
}

fn door(folder: &Path) -> PathBuf {
    folder.join("door")
}

/// Room for many tests at once; durability as PostgreSQL has it.
fn options() -> Options {
    Options::default()
        .max_connections(300)
        .setting("shared_buffers", "128MB")
        .setting("max_wal_size", "2GB")
        .setting("track_commit_timestamp", "on")
}
