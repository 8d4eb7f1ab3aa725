//! After a send: what the provider did with it, as far as it is known.

use super::accounts::Lease;
use super::error::StoreError;
use crate::domain::{BatchStatus, IntentId};
use crate::store::codec::Code;
use sqlx::PgPool;
use sqlx::types::chrono::{DateTime, Utc};

/// A batch whose fate the submitter has to settle.
#[derive(Debug, Clone)]
pub(crate) struct Intent {
    pub batch: i64,
    pub intent: IntentId,
    pub status: BatchStatus,
    pub n: i32,
    /// Listed batches older than this are not it.
    pub watermark_at: Option<DateTime<Utc>>,
    /// How long ago it began to be sent, in milliseconds.
    pub sent_ms_ago: i64,
    /// How long sending it may have taken, in milliseconds.
    pub send_limit_ms: i64,
    /// It had been given up on, and may have been found all the same.
    pub late: bool,
}

/// A new holder of the lease takes up what an earlier one left: every unfinished intent of the account comes under its
/// fence, so that the earlier one can move none of them any more.
pub(super) async fn adopt_lease(pool: &PgPool, lease: Lease) -> Result<Vec<Intent>, StoreError> {
    sqlx::query!(
        "update longhaul.batches set lease = $2 where account = $1 and status between 1 and 4 and lease < $2",
        lease.account,
        lease.fence
    )
    .execute(pool)
    .await?;
    intents(pool, lease).await
}

/// The account's unfinished intents under this lease, and those whose batch is not proved yet.
async fn intents(pool: &PgPool, lease: Lease) -> Result<Vec<Intent>, StoreError> {
    let rows = sqlx::query!(
        r#"
select id, intent, status, n, watermark_at, coalesce(send_limit_ms, 0) as "send_limit_ms!",
    abandoned_at is not null as "late!",
    coalesce(extract(epoch from longhaul.now() - sending_at) * 1000, 0)::bigint as "sent_ms_ago!"
from longhaul.batches where account = $1 and ((lease = $2 and status between 1 and 4) or status = 6) order by id
"#,
        lease.account,
        lease.fence
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| Intent {
            batch: r.id,
            intent: IntentId(r.intent),
            status: BatchStatus::decode(r.status),
            n: r.n,
            watermark_at: r.watermark_at,
            sent_ms_ago: r.sent_ms_ago,
            send_limit_ms: r.send_limit_ms,
            late: r.late,
        })
        .collect())
}

/// The provider has it, under this id. `accepted`: for good, as far as its form goes.
pub(super) async fn created(
    pool: &PgPool,
    batch: i64,
    lease: Lease,
    id: &str,
    accepted: bool,
) -> Result<bool, StoreError> {
    let kept = sqlx::query_scalar!(
        r#"
with kept as (
    update longhaul.batches set status = 5, provider_batch_id = $3, submitted_at = longhaul.now(),
        check_at = longhaul.now()
    where id = $1 and lease = $2 and status in (3, 4)
    returning id
),
-- Something is accepted: what is refused is refused for itself.
accepted as (
    update longhaul.accounts set refused_in_row = 0 where id = $4 and refused_in_row > 0 and $5
        and exists (select from kept)
)
select exists (select from kept) as "kept!"
"#,
        batch,
        lease.fence,
        id,
        lease.account,
        accepted
    )
    .fetch_one(pool)
    .await?;
    Ok(kept)
}

/// Nobody knows whether the provider has it.
pub(super) async fn ambiguous(pool: &PgPool, batch: i64, lease: Lease, why: &str) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "update longhaul.batches set status = 4, ambiguous_at = longhaul.now(), note = $3
         where id = $1 and lease = $2 and status = 3",
        batch,
        lease.fence,
        why
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A listed batch that may be it: its results will tell. `certain`: it carries our intent, so it is.
pub(super) async fn adopt(
    pool: &PgPool,
    batch: i64,
    lease: Lease,
    id: &str,
    certain: bool,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        r#"
update longhaul.batches b set status = case when $4 then 5 else 6 end, provider_batch_id = $3,
    adopted_at = longhaul.now(), downloads = 0, check_at = longhaul.now(),
    submitted_at = case when $4 then longhaul.now() end, verified_at = case when $4 then longhaul.now() end
where b.id = $1 and b.lease = $2 and b.status = 4
    and not exists (
        select from longhaul.batches o where o.account = b.account and o.provider_batch_id = $3
    )
"#,
        batch,
        lease.fence,
        id,
        certain
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Of these ids of the provider's, those that are already known as ours or as foreign.
pub(super) async fn known(pool: &PgPool, account: i32, ids: &[String]) -> Result<Vec<String>, StoreError> {
    let rows = sqlx::query_scalar!(
        r#"
select l.id as "id!" from unnest($2::text[]) as l (id)
where exists (select from longhaul.batches b where b.account = $1 and b.provider_batch_id = l.id)
    or exists (select from longhaul.foreign_batches f where f.account = $1 and f.provider_batch_id = l.id)
"#,
        account,
        ids
    )
    .fetch_all(pool)
    .await?;
    Ok(rows)
}

/// It was never created: its items go back into the queue, and the next attempt gets new custom ids.
pub(super) async fn give_back(
    pool: &PgPool,
    batch: i64,
    lease: Lease,
    delay_ms: i64,
    why: &str,
) -> Result<bool, StoreError> {
    let row = sqlx::query!(
        r#"
with held as materialized (
    select id from longhaul.batches where id = $1 and lease = $2 and status between 1 and 4 for update
),
back as materialized (
    select i.run, i.wait from longhaul.batch_items i join held h on i.batch = h.id order by i.run
),
locked as materialized (
    -- With their status as it is once they are locked: what was stopped may be set going again at the same time.
    select w.run, w.ordinal, w.status from back b join longhaul.waits w on w.run = b.run and w.ordinal = b.wait
    where w.batch = $1 and w.status in (2, 3, 8) order by w.run, w.ordinal for update of w
),
queued as (
    update longhaul.waits w set status = case when l.status = 8 then 8 else 1 end, batch = null, item = null,
        queued_at = case when l.status <> 8 then longhaul.now() + $3::bigint * interval '1 millisecond' end
    from locked l where w.run = l.run and w.ordinal = l.ordinal
),
free as (delete from longhaul.reserved f using held h where f.batch = h.id)
update longhaul.batches b set status = 9, abandoned_at = coalesce(b.abandoned_at, longhaul.now()), check_at = null, note = $4
from held h where b.id = h.id
returning b.id
"#,
        batch,
        lease.fence,
        delay_ms,
        why
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.is_some())
}

/// Tells the runs of a batch that is surely ours that their requests are at the provider, at most `limit` of them. Answers how many
/// items were marked; 0 is all.
pub(super) async fn tell_submitted(pool: &PgPool, batch: i64, limit: i64) -> Result<i64, StoreError> {
    let marked = sqlx::query_scalar!(
        r#"
with held as materialized (
    select id, provider_batch_id from longhaul.batches where id = $1 and status in (5, 7) for update
),
pick as materialized (
    select i.run, i.wait, i.item, i.attempt, h.provider_batch_id from held h
    join longhaul.batch_items i on i.batch = h.id and i.status = 1
    order by i.run limit $2
),
locked as materialized (
    select p.* from pick p cross join lateral (
        select from longhaul.runs r where r.id = p.run and r.status = 3 and r.wait = p.wait for update
    ) r
),
sent as (
    update longhaul.waits w set status = 3 from locked l
    where w.run = l.run and w.ordinal = l.wait and w.status = 2 and w.batch = $1
    returning w.run, w.ordinal, w.attempt, l.provider_batch_id, w.provider
),
moved as (
    update longhaul.runs r set cursor = r.cursor + 1 from sent s where r.id = s.run
    returning r.id, r.cursor, s.ordinal, s.attempt, s.provider_batch_id, s.provider
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 1, longhaul.nonce(), 31,
        json_build_object('wait', ordinal, 'attempt', attempt, 'provider', provider, 'batch', provider_batch_id)
    from moved
),
marked as (
    update longhaul.batch_items i set status = 2 from pick p where i.batch = $1 and i.item = p.item and i.status = 1
    returning i.item
)
select count(*) as "count!" from marked
"#,
        batch,
        limit
    )
    .fetch_one(pool)
    .await?;
    Ok(marked)
}

/// Submitted batches of the account whose runs have not all been told.
pub(super) async fn untold(pool: &PgPool, account: i32) -> Result<Vec<i64>, StoreError> {
    let rows = sqlx::query_scalar!(
        r#"
select b.id from longhaul.batches b
where b.account = $1 and b.status in (5, 7)
    and exists (select from longhaul.batch_items i where i.batch = b.id and i.status = 1)
order by b.id
"#,
        account
    )
    .fetch_all(pool)
    .await?;
    Ok(rows)
}

/// Whether no other batch of its account and group is under way.
pub(super) async fn alone(pool: &PgPool, batch: i64) -> Result<bool, StoreError> {
    let alone = sqlx::query_scalar!(
        r#"
select not exists (
    select from longhaul.batches o where o.account = b.account and o.batch_group = b.batch_group and o.id <> b.id
        and o.status between 3 and 7
) as "alone!"
from longhaul.batches b where b.id = $1
"#,
        batch
    )
    .fetch_one(pool)
    .await?;
    Ok(alone)
}
