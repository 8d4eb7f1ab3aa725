//! Cancel and delete.

use super::*;

#[tokio::test]
async fn a_canceled_batch_is_canceling_and_then_ended_with_every_line() {
    let (sandbox, api) = slow().await;
    let id = api.create_many(4).await;
    let batch = api.cancel(&id).await.json();
    assert_eq!(batch["processing_status"], "canceling");
    assert!(batch["cancel_initiated_at"].is_string());
    assert_eq!(batch["request_counts"]["processing"], 4);
    assert_eq!(ended(&api, &id).await["request_counts"]["canceled"], 4);
    let lines = api.results(&id).await.lines();
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().all(|line| line["result"] == json!({"type": "canceled"})));
    assert_eq!(PaidLedger::read(sandbox.ledger_path()).unwrap(), []);
}

#[tokio::test]
async fn a_second_cancel_changes_nothing_and_an_ended_batch_refuses_it() {
    let config = Config::default().processing(Duration::MAX).canceling(Duration::MAX);
    let (_sandbox, api) = start(config).await;
    let id = api.create_many(1).await;
    let first = api.cancel(&id).await.json();
    assert_eq!(api.cancel(&id).await.json(), first);
    let (sandbox, api) = fast().await;
    let id = ended_batch(&sandbox, &api, 1).await;
    assert_eq!(api.cancel(&id).await.status, 400);
}

#[tokio::test]
async fn requests_too_far_along_are_paid_in_spite_of_the_cancel() {
    let (sandbox, api) = slow().await;
    sandbox.control().inject(Operation::Cancel, When::Next, Fault::FinishBeforeCancel(2));
    let id = api.create_many(5).await;
    api.cancel(&id).await;
    let counts = ended(&api, &id).await["request_counts"].clone();
    assert_eq!((&counts["succeeded"], &counts["canceled"]), (&json!(2), &json!(3)));
    assert_eq!(PaidLedger::read(sandbox.ledger_path()).unwrap().len(), 2);
}

#[tokio::test]
async fn only_an_ended_batch_can_be_deleted_and_it_is_gone_then() {
    let (sandbox, api) = slow().await;
    let id = api.create_many(1).await;
    assert_eq!(api.delete(&id).await.status, 400);
    sandbox.control().finish(&id);
    ended(&api, &id).await;
    assert_eq!(api.delete(&id).await.json(), json!({"id": id, "type": "message_batch_deleted"}));
    assert_eq!(api.retrieve(&id).await.status, 404);
    assert_eq!(api.results(&id).await.status, 404);
    assert_eq!(api.list("").await.json()["data"], json!([]));
    assert_eq!(api.delete(&id).await.status, 404);
}
