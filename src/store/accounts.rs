//! Accounts: where batches go, and the lease of the one node that sends them.

use super::error::StoreError;
use crate::domain::NodeId;
use crate::provider::Identity;
use sqlx::PgPool;
use std::time::Duration;

/// An account whose submit lease this node holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The account.
    pub account: i32,
    /// The account's fence: what its batches carry as their lease.
    pub fence: i64,
}

/// Finds or makes the account of that identity, which this node has under that name. The key that was used is no part of it: a rotated key orphans nothing.
pub(super) async fn identify(pool: &PgPool, identity: &Identity, provider: &str) -> Result<i32, StoreError> {
    sqlx::query!(
        "insert into longhaul.accounts as a (kind, base_url, organization, workspace, provider) values ($1, $2, $3, $4, $5)
         on conflict (kind, base_url, organization, workspace) do update set provider = excluded.provider
         where a.provider is distinct from excluded.provider",
        identity.kind,
        identity.base_url,
        identity.organization,
        identity.workspace,
        provider
    )
    .execute(pool)
    .await?;
    let id = sqlx::query_scalar!(
        "select id from longhaul.accounts where kind = $1 and base_url = $2 and organization = $3 and workspace = $4",
        identity.kind,
        identity.base_url,
        identity.organization,
        identity.workspace
    )
    .fetch_one(pool)
    .await?;
    Ok(id)
}

/// Takes the submit lease if nobody holds it. `None`: another node does, or this one is dead.
pub(super) async fn acquire(
    pool: &PgPool,
    account: i32,
    node: NodeId,
    anew: bool,
) -> Result<Option<Lease>, StoreError> {
    let fence = sqlx::query_scalar!(
        r#"
-- A process that takes it for the first time may try once: a restart with another key is an operator's act.
update longhaul.accounts a set owner = $2, fence = a.fence + 1, parked = case when $3 then null else a.parked end,
    refused_in_row = case when $3 then 0 else a.refused_in_row end
where a.id = $1 and a.owner is null and exists (select from longhaul.nodes n where n.id = $2 and n.dead_at is null)
returning a.fence
"#,
        account,
        node.0,
        anew
    )
    .fetch_optional(pool)
    .await?;
    Ok(fence.map(|fence| Lease { account, fence }))
}

/// Gives the lease up; also one of an earlier life of the same actor, whose answer was not heard.
pub(super) async fn resign(pool: &PgPool, account: i32, node: NodeId) -> Result<(), StoreError> {
    sqlx::query!(
        "update longhaul.accounts set owner = null, fence = fence + 1 where id = $1 and owner = $2",
        account,
        node.0
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// What keeps the account from sending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Brake {
    /// Not before this has passed.
    pub wait: Option<Duration>,
    /// Not until an operator acts, for this reason.
    pub parked: Option<String>,
    /// Not until an operator resumes what was paused, for this reason.
    pub paused: Option<String>,
}

/// Reads the brake; `None` when the lease is lost.
pub(super) async fn brake(pool: &PgPool, lease: Lease, provider: &str) -> Result<Option<Brake>, StoreError> {
    let row = sqlx::query!(
        r#"
select parked, (extract(epoch from not_before - longhaul.now()) * 1000)::bigint as wait_ms,
    (
        select min(p.why) from longhaul.pauses p
        where p.kind = 1 and p.subject = $3 or p.kind = 2 and p.subject = $1::int::text
    ) as paused
from longhaul.accounts where id = $1 and fence = $2
"#,
        lease.account,
        lease.fence,
        provider
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|r| Brake {
        wait: r.wait_ms.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0).map(Duration::from_millis),
        parked: r.parked,
        paused: r.paused,
    }))
}

/// Sends nothing for a while, or until an operator acts.
pub(super) async fn slow_down(pool: &PgPool, lease: Lease, brake: &Brake) -> Result<(), StoreError> {
    let wait_ms = brake.wait.map(|w| i64::try_from(w.as_millis()).unwrap_or(i64::MAX));
    sqlx::query!(
        "update longhaul.accounts set not_before = longhaul.now() + $3::bigint * interval '1 millisecond', parked = coalesce($4, parked)
         where id = $1 and fence = $2",
        lease.account,
        lease.fence,
        wait_ms,
        brake.parked
    )
    .execute(pool)
    .await?;
    Ok(())
}
