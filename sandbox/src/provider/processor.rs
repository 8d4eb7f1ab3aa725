//! The processor of a batch: waits for its simulated time, then answers and pays each request, once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Bytes;
use chrono::Utc;
use serde::Serialize;
use serde_json::Value;

use super::answer::{Answer, RequestView};
use super::app::{App, locked};
use super::batch::{Counts, Item, Signals, Work};
use super::canonical::{SplitMix, canonical_json, provider_id, sha256_hex, sha256_seed};
use super::ledger::Paid;
use super::params::{self, ApiVersion};
use super::prices::price_of;
use super::wire::ErrorBody;

/// Characters of the digest that stand for a logical request.
const LOGICAL_CHARACTERS: usize = 32;
/// Bytes of text that count as one token.
const TOKEN_BYTES: u64 = 4;

/// A complete message of the model.
#[derive(Serialize)]
pub(crate) struct Message {
    id: String,
    r#type: &'static str,
    role: &'static str,
    model: String,
    content: Vec<Value>,
    stop_reason: String,
    stop_sequence: Option<String>,
    usage: Usage,
}

#[derive(Clone, Copy, Serialize)]
struct Usage {
    input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    output_tokens: u64,
}

/// What became of one request.
pub(crate) enum Verdict {
    Succeeded(Box<Message>),
    Errored { error_type: String, message: String },
}

/// Who pays for a request.
#[derive(Clone, Copy)]
pub(crate) enum Payer<'a> {
    Live,
    Batch { batch_id: &'a str, custom_id: &'a str },
}

/// Starts the clock of a batch.
pub(crate) fn start(app: Arc<App>, id: String, delay: Duration, signals: Arc<Signals>) {
    tokio::spawn(async move {
        let mut stopping = app.stopping.subscribe();
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = signals.wake.notified() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        if signals.canceled.load(Ordering::Acquire) {
            tokio::time::sleep(app.config.canceling).await;
        }
        let Some(work) = locked(&app.shelf).get_mut(&id).and_then(super::batch::Batch::begin) else { return };
        let worker = Arc::clone(&app);
        let (counts, lines) = match tokio::task::spawn_blocking(move || process(&worker, work)).await {
            Ok(Some(processed)) => processed,
            Ok(None) => return,
            Err(error) => {
                tracing::error!(%error, batch = id, "the responder has panicked: the batch never ends");
                return;
            }
        };
        if let Some(batch) = locked(&app.shelf).get_mut(&id) {
            batch.end(counts, lines);
        }
        app.ended.send_modify(|ended| *ended += 1);
    });
}

/// All result lines in their final order; `None` when the sandbox was stopped in between.
fn process(app: &App, work: Work) -> Option<(Counts, Vec<Bytes>)> {
    let mut counts = Counts::default();
    let mut lines = Vec::with_capacity(work.items.len());
    for (n, item) in work.items.iter().enumerate() {
        if app.stopped() {
            return None;
        }
        let outcome = outcome(app, &work, n, item);
        match outcome {
            Outcome::Succeeded { .. } => counts.succeeded += 1,
            Outcome::Errored { .. } => counts.errored += 1,
            Outcome::Canceled => counts.canceled += 1,
            Outcome::Expired => counts.expired += 1,
        }
        lines.push(line(&work.id, &item.custom_id, &outcome));
    }
    SplitMix(sha256_seed(work.id.as_bytes())).shuffle(&mut lines);
    Some((counts, lines))
}

/// The `result` of a line.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Outcome {
    Succeeded {
        message: Box<Message>,
    },
    #[serde(skip)]
    Errored {
        error_type: String,
        message: String,
    },
    Canceled,
    Expired,
}

fn outcome(app: &App, work: &Work, n: usize, item: &Item) -> Outcome {
    let every = |k: usize| (n + 1).is_multiple_of(k.max(1));
    if work.plan.expire_every.is_some_and(every) {
        return Outcome::Expired;
    }
    if n >= work.uncancelable && work.signals.canceled.load(Ordering::Acquire) {
        return Outcome::Canceled;
    }
    if let Some((error_type, _)) = work.plan.error_every.iter().find(|(_, k)| every(*k)) {
        return Outcome::Errored { error_type: error_type.clone(), message: "a scripted error".to_owned() };
    }
    let payer = Payer::Batch { batch_id: &work.id, custom_id: &item.custom_id };
    let verdict = match serde_json::from_slice(&item.params) {
        Ok(params) => judge(app, &params, work.version, payer),
        Err(error) => invalid(format!("params: {error}")),
    };
    match verdict {
        Verdict::Succeeded(message) => Outcome::Succeeded { message },
        Verdict::Errored { error_type, message } => Outcome::Errored { error_type, message },
    }
}

fn line(batch_id: &str, custom_id: &str, outcome: &Outcome) -> Bytes {
    #[derive(Serialize)]
    struct Line<'a, R> {
        custom_id: &'a str,
        result: R,
    }
    #[derive(Serialize)]
    struct Errored<'a> {
        r#type: &'static str,
        error: ErrorBody<'a>,
    }
    let request_id = provider_id("req_", &format!("{batch_id}/{custom_id}"));
    let written = match outcome {
        Outcome::Errored { error_type, message } => {
            let error = ErrorBody::new(error_type, message, &request_id);
            serde_json::to_vec(&Line { custom_id, result: Errored { r#type: "errored", error } })
        }
        Outcome::Succeeded { .. } | Outcome::Canceled | Outcome::Expired => {
            serde_json::to_vec(&Line { custom_id, result: outcome })
        }
    };
    // Strings, numbers and JSON values can always be written.
    let mut line = written.unwrap_or_default();
    line.push(b'\n');
    line.into()
}

/// Checks a request, answers it and, when it succeeds, pays for it before anyone can see the answer.
pub(crate) fn judge(app: &App, params: &Value, version: ApiVersion, payer: Payer<'_>) -> Verdict {
    if let Err(message) = params::check(params, version) {
        return invalid(message);
    }
    let mut logical = sha256_hex(canonical_json(params).as_bytes());
    logical.truncate(LOGICAL_CHARACTERS);
    let request = RequestView::new(params, &logical);
    match app.config.responder.respond(&request) {
        Answer::Error { error_type, message } => Verdict::Errored { error_type, message },
        Answer::Message { content, stop_reason } => {
            let message = message(&request, content, stop_reason);
            match pay(app, &request, message.usage, payer) {
                Ok(()) => Verdict::Succeeded(Box::new(message)),
                Err(error) => {
                    tracing::error!(%error, "the paid ledger cannot be written");
                    let message = "the paid ledger cannot be written".to_owned();
                    Verdict::Errored { error_type: "api_error".to_owned(), message }
                }
            }
        }
    }
}

fn invalid(message: String) -> Verdict {
    Verdict::Errored { error_type: "invalid_request_error".to_owned(), message }
}

fn message(request: &RequestView<'_>, mut content: Vec<Value>, mut stop_reason: String) -> Message {
    let output_tokens = match cut(&mut content, request.max_tokens()) {
        Some(tokens) => {
            stop_reason = "max_tokens".to_owned();
            tokens
        }
        None => tokens(content.iter().map(content_bytes).sum()),
    };
    let params = request.params();
    let read = [&params["messages"], &params["system"]].into_iter().filter(|part| !part.is_null());
    let usage = Usage {
        input_tokens: tokens(read.map(|part| canonical_json(part).len()).sum()),
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: 0,
        output_tokens,
    };
    Message {
        id: provider_id("msg_", request.logical()),
        r#type: "message",
        role: "assistant",
        model: request.model().to_owned(),
        content,
        stop_reason,
        stop_sequence: None,
        usage,
    }
}

/// Cuts the only text to the most tokens allowed, and says how many it has then. Other content is left whole.
fn cut(content: &mut [Value], max_tokens: u64) -> Option<u64> {
    let [Value::Object(block)] = content else { return None };
    let Some(Value::String(text)) = block.get_mut("text") else { return None };
    let at_most = usize::try_from(max_tokens.saturating_mul(TOKEN_BYTES)).unwrap_or(usize::MAX);
    if text.len() <= at_most {
        return None;
    }
    text.truncate(text.floor_char_boundary(at_most));
    Some(tokens(text.len()))
}

fn content_bytes(block: &Value) -> usize {
    block["text"].as_str().map_or_else(|| canonical_json(block).len(), str::len)
}

fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX).div_ceil(TOKEN_BYTES).max(1)
}

fn pay(app: &App, request: &RequestView<'_>, usage: Usage, payer: Payer<'_>) -> std::io::Result<()> {
    let (batch_id, custom_id, live) = match payer {
        Payer::Live => (None, None, true),
        Payer::Batch { batch_id, custom_id } => (Some(batch_id.to_owned()), Some(custom_id.to_owned()), false),
    };
    let price = price_of(request.model());
    app.ledger.pay(&Paid {
        custom_id,
        batch_id,
        logical: request.logical().to_owned(),
        model: request.model().to_owned(),
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        nano_usd: price.map(|price| price.nano_usd(usage.input_tokens, usage.output_tokens, live)),
        live,
        at: Utc::now(),
    })
}
