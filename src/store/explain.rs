//! Why a run does not move: everything that has a say in it, in one look.

use super::error::StoreError;
use crate::domain::{BatchStatus, RunStatus, WaitKind, WaitStatus};
use crate::store::codec::Code;
use sqlx::PgPool;

/// A run and what has a say in its moving on. Ages are by the database's clock, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub run_id: String,
    pub workflow: String,
    pub version: i32,
    pub status: RunStatus,
    pub step: String,
    pub fence: i64,
    pub starts: i16,
    pub errors: i16,
    pub reason: Option<String>,
    /// Until it is due; negative when it is.
    pub ready_in_ms: Option<i64>,
    pub finished_ago_ms: Option<i64>,
    pub owner: Option<Owner>,
    pub wait: Option<Wait>,
    pub batch: Option<Batch>,
    /// Who has paused its workflow.
    pub paused: Option<Paused>,
    /// How many of its workflow's runs are owned, and how many may be.
    pub ceiling: Option<(i64, i32)>,
    /// Living nodes, and those of them that take runs of this version.
    pub nodes: i64,
    pub able: i64,
    /// The versions of its workflow that living nodes have.
    pub versions: Vec<i32>,
    /// Branches that it waits for and that are not over, and one of them.
    pub branches: i64,
    pub a_branch: Option<String>,
    pub error: Option<String>,
}

/// Who holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub name: String,
    pub id: uuid::Uuid,
    pub dead: bool,
    pub beat_ago_ms: i64,
    pub lease_ms: i32,
}

/// A pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paused {
    pub ago_ms: i64,
    pub by: String,
    pub reason: String,
}

/// What it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wait {
    pub kind: WaitKind,
    pub status: WaitStatus,
    pub provider: Option<String>,
    pub age_ms: i64,
    pub queued_in_ms: Option<i64>,
    pub due_in_ms: Option<i64>,
    pub attempt: i16,
    pub errors: i16,
    pub prompt: Option<String>,
    /// Why nothing is sent.
    pub parked: Option<String>,
    /// Until its answer is wanted; negative when it was wanted before now.
    pub deadline_in_ms: Option<i64>,
    /// Its latest live call.
    pub call: Option<Call>,
    /// What an operator paused: whom, and why.
    pub paused: Option<String>,
    /// The budget that holds it.
    pub held: Option<HeldBy>,
}

/// A live call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// Whether it is under way.
    pub under_way: bool,
    /// The node that makes it, or made it.
    pub node: String,
    pub sent_ago_ms: i64,
    /// Why it had no answer.
    pub note: Option<String>,
}

/// A budget that holds a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldBy {
    /// 1 an account, 2 a workflow, 3 a run.
    pub kind: i16,
    /// 1 a day, 2 a month; else for ever.
    pub period: i16,
    pub subject: String,
    /// In nano-dollars; `None`: the budget was cleared.
    pub limit: Option<i64>,
    pub spent: i64,
    pub in_flight: i64,
    /// What the request may come to cost.
    pub estimate: Option<i64>,
    /// Until the period is over.
    pub ends_in_ms: Option<i64>,
}

/// The batch that its request is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    pub key: i64,
    pub status: BatchStatus,
    pub provider_batch_id: Option<String>,
    pub n: i32,
    pub sent_ago_ms: Option<i64>,
    pub note: Option<String>,
}

/// A text of a JSON object, read here: the server cannot look into JSON that holds a NUL.
pub(super) fn text(json: &str, key: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    value.get(key)?.as_str().map(str::to_owned)
}

/// Looks at a run. `None`: there is no such run.
pub(super) async fn facts(pool: &PgPool, run_id: &str) -> Result<Option<Facts>, StoreError> {
    let row = sqlx::query!(
        r#"
with ms as (select longhaul.now() as now)
select r.run_id, v.name as workflow, v.version, r.status, r.step, r.fence, r.starts, r.errors, r.reason,
    (extract(epoch from r.ready_at - ms.now) * 1000)::bigint as ready_in_ms,
    (extract(epoch from ms.now - r.finished_at) * 1000)::bigint as finished_ago_ms,
    n.name as "node?", n.id as "node_id?", n.dead_at is not null as "dead!",
    (extract(epoch from ms.now - n.beat_at) * 1000)::bigint as beat_ago_ms, n.lease_ms as "lease_ms?",
    w.kind as "kind?", w.status as "wait_status?", w.provider, w.attempt as "attempt?", w.errors as "wait_errors?",
    (extract(epoch from ms.now - w.opened_at) * 1000)::bigint as wait_age_ms,
    (extract(epoch from w.queued_at - ms.now) * 1000)::bigint as queued_in_ms,
    (extract(epoch from w.due_at - ms.now) * 1000)::bigint as due_in_ms,
    (extract(epoch from w.deadline_at - ms.now) * 1000)::bigint as deadline_in_ms,
    lc.status = 2 as call_under_way, lc.name as "call_node?", lc.note as "call_note?",
    (extract(epoch from ms.now - lc.sent_at) * 1000)::bigint as call_ago_ms,
    case when w.kind in (3, 4) then q.body::text end as asked,
    b.id as "batch?", b.status as "batch_status?", b.provider_batch_id, b.n as "n?", b.note,
    -- What was refused is in no batch any more: whatever is parked may be why.
    coalesce(a.parked, case when w.kind = 1 and w.status = 1 then (
        select string_agg(p.parked, '; ') from longhaul.accounts p
        where p.parked is not null and coalesce(p.provider, w.provider) = w.provider
    ) end) as parked,
    case when w.kind = 1 and w.status = 1 then (
        select string_agg(case p.kind when 1 then 'provider `' || p.subject else 'account `' || p.subject end || '` by '
            || p.by || ': ' || p.why, '; ' order by p.kind)
        from longhaul.pauses p
        where p.kind = 1 and p.subject = w.provider
            or p.kind = 2 and exists (select from longhaul.accounts s where s.id::text = p.subject and s.provider = w.provider)
    ) end as paused,
    u.kind as "held_kind?", u.period as "held_period?", coalesce(t.run_id, u.subject) as held_subject,
    u.limit_nano as "held_limit?", u.spent as "held_spent?", u.in_flight as "held_in_flight?", w.estimate as "estimate?",
    (extract(epoch from u.ends_at - ms.now) * 1000)::bigint as held_ends_in_ms,
    (extract(epoch from ms.now - b.sending_at) * 1000)::bigint as sent_ago_ms,
    (select count(*) from longhaul.nodes l where l.dead_at is null) as "nodes!",
    (select count(*) from longhaul.nodes l where l.dead_at is null and not l.draining
        and r.workflow = any(l.workflows)) as "able!",
    array(
        select distinct s.version from longhaul.nodes l join longhaul.workflow_versions s on s.id = any(l.workflows)
        where l.dead_at is null and s.name = v.name order by 1
    ) as "versions!",
    c.paused_by as "paused_by?", c.paused_reason, c.max_running as "max_running?",
    (extract(epoch from ms.now - c.paused_at) * 1000)::bigint as paused_ago_ms, (
        select count(*) from longhaul.runs h join longhaul.workflow_versions s on s.id = h.workflow
        where c.max_running is not null and h.owner is not null and s.name = c.name
    ) as "running!",
    o.error::text as error, k.open as "branches!", k.one as a_branch
from longhaul.runs r
cross join ms
join longhaul.workflow_versions v on v.id = r.workflow
left join longhaul.workflow_controls c on c.name = v.name
left join longhaul.nodes n on n.id = r.owner
left join longhaul.waits w on w.run = r.id and w.ordinal = r.wait
left join longhaul.requests q on q.run = r.id and q.ordinal = r.wait and w.kind in (3, 4)
left join longhaul.batches b on b.id = w.batch
left join longhaul.accounts a on a.id = b.account
left join longhaul.budget_use u on u.id = w.held_by and w.status = 1
left join longhaul.runs t on t.id = case u.kind when 3 then u.subject::bigint end
left join longhaul.outputs o on o.run = r.id
left join lateral (
    select l.status, l.note, l.sent_at, n.name from longhaul.live_calls l join longhaul.nodes n on n.id = l.node
    where l.run = w.run and l.wait = w.ordinal order by l.attempt desc limit 1
) lc on true
cross join lateral (
    select count(*) as open, min(c.run_id) as one from longhaul.fork_branches f join longhaul.runs c on c.id = f.child
    where f.run = r.id and f.ordinal = r.wait and c.status not in (5, 6, 7)
) k
where r.run_id = $1
"#,
        run_id
    )
    .fetch_optional(pool)
    .await?;
    let Some(r) = row else { return Ok(None) };
    let owner = r.node.zip(r.node_id).map(|(name, id)| Owner {
        name,
        id,
        dead: r.dead,
        beat_ago_ms: r.beat_ago_ms.unwrap_or(0),
        lease_ms: r.lease_ms.unwrap_or(0),
    });
    let call = r.call_node.map(|node| Call {
        under_way: r.call_under_way == Some(true),
        node,
        sent_ago_ms: r.call_ago_ms.unwrap_or(0),
        note: r.call_note,
    });
    let held = r.held_kind.zip(r.held_subject).map(|(kind, subject)| HeldBy {
        kind,
        period: r.held_period.unwrap_or(0),
        subject,
        limit: r.held_limit,
        spent: r.held_spent.unwrap_or(0),
        in_flight: r.held_in_flight.unwrap_or(0),
        estimate: r.estimate,
        ends_in_ms: r.held_ends_in_ms,
    });
    let wait = r.kind.zip(r.wait_status).map(|(kind, status)| Wait {
        kind: WaitKind::decode(kind),
        status: WaitStatus::decode(status),
        provider: r.provider,
        age_ms: r.wait_age_ms.unwrap_or(0),
        queued_in_ms: r.queued_in_ms,
        due_in_ms: r.due_in_ms,
        attempt: r.attempt.unwrap_or(0),
        errors: r.wait_errors.unwrap_or(0),
        prompt: r.asked.as_deref().and_then(|asked| text(asked, "prompt")),
        parked: r.parked.clone(),
        deadline_in_ms: r.deadline_in_ms,
        call,
        paused: r.paused,
        held,
    });
    let batch = r.batch.zip(r.batch_status).map(|(key, status)| Batch {
        key,
        status: BatchStatus::decode(status),
        provider_batch_id: r.provider_batch_id,
        n: r.n.unwrap_or(0),
        sent_ago_ms: r.sent_ago_ms,
        note: r.note,
    });
    Ok(Some(Facts {
        run_id: r.run_id,
        workflow: r.workflow,
        version: r.version,
        status: RunStatus::decode(r.status),
        step: r.step,
        fence: r.fence,
        starts: r.starts,
        errors: r.errors,
        reason: r.reason,
        ready_in_ms: r.ready_in_ms,
        finished_ago_ms: r.finished_ago_ms,
        owner,
        wait,
        batch,
        paused: r.paused_by.map(|by| Paused {
            ago_ms: r.paused_ago_ms.unwrap_or(0),
            by,
            reason: r.paused_reason.unwrap_or_default(),
        }),
        ceiling: r.max_running.map(|most| (r.running, most)),
        nodes: r.nodes,
        able: r.able,
        versions: r.versions,
        branches: r.branches,
        a_branch: r.a_branch,
        error: r.error.as_deref().and_then(|error| text(error, "message")),
    }))
}
