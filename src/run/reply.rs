//! A model's answer.

mod escapes;
mod shapes;

use crate::domain::limits::REQUEST_BYTES;
use crate::domain::{InvalidJson, JsonText};
pub(super) use escapes::without_lone_surrogates;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A model's answer: the provider's message, as the JSON it came in. It is read in three shapes: Anthropic's Messages, and
/// OpenAI's Chat Completions (of which the first choice is looked at) and Responses.
///
/// What it offers is read out of that text, leniently: a block of a kind nobody here knows, a broken escape or a missing
/// field never makes the rest unreadable. A reply was paid for; it must not become undecodable because it is new.
///
/// ```
/// # use longhaul::Reply;
/// let reply = Reply::of_text("peace, trade");
/// assert_eq!(reply.text(), "peace, trade");
/// assert_eq!(reply.stop_reason().as_deref(), Some("end_turn"));
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reply(#[serde(with = "crate::domain::json::raw")] JsonText);

/// A tool that the model wants used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolUse {
    /// The id that the result has to name.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// Its input, a JSON object.
    #[serde(with = "crate::domain::json::raw")]
    pub input: JsonText,
}

/// What a reply used up, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Read, at the full price.
    #[serde(deserialize_with = "count")]
    pub input_tokens: u64,
    /// Written.
    #[serde(deserialize_with = "count")]
    pub output_tokens: u64,
    /// Read, and kept in the provider's cache.
    #[serde(deserialize_with = "count")]
    pub cache_creation_input_tokens: u64,
    /// Read from the provider's cache.
    #[serde(deserialize_with = "count")]
    pub cache_read_input_tokens: u64,
}

/// Any JSON: what a provider says is not ours to describe.
impl schemars::JsonSchema for Reply {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Reply".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!(true)
    }
}

impl Reply {
    /// A reply from the provider's JSON.
    ///
    /// # Errors
    /// [`InvalidJson`] when the text is no JSON, too large or nested too deeply.
    pub fn from_json(text: &str) -> Result<Self, InvalidJson> {
        JsonText::parse(text, "a reply", REQUEST_BYTES).map(Self)
    }

    /// A reply of one text, in the shape of Anthropic's messages: for rehearsals and tests.
    pub fn of_text(text: &str) -> Self {
        Self::from(serde_json::json!({
            "id": "msg_rehearsed", "type": "message", "role": "assistant", "model": "rehearsed",
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }))
    }

    /// The JSON, as a text that can be stored.
    pub(crate) fn into_json(self) -> JsonText {
        self.0
    }

    /// The JSON, as it came.
    pub fn raw(&self) -> &str {
        self.0.as_str()
    }

    /// Its texts, joined.
    pub fn text(&self) -> String {
        self.said()
    }

    /// The tools that it wants used, in order.
    pub fn tool_uses(&self) -> Vec<ToolUse> {
        self.wanted()
    }

    /// Why it ends, in the provider's words: `end_turn`, `max_tokens`, `tool_use`, ..; of OpenAI `stop`, `length`, `tool_calls`, ..; of
    /// its Responses the status, or why it is incomplete.
    pub fn stop_reason(&self) -> Option<String> {
        self.ending()
    }

    /// What it used up, if it says so.
    pub fn usage(&self) -> Option<Usage> {
        self.used()
    }

    /// Reads it as a type: a client library's message, or one of yours.
    ///
    /// # Errors
    /// What serde says when the type does not fit. That is for the step to decide: the text is there in any case.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&without_lone_surrogates(self.raw()))
    }
}

#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "text")]
    text: Option<String>,
    #[serde(default, deserialize_with = "text")]
    id: Option<String>,
    #[serde(default, deserialize_with = "text")]
    name: Option<String>,
    #[serde(default)]
    input: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Lenient<T> {
    Is(T),
    IsNot(IgnoredAny),
}

impl<T> Lenient<T> {
    fn ok(self) -> Option<T> {
        match self {
            Self::Is(value) => Some(value),
            Self::IsNot(_) => None,
        }
    }
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Lenient::deserialize(from).map(Lenient::ok)
}

fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Lenient::deserialize(from).map(|count| count.ok().unwrap_or(0))
}

impl From<serde_json::Value> for Reply {
    fn from(message: serde_json::Value) -> Self {
        Self(JsonText::stored(message.to_string()))
    }
}

// Never the text of a model: only its size.
impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reply({} bytes)", self.raw().len())
    }
}

#[cfg(test)]
mod tests;
