//! Looking: statements that change nothing.

use super::codec::Code;
use super::error::StoreError;
use crate::domain::{BatchStatus, EventId, EventType, Ordinal, RunKey, RunStatus, WaitKind, WaitStatus};
use sqlx::PgPool;
use sqlx::types::chrono::{DateTime, Utc};

/// A run as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunView {
    /// The key inside the database.
    pub key: RunKey,
    /// Its id.
    pub run_id: String,
    /// The workflow.
    pub workflow: String,
    /// The workflow's version.
    pub version: u32,
    /// What it is doing.
    pub status: RunStatus,
    /// The step it is at.
    pub step: String,
    /// How many events its ledger has.
    pub events: Ordinal,
    /// Failed attempts of the present step.
    pub errors: u32,
    /// The node that holds it.
    pub owner: Option<uuid::Uuid>,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// When its records were removed, having been kept long enough.
    pub removed_at: Option<DateTime<Utc>>,
    /// Why it is parked.
    pub reason: Option<String>,
    /// The run that waits for it, if it is a branch.
    pub parent: Option<RunKey>,
    /// What it waits for.
    pub wait: Option<(WaitKind, WaitStatus)>,
    /// Its tags in order; those of a branch are its root's.
    pub tags: Vec<String>,
    /// What its caller said of it, a JSON object as text.
    pub metadata: Option<String>,
}

/// An entry of a run's ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventView {
    /// Its id.
    pub id: EventId,
    /// What it tells of.
    pub kind: EventType,
    /// When it was written.
    pub at: DateTime<Utc>,
    /// What caused it, if not the previous event: run key, ordinal, nonce.
    pub cause: Option<EventId>,
    /// Its payload, as JSON text.
    pub payload: String,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub status: RunStatus,
    pub body: Option<String>,
    pub error: Option<String>,
}

/// How many runs there are of each status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Counts {
    /// Claimable, or going to be.
    pub runnable: i64,
    /// Held by a node.
    pub owned: i64,
    /// Suspended.
    pub waiting: i64,
    /// Held back for an operator.
    pub parked: i64,
    /// Ended with an output.
    pub completed: i64,
    /// Ended with an error.
    pub failed: i64,
    /// Ended by request.
    pub canceled: i64,
}

/// A living node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// Its id.
    pub id: uuid::Uuid,
    /// Its name.
    pub name: String,
    /// The version of this crate that it runs.
    pub version: String,
    /// How many runs it holds.
    pub runs: i64,
    /// Whether it takes no more.
    pub draining: bool,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// How long ago its last heartbeat was, in milliseconds.
    pub beat_ago_ms: i64,
}

/// A batch as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchView {
    /// The key inside the database.
    pub key: i64,
    /// How far it is.
    pub status: BatchStatus,
    /// Its id at the provider.
    pub provider_batch_id: Option<String>,
    /// Requests.
    pub requests: i32,
    /// Bytes of its body.
    pub bytes: i64,
    /// When it was reserved.
    pub reserved_at: DateTime<Utc>,
    /// When its create call became ambiguous.
    pub ambiguous_at: Option<DateTime<Utc>>,
    /// When it was found again by listing.
    pub adopted_at: Option<DateTime<Utc>>,
    /// When every item was accounted for.
    pub settled_at: Option<DateTime<Utc>>,
    /// What was last noted of it.
    pub note: Option<String>,
}

/// Totals of the batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct BatchTotals {
    /// Batches that a provider had.
    pub batches: i64,
    /// Requests in them.
    pub items: i64,
    /// Sends whose outcome was unknown.
    pub ambiguous_creates: i64,
    /// Batches found again by listing.
    pub adopted: i64,
    /// Results that came when another attempt had been answered.
    pub late_duplicates: i64,
    /// What the results cost, in nano-dollars, as far as it is known.
    pub nano_usd: i64,
    /// Results whose cost is unknown.
    pub unpriced: i64,
}

/// A page of a run's ledger, from an ordinal on.
pub(super) async fn events(
    pool: &PgPool,
    run: RunKey,
    from: Ordinal,
    limit: i64,
) -> Result<Vec<EventView>, StoreError> {
    let rows = sqlx::query!(
        r#"
select ordinal, nonce, type, at, cause_run, cause_ordinal, cause_nonce, payload::text as "payload!"
from longhaul.events where run = $1 and ordinal >= $2 order by ordinal limit $3
"#,
        run.0,
        from,
        limit
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| EventView {
            id: EventId { run, ordinal: r.ordinal, nonce: r.nonce },
            kind: EventType::decode(r.r#type),
            at: r.at,
            cause: match (r.cause_run, r.cause_ordinal, r.cause_nonce) {
                (Some(run), Some(ordinal), Some(nonce)) => Some(EventId { run: RunKey(run), ordinal, nonce }),
                _ => None,
            },
            payload: r.payload,
        })
        .collect())
}

/// How a run ended, or what it is doing.
pub(super) async fn outcome(pool: &PgPool, run: RunKey) -> Result<Option<Outcome>, StoreError> {
    let row = sqlx::query!(
        r#"
select r.status, o.body::text as body, o.error::text as error
from longhaul.runs r left join longhaul.outputs o on o.run = r.id where r.id = $1
"#,
        run.0
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|r| Outcome { status: RunStatus::decode(r.status), body: r.body, error: r.error }))
}

/// The living nodes, by name.
pub(super) async fn living(pool: &PgPool) -> Result<Vec<NodeView>, StoreError> {
    let rows = sqlx::query!(
        r#"
select n.id, n.name, n.version, n.draining, n.started_at, count(r.id) as "runs!",
    (extract(epoch from longhaul.now() - n.beat_at) * 1000)::bigint as "beat_ago_ms!"
from longhaul.nodes n left join longhaul.runs r on r.owner = n.id
where n.dead_at is null group by n.id order by n.name, n.id
"#
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| NodeView {
            id: r.id,
            name: r.name,
            version: r.version,
            runs: r.runs,
            draining: r.draining,
            started_at: r.started_at,
            beat_ago_ms: r.beat_ago_ms,
        })
        .collect())
}

/// The latest batches.
pub(super) async fn batches(pool: &PgPool, limit: i64) -> Result<Vec<BatchView>, StoreError> {
    let rows = sqlx::query!(
        "select id, status, provider_batch_id, n, bytes, reserved_at, ambiguous_at, adopted_at, settled_at, note
         from longhaul.batches order by id desc limit $1",
        limit
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| BatchView {
            key: r.id,
            status: BatchStatus::decode(r.status),
            provider_batch_id: r.provider_batch_id,
            requests: r.n,
            bytes: r.bytes,
            reserved_at: r.reserved_at,
            ambiguous_at: r.ambiguous_at,
            adopted_at: r.adopted_at,
            settled_at: r.settled_at,
            note: r.note,
        })
        .collect())
}

/// Totals over all batches.
pub(super) async fn batch_totals(pool: &PgPool) -> Result<BatchTotals, StoreError> {
    let row = sqlx::query!(
        r#"
select count(*) filter (where provider_batch_id is not null) as "batches!",
    coalesce(sum(n) filter (where provider_batch_id is not null), 0)::bigint as "items!",
    coalesce(sum(removed_nano_usd), 0)::bigint as "nano_usd!", coalesce(sum(removed_late), 0)::bigint as "late!",
    coalesce(sum(removed_unpriced), 0)::bigint as "unpriced!",
    count(*) filter (where ambiguous_at is not null) as "ambiguous!",
    count(*) filter (where adopted_at is not null) as "adopted!"
from longhaul.batches
"#
    )
    .fetch_one(pool)
    .await?;
    let money = sqlx::query!(
        r#"
select coalesce(sum(nano_usd), 0)::bigint as "nano_usd!",
    count(*) filter (where status = 10) as "late!",
    count(*) filter (where status in (3, 8, 9, 10) and nano_usd is null) as "unpriced!"
from longhaul.batch_items
"#
    )
    .fetch_one(pool)
    .await?;
    Ok(BatchTotals {
        batches: row.batches,
        items: row.items,
        ambiguous_creates: row.ambiguous,
        adopted: row.adopted,
        late_duplicates: money.late + row.late,
        nano_usd: money.nano_usd + row.nano_usd,
        unpriced: money.unpriced + row.unpriced,
    })
}

/// How many events there are, and how many of one kind.
pub(super) async fn events_of(pool: &PgPool, kind: Option<i16>) -> Result<i64, StoreError> {
    let n = sqlx::query_scalar!(
        r#"select count(*) as "n!" from longhaul.events where $1::smallint is null or type = $1"#,
        kind as _
    )
    .fetch_one(pool)
    .await?;
    Ok(n)
}

/// Whether nothing is claimable now, held, or on its way: what is left waits for somebody outside or for a later moment.
pub(super) async fn quiescent(pool: &PgPool) -> Result<bool, StoreError> {
    let quiet = sqlx::query_scalar!(
        r#"
select not exists (select from longhaul.runs where owner is not null)
    and not exists (select from longhaul.runs where ready_at is not null and ready_at <= longhaul.now())
    and not exists (
        select from longhaul.waits where provider is not null and queued_at is not null and held_by is null
            and queued_at <= longhaul.now()
    )
    and not exists (select from longhaul.waits where due_at is not null and due_at <= longhaul.now())
    and not exists (select from longhaul.live_calls where status = 2)
    and not exists (select from longhaul.batches where status between 1 and 7) as "quiet!"
"#
    )
    .fetch_one(pool)
    .await?;
    Ok(quiet)
}
