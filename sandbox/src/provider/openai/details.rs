//! What an OpenAI batch has beyond any batch, and the object that shows it.

use std::sync::Arc;

use axum::body::Bytes;
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, json};

use super::super::app::{App, locked};
use super::super::batch::{Batch, Counts, EXPIRES_AFTER, Kind, Stage, Tokens};
use super::Endpoint;
use super::files::Content;

/// What is wrong with a line of an input file, or with the file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LineError {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) param: Option<String>,
    /// Counted from 1.
    pub(crate) line: Option<usize>,
}

/// What only an OpenAI batch has.
#[derive(Clone)]
pub(crate) struct Details {
    pub(crate) endpoint: Endpoint,
    pub(crate) input_file_id: String,
    pub(crate) input: Bytes,
    pub(crate) metadata: Option<Value>,
    /// From here on they are known when the batch is validated.
    pub(crate) errors: Vec<LineError>,
    pub(crate) model: Option<String>,
    /// Tokens that count as enqueued until the end.
    pub(crate) tokens: u64,
    pub(crate) in_progress_at: Option<DateTime<Utc>>,
    finalizing_at: Option<DateTime<Utc>>,
    output_file_id: Option<String>,
    error_file_id: Option<String>,
}

impl Details {
    pub(crate) fn new(endpoint: Endpoint, input_file_id: String, input: Bytes, metadata: Option<Value>) -> Self {
        Self {
            endpoint,
            input_file_id,
            input,
            metadata,
            errors: Vec::new(),
            model: None,
            tokens: 0,
            in_progress_at: None,
            finalizing_at: None,
            output_file_id: None,
            error_file_id: None,
        }
    }

    /// Those of a batch of somebody else, whose file is uploaded here.
    pub(crate) fn foreign(app: &App, requests: usize) -> Self {
        let body = json!({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Not yours."}]});
        let line = |n: usize| {
            let url = Endpoint::ChatCompletions.path();
            json!({"custom_id": format!("somebody-else-{n}"), "method": "POST", "url": url, "body": body})
        };
        let input: Bytes = (0..requests).map(|n| format!("{}\n", line(n))).collect::<String>().into();
        let name = "somebody-else.jsonl".to_owned();
        let mut files = locked(&app.files);
        let id = files.add(app.seed, name, "batch".to_owned(), Content::Uploaded(input.clone()));
        Self::new(Endpoint::ChatCompletions, id, input, Some(json!({"of": "somebody else"})))
    }

    /// How many requests the input file seems to have.
    pub(crate) fn input_lines(&self) -> usize {
        self.input.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty()).count()
    }
}

/// The batch has been processed and its files are being written.
pub(crate) fn finalizing(app: &App, id: &str) {
    if let Some(Batch { kind: Kind::OpenAi(details), .. }) = locked(&app.shelf).get_mut(id) {
        details.finalizing_at = Some(Utc::now());
    }
}

/// Makes files of the results of a batch that has just ended. Without a line there is no file.
pub(crate) fn publish(app: &App, batch: &mut Batch) {
    let Stage::Ended { done, .. } = &batch.stage else { return };
    let Kind::OpenAi(details) = &mut batch.kind else { return };
    let mut files = locked(&app.files);
    let mut publish = |kind: &str, lines: &Arc<Vec<Bytes>>| {
        let results = Content::Results { lines: Arc::clone(lines), faults: batch.plan.faults.clone() };
        let name = format!("{}_{kind}.jsonl", batch.id);
        (!lines.is_empty()).then(|| files.add(app.seed, name, "batch_output".to_owned(), results))
    };
    details.output_file_id = publish("output", &done.lines);
    details.error_file_id = publish("error", &done.errors);
    drop(files);
    if batch.archived_at.is_some() {
        withdraw(app, batch);
    }
}

/// Takes the files of the results away.
pub(crate) fn withdraw(app: &App, batch: &Batch) {
    let Kind::OpenAi(details) = &batch.kind else { return };
    let mut files = locked(&app.files);
    for id in details.output_file_id.iter().chain(&details.error_file_id) {
        files.remove(id);
    }
}

/// A batch as the API shows it.
pub(crate) fn object(batch: &Batch) -> Value {
    // No batch of the other API is on the shelf of this one.
    let Kind::OpenAi(details) = &batch.kind else { return Value::Null };
    let (status, ended_at) = status(batch, details);
    let at = |of: &[&str]| ended_at.filter(|_| of.contains(&status)).map(seconds);
    let (counts, usage) = match &batch.stage {
        Stage::Ended { done, .. } => (done.counts, Some(done.usage)),
        Stage::Waiting(_) | Stage::Processing => (Counts::default(), None),
    };
    let errors = (!details.errors.is_empty()).then(|| json!({"object": "list", "data": details.errors}));
    json!({
        "id": batch.id,
        "object": "batch",
        "endpoint": details.endpoint.path(),
        "model": details.model,
        "errors": errors,
        "input_file_id": details.input_file_id,
        "completion_window": "24h",
        "status": status,
        "output_file_id": details.output_file_id,
        "error_file_id": details.error_file_id,
        "created_at": seconds(batch.created_at),
        "in_progress_at": details.in_progress_at.map(seconds),
        "expires_at": seconds(batch.created_at + EXPIRES_AFTER),
        "finalizing_at": details.finalizing_at.map(seconds),
        "completed_at": at(&["completed"]),
        "failed_at": at(&["failed"]),
        "expired_at": at(&["expired"]),
        "cancelling_at": batch.cancel_initiated_at.map(seconds),
        "cancelled_at": at(&["cancelled"]),
        "request_counts": {"total": batch.total, "completed": counts.succeeded, "failed": counts.errored},
        "usage": usage.map(usage_object),
        "metadata": details.metadata,
    })
}

fn status(batch: &Batch, details: &Details) -> (&'static str, Option<DateTime<Utc>>) {
    match &batch.stage {
        Stage::Ended { at, .. } if !details.errors.is_empty() => ("failed", Some(*at)),
        Stage::Ended { at, .. } if batch.cancel_initiated_at.is_some() => ("cancelled", Some(*at)),
        Stage::Ended { at, done } if done.counts.expired > 0 => ("expired", Some(*at)),
        Stage::Ended { at, .. } => ("completed", Some(*at)),
        Stage::Waiting(_) | Stage::Processing if batch.cancel_initiated_at.is_some() => ("cancelling", None),
        Stage::Waiting(_) | Stage::Processing if details.finalizing_at.is_some() => ("finalizing", None),
        Stage::Waiting(_) | Stage::Processing if details.in_progress_at.is_some() => ("in_progress", None),
        Stage::Waiting(_) | Stage::Processing => ("validating", None),
    }
}

/// Tokens as batches and Responses show them.
pub(crate) fn usage_object(usage: Tokens) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input.saturating_add(usage.output),
    })
}

pub(crate) fn seconds(at: DateTime<Utc>) -> i64 {
    at.timestamp()
}
