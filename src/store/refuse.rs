//! Batches that a provider refused as a whole, and the one request that may be the reason.

use super::accounts::Lease;
use super::error::StoreError;
use crate::domain::{IntentId, RunKey};
use sqlx::PgPool;

/// Who is suspected of having had a batch refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suspects {
    /// Each: they travel in batches of at most so many.
    All(i32),
    /// This item, as the provider said: it travels alone.
    One(i32),
}

/// A batch was refused as a whole: its items go back into the queue, the suspects to travel with fewer others.
pub(super) async fn split(
    pool: &PgPool,
    batch: i64,
    lease: Lease,
    suspects: Suspects,
    why: &str,
) -> Result<bool, StoreError> {
    let (company, one) = match suspects {
        Suspects::All(company) => (company, None),
        Suspects::One(item) => (1, Some(item)),
    };
    let row = sqlx::query!(
        r#"
with held as materialized (
    select id from longhaul.batches where id = $1 and lease = $2 and status between 1 and 4 for update
),
back as materialized (
    select i.run, i.wait, i.item from longhaul.batch_items i join held h on i.batch = h.id order by i.run
),
locked as materialized (
    select w.run, w.ordinal, w.status, b.item from back b join longhaul.waits w on w.run = b.run and w.ordinal = b.wait
    where w.batch = $1 and w.status in (2, 3, 8) order by w.run, w.ordinal for update of w
),
queued as (
    update longhaul.waits w set status = case when l.status = 8 then 8 else 1 end, batch = null, item = null,
        queued_at = case when l.status <> 8 then longhaul.now() end,
        company = case when $4::int is null or l.item = $4 then $3 else w.company end
    from locked l where w.run = l.run and w.ordinal = l.ordinal
),
free as (delete from longhaul.reserved f using held h where f.batch = h.id)
update longhaul.batches b set status = 9, abandoned_at = longhaul.now(), check_at = null, note = $5
from held h where b.id = h.id
returning b.id
"#,
        batch,
        lease.fence,
        company,
        one,
        why
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.is_some())
}

/// What came of a request that was refused alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Convicted {
    /// Whether its run failed. If not, too many in a row were refused for it to be about them.
    pub failed: bool,
    /// The run that waits for it, if it is a branch.
    pub parent: Option<RunKey>,
}

/// A batch of one was refused: its run fails with the provider's words, unless `in_row` others were refused before it with nothing accepted
/// in between; without that number, it says nothing of others. `None`: the lease is lost.
pub(super) async fn convict(
    pool: &PgPool,
    batch: i64,
    lease: Lease,
    in_row: Option<i32>,
    why: &str,
) -> Result<Option<Convicted>, StoreError> {
    let row = sqlx::query!(
        r#"
with account as materialized (
    select id, refused_in_row from longhaul.accounts where id = $6 and fence = $2 for update
),
held as materialized (
    select b.id from longhaul.batches b join account a on $4::int is null or a.refused_in_row < $4
    where b.id = $1 and b.lease = $2 and b.status between 1 and 4 for update of b
),
counted as (
    update longhaul.accounts a set refused_in_row = a.refused_in_row + 1 from held h where a.id = $6 and $4::int is not null
),
locked as materialized (
    select i.run, i.wait, i.item from held h join longhaul.batch_items i on i.batch = h.id cross join lateral (
        select from longhaul.runs r where r.id = i.run and r.status = 3 and r.wait = i.wait for update
    ) r
),
failed as (
    update longhaul.waits w set status = 6 from locked l
    where w.run = l.run and w.ordinal = l.wait and w.status in (2, 3) and w.batch = $1
    returning w.run, w.ordinal, w.attempt, w.provider
),
-- Its run was canceled when this statement began, and may have been set going again since: then it asks anew.
freed as (
    update longhaul.waits w set batch = null, item = null, status = case when w.status in (2, 3) then 1 else w.status end,
        queued_at = case when w.status in (2, 3) then longhaul.now() else w.queued_at end
    from held h join longhaul.batch_items i on i.batch = h.id
    where w.run = i.run and w.ordinal = i.wait and w.batch = h.id and not exists (select from locked)
),
moved as (
    update longhaul.runs r set status = 6, finished_at = longhaul.now(), cursor = r.cursor + 2
    from failed f where r.id = f.run
    returning r.id, r.parent, r.cursor, r.step, f.ordinal, f.attempt, f.provider
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 2, longhaul.nonce(), 34, json_build_object('wait', ordinal, 'attempt', attempt,
        'provider', provider, 'outcome', 'refused') from moved
    union all
    select id, cursor - 1, longhaul.nonce(), 3, json_build_object('step', step, 'code', 'model-failed') from moved
),
because as (
    insert into longhaul.outputs (run, error)
    select id, json_build_object('code', 'model-failed', 'step', step, 'message', $3::text) from moved
    on conflict (run) do update set body = null, error = excluded.error, finished_in = excluded.finished_in
),
booked as (
    update longhaul.batch_items i set status = 4, settled_at = longhaul.now() from held h
    where i.batch = h.id and i.status in (1, 2)
),
free as (delete from longhaul.reserved f using held h where f.batch = h.id),
abandoned as (
    update longhaul.batches b set status = 9, abandoned_at = longhaul.now(), check_at = null, note = $5
    from held h where b.id = h.id
    returning b.id
)
select exists (select from abandoned) as "failed!", (select parent from moved) as parent from account
"#,
        batch,
        lease.fence,
        why,
        in_row,
        why,
        lease.account
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|r| Convicted { failed: r.failed, parent: r.parent.map(RunKey) }))
}

/// Sends that were given up on in the last days, whose batch may still show up.
pub(super) async fn lost(pool: &PgPool, lease: Lease, window_ms: i64) -> Result<Vec<super::Intent>, StoreError> {
    let rows = sqlx::query!(
        r#"
select b.id, b.intent, b.status, b.n, b.watermark_at, coalesce(b.send_limit_ms, 0) as "send_limit_ms!",
    coalesce(extract(epoch from longhaul.now() - b.sending_at) * 1000, 0)::bigint as "sent_ms_ago!"
from longhaul.batches b
where b.account = $1 and b.abandoned_at > longhaul.now() - $2::bigint * interval '1 millisecond'
    and b.ambiguous_at is not null and b.status = 9
order by b.id
"#,
        lease.account,
        window_ms
    )
    .fetch_all(pool)
    .await?;
    let intents = rows.into_iter().map(|r| super::Intent {
        batch: r.id,
        intent: IntentId(r.intent),
        status: super::Code::decode(r.status),
        n: r.n,
        watermark_at: r.watermark_at,
        sent_ms_ago: r.sent_ms_ago,
        send_limit_ms: r.send_limit_ms,
        late: true,
    });
    Ok(intents.collect())
}

/// A batch that was given up on may have been found after all: its results will tell. `certain`: it carries our intent, so it is.
pub(super) async fn find_late(
    pool: &PgPool,
    batch: i64,
    lease: Lease,
    id: &str,
    certain: bool,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        r#"
update longhaul.batches b set status = case when $5 then 5 else 6 end, provider_batch_id = $3, adopted_at = longhaul.now(),
    downloads = 0, check_at = longhaul.now(), submitted_at = case when $5 then longhaul.now() end,
    verified_at = case when $5 then longhaul.now() end, lease = $4, note = 'found after it had been given up on'
where b.id = $1 and b.account = $2 and b.status = 9 and b.ambiguous_at is not null
    and exists (select from longhaul.accounts a where a.id = $2 and a.fence = $4)
    and not exists (select from longhaul.batches o where o.account = b.account and o.provider_batch_id = $3)
"#,
        batch,
        lease.account,
        id,
        lease.fence,
        certain
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A batch that was created is refused as a whole: these of its items go back into the queue, the suspects to travel with fewer
/// others. Counts against no budget. Answers how many items were settled.
pub(super) async fn turn_back(
    pool: &PgPool,
    batch: i64,
    fence: i64,
    items: &[i32],
    company: &[Option<i32>],
    delay_ms: i64,
) -> Result<i64, StoreError> {
    let settled = sqlx::query_scalar!(
        r#"
with held as materialized (
    select id from longhaul.batches where id = $1 and fence = $2 and status = 5 for share
),
line as materialized (
    select l.item, l.company, i.run, i.wait from held h
    cross join unnest($3::int[], $4::int[]) as l (item, company)
    join longhaul.batch_items i on i.batch = h.id and i.item = l.item and i.status in (1, 2)
),
locked as materialized (
    select l.run, l.wait, l.item, l.company from (select * from line order by run) l cross join lateral (
        select from longhaul.runs r where r.id = l.run and r.status = 3 and r.wait = l.wait for update
    ) r
),
-- Whether the wait is still this batch's, as it is once it is locked. The count is there to have the runs locked first.
asking as materialized (
    select l.item from (select * from line where (select count(*) from locked) >= 0 order by run) l cross join lateral (
        select w.status, w.batch from longhaul.waits w where w.run = l.run and w.ordinal = l.wait for update
    ) w where w.status in (2, 3) and w.batch = $1
),
queued as (
    update longhaul.waits w set status = 1, batch = null, item = null, company = coalesce(l.company, w.company),
        queued_at = longhaul.now() + $5::bigint * interval '1 millisecond'
    from locked l
    where w.run = l.run and w.ordinal = l.wait and w.status in (2, 3) and w.batch = $1
    returning w.run, w.ordinal, w.attempt, w.provider, l.item
),
moved as (
    update longhaul.runs r set cursor = r.cursor + 1 from queued q where r.id = q.run
    returning r.id, r.cursor, q.ordinal, q.attempt, q.provider
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 1, longhaul.nonce(), 35, json_build_object('wait', ordinal, 'attempt', attempt,
        'provider', provider, 'outcome', 'refused')
    from moved
),
booked as (
    update longhaul.batch_items i set status = 4, settled_at = longhaul.now() from line l
    where i.batch = $1 and i.item = l.item and i.status in (1, 2)
        and (l.item in (select q.item from queued q) or l.item not in (select a.item from asking a))
    returning i.item
)
select count(*) as "count!" from booked
"#,
        batch,
        fence,
        items,
        company as _,
        delay_ms
    )
    .fetch_one(pool)
    .await?;
    Ok(settled)
}

/// What to make of a request that was refused alone in a batch that this node looks after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lone {
    /// It is to fail, and to be [counted](count_refusal).
    Guilty,
    /// Too many were refused before it, one by one, with none accepted in between: it is about the account.
    OneOfMany,
    /// It was sent under an earlier lease: somebody may have acted since, so it says nothing any more.
    Stale,
}

/// Judges a request that was refused alone. `None`: the batch is not held under that fence.
pub(super) async fn judge_lone(pool: &PgPool, batch: i64, fence: i64, in_row: i32) -> Result<Option<Lone>, StoreError> {
    let row = sqlx::query!(
        r#"
select b.lease = a.fence as "current!", a.refused_in_row < $3 as "guilty!"
from longhaul.batches b join longhaul.accounts a on a.id = b.account
where b.id = $1 and b.fence = $2 and b.status = 5
"#,
        batch,
        fence,
        in_row
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|r| match (r.current, r.guilty) {
        (false, _) => Lone::Stale,
        (true, true) => Lone::Guilty,
        (true, false) => Lone::OneOfMany,
    }))
}

/// Counts a request that failed for being refused alone.
pub(super) async fn count_refusal(pool: &PgPool, batch: i64, fence: i64) -> Result<(), StoreError> {
    sqlx::query!(
        "update longhaul.accounts a set refused_in_row = a.refused_in_row + 1 from longhaul.batches b
         where b.id = $1 and b.fence = $2 and b.status = 5 and a.id = b.account",
        batch,
        fence
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Nothing is sent any more for the account of a batch that this node looks after, until an operator acts. Not for what was sent
/// under an earlier lease: somebody may have acted since.
pub(super) async fn park_account_of(pool: &PgPool, batch: i64, fence: i64, why: &str) -> Result<(), StoreError> {
    sqlx::query!(
        "update longhaul.accounts a set parked = $3 from longhaul.batches b
         where b.id = $1 and b.fence = $2 and a.id = b.account and b.lease = a.fence",
        batch,
        fence,
        why
    )
    .execute(pool)
    .await?;
    Ok(())
}
