//! Budgets hold requests instead of failing them, let go of them when there is room, and are not exceeded by senders that race.

use crate::flows::{Asking, request};
use crate::models::{Models, asking, check_paid, check_spent};
use crate::retention::Errand;
use crate::support::{check, connect, database, eventually, number, until_over, until_status};
use longhaul::provider::BatchProvider;
use longhaul::testing::TestNode;
use longhaul::{Budget, BudgetView, Client, CostsOf, Node, NodeBuilder, Period, RunStatus, Spender};
use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::provider::Config as SandboxConfig;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

/// What a request of these tests may cost at most. All have the same length.
fn worst(models: &Models) -> i64 {
    models.provider().estimate(&request("r0", 1, "q0").to_string()).unwrap()
}

fn workflow() -> Spender {
    Spender::Workflow("asking".into())
}

async fn enqueue(client: &Client, runs: std::ops::Range<u32>) {
    client.enqueue_many::<Asking>(runs.map(|k| (format!("r{k}"), format!("q{k}"))).collect()).await.unwrap();
}

async fn node(db: &TestDatabase, models: &Models) -> TestNode {
    let provider = models.provider();
    let build = |b: NodeBuilder| {
        b.workflow(Asking::default()).workflow(Errand).provider("claude", provider).config(asking("a"))
    };
    TestNode::start(db.url(), build).await.unwrap()
}

/// Waits until a budget holds so many requests, with so much in flight.
async fn until_held(client: &Client, held: i64, in_flight: i64) -> BudgetView {
    eventually(&format!("{held} requests are held, {in_flight} in flight"), async || {
        let view = client.budgets().await.unwrap().remove(0);
        assert!(view.in_flight + view.spent <= view.budget.limit_nano_usd, "{view}");
        (view.held == held && view.in_flight == in_flight).then_some(view)
    })
    .await
}

fn finish_all(models: &Models) {
    for batch in models.control.batches() {
        models.control.finish(&batch);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_holds_what_it_has_no_room_for_and_lets_go_when_it_has() {
    let (db, models) = (database().await, Models::slow().await);
    let client = Client::connect(db.url()).await.unwrap();
    let worst = worst(&models);
    enqueue(&client, 0..10).await;
    client.set_budget(&Budget::new(workflow(), 3 * worst), "ada").await.unwrap();
    let node = node(&db, &models).await;
    let view = until_held(&client, 7, 3 * worst).await;
    assert_eq!((view.spent, view.by.as_str()), (0, "ada"));
    let mut conn = connect(&db).await;
    let held: String = sqlx::query_scalar(
        "select r.run_id from longhaul.waits w join longhaul.runs r on r.id = w.run where w.held_by is not null limit 1",
    )
    .fetch_one(&mut conn)
    .await
    .unwrap();
    let why = client.explain(&held).await.unwrap().to_string();
    assert!(why.contains("held: budget of workflow `asking`: 0.00 of"), "{why}");
    assert!(why.contains("less than was reserved"), "{why}");

    // What was reserved is replaced by what it did cost; there is room for two more, not for three.
    models.control.wait_batches(1).await;
    finish_all(&models);
    let view = until_held(&client, 5, 2 * worst).await;
    assert_eq!(view.spent, models.summary().nano_usd_batch as i64);

    // One that is canceled is not held any more; raised, the others go.
    client.cancel(&held).await.unwrap();
    client.set_budget(&Budget::new(workflow(), 100 * worst), "ada").await.unwrap();
    let canceled = client.run(&held).await.unwrap().status == RunStatus::Canceled;
    assert!(canceled);
    eventually("all runs end", async || {
        finish_all(&models);
        let c = client.counts().await.unwrap();
        (c.completed + c.canceled == 10).then_some(())
    })
    .await;
    eventually("all is settled", async || {
        (number(&mut conn, "select count(*) from longhaul.batches where status < 8").await == 0).then_some(())
    })
    .await;
    let view = client.budgets().await.unwrap().remove(0);
    assert_eq!((view.spent, view.in_flight), (models.summary().nano_usd_batch as i64, 0));
    node.shutdown().await.unwrap();
    check_paid(&models, &mut conn).await;
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn senders_of_two_accounts_share_a_budget_and_do_not_exceed_it() {
    let db = database().await;
    let (one, two) = (
        Models::with(SandboxConfig::default().processing(Duration::MAX).workspace("one")).await,
        Models::with(SandboxConfig::default().processing(Duration::MAX).workspace("two")).await,
    );
    let client = Client::connect(db.url()).await.unwrap();
    let worst = one.provider().estimate(&request("r00", 1, "who?").to_string()).unwrap();
    client.set_budget(&Budget::new(workflow(), 7 * worst + worst / 2), "ada").await.unwrap();
    // A submitter for each account, on whichever node.
    let start = async |name: &str| {
        let config = longhaul::Config { max_batch_requests: 2, linger: Duration::ZERO, ..asking(name) };
        let builder = Node::builder(db.url()).workflow(Asking::default()).config(config);
        builder.provider("one", one.provider()).provider("two", two.provider()).start().await.unwrap()
    };
    let (a, b) = tokio::join!(start("a"), start("b"));
    let runs = (10..50).map(|k| (format!("r{k}"), format!("at:{}", if k % 2 == 0 { "one" } else { "two" })));
    client.enqueue_many::<Asking>(runs.collect()).await.unwrap();
    until_held(&client, 33, 7 * worst).await;
    let mut conn = connect(&db).await;
    let sent = "select count(*) from longhaul.batch_items i join longhaul.batches b on b.id = i.batch
        where b.status between 1 and 7";
    assert_eq!(number(&mut conn, sent).await, 7);

    // Cleared, the rest goes.
    assert!(client.clear_budget(&workflow(), Period::Total, "ada").await.unwrap());
    assert!(!client.clear_budget(&workflow(), Period::Total, "ada").await.unwrap());
    assert!(client.budgets().await.unwrap().is_empty());
    eventually("all runs end", async || {
        finish_all(&one);
        finish_all(&two);
        (client.counts().await.unwrap().completed == 40).then_some(())
    })
    .await;
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
    let paid = (one.summary().nano_usd_batch + two.summary().nano_usd_batch) as i64;
    assert_eq!(client.costs(CostsOf::Everything).await.unwrap().total.nano_usd, paid);
    check_spent(&mut conn).await;
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ceiling_of_an_account_is_renewed_at_midnight() {
    let (db, models) = (database().await, Models::start().await);
    let node = node(&db, &models).await;
    let client = node.client();
    let worst = worst(&models);
    let account = eventually("the account is known", async || client.accounts().await.unwrap().pop()).await;
    let of = Spender::Account(account.id);
    // Room for one; once that has cost anything, for none.
    client.set_budget(&Budget::new(of.clone(), worst).per(Period::Day), "ada").await.unwrap();
    enqueue(&client, 0..5).await;
    let view = until_held(&client, 4, 0).await;
    assert!(view.spent > 0 && view.ends_at.is_some());
    node.run_until_quiescent(Duration::from_secs(60)).await.unwrap();
    assert_eq!(client.counts().await.unwrap().completed, 1);
    let explained = async |id: &str| client.explain(id).await.unwrap().to_string();
    let mut waiting = String::new();
    for k in 0..5 {
        let why = explained(&format!("r{k}")).await;
        if why.contains("for today") {
            waiting = why;
        }
    }
    assert!(waiting.contains("the budget is renewed in"), "{waiting}");
    for days in 1..=2 {
        node.advance(DAY).await.unwrap();
        until_held(&client, 4 - days, 0).await;
        node.run_until_quiescent(Duration::from_secs(60)).await.unwrap();
        assert_eq!(client.counts().await.unwrap().completed, 1 + days);
        let view = client.accounts().await.unwrap().remove(0);
        assert!(view.spent_today > 0 && view.spent_today < worst);
    }
    // A month has many days.
    client.clear_budget(&of, Period::Day, "ada").await.unwrap();
    until_over(&client).await;
    node.shutdown().await.unwrap();
    check_paid(&models, &mut connect(&db).await).await;
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_of_a_run_is_that_of_its_branches() {
    let (db, models) = (database().await, Models::start().await);
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Errand>("tree", "go".into()).await.unwrap();
    client.enqueue::<Errand>("other", "go".into()).await.unwrap();
    let asked = serde_json::json!({"model": "claude-haiku-4-5", "max_tokens": 9,
        "messages": [{"role": "user", "content": "greet ~1.00.0"}]});
    let worst = models.provider().estimate(&asked.to_string()).unwrap();
    client.set_budget(&Budget::new(Spender::Run("tree".into()), worst + worst / 20), "ada").await.unwrap();
    let node = node(&db, &models).await;
    until_status(&client, "other", RunStatus::Completed).await;
    let view = until_held(&client, 1, 0).await;
    assert_eq!(view.budget.of, Spender::Run("tree".into()));
    assert_eq!(view.spent, client.costs(CostsOf::Root("tree".into())).await.unwrap().total.nano_usd);
    let unknown = client.set_budget(&Budget::new(Spender::Run("nobody".into()), 1), "ada").await.unwrap_err();
    assert_eq!(unknown.code(), "unknown-run");
    client.set_budget(&Budget::new(Spender::Run("tree".into()), 10 * worst), "ada").await.unwrap();
    until_status(&client, "tree", RunStatus::Completed).await;
    let mut conn = connect(&db).await;
    eventually("all is settled", async || {
        (number(&mut conn, "select count(*) from longhaul.batches where status < 8").await == 0).then_some(())
    })
    .await;
    check_paid(&models, &mut conn).await;

    // It goes with the records of the run.
    node.advance(31 * DAY).await.unwrap();
    eventually("its records are removed", async || client.run("tree").await.unwrap().removed_at.map(|_| ())).await;
    assert!(client.budgets().await.unwrap().is_empty());
    let gone = client.costs(CostsOf::Root("tree".into())).await.unwrap_err();
    assert_eq!(gone.code(), "removed");
    let stays = client.costs(CostsOf::Workflow("errand".into())).await.unwrap().total;
    assert_eq!((stays.items, stays.nano_usd), (4, models.summary().nano_usd_batch as i64));
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_price_is_never_zero() {
    let (db, models) = (database().await, Models::start().await);
    let client = Client::connect(db.url()).await.unwrap();
    let body = |id: &str| {
        let content = format!("hello {id}");
        serde_json::json!({"model": "somebody-elses-model", "max_tokens": 9, "messages": [{"role": "user", "content": content}]})
    };
    client.set_budget(&Budget::new(workflow(), 0).priced_only(), "ada").await.unwrap();
    client.enqueue::<Asking>("r", format!("raw:{}", body("r"))).await.unwrap();
    let node = node(&db, &models).await;
    until_held(&client, 1, 0).await;
    let why = client.explain("r").await.unwrap().to_string();
    assert!(why.contains("what this request costs is not known"), "{why}");
    client.set_budget(&Budget::new(workflow(), 0), "ada").await.unwrap();
    until_status(&client, "r", RunStatus::Completed).await;
    // And the same without having been held before.
    client.enqueue::<Asking>("s", format!("raw:{}", body("s"))).await.unwrap();
    until_status(&client, "s", RunStatus::Completed).await;
    node.shutdown().await.unwrap();
    let total = client.costs(CostsOf::Everything).await.unwrap().total;
    assert_eq!((total.items, total.unpriced, total.nano_usd), (2, 2, 0));
    let wrong = client.set_budget(&Budget::new(workflow(), -1), "ada").await.unwrap_err();
    assert_eq!(wrong.code(), "invalid-budget");
    check(&db).await;
}
