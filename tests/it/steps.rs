//! What becomes of a run when its steps fail, panic, hang or block.

use crate::flows::Trial;
use crate::support::{check, config, connect, database, eventually, execute, failure, until_over, until_status};
use longhaul::{Client, EventType, FailureCode, Node, RunStatus};
use longhaul_sandbox::postgres::testing::TestDatabase;

async fn node(db: &TestDatabase, trial: &Trial) -> Node {
    Node::builder(db.url()).workflow(trial.clone()).config(config("a")).start().await.unwrap()
}

pub async fn kinds(client: &Client, run: &str) -> Vec<EventType> {
    client.events(run).await.unwrap().into_iter().map(|e| e.kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_step_is_tried_again_from_the_last_durable_state() {
    let (db, trial) = (database().await, Trial::default());
    let node = node(&db, &trial).await;
    let run = node.client().enqueue::<Trial>("r", "flaky".into()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "begun,flaky", "what failed attempts changed is forgotten");
    assert_eq!(trial.log.count("r", "flaky"), 3);
    assert_eq!(trial.log.count("r", "begin"), 1, "a completed step never runs again");
    use EventType::{RunCompleted, RunEnqueued, StepCompleted, StepFailed, StepStarted};
    let expected = [
        RunEnqueued,
        StepStarted,
        StepCompleted,
        StepStarted,
        StepFailed,
        StepStarted,
        StepFailed,
        StepStarted,
        StepCompleted,
        RunCompleted,
    ];
    assert_eq!(kinds(&node.client(), "r").await, expected, "records of failed attempts are not kept");
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_without_attempts_left_fails_the_run() {
    let (db, trial) = (database().await, Trial::default());
    let node = node(&db, &trial).await;
    node.client().enqueue::<Trial>("r", "hopeless".into()).await.unwrap();
    let (code, message) = failure::<Trial>(&node.client(), "r").await;
    assert_eq!((code, message.as_str()), (FailureCode::StepError, "failure 2"));
    let kinds = kinds(&node.client(), "r").await;
    assert_eq!(kinds[kinds.len() - 3..], [EventType::Custom, EventType::StepFailed, EventType::RunFailed]);
    let mut conn = connect(&db).await;
    let state: String = sqlx::query_scalar("select state::text from longhaul.runs").fetch_one(&mut conn).await.unwrap();
    assert_eq!(state, r#"["begun"]"#, "the stored state stays the last durable one");
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fatal_error_is_not_tried_again() {
    let (db, trial) = (database().await, Trial::default());
    let node = node(&db, &trial).await;
    node.client().enqueue::<Trial>("r", "fatal".into()).await.unwrap();
    let (code, message) = failure::<Trial>(&node.client(), "r").await;
    assert_eq!((code, message.as_str()), (FailureCode::StepFatal, "no use"));
    assert_eq!(trial.log.count("r", "fatal"), 1);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_fails_its_run_and_touches_no_other() {
    let (db, trial) = (database().await, Trial::default());
    let node = node(&db, &trial).await;
    let client = node.client();
    let expected = [
        ("panic with a text", "a text"),
        ("panic with a string", "a string of panic with a string"),
        ("panic with a NUL", "a \u{fffd} in it"),
        ("panic with a number", "a panic that is no text"),
    ];
    let mut runs: Vec<(String, String)> = expected.iter().map(|(kind, _)| ((*kind).into(), (*kind).into())).collect();
    runs.extend((0..100).map(|k| (format!("r{k}"), "plain".to_owned())));
    client.enqueue_many::<Trial>(runs).await.unwrap();
    until_over(&client).await;
    for (kind, text) in expected {
        assert_eq!(failure::<Trial>(&client, kind).await, (FailureCode::StepPanic, text.to_owned()));
        assert_eq!(trial.log.count(kind, "panics"), 1, "a panic is not tried again");
    }
    assert_eq!(client.counts().await.unwrap().completed, 100);
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_takes_too_long_is_given_up() {
    let (db, trial) = (database().await, Trial::default());
    let node = node(&db, &trial).await;
    node.client().enqueue::<Trial>("r", "slow".into()).await.unwrap();
    let (code, message) = failure::<Trial>(&node.client(), "r").await;
    assert_eq!(code, FailureCode::StepTimeout);
    assert!(message.contains("80ms"), "{message}");
    assert_eq!(trial.log.count("r", "slow"), 2, "a timeout counts as an attempt");
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocking_steps_hold_up_no_other_and_are_bounded() {
    let (db, trial) = (database().await, Trial::default());
    let settings = longhaul::Config { blocking_steps: 2, ..config("a") };
    let node = Node::builder(db.url()).workflow(trial.clone()).config(settings).start().await.unwrap();
    let client = node.client();
    let runs = (0..4).map(|k| (format!("b{k}"), "blocks".into())).collect();
    client.enqueue_many::<Trial>(runs).await.unwrap();
    let blocking = || (0..4).filter(|k| trial.log.count(&format!("b{k}"), "blocks") > 0).count();
    eventually("two steps block", async || (blocking() == 2).then_some(())).await;
    // Enough other work to show that no async thread is held, and no third thread taken.
    client.enqueue_many::<Trial>((0..200).map(|k| (format!("r{k}"), "plain".into())).collect()).await.unwrap();
    eventually("the others complete", async || (client.counts().await.unwrap().completed == 200).then_some(())).await;
    assert_eq!(blocking(), 2);
    trial.gate.open();
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 204);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_step_that_waits_for_a_future_has_its_timeout() {
    let (db, trial) = (database().await, Trial::default());
    let node = node(&db, &trial).await;
    node.client().enqueue::<Trial>("r", "blocks too long".into()).await.unwrap();
    assert_eq!(failure::<Trial>(&node.client(), "r").await.0, FailureCode::StepTimeout);
    // Its thread cannot be ended; the run went on without it.
    trial.gate.open();
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_does_not_fit_fails_its_run_and_no_other() {
    let (db, trial) = (database().await, Trial::default());
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue_many::<Trial>(vec![("bad".into(), "x".into()), ("good".into(), "x".into())]).await.unwrap();
    let mut conn = connect(&db).await;
    execute(&mut conn, r#"update longhaul.runs set state = '{"not": "a list"}' where run_id = 'bad'"#).await;
    let node = node(&db, &trial).await;
    until_over(&client).await;
    assert_eq!(failure::<Trial>(&client, "bad").await.0, FailureCode::Undecodable);
    assert_eq!(client.run("good").await.unwrap().status, RunStatus::Completed);
    assert_eq!(trial.log.count("bad", "begin"), 0);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_this_node_does_not_know_parks_the_run_with_the_reason() {
    let (db, trial) = (database().await, Trial::default());
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Trial>("r", "x".into()).await.unwrap();
    let mut conn = connect(&db).await;
    execute(&mut conn, "update longhaul.runs set step = 'of_tomorrow'").await;
    let node = node(&db, &trial).await;
    until_status(&client, "r", RunStatus::Parked).await;
    let view = client.run("r").await.unwrap();
    assert!(view.reason.unwrap().contains("of_tomorrow"));
    assert_eq!(kinds(&client, "r").await.last(), Some(&EventType::RunParked));
    node.shutdown().await.unwrap();
}

/// As if its process had died under the step again and again: the starts were counted before user code ran.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_takes_its_process_down_ends_as_a_crash_loop() {
    let (db, trial) = (database().await, Trial::default());
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue_many::<Trial>(vec![("last chance".into(), "x".into()), ("over".into(), "x".into())]).await.unwrap();
    let mut conn = connect(&db).await;
    execute(&mut conn, "update longhaul.runs set step = 'fragile', starts = case run_id when 'over' then 2 else 1 end")
        .await;
    trial.gate.open();
    let node = node(&db, &trial).await;
    until_over(&client).await;
    let (code, message) = failure::<Trial>(&client, "over").await;
    assert_eq!(code, FailureCode::CrashLoop);
    assert!(message.contains("2 times"), "{message}");
    assert_eq!(trial.log.count("over", "fragile"), 0, "user code is not called once more");
    assert_eq!(client.run("last chance").await.unwrap().status, RunStatus::Completed);
    node.shutdown().await.unwrap();
}

/// The starts are counted by the engine itself when nodes die under a step.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_die_under_a_step_are_counted() {
    let (db, trial) = (database().await, Trial::default());
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Trial>("r", "fragile".into()).await.unwrap();
    for death in 1..=2 {
        let node = node(&db, &trial).await;
        eventually("the step runs", async || (trial.log.count("r", "fragile") == death).then_some(())).await;
        drop(node);
    }
    let node = node(&db, &trial).await;
    assert_eq!(failure::<Trial>(&client, "r").await.0, FailureCode::CrashLoop);
    assert_eq!(trial.log.count("r", "fragile"), 2);
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_called_step_gives_its_result_to_the_caller() {
    let (db, trial) = (database().await, Trial::default());
    let node = node(&db, &trial).await;
    let run = node.client().enqueue::<Trial>("r", "called".into()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "40+1");
    node.shutdown().await.unwrap();
}

/// The steps of a version are pinned: runs in flight are at one of them.
#[test]
fn the_manifest_of_a_workflow_is_pinned() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/count.json");
    longhaul::testing::check_manifest(crate::support::Count, golden).unwrap();
}
