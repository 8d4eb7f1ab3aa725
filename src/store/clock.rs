//! The movable clock of test databases. Every statement reads time through `longhaul.now()`; here that function is replaced,
//! in one database, by one that adds a shift. Nothing in a service calls this.

use super::connect::Database;
use super::error::StoreError;
use sqlx::{Connection, Executor};
use std::time::Duration;

/// Moves the clock of this database forward, on top of earlier shifts.
pub(crate) async fn advance(database: &Database, by: Duration) -> Result<(), StoreError> {
    let mut conn = database.connect().await?;
    let mut tx = conn.begin().await?;
    // Two tests of one database may move its clock at once.
    tx.execute("select pg_advisory_xact_lock(7310579638231984)").await?;
    tx.execute(
        "create table if not exists longhaul.test_clock (one bool primary key check (one), shift interval not null)",
    )
    .await?;
    sqlx::query(
        "insert into longhaul.test_clock values (true, $1::bigint * interval '1 millisecond')
         on conflict (one) do update set shift = test_clock.shift + excluded.shift",
    )
    .bind(i64::try_from(by.as_millis()).unwrap_or(i64::MAX))
    .execute(&mut *tx)
    .await?;
    tx.execute(
        "create or replace function longhaul.now() returns timestamptz language sql stable parallel safe
         return pg_catalog.statement_timestamp() + (select shift from longhaul.test_clock)",
    )
    .await?;
    tx.commit().await?;
    conn.close().await?;
    Ok(())
}
