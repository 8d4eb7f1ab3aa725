//! The local provider, asked over a real socket: what each endpoint answers, what is paid, and what each fault does.

#![allow(clippy::unwrap_used, reason = "what a helper cannot do fails the test")]

mod accepting;
mod answering;
mod api;
mod creating;
mod ending_early;
mod every_fault;
mod faults;
mod headers;
mod lines;
mod listing;
mod mixture;
mod objects;
mod openai;
mod openai_api;
mod paying;
mod results;
mod size;
mod steering;

use std::collections::HashSet;
use std::time::Duration;

use api::{Api, Reply, ended, item, question};
use longhaul_sandbox::provider::{
    ApiKey, Config, Control, Dialect, Fault, Operation, PaidLedger, Sandbox, Script, SpoiltLine, SpoiltObject, When,
    canonical_json,
};
use serde_json::{Value, json};

/// A sandbox whose batches end at once.
async fn fast() -> (Sandbox, Api) {
    start(Config::default().processing(Duration::ZERO)).await
}

/// A sandbox whose batches end when the test says so.
async fn slow() -> (Sandbox, Api) {
    start(Config::default().processing(Duration::MAX)).await
}

async fn start(config: Config) -> (Sandbox, Api) {
    let sandbox = Sandbox::start(config).await.unwrap();
    let api = Api::new(sandbox.base_url());
    (sandbox, api)
}

/// Creates a batch of so many questions, waits for its end and gives its id.
async fn ended_batch(sandbox: &Sandbox, api: &Api, items: usize) -> String {
    let id = api.create_many(items).await;
    sandbox.control().finish(&id);
    sandbox.control().wait_ended(&id).await;
    id
}

fn by_id<'a>(lines: &'a [Value], custom_id: &str) -> &'a Value {
    &lines.iter().find(|line| line["custom_id"] == custom_id).unwrap()["result"]
}
