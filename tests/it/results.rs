//! Results that come cut, twice, not at all, or in a form that nobody knows: each item is settled once, and alone.

use crate::flows::Asking;
use crate::models::{Models, check_paid};
use crate::support::{check, connect, database, failure, number, until_over};
use longhaul::{Client, FailureCode, Node};
use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::provider::{Config as SandboxConfig, Fault, Operation, When};
use std::time::Duration;

const RUNS: i64 = 12;

/// Twelve runs whose results meet these faults; all complete all the same, each paid once.
async fn completes_despite(faults: Vec<(Operation, When, Fault)>) {
    let (db, models) = (database().await, Models::start().await);
    for (operation, when, fault) in faults {
        models.inject(operation, when, fault);
    }
    let node = ask(&db, &models).await;
    let client = node.client();
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, RUNS);
    for k in 0..RUNS {
        let run = client.handle::<Asking>(&format!("r{k}")).await.unwrap();
        assert_eq!(run.output().await.unwrap(), format!("echo q{k}"));
    }
    let mut conn = connect(&db).await;
    check_paid(&models, &mut conn).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batch_items where status <> 3").await, 0);
    node.shutdown().await.unwrap();
    check(&db).await;
}

async fn ask(db: &TestDatabase, models: &Models) -> Node {
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue_many::<Asking>((0..RUNS).map(|k| (format!("r{k}"), format!("q{k}"))).collect()).await.unwrap();
    models.node(db, &Asking::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_are_missing_at_first_are_read_when_they_come() {
    completes_despite(vec![(Operation::Results, When::Nth(1), Fault::MissingLines(4))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_come_twice_count_once() {
    completes_despite(vec![(Operation::Results, When::Always, Fault::DuplicateLines)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn results_may_break_at_any_byte() {
    let cuts = [0, 1, 100, 777, 2_000];
    let faults =
        cuts.iter().enumerate().map(|(k, at)| (Operation::Results, When::Nth(k + 1), Fault::CutResultsAt(*at)));
    completes_despite(faults.collect()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn results_may_end_early_as_if_they_were_complete() {
    let cuts = [0, 1, 333, 1_500];
    let faults =
        cuts.iter().enumerate().map(|(k, at)| (Operation::Results, When::Nth(k + 1), Fault::EndResultsAt(*at)));
    completes_despite(faults.collect()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_batch_that_is_not_found_for_a_while_is_waited_for() {
    completes_despite(vec![
        (Operation::Retrieve, When::Nth(1), Fault::NotFoundFlap),
        (Operation::Retrieve, When::Nth(3), Fault::NotFoundFlap),
        (Operation::Results, When::Nth(1), Fault::NotFoundFlap),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_provider_while_polling_are_waited_out() {
    completes_despite(vec![
        (Operation::Retrieve, When::Nth(1), Fault::status(529)),
        (Operation::Retrieve, When::Nth(2), Fault::Cut),
        (Operation::Retrieve, When::Nth(3), Fault::Status { code: 200, body: Some("{".into()), headers: Vec::new() }),
        (Operation::Results, When::Nth(1), Fault::status(500)),
        (Operation::Results, When::Nth(2), Fault::Cut),
    ])
    .await;
}

/// A line of a known request that nobody can read costs that request, and no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_an_unknown_kind_fails_its_run_alone() {
    let (db, models) = (database().await, Models::slow().await);
    let node = ask(&db, &models).await;
    let client = node.client();
    models.control.wait_served(Operation::Create, 1).await;
    let mut conn = connect(&db).await;
    let id: String = crate::support::eventually("the batch is kept", async || {
        crate::models::batches(&mut conn).await.first().and_then(|(_, id)| id.clone())
    })
    .await;
    // The custom id of the first item, as the engine builds it.
    let intent: uuid::Uuid =
        sqlx::query_scalar("select intent from longhaul.batches").fetch_one(&mut conn).await.unwrap();
    let custom_id = longhaul::CustomId { intent: longhaul::IntentId(intent), index: 0 };
    let line = format!(r#"{{"custom_id":"{custom_id}","result":{{"type":"postponed","until":"tomorrow"}}}}"#);
    // It stands in the place of whichever line is first, and of the item's own.
    models.inject(Operation::Results, When::Always, Fault::BadLine(0, line));
    models.control.finish(&id);
    crate::support::eventually("one run has failed", async || {
        (client.counts().await.unwrap().failed == 1).then_some(())
    })
    .await;
    // The line that was replaced is still to come.
    models.control.clear();
    until_over(&client).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.failed, counts.completed), (1, RUNS - 1));
    let failed: String =
        sqlx::query_scalar("select run_id from longhaul.runs where status = 6").fetch_one(&mut conn).await.unwrap();
    assert_eq!(failure::<Asking>(&client, &failed).await.0, FailureCode::ModelFailed);
    assert_eq!(
        number(&mut conn, "select count(*) from longhaul.batch_items where status = 9 and line is not null").await,
        1
    );
    assert_eq!(models.summary().logical_paid_twice, 0);
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_nobody_are_passed_over() {
    completes_despite(vec![
        (Operation::Results, When::Nth(1), Fault::BadLine(0, "this is no JSON".into())),
        (Operation::Results, When::Nth(2), Fault::BadLine(3, r#"{"custom_id":"somebody","result":{}}"#.into())),
        (Operation::Results, When::Nth(3), Fault::BadLine(5, String::new())),
    ])
    .await;
}

/// A bad batch holds up no other: its results never come, the next one's do.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_without_results_holds_up_no_other() {
    let (db, models) =
        (database().await, Models::with(SandboxConfig::default().processing(Duration::from_millis(10))).await);
    let node = models.node(&db, &Asking::default()).await;
    let client = node.client();
    models.inject(Operation::Results, When::Always, Fault::status(500));
    client.enqueue::<Asking>("bad", "hello".into()).await.unwrap();
    models.control.wait_served(Operation::Results, 2).await;
    models.control.clear();
    // From now on only the results of the first batch are not to be had.
    models.control.archive(&models.control.batches()[0]);
    let good = client.enqueue::<Asking>("good", "hello".into()).await.unwrap();
    assert_eq!(good.output().await.unwrap(), "echo hello");
    assert_eq!(models.summary().logical_paid_twice, 0, "what has no result is not asked again");
    node.shutdown().await.unwrap();
}
