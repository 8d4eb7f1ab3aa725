//! Hints wake idle nodes at once; without them everything is found by looking.

use crate::flows::{Asking, Trial};
use crate::models::{Models, asking};
use crate::support::{Count, builder, config, connect, database, eventually, number};
use longhaul::{Client, Config, Node};
use std::time::{Duration, Instant};

/// So long that a test which has to wait for a look fails.
const NEVER: Duration = Duration::from_secs(3_600);

async fn listening(conn: &mut sqlx::PgConnection) {
    eventually("a session listens", async || {
        let listening = number(
            conn,
            "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen%'",
        )
        .await;
        (listening > 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_enqueue_wakes_an_idle_node() {
    let db = database().await;
    let node = builder(&db, "a").config(Config { poll_interval: NEVER, ..config("a") }).start().await.unwrap();
    let mut conn = connect(&db).await;
    listening(&mut conn).await;
    // Another process's client, which knows of no node.
    let client = Client::connect(db.url()).await.unwrap();
    let begun = Instant::now();
    for k in 0..5 {
        let run = client.enqueue::<Count>(format!("r{k}"), k).await.unwrap();
        assert_eq!(run.output().await.unwrap(), k + 4);
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "it took {:?}", begun.elapsed());
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_wakes_the_submitter_of_another_node() {
    let (db, models) = (database().await, Models::start().await);
    let slow = |name| Config { poll_interval: NEVER, ..asking(name) };
    // The first one has the submit lease, and no workflow: requests are asked for on the second.
    let sends = Node::builder(db.url()).provider("claude", models.provider()).config(slow("a")).start().await.unwrap();
    let mut conn = connect(&db).await;
    eventually("the lease is held", async || {
        (number(&mut conn, "select count(*) from longhaul.accounts where owner is not null").await == 1).then_some(())
    })
    .await;
    listening(&mut conn).await;
    let runs = models.node_with(&db, &Asking::default(), slow("b")).await;
    let client = Client::connect(db.url()).await.unwrap();
    let run = client.enqueue::<Asking>("r", "hello".into()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "echo hello");
    assert_eq!((sends.progress().batches_submitted, runs.progress().batches_submitted), (1, 0));
    sends.shutdown().await.unwrap();
    runs.shutdown().await.unwrap();
}

/// The listener is ended by the server whenever it comes up; looking alone has to do.
#[tokio::test(flavor = "multi_thread")]
async fn without_notifications_work_is_found_by_looking() {
    let db = database().await;
    let node = builder(&db, "a").start().await.unwrap();
    let mut conn = connect(&db).await;
    // An enqueue inside the caller's own transaction notifies nobody: here it is copied by SQL.
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Count>("r", 1).await.unwrap().output().await.unwrap();
    let ended = number(
        &mut conn,
        "select count(pg_terminate_backend(pid)) from pg_stat_activity
         where datname = current_database() and query ilike 'listen%'",
    )
    .await;
    assert!(ended > 0);
    crate::support::execute(
        &mut conn,
        "with made as (
            insert into longhaul.runs (run_id, workflow, status, ready_at, cursor, input_bytes, step)
            select 'by hand', workflow, 1, longhaul.now(), 1, 1, 'one' from longhaul.runs where run_id = 'r'
            returning id),
         told as (insert into longhaul.events (run, ordinal, nonce, type, payload)
            select id, 0, longhaul.nonce(), 1, '{}' from made)
         insert into longhaul.inputs (run, digest, body) select m.id, i.digest, i.body from made m, longhaul.inputs i",
    )
    .await;
    let run = client.handle::<Count>("by hand").await.unwrap();
    assert_eq!(run.output().await.unwrap(), 5);
    node.shutdown().await.unwrap();
}

/// A retry is rung for by the timekeeper, not found by chance.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_does_not_wait_for_the_next_look() {
    let db = database().await;
    let node = Node::builder(db.url())
        .workflow(Trial::default())
        .config(Config { poll_interval: NEVER, ..config("a") })
        .start()
        .await
        .unwrap();
    let mut conn = connect(&db).await;
    listening(&mut conn).await;
    let run = node.client().enqueue::<Trial>("r", "flaky".into()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "begun,flaky");
    node.shutdown().await.unwrap();
}
