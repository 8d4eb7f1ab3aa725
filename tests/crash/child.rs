//! What the killed processes run.

use longhaul::provider::anthropic::{Anthropic, ApiKey};
use longhaul::{Config, Next, Node, Reply, Result, Run, WhenLost, Workflow, workflow};
use std::io::Write;
use std::time::Duration;

/// The database; its presence makes this process a worker.
pub(crate) const URL: &str = "LONGHAUL_CRASH_URL";
/// Where the provider is.
pub(crate) const MODELS: &str = "LONGHAUL_CRASH_MODELS";
/// The file that steps write to: side effects outside of everything.
pub(crate) const LOG: &str = "LONGHAUL_CRASH_LOG";

/// Two steps, a model call, two steps.
pub(crate) struct Chain {
    log: std::path::PathBuf,
}

impl Chain {
    /// One line in one write: killed processes leave no halves.
    fn note(&self, run: &Run<Chain>, step: &str) -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&self.log)?;
        file.write_all(format!("{} {step}\n", run.id()).as_bytes())
    }
}

#[workflow]
mod chain {
    use super::*;

    impl Workflow for Chain {
        const NAME: &'static str = "chain";
        const VERSION: u32 = 1;
        type Input = i64;
        type State = i64;
        type Output = i64;
        type Entry = step::first;
    }

    #[step(crash_limit = 100)]
    async fn first(run: &mut Run<Chain>) -> Result<Next<Chain>> {
        run.app.clone().note(run, "first")?;
        run.state = *run.input;
        Ok(Next::goto(step::second, ()))
    }

    #[step(crash_limit = 100)]
    async fn second(run: &mut Run<Chain>) -> Result<Next<Chain>> {
        run.app.clone().note(run, "second")?;
        run.state += 1;
        let request = serde_json::json!({
            "model": "claude-haiku-4-5", "max_tokens": 50, "metadata": {"user_id": run.id()},
            "messages": [{"role": "user", "content": "Say something."}],
        });
        let asked = run.model("claude", request);
        // From a thousand on they ask live; odd ones are not to be paid twice.
        let asked = match *run.input {
            ..1000 => asked,
            odd if odd % 2 == 1 => asked.live().when_lost(WhenLost::Park),
            _ => asked.live(),
        };
        Ok(asked.then(step::third))
    }

    #[step(crash_limit = 100)]
    async fn third(run: &mut Run<Chain>, _: Reply) -> Result<Next<Chain>> {
        run.app.clone().note(run, "third")?;
        run.state += 1;
        Ok(Next::goto(step::fourth, ()))
    }

    #[step(crash_limit = 100)]
    async fn fourth(run: &mut Run<Chain>) -> Result<Next<Chain>> {
        run.app.clone().note(run, "fourth")?;
        run.state += 1;
        Ok(Next::goto(step::fifth, ()))
    }

    #[step(crash_limit = 100)]
    async fn fifth(run: &mut Run<Chain>) -> Result<Next<Chain>> {
        run.app.clone().note(run, "fifth")?;
        Ok(Next::finish(run.state + 1))
    }
}

/// A worker, when this process was started as one; among the other tests it has nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn works_until_it_is_killed() {
    let (Ok(url), Ok(models), Ok(log)) = (std::env::var(URL), std::env::var(MODELS), std::env::var(LOG)) else {
        return;
    };
    let config = Config {
        name: format!("worker {}", std::process::id()),
        // Few at a time, so that there is something left to do when it dies.
        runs_in_flight: 40,
        linger: Duration::from_millis(20),
        max_batch_age: Duration::from_millis(150),
        batch_poll_interval: Duration::from_millis(50),
        ..Config::brisk()
    };
    let _node = Node::builder(url)
        .workflow(Chain { log: log.into() })
        .provider("claude", Anthropic::new(ApiKey::new("sk-test")).unwrap().base_url(models))
        .config(config)
        .start()
        .await
        .unwrap();
    std::future::pending::<()>().await;
}
