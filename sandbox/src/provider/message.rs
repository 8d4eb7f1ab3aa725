//! What Anthropic's API writes of an outcome: a message, and a result line.

use axum::body::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::canonical::provider_id;
use super::processor::{Outcome, Said};
use super::wire::ErrorBody;

/// A complete message of the model.
#[derive(Serialize)]
pub(crate) struct Message<'a> {
    id: String,
    r#type: &'static str,
    role: &'static str,
    model: &'a str,
    content: &'a [Value],
    stop_reason: &'a str,
    stop_sequence: Option<String>,
    usage: Usage,
}

#[derive(Serialize)]
struct Usage {
    input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    output_tokens: u64,
}

impl<'a> Message<'a> {
    pub(crate) fn of(said: &'a Said) -> Self {
        Self {
            id: provider_id("msg_", &said.logical),
            r#type: "message",
            role: "assistant",
            model: &said.model,
            content: &said.content,
            stop_reason: &said.stop_reason,
            stop_sequence: None,
            usage: Usage {
                input_tokens: said.usage.input,
                cache_creation_input_tokens: 0,
                cache_read_input_tokens: 0,
                output_tokens: said.usage.output,
            },
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    custom_id: &'a str,
    result: Written<'a>,
}

/// The `result` of a line.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Written<'a> {
    Succeeded { message: Message<'a> },
    Errored { error: ErrorBody<'a> },
    Canceled,
    Expired,
}

/// The result line of one request, with its line end.
pub(crate) fn line(batch_id: &str, custom_id: &str, outcome: &Outcome) -> Bytes {
    let request_id = provider_id("req_", &format!("{batch_id}/{custom_id}"));
    let result = match outcome {
        Outcome::Succeeded(said) => Written::Succeeded { message: Message::of(said) },
        Outcome::Errored { error_type, message } => {
            Written::Errored { error: ErrorBody::new(error_type, message, None, &request_id) }
        }
        Outcome::Canceled => Written::Canceled,
        Outcome::Expired => Written::Expired,
    };
    // Strings, numbers and JSON values can always be written.
    let mut line = serde_json::to_vec(&Line { custom_id, result }).unwrap_or_default();
    line.push(b'\n');
    line.into()
}
