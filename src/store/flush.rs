//! The group commit's statement: N owned transitions of N runs, each compared and set by fence and cursor.
//!
//! One CTE joins the items to their rows by id, checks and locks them in id order and carries the items along; everything
//! else reads that CTE, so a transition is in as a whole or not at all, and no row is written twice.

use super::codec::Code;
use super::error::StoreError;
use crate::domain::event::Cause;
use crate::domain::{Change, Due, JoinRule, NewEvent, Position, RunStatus, Transition, WaitKind, WhenLost};
use sqlx::PgConnection;
use sqlx::types::chrono::{DateTime, Utc};
use std::borrow::Cow;
use std::time::Duration;

/// The longest that a run can be put off: a hundred years. What is longer is meant as "never", and must not overflow.
const LONGEST_DELAY_MS: i64 = 100 * 366 * 24 * 3_600_000;

fn millis(delay: Duration) -> i64 {
    i64::try_from(delay.as_millis()).map_or(LONGEST_DELAY_MS, |ms| ms.min(LONGEST_DELAY_MS))
}

/// The columns of a flush: one entry per transition, in the order of run keys.
#[derive(Default)]
struct Columns<'a> {
    run: Vec<i64>,
    fence: Vec<i64>,
    cursor: Vec<i32>,
    status: Vec<i16>,
    events: Vec<i32>,
    step: Vec<Option<&'a str>>,
    arg: Vec<Option<&'a str>>,
    stack: Vec<Option<String>>,
    state: Vec<Option<&'a str>>,
    delay_ms: Vec<Option<i64>>,
    starts: Vec<i16>,
    errors: Vec<i16>,
    reason: Vec<Option<&'a str>>,
    body: Vec<Option<Cow<'a, str>>>,
    error: Vec<Option<String>>,
    provider: Vec<Option<&'a str>>,
    wait_kind: Vec<Option<i16>>,
    due_ms: Vec<Option<i64>>,
    due_at: Vec<Option<DateTime<Utc>>>,
    otherwise: Vec<Option<&'a str>>,
    park_lost: Vec<Option<bool>>,
    budget: Vec<Option<i16>>,
    backoff_ms: Vec<Option<i32>>,
    first: Slot<'a>,
    last: Slot<'a>,
    extra: Extras<'a>,
    kids: Kids<'a>,
}

/// The branches that these transitions open.
#[derive(Default)]
struct Kids<'a> {
    parent: Vec<i64>,
    branch: Vec<i32>,
    name: Vec<&'a str>,
    step: Vec<&'a str>,
    arg: Vec<Option<&'a str>>,
}

/// What is kept of a fork as its wait's request.
#[derive(serde::Serialize)]
struct Forked {
    #[serde(flatten)]
    rule: JoinRule,
    branches: usize,
}

/// One of the two events that nearly every transition has.
#[derive(Default)]
struct Slot<'a> {
    kind: Vec<Option<i16>>,
    nonce: Vec<Option<i64>>,
    payload: Vec<Option<&'a str>>,
}

/// The events before those two.
#[derive(Default)]
struct Extras<'a> {
    run: Vec<i64>,
    ordinal: Vec<i32>,
    nonce: Vec<i64>,
    kind: Vec<i16>,
    cause_run: Vec<Option<i64>>,
    cause_ordinal: Vec<Option<i32>>,
    cause_nonce: Vec<Option<i64>>,
    payload: Vec<&'a str>,
}

impl<'a> Slot<'a> {
    fn push(&mut self, event: Option<&'a NewEvent>) {
        self.kind.push(event.map(|e| e.kind.code()));
        self.nonce.push(event.map(|e| e.nonce));
        self.payload.push(event.map(|e| e.payload.as_str()));
    }
}

impl<'a> Columns<'a> {
    fn of(transitions: &'a [Transition]) -> Result<Self, StoreError> {
        let mut columns = Self::default();
        for transition in transitions {
            columns.push(transition)?;
        }
        Ok(columns)
    }

    fn push(&mut self, t: &'a Transition) -> Result<(), StoreError> {
        self.run.push(t.run.0);
        self.fence.push(t.fence.0);
        self.cursor.push(t.cursor);
        self.events.push(t.events.len() as i32);
        self.state.push(t.state.as_ref().map(|s| s.as_str()));
        self.push_events(t);
        self.push_kids(t);
        self.push_change(&t.change)
    }

    fn push_events(&mut self, t: &'a Transition) {
        let n = t.events.len();
        // An event with a cause of its own always travels among the extras, as do all before it.
        let plain = t.events.iter().rev().take_while(|e| e.cause == Cause::Previous).count();
        let slots = plain.min(2);
        self.last.push((slots >= 1).then(|| &t.events[n - 1]));
        self.first.push((slots >= 2).then(|| &t.events[n - 2]));
        for (k, event) in t.events[..n - slots].iter().enumerate() {
            let cause = match event.cause {
                Cause::Previous => None,
                Cause::Event(id) => Some(id),
            };
            self.extra.run.push(t.run.0);
            self.extra.ordinal.push(t.cursor + k as i32);
            self.extra.nonce.push(event.nonce);
            self.extra.kind.push(event.kind.code());
            self.extra.cause_run.push(cause.map(|c| c.run.0));
            self.extra.cause_ordinal.push(cause.map(|c| c.ordinal));
            self.extra.cause_nonce.push(cause.map(|c| c.nonce));
            self.extra.payload.push(event.payload.as_str());
        }
    }

    fn push_kids(&mut self, t: &'a Transition) {
        let Change::Fork { branches, .. } = &t.change else { return };
        for (k, branch) in branches.iter().enumerate() {
            self.kids.parent.push(t.run.0);
            self.kids.branch.push(k as i32);
            self.kids.name.push(&branch.name);
            self.kids.step.push(&branch.step);
            self.kids.arg.push(branch.arg.as_ref().map(|a| a.as_str()));
        }
    }

    fn push_change(&mut self, change: &'a Change) -> Result<(), StoreError> {
        let (mut status, mut position, mut delay, mut starts, mut errors) = (RunStatus::Owned, None, None, 0, 0);
        let (mut reason, mut body, mut error, mut wait) = (None, None, None, None);
        let mut fork = None;
        match change {
            Change::Continue(next) => (position, starts) = (Some(next), 1),
            Change::Release { position: next, delay: after, errors: failed } => {
                status = RunStatus::Runnable;
                delay = Some(millis(*after));
                errors = i16::try_from(*failed).unwrap_or(i16::MAX);
                // A failed attempt stays where it is: the stored argument and the answered wait serve again.
                position = (*failed == 0).then_some(next);
            }
            Change::Suspend { position: next, wait: new } => {
                status = RunStatus::Waiting;
                position = Some(next);
                wait = Some(new);
            }
            Change::Fork { position: next, rule, branches } => {
                (status, position) = (RunStatus::Waiting, Some(next));
                let asked = Forked { rule: *rule, branches: branches.len() };
                fork = Some(serde_json::to_string(&asked).map_err(|e| StoreError::Corrupt(e.to_string()))?);
            }
            Change::Complete(output) => (status, body) = (RunStatus::Completed, Some(output.as_str())),
            Change::Fail(failure) => {
                status = RunStatus::Failed;
                error = Some(serde_json::to_string(failure).map_err(|e| StoreError::Corrupt(e.to_string()))?);
            }
            Change::Park(why) => (status, reason) = (RunStatus::Parked, Some(why.as_str())),
        }
        self.status.push(status.code());
        self.delay_ms.push(delay);
        self.starts.push(starts);
        self.errors.push(errors);
        self.reason.push(reason);
        self.provider.push(wait.and_then(|w| w.provider.as_deref()));
        self.otherwise.push(wait.and_then(|w| w.otherwise.as_ref()).map(|o| o.as_str()));
        let retry = wait.and_then(|w| w.retry.as_deref());
        self.budget.push(retry.map(|r| i16::try_from(r.attempts.saturating_sub(1)).unwrap_or(i16::MAX)));
        self.backoff_ms.push(retry.map(|r| i32::try_from(r.backoff.as_millis()).unwrap_or(i32::MAX)));
        let live = wait.and_then(|w| w.live.as_deref());
        // Of a model's wait, this is its deadline.
        let (due_ms, due_at) = match wait.and_then(|w| w.due).or(live.map(|live| live.by)) {
            None => (None, None),
            Some(Due::After(delay)) => (Some(millis(delay)), None),
            Some(Due::At(at)) => (None, Some(at)),
        };
        self.park_lost.push(live.map(|live| live.when_lost == WhenLost::Park));
        self.due_ms.push(due_ms);
        self.due_at.push(due_at);
        self.wait_kind.push(wait.map(|w| w.kind).or(fork.as_ref().map(|_| WaitKind::Fork)).map(Code::code));
        let body = body.or(wait.map(|w| w.request.as_str())).map(Cow::Borrowed);
        self.body.push(body.or(fork.map(Cow::Owned)));
        self.error.push(error);
        self.push_position(position)
    }

    fn push_position(&mut self, position: Option<&'a Position>) -> Result<(), StoreError> {
        self.step.push(position.map(|p| p.step.as_str()));
        self.arg.push(position.and_then(|p| p.arg.as_ref()).map(|a| a.as_str()));
        let stack = match position {
            Some(p) if !p.stack.is_empty() => {
                Some(serde_json::to_string(&p.stack).map_err(|e| StoreError::Corrupt(e.to_string()))?)
            }
            _ => None,
        };
        self.stack.push(stack);
        Ok(())
    }
}

/// Writes transitions of different runs, sorted by run key, in one statement. Answers, for each, whether it is in.
pub(super) async fn flush(conn: &mut PgConnection, transitions: &[Transition]) -> Result<Vec<bool>, StoreError> {
    debug_assert!(transitions.is_sorted_by(|a, b| a.run < b.run), "one transition per run, in key order");
    let c = Columns::of(transitions)?;
    let written = sqlx::query_scalar!(
        r#"
with item as materialized (
    select * from unnest(
        $1::bigint[], $2::bigint[], $3::int[], $4::smallint[], $5::int[], $6::text[], $7::text[], $8::text[],
        $9::text[], $10::bigint[], $11::smallint[], $12::smallint[], $13::text[], $14::text[], $15::text[],
        $16::text[], $17::smallint[], $18::smallint[], $19::bigint[], $20::text[], $21::smallint[], $22::bigint[],
        $23::text[], $32::bigint[], $33::timestamptz[], $34::text[], $40::smallint[], $41::int[], $42::bool[]
    ) as i (run, fence, cursor, status, events, step, arg, stack, state, delay_ms, starts, errors, reason, body, error,
            provider, wait_kind, first_type, first_nonce, first_payload, last_type, last_nonce, last_payload, due_ms,
            due_at, otherwise, budget, backoff_ms, park_lost)
    order by run
),
-- Fence and cursor are checked again on the newest version of the row, once its lock is held.
locked as materialized (
    select i.* from item i cross join lateral (
        select from longhaul.runs r where r.id = i.run and r.fence = i.fence and r.cursor = i.cursor
            and r.status = 2 for update
    ) r
),
moved as (
    update longhaul.runs r set
        cursor = r.cursor + l.events,
        status = l.status,
        owner = case when l.status = 2 then r.owner end,
        ready_at = case when l.status = 1 then longhaul.now() + l.delay_ms * interval '1 millisecond' end,
        finished_at = case when l.status in (5, 6, 7) then longhaul.now() end,
        step = coalesce(l.step, r.step),
        arg = case when l.step is null then r.arg else l.arg::json end,
        stack = case when l.step is null then r.stack else l.stack::json end,
        -- An answered wait is kept until a step has taken its answer.
        wait = case when l.status = 3 then l.cursor + l.events - 1 when l.step is null then r.wait end,
        state = case when l.state is null then r.state else l.state::json end,
        state_bytes = case when l.state is null then r.state_bytes else octet_length(l.state) end,
        starts = l.starts,
        errors = l.errors,
        reason = l.reason
    from locked l where r.id = l.run
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select run, cursor + events - 2, first_nonce, first_type, first_payload::json from locked where first_type is not null
    union all
    select run, cursor + events - 1, last_nonce, last_type, last_payload::json from locked where last_type is not null
),
told_before as (
    insert into longhaul.events (run, ordinal, nonce, type, cause_run, cause_ordinal, cause_nonce, payload)
    select x.run, x.ordinal, x.nonce, x.type, x.cause_run, x.cause_ordinal, x.cause_nonce, x.payload::json
    from unnest($24::bigint[], $25::int[], $26::bigint[], $27::smallint[], $28::bigint[], $29::int[], $30::bigint[],
        $31::text[]) as x (run, ordinal, nonce, type, cause_run, cause_ordinal, cause_nonce, payload)
    where x.run in (select run from locked)
),
asked as (
    insert into longhaul.waits
        (run, ordinal, kind, status, provider, queued_at, bytes, due_at, deadline_at, budget, backoff_ms, park_lost)
    select run, cursor + events - 1, wait_kind, 1, provider, longhaul.now(), octet_length(body),
        case when wait_kind <> 1 then coalesce(due_at, longhaul.now() + due_ms * interval '1 millisecond') end,
        case when wait_kind = 1 then coalesce(due_at, longhaul.now() + due_ms * interval '1 millisecond') end,
        budget, backoff_ms, park_lost
    from locked where wait_kind is not null
),
requested as (
    insert into longhaul.requests (run, ordinal, body, otherwise)
    select run, cursor + events - 1, body::json, otherwise::json from locked where wait_kind is not null
),
kid as materialized (
    select x.*, l.cursor + l.events - 1 as ordinal, l.state as new_state, l.last_nonce,
        nextval('longhaul.runs_id_seq') as id
    from unnest($35::bigint[], $36::int[], $37::text[], $38::text[], $39::text[]) as x (parent, branch, name, step, arg)
    join locked l on l.run = x.parent
),
-- A branch has its parent's input and a copy of its state.
born as (
    insert into longhaul.runs (id, run_id, workflow, status, ready_at, cursor, input_bytes, state_bytes, step, arg, state,
        input_of, root, parent)
    select k.id, '~' || k.parent || '.' || k.ordinal || '.' || k.branch, r.workflow, 1, longhaul.now(), 1, r.input_bytes,
        coalesce(octet_length(k.new_state), r.state_bytes), k.step, k.arg::json, coalesce(k.new_state::json, r.state),
        coalesce(r.input_of, r.id), coalesce(r.root, r.id), r.id
    from kid k join longhaul.runs r on r.id = k.parent
),
placed as (
    insert into longhaul.fork_branches (run, ordinal, branch, child, name)
    select parent, ordinal, branch, id, name from kid
),
told_kids as (
    insert into longhaul.events (run, ordinal, nonce, type, cause_run, cause_ordinal, cause_nonce, payload)
    select id, 0, longhaul.nonce(), 1, parent, ordinal, last_nonce,
        json_build_object('parent', parent, 'fork', ordinal, 'branch', branch)
    from kid
),
ended as (
    insert into longhaul.outputs (run, body, error)
    select run, body::json, error::json from locked where status in (5, 6)
    on conflict (run) do update set body = excluded.body, error = excluded.error, finished_in = excluded.finished_in
)
select run as "run!" from locked
"#,
        &c.run,
        &c.fence,
        &c.cursor,
        &c.status,
        &c.events,
        &c.step as _,
        &c.arg as _,
        &c.stack as _,
        &c.state as _,
        &c.delay_ms as _,
        &c.starts,
        &c.errors,
        &c.reason as _,
        &c.body as _,
        &c.error as _,
        &c.provider as _,
        &c.wait_kind as _,
        &c.first.kind as _,
        &c.first.nonce as _,
        &c.first.payload as _,
        &c.last.kind as _,
        &c.last.nonce as _,
        &c.last.payload as _,
        &c.extra.run,
        &c.extra.ordinal,
        &c.extra.nonce,
        &c.extra.kind,
        &c.extra.cause_run as _,
        &c.extra.cause_ordinal as _,
        &c.extra.cause_nonce as _,
        &c.extra.payload as _,
        &c.due_ms as _,
        &c.due_at as _,
        &c.otherwise as _,
        &c.kids.parent,
        &c.kids.branch,
        &c.kids.name as _,
        &c.kids.step as _,
        &c.kids.arg as _,
        &c.budget as _,
        &c.backoff_ms as _,
        &c.park_lost as _,
    )
    .fetch_all(conn)
    .await?;
    let written: std::collections::HashSet<i64> = written.into_iter().collect();
    Ok(transitions.iter().map(|t| written.contains(&t.run.0)).collect())
}

/// Which transitions name a cause that is neither their own nor durable.
pub(super) async fn without_cause(
    conn: &mut PgConnection,
    transitions: &[Transition],
) -> Result<Vec<usize>, StoreError> {
    let (mut at, mut run, mut ordinal, mut nonce) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (k, t) in transitions.iter().enumerate() {
        for (place, event) in t.events.iter().enumerate() {
            let Cause::Event(id) = event.cause else { continue };
            let own = id.run == t.run
                && id.ordinal >= t.cursor
                && t.events[..place].get((id.ordinal - t.cursor) as usize).is_some_and(|e| e.nonce == id.nonce);
            if !own {
                at.push(k as i32);
                run.push(id.run.0);
                ordinal.push(id.ordinal);
                nonce.push(id.nonce);
            }
        }
    }
    if at.is_empty() {
        return Ok(Vec::new());
    }
    let missing = sqlx::query_scalar!(
        r#"
select distinct c.at as "at!" from unnest($1::int[], $2::bigint[], $3::int[], $4::bigint[]) as c (at, run, ordinal, nonce)
where not exists (
    select from longhaul.events e where e.run = c.run and e.ordinal = c.ordinal and e.nonce = c.nonce
)
"#,
        &at,
        &run,
        &ordinal,
        &nonce
    )
    .fetch_all(conn)
    .await?;
    Ok(missing.into_iter().map(|k| k as usize).collect())
}

/// The events that this version's flush may write with a slot; a guard for the codes used in SQL text.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::EventType;

    #[test]
    fn the_codes_in_the_statements_are_the_codecs() {
        assert_eq!(
            [RunStatus::Runnable, RunStatus::Owned, RunStatus::Waiting].map(Code::code),
            [1, 2, 3],
            "flush and claim name these numbers"
        );
        assert_eq!([RunStatus::Completed, RunStatus::Failed, RunStatus::Canceled].map(Code::code), [5, 6, 7]);
        assert_eq!(WaitKind::Model.code(), 1);
        assert_eq!(EventType::RunEnqueued.code(), 1);
    }
}
