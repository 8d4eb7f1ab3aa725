//! Reading what the API says. Every enum has an unknown arm; what is not needed is not looked at.

use crate::domain::{InvalidJson, JsonText, limits};
use crate::provider::line::{Line, LineOutcome, Usage};
use crate::provider::port::{BatchState, ListedBatch, Polled};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Deserialize)]
struct RawLine<'a> {
    #[serde(borrow, default)]
    custom_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawResult<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// What is looked at of a message; its content stays unread, so that no block in it can make it unreadable.
#[derive(Deserialize)]
struct RawMessage<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

/// Reads one result line.
pub(super) fn read_line(line: &[u8]) -> Line {
    let Some(raw) = parse::<RawLine<'_>>(line) else { return Line::unreadable() };
    let custom_id = raw.custom_id.as_deref().and_then(|id| id.parse().ok());
    let named = raw.custom_id.is_some();
    let outcome = raw.result.and_then(|r| serde_json::from_str::<RawResult<'_>>(r.get()).ok()).map(outcome);
    Line { custom_id, named, outcome: outcome.unwrap_or(LineOutcome::Unknown) }
}

/// The model that a request asks, and how many tokens it may write.
pub(super) fn asked(request: &str) -> Option<(String, i64)> {
    #[derive(Deserialize)]
    struct Asked<'a> {
        #[serde(borrow)]
        model: Cow<'a, str>,
        max_tokens: i64,
    }
    let Asked { model, max_tokens } = serde_json::from_str(request).ok()?;
    Some((model.into_owned(), max_tokens))
}

fn parse<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Option<T> {
    std::str::from_utf8(line).ok().and_then(|text| serde_json::from_str(text).ok())
}

fn outcome(result: RawResult<'_>) -> LineOutcome {
    match result.kind.as_deref() {
        Some("succeeded") => succeeded(result.message),
        Some("errored") => errored(result.error),
        Some("expired") => LineOutcome::Expired,
        Some("canceled") => LineOutcome::Canceled,
        _ => LineOutcome::Unknown,
    }
}

fn succeeded(message: Option<&RawValue>) -> LineOutcome {
    // A success without a message is nothing that a step could take.
    let Some(message) = message.and_then(|m| serde_json::from_str::<RawMessage<'_>>(m.get()).ok()) else {
        return LineOutcome::Unknown;
    };
    LineOutcome::Succeeded {
        model: message.model.map(Cow::into_owned),
        usage: message.usage.and_then(|u| usage(u.get())),
    }
}

fn usage(text: &str) -> Option<Usage> {
    let value: Value = serde_json::from_str(text).ok()?;
    let of = |key: &str| value.get(key).and_then(Value::as_i64);
    Some(Usage {
        input_tokens: of("input_tokens")?,
        output_tokens: of("output_tokens")?,
        cache_write_tokens: of("cache_creation_input_tokens").unwrap_or(0),
        cache_read_tokens: of("cache_read_input_tokens").unwrap_or(0),
    })
}

/// `error` is `{type: "error", error: {type, message}}`; older forms have the inner object alone.
fn errored(error: Option<&RawValue>) -> LineOutcome {
    let value: Value = error.and_then(|e| serde_json::from_str(e.get()).ok()).unwrap_or(Value::Null);
    let inner = value.get("error").unwrap_or(&value);
    let kind = inner.get("type").and_then(Value::as_str).unwrap_or("unknown error");
    let message = inner.get("message").and_then(Value::as_str).unwrap_or("(no message)");
    let retryable = !matches!(
        kind,
        "invalid_request_error" | "authentication_error" | "permission_error" | "not_found_error" | "request_too_large"
    );
    LineOutcome::Errored { retryable, message: format!("{kind}: {message}") }
}

/// What a message says of itself: the model and what it used. `None`: it is none.
pub(super) fn message(text: &str) -> Option<(Option<String>, Option<Usage>)> {
    let object = text.trim_start().starts_with('{');
    match succeeded(serde_json::from_str(text).ok().filter(|_| object)) {
        LineOutcome::Succeeded { model, usage } => Some((model, usage)),
        LineOutcome::Errored { .. } | LineOutcome::Expired | LineOutcome::Canceled | LineOutcome::Unknown => None,
    }
}

/// The message of a line that succeeded, exactly as it came.
pub(super) fn reply(line: &[u8]) -> Result<JsonText, InvalidJson> {
    let none = || InvalidJson::Malformed { what: "a reply", why: "the result line holds no message".into() };
    let raw = parse::<RawLine<'_>>(line).ok_or_else(none)?;
    let result: RawResult<'_> = raw.result.and_then(|r| serde_json::from_str(r.get()).ok()).ok_or_else(none)?;
    let message = result.message.ok_or_else(none)?;
    JsonText::parse(message.get(), "a reply", limits::REPLY_BYTES)
}

/// Reads one batch object of a listing; one that cannot be read does not spoil its page.
pub(super) fn listed(batch: &Value) -> Option<ListedBatch> {
    Some(ListedBatch {
        id: batch.get("id")?.as_str()?.to_owned(),
        created_at: batch.get("created_at").and_then(Value::as_str).and_then(time),
        requests: requests(batch),
        intent: None,
    })
}

fn time(text: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(text).ok().map(|t| t.with_timezone(&Utc))
}

/// The sum of all counts is the number of requests at any time.
fn requests(batch: &Value) -> Option<i64> {
    let counts = batch.get("request_counts")?.as_object()?;
    counts.values().map(Value::as_i64).sum()
}

/// Reads a batch object.
pub(super) fn polled(batch: &Value) -> Option<Polled> {
    let state = match batch.get("processing_status")?.as_str()? {
        "in_progress" | "canceling" => BatchState::InProgress,
        "ended" => BatchState::Ended,
        other => BatchState::Unknown(other.to_owned()),
    };
    let results_url = batch.get("results_url").and_then(Value::as_str).map(str::to_owned);
    // Zero until the whole batch has ended.
    let succeeded = batch.pointer("/request_counts/succeeded").and_then(Value::as_i64);
    let succeeded = succeeded.filter(|_| state == BatchState::Ended);
    Some(Polled { state, requests: requests(batch), succeeded, results_url })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::IntentId;

    fn id() -> crate::domain::CustomId {
        crate::domain::CustomId { intent: IntentId::new(), index: 7 }
    }

    #[test]
    fn a_success_keeps_what_the_client_library_does_not_know() {
        let id = id();
        let message = r#"{"model":"m","content":[{"type":"new_block","x":"\ud83d"}],"usage":{"input_tokens":3,"output_tokens":2,"new":null},"stop_reason":"new"}"#;
        let line = format!(r#"{{"custom_id":"{id}","result":{{"type":"succeeded","message":{message}}}}}"#);
        let read = read_line(line.as_bytes());
        assert_eq!(read.custom_id, Some(id));
        let usage = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
        assert_eq!(read.outcome, LineOutcome::Succeeded { model: Some("m".into()), usage: Some(usage) });
        assert_eq!(reply(line.as_bytes()).unwrap().as_str(), message);
    }

    #[test]
    fn what_cannot_be_read_is_unknown_but_keeps_its_owner() {
        let id = id();
        for result in [
            "null",
            "{}",
            r#"{"type":"deferred"}"#,
            r#"{"type":"succeeded"}"#,
            r#"{"type":"succeeded","message":null}"#,
        ] {
            let line = format!(r#"{{"custom_id":"{id}","result":{result}}}"#);
            let read = read_line(line.as_bytes());
            assert_eq!((read.custom_id, read.outcome), (Some(id), LineOutcome::Unknown), "{result}");
        }
        for line in [&b"\xff"[..], b"", b"{", b"[]", br#"{"custom_id":null}"#, br#"{"custom_id":7,"result":{}}"#] {
            assert_eq!(read_line(line), Line::unreadable());
        }
    }

    #[test]
    fn usage_that_is_not_there_is_unknown_not_zero() {
        let id = id();
        let line = format!(r#"{{"custom_id":"{id}","result":{{"type":"succeeded","message":{{"usage":null}}}}}}"#);
        assert_eq!(read_line(line.as_bytes()).outcome, LineOutcome::Succeeded { model: None, usage: None });
    }

    #[test]
    fn errors_are_told_apart() {
        let of = |kind: &str| {
            let error = format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"m"}}}}"#);
            match errored(Some(&RawValue::from_string(error).unwrap())) {
                LineOutcome::Errored { retryable, message } => (retryable, message),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of("invalid_request_error"), (false, "invalid_request_error: m".into()));
        assert_eq!(of("overloaded_error"), (true, "overloaded_error: m".into()));
        assert_eq!(of("something_new"), (true, "something_new: m".into()));
    }

    #[test]
    fn the_sum_of_the_counts_is_the_number_of_requests() {
        let batch = serde_json::json!({
            "id": "b", "created_at": "2026-11-01T00:00:00Z", "processing_status": "paused",
            "request_counts": {"processing": 3, "succeeded": 0, "new_state": 2}
        });
        assert_eq!(listed(&batch).unwrap().requests, Some(5));
        assert_eq!(polled(&batch).unwrap().state, BatchState::Unknown("paused".into()));
    }
}
