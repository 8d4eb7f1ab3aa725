//! Ending runs by request, and their branches with them.
//!
//! A run is canceled in one statement, which also writes an order for each of its branches; an order is carried out by the same
//! statement, one level further down. Whoever dies in between leaves orders behind, and any node's sweep works them off. A fork that
//! does not wait gives such orders too, to *stop* branches: what was stopped remembers it, and may go on later.

use super::error::StoreError;
use crate::domain::{RunKey, RunStatus};
use crate::store::codec::Code;
use sqlx::PgPool;

/// What a run was before a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Before {
    pub run: RunKey,
    /// The run that waits for it.
    pub parent: Option<RunKey>,
    pub status: RunStatus,
    /// Whether it was ended. If not, though it is not over, the cancel has to be repeated.
    pub done: bool,
}

/// Ends runs, whatever they are doing, unless they are over: by request or, if `ordered`, only those that an order is out for.
/// Answers what they were before; a terminal status means that nothing was changed. What they have at a provider is paid and booked
/// when it comes, and changes nothing else.
pub(super) async fn cancel(pool: &PgPool, runs: &[RunKey], ordered: bool) -> Result<Vec<Before>, StoreError> {
    let run: Vec<i64> = runs.iter().map(|r| r.0).collect();
    let rows = sqlx::query!(
        r#"
with locked as materialized (
    select r.id, r.status, r.wait, r.parent from longhaul.runs r where r.id = any($1) order by r.id for update
),
-- Read after the runs are locked: an order that was carried out or taken back meanwhile is not there any more.
told_to as materialized (
    select o.run, o.stop from longhaul.cancel_orders o join locked l on l.id = o.run order by o.run for update of o
),
-- A wait that was opened after this statement's snapshot is not seen by it: then nothing is done, and it is done again.
seen as materialized (
    select l.*, coalesce(o.stop, false) as stop from locked l left join told_to o on o.run = l.id
    where l.status < 5 and (o.run is not null or not $2) and (
        l.wait is null or exists (select from longhaul.waits w where w.run = l.id and w.ordinal = l.wait)
    )
),
ended as (
    -- Judged as it is now, not as this statement's snapshot saw it: it may have been set going again meanwhile.
    update longhaul.waits w set
        status = case when w.status in (1, 2, 3, 4) then 8 else w.status end,
        queued_at = null, due_at = null,
        kept_due_at = case when w.status in (1, 2, 3, 4) then w.due_at else w.kept_due_at end
    from seen l where w.run = l.id and w.ordinal = l.wait
),
below as (
    insert into longhaul.cancel_orders (run, stop)
    select f.child, l.stop from seen l
    join longhaul.fork_branches f on f.run = l.id and f.ordinal = l.wait
    join longhaul.runs c on c.id = f.child and c.status not in (5, 6, 7)
    -- By request is for good.
    on conflict (run) do update set stop = cancel_orders.stop and excluded.stop
),
moved as (
    update longhaul.runs r set status = 7, owner = null, ready_at = null, reason = null, fence = r.fence + 1,
        cursor = r.cursor + 1, finished_at = longhaul.now()
    from seen l where r.id = l.id
    returning r.id, r.cursor, l.status, l.stop
),
stopped as (update longhaul.fork_branches f set stopped = true from seen l where f.child = l.id and l.stop),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 1, longhaul.nonce(), 4, json_strip_nulls(json_build_object(
        'was', case status when 1 then 'runnable' when 2 then 'owned' when 3 then 'waiting' when 4 then 'parked' end,
        'by', case when stop then 'fail-fast' end))
    from moved
),
carried_out as (
    delete from longhaul.cancel_orders o using locked l
    where o.run = l.id and (l.status >= 5 or exists (select from seen s where s.id = l.id))
)
select l.id as "id!", l.parent, l.status as "status!", exists (select from seen s where s.id = l.id) as "done!" from locked l
"#,
        &run,
        ordered
    )
    .fetch_all(pool)
    .await?;
    let before = rows.into_iter().map(|r| Before {
        run: RunKey(r.id),
        parent: r.parent.map(RunKey),
        status: RunStatus::decode(r.status),
        done: r.done,
    });
    Ok(before.collect())
}

/// Runs that an order is out for, whoever gave it.
pub(super) async fn ordered(pool: &PgPool, limit: i64) -> Result<Vec<RunKey>, StoreError> {
    let rows = sqlx::query_scalar!("select run from longhaul.cancel_orders order by run limit $1", limit)
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(RunKey).collect())
}

/// Branches of these runs that an order is out for.
pub(super) async fn ordered_below(pool: &PgPool, runs: &[RunKey]) -> Result<Vec<RunKey>, StoreError> {
    let run: Vec<i64> = runs.iter().map(|r| r.0).collect();
    let rows = sqlx::query_scalar!(
        "select o.run from unnest($1::bigint[]) as p (run)
         join longhaul.fork_branches f on f.run = p.run join longhaul.cancel_orders o on o.run = f.child",
        &run
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(RunKey).collect())
}

/// Orders the branches of these runs to stop that are not over, where the fork does not wait and one of its branches has failed.
/// Answers which are to stop.
pub(super) async fn stop_others(pool: &PgPool, runs: &[RunKey]) -> Result<Vec<RunKey>, StoreError> {
    let run: Vec<i64> = runs.iter().map(|r| r.0).collect();
    let rows = sqlx::query_scalar!(
        r#"
with due as materialized (
    select w.run, w.ordinal, r.fence
    from (select distinct run from unnest($1::bigint[]) as p (run)) p
    join longhaul.runs r on r.id = p.run and r.status = 3
    join longhaul.waits w on w.run = r.id and w.ordinal = r.wait and w.kind = 5 and w.status = 1
    join longhaul.requests q on q.run = w.run and q.ordinal = w.ordinal and q.body ->> 'policy' = 'fail_fast'
    where exists (
        select from longhaul.fork_branches f join longhaul.runs c on c.id = f.child
        where f.run = w.run and f.ordinal = w.ordinal and c.status in (6, 7)
    )
),
-- A run that was set going again meanwhile has another fence, and its branches are not to be stopped for what was.
locked as materialized (
    select d.* from (select * from due order by run) d cross join lateral (
        select from longhaul.runs r where r.id = d.run and r.status = 3 and r.wait = d.ordinal and r.fence = d.fence for update
    ) r
)
insert into longhaul.cancel_orders (run, stop)
select f.child, true from locked l
join longhaul.fork_branches f on f.run = l.run and f.ordinal = l.ordinal
join longhaul.runs c on c.id = f.child and c.status not in (5, 6, 7)
on conflict do nothing
returning run
"#,
        &run
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(RunKey).collect())
}

/// Runs whose forks do not wait, and have a branch that failed beside one that goes on.
pub(super) async fn rash(pool: &PgPool, limit: i64) -> Result<Vec<RunKey>, StoreError> {
    let rows = sqlx::query_scalar!(
        r#"
select w.run from longhaul.waits w
join longhaul.requests q on q.run = w.run and q.ordinal = w.ordinal and q.body ->> 'policy' = 'fail_fast'
where w.kind = 5 and w.queued_at is not null
    and exists (
        select from longhaul.fork_branches f join longhaul.runs c on c.id = f.child
        where f.run = w.run and f.ordinal = w.ordinal and c.status in (6, 7)
    )
    and exists (
        select from longhaul.fork_branches f join longhaul.runs c on c.id = f.child
        where f.run = w.run and f.ordinal = w.ordinal and c.status not in (5, 6, 7)
            and not exists (select from longhaul.cancel_orders o where o.run = c.id)
    )
order by w.opened_at limit $1
"#,
        limit
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(RunKey).collect())
}
