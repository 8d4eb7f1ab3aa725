//! Joins. A branch's own row tells that it is over; the join looks at all of them in a statement that begins after that
//! branch's COMMIT, so whichever of the last two looks last sees both. Who fires it is decided by the parent's row, once.

use super::error::StoreError;
use crate::domain::{JsonText, RunKey};
use sqlx::PgPool;

/// A run whose branches are all over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Joined {
    /// Whether it failed with one of them; then whoever waits for it may be next.
    pub failed: bool,
    pub parent: Option<RunKey>,
}

/// Joins those of these runs whose branches are all over: they go on with the results in the branches' order, or fail.
pub(super) async fn join(pool: &PgPool, runs: &[RunKey]) -> Result<Vec<Joined>, StoreError> {
    let run: Vec<i64> = runs.iter().map(|r| r.0).collect();
    let rows = sqlx::query!(
        r#"
with due as materialized (
    select w.run, w.ordinal, r.fence, q.body ->> 'policy' as policy
    from (select distinct run from unnest($1::bigint[]) as p (run)) p
    join longhaul.runs r on r.id = p.run and r.status = 3
    join longhaul.waits w on w.run = r.id and w.ordinal = r.wait and w.kind = 5 and w.status = 1
    join longhaul.requests q on q.run = w.run and q.ordinal = w.ordinal
    where not exists (
        select from longhaul.fork_branches f join longhaul.runs c on c.id = f.child
        where f.run = w.run and f.ordinal = w.ordinal and c.status not in (5, 6, 7)
    )
),
result as materialized (
    select d.run, d.ordinal, d.fence, d.policy <> 'collect' and bool_or(c.status <> 5) as failed,
        -- One that failed says more than one that was canceled, perhaps because of it.
        (array_agg(f.name order by c.status, f.branch) filter (where c.status <> 5))[1] as guilty,
        (array_agg(coalesce(o.error ->> 'message', 'it was canceled') order by c.status, f.branch)
            filter (where c.status <> 5))[1] as why,
        json_agg(case
            when d.policy <> 'collect' then o.body
            when c.status = 5 then json_build_object('ok', o.body)
            else json_build_object('failed', coalesce(o.error,
                json_build_object('code', 'branch-failed', 'step', c.step, 'message', 'it was canceled')))
        end order by f.branch) as body
    from due d
    join longhaul.fork_branches f on f.run = d.run and f.ordinal = d.ordinal
    join longhaul.runs c on c.id = f.child
    left join longhaul.outputs o on o.run = c.id
    group by d.run, d.ordinal, d.fence, d.policy
),
locked as materialized (
    select s.* from (select * from result order by run) s cross join lateral (
        -- The fence: it may have failed and been set going again since this statement looked.
        select from longhaul.runs r where r.id = s.run and r.status = 3 and r.wait = s.ordinal and r.fence = s.fence for update
    ) r
),
ended as (
    -- Claims are cut by what they have to load.
    update longhaul.waits w set status = case when l.failed then 6 else 4 end, queued_at = null,
        bytes = least(w.bytes::bigint + coalesce(octet_length(l.body::text), 0), 2147483647)
    from locked l where w.run = l.run and w.ordinal = l.ordinal and w.status = 1
    returning w.run, l.ordinal, l.failed, l.guilty, l.why, l.body
),
moved as (
    update longhaul.runs r set
        status = case when e.failed then 6 else 1 end,
        ready_at = case when not e.failed then longhaul.now() end,
        finished_at = case when e.failed then longhaul.now() end,
        cursor = r.cursor + 1 + e.failed::int
    from ended e where r.id = e.run
    returning r.id, r.cursor, r.step, r.parent, e.ordinal, e.failed, e.guilty, e.why, e.body
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 1, longhaul.nonce(), 51, json_build_object('wait', ordinal, 'bytes', octet_length(body::text))
    from moved where not failed
    union all
    select id, cursor - 2, longhaul.nonce(), 52, json_build_object('wait', ordinal, 'branch', guilty) from moved where failed
    union all
    select id, cursor - 1, longhaul.nonce(), 3, json_build_object('step', step, 'code', 'branch-failed')
    from moved where failed
),
said as (insert into longhaul.answers (run, ordinal, body) select id, ordinal, body from moved where not failed),
because as (
    insert into longhaul.outputs (run, error)
    select id, json_build_object('code', 'branch-failed', 'step', step,
        'message', 'branch `' || guilty || '`: ' || why)
    from moved where failed
    on conflict (run) do update set body = null, error = excluded.error, finished_in = excluded.finished_in
)
select failed as "failed!", parent from moved
"#,
        &run
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|r| Joined { failed: r.failed, parent: r.parent.map(RunKey) }).collect())
}

/// Fails a run whose branches are all over, but whose results cannot be put together.
pub(super) async fn fail_join(pool: &PgPool, run: RunKey, why: &str) -> Result<Option<Joined>, StoreError> {
    let row = sqlx::query!(
        r#"
with locked as materialized (
    select r.id, r.wait from longhaul.runs r where r.id = $1 and r.status = 3 for update
),
ended as (
    update longhaul.waits w set status = 6, queued_at = null from locked l
    where w.run = l.id and w.ordinal = l.wait and w.kind = 5 and w.status = 1
    returning w.run, w.ordinal
),
moved as (
    update longhaul.runs r set status = 6, finished_at = longhaul.now(), cursor = r.cursor + 2 from ended e where r.id = e.run
    returning r.id, r.cursor, r.step, r.parent, e.ordinal
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 2, longhaul.nonce(), 52, json_build_object('wait', ordinal) from moved
    union all
    select id, cursor - 1, longhaul.nonce(), 3, json_build_object('step', step, 'code', 'limit-exceeded') from moved
),
because as (
    insert into longhaul.outputs (run, error)
    select id, json_build_object('code', 'limit-exceeded', 'step', step,
        'message', 'the results of the branches cannot be put together: ' || $2::text) from moved
    on conflict (run) do update set body = null, error = excluded.error, finished_in = excluded.finished_in
)
select parent from moved
"#,
        run.0,
        why
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|r| Joined { failed: true, parent: r.parent.map(RunKey) }))
}

/// Runs whose branches are all over, and which nobody has joined (whoever should have died in between).
pub(super) async fn ripe(pool: &PgPool, limit: i64) -> Result<Vec<RunKey>, StoreError> {
    let rows = sqlx::query_scalar!(
        r#"
select w.run from longhaul.waits w join longhaul.runs r on r.id = w.run and r.status = 3 and r.wait = w.ordinal
where w.kind = 5 and w.queued_at is not null and not exists (
    select from longhaul.fork_branches f join longhaul.runs c on c.id = f.child
    where f.run = w.run and f.ordinal = w.ordinal and c.status not in (5, 6, 7)
)
order by w.opened_at limit $1
"#,
        limit
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(RunKey).collect())
}

/// What the completed branches of a fork have left of the state, in the branches' order, from that branch on.
pub(super) async fn states(
    pool: &PgPool,
    run: RunKey,
    ordinal: i32,
    from: i32,
    limit: i64,
) -> Result<Vec<BranchState>, StoreError> {
    let rows = sqlx::query!(
        r#"
select f.branch, f.name, c.workflow, v.version, c.step, c.state::text as state
from longhaul.fork_branches f join longhaul.runs c on c.id = f.child join longhaul.workflow_versions v on v.id = c.workflow
where f.run = $1 and f.ordinal = $2 and f.branch >= $3 and c.status = 5
order by f.branch limit $4
"#,
        run.0,
        ordinal,
        from,
        limit
    )
    .fetch_all(pool)
    .await?;
    let states = rows.into_iter().map(|r| BranchState {
        branch: r.branch,
        name: r.name,
        workflow: r.workflow,
        version: r.version.max(0) as u32,
        step: r.step,
        state: r.state.map(JsonText::stored),
    });
    Ok(states.collect())
}

/// What a branch has left of the state.
#[derive(Debug)]
pub(crate) struct BranchState {
    pub branch: i32,
    pub name: String,
    /// The key of the version it ended under, and its last step.
    pub workflow: i32,
    pub version: u32,
    pub step: String,
    pub state: Option<JsonText>,
}
