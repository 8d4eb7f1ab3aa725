//! Filling a batch: open model waits become its items, and the bodies of those are read back in order.

use super::accounts::Lease;
use super::error::StoreError;
use crate::domain::IntentId;
use sqlx::PgPool;
use sqlx::types::chrono::{DateTime, Utc};

/// What waits for a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Queue {
    /// How many requests, counted up to the limit asked for.
    pub requests: i64,
    /// Their bytes.
    pub bytes: i64,
    /// How long the oldest has been waiting, in milliseconds.
    pub oldest_ms: i64,
    /// Batches of the account and the group that are under way.
    pub in_flight: i64,
    /// These are suspected of having had a batch refused: at most so many travel together.
    pub company: Option<i32>,
}

/// Looks at what is to be sent of one group, up to `limit` requests: those under suspicion first, the closest ones to being found
/// guilty. Without `suspects`, only those without suspicion. Those whose deadline is closer than `live_ms` go live and are left out.
pub(super) async fn queue(
    pool: &PgPool,
    provider: &str,
    group: &str,
    lease: Lease,
    limit: i64,
    suspects: bool,
    live_ms: Option<i64>,
) -> Result<Queue, StoreError> {
    let company = sqlx::query_scalar!(
        "select min(company) from longhaul.waits
         where provider = $1 and batch_group = $2 and $3 and company is not null and queued_at <= longhaul.now() and held_by is null
             and queued_at is not null
             and (deadline_at is null or $4::bigint is null
                 or deadline_at > longhaul.now() + $4 * interval '1 millisecond')",
        provider,
        group,
        suspects,
        live_ms as _
    )
    .fetch_one(pool)
    .await?;
    let row = sqlx::query!(
        r#"
select count(*) as "requests!", coalesce(sum(bytes), 0)::bigint as "bytes!",
    coalesce(extract(epoch from longhaul.now() - min(queued_at)) * 1000, 0)::bigint as "oldest_ms!",
    (select count(*) from longhaul.batches b where b.account = $2 and b.status between 1 and 7
        and b.batch_group = $5) as "in_flight!"
from (
    select bytes, queued_at from longhaul.waits
    where provider = $1 and batch_group = $5 and queued_at is not null and held_by is null
        and queued_at <= longhaul.now() and company is not distinct from $4
        and (deadline_at is null or $6::bigint is null or deadline_at > longhaul.now() + $6 * interval '1 millisecond')
    order by queued_at limit $3
) as waiting
"#,
        provider,
        lease.account,
        limit,
        company,
        group,
        live_ms as _
    )
    .fetch_one(pool)
    .await?;
    let (requests, bytes) = (row.requests, row.bytes);
    Ok(Queue { requests, bytes, oldest_ms: row.oldest_ms, in_flight: row.in_flight, company })
}

/// When the next request that is not due yet will be: in how many milliseconds.
pub(super) async fn next_due(pool: &PgPool, provider: &str, group: &str) -> Result<Option<i64>, StoreError> {
    let ms = sqlx::query_scalar!(
        r#"
select (extract(epoch from min(queued_at) - longhaul.now()) * 1000)::bigint as ms
from longhaul.waits where provider = $1 and batch_group = $2 and queued_at > longhaul.now() and held_by is null
"#,
        provider,
        group
    )
    .fetch_one(pool)
    .await?;
    Ok(ms)
}

/// Opens an empty batch under a lease, for requests of one group. `None`: the lease is lost.
pub(super) async fn open(
    pool: &PgPool,
    lease: Lease,
    intent: IntentId,
    group: &str,
) -> Result<Option<i64>, StoreError> {
    let id = sqlx::query_scalar!(
        r#"
insert into longhaul.batches (account, intent, status, lease, batch_group)
select a.id, $3, 1, a.fence, $4 from longhaul.accounts a where a.id = $1 and a.fence = $2
returning id
"#,
        lease.account,
        lease.fence,
        intent.0,
        group
    )
    .fetch_optional(pool)
    .await?;
    Ok(id)
}

/// How far a batch is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Filled {
    /// Items so far.
    pub items: i32,
    /// Bytes of their requests.
    pub bytes: i64,
    /// Whether the last chunk was full, so that another may find more.
    pub more: bool,
}

/// What a batch may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    pub items: i32,
    pub bytes: i64,
    /// Only those that may travel with at most so many; none are those without suspicion.
    pub company: Option<i32>,
    /// Those whose deadline is closer than so many milliseconds go live; null is none.
    pub live_ms: Option<i64>,
}

/// Takes one chunk of open waits into the batch. The rows that come back are the items: nothing else is.
pub(super) async fn fill(
    pool: &PgPool,
    provider: &str,
    batch: i64,
    lease: Lease,
    filled: Filled,
    chunk: i64,
    most: Most,
) -> Result<Filled, StoreError> {
    let row = sqlx::query!(
        r#"
with held as materialized (
    select id, batch_group from longhaul.batches where id = $2 and lease = $3 and status = 1 for update
),
pick as materialized (
    select w.run, w.ordinal, w.bytes, w.queued_at from longhaul.waits w
    where w.provider = $1 and w.batch_group = (select batch_group from held) and w.queued_at is not null and w.held_by is null
        and w.queued_at <= longhaul.now() and w.company is not distinct from $9
        and (w.deadline_at is null or $10::bigint is null
            or w.deadline_at > longhaul.now() + $10 * interval '1 millisecond')
    order by w.queued_at, w.run, w.ordinal limit $6 for update skip locked
),
cut as (
    select run, ordinal, $4 + (row_number() over in_order)::int - 1 as item, $5 + sum(bytes) over in_order as total
    from pick window in_order as (order by queued_at, run, ordinal)
),
taken as (
    update longhaul.waits w set status = 2, queued_at = null, batch = $2, item = c.item, attempt = least(w.attempt::int + 1, 32767)
    from cut c
    where w.run = c.run and w.ordinal = c.ordinal and c.item < $7 and (c.item = 0 or c.total <= $8)
    returning w.run, w.ordinal, w.item, w.attempt, w.bytes
),
items as (
    insert into longhaul.batch_items (batch, item, run, wait, attempt, status)
    select $2, item, run, ordinal, attempt, 1 from taken
),
grown as (
    update longhaul.batches b set n = b.n + t.n, bytes = b.bytes + t.bytes
    from (select count(*)::int as n, coalesce(sum(bytes), 0)::bigint as bytes from taken) t, held h
    where b.id = h.id
    returning b.n, b.bytes
)
select g.n as "n!", g.bytes as "bytes!", (select count(*) from pick) as "picked!",
    (select count(*) from taken) as "taken!"
from grown g
"#,
        provider,
        batch,
        lease.fence,
        filled.items,
        filled.bytes as _,
        chunk,
        most.items,
        most.bytes as _,
        most.company as _,
        most.live_ms as _
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map_or(Filled { more: false, ..filled }, |r| Filled {
        items: r.n,
        bytes: r.bytes,
        more: r.picked == chunk && r.taken == r.picked,
    }))
}

/// One page of a batch's requests, in their order: `(item, body)`.
pub(super) async fn bodies(pool: &PgPool, batch: i64, from: i32, limit: i64) -> Result<Vec<(i32, String)>, StoreError> {
    let rows = sqlx::query!(
        r#"
select i.item, r.body::text as "body!" from longhaul.batch_items i
join longhaul.requests r on r.run = i.run and r.ordinal = i.wait
where i.batch = $1 and i.item >= $2 order by i.item limit $3
"#,
        batch,
        from,
        limit
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|r| (r.item, r.body)).collect())
}

/// Fixes a batch: how many, how long, and the digest of the exact body. `false`: one of its runs was canceled, its provider or account
/// was paused, or the lease is lost.
pub(super) async fn seal(
    pool: &PgPool,
    batch: i64,
    lease: Lease,
    provider: &str,
    bytes: i64,
    digest: &[u8],
    api_version: &str,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        r#"
update longhaul.batches b set status = 2, bytes = $3, digest = $4, api_version = $5, sealed_at = longhaul.now()
where b.id = $1 and b.lease = $2 and b.status = 1 and b.n > 0
    -- A cancel wins up to here, and so does a late answer.
    and not exists (
        select from longhaul.batch_items i join longhaul.waits w on w.run = i.run and w.ordinal = i.wait
        where i.batch = b.id and (w.status <> 2 or w.batch is distinct from b.id)
    )
    and not exists (
        select from longhaul.pauses p where p.kind = 1 and p.subject = $6 or p.kind = 2 and p.subject = b.account::text
    )
"#,
        batch,
        lease.fence,
        bytes,
        digest,
        api_version,
        provider
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The newest batch that the provider listed, as it was just before a send.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Watermark {
    pub id: Option<String>,
    pub created_at: Option<DateTime<Utc>>,
}

/// The last commit before the first byte.
pub(super) async fn sending(
    pool: &PgPool,
    batch: i64,
    lease: Lease,
    provider: &str,
    watermark: &Watermark,
    limit_ms: i64,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "update longhaul.batches b set status = 3, sending_at = longhaul.now(), watermark = $3, watermark_at = $4,
             send_limit_ms = $5
         where b.id = $1 and b.lease = $2 and b.status = 2 and not exists (
             select from longhaul.pauses p where p.kind = 1 and p.subject = $6 or p.kind = 2 and p.subject = b.account::text
         )",
        batch,
        lease.fence,
        watermark.id.as_deref(),
        watermark.created_at,
        limit_ms,
        provider
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}
