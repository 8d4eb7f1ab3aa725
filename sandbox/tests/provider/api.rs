//! A small client of the API for the tests: raw JSON, all headers, no retries.

use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::{Value, json};

/// How long anything may take before a test gives up.
const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub(crate) struct Api {
    base: String,
    client: reqwest::Client,
    pub(crate) version: &'static str,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: reqwest::header::HeaderMap,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        self.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    pub(crate) fn has_header(&self, name: &str) -> bool {
        self.headers.contains_key(name)
    }

    pub(crate) fn id(&self) -> String {
        self.json()["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn error_type(&self) -> String {
        self.json()["error"]["type"].as_str().unwrap().to_owned()
    }

    pub(crate) fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap().to_owned()
    }
}

impl Api {
    pub(crate) fn new(base: &str) -> Self {
        let client = reqwest::Client::builder()
            .timeout(DEADLINE)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .retry(reqwest::retry::never());
        Self { base: base.to_owned(), client: client.build().unwrap(), version: "2023-06-01" }
    }

    /// The same client for another sandbox: to make one takes longer than most tests.
    pub(crate) fn at(&self, base: &str) -> Self {
        Self { base: base.to_owned(), ..self.clone() }
    }

    pub(crate) async fn send_raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.try_send(method, path, headers, body).await.unwrap()
    }

    pub(crate) async fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Reply, reqwest::Error> {
        let mut request = self.client.request(method.parse().unwrap(), format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.body(body.to_owned()).send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(Reply { status, headers, body: response.text().await? })
    }

    fn usual(&self) -> [(&str, &str); 2] {
        [("x-api-key", "any"), ("anthropic-version", self.version)]
    }

    pub(crate) async fn try_usual(&self, method: &str, path: &str, body: &Value) -> Result<Reply, reqwest::Error> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.try_send(method, path, &self.usual(), &body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send_raw("GET", path, &self.usual(), "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        self.send_raw("POST", path, &self.usual(), body).await
    }

    pub(crate) async fn try_create(&self, items: &[Value]) -> Result<Reply, reqwest::Error> {
        self.try_send("POST", "/v1/messages/batches", &self.usual(), &json!({"requests": items}).to_string()).await
    }

    pub(crate) async fn create(&self, items: &[Value]) -> Reply {
        self.try_create(items).await.unwrap()
    }

    pub(crate) async fn create_many_reply(&self, items: usize) -> Reply {
        let items: Vec<Value> = (0..items).map(|n| item(&format!("item-{n}"), &format!("Text number {n}."))).collect();
        self.create(&items).await
    }

    pub(crate) async fn create_many(&self, items: usize) -> String {
        self.create_many_reply(items).await.id()
    }

    pub(crate) async fn retrieve(&self, id: &str) -> Reply {
        self.get(&format!("/v1/messages/batches/{id}")).await
    }

    pub(crate) async fn list(&self, query: &str) -> Reply {
        self.get(&format!("/v1/messages/batches{query}")).await
    }

    pub(crate) async fn cancel(&self, id: &str) -> Reply {
        self.post(&format!("/v1/messages/batches/{id}/cancel"), "").await
    }

    pub(crate) async fn delete(&self, id: &str) -> Reply {
        self.send_raw("DELETE", &format!("/v1/messages/batches/{id}"), &self.usual(), "").await
    }

    pub(crate) async fn results(&self, id: &str) -> Reply {
        self.get(&format!("/v1/messages/batches/{id}/results")).await
    }

    /// The results as bytes, for those that are no text.
    pub(crate) async fn results_bytes(&self, id: &str) -> Vec<u8> {
        self.try_bytes(&format!("/v1/messages/batches/{id}/results")).await.unwrap()
    }

    pub(crate) async fn try_bytes(&self, path: &str) -> Result<Vec<u8>, reqwest::Error> {
        let mut request = self.client.get(format!("{}{path}", self.base));
        for (name, value) in self.usual() {
            request = request.header(name, value);
        }
        Ok(request.send().await?.bytes().await?.to_vec())
    }

    /// What came of the results, and whether it ended with an error.
    pub(crate) async fn results_in_pieces(&self, id: &str) -> (String, bool) {
        let mut request = self.client.get(format!("{}/v1/messages/batches/{id}/results", self.base));
        for (name, value) in self.usual() {
            request = request.header(name, value);
        }
        let mut pieces = request.send().await.unwrap().bytes_stream();
        let mut body = Vec::new();
        while let Some(piece) = pieces.next().await {
            match piece {
                Ok(piece) => body.extend_from_slice(&piece),
                Err(_) => return (String::from_utf8(body).unwrap(), true),
            }
        }
        (String::from_utf8(body).unwrap(), false)
    }

    /// Asks until the answer is right.
    pub(crate) async fn poll(&self, ask: impl AsyncFn() -> Value, right: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let answer = ask().await;
            if right(&answer) {
                return answer;
            }
            assert!(begun.elapsed() < DEADLINE, "not in time: {answer}");
            tokio::task::yield_now().await;
        }
    }
}

/// Polls a batch until it has ended.
pub(crate) async fn ended(api: &Api, id: &str) -> Value {
    api.poll(async || api.retrieve(id).await.json(), |batch| batch["processing_status"] == "ended").await
}

/// The params of one question.
pub(crate) fn question(text: &str) -> Value {
    json!({"model": "claude-haiku-4-5", "max_tokens": 500, "messages": [{"role": "user", "content": text}]})
}

/// One request of a batch.
pub(crate) fn item(custom_id: &str, text: &str) -> Value {
    json!({"custom_id": custom_id, "params": question(text)})
}
