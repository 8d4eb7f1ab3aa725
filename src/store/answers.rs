//! Answers from people, other services and time. The wait's row decides: whoever moves it first has answered.

use super::error::StoreError;
use crate::domain::{RunKey, RunStatus, WaitKind, WaitStatus};
use crate::store::codec::Code;
use sqlx::PgPool;

/// Stores an answer on the open wait of a run. `false`: that wait is not open any more; [`look`] says what it is.
pub(super) async fn answer(
    pool: &PgPool,
    run: RunKey,
    ordinal: i32,
    kind: WaitKind,
    by: Option<&str>,
    body: &str,
) -> Result<bool, StoreError> {
    let told = if kind == WaitKind::Human { 41i16 } else { 44 };
    let moved = sqlx::query_scalar!(
        r#"
with locked as materialized (
    select r.id from longhaul.runs r where r.id = $1 and r.status = 3 and r.wait = $2 for update
),
answered as (
    update longhaul.waits w set status = 4, queued_at = null, due_at = null
    from locked l
    where w.run = l.id and w.ordinal = $2 and w.kind = $3 and w.status = 1
        and (w.due_at is null or w.due_at > longhaul.now())
    returning w.run
),
moved as (
    update longhaul.runs r set status = 1, ready_at = longhaul.now(), cursor = r.cursor + 1
    from answered a where r.id = a.run
    returning r.id, r.cursor
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 1, longhaul.nonce(), $6, json_build_object('wait', $2::int, 'bytes', octet_length($5::text))
    from moved
),
said as (insert into longhaul.answers (run, ordinal, by, body) select run, $2, $4, $5::text::json from answered)
select count(*) as "count!" from moved
"#,
        run.0,
        ordinal,
        kind.code(),
        by,
        body,
        told
    )
    .fetch_one(pool)
    .await?;
    Ok(moved == 1)
}

/// What a run waits for.
#[derive(Debug, Clone)]
pub(crate) struct OpenWait {
    pub run: RunKey,
    pub run_status: RunStatus,
    pub ordinal: Option<i32>,
    pub kind: Option<WaitKind>,
    pub status: Option<WaitStatus>,
    pub over: bool,
    pub request: Option<String>,
}

/// What a run waits for, by its id. `None`: there is no such run.
pub(super) async fn look(pool: &PgPool, run_id: &str) -> Result<Option<OpenWait>, StoreError> {
    let row = sqlx::query!(
        r#"
select r.id, r.status, r.wait, w.kind as "kind?", w.status as "wait_status?", q.body::text as request,
    coalesce(w.due_at <= longhaul.now(), false) as "over!"
from longhaul.runs r
left join longhaul.waits w on w.run = r.id and w.ordinal = r.wait
left join longhaul.requests q on q.run = r.id and q.ordinal = r.wait
where r.run_id = $1
"#,
        run_id
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|r| OpenWait {
        run: RunKey(r.id),
        run_status: RunStatus::decode(r.status),
        ordinal: r.wait,
        kind: r.kind.map(WaitKind::decode),
        status: r.wait_status.map(WaitStatus::decode),
        over: r.over,
        request: r.request,
    }))
}

/// Ends waits whose time is over: sleepers are woken, questions get the answer agreed on. Answers how many.
pub(super) async fn expire(pool: &PgPool, limit: i64) -> Result<i64, StoreError> {
    let moved = sqlx::query_scalar!(
        r#"
with due as materialized (
    select w.run, w.ordinal from longhaul.waits w join longhaul.runs r on r.id = w.run and r.status = 3 and r.wait = w.ordinal
    where w.due_at is not null and w.due_at <= longhaul.now() order by w.due_at limit $1
),
locked as materialized (
    select d.run, d.ordinal from (select * from due order by run) d cross join lateral (
        select from longhaul.runs r where r.id = d.run and r.status = 3 and r.wait = d.ordinal for update skip locked
    ) r
),
ended as (
    update longhaul.waits w set status = 4, queued_at = null, due_at = null
    from locked l
    -- Checked again: an answer that came first stands.
    where w.run = l.run and w.ordinal = l.ordinal and w.status = 1 and w.due_at <= longhaul.now()
    returning w.run, w.ordinal, w.kind
),
moved as (
    update longhaul.runs r set status = 1, ready_at = longhaul.now(), cursor = r.cursor + 1
    from ended e where r.id = e.run
    returning r.id, r.cursor, e.ordinal, e.kind
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 1, longhaul.nonce(), case kind when 3 then 42 when 4 then 45 else 47 end,
        json_build_object('wait', ordinal)
    from moved
),
said as (
    insert into longhaul.answers (run, ordinal, body)
    select e.run, e.ordinal, coalesce(q.otherwise, 'null') from ended e
    left join longhaul.requests q on q.run = e.run and q.ordinal = e.ordinal
)
select count(*) as "count!" from moved
"#,
        limit
    )
    .fetch_one(pool)
    .await?;
    Ok(moved)
}

/// An answer that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    /// By whom; `None` is time.
    pub by: Option<String>,
    pub body: String,
}

/// The answer that was given to a certain wait of a run, or the last one of all.
pub(super) async fn given(pool: &PgPool, run: RunKey, ordinal: Option<i32>) -> Result<Option<Given>, StoreError> {
    let row = sqlx::query!(
        r#"
select a.by, a.body::text as "body!" from longhaul.answers a
where a.run = $1 and case when $2::int is null then a.by is not null else a.ordinal = $2 end order by a.ordinal desc limit 1
"#,
        run.0,
        ordinal as _
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|r| Given { by: r.by, body: r.body }))
}

/// What a certain wait of a person or another service is. `None`: the run never asked that.
pub(super) async fn wait_status(pool: &PgPool, run: RunKey, ordinal: i32) -> Result<Option<WaitStatus>, StoreError> {
    let status = sqlx::query_scalar!(
        "select status from longhaul.waits where run = $1 and ordinal = $2 and kind in (3, 4)",
        run.0,
        ordinal
    );
    Ok(status.fetch_optional(pool).await?.map(WaitStatus::decode))
}

/// In how many milliseconds the next wait is over.
pub(super) async fn next_due(pool: &PgPool) -> Result<Option<i64>, StoreError> {
    let ms = sqlx::query_scalar!(
        r#"
select (extract(epoch from min(due_at) - longhaul.now()) * 1000)::bigint as ms
from longhaul.waits where due_at is not null
"#
    )
    .fetch_one(pool)
    .await?;
    Ok(ms)
}
