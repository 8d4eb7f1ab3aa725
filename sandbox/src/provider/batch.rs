//! One batch and its state, whichever API it was made by.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::Serialize;
use tokio::sync::watch;

use super::faults::Fault;
use super::injector::Faults;
use super::openai::Details;
use super::params::ApiVersion;

/// From creation to expiry.
pub(crate) const EXPIRES_AFTER: TimeDelta = TimeDelta::hours(24);

/// One request of a batch, as it was sent: `params` shares the memory of the create body, or of the input file.
#[derive(Clone)]
pub(crate) struct Item {
    pub(crate) custom_id: String,
    pub(crate) params: Bytes,
}

/// What only one of the APIs has.
#[derive(Clone)]
pub(crate) enum Kind {
    Anthropic(ApiVersion),
    OpenAi(Box<Details>),
}

/// What is in store for a batch.
#[derive(Clone, Default)]
pub(crate) struct Plan {
    /// The faults that its create met.
    pub(crate) faults: Faults,
    pub(crate) list_lag: Duration,
    /// It is somebody else's: what it costs is not in the ledger.
    pub(crate) foreign: bool,
}

/// The counts of a batch's requests by state; their sum is always the number of requests.
#[derive(Clone, Copy, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) processing: usize,
    pub(crate) succeeded: usize,
    pub(crate) errored: usize,
    pub(crate) canceled: usize,
    pub(crate) expired: usize,
}

/// The switch between a batch's owner and its processor.
#[derive(Default)]
pub(crate) struct Signals {
    /// Once true, nothing of the simulated time is waited for any more.
    pub(crate) wake: watch::Sender<bool>,
    pub(crate) canceled: AtomicBool,
}

/// Where a batch stands.
pub(crate) enum Stage {
    /// Accepted; the requests are here until they are processed.
    Waiting(Vec<Item>),
    /// Being processed: the requests were handed out, which happens once.
    Processing,
    /// Processed, or refused when it was validated.
    Ended { at: DateTime<Utc>, done: Done },
}

/// What came of a batch.
#[derive(Clone, Default)]
pub(crate) struct Done {
    pub(crate) counts: Counts,
    /// Result lines in their final order, each with its line end. OpenAI: only those of requests that succeeded.
    pub(crate) lines: Arc<Vec<Bytes>>,
    /// OpenAI: the lines of all other requests.
    pub(crate) errors: Arc<Vec<Bytes>>,
    pub(crate) usage: Tokens,
}

/// Tokens read and written.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tokens {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

/// A batch.
pub(crate) struct Batch {
    pub(crate) id: String,
    pub(crate) total: usize,
    pub(crate) created_at: DateTime<Utc>,
    accepted: Instant,
    pub(crate) kind: Kind,
    pub(crate) plan: Plan,
    pub(crate) signals: Arc<Signals>,
    pub(crate) stage: Stage,
    pub(crate) cancel_initiated_at: Option<DateTime<Utc>>,
    /// How many requests are too far along to be canceled.
    pub(crate) uncancelable: usize,
    pub(crate) archived_at: Option<DateTime<Utc>>,
}

/// What a processor needs of a batch.
pub(crate) struct Work {
    pub(crate) id: String,
    pub(crate) items: Vec<Item>,
    pub(crate) kind: Kind,
    pub(crate) plan: Plan,
    pub(crate) signals: Arc<Signals>,
    pub(crate) uncancelable: usize,
}

impl Batch {
    pub(crate) fn new(id: String, items: Vec<Item>, kind: Kind, plan: Plan) -> Self {
        Self {
            id,
            total: items.len(),
            created_at: Utc::now(),
            accepted: Instant::now(),
            kind,
            plan,
            signals: Arc::default(),
            stage: Stage::Waiting(items),
            cancel_initiated_at: None,
            uncancelable: 0,
            archived_at: None,
        }
    }

    /// Hands out the requests, once: a batch is processed, and paid, one time only.
    pub(crate) fn begin(&mut self) -> Option<Work> {
        if !matches!(self.stage, Stage::Waiting(_)) {
            return None;
        }
        let Stage::Waiting(items) = std::mem::replace(&mut self.stage, Stage::Processing) else {
            return None;
        };
        Some(Work {
            id: self.id.clone(),
            items,
            kind: self.kind.clone(),
            plan: self.plan.clone(),
            signals: Arc::clone(&self.signals),
            uncancelable: self.uncancelable,
        })
    }

    pub(crate) fn end(&mut self, done: Done) {
        let at = Utc::now();
        self.stage = Stage::Ended { at, done };
        if self.plan.faults.has(&Fault::Archive) {
            self.archived_at = Some(at);
        }
    }

    pub(crate) fn ended(&self) -> bool {
        matches!(self.stage, Stage::Ended { .. })
    }

    /// Starts to cancel; a second time changes nothing.
    pub(crate) fn cancel(&mut self, uncancelable: usize) {
        if self.cancel_initiated_at.is_none() {
            self.cancel_initiated_at = Some(Utc::now());
            self.uncancelable = uncancelable;
            self.signals.canceled.store(true, Ordering::Release);
            self.signals.wake.send_replace(true);
        }
    }

    pub(crate) fn listed(&self) -> bool {
        self.accepted.elapsed() >= self.plan.list_lag
    }

    /// As Anthropic's API shows it.
    pub(crate) fn object(&self, base_url: &str) -> BatchObject {
        let (processing_status, ended_at, request_counts) = match &self.stage {
            Stage::Ended { at, done } => ("ended", Some(*at), done.counts),
            Stage::Waiting(_) | Stage::Processing => {
                let status = if self.cancel_initiated_at.is_some() { "canceling" } else { "in_progress" };
                (status, None, Counts { processing: self.total, ..Counts::default() })
            }
        };
        let readable = self.ended() && self.archived_at.is_none();
        BatchObject {
            id: self.id.clone(),
            r#type: "message_batch",
            processing_status,
            request_counts,
            ended_at: ended_at.map(timestamp),
            created_at: timestamp(self.created_at),
            expires_at: timestamp(self.created_at + EXPIRES_AFTER),
            archived_at: self.archived_at.map(timestamp),
            cancel_initiated_at: self.cancel_initiated_at.map(timestamp),
            results_url: readable.then(|| format!("{base_url}/v1/messages/batches/{}/results", self.id)),
        }
    }
}

/// A batch as Anthropic's API shows it.
#[derive(Serialize)]
pub(crate) struct BatchObject {
    pub(crate) id: String,
    r#type: &'static str,
    processing_status: &'static str,
    request_counts: Counts,
    ended_at: Option<String>,
    created_at: String,
    expires_at: String,
    archived_at: Option<String>,
    cancel_initiated_at: Option<String>,
    results_url: Option<String>,
}

fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}
