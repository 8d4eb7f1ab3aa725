//! [`Server`]: the one type most users need.

use std::path::{Path, PathBuf};

use sqlx::Connection;

use super::find::{self, Installation};
use super::private::Private;
use super::{DATABASE_URL, Error, Options, admin, download, url};

/// Where a server comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// `LONGHAUL_DATABASE_URL` names it. It is not ours to stop.
    Given {
        /// Its version, for example `17.5`.
        version: String,
    },
    /// It was started for this process, and ends with it.
    Private {
        /// Its version, for example `17.5`.
        version: String,
        /// The folder of its programs.
        bin_dir: PathBuf,
    },
}

/// A running PostgreSQL server to use.
///
/// A private one is stopped, and its temporary folder removed, when this is dropped or when the process dies in whatever
/// way. Dropping only gives the order; [`Server::stop`] also waits until it is carried out.
///
/// ```no_run
/// # async fn example() -> Result<(), longhaul_sandbox::postgres::Error> {
/// use longhaul_sandbox::postgres::Server;
///
/// let server = Server::ensure().await?;
/// server.create_database("demo").await?;
/// println!("psql '{}'", server.url("demo"));
/// server.stop().await
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    /// Where databases are made from: `postgres` on a private server, the named database on a given one.
    home: String,
    origin: Origin,
    private: Option<Private>,
}

impl Server {
    /// The server that `LONGHAUL_DATABASE_URL` names, or else a private one with [`Options::default`].
    ///
    /// If no server is installed and `LONGHAUL_POSTGRES_DOWNLOAD` is `1` or a version such as `17.5.0`, the programs are
    /// fetched with `curl` from the releases of `theseus-rs/postgresql-binaries` on GitHub (or from the address in
    /// `LONGHAUL_POSTGRES_MIRROR`), checked against the published SHA-256 and kept in the user's cache folder. The
    /// download is tested against a local archive only, never against GitHub.
    ///
    /// # Errors
    ///
    /// [`Error::NotInstalled`] says how to install a server; the other variants say what went wrong while starting it.
    pub async fn ensure() -> Result<Self, Error> {
        match std::env::var(DATABASE_URL) {
            Ok(url) if !url.is_empty() => Self::given(&url).await,
            _ => Self::private(Options::default()).await,
        }
    }

    /// A server that already runs, by the URL of one of its databases. The user needs the right to create databases for
    /// [`Server::create_database`].
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if it does not answer, [`Error::UnsupportedVersion`] if it is older than 15 or newer than 18.
    pub async fn given(url: &str) -> Result<Self, Error> {
        let mut connection = admin::connect(url).await?;
        let version = admin::supported_version(&mut connection).await?;
        connection.close().await?;
        Ok(Self { home: url.to_owned(), origin: Origin::Given { version }, private: None })
    }

    /// A private server, whatever the environment says.
    ///
    /// # Errors
    ///
    /// As [`Server::ensure`]. [`Error::Failed`] carries the end of the server's log, for example when a setting is wrong.
    pub async fn private(options: Options) -> Result<Self, Error> {
        let installation = installation(&options).await?;
        let private = Private::start(&installation, &options).await?;
        let Installation { version, bin_dir } = installation;
        Ok(Self {
            home: url::of_socket(private.socket_dir(), "postgres"),
            origin: Origin::Private { version, bin_dir },
            private: Some(private),
        })
    }

    /// The URL of a database on this server, which need not exist. It carries the user, and the password if one was given.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        url::with_database(&self.home, database)
    }

    /// Where this server comes from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The data folder of a private server.
    #[must_use]
    pub fn data_dir(&self) -> Option<&Path> {
        self.private.as_ref().map(Private::data_dir)
    }

    /// The process of a private server (the postmaster), as it was started last.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.private.as_ref().map(Private::pid)
    }

    /// Makes an empty database.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], with SQLSTATE `42P04` if there is one of this name.
    pub async fn create_database(&self, name: &str) -> Result<(), Error> {
        let mut connection = admin::connect(&self.home).await?;
        // Nobody can be connected to template0, so that this never has to wait.
        admin::create(&mut connection, name, "template0").await?;
        Ok(connection.close().await?)
    }

    /// Drops a database if it exists; whoever is connected to it is thrown out.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub async fn drop_database(&self, name: &str) -> Result<(), Error> {
        let mut connection = admin::connect(&self.home).await?;
        admin::drop(&mut connection, name).await?;
        Ok(connection.close().await?)
    }

    /// Stops a private server and waits until its process and its temporary folder are gone. A given one is left alone.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`] if that takes more than two minutes.
    pub async fn stop(self) -> Result<(), Error> {
        match self.private {
            Some(private) => private.stop().await,
            None => Ok(()),
        }
    }

    /// Stops a private server as a power cut would (an immediate shutdown, without a checkpoint), for fault tests. What
    /// was committed is there again after [`Server::start_again`]; URLs stay the same.
    ///
    /// # Errors
    ///
    /// [`Error::NotPrivate`] on a given server, [`Error::KeeperGone`] if the keeper was killed.
    pub async fn crash(&mut self) -> Result<(), Error> {
        self.private.as_mut().ok_or(Error::NotPrivate)?.crash().await
    }

    /// Starts a private server again on the same data, after [`Server::crash`], and waits until it can be used. If it still runs, it is crashed first.
    ///
    /// # Errors
    ///
    /// [`Error::NotPrivate`] on a given server, [`Error::Failed`] if the server does not start.
    pub async fn start_again(&mut self) -> Result<(), Error> {
        self.private.as_mut().ok_or(Error::NotPrivate)?.start_again().await
    }
}

/// The programs to run: where the options say, installed, or fetched.
pub(super) async fn installation(options: &Options) -> Result<Installation, Error> {
    let found = match &options.look_in {
        Some(places) => return find::newest(places),
        None => find::installed(),
    };
    match found {
        Err(Error::NotInstalled | Error::UnsupportedVersion { .. }) if download::is_allowed() => {
            download::installation().await
        }
        found => found,
    }
}
