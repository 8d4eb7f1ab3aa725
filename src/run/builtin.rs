//! The engine's own steps: they stand between an answer and the step that a workflow named, run through the same trampoline
//! as any step, and are at-least-once like any. Their names begin with `~`, which no step of a workflow can.

use super::flow::{Act, Executed, Outcome, StepInfo, TypeInfo};
use super::reply::Reply;
use super::tool::{ToolResultBlock, Toolbox};
use crate::domain::limits::{REPLY_BYTES, REQUEST_BYTES, TOOLS_PER_TURN, TURNS};
use crate::domain::{EventType, Frame, JsonText, LiveCall, ModelRetry, NewEvent, NewWait, StepPolicy};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

/// Looks at a reply in a conversation: uses the tools that it asks for and asks again, or hands it on.
pub(crate) const HEARD: &str = "~heard";
/// Uses tools.
pub(crate) const TOOLS: &str = "~tools";

static INFOS: [StepInfo; 2] = [info(HEARD, "(reply, conversation)"), info(TOOLS, "a list of tool uses")];

const fn info(name: &'static str, input: &'static str) -> StepInfo {
    let policy = StepPolicy { attempts: 3, timeout: Some(Duration::from_secs(600)), ..StepPolicy::DEFAULT };
    let input = TypeInfo { name: Cow::Borrowed(input), schema: None };
    StepInfo { name: Cow::Borrowed(name), input, policy, blocking: false }
}

/// The step of that name, if it is one of the engine's own.
pub(crate) fn find(step: &str) -> Option<&'static StepInfo> {
    INFOS.iter().find(|info| info.name == step)
}

/// What a conversation carries from turn to turn. The request is not among it: it is stored with the wait.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Conversation {
    pub(crate) provider: String,
    pub(crate) turns: u32,
    /// When each of its turns goes live, if ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) live: Option<LiveCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<ModelRetry>,
}

/// What [`HEARD`] is given.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Heard {
    pub(crate) reply: Reply,
    pub(crate) request: BTreeMap<String, Box<RawValue>>,
    pub(crate) conversation: Conversation,
}

/// The wait of one turn, and the step that looks at its answer.
pub(crate) fn ask(conversation: &Conversation, request: JsonText) -> Result<(NewWait, Frame), Outcome> {
    let carry = JsonText::of(conversation, "a conversation", REQUEST_BYTES)?;
    let wait = NewWait {
        live: conversation.live.map(Box::new),
        retry: conversation.retry.map(Box::new),
        ..NewWait::model(&conversation.provider, request)
    };
    Ok((wait, Frame { step: HEARD.to_owned(), carry: Some(carry) }))
}

/// The step that looks at the answer, in a conversation whose every turn is asked as this wait is.
pub(crate) fn each_turn_like(wait: &NewWait, first: Frame) -> Result<Frame, Outcome> {
    let carry = first.carry.unwrap_or_else(JsonText::null);
    let (live, retry) = (wait.live.as_deref().copied(), wait.retry.as_deref().copied());
    let conversation = Conversation { live, retry, ..carry.read().map_err(undecodable)? };
    Ok(Frame { carry: Some(JsonText::of(&conversation, "a conversation", REQUEST_BYTES)?), ..first })
}

/// The argument of [`HEARD`].
pub(crate) fn heard_arg(reply: &JsonText, request: &JsonText, conversation: Option<&JsonText>) -> JsonText {
    let conversation = conversation.map_or("null", JsonText::as_str);
    JsonText::stored(format!(
        r#"{{"reply":{},"request":{},"conversation":{conversation}}}"#,
        reply.as_str(),
        request.as_str()
    ))
}

/// Runs one of the engine's own steps.
pub(crate) async fn call(step: &str, arg: Option<JsonText>, run_id: &str, tools: &Toolbox) -> Executed {
    let arg = arg.unwrap_or_else(JsonText::null);
    let done = match step {
        HEARD => heard(&arg, run_id, tools).await,
        TOOLS => used(&arg, run_id, tools).await,
        other => Err(Outcome::Undecodable(format!("the engine has no step `{other}`"))),
    };
    match done {
        Ok((act, records)) => Executed { outcome: Outcome::Done(act), state: None, records },
        Err(outcome) => Executed::bare(outcome),
    }
}

type Done = Result<(Act, Vec<NewEvent>), Outcome>;

async fn heard(arg: &JsonText, run_id: &str, tools: &Toolbox) -> Done {
    let Heard { reply, mut request, mut conversation } = arg.read().map_err(undecodable)?;
    let uses = reply.tool_uses();
    if uses.is_empty() {
        let raw = JsonText::parse(reply.raw(), "a reply", REPLY_BYTES)?;
        return Ok((Act::Finish(raw), Vec::new()));
    }
    conversation.turns += 1;
    if conversation.turns > TURNS {
        return Err(Outcome::Limit(format!("a conversation has at most {TURNS} turns with tools")));
    }
    limited(uses.len())?;
    let results = tools.apply(run_id, uses).await;
    // Raw texts all the way: whatever the provider has put into its reply goes back to it as it came.
    let field = reply.conversation_field();
    let mut messages: Vec<Box<RawValue>> = match request.get(field) {
        // The input of OpenAI's Responses may be a text alone.
        Some(text) if text.get().starts_with('"') => {
            vec![RawValue::from_string(format!(r#"{{"role":"user","content":{}}}"#, text.get())).map_err(undecodable)?]
        }
        Some(messages) => serde_json::from_str(messages.get()).map_err(undecodable)?,
        None => return Err(Outcome::Undecodable(format!("the request of a conversation has no `{field}`"))),
    };
    messages.extend(reply.turn(&results).map_err(undecodable)?);
    request.insert(field.into(), serde_json::value::to_raw_value(&messages).map_err(undecodable)?);
    let request = JsonText::of(&request, "a model request", REQUEST_BYTES)?;
    let (wait, then) = ask(&conversation, request)?;
    Ok((Act::Suspend { wait, then, under: None }, told(&results)))
}

async fn used(arg: &JsonText, run_id: &str, tools: &Toolbox) -> Done {
    let uses: Vec<super::reply::ToolUse> = arg.read().map_err(undecodable)?;
    limited(uses.len())?;
    let results = tools.apply(run_id, uses).await;
    let records = told(&results);
    Ok((Act::Finish(JsonText::of(&results, "the results of tools", REQUEST_BYTES)?), records))
}

fn limited(uses: usize) -> Result<(), Outcome> {
    if uses > TOOLS_PER_TURN {
        return Err(Outcome::Limit(format!("a turn uses at most {TOOLS_PER_TURN} tools, this one {uses}")));
    }
    Ok(())
}

fn told(results: &[ToolResultBlock]) -> Vec<NewEvent> {
    let failed = results.iter().filter(|r| r.is_error).count();
    let payload = serde_json::json!({"uses": results.len(), "failed": failed});
    NewEvent::new(EventType::ToolsCompleted, &payload).into_iter().collect()
}

fn undecodable(why: serde_json::Error) -> Outcome {
    Outcome::Undecodable(why.to_string())
}
