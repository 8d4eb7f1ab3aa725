//! The workflow of the demo: summarise a text, name the themes of the summary.

use longhaul::{Next, Reply, Result, Run, StepError, Workflow, workflow};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// The name that the workflow knows its provider by.
pub(super) const PROVIDER: &str = "claude";
const MODEL: &str = "claude-haiku-4-5";

/// What the steps need from the process around them.
pub(super) struct Speeches {
    /// How long fetching the document takes; here it only takes that long.
    pub reading: Duration,
}

/// What a run is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Address {
    pub year: Option<i32>,
    /// Who gave it, or what it is called.
    pub title: String,
    pub text: String,
}

/// What a run remembers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Notes {
    pub summary: String,
}

/// What a run gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    pub year: Option<i32>,
    pub title: String,
    pub summary: String,
    pub themes: Vec<String>,
}

/// A request. It names the run, so that the provider's ledger tells equal texts of different runs apart.
fn ask(run: &str, task: &str, text: &str) -> Value {
    json!({
        "model": MODEL,
        "max_tokens": 400,
        "metadata": {"user_id": run},
        "messages": [{"role": "user", "content": format!("{task}\n\n{text}")}],
    })
}

#[workflow]
mod speeches {
    use super::*;

    impl Workflow for Speeches {
        const NAME: &'static str = "speeches";
        const VERSION: u32 = 1;
        type Input = Address;
        type State = Notes;
        type Output = Report;
        type Entry = step::summarise;
    }

    #[step(attempts = 3, backoff = "1s..10s", timeout = "1m")]
    async fn summarise(run: &mut Run<Speeches>) -> Result<Next<Speeches>> {
        tokio::time::sleep(run.app.reading).await;
        let request = ask(run.id(), "Write a summary of this address in two sentences.", &run.input.text);
        Ok(run.model(PROVIDER, request).then(step::summarised))
    }

    #[step]
    async fn summarised(run: &mut Run<Speeches>, reply: Reply) -> Result<Next<Speeches>> {
        run.state.summary = reply.text().trim().to_owned();
        if run.state.summary.is_empty() {
            return Err(StepError::fatal("the model gave no summary"));
        }
        let request = ask(run.id(), "Name the themes of this text, with commas between them.", &run.state.summary);
        Ok(run.model(PROVIDER, request).then(step::themed))
    }

    #[step]
    async fn themed(run: &mut Run<Speeches>, reply: Reply) -> Result<Next<Speeches>> {
        let reply = reply.text();
        let themes = reply.split(',').map(str::trim).filter(|theme| !theme.is_empty());
        Ok(Next::finish(Report {
            year: run.input.year,
            title: run.input.title.clone(),
            summary: run.state.summary.clone(),
            themes: themes.map(str::to_owned).collect(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul::Rehearsal;

    #[tokio::test]
    async fn a_rehearsed_run_reports_summary_and_themes() {
        let mut answers = ["Trade is up. ", "trade, peace,"].into_iter();
        let mut rehearsal = Rehearsal::new(Speeches { reading: Duration::ZERO })
            .answer(move |_| Reply::of_text(answers.next().unwrap_or_default()));
        let address = Address { year: Some(1790), title: "G. W.".into(), text: "Trade ..".into() };
        let report = rehearsal.run("1790", address).await.unwrap();
        assert_eq!(
            (report.summary.as_str(), report.themes.as_slice()),
            ("Trade is up.", &["trade".into(), "peace".into()][..])
        );
        assert_eq!(rehearsal.steps(), ["summarise", "summarised", "themed"]);
    }
}
