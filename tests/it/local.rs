//! Runs of local steps: from enqueue to completed through claim and committer.

use crate::support::{Count, builder, database, eventually, until_over};
use longhaul::EventType;

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_five_steps_has_twelve_events() {
    let db = database().await;
    let node = builder(&db, "a").start().await.unwrap();
    let run = node.client().enqueue::<Count>("r1", 10).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 14);
    let events = node.client().events("r1").await.unwrap();
    let kinds: Vec<EventType> = events.iter().map(|e| e.kind).collect();
    let mut expected = vec![EventType::RunEnqueued];
    for _ in 0..5 {
        expected.extend([EventType::StepStarted, EventType::StepCompleted]);
    }
    expected.push(EventType::RunCompleted);
    assert_eq!(kinds, expected);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_runs_complete() {
    let db = database().await;
    let node = builder(&db, "a").start().await.unwrap();
    let runs = (0..2000).map(|k| (format!("r{k}"), k)).collect();
    for made in node.client().enqueue_many::<Count>(runs).await.unwrap() {
        made.unwrap();
    }
    until_over(&node.client()).await;
    let counts = node.client().counts().await.unwrap();
    assert_eq!(counts.completed, 2000, "{counts:?}");
    // The node's own count follows the commit.
    eventually("it has counted them", async || (node.progress().runs_completed == 2000).then_some(())).await;
    node.shutdown().await.unwrap();
}
