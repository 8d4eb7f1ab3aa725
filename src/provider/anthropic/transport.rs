//! The six calls over HTTP: no retries, no redirects, raw bytes.

use super::ApiKey;
use super::wire;
use crate::provider::port::{Body, Identity, Listed, Polled, ProviderError, Refusal, RefusedCreate, Results, Sent};
use futures::{StreamExt, TryStreamExt};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use std::time::{Duration, Instant};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a small call may take.
const CALL: Duration = Duration::from_secs(60);
/// How long a stream of results may stand still.
const STALL: Duration = Duration::from_secs(60);
/// Batches per page of a listing.
const PAGE: u32 = 100;
/// How much of an error body is read.
const ERROR_BYTES: usize = 16 << 10;

pub(super) struct Transport {
    client: Client,
    base_url: String,
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
        let client = Client::builder()
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| unavailable(&e))?;
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

    fn signed(&self, request: RequestBuilder) -> RequestBuilder {
        let request = request.header("anthropic-version", &self.version);
        match HeaderValue::from_str(&self.key.0) {
            Ok(mut key) => {
                key.set_sensitive(true);
                request.header("x-api-key", key)
            }
            // Refused by the client as it was written.
            Err(_) => request.header("x-api-key", &self.key.0),
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
        let stream = reply.bytes_stream().map_err(|e| unavailable(&e)).boxed();
        Ok(futures::stream::unfold(Some(stream), |stream| async {
            let mut stream = stream?;
            match tokio::time::timeout(STALL, stream.next()).await {
                Err(_) => Some((Err(late()), None)),
                Ok(None) => None,
                Ok(Some(Err(error))) => Some((Err(error), None)),
                Ok(Some(chunk)) => Some((chunk, Some(stream))),
            }
        })
        .boxed())
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
        let checked = body.chunks.map(move |chunk| {
            if Instant::now() < deadline { chunk } else { Err(std::io::Error::other("the send deadline has passed")) }
        });
        let request = self
            .signed(self.client.post(self.batches()))
            .header(CONTENT_TYPE, "application/json")
            .header(CONTENT_LENGTH, body.length)
            .body(reqwest::Body::wrap_stream(checked))
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

fn not_sent(why: &str) -> Sent {
    Sent::NotCreated(RefusedCreate { why: why.to_owned(), retry_after: None, because: Refusal::Moment })
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
fn because(status: u16, text: &str) -> Refusal {
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

fn error_text(status: StatusCode, text: &str) -> String {
    let value: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    let of = |key: &str| value.pointer(key).and_then(Value::as_str).map(str::to_owned);
    match (of("/error/type"), of("/error/message")) {
        (Some(kind), Some(message)) => crate::domain::failure::cut(&format!("{status}: {kind}: {message}")),
        _ => status.to_string(),
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds.is_finite() && seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(86_400.0)));
    }
    let date = chrono::DateTime::parse_from_rfc2822(text).ok()?;
    (date.with_timezone(&chrono::Utc) - chrono::Utc::now()).to_std().ok()
}

/// The reply, if it is a success.
async fn accepted(reply: Response) -> Result<Response, ProviderError> {
    let (status, wait) = (reply.status(), retry_after(reply.headers()));
    if status.is_success() {
        return Ok(reply);
    }
    let why = error_text(status, &limited(reply).await.unwrap_or_default());
    Err(match status.as_u16() {
        404 => ProviderError::NotFound,
        401 | 403 => ProviderError::Unauthorized(why),
        _ => ProviderError::Unavailable { why, retry_after: wait },
    })
}

async fn json(reply: Response) -> Result<Value, ProviderError> {
    let bytes = reply.bytes().await.map_err(|e| unavailable(&e))?;
    serde_json::from_slice(&bytes).map_err(|e| ProviderError::Unreadable(e.to_string()))
}

/// The beginning of a body.
async fn limited(reply: Response) -> Result<String, reqwest::Error> {
    let mut bytes = Vec::new();
    let mut stream = reply.bytes_stream();
    while let Some(chunk) = stream.try_next().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > ERROR_BYTES {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn same_origin(url: &str, base: &str) -> bool {
    match (reqwest::Url::parse(url), reqwest::Url::parse(base)) {
        (Ok(url), Ok(base)) => url.origin() == base.origin(),
        _ => false,
    }
}

fn late() -> ProviderError {
    ProviderError::Unavailable { why: "no answer within 60 s".into(), retry_after: None }
}

fn unavailable(error: &reqwest::Error) -> ProviderError {
    ProviderError::Unavailable { why: words(error), retry_after: None }
}

/// The error and what caused it. The address is not repeated: it may hold more than a host.
fn words(error: &reqwest::Error) -> String {
    let mut text = if error.is_connect() {
        "no connection".to_owned()
    } else if error.is_timeout() {
        "no answer in time".to_owned()
    } else if error.is_body() || error.is_decode() {
        "the body broke off".to_owned()
    } else {
        "the request failed".to_owned()
    };
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    crate::domain::failure::cut(&text)
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

    #[test]
    fn the_key_stays_on_its_host() {
        assert!(same_origin("https://a.example/x", "https://a.example"));
        assert!(!same_origin("https://b.example/x", "https://a.example"));
        assert!(!same_origin("http://a.example/x", "https://a.example"));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let with = |text: &str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]));
        assert_eq!(with("7"), Some(Duration::from_secs(7)));
        assert_eq!(with("-7"), None);
        assert_eq!(with("soon"), None);
        assert!(with("Fri, 01 Jan 2100 00:00:00 GMT").is_some());
    }
}
