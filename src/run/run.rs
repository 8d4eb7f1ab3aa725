//! The run, as its steps see it.

use super::flow::Outcome;
use super::model::ModelRequest;
use super::next::{Suspend, Want};
use super::record::{RecordError, Recorder};
use super::reply::Reply;
use super::workflow::{Step, Workflow};
use crate::domain::limits::NAME_BYTES;
use crate::domain::{Cause, EventId, NewEvent, NewWait, Ordinal, RunKey, WaitKind};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// A run, as its steps see it: what it was given, what it remembers, and what it can ask for.
pub struct Run<W: Workflow> {
    /// What steps need from the service around them.
    pub app: Arc<W>,
    /// What the run was given.
    pub input: Arc<W::Input>,
    /// What the run remembers. Changes are stored with the step's completion.
    pub state: W::State,
    id: Arc<str>,
    key: RunKey,
    recorder: Recorder,
}

impl<W: Workflow> Run<W> {
    /// A run that belongs to no database, for a test that calls one step as the function it is. Whole workflows are tested
    /// by a [`Rehearsal`](super::Rehearsal).
    pub fn detached(app: W, input: W::Input) -> Self {
        Self::loaded(Arc::new(app), Arc::new(input), W::State::default(), "detached".into(), RunKey(0))
    }

    pub(super) fn loaded(app: Arc<W>, input: Arc<W::Input>, state: W::State, id: Arc<str>, key: RunKey) -> Self {
        Self { app, input, state, id, key, recorder: Recorder::new(key, 0) }
    }

    /// The name that its caller gave the run.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Runs another step, and whatever it leads to, and continues with the result. Calls nest up to 256 deep.
    pub fn call<S: Step<W>>(&self, step: S, input: S::Input) -> Suspend<W, S::Output> {
        let _ = step;
        Suspend::call::<S>(&input)
    }

    /// Asks a model. The request joins a batch of the named provider; the run waits without holding anything.
    pub fn model(&self, provider: impl Into<String>, request: impl Into<ModelRequest>) -> Suspend<W, Reply> {
        let provider = provider.into();
        if provider.is_empty() || provider.len() > NAME_BYTES {
            let text = format!("the name of a provider has 1 to {NAME_BYTES} bytes, this one has {}", provider.len());
            return Suspend::of(Err(Outcome::Limit(text)));
        }
        let request = request.into().into_text().map_err(Outcome::from);
        Suspend::of(request.map(|request| Want::Wait(NewWait { kind: WaitKind::Model, provider, request })))
    }

    /// Records an event of your own in the run's ledger, stored with what the step returns. The id can be a cause at once.
    ///
    /// The payload is for names, counts and digests: the ledger is kept long and shown widely, so no secrets and no
    /// prompts. An attempt that fails and is tried again leaves none of its records.
    ///
    /// # Errors
    /// [`RecordError`] when type or payload are not acceptable, or the step has recorded 64 events.
    pub fn record<T: Serialize + ?Sized>(&mut self, kind: &str, payload: &T) -> Result<EventId, RecordError> {
        self.recorder.record(kind, payload, Cause::Previous)
    }

    /// As [`record`](Self::record), and says what caused it: an event recorded by this step, or any durable one.
    ///
    /// # Errors
    /// As [`record`](Self::record), and [`RecordError::UnknownCause`] when this run has no such event.
    pub fn record_caused_by<T: Serialize + ?Sized>(
        &mut self,
        kind: &str,
        payload: &T,
        cause: EventId,
    ) -> Result<EventId, RecordError> {
        self.recorder.record(kind, payload, Cause::Event(cause))
    }

    pub(super) fn record_from(&mut self, cursor: Ordinal) {
        self.recorder = Recorder::new(self.key, cursor);
    }

    pub(super) fn recorded(&mut self) -> Vec<NewEvent> {
        self.recorder.take()
    }
}

impl<W: Workflow> fmt::Debug for Run<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("workflow", &W::NAME).field("id", &self.id).finish_non_exhaustive()
    }
}
