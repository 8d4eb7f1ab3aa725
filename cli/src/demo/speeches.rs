//! The workflow of the demo: summarise a speech with a tool at hand, look at its themes and its tone at the same time, ask a person
//! where the tone is unclear, and put a headline over it all.
//!
//! Five model calls a run, each of which somebody reads: two turns of the summary, one for each branch, and the headline.

use longhaul::{Next, Reply, Result, Run, StepError, Tool, ToolCall, ToolResult, Workflow, workflow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// The name that the workflow knows its provider by.
pub(super) const PROVIDER: &str = "claude";
const MODEL: &str = "claude-haiku-4-5";
/// What the model says of a tone that it cannot name.
pub(super) const UNCLEAR: &str = "unclear";
/// How long a person may take.
const DAY: Duration = Duration::from_secs(24 * 3_600);

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

/// What a run remembers; each branch gets a copy.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Notes {
    pub summary: String,
}

/// What the branches found out, on its way through the last steps.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Draft {
    pub themes: Vec<String>,
    pub tone: String,
    /// Whether a person was asked.
    pub asked: bool,
}

/// What a person may say of an unclear tone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) enum Verdict {
    /// It is unclear.
    Keep,
    /// This word fits.
    Relabel(String),
}

/// What a run gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    pub year: Option<i32>,
    pub title: String,
    pub headline: String,
    pub summary: String,
    pub themes: Vec<String>,
    pub tone: String,
    /// Whether a person was asked for the tone.
    pub asked: bool,
}

/// Counts the words of a draft, which models are bad at.
pub(super) struct WordCount;

impl Tool for WordCount {
    const NAME: &'static str = "word_count";
    async fn call(&self, call: ToolCall) -> ToolResult {
        let input: Value = call.input.read().map_err(|error| error.to_string())?;
        let draft = input["draft"].as_str().ok_or("`draft` is missing")?;
        Ok(format!("{} words", draft.split_whitespace().count()))
    }
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
        let task =
            "Write a summary of this address in two sentences, and count the words of your draft before you answer.";
        let mut request = ask(run.id(), task, &run.input.text);
        request["tools"] = json!([{
            "name": WordCount::NAME,
            "description": "Counts the words of a draft.",
            "input_schema": {"type": "object", "properties": {"draft": {"type": "string"}}, "required": ["draft"]},
        }]);
        Ok(run.converse(PROVIDER, request).then(step::summarised)) // a tool loop, each turn a durable wait
    }

    #[step]
    async fn summarised(run: &mut Run<Speeches>, reply: Reply) -> Result<Next<Speeches>> {
        run.state.summary = reply.text().trim().to_owned();
        if run.state.summary.is_empty() {
            return Err(StepError::fatal("the model gave no summary"));
        }
        Ok(run.fork().branch("themes", step::themes, ()).branch("tone", step::tone, ()).join(step::joined))
    }

    #[step]
    async fn themes(run: &mut Run<Speeches>, _: ()) -> Result<Next<Speeches, Vec<String>>> {
        let request = ask(run.id(), "Name the themes of this text, with commas between them.", &run.state.summary);
        Ok(run.model(PROVIDER, request).then(step::themed))
    }

    #[step]
    async fn themed(_: &mut Run<Speeches>, reply: Reply) -> Result<Next<Speeches, Vec<String>>> {
        let reply = reply.text();
        let themes = reply.split(',').map(str::trim).filter(|theme| !theme.is_empty());
        Ok(Next::finish(themes.map(str::to_owned).collect()))
    }

    #[step]
    async fn tone(run: &mut Run<Speeches>, _: ()) -> Result<Next<Speeches, String>> {
        let task = "Name the tone of this address in one word, or say that it is unclear.";
        Ok(run.model(PROVIDER, ask(run.id(), task, &run.input.text)).then(step::toned))
    }

    #[step]
    async fn toned(_: &mut Run<Speeches>, reply: Reply) -> Result<Next<Speeches, String>> {
        Ok(Next::finish(reply.text().trim().to_lowercase()))
    }

    #[step]
    async fn joined(run: &mut Run<Speeches>, (themes, tone): (Vec<String>, String)) -> Result<Next<Speeches>> {
        let draft = Draft { themes, asked: tone == UNCLEAR, tone };
        if !draft.asked {
            return Ok(Next::goto(step::entitle, draft));
        }
        let address = json!({"year": run.input.year, "title": run.input.title, "summary": run.state.summary});
        let asked = run.human::<Verdict>("What is the tone of this address?").context(&address);
        Ok(asked.or_after(DAY, Verdict::Keep).carry(draft).then(step::judged))
    }

    #[step]
    async fn judged(_: &mut Run<Speeches>, (verdict, mut draft): (Verdict, Draft)) -> Result<Next<Speeches>> {
        if let Verdict::Relabel(tone) = verdict {
            draft.tone = tone;
        }
        Ok(Next::goto(step::entitle, draft))
    }

    #[step]
    async fn entitle(run: &mut Run<Speeches>, draft: Draft) -> Result<Next<Speeches>> {
        let task = format!("Write a headline over this text, whose tone is {}.", draft.tone);
        Ok(run.model(PROVIDER, ask(run.id(), &task, &run.state.summary)).carry(draft).then(step::entitled))
    }

    #[step]
    async fn entitled(run: &mut Run<Speeches>, (reply, draft): (Reply, Draft)) -> Result<Next<Speeches>> {
        Ok(Next::finish(Report {
            year: run.input.year,
            title: run.input.title.clone(),
            headline: reply.text().trim().to_owned(),
            summary: run.state.summary.clone(),
            themes: draft.themes,
            tone: draft.tone,
            asked: draft.asked,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul::{Answer, Ask, Rehearsal, WaitKind};

    fn rehearsal(tone: &'static str) -> Rehearsal<Speeches> {
        let script = move |asked: &Ask| -> Answer {
            if asked.kind() == WaitKind::Human {
                return json!({"Relabel": "solemn"}).into();
            }
            let request = asked.request();
            let task = request["messages"][0]["content"].as_str().unwrap_or_default();
            let turns = request["messages"].as_array().map_or(0, Vec::len);
            match task.split_whitespace().nth(2) {
                Some("summary") if turns == 1 => json!({"content": [
                    {"type": "tool_use", "id": "t1", "name": "word_count", "input": {"draft": "Trade is up."}}
                ]})
                .into(),
                Some("summary") => {
                    Reply::of_text(&format!("Trade is up. [{}]", request["messages"][2]["content"][0]["content"]))
                        .into()
                }
                Some("themes") => Reply::of_text("trade, peace,").into(),
                Some("tone") => Reply::of_text(tone).into(),
                _ => Reply::of_text("Trade").into(),
            }
        };
        Rehearsal::new(Speeches { reading: Duration::ZERO }).tool(WordCount).answer(script)
    }

    fn address() -> Address {
        Address { year: Some(1790), title: "G. W.".into(), text: "Trade ..".into() }
    }

    #[tokio::test]
    async fn a_rehearsed_run_reports_what_all_of_them_said() {
        let report = rehearsal("Hopeful ").run("1790", address()).await.unwrap();
        assert_eq!((report.summary.as_str(), report.headline.as_str()), ("Trade is up. [\"3 words\"]", "Trade"));
        assert_eq!((report.themes, report.tone.as_str()), (vec!["trade".into(), "peace".into()], "hopeful"));
        assert!(!report.asked);
    }

    #[tokio::test]
    async fn a_person_is_asked_where_the_tone_is_unclear() {
        let mut rehearsal = rehearsal("unclear");
        let report = rehearsal.run("1790", address()).await.unwrap();
        assert_eq!((report.tone.as_str(), report.asked), ("solemn", true));
        let asked = rehearsal.requests().iter().find(|asked| asked.kind() == WaitKind::Human).unwrap().request();
        assert_eq!(asked["context"]["title"], "G. W.");
    }
}
