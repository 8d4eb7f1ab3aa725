//! Live calls: requests that are sent one by one. Each call is a row, committed before its first byte, and settled once; an answer
//! reaches the wait only while that wait still asks for it. Who makes a call is written on it; of what a dead node, or a dead actor, has
//! not settled nobody knows what became, and the wait's own rule decides.

use super::error::StoreError;
use crate::domain::{ItemStatus, NodeId};
use crate::provider::Usage;
use crate::store::codec::Code;
use sqlx::PgPool;

/// Which call: a run, the ordinal of its wait, and which attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    pub run: i64,
    pub wait: i32,
    pub attempt: i16,
}

/// Who claims calls, of whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub provider: &'a str,
    pub account: i32,
    pub node: NodeId,
    /// A request goes live when its deadline is closer than this.
    pub live_ms: i64,
}

/// A request that is to go live.
#[derive(Debug, Clone)]
pub(crate) struct DueCall {
    pub run: i64,
    pub wait: i32,
    /// The body of the request.
    pub request: String,
    /// What it may come to cost at most, in nano-dollars, if that is known.
    pub estimate: Option<i64>,
}

/// Requests that are to go live, the most urgent first. None while the account is parked, paused, or was asked to wait. Their costs are
/// not estimated yet.
pub(super) async fn due(pool: &PgPool, of: Caller<'_>, limit: i64) -> Result<Vec<DueCall>, StoreError> {
    let rows = sqlx::query!(
        r#"
select w.run, w.ordinal, q.body::text as "request!" from longhaul.waits w
join longhaul.runs r on r.id = w.run and r.status = 3 and r.wait = w.ordinal
join longhaul.requests q on q.run = w.run and q.ordinal = w.ordinal
where w.provider = $1 and w.deadline_at is not null and w.queued_at is not null and w.held_by is null
    and w.deadline_at <= longhaul.now() + $2::bigint * interval '1 millisecond' and w.queued_at <= longhaul.now()
    and exists (
        select from longhaul.accounts a where a.id = $3 and a.parked is null
            and (a.live_not_before is null or a.live_not_before <= longhaul.now())
    )
    and not exists (
        select from longhaul.pauses p where p.kind = 1 and p.subject = $1 or p.kind = 2 and p.subject = $3::int::text
    )
order by w.deadline_at, w.run, w.ordinal limit $4
"#,
        of.provider,
        of.live_ms,
        of.account,
        limit
    )
    .fetch_all(pool)
    .await?;
    let due = |run, wait, request| DueCall { run, wait, request, estimate: None };
    Ok(rows.into_iter().map(|r| due(r.run, r.ordinal, r.request)).collect())
}

/// Takes requests that are to go live: the intent of each is committed with this, and what it may come to cost counts against all its
/// budgets from then on. One that any of them has no room for is held. Nothing of it happens when a budget was decided by or set
/// meanwhile, or the account is not to be called any more.
pub(super) async fn claim(pool: &PgPool, of: Caller<'_>, due: &[DueCall]) -> Result<Vec<CallKey>, StoreError> {
    let run: Vec<i64> = due.iter().map(|d| d.run).collect();
    let wait: Vec<i32> = due.iter().map(|d| d.wait).collect();
    let estimate: Vec<Option<i64>> = due.iter().map(|d| d.estimate).collect();
    let rows = sqlx::query_as!(
        CallKey,
        r#"
with able as materialized (
    select from longhaul.accounts a where a.id = $3 and a.parked is null
        and (a.live_not_before is null or a.live_not_before <= longhaul.now())
        and exists (select from longhaul.nodes n where n.id = $2 and n.dead_at is null)
        and not exists (
            select from longhaul.pauses p where p.kind = 1 and p.subject = $1 or p.kind = 2 and p.subject = $3::int::text
        )
),
asked as materialized (
    select u.* from able, unnest($4::bigint[], $5::int[], $6::bigint[]) with ordinality as u (run, ordinal, estimate, place)
    order by u.run
),
locked as materialized (
    select u.*, r.workflow, r.root from asked u cross join lateral (
        select v.name as workflow, coalesce(r.root, r.id)::text as root
        from longhaul.runs r join longhaul.workflow_versions v on v.id = r.workflow
        where r.id = u.run and r.status = 3 and r.wait = u.ordinal for update of r skip locked
    ) r
),
budget as materialized (
    select b.id, b.kind, b.subject, b.version, b.unpriced, b.limit_nano - b.spent - b.in_flight as room
    from longhaul.budget_use b where b.limit_nano is not null and exists (
        select from locked l where b.subject = case b.kind when 1 then $3::int::text when 2 then l.workflow else l.root end
    )
),
-- The versions are compared again once the locks are held.
same as materialized (
    select b.id from budget u join longhaul.budgets b on b.id = u.id and b.version = u.version order by b.id for update of b
),
sure as materialized (select where (select count(*) from same) = (select count(*) from budget)),
full_for as materialized (
    select c.run, c.ordinal, min(c.id) as id from (
        select l.run, l.ordinal, l.estimate, b.id, b.unpriced, b.room,
            sum(l.estimate) over (partition by b.id order by l.place) as total
        from locked l join budget b
            on b.subject = case b.kind when 1 then $3::int::text when 2 then l.workflow else l.root end
    ) c
    where case when c.estimate is null then not c.unpriced or c.room < coalesce(c.total, 0) else c.room < c.total end
    group by c.run, c.ordinal
),
held as (
    update longhaul.waits w set held_by = f.id, estimate = l.estimate
    from sure, full_for f join locked l on l.run = f.run and l.ordinal = f.ordinal
    where w.run = f.run and w.ordinal = f.ordinal and w.status = 1
),
-- Whoever fills a batch may have been quicker.
taken as (
    update longhaul.waits w set status = 3, queued_at = null, company = null, attempt = least(w.attempt::int + 1, 32767)
    from sure, locked l where w.run = l.run and w.ordinal = l.ordinal and w.status = 1 and w.held_by is null
        and not exists (select from full_for f where f.run = l.run and f.ordinal = l.ordinal)
    returning w.run, w.ordinal, w.attempt, w.provider, l.estimate
),
raised as (update longhaul.budgets b set version = b.version + 1 from same s, sure where b.id = s.id and exists (select from taken)),
intent as (
    insert into longhaul.live_calls (run, wait, attempt, account, node, status, estimate)
    select run, ordinal, attempt, $3, $2, 2, estimate from taken
),
moved as (
    update longhaul.runs r set cursor = r.cursor + 1 from taken t where r.id = t.run
    returning r.id, r.cursor, t.ordinal, t.attempt, t.provider
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 1, longhaul.nonce(), 31, json_build_object('wait', ordinal, 'attempt', attempt,
        'provider', provider, 'live', true) from moved
)
select run as "run!", ordinal as "wait!", attempt as "attempt!" from taken
"#,
        of.provider,
        of.node.0,
        of.account,
        &run,
        &wait,
        &estimate as _
    )
    .fetch_all(pool)
    .await?;
    Ok(rows)
}

/// When the next call is due that no node makes yet: in how many milliseconds.
pub(super) async fn next(pool: &PgPool, of: Caller<'_>) -> Result<Option<i64>, StoreError> {
    let ms = sqlx::query_scalar!(
        r#"
select (extract(epoch from greatest(min(w.due), a.live_not_before) - longhaul.now()) * 1000)::bigint as ms
from longhaul.accounts a cross join lateral (
    select greatest(w.queued_at, w.deadline_at - $2::bigint * interval '1 millisecond') as due from longhaul.waits w
    where w.provider = $1 and w.deadline_at is not null and w.queued_at is not null and w.held_by is null
    order by w.deadline_at limit 1000
) w
where a.id = $3 and a.parked is null and not exists (
    select from longhaul.pauses p where p.kind = 1 and p.subject = $1 or p.kind = 2 and p.subject = $3::int::text
)
group by a.id
"#,
        of.provider,
        of.live_ms,
        of.account
    )
    .fetch_optional(pool)
    .await?;
    Ok(ms.flatten())
}

/// Calls that carry a node's name, were not settled, and are not among `held`: of one account, or of any.
pub(super) async fn unheld(
    pool: &PgPool,
    node: NodeId,
    account: Option<i32>,
    held: &[CallKey],
) -> Result<Vec<CallKey>, StoreError> {
    let run: Vec<i64> = held.iter().map(|k| k.run).collect();
    let wait: Vec<i32> = held.iter().map(|k| k.wait).collect();
    let attempt: Vec<i16> = held.iter().map(|k| k.attempt).collect();
    let rows = sqlx::query_as!(
        CallKey,
        r#"
select c.run, c.wait, c.attempt from longhaul.live_calls c
where c.node = $1 and c.status = 2 and ($2::int is null or c.account = $2) and not exists (
    select from unnest($3::bigint[], $4::int[], $5::smallint[]) as h (run, wait, attempt)
    where h.run = c.run and h.wait = c.wait and h.attempt = c.attempt
)
order by c.run, c.wait, c.attempt limit 1000
"#,
        node.0,
        account as _,
        &run,
        &wait,
        &attempt
    )
    .fetch_all(pool)
    .await?;
    Ok(rows)
}

/// Stores an answer, books what it cost, and wakes the run; one that is not waited for any more is booked and kept. A late answer to a
/// call that was taken for lost is as good as any. May be repeated. `false`: nobody waits for it.
pub(super) async fn answer(
    pool: &PgPool,
    call: CallKey,
    body: &str,
    model: Option<&str>,
    usage: Option<Usage>,
    nano_usd: Option<i64>,
) -> Result<bool, StoreError> {
    let moved = sqlx::query_scalar!(
        r#"
with call as materialized (
    select c.run, c.wait, c.attempt, c.account, c.status from longhaul.live_calls c
    where c.run = $1 and c.wait = $2 and c.attempt = $3 and c.status in (2, 7, 10)
),
locked as materialized (
    select c.run, c.wait, c.attempt from call c cross join lateral (
        select from longhaul.runs r where r.id = c.run and r.status = 3 and r.wait = c.wait for update
    ) r
),
answered as (
    update longhaul.waits w set status = 4, queued_at = null, company = null, batch = null, item = null,
        bytes = least(w.bytes::bigint + octet_length($4::text), 2147483647)
    from locked l where w.run = l.run and w.ordinal = l.wait and w.status in (1, 2, 3)
    returning w.run, w.ordinal, w.provider, l.attempt
),
kept as (
    insert into longhaul.answers (run, ordinal, by, body) select run, wait, 'live', $4::text::json from call
    on conflict do nothing
),
moved as (
    update longhaul.runs r set status = 1, ready_at = longhaul.now(), cursor = r.cursor + 1
    from answered a where r.id = a.run
    returning r.id, r.cursor, a.ordinal, a.attempt, a.provider
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 1, longhaul.nonce(), 32, json_build_object('wait', ordinal, 'attempt', attempt, 'provider', provider,
        'bytes', octet_length($4::text), 'input_tokens', $5::bigint, 'output_tokens', $6::bigint, 'live', true)
    from moved
),
-- An answer that comes again is not paid again: at most it has become of use.
booked as (
    update longhaul.live_calls l set status = case when exists (select from answered) then 3 else 10 end, model = $10,
        input_tokens = $5, output_tokens = $6, cache_write_tokens = $7, cache_read_tokens = $8, nano_usd = $9,
        settled_at = case when c.status = 10 then l.settled_at else longhaul.now() end, note = null
    from call c where l.run = c.run and l.wait = c.wait and l.attempt = c.attempt and l.status = c.status
    returning l.run, l.account, l.model, l.settled_at, l.nano_usd, (c.status <> 10)::int as new,
        (l.status = 10)::int - (c.status = 10)::int as unused
),
spent as (
    insert into longhaul.spent
    select (k.settled_at at time zone 'UTC')::date, k.account, v.name, coalesce(k.model, ''), k.new,
        k.new * (k.nano_usd is null)::int, k.unused, k.new * coalesce(k.nano_usd, 0), k.unused * coalesce(k.nano_usd, 0),
        k.new * coalesce($5::bigint, 0), k.new * coalesce($6::bigint, 0), k.new * coalesce($7::bigint, 0),
        k.new * coalesce($8::bigint, 0)
    from booked k join longhaul.runs r on r.id = k.run join longhaul.workflow_versions v on v.id = r.workflow
    on conflict (workflow, account, day, model) do update set items = spent.items + excluded.items,
        unpriced = spent.unpriced + excluded.unpriced, unused = spent.unused + excluded.unused,
        nano_usd = spent.nano_usd + excluded.nano_usd,
        unused_nano_usd = spent.unused_nano_usd + excluded.unused_nano_usd,
        input_tokens = spent.input_tokens + excluded.input_tokens,
        output_tokens = spent.output_tokens + excluded.output_tokens,
        cache_write_tokens = spent.cache_write_tokens + excluded.cache_write_tokens,
        cache_read_tokens = spent.cache_read_tokens + excluded.cache_read_tokens
),
-- The provider takes calls again.
calm as (
    update longhaul.accounts a set live_refused = 0 from call c where a.id = c.account and a.live_refused > 0
)
select exists (select from moved) as "moved!"
"#,
        call.run,
        call.wait,
        call.attempt,
        body,
        usage.map(|u| u.input_tokens),
        usage.map(|u| u.output_tokens),
        usage.map(|u| u.cache_write_tokens),
        usage.map(|u| u.cache_read_tokens),
        nano_usd,
        model
    )
    .fetch_one(pool)
    .await?;
    Ok(moved)
}

/// What is known of a call without an answer.
#[derive(Debug, Clone)]
pub(crate) struct Unanswered {
    /// What became of the call: errored, missing or unreadable.
    pub outcome: ItemStatus,
    /// Nothing is gained by another attempt.
    pub last: bool,
    /// Whether it counts against the budget of errors.
    pub counts: bool,
    /// For people.
    pub note: String,
    /// What came, where no step could take it.
    pub line: Option<Vec<u8>>,
}

/// What a call without an answer leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The request goes out again.
    Again,
    /// The run failed.
    Failed,
    /// The run is parked.
    Parked,
    /// Nobody waits for it.
    Nothing,
}

/// Settles a call without an answer: the request goes out again, or its run fails or, by the wait's own rule, is parked. May be repeated:
/// a wait that was taken up again meanwhile by a retry of its run is not left behind.
pub(super) async fn unanswered(
    pool: &PgPool,
    call: CallKey,
    what: &Unanswered,
    budget: i16,
    delay_ms: i64,
) -> Result<Fate, StoreError> {
    let fate = sqlx::query_scalar!(
        r#"
with call as materialized (
    select c.run, c.wait, c.attempt, c.status from longhaul.live_calls c
    where c.run = $1 and c.wait = $2 and c.attempt = $3 and c.status in (2, 4, 7, 9)
),
locked as materialized (
    select c.run, c.wait, c.attempt from call c cross join lateral (
        select from longhaul.runs r where r.id = c.run and r.status = 3 and r.wait = c.wait for update
    ) r
),
judged as materialized (
    select l.*, case when $5::bool then 'fail' when $4::smallint = 7 and w.park_lost then 'park'
        when $6::bool and w.errors + 1 > coalesce(w.budget, $7::smallint) then 'fail' else 'again' end as fate
    from locked l join longhaul.waits w on w.run = l.run and w.ordinal = l.wait and w.status = 3 and w.batch is null
        and w.attempt = l.attempt
),
settled as (
    update longhaul.waits w set status = case when j.fate = 'again' then 1 else 6 end,
        errors = w.errors + ($6 and j.fate = 'again')::int,
        -- Each failure doubles the pause, up to an hour.
        queued_at = case when j.fate = 'again' then longhaul.now() + case when $6 then
            least(coalesce(w.backoff_ms, $8::bigint) * (1 << least(w.errors, 20)), 3600000) * (0.75 + random() / 4)
            else $8::bigint end * interval '1 millisecond' end
    from judged j where w.run = j.run and w.ordinal = j.wait and w.status = 3 and w.attempt = j.attempt
    returning w.run, w.ordinal, w.attempt, w.provider, j.fate
),
moved as (
    update longhaul.runs r set cursor = r.cursor + case when s.fate = 'again' then 1 else 2 end,
        status = case s.fate when 'fail' then 6 when 'park' then 4 else 3 end,
        finished_at = case when s.fate = 'fail' then longhaul.now() end,
        reason = case when s.fate = 'park' then
            'nobody knows whether its live call was answered, and paid: a retry asks again. Last noted: ' || $9::text end
    from settled s where r.id = s.run
    returning r.id, r.cursor, r.step, s.ordinal, s.attempt, s.provider, s.fate
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - case when fate = 'again' then 1 else 2 end, longhaul.nonce(), case when fate = 'again' then 35 else 34 end,
        json_build_object('wait', ordinal, 'attempt', attempt, 'provider', provider, 'live', true,
            'outcome', case $4::smallint when 4 then 'errored' when 7 then 'missing' when 9 then 'unreadable' end)
    from moved
    union all
    select id, cursor - 1, longhaul.nonce(), case when fate = 'fail' then 3 else 5 end,
        json_build_object('step', step, 'code', case when fate = 'fail' then 'model-failed' else 'live-call-lost' end)
    from moved where fate <> 'again'
),
because as (
    insert into longhaul.outputs (run, error)
    select id, json_build_object('code', 'model-failed', 'step', step, 'message', $9::text) from moved where fate = 'fail'
    on conflict (run) do update set body = null, error = excluded.error
),
booked as (
    update longhaul.live_calls l set status = $4::smallint, note = $9, line = $10, settled_at = longhaul.now()
    from call c where l.run = c.run and l.wait = c.wait and l.attempt = c.attempt and l.status = 2
)
select fate as "fate!" from moved
"#,
        call.run,
        call.wait,
        call.attempt,
        what.outcome.code(),
        what.last,
        what.counts,
        budget,
        delay_ms,
        what.note,
        what.line.as_deref()
    )
    .fetch_optional(pool)
    .await?;
    Ok(match fate.as_deref() {
        Some("again") => Fate::Again,
        Some("fail") => Fate::Failed,
        Some("park") => Fate::Parked,
        _ => Fate::Nothing,
    })
}

/// Makes no live call for a while: as long as the provider asked for, and each time twice as long, up to a minute.
pub(super) async fn pause(pool: &PgPool, account: i32, asked_ms: Option<i64>) -> Result<(), StoreError> {
    sqlx::query!(
        r#"
update longhaul.accounts set
    live_not_before = greatest(live_not_before, longhaul.now() +
        greatest($2::bigint, least(500 * (1 << least(live_refused, 10)), 60000)) * interval '1 millisecond'),
    live_refused = live_refused + 1
-- Calls that were under way at the same time are refused for the same reason.
where id = $1 and ($2::bigint is not null or live_not_before is null or live_not_before <= longhaul.now())
"#,
        account,
        asked_ms as _
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Sends nothing for this account until an operator acts.
pub(super) async fn park_account(pool: &PgPool, account: i32, why: &str) -> Result<(), StoreError> {
    sqlx::query!("update longhaul.accounts set parked = $2 where id = $1 and parked is null", account, why)
        .execute(pool)
        .await?;
    Ok(())
}

/// Totals of the live calls, apart from those of the batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct LiveTotals {
    /// Calls that were made, each a send of its own.
    pub calls: i64,
    /// Of those, under way.
    pub under_way: i64,
    /// Answered, and taken by the run that asked.
    pub answered: i64,
    /// Answered when nobody waited for it any more; paid all the same.
    pub superseded: i64,
    /// Refused or failed by the provider; not paid.
    pub refused: i64,
    /// Nobody knows whether these were answered; any of them may have been paid.
    pub lost: i64,
    /// What the answers cost, in nano-dollars, as far as it is known.
    pub nano_usd: i64,
    /// Answers whose cost is unknown; among them those that no step could take.
    pub unpriced: i64,
}

/// Totals over all live calls, also those whose records are removed.
pub(super) async fn totals(pool: &PgPool) -> Result<LiveTotals, StoreError> {
    let totals = sqlx::query_as!(
        LiveTotals,
        r#"
select coalesce(sum(calls), 0)::bigint as "calls!", coalesce(sum(under_way), 0)::bigint as "under_way!",
    coalesce(sum(answered), 0)::bigint as "answered!", coalesce(sum(superseded), 0)::bigint as "superseded!",
    coalesce(sum(refused), 0)::bigint as "refused!", coalesce(sum(lost), 0)::bigint as "lost!",
    coalesce(sum(nano_usd), 0)::bigint as "nano_usd!", coalesce(sum(unpriced), 0)::bigint as "unpriced!"
from (
    select count(*) as calls, count(*) filter (where status = 2) as under_way, count(*) filter (where status = 3) as answered,
        count(*) filter (where status = 10) as superseded, count(*) filter (where status = 4) as refused,
        count(*) filter (where status = 7) as lost, sum(nano_usd) as nano_usd,
        count(*) filter (where status in (3, 9, 10) and nano_usd is null) as unpriced
    from longhaul.live_calls
    union all
    select calls, 0, answered, superseded, refused, lost, nano_usd, unpriced from longhaul.live_removed
) as part
"#
    )
    .fetch_one(pool)
    .await?;
    Ok(totals)
}
