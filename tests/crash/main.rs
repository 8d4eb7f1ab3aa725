//! Processes that are killed with SIGKILL while they work, again and again: this test starts itself as its own children.
//!
//! The database, the provider and the log of side effects live outside the processes that die. What they say in the end is
//! compared: every run completed once, no step ran again after its completion was durable, and nothing was paid twice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod child;

use child::{Chain, LOG, MODELS, URL};
use longhaul::{Client, EventType};
use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::provider::{Config as SandboxConfig, Fault, Operation, PaidLedger, Sandbox, When};
use sqlx::{Connection, PgConnection};
use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Only a failing test waits that long.
const PATIENCE: Duration = Duration::from_secs(90);

async fn database() -> TestDatabase {
    let template = longhaul::store::schema_digest();
    TestDatabase::create(&template, |url| async move { longhaul::migrate(&url).await }).await.unwrap()
}

/// A worker process; it is killed when this is dropped.
struct Worker(Child);

impl Worker {
    fn start(db: &TestDatabase, models: &Sandbox, log: &Path) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["child::works_until_it_is_killed", "--exact", "--nocapture"])
            .env(URL, db.url())
            .env(MODELS, models.base_url())
            .env(LOG, log)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// SIGKILL: it has no say in it.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = look().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "this did not come true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn number(conn: &mut PgConnection, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(conn).await.unwrap()
}

struct World {
    db: TestDatabase,
    models: Sandbox,
    folder: tempfile::TempDir,
    client: Client,
    conn: PgConnection,
    runs: i64,
}

impl World {
    async fn with(runs: i64) -> Self {
        let db = database().await;
        let folder = tempfile::tempdir().unwrap();
        let models = Sandbox::start(
            SandboxConfig::default().processing(Duration::from_millis(80)).ledger(folder.path().join("paid.jsonl")),
        )
        .await
        .unwrap();
        let client = Client::connect(db.url()).await.unwrap();
        let chain = (0..runs).map(|k| (format!("r{k}"), k)).collect();
        for made in client.enqueue_many::<Chain>(chain).await.unwrap() {
            made.unwrap();
        }
        let conn = PgConnection::connect(db.url()).await.unwrap();
        Self { db, models, folder, client, conn, runs }
    }

    fn worker(&self) -> Worker {
        Worker::start(&self.db, &self.models, &self.folder.path().join("log"))
    }

    async fn over(&self) -> bool {
        self.client.counts().await.unwrap().completed == self.runs
    }

    /// Waits until a number from the database has risen by so many, or all is over.
    async fn until_risen(&mut self, sql: &'static str, by: i64) {
        let before = number(&mut self.conn, sql).await;
        let client = self.client.clone();
        let (runs, conn) = (self.runs, &mut self.conn);
        eventually(sql, async || {
            let risen = number(conn, sql).await >= before + by;
            (risen || client.counts().await.unwrap().completed == runs).then_some(())
        })
        .await;
    }

    /// Lets two last workers finish, and compares what everybody says.
    async fn judge(mut self) {
        let workers = [self.worker(), self.worker()];
        let world = &self;
        eventually("every run is completed", async || world.over().await.then_some(())).await;
        let conn = &mut self.conn;
        eventually("every batch is settled", async || {
            (number(conn, "select count(*) from longhaul.batches where status < 8").await == 0).then_some(())
        })
        .await;
        drop(workers);
        let completed = self.client.count_events(Some(EventType::RunCompleted)).await.unwrap();
        assert_eq!(completed, self.runs, "each run completed once");
        self.outputs().await;
        self.paid().await;
        self.side_effects().await;
        let database = longhaul::store::Database::new(self.db.url()).unwrap();
        let report = longhaul::audit::audit(&database, None).await.unwrap();
        assert!(report.is_clean(), "{report:?}");
    }

    async fn outputs(&mut self) {
        let wrong = number(
            &mut self.conn,
            "select count(*) from longhaul.outputs o join longhaul.inputs i on i.run = o.run
             where o.body::text::bigint is distinct from i.body::text::bigint + 4",
        )
        .await;
        assert_eq!(wrong, 0, "every state went through every step once");
    }

    async fn paid(&mut self) {
        let paid = PaidLedger::read(self.models.ledger_path()).unwrap();
        let summary = PaidLedger::summary(&paid);
        assert_eq!((summary.items_paid as i64, summary.logical_paid_twice), (self.runs, 0), "{summary:?}");
        let booked = number(&mut self.conn, "select count(*) from longhaul.batch_items where status in (3, 10)").await;
        assert_eq!(booked, self.runs);
    }

    /// The log of the steps against the ledger: no step was begun more often than the ledger says that it was started.
    async fn side_effects(&mut self) {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        let mut noted = HashMap::<&str, i64>::new();
        for line in log.lines() {
            *noted.entry(line).or_default() += 1;
        }
        let started: Vec<(String, String, i64)> = sqlx::query_as(
            "select r.run_id, e.payload::jsonb ->> 'step', count(*) from longhaul.events e
             join longhaul.runs r on r.id = e.run where e.type = 20 group by 1, 2",
        )
        .fetch_all(&mut self.conn)
        .await
        .unwrap();
        assert_eq!(started.len() as i64, self.runs * 5);
        for (run, step, starts) in started {
            let noted = noted.remove(format!("{run} {step}").as_str()).unwrap_or(0);
            assert!((1..=starts).contains(&noted), "{run} {step}: begun {noted} times, {starts} starts are told");
        }
        assert!(noted.is_empty(), "a step ran that no event tells of: {noted:?}");
    }
}

/// Workers die at whatever they are doing when some more events are in.
#[tokio::test(flavor = "multi_thread")]
async fn workers_killed_at_any_moment_lose_nothing_and_repeat_nothing() {
    let mut world = World::with(400).await;
    for round in 0..6 {
        let mut workers = [world.worker(), world.worker()];
        // A different number each round: the moment of death wanders through the life of the runs.
        world.until_risen("select count(*) from longhaul.events", 61 + 97 * round).await;
        workers[0].kill();
        world.until_risen("select count(*) from longhaul.events", 31).await;
        workers[1].kill();
    }
    world.judge().await;
}

/// The worst moment: the provider has accepted a batch, and its reply is on its way to a process that dies.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_while_its_batch_is_accepted_pays_once() {
    let world = World::with(40).await;
    let control = world.models.control();
    for round in 1..=3 {
        let held = control.hold_next_create();
        let mut worker = world.worker();
        let accepted = tokio::time::timeout(PATIENCE, held.accepted()).await.unwrap();
        assert!(!accepted.is_empty());
        worker.kill();
        held.release();
        if round < 3 {
            // Something new to ask for in the next round; the last one's batch is found again by the next worker.
            let more = (0..10).map(|k| (format!("more{round}-{k}"), k)).collect();
            world.client.enqueue_many::<Chain>(more).await.unwrap();
        }
    }
    World { runs: 60, ..world }.judge().await;
}

/// Live calls are under way when the process dies. Their intents are there, so nothing that may have been paid is hidden, and what is not
/// to be paid twice waits for a person.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_in_live_calls_hides_nothing_that_was_paid() {
    let mut world = World::with(0).await;
    let control = world.models.control();
    control.inject(Operation::Live, When::Times(8), Fault::Hold);
    let live = (1000..1040).map(|k| (format!("r{k}"), k)).collect();
    for made in world.client.enqueue_many::<Chain>(live).await.unwrap() {
        made.unwrap();
    }
    world.runs = 40;
    let mut worker = world.worker();
    tokio::time::timeout(PATIENCE, control.wait_served(Operation::Live, 8)).await.unwrap();
    worker.kill();
    control.release_all();
    let _last = world.worker();
    let client = world.client.clone();
    let counts = eventually("every run is over or parked", async || {
        let counts = client.counts().await.unwrap();
        (counts.completed + counts.parked == 40).then_some(counts)
    })
    .await;
    assert!(counts.parked > 0, "of eight calls some are of runs that are not to be paid twice");
    let live = client.live_totals().await.unwrap();
    let paid = PaidLedger::read(world.models.ledger_path()).unwrap();
    let unbooked = paid.len() as i64 - live.answered - live.superseded;
    assert!((8..=live.lost).contains(&unbooked), "{unbooked} paid and not booked, {live:?}");
    let twice = PaidLedger::summary(&paid).logical_paid_twice as i64;
    assert!(twice <= live.lost - counts.parked, "{twice} paid twice without leave, {live:?}");
    for k in (1001..1040).step_by(2) {
        if client.run(&format!("r{k}")).await.unwrap().status == longhaul::RunStatus::Parked {
            client.retry(&format!("r{k}")).await.unwrap();
        }
    }
    let world = &mut world;
    eventually("every run is completed", async || world.over().await.then_some(())).await;
    world.outputs().await;
    let database = longhaul::store::Database::new(world.db.url()).unwrap();
    let report = longhaul::audit::audit(&database, None).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// The results are being read when the process dies, and are read again by another.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_while_it_reads_results_settles_each_once() {
    let world = World::with(60).await;
    let control = world.models.control();
    for nth in 1..=2 {
        control.inject(Operation::Results, When::Nth(nth), Fault::Hold);
    }
    for nth in 1..=2 {
        let mut worker = world.worker();
        tokio::time::timeout(PATIENCE, control.wait_for(Operation::Results, nth)).await.unwrap();
        worker.kill();
    }
    control.release_all();
    world.judge().await;
}

/// The statement is under way when the process dies: whether it got in is found out from the rows.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_in_the_middle_of_a_commit_leaves_it_whole() {
    let mut world = World::with(200).await;
    for table in [
        "lock table longhaul.outputs in share mode",
        "lock table longhaul.waits in share mode",
        "lock table longhaul.events in share mode",
        "lock table longhaul.batch_items in share mode",
    ] {
        let mut worker = world.worker();
        world.until_risen("select count(*) from longhaul.events", 20).await;
        // Holds every writer of that table in the middle of its statement, so that the death meets one for certain.
        let mut holder = PgConnection::connect(world.db.url()).await.unwrap();
        let mut tx = holder.begin().await.unwrap();
        sqlx::raw_sql(table).execute(&mut *tx).await.unwrap();
        let client = world.client.clone();
        let (runs, conn) = (world.runs, &mut world.conn);
        eventually("a statement is held, or all is over", async || {
            let held = "select count(*) from pg_stat_activity where datname = current_database()
                 and application_name = 'longhaul' and wait_event_type = 'Lock'";
            let over = client.counts().await.unwrap().completed == runs;
            (over || number(conn, held).await > 0).then_some(())
        })
        .await;
        worker.kill();
        tx.rollback().await.unwrap();
    }
    world.judge().await;
}
