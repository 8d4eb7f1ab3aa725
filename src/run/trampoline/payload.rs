//! The payloads of the trampoline's events: names, counts, digests. What user code said is never among them.

use crate::domain::{Cause, Due, EventType, JoinRule, JsonText, NewEvent, NewWait};
use serde::Serialize;

#[derive(Serialize)]
pub(in crate::run) struct Started<'a> {
    pub(in crate::run) step: &'a str,
    pub(in crate::run) attempt: u32,
}

#[derive(Serialize)]
pub(super) struct Completed<'a> {
    pub(super) step: &'a str,
    pub(super) flow: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<&'a str>,
    pub(super) us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<&'a Mark>,
}

#[derive(Serialize)]
pub(super) struct Failed<'a> {
    pub(super) step: &'a str,
    pub(super) code: &'static str,
    pub(super) attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_ms: Option<u64>,
}

#[derive(Serialize)]
pub(in crate::run) struct Ended<'a> {
    pub(in crate::run) step: &'a str,
    pub(in crate::run) code: &'static str,
}

#[derive(Serialize)]
pub(super) struct Parked<'a> {
    pub(super) step: &'a str,
    pub(super) code: &'static str,
}

#[derive(Serialize)]
pub(super) struct Asked<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<String>,
    #[serde(flatten)]
    request: Mark,
}

#[derive(Serialize)]
pub(super) struct Opened {
    pub(super) branches: usize,
    #[serde(flatten)]
    pub(super) rule: JoinRule,
}

#[derive(Serialize)]
pub(super) struct Halted {
    #[serde(flatten)]
    pub(super) output: Mark,
    /// Callers that get no result any more.
    pub(super) dropped: usize,
}

impl<'a> Asked<'a> {
    pub(super) fn of(wait: &'a NewWait) -> Self {
        let due = wait.due.map(|due| match due {
            Due::After(delay) => format!("in {} ms", delay.as_millis()),
            Due::At(at) => format!("at {}", at.to_rfc3339()),
        });
        Self { provider: wait.provider.as_deref(), due, request: Mark::of(&wait.request) }
    }
}

/// What the ledger keeps of a body.
#[derive(Serialize)]
pub(super) struct Mark {
    bytes: usize,
    sha256: String,
}

impl Mark {
    pub(super) fn of(body: &JsonText) -> Self {
        Self { bytes: body.as_str().len(), sha256: body.sha256() }
    }
}

/// An event with one of the payloads above, which cannot fail to be written: they are flat and small.
pub(in crate::run) fn event<T: Serialize>(kind: EventType, payload: &T) -> NewEvent {
    NewEvent::new(kind, payload).unwrap_or_else(|_| NewEvent {
        kind,
        nonce: crate::domain::ids::nonce(),
        cause: Cause::Previous,
        payload: JsonText::null(),
    })
}
