//! Taking over runs of older versions: the held run becomes one of another version, in one statement.

use super::error::StoreError;
use crate::domain::{Fence, JsonText, Ordinal, Position, RunKey};
use sqlx::PgPool;

/// A held run that becomes one of another version.
#[derive(Debug)]
pub(crate) struct Upgrade<'a> {
    pub run: RunKey,
    pub fence: Fence,
    pub cursor: Ordinal,
    /// The key of the version that it becomes one of, and both numbers for the ledger.
    pub workflow: i32,
    pub from: u32,
    pub to: u32,
    pub was: &'a str,
    pub position: &'a Position,
    pub state: Option<&'a JsonText>,
}

/// Events that an upgrade writes: `run.upgraded`, and the start of the step under the name that it has now.
pub(crate) const EVENTS: Ordinal = 2;

/// Writes an upgrade. `false`: the run is not held under that fence and cursor any more, and nothing was written.
pub(super) async fn upgrade(pool: &PgPool, to: Upgrade<'_>) -> Result<bool, StoreError> {
    let stack = match to.position.stack.as_slice() {
        [] => None,
        frames => Some(serde_json::to_string(frames).map_err(|e| StoreError::Corrupt(e.to_string()))?),
    };
    let told = serde_json::json!({"from": to.from, "to": to.to, "was": to.was, "step": to.position.step}).to_string();
    let moved = sqlx::query_scalar!(
        r#"
with moved as (
    update longhaul.runs r set workflow = $4, step = $5, arg = $6::text::json, stack = $7::text::json,
        state = $8::text::json, state_bytes = coalesce(octet_length($8::text), 0), cursor = r.cursor + 2
    where r.id = $1 and r.fence = $2 and r.cursor = $3 and r.status = 2
    returning r.id, r.cursor, r.step, r.errors + r.starts as attempt
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 2, longhaul.nonce(), 10, $9::text::json from moved
    union all
    select id, cursor - 1, longhaul.nonce(), 20, json_build_object('step', step, 'attempt', attempt) from moved
)
select count(*) as "count!" from moved
"#,
        to.run.0,
        to.fence.0,
        to.cursor,
        to.workflow,
        to.position.step,
        to.position.arg.as_ref().map(JsonText::as_str),
        stack,
        to.state.map(JsonText::as_str),
        told
    )
    .fetch_one(pool)
    .await?;
    Ok(moved == 1)
}
