//! Model calls: requests of many runs share batches, and each reply finds its run.

use crate::flows::{Asking, request};
use crate::models::{Models, asking, batches, check_paid};
use crate::steps::kinds;
use crate::support::{check, connect, database, execute, failure, number, until_over, until_status};
use longhaul::{Client, EventType, FailureCode, Node, RunStatus};
use longhaul_sandbox::provider::{Config as SandboxConfig, Fault, Operation, When};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn many_runs_share_one_batch_and_each_gets_its_reply() {
    let (db, models) = (database().await, Models::start().await);
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue_many::<Asking>((0..300).map(|k| (format!("r{k}"), format!("q{k}"))).collect()).await.unwrap();
    let config = longhaul::Config { linger: Duration::from_millis(1500), ..asking("a") };
    let node = models.node_with(&db, &Asking::default(), config).await;
    until_over(&client).await;
    for k in 0..300 {
        let run = client.handle::<Asking>(&format!("r{k}")).await.unwrap();
        assert_eq!(run.output().await.unwrap(), format!("echo q{k}"));
    }
    let mut conn = connect(&db).await;
    assert!(batches(&mut conn).await.len() <= 3, "300 requests that wait together travel together");
    check_paid(&models, &mut conn).await;
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_of_a_model_call_is_told_in_order() {
    let (db, models) = (database().await, Models::start().await);
    let node = models.node(&db, &Asking::default()).await;
    let run = node.client().enqueue::<Asking>("r", "hello".into()).await.unwrap();
    run.output().await.unwrap();
    use EventType::{ModelAnswered, ModelApplied, ModelAsked, ModelSubmitted, RunCompleted, RunEnqueued};
    use EventType::{StepCompleted, StepStarted};
    let mut told = kinds(&node.client(), "r").await;
    // Only when results are quicker than the telling that they are awaited is that left out.
    told.retain(|kind| *kind != ModelSubmitted);
    let expected = [
        RunEnqueued,
        StepStarted,
        StepCompleted,
        ModelAsked,
        ModelAnswered,
        ModelApplied,
        StepStarted,
        StepCompleted,
        RunCompleted,
    ];
    assert_eq!(told, expected);
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_run_may_ask_again_and_carry_a_value() {
    let (db, models) = (database().await, Models::start().await);
    let flow = Asking::default();
    let node = models.node(&db, &flow).await;
    let client = node.client();
    client.enqueue_many::<Asking>((0..40).map(|k| (format!("r{k}"), format!("twice {k}"))).collect()).await.unwrap();
    until_over(&client).await;
    for k in 0..40 {
        let run = client.handle::<Asking>(&format!("r{k}")).await.unwrap();
        assert_eq!(run.output().await.unwrap(), format!("echo twice {k}|echo twice {k} again|7"));
        assert_eq!(flow.log.count(&format!("r{k}"), "ask"), 1);
    }
    let mut conn = connect(&db).await;
    check_paid(&models, &mut conn).await;
    assert_eq!(models.summary().items_paid, 80);
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_fails_its_run_with_the_providers_words() {
    let (db, models) = (database().await, Models::start().await);
    let node = models.node(&db, &Asking::default()).await;
    let client = node.client();
    let mut runs: Vec<(String, String)> = (0..20).map(|k| (format!("r{k}"), "fine".into())).collect();
    runs.push(("bad".into(), "invalid".into()));
    runs.push(("worse".into(), r#"raw:{"model":"claude-haiku-4-5"}"#.into()));
    client.enqueue_many::<Asking>(runs).await.unwrap();
    until_over(&client).await;
    let (code, message) = failure::<Asking>(&client, "bad").await;
    assert_eq!(code, FailureCode::ModelFailed);
    assert!(message.contains("no such thing"), "{message}");
    let (_, message) = failure::<Asking>(&client, "worse").await;
    assert!(message.contains("max_tokens"), "{message}");
    assert_eq!(client.counts().await.unwrap().completed, 20);
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passing_error_is_asked_again_until_it_is_answered() {
    let (db, models) = (database().await, Models::start().await);
    let node = models.node(&db, &Asking::default()).await;
    let run = node.client().enqueue::<Asking>("r", "overloaded twice".into()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "echo overloaded twice");
    let retried = kinds(&node.client(), "r").await.iter().filter(|k| **k == EventType::ModelRetried).count();
    assert_eq!(retried, 2);
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(distinct (batch, item)) from longhaul.batch_items").await, 3);
    assert_eq!(number(&mut conn, "select max(attempt)::bigint from longhaul.batch_items").await, 3);
    check_paid(&models, &mut conn).await;
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_does_not_pass_uses_up_its_attempts() {
    let (db, models) = (database().await, Models::start().await);
    let config = longhaul::Config { model_attempts: 2, ..asking("a") };
    let node = models.node_with(&db, &Asking::default(), config).await;
    let client = node.client();
    client.enqueue::<Asking>("r", "overloaded".into()).await.unwrap();
    let (code, message) = failure::<Asking>(&client, "r").await;
    assert_eq!(code, FailureCode::ModelFailed);
    assert!(message.contains("too much"), "{message}");
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batch_items").await, 2);
    assert_eq!(models.summary().items_paid, 0);
    node.shutdown().await.unwrap();
    check(&db).await;
}

/// What the provider did not work on goes out again, and counts against no budget.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_request_goes_out_again_without_using_up_attempts() {
    let (db, models) = (database().await, Models::start().await);
    for nth in 1..=3 {
        models.inject(Operation::Create, When::Nth(nth), Fault::Expire { every: 1 });
    }
    let config = longhaul::Config { model_attempts: 1, ..asking("a") };
    let node = models.node_with(&db, &Asking::default(), config).await;
    let run = node.client().enqueue::<Asking>("r", "hello".into()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "echo hello");
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batch_items where status = 5").await, 3);
    check_paid(&models, &mut conn).await;
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_canceled_at_the_provider_goes_out_again() {
    let (db, models) = (database().await, Models::slow().await);
    let node = models.node(&db, &Asking::default()).await;
    let client = node.client();
    client.enqueue_many::<Asking>((0..5).map(|k| (format!("r{k}"), "hello".into())).collect()).await.unwrap();
    models.control.wait_served(Operation::Create, 1).await;
    let id = models.control.batches()[0].clone();
    // Somebody cancels it by hand.
    let reply = reqwest::Client::new()
        .post(format!("{}/v1/messages/batches/{id}/cancel", models.sandbox.base_url()))
        .header("x-api-key", "sk-test")
        .header("anthropic-version", "2023-06-01")
        .send()
        .await
        .unwrap();
    assert!(reply.status().is_success());
    let finish = models.control.clone();
    let finishing = tokio::spawn(async move {
        let mut n = 2;
        loop {
            finish.wait_served(Operation::Create, n).await;
            finish.finish(&finish.batches()[n - 1]);
            n += 1;
        }
    });
    until_over(&client).await;
    finishing.abort();
    assert_eq!(client.counts().await.unwrap().completed, 5);
    let mut conn = connect(&db).await;
    assert!(number(&mut conn, "select count(*) from longhaul.batch_items where status = 6").await > 0);
    check_paid(&models, &mut conn).await;
    node.shutdown().await.unwrap();
    check(&db).await;
}

/// Batches are cut by count, and by bytes.
#[tokio::test(flavor = "multi_thread")]
async fn batches_are_cut_by_count_and_by_bytes() {
    let (db, models) = (database().await, Models::start().await);
    let client = Client::connect(db.url()).await.unwrap();
    let mut runs: Vec<(String, String)> = (0..25).map(|k| (format!("r{k}"), "hello".into())).collect();
    runs.extend((0..5).map(|k| (format!("large{k}"), "x".repeat(4_000))));
    client.enqueue_many::<Asking>(runs).await.unwrap();
    let config = longhaul::Config { max_batch_requests: 10, max_batch_bytes: 10_000, ..asking("a") };
    let node = models.node_with(&db, &Asking::default(), config).await;
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 30);
    let mut conn = connect(&db).await;
    assert!(number(&mut conn, "select max(n)::bigint from longhaul.batches").await <= 10);
    assert!(number(&mut conn, "select max(bytes)::bigint from longhaul.batches").await <= 10_000);
    check_paid(&models, &mut conn).await;
    node.shutdown().await.unwrap();
    check(&db).await;
}

/// A request whose text no JSON string type can hold is refused alone, before anybody pays or waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_odd_request_stops_no_neighbour() {
    let (db, models) = (database().await, Models::start().await);
    let node = models.node(&db, &Asking::default()).await;
    let client = node.client();
    let raw = |text: &str| {
        let body = request("raw", 1, "PROMPT").to_string();
        format!("raw:{}", body.replace("PROMPT", text))
    };
    let mut runs: Vec<(String, String)> = (0..20).map(|k| (format!("r{k}"), "fine".into())).collect();
    runs.push(("surrogate".into(), raw(r"\ud800")));
    runs.push(("nul".into(), raw(r"a\u0000b")));
    runs.push(("pair".into(), raw(r"\ud83d\ude00")));
    client.enqueue_many::<Asking>(runs).await.unwrap();
    until_over(&client).await;
    let (code, message) = failure::<Asking>(&client, "surrogate").await;
    assert_eq!(code, FailureCode::Undecodable, "{message}");
    let nul = client.handle::<Asking>("nul").await.unwrap().output().await.unwrap();
    assert_eq!(nul, "echo a\0b");
    let pair = client.handle::<Asking>("pair").await.unwrap().output().await.unwrap();
    assert_eq!(pair, "echo \u{1F600}");
    assert_eq!(client.counts().await.unwrap().completed, 22);
    node.shutdown().await.unwrap();
    check(&db).await;
}

/// An answer was paid for: a node that cannot read it leaves the run to an operator, and does not fail it.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_provider_does_not_fail_a_run_that_was_answered() {
    let (db, models) = (database().await, Models::slow().await);
    let node = models.node(&db, &Asking::default()).await;
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Asking>("r", "hello".into()).await.unwrap();
    models.control.wait_served(Operation::Create, 1).await;
    until_status(&client, "r", RunStatus::Waiting).await;
    // Nobody claims the run while the answer comes in.
    let mut conn = connect(&db).await;
    execute(
        &mut conn,
        "create function hold() returns trigger language plpgsql as $$
             begin new.ready_at = new.ready_at + interval '1 hour'; return new; end $$;
         create trigger hold before update on longhaul.runs for each row
             when (old.status = 3 and new.status = 1) execute function hold()",
    )
    .await;
    models.control.finish(&models.control.batches()[0]);
    until_status(&client, "r", RunStatus::Runnable).await;
    node.shutdown().await.unwrap();
    execute(&mut conn, "update longhaul.runs set ready_at = longhaul.now()").await;
    let other = Node::builder(db.url()).workflow(Asking::default()).config(asking("b")).start().await.unwrap();
    until_status(&client, "r", RunStatus::Parked).await;
    let reason = client.run("r").await.unwrap().reason.unwrap();
    assert!(reason.contains("claude"), "{reason}");
    other.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newer_version_of_the_api_is_spoken_too() {
    let (db, models) = (database().await, Models::with(SandboxConfig::default().list_page(1)).await);
    let node = Node::builder(db.url())
        .workflow(Asking::default())
        .provider("claude", models.provider().version("2026-10-21"))
        .config(asking("a"))
        .start()
        .await
        .unwrap();
    let run = node.client().enqueue::<Asking>("r", "hello".into()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "echo hello");
    node.shutdown().await.unwrap();
}
