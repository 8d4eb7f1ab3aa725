//! Sends in doubt: other people's batches, quarantine, and answers of the database that were lost at the wrong moment.

use crate::flows::Asking;
use crate::models::{Models, asking, until_batch};
use crate::proxy::{ANSWER, CREATED, Cut, Proxy};
use crate::send::all_paid_once;
use crate::support::{connect, database, eventually, number, until_over};
use longhaul::{BatchStatus, Client, Config, Kind, Node};
use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::provider::{Fault, Operation, When};
use sqlx::PgConnection;
use std::collections::HashSet;
use std::time::Duration;

async fn enqueue(db: &TestDatabase, n: usize) -> Client {
    let client = Client::connect(db.url()).await.unwrap();
    let runs = (0..n).map(|k| (format!("r{k}"), format!("q{k}"))).collect();
    client.enqueue_many::<Asking>(runs).await.unwrap();
    client
}

/// Somebody else's batch of so many requests in the same workspace.
async fn create_foreign(models: &Models, n: usize) -> String {
    let request = |k: usize| serde_json::json!({"custom_id": format!("theirs-{k}"), "params": crate::flows::request("theirs", k as u32, "?")});
    let body = serde_json::json!({"requests": (0..n).map(request).collect::<Vec<_>>()});
    let reply = reqwest::Client::new()
        .post(format!("{}/v1/messages/batches", models.sandbox.base_url()))
        .header("x-api-key", "sk-theirs")
        .header("anthropic-version", "2023-06-01")
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    let reply: serde_json::Value = serde_json::from_str(&reply.text().await.unwrap()).unwrap();
    reply["id"].as_str().unwrap().to_owned()
}

/// Nothing of ours was paid twice; what others paid is not looked at.
async fn ours_paid_once(db: &TestDatabase, models: &Models, runs: i64) {
    let client = Client::connect(db.url()).await.unwrap();
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, runs);
    let paid = models.paid();
    let ours: Vec<_> = paid.iter().filter(|p| !p.custom_id.as_ref().unwrap().starts_with("theirs")).collect();
    let logical: HashSet<&str> = ours.iter().map(|p| p.logical.as_str()).collect();
    assert_eq!((ours.len() as i64, logical.len() as i64), (runs, runs));
    crate::support::check(db).await;
}

/// The number of requests of the send that is in doubt.
async fn in_doubt(conn: &mut PgConnection) -> usize {
    number(conn, "select n::bigint from longhaul.batches where status = 4 order by id limit 1").await as usize
}

fn doubt(models: &Models, lag: Duration) {
    models.inject(Operation::Create, When::Nth(1), Fault::AcceptThenCut);
    models.inject(Operation::Create, When::Nth(1), Fault::ListLag(lag));
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_batch_of_the_same_number_is_proved_foreign() {
    let (db, models) = (database().await, Models::start().await);
    doubt(&models, Duration::from_secs(5));
    enqueue(&db, 4).await;
    let node = models.node(&db, &Asking::default()).await;
    let mut conn = connect(&db).await;
    until_batch(&mut conn, BatchStatus::Ambiguous).await;
    let theirs = create_foreign(&models, in_doubt(&mut conn).await).await;
    ours_paid_once(&db, &models, 4).await;
    let seen: Vec<String> = sqlx::query_scalar("select provider_batch_id from longhaul.foreign_batches")
        .fetch_all(&mut conn)
        .await
        .unwrap();
    assert_eq!(seen, [theirs]);
    let sent = number(&mut conn, "select count(*) from longhaul.batches").await;
    assert_eq!(models.control.seen(Operation::Create) as i64, sent + 1, "each of ours was sent once");
    node.shutdown().await.unwrap();
}

/// The lease changes hands while the foreign batch is taken for ours: the intent must not be lost to both holders.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_batch_is_proved_so_also_after_the_lease_changed_hands() {
    let (db, models) = (database().await, Models::slow().await);
    doubt(&models, Duration::from_secs(5));
    enqueue(&db, 4).await;
    let node = models.node(&db, &Asking::default()).await;
    let mut conn = connect(&db).await;
    until_batch(&mut conn, BatchStatus::Ambiguous).await;
    let theirs = create_foreign(&models, in_doubt(&mut conn).await).await;
    until_batch(&mut conn, BatchStatus::AdoptedUnverified).await;
    let before = number(&mut conn, "select fence from longhaul.accounts").await;
    assert!(node.tree().kill(&Kind::Submitter("claude".into())));
    eventually("another submitter has the lease", async || {
        (number(&mut conn, "select coalesce(max(fence), 0) from longhaul.accounts where owner is not null").await
            > before)
            .then_some(())
    })
    .await;
    assert!(models.control.finish(&theirs));
    let client = Client::connect(db.url()).await.unwrap();
    eventually("ours are found, and end", async || {
        for id in models.control.batches() {
            models.control.finish(&id);
        }
        (client.counts().await.unwrap().completed == 4).then_some(())
    })
    .await;
    ours_paid_once(&db, &models, 4).await;
    node.shutdown().await.unwrap();
}

/// A line that cannot be read proves nothing: an adopted batch is not given away for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_line_does_not_make_our_batch_foreign() {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Create, When::Nth(1), Fault::AcceptThenCut);
    models.inject(Operation::Results, When::Nth(1), Fault::BadLine(0, "this is no JSON".into()));
    enqueue(&db, 4).await;
    let node = models.node(&db, &Asking::default()).await;
    all_paid_once(&db, &models, 4).await;
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.foreign_batches").await, 0);
    node.shutdown().await.unwrap();
}

/// The times are the database's own: nothing goes out again before the send can be over and the quarantine has passed.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_again_before_the_quarantine_is_over() {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Create, When::Nth(1), Fault::Cut);
    let config = Config { send_limit: Duration::from_secs(4), quarantine: Duration::from_millis(500), ..asking("a") };
    enqueue(&db, 1).await;
    let node = models.node_with(&db, &Asking::default(), config).await;
    all_paid_once(&db, &models, 1).await;
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batches").await, 2);
    let apart = number(
        &mut conn,
        "select (extract(epoch from max(sending_at) - min(sending_at)) * 1000)::bigint from longhaul.batches",
    )
    .await;
    assert!(apart >= 4_500, "sent again after {apart} ms");
    assert_eq!(number(&mut conn, "select count(distinct intent) from longhaul.batches").await, 2, "new custom ids");
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batches where status = 9").await, 1);
    assert_eq!(node.progress().adopted, 0);
    node.shutdown().await.unwrap();
}

/// While a send is in doubt and no other number of requests is left, the provider's listing is not asked for without pause.
#[tokio::test(flavor = "multi_thread")]
async fn a_doubt_does_not_make_the_submitter_spin() {
    let (db, models) = (database().await, Models::start().await);
    doubt(&models, Duration::from_secs(2));
    // Listed about once a second, since nothing else asks for it.
    let config = Config { poll_interval: Duration::from_secs(60), quarantine: Duration::from_secs(20), ..asking("a") };
    let client = enqueue(&db, 1).await;
    let node = models.node_with(&db, &Asking::default(), config).await;
    let mut conn = connect(&db).await;
    until_batch(&mut conn, BatchStatus::Ambiguous).await;
    client.enqueue::<Asking>("s", "q".into()).await.unwrap();
    all_paid_once(&db, &models, 2).await;
    let listed = models.control.seen(Operation::List);
    assert!(listed <= 15, "the listing was asked for {listed} times");
    node.shutdown().await.unwrap();
}

async fn through(proxy: &Proxy, models: &Models) -> Node {
    Node::builder(proxy.url())
        .workflow(Asking::default())
        .provider("claude", models.provider())
        .config(asking("a"))
        .start()
        .await
        .unwrap()
}

async fn survives(statement: &'static str, cut: Cut) -> (TestDatabase, Models, PgConnection) {
    let (db, models) = (database().await, Models::start().await);
    let proxy = Proxy::start(&db).await;
    proxy.arm(statement, cut, 1);
    enqueue(&db, 6).await;
    let node = through(&proxy, &models).await;
    all_paid_once(&db, &models, 6).await;
    assert_eq!(proxy.hits(), 1);
    assert_eq!(models.control.seen(Operation::Create), 1, "it was sent once");
    node.shutdown().await.unwrap();
    let conn = connect(&db).await;
    (db, models, conn)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_created_batch_that_could_not_be_written_down_is_found_again() {
    let (_db, _models, mut conn) = survives(CREATED, Cut::Before).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batches where adopted_at is not null").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_created_batch_whose_note_was_not_confirmed_goes_on() {
    let (_db, _models, mut conn) = survives(CREATED, Cut::After).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batches").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_whose_commit_is_unknown_are_settled_once() {
    survives(ANSWER, Cut::After).await;
    survives(ANSWER, Cut::Before).await;
}
