//! `longhaul_sandbox::postgres` with real servers and real processes.

// clippy.toml allows these in test functions; here the functions that tests call are tests as well.
#![allow(clippy::unwrap_used, clippy::panic)]

mod child;
mod given;
mod private;
mod shared;
mod together;

use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};

/// Polls until `done`, and fails after a minute.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "gave up waiting until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process exists.
fn is_alive(pid: u32) -> bool {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

fn until_gone(pid: u32, folder: &Path) {
    until("the server's process is gone", || !is_alive(pid));
    until("its folder is gone", || !folder.exists());
}

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

/// One value, as text.
async fn ask(connection: &mut PgConnection, query: &'static str) -> String {
    sqlx::query_scalar(query).fetch_one(connection).await.unwrap()
}

async fn run(connection: &mut PgConnection, statement: &'static str) {
    sqlx::raw_sql(statement).execute(connection).await.unwrap();
}
