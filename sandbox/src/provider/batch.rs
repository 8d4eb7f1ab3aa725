//! One batch and its state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::Serialize;
use tokio::sync::Notify;

use super::params::ApiVersion;

/// From creation to expiry.
const EXPIRES_AFTER: TimeDelta = TimeDelta::hours(24);

/// One request of a batch, as it was sent: `params` shares the memory of the create body.
#[derive(Clone)]
pub(crate) struct Item {
    pub(crate) custom_id: String,
    pub(crate) params: Bytes,
}

/// What scripted faults have in store for a batch.
#[derive(Clone, Default)]
pub(crate) struct Plan {
    pub(crate) expire_every: Option<usize>,
    pub(crate) error_every: Vec<(String, usize)>,
    pub(crate) list_lag: Duration,
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
    /// Processing starts now, whatever the simulated time.
    pub(crate) wake: Notify,
    pub(crate) canceled: AtomicBool,
}

/// Where a batch stands.
pub(crate) enum Stage {
    /// Accepted; the requests are here until they are processed.
    Waiting(Vec<Item>),
    /// Being processed: the requests were handed out, which happens once.
    Processing,
    /// Processed: result lines in their final order, each with its line end.
    Ended { at: DateTime<Utc>, counts: Counts, lines: Arc<Vec<Bytes>> },
}

/// A batch.
pub(crate) struct Batch {
    pub(crate) id: String,
    pub(crate) total: usize,
    pub(crate) created_at: DateTime<Utc>,
    accepted: Instant,
    pub(crate) version: ApiVersion,
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
    pub(crate) version: ApiVersion,
    pub(crate) plan: Plan,
    pub(crate) signals: Arc<Signals>,
    pub(crate) uncancelable: usize,
}

impl Batch {
    pub(crate) fn new(id: String, items: Vec<Item>, version: ApiVersion, plan: Plan) -> Self {
        Self {
            id,
            total: items.len(),
            created_at: Utc::now(),
            accepted: Instant::now(),
            version,
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
            version: self.version,
            plan: self.plan.clone(),
            signals: Arc::clone(&self.signals),
            uncancelable: self.uncancelable,
        })
    }

    pub(crate) fn end(&mut self, counts: Counts, lines: Vec<Bytes>) {
        self.stage = Stage::Ended { at: Utc::now(), counts, lines: Arc::new(lines) };
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
            self.signals.wake.notify_one();
        }
    }

    pub(crate) fn listed(&self) -> bool {
        self.accepted.elapsed() >= self.plan.list_lag
    }

    pub(crate) fn object(&self, base_url: &str) -> BatchObject {
        let (processing_status, ended_at, request_counts) = match &self.stage {
            Stage::Ended { at, counts, .. } => ("ended", Some(*at), *counts),
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

/// A batch as the API shows it.
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
