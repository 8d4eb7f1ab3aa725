//! `POST /v1/messages`: one request, sent once, by the same transport as batches. What the reply says is told apart by whether it was
//! paid: a refusal and an overload are not, an answer is, and of anything else nobody knows.

use super::transport::{Transport, because};
use super::wire;
use crate::domain::{JsonText, limits};
use crate::provider::http::{error_text, retry_after, words};
use crate::provider::port::{Called, LiveReply, Refusal, RefusedCreate};
use bytes::Bytes;
use futures::StreamExt;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Response, StatusCode};
use serde_json::Value;
use std::time::{Duration, Instant};

impl Transport {
    pub(super) async fn live(&self, request: &str, deadline: Instant) -> Called {
        let call = self
            .signed(self.client.post(format!("{}/v1/messages", self.base_url)))
            .header(CONTENT_TYPE, "application/json")
            .body(request.to_owned())
            .send();
        let late = || Called::Ambiguous("no answer before the deadline".into());
        let reply = match tokio::time::timeout_at(deadline.into(), call).await {
            Err(_) => return late(),
            // No connection was made, so no byte was sent.
            Ok(Err(error)) if error.is_connect() => return refused(words(&error), None, Refusal::Moment),
            Ok(Err(error)) => return Called::Ambiguous(words(&error)),
            Ok(Ok(reply)) => reply,
        };
        let (status, wait) = (reply.status(), retry_after(reply.headers()));
        match tokio::time::timeout_at(deadline.into(), whole(reply)).await {
            Ok(Ok(body)) => classify(status, wait, body),
            _ if !status.is_success() => classify(status, wait, Bytes::new()),
            Ok(Err(why)) => Called::Ambiguous(why),
            Err(_) => late(),
        }
    }
}

/// The whole body. One that is too large for any step is read no further.
async fn whole(reply: Response) -> Result<Bytes, String> {
    let (mut body, mut stream) = (Vec::new(), reply.bytes_stream());
    while let Some(chunk) = stream.next().await {
        body.extend_from_slice(&chunk.map_err(|error| words(&error))?);
        if body.len() > limits::REPLY_BYTES {
            break;
        }
    }
    Ok(body.into())
}

fn refused(why: String, retry_after: Option<Duration>, because: Refusal) -> Called {
    Called::Refused(RefusedCreate { why, retry_after, because })
}

/// What a reply says. Documented refusals, and the statuses that say that no work was begun (429, 503, 529), are not paid.
fn classify(status: StatusCode, retry_after: Option<Duration>, body: Bytes) -> Called {
    if status.is_success() {
        return answered(body);
    }
    let text = String::from_utf8_lossy(&body);
    let why = error_text(status, &text);
    match status.as_u16() {
        // The request may be for a model that this account does not have: that is about the request.
        404 => refused(why, retry_after, Refusal::Request(None)),
        400 | 422 => refused(why, retry_after, about(&text)),
        401 | 402 | 403 | 413 | 429 => refused(why, retry_after, because(status.as_u16(), &text)),
        503 | 529 => Called::Failed { why, retry_after },
        _ => Called::Ambiguous(why),
    }
}

/// A 400 is about the request, whose own words may be in the message, unless it says of the account what only that can be.
fn about(text: &str) -> Refusal {
    const ACCOUNT: [&str; 5] = [
        "credit balance is too low",
        "organization has been disabled",
        "organization is on hold",
        "reached your specified API usage limits",
        "spend limit",
    ];
    let value: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    let of = |key: &str| value.pointer(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, message) = (of("/error/type"), of("/error/message"));
    match kind == "billing_error" || ACCOUNT.iter().any(|words| message.contains(words)) {
        true => Refusal::Account,
        false => Refusal::Request(None),
    }
}

fn answered(body: Bytes) -> Called {
    let unreadable = |why: String| Called::Unreadable { why, body: body.clone() };
    let Ok(text) = std::str::from_utf8(&body) else { return unreadable("the answer is no UTF-8".into()) };
    match (JsonText::parse(text, "a reply", limits::REPLY_BYTES), wire::message(text)) {
        (Ok(body), Some((model, usage))) => Called::Answered(LiveReply { body, model, usage }),
        (Err(why), _) => unreadable(why.to_string()),
        (Ok(_), None) => unreadable("the answer is no message".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u16, body: &str) -> Called {
        classify(StatusCode::from_u16(code).unwrap(), None, Bytes::copy_from_slice(body.as_bytes()))
    }

    #[test]
    fn a_call_is_answered_refused_failed_or_in_doubt() {
        let message = r#"{"model":"m","content":[{"type":"new"}],"usage":{"input_tokens":3,"output_tokens":2}}"#;
        let Called::Answered(reply) = of(200, message) else { panic!("not answered") };
        assert_eq!((reply.body.as_str(), reply.model.as_deref()), (message, Some("m")));
        assert_eq!(reply.usage.map(|u| (u.input_tokens, u.output_tokens)), Some((3, 2)));
        for body in ["", "{", "[]", "null", "\"text\""] {
            assert!(matches!(of(200, body), Called::Unreadable { .. }), "{body}");
        }
        let because = |code| match of(code, "") {
            Called::Refused(refused) => refused.because,
            other => panic!("{code}: {other:?}"),
        };
        assert_eq!([400, 404, 422].map(because), [Refusal::Request(None); 3]);
        let refusal = |message: &str| match of(
            400,
            &format!(r#"{{"error":{{"type":"invalid_request_error","message":"{message}"}}}}"#),
        ) {
            Called::Refused(refused) => refused.because,
            other => panic!("{message}: {other:?}"),
        };
        for message in
            ["thinking.disabled.budget_tokens: Extra inputs", "metadata.organization: too long", "no workspace"]
        {
            assert_eq!(refusal(message), Refusal::Request(None), "{message}");
        }
        assert_eq!(refusal("Your credit balance is too low to access the API"), Refusal::Account);
        assert_eq!([401, 402, 403].map(because), [Refusal::Account; 3]);
        assert_eq!([413, 429].map(because), [Refusal::Size, Refusal::Moment]);
        assert!([503, 529].into_iter().all(|code| matches!(of(code, ""), Called::Failed { .. })));
        for code in [301, 408, 409, 418, 500, 502, 504] {
            assert!(matches!(of(code, ""), Called::Ambiguous(_)), "{code}");
        }
    }
}
