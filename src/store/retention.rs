//! Taking away what has been kept long enough, a whole root at a time: the run that was enqueued and all its branches, in one
//! statement. What stays is the root's row without bodies, and after a longer time not even that.

use super::error::StoreError;
use sqlx::PgPool;

/// What one statement took away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// Roots looked at. Fewer than asked for: there are no more.
    pub looked: i64,
    /// Roots whose records are gone.
    pub roots: i64,
    /// Where to look on: the end of the last root looked at, in microseconds, and its key.
    pub after: (i64, i64),
}

/// Takes away the records of roots that ended long enough ago: completed and canceled ones, and failed ones. Passed over are those that
/// are held, whose branches are not all over, or that have a request at a provider still.
pub(super) async fn remove(
    pool: &PgPool,
    after: (i64, i64),
    done_ms: Option<i64>,
    failed_ms: Option<i64>,
    limit: i64,
) -> Result<Removed, StoreError> {
    let row = sqlx::query!(
        r#"
with recursive due as materialized (
    select r.id, r.finished_at, r.fence from longhaul.runs r
    where r.finished_at is not null and r.parent is null and r.removed_at is null
        and (r.finished_at, r.id) > (timestamptz 'epoch' + $1::bigint * interval '1 microsecond', $2)
        and r.finished_at <= longhaul.now() - least($3::bigint, $4::bigint) * interval '1 millisecond'
    order by r.finished_at, r.id limit $5
),
tree as (
    select d.id as root, d.id as run, d.fence from due d
    join longhaul.runs r on r.id = d.id and r.finished_at <= longhaul.now() -
        case when r.status = 6 then $4::bigint else $3::bigint end * interval '1 millisecond'
    where not exists (select from longhaul.holds h where h.run = d.id)
    union all
    select t.root, f.child, c.fence from tree t join longhaul.fork_branches f on f.run = t.run join longhaul.runs c on c.id = f.child
),
locked as materialized (
    select t.root, t.run, r.status from (select * from tree order by run) t cross join lateral (
        select r.status from longhaul.runs r where r.id = t.run and r.fence = t.fence and r.removed_at is null for update
    ) r
),
-- Judged by what the locks have found: a run may have been set going again, or held, since this statement looked. Both raise its fence.
ripe as materialized (
    select l.root from locked l group by l.root
    having bool_and(l.status in (5, 6, 7)) and count(*) = (select count(*) from tree t where t.root = l.root)
        and not bool_or(exists (
            select from longhaul.batch_items i join longhaul.batches b on b.id = i.batch
            -- What was given back is over; what was in doubt may show up for two days.
            where i.run = l.run and (b.status < 8 or b.status = 9 and b.ambiguous_at is not null
                and b.abandoned_at > longhaul.now() - interval '2 days')
        ) or exists (select from longhaul.live_calls c where c.run = l.run and c.status = 2))
),
gone as materialized (select l.root, l.run from locked l join ripe p on p.root = l.root),
event as (delete from longhaul.events e using gone g where e.run = g.run),
wait as (delete from longhaul.waits w using gone g where w.run = g.run),
request as (delete from longhaul.requests q using gone g where q.run = g.run),
answer as (delete from longhaul.answers a using gone g where a.run = g.run),
output as (delete from longhaul.outputs o using gone g where o.run = g.run),
branch as (delete from longhaul.fork_branches f using gone g where f.run = g.run),
orders as (delete from longhaul.cancel_orders o using gone g where o.run = g.run),
-- For what enqueues by plain SQL, which does not know the canonical digest.
input as (
    update longhaul.inputs i set body = null, metadata = null, text_digest = sha256(convert_to(i.body::text, 'UTF8'))
    from ripe p where i.run = p.root
),
tags as (delete from longhaul.run_tags t using ripe p where t.run = p.root),
budget as (delete from longhaul.budgets b using ripe p where b.kind = 3 and b.subject = p.root::text returning b.id),
reserve as (delete from longhaul.reserved f using budget b where f.budget = b.id),
item as (
    delete from longhaul.batch_items i using gone g where i.run = g.run
    returning i.batch, i.status, i.nano_usd
),
sum as (
    update longhaul.batches b set removed_items = b.removed_items + s.items, removed_nano_usd = b.removed_nano_usd + s.cost,
        removed_unpriced = b.removed_unpriced + s.unpriced, removed_late = b.removed_late + s.late
    from (
        select b.id, i.items, i.cost, i.unpriced, i.late from (
            select batch, count(*)::int as items, coalesce(sum(nano_usd), 0)::bigint as cost,
                count(*) filter (where status in (3, 8, 9, 10) and nano_usd is null)::int as unpriced,
                count(*) filter (where status = 10)::int as late
            from item group by batch
        ) i join longhaul.batches b on b.id = i.batch order by b.id for update of b
    ) s
    where b.id = s.id
),
call as (
    delete from longhaul.live_calls c using gone g where c.run = g.run
    returning c.account, c.status, c.nano_usd
),
live_sum as (
    insert into longhaul.live_removed as s (account, calls, answered, superseded, refused, lost, nano_usd, unpriced)
    select account, count(*), count(*) filter (where status = 3), count(*) filter (where status = 10),
        count(*) filter (where status = 4), count(*) filter (where status = 7), coalesce(sum(nano_usd), 0)::bigint,
        count(*) filter (where status in (3, 9, 10) and nano_usd is null)
    from call group by account order by account
    on conflict (account) do update set calls = s.calls + excluded.calls, answered = s.answered + excluded.answered,
        superseded = s.superseded + excluded.superseded, refused = s.refused + excluded.refused, lost = s.lost + excluded.lost,
        nano_usd = s.nano_usd + excluded.nano_usd, unpriced = s.unpriced + excluded.unpriced
),
child as (delete from longhaul.runs r using gone g where r.id = g.run and g.run <> g.root),
stone as (
    update longhaul.runs r set removed_at = longhaul.now(), arg = null, stack = null, state = null, state_bytes = 0,
        input_bytes = 0, wait = null
    from ripe p where r.id = p.root
)
select count(*) as "looked!", (select count(*) from ripe) as "roots!",
    coalesce((extract(epoch from max(d.finished_at)) * 1000000)::bigint, 0) as "micros!",
    coalesce((select id from due order by finished_at desc, id desc limit 1), 0) as "id!"
from due d
"#,
        after.0,
        after.1,
        done_ms.unwrap_or(NEVER_MS),
        failed_ms.unwrap_or(NEVER_MS),
        limit
    )
    .fetch_one(pool)
    .await?;
    Ok(Removed { looked: row.looked, roots: row.roots, after: (row.micros, row.id) })
}

/// A term that nothing outlives: a thousand years.
const NEVER_MS: i64 = 1_000 * 366 * 24 * 3_600_000;

/// The place of the first root over after that place.
pub(super) async fn next_over(pool: &PgPool, after: (i64, i64)) -> Result<Option<(i64, i64)>, StoreError> {
    let row = sqlx::query!(
        r#"
select (extract(epoch from r.finished_at) * 1000000)::bigint as "micros!", r.id from longhaul.runs r
where r.finished_at is not null and r.parent is null and r.removed_at is null
    and (r.finished_at, r.id) > (timestamptz 'epoch' + $1::bigint * interval '1 microsecond', $2)
order by r.finished_at, r.id limit 1
"#,
        after.0,
        after.1
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|r| (r.micros, r.id)))
}

/// Takes away what had stayed of roots whose records were removed long enough ago. Answers how many.
pub(super) async fn forget(pool: &PgPool, term_ms: i64, limit: i64) -> Result<i64, StoreError> {
    let gone = sqlx::query_scalar!(
        r#"
with due as materialized (
    select r.id from longhaul.runs r where r.removed_at is not null
        and r.removed_at <= longhaul.now() - $1::bigint * interval '1 millisecond'
        and not exists (select from longhaul.holds h where h.run = r.id)
    order by r.removed_at, r.id limit $2
),
locked as materialized (select r.id from longhaul.runs r join due d on d.id = r.id order by r.id for update of r skip locked),
input as (delete from longhaul.inputs i using locked l where i.run = l.id),
run as (delete from longhaul.runs r using locked l where r.id = l.id returning r.id)
select count(*) as "gone!" from run
"#,
        term_ms,
        limit
    )
    .fetch_one(pool)
    .await?;
    Ok(gone)
}

/// Keeps the records of a run's root until they are let go of. `false`: they are gone already, or there is no such run.
pub(super) async fn hold(pool: &PgPool, run_id: &str, by: &str, why: &str) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        r#"
with root as materialized (
    select r.id from longhaul.runs r
    where r.id = (select coalesce(x.root, x.id) from longhaul.runs x where x.run_id = $1) and r.removed_at is null
    for update
),
raised as (update longhaul.runs r set fence = r.fence + 1 from root o where r.id = o.id and r.status in (5, 6, 7))
insert into longhaul.holds (run, by, why) select id, $2, $3 from root
on conflict (run) do update set by = excluded.by, why = excluded.why
"#,
        run_id,
        by,
        why
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Lets go of what was held. `false`: it was not.
pub(super) async fn release_hold(pool: &PgPool, run_id: &str) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "delete from longhaul.holds h using longhaul.runs r where r.run_id = $1 and h.run = coalesce(r.root, r.id)",
        run_id
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}
