//! The store as its users see it: one method per named statement, each within a deadline. What is hot or must not share a
//! connection has a type of its own: [`Lane`](super::lane::Lane), [`Claimer`](super::claim::Claimer),
//! [`Pulse`](super::pulse::Pulse), [`Listener`](super::pulse::Listener).

mod calls;

use super::accounts::{self, Brake, Lease};
use super::answers::{self, Given, OpenWait};
use super::budgets::{self, Concern, Decision};
use super::cancel::{self, Before};
use super::check::{self, Page};
use super::claim;
use super::connect::{Database, within};
use super::costs::{self, CostLine};
use super::counts;
use super::enqueue::{self, Made, NewRun};
use super::error::StoreError;
use super::explain::{self, Facts};
use super::finished::{self, End, Place};
use super::forks::{self, BranchState, Joined};
use super::groups::{self, Ungrouped};
use super::holes::{self, Holes};
use super::ingest::{self, Lines, Settled};
use super::list::{self, Wanted};
use super::live;
use super::nodes::{self, Peer};
use super::operate::{self, Control};
use super::pauses::{self, AccountView};
use super::pulse::Hint;
use super::questions::{self, Asked};
use super::queue::{self, Holder, Stopped, Trouble, VersionFacts, Waiting};
use super::read::{self, BatchTotals, BatchView, Counts, EventView, NodeView, Outcome, RunView};
use super::refuse::{self, Convicted, Lone, Suspects};
use super::reserve::{self, Filled, Most, Queue, Watermark};
use super::retention::{self, Removed};
use super::revive::{self, Standing};
use super::submit::{self, Intent};
use super::tree::{self, TreePlace, WaitView};
use super::upgrade::{self, Upgrade};
use super::workflows::{self, Registered, Registrar, Version};
use super::{migrate, timers};
use crate::domain::{EventType, Fence, IntentId, NodeId, Ordinal, RunKey, RunStatus, WaitKind, WaitStatus};
use crate::provider::Identity;
use crate::run::flow::Manifest;
use crate::store::codec::Code;
use sqlx::types::chrono::{DateTime, NaiveDate, Utc};
use sqlx::{PgConnection, PgPool};
use std::time::Duration;

type Result<T> = std::result::Result<T, StoreError>;

/// A pool of connections and the statements that may run on them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store {
    database: Database,
    pool: PgPool,
}

/// Runs canceled per statement.
const CANCELS: usize = 256;

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Store {
    pub(crate) fn new(database: Database, connections: u32) -> Self {
        let pool = database.pool(connections);
        Self { database, pool }
    }

    #[cfg(test)]
    pub(super) fn pool(&self) -> &PgPool {
        &self.pool
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }

    /// Refuses a server that cannot be reached and a schema of another version.
    pub(crate) async fn check(&self) -> Result<()> {
        let mut conn = self.database.connect().await?;
        within(migrate::check(&mut conn)).await
    }

    /// Says on a channel that there may be something to do.
    pub(crate) async fn nudge(&self, hint: Hint) -> Result<()> {
        within(async {
            sqlx::query!("select pg_notify($1, '')", hint.channel()).fetch_one(&self.pool).await?;
            Ok(())
        })
        .await
    }
}

macro_rules! statements {
    ($($(#[$doc:meta])* $module:ident::$name:ident($($arg:ident: $kind:ty),*) -> $answer:ty;)+) => {
        impl Store {
            $($(#[$doc])*
            pub(crate) async fn $name(&self, $($arg: $kind),*) -> Result<$answer> {
                within($module::$name(&self.pool, $($arg),*)).await
            })+
        }
    };
}

statements! {
    nodes::register(id: NodeId, name: &str, version: &str, lease: Duration, workflows: &[i32]) -> ();
    nodes::serves(id: NodeId, workflows: &[i32]) -> ();
    nodes::peers(id: NodeId) -> Vec<Peer>;
    nodes::declare_dead(id: NodeId, seen: i64) -> bool;
    nodes::leave(id: NodeId) -> ();
    nodes::dead_holders() -> Vec<NodeId>;
    nodes::take_over_runs(dead: NodeId, by: NodeId, limit: i64) -> u64;
    nodes::free_leases(dead: NodeId) -> ();
    check::in_flight(after: i64, limit: i64) -> Page;
    workflows::versions(names: &[String]) -> Vec<Version>;
    workflows::unclaimable(known: &[i32]) -> Vec<(String, u32, i64)>;
    enqueue::enqueue(runs: &[NewRun]) -> Vec<Made>;
    timers::next_ready(workflows: &[i32]) -> Option<i64>;
    accounts::identify(identity: &Identity, provider: &str) -> i32;
    accounts::acquire(account: i32, node: NodeId, anew: bool) -> Option<Lease>;
    accounts::resign(account: i32, node: NodeId) -> ();
    accounts::brake(lease: Lease, provider: &str) -> Option<Brake>;
    accounts::slow_down(lease: Lease, brake: &Brake) -> ();
    groups::ungrouped(provider: &str, limit: i64) -> Vec<Ungrouped>;
    groups::group(run: &[i64], ordinal: &[i32], group: &[String]) -> ();
    groups::groups(provider: &str, limit: i64) -> Vec<String>;
    reserve::queue(provider: &str, group: &str, lease: Lease, limit: i64, suspects: bool, live_ms: Option<i64>) -> Queue;
    reserve::next_due(provider: &str, group: &str) -> Option<i64>;
    reserve::open(lease: Lease, intent: IntentId, group: &str) -> Option<i64>;
    reserve::fill(provider: &str, batch: i64, lease: Lease, filled: Filled, chunk: i64, most: Most) -> Filled;
    refuse::split(batch: i64, lease: Lease, suspects: Suspects, why: &str) -> bool;
    refuse::convict(batch: i64, lease: Lease, in_row: Option<i32>, why: &str) -> Option<Convicted>;
    refuse::lost(lease: Lease, window_ms: i64) -> Vec<Intent>;
    refuse::find_late(batch: i64, lease: Lease, id: &str, certain: bool) -> bool;
    refuse::turn_back(batch: i64, fence: i64, items: &[i32], company: &[Option<i32>], delay_ms: i64) -> i64;
    refuse::judge_lone(batch: i64, fence: i64, in_row: i32) -> Option<Lone>;
    refuse::count_refusal(batch: i64, fence: i64) -> ();
    refuse::park_account_of(batch: i64, fence: i64, why: &str) -> ();
    submit::alone(batch: i64) -> bool;
    holes::holes(batch: i64, fence: i64, digest: &[u8]) -> Option<Holes>;
    holes::park_missing(batch: i64, fence: i64, items: &[i32]) -> i64;
    holes::unwanted(batch: i64, fence: i64) -> bool;
    holes::canceling(batch: i64, fence: i64) -> ();
    reserve::bodies(batch: i64, from: i32, limit: i64) -> Vec<(i32, String)>;
    reserve::seal(batch: i64, lease: Lease, provider: &str, bytes: i64, digest: &[u8], api_version: &str) -> bool;
    budgets::concerned(batch: i64, account: i32) -> Vec<Concern>;
    budgets::fund(batch: i64, lease: Lease, concerned: &[Concern], decision: &Decision) -> Option<i32>;
    budgets::top(run_id: &str) -> Option<i64>;
    pauses::accounts() -> Vec<AccountView>;
    pauses::pause_sends(kind: i16, subject: &str, by: &str, why: &str) -> ();
    pauses::resume_sends(kind: i16, subject: &str) -> bool;
    pauses::pauses() -> Vec<(i16, String, String, String)>;
    reserve::sending(batch: i64, lease: Lease, provider: &str, watermark: &Watermark, limit_ms: i64) -> bool;
    submit::adopt_lease(lease: Lease) -> Vec<Intent>;
    submit::created(batch: i64, lease: Lease, id: &str, accepted: bool) -> bool;
    submit::ambiguous(batch: i64, lease: Lease, why: &str) -> bool;
    submit::adopt(batch: i64, lease: Lease, id: &str, certain: bool) -> bool;
    submit::known(account: i32, ids: &[String]) -> Vec<String>;
    submit::tell_submitted(batch: i64, limit: i64) -> i64;
    submit::untold(account: i32) -> Vec<i64>;
    ingest::ended(batch: i64, fence: i64, results_url: Option<&str>) -> bool;
    ingest::verified(batch: i64, fence: i64) -> bool;
    ingest::foreign(batch: i64, fence: i64) -> bool;
    ingest::hand_over(batch: i64, fence: i64, intent: IntentId) -> bool;
    ingest::answer(batch: i64, fence: i64, lines: &Lines) -> Settled;
    ingest::fail(batch: i64, fence: i64, lines: &Lines) -> Settled;
    costs::settle(batch: i64, fence: i64) -> bool;
    ingest::open_items(batch: i64) -> Vec<i32>;
    ingest::next_check(account: i32) -> Option<i64>;
    live::park_account(account: i32, why: &str) -> ();
    answers::look(run_id: &str) -> Option<OpenWait>;
    answers::expire(limit: i64) -> i64;
    cancel::cancel(runs: &[RunKey], ordered: bool) -> Vec<Before>;
    cancel::ordered(limit: i64) -> Vec<RunKey>;
    cancel::ordered_below(runs: &[RunKey]) -> Vec<RunKey>;
    cancel::stop_others(runs: &[RunKey]) -> Vec<RunKey>;
    cancel::rash(limit: i64) -> Vec<RunKey>;
    retention::remove(after: (i64, i64), done_ms: Option<i64>, failed_ms: Option<i64>, limit: i64) -> Removed;
    retention::next_over(after: (i64, i64)) -> Option<(i64, i64)>;
    retention::forget(term_ms: i64, limit: i64) -> i64;
    retention::hold(run_id: &str, by: &str, why: &str) -> bool;
    retention::release_hold(run_id: &str) -> bool;
    revive::standing(run: RunKey) -> Option<Standing>;
    revive::fallen_branches(run: RunKey) -> Vec<RunKey>;
    revive::fallen_parent(run: RunKey) -> Option<RunKey>;
    forks::states(run: RunKey, ordinal: Ordinal, from: i32, limit: i64) -> Vec<BranchState>;
    answers::given(run: RunKey, ordinal: Option<Ordinal>) -> Option<Given>;
    answers::wait_status(run: RunKey, ordinal: Ordinal) -> Option<WaitStatus>;
    operate::pause(workflow: &str, by: &str, reason: &str) -> bool;
    operate::resume(workflow: &str, by: &str) -> bool;
    operate::controls(workflow: Option<&str>) -> Vec<Control>;
    operate::database_now() -> DateTime<Utc>;
    queue::holders(workflows: &[i32]) -> Vec<Holder>;
    queue::waiting(workflows: &[i32]) -> Vec<Waiting>;
    queue::trouble(workflows: &[i32]) -> Vec<Trouble>;
    queue::stopped() -> Vec<Stopped>;
    operate::park(run: RunKey, by: &str, reason: &str) -> Option<RunStatus>;
    operate::drain(node: &str, by: &str) -> u64;
    explain::facts(run_id: &str) -> Option<Facts>;
    forks::join(runs: &[RunKey]) -> Vec<Joined>;
    forks::ripe(limit: i64) -> Vec<RunKey>;
    forks::fail_join(run: RunKey, why: &str) -> Option<Joined>;
    list::run(run_id: &str) -> Option<RunView>;
    list::tagged(tag: &str, before: i64, limit: i64) -> Vec<i64>;
    list::newest(before: i64, limit: i64) -> Vec<i64>;
    list::views(keys: &[i64], wanted: &Wanted, limit: i64) -> Vec<RunView>;
    list::workflow_keys(name: Option<&str>) -> Vec<i32>;
    tree::waits(runs: &[i64]) -> Vec<WaitView>;
    list::made_at(key: i64) -> Option<DateTime<Utc>>;
    finished::horizon() -> Place;
    read::events(run: RunKey, from: Ordinal, limit: i64) -> Vec<EventView>;
    read::outcome(run: RunKey) -> Option<Outcome>;
    counts::counts(enqueued: bool, workflows: Option<&[i32]>) -> Counts;
    counts::fold() -> ();
    read::living() -> Vec<NodeView>;
    read::batches(limit: i64) -> Vec<BatchView>;
    read::batch_totals() -> BatchTotals;
    read::quiescent() -> bool;
}

// Names that would clash, or durations that the statements take in milliseconds.
impl Store {
    pub(crate) async fn register_workflow(&self, of: &Manifest, by: Registrar) -> Result<Registered> {
        within(workflows::register(&self.pool, of, by)).await
    }

    pub(crate) async fn release_held(&self, limit: i64) -> Result<(i64, Option<i64>)> {
        within(budgets::release(&self.pool, limit)).await
    }

    /// Sets a budget; without a limit it is none any more. `false`: there was none.
    pub(crate) async fn set_budget(
        &self,
        (kind, subject, period): (i16, &str, i16),
        limit: Option<i64>,
        unpriced: bool,
        by: &str,
    ) -> Result<bool> {
        within(budgets::set(&self.pool, kind, subject, period, limit, unpriced, by)).await
    }

    pub(crate) async fn budgets(&self) -> Result<Vec<budgets::Standing>> {
        within(budgets::all(&self.pool)).await
    }

    pub(crate) async fn costs(
        &self,
        workflow: Option<&str>,
        account: Option<i32>,
        since: Option<NaiveDate>,
    ) -> Result<Vec<CostLine>> {
        within(costs::all(&self.pool, workflow, account, since)).await
    }

    /// The costs of a run, or of its whole tree.
    pub(crate) async fn costs_of(&self, run: RunKey, below: bool, since: Option<NaiveDate>) -> Result<Vec<CostLine>> {
        within(costs::of_runs(&self.pool, Some(run.0), None, below, since)).await
    }

    /// Of runs with a tag, and their branches.
    pub(crate) async fn costs_tagged(&self, tag: &str, since: Option<NaiveDate>) -> Result<Vec<CostLine>> {
        within(costs::of_runs(&self.pool, None, Some(tag), true, since)).await
    }

    pub(crate) async fn upgrade(&self, to: Upgrade<'_>) -> Result<bool> {
        within(upgrade::upgrade(&self.pool, to)).await
    }

    /// Enqueues on a connection of the caller's, in whatever transaction that is in.
    pub(crate) async fn enqueue_in(&self, conn: &mut PgConnection, run: &NewRun) -> Result<Made> {
        let made = within(enqueue::enqueue_on(conn, std::slice::from_ref(run))).await?;
        made.into_iter().next().ok_or_else(|| StoreError::Corrupt("an enqueue was not answered".into()))
    }

    pub(crate) async fn limit_workflow(&self, workflow: &str, by: &str, most: Option<i32>) -> Result<bool> {
        within(operate::limit(&self.pool, workflow, by, most)).await
    }

    pub(crate) async fn tree_events(
        &self,
        root: RunKey,
        place: Option<TreePlace>,
        limit: i64,
    ) -> Result<Vec<(String, EventView)>> {
        within(tree::events(&self.pool, root, place, limit)).await
    }

    pub(crate) async fn version_facts(&self, workflow: &str) -> Result<Vec<VersionFacts>> {
        within(queue::versions(&self.pool, workflow)).await
    }

    pub(crate) async fn ends(&self, workflows: &[i32], place: Place, limit: i64) -> Result<Option<Vec<End>>> {
        within(finished::after(&self.pool, workflows, place, limit)).await
    }

    pub(crate) async fn open_runs(
        &self,
        workflows: &[i32],
        statuses: &[RunStatus],
        before: i64,
        limit: i64,
    ) -> Result<Vec<i64>> {
        let statuses: Vec<i16> = statuses.iter().map(|s| s.code()).collect();
        within(list::open(&self.pool, workflows, &statuses, before, limit)).await
    }

    pub(crate) async fn retry_run(&self, run: RunKey, named: bool) -> Result<Option<RunStatus>> {
        within(revive::retry(&self.pool, run, named)).await
    }

    /// Open questions to people, the oldest first.
    pub(crate) async fn open_questions(&self, limit: i64) -> Result<Vec<Asked>> {
        within(questions::open(&self.pool, limit)).await
    }

    /// In how many milliseconds the next wait is over.
    pub(crate) async fn next_wait_due(&self) -> Result<Option<i64>> {
        within(answers::next_due(&self.pool)).await
    }

    pub(crate) async fn answer_wait(
        &self,
        run: RunKey,
        ordinal: Ordinal,
        kind: WaitKind,
        by: Option<&str>,
        body: &str,
    ) -> Result<bool> {
        within(answers::answer(&self.pool, run, ordinal, kind, by, body)).await
    }

    /// Joins those of these runs whose branches are all over, and so on upwards; `failed` tells that branches may have failed, which
    /// stops the others where the fork does not wait for them. Answers whether any run goes on.
    pub(crate) async fn join_all(&self, mut runs: Vec<RunKey>, mut failed: bool) -> Result<bool> {
        let mut any = false;
        while !runs.is_empty() {
            if failed {
                let stopping = self.stop_others(&runs).await?;
                self.carry_out(stopping).await?;
            }
            let joined = self.join_each(&runs).await?;
            any |= joined.iter().any(|j| !j.failed);
            runs = joined.into_iter().filter(|j| j.failed).filter_map(|j| j.parent).collect();
            failed = true;
        }
        Ok(any)
    }

    /// Joins; one whose results the server cannot put together fails alone.
    async fn join_each(&self, runs: &[RunKey]) -> Result<Vec<Joined>> {
        match self.join(runs).await {
            Err(StoreError::Refused { message: why, .. }) if runs.len() == 1 => {
                tracing::error!(
                    run = runs[0].0,
                    why,
                    "the results of branches cannot be put together: their run fails"
                );
                Ok(self.fail_join(runs[0], &why).await?.into_iter().collect())
            }
            Err(StoreError::Refused { .. }) => {
                let mut joined = Vec::new();
                for run in runs {
                    joined.extend(Box::pin(self.join_each(std::slice::from_ref(run))).await?);
                }
                Ok(joined)
            }
            other => other,
        }
    }

    /// Carries out orders to cancel, downwards. What cannot be done now is left to a sweep. Answers the runs that waited for those.
    pub(crate) async fn carry_out(&self, orders: Vec<RunKey>) -> Result<Vec<RunKey>> {
        let (mut level, mut above) = (orders, Vec::new());
        while !level.is_empty() {
            let mut next = Vec::new();
            for some in level.chunks(CANCELS) {
                let done = self.cancel(some, true).await?;
                above.extend(done.iter().filter(|before| before.done).filter_map(|before| before.parent));
                next.extend(self.ordered_below(some).await?);
            }
            level = next;
        }
        Ok(above)
    }

    /// Does what was left undone around forks, by whoever died: stops branches, carries out orders, joins. Answers whether any run
    /// goes on.
    pub(crate) async fn sweep_forks(&self, limit: i64) -> Result<bool> {
        let rash = self.rash(limit).await?;
        if !rash.is_empty() {
            self.stop_others(&rash).await?;
        }
        let orders = self.ordered(limit).await?;
        self.carry_out(orders).await?;
        let ripe = self.ripe(limit).await?;
        self.join_all(ripe, false).await
    }

    /// Releases whatever a node of this process holds.
    pub(crate) async fn release_runs(&self, node: NodeId) -> Result<u64> {
        within(async {
            let mut conn = self.pool.acquire().await?;
            claim::release_unheld(&mut conn, node, &[]).await
        })
        .await
    }

    pub(crate) async fn hand_back(&self, run: RunKey, fence: Fence, delay: Duration) -> Result<bool> {
        within(claim::hand_back(&self.pool, run, fence, ms(delay))).await
    }

    pub(crate) async fn events_of(&self, kind: Option<EventType>) -> Result<i64> {
        within(read::events_of(&self.pool, kind.map(Code::code))).await
    }

    pub(crate) async fn give_back(&self, batch: i64, lease: Lease, delay: Duration, why: &str) -> Result<bool> {
        within(submit::give_back(&self.pool, batch, lease, ms(delay), why)).await
    }

    pub(crate) async fn claim_batches(&self, account: i32, node: NodeId, limit: i64) -> Result<Vec<ingest::Held>> {
        within(ingest::claim(&self.pool, account, node, limit)).await
    }

    pub(crate) async fn let_go(&self, batch: i64, fence: i64, delay: Duration, note: Option<&str>) -> Result<bool> {
        within(ingest::let_go(&self.pool, batch, fence, ms(delay), note)).await
    }

    pub(crate) async fn release_batches(&self, account: i32, node: NodeId, held: &[i64]) -> Result<u64> {
        within(ingest::release_unheld(&self.pool, account, node, held)).await
    }

    pub(crate) async fn retry(
        &self,
        batch: i64,
        fence: i64,
        lines: &Lines,
        counts: bool,
        budget: u32,
        delay: Duration,
    ) -> Result<Settled> {
        let budget = i16::try_from(budget).unwrap_or(i16::MAX);
        within(ingest::retry(&self.pool, batch, fence, lines, counts, budget, ms(delay))).await
    }
}
