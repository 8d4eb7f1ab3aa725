//! [`TestDatabase`].

use std::sync::{Arc, mpsc};
use std::time::Duration;

use sqlx::{Connection, PgConnection};

use super::shared::{self, Host};
use super::template;
use crate::postgres::{Error, admin, url};

/// How long a test waits for its database to be dropped.
const DROPPING: Duration = Duration::from_secs(10);

/// A database of its own for one test.
///
/// It is dropped when this is dropped, whoever is still connected; dropping waits for that, since a process that runs one
/// test would otherwise be gone first. If it fails, the database stays until the server ends (on a server that
/// `LONGHAUL_DATABASE_URL` names: until somebody drops it; its name begins with `longhaul_test_`).
#[derive(Debug)]
pub struct TestDatabase {
    url: String,
    name: String,
    host: Arc<Host>,
}

impl TestDatabase {
    /// A copy of a migrated template.
    ///
    /// `template` names the template: give it the digest of the migrations, so that changed migrations make a new one.
    /// `migrate` gets the URL of an empty database and is called once per server and name, under a lock that holds across
    /// processes; if it fails or its process dies, the next caller starts afresh. Connections that it leaves open are ended.
    ///
    /// # Errors
    ///
    /// [`Error::Migrate`] if `migrate` fails, [`Error::NotInstalled`] and others if there is no server to be had.
    pub async fn create<F, Fut, E>(template: &str, migrate: F) -> Result<Self, Error>
    where
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let (host, mut connection) = shared::host().await?;
        let source = template::ensure(&mut connection, &host.home, template, migrate).await?;
        Self::copy(host, connection, &source).await
    }

    /// A database without anything in it.
    ///
    /// # Errors
    ///
    /// As [`TestDatabase::create`].
    pub async fn empty() -> Result<Self, Error> {
        let (host, connection) = shared::host().await?;
        Self::copy(host, connection, "template0").await
    }

    async fn copy(host: Arc<Host>, mut connection: PgConnection, source: &str) -> Result<Self, Error> {
        let name = format!("longhaul_test_{}", uuid::Uuid::now_v7().simple());
        let url = url::with_database(&host.home, &name);
        admin::create(&mut connection, &name, source).await?;
        let database = Self { url, name, host };
        connection.close().await?;
        Ok(database)
    }

    /// Its URL, for any PostgreSQL client.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (home, name) = (self.host.home.clone(), std::mem::take(&mut self.name));
        let (done, wait) = mpsc::channel::<()>();
        // A thread with a runtime of its own: the test's runtime may be single-threaded, busy or ending.
        let spawned = std::thread::Builder::new().spawn(move || {
            let _done = done;
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
                // Best effort: there is nobody to tell.
                let _ = runtime.block_on(drop_database(&home, &name));
            }
        });
        if spawned.is_ok() {
            // Ends when the thread lets go of `done`, in whatever way.
            let _ = wait.recv_timeout(DROPPING);
        }
    }
}

async fn drop_database(home: &str, name: &str) -> Result<(), Error> {
    let mut connection = PgConnection::connect(home).await?;
    admin::drop(&mut connection, name).await?;
    Ok(connection.close().await?)
}
