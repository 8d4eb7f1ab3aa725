//! Claiming runs by demand: what is due, workflow by workflow in turn, cut by count and bytes. The claim writes the first
//! `step.started`, and `model.applied` where an answer is taken up.

use super::connect::{Database, within};
use super::error::StoreError;
use crate::domain::{Fence, Frame, JsonText, NodeId, Ordinal, RunKey, WaitKind};
use crate::store::codec::Code;
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgPool};

/// Where in the queue of one workflow to begin: everything up to there was claimed a moment ago.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Floor {
    /// The workflow's key.
    pub workflow: i32,
    ready_at: DateTime<Utc>,
    run: i64,
}

impl Floor {
    /// The head of the queue.
    pub(crate) fn head(workflow: i32) -> Self {
        Self { workflow, ready_at: DateTime::<Utc>::MIN_UTC, run: 0 }
    }

    /// The later of two floors of one queue.
    pub(crate) fn max(self, other: Self) -> Self {
        if (self.ready_at, self.run) >= (other.ready_at, other.run) { self } else { other }
    }
}

/// A run that was claimed, as the database holds it.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub run: RunKey,
    /// The run that waits for it, if it is a branch.
    pub parent: Option<RunKey>,
    pub run_id: String,
    pub workflow: i32,
    pub fence: Fence,
    /// The cursor after the claim's own events.
    pub cursor: Ordinal,
    pub step: String,
    pub arg: Option<JsonText>,
    pub stack: Vec<Frame>,
    pub state: Option<JsonText>,
    pub starts: u32,
    pub errors: u32,
    pub input: JsonText,
    /// The answer that the step takes.
    pub answer: Option<Answer>,
    /// What was asked, for the engine's own steps and for joins.
    pub asked: Option<JsonText>,
    /// The wait whose answer the step takes, if it takes one.
    pub wait: Option<(Ordinal, WaitKind)>,
    /// Whether its workflow has a ceiling: its end makes room for another.
    pub limited: bool,
    /// The queue's floor after this row.
    pub floor: Floor,
}

/// An answer as it is stored.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A provider's name, and its line.
    Line(String, Vec<u8>),
    /// What somebody else said.
    Body(JsonText),
}

/// How much a claim may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    /// Runs at most.
    pub runs: i64,
    /// Bytes of input and state at most; the first run is taken whatever its size.
    pub bytes: i64,
}

/// Claims for a living node. A row that does not read back is parked, with the reason, and holds up no neighbour.
pub(super) async fn claim(
    conn: &mut PgConnection,
    node: NodeId,
    floors: &[Floor],
    demand: Demand,
) -> Result<Vec<Claimed>, StoreError> {
    let workflow: Vec<i32> = floors.iter().map(|f| f.workflow).collect();
    let since: Vec<Option<DateTime<Utc>>> =
        floors.iter().map(|f| (f.ready_at != DateTime::<Utc>::MIN_UTC).then_some(f.ready_at)).collect();
    let since_run: Vec<i64> = floors.iter().map(|f| f.run).collect();
    let rows = sqlx::query!(
        r#"
-- What operators have said of each. `room` locks the row of a ceiling until this is committed; in the order of names.
with floor as materialized (
    select f.workflow, f.ready_at, f.run, c.name as control, c.max_running is not null as limited, case
        when c.paused_at is not null then 0
        when c.max_running is null then $5
        else least($5, longhaul.room(c.name))
    end as room
    from unnest($2::int[], $3::timestamptz[], $4::bigint[]) as f (workflow, ready_at, run)
    join longhaul.workflow_versions v on v.id = f.workflow
    left join longhaul.workflow_controls c on c.name = v.name
    order by c.name
),
pick as materialized (
    select p.*, f.control, f.room, f.limited from floor f
    cross join lateral (
        select r.id, r.wait, r.workflow, r.ready_at, r.input_bytes + r.state_bytes + case when r.wait is null then 0 else
            coalesce((select w.bytes from longhaul.waits w where w.run = r.id and w.ordinal = r.wait), 0) end as bytes
        from longhaul.runs r
        where r.workflow = f.workflow and r.ready_at is not null and r.ready_at <= longhaul.now()
            and (r.ready_at, r.id) > (coalesce(f.ready_at, '-infinity'), f.run)
        order by r.workflow, r.ready_at, r.id limit f.room for update skip locked
    ) p
    -- A node that was declared dead claims nothing.
    where exists (select from longhaul.nodes n where n.id = $1 and n.dead_at is null)
),
-- One of each workflow in turn.
turn as (
    select id, wait, ready_at, bytes, row_number() over (partition by workflow order by ready_at, id) as turn, workflow,
        limited, room, row_number() over (partition by control order by ready_at, id) as nth
    from pick
),
chosen as materialized (
    select id, wait, ready_at, limited from (
        select id, wait, ready_at, limited, row_number() over (order by turn, workflow) as place,
            sum(bytes) over (order by turn, workflow) as total
        -- Versions of one workflow share its room.
        from turn where not limited or nth <= room
    ) t
    where place <= $5 and (place = 1 or total <= $6)
    order by id
),
applied as (
    update longhaul.waits w set status = 5
    from chosen c where w.run = c.id and w.ordinal = c.wait and w.status = 4
    returning w.run, w.ordinal, w.kind
),
claimed as (
    update longhaul.runs r set
        status = 2, owner = $1, fence = r.fence + 1, ready_at = null, starts = r.starts + 1,
        -- That a model's answer is taken up is told; of others, their answer was.
        cursor = r.cursor + 1 + coalesce(a.kind = 1, false)::int
    from chosen c left join applied a on a.run = c.id
    where r.id = c.id
    returning r.id, r.fence, r.cursor, r.workflow, r.run_id, r.step, r.arg, r.stack, r.state, r.starts, r.errors, r.wait, r.input_of, r.parent,
        c.ready_at, c.limited, case when a.kind = 1 then a.ordinal end as applied
),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, cursor - 2, longhaul.nonce(), 33, json_build_object('wait', applied) from claimed where applied is not null
    union all
    select id, cursor - 1, longhaul.nonce(), 20, json_build_object('step', step, 'attempt', errors + starts) from claimed
)
select c.id as "id!", c.fence as "fence!", c.cursor as "cursor!", c.workflow as "workflow!", c.run_id as "run_id!",
    c.step as "step!", c.arg::text as arg, c.stack::text as stack, c.state::text as state, c.starts as "starts!",
    c.errors as "errors!", c.parent, i.body::text as "input?", b.line as "line?", w.provider as "provider?", a.body::text as "answer?", c.wait,
    q.body::text as "asked?", w.kind as "kind?", c.ready_at as "ready_at!", c.limited as "limited!"
from claimed c
    left join longhaul.inputs i on i.run = coalesce(c.input_of, c.id)
    left join longhaul.waits w on w.run = c.id and w.ordinal = c.wait
    left join longhaul.batch_items b on b.batch = w.batch and b.item = w.item and b.status = 3
    left join longhaul.answers a on a.run = c.id and a.ordinal = c.wait
    left join longhaul.requests q on q.run = c.id and q.ordinal = c.wait and (c.step like '~%' or w.kind = 5)
"#,
        node.0,
        &workflow,
        &since as _,
        &since_run,
        demand.runs,
        demand.bytes as _,
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut claimed = Vec::with_capacity(rows.len());
    let mut unreadable = Vec::new();
    for row in rows {
        let stack = row.stack.as_deref().map_or(Ok(Vec::new()), serde_json::from_str::<Vec<Frame>>);
        let (Some(input), Ok(stack)) = (row.input, stack) else {
            unreadable.push((row.id, row.fence));
            continue;
        };
        // It waited for something that this statement's snapshot does not show yet: not held, so released before long.
        // The line of the item that the wait was answered by; what came for it besides is not what its step takes.
        let answer = match (row.answer, row.provider.zip(row.line)) {
            (_, Some((provider, line))) => Some(Answer::Line(provider, line)),
            (Some(body), None) => Some(Answer::Body(JsonText::stored(body))),
            (None, None) => None,
        };
        if row.wait.is_some() && answer.is_none() {
            tracing::warn!(run = row.id, "a run was claimed without the answer that it waited for");
            continue;
        }
        claimed.push(Claimed {
            run: RunKey(row.id),
            parent: row.parent.map(RunKey),
            run_id: row.run_id,
            workflow: row.workflow,
            fence: Fence(row.fence),
            cursor: row.cursor,
            step: row.step,
            arg: row.arg.map(JsonText::stored),
            stack,
            state: row.state.map(JsonText::stored),
            starts: row.starts.max(0) as u32,
            errors: row.errors.max(0) as u32,
            input: JsonText::stored(input),
            answer,
            asked: row.asked.map(JsonText::stored),
            wait: row.wait.zip(row.kind.map(WaitKind::decode)),
            limited: row.limited,
            floor: Floor { workflow: row.workflow, ready_at: row.ready_at, run: row.id },
        });
    }
    if !unreadable.is_empty() {
        park_unreadable(conn, &unreadable).await?;
    }
    Ok(claimed)
}

/// Parks claimed runs whose rows do not read back.
async fn park_unreadable(conn: &mut PgConnection, held: &[(i64, i64)]) -> Result<(), StoreError> {
    let (run, fence): (Vec<i64>, Vec<i64>) = held.iter().copied().unzip();
    tracing::error!(runs = ?run, "the stored input or stack of runs cannot be read: they are parked");
    sqlx::query!(
        r#"
with held as materialized (
    select r.id from unnest($1::bigint[], $2::bigint[]) as h (run, fence)
    join longhaul.runs r on r.id = h.run and r.fence = h.fence and r.status = 2
    order by r.id for update of r
),
parked as (
    update longhaul.runs r set status = 4, owner = null, fence = r.fence + 1, cursor = r.cursor + 1,
        reason = 'its stored input or stack cannot be read'
    from held h where r.id = h.id
    returning r.id, r.cursor, r.step
)
insert into longhaul.events (run, ordinal, nonce, type, payload)
select id, cursor - 1, longhaul.nonce(), 5, json_build_object('step', step, 'code', 'unreadable') from parked
"#,
        &run,
        &fence
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Releases the rows that carry this node's id and a fence that no live task of it holds. Answers how many.
pub(super) async fn release_unheld(
    conn: &mut PgConnection,
    node: NodeId,
    held: &[(RunKey, Fence)],
) -> Result<u64, StoreError> {
    let run: Vec<i64> = held.iter().map(|h| h.0.0).collect();
    let fence: Vec<i64> = held.iter().map(|h| h.1.0).collect();
    let done = sqlx::query!(
        r#"
with mine as materialized (
    select r.id from longhaul.runs r
    where r.owner = $1
        and not exists (
            select from unnest($2::bigint[], $3::bigint[]) as h (run, fence) where h.run = r.id and h.fence = r.fence
        )
    order by r.id for update
)
-- The process is alive: these starts are not ones that took it down.
update longhaul.runs r set status = 1, owner = null, fence = r.fence + 1, ready_at = longhaul.now(),
    starts = greatest(r.starts - 1, 0)
from mine m where r.id = m.id
"#,
        node.0,
        &run,
        &fence
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Takes back a start whose user code never began (no slot for it was free): the run is runnable again after the delay, and
/// the start is not counted. `false`: the run is not held under that fence any more.
pub(super) async fn hand_back(pool: &PgPool, run: RunKey, fence: Fence, delay_ms: i64) -> Result<bool, StoreError> {
    let done = sqlx::query!(
        "update longhaul.runs set status = 1, owner = null, fence = fence + 1, starts = greatest(starts - 1, 0),
             ready_at = longhaul.now() + $3::bigint * interval '1 millisecond'
         where id = $1 and fence = $2 and status = 2",
        run.0,
        fence.0,
        delay_ms
    )
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The connection that claims and releases runs.
pub(crate) struct Claimer {
    database: Database,
    node: NodeId,
    conn: Option<PgConnection>,
}

impl Claimer {
    pub(crate) fn new(database: Database, node: NodeId) -> Self {
        Self { database, node, conn: None }
    }

    /// Claims what is due. After an error the answer may have been lost: what the node does not hold has to be released.
    pub(crate) async fn claim(&mut self, floors: &[Floor], demand: Demand) -> Result<Vec<Claimed>, StoreError> {
        let node = self.node;
        self.with(async |conn| claim(conn, node, floors, demand).await).await
    }

    /// Releases what carries this node's id and is not among `held`.
    pub(crate) async fn release_unheld(&mut self, held: &[(RunKey, Fence)]) -> Result<u64, StoreError> {
        let node = self.node;
        self.with(async |conn| release_unheld(conn, node, held).await).await
    }

    async fn with<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        // Taken out while in use: a future that is dropped, or a deadline that passes, leaves no connection in doubt.
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.database.connect_hot().await?.0,
        };
        let result = within(work(&mut conn)).await;
        if !matches!(&result, Err(error) if error.is_connection()) {
            self.conn = Some(conn);
        }
        result
    }
}
