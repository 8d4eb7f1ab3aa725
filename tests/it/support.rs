//! A database per test, and workflows to run on it.

use longhaul::{Client, Config, Next, Node, NodeBuilder, Result, Run, Workflow, workflow};
use longhaul_sandbox::postgres::testing::TestDatabase;
use std::time::Duration;

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

/// Waits until every run is over, at most half a minute.
pub async fn until_over(client: &Client) {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        let c = client.counts().await.unwrap();
        if c.runnable + c.owned + c.waiting == 0 {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "runs are not over: {c:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
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
