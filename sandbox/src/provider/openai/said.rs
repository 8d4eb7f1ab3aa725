//! What OpenAI's API writes of an outcome: the body of an answer, and a line of an output or error file.

use axum::body::Bytes;
use chrono::Utc;
use serde_json::{Value, json};

use super::super::canonical::provider_id;
use super::super::processor::{Outcome, Said};
use super::super::wire::{ApiError, status_of};
use super::details::{seconds, usage_object};
use super::{Endpoint, error_body};

/// The body of an answer.
pub(crate) fn body(endpoint: Endpoint, said: &Said) -> Value {
    match endpoint {
        Endpoint::ChatCompletions => chat_completion(said),
        Endpoint::Responses => response(said),
    }
}

/// The error that one request is answered with.
pub(crate) fn refusal(error_type: &str, message: &str) -> ApiError {
    let overloaded = error_type == "overloaded_error";
    ApiError::of(status_of(if overloaded { "api_error" } else { error_type }), message)
}

/// The line of one request, with its line end.
pub(crate) fn line(endpoint: Endpoint, batch_id: &str, custom_id: &str, outcome: &Outcome) -> Bytes {
    let of = format!("{batch_id}/{custom_id}");
    let answered =
        |status: u16, body: Value| json!({"status_code": status, "request_id": provider_id("req_", &of), "body": body});
    let unanswered = |code: &str, message: &str| (Value::Null, json!({"code": code, "message": message}));
    let (response, error) = match outcome {
        Outcome::Succeeded(said) => (answered(200, body(endpoint, said)), Value::Null),
        Outcome::Errored { error_type, message } => {
            let refusal = refusal(error_type, message);
            (answered(refusal.status.as_u16(), error_body(&refusal)), Value::Null)
        }
        Outcome::Expired => {
            unanswered("batch_expired", "This request could not be executed before the completion window expired.")
        }
        Outcome::Canceled => unanswered("batch_cancelled", "The batch was cancelled before this request was executed."),
    };
    let id = provider_id("batch_req_", &of);
    Bytes::from(format!("{}\n", json!({"id": id, "custom_id": custom_id, "response": response, "error": error})))
}

fn chat_completion(said: &Said) -> Value {
    let text = text(said);
    let calls: Vec<Value> = calls(said)
        .map(|(id, name, arguments)| {
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": text, "refusal": null, "annotations": []});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let (prompt, completion) = (said.usage.input, said.usage.output);
    json!({
        "id": provider_id("chatcmpl-", &said.logical),
        "object": "chat.completion",
        "created": seconds(Utc::now()),
        "model": said.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(said)}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt.saturating_add(completion),
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        },
        "service_tier": "default",
        "system_fingerprint": null,
    })
}

fn response(said: &Said) -> Value {
    let cut = said.stop_reason == "max_tokens";
    let status = if cut { "incomplete" } else { "completed" };
    let message = text(said).map(|text| {
        let content = json!([{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]);
        let id = provider_id("msg_", &said.logical);
        json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": content})
    });
    let calls = calls(said).map(|(id, name, arguments)| {
        let own = provider_id("fc_", &format!("{}/{id}", said.logical));
        json!({
            "type": "function_call", "id": own, "call_id": id, "name": name, "arguments": arguments,
            "status": "completed",
        })
    });
    json!({
        "id": provider_id("resp_", &said.logical),
        "object": "response",
        "created_at": seconds(Utc::now()),
        "status": status,
        "error": null,
        "incomplete_details": cut.then(|| json!({"reason": "max_output_tokens"})),
        "instructions": null,
        "metadata": {},
        "model": said.model,
        "output": message.into_iter().chain(calls).collect::<Vec<_>>(),
        "parallel_tool_calls": true,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage_object(said.usage),
    })
}

/// The texts in one, if there are any.
fn text(said: &Said) -> Option<String> {
    let texts: Vec<&str> = said.content.iter().filter_map(|block| block["text"].as_str()).collect();
    (!texts.is_empty()).then(|| texts.join(""))
}

/// Id, name and arguments of each tool call.
fn calls(said: &Said) -> impl Iterator<Item = (&str, &str, String)> {
    let calls = said.content.iter().filter(|block| block["type"] == "tool_use");
    calls.map(|call| {
        let text = |name: &str| call[name].as_str().unwrap_or_default();
        (text("id"), text("name"), call["input"].to_string())
    })
}

fn finish_reason(said: &Said) -> &str {
    match &*said.stop_reason {
        "end_turn" | "stop_sequence" => "stop",
        "max_tokens" => "length",
        "tool_use" => "tool_calls",
        "refusal" => "content_filter",
        other => other,
    }
}
