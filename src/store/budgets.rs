//! Budgets: what may be spent, what is reserved for requests under way, and the requests that are held until there is room.
//!
//! A decision is read and written by two statements. The second compares the versions of all budgets that the first has read and
//! raises them: of two submitters that decide by one budget at the same time, one decides anew.

use super::accounts::Lease;
use super::error::StoreError;
use sqlx::PgPool;
use sqlx::types::chrono::{DateTime, Utc};

/// A budget that some items of a batch concern, as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Concern {
    pub budget: i32,
    pub version: i64,
    /// Nano-dollars that are neither spent nor reserved; below 0 when it was lowered, or more was spent than estimated.
    pub room: i64,
    /// Whether requests go out whose price is not known.
    pub unpriced: bool,
    /// The items, in order.
    pub items: Vec<i32>,
}

/// The budgets that a batch's items concern.
pub(super) async fn concerned(pool: &PgPool, batch: i64, account: i32) -> Result<Vec<Concern>, StoreError> {
    let rows = sqlx::query!(
        r#"
with item as materialized (
    select i.item, v.name as workflow, coalesce(r.root, r.id)::text as root
    from longhaul.batch_items i
    join longhaul.runs r on r.id = i.run
    join longhaul.workflow_versions v on v.id = r.workflow
    where i.batch = $1 and exists (select from longhaul.budgets where limit_nano is not null)
),
concern as (
    select b.id, i.item from longhaul.budgets b cross join item i where b.kind = 1 and b.subject = $2::int::text
    union all
    select b.id, i.item from longhaul.budgets b join item i on i.workflow = b.subject where b.kind = 2
    union all
    select b.id, i.item from longhaul.budgets b join item i on i.root = b.subject where b.kind = 3
),
its as materialized (select id, array_agg(item order by item) as items from concern group by id)
select u.id as "id!", u.version as "version!", u.limit_nano - u.spent - u.in_flight as "room!", u.unpriced as "unpriced!",
    i.items as "items!"
from its i join longhaul.budget_use u on u.id = i.id
where u.limit_nano is not null order by u.id
"#,
        batch,
        account
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| Concern { budget: r.id, version: r.version, room: r.room, unpriced: r.unpriced, items: r.items })
        .collect())
}

/// What was decided of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    /// What is reserved, a sum for each budget that the batch concerns.
    pub sums: Vec<i64>,
    /// The items that are held, the budgets that have no room for them, and what each may come to cost, if it is known.
    pub held: Vec<i32>,
    pub by: Vec<i32>,
    pub estimates: Vec<Option<i64>>,
}

/// Carries a decision out, unless one of the budgets was decided by or set since it was read: reserves what the batch may come to cost,
/// and takes what is held out of it. What is left is numbered anew, since the batch is not sealed yet. Answers how many items are
/// left; `None`: decide anew, or the lease is lost.
pub(super) async fn fund(
    pool: &PgPool,
    batch: i64,
    lease: Lease,
    concerned: &[Concern],
    decision: &Decision,
) -> Result<Option<i32>, StoreError> {
    let budgets: Vec<i32> = concerned.iter().map(|c| c.budget).collect();
    let versions: Vec<i64> = concerned.iter().map(|c| c.version).collect();
    let left = sqlx::query_scalar!(
        r#"
with ours as materialized (
    select id from longhaul.batches where id = $1 and lease = $2 and status = 1 for update
),
-- The versions are compared again once the locks are held.
same as materialized (
    select b.id, u.nano_usd from unnest($3::int[], $4::bigint[], $5::bigint[]) as u (id, version, nano_usd)
    join longhaul.budgets b on b.id = u.id and b.version = u.version
    order by b.id for update of b
),
it as materialized (
    -- The count is there to have the budgets locked first.
    select i.item, i.run, i.wait, i.attempt, h.by, h.estimate from ours o
    join longhaul.batch_items i on i.batch = o.id and (select count(*) from same) = cardinality($3::int[])
    left join unnest($6::int[], $7::int[], $8::bigint[]) as h (item, by, estimate) on h.item = i.item
),
kept as materialized (
    select run, wait, attempt, item as was, (row_number() over (order by item))::int - 1 as item from it where by is null
),
locked as materialized (
    select w.run, w.ordinal, it.by, it.estimate, k.item from it
    join longhaul.waits w on w.run = it.run and w.ordinal = it.wait
    left join kept k on k.run = it.run and k.wait = it.wait
    where w.batch = $1 and w.status = 2 and (it.by is not null or k.item <> k.was)
    order by w.run, w.ordinal for update of w
),
-- A wait that has left the batch meanwhile (its run was canceled) may come back to its item: then nothing is moved under it.
sure as materialized (
    select o.id from ours o
    where (select count(*) from same) = cardinality($3::int[]) and (select count(*) from locked) = (
        select count(*) from it left join kept k on k.run = it.run and k.wait = it.wait
        where it.by is not null or k.item <> k.was
    )
),
raised as (update longhaul.budgets b set version = b.version + 1 from same s, sure where b.id = s.id),
reserved as (
    insert into longhaul.reserved (batch, budget, nano_usd) select o.id, s.id, s.nano_usd from same s, sure o
),
-- As if it had never been taken; only that it is held now.
back as (
    update longhaul.waits w set status = 1, queued_at = longhaul.now(), batch = null, item = null, attempt = w.attempt - 1,
        held_by = l.by, estimate = l.estimate
    from locked l, sure where w.run = l.run and w.ordinal = l.ordinal and l.by is not null
),
moved as (
    update longhaul.waits w set item = l.item from locked l, sure
    where w.run = l.run and w.ordinal = l.ordinal and l.by is null
),
numbered as (
    update longhaul.batch_items i set run = k.run, wait = k.wait, attempt = k.attempt from kept k, sure
    where i.batch = $1 and i.item = k.item and k.item <> k.was
),
cut as (delete from longhaul.batch_items i using sure o where i.batch = o.id and i.item >= (select count(*) from kept))
update longhaul.batches b set n = (select count(*) from kept)::int from sure o where b.id = o.id
returning b.n
"#,
        batch,
        lease.fence,
        &budgets,
        &versions,
        &decision.sums,
        &decision.held,
        &decision.by,
        &decision.estimates as _
    )
    .fetch_optional(pool)
    .await?;
    Ok(left)
}

/// Lets go of requests that their budget has room for by now, the cheapest first, at most `limit` of each budget. Answers how many,
/// and in how many milliseconds a period ends that something waits for.
pub(super) async fn release(pool: &PgPool, limit: i64) -> Result<(i64, Option<i64>), StoreError> {
    let row = sqlx::query!(
        r#"
with holding as materialized (
    select u.id, u.unpriced or u.limit_nano is null as unpriced, u.ends_at,
        coalesce(u.limit_nano - u.spent - u.in_flight, 9223372036854775807) as room
    from longhaul.budget_use u
    where exists (select from longhaul.waits w where w.held_by = u.id and w.queued_at is not null)
),
fit as (
    select f.run, f.ordinal from holding h cross join lateral (
        select p.run, p.ordinal from (
            select w.run, w.ordinal, sum(w.estimate) over (order by w.estimate, w.run, w.ordinal) as total
            from longhaul.waits w
            where w.held_by = h.id and w.queued_at is not null and w.estimate <= h.room
            order by w.estimate, w.run, w.ordinal limit $1
        ) p where p.total <= h.room
    ) f
    union all
    select f.run, f.ordinal from holding h cross join lateral (
        select w.run, w.ordinal from longhaul.waits w
        where h.unpriced and h.room >= 0 and w.held_by = h.id and w.queued_at is not null and w.estimate is null limit $1
    ) f
),
locked as materialized (
    select w.run, w.ordinal from fit f join longhaul.waits w on w.run = f.run and w.ordinal = f.ordinal
    where w.held_by is not null order by w.run, w.ordinal for update of w skip locked
),
freed as (
    update longhaul.waits w set held_by = null, estimate = null from locked l
    where w.run = l.run and w.ordinal = l.ordinal returning w.run
)
select (select count(*) from freed) as "freed!",
    (extract(epoch from min(ends_at) - longhaul.now()) * 1000)::bigint as ends_in_ms
from holding
"#,
        limit
    )
    .fetch_one(pool)
    .await?;
    Ok((row.freed, row.ends_in_ms))
}

/// Sets a budget, or changes it. `None` as the limit is no budget any more.
pub(super) async fn set(
    pool: &PgPool,
    kind: i16,
    subject: &str,
    period: i16,
    limit: Option<i64>,
    unpriced: bool,
    by: &str,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        r#"
insert into longhaul.budgets as b (kind, subject, period, limit_nano, unpriced, by)
select $1, $2, $3, $4, $5, $6
-- Nothing is to be taken away from what never was.
where $4::bigint is not null or exists (
    select from longhaul.budgets o where o.kind = $1 and o.subject = $2 and o.period = $3 and o.limit_nano is not null
)
on conflict (kind, subject, period) do update set limit_nano = excluded.limit_nano, unpriced = excluded.unpriced,
    by = excluded.by, set_at = longhaul.now(), version = b.version + 1
"#,
        kind,
        subject,
        period,
        limit as _,
        unpriced,
        by
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The key of the run at the top of a run's tree, if its records are there.
pub(super) async fn top(pool: &PgPool, run_id: &str) -> Result<Option<i64>, StoreError> {
    let key = sqlx::query_scalar!(
        r#"
select t.id from longhaul.runs r join longhaul.runs t on t.id = coalesce(r.root, r.id)
where r.run_id = $1 and t.removed_at is null
"#,
        run_id
    )
    .fetch_optional(pool)
    .await?;
    Ok(key)
}

/// A budget as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub kind: i16,
    pub period: i16,
    /// The account's id, the workflow's name, or the id of the run.
    pub subject: String,
    pub limit: i64,
    pub unpriced: bool,
    pub spent: i64,
    pub in_flight: i64,
    /// Requests that it holds.
    pub held: i64,
    pub ends_at: Option<DateTime<Utc>>,
    pub set_at: DateTime<Utc>,
    pub by: String,
}

/// All budgets, and how far they are used up.
pub(super) async fn all(pool: &PgPool) -> Result<Vec<Standing>, StoreError> {
    let rows = sqlx::query!(
        r#"
select u.kind as "kind!", u.period as "period!", coalesce(r.run_id, u.subject) as "subject!", u.limit_nano as "limit!",
    u.unpriced as "unpriced!", u.spent as "spent!", u.in_flight as "in_flight!", u.ends_at, u.set_at as "set_at!", u.by as "by!",
    (select count(*) from longhaul.waits w where w.held_by = u.id and w.queued_at is not null) as "held!"
from longhaul.budget_use u
left join longhaul.runs r on r.id = case u.kind when 3 then u.subject::bigint end
where u.limit_nano is not null order by u.kind, u.subject, u.period
"#
    )
    .fetch_all(pool)
    .await?;
    let standings = rows.into_iter().map(|r| Standing {
        kind: r.kind,
        period: r.period,
        subject: r.subject,
        limit: r.limit,
        unpriced: r.unpriced,
        spent: r.spent,
        in_flight: r.in_flight,
        held: r.held,
        ends_at: r.ends_at,
        set_at: r.set_at,
        by: r.by,
    });
    Ok(standings.collect())
}
