//! The six calls over HTTP: no retries, no redirects, raw bytes.

use super::wire;
use crate::provider::http::{
    self, ApiKey, CALL, accepted, error_text, json, late, limited, not_sent, retry_after, same_origin, unavailable,
    until, words,
};
use crate::provider::port::{Body, Identity, Listed, Polled, ProviderError, Refusal, RefusedCreate, Results, Sent};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Batches per page of a listing.
const PAGE: u32 = 100;
pub(super) struct Transport {
    pub(super) client: Client,
    pub(super) base_url: String,
    key: ApiKey,
    version: String,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport").field("base_url", &self.base_url).field("version", &self.version).finish()
    }
}

impl Transport {
    pub(super) fn new(base_url: &str, key: ApiKey, version: &str) -> Result<Self, ProviderError> {
        let client = http::client()?;
        Ok(Self { client, base_url: base_url.into(), key, version: version.into() })
    }

    pub(super) fn set_base_url(&mut self, url: String) {
        self.base_url = url.trim_end_matches('/').to_owned();
    }

    pub(super) fn set_version(&mut self, version: String) {
        self.version = version;
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    fn batches(&self) -> String {
        format!("{}/v1/messages/batches", self.base_url)
    }

    pub(super) fn signed(&self, request: RequestBuilder) -> RequestBuilder {
        let request = request.header("anthropic-version", &self.version);
        match HeaderValue::from_str(self.key.reveal()) {
            Ok(mut key) => {
                key.set_sensitive(true);
                request.header("x-api-key", key)
            }
            // Refused by the client as it was written.
            Err(_) => request.header("x-api-key", self.key.reveal()),
        }
    }

    pub(super) async fn identify(&self) -> Result<Identity, ProviderError> {
        let reply = self.get(&format!("{}?limit=1", self.batches())).await?;
        let header =
            |name: &str| reply.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or("default").to_owned();
        Ok(Identity {
            kind: "anthropic".into(),
            base_url: self.base_url.clone(),
            organization: header("anthropic-organization-id"),
            workspace: header("anthropic-workspace-id"),
        })
    }

    pub(super) async fn list(&self, after: Option<&str>) -> Result<Listed, ProviderError> {
        let mut url = format!("{}?limit={PAGE}", self.batches());
        if let Some(after) = after {
            url.push_str("&after_id=");
            url.push_str(after);
        }
        let page = json(self.get(&url).await?).await?;
        let data = page.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let batches: Vec<_> = data.iter().filter_map(wire::listed).collect();
        let more = page.get("has_more").and_then(Value::as_bool).unwrap_or(data.len() as u32 == PAGE);
        let last = page.get("last_id").and_then(Value::as_str).map(str::to_owned);
        let next = last.or_else(|| batches.last().map(|b| b.id.clone()));
        Ok(Listed { batches, next: next.filter(|_| more) })
    }

    pub(super) async fn poll(&self, id: &str) -> Result<Polled, ProviderError> {
        let batch = json(self.get(&format!("{}/{id}", self.batches())).await?).await?;
        wire::polled(&batch).ok_or_else(|| ProviderError::Unreadable("a batch without processing_status".into()))
    }

    pub(super) async fn cancel(&self, id: &str) -> Result<(), ProviderError> {
        let request = self.signed(self.client.post(format!("{}/{id}/cancel", self.batches()))).timeout(CALL).send();
        accepted(request.await.map_err(|e| unavailable(&e))?).await.map(drop)
    }

    pub(super) async fn results(&self, id: &str, url: Option<&str>) -> Result<Results, ProviderError> {
        let usual = format!("{}/{id}/results", self.batches());
        // The key goes only where the API is.
        let url = match url {
            Some(url) if same_origin(url, &self.base_url) => url,
            Some(url) => {
                tracing::warn!(url, "results_url is on another host: the usual path is used");
                &usual
            }
            None => &usual,
        };
        let request = self.signed(self.client.get(url)).send();
        let reply = tokio::time::timeout(CALL, request).await.map_err(|_| late())?.map_err(|e| unavailable(&e))?;
        let reply = accepted(reply).await?;
        Ok(http::bytes(reply))
    }

    async fn get(&self, url: &str) -> Result<Response, ProviderError> {
        let request = self.signed(self.client.get(url)).timeout(CALL).send();
        accepted(request.await.map_err(|e| unavailable(&e))?).await
    }

    /// Sends once. Whatever is not a documented refusal or a readable success is ambiguous.
    pub(super) async fn create(&self, body: Body) -> Sent {
        let deadline = body.deadline;
        if Instant::now() >= deadline {
            return not_sent("its time was over before it began");
        }
        let request = self
            .signed(self.client.post(self.batches()))
            .header(CONTENT_TYPE, "application/json")
            .header(CONTENT_LENGTH, body.length)
            .body(reqwest::Body::wrap_stream(until(deadline, body.chunks)))
            .send();
        let reply = match tokio::time::timeout_at(deadline.into(), request).await {
            Err(_) => return Sent::Ambiguous("no reply before the send deadline".into()),
            // No connection was made, so no byte was sent.
            Ok(Err(error)) if error.is_connect() => return not_sent(&words(&error)),
            Ok(Err(error)) => return Sent::Ambiguous(words(&error)),
            Ok(Ok(reply)) => reply,
        };
        let (status, wait) = (reply.status(), retry_after(reply.headers()));
        let text = match tokio::time::timeout(CALL, limited(reply)).await {
            Ok(Ok(text)) => text,
            _ if status.is_success() => return Sent::Ambiguous("the reply was cut".into()),
            _ => String::new(),
        };
        classify(status, wait, &text)
    }
}

/// What a reply to a create says.
fn classify(status: StatusCode, retry_after: Option<Duration>, text: &str) -> Sent {
    if status.is_success() {
        let id = serde_json::from_str::<Value>(text).ok().and_then(|v| Some(v.get("id")?.as_str()?.to_owned()));
        return id.map_or_else(|| Sent::Ambiguous("a success without an id".into()), Sent::Created);
    }
    let why = error_text(status, text);
    match status.as_u16() {
        400 | 401 | 402 | 403 | 404 | 413 | 422 | 429 => {
            let because = because(status.as_u16(), text);
            Sent::NotCreated(RefusedCreate { why, retry_after, because })
        }
        _ => Sent::Ambiguous(why),
    }
}

/// What a documented refusal is about. A 400 is about the body, unless it gives a reason that is the account's.
pub(super) fn because(status: u16, text: &str) -> Refusal {
    let value: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    let of = |key: &str| value.pointer(key).and_then(Value::as_str).unwrap_or_default();
    let (kind, message, code) = (of("/error/type"), of("/error/message"), of("/error/details/error_code"));
    match status {
        413 => Refusal::Size,
        429 if code == "enforced_spend_limit_reached" || message.contains("spend limit") => Refusal::Account,
        429 => Refusal::Moment,
        400 | 422 => {
            let words = ["spend", "billing", "credit balance", "on hold", "disabled", "organization", "workspace"];
            let account =
                !code.is_empty() || kind == "billing_error" || words.iter().any(|word| message.contains(word));
            match index(message) {
                Some(index) => Refusal::Request(Some(index)),
                None if account => Refusal::Account,
                None => Refusal::Request(None),
            }
        }
        _ => Refusal::Account,
    }
}

/// Which request a message is about: `requests.17.custom_id: ..`.
fn index(message: &str) -> Option<i32> {
    let rest = message.split_once("requests.")?.1;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, text: &str) -> Sent {
        classify(StatusCode::from_u16(code).unwrap(), None, text)
    }

    #[test]
    fn a_create_is_created_not_created_or_ambiguous() {
        assert_eq!(status(200, r#"{"id":"msgbatch_1"}"#), Sent::Created("msgbatch_1".into()));
        assert!(matches!(status(200, "{"), Sent::Ambiguous(_)));
        for code in [400, 401, 402, 403, 404, 413, 422, 429] {
            assert!(matches!(status(code, ""), Sent::NotCreated(_)), "{code}");
        }
        for code in [301, 408, 409, 418, 500, 502, 503, 504, 529] {
            assert!(matches!(status(code, ""), Sent::Ambiguous(_)), "{code}");
        }
    }

    #[test]
    fn a_spending_cap_parks_and_a_rate_limit_does_not() {
        let because = |code, text: &str| match status(code, text) {
            Sent::NotCreated(refused) => refused.because,
            other => panic!("{other:?}"),
        };
        assert_eq!(because(429, r#"{"error":{"type":"rate_limit_error","message":"slow"}}"#), Refusal::Moment);
        let capped = r#"{"error":{"details":{"error_code":"enforced_spend_limit_reached"}}}"#;
        assert_eq!(because(429, capped), Refusal::Account);
        assert_eq!(because(400, capped), Refusal::Account);
        assert_eq!(because(401, ""), Refusal::Account);
        assert_eq!(because(413, ""), Refusal::Size);
        let said = |message: &str| because(400, &serde_json::json!({"error": {"message": message}}).to_string());
        assert_eq!(said("requests.17.custom_id: String should have at most 64 characters"), Refusal::Request(Some(17)));
        assert_eq!(said("not valid JSON: no low surrogate"), Refusal::Request(None));
        assert_eq!(said("Your credit balance is too low"), Refusal::Account);
    }
}
