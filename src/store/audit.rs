//! What an audit reads: page by page in the order of keys, several statements in one snapshot, nothing ever written.
//!
//! A page is a range of keys, so that rows whose run or batch does not exist show up in it as well. Every statement is a
//! look-up or a range of an index and at most some thousand rows long, whatever the size of the tables. Deliberately absent:
//! judgement (that is `crate::audit`), and bodies.

use super::connect::{Database, within};
use super::error::StoreError;
use sqlx::postgres::Postgres;
use sqlx::types::Uuid;
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{Connection, PgConnection, Transaction};

type Result<T> = std::result::Result<T, StoreError>;

/// A range of keys: those above `after`, up to and with `through`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub after: i64,
    pub through: i64,
}

/// A place in a table whose key has two columns.
pub(crate) type Place = (i64, i32);

/// A run.
#[derive(Debug)]
pub(crate) struct RunRow {
    pub id: i64,
    pub status: i16,
    pub cursor: i32,
    pub wait: Option<i32>,
    pub step: String,
    pub ready: bool,
    pub has_reason: bool,
    pub owner: Option<Uuid>,
    pub owner_known: bool,
    pub owner_dead_ms: Option<i64>,
    /// Its records were removed: nothing but the row is there.
    pub removed: bool,
    pub has_input: bool,
    pub has_output: bool,
    pub has_error: bool,
}

/// An event, without its payload.
#[derive(Debug)]
pub(crate) struct EventRow {
    pub run: i64,
    pub ordinal: i32,
    pub kind: i16,
    pub at: DateTime<Utc>,
    /// The step that it started or completed.
    pub step: Option<String>,
    pub cause_run: Option<i64>,
    pub cause_ordinal: Option<i32>,
    pub cause_nonce: Option<i64>,
}

/// What stands where a cause points.
#[derive(Debug)]
pub(crate) struct CauseRow {
    /// Which of those asked for.
    pub place: i32,
    /// `None`: the records of that run were removed.
    pub nonce: Option<i64>,
    pub at: Option<DateTime<Utc>>,
}

/// A wait, with the item that carries its latest attempt.
#[derive(Debug)]
pub(crate) struct WaitRow {
    pub run: i64,
    pub ordinal: i32,
    pub kind: i16,
    pub status: i16,
    pub queued: bool,
    pub batch: Option<i64>,
    pub item: Option<i32>,
    pub batch_status: Option<i16>,
    /// The status of its item, or of its live call, if that exists and is of this wait.
    pub item_status: Option<i16>,
    /// That is a live call.
    pub live: bool,
    pub has_request: bool,
    /// The type of the event at its ordinal.
    pub opened_by: Option<i16>,
}

/// A batch.
#[derive(Debug)]
pub(crate) struct BatchRow {
    pub id: i64,
    pub status: i16,
    pub intent: Uuid,
    /// How many items it should have: those it had, without the removed ones.
    pub n: i32,
    /// Whether some were removed.
    pub thinned: bool,
    pub lease: i64,
    pub due: bool,
    pub account_fence: Option<i64>,
    pub owner: Option<Uuid>,
    pub owner_known: bool,
    pub owner_dead_ms: Option<i64>,
}

/// An item.
#[derive(Debug)]
pub(crate) struct ItemRow {
    pub batch: i64,
    pub item: i32,
    pub run: i64,
    pub wait: i32,
    pub status: i16,
    pub has_line: bool,
    pub settled: bool,
    pub input_tokens: Option<i64>,
    pub output_tokens: Option<i64>,
    pub nano_usd: Option<i64>,
    /// The status of its wait, if that points back at it.
    pub pointed_by: Option<i16>,
}

/// An account.
#[derive(Debug)]
pub(crate) struct AccountRow {
    pub id: i32,
    pub owner: Option<Uuid>,
    pub owner_known: bool,
    pub owner_dead_ms: Option<i64>,
}

/// A connection that an audit reads on.
pub(crate) struct Reader(PgConnection);

impl Reader {
    pub(crate) async fn connect(database: &Database) -> Result<Self> {
        Ok(Self(database.connect_hot().await?.0))
    }

    /// A moment in time that several statements look at together.
    pub(crate) async fn snapshot(&mut self) -> Result<Snapshot<'_>> {
        let begin = self.0.begin_with("begin isolation level repeatable read read only");
        within(async { Ok(Snapshot(begin.await?)) }).await
    }

    pub(crate) async fn close(self) {
        // Nothing depends on a good-bye.
        let _ = self.0.close().await;
    }
}

/// A moment in time. Dropping it is enough.
pub(crate) struct Snapshot<'c>(Transaction<'c, Postgres>);

impl Snapshot<'_> {
    /// Ends it, so that the connection can take another.
    pub(crate) async fn end(self) -> Result<()> {
        within(async { Ok(self.0.rollback().await?) }).await
    }

    /// The next runs by key.
    pub(crate) async fn runs(&mut self, after: i64, limit: i64) -> Result<Vec<RunRow>> {
        let rows = sqlx::query_as!(
            RunRow,
            r#"
select r.id as "id!", r.status as "status!", r.cursor as "cursor!", r.wait as "wait?", r.step as "step!",
    r.ready_at is not null as "ready!", r.reason is not null as "has_reason!", r.owner as "owner?",
    n.id is not null as "owner_known!",
    (extract(epoch from longhaul.now() - n.dead_at) * 1000)::bigint as "owner_dead_ms?",
    r.removed_at is not null as "removed!", i.body is not null as "has_input!", o.body is not null as "has_output!", o.error is not null as "has_error!"
from (select * from longhaul.runs where id > $1 order by id limit $2) r
    left join longhaul.nodes n on n.id = r.owner
    left join longhaul.inputs i on i.run = coalesce(r.input_of, r.id)
    left join longhaul.outputs o on o.run = r.id
order by r.id
"#,
            after,
            limit
        );
        within(async { Ok(rows.fetch_all(&mut *self.0).await?) }).await
    }

    /// The next events in a range of runs.
    pub(crate) async fn events(&mut self, after: Place, through: i64, limit: i64) -> Result<Vec<EventRow>> {
        let rows = sqlx::query_as!(
            EventRow,
            r#"
select run, ordinal, type as kind, at, cause_run, cause_ordinal, cause_nonce,
    -- Payloads are looked into for the names of steps only.
    case when type in (20, 21) then payload ->> 'step' end as step
from longhaul.events where (run, ordinal) > ($1, $2) and run <= $3 order by run, ordinal limit $4
"#,
            after.0,
            after.1,
            through,
            limit
        );
        within(async { Ok(rows.fetch_all(&mut *self.0).await?) }).await
    }

    /// The events that these causes point at, as far as there are any.
    pub(crate) async fn causes(&mut self, run: &[i64], ordinal: &[i32]) -> Result<Vec<CauseRow>> {
        let place: Vec<i32> = (0..).take(run.len()).collect();
        let rows = sqlx::query_as!(
            CauseRow,
            r#"
select c.place as "place!", e.nonce as "nonce?", e.at as "at?"
from unnest($1::int[], $2::bigint[], $3::int[]) as c (place, run, ordinal)
left join longhaul.events e on e.run = c.run and e.ordinal = c.ordinal
left join longhaul.runs r on r.id = c.run
where e.run is not null or r.removed_at is not null
"#,
            &place,
            run,
            ordinal
        );
        within(async { Ok(rows.fetch_all(&mut *self.0).await?) }).await
    }

    /// The next waits in a range of runs.
    pub(crate) async fn waits(&mut self, after: Place, through: i64, limit: i64) -> Result<Vec<WaitRow>> {
        let rows = sqlx::query_as!(
            WaitRow,
            r#"
select w.run as "run!", w.ordinal as "ordinal!", w.kind as "kind!", w.status as "status!",
    w.queued_at is not null as "queued!", w.batch as "batch?", w.item as "item?", b.status as "batch_status?",
    coalesce(i.status, c.status) as "item_status?", c.run is not null as "live!", q.run is not null as "has_request!", e.type as "opened_by?"
from (
    select * from longhaul.waits where (run, ordinal) > ($1, $2) and run <= $3 order by run, ordinal limit $4
) w
    left join longhaul.batches b on b.id = w.batch
    left join longhaul.batch_items i on i.batch = w.batch and i.item = w.item and i.run = w.run and i.wait = w.ordinal
    -- The live call that answered it, or else its latest one.
    left join lateral (
        select c.run, c.status from longhaul.live_calls c where c.run = w.run and c.wait = w.ordinal and w.batch is null
        order by c.status = 3 desc, c.attempt desc limit 1
    ) c on true
    left join longhaul.requests q on q.run = w.run and q.ordinal = w.ordinal
    left join longhaul.events e on e.run = w.run and e.ordinal = w.ordinal
order by w.run, w.ordinal
"#,
            after.0,
            after.1,
            through,
            limit
        );
        within(async { Ok(rows.fetch_all(&mut *self.0).await?) }).await
    }

    /// Waits of a range of runs that more than one item answered: `(run, ordinal, how many)`.
    pub(crate) async fn answered_twice(&mut self, range: Range) -> Result<Vec<(i64, i32, i64)>> {
        let rows = sqlx::query!(
            r#"
select run as "run!", wait as "wait!", count(*) as "n!" from (
    select run, wait from longhaul.batch_items where run > $1 and run <= $2 and status = 3
    union all
    select run, wait from longhaul.live_calls where run > $1 and run <= $2 and status = 3
) as answered
group by run, wait having count(*) > 1 order by run, wait
"#,
            range.after,
            range.through
        );
        let rows = within(async { Ok(rows.fetch_all(&mut *self.0).await?) }).await?;
        Ok(rows.into_iter().map(|r| (r.run, r.wait, r.n)).collect())
    }

    /// Forks in a range of runs whose branches are not what they should be.
    pub(crate) async fn joins(&mut self, range: Range) -> Result<Vec<(i64, String)>> {
        let rows = sqlx::query!(
            r#"
select f.run as "run!", 'has a branch that is no run of its own' as "what!"
from longhaul.fork_branches f left join longhaul.runs c on c.id = f.child
where f.run > $1 and f.run <= $2 and (c.id is null or c.parent is distinct from f.run)
union all
select r.id, 'is a branch of a run that does not know it' from longhaul.runs r
where r.id > $1 and r.id <= $2 and r.parent is not null and not exists (
    select from longhaul.fork_branches f where f.child = r.id and f.run = r.parent
)
union all
select w.run, 'has not the branches that it opened' from longhaul.waits w
join longhaul.requests q on q.run = w.run and q.ordinal = w.ordinal
where w.run > $1 and w.run <= $2 and w.kind = 5 and (q.body ->> 'branches')::bigint is distinct from (
    select count(*) from longhaul.fork_branches f where f.run = w.run and f.ordinal = w.ordinal
)
"#,
            range.after,
            range.through
        );
        let rows = within(async { Ok(rows.fetch_all(&mut *self.0).await?) }).await?;
        Ok(rows.into_iter().map(|r| (r.run, r.what)).collect())
    }

    /// How many runs of each version and status are counted, and how many there are, where that differs. The one statement here that
    /// reads a whole table.
    pub(crate) async fn miscounts(&mut self) -> Result<Vec<(i32, i16, i64, i64)>> {
        let rows = sqlx::query!(
            r#"
select coalesce(c.workflow, r.workflow) as "workflow!", coalesce(c.status, r.status) as "status!", coalesce(c.n, 0) as "counted!",
    coalesce(r.n, 0) as "there!"
from (
    select workflow, branch, status, sum(n)::bigint as n from longhaul.run_counts group by 1, 2, 3 having sum(n) <> 0
) c full join (
    select workflow, parent is not null as branch, status, count(*) as n from longhaul.runs group by 1, 2, 3
) r on r.workflow = c.workflow and r.branch = c.branch and r.status = c.status
where c.n is distinct from r.n order by 1, 2
"#
        );
        let rows = rows.fetch_all(&mut *self.0).await?;
        Ok(rows.into_iter().map(|r| (r.workflow, r.status, r.counted, r.there)).collect())
    }

    /// Accounts of which something else is added up as spent than their answers cost: the account, the sum, and what they cost, in
    /// nano-dollars. Reads all items of settled batches.
    pub(crate) async fn misspent(&mut self) -> Result<Vec<(i32, i64, i64)>> {
        let rows = sqlx::query!(
            r#"
with paid as (
    select b.account, sum(i.nano_usd) as nano_usd from longhaul.batches b
    join longhaul.batch_items i on i.batch = b.id and i.status in (3, 8, 9, 10) where b.status = 8 group by 1
    union all
    select account, sum(removed_nano_usd) from longhaul.batches where status = 8 group by 1
    union all
    select account, sum(nano_usd) from longhaul.live_calls where status in (3, 10) group by 1
    union all
    select account, sum(nano_usd) from longhaul.live_removed group by 1
),
cost as (select account, coalesce(sum(nano_usd), 0)::bigint as n from paid group by 1),
spent as (select account, sum(nano_usd)::bigint as n from longhaul.spent group by 1)
select coalesce(s.account, c.account) as "account!", coalesce(s.n, 0) as "spent!", coalesce(c.n, 0) as "cost!"
from spent s full join cost c on c.account = s.account where coalesce(s.n, 0) <> coalesce(c.n, 0) order by 1
"#
        );
        let rows = rows.fetch_all(&mut *self.0).await?;
        Ok(rows.into_iter().map(|r| (r.account, r.spent, r.cost)).collect())
    }

    /// Requests that are held by a budget that does not exist: nothing would ever let them go.
    pub(crate) async fn held_by_nothing(&mut self) -> Result<Vec<(i64, i32)>> {
        let rows = sqlx::query!(
            "select w.run, w.ordinal from longhaul.waits w where w.held_by is not null and w.queued_at is not null
                 and not exists (select from longhaul.budgets b where b.id = w.held_by) order by w.run, w.ordinal limit 1000"
        );
        let rows = within(async { Ok(rows.fetch_all(&mut *self.0).await?) }).await?;
        Ok(rows.into_iter().map(|r| (r.run, r.ordinal)).collect())
    }

    /// Inputs and outputs in a range of runs whose run does not exist.
    pub(crate) async fn strays(&mut self, range: Range) -> Result<Vec<i64>> {
        let rows = sqlx::query_scalar!(
            r#"
select run as "run!" from (
    select run from longhaul.inputs where run > $1 and run <= $2
    union
    select run from longhaul.outputs where run > $1 and run <= $2
) as bodies
where not exists (select from longhaul.runs r where r.id = bodies.run) order by run
"#,
            range.after,
            range.through
        );
        within(async { Ok(rows.fetch_all(&mut *self.0).await?) }).await
    }

    /// The next batches by key.
    pub(crate) async fn batches(&mut self, after: i64, limit: i64) -> Result<Vec<BatchRow>> {
        let rows = sqlx::query_as!(
            BatchRow,
            r#"
select b.id as "id!", b.status as "status!", b.intent as "intent!", b.n - b.removed_items as "n!",
    b.removed_items > 0 as "thinned!", b.lease as "lease!",
    b.check_at is not null as "due!", a.fence as "account_fence?", b.owner as "owner?", n.id is not null as "owner_known!",
    (extract(epoch from longhaul.now() - n.dead_at) * 1000)::bigint as "owner_dead_ms?"
from (select * from longhaul.batches where id > $1 order by id limit $2) b
    left join longhaul.accounts a on a.id = b.account
    left join longhaul.nodes n on n.id = b.owner
order by b.id
"#,
            after,
            limit
        );
        within(async { Ok(rows.fetch_all(&mut *self.0).await?) }).await
    }

    /// The next items in a range of batches.
    pub(crate) async fn items(&mut self, after: Place, through: i64, limit: i64) -> Result<Vec<ItemRow>> {
        let rows = sqlx::query_as!(
            ItemRow,
            r#"
select i.batch as "batch!", i.item as "item!", i.run as "run!", i.wait as "wait!", i.status as "status!",
    i.line is not null as "has_line!", i.settled_at is not null as "settled!", i.input_tokens as "input_tokens?",
    i.output_tokens as "output_tokens?", i.nano_usd as "nano_usd?", w.status as "pointed_by?"
from (
    select * from longhaul.batch_items where (batch, item) > ($1, $2) and batch <= $3 order by batch, item limit $4
) i
    left join longhaul.waits w on w.run = i.run and w.ordinal = i.wait and w.batch = i.batch and w.item = i.item
order by i.batch, i.item
"#,
            after.0,
            after.1,
            through,
            limit
        );
        within(async { Ok(rows.fetch_all(&mut *self.0).await?) }).await
    }

    /// All accounts: there are as many as there are API keys' owners, not more.
    pub(crate) async fn accounts(&mut self) -> Result<Vec<AccountRow>> {
        let rows = sqlx::query_as!(
            AccountRow,
            r#"
select a.id as "id!", a.owner as "owner?", n.id is not null as "owner_known!",
    (extract(epoch from longhaul.now() - n.dead_at) * 1000)::bigint as "owner_dead_ms?"
from longhaul.accounts a left join longhaul.nodes n on n.id = a.owner order by a.id
"#
        );
        within(async { Ok(rows.fetch_all(&mut *self.0).await?) }).await
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::{EventType, ItemStatus};
    use crate::store::Code;

    #[test]
    fn the_codes_in_the_statements_are_the_codecs() {
        assert_eq!([EventType::StepStarted, EventType::StepCompleted].map(Code::code), [20, 21]);
        assert_eq!(ItemStatus::Succeeded.code(), 3);
    }
}
