//! OpenAI's batches that are refused after they were created: for a line of theirs, a full queue, a model, the account.

use crate::models::Models;
use crate::openai::{Gpt, all_well, enqueue, node, questions, settings, settled, start};
use crate::support::{connect, database, eventually, failure, number, until_over, until_status};
use longhaul::{FailureCode, RunStatus};
use longhaul_sandbox::provider::{Fault, Operation, When};

fn guilty(message: &str) -> Fault {
    Fault::GuiltyItem { containing: "poison".into(), message: message.into() }
}

/// Forty requests, of which some make the whole batch fail when it is validated.
async fn guilty_ones_fail_alone(message: &str, guilty_ones: &[usize], creates: std::ops::RangeInclusive<usize>) {
    let (db, models) = start().await;
    models.inject(Operation::Create, When::Always, guilty(message));
    let inputs =
        (0..40).map(|k| if guilty_ones.contains(&k) { format!("chat|poison {k}") } else { format!("chat|q{k}") });
    let client = enqueue(&db, inputs).await;
    let node = node(&db, &models).await;
    until_over(&client).await;
    let counts = client.counts().await.unwrap();
    let failed = guilty_ones.len() as i64;
    assert_eq!((counts.completed, counts.failed), (40 - failed, failed), "{counts:?}");
    for k in guilty_ones {
        let (code, why) = failure::<Gpt>(&client, &format!("r{k}")).await;
        assert_eq!(code, FailureCode::ModelFailed);
        assert!(why.contains("not good"), "{why}");
    }
    settled(&db, &models).await;
    let seen = models.control.seen(Operation::Create);
    assert!(creates.contains(&seen), "{seen} batches were created");
    let mut conn = connect(&db).await;
    let told = "select count(*) from longhaul.events where type = 35 and payload->>'outcome' = 'refused'";
    assert!(number(&mut conn, told).await >= 40, "each run is told that its batch was refused");
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_validation_names_are_tried_alone_at_once() {
    guilty_ones_fail_alone("line {n} is not good", &[11, 30], 4..=6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_validation_does_not_name_is_found_by_halving() {
    guilty_ones_fail_alone("something is not good", &[7], 7..=20).await;
}

fn fails(code: &str) -> Fault {
    Fault::FailValidation { code: code.into(), message: "as it was said".into() }
}

/// The queue is full: nothing fails, and what does not fit even into an empty one is sent in smaller batches.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_waited_for_and_a_batch_that_never_fits_is_halved() {
    let (db, models) = (database().await, Models::with(settings().enqueued_tokens(200)).await);
    enqueue(&db, questions(40)).await;
    let node = node(&db, &models).await;
    all_well(&db, &models, 40).await;
    let mut conn = connect(&db).await;
    assert!(number(&mut conn, "select count(*) from longhaul.batch_items where status = 4 and line is null").await > 0);
    assert_eq!(number(&mut conn, "select max(errors)::bigint from longhaul.waits").await, 0, "no budget is touched");
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_request_waits_for_a_full_queue() {
    let (db, models) = start().await;
    models.inject(Operation::Create, When::Times(3), fails("token_limit_exceeded"));
    enqueue(&db, questions(1)).await;
    let node = node(&db, &models).await;
    all_well(&db, &models, 1).await;
    assert_eq!(models.control.seen(Operation::Create), 4);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_not_there_fails_its_group_and_no_other() {
    let (db, models) = start().await;
    models.inject(Operation::Create, When::Nth(1), fails("model_not_found"));
    let client = enqueue(&db, questions(9)).await;
    let node = node(&db, &models).await;
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().failed, 9);
    let (code, why) = failure::<Gpt>(&client, "r0").await;
    assert_eq!((code, why.as_str()), (FailureCode::ModelFailed, "model_not_found: as it was said"));
    client.enqueue::<Gpt>("s", "mini|other".into()).await.unwrap();
    until_status(&client, "s", RunStatus::Completed).await;
    settled(&db, &models).await;
    node.shutdown().await.unwrap();
}

/// What is about the account, or about nothing that this version knows, parks the account; few runs are lost to it.
async fn parks(code: &str, failed: i64) {
    let (db, models) = start().await;
    models.inject(Operation::Create, When::Always, fails(code));
    let client = enqueue(&db, questions(20)).await;
    let node = node(&db, &models).await;
    let mut conn = connect(&db).await;
    eventually("the account is parked", async || {
        let parked = "select count(*) from longhaul.accounts where parked like '%as it was said%'";
        (number(&mut conn, parked).await == 1).then_some(())
    })
    .await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.failed, counts.waiting), (failed, 20 - failed), "{counts:?}");
    node.shutdown().await.unwrap();

    // Somebody has acted, and starts a node again.
    models.control.clear();
    let node = crate::openai::node(&db, &models).await;
    eventually("all others complete", async || (client.counts().await.unwrap().completed == 20 - failed).then_some(()))
        .await;
    settled(&db, &models).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unpaid_bill_at_validation_parks_the_account() {
    parks("billing_hard_limit_reached", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_nobody_knows_costs_two_runs_and_parks_the_account() {
    parks("new_to_everybody", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_whose_name_cannot_be_kept_holds_up_no_other() {
    let (db, models) = start().await;
    let strange = ["m\0x".to_owned(), "m".repeat(4_000)];
    let inputs = strange.iter().map(|model| format!("model {model}|q")).chain((0..3).map(|k| format!("mini|q{k}")));
    let client = enqueue(&db, inputs.collect::<Vec<_>>()).await;
    let node = node(&db, &models).await;
    for run in ["r2", "r3", "r4"] {
        until_status(&client, run, RunStatus::Completed).await;
    }
    until_over(&client).await;
    settled(&db, &models).await;
    node.shutdown().await.unwrap();
}
