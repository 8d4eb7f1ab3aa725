//! What belongs to runs: the ledger of a whole tree in the order of time, and what runs wait for.

use super::codec::Code;
use super::error::StoreError;
use super::read::EventView;
use crate::domain::{EventId, EventType, Ordinal, RunKey, WaitKind, WaitStatus};
use sqlx::PgPool;
use sqlx::types::chrono::{DateTime, Utc};

/// A place in the ledger of a tree.
pub(crate) type TreePlace = (DateTime<Utc>, i64, i32);

/// Events of a run and of all branches below it, after a place, in the order of time, at most `limit`; each with its run's id.
pub(super) async fn events(
    pool: &PgPool,
    root: RunKey,
    place: Option<TreePlace>,
    limit: i64,
) -> Result<Vec<(String, EventView)>, StoreError> {
    let (at, run, ordinal) =
        place.map_or((None, None, None), |(at, run, ordinal)| (Some(at), Some(run), Some(ordinal)));
    let rows = sqlx::query!(
        r#"
with recursive tree as (
    select $1::bigint as id
    union
    select f.child from tree t join longhaul.fork_branches f on f.run = t.id
)
select r.run_id, e.run, e.ordinal, e.nonce, e.type, e.at, e.cause_run, e.cause_ordinal, e.cause_nonce,
    e.payload::text as "payload!"
from tree t
join longhaul.runs r on r.id = t.id
join longhaul.events e on e.run = t.id
where $2::timestamptz is null or (e.at, e.run, e.ordinal) > ($2, $3::bigint, $4::int)
order by e.at, e.run, e.ordinal limit $5
"#,
        root.0,
        at as _,
        run as _,
        ordinal as _,
        limit
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| {
            let event = EventView {
                id: EventId { run: RunKey(r.run), ordinal: r.ordinal, nonce: r.nonce },
                kind: EventType::decode(r.r#type),
                at: r.at,
                cause: match (r.cause_run, r.cause_ordinal, r.cause_nonce) {
                    (Some(run), Some(ordinal), Some(nonce)) => Some(EventId { run: RunKey(run), ordinal, nonce }),
                    _ => None,
                },
                payload: r.payload,
            };
            (r.run_id, event)
        })
        .collect())
}

/// What a run waits for, as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitView {
    /// The run.
    pub run_id: String,
    /// Its workflow.
    pub workflow: String,
    /// The number of the wait: of a question, what an answer may name.
    pub question: Ordinal,
    /// What kind of thing it waits for.
    pub kind: WaitKind,
    /// How far that is.
    pub status: WaitStatus,
    /// For how long it has been waiting, in milliseconds by the database's clock.
    pub age_ms: i64,
    /// In how many milliseconds it is over without an answer, if ever.
    pub due_in_ms: Option<i64>,
    /// Whom it waits for: a provider's name, or the words that people or services are asked with.
    pub asks: Option<String>,
}

/// What these runs wait for, in their order from the newest.
pub(super) async fn waits(pool: &PgPool, runs: &[i64]) -> Result<Vec<WaitView>, StoreError> {
    let rows = sqlx::query!(
        r#"
with ms as (select longhaul.now() as now)
select r.run_id, v.name, w.ordinal, w.kind, w.status, w.provider,
    (extract(epoch from ms.now - w.opened_at) * 1000)::bigint as "age_ms!",
    (extract(epoch from w.due_at - ms.now) * 1000)::bigint as due_in_ms,
    case when w.kind in (3, 4) then q.body::text end as asked
from longhaul.runs r cross join ms
join longhaul.workflow_versions v on v.id = r.workflow
join longhaul.waits w on w.run = r.id and w.ordinal = r.wait
left join longhaul.requests q on q.run = r.id and q.ordinal = r.wait
where r.id = any($1) and r.status = 3 order by r.id desc
"#,
        runs
    )
    .fetch_all(pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| WaitView {
            run_id: r.run_id,
            workflow: r.name,
            question: r.ordinal,
            kind: WaitKind::decode(r.kind),
            status: WaitStatus::decode(r.status),
            age_ms: r.age_ms,
            due_in_ms: r.due_in_ms,
            asks: r.provider.or_else(|| r.asked.as_deref().and_then(|asked| super::explain::text(asked, "prompt"))),
        })
        .collect())
}
