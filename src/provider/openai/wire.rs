//! What the API is told, and reading what it says. Every enum has an unknown arm; what is not needed is not looked at.

use crate::domain::{CustomId, IntentId, InvalidJson, JsonText, limits};
use crate::provider::line::{Line, LineOutcome, Usage};
use crate::provider::port::{BatchState, ListedBatch, Polled, Refusal, RefusedBatch};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
/// The key of `metadata` that carries our intent.
const INTENT: &str = "longhaul_intent";
/// Errors of a refused batch that are told, at most.
const TOLD: usize = 3;

/// What a request's shape and model are read from.
#[derive(Deserialize, Default)]
struct Shape<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(default)]
    messages: Option<IgnoredAny>,
    #[serde(default)]
    input: Option<IgnoredAny>,
}

impl Shape<'_> {
    /// The endpoint of requests of this shape.
    fn endpoint(&self) -> &'static str {
        if self.input.is_some() && self.messages.is_none() { RESPONSES } else { CHAT }
    }
}

/// A request's endpoint and model: a batch has one of each.
pub(super) fn group(request: &str) -> String {
    // A model that is no text is that request's own matter, and the provider's to refuse.
    let shape: Shape<'_> = serde_json::from_str(request).unwrap_or_default();
    format!("{} {}", shape.endpoint(), shape.model.as_deref().unwrap_or_default())
}

/// The model that a request asks, and how many tokens it may write at most, of all its choices together. `None`: it does not say.
pub(super) fn asked(request: &str) -> Option<(String, i64)> {
    #[derive(Deserialize)]
    struct Asked<'a> {
        #[serde(borrow)]
        model: Cow<'a, str>,
        max_output_tokens: Option<i64>,
        max_completion_tokens: Option<i64>,
        max_tokens: Option<i64>,
        n: Option<i64>,
    }
    let asked: Asked<'_> = serde_json::from_str(request).ok()?;
    let most = asked.max_output_tokens.or(asked.max_completion_tokens).or(asked.max_tokens)?;
    Some((asked.model.into_owned(), most.max(0).checked_mul(asked.n.unwrap_or(1).max(1))?))
}

/// A request as a line: white space between its tokens may hold line ends, its strings cannot.
pub(super) fn item(id: CustomId, request: &str) -> String {
    let endpoint = serde_json::from_str::<Shape<'_>>(request).unwrap_or_default().endpoint();
    let line =
        if request.contains(['\n', '\r']) { request.replace(['\n', '\r'], " ").into() } else { Cow::from(request) };
    format!(r#"{{"custom_id":"{id}","method":"POST","url":"{endpoint}","body":{line}}}"#)
}

/// The frame of an upload. Its boundary cannot be in it: the lines within hold no carriage return.
pub(super) struct Form {
    pub(super) content_type: String,
    pub(super) before: String,
    pub(super) after: String,
    /// Of both, in bytes.
    pub(super) length: u64,
}

impl Form {
    pub(super) fn new(intent: IntentId) -> Self {
        let name = intent.0.simple();
        let boundary = format!("longhaul-{name}");
        let part = |what: &str| format!("--{boundary}\r\nContent-Disposition: form-data; {what}\r\n");
        let before = format!(
            "{}\r\nbatch\r\n{}Content-Type: application/jsonl\r\n\r\n",
            part(r#"name="purpose""#),
            part(&format!(r#"name="file"; filename="{name}.jsonl""#)),
        );
        let after = format!("\r\n--{boundary}--\r\n");
        let length = (before.len() + after.len()) as u64;
        Self { content_type: format!("multipart/form-data; boundary={boundary}"), before, after, length }
    }
}

/// What makes a batch of a file.
pub(super) fn create_body(file: &str, group: &str, intent: IntentId) -> String {
    let endpoint = group.split(' ').next().unwrap_or(CHAT);
    let metadata = json!({ INTENT: intent.0.to_string() });
    json!({"input_file_id": file, "endpoint": endpoint, "completion_window": "24h", "metadata": metadata}).to_string()
}

/// The id of an object.
pub(super) fn id(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Object {
        id: String,
    }
    serde_json::from_str(text).ok().map(|object: Object| object.id).filter(|id| !id.is_empty())
}

/// What a refusal is about, by its status and the words in it.
pub(super) fn because(status: u16, text: &str) -> Refusal {
    let value: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    let of = |key: &str| value.pointer(key).and_then(Value::as_str).unwrap_or_default();
    let about = by_code(of("/error/code")).or_else(|| by_code(of("/error/type")));
    match status {
        413 => Refusal::Size,
        // 404: a file that was uploaded a moment ago may not be seen everywhere yet.
        404 => Refusal::Moment,
        429 => about.filter(|about| *about == Refusal::Account).unwrap_or(Refusal::Moment),
        400 | 415 | 422 => about.unwrap_or(Refusal::Request(None)),
        _ => Refusal::Account,
    }
}

/// What the code of an error is about. Codes are no documented list.
fn by_code(code: &str) -> Option<Refusal> {
    let has = |words: &[&str]| words.iter().any(|word| code.contains(word));
    if has(&["token_limit", "rate_limit"]) {
        Some(Refusal::Moment)
    } else if has(&["quota", "billing", "api_key", "account", "organization", "permission"]) {
        Some(Refusal::Account)
    } else if has(&["too_many", "too_large", "file_size", "max_size"]) {
        Some(Refusal::Size)
    } else if code == "model_not_found" {
        Some(Refusal::Every)
    } else {
        None
    }
}

/// Reads one batch object of a listing; one that cannot be read does not spoil its page.
pub(super) fn listed(batch: &Value) -> Option<ListedBatch> {
    let intent = batch.pointer(&format!("/metadata/{INTENT}")).and_then(Value::as_str);
    Some(ListedBatch {
        id: batch.get("id")?.as_str()?.to_owned(),
        created_at: batch
            .get("created_at")
            .and_then(Value::as_i64)
            .and_then(|at| DateTime::<Utc>::from_timestamp(at, 0)),
        requests: requests(batch),
        intent: intent.and_then(|text| text.parse().ok()).map(IntentId),
    })
}

/// How many requests it has: nothing is counted while it is validated.
fn requests(batch: &Value) -> Option<i64> {
    batch.pointer("/request_counts/total").and_then(Value::as_i64).filter(|n| *n > 0)
}

/// Reads a batch object.
pub(super) fn polled(batch: &Value) -> Option<Polled> {
    let file = |key: &str| batch.get(key).and_then(Value::as_str).filter(|id| !id.is_empty());
    let files: Vec<&str> = ["output_file_id", "error_file_id"].into_iter().filter_map(file).collect();
    let state = match batch.get("status")?.as_str()? {
        "validating" | "in_progress" | "finalizing" | "cancelling" => BatchState::InProgress,
        "completed" | "expired" | "cancelled" => BatchState::Ended,
        // What has results was worked on, whatever it is called.
        "failed" if !files.is_empty() => BatchState::Ended,
        "failed" => BatchState::Refused(refused(batch)),
        other => BatchState::Unknown(other.to_owned()),
    };
    let succeeded = batch.pointer("/request_counts/completed").and_then(Value::as_i64);
    let succeeded = succeeded.filter(|_| state == BatchState::Ended);
    Some(Polled { state, requests: requests(batch), succeeded, results_url: Some(files.join(" ")) })
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct BatchError {
    code: Option<String>,
    message: Option<String>,
    line: Option<i64>,
}

fn refused(batch: &Value) -> RefusedBatch {
    let errors: Vec<BatchError> = batch
        .pointer("/errors/data")
        .and_then(Value::as_array)
        .map(|errors| errors.iter().filter_map(|error| serde_json::from_value(error.clone()).ok()).collect())
        .unwrap_or_default();
    let mut said: Vec<String> = Vec::new();
    for error in &errors {
        let words = (error.code.as_deref().unwrap_or("no code"), error.message.as_deref().unwrap_or("no message"));
        let words = format!("{}: {}", words.0, words.1);
        if said.len() < TOLD && !said.contains(&words) {
            said.push(words);
        }
    }
    let why = if said.is_empty() { "the batch failed without a word".to_owned() } else { said.join("; ") };
    let because = errors.iter().find_map(|error| by_code(error.code.as_deref().unwrap_or_default()));
    // Lines are counted from 1.
    let items = errors.iter().filter_map(|error| i32::try_from(error.line? - 1).ok()).collect();
    RefusedBatch { why, because: because.unwrap_or(Refusal::Request(None)), items }
}

#[derive(Deserialize)]
struct RawLine<'a> {
    #[serde(borrow, default)]
    custom_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    response: Option<RawResponse<'a>>,
    #[serde(default)]
    error: Option<RawError>,
}

#[derive(Deserialize)]
struct RawResponse<'a> {
    #[serde(default)]
    status_code: Option<u16>,
    #[serde(borrow, default)]
    body: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawError {
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    message: Option<String>,
}

/// Whose a line is, when the rest of it cannot be read.
#[derive(Deserialize)]
struct Owner<'a> {
    #[serde(borrow, default)]
    custom_id: Option<Cow<'a, str>>,
}

/// Reads one result line.
pub(super) fn read_line(line: &[u8]) -> Line {
    let Ok(text) = std::str::from_utf8(line) else { return Line::unreadable() };
    let of = |custom_id: Option<Cow<'_, str>>, outcome| Line {
        custom_id: custom_id.as_deref().and_then(|id| id.parse().ok()),
        named: custom_id.is_some(),
        outcome,
    };
    match serde_json::from_str::<RawLine<'_>>(text) {
        Ok(raw) => of(raw.custom_id, outcome(raw.response, raw.error)),
        Err(_) => match serde_json::from_str::<Owner<'_>>(text) {
            Ok(owner) => of(owner.custom_id, LineOutcome::Unknown),
            Err(_) => Line::unreadable(),
        },
    }
}

fn outcome(response: Option<RawResponse<'_>>, error: Option<RawError>) -> LineOutcome {
    match (response, error) {
        (Some(RawResponse { status_code: Some(200), body: Some(body) }), _) => succeeded(body.get()),
        (Some(RawResponse { status_code: Some(status @ 400..), body }), _) => refusal(status, body),
        (None, Some(RawError { code, message })) => match code.as_deref() {
            Some("batch_expired") => LineOutcome::Expired,
            Some("batch_cancelled") => LineOutcome::Canceled,
            code => LineOutcome::Errored { retryable: true, message: words(code, message.as_deref()) },
        },
        (Some(_) | None, _) => LineOutcome::Unknown,
    }
}

fn words(code: Option<&str>, message: Option<&str>) -> String {
    format!("{}: {}", code.unwrap_or("unknown error"), message.unwrap_or("(no message)"))
}

/// What is looked at of an answer; the rest stays unread, so that nothing in it can make it unreadable.
#[derive(Deserialize)]
struct RawBody<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

fn succeeded(body: &str) -> LineOutcome {
    // A success without an answer is nothing that a step could take.
    let Ok(body) = serde_json::from_str::<RawBody<'_>>(body) else { return LineOutcome::Unknown };
    LineOutcome::Succeeded { model: body.model.map(Cow::into_owned), usage: body.usage.and_then(|u| usage(u.get())) }
}

/// Chat Completions and Responses have their own words for the same. Cached tokens are among those that were read.
fn usage(text: &str) -> Option<Usage> {
    let value: Value = serde_json::from_str(text).ok()?;
    let of = |key: &str| value.pointer(key).and_then(Value::as_i64);
    let read = of("/prompt_tokens").or_else(|| of("/input_tokens"))?;
    let written = of("/completion_tokens").or_else(|| of("/output_tokens"))?;
    let cached = of("/prompt_tokens_details/cached_tokens").or_else(|| of("/input_tokens_details/cached_tokens"));
    let cached = cached.unwrap_or(0).clamp(0, read.max(0));
    Some(Usage {
        input_tokens: read - cached,
        output_tokens: written,
        cache_read_tokens: cached,
        cache_write_tokens: 0,
    })
}

fn refusal(status: u16, body: Option<&RawValue>) -> LineOutcome {
    let value: Value = body.and_then(|body| serde_json::from_str(body.get()).ok()).unwrap_or(Value::Null);
    let of = |key: &str| value.pointer(key).and_then(Value::as_str);
    let message = format!("{status}: {}", words(of("/error/code").or_else(|| of("/error/type")), of("/error/message")));
    LineOutcome::Errored { retryable: matches!(status, 408 | 409 | 429 | 500..), message }
}

/// The answer of a line that succeeded, exactly as it came.
pub(super) fn reply(line: &[u8]) -> Result<JsonText, InvalidJson> {
    let none = || InvalidJson::Malformed { what: "a reply", why: "the result line holds no answer".into() };
    let text = std::str::from_utf8(line).map_err(|_| none())?;
    let raw: RawLine<'_> = serde_json::from_str(text).map_err(|_| none())?;
    let body = raw.response.and_then(|response| response.body).ok_or_else(none)?;
    JsonText::parse(body.get(), "a reply", limits::REPLY_BYTES)
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
