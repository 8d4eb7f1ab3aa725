//! A small client of OpenAI's API for the tests: raw JSON, no retries.

use super::api::{Api, Reply};
use super::*;

const BOUNDARY: &str = "a-boundary-of-the-tests";

/// A line of an input file for Chat Completions.
pub(crate) fn chat_line(custom_id: &str, text: &str) -> Value {
    let body = json!({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": text}]});
    json!({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body})
}

pub(crate) fn chat_lines(items: usize) -> String {
    (0..items).map(|n| format!("{}\n", chat_line(&format!("item-{n}"), &format!("Text number {n}.")))).collect()
}

impl Api {
    pub(crate) async fn upload_as(&self, name: &str, purpose: &str, content: &str) -> Result<Reply, reqwest::Error> {
        let body = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n{purpose}\r\n--{BOUNDARY}\r\n\
             Content-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\nContent-Type: application/jsonl\r\n\r\n\
             {content}\r\n--{BOUNDARY}--\r\n"
        );
        let kind = format!("multipart/form-data; boundary={BOUNDARY}");
        self.try_send("POST", "/v1/files", &[("authorization", "Bearer any"), ("content-type", &kind)], &body).await
    }

    pub(crate) async fn upload(&self, content: &str) -> String {
        self.upload_as("in.jsonl", "batch", content).await.unwrap().id()
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Reply, reqwest::Error> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("authorization", "Bearer any"), ("content-type", "application/json")];
        self.try_send(method, path, &headers, &body).await
    }

    pub(crate) async fn ask_for(&self, path: &str) -> Reply {
        self.ask("GET", path, &Value::Null).await.unwrap()
    }

    pub(crate) async fn create_of(&self, file: &str) -> Reply {
        self.ask("POST", "/v1/batches", &batch_of(file)).await.unwrap()
    }

    pub(crate) async fn batch(&self, id: &str) -> Value {
        self.ask_for(&format!("/v1/batches/{id}")).await.json()
    }

    /// The lines of a file of results.
    pub(crate) async fn content(&self, file: &Value) -> Vec<Value> {
        self.ask_for(&format!("/v1/files/{}/content", file.as_str().unwrap())).await.lines()
    }
}

pub(crate) fn batch_of(file: &str) -> Value {
    json!({"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h",
        "metadata": {"intent": "i-1"}})
}

/// Uploads a file, makes a batch of it, waits for its end and gives it.
pub(crate) async fn ended_of(sandbox: &Sandbox, api: &Api, content: &str) -> Value {
    let file = api.upload(content).await;
    let id = api.create_of(&file).await.id();
    sandbox.control().finish(&id);
    sandbox.control().wait_ended(&id).await;
    api.batch(&id).await
}
