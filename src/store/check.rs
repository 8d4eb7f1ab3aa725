//! Runs in flight with everything that is stored of them, for a check of whether they could go on: page by page in the order of
//! keys, each page bounded by count and bytes. Nothing is written.

use super::error::StoreError;
use crate::domain::{Frame, JsonText, Position, WaitKind};
use crate::store::codec::Code;
use sqlx::PgPool;

/// A page ends before a run with which its inputs and states would have more bytes than this.
const PAGE_BYTES: i64 = 16 << 20;

/// A run in flight.
#[derive(Debug)]
pub(crate) struct Flying {
    pub run_id: String,
    pub workflow: String,
    pub version: u32,
    /// `None`: what is stored of it does not read back.
    pub stored: Option<Stored>,
    pub step: String,
}

/// What is stored of it.
#[derive(Debug)]
pub(crate) struct Stored {
    pub position: Position,
    pub state: Option<JsonText>,
    pub input: JsonText,
    /// What it waits for, or has waited for if its step has still to take the answer.
    pub wait: Option<WaitKind>,
    /// The answer, if it is known: there already, or agreed on for when nobody answers. Answers of models are not read.
    pub answer: Option<JsonText>,
}

/// A page of runs.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Those of them that are in flight.
    pub runs: Vec<Flying>,
    /// The key to go on after; `None`: there is nothing more.
    pub last: Option<i64>,
}

/// The runs in flight among the next `limit` runs after a key.
pub(super) async fn in_flight(pool: &PgPool, after: i64, limit: i64) -> Result<Page, StoreError> {
    let rows = sqlx::query!(
        r#"
with page as materialized (
    select id, status, input_bytes, state_bytes from longhaul.runs where id > $1 order by id limit $2
),
cut as (
    select id, row_number() over (order by id) as place,
        sum(case when status in (1, 2, 3, 4) then input_bytes::bigint + state_bytes else 0 end) over (order by id) as total
    from page
)
select c.id as "id!", r.run_id as "run_id?", v.name as "workflow?", v.version as "version?", r.step as "step?",
    r.arg::text as arg, r.stack::text as stack, r.state::text as state, i.body::text as "input?", w.kind as "kind?",
    coalesce(a.body, case when w.status = 1 then q.otherwise end)::text as answer
from cut c
left join longhaul.runs r on r.id = c.id and r.status in (1, 2, 3, 4)
left join longhaul.workflow_versions v on v.id = r.workflow
left join longhaul.inputs i on i.run = coalesce(r.input_of, r.id)
left join longhaul.waits w on w.run = r.id and w.ordinal = r.wait
left join longhaul.answers a on a.run = r.id and a.ordinal = r.wait
left join longhaul.requests q on q.run = r.id and q.ordinal = r.wait and q.otherwise is not null
where c.place = 1 or c.total <= $3
order by c.id
"#,
        after,
        limit,
        PAGE_BYTES as _
    )
    .fetch_all(pool)
    .await?;
    let last = rows.last().map(|row| row.id);
    let runs = rows.into_iter().filter_map(|row| {
        let (run_id, workflow) = row.run_id.zip(row.workflow)?;
        let step = row.step.unwrap_or_default();
        let stack = row.stack.as_deref().map_or(Ok(Vec::new()), serde_json::from_str::<Vec<Frame>>);
        let stored = row.input.zip(stack.ok()).map(|(input, stack)| Stored {
            position: Position { step: step.clone(), arg: row.arg.map(JsonText::stored), stack },
            state: row.state.map(JsonText::stored),
            input: JsonText::stored(input),
            wait: row.kind.map(WaitKind::decode),
            answer: row.answer.map(JsonText::stored),
        });
        Some(Flying { run_id, workflow, version: row.version.unwrap_or(0).max(0) as u32, stored, step })
    });
    Ok(Page { runs: runs.collect(), last })
}
