//! The shapes that replies come in: Anthropic's Messages, OpenAI's Chat Completions and OpenAI's Responses. What is asked of a
//! reply is answered out of whichever it is, and a conversation goes on in the shape that it has.

use super::{Block, Reply, ToolUse, Usage, text};
use crate::domain::JsonText;
use crate::run::tool::ToolResultBlock;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

type Raw = Option<Box<RawValue>>;

/// The shape of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `content`, a list of blocks.
    Messages,
    /// `choices`, of which the first is looked at.
    Chat,
    /// `output`, a list of items.
    Responses,
}

/// The fields of a reply that are looked at; each is read on its own, so that one cannot spoil the others.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Body {
    content: Raw,
    stop_reason: Raw,
    usage: Raw,
    choices: Raw,
    output: Raw,
    status: Raw,
    incomplete_details: Raw,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Choice {
    message: Raw,
    finish_reason: Raw,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Message {
    content: Raw,
    tool_calls: Raw,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ToolCall {
    #[serde(deserialize_with = "text")]
    id: Option<String>,
    function: Function,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Function {
    #[serde(deserialize_with = "text")]
    name: Option<String>,
    #[serde(deserialize_with = "text")]
    arguments: Option<String>,
}

/// An item of a response, as far as it is looked at.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Item {
    #[serde(rename = "type", deserialize_with = "text")]
    kind: Option<String>,
    content: Raw,
    #[serde(deserialize_with = "text")]
    call_id: Option<String>,
    #[serde(flatten)]
    function: Function,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Incomplete {
    #[serde(deserialize_with = "text")]
    reason: Option<String>,
}

/// Tokens in the words of either of OpenAI's endpoints. Those from the cache are among those that were read.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Tokens {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    prompt_tokens_details: Option<Cached>,
    input_tokens_details: Option<Cached>,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(default)]
struct Cached {
    cached_tokens: u64,
}

/// Reads a part, or says that it is not there.
fn read<T: DeserializeOwned>(raw: &Raw) -> Option<T> {
    serde_json::from_str(raw.as_ref()?.get()).ok()
}

/// Reads those of a list that can be read.
fn each<T: DeserializeOwned>(raw: &Raw) -> Vec<T> {
    let list: Vec<Box<RawValue>> = read(raw).unwrap_or_default();
    list.iter().filter_map(|one| serde_json::from_str(one.get()).ok()).collect()
}

/// The texts of the parts of this kind, joined; a plain text is itself.
fn joined(content: &Raw, kind: &str) -> String {
    if let Some(plain) = read::<String>(content) {
        return plain;
    }
    each::<Block>(content).into_iter().filter(|part| part.kind == kind).filter_map(|part| part.text).collect()
}

/// A tool use out of its parts. Arguments are a text that the model wrote: if it is no JSON, the tool is given it as a string.
fn tool_use(id: Option<String>, function: Function) -> Option<ToolUse> {
    let arguments = function.arguments.unwrap_or_default();
    let input = match serde_json::from_str::<Box<RawValue>>(&arguments) {
        Ok(json) => json.get().to_owned(),
        Err(_) if arguments.trim().is_empty() => "{}".to_owned(),
        Err(_) => serde_json::Value::String(arguments).to_string(),
    };
    Some(ToolUse { id: id?, name: function.name?, input: JsonText::stored(input) })
}

fn raw(json: serde_json::Value) -> Result<Box<RawValue>, serde_json::Error> {
    serde_json::value::to_raw_value(&json)
}

impl Reply {
    fn body(&self) -> Body {
        self.parse().unwrap_or_default()
    }

    pub(super) fn shape(&self) -> Shape {
        let body = self.body();
        match (body.content, body.choices, body.output) {
            (None, Some(_), _) => Shape::Chat,
            (None, None, Some(_)) => Shape::Responses,
            (_, _, _) => Shape::Messages,
        }
    }

    /// The message of the first choice.
    fn message(&self) -> Raw {
        self.choice().message
    }

    fn choice(&self) -> Choice {
        each(&self.body().choices).into_iter().next().unwrap_or_default()
    }

    pub(super) fn said(&self) -> String {
        match self.shape() {
            Shape::Messages => {
                let blocks = each::<Block>(&self.body().content).into_iter().filter(|block| block.kind == "text");
                blocks.filter_map(|block| block.text).collect()
            }
            Shape::Chat => joined(&read::<Message>(&self.message()).unwrap_or_default().content, "text"),
            Shape::Responses => {
                let items = each::<Item>(&self.body().output).into_iter();
                let messages = items.filter(|item| item.kind.as_deref() == Some("message"));
                messages.map(|item| joined(&item.content, "output_text")).collect()
            }
        }
    }

    pub(super) fn wanted(&self) -> Vec<ToolUse> {
        match self.shape() {
            Shape::Messages => {
                let blocks = each::<Block>(&self.body().content).into_iter().filter(|block| block.kind == "tool_use");
                let used = blocks.filter_map(|block| {
                    let input = block.input.map_or_else(|| "{}".to_owned(), |raw| raw.get().to_owned());
                    Some(ToolUse { id: block.id?, name: block.name?, input: JsonText::stored(input) })
                });
                used.collect()
            }
            Shape::Chat => {
                let message: Message = read(&self.message()).unwrap_or_default();
                let calls = each::<ToolCall>(&message.tool_calls).into_iter();
                calls.filter_map(|call| tool_use(call.id, call.function)).collect()
            }
            Shape::Responses => {
                let items = each::<Item>(&self.body().output).into_iter();
                let calls = items.filter(|item| item.kind.as_deref() == Some("function_call"));
                calls.filter_map(|item| tool_use(item.call_id, item.function)).collect()
            }
        }
    }

    pub(super) fn ending(&self) -> Option<String> {
        let body = self.body();
        match self.shape() {
            Shape::Messages => read(&body.stop_reason),
            Shape::Chat => read(&self.choice().finish_reason),
            Shape::Responses => {
                let incomplete: Option<Incomplete> = read(&body.incomplete_details);
                incomplete.and_then(|details| details.reason).or_else(|| read(&body.status))
            }
        }
    }

    pub(super) fn used(&self) -> Option<Usage> {
        let usage = self.body().usage;
        if self.shape() == Shape::Messages {
            return read(&usage);
        }
        let tokens: Tokens = read(&usage)?;
        let all = tokens.prompt_tokens.or(tokens.input_tokens).unwrap_or(0);
        let cached = tokens.prompt_tokens_details.or(tokens.input_tokens_details).unwrap_or_default();
        let cached = cached.cached_tokens.min(all);
        Some(Usage {
            input_tokens: all - cached,
            output_tokens: tokens.completion_tokens.or(tokens.output_tokens).unwrap_or(0),
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: cached,
        })
    }

    /// The field of a request that a conversation of this shape is in.
    pub(in crate::run) fn conversation_field(&self) -> &'static str {
        match self.shape() {
            Shape::Messages | Shape::Chat => "messages",
            Shape::Responses => "input",
        }
    }

    /// What goes on a conversation after this reply: what the model said, as it came, and what its tools answered. Halves of
    /// surrogate pairs, which a provider refuses, are replaced.
    pub(in crate::run) fn turn(&self, results: &[ToolResultBlock]) -> Result<Vec<Box<RawValue>>, serde_json::Error> {
        let mut turn: Vec<Box<RawValue>> = Vec::new();
        match self.shape() {
            Shape::Messages => {
                let content = self.body().content.map_or_else(|| "[]".to_owned(), |raw| raw.get().to_owned());
                turn.push(RawValue::from_string(format!(r#"{{"role":"assistant","content":{content}}}"#))?);
                turn.push(raw(serde_json::json!({"role": "user", "content": results}))?);
            }
            Shape::Chat => {
                turn.extend(self.message());
                for result in results {
                    let (id, content) = (&result.tool_use_id, as_text(result));
                    turn.push(raw(serde_json::json!({"role": "tool", "tool_call_id": id, "content": content}))?);
                }
            }
            Shape::Responses => {
                turn.extend(read::<Vec<Box<RawValue>>>(&self.body().output).unwrap_or_default());
                for result in results {
                    let (id, output) = (&result.tool_use_id, as_text(result));
                    let item = serde_json::json!({"type": "function_call_output", "call_id": id, "output": output});
                    turn.push(raw(item)?);
                }
            }
        }
        Ok(turn)
    }
}

/// Where a result has no mark of its own for an error, its text says so.
fn as_text(result: &ToolResultBlock) -> String {
    if result.is_error { format!("Error: {}", result.content) } else { result.content.clone() }
}
