//! A workflow of two steps, and its rehearsal: no database, no model, no runtime.

use longhaul::{Next, Rehearsal, Reply, Result, Run, StepError, Workflow, workflow};
use serde_json::json;

/// What the steps need from the service around them.
pub struct Themes {
    model: &'static str,
}

#[workflow]
mod themes {
    use super::*;

    impl Workflow for Themes {
        const NAME: &'static str = "themes";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = Vec<String>;
        type Entry = step::ask;
    }

    #[step]
    async fn ask(run: &mut Run<Themes>) -> Result<Next<Themes>> {
        let content = format!("Name the themes of this speech, with commas between them: {}", run.input);
        let request =
            json!({"model": run.app.model, "max_tokens": 200, "messages": [{"role": "user", "content": content}]});
        run.record("speech.read", &json!({"bytes": run.input.len()}))?;
        Ok(run.model("claude", request).then(step::answered)) // waits in the database, holding nothing
    }

    #[step(attempts = 2, backoff = "1s..10s")]
    async fn answered(_: &mut Run<Themes>, reply: Reply) -> Result<Next<Themes>> {
        let themes: Vec<_> = reply.text().split(',').map(|theme| theme.trim().to_owned()).collect();
        if themes.iter().any(String::is_empty) {
            return Err(StepError::fatal("the model named no themes"));
        }
        Ok(Next::finish(themes))
    }
}

fn main() {
    let mut rehearsal = Rehearsal::new(Themes { model: "claude-haiku-4-5" })
        .answer(|_| Reply::of_text("peace, trade, the public credit"));
    let themes = futures::executor::block_on(rehearsal.run("1790", "Fellow-Citizens of the Senate ..".into()));
    println!("{}: {themes:?}", rehearsal.steps().join(" -> "));
    println!("{}", rehearsal.events().join("\n"));
    assert_eq!(themes.as_deref(), Ok(["peace", "trade", "the public credit"].map(String::from).as_slice()));
}
