//! Workflows that misbehave on demand, and what their steps write down outside the engine.

use longhaul::{EventId, Next, Reply, Result, Run, StepError, Workflow, workflow};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// What steps did: a log that knows nothing of the engine.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<(String, String)>>>);

impl Log {
    /// Writes down that a step of a run runs, and answers how often it has by now.
    pub fn note(&self, run: &str, step: &str) -> usize {
        let mut log = self.0.lock().unwrap();
        log.push((run.to_owned(), step.to_owned()));
        log.iter().filter(|(r, s)| r == run && s == step).count()
    }

    pub fn count(&self, run: &str, step: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|(r, s)| r == run && s == step).count()
    }

    /// How many steps of all runs were noted.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A door that steps wait at.
#[derive(Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(watch::channel(false).0))
    }
}

impl Gate {
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub async fn pass(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

/// One run, one kind of behaviour: the input says which.
#[derive(Clone, Default)]
pub struct Trial {
    pub log: Log,
    pub gate: Gate,
}

#[workflow]
mod trial {
    use super::*;

    impl Workflow for Trial {
        const NAME: &'static str = "trial";
        const VERSION: u32 = 1;
        type Input = String;
        type State = Vec<String>;
        type Output = String;
        type Entry = step::begin;
    }

    #[step(crash_limit = 50)]
    async fn begin(run: &mut Run<Trial>) -> Result<Next<Trial>> {
        run.app.log.note(run.id(), "begin");
        run.state.push("begun".into());
        let kind = run.input.to_string();
        Ok(match kind.as_str() {
            "flaky" => Next::goto(step::flaky, ()),
            "patient" => Next::goto(step::patient, ()),
            "hopeless" => Next::goto(step::hopeless, ()),
            "fatal" => Next::goto(step::fatal, ()),
            "slow" => Next::goto(step::slow, ()),
            "blocks" => Next::goto(step::blocks, ()),
            "blocks too long" => Next::goto(step::blocks_too_long, ()),
            "stuck" => Next::goto(step::stuck, ()),
            "fragile" => Next::goto(step::fragile, ()),
            "called" => return Ok(run.call(step::inner, 20).carry(1).then(step::outer)),
            panics if panics.starts_with("panic") => Next::goto(step::panics, kind),
            records if records.starts_with("record") => Next::goto(step::records, kind),
            limits if limits.starts_with("limit") => Next::goto(step::limits, kind),
            large if large.starts_with("large") => Next::goto(step::large, 0),
            _ => Next::finish(kind),
        })
    }

    /// Fails twice, and leaves no trace of it in the state.
    #[step(attempts = 3, backoff = "20ms..40ms")]
    async fn flaky(run: &mut Run<Trial>) -> Result<Next<Trial>> {
        run.state.push("flaky".into());
        let n = run.app.log.note(run.id(), "flaky");
        if n < 3 {
            run.record("trial.failing", &n)?;
            return Err(StepError::new(format!("failure {n}")));
        }
        Ok(Next::finish(run.state.join(",")))
    }

    /// Fails once, and is tried again after an hour.
    #[step(attempts = 2, backoff = "1h..1h")]
    async fn patient(run: &mut Run<Trial>) -> Result<Next<Trial>> {
        if run.app.log.note(run.id(), "patient") < 2 {
            return Err(StepError::new("not yet"));
        }
        Ok(Next::finish("waited".into()))
    }

    #[step(attempts = 2, backoff = "10ms..10ms")]
    async fn hopeless(run: &mut Run<Trial>) -> Result<Next<Trial>> {
        run.state.push("never stored".into());
        let n = run.app.log.note(run.id(), "hopeless");
        run.record("trial.last_words", &n)?;
        Err(StepError::new(format!("failure {n}")))
    }

    #[step(attempts = 5, backoff = "10ms..10ms")]
    async fn fatal(run: &mut Run<Trial>) -> Result<Next<Trial>> {
        run.app.log.note(run.id(), "fatal");
        Err(StepError::fatal("no use"))
    }

    #[step(attempts = 5)]
    async fn panics(run: &mut Run<Trial>, how: String) -> Result<Next<Trial>> {
        run.app.log.note(run.id(), "panics");
        match how.as_str() {
            "panic with a text" => panic!("a text"),
            "panic with a string" => panic!("a string of {}", run.id()),
            "panic with a NUL" => panic!("a \0 in it"),
            _ => std::panic::panic_any(7_u32),
        }
    }

    #[step(timeout = "80ms", attempts = 2, backoff = "10ms..10ms")]
    async fn slow(run: &mut Run<Trial>) -> Result<Next<Trial>> {
        run.app.log.note(run.id(), "slow");
        std::future::pending().await
    }

    #[step(blocking)]
    async fn blocks(run: &mut Run<Trial>) -> Result<Next<Trial>> {
        run.app.log.note(run.id(), "blocks");
        // A thread of its own is held, whatever the runtime does.
        futures::executor::block_on(run.app.gate.pass());
        Ok(Next::finish("unblocked".into()))
    }

    #[step(blocking, timeout = "80ms")]
    async fn blocks_too_long(run: &mut Run<Trial>) -> Result<Next<Trial>> {
        run.app.gate.pass().await;
        Ok(Next::finish("never".into()))
    }

    /// Goes on when the gate opens, and not before.
    #[step(crash_limit = 50)]
    async fn stuck(run: &mut Run<Trial>) -> Result<Next<Trial>> {
        run.app.log.note(run.id(), "stuck");
        run.app.gate.pass().await;
        Ok(Next::finish("freed".into()))
    }

    #[step(crash_limit = 2)]
    async fn fragile(run: &mut Run<Trial>) -> Result<Next<Trial>> {
        run.app.log.note(run.id(), "fragile");
        run.app.gate.pass().await;
        Ok(Next::finish("survived".into()))
    }

    #[step]
    async fn inner(_: &mut Run<Trial>, n: i64) -> Result<Next<Trial, i64>> {
        Ok(Next::finish(n * 2))
    }

    #[step]
    async fn outer(_: &mut Run<Trial>, (result, carried): (i64, i64)) -> Result<Next<Trial>> {
        Ok(Next::finish(format!("{result}+{carried}")))
    }

    #[step]
    async fn records(run: &mut Run<Trial>, what: String) -> Result<Next<Trial>> {
        let first = run.record("trial.first", &1)?;
        let cause = match what.strip_prefix("record caused by ") {
            Some(id) => id.parse::<EventId>().unwrap(),
            None => first,
        };
        run.record_caused_by("trial.second", &2, cause)?;
        run.record("trial.third", &3)?;
        Ok(Next::finish(first.to_string()))
    }

    #[step]
    async fn limits(run: &mut Run<Trial>, what: String) -> Result<Next<Trial>> {
        match what.as_str() {
            "limit of a state" => run.state.push("x".repeat(1 << 20)),
            "limit of an event" => {
                run.record("trial.large", &"x".repeat(40_000))?;
            }
            "limit of an output" => return Ok(Next::finish("x".repeat(9 << 20))),
            "limit of an argument" => return Ok(Next::goto(step::limits, "x".repeat(2 << 20))),
            _ => {}
        }
        Ok(Next::finish(what))
    }

    /// A state of 100 kB that is written once, and five steps that leave it as it is.
    #[step]
    async fn large(run: &mut Run<Trial>, n: i64) -> Result<Next<Trial>> {
        if n == 0 {
            run.state.push("x".repeat(100_000));
        }
        if &*run.input == "large, then a change" {
            run.state.push(n.to_string());
        }
        Ok(if n < 5 { Next::goto(step::large, n + 1) } else { Next::finish(run.state.len().to_string()) })
    }
}

/// One or two questions to a model.
#[derive(Clone, Default)]
pub struct Asking {
    pub log: Log,
}

/// The request that asks for this; the logical request is told apart by run and turn.
pub fn request(run: &str, turn: u32, prompt: &str) -> serde_json::Value {
    serde_json::json!({
        "model": "claude-haiku-4-5", "max_tokens": 200, "metadata": {"user_id": format!("{run}/{turn}")},
        "messages": [{"role": "user", "content": prompt}],
    })
}

#[workflow]
mod asking {
    use super::*;
    use longhaul::ModelRequest;

    impl Workflow for Asking {
        const NAME: &'static str = "asking";
        const VERSION: u32 = 1;
        type Input = String;
        type State = Vec<String>;
        type Output = String;
        type Entry = step::ask;
    }

    #[step(crash_limit = 50)]
    async fn ask(run: &mut Run<Asking>) -> Result<Next<Asking>> {
        run.app.log.note(run.id(), "ask");
        if let Some(raw) = run.input.strip_prefix("raw:") {
            return Ok(run.model("claude", ModelRequest::raw(raw)).then(step::answered));
        }
        if let Some(provider) = run.input.strip_prefix("at:") {
            return Ok(run.model(provider, request(run.id(), 1, "who?")).then(step::answered));
        }
        let body = request(run.id(), 1, &run.input);
        Ok(run.model("claude", body).then(step::answered))
    }

    #[step(crash_limit = 50)]
    async fn answered(run: &mut Run<Asking>, reply: Reply) -> Result<Next<Asking>> {
        run.app.log.note(run.id(), "answered");
        run.state.push(reply.text());
        if !run.input.starts_with("twice") {
            return Ok(Next::finish(run.state.join("|")));
        }
        let body = request(run.id(), 2, &format!("{} again", *run.input));
        Ok(run.model("claude", body).carry(7).then(step::answered_again))
    }

    #[step(crash_limit = 50)]
    async fn answered_again(run: &mut Run<Asking>, (reply, seven): (Reply, i64)) -> Result<Next<Asking>> {
        run.app.log.note(run.id(), "answered_again");
        run.state.push(reply.text());
        Ok(Next::finish(format!("{}|{seven}", run.state.join("|"))))
    }
}
