//! Setting runs going again that failed, were parked, or were stopped with their fork.

use super::error::StoreError;
use crate::domain::{RunKey, RunStatus};
use crate::store::codec::Code;
use sqlx::PgPool;

/// Sets a run going again from its last durable state: one that failed or is parked, or was stopped because its fork did not wait. A
/// request that failed for good goes out again with a fresh budget; what was stopped takes up its wait where it is by now. Answers
/// what the run is then; `None`: it is nothing of that.
///
/// What was parked when its fork stopped it is parked again, unless this very run is `named`: nothing that needed an operator's word goes
/// on without it.
pub(super) async fn retry(pool: &PgPool, run: RunKey, named: bool) -> Result<Option<RunStatus>, StoreError> {
    let after = sqlx::query_scalar!(
        r#"
with locked as materialized (
    select r.id, r.status, r.wait, r.status = 7 and not $2 and exists (
        select from longhaul.events e where e.run = r.id and e.ordinal = r.cursor - 1 and e.type = 4 and e.payload ->> 'was' = 'parked'
    ) as parked
    from longhaul.runs r
    where r.id = $1 and r.removed_at is null and (r.status in (4, 6) or r.status = 7 and exists (
        select from longhaul.fork_branches f where f.child = r.id and f.stopped
    ))
    for update
),
-- What became of the wait while nobody waited on it. Wait and item are locked, in that order, and looked at as they are then: whoever
-- brings or gives back a result locks them too.
wait as materialized (
    select l.id, w.* from locked l cross join lateral (
        select w.ordinal, w.status, w.batch, w.item from longhaul.waits w where w.run = l.id and w.ordinal = l.wait for update
    ) w where not l.parked
),
asked as materialized (
    select w.id as run, w.ordinal, case
        -- What failed is asked again, unless a live call that was taken for lost was answered after all.
        when w.status = 6 and coalesce(c.status, 4) <> 10 then 1
        when a.run is not null then 4
        when i.status in (3, 10) then 4
        when i.status in (1, 2) and b.status between 5 and 7 then 3
        when i.status in (1, 2) and b.status < 5 then 2
        when c.status in (3, 10) then 4
        when c.status = 2 then 3
        else 1
    end as status, i.batch, i.item
    from wait w
    left join longhaul.answers a on a.run = w.id and a.ordinal = w.ordinal
    left join lateral (
        select i.batch, i.item, i.status from longhaul.batch_items i
        where i.run = w.id and i.wait = w.ordinal and (i.batch = w.batch and i.item = w.item or i.status in (3, 10))
        order by i.status in (3, 10) desc limit 1 for update
    ) i on true
    -- Its live call likewise: one that was answered, or else the latest.
    left join lateral (
        select c.status from longhaul.live_calls c where c.run = w.id and c.wait = w.ordinal and w.batch is null
        order by c.status in (3, 10) desc, c.attempt desc limit 1 for update
    ) c on true
    left join longhaul.batches b on b.id = i.batch
    where w.status in (6, 8)
),
reopened as (
    update longhaul.waits w set status = a.status, errors = 0, returned = 0, kept_due_at = null,
        held_by = null, estimate = null,
        queued_at = case when a.status = 1 then longhaul.now() end,
        due_at = case when a.status = 1 then w.kept_due_at end,
        batch = case when a.status <> 1 then a.batch end,
        item = case when a.status <> 1 then a.item end
    from asked a where w.run = a.run and w.ordinal = a.ordinal
),
-- An answer that came while nobody waited was paid for, and serves now.
wanted as (
    update longhaul.batch_items i set status = 3
    from asked a where i.batch = a.batch and i.item = a.item and a.status = 4 and i.status = 10
    returning i.batch, i.model, i.nano_usd
),
of_use as (
    update longhaul.spent s set unused = s.unused - 1, unused_nano_usd = s.unused_nano_usd - coalesce(w.nano_usd, 0)
    from wanted w join longhaul.batches b on b.id = w.batch and b.status = 8, longhaul.runs r
    join longhaul.workflow_versions v on v.id = r.workflow
    where r.id = $1 and s.workflow = v.name and s.account = b.account and s.model = coalesce(w.model, '')
        and s.day = (b.settled_at at time zone 'UTC')::date
),
wanted_live as (
    update longhaul.live_calls c set status = 3 from asked a
    where c.run = a.run and c.wait = a.ordinal and a.status = 4 and c.status = 10 and c.attempt = (
        select min(x.attempt) from longhaul.live_calls x where x.run = a.run and x.wait = a.ordinal and x.status = 10
    )
    returning c.account, c.model, c.nano_usd, c.settled_at
),
of_use_live as (
    update longhaul.spent s set unused = s.unused - 1, unused_nano_usd = s.unused_nano_usd - coalesce(w.nano_usd, 0)
    from wanted_live w, longhaul.runs r join longhaul.workflow_versions v on v.id = r.workflow
    where r.id = $1 and s.workflow = v.name and s.account = w.account and s.model = coalesce(w.model, '')
        and s.day = (w.settled_at at time zone 'UTC')::date
),
moved as (
    update longhaul.runs r set status = case when l.parked then 4 when a.status in (1, 2, 3) then 3 else 1 end,
        ready_at = case when l.parked or a.status in (1, 2, 3) then null else longhaul.now() end,
        reason = case when l.parked then 'it was parked when its fork stopped it' end,
        finished_at = null, starts = 0, errors = 0, fence = r.fence + 1, cursor = r.cursor + 1
    from locked l left join asked a on a.run = l.id
    where r.id = l.id
    returning r.id, r.cursor, r.status, l.status as was
),
goes_on as (update longhaul.fork_branches f set stopped = false from moved m where f.child = m.id and f.stopped),
not_any_more as (delete from longhaul.cancel_orders o using moved m where o.run = m.id),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 1, longhaul.nonce(), 7,
        json_build_object('was', case was when 4 then 'parked' when 6 then 'failed' else 'canceled' end)
    from moved
),
-- An error is of a run that is over.
gone as (delete from longhaul.outputs o using moved m where o.run = m.id)
select status as "status!" from moved
"#,
        run.0,
        named
    )
    .fetch_optional(pool)
    .await?;
    Ok(after.map(RunStatus::decode))
}

/// Whether a run can be set going again, and what it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub status: RunStatus,
    /// It was canceled, because its fork did not wait.
    pub stopped: bool,
    /// Its records are gone.
    pub removed: bool,
}

/// What a run is.
pub(super) async fn standing(pool: &PgPool, run: RunKey) -> Result<Option<Standing>, StoreError> {
    let row = sqlx::query!(
        r#"
select r.status, coalesce(f.stopped, false) as "stopped!", r.removed_at is not null as "removed!" from longhaul.runs r
left join longhaul.fork_branches f on f.child = r.id
where r.id = $1
"#,
        run.0
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|r| Standing { status: RunStatus::decode(r.status), stopped: r.stopped, removed: r.removed }))
}

/// The branches that keep a run's fork from being joined with results: those that failed, and those that were stopped for them.
pub(super) async fn fallen_branches(pool: &PgPool, run: RunKey) -> Result<Vec<RunKey>, StoreError> {
    let rows = sqlx::query_scalar!(
        r#"
select c.id from longhaul.runs r
join longhaul.waits w on w.run = r.id and w.ordinal = r.wait and w.kind = 5 and w.status in (6, 8)
join longhaul.fork_branches f on f.run = w.run and f.ordinal = w.ordinal
join longhaul.runs c on c.id = f.child
where r.id = $1 and (c.status = 6 or c.status = 7 and f.stopped)
order by f.branch
"#,
        run.0
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(RunKey).collect())
}

/// The run that waits for this one, if it failed or was stopped on the fork that this one is a branch of.
pub(super) async fn fallen_parent(pool: &PgPool, run: RunKey) -> Result<Option<RunKey>, StoreError> {
    let parent = sqlx::query_scalar!(
        r#"
select r.id from longhaul.fork_branches f
join longhaul.runs r on r.id = f.run and r.wait = f.ordinal
join longhaul.waits w on w.run = r.id and w.ordinal = r.wait and w.status in (6, 8)
where f.child = $1
    and (r.status = 6 or r.status = 7 and exists (select from longhaul.fork_branches g where g.child = r.id and g.stopped))
"#,
        run.0
    )
    .fetch_optional(pool)
    .await?;
    Ok(parent.map(RunKey))
}
