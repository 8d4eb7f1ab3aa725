//! What a responder is given, and what it answers.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use super::default_answers;

/// One valid request, as a responder sees it.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    params: &'a Value,
    logical: &'a str,
}

impl<'a> RequestView<'a> {
    pub(crate) fn new(params: &'a Value, logical: &'a str) -> Self {
        Self { params, logical }
    }

    /// The whole `params` of the request.
    pub fn params(&self) -> &'a Value {
        self.params
    }

    /// The digest that stands for the request in the ledger: 32 hex characters.
    pub fn logical(&self) -> &'a str {
        self.logical
    }

    /// The model that was asked for.
    pub fn model(&self) -> &'a str {
        self.params["model"].as_str().unwrap_or_default()
    }

    /// The most tokens the answer may have.
    pub fn max_tokens(&self) -> u64 {
        self.params["max_tokens"].as_u64().unwrap_or(u64::MAX)
    }

    /// The system prompt's text; empty when there is none.
    pub fn system(&self) -> String {
        text_of(&self.params["system"])
    }

    /// The messages, oldest first.
    pub fn messages(&self) -> &'a [Value] {
        array(&self.params["messages"])
    }

    /// The text of the newest user message that has any: messages that only carry tool results are passed over.
    pub fn prompt(&self) -> String {
        let user = self.messages().iter().rev().filter(|message| message["role"] == "user");
        user.map(|message| text_of(&message["content"])).find(|text| !text.is_empty()).unwrap_or_default()
    }

    /// The tools on offer.
    pub fn tools(&self) -> &'a [Value] {
        array(&self.params["tools"])
    }

    /// The texts of the tool results in the newest message.
    pub fn tool_results(&self) -> Vec<String> {
        let newest = self.messages().last().map_or(&Value::Null, |message| &message["content"]);
        let results = array(newest).iter().filter(|block| block["type"] == "tool_result");
        results.map(|block| text_of(&block["content"])).collect()
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The text of a string or of a list of content blocks.
fn text_of(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let texts =
        array(content).iter().filter(|block| block["type"] == "text").filter_map(|block| block["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// What the model says to one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A message: the request succeeds and is paid.
    Message {
        /// The content blocks.
        content: Vec<Value>,
        /// Why the model stopped, such as `end_turn`.
        stop_reason: String,
    },
    /// An error: the request is `errored` and is not paid.
    Error {
        /// The error's type, such as `overloaded_error`.
        error_type: String,
        /// What is wrong, for people.
        message: String,
    },
}

impl Answer {
    /// A plain text that ends the turn.
    pub fn text(text: impl Into<String>) -> Self {
        let content = vec![json!({"type": "text", "text": text.into()})];
        Self::Message { content, stop_reason: "end_turn".to_owned() }
    }

    /// A call of one tool.
    pub fn tool_use(id: impl Into<String>, name: impl Into<String>, input: Value) -> Self {
        let content = vec![json!({"type": "tool_use", "id": id.into(), "name": name.into(), "input": input})];
        Self::Message { content, stop_reason: "tool_use".to_owned() }
    }

    /// An error of the given type.
    pub fn error(error_type: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Error { error_type: error_type.into(), message: message.into() }
    }
}

/// The function that answers requests. [`Responder::default`] gives short extractive answers.
#[derive(Clone)]
pub struct Responder(Arc<dyn Fn(&RequestView<'_>) -> Answer + Send + Sync>);

impl Responder {
    /// Takes the function. It should depend on the request alone.
    pub fn new(respond: impl Fn(&RequestView<'_>) -> Answer + Send + Sync + 'static) -> Self {
        Self(Arc::new(respond))
    }

    /// Answers one request.
    pub fn respond(&self, request: &RequestView<'_>) -> Answer {
        (self.0)(request)
    }
}

impl Default for Responder {
    fn default() -> Self {
        Self::new(default_answers::answer)
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Responder(..)")
    }
}
