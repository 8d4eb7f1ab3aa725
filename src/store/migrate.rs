//! The schema: forward only, applied as a whole or not at all.

use super::connect::Database;
use super::error::StoreError;
use sqlx::migrate::Migrator;
use sqlx::{Connection, Executor, PgConnection};

static MIGRATOR: Migrator = sqlx::migrate!();

/// A number of our own for the lock that keeps two migrations apart.
const LOCK: i64 = 0x6c6f_6e67_6861_756c;

/// The migration that this build needs.
pub(crate) fn needed() -> i64 {
    MIGRATOR.iter().map(|m| m.version).max().unwrap_or(0)
}

/// What names the whole of the migrations: it changes when any of them does.
pub(crate) fn digest() -> String {
    use sha2::{Digest, Sha256};
    let mut hash = Sha256::new();
    for migration in MIGRATOR.iter() {
        hash.update(&*migration.checksum);
    }
    crate::domain::json::hex(&hash.finalize())[..16].to_owned()
}

/// Brings the schema `longhaul` up to this build: everything in one transaction, under a lock that ends with it, so that any
/// number of processes may call this at once, through a pooler too, and a killed one leaves nothing behind.
pub(crate) async fn migrate(database: &Database) -> Result<(), StoreError> {
    let mut conn = database.connect().await?;
    // DDL may take longer than our statements do.
    conn.execute("set statement_timeout = 0; set lock_timeout = 0; set idle_in_transaction_session_timeout = 0")
        .await?;
    let mut tx = conn.begin().await?;
    sqlx::query("select pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *tx).await?;
    tx.execute("create schema if not exists longhaul").await?;
    tx.execute(
        "create table if not exists longhaul.schema_migrations (
            version bigint primary key, description text not null, checksum bytea not null,
            applied_at timestamptz not null default pg_catalog.now()
        )",
    )
    .await?;
    let applied: Vec<(i64, Vec<u8>)> =
        sqlx::query_as("select version, checksum from longhaul.schema_migrations").fetch_all(&mut *tx).await?;
    for migration in MIGRATOR.iter() {
        match applied.iter().find(|(version, _)| *version == migration.version) {
            Some((_, checksum)) if **checksum == *migration.checksum => {}
            Some(_) => {
                return Err(StoreError::Corrupt(format!("migration {} was changed after it ran", migration.version)));
            }
            None => {
                sqlx::raw_sql(migration.sql.clone()).execute(&mut *tx).await?;
                sqlx::query(
                    "insert into longhaul.schema_migrations (version, description, checksum) values ($1, $2, $3)",
                )
                .bind(migration.version)
                .bind(&*migration.description)
                .bind(&*migration.checksum)
                .execute(&mut *tx)
                .await?;
            }
        }
    }
    tx.commit().await?;
    Ok(())
}

/// Refuses a schema that is older or newer than this build.
pub(crate) async fn check(conn: &mut PgConnection) -> Result<(), StoreError> {
    let there: bool = sqlx::query_scalar("select to_regclass('longhaul.schema_migrations') is not null")
        .fetch_one(&mut *conn)
        .await?;
    let found: i64 = if there {
        sqlx::query_scalar("select coalesce(max(version), 0) from longhaul.schema_migrations").fetch_one(conn).await?
    } else {
        0
    };
    let needed = needed();
    match found.cmp(&needed) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => {
            Err(StoreError::Schema { found, needed, advice: "run `longhaul migrate`, or `longhaul::migrate(url)`" })
        }
        std::cmp::Ordering::Greater => {
            Err(StoreError::Schema { found, needed, advice: "this program is older than the schema: update it" })
        }
    }
}
