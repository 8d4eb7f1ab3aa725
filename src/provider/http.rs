//! What every adapter does over HTTP alike: no retries, no redirects, raw bytes, bounded waits.

use super::port::{ProviderError, Refusal, RefusedCreate, Results, Sent};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use serde_json::Value;
use std::time::{Duration, Instant};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a small call may take.
pub(super) const CALL: Duration = Duration::from_secs(60);
/// How long a stream of results may stand still.
const STALL: Duration = Duration::from_secs(60);
/// How much of an error body is read.
const ERROR_BYTES: usize = 16 << 10;

/// A key that is never printed.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// Takes a key; white space around it, as files have it, is left out.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into().trim().to_owned())
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKey(..)")
    }
}

pub(super) fn client() -> Result<Client, ProviderError> {
    Client::builder()
        .connect_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|e| unavailable(&e))
}

/// A body of which no byte leaves after the deadline.
pub(super) fn until(
    deadline: Instant,
    chunks: BoxStream<'static, Result<Bytes, std::io::Error>>,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static {
    chunks.map(move |chunk| {
        if Instant::now() < deadline { chunk } else { Err(std::io::Error::other("the send deadline has passed")) }
    })
}

/// The body of a reply as it comes; it ends with an error when nothing comes for a while.
pub(super) fn bytes(reply: Response) -> Results {
    let stream = reply.bytes_stream().map_err(|e| unavailable(&e)).boxed();
    futures::stream::unfold(Some(stream), |stream| async {
        let mut stream = stream?;
        match tokio::time::timeout(STALL, stream.next()).await {
            Err(_) => Some((Err(late()), None)),
            Ok(None) => None,
            Ok(Some(Err(error))) => Some((Err(error), None)),
            Ok(Some(chunk)) => Some((chunk, Some(stream))),
        }
    })
    .boxed()
}

/// Nothing left this machine: the same may be tried later.
pub(super) fn not_sent(why: &str) -> Sent {
    Sent::NotCreated(RefusedCreate { why: why.to_owned(), retry_after: None, because: Refusal::Moment })
}

pub(super) fn error_text(status: StatusCode, text: &str) -> String {
    let value: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    let of = |key: &str| value.pointer(key).and_then(Value::as_str).map(str::to_owned);
    match (of("/error/type"), of("/error/message")) {
        (Some(kind), Some(message)) => crate::domain::failure::cut(&format!("{status}: {kind}: {message}")),
        _ => status.to_string(),
    }
}

pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds.is_finite() && seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(86_400.0)));
    }
    let date = chrono::DateTime::parse_from_rfc2822(text).ok()?;
    (date.with_timezone(&chrono::Utc) - chrono::Utc::now()).to_std().ok()
}

/// The reply, if it is a success.
pub(super) async fn accepted(reply: Response) -> Result<Response, ProviderError> {
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

pub(super) async fn json(reply: Response) -> Result<Value, ProviderError> {
    let bytes = reply.bytes().await.map_err(|e| unavailable(&e))?;
    serde_json::from_slice(&bytes).map_err(|e| ProviderError::Unreadable(e.to_string()))
}

/// The beginning of a body.
pub(super) async fn limited(reply: Response) -> Result<String, reqwest::Error> {
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

pub(super) fn same_origin(url: &str, base: &str) -> bool {
    match (reqwest::Url::parse(url), reqwest::Url::parse(base)) {
        (Ok(url), Ok(base)) => url.origin() == base.origin(),
        _ => false,
    }
}

pub(super) fn late() -> ProviderError {
    ProviderError::Unavailable { why: "no answer within 60 s".into(), retry_after: None }
}

pub(super) fn unavailable(error: &reqwest::Error) -> ProviderError {
    ProviderError::Unavailable { why: words(error), retry_after: None }
}

/// The error and what caused it. The address is not repeated: it may hold more than a host.
pub(super) fn words(error: &reqwest::Error) -> String {
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
