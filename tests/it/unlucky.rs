//! Requests that have no luck: refused with their whole batch, or alone; paid and in no result; in a batch that shows up after it was
//! given up on; or wanted by nobody any more.

use crate::flows::Asking;
use crate::models::{Models, asking, check_paid, until_batch};
use crate::support::{check, connect, database, eventually, failure, number, until_over, until_status};
use longhaul::{BatchStatus, Client, Config, CostsOf, FailureCode, RunStatus};
use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::provider::{Config as SandboxConfig, Fault, Operation, When};
use std::time::Duration;

async fn enqueue(db: &TestDatabase, inputs: Vec<String>) -> Client {
    let client = Client::connect(db.url()).await.unwrap();
    let runs = inputs.into_iter().enumerate().map(|(k, input)| (format!("r{k}"), input)).collect();
    for made in client.enqueue_many::<Asking>(runs).await.unwrap() {
        made.unwrap();
    }
    client
}

fn questions(n: usize) -> Vec<String> {
    (0..n).map(|k| format!("q{k}")).collect()
}

/// Forty requests, of which some are what a provider refuses a whole batch for.
async fn guilty_ones_fail_alone(message: &str, guilty: &[usize], creates: std::ops::RangeInclusive<usize>) {
    let (db, models) = (database().await, Models::start().await);
    let (containing, message) = ("poison".to_owned(), message.to_owned());
    models.inject(Operation::Create, When::Always, Fault::GuiltyItem { containing, message });
    let mut inputs = questions(40);
    guilty.iter().for_each(|k| inputs[*k] = format!("poison {k}"));
    let client = enqueue(&db, inputs).await;
    let node = models.node(&db, &Asking::default()).await;
    until_over(&client).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.completed, counts.failed), (40 - guilty.len() as i64, guilty.len() as i64), "{counts:?}");
    for k in guilty {
        let (code, why) = failure::<Asking>(&client, &format!("r{k}")).await;
        assert_eq!(code, FailureCode::ModelFailed);
        assert!(why.contains("400") && why.contains("surrogate"), "{why}");
    }
    assert!(creates.contains(&models.control.seen(Operation::Create)), "{}", models.control.seen(Operation::Create));
    check_paid(&models, &mut connect(&db).await).await;
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_spoils_its_batch_is_found_by_halving() {
    guilty_ones_fail_alone("not valid JSON: no low surrogate", &[7], 7..=16).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_that_spoil_their_batch_are_found() {
    guilty_ones_fail_alone("not valid JSON: no low surrogate", &[3, 21, 38], 12..=40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_the_provider_names_is_tried_alone_at_once() {
    guilty_ones_fail_alone("requests.{n}.params: no low surrogate", &[11], 3..=4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_too_large_is_halved() {
    let (db, models) = (
        database().await,
        Models::with(SandboxConfig::default().processing(Duration::from_millis(30)).max_requests(6)).await,
    );
    let client = enqueue(&db, questions(20)).await;
    let node = models.node(&db, &Asking::default()).await;
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 20);
    check_paid(&models, &mut connect(&db).await).await;
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_too_large_alone_fail_alone_and_park_nothing() {
    let config = SandboxConfig::default().processing(Duration::from_millis(30)).max_bytes(4_000);
    let (db, models) = (database().await, Models::with(config).await);
    let mut inputs = questions(8);
    (0..4).for_each(|k| inputs[k] = "x".repeat(5_000));
    let client = enqueue(&db, inputs).await;
    let node = models.node(&db, &Asking::default()).await;
    until_over(&client).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.completed, counts.failed), (4, 4), "{counts:?}");
    let (code, why) = failure::<Asking>(&client, "r0").await;
    assert!(code == FailureCode::ModelFailed && why.contains("413"), "{why}");
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.accounts where parked is not null").await, 0);
    check_paid(&models, &mut conn).await;
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_about_the_account_costs_few_runs_and_parks_it() {
    let (db, models) = (database().await, Models::start().await);
    let body = r#"{"type":"error","error":{"type":"invalid_request_error","message":"this is new to everybody"}}"#;
    let fault = Fault::Status { code: 400, body: Some(body.into()), headers: Vec::new() };
    models.inject(Operation::Create, When::Always, fault);
    let client = enqueue(&db, questions(30)).await;
    let node = models.node(&db, &Asking::default()).await;
    let mut conn = connect(&db).await;
    eventually("the account is parked", async || {
        (number(&mut conn, "select count(*) from longhaul.accounts where parked like '3 requests%new to everybody%'")
            .await
            == 1)
            .then_some(())
    })
    .await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.failed, counts.waiting), (2, 28), "{counts:?}");
    node.shutdown().await.unwrap();

    // Somebody has acted, and starts a node again.
    models.control.clear();
    let node = models.node(&db, &Asking::default()).await;
    for failed in ["r0", "r1", "r2"] {
        let _ = client.retry(failed).await;
    }
    until_over(&client).await;
    let failed: Vec<String> =
        sqlx::query_scalar("select run_id from longhaul.runs where status = 6").fetch_all(&mut conn).await.unwrap();
    for run in failed {
        client.retry(&run).await.unwrap();
    }
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 30);
    check_paid(&models, &mut conn).await;
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_result_that_were_not_paid_go_out_again() {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Create, When::Nth(1), Fault::Expire { every: 1 });
    models.inject(Operation::Create, When::Nth(1), Fault::MissingLines(3));
    let client = enqueue(&db, questions(8)).await;
    let node = models.node(&db, &Asking::default()).await;
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 8);
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batch_items where status = 7").await, 3);
    check_paid(&models, &mut conn).await;
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_were_paid_and_have_no_result_are_parked_and_never_resent_by_themselves() {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Create, When::Nth(1), Fault::MissingLines(3));
    let client = enqueue(&db, questions(8)).await;
    let node = models.node(&db, &Asking::default()).await;
    until_over(&client).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.completed, counts.parked), (5, 3), "{counts:?}");
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batch_items where status = 8").await, 3);
    let parked: Vec<String> =
        sqlx::query_scalar("select run_id from longhaul.runs where status = 4").fetch_all(&mut conn).await.unwrap();
    let view = client.run(&parked[0]).await.unwrap();
    assert!(view.reason.unwrap().contains("has no result"));
    assert_eq!(models.paid().len(), 8, "nothing was sent again");
    check(&db).await;

    // An operator may have them asked again, which is paid again.
    for run in &parked {
        assert_eq!(client.retry(run).await.unwrap(), RunStatus::Waiting);
    }
    until_over(&client).await;
    assert_eq!((client.counts().await.unwrap().completed, models.paid().len()), (8, 11));
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_shows_up_after_it_was_given_up_on_is_booked() {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Create, When::Nth(1), Fault::LateCommit(Duration::from_secs(6)));
    models.inject(Operation::Create, When::Nth(1), Fault::AcceptThenCut);
    let client = enqueue(&db, questions(5)).await;
    let short = Config { send_limit: Duration::from_secs(1), quarantine: Duration::from_secs(1), ..asking("a") };
    let node = models.node_with(&db, &Asking::default(), short).await;
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 5);
    eventually("the late batch is settled", async || {
        (client.batch_totals().await.unwrap().late_duplicates == 5).then_some(())
    })
    .await;
    // Both were worked on, and both are on the bill: nobody could have known.
    let (summary, totals) = (models.summary(), client.batch_totals().await.unwrap());
    assert_eq!((models.paid().len(), totals.nano_usd), (10, summary.nano_usd_batch as i64));
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_nobody_waits_for_any_more_is_canceled() {
    let (db, models) = (database().await, Models::slow().await);
    let client = enqueue(&db, questions(3)).await;
    let node = models.node(&db, &Asking::default()).await;
    let mut conn = connect(&db).await;
    until_batch(&mut conn, BatchStatus::Submitted).await;
    client.cancel("r0").await.unwrap();
    client.cancel("r1").await.unwrap();
    assert_eq!(models.control.seen(Operation::Cancel), 0, "one still waits");
    client.cancel("r2").await.unwrap();
    until_batch(&mut conn, BatchStatus::Settled).await;
    assert_eq!((models.control.seen(Operation::Cancel), models.paid().len()), (1, 0));
    until_status(&client, "r2", RunStatus::Canceled).await;
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adopted_batch_whose_results_are_gone_before_it_was_proved_ours_parks_its_runs() {
    let (db, models) = (database().await, Models::start().await);
    // Its create is in doubt, it is found in the listing, and nothing can be read of it any more.
    models.inject(Operation::Create, When::Nth(1), Fault::AcceptThenCut);
    models.inject(Operation::Create, When::Nth(1), Fault::Archive);
    let client = enqueue(&db, questions(4)).await;
    let node = models.node(&db, &Asking::default()).await;
    until_over(&client).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.completed, counts.parked), (0, 4), "{counts:?}");
    let mut conn = connect(&db).await;
    eventually("the batch is settled, and its number free", async || {
        (number(&mut conn, "select count(*) from longhaul.batches where status = 8").await == 1).then_some(())
    })
    .await;
    let total = client.costs(CostsOf::Everything).await.unwrap().total;
    assert_eq!((total.items, total.unpriced, total.unused), (4, 4, 4), "paid, as far as anybody knows");
    assert_eq!(models.paid().len(), 4, "nothing was sent again");
    check(&db).await;
    node.shutdown().await.unwrap();
}
