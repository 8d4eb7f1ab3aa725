//! Connections and what every session of ours sets.

use super::error::StoreError;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{ConnectOptions, Connection, PgConnection};
use std::str::FromStr;
use std::time::Duration;

/// How long the server may work on one statement of ours.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(20);
/// How long we wait for the answer to one; longer than the server's own limit, so that it is a sign of a lost connection.
pub(crate) const STATEMENT_DEADLINE: Duration = Duration::from_secs(25);
/// How long a statement may wait for a lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a session may sit inside a transaction.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(10);
/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits for a statement no longer than its deadline.
pub(crate) async fn within<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(STATEMENT_DEADLINE, work).await {
        Ok(result) => result,
        Err(_) => Err(StoreError::Connection("no answer to a statement within its deadline".into())),
    }
}

/// One server process: a number may be given again, with its start it names one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Backend {
    pub pid: Option<i32>,
    pub since: Option<DateTime<Utc>>,
}

/// Where the database is, and how sessions of ours are set up. Never printed: a URL may hold a password.
#[derive(Clone)]
pub struct Database {
    options: PgConnectOptions,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({}/{})", self.options.get_host(), self.options.get_database().unwrap_or_default())
    }
}

impl Database {
    /// Reads a `postgres://` URL.
    ///
    /// # Errors
    /// [`StoreError::Connection`] when the text is no such URL; the text itself is not repeated.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|_| StoreError::Connection("the database URL cannot be read: postgres://user@host/db".into()))?;
        let ms = |d: Duration| d.as_millis().to_string();
        let options = options
            .application_name("longhaul")
            .options([
                ("statement_timeout", ms(STATEMENT_TIMEOUT)),
                ("lock_timeout", ms(LOCK_TIMEOUT)),
                ("idle_in_transaction_session_timeout", ms(IDLE_IN_TRANSACTION)),
                ("client_connection_check_interval", "2000".into()),
                ("tcp_keepalives_idle", "15".into()),
                ("tcp_keepalives_interval", "5".into()),
                ("tcp_keepalives_count", "3".into()),
                ("timezone", "UTC".into()),
            ])
            .statement_cache_capacity(256)
            .log_slow_statements(tracing::log::LevelFilter::Debug, Duration::from_secs(1))
            .log_statements(tracing::log::LevelFilter::Trace);
        Ok(Self { options })
    }

    /// A pool for statements that are not hot. Each is one autocommit statement: nothing of ours calls `begin` on a pool, where a
    /// future dropped half-way would leave a transaction open (transact-rs/sqlx#4393).
    pub(crate) fn pool(&self, connections: u32) -> PgPool {
        PgPoolOptions::new()
            .max_connections(connections.max(1))
            .acquire_timeout(Duration::from_secs(30))
            .test_before_acquire(false)
            .connect_lazy_with(self.options.clone())
    }

    /// A connection of one's own.
    pub(crate) async fn connect(&self) -> Result<PgConnection, StoreError> {
        match tokio::time::timeout(CONNECT_TIMEOUT, PgConnection::connect_with(&self.options)).await {
            Ok(conn) => Ok(conn?),
            Err(_) => Err(StoreError::Connection("no connection within 10 s".into())),
        }
    }

    /// A connection for hot statements: look-ups by key whatever the planner last heard of the tables' sizes, and no long wait
    /// for a lock, behind which everybody else's transitions would queue.
    pub(crate) async fn connect_hot(&self) -> Result<(PgConnection, Backend), StoreError> {
        let mut conn = self.connect().await?;
        sqlx::raw_sql(
            "set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; \
             set plan_cache_mode = force_generic_plan; set jit = off; set lock_timeout = '2s'",
        )
        .execute(&mut conn)
        .await?;
        let row = sqlx::query!("select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()")
            .fetch_one(&mut conn)
            .await?;
        Ok((conn, Backend { pid: row.pid, since: row.backend_start }))
    }

    /// The options, for a listener.
    pub(crate) fn options(&self) -> &PgConnectOptions {
        &self.options
    }
}
