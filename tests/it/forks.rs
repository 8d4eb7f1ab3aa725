//! Forks: branches are runs of their own, and the join fires once, whatever the order in which they end.

use crate::models::Models;
use crate::support::{
    check, config, connect, database, eventually, execute, failure, number, until_over, until_status,
};
use longhaul::{Branch, Client, EventType, FailureCode, Next, Node, Rehearsal, Reply, Result, Run, RunStatus};
use longhaul::{StepError, Workflow, workflow};
use longhaul_sandbox::postgres::testing::TestDatabase;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Forks as its input says: `pair`, `each N`, `nested`, `collect`, `ask N`, `halt`, `one`.
#[derive(Clone, Default)]
pub struct Tree {
    /// Whether odd branches fail.
    odd_fail: Arc<AtomicBool>,
    /// Whether branches sleep for a day.
    sleepy: Arc<AtomicBool>,
}

#[workflow]
mod tree {
    use super::*;

    impl Workflow for Tree {
        const NAME: &'static str = "tree";
        const VERSION: u32 = 1;
        type Input = String;
        type State = i64;
        type Output = String;
        type Entry = step::open;
    }

    #[step]
    async fn open(run: &mut Run<Tree>) -> Result<Next<Tree>> {
        run.state = 10;
        let (what, n) = run.input.split_once(' ').unwrap_or((&run.input, "0"));
        let list: Vec<i64> = (0..n.parse().map_err(StepError::fatal)?).collect();
        Ok(match what {
            "pair" => run.fork().branch("word", step::word, "a".into()).branch("sum", step::sum, 5).join(step::paired),
            "one" => run.fork_each(step::sum, &[1]).join(step::summed),
            "each" => run.fork_each(step::sum, &list).join(step::summed),
            "collect" => run.fork_each(step::sum, &list).collect(step::collected),
            "nested" => run.fork_each(step::nest, &[2, 3]).join(step::summed),
            "ask" => run.fork_each(step::ask, &list).join(step::asked),
            _ => run.fork_each(step::halt, &[1, 2]).join(step::summed),
        })
    }
    #[step]
    async fn word(run: &mut Run<Tree>, word: String) -> Result<Next<Tree, String>> {
        run.state += 100;
        Ok(Next::finish(format!("{word}{}", run.state)))
    }
    #[step]
    async fn sum(run: &mut Run<Tree>, k: i64) -> Result<Next<Tree, i64>> {
        if run.app.sleepy.load(Ordering::Relaxed) {
            return Ok(run.sleep(Duration::from_secs(86_400)).then(step::slept));
        }
        if k % 2 == 1 && run.app.odd_fail.load(Ordering::Relaxed) {
            // With a character that the database cannot look at as text.
            return Err(StepError::fatal(format!("{k} is odd\0")));
        }
        run.state += k;
        Ok(Next::goto(step::done, run.state))
    }
    #[step]
    async fn slept(_: &mut Run<Tree>) -> Result<Next<Tree, i64>> {
        Ok(Next::finish(0))
    }
    #[step]
    async fn done(_: &mut Run<Tree>, k: i64) -> Result<Next<Tree, i64>> {
        Ok(Next::finish(k))
    }
    #[step]
    async fn nest(run: &mut Run<Tree>, n: i64) -> Result<Next<Tree, i64>> {
        Ok(run.fork_each(step::sum, &vec![n; n as usize]).join(step::total))
    }
    #[step]
    async fn total(_: &mut Run<Tree>, sums: Vec<i64>) -> Result<Next<Tree, i64>> {
        Ok(Next::finish(sums.iter().sum()))
    }
    #[step]
    async fn halt(_: &mut Run<Tree>, _k: i64) -> Result<Next<Tree, i64>> {
        Ok(Next::halt("out".into()))
    }
    #[step]
    async fn ask(run: &mut Run<Tree>, k: i64) -> Result<Next<Tree, String>> {
        let content = format!("say {k} of {}", run.id());
        let request = json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": content}]});
        Ok(run.model("claude", request).then(step::heard))
    }
    #[step]
    async fn heard(_: &mut Run<Tree>, reply: Reply) -> Result<Next<Tree, String>> {
        Ok(Next::finish(reply.text()))
    }
    #[step]
    async fn asked(_: &mut Run<Tree>, said: Vec<String>) -> Result<Next<Tree>> {
        Ok(Next::finish(said.len().to_string()))
    }
    #[step]
    async fn paired(run: &mut Run<Tree>, (word, sum): (String, i64)) -> Result<Next<Tree>> {
        Ok(Next::finish(format!("{word} {sum} {}", run.state)))
    }
    #[step]
    async fn summed(_: &mut Run<Tree>, sums: Vec<i64>) -> Result<Next<Tree>> {
        Ok(Next::finish(format!("{sums:?}")))
    }
    #[step]
    async fn collected(_: &mut Run<Tree>, sums: Vec<Branch<i64>>) -> Result<Next<Tree>> {
        let told = sums.iter().map(|sum| match sum {
            Branch::Ok(k) => k.to_string(),
            Branch::Failed(why) => why.message.clone(),
        });
        Ok(Next::finish(told.collect::<Vec<_>>().join(", ")))
    }
}

async fn node(db: &TestDatabase, name: &str, app: &Tree) -> Node {
    Node::builder(db.url()).workflow(app.clone()).config(config(name)).start().await.unwrap()
}

async fn output(client: &Client, what: &str) -> String {
    client.enqueue::<Tree>(what, what.into()).await.unwrap().output().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_share_the_input_and_start_from_a_copy_of_the_state() {
    let db = database().await;
    let node = node(&db, "a", &Tree::default()).await;
    assert_eq!(output(&node.client(), "pair").await, "a110 15 10");
    assert_eq!(output(&node.client(), "nested").await, "[24, 39]");
    let kinds: Vec<_> = node.client().events("pair").await.unwrap().iter().map(|e| e.kind).collect();
    assert!(kinds.contains(&EventType::ForkOpened) && kinds.contains(&EventType::ForkJoined));
    check(&db).await;
    node.shutdown().await.unwrap();
    // A branch that nobody knows of any more is found.
    let mut conn = connect(&db).await;
    execute(&mut conn, "delete from longhaul.fork_branches where branch = 1 and name = 'sum'").await;
    let report = longhaul::audit::audit(&longhaul::store::Database::new(db.url()).unwrap(), None).await.unwrap();
    assert_eq!(report.count(longhaul::audit::Check::JoinsAgree), 2, "the fork and the branch: {report}");
}

/// `LONGHAUL_STORM_ROUNDS=100` for the long version.
fn storm_rounds() -> i64 {
    std::env::var("LONGHAUL_STORM_ROUNDS").map_or(10, |rounds| rounds.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_branches_on_two_nodes_joins_once_and_in_order() {
    let db = database().await;
    let app = Tree::default();
    let (a, b) = (node(&db, "a", &app).await, node(&db, "b", &app).await);
    let expected = format!("{:?}", (10..1010).collect::<Vec<i64>>());
    let rounds = storm_rounds();
    for round in 0..rounds {
        let run = a.client().enqueue::<Tree>(format!("storm {round}"), "each 1000".into()).await.unwrap();
        assert_eq!(run.output().await.unwrap(), expected);
    }
    let mut conn = connect(&db).await;
    let joins = "select count(*) from longhaul.events where type = 51";
    assert_eq!(number(&mut conn, joins).await, rounds, "one join each");
    // Both took part, and the last branches of a round did end in different flushes.
    let crossing = "select count(*) from (select parent from longhaul.runs where parent is not null
        group by parent having count(distinct finished_at) > 1) as p";
    assert_eq!(number(&mut conn, crossing).await, rounds);
    check(&db).await;
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_branch_fails_the_run_and_both_can_be_set_going_again() {
    let db = database().await;
    let app = Tree::default();
    app.odd_fail.store(true, Ordering::Relaxed);
    let node = node(&db, "a", &app).await;
    let client = node.client();
    let run = client.enqueue::<Tree>("each", "each 4".into()).await.unwrap();
    until_over(&client).await;
    let (code, why) = failure::<Tree>(&client, "each").await;
    assert_eq!(code, FailureCode::BranchFailed);
    assert!(why.contains("branch `1`: 1 is odd"), "{why}");
    check(&db).await;

    app.odd_fail.store(false, Ordering::Relaxed);
    client.retry("each").await.unwrap();
    assert_eq!(run.output().await.unwrap(), "[10, 11, 12, 13]");
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn collected_failures_are_results() {
    let db = database().await;
    let app = Tree::default();
    app.odd_fail.store(true, Ordering::Relaxed);
    let node = node(&db, "a", &app).await;
    assert_eq!(output(&node.client(), "collect 4").await, "10, 1 is odd\u{fffd}, 12, 3 is odd\u{fffd}");
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_fork_cannot_be_fails_the_run() {
    let db = database().await;
    let node = node(&db, "a", &Tree::default()).await;
    let client = node.client();
    for what in ["one", "halt"] {
        client.enqueue::<Tree>(what, what.into()).await.unwrap();
    }
    until_over(&client).await;
    assert_eq!(failure::<Tree>(&client, "one").await.0, FailureCode::LimitExceeded);
    assert_eq!(failure::<Tree>(&client, "halt").await.0, FailureCode::BranchFailed);
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_reaches_the_branches() {
    let db = database().await;
    let app = Tree::default();
    app.sleepy.store(true, Ordering::Relaxed);
    let node = node(&db, "a", &app).await;
    let client = node.client();
    client.enqueue::<Tree>("nested", "nested".into()).await.unwrap();
    eventually("five branches sleep below two", async || (client.counts().await.unwrap().waiting == 8).then_some(()))
        .await;
    client.cancel("nested").await.unwrap();
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.canceled, counts.waiting), (8, 0), "{counts:?}");
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canceled_branch_ends_what_waits_for_it() {
    let db = database().await;
    let app = Tree::default();
    app.sleepy.store(true, Ordering::Relaxed);
    let node = node(&db, "a", &app).await;
    let client = node.client();
    client.enqueue::<Tree>("each", "each 2".into()).await.unwrap();
    eventually("two branches sleep", async || (client.counts().await.unwrap().waiting == 3).then_some(())).await;
    let mut conn = connect(&db).await;
    let branches: Vec<String> = sqlx::query_scalar("select run_id from longhaul.runs where parent is not null")
        .fetch_all(&mut conn)
        .await
        .unwrap();
    for branch in &branches {
        assert!(client.enqueue::<Tree>(branch.clone(), "pair".into()).await.is_err(), "that form of id is kept");
        client.cancel(branch).await.unwrap();
    }
    until_status(&client, "each", RunStatus::Failed).await;
    assert_eq!(failure::<Tree>(&client, "each").await.0, FailureCode::BranchFailed);
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_branches_travel_in_one_batch() {
    let db = database().await;
    let models = Models::start().await;
    let provider = models.provider();
    let node = Node::builder(db.url())
        .workflow(Tree::default())
        .provider("claude", provider)
        .config(config("a"))
        .start()
        .await
        .unwrap();
    assert_eq!(output(&node.client(), "ask 40").await, "40");
    assert!(models.control.batches().len() <= 3, "{} batches", models.control.batches().len());
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn joins_survive_actors_being_killed() {
    let db = database().await;
    let node = node(&db, "a", &Tree::default()).await;
    let client = node.client();
    let runs = (0..20).map(|k| (format!("r{k}"), "each 20".to_owned())).collect();
    for made in client.enqueue_many::<Tree>(runs).await.unwrap() {
        made.unwrap();
    }
    for kind in node.tree().kinds() {
        node.tree().kill(&kind);
        tokio::task::yield_now().await;
    }
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 420);
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[test]
fn a_rehearsal_plays_the_branches() {
    let mut play = Rehearsal::new(Tree::default());
    let told = futures::executor::block_on(play.run("r", "nested".into())).unwrap();
    assert_eq!(told, "[24, 39]");
    let app = Tree::default();
    app.odd_fail.store(true, Ordering::Relaxed);
    let told = futures::executor::block_on(Rehearsal::new(app.clone()).run("r", "collect 3".into())).unwrap();
    assert_eq!(told, "10, 1 is odd\u{fffd}, 12");
    let failed = futures::executor::block_on(Rehearsal::new(app).run("r", "each 3".into())).unwrap_err();
    assert_eq!(failed.code, FailureCode::BranchFailed);
}
