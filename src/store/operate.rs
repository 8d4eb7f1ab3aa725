//! What operators say: pause and ceiling of a workflow, draining of a node, a run held back. Each is a durable row or mark that
//! the hot statements look at; who said it and when is kept.

use super::codec::Code;
use super::error::StoreError;
use crate::domain::{RunKey, RunStatus};
use sqlx::PgPool;
use sqlx::types::chrono::{DateTime, Utc};

/// What operators have said of a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// The workflow.
    pub workflow: String,
    /// Since when nothing of it is claimed.
    pub paused_at: Option<DateTime<Utc>>,
    /// Who said so.
    pub paused_by: Option<String>,
    /// Why.
    pub paused_reason: Option<String>,
    /// How many of its runs may be owned at a time, over all nodes.
    pub max_running: Option<u32>,
    /// How many are.
    pub running: u64,
}

/// Pauses a workflow, whatever its version. `false`: it was paused before, and that stands.
pub(super) async fn pause(pool: &PgPool, workflow: &str, by: &str, reason: &str) -> Result<bool, StoreError> {
    let changed = sqlx::query_scalar!(
        r#"
with said as (
    insert into longhaul.workflow_controls as c (name, paused_at, paused_by, paused_reason)
    values ($1, longhaul.now(), $2, $3)
    on conflict (name) do update set
        paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_reason = excluded.paused_reason
    where c.paused_at is null
    returning name
),
told as (insert into longhaul.control_log (target, action, by, detail) select name, 'paused', $2, $3 from said)
select count(*) as "count!" from said
"#,
        workflow,
        by,
        reason
    )
    .fetch_one(pool)
    .await?;
    Ok(changed == 1)
}

/// Ends the pause of a workflow. `false`: it was not paused.
pub(super) async fn resume(pool: &PgPool, workflow: &str, by: &str) -> Result<bool, StoreError> {
    let changed = sqlx::query_scalar!(
        r#"
with said as (
    update longhaul.workflow_controls set paused_at = null, paused_by = null, paused_reason = null
    where name = $1 and paused_at is not null
    returning name
),
told as (insert into longhaul.control_log (target, action, by, detail) select name, 'resumed', $2, '' from said)
select count(*) as "count!" from said
"#,
        workflow,
        by
    )
    .fetch_one(pool)
    .await?;
    Ok(changed == 1)
}

/// Sets or lifts the ceiling of a workflow. `false`: it was that before.
pub(super) async fn limit(
    pool: &PgPool,
    workflow: &str,
    by: &str,
    max_running: Option<i32>,
) -> Result<bool, StoreError> {
    let changed = sqlx::query_scalar!(
        r#"
with said as (
    insert into longhaul.workflow_controls as c (name, max_running) values ($1, $3)
    on conflict (name) do update set max_running = excluded.max_running
    where c.max_running is distinct from excluded.max_running
    returning name, max_running
),
told as (
    insert into longhaul.control_log (target, action, by, detail)
    select name, 'limited', $2, coalesce(max_running::text, 'no limit') from said
)
select count(*) as "count!" from said
"#,
        workflow,
        by,
        max_running as _
    )
    .fetch_one(pool)
    .await?;
    Ok(changed == 1)
}

/// What operators have said of workflows, and how many of their runs are owned.
pub(super) async fn controls(pool: &PgPool, workflow: Option<&str>) -> Result<Vec<Control>, StoreError> {
    let rows = sqlx::query!(
        r#"
select c.name, c.paused_at, c.paused_by, c.paused_reason, c.max_running, (
    select count(*) from longhaul.runs r join longhaul.workflow_versions v on v.id = r.workflow
    where r.owner is not null and v.name = c.name
) as "running!"
from longhaul.workflow_controls c where $1::text is null or c.name = $1 order by c.name
"#,
        workflow as _
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| Control {
            workflow: r.name,
            paused_at: r.paused_at,
            paused_by: r.paused_by,
            paused_reason: r.paused_reason,
            max_running: r.max_running.and_then(|n| u32::try_from(n).ok()),
            running: r.running.max(0) as u64,
        })
        .collect())
}

/// What time it is by the database's clock.
pub(super) async fn database_now(pool: &PgPool) -> Result<DateTime<Utc>, StoreError> {
    Ok(sqlx::query_scalar!(r#"select longhaul.now() as "now!""#).fetch_one(pool).await?)
}

/// Holds back a run that no node is to go on with: one that is runnable or owned. Answers what it was before; with anything else
/// nothing was changed. `None`: it is gone.
pub(super) async fn park(pool: &PgPool, run: RunKey, by: &str, reason: &str) -> Result<Option<RunStatus>, StoreError> {
    let was = sqlx::query_scalar!(
        r#"
with locked as materialized (select id, status from longhaul.runs where id = $1 for update),
moved as (
    update longhaul.runs r set status = 4, owner = null, ready_at = null, reason = $3, fence = r.fence + 1,
        cursor = r.cursor + 1
    from locked l where r.id = l.id and l.status in (1, 2)
    returning r.id, r.cursor, r.step, l.status
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 1, longhaul.nonce(), 5, json_build_object('step', step, 'code', 'operator', 'by', $2::text,
        'was', case status when 1 then 'runnable' else 'owned' end)
    from moved
)
select status as "status!" from locked
"#,
        run.0,
        by,
        reason
    )
    .fetch_optional(pool)
    .await?;
    Ok(was.map(RunStatus::decode))
}

/// Asks the living nodes of that name, or the one of that id, to take no more runs. Answers how many heard it.
pub(super) async fn drain(pool: &PgPool, node: &str, by: &str) -> Result<u64, StoreError> {
    let asked = sqlx::query_scalar!(
        r#"
with asked as (
    update longhaul.nodes set draining = true where dead_at is null and (name = $1 or id::text = $1) returning id
),
told as (
    insert into longhaul.control_log (target, action, by, detail) select id::text, 'drained', $2, $1 from asked
)
select count(*) as "count!" from asked
"#,
        node,
        by
    )
    .fetch_one(pool)
    .await?;
    Ok(asked.max(0) as u64)
}
