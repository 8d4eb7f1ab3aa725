//! Starting and ending: a shutdown returns in time whatever the steps do, and what cannot work is refused at the start.

use crate::flows::{Asking, Trial};
use crate::models::{Models, asking};
use crate::proxy::Proxy;
use crate::support::{Count, builder, check, config, connect, database, eventually, execute, until_over};
use longhaul::{Client, Config, Error, Node};
use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::provider::Operation;
use std::time::{Duration, Instant};

/// What the end of a node may take beyond its grace, on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

fn settings(name: &str) -> Config {
    Config { grace: Duration::from_millis(500), ..config(name) }
}

async fn node(db: &TestDatabase, name: &str, trial: &Trial) -> Node {
    Node::builder(db.url()).workflow(trial.clone()).config(settings(name)).start().await.unwrap()
}

async fn ends_in_time_with(kind: &str, step: &str) {
    let (db, trial) = (database().await, Trial::default());
    let client = Client::connect(db.url()).await.unwrap();
    let a = node(&db, "a", &trial).await;
    client.enqueue_many::<Trial>((0..3).map(|k| (format!("r{k}"), kind.into())).collect()).await.unwrap();
    let running = || (0..3).map(|k| trial.log.count(&format!("r{k}"), step)).sum::<usize>();
    eventually("they run", async || (running() == 3).then_some(())).await;
    let begun = Instant::now();
    let ended = a.shutdown().await;
    assert!(matches!(ended, Err(Error::Deadline(_))), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_millis(500) + SLACK, "it took {:?}", begun.elapsed());
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.owned, counts.runnable), (0, 3), "they are given up, nobody waits for a lease");
    let b = node(&db, "b", &trial).await;
    eventually("they run elsewhere", async || (running() == 6).then_some(())).await;
    trial.gate.open();
    until_over(&client).await;
    eventually("b did them", async || (b.progress().runs_completed == 3).then_some(())).await;
    b.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_does_not_wait_for_a_future_that_never_ends() {
    ends_in_time_with("stuck", "stuck").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_does_not_wait_for_a_blocked_thread() {
    ends_in_time_with("blocks", "blocks").await;
}

/// A step that ends within the grace is committed, and the next one is left to another node, not started.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_lets_running_steps_finish() {
    let (db, trial) = (database().await, Trial::default());
    let a = Node::builder(db.url()).workflow(trial.clone()).config(config("a")).start().await.unwrap();
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Trial>("r", "stuck".into()).await.unwrap();
    eventually("it runs", async || (trial.log.count("r", "stuck") == 1).then_some(())).await;
    let ending = tokio::spawn(a.shutdown());
    let other = client.enqueue::<Trial>("later", "plain".into()).await.unwrap();
    trial.gate.open();
    ending.await.unwrap().unwrap();
    assert_eq!(client.run("r").await.unwrap().status, longhaul::RunStatus::Completed);
    let b = node(&db, "b", &trial).await;
    assert_eq!(other.output().await.unwrap(), "plain");
    b.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_under_load_keeps_what_was_acknowledged() {
    let db = database().await;
    let a = builder(&db, "a").start().await.unwrap();
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue_many::<Count>((0..3_000).map(|k| (format!("r{k}"), k)).collect()).await.unwrap();
    eventually("some are done", async || (a.progress().runs_completed > 100).then_some(())).await;
    a.shutdown().await.unwrap();
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.owned, counts.failed), (0, 0), "{counts:?}");
    assert_eq!(counts.completed + counts.runnable, 3_000);
    let b = builder(&db, "b").start().await.unwrap();
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 3_000);
    b.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_node_ends_at_once_and_leaves() {
    let (db, models) = (database().await, Models::start().await);
    let slow = Config { poll_interval: Duration::from_secs(60), grace: Duration::from_secs(60), ..asking("a") };
    let node = models.node_with(&db, &Asking::default(), slow).await;
    models.control.wait_served(Operation::List, 1).await;
    let client = Client::connect(db.url()).await.unwrap();
    assert_eq!(client.nodes().await.unwrap().len(), 1);
    let begun = Instant::now();
    node.shutdown().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());
    assert!(client.nodes().await.unwrap().is_empty());
}

/// The database does not answer any more: the node ends all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_does_not_wait_for_a_silent_database() {
    let (db, trial) = (database().await, Trial::default());
    let proxy = Proxy::start(&db).await;
    let a = Node::builder(proxy.url()).workflow(trial.clone()).config(settings("a")).start().await.unwrap();
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Trial>("r", "stuck".into()).await.unwrap();
    eventually("it runs", async || (trial.log.count("r", "stuck") == 1).then_some(())).await;
    proxy.black_hole();
    // Statements of every kind are under way when it ends.
    let counting = tokio::spawn({
        let client = a.client();
        async move { client.counts().await }
    });
    tokio::task::yield_now().await;
    let begun = Instant::now();
    let ended = a.shutdown().await;
    assert!(ended.is_err());
    assert!(begun.elapsed() < Duration::from_millis(500) + SLACK, "it took {:?}", begun.elapsed());
    counting.abort();
    trial.gate.open();
    let b = node(&db, "b", &trial).await;
    until_over(&client).await;
    b.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_node_is_its_sudden_death() {
    let (db, trial) = (database().await, Trial::default());
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Trial>("r", "stuck".into()).await.unwrap();
    for name in ["a", "b"] {
        let n = trial.log.count("r", "stuck");
        let node = node(&db, name, &trial).await;
        eventually("it runs", async || (trial.log.count("r", "stuck") > n).then_some(())).await;
        drop(node);
    }
    trial.gate.open();
    let c = node(&db, "c", &trial).await;
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 1);
    c.shutdown().await.unwrap();
    check(&db).await;
}

async fn refused(url: &str) -> Error {
    Node::builder(url).workflow(Count).config(config("a")).start().await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_refused_at_the_start() {
    let error = refused("postgres://nobody@127.0.0.1:1/nowhere").await;
    assert_eq!(error.code(), "store-connection");
    assert_eq!(refused("not a url").await.code(), "store-connection");
    let secret = refused("postgres://me:hunter2@127.0.0.1:1/nowhere").await;
    assert!(!format!("{secret} {secret:?}").contains("hunter2"), "an error carries no password");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_schema_says_what_to_do() {
    let db = TestDatabase::empty().await.unwrap();
    let error = refused(db.url()).await;
    assert_eq!(error.code(), "schema-mismatch");
    assert!(error.to_string().contains("longhaul migrate"), "{error}");
    longhaul::migrate(db.url()).await.unwrap();
    builder(&db, "a").start().await.unwrap().shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_of_another_build_is_refused() {
    let db = database().await;
    let mut conn = connect(&db).await;
    let sql = "insert into longhaul.schema_migrations (version, description, checksum) values (99990101000000, 'of tomorrow', '')";
    execute(&mut conn, sql).await;
    let error = refused(db.url()).await;
    assert_eq!(error.code(), "schema-mismatch");
    assert!(error.to_string().contains("older"), "{error}");
    execute(&mut conn, "delete from longhaul.schema_migrations where version > 1").await;
    let error = refused(db.url()).await;
    assert!(error.to_string().contains("migrate"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_migrate_at_once() {
    let db = TestDatabase::empty().await.unwrap();
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = db.url().to_owned();
        all.spawn(async move { longhaul::migrate(&url).await });
    }
    for done in all.join_all().await {
        done.unwrap();
    }
    let mut conn = connect(&db).await;
    let outside = "select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = 'public'";
    assert_eq!(crate::support::number(&mut conn, outside).await, 0, "nothing outside the schema");
    builder(&db, "a").start().await.unwrap().shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_registered_twice_is_refused() {
    let db = database().await;
    let error = builder(&db, "a").workflow(Count).start().await.unwrap_err();
    assert_eq!(error.code(), "registered-twice");
}
