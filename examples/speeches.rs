//! A conversation with a tool, two branches and their join, and a person who decides where the model is not sure. Rehearsed in
//! memory; `longhaul demo` runs the like of it on a database, with a worker killed half-way.

use longhaul::{Answer, Ask, Next, Rehearsal, Reply, Result, Run, StepError, Tool, ToolCall, ToolResult, WaitKind};
use longhaul::{Workflow, workflow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

/// What the steps need from the service around them.
pub struct Speeches {
    model: &'static str,
}

/// What a run remembers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Notes {
    summary: String,
}

/// What a run gives.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    summary: String,
    themes: Vec<String>,
    tone: String,
}

/// What a person may say.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub enum Verdict {
    /// The model's word stands.
    Keep,
    /// Another word is better.
    Relabel(String),
}

/// Counts words, for the model.
struct WordCount;

impl Tool for WordCount {
    const NAME: &'static str = "word_count";
    async fn call(&self, call: ToolCall) -> ToolResult {
        let input: Value = call.input.read().map_err(|e| e.to_string())?;
        let text = input["draft"].as_str().ok_or("`draft` is missing")?;
        Ok(format!("{} words", text.split_whitespace().count()))
    }
}

fn ask(app: &Speeches, task: &str, text: &str) -> Value {
    let messages = json!([{"role": "user", "content": format!("{task}\n\n{text}")}]);
    json!({"model": app.model, "max_tokens": 400, "messages": messages})
}

#[workflow]
mod speeches {
    use super::*;

    impl Workflow for Speeches {
        const NAME: &'static str = "speeches";
        const VERSION: u32 = 1;
        type Input = String;
        type State = Notes;
        type Output = Report;
        type Entry = step::summarise;
    }

    #[step(attempts = 3, backoff = "1s..1m", timeout = "30s")]
    async fn summarise(run: &mut Run<Speeches>) -> Result<Next<Speeches>> {
        let mut request = ask(&run.app, "Summarise this in two sentences; count the words of your draft.", &run.input);
        let draft = json!({"type": "object", "properties": {"draft": {"type": "string"}}, "required": ["draft"]});
        request["tools"] = json!([{"name": WordCount::NAME, "input_schema": draft}]);
        Ok(run.converse("claude", request).then(step::summarised)) // a tool loop, each turn a durable wait
    }

    #[step]
    async fn summarised(run: &mut Run<Speeches>, reply: Reply) -> Result<Next<Speeches>> {
        run.state.summary = reply.text();
        if run.state.summary.is_empty() {
            return Err(StepError::fatal("the model gave no summary"));
        }
        Ok(run.fork().branch("themes", step::themes, ()).branch("tone", step::tone, ()).join(step::joined))
    }

    #[step]
    async fn themes(run: &mut Run<Speeches>, _: ()) -> Result<Next<Speeches, Vec<String>>> {
        let request = ask(&run.app, "Name the themes, with commas between them.", &run.state.summary);
        Ok(run.model("claude", request).then(step::themed))
    }

    #[step]
    async fn themed(_: &mut Run<Speeches>, reply: Reply) -> Result<Next<Speeches, Vec<String>>> {
        Ok(Next::finish(reply.text().split(',').map(|theme| theme.trim().to_owned()).collect()))
    }

    #[step]
    async fn tone(run: &mut Run<Speeches>, _: ()) -> Result<Next<Speeches, String>> {
        Ok(run.model("claude", ask(&run.app, "Name the tone in one word.", &run.input)).then(step::toned))
    }

    #[step]
    async fn toned(_: &mut Run<Speeches>, reply: Reply) -> Result<Next<Speeches, String>> {
        Ok(Next::finish(reply.text()))
    }

    #[step]
    async fn joined(run: &mut Run<Speeches>, (themes, tone): (Vec<String>, String)) -> Result<Next<Speeches>> {
        let draft = Report { summary: run.state.summary.clone(), themes, tone };
        if draft.tone != "unclear" {
            return Ok(Next::finish(draft));
        }
        let asked = run.human::<Verdict>("What is the tone?").context(&draft.summary).or_after(DAY, Verdict::Keep);
        Ok(asked.carry(draft).then(step::judged))
    }

    #[step]
    async fn judged(_: &mut Run<Speeches>, (verdict, draft): (Verdict, Report)) -> Result<Next<Speeches>> {
        Ok(Next::finish(match verdict {
            Verdict::Keep => draft,
            Verdict::Relabel(tone) => Report { tone, ..draft },
        }))
    }
}

/// What the model and the person say in the rehearsal.
fn script(asked: &Ask) -> Answer {
    let request = asked.request();
    let turns = request["messages"].as_array().map_or(0, Vec::len);
    let task = request["messages"][0]["content"].as_str().unwrap_or_default();
    let draft = "Trade is up. Peace is kept.";
    match asked.kind() {
        WaitKind::Human => json!({"Relabel": "solemn"}).into(),
        _ if task.starts_with("Summarise") && turns == 1 => json!({"content": [
            {"type": "tool_use", "id": "t1", "name": "word_count", "input": {"draft": draft}}
        ]})
        .into(),
        _ if task.starts_with("Summarise") => Reply::of_text(draft).into(),
        _ if task.contains("themes") => Reply::of_text("trade, peace").into(),
        _ => Reply::of_text("unclear").into(),
    }
}

fn main() {
    let mut rehearsal = Rehearsal::new(Speeches { model: "claude-haiku-4-5" }).tool(WordCount).answer(script);
    let run = rehearsal.run("1790", "Fellow-Citizens of the Senate ..".into());
    let report = futures::executor::block_on(run);
    println!("{}\n{report:#?}", rehearsal.steps().join(" -> "));
    assert_eq!(report.map(|report| (report.tone, report.themes.len())), Ok(("solemn".to_owned(), 2)));
}
