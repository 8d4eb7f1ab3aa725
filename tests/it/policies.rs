//! Forks that do not wait when a branch fails, and forks whose branches' states are merged.

use crate::models::{Models, asking, check_paid, until_batch};
use crate::support::{
    check, config, connect, database, eventually, execute, failure, number, until_over, until_status,
};
use longhaul::{
    BatchStatus, Branch, Client, EventType, FailureCode, Next, Node, Rehearsal, Reply, Result, Run, RunStatus,
};
use longhaul::{StepError, Workflow, workflow};
use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::provider::{Fault, Operation, When};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A fork whose first branch fails on request, and others that wait for somebody.
#[derive(Clone, Default)]
pub struct Crew {
    /// Whether the first branch fails.
    broken: Arc<AtomicBool>,
}

impl Crew {
    fn broken() -> Self {
        let crew = Self::default();
        crew.broken.store(true, Ordering::Relaxed);
        crew
    }
    fn mend(&self) {
        self.broken.store(false, Ordering::Relaxed);
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Notes {
    a: i64,
    b: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    c: Option<String>,
}

#[workflow]
mod crew {
    use super::*;

    impl Workflow for Crew {
        const NAME: &'static str = "crew";
        const VERSION: u32 = 1;
        type Input = String;
        type State = Notes;
        type Output = String;
        type Entry = step::open;
    }

    #[step]
    async fn open(run: &mut Run<Crew>) -> Result<Next<Crew>> {
        let pair = run.fork().branch("set", step::set, 'a');
        Ok(match run.input.as_str() {
            "outside" => run
                .fork()
                .branch("first", step::first, ())
                .branch("mail", step::mail, ())
                .branch("team", step::team, ())
                .fail_fast()
                .join(step::done),
            "models" => run.fork_each(step::ask, &[0, 1, 2, 3]).fail_fast().join(step::told),
            "merge" => pair.branch("other", step::set, 'b').branch("gone", step::set, 'c').merge().join(step::seen),
            "agree" => pair.branch("same", step::set, 'a').merge().join(step::pair),
            "conflict" => pair.branch("late", step::set, 'A').merge().join(step::pair),
            "no merge" => pair.branch("other", step::set, 'b').join(step::pair),
            "collect" => {
                pair.branch("other", step::set, 'b').branch("first", step::first, ()).merge().collect(step::mixed)
            }
            wide => run.fork_each(step::one, &vec![1; wide.parse().map_err(StepError::fatal)?]).join(step::sum),
        })
    }
    #[step]
    async fn first(run: &mut Run<Crew>) -> Result<Next<Crew, ()>> {
        if run.app.broken.load(Ordering::Relaxed) {
            return Err(StepError::fatal("it broke"));
        }
        run.state.b = -1;
        Ok(Next::finish(()))
    }
    #[step]
    async fn mail(run: &mut Run<Crew>) -> Result<Next<Crew, String>> {
        Ok(run.external::<String>("mail").carry(()).then(step::arrived))
    }
    #[step]
    async fn arrived(_: &mut Run<Crew>, (said, ()): (String, ())) -> Result<Next<Crew, String>> {
        Ok(Next::finish(said))
    }
    #[step]
    async fn team(run: &mut Run<Crew>) -> Result<Next<Crew, Vec<String>>> {
        Ok(run.fork_each(step::mail, &[(), ()]).join(step::all))
    }
    #[step]
    async fn all(_: &mut Run<Crew>, said: Vec<String>) -> Result<Next<Crew, Vec<String>>> {
        Ok(Next::finish(said))
    }
    #[step]
    async fn done(_: &mut Run<Crew>, ((), mail, team): ((), String, Vec<String>)) -> Result<Next<Crew>> {
        Ok(Next::finish(format!("{mail} {team:?}")))
    }
    #[step]
    async fn ask(run: &mut Run<Crew>, k: i64) -> Result<Next<Crew, String>> {
        let request =
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": format!("say {k}")}]});
        Ok(run.model("claude", request).carry(k).then(step::heard))
    }
    #[step]
    async fn heard(run: &mut Run<Crew>, (reply, k): (Reply, i64)) -> Result<Next<Crew, String>> {
        if k == 0 && run.app.broken.load(Ordering::Relaxed) {
            return Err(StepError::fatal("not what was asked"));
        }
        Ok(Next::finish(reply.text()))
    }
    #[step]
    async fn told(_: &mut Run<Crew>, said: Vec<String>) -> Result<Next<Crew>> {
        Ok(Next::finish(said.join(", ")))
    }
    #[step]
    async fn set(run: &mut Run<Crew>, what: char) -> Result<Next<Crew, ()>> {
        match what {
            'a' => run.state.a = 1,
            'A' => run.state.a = 2,
            'b' => run.state.b = 3,
            _ => run.state.c = Some("new".into()),
        }
        Ok(Next::finish(()))
    }
    #[step(attempts = 3, backoff = "1ms..1ms")]
    async fn seen(run: &mut Run<Crew>, _: ((), (), ())) -> Result<Next<Crew>> {
        // An attempt that fails stores nothing: the next one gets the same state again.
        if run.app.broken.swap(false, Ordering::Relaxed) {
            run.state.a = 99;
            return Err(StepError::new("again"));
        }
        Ok(Next::goto(step::show, ()))
    }
    #[step]
    async fn pair(_: &mut Run<Crew>, _: ((), ())) -> Result<Next<Crew>> {
        Ok(Next::goto(step::show, ()))
    }
    #[step]
    async fn mixed(_: &mut Run<Crew>, (_, _, last): (Branch<()>, Branch<()>, Branch<()>)) -> Result<Next<Crew>> {
        assert!(matches!(last, Branch::Failed(why) if why.message == "it broke"));
        Ok(Next::goto(step::show, ()))
    }
    #[step]
    async fn show(run: &mut Run<Crew>) -> Result<Next<Crew>> {
        Ok(Next::finish(serde_json::to_string(&run.state).map_err(StepError::fatal)?))
    }
    #[step]
    async fn one(_: &mut Run<Crew>, k: i64) -> Result<Next<Crew, i64>> {
        Ok(Next::finish(k))
    }
    #[step]
    async fn sum(_: &mut Run<Crew>, all: Vec<i64>) -> Result<Next<Crew>> {
        Ok(Next::finish(all.iter().sum::<i64>().to_string()))
    }
}

async fn node(db: &TestDatabase, name: &str, crew: &Crew) -> Node {
    Node::builder(db.url()).workflow(crew.clone()).config(config(name)).start().await.unwrap()
}

async fn output(client: &Client, what: &str) -> String {
    client.enqueue::<Crew>(what, what.into()).await.unwrap().output().await.unwrap()
}

async fn asking_node(db: &TestDatabase, models: &Models, crew: &Crew) -> Node {
    let builder = Node::builder(db.url()).workflow(crew.clone()).provider("claude", models.provider());
    builder.config(asking("a")).start().await.unwrap()
}

/// The branches that wait for mail, in the order of their ids.
async fn waiting_for_mail(db: &TestDatabase) -> Vec<String> {
    let mut conn = connect(db).await;
    let sql = "select r.run_id from longhaul.runs r join longhaul.waits w on w.run = r.id and w.ordinal = r.wait
        where r.status = 3 and w.kind = 4 and w.status = 1 order by r.id";
    sqlx::query_scalar(sql).fetch_all(&mut conn).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_branch_stops_the_others_and_they_go_on_when_it_is_mended() {
    let db = database().await;
    let crew = Crew::broken();
    let node = node(&db, "a", &crew).await;
    let client = node.client();
    let run = client.enqueue::<Crew>("outside", "outside".into()).await.unwrap();
    until_status(&client, "outside", RunStatus::Failed).await;
    let (code, why) = failure::<Crew>(&client, "outside").await;
    assert_eq!((code, why.as_str()), (FailureCode::BranchFailed, "branch `first`: it broke"));
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.failed, counts.waiting + counts.runnable + counts.owned), (2, 0), "{counts:?}");
    check(&db).await;

    // All that had been stopped goes on, the branches of a branch too, and waits for what it waited for.
    crew.mend();
    client.retry("outside").await.unwrap();
    let mail = eventually("three wait for mail", async || {
        let mail = waiting_for_mail(&db).await;
        (mail.len() == 3).then_some(mail)
    })
    .await;
    for (k, branch) in mail.iter().enumerate() {
        client.answer(branch, "the postman", &format!("letter {k}")).await.unwrap();
    }
    assert_eq!(run.output().await.unwrap(), r#"letter 0 ["letter 1", "letter 2"]"#);
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.cancel_orders").await, 0);
    assert_eq!(number(&mut conn, "select count(*) from longhaul.fork_branches where stopped").await, 0);
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn retrying_the_branch_that_failed_is_enough() {
    let db = database().await;
    let crew = Crew::broken();
    let node = node(&db, "a", &crew).await;
    let client = node.client();
    client.enqueue::<Crew>("outside", "outside".into()).await.unwrap();
    until_status(&client, "outside", RunStatus::Failed).await;
    let mut conn = connect(&db).await;
    let sql = "select run_id from longhaul.runs where status = 6 and parent is not null";
    let failed: String = sqlx::query_scalar(sql).fetch_one(&mut conn).await.unwrap();
    crew.mend();
    client.retry(&failed).await.unwrap();
    until_status(&client, "outside", RunStatus::Waiting).await;
    eventually("three wait for mail", async || (waiting_for_mail(&db).await.len() == 3).then_some(())).await;
    // What was canceled by request stays so.
    client.cancel("outside").await.unwrap();
    assert!(client.retry("outside").await.is_err());
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.completed, counts.canceled, counts.waiting), (1, 5, 0), "{counts:?}");
    check(&db).await;
    node.shutdown().await.unwrap();
}

/// One is answered by hand, so that it can fail while the others are at the provider.
async fn let_one_fail(conn: &mut sqlx::PgConnection) {
    execute(
        conn,
        "with w as (update longhaul.waits set status = 4 where (run, ordinal) in (
             select r.id, r.wait from longhaul.runs r where r.parent is not null order by r.id limit 1) returning run, ordinal),
         a as (insert into longhaul.answers (run, ordinal, body) select run, ordinal, '{\"content\": []}' from w),
         r as (update longhaul.runs r set status = 1, ready_at = longhaul.now(), cursor = r.cursor + 1 from w where r.id = w.run
             returning r.id, r.cursor)
         insert into longhaul.events (run, ordinal, nonce, type, payload) select id, cursor - 1, 1, 32, '{}' from r",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stopped_asks_anew_when_its_batch_was_given_up() {
    let db = database().await;
    let models = Models::slow().await;
    models.inject(Operation::Cancel, When::Always, Fault::status(500));
    let crew = Crew::broken();
    let node = asking_node(&db, &models, &crew).await;
    let (client, mut conn) = (node.client(), connect(&db).await);
    let run = client.enqueue::<Crew>("models", "models".into()).await.unwrap();
    until_batch(&mut conn, BatchStatus::Submitted).await;
    let_one_fail(&mut conn).await;
    until_status(&client, "models", RunStatus::Failed).await;
    // As a send is left that was given up on while they were stopped.
    execute(
        &mut conn,
        "update longhaul.batches set status = 9, abandoned_at = longhaul.now(), check_at = null, owner = null, fence = fence + 1",
    )
    .await;
    crew.mend();
    client.retry("models").await.unwrap();
    let second = eventually("they are asked again", async || models.control.batches().get(1).cloned()).await;
    models.control.finish(&second);
    assert_eq!(run.output().await.unwrap(), ", echo say 1, echo say 2, echo say 3");
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_parked_when_it_was_stopped_is_parked_again() {
    let db = database().await;
    let crew = Crew::default();
    let node = node(&db, "a", &crew).await;
    let client = node.client();
    client.enqueue::<Crew>("outside", "outside".into()).await.unwrap();
    let mail = eventually("three wait for mail", async || {
        let mail = waiting_for_mail(&db).await;
        (mail.len() == 3).then_some(mail)
    })
    .await;
    // One is held back by an operator, and another one is what the fork stops it for.
    let mut conn = connect(&db).await;
    execute(
        &mut conn,
        "with r as (update longhaul.runs set status = 4, reason = 'mine', cursor = cursor + 1 where id = (
             select child from longhaul.fork_branches where name = 'mail') returning id, cursor)
         insert into longhaul.events (run, ordinal, nonce, type, payload) select id, cursor - 1, 1, 5, '{}' from r",
    )
    .await;
    for other in &mail[1..] {
        client.cancel(other).await.unwrap();
    }
    until_status(&client, "outside", RunStatus::Failed).await;
    assert_eq!(client.run(&mail[0]).await.unwrap().status, RunStatus::Canceled);
    // Set going again, it is parked again, not asked again; and since the other one is canceled for good, it is stopped again.
    let _ = client.retry("outside").await;
    until_status(&client, "outside", RunStatus::Failed).await;
    let kinds: Vec<_> = client.events(&mail[0]).await.unwrap().iter().map(|e| e.kind).collect();
    let end = [EventType::RunParked, EventType::RunCanceled, EventType::RunRetried, EventType::RunCanceled];
    assert!(kinds.ends_with(&end), "{kinds:?}");
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_while_stopped_is_paid_once_and_serves() {
    let db = database().await;
    let models = Models::slow().await;
    let crew = Crew::broken();
    // Nobody waits for the batch for a while, and its provider finishes it all the same.
    models.inject(Operation::Cancel, When::Always, Fault::status(500));
    let node = asking_node(&db, &models, &crew).await;
    let (client, mut conn) = (node.client(), connect(&db).await);
    let run = client.enqueue::<Crew>("models", "models".into()).await.unwrap();
    until_batch(&mut conn, BatchStatus::Submitted).await;
    let_one_fail(&mut conn).await;
    until_status(&client, "models", RunStatus::Failed).await;
    assert_eq!(client.counts().await.unwrap().canceled, 3);
    // Its answers come now, for nobody.
    for batch in models.control.batches() {
        models.control.finish(&batch);
    }
    until_batch(&mut conn, BatchStatus::Settled).await;
    crew.mend();
    client.retry("models").await.unwrap();
    assert_eq!(run.output().await.unwrap(), ", echo say 1, echo say 2, echo say 3");
    assert_eq!(models.paid().len(), 4, "nothing was asked again");
    check_paid(&models, &mut conn).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_somebody_left_behind_is_carried_out() {
    let db = database().await;
    let crew = Crew::default();
    let node = node(&db, "a", &crew).await;
    let client = node.client();
    client.enqueue::<Crew>("outside", "outside".into()).await.unwrap();
    eventually("three wait for mail", async || (waiting_for_mail(&db).await.len() == 3).then_some(())).await;
    let mut conn = connect(&db).await;
    execute(
        &mut conn,
        "insert into longhaul.cancel_orders (run, stop)
         select child, true from longhaul.fork_branches where name = 'team' union all select 4711, false",
    )
    .await;
    // The branch, its two branches, and the other one that the fork does not wait for any more.
    until_status(&client, "outside", RunStatus::Failed).await;
    assert_eq!(client.counts().await.unwrap().canceled, 4);
    execute(&mut conn, "delete from longhaul.cancel_orders where run = 4711").await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.cancel_orders").await, 0);
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn states_are_merged_by_key() {
    let db = database().await;
    let crew = Crew::broken();
    let node = node(&db, "a", &crew).await;
    let client = node.client();
    assert_eq!(output(&client, "merge").await, r#"{"a":1,"b":3,"c":"new"}"#, "also after a failed attempt");
    assert_eq!(output(&client, "agree").await, r#"{"a":1,"b":0}"#);
    assert_eq!(output(&client, "no merge").await, r#"{"a":0,"b":0}"#);
    client.enqueue::<Crew>("conflict", "conflict".into()).await.unwrap();
    until_over(&client).await;
    let (code, why) = failure::<Crew>(&client, "conflict").await;
    assert_eq!(code, FailureCode::ForkConflict);
    assert_eq!(why, "branches `late` and `set` changed `a` of the state differently");
    crew.broken.store(true, Ordering::Relaxed);
    assert_eq!(output(&client, "collect").await, r#"{"a":1,"b":3}"#, "a failed branch has no say");
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_has_up_to_1024_branches() {
    let db = database().await;
    let node = node(&db, "a", &Crew::default()).await;
    let client = node.client();
    assert_eq!(output(&client, "1024").await, "1024");
    client.enqueue::<Crew>("1025", "1025".into()).await.unwrap();
    until_over(&client).await;
    let (code, why) = failure::<Crew>(&client, "1025").await;
    assert_eq!((code, why.as_str()), (FailureCode::LimitExceeded, "a fork has 2 to 1024 branches, this one 1025"));
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[test]
fn a_rehearsal_merges_and_fails_fast() {
    let play = |crew: Crew, what: &str| {
        let mut rehearsal = Rehearsal::new(crew).answer(|ask| json!(format!("to {}", ask.request()["prompt"])));
        let end = futures::executor::block_on(rehearsal.run("r", what.into()));
        (end.map_err(|why| why.code), rehearsal.steps().len())
    };
    assert_eq!(play(Crew::default(), "merge").0.unwrap(), r#"{"a":1,"b":3,"c":"new"}"#);
    assert_eq!(play(Crew::default(), "conflict").0, Err(FailureCode::ForkConflict));
    assert_eq!(play(Crew::broken(), "outside"), (Err(FailureCode::BranchFailed), 2), "nothing of the others ran");
    assert!(play(Crew::default(), "outside").0.is_ok());
    assert_eq!(play(Crew::broken(), "collect").0.unwrap(), r#"{"a":1,"b":3}"#);
}
