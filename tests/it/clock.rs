//! The test node: time that passes when the test says so, and work that is waited for until it rests.

use crate::flows::{Asking, Trial};
use crate::models::{Models, asking};
use crate::support::{Count, connect, database, execute, number, until_status};
use longhaul::testing::TestNode;
use longhaul::{Error, RunStatus};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn an_hour_passes_when_it_is_told_to() {
    let (db, trial) = (database().await, Trial::default());
    let node = TestNode::start(db.url(), |n| n.workflow(trial.clone())).await.unwrap();
    let run = node.client().enqueue::<Trial>("r", "patient".into()).await.unwrap();
    let progress = node.run_until_quiescent(Duration::from_secs(30)).await.unwrap();
    assert_eq!(progress.runs_completed, 0);
    until_status(&node.client(), "r", RunStatus::Runnable).await;
    node.poll_once().await;
    assert_eq!(trial.log.count("r", "patient"), 1, "it is not due yet");
    node.advance(Duration::from_secs(1_800)).await.unwrap();
    node.poll_once().await;
    assert_eq!(trial.log.count("r", "patient"), 1);
    node.advance(Duration::from_secs(1_801)).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "waited");
    let events = node.client().events("r").await.unwrap();
    let (first, last) = (events[0].at, events[events.len() - 1].at);
    assert!((last - first).num_seconds() >= 3_600, "the ledger shows the shifted time");
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_waited_for_until_it_rests() {
    let (db, models) = (database().await, Models::start().await);
    let node = TestNode::start(db.url(), |n| {
        n.workflow(Count).workflow(Asking::default()).provider("claude", models.provider()).config(asking("a"))
    })
    .await
    .unwrap();
    let client = node.client();
    client.enqueue_many::<Count>((0..100).map(|k| (format!("c{k}"), k)).collect()).await.unwrap();
    client.enqueue_many::<Asking>((0..10).map(|k| (format!("a{k}"), "hello".into())).collect()).await.unwrap();
    let progress = node.run_until_quiescent(Duration::from_secs(60)).await.unwrap();
    assert_eq!(progress.runs_completed, 110, "{progress:?}");
    assert_eq!((progress.waits_opened, progress.requests_submitted, progress.results_completed), (10, 10, 10));
    assert_eq!(node.poll_once().await.runs_completed, 0);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_does_not_rest_is_told_of() {
    let (db, trial) = (database().await, Trial::default());
    let node = TestNode::start(db.url(), |n| n.workflow(trial.clone())).await.unwrap();
    node.client().enqueue::<Trial>("r", "stuck".into()).await.unwrap();
    let error = node.run_until_quiescent(Duration::from_millis(100)).await.unwrap_err();
    assert!(matches!(error, Error::Deadline(_)));
    trial.gate.open();
    node.run_until_quiescent(Duration::from_secs(30)).await.unwrap();
    node.shutdown().await.unwrap();
}

/// What is rehearsed is what happens: a poll finds work that nobody told of.
#[tokio::test(flavor = "multi_thread")]
async fn a_poll_finds_what_nobody_told_of() {
    let db = database().await;
    let never = longhaul::Config { poll_interval: Duration::from_secs(3_600), ..crate::support::config("a") };
    let node = TestNode::start(db.url(), |n| n.workflow(Count).config(never)).await.unwrap();
    let mut conn = connect(&db).await;
    let client = node.client();
    client.enqueue::<Count>("r", 1).await.unwrap();
    node.run_until_quiescent(Duration::from_secs(30)).await.unwrap();
    execute(
        &mut conn,
        "with made as (
            insert into longhaul.runs (run_id, workflow, status, ready_at, cursor, input_bytes, step)
            select 'by hand', workflow, 1, longhaul.now(), 1, 1, 'one' from longhaul.runs returning id),
         told as (insert into longhaul.events (run, ordinal, nonce, type, payload)
            select id, 0, longhaul.nonce(), 1, '{}' from made)
         insert into longhaul.inputs (run, digest, body) select m.id, i.digest, i.body from made m, longhaul.inputs i",
    )
    .await;
    let progress = node.poll_once().await;
    assert_eq!(progress.runs_completed, 1);
    assert_eq!(number(&mut conn, "select count(*) from longhaul.runs where status = 5").await, 2);
    node.shutdown().await.unwrap();
}
