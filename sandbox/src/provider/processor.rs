//! The processor of a batch: waits for its simulated time, then answers and pays each request, once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use chrono::Utc;
use serde_json::Value;

use super::answer::{Answer, RequestView};
use super::app::{App, locked};
use super::batch::{Batch, Counts, Done, Item, Kind, Signals, Tokens, Work};
use super::canonical::{SplitMix, canonical_json, sha256_hex, sha256_seed};
use super::config::Dialect;
use super::faults::Fault;
use super::ledger::Paid;
use super::message;
use super::openai;
use super::params::{self, ApiVersion};
use super::prices::price_of;

/// Characters of the digest that stand for a logical request.
const LOGICAL_CHARACTERS: usize = 32;
/// Bytes of text that count as one token.
const TOKEN_BYTES: u64 = 4;
/// The types of errors that the API documents, for [`Fault::EveryOutcome`].
const ERROR_TYPES: [&str; 9] = [
    "invalid_request_error",
    "authentication_error",
    "billing_error",
    "permission_error",
    "not_found_error",
    "rate_limit_error",
    "timeout_error",
    "api_error",
    "overloaded_error",
];

/// What the model said, in whatever form it will be written.
pub(crate) struct Said {
    pub(crate) logical: String,
    pub(crate) model: String,
    /// Content blocks of Messages.
    pub(crate) content: Vec<Value>,
    pub(crate) stop_reason: String,
    pub(crate) usage: Tokens,
}

/// What became of one request.
pub(crate) enum Outcome {
    Succeeded(Box<Said>),
    Errored { error_type: String, message: String },
    Canceled,
    Expired,
}

impl Outcome {
    pub(crate) fn invalid(message: String) -> Self {
        Self::Errored { error_type: "invalid_request_error".to_owned(), message }
    }
}

/// Who pays for a request.
#[derive(Clone, Copy)]
pub(crate) enum Payer<'a> {
    Live,
    Batch {
        batch_id: &'a str,
        custom_id: &'a str,
    },
    /// Somebody whose money is not counted here.
    Stranger,
}

/// Starts the clock of a batch.
pub(crate) fn start(app: Arc<App>, id: String, delay: Duration, signals: Arc<Signals>) {
    tokio::spawn(async move {
        // `None`: the sandbox was stopped or the batch refused, and all is said.
        let _ = run(&app, &id, delay, &signals).await;
        app.ended.send_modify(|ended| *ended += 1);
    });
}

async fn run(app: &Arc<App>, id: &str, delay: Duration, signals: &Signals) -> Option<()> {
    let openai = app.config.dialect == Dialect::OpenAi;
    if openai {
        pause(app, app.config.validating, signals).await?;
        openai::validate(app, id).await?;
    }
    pause(app, delay, signals).await?;
    if signals.canceled.load(Ordering::Acquire) {
        tokio::time::sleep(app.config.canceling).await;
    }
    let work = locked(&app.shelf).get_mut(id).and_then(Batch::begin)?;
    let worker = Arc::clone(app);
    let done = match tokio::task::spawn_blocking(move || process(&worker, &work)).await {
        Ok(done) => done?,
        Err(error) => {
            tracing::error!(%error, batch = id, "the responder has panicked: the batch never ends");
            return None;
        }
    };
    if openai {
        openai::finalizing(app, id);
        pause(app, app.config.finalizing, signals).await?;
    }
    let mut shelf = locked(&app.shelf);
    let batch = shelf.get_mut(id)?;
    batch.end(done);
    openai::publish(app, batch);
    Some(())
}

/// Waits for simulated time; `None` when the sandbox was stopped.
async fn pause(app: &App, time: Duration, signals: &Signals) -> Option<()> {
    let mut wake = signals.wake.subscribe();
    let mut stopping = app.stopping.subscribe();
    tokio::select! {
        () = tokio::time::sleep(time) => Some(()),
        _ = wake.wait_for(|wake| *wake) => Some(()),
        _ = stopping.wait_for(|stopping| *stopping) => None,
    }
}

/// All result lines in their final order; `None` when the sandbox was stopped in between.
fn process(app: &App, work: &Work) -> Option<Done> {
    let mut counts = Counts::default();
    let mut usage = Tokens::default();
    let (mut lines, mut errors) = (Vec::with_capacity(work.items.len()), Vec::new());
    for (n, item) in work.items.iter().enumerate() {
        if app.stopped() {
            return None;
        }
        let outcome = outcome(app, work, n, item);
        match &outcome {
            Outcome::Succeeded(said) => {
                counts.succeeded += 1;
                usage.input += said.usage.input;
                usage.output += said.usage.output;
            }
            Outcome::Errored { .. } => counts.errored += 1,
            Outcome::Canceled => counts.canceled += 1,
            Outcome::Expired => counts.expired += 1,
        }
        match &work.kind {
            Kind::Anthropic(_) => lines.push(message::line(&work.id, &item.custom_id, &outcome)),
            Kind::OpenAi(details) => {
                let line = openai::line(details.endpoint, &work.id, &item.custom_id, &outcome);
                let succeeded = matches!(outcome, Outcome::Succeeded(_));
                if succeeded { &mut lines } else { &mut errors }.push(line);
            }
        }
    }
    let mut order = SplitMix(sha256_seed(work.id.as_bytes()));
    order.shuffle(&mut lines);
    order.shuffle(&mut errors);
    Some(Done { counts, lines: Arc::new(lines), errors: Arc::new(errors), usage })
}

fn outcome(app: &App, work: &Work, n: usize, item: &Item) -> Outcome {
    if let Some(scripted) = work.plan.faults.take(|fault| before_cancel(fault, n)) {
        return scripted;
    }
    if n >= work.uncancelable && work.signals.canceled.load(Ordering::Acquire) {
        return Outcome::Canceled;
    }
    if let Some(scripted) = work.plan.faults.take(|fault| after_cancel(fault, n)) {
        return scripted;
    }
    let payer = match work.plan.foreign {
        true => Payer::Stranger,
        false => Payer::Batch { batch_id: &work.id, custom_id: &item.custom_id },
    };
    match (serde_json::from_slice(&item.params), &work.kind) {
        (Ok(params), Kind::Anthropic(version)) => judge(app, &params, *version, payer),
        (Ok(params), Kind::OpenAi(details)) => openai::judge(app, &params, details.endpoint, payer),
        (Err(error), _) => Outcome::invalid(format!("params: {error}")),
    }
}

fn every(n: usize, k: usize) -> bool {
    (n + 1).is_multiple_of(k.max(1))
}

fn before_cancel(fault: &Fault, n: usize) -> Option<Outcome> {
    match fault {
        Fault::Expire { every: k } if every(n, *k) => Some(Outcome::Expired),
        _ => None,
    }
}

fn after_cancel(fault: &Fault, n: usize) -> Option<Outcome> {
    let errored = |error_type: &str| Outcome::Errored {
        error_type: error_type.to_owned(),
        message: "a scripted error".to_owned(),
    };
    match fault {
        Fault::ErrorItems { error_type, every: k } if every(n, *k) => Some(errored(error_type)),
        Fault::CancelItems { every: k } if every(n, *k) => Some(Outcome::Canceled),
        Fault::EveryOutcome => match n % (ERROR_TYPES.len() + 3) {
            0 => None,
            1 => Some(Outcome::Expired),
            2 => Some(Outcome::Canceled),
            k => ERROR_TYPES.get(k - 3).copied().map(errored),
        },
        _ => None,
    }
}

/// Checks a request of Messages and answers it.
pub(crate) fn judge(app: &App, params: &Value, version: ApiVersion, payer: Payer<'_>) -> Outcome {
    match params::check(params, version) {
        Ok(()) => answer(app, params, &logical(params), payer),
        Err(message) => Outcome::invalid(message),
    }
}

/// What stands for a request in the ledger.
pub(crate) fn logical(params: &Value) -> String {
    let mut logical = sha256_hex(canonical_json(params).as_bytes());
    logical.truncate(LOGICAL_CHARACTERS);
    logical
}

/// Answers a valid request, in the form of Messages, and when it succeeds pays for it before anyone can see the answer.
pub(crate) fn answer(app: &App, params: &Value, logical: &str, payer: Payer<'_>) -> Outcome {
    let request = RequestView::new(params, logical);
    match app.config.responder.respond(&request) {
        Answer::Error { error_type, message } => Outcome::Errored { error_type, message },
        Answer::Message { content, stop_reason } => {
            let said = said(&request, content, stop_reason);
            match pay(app, &said, payer) {
                Ok(()) => Outcome::Succeeded(Box::new(said)),
                Err(error) => {
                    tracing::error!(%error, "the paid ledger cannot be written");
                    let message = "the paid ledger cannot be written".to_owned();
                    Outcome::Errored { error_type: "api_error".to_owned(), message }
                }
            }
        }
    }
}

fn said(request: &RequestView<'_>, mut content: Vec<Value>, mut stop_reason: String) -> Said {
    let output = match cut(&mut content, request.max_tokens()) {
        Some(tokens) => {
            stop_reason = "max_tokens".to_owned();
            tokens
        }
        None => tokens(content.iter().map(content_bytes).sum()),
    };
    let params = request.params();
    let read = [&params["messages"], &params["system"]].into_iter().filter(|part| !part.is_null());
    let usage = Tokens { input: tokens(read.map(|part| canonical_json(part).len()).sum()), output };
    Said { logical: request.logical().to_owned(), model: request.model().to_owned(), content, stop_reason, usage }
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

/// About how many tokens so many bytes are.
pub(crate) fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX).div_ceil(TOKEN_BYTES).max(1)
}

fn pay(app: &App, said: &Said, payer: Payer<'_>) -> std::io::Result<()> {
    let (batch_id, custom_id, live) = match payer {
        Payer::Stranger => return Ok(()),
        Payer::Live => (None, None, true),
        Payer::Batch { batch_id, custom_id } => (Some(batch_id.to_owned()), Some(custom_id.to_owned()), false),
    };
    let Tokens { input, output } = said.usage;
    app.ledger.pay(&Paid {
        custom_id,
        batch_id,
        logical: said.logical.clone(),
        model: said.model.clone(),
        input_tokens: input,
        output_tokens: output,
        nano_usd: price_of(&said.model).map(|price| price.nano_usd(input, output, live)),
        live,
        at: Utc::now(),
    })
}
