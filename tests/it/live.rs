//! Live calls: the intent is committed first, one send each, at-least-once by rule, never while a batch has the request.

use crate::models::{Models, asking, until_batch};
use crate::support::{check, connect, database, eventually, execute, failure, number, until_over, until_status};
use longhaul::testing::TestNode;
use longhaul::{
    BatchStatus, Client, Config, CostsOf, EventType, FailureCode, Kind, Next, Node, Reply, Result, Run, RunStatus,
};
use longhaul::{WhenLost, Workflow, workflow};
use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::provider::{Config as SandboxConfig, Fault, Operation, When};
use sqlx::PgConnection;
use std::time::Duration;

/// Asks once. The input is `how: prompt`.
pub struct Urgent;

#[workflow]
mod urgent {
    use super::*;

    impl Workflow for Urgent {
        const NAME: &'static str = "urgent";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = step::ask;
    }

    #[step]
    async fn ask(run: &mut Run<Urgent>) -> Result<Next<Urgent>> {
        let (how, prompt) = run.input.split_once(": ").unwrap();
        let request = crate::flows::request(run.id(), 1, prompt);
        let asked = run.model("claude", request);
        let asked = match how {
            "live" => asked.live(),
            "park" => asked.live().when_lost(WhenLost::Park),
            "batch" => asked,
            "wrong rule" => asked.when_lost(WhenLost::Park),
            "talk" => {
                let request = crate::flows::request(run.id(), 1, prompt);
                run.converse("claude", request).live().when_lost(WhenLost::Park)
            }
            within => asked.deadline(Duration::from_millis(within.parse().unwrap())),
        };
        Ok(asked.then(step::answered))
    }

    #[step]
    async fn answered(_: &mut Run<Urgent>, reply: Reply) -> Result<Next<Urgent>> {
        Ok(Next::finish(reply.text()))
    }
}

async fn node_with(db: &TestDatabase, models: &Models, config: Config) -> Node {
    let node = Node::builder(db.url()).workflow(Urgent).provider("claude", models.provider()).config(config);
    node.start().await.unwrap()
}

pub async fn node(db: &TestDatabase, models: &Models) -> Node {
    node_with(db, models, asking("a")).await
}

pub async fn enqueue(db: &TestDatabase, how: &str, n: usize) -> Client {
    let client = Client::connect(db.url()).await.unwrap();
    let runs = (0..n).map(|k| (format!("r{k}"), format!("{how}: q{k}"))).collect();
    client.enqueue_many::<Urgent>(runs).await.unwrap();
    client
}

/// What was paid is what is booked: live calls and batches apart, each at its price.
pub async fn booked(models: &Models, client: &Client) {
    let (summary, live) = (models.summary(), client.live_totals().await.unwrap());
    let paid = models.paid();
    assert_eq!(live.answered + live.superseded, paid.iter().filter(|p| p.live).count() as i64, "{live:?} {summary:?}");
    assert_eq!(live.nano_usd, summary.nano_usd_live as i64);
    let total = client.costs(CostsOf::Everything).await.unwrap().total;
    assert_eq!(
        (total.items, total.nano_usd),
        (paid.len() as i64, (summary.nano_usd_batch + summary.nano_usd_live) as i64),
        "{total:?} {summary:?}"
    );
    assert_eq!(client.batch_totals().await.unwrap().nano_usd, summary.nano_usd_batch as i64);
    assert_eq!((live.under_way, live.unpriced), (0, 0));
}

async fn calls(conn: &mut PgConnection, status: i16) -> i64 {
    sqlx::query_scalar("select count(*) from longhaul.live_calls where status = $1")
        .bind(status)
        .fetch_one(conn)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_call_is_answered_at_once_and_costs_the_full_price() {
    let (db, models) = (database().await, Models::slow().await);
    let node = node(&db, &models).await;
    let run = node.client().enqueue::<Urgent>("r", "live: hello".into()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "echo hello");
    let kinds = crate::steps::kinds(&node.client(), "r").await;
    use EventType::{ModelAnswered, ModelApplied, ModelAsked, ModelSubmitted, RunCompleted, RunEnqueued};
    use EventType::{StepCompleted, StepStarted};
    let told = [RunEnqueued, StepStarted, StepCompleted, ModelAsked, ModelSubmitted, ModelAnswered, ModelApplied];
    assert_eq!(kinds, [&told[..], &[StepStarted, StepCompleted, RunCompleted]].concat());
    let live = node.client().live_totals().await.unwrap();
    assert_eq!((live.calls, live.answered, live.refused, live.lost), (1, 1, 0, 0));
    assert!(live.nano_usd > 0);
    assert_eq!(node.client().batch_totals().await.unwrap().batches, 0);
    booked(&models, &node.client()).await;
    node.shutdown().await.unwrap();
    check(&db).await;
}

/// One request of each kind: they do not get into each other's way.
#[tokio::test(flavor = "multi_thread")]
async fn live_calls_and_batches_go_side_by_side() {
    let (db, models) = (database().await, Models::start().await);
    let client = enqueue(&db, "live", 40).await;
    client.enqueue_many::<Urgent>((0..40).map(|k| (format!("b{k}"), format!("batch: b{k}"))).collect()).await.unwrap();
    client.enqueue::<Urgent>("t", "talk: t".into()).await.unwrap();
    let node = node(&db, &models).await;
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 81);
    let paid = models.paid();
    assert_eq!((paid.len(), paid.iter().filter(|p| p.live).count()), (81, 41));
    assert_eq!(models.summary().logical_paid_twice, 0);
    booked(&models, &client).await;
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_is_called_again_and_what_does_not_fails_the_run() {
    let (db, models) = (database().await, Models::start().await);
    let client = Client::connect(db.url()).await.unwrap();
    for (id, input) in [
        ("twice", "live: overloaded twice"),
        ("always", "live: overloaded"),
        ("invalid", "live: invalid"),
        ("rule", "wrong rule: x"),
    ] {
        client.enqueue::<Urgent>(id, input.into()).await.unwrap();
    }
    let config = Config { model_attempts: 3, ..asking("a") };
    let node = node_with(&db, &models, config).await;
    until_over(&client).await;
    assert_eq!(client.handle::<Urgent>("twice").await.unwrap().output().await.unwrap(), "echo overloaded twice");
    let (code, why) = failure::<Urgent>(&client, "always").await;
    assert!(code == FailureCode::ModelFailed && why.contains("overloaded_error"), "{code:?} {why}");
    let (code, why) = failure::<Urgent>(&client, "invalid").await;
    assert!(code == FailureCode::ModelFailed && why.contains("no such thing"), "{code:?} {why}");
    assert!(failure::<Urgent>(&client, "rule").await.1.contains("`when_lost`"));
    let live = client.live_totals().await.unwrap();
    assert_eq!((live.answered, live.refused, live.lost), (1, 2 + 3 + 1, 0));
    booked(&models, &client).await;
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_of_live_calls_is_obeyed_by_all_nodes() {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Live, When::Nth(1), Fault::rate_limited(2));
    let one = Config { live_calls: 1, ..asking("a") };
    let (a, b) = (node_with(&db, &models, one.clone()).await, node_with(&db, &models, one).await);
    let client = enqueue(&db, "live", 1).await;
    let mut conn = connect(&db).await;
    eventually("the first call was refused", async || (calls(&mut conn, 4).await == 1).then_some(())).await;
    client.enqueue::<Urgent>("other", "live: other".into()).await.unwrap();
    until_over(&client).await;
    let waited = number(
        &mut conn,
        "select (extract(epoch from min(sent_at) filter (where status = 3) - min(settled_at) filter (where status = 4))
             * 1000)::bigint from longhaul.live_calls",
    )
    .await;
    assert!(waited >= 1_900, "called again after {waited} ms");
    assert_eq!(models.control.seen(Operation::Live), 3);
    booked(&models, &client).await;
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
    check(&db).await;
}

/// The reply is lost after the provider was paid: made again unless its rule says otherwise, and never hidden.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_answer_was_cut_is_made_again_or_parks_its_run() {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Live, When::Nth(1), Fault::AcceptThenCut);
    models.inject(Operation::Live, When::Nth(3), Fault::AcceptThenStatus(500));
    let node = node(&db, &models).await;
    let client = node.client();
    let again = client.enqueue::<Urgent>("again", "live: again".into()).await.unwrap();
    assert_eq!(again.output().await.unwrap(), "echo again");
    client.enqueue::<Urgent>("park", "park: park".into()).await.unwrap();
    until_status(&client, "park", RunStatus::Parked).await;
    let said = client.explain("park").await.unwrap().to_string();
    assert!(said.contains("nobody knows"), "{said}");
    let live = client.live_totals().await.unwrap();
    assert_eq!((live.calls, live.answered, live.lost), (3, 1, 2), "{live:?}");
    // The one was paid twice, which its rule allows; the other waits for a person, who may say so.
    assert_eq!((models.summary().items_paid, models.summary().logical_paid_twice), (3, 1));
    check(&db).await;
    client.retry("park").await.unwrap();
    until_over(&client).await;
    assert_eq!(client.handle::<Urgent>("park").await.unwrap().output().await.unwrap(), "echo park");
    assert_eq!(client.live_totals().await.unwrap().calls, 4);
    node.shutdown().await.unwrap();
    check(&db).await;
}

/// Two calls are held open at the provider when whoever made them dies; then the rules of the two runs decide.
async fn survives(how: &str, kill: impl AsyncFnOnce(Node) -> Option<Node>) {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Live, When::Times(1), Fault::Hold);
    let first = node(&db, &models).await;
    let client = enqueue(&db, how, 1).await;
    models.control.wait_served(Operation::Live, 1).await;
    let mut conn = connect(&db).await;
    assert_eq!(calls(&mut conn, 2).await, 1, "the intent is there before the answer");
    let last = match kill(first).await {
        Some(node) => node,
        None => node_with(&db, &models, asking("b")).await,
    };
    if how == "park" {
        until_status(&client, "r0", RunStatus::Parked).await;
        assert_eq!(models.summary().items_paid, 1);
    } else {
        until_over(&client).await;
        assert_eq!(client.counts().await.unwrap().completed, 1);
        assert_eq!(models.summary().items_paid, 2);
    }
    assert_eq!(client.live_totals().await.unwrap().lost, 1);
    models.control.release_all();
    last.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_killed_caller_follow_the_rule_of_their_runs() {
    for how in ["live", "park"] {
        survives(how, async |node: Node| {
            assert!(node.tree().kill(&Kind::Caller("claude".into())));
            Some(node)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_dead_node_follow_the_rule_of_their_runs() {
    for how in ["live", "park"] {
        survives(how, async |node: Node| {
            drop(node);
            None
        })
        .await;
    }
}

/// A node that is taken for dead while its call is under way: the answer that it brings late serves, or is booked.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_to_a_call_that_was_taken_for_lost_serves() {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Live, When::Times(1), Fault::Hold);
    let node = node(&db, &models).await;
    let client = enqueue(&db, "park", 1).await;
    models.control.wait_served(Operation::Live, 1).await;
    let mut conn = connect(&db).await;
    // As the janitor of another node would find it.
    execute(&mut conn, "update longhaul.live_calls set node = gen_random_uuid()").await;
    execute(
        &mut conn,
        "insert into longhaul.nodes (id, name, version, lease_ms, dead_at)
             select node, 'gone', '0', 1000, longhaul.now() from longhaul.live_calls",
    )
    .await;
    until_status(&client, "r0", RunStatus::Parked).await;
    models.control.release_all();
    eventually("the answer is booked", async || (calls(&mut conn, 10).await == 1).then_some(())).await;
    client.retry("r0").await.unwrap();
    until_over(&client).await;
    assert_eq!(client.handle::<Urgent>("r0").await.unwrap().output().await.unwrap(), "echo q0");
    assert_eq!(models.summary().items_paid, 1);
    booked(&models, &client).await;
    node.shutdown().await.unwrap();
    check(&db).await;
}

/// A deadline is a matter of the batch queue until a batch would miss it.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_a_batch_would_miss_goes_live() {
    let (db, models) = (database().await, Models::slow().await);
    // Nothing travels in a batch: the first one waits for company for ever.
    let lingering = Config { linger: Duration::from_secs(600), max_batch_age: Duration::from_secs(600), ..asking("a") };
    let node = node_with(&db, &models, Config { batch_time: Duration::from_secs(1), ..lingering }).await;
    let client = node.client();
    let soon = client.enqueue::<Urgent>("soon", "500: soon".into()).await.unwrap();
    let later = client.enqueue::<Urgent>("later", "2500: later".into()).await.unwrap();
    let never = client.enqueue::<Urgent>("never", "3600000: never".into()).await.unwrap();
    assert_eq!(soon.output().await.unwrap(), "echo soon");
    assert_eq!(later.output().await.unwrap(), "echo later");
    let mut conn = connect(&db).await;
    let waited = number(
        &mut conn,
        "select (extract(epoch from c.sent_at - w.opened_at) * 1000)::bigint from longhaul.live_calls c
             join longhaul.waits w on w.run = c.run and w.ordinal = c.wait join longhaul.runs r on r.id = c.run
             where r.run_id = 'later'",
    )
    .await;
    assert!((1_500..2_500).contains(&waited), "went live after {waited} ms");
    assert_eq!(client.run("never").await.unwrap().status, RunStatus::Waiting);
    assert_eq!(client.live_totals().await.unwrap().calls, 2);
    client.cancel("never").await.unwrap();
    assert!(never.output().await.is_err());
    booked(&models, &client).await;
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_a_batch_stays_there_whatever_its_deadline() {
    let (db, models) = (database().await, Models::slow().await);
    let quick = Config { linger: Duration::from_millis(10), batch_time: Duration::from_millis(1), ..asking("a") };
    let node = node_with(&db, &models, quick).await;
    let client = node.client();
    client.enqueue::<Urgent>("r", "1500: q".into()).await.unwrap();
    let mut conn = connect(&db).await;
    until_batch(&mut conn, BatchStatus::Submitted).await;
    eventually("the deadline has passed", async || {
        let past = "select count(*) from longhaul.waits where deadline_at < longhaul.now()";
        (number(&mut conn, past).await == 1).then_some(())
    })
    .await;
    // Whoever makes live calls has looked since.
    let other = client.enqueue::<Urgent>("other", "live: other".into()).await.unwrap();
    other.output().await.unwrap();
    assert_eq!(client.live_totals().await.unwrap().calls, 1);
    for batch in models.control.batches() {
        models.control.finish(&batch);
    }
    until_over(&client).await;
    assert_eq!(models.summary().logical_paid_twice, 0);
    booked(&models, &client).await;
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_for_a_canceled_run_is_booked() {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Live, When::Times(1), Fault::Hold);
    let node = node(&db, &models).await;
    let client = enqueue(&db, "live", 1).await;
    models.control.wait_served(Operation::Live, 1).await;
    client.cancel("r0").await.unwrap();
    check(&db).await;
    models.control.release_all();
    let mut conn = connect(&db).await;
    eventually("the answer is booked", async || (calls(&mut conn, 10).await == 1).then_some(())).await;
    assert_eq!(client.run("r0").await.unwrap().status, RunStatus::Canceled);
    assert_eq!(client.live_totals().await.unwrap().superseded, 1);
    booked(&models, &client).await;
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_calls_than_configured_are_under_way_and_a_drain_waits_for_them() {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Live, When::Times(3), Fault::Hold);
    let node = node_with(&db, &models, Config { live_calls: 3, ..asking("a") }).await;
    let client = enqueue(&db, "live", 10).await;
    models.control.wait_served(Operation::Live, 3).await;
    let mut conn = connect(&db).await;
    assert_eq!((calls(&mut conn, 2).await, models.control.seen(Operation::Live)), (3, 3));
    let control = models.control.clone();
    let shutdown = tokio::spawn(node.shutdown());
    eventually("the node is draining", async || {
        let held = "select count(*) from longhaul.runs where status in (1, 2)";
        (number(&mut conn, held).await == 0).then_some(())
    })
    .await;
    control.release_all();
    shutdown.await.unwrap().unwrap();
    assert_eq!((calls(&mut conn, 2).await, calls(&mut conn, 3).await), (0, 3));
    let next = node_with(&db, &models, asking("b")).await;
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 10);
    assert_eq!(models.summary().logical_paid_twice, 0);
    booked(&models, &client).await;
    next.shutdown().await.unwrap();
    check(&db).await;
}

/// What was paid stays in the sums when the records of the runs are gone.
#[tokio::test(flavor = "multi_thread")]
async fn sums_of_live_calls_outlive_their_records() {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Live, When::Nth(2), Fault::AcceptThenCut);
    let build = |b: longhaul::NodeBuilder| {
        b.workflow(Urgent).provider("claude", models.provider()).config(Config { live_calls: 1, ..asking("a") })
    };
    let node = TestNode::start(db.url(), build).await.unwrap();
    let client = enqueue(&db, "live", 3).await;
    until_over(&client).await;
    let before = client.live_totals().await.unwrap();
    assert_eq!((before.calls, before.answered, before.lost), (4, 3, 1));
    node.advance(Duration::from_secs(31 * 86_400)).await.unwrap();
    let mut conn = connect(&db).await;
    eventually("the records are removed", async || {
        (number(&mut conn, "select count(*) from longhaul.live_calls").await == 0).then_some(())
    })
    .await;
    assert_eq!(client.live_totals().await.unwrap(), before);
    node.shutdown().await.unwrap();
    check(&db).await;
}

/// A wrong key is about the account: no run fails for it, and nothing more is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_parks_the_account_and_fails_nobody() {
    let (db, models) = (database().await, Models::with(SandboxConfig::default()).await);
    models.inject(Operation::Live, When::Nth(1), Fault::status(401));
    let node = node_with(&db, &models, Config { live_calls: 1, ..asking("a") }).await;
    let client = enqueue(&db, "live", 3).await;
    let mut conn = connect(&db).await;
    eventually("the account is parked", async || {
        (number(&mut conn, "select count(*) from longhaul.accounts where parked is not null").await == 1).then_some(())
    })
    .await;
    eventually("the call is settled", async || (calls(&mut conn, 4).await == 1).then_some(())).await;
    assert_eq!(client.counts().await.unwrap().waiting, 3);
    assert_eq!(models.control.seen(Operation::Live), 1);
    assert!(client.explain("r0").await.unwrap().to_string().contains("nothing is sent"));
    node.shutdown().await.unwrap();
    // Whoever starts a process with another key mends it.
    let next = node_with(&db, &models, asking("b")).await;
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 3);
    booked(&models, &client).await;
    next.shutdown().await.unwrap();
    check(&db).await;
}
