//! Why a workflow's queue does not move: everything that has a say in it. Counts are cut, so that a look costs the same whatever
//! there is.

use super::codec::Code;
use super::error::StoreError;
use crate::domain::{RunStatus, WaitKind, WaitStatus};
use sqlx::PgPool;

/// Rows counted at most, each time.
pub(crate) const MOST: i64 = 10_000;

/// A version of the workflow. Counts are at most [`MOST`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VersionFacts {
    pub version: i32,
    /// Living nodes that have it and take runs.
    pub able: i64,
    /// Living nodes that have it and are draining.
    pub draining: i64,
    /// Runs that may be claimed now.
    pub due: i64,
    pub oldest_due_ms: Option<i64>,
    /// In how many milliseconds the next one is due that is not.
    pub next_due_ms: Option<i64>,
}

/// Who runs how many of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub node: String,
    pub dead: bool,
    pub runs: i64,
}

/// What its oldest waiting runs wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub kind: WaitKind,
    pub status: WaitStatus,
    pub provider: Option<String>,
    /// Whether a budget holds them.
    pub held: bool,
    /// Whether each is called by itself.
    pub live: bool,
    pub runs: i64,
    pub oldest_ms: i64,
    /// Batches that carry them, and how long ago the first of these was sent.
    pub batches: i64,
    pub sent_ago_ms: Option<i64>,
    /// In how many milliseconds the first of them goes out again or is over, if that is known.
    pub next_ms: Option<i64>,
}

/// What does not go on by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub status: RunStatus,
    pub runs: i64,
    pub newest: Option<String>,
    pub reason: Option<String>,
}

pub(super) async fn versions(pool: &PgPool, workflow: &str) -> Result<Vec<VersionFacts>, StoreError> {
    let rows = sqlx::query!(
        r#"
select v.version, n.able as "able!", n.draining as "draining!", d.due as "due!", d.oldest, (
    select (extract(epoch from min(r.ready_at) - longhaul.now()) * 1000)::bigint from longhaul.runs r
    where r.workflow = v.id and r.ready_at is not null and r.ready_at > longhaul.now()
) as next_due
from longhaul.workflow_versions v
cross join lateral (
    select count(*) filter (where not l.draining) as able, count(*) filter (where l.draining) as draining
    from longhaul.nodes l where l.dead_at is null and v.id = any(l.workflows)
) n
cross join lateral (
    select count(*) as due, (extract(epoch from longhaul.now() - min(q.ready_at)) * 1000)::bigint as oldest from (
        select r.ready_at from longhaul.runs r
        where r.workflow = v.id and r.ready_at is not null and r.ready_at <= longhaul.now() order by r.ready_at limit $2
    ) q
) d
where v.name = $1 order by v.version
"#,
        workflow,
        MOST
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| VersionFacts {
            version: r.version,
            able: r.able,
            draining: r.draining,
            due: r.due,
            oldest_due_ms: r.oldest,
            next_due_ms: r.next_due,
        })
        .collect())
}

pub(super) async fn holders(pool: &PgPool, workflows: &[i32]) -> Result<Vec<Holder>, StoreError> {
    let rows = sqlx::query!(
        r#"
select coalesce(n.name, r.owner::text) as "node!", coalesce(n.dead_at is not null, true) as "dead!", count(*) as "runs!"
from longhaul.runs r left join longhaul.nodes n on n.id = r.owner
where r.owner is not null and r.workflow = any($1) group by 1, 2 order by 3 desc, 1
"#,
        workflows
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|r| Holder { node: r.node, dead: r.dead, runs: r.runs }).collect())
}

pub(super) async fn waiting(pool: &PgPool, workflows: &[i32]) -> Result<Vec<Waiting>, StoreError> {
    let rows = sqlx::query!(
        r#"
with sample as materialized (
    select q.id, q.wait from unnest($1::int[]) as k (workflow) cross join lateral (
        select r.id, r.wait from longhaul.runs r
        where r.workflow = k.workflow and r.listed = 3 and r.listed is not null order by r.id limit $2
    ) q
)
select w.kind, w.status, w.provider, w.status = 1 and w.held_by is not null as "held!",
    w.kind = 1 and w.status = 3 and w.batch is null as "live!", count(*) as "runs!",
    (extract(epoch from longhaul.now() - min(w.opened_at)) * 1000)::bigint as "oldest!",
    count(distinct b.id) as "batches!",
    (extract(epoch from longhaul.now() - min(b.sending_at)) * 1000)::bigint as sent_ago,
    (extract(epoch from min(coalesce(w.due_at, w.queued_at)) - longhaul.now()) * 1000)::bigint as next
from sample s
join longhaul.waits w on w.run = s.id and w.ordinal = s.wait
left join longhaul.batches b on b.id = w.batch
group by w.kind, w.status, w.provider, 4, 5 order by w.kind, w.status, 4, 5
"#,
        workflows,
        MOST
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| Waiting {
            kind: WaitKind::decode(r.kind),
            status: WaitStatus::decode(r.status),
            provider: r.provider,
            held: r.held,
            live: r.live,
            runs: r.runs,
            oldest_ms: r.oldest,
            batches: r.batches,
            sent_ago_ms: r.sent_ago,
            next_ms: r.next,
        })
        .collect())
}

pub(super) async fn trouble(pool: &PgPool, workflows: &[i32]) -> Result<Vec<Trouble>, StoreError> {
    let rows = sqlx::query!(
        r#"
select s.status as "status!", count(*) as "runs!", (array_agg(q.run_id order by q.id desc))[1] as newest,
    (array_agg(q.reason order by q.id desc))[1] as reason
from unnest(array[4, 6]::smallint[]) as s (status) cross join unnest($1::int[]) as k (workflow)
cross join lateral (
    select r.id, r.run_id, r.reason from longhaul.runs r
    where r.workflow = k.workflow and r.listed = s.status and r.listed is not null order by r.id desc limit $2
) q
group by s.status order by s.status
"#,
        workflows,
        MOST
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| Trouble { status: RunStatus::decode(r.status), runs: r.runs, newest: r.newest, reason: r.reason })
        .collect())
}

/// What keeps requests from being sent, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// Under which name nodes have it; `None`: it is not known.
    pub provider: Option<String>,
    /// What is stopped, in words.
    pub what: String,
    pub why: String,
}

/// Accounts that are parked, and what is paused of providers and accounts.
pub(super) async fn stopped(pool: &PgPool) -> Result<Vec<Stopped>, StoreError> {
    let rows = sqlx::query_as!(
        Stopped,
        r#"
select provider, kind || ' ' || base_url || ' ' || organization || ' ' || workspace as "what!", parked as "why!"
from longhaul.accounts where parked is not null
union all
select case p.kind when 1 then p.subject else a.provider end,
    case p.kind when 1 then 'provider `' || p.subject || '`' else 'account ' || p.subject end, 'paused by ' || p.by || ': ' || p.why
from longhaul.pauses p left join longhaul.accounts a on p.kind = 2 and a.id::text = p.subject
order by 2
"#
    )
    .fetch_all(pool)
    .await?;
    Ok(rows)
}
