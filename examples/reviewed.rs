//! A conversation with a tool, and a person who decides where the model is not sure. Rehearsed in memory.

use longhaul::{Answer, Ask, Next, Rehearsal, Reply, Result, Run, Tool, ToolCall, ToolResult, WaitKind};
use longhaul::{Workflow, workflow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// What a reviewer may say.
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
        let text = input["text"].as_str().ok_or("`text` is missing")?;
        Ok(text.split_whitespace().count().to_string())
    }
}

/// Names the tone of a speech.
pub struct Tone;

#[workflow]
mod tone {
    use super::*;

    impl Workflow for Tone {
        const NAME: &'static str = "tone";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = step::listen;
    }

    #[step]
    async fn listen(run: &mut Run<Tone>) -> Result<Next<Tone>> {
        let tools = json!([{"name": "word_count", "input_schema": {"type": "object"}}]);
        let messages = json!([{"role": "user", "content": format!("The tone of this, in one word: {}", run.input)}]);
        let request = json!({"model": "claude-haiku-4-5", "max_tokens": 100, "tools": tools, "messages": messages});
        Ok(run.converse("claude", request).then(step::heard)) // every turn of the tool loop is a durable wait
    }

    #[step]
    async fn heard(run: &mut Run<Tone>, reply: Reply) -> Result<Next<Tone>> {
        let tone = reply.text();
        if tone != "unclear" {
            return Ok(Next::finish(tone));
        }
        let day = Duration::from_secs(86_400);
        let asked = run.human::<Verdict>("Which tone?").context(&*run.input).or_after(day, Verdict::Keep);
        Ok(asked.carry(tone).then(step::judged))
    }

    #[step]
    async fn judged(_: &mut Run<Tone>, (verdict, tone): (Verdict, String)) -> Result<Next<Tone>> {
        Ok(Next::finish(match verdict {
            Verdict::Keep => tone,
            Verdict::Relabel(better) => better,
        }))
    }
}

/// What the model and the reviewer say in the rehearsal.
fn script(ask: &Ask) -> Answer {
    let turns = ask.request()["messages"].as_array().map_or(0, Vec::len);
    match (ask.kind(), turns) {
        (WaitKind::Human, _) => json!({"Relabel": "solemn"}).into(),
        (_, 1) => json!({"content": [
            {"type": "tool_use", "id": "t1", "name": "word_count", "input": {"text": "Fellow-Citizens of the Senate"}}
        ]})
        .into(),
        _ => Reply::of_text("unclear").into(),
    }
}

fn main() {
    let mut rehearsal = Rehearsal::new(Tone).tool(WordCount).answer(script);
    let tone = futures::executor::block_on(rehearsal.run("1790", "Fellow-Citizens of the Senate ..".into()));
    println!("{}: {tone:?}", rehearsal.steps().join(" -> "));
    assert_eq!(tone.as_deref(), Ok("solemn"));
    assert_eq!(rehearsal.steps(), ["listen", "~heard", "~heard", "heard", "judged"]);
}
