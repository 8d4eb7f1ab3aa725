//! Many and large requests.

use super::*;

#[tokio::test]
async fn hundreds_of_requests_of_ten_kilobytes_are_taken_and_answered() {
    let (sandbox, api) = fast().await;
    let text = "The harbour was quiet and the ships waited for the wind. ".repeat(180);
    let items: Vec<Value> = (0..300).map(|n| item(&format!("item-{n}"), &format!("Speech {n}.\n\n{text}"))).collect();
    let id = api.create(&items).await.id();
    sandbox.control().wait_ended(&id).await;
    assert_eq!(api.results(&id).await.lines().len(), 300);
    let summary = PaidLedger::summary(&PaidLedger::read(sandbox.ledger_path()).unwrap());
    assert_eq!((summary.items_paid, summary.logical_paid_twice), (300, 0));
}
