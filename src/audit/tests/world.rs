//! A small world: a run in every state, a batch that is settled, one that is under way and one that was given back.

use crate::audit::{Auditor, LedgerLine, Report};
use crate::domain::event::{EventType, NewEvent};
use crate::domain::{Change, CustomId, Failure, FailureCode, Fence, IntentId, ItemStatus, JsonText, NewWait, NodeId};
use crate::domain::{Position, RunKey, Transition, Verdict};
use crate::provider::Identity;
use crate::store::StoreError;
use crate::store::{
    Claimed, Claimer, Code, Database, Demand, Filled, Floor, Lane, Lease, Lines, NewRun, Registrar, Store,
};
use longhaul_sandbox::postgres::testing::TestDatabase;
use serde_json::json;
use std::time::Duration;

/// The item of the first batch whose run failed.
pub(super) const FAILED: i32 = 2;

pub(super) struct World {
    _keep: TestDatabase,
    pub(super) database: Database,
    pub(super) ledger: Vec<LedgerLine>,
    intents: Vec<IntentId>,
}

pub(super) async fn empty() -> (TestDatabase, Database) {
    let migrate = |url: String| async move { crate::store::migrate(&url).await };
    let keep = TestDatabase::create(&crate::store::schema_digest(), migrate).await.unwrap();
    let database = Database::new(keep.url()).unwrap();
    (keep, database)
}

impl World {
    /// A copy of the world that is made once per server.
    pub(super) async fn new() -> Self {
        let name =
            format!("{}-{}", crate::store::schema_digest(), JsonText::stored(include_str!("world.rs").into()).sha256());
        let keep = TestDatabase::create(&name, make).await.unwrap();
        let database = Database::new(keep.url()).unwrap();
        let mut conn = database.connect().await.unwrap();
        let intents: Vec<uuid::Uuid> =
            sqlx::query_scalar("select intent from longhaul.batches order by id").fetch_all(&mut conn).await.unwrap();
        let intents: Vec<IntentId> = intents.into_iter().map(IntentId).collect();
        let ledger = [0, 1].map(|item| line(&custom_id(intents[0], item), 0)).to_vec();
        Self { _keep: keep, database, ledger, intents }
    }

    pub(super) async fn audit(&self) -> Report {
        Auditor::new(self.database.clone()).run(Some(&self.ledger)).await.unwrap()
    }

    pub(super) async fn sql(&self, sql: &'static str) {
        let mut conn = self.database.connect().await.unwrap();
        sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
    }

    /// As it was.
    pub(super) async fn restore(&self) {
        self.sql(RESTORE).await;
    }

    pub(super) fn custom_id(&self, batch: usize, item: i32) -> String {
        custom_id(self.intents[batch], item)
    }
}

fn custom_id(intent: IntentId, index: i32) -> String {
    CustomId { intent, index }.to_string()
}

/// A paid line as the sandbox would write it.
pub(super) fn line(custom_id: &str, more: i64) -> LedgerLine {
    let (input_tokens, output_tokens, nano_usd) = (11 + more, 7, Some(5_500));
    let (custom_id, batch_id, logical) = (Some(custom_id.to_owned()), None, String::new());
    LedgerLine { custom_id, batch_id, logical, input_tokens, output_tokens, nano_usd, live: false }
}

fn text(value: serde_json::Value) -> JsonText {
    JsonText::of(&value, "a value", 1 << 20).unwrap()
}

fn told(kind: EventType, payload: serde_json::Value) -> NewEvent {
    NewEvent::new(kind, &payload).unwrap()
}

fn at(step: &str) -> Position {
    Position { step: step.into(), arg: None, stack: Vec::new() }
}

/// Makes the world in an empty database.
async fn make(url: String) -> Result<(), StoreError> {
    crate::store::migrate(&url).await?;
    let mut making = Making::begin(&Database::new(&url)?).await;
    making.ask_and_end().await;
    let lease = making.lease().await;
    let first = making.send(lease, 4, "batch-1").await;
    making.take_results(first).await;
    making.send(lease, 1, "batch-2").await;
    making.give_back(lease).await;
    making.go_on().await;
    making.die().await;
    let mut conn = making.store.database().connect().await?;
    sqlx::raw_sql(SAVE).execute(&mut conn).await?;
    Ok(())
}

/// Keeps a copy of every table: that is quicker than a new database for every damage.
const SAVE: &str = "create schema saved;
    do $$ declare t text; begin
        for t in select tablename from pg_tables where schemaname = 'longhaul' loop
            execute format('create table saved.%I as table longhaul.%I', t, t);
        end loop;
    end $$";

/// Puts the copies back; a constraint that was dropped stays so.
const RESTORE: &str = "do $$ declare t text; columns text; begin
        for t in select tablename from pg_tables where schemaname = 'saved' loop
            execute format('delete from longhaul.%I', t);
            -- What is generated cannot be written.
            select string_agg(quote_ident(attname), ', ') into columns from pg_attribute
            where attrelid = format('longhaul.%I', t)::regclass and attnum > 0 and not attisdropped and attgenerated = '';
            execute format('insert into longhaul.%I (%s) overriding system value select %s from saved.%I', t, columns, columns, t);
        end loop;
        -- Putting runs back is counted too.
        delete from longhaul.run_counts;
        insert into longhaul.run_counts select * from saved.run_counts;
    end $$";

struct Making {
    store: Store,
    node: NodeId,
    claimer: Claimer,
    lane: Lane,
    held: Vec<Claimed>,
    workflow: i32,
}

impl Making {
    async fn begin(database: &Database) -> Self {
        let store = Store::new(database.clone(), 2);
        let node = NodeId::random();
        store.register(node, "one", "test", Duration::from_secs(15), &[]).await.unwrap();
        let steps = ["first", "second"].map(|s| json!({"name": s, "input": {"type": "x"}}));
        let manifest = json!({
            "workflow": "tests", "version": 1, "entry": "first", "input": {"type": "x"}, "state": {"type": "x"},
            "output": {"type": "x"}, "steps": steps,
        });
        let manifest = crate::Manifest::from_json(&manifest.to_string()).unwrap();
        let workflow = store.register_workflow(&manifest, Registrar::Node).await.unwrap().key;
        let runs: Vec<NewRun> = (0..10)
            .map(|k| {
                let input = text(json!({ "n": k }));
                let digest = crate::canonical::digest("tests", &input).unwrap();
                NewRun {
                    run_id: format!("run-{k}"),
                    workflow,
                    entry: "first".into(),
                    input,
                    digest,
                    tags: Vec::new(),
                    metadata: None,
                }
            })
            .collect();
        store.enqueue(&runs).await.unwrap();
        let claimer = Claimer::new(database.clone(), node);
        Self { store, node, claimer, lane: Lane::new(database.clone()), held: Vec::new(), workflow }
    }

    async fn claim(&mut self, runs: i64) {
        let demand = Demand { runs, bytes: 1 << 20 };
        self.held = self.claimer.claim(&[Floor::head(self.workflow)], demand).await.unwrap();
        assert_eq!(self.held.len() as i64, runs);
        self.held.sort_by_key(|claimed| claimed.run);
    }

    async fn commit(&mut self, run: usize, change: Change, events: Vec<NewEvent>) {
        let claimed = &self.held[run];
        let (run, fence, cursor) = (claimed.run, claimed.fence, claimed.cursor);
        let transition = Transition { run, parent: None, fence, cursor, change, state: Some(text(json!({}))), events };
        let answered = self.lane.commit(vec![transition]).await;
        assert_eq!(answered[0].1, Verdict::Committed);
    }

    /// Of nine runs the first six ask a model; one each fails, goes on (with a cause of its own), and is released.
    async fn ask_and_end(&mut self) {
        self.claim(9).await;
        let completed = || told(EventType::StepCompleted, json!({ "step": "first" }));
        for run in 0..6 {
            let wait = NewWait::model("p", text(json!({ "m": run })));
            let asked = told(EventType::ModelAsked, json!({ "provider": "p" }));
            self.commit(run, Change::Suspend { position: at("second"), wait }, vec![completed(), asked]).await;
        }
        let failure = Failure::new(FailureCode::StepError, "first", "no");
        let failed = || told(EventType::StepFailed, json!({ "step": "first" }));
        let ended = told(EventType::RunFailed, json!({}));
        self.commit(6, Change::Fail(failure), vec![failed(), ended]).await;

        let noted = told(EventType::Custom, json!({ "type": "a.b", "data": null }));
        let cause = crate::domain::Cause::Event(noted.id(self.held[7].run, self.held[7].cursor));
        let again = NewEvent { cause, ..told(EventType::Custom, json!({ "type": "a.c", "data": null })) };
        let started = told(EventType::StepStarted, json!({ "step": "second" }));
        self.commit(7, Change::Continue(at("second")), vec![noted, again, completed(), started]).await;

        let change = Change::Release { position: at("first"), delay: Duration::from_secs(3_600), errors: 1 };
        self.commit(8, change, vec![failed()]).await;
    }

    async fn lease(&self) -> Lease {
        let word = |word: &str| word.to_owned();
        let identity =
            Identity { kind: word("p"), base_url: word("http://here"), organization: word("o"), workspace: word("w") };
        let account = self.store.identify(&identity, "p").await.unwrap();
        self.store.acquire(account, self.node, false).await.unwrap().unwrap()
    }

    async fn fill(&mut self, lease: Lease, items: i32) -> i64 {
        let batch = self.store.open(lease, IntentId::new(), "").await.unwrap().unwrap();
        let most = crate::store::Most { items, bytes: 1 << 20, company: None, live_ms: None };
        let filled = self.store.fill("p", batch, lease, Filled::default(), 100, most).await.unwrap();
        assert_eq!(filled.items, items);
        batch
    }

    async fn send(&mut self, lease: Lease, items: i32, id: &str) -> (i64, i64) {
        let batch = self.fill(lease, items).await;
        assert!(self.store.seal(batch, lease, "p", 100, &[7; 32], "v1").await.unwrap());
        assert!(self.store.sending(batch, lease, "claude", &Default::default(), 1_000).await.unwrap());
        assert!(self.store.created(batch, lease, id, true).await.unwrap());
        assert_eq!(self.store.tell_submitted(batch, 100).await.unwrap(), i64::from(items));
        let held = self.store.claim_batches(lease.account, self.node, 10).await.unwrap();
        (batch, held.iter().find(|held| held.batch == batch).unwrap().fence)
    }

    /// Two answers, one failure, one that goes out again, after an hour.
    async fn take_results(&mut self, (batch, fence): (i64, i64)) {
        assert!(self.store.ended(batch, fence, None).await.unwrap());
        assert_eq!(self.store.answer(batch, fence, &lines(&[0, 1], ItemStatus::Succeeded)).await.unwrap().waits, 2);
        assert_eq!(self.store.fail(batch, fence, &lines(&[FAILED], ItemStatus::Errored)).await.unwrap().waits, 1);
        assert!(!self.store.settle(batch, fence).await.unwrap());
        let expired = lines(&[3], ItemStatus::Expired);
        let hour = Duration::from_secs(3_600);
        assert_eq!(self.store.retry(batch, fence, &expired, true, 3, hour).await.unwrap().waits, 1);
        assert!(self.store.settle(batch, fence).await.unwrap());
    }

    /// A batch of one that was never sent.
    async fn give_back(&mut self, lease: Lease) {
        let batch = self.fill(lease, 1).await;
        assert!(self.store.give_back(batch, lease, Duration::ZERO, "not created").await.unwrap());
    }

    /// The first answered run takes its answer and completes; the last run is parked.
    async fn go_on(&mut self) {
        self.claim(3).await;
        assert!(self.held[0].answer.is_some() && self.held[1].answer.is_some());
        let completed = || told(EventType::StepCompleted, json!({ "step": "second" }));
        let ended = told(EventType::RunCompleted, json!({}));
        self.commit(0, Change::Complete(text(json!("done"))), vec![completed(), ended]).await;
        let parked = told(EventType::RunParked, json!({}));
        self.commit(2, Change::Park("unknown step".into()), vec![parked]).await;
        // The other one is let go of without a word.
        let kept = [(RunKey(8), Fence(1))];
        assert_eq!(self.claimer.release_unheld(&kept).await.unwrap(), 1);
    }

    /// Another node takes the run that was let go of, and dies.
    async fn die(&mut self) {
        let other = NodeId::random();
        self.store.register(other, "two", "test", Duration::from_secs(15), &[]).await.unwrap();
        self.claimer = Claimer::new(self.store.database().clone(), other);
        self.claim(1).await;
        assert!(self.held[0].answer.is_some());
        assert!(self.store.declare_dead(other, 0).await.unwrap());
        assert_eq!(self.store.take_over_runs(other, self.node, 10).await.unwrap(), 1);
    }
}

fn lines(items: &[i32], outcome: ItemStatus) -> Lines {
    let n = items.len();
    let error = json!("no").to_string();
    Lines {
        item: items.to_vec(),
        outcome: vec![outcome.code(); n],
        line: vec![Some(b"{}".to_vec()); n],
        input_tokens: vec![Some(11); n],
        output_tokens: vec![Some(7); n],
        cache_write_tokens: vec![None; n],
        cache_read_tokens: vec![None; n],
        nano_usd: vec![Some(5_500); n],
        model: vec![Some("m".into()); n],
        error: vec![Some(error); n],
    }
}
