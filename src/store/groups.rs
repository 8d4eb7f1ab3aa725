//! Groups: which requests may travel in one batch, where a provider does not take every mixture. Whoever holds the submit lease
//! asks the provider once for each request that waits; it is kept with the wait.

use super::error::StoreError;
use crate::domain::RunKey;
use sqlx::PgPool;

/// A request of which nobody knows the group yet.
#[derive(Debug)]
pub(crate) struct Ungrouped {
    pub run: RunKey,
    pub ordinal: i32,
    pub body: String,
}

/// Requests that wait for a provider and are in no group yet, at most `limit` of them.
pub(super) async fn ungrouped(pool: &PgPool, provider: &str, limit: i64) -> Result<Vec<Ungrouped>, StoreError> {
    let rows = sqlx::query!(
        r#"
select w.run, w.ordinal, r.body::text as "body!" from (
    select run, ordinal from longhaul.waits
    where provider = $1 and batch_group = '' and queued_at is not null and held_by is null order by queued_at limit $2
) w join longhaul.requests r on r.run = w.run and r.ordinal = w.ordinal
"#,
        provider,
        limit
    )
    .fetch_all(pool)
    .await?;
    let row = rows.into_iter().map(|r| Ungrouped { run: RunKey(r.run), ordinal: r.ordinal, body: r.body });
    Ok(row.collect())
}

/// Puts waiting requests into their groups: `(run, ordinal, group)`, a column each.
pub(super) async fn group(pool: &PgPool, run: &[i64], ordinal: &[i32], group: &[String]) -> Result<(), StoreError> {
    sqlx::query!(
        r#"
with locked as materialized (
    select w.run, w.ordinal, x.batch_group from unnest($1::bigint[], $2::int[], $3::text[]) as x (run, ordinal, batch_group)
    join longhaul.waits w on w.run = x.run and w.ordinal = x.ordinal
    where w.batch_group = '' and w.queued_at is not null
    order by w.run, w.ordinal for update of w
)
update longhaul.waits w set batch_group = l.batch_group from locked l where w.run = l.run and w.ordinal = l.ordinal
"#,
        run,
        ordinal,
        group
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Groups that are looked through, at most, for those that have waited longest.
const SEEN: i64 = 2_000;

/// The groups of what waits for a provider, those first that have waited longest, at most `limit` of them. From each to the next by
/// the index.
pub(super) async fn groups(pool: &PgPool, provider: &str, limit: i64) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar!(
        r#"
with recursive found as (
    select (select min(batch_group) from longhaul.waits
        where provider = $1 and queued_at is not null and held_by is null and batch_group > '') as name, 1::bigint as place
    union all
    select (select min(w.batch_group) from longhaul.waits w
        where w.provider = $1 and w.queued_at is not null and w.held_by is null and w.batch_group > f.name), f.place + 1
    from found f where f.name is not null and f.place < $3
)
select name as "name!" from found where name is not null order by (
    select min(w.queued_at) from longhaul.waits w
    where w.provider = $1 and w.batch_group = found.name and w.queued_at is not null and w.held_by is null
), name limit $2
"#,
        provider,
        limit,
        SEEN
    )
    .fetch_all(pool)
    .await?;
    Ok(rows)
}
