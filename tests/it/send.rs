//! The send protocol: intent first, one send, and what became of it is found out, never guessed.

use crate::flows::Asking;
use crate::models::{Models, asking, batches, check_paid, until_batch};
use crate::support::{check, connect, database, eventually, execute, number, until_over};
use longhaul::{BatchStatus, Client, Config, Kind, Node};
use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::provider::{Config as SandboxConfig, Fault, Operation, When};
use std::time::Duration;

async fn enqueue(db: &TestDatabase, prefix: &str, n: usize) -> Client {
    let client = Client::connect(db.url()).await.unwrap();
    let runs = (0..n).map(|k| (format!("{prefix}{k}"), format!("q{k}"))).collect();
    client.enqueue_many::<Asking>(runs).await.unwrap();
    client
}

/// Every run completed, nothing was paid twice, and the tables agree with the provider's ledger.
pub async fn all_paid_once(db: &TestDatabase, models: &Models, runs: i64) {
    let client = Client::connect(db.url()).await.unwrap();
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, runs);
    eventually("every batch is settled", async || {
        let mut conn = connect(db).await;
        (number(&mut conn, "select count(*) from longhaul.batches where status < 8").await == 0).then_some(())
    })
    .await;
    let mut conn = connect(db).await;
    check_paid(models, &mut conn).await;
    assert_eq!(models.summary().items_paid as i64, runs);
    check(db).await;
}

async fn found_again_after(fault: Fault) {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Create, When::Nth(1), fault);
    enqueue(&db, "r", 7).await;
    let node = models.node(&db, &Asking::default()).await;
    all_paid_once(&db, &models, 7).await;
    let progress = node.progress();
    assert_eq!((progress.ambiguous_creates, progress.adopted), (1, 1), "{progress:?}");
    let totals = node.client().batch_totals().await.unwrap();
    assert_eq!((totals.ambiguous_creates, totals.adopted, totals.late_duplicates), (1, 1, 0));
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_whose_reply_was_cut_is_found_again_and_paid_once() {
    found_again_after(Fault::AcceptThenCut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_was_accepted_with_an_error_is_found_again() {
    found_again_after(Fault::AcceptThenStatus(500)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_was_accepted_with_an_unreadable_success_is_found_again() {
    found_again_after(Fault::AcceptThenStatus(408)).await;
}

/// The provider is down when it is asked: nothing was created, and it is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_cannot_be_reached_is_tried_again() {
    let db = database().await;
    let ledger = tempfile::tempdir().unwrap();
    let config = || SandboxConfig::default().processing(Duration::from_millis(20)).ledger(ledger.path().join("paid"));
    let models = Models::with(config()).await;
    let node = models.node(&db, &Asking::default()).await;
    models.control.wait_served(Operation::List, 1).await;
    let mut conn = connect(&db).await;
    eventually("the account is known", async || {
        (number(&mut conn, "select count(*) from longhaul.accounts where owner is not null").await == 1).then_some(())
    })
    .await;
    let port: u16 = models.sandbox.base_url().rsplit(':').next().unwrap().parse().unwrap();
    models.sandbox.stop().await;
    enqueue(&db, "r", 3).await;
    // Without its listing nothing is worth being reserved: it is left alone for a while.
    eventually("the account waits", async || {
        (number(&mut conn, "select count(*) from longhaul.accounts where not_before is not null").await == 1)
            .then_some(())
    })
    .await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batches").await, 0);
    let models = Models::with(config().port(port)).await;
    all_paid_once(&db, &models, 3).await;
    assert_eq!(node.progress().ambiguous_creates, 0);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_is_obeyed() {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Create, When::Nth(1), Fault::rate_limited(2));
    enqueue(&db, "r", 3).await;
    let node = models.node(&db, &Asking::default()).await;
    all_paid_once(&db, &models, 3).await;
    let mut conn = connect(&db).await;
    let waited = number(
        &mut conn,
        "select (extract(epoch from max(sending_at) - min(abandoned_at)) * 1000)::bigint from longhaul.batches",
    )
    .await;
    assert!(waited >= 1_900, "sent again after {waited} ms");
    assert_eq!(models.control.seen(Operation::Create), 2);
    assert_eq!(node.progress().ambiguous_creates, 0);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_parks_the_account_with_the_reason() {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Create, When::Nth(1), Fault::status(401));
    enqueue(&db, "r", 3).await;
    let node = models.node(&db, &Asking::default()).await;
    let mut conn = connect(&db).await;
    let reason: String = eventually("the account is parked", async || {
        sqlx::query_scalar::<_, Option<String>>("select parked from longhaul.accounts")
            .fetch_optional(&mut conn)
            .await
            .unwrap()
            .flatten()
    })
    .await;
    assert!(reason.contains("401") && reason.contains("authentication_error"), "{reason}");
    // Nothing is sent however often the submitter looks.
    for _ in 0..5 {
        assert!(node.tree().wake(&Kind::Submitter("claude".into())));
    }
    let looked = models.control.seen(Operation::Create);
    eventually("the submitter has looked again", async || {
        node.tree().wake(&Kind::Submitter("claude".into())).then_some(())
    })
    .await;
    assert_eq!((looked, models.control.seen(Operation::Create)), (1, 1));
    // An operator has put it right.
    execute(&mut conn, "update longhaul.accounts set parked = null, not_before = null").await;
    all_paid_once(&db, &models, 3).await;
    node.shutdown().await.unwrap();
}

/// A batch is found again by its number of requests: no two that are in doubt have the same.
#[tokio::test(flavor = "multi_thread")]
async fn two_sends_in_doubt_have_different_numbers() {
    let (db, models) = (database().await, Models::start().await);
    for nth in [1, 2] {
        models.inject(Operation::Create, When::Nth(nth), Fault::AcceptThenCut);
        models.inject(Operation::Create, When::Nth(nth), Fault::ListLag(Duration::from_millis(1500)));
    }
    enqueue(&db, "r", 6).await;
    let node = models.node(&db, &Asking::default()).await;
    let mut conn = connect(&db).await;
    until_batch(&mut conn, BatchStatus::Ambiguous).await;
    enqueue(&db, "s", 6).await;
    let (n, distinct) = eventually("two are in doubt", async || {
        let row: (i64, i64) =
            sqlx::query_as("select count(*), count(distinct n) from longhaul.batches where ambiguous_at is not null")
                .fetch_one(&mut conn)
                .await
                .unwrap();
        (row.0 == 2).then_some(row)
    })
    .await;
    assert_eq!(n, distinct);
    all_paid_once(&db, &models, 12).await;
    assert_eq!(node.progress().adopted, 2);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submitter_killed_while_it_was_sending_finds_its_batch_again() {
    let (db, models) = (database().await, Models::start().await);
    let held = models.control.hold_next_create();
    enqueue(&db, "r", 5).await;
    let node = models.node(&db, &Asking::default()).await;
    held.accepted().await;
    let mut conn = connect(&db).await;
    assert_eq!(batches(&mut conn).await, [(3, None)], "it is marked as being sent before the first byte");
    assert!(node.tree().kill(&Kind::Submitter("claude".into())));
    all_paid_once(&db, &models, 5).await;
    held.release();
    assert_eq!(node.progress().adopted, 1);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_killed_while_it_was_sending_leaves_its_batch_to_another() {
    let (db, models) = (database().await, Models::start().await);
    let held = models.control.hold_next_create();
    enqueue(&db, "r", 5).await;
    let node = models.node(&db, &Asking::default()).await;
    held.accepted().await;
    drop(node);
    let other = models.node_with(&db, &Asking::default(), asking("b")).await;
    all_paid_once(&db, &models, 5).await;
    held.release();
    assert_eq!(other.progress().adopted, 1);
    assert_eq!(models.control.seen(Operation::Create), 1, "it was sent once");
    other.shutdown().await.unwrap();
}

/// Sealed but not yet marked as being sent is certain not to have been sent: it goes out again at once.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_node_had_sealed_goes_out_at_once() {
    let (db, models) = (database().await, Models::start().await);
    // Long enough that waiting for the quarantine would fail the test.
    let patient = |name| Config { quarantine: Duration::from_secs(3600), ..asking(name) };
    let node = models.node_with(&db, &Asking::default(), patient("a")).await;
    let mut conn = connect(&db).await;
    eventually("the account is known", async || {
        (number(&mut conn, "select count(*) from longhaul.accounts where owner is not null").await == 1).then_some(())
    })
    .await;
    // The mark of the first batch is held up, until its node is gone and its session with it.
    execute(
        &mut conn,
        "create function public.hold_up() returns trigger language plpgsql as $$ begin
             if new.status = 3 and (select count(*) from longhaul.batches) = 1 then
                 perform pg_advisory_lock(4711);
             end if;
             return new;
         end $$;
         create trigger hold_up before update on longhaul.batches for each row execute function public.hold_up();
         select pg_advisory_lock(4711)",
    )
    .await;
    enqueue(&db, "r", 5).await;
    until_batch(&mut conn, BatchStatus::Sealed).await;
    drop(node);
    let other = models.node_with(&db, &Asking::default(), patient("b")).await;
    all_paid_once(&db, &models, 5).await;
    assert_eq!(batches(&mut conn).await[0], (9, None), "the sealed one is given up");
    assert_eq!((other.progress().ambiguous_creates, models.control.seen(Operation::Create)), (0, 1));
    other.shutdown().await.unwrap();
}

/// Two names for one account, on one node: one of them is served, undisturbed by the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_name_of_one_account_disturbs_nobody() {
    let (db, models) = (database().await, Models::start().await);
    let node = Node::builder(db.url())
        .workflow(Asking::default())
        .provider("claude", models.provider())
        .provider("other", models.provider())
        .config(asking("a"))
        .start()
        .await
        .unwrap();
    let client = enqueue(&db, "r", 10).await;
    let others = (0..10).map(|k| (format!("s{k}"), "at:other".into())).collect();
    client.enqueue_many::<Asking>(others).await.unwrap();
    eventually("one of them is served", async || (client.counts().await.unwrap().completed == 10).then_some(())).await;
    let mut conn = connect(&db).await;
    check_paid(&models, &mut conn).await;
    assert_eq!(node.progress().ambiguous_creates, 0);
    let fence = number(&mut conn, "select fence from longhaul.accounts").await;
    assert!(fence <= 2, "the lease changed hands {fence} times");
    node.shutdown().await.unwrap();
}
