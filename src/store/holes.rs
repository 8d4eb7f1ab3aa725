//! Items that no result accounts for, though the results were read to their end.

use super::error::StoreError;
use sqlx::PgPool;

/// What is known of the holes of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holes {
    /// Complete downloads in a row that had the same ones.
    pub seen: i32,
    /// Since the first of them, in milliseconds.
    pub since_ms: i64,
    /// Items whose line says that they succeeded.
    pub succeeded: i64,
    /// Items whose line cannot be read.
    pub unreadable: i64,
}

/// Notes which items a complete download did not have. `None`: the batch is not held under that fence.
pub(super) async fn holes(pool: &PgPool, batch: i64, fence: i64, digest: &[u8]) -> Result<Option<Holes>, StoreError> {
    let row = sqlx::query!(
        r#"
update longhaul.batches b set holes = $3,
    holes_seen = case when b.holes = $3 then b.holes_seen + 1 else 1 end,
    holes_since = case when b.holes = $3 then b.holes_since else longhaul.now() end
where b.id = $1 and b.fence = $2 and b.status in (5, 6, 7)
returning b.holes_seen as "seen!", (extract(epoch from longhaul.now() - b.holes_since) * 1000)::bigint as "since_ms!",
    (select count(*) from longhaul.batch_items i where i.batch = b.id and i.status in (3, 10)) as "succeeded!",
    (select count(*) from longhaul.batch_items i where i.batch = b.id and i.status = 9) as "unreadable!"
"#,
        batch,
        fence,
        digest
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|r| Holes { seen: r.seen, since_ms: r.since_ms, succeeded: r.succeeded, unreadable: r.unreadable }))
}

/// Gives up on items that were, or may have been, paid and have no result: their runs are parked, and nothing is sent again by itself.
/// Answers how many items.
pub(super) async fn park_missing(pool: &PgPool, batch: i64, fence: i64, items: &[i32]) -> Result<i64, StoreError> {
    let booked = sqlx::query_scalar!(
        r#"
with held as materialized (
    select id from longhaul.batches where id = $1 and fence = $2 and status in (5, 6, 7) for share
),
hole as materialized (
    select i.item, i.run, i.wait from held h join longhaul.batch_items i on i.batch = h.id
    where i.item = any($3) and i.status in (1, 2)
),
locked as materialized (
    select l.run, l.wait, l.item from (select * from hole order by run) l cross join lateral (
        select from longhaul.runs r where r.id = l.run and r.status = 3 and r.wait = l.wait for update
    ) r
),
-- Those whose run does not wait, as this statement's snapshot saw it, but whose wait is still this batch's once it is locked.
asking as materialized (
    select l.item from (
        select * from hole where not exists (select from locked k where k.item = hole.item) order by run
    ) l cross join lateral (
        select w.status, w.batch from longhaul.waits w where w.run = l.run and w.ordinal = l.wait for update
    ) w where w.status in (2, 3) and w.batch = $1
),
failed as (
    update longhaul.waits w set status = 6 from locked l
    where w.run = l.run and w.ordinal = l.wait and w.status in (2, 3) and w.batch = $1
    returning w.run, w.ordinal, w.attempt, w.provider
),
moved as (
    update longhaul.runs r set status = 4, cursor = r.cursor + 2,
        reason = 'its request was paid for, as far as the provider says, and has no result: a retry asks and pays again'
    from failed f where r.id = f.run
    returning r.id, r.cursor, r.step, f.ordinal, f.attempt, f.provider
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 2, longhaul.nonce(), 34, json_build_object('wait', ordinal, 'attempt', attempt,
        'provider', provider, 'outcome', 'missing_paid') from moved
    union all
    select id, cursor - 1, longhaul.nonce(), 5, json_build_object('step', step, 'code', 'missing-paid') from moved
),
booked as (
    update longhaul.batch_items i set status = 8, settled_at = longhaul.now()
    from hole h where i.batch = $1 and i.item = h.item and i.status in (1, 2)
        and not exists (select from asking a where a.item = h.item)
    returning i.item
)
select count(*) as "n!" from booked
"#,
        batch,
        fence,
        items
    )
    .fetch_one(pool)
    .await?;
    Ok(booked)
}

/// Whether nobody waits for anything in this batch any more, and the provider is not known to have been asked to cancel it.
pub(super) async fn unwanted(pool: &PgPool, batch: i64, fence: i64) -> Result<bool, StoreError> {
    let unwanted = sqlx::query_scalar!(
        r#"
select exists (
    select from longhaul.batches b
    where b.id = $1 and b.fence = $2 and b.status = 5 and b.cancel_at is null
        and not exists (
            select from longhaul.batch_items i join longhaul.waits w on w.run = i.run and w.ordinal = i.wait
            where i.batch = b.id and i.status in (1, 2) and w.batch = b.id and w.status in (2, 3)
        )
) as "unwanted!"
"#,
        batch,
        fence
    )
    .fetch_one(pool)
    .await?;
    Ok(unwanted)
}

/// The provider has said that it cancels the batch.
pub(super) async fn canceling(pool: &PgPool, batch: i64, fence: i64) -> Result<(), StoreError> {
    sqlx::query!(
        "update longhaul.batches set cancel_at = longhaul.now() where id = $1 and fence = $2 and status = 5",
        batch,
        fence
    )
    .execute(pool)
    .await?;
    Ok(())
}
