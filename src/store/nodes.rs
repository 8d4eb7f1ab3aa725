//! Nodes: birth, heartbeat, death.

use super::error::StoreError;
use crate::domain::NodeId;
use sqlx::{PgConnection, PgExecutor};
use std::time::Duration;

/// What one node sees of another.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub id: NodeId,
    /// Rises while that node's actors answer.
    pub progress: i64,
    /// How long that node may go without progress.
    pub lease: Duration,
}

/// Registers a node under a new id.
pub(super) async fn register(
    db: impl PgExecutor<'_>,
    id: NodeId,
    name: &str,
    version: &str,
    lease: Duration,
    workflows: &[i32],
) -> Result<(), StoreError> {
    let lease_ms = i32::try_from(lease.as_millis()).unwrap_or(i32::MAX);
    sqlx::query!(
        "insert into longhaul.nodes (id, name, version, lease_ms, workflows) values ($1, $2, $3, $4, $5)",
        id.0,
        name,
        version,
        lease_ms,
        workflows
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Beats, and tells how far the node's actors have come and whether the node is leaving. Answers whether an operator has asked it
/// to. `None`: this node was declared dead.
pub(super) async fn beat(
    conn: &mut PgConnection,
    id: NodeId,
    progress: i64,
    leaving: bool,
) -> Result<Option<bool>, StoreError> {
    let draining = sqlx::query_scalar!(
        "update longhaul.nodes set beat = beat + 1, beat_at = longhaul.now(), progress = $2, draining = draining or $3
         where id = $1 and dead_at is null returning draining",
        id.0,
        progress,
        leaving
    )
    .fetch_optional(conn)
    .await?;
    Ok(draining)
}

/// Says anew which versions of workflows a node has.
pub(super) async fn serves(db: impl PgExecutor<'_>, id: NodeId, workflows: &[i32]) -> Result<(), StoreError> {
    sqlx::query!("update longhaul.nodes set workflows = $2 where id = $1 and dead_at is null", id.0, workflows)
        .execute(db)
        .await?;
    Ok(())
}

/// The living nodes but this one.
pub(super) async fn peers(db: impl PgExecutor<'_>, id: NodeId) -> Result<Vec<Peer>, StoreError> {
    let rows =
        sqlx::query!("select id, progress, lease_ms from longhaul.nodes where dead_at is null and id <> $1", id.0)
            .fetch_all(db)
            .await?;
    Ok(rows
        .into_iter()
        .map(|r| Peer {
            id: NodeId(r.id),
            progress: r.progress,
            lease: Duration::from_millis(r.lease_ms.max(1) as u64),
        })
        .collect())
}

/// Declares a node dead, if it has made no progress since `seen`. Death is final.
pub(super) async fn declare_dead(db: impl PgExecutor<'_>, id: NodeId, seen: i64) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "update longhaul.nodes set dead_at = longhaul.now() where id = $1 and progress = $2 and dead_at is null",
        id.0,
        seen
    )
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A node leaves in good order: it will not come back.
pub(super) async fn leave(db: impl PgExecutor<'_>, id: NodeId) -> Result<(), StoreError> {
    sqlx::query!("update longhaul.nodes set dead_at = longhaul.now() where id = $1 and dead_at is null", id.0)
        .execute(db)
        .await?;
    Ok(())
}

/// Dead nodes that still have something to their name.
pub(super) async fn dead_holders(db: impl PgExecutor<'_>) -> Result<Vec<NodeId>, StoreError> {
    let rows = sqlx::query_scalar!(
        r#"
select n.id from longhaul.nodes n
where n.dead_at is not null and (
    exists (select from longhaul.runs r where r.owner = n.id)
    or exists (select from longhaul.accounts a where a.owner = n.id)
    or exists (select from longhaul.batches b where b.owner = n.id and b.check_at is not null)
    or exists (select from longhaul.live_calls c where c.node = n.id and c.status = 2)
)
"#
    )
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(NodeId).collect())
}

/// Takes runs from a dead node, at most `limit`; they are runnable again under a higher fence. Answers how many.
pub(super) async fn take_over_runs(
    db: impl PgExecutor<'_>,
    dead: NodeId,
    by: NodeId,
    limit: i64,
) -> Result<u64, StoreError> {
    let taken = sqlx::query_scalar!(
        r#"
with held as materialized (
    select r.id from longhaul.runs r
    where r.owner = $1 and exists (select from longhaul.nodes n where n.id = $1 and n.dead_at is not null)
    order by r.id limit $3 for update skip locked
),
taken as (
    update longhaul.runs r set status = 1, owner = null, fence = r.fence + 1, cursor = r.cursor + 1,
        ready_at = longhaul.now()
    from held h where r.id = h.id
    returning r.id, r.cursor
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 1, longhaul.nonce(), 6, json_build_object('from', $1::uuid, 'by', $2::uuid) from taken
)
select count(*) as "count!" from taken
"#,
        dead.0,
        by.0,
        limit
    )
    .fetch_one(db)
    .await?;
    Ok(taken as u64)
}

/// Frees the submit leases and the batches that a dead node held. Their fences rise, so that nobody who held them can go on.
pub(super) async fn free_leases(db: impl PgExecutor<'_>, dead: NodeId) -> Result<(), StoreError> {
    sqlx::query!(
        r#"
with dead as materialized (select id from longhaul.nodes where id = $1 and dead_at is not null),
accounts as (
    update longhaul.accounts a set owner = null, fence = a.fence + 1 from dead d where a.owner = d.id
)
update longhaul.batches b set owner = null, fence = b.fence + 1 from dead d where b.owner = d.id
"#,
        dead.0
    )
    .execute(db)
    .await?;
    Ok(())
}
