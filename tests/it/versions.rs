//! Versions in flight: who runs what, what an upgrade does to a run wherever it is, and what happens if it cannot.

use crate::letters::{DAY, MENDED, New, Old};
use crate::models::Models;
use crate::support::{check, config, connect, database, eventually, execute, number, until_over, until_status};
use longhaul::testing::TestNode;
use longhaul::{Check, Client, Error, EventType, Manifest, Next, Node, Result, Run, RunStatus, Workflow, workflow};
use longhaul_sandbox::postgres::testing::TestDatabase;
use std::sync::atomic::Ordering;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

async fn kinds(client: &Client, run: &str) -> Vec<EventType> {
    client.events(run).await.unwrap().into_iter().map(|e| e.kind).collect()
}

async fn upgrades(client: &Client, run: &str) -> usize {
    kinds(client, run).await.into_iter().filter(|kind| *kind == EventType::RunUpgraded).count()
}

async fn output(client: &Client, run: &str) -> String {
    client.handle::<New>(run).await.unwrap().output().await.unwrap()
}

async fn start<W: Workflow>(db: &TestDatabase, models: &Models, app: W) -> TestNode {
    TestNode::start(db.url(), |node| node.workflow(app).provider("claude", models.provider())).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_taken_over_wherever_it_is() {
    let (db, models) = (database().await, Models::start().await);
    let client = Client::connect(db.url()).await.unwrap();
    let old = Old::default();
    old.failing.store(true, Ordering::Relaxed);
    let node = start(&db, &models, old).await;
    for input in ["middle", "sleep", "human", "fork", "call"] {
        client.enqueue::<Old>(input, input.into()).await.unwrap();
    }
    node.run_until_quiescent(PATIENCE).await.unwrap();
    node.shutdown().await.unwrap();
    // One whose answer is there already, and one that has not begun.
    client.answer("human", "ada", &true).await.unwrap();
    client.enqueue::<Old>("new", "middle".into()).await.unwrap();

    let node = start(&db, &models, New::default()).await;
    node.run_until_quiescent(PATIENCE).await.unwrap();
    assert_eq!(output(&client, "human").await, "human:new true 3");
    assert_eq!(output(&client, "new").await, "middle:new 6 0");
    assert_eq!(client.run("sleep").await.unwrap().status, RunStatus::Waiting, "it is upgraded when its time comes");
    assert_eq!(upgrades(&client, "sleep").await, 0);

    node.advance(DAY).await.unwrap();
    until_over(&client).await;
    let outputs = [
        ("middle", "middle:new 5 1"),
        ("sleep", "sleep:new 1"),
        ("fork", "fork:new [10, 20]"),
        ("call", "call:new 10+2"),
    ];
    for (run, expected) in outputs {
        assert_eq!((output(&client, run).await.as_str(), upgrades(&client, run).await), (expected, 1), "{run}");
    }
    let mut conn = connect(&db).await;
    let branches = "select count(*) from longhaul.events e join longhaul.runs r on r.id = e.run
                    where e.type = 10 and r.parent is not null";
    assert_eq!(number(&mut conn, branches).await, 2, "a branch is a run like any");
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_paid_for_reaches_the_newer_version() {
    let (db, models) = (database().await, Models::start().await);
    let client = Client::connect(db.url()).await.unwrap();
    // Without the provider nothing is sent: the run waits when its node goes.
    let node = TestNode::start(db.url(), |node| node.workflow(Old::default())).await.unwrap();
    client.enqueue::<Old>("r", "model".into()).await.unwrap();
    until_status(&client, "r", RunStatus::Waiting).await;
    node.shutdown().await.unwrap();

    let node = start(&db, &models, New::default()).await;
    assert_eq!(output(&client, "r").await, "model:new echo x 7");
    let kinds = kinds(&client, "r").await;
    let end = [
        EventType::ModelApplied,
        EventType::StepStarted,
        EventType::RunUpgraded,
        EventType::StepStarted,
        EventType::StepCompleted,
        EventType::RunCompleted,
    ];
    assert_eq!(kinds[kinds.len() - 6..], end);
    let told = client.events("r").await.unwrap().into_iter().find(|e| e.kind == EventType::RunUpgraded).unwrap();
    let told: serde_json::Value = serde_json::from_str(&told.payload).unwrap();
    assert_eq!(told, serde_json::json!({"from": 1, "to": 2, "was": "drafted", "step": "written"}));
    assert_eq!(models.summary().items_paid, 1);
    node.shutdown().await.unwrap();
    check(&db).await;
}

/// The upgrade is durable before the step runs: whoever takes the run over finds a run of the newer version.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_after_an_upgrade_leaves_it_whole() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let new = New::default();
    client.enqueue::<Old>("held", "x".into()).await.unwrap();
    let mut conn = connect(&db).await;
    execute(&mut conn, r#"update longhaul.runs set step = 'middle', arg = '5', state = '{"text":"x:"}'"#).await;
    let node = Node::builder(db.url()).workflow(new.clone()).config(config("a")).start().await.unwrap();
    eventually("the step runs", async || (new.log.count("held", "centre") == 1).then_some(())).await;
    drop(node);
    let node = Node::builder(db.url()).workflow(new.clone()).config(config("b")).start().await.unwrap();
    eventually("it runs again", async || (new.log.count("held", "centre") == 2).then_some(())).await;
    new.gate.open();
    assert_eq!(output(&client, "held").await, "x:new 5 1");
    assert_eq!(upgrades(&client, "held").await, 1);
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_taken_over_is_parked_and_can_be_tried_again() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let runs = ["refused", "panics", "lost", "unreadable"];
    client.enqueue_many::<Old>(runs.map(|run| (run.into(), "x".into())).to_vec()).await.unwrap();
    let mut conn = connect(&db).await;
    execute(&mut conn, r#"update longhaul.runs set step = 'middle', arg = '5', state = '{"text":"x:"}'"#).await;
    execute(&mut conn, r#"update longhaul.runs set arg = '"five"' where run_id = 'refused'"#).await;
    let node = TestNode::start(db.url(), |node| node.workflow(New::default())).await.unwrap();
    let reasons = ["not this one", "panicked: by accident", "step `nowhere`", "the state does not fit"];
    for (run, why) in runs.into_iter().zip(reasons) {
        until_status(&client, run, RunStatus::Parked).await;
        let view = client.run(run).await.unwrap();
        let reason = view.reason.unwrap();
        assert!(reason.contains("from version 1 to 2") && reason.contains(why), "{reason}");
        assert_eq!((view.step.as_str(), upgrades(&client, run).await), ("middle", 0), "it is as it was");
        assert!(client.explain(run).await.unwrap().to_string().contains(why));
    }

    MENDED.store(true, Ordering::Relaxed);
    for run in runs {
        client.retry(run).await.unwrap();
    }
    node.run_until_quiescent(PATIENCE).await.unwrap();
    for run in ["panics", "lost", "unreadable"] {
        assert_eq!(output(&client, run).await, "x:new 5 1");
    }
    let reason = client.run("refused").await.unwrap().reason.unwrap();
    assert!(reason.contains("step `centre`: the input does not fit"), "{reason}");
    // Nothing was lost: a node of its own version goes on with it as it is.
    node.shutdown().await.unwrap();
    execute(&mut conn, "update longhaul.runs set arg = '5' where run_id = 'refused'").await;
    client.retry("refused").await.unwrap();
    let node = TestNode::start(db.url(), |node| node.workflow(Old::default())).await.unwrap();
    assert_eq!(output(&client, "refused").await, "x:old 5");
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_versions_run_side_by_side() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let one = Node::builder(db.url()).workflow(Small).config(config("one")).start().await.unwrap();
    let two = Node::builder(db.url()).workflow(Later).config(config("two")).start().await.unwrap();
    for k in 0..20 {
        client.enqueue::<Small>(format!("s{k}"), k).await.unwrap();
        client.enqueue::<Later>(format!("l{k}"), k).await.unwrap();
    }
    until_over(&client).await;
    for k in 0..20 {
        let small = client.handle::<Small>(&format!("s{k}")).await.unwrap().output().await.unwrap();
        let later = client.handle::<Later>(&format!("l{k}")).await.unwrap().output().await.unwrap();
        assert_eq!((small, later), (k + 1, k + 200));
    }
    one.shutdown().await.unwrap();
    // Nobody is left who has it, and that is said.
    client.enqueue::<Small>("late", 1).await.unwrap();
    let said = client.explain("late").await.unwrap().to_string();
    assert!(said.contains("none of the 1 living nodes has this version") && said.contains("they have 2"), "{said}");
    two.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_both_versions_runs_each_as_it_is() {
    let db = database().await;
    let builder = Node::builder(db.url()).workflow(New::default()).workflow(Old::default());
    let node = builder.config(config("both")).start().await.unwrap();
    let client = node.client();
    client.enqueue::<Old>("old", "x".into()).await.unwrap();
    client.enqueue::<New>("new", "x".into()).await.unwrap();
    assert_eq!(output(&client, "old").await, "x:old 5");
    assert_eq!(output(&client, "new").await, "x:new 6 0");
    assert_eq!(upgrades(&client, "old").await, 0);
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_registered_later_is_taken_over_too() {
    let db = database().await;
    let node = Node::builder(db.url()).workflow(New::default()).config(config("a")).start().await.unwrap();
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Old>("r", "x".into()).await.unwrap();
    assert_eq!(output(&client, "r").await, "x:new 6 0");
    node.shutdown().await.unwrap();
    check(&db).await;
}

/// Three steps, of which the last two are never reached by most runs.
pub struct Small;

#[workflow]
mod small {
    use super::*;

    impl Workflow for Small {
        const NAME: &'static str = "small";
        const VERSION: u32 = 1;
        type Input = i64;
        type State = ();
        type Output = i64;
        type Entry = step::first;
    }

    #[step]
    async fn first(run: &mut Run<Small>) -> Result<Next<Small>> {
        Ok(Next::goto(step::second, *run.input))
    }
    #[step]
    async fn second(_: &mut Run<Small>, n: i64) -> Result<Next<Small>> {
        Ok(Next::finish(n + 1))
    }
}

/// The same version with a step more.
pub struct More;

#[workflow]
mod more {
    use super::*;

    impl Workflow for More {
        const NAME: &'static str = "small";
        const VERSION: u32 = 1;
        type Input = i64;
        type State = ();
        type Output = i64;
        type Entry = step::first;
    }

    #[step]
    async fn first(run: &mut Run<More>) -> Result<Next<More>> {
        Ok(Next::goto(step::third, *run.input))
    }
    #[step]
    async fn second(_: &mut Run<More>, n: i64) -> Result<Next<More>> {
        Ok(Next::finish(n + 1))
    }
    #[step]
    async fn third(_: &mut Run<More>, n: i64) -> Result<Next<More>> {
        Ok(Next::finish(n + 100))
    }
}

/// The next version, which takes nothing over, with one step less.
pub struct Later;

#[workflow]
mod later {
    use super::*;

    impl Workflow for Later {
        const NAME: &'static str = "small";
        const VERSION: u32 = 2;
        type Input = i64;
        type State = ();
        type Output = i64;
        type Entry = step::first;
    }

    #[step]
    async fn first(run: &mut Run<Later>) -> Result<Next<Later>> {
        Ok(Next::finish(*run.input + 200))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_steps_are_refused_by_name_unless_they_are_added_on_purpose() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Small>("r", 1).await.unwrap();
    let start = |extends: bool| {
        let builder = Node::builder(db.url()).workflow(More).config(config("more"));
        if extends { builder.extends("small") } else { builder }.start()
    };
    let refused = start(false).await.unwrap_err();
    assert_eq!(refused.code(), "workflow-drift");
    assert!(refused.to_string().contains("new here: third"), "{refused}");
    let client = Client::connect(db.url()).await.unwrap();
    assert_eq!(client.enqueue::<More>("s", 1).await.unwrap_err().code(), "workflow-drift");

    let node = start(true).await.unwrap();
    assert_eq!(client.handle::<More>("r").await.unwrap().output().await.unwrap(), 101);
    client.enqueue::<More>("s", 1).await.unwrap();
    // What was added is part of the version now, and whoever lacks it is refused.
    let refused =
        Node::builder(db.url()).workflow(Small).extends("small").config(config("b")).start().await.unwrap_err();
    assert!(refused.to_string().contains("missing here: third"), "{refused}");
    let unknown = Node::builder(db.url()).workflow(More).extends("smal").config(config("c")).start().await.unwrap_err();
    assert!(matches!(&unknown, Error::NotRegistered { name, .. } if name == "smal"), "{unknown}");
    node.shutdown().await.unwrap();
}

/// The same steps, of which one takes something else.
pub struct Retyped;

#[workflow]
mod retyped {
    use super::*;

    impl Workflow for Retyped {
        const NAME: &'static str = "small";
        const VERSION: u32 = 1;
        type Input = i64;
        type State = ();
        type Output = i64;
        type Entry = step::first;
    }

    #[step]
    async fn first(run: &mut Run<Retyped>) -> Result<Next<Retyped>> {
        Ok(Next::goto(step::second, run.input.to_string()))
    }
    #[step]
    async fn second(_: &mut Run<Retyped>, n: String) -> Result<Next<Retyped>> {
        Ok(Next::finish(n.len() as i64))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_types_are_registered_and_shown_and_refuse_nobody() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Small>("r", 1).await.unwrap();
    let mut conn = connect(&db).await;
    let mut stored = async || -> String {
        let sql = "select fingerprint from longhaul.workflow_versions";
        sqlx::query_scalar(sql).fetch_one(&mut conn).await.unwrap()
    };
    let (small, retyped) = (Manifest::of::<Small>(), Manifest::of::<Retyped>());
    assert_eq!(stored().await, small.fingerprint().unwrap());
    let report = Check::new().workflow::<Retyped>().run(&client).await.unwrap();
    assert!(report.ok(), "no run is at that step: {report}");
    assert!(report.to_string().contains("the input of step `second` was"), "{report}");

    let node = TestNode::start(db.url(), |node| node.workflow(Retyped)).await.unwrap();
    assert_eq!(client.handle::<Retyped>("r").await.unwrap().output().await.unwrap(), 1);
    assert_eq!(stored().await, retyped.fingerprint().unwrap());
    // Whoever only enqueues says nothing about it.
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Small>("s", 1).await.unwrap();
    assert_eq!(stored().await, retyped.fingerprint().unwrap());
    node.shutdown().await.unwrap();
}

/// A node that knows less parks what it does not know, also when the unknown step is the one that a call comes back to.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_step_parks_the_run_when_it_gets_there() {
    let db = database().await;
    let node = TestNode::start(db.url(), |node| node.workflow(Small)).await.unwrap();
    let client = node.client();
    let mut conn = connect(&db).await;
    node.shutdown().await.unwrap();
    for run in ["stack", "own"] {
        let client = Client::connect(db.url()).await.unwrap();
        client.enqueue::<Small>(run, 1).await.unwrap();
    }
    drop(client);
    execute(&mut conn, r#"update longhaul.runs set stack = '[{"step":"third"}]' where run_id = 'stack'"#).await;
    execute(&mut conn, "update longhaul.runs set step = '~tomorrow' where run_id = 'own'").await;
    let node = TestNode::start(db.url(), |node| node.workflow(Small)).await.unwrap();
    let client = node.client();
    for (run, step) in [("stack", "third"), ("own", "~tomorrow")] {
        until_status(&client, run, RunStatus::Parked).await;
        let view = client.run(run).await.unwrap();
        assert!(view.reason.unwrap().contains(step) && view.step == step, "{run}");
    }
    assert_eq!(kinds(&client, "stack").await.iter().filter(|k| **k == EventType::StepCompleted).count(), 2);
    node.shutdown().await.unwrap();

    // A node that knows the step goes on from there.
    let node = TestNode::start(db.url(), |node| node.workflow(More).extends("small")).await.unwrap();
    node.client().retry("stack").await.unwrap();
    let output = node.client().handle::<More>("stack").await.unwrap().output().await.unwrap();
    assert_eq!(output, 102);
    node.shutdown().await.unwrap();
    check(&db).await;
}
