//! Postgres without set-up: a server to use, from wherever one can be had.
//!
//! [`Server::ensure`] takes, in this order:
//!
//! 1. the server that `LONGHAUL_DATABASE_URL` names ([`Origin::Given`]);
//! 2. the newest supported PostgreSQL (15 to 18) that is installed, as a private server on a new data folder;
//! 3. a server archive from the network, if `LONGHAUL_POSTGRES_DOWNLOAD` allows it (see [`Server::ensure`]);
//! 4. otherwise [`Error::NotInstalled`], which says how to install one.
//!
//! # How a private server lives
//!
//! A **keeper** (a small `/bin/sh` process) is the parent of the server. It holds the read end of a pipe whose write end
//! belongs to this process alone. When the pipe closes, because [`Server`] was dropped or because the process died in
//! whatever way, the keeper stops the server and removes its folder. The keeper has a process group of its own, so Ctrl-C
//! in a terminal does not reach it before its work is done. A parent-death signal would not do: it also fires when the
//! *thread* that started the child ends, and an async runtime ends threads at will.
//!
//! # Who can connect
//!
//! The server listens on a Unix socket alone, in a folder with mode 0700 that belongs to the account the server runs as:
//! this user, or, when this process is root (PostgreSQL refuses to run as root), `postgres` or `nobody`. Only that account
//! and root can reach the socket, and both could read the data files anyway, so local connections need no password. The folder
//! is below the temp dir, or below `/tmp` where the temp dir's path is too long for a socket or closed to that account.
//!
//! # What is deliberately absent
//!
//! - TCP: a socket below `/tmp` is always short enough.
//! - Windows: there, use WSL, or name a server with `LONGHAUL_DATABASE_URL`.
//! - Faster-but-unsafe settings: `fsync`, `synchronous_commit` and `full_page_writes` keep their defaults (on).

mod account;
mod admin;
mod download;
mod error;
mod find;
mod folder;
mod keeper;
mod options;
mod private;
mod server;
pub mod testing;
mod url;

pub use error::Error;
pub use options::Options;
pub use server::{Origin, Server};

/// The environment variable that names a server to use instead of a private one.
pub const DATABASE_URL: &str = "LONGHAUL_DATABASE_URL";
