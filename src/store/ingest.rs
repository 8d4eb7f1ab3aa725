//! Polling and ingest: batches are claimed one by one by fence; results are settled in chunks that may be repeated from any
//! cut. An item is settled once; an answer reaches the wait only while that wait still asks for it.

use super::error::StoreError;
use crate::domain::{IntentId, NodeId};
use sqlx::PgPool;

/// A batch that this node looks after until it lets go.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub batch: i64,
    pub fence: i64,
    pub intent: IntentId,
    pub n: i32,
    pub provider_batch_id: String,
    pub verified: bool,
    pub downloads: i32,
    pub age_ms: i64,
}

/// Claims batches that are due to be looked at.
pub(super) async fn claim(pool: &PgPool, account: i32, node: NodeId, limit: i64) -> Result<Vec<Held>, StoreError> {
    let rows = sqlx::query!(
        r#"
with due as materialized (
    select id from longhaul.batches
    where account = $1 and check_at is not null and check_at <= longhaul.now() and owner is null
        and status in (5, 6, 7)
        and exists (select from longhaul.nodes n where n.id = $2 and n.dead_at is null)
    order by check_at limit $3 for update skip locked
)
update longhaul.batches b set owner = $2, fence = b.fence + 1 from due d where b.id = d.id
returning b.id, b.fence, b.intent, b.n, b.provider_batch_id as "provider_batch_id!", b.verified_at, b.downloads,
    b.submitted_at is not null as "told_id!",
    coalesce(extract(epoch from longhaul.now() - b.sending_at) * 1000, 0)::bigint as "age_ms!"
"#,
        account,
        node.0,
        limit
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| Held {
            batch: r.id,
            fence: r.fence,
            intent: IntentId(r.intent),
            n: r.n,
            provider_batch_id: r.provider_batch_id,
            verified: r.told_id || r.verified_at.is_some(),
            downloads: r.downloads,
            age_ms: r.age_ms,
        })
        .collect())
}

/// Lets a batch go; it is looked at again after the delay.
pub(super) async fn let_go(
    pool: &PgPool,
    batch: i64,
    fence: i64,
    delay_ms: i64,
    note: Option<&str>,
) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "update longhaul.batches set owner = null, fence = fence + 1, note = coalesce($4, note),
             check_at = longhaul.now() + $3::bigint * interval '1 millisecond'
         where id = $1 and fence = $2 and status in (5, 6, 7)",
        batch,
        fence,
        delay_ms,
        note
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Frees the batches that this node holds and no live task of it does (an actor was restarted).
pub(super) async fn release_unheld(pool: &PgPool, account: i32, node: NodeId, held: &[i64]) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "update longhaul.batches set owner = null, fence = fence + 1
         where account = $1 and owner = $2 and not id = any($3)",
        account,
        node.0,
        held
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected())
}

/// The provider is done with it, and so has accepted it: what is refused next is refused for itself.
pub(super) async fn ended(
    pool: &PgPool,
    batch: i64,
    fence: i64,
    results_url: Option<&str>,
) -> Result<bool, StoreError> {
    let done = sqlx::query_scalar!(
        r#"
with done as (
    update longhaul.batches set status = case when status = 5 then 7 else status end,
        ended_at = coalesce(ended_at, longhaul.now()), results_url = $3, downloads = downloads + 1
    where id = $1 and fence = $2 and status in (5, 6, 7)
    returning account, status, downloads
),
-- Once: what is read again says nothing new.
accepted as (
    update longhaul.accounts a set refused_in_row = 0 from done d
    where a.id = d.account and d.status = 7 and d.downloads = 1 and a.refused_in_row > 0
)
select exists (select from done) as "done!"
"#,
        batch,
        fence,
        results_url
    )
    .fetch_one(pool)
    .await?;
    Ok(done)
}

/// A result line proved that an adopted batch is ours.
pub(super) async fn verified(pool: &PgPool, batch: i64, fence: i64) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "update longhaul.batches set status = 7, verified_at = longhaul.now() where id = $1 and fence = $2 and status = 6",
        batch,
        fence
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A result line proved that an adopted batch is somebody else's: it is remembered as such, and the intent is ambiguous
/// again.
pub(super) async fn foreign(pool: &PgPool, batch: i64, fence: i64) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        r#"
with held as materialized (
    select id, account, provider_batch_id from longhaul.batches where id = $1 and fence = $2 and status = 6 for update
),
seen as (
    insert into longhaul.foreign_batches (account, provider_batch_id)
    select account, provider_batch_id from held on conflict do nothing
)
update longhaul.batches b set status = case when b.abandoned_at is null then 4 else 9 end, provider_batch_id = null,
    adopted_at = null, check_at = null, owner = null, downloads = 0
from held h where b.id = h.id
"#,
        batch,
        fence
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A result line proved that an adopted batch belongs to another send of ours that is in doubt: it is handed over. `false`: no
/// such send is in doubt.
pub(super) async fn hand_over(pool: &PgPool, batch: i64, fence: i64, intent: IntentId) -> Result<bool, StoreError> {
    let id = sqlx::query_scalar!(
        r#"
with held as materialized (
    select b.id, b.provider_batch_id from longhaul.batches b
    where b.id = $1 and b.fence = $2 and b.status = 6
        and exists (
            select from longhaul.batches o where o.account = b.account and o.intent = $3
                and (o.status = 4 or o.status = 9 and o.ambiguous_at is not null)
        )
    for update
)
update longhaul.batches b set status = case when b.abandoned_at is null then 4 else 9 end, provider_batch_id = null,
    adopted_at = null, check_at = null, owner = null, downloads = 0
from held h where b.id = h.id
returning h.provider_batch_id
"#,
        batch,
        fence,
        intent.0
    )
    .fetch_optional(pool)
    .await?;
    let Some(id) = id else { return Ok(false) };
    // Should this not come to pass, the send stays in doubt and finds the batch by listing.
    sqlx::query!(
        "update longhaul.batches set status = 6, provider_batch_id = $2, adopted_at = longhaul.now(), downloads = 0,
             check_at = longhaul.now()
         where intent = $1 and (status = 4 or status = 9 and ambiguous_at is not null)",
        intent.0,
        id
    )
    .execute(pool)
    .await?;
    Ok(true)
}

/// Result lines to be settled, a column each.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub item: Vec<i32>,
    /// Codes of [`crate::domain::ItemStatus`].
    pub outcome: Vec<i16>,
    /// The line as it came; none for an item that is in no result.
    pub line: Vec<Option<Vec<u8>>>,
    pub input_tokens: Vec<Option<i64>>,
    pub output_tokens: Vec<Option<i64>>,
    pub cache_write_tokens: Vec<Option<i64>>,
    pub cache_read_tokens: Vec<Option<i64>>,
    pub nano_usd: Vec<Option<i64>>,
    pub model: Vec<Option<String>>,
    /// The provider's words, where it has some.
    pub error: Vec<Option<String>>,
}

/// What a chunk changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Items settled.
    pub items: i64,
    /// Waits that got their answer, were queued again, or failed with their run.
    pub waits: i64,
}

/// Succeeded lines: the wait gets its answer and the run may go on. An item whose wait does not ask any more is booked as
/// superseded: it was paid, and changes nothing else.
pub(super) async fn answer(pool: &PgPool, batch: i64, fence: i64, lines: &Lines) -> Result<Settled, StoreError> {
    let row = sqlx::query!(
        r#"
with held as materialized (
    select id from longhaul.batches where id = $1 and fence = $2 and status in (5, 7) for share
),
line as materialized (
    select l.*, i.run, i.wait, i.attempt from held h
    cross join unnest($3::int[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
        $10::text[]) as l (item, line, input_tokens, output_tokens, cache_write_tokens, cache_read_tokens, nano_usd, model)
    -- By key, whatever the planner thinks of the tables: one look-up for each line.
    cross join lateral (
        select i.run, i.wait, i.attempt from longhaul.batch_items i
        where i.batch = h.id and i.item = l.item and i.status in (1, 2) limit 1
    ) i
),
locked as materialized (
    select l.run, l.wait, l.item, l.attempt, octet_length(l.line) as bytes, l.input_tokens, l.output_tokens
    from (select * from line order by run) l cross join lateral (
        select from longhaul.runs r where r.id = l.run and r.status = 3 and r.wait = l.wait for update
    ) r
),
-- Those whose run does not wait for it, as this statement's snapshot saw it. Should it have been set going again since, the wait says so
-- once it is locked: then the line is left for the next download.
idle as materialized (
    select l.item, w.status from (
        select * from line where item not in (select k.item from locked k) order by run
    ) l cross join lateral (
        select w.status from longhaul.waits w where w.run = l.run and w.ordinal = l.wait for update
    ) w
),
answered as (
    -- Claims are cut by what they have to load: request and answer.
    update longhaul.waits w set status = 4, queued_at = null, batch = $1, item = l.item,
        bytes = least(w.bytes::bigint + l.bytes, 2147483647)
    from locked l
    where w.run = l.run and w.ordinal = l.wait and w.status in (1, 2, 3)
    returning w.run, w.ordinal, w.item, w.attempt, w.provider, l.bytes as line_bytes, l.input_tokens, l.output_tokens
),
moved as (
    update longhaul.runs r set status = 1, ready_at = longhaul.now(), cursor = r.cursor + 1
    from answered a where r.id = a.run
    returning r.id, r.cursor, a.ordinal, a.attempt, a.provider, a.line_bytes, a.input_tokens, a.output_tokens
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select m.id, m.cursor - 1, longhaul.nonce(), 32, json_build_object('wait', m.ordinal, 'attempt', m.attempt,
        'provider', m.provider, 'bytes', m.line_bytes, 'input_tokens', m.input_tokens,
        'output_tokens', m.output_tokens)
    from moved m
),
booked as (
    update longhaul.batch_items i set status = case when l.item in (select a.item from answered a) then 3 else 10 end, line = l.line,
        input_tokens = l.input_tokens, output_tokens = l.output_tokens, cache_write_tokens = l.cache_write_tokens,
        cache_read_tokens = l.cache_read_tokens, nano_usd = l.nano_usd, model = l.model,
        settled_at = longhaul.now()
    from line l
    where i.batch = $1 and i.item = l.item and i.status in (1, 2)
        and l.item not in (select d.item from idle d where d.status in (1, 2, 3))
    returning i.item
)
select (select count(*) from booked) as "items!", (select count(*) from moved) as "waits!"
"#,
        batch,
        fence,
        &lines.item,
        &lines.line as _,
        &lines.input_tokens as _,
        &lines.output_tokens as _,
        &lines.cache_write_tokens as _,
        &lines.cache_read_tokens as _,
        &lines.nano_usd as _,
        &lines.model as _
    )
    .fetch_one(pool)
    .await?;
    Ok(Settled { items: row.items, waits: row.waits })
}

/// Lines that ask for another attempt: the wait is queued again, unless that has been done too often. `counts` tells whether this
/// attempt was an error, which counts against the wait's own budget or, if it has none, this one; or the provider did not work on
/// it, which counts against this one. Lines over budget are left for [`fail`].
pub(super) async fn retry(
    pool: &PgPool,
    batch: i64,
    fence: i64,
    lines: &Lines,
    counts: bool,
    budget: i16,
    delay_ms: i64,
) -> Result<Settled, StoreError> {
    let row = sqlx::query!(
        r#"
with held as materialized (
    select id from longhaul.batches where id = $1 and fence = $2 and status in (5, 7) for share
),
line as materialized (
    select l.*, i.run, i.wait from held h
    cross join unnest($3::int[], $4::smallint[], $5::bytea[]) as l (item, outcome, line)
    -- By key, whatever the planner thinks of the tables: one look-up for each line.
    cross join lateral (
        select i.run, i.wait from longhaul.batch_items i
        where i.batch = h.id and i.item = l.item and i.status in (1, 2) limit 1
    ) i
),
locked as materialized (
    select l.run, l.wait, l.item, l.outcome from (select * from line order by run) l cross join lateral (
        select from longhaul.runs r where r.id = l.run and r.status = 3 and r.wait = l.wait for update
    ) r
),
-- Whether the wait is still this batch's, as it is once it is locked.
asking as materialized (
    -- The count is there to have the runs locked first.
    select l.item from (select * from line where (select count(*) from locked) >= 0 order by run) l cross join lateral (
        select w.status, w.batch from longhaul.waits w where w.run = l.run and w.ordinal = l.wait for update
    ) w where w.status in (2, 3) and w.batch = $1
),
queued as (
    update longhaul.waits w set status = 1, batch = null, item = null, company = null, errors = w.errors + $6::bool::int,
        returned = w.returned + (not $6)::int,
        -- Each failure doubles the pause, up to an hour.
        queued_at = longhaul.now() + case when $6 then
            least(coalesce(w.backoff_ms, $8::bigint) * (1 << least(w.errors, 20)), 3600000) * (0.75 + random() / 4)
            else $8::bigint end * interval '1 millisecond'
    from locked l
    where w.run = l.run and w.ordinal = l.wait and w.status in (2, 3) and w.batch = $1
        and case when $6 then w.errors < coalesce(w.budget, $7) else w.returned < $7 end
    returning w.run, w.ordinal, w.attempt, w.provider, l.item, l.outcome
),
moved as (
    update longhaul.runs r set cursor = r.cursor + 1 from queued q where r.id = q.run
    returning r.id, r.cursor, q.ordinal, q.attempt, q.provider, q.outcome
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 1, longhaul.nonce(), 35, json_build_object('wait', ordinal, 'attempt', attempt,
        'provider', provider, 'outcome', case outcome when 4 then 'errored' when 5 then 'expired' when 6 then 'canceled' when 7 then 'missing'
            when 9 then 'unreadable' end)
    from moved
),
booked as (
    update longhaul.batch_items i set status = l.outcome, line = l.line, settled_at = longhaul.now()
    -- Settled here: those that were queued again, and those whose wait does not ask any more, or asks by another batch.
    from line l
    where i.batch = $1 and i.item = l.item and i.status in (1, 2)
        and (l.item in (select q.item from queued q) or l.item not in (select a.item from asking a))
    returning i.item
)
select (select count(*) from booked) as "items!", (select count(*) from moved) as "waits!"
"#,
        batch,
        fence,
        &lines.item,
        &lines.outcome,
        &lines.line as _,
        counts,
        budget as _,
        delay_ms
    )
    .fetch_one(pool)
    .await?;
    Ok(Settled { items: row.items, waits: row.waits })
}

/// Lines after which no answer will come: wait and run fail, with the provider's words.
pub(super) async fn fail(pool: &PgPool, batch: i64, fence: i64, lines: &Lines) -> Result<Settled, StoreError> {
    let row = sqlx::query!(
        r#"
with held as materialized (
    select id from longhaul.batches where id = $1 and fence = $2 and status in (5, 7) for share
),
line as materialized (
    select l.*, i.run, i.wait from held h
    cross join unnest($3::int[], $4::smallint[], $5::bytea[], $6::text[]) as l (item, outcome, line, error)
    -- By key, whatever the planner thinks of the tables: one look-up for each line.
    cross join lateral (
        select i.run, i.wait from longhaul.batch_items i
        where i.batch = h.id and i.item = l.item and i.status in (1, 2) limit 1
    ) i
),
locked as materialized (
    select l.run, l.wait, l.item, l.outcome, l.error from (select * from line order by run) l cross join lateral (
        select from longhaul.runs r where r.id = l.run and r.status = 3 and r.wait = l.wait for update
    ) r
),
-- Whether the wait is still this batch's, as it is once it is locked.
asking as materialized (
    select l.item from (
        select * from line where item not in (select k.item from locked k) order by run
    ) l cross join lateral (
        select w.status, w.batch from longhaul.waits w where w.run = l.run and w.ordinal = l.wait for update
    ) w where w.status in (2, 3) and w.batch = $1
),
failed as (
    update longhaul.waits w set status = 6 from locked l
    where w.run = l.run and w.ordinal = l.wait and w.status in (2, 3) and w.batch = $1
    returning w.run, w.ordinal, w.attempt, w.provider, l.outcome, l.error
),
moved as (
    update longhaul.runs r set status = 6, finished_at = longhaul.now(), cursor = r.cursor + 2
    from failed f where r.id = f.run
    returning r.id, r.cursor, r.step, f.ordinal, f.attempt, f.provider, f.outcome, f.error
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 2, longhaul.nonce(), 34, json_build_object('wait', ordinal, 'attempt', attempt,
        'provider', provider, 'outcome', case outcome when 4 then 'errored' when 5 then 'expired' when 6 then 'canceled' when 7 then 'missing'
            when 9 then 'unreadable' end) from moved
    union all
    select id, cursor - 1, longhaul.nonce(), 3, json_build_object('step', step, 'code', 'model-failed') from moved
),
because as (
    insert into longhaul.outputs (run, error)
    select id, json_build_object('code', 'model-failed', 'step', step, 'message', coalesce(error, '')) from moved
    on conflict (run) do update set body = null, error = excluded.error, finished_in = excluded.finished_in
),
booked as (
    update longhaul.batch_items i set status = l.outcome, line = l.line, settled_at = longhaul.now()
    from line l where i.batch = $1 and i.item = l.item and i.status in (1, 2)
        and l.item not in (select a.item from asking a)
    returning i.item
)
select (select count(*) from booked) as "items!", (select count(*) from moved) as "waits!"
"#,
        batch,
        fence,
        &lines.item,
        &lines.outcome,
        &lines.line as _,
        &lines.error as _
    )
    .fetch_one(pool)
    .await?;
    Ok(Settled { items: row.items, waits: row.waits })
}

/// The items of a batch that no result has accounted for.
pub(super) async fn open_items(pool: &PgPool, batch: i64) -> Result<Vec<i32>, StoreError> {
    let rows = sqlx::query_scalar!(
        "select item from longhaul.batch_items where batch = $1 and status in (1, 2) order by item",
        batch
    )
    .fetch_all(pool)
    .await?;
    Ok(rows)
}

/// When a batch of the account is next due to be looked at: in how many milliseconds.
pub(super) async fn next_check(pool: &PgPool, account: i32) -> Result<Option<i64>, StoreError> {
    let ms = sqlx::query_scalar!(
        r#"
select (extract(epoch from min(check_at) - longhaul.now()) * 1000)::bigint as ms
from longhaul.batches where account = $1 and check_at is not null and owner is null and status in (5, 6, 7)
"#,
        account
    )
    .fetch_one(pool)
    .await?;
    Ok(ms)
}
