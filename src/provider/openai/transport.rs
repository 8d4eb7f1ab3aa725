//! The calls over HTTP: no retries, no redirects, raw bytes.

use super::wire;
use crate::provider::http::{
    self, ApiKey, CALL, accepted, error_text, json, limited, not_sent, retry_after, unavailable, until, words,
};
use crate::provider::port::{Body, Identity, Listed, Polled, ProviderError, Refusal, RefusedCreate, Results, Sent};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Batches per page of a listing.
const PAGE: u32 = 100;

pub(super) struct Transport {
    client: Client,
    key: ApiKey,
    pub(super) base_url: String,
    pub(super) organization: Option<String>,
    pub(super) project: Option<String>,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport").field("base_url", &self.base_url).finish()
    }
}

/// What an upload leads to: a file's id, or a refusal. No batch is made of a file that nobody names, so none is in doubt.
type Uploaded = Result<String, RefusedCreate>;

impl Transport {
    pub(super) fn new(base_url: &str, key: ApiKey) -> Result<Self, ProviderError> {
        Ok(Self { client: http::client()?, key, base_url: base_url.into(), organization: None, project: None })
    }

    fn batches(&self) -> String {
        format!("{}/v1/batches", self.base_url)
    }

    fn signed(&self, mut request: RequestBuilder) -> RequestBuilder {
        for (name, value) in [("openai-organization", &self.organization), ("openai-project", &self.project)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let text = format!("Bearer {}", self.key.reveal());
        match HeaderValue::from_str(&text) {
            Ok(mut key) => {
                key.set_sensitive(true);
                request.header(AUTHORIZATION, key)
            }
            // Refused by the client as it was written.
            Err(_) => request.header(AUTHORIZATION, text),
        }
    }

    async fn get(&self, url: &str) -> Result<Response, ProviderError> {
        let request = self.signed(self.client.get(url)).timeout(CALL).send();
        accepted(request.await.map_err(|e| unavailable(&e))?).await
    }

    pub(super) async fn identify(&self) -> Result<Identity, ProviderError> {
        let reply = self.get(&format!("{}?limit=1", self.batches())).await?;
        let header = |name: &str, own: &Option<String>| {
            let said = reply.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
            said.or_else(|| own.clone()).unwrap_or_else(|| "default".to_owned())
        };
        Ok(Identity {
            kind: "openai".into(),
            base_url: self.base_url.clone(),
            organization: header("openai-organization", &self.organization),
            workspace: header("openai-project", &self.project),
        })
    }

    pub(super) async fn list(&self, after: Option<&str>) -> Result<Listed, ProviderError> {
        let mut url = format!("{}?limit={PAGE}", self.batches());
        if let Some(after) = after {
            url.push_str("&after=");
            url.push_str(after);
        }
        let page = json(self.get(&url).await?).await?;
        let Some(data) = page.get("data").and_then(Value::as_array) else {
            return Err(ProviderError::Unreadable("a listing without `data`".into()));
        };
        let batches: Vec<_> = data.iter().filter_map(wire::listed).collect();
        let more = page.get("has_more").and_then(Value::as_bool).unwrap_or(data.len() as u32 == PAGE);
        let last = page.get("last_id").and_then(Value::as_str).map(str::to_owned);
        let next = last.or_else(|| batches.last().map(|b| b.id.clone()));
        Ok(Listed { batches, next: next.filter(|_| more) })
    }

    pub(super) async fn poll(&self, id: &str) -> Result<Polled, ProviderError> {
        let batch = json(self.get(&format!("{}/{id}", self.batches())).await?).await?;
        wire::polled(&batch).ok_or_else(|| ProviderError::Unreadable("a batch without status".into()))
    }

    pub(super) async fn cancel(&self, id: &str) -> Result<(), ProviderError> {
        let request = self.signed(self.client.post(format!("{}/{id}/cancel", self.batches()))).timeout(CALL).send();
        accepted(request.await.map_err(|e| unavailable(&e))?).await.map(drop)
    }

    /// The files one after the other, as one stream of lines. A later one is asked for when those before it have been read.
    pub(super) async fn results(&self, files: Vec<String>) -> Result<Results, ProviderError> {
        let request =
            |file: &String| self.signed(self.client.get(format!("{}/v1/files/{file}/content", self.base_url)));
        let mut requests: Vec<RequestBuilder> = files.iter().map(request).collect();
        if requests.is_empty() {
            return Ok(stream::empty().boxed());
        }
        let first = match download(requests.remove(0)).await {
            Err(ProviderError::NotFound) if !requests.is_empty() => {
                stream::once(std::future::ready(Err(ProviderError::NotFound))).boxed()
            }
            first => first?,
        };
        // A file need not end with a line end.
        let between = stream::once(std::future::ready(Ok(Bytes::from_static(b"\n"))));
        let rest = stream::iter(requests).then(download).try_flatten();
        Ok(first.chain(between).chain(rest).boxed())
    }

    /// Uploads, then creates, both before the deadline. Until the second call begins, nothing can have been created.
    pub(super) async fn create(&self, body: Body) -> Sent {
        let Body { intent, group, length, chunks, deadline } = body;
        if Instant::now() >= deadline {
            return not_sent("its time was over before it began");
        }
        let form = wire::Form::new(intent);
        let before = stream::once(std::future::ready(Ok(Bytes::from(form.before))));
        let after = stream::once(std::future::ready(Ok(Bytes::from(form.after.clone()))));
        let upload = self
            .signed(self.client.post(format!("{}/v1/files", self.base_url)))
            .header(CONTENT_TYPE, form.content_type)
            .header(CONTENT_LENGTH, form.length + length)
            .body(reqwest::Body::wrap_stream(until(deadline, before.chain(chunks).chain(after).boxed())))
            .send();
        let file = match tokio::time::timeout_at(deadline.into(), upload).await {
            Err(_) => return not_sent("the upload was not over before the send deadline"),
            Ok(Err(error)) => return not_sent(&format!("the upload failed: {}", words(&error))),
            Ok(Ok(reply)) => match uploaded(reply).await {
                Ok(file) => file,
                Err(refused) => return Sent::NotCreated(refused),
            },
        };
        if Instant::now() >= deadline {
            return not_sent("its time was over after the upload");
        }
        let request = self
            .signed(self.client.post(self.batches()))
            .header(CONTENT_TYPE, "application/json")
            .body(wire::create_body(&file, &group, intent))
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

async fn download(request: RequestBuilder) -> Result<Results, ProviderError> {
    let reply = tokio::time::timeout(CALL, request.send()).await.map_err(|_| http::late())?;
    Ok(http::bytes(accepted(reply.map_err(|e| unavailable(&e))?).await?))
}

/// What a reply to an upload says. All but a readable success may be tried again: a file that was kept all the same costs
/// nothing and is named by nobody.
async fn uploaded(reply: Response) -> Uploaded {
    let (status, wait) = (reply.status(), retry_after(reply.headers()));
    let text = match tokio::time::timeout(CALL, limited(reply)).await {
        Ok(Ok(text)) => text,
        _ => String::new(),
    };
    if status.is_success() {
        let moment = |why: &str| RefusedCreate { why: why.into(), retry_after: None, because: Refusal::Moment };
        return wire::id(&text).ok_or_else(|| moment("the reply to the upload has no file in it"));
    }
    let known = matches!(status.as_u16(), 400..=403 | 413 | 415 | 422 | 429);
    let because = if known { wire::because(status.as_u16(), &text) } else { Refusal::Moment };
    Err(RefusedCreate { why: error_text(status, &text), retry_after: wait, because })
}

/// What a reply to a create says. Whatever is not a documented refusal or a readable success is ambiguous.
fn classify(status: StatusCode, retry_after: Option<Duration>, text: &str) -> Sent {
    if status.is_success() {
        return wire::id(text).map_or_else(|| Sent::Ambiguous("the reply has no id in it".into()), Sent::Created);
    }
    let why = error_text(status, text);
    match status.as_u16() {
        400..=404 | 413 | 422 | 429 => {
            Sent::NotCreated(RefusedCreate { why, retry_after, because: wire::because(status.as_u16(), text) })
        }
        _ => Sent::Ambiguous(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, text: &str) -> Sent {
        classify(StatusCode::from_u16(code).unwrap(), None, text)
    }

    #[test]
    fn a_create_is_created_not_created_or_ambiguous() {
        assert_eq!(status(200, r#"{"id":"batch_1"}"#), Sent::Created("batch_1".into()));
        for text in ["{", "", r#"{"id":""}"#] {
            assert!(matches!(status(200, text), Sent::Ambiguous(_)), "{text}");
        }
        for code in [400, 401, 402, 403, 404, 413, 422, 429] {
            assert!(matches!(status(code, ""), Sent::NotCreated(_)), "{code}");
        }
        for code in [301, 408, 409, 418, 500, 502, 503, 504] {
            assert!(matches!(status(code, ""), Sent::Ambiguous(_)), "{code}");
        }
    }
}
