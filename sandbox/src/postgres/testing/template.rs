//! Template databases: migrated once per server, copied for every test.

use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use tokio::time::{Instant, sleep};

use crate::postgres::{Error, admin, url};

/// First key of the advisory locks, so that they meet nobody else's: "lhtt" (Longhaul test template).
const LOCK_SPACE: i32 = 0x6c68_7474;

/// Pause between two looks at who is still connected.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a migration's connections may take to end.
const LEAVING: Duration = Duration::from_secs(10);

/// The name of the migrated template database; makes it if the server does not have it.
pub(super) async fn ensure<F, Fut, E>(
    connection: &mut PgConnection,
    home: &str,
    template: &str,
    migrate: F,
) -> Result<String, Error>
where
    F: FnOnce(String) -> Fut,
    Fut: Future<Output = Result<(), E>>,
    E: std::error::Error + Send + Sync + 'static,
{
    let (name, key) = name_and_key(template);
    if is_finished(connection, &name).await? {
        return Ok(name);
    }
    // A session lock: it ends with this connection, so a process that dies here blocks nobody.
    sqlx::query("SELECT pg_advisory_lock($1, $2)").bind(LOCK_SPACE).bind(key).execute(&mut *connection).await?;
    let made = if is_finished(connection, &name).await? {
        Ok(())
    } else {
        make(connection, &name, url::with_database(home, &name), migrate).await
    };
    sqlx::query("SELECT pg_advisory_unlock($1, $2)").bind(LOCK_SPACE).bind(key).execute(&mut *connection).await?;
    made.map(|()| name)
}

async fn make<F, Fut, E>(connection: &mut PgConnection, name: &str, url: String, migrate: F) -> Result<(), Error>
where
    F: FnOnce(String) -> Fut,
    Fut: Future<Output = Result<(), E>>,
    E: std::error::Error + Send + Sync + 'static,
{
    // What is there and not finished was left by somebody who died or failed half-way.
    admin::drop(connection, name).await?;
    admin::create(connection, name, "template0").await?;
    migrate(url).await.map_err(|error| Error::Migrate(Box::new(error)))?;
    let quoted = admin::quoted(name);
    admin::run(connection, &format!("ALTER DATABASE {quoted} WITH ALLOW_CONNECTIONS false")).await?;
    wait_until_empty(connection, name).await?;
    // Last, because this is the mark of a finished one.
    admin::run(connection, &format!("ALTER DATABASE {quoted} WITH IS_TEMPLATE true")).await
}

/// A copy is refused while anybody is connected, so the connections that `migrate` left behind are ended here.
async fn wait_until_empty(connection: &mut PgConnection, name: &str) -> Result<(), Error> {
    let deadline = Instant::now() + LEAVING;
    loop {
        let ended = sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = $1 AND backend_type = 'client backend'",
        )
        .bind(name)
        .fetch_all(&mut *connection)
        .await?;
        match ended.len() {
            0 => return Ok(()),
            _ if Instant::now() >= deadline => {
                return Err(Error::Deadline { what: "the migration's connections to end", after: LEAVING });
            }
            _ => sleep(PAUSE).await,
        }
    }
}

async fn is_finished(connection: &mut PgConnection, name: &str) -> Result<bool, Error> {
    let is_template: Option<bool> = sqlx::query_scalar("SELECT datistemplate FROM pg_database WHERE datname = $1")
        .bind(name)
        .fetch_optional(connection)
        .await?;
    Ok(is_template.unwrap_or(false))
}

/// A name of fixed length, whatever the caller names the template, and the lock that goes with it.
fn name_and_key(template: &str) -> (String, i32) {
    let digest = Sha256::digest(template);
    let hash: String = digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    (format!("longhaul_template_{hash}"), i32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
}
