//! Live calls and money: budgets and pauses hold them as they hold batches.

use crate::live::{Urgent, booked, enqueue, node};
use crate::models::{Models, asking};
use crate::support::{check, connect, database, eventually, until_over, until_status};
use longhaul::provider::BatchProvider;
use longhaul::testing::TestNode;
use longhaul::{Budget, Client, CostsOf, Pausable, RunStatus, Spender};
use longhaul_sandbox::provider::Operation;

#[tokio::test(flavor = "multi_thread")]
async fn a_live_call_that_a_budget_has_no_room_for_is_held() {
    let (db, models) = (database().await, Models::start().await);
    let request = crate::flows::request("r0", 1, "q0").to_string();
    // For one of the three; what the first one has cost leaves too little for another.
    let one = models.provider().live_estimate(&request).unwrap();
    let client = Client::connect(db.url()).await.unwrap();
    let budget = Budget::new(Spender::Workflow("urgent".into()), one);
    client.set_budget(&budget, "ada").await.unwrap();
    enqueue(&db, "live", 3).await;
    let node = node(&db, &models).await;
    let standing = eventually("one is answered, and two are held", async || {
        let standing = client.budgets().await.unwrap().remove(0);
        (standing.held == 2 && standing.in_flight == 0 && standing.spent > 0).then_some(standing)
    })
    .await;
    assert_eq!(models.control.seen(Operation::Live), 1);
    assert_eq!(standing.spent, models.summary().nano_usd_live as i64);
    assert!(standing.spent <= one, "what was estimated is enough");
    let mut conn = connect(&db).await;
    let held =
        "select min(r.run_id) from longhaul.runs r join longhaul.waits w on w.run = r.id where w.held_by is not null";
    let held: String = sqlx::query_scalar(held).fetch_one(&mut conn).await.unwrap();
    let why = client.explain(&held).await.unwrap().to_string();
    assert!(why.contains("held: budget of workflow `urgent`"), "{why}");
    assert_eq!(client.costs(CostsOf::Run(held)).await.unwrap().total.items, 0);

    client.set_budget(&Budget::new(Spender::Workflow("urgent".into()), 100 * one), "ada").await.unwrap();
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 3);
    booked(&models, &client).await;
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_live_call_begins_while_its_provider_is_paused() {
    let (db, models) = (database().await, Models::start().await);
    let client = Client::connect(db.url()).await.unwrap();
    let claude = Pausable::Provider("claude".into());
    client.pause_sends(&claude, "ada", "an incident").await.unwrap();
    enqueue(&db, "live", 1).await;
    let provider = models.provider();
    let node = TestNode::start(db.url(), |b| b.workflow(Urgent).provider("claude", provider).config(asking("a")));
    let node = node.await.unwrap();
    until_status(&client, "r0", RunStatus::Waiting).await;
    for _ in 0..3 {
        node.poll_once().await;
    }
    assert_eq!(models.control.seen(Operation::Live), 0);
    let why = client.explain("r0").await.unwrap().to_string();
    assert!(why.contains("provider `claude` by ada: an incident"), "{why}");
    assert!(client.resume_sends(&claude).await.unwrap());
    until_status(&client, "r0", RunStatus::Completed).await;
    booked(&models, &client).await;
    node.shutdown().await.unwrap();
    check(&db).await;
}
