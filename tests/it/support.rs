//! A database per test, waiting for what must become true, and looking at the tables.

use longhaul::{Client, Config, Next, Node, NodeBuilder, Result, Run, RunStatus, Workflow, workflow};
use longhaul_sandbox::postgres::testing::TestDatabase;
use sqlx::{Connection, PgConnection};
use std::time::{Duration, Instant};

/// How long anything may take to become true on a busy machine. Only a failing test waits that long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A migrated database of its own.
pub async fn database() -> TestDatabase {
    let template = longhaul::store::schema_digest();
    TestDatabase::create(&template, |url| async move { longhaul::migrate(&url).await }).await.unwrap()
}

pub fn config(name: &str) -> Config {
    Config { name: name.into(), ..Config::brisk() }
}

/// A node that has the workflows of this file.
pub fn builder(db: &TestDatabase, name: &str) -> NodeBuilder {
    Node::builder(db.url()).workflow(Count).config(config(name))
}

/// Looks again and again until there is an answer.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = look().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "this did not come true: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until every run is over or parked.
pub async fn until_over(client: &Client) {
    eventually("every run is over", async || {
        let c = client.counts().await.unwrap();
        (c.runnable + c.owned + c.waiting == 0).then_some(())
    })
    .await;
}

/// Waits until a run is what it should become.
pub async fn until_status(client: &Client, run: &str, status: RunStatus) {
    eventually(&format!("run {run} is {status}"), async || {
        (client.run(run).await.unwrap().status == status).then_some(())
    })
    .await;
}

/// The code of the failure that a run ended with, and its text.
pub async fn failure<W: Workflow>(client: &Client, run: &str) -> (longhaul::FailureCode, String) {
    match client.handle::<W>(run).await.unwrap().output().await {
        Err(longhaul::Error::RunFailed { failure, .. }) => (failure.code, failure.message),
        Err(other) => panic!("run {run}: {other}"),
        Ok(_) => panic!("run {run} completed"),
    }
}

/// A connection beside the engine's, for looking at the tables and for getting in the way.
pub async fn connect(db: &TestDatabase) -> PgConnection {
    PgConnection::connect(db.url()).await.unwrap()
}

/// One number.
pub async fn number(conn: &mut PgConnection, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(conn).await.unwrap()
}

pub async fn execute(conn: &mut PgConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(conn).await.unwrap();
}

/// What must hold of every database at rest, whatever was done to its nodes.
pub async fn check(db: &TestDatabase) {
    let mut conn = connect(db).await;
    let broken = [
        (
            "ordinals are 0..n without gap or double, and n is the cursor",
            "select count(*) from longhaul.runs r left join lateral (
                 select count(*) as n, min(ordinal) as first, max(ordinal) as last
                 from longhaul.events e where e.run = r.id) e on true
             where (e.n <> r.cursor or e.first <> 0 or e.last <> r.cursor - 1) and r.removed_at is null",
        ),
        (
            "a run that completed did so once, and told so last",
            "select count(*) from longhaul.runs r where r.removed_at is null and (r.status = 5 and 1 <> (
                 select count(*) from longhaul.events e where e.run = r.id and e.type = 2)
                 or r.status = 5 and not exists (
                 select from longhaul.events e where e.run = r.id and e.type = 2 and e.ordinal = r.cursor - 1))",
        ),
        (
            "a run that is over has an output or an error",
            "select count(*) from longhaul.runs r where r.status in (5, 6) and r.removed_at is null
                 and not exists (select from longhaul.outputs o where o.run = r.id)",
        ),
        (
            "no wait has two answered items",
            "select count(*) from (select run, wait from longhaul.batch_items where status = 3
                 group by run, wait having count(*) > 1) as twice",
        ),
    ];
    for (what, sql) in broken {
        assert_eq!(number(&mut conn, sql).await, 0, "broken: {what}");
    }
    let database = longhaul::store::Database::new(db.url()).unwrap();
    let report = longhaul::audit::audit(&database, None).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// Five local steps; each adds one to the state.
pub struct Count;

#[workflow]
mod count {
    use super::*;

    impl Workflow for Count {
        const NAME: &'static str = "count";
        const VERSION: u32 = 1;
        type Input = i64;
        type State = i64;
        type Output = i64;
        type Entry = step::one;
    }

    #[step]
    async fn one(run: &mut Run<Count>) -> Result<Next<Count>> {
        run.state += *run.input;
        Ok(Next::goto(step::two, ()))
    }
    #[step]
    async fn two(run: &mut Run<Count>) -> Result<Next<Count>> {
        run.state += 1;
        Ok(Next::goto(step::three, ()))
    }
    #[step]
    async fn three(run: &mut Run<Count>) -> Result<Next<Count>> {
        run.state += 1;
        Ok(Next::goto(step::four, ()))
    }
    #[step]
    async fn four(run: &mut Run<Count>) -> Result<Next<Count>> {
        run.state += 1;
        Ok(Next::goto(step::five, run.state))
    }
    #[step]
    async fn five(_: &mut Run<Count>, sum: i64) -> Result<Next<Count>> {
        Ok(Next::finish(sum + 1))
    }
}
