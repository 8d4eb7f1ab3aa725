//! The run, as its steps see it.

use super::ask::{Asking, ModelCall};
use super::fork::{Fork, ForkEach};
use super::model::ModelRequest;
use super::next::Suspend;
use super::record::{RecordError, Recorder};
use super::reply::ToolUse;
use super::tool::ToolResultBlock;
use super::want::{Question, Want};
use super::workflow::{Data, Step, Workflow};
use crate::domain::{Cause, Due, EventId, NewEvent, Ordinal, RunKey, WaitKind};
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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
        Suspend::of(Want::call(S::NAME, &input))
    }

    /// Asks a model. The request joins a batch of the named provider; the run waits without holding anything.
    pub fn model(&self, provider: impl Into<String>, request: impl Into<ModelRequest>) -> ModelCall<W> {
        ModelCall::new(Want::model(provider.into(), request.into()))
    }

    /// The tool loop: asks a model, uses the tools that its reply asks for, tells it what they answered, and asks again, until a
    /// reply asks for none. Each turn is a durable wait of its own, and travels in a batch like any request. The tools are
    /// those that the node has; the request names those that the model may use.
    pub fn converse(&self, provider: impl Into<String>, request: impl Into<ModelRequest>) -> ModelCall<W> {
        ModelCall::new(Want::converse(provider.into(), request.into()))
    }

    /// Uses tools of the node, one after the other. A tool that is missing or fails is an answer, for the model to read.
    pub fn tools(&self, uses: Vec<ToolUse>) -> Suspend<W, Vec<ToolResultBlock>> {
        Suspend::of(Want::tools(&uses))
    }

    /// Asks a person, whose answer is a `T`. The question is stored with the JSON Schema of the answer, and an answer is checked
    /// against it before it is written.
    pub fn human<T: Data + JsonSchema>(&self, prompt: impl Into<String>) -> Asking<W, T> {
        let question = Question::new(WaitKind::Human, prompt.into());
        Asking::new(question.with("schema", &schemars::schema_for!(T)))
    }

    /// Waits for another service, whose answer is a `T`. It answers by this run's id.
    pub fn external<T: Data>(&self, what: impl Into<String>) -> Asking<W, T> {
        Asking::new(Question::new(WaitKind::External, what.into()))
    }

    /// Opens branches that run at the same time, anywhere: each is a run of its own, with this run's input and a copy of its state,
    /// and ends with a result of its own type. What they do to their state is theirs, unless [`Fork::merge`] says otherwise.
    pub fn fork(&self) -> Fork<W, ()> {
        Fork::new()
    }

    /// Opens a branch for each of a list (2 to 1,024), all beginning with the same step.
    pub fn fork_each<S: Step<W>>(&self, step: S, inputs: &[S::Input]) -> ForkEach<W, S::Output> {
        let _ = step;
        ForkEach::new::<S>(inputs)
    }

    /// Waits for a while, holding nothing.
    pub fn sleep(&self, time: Duration) -> Suspend<W, ()> {
        Suspend::of(Ok(Want::timer(Due::After(time))))
    }

    /// Waits until a moment of the database's clock, holding nothing. A moment that has passed is at once.
    pub fn until(&self, moment: DateTime<Utc>) -> Suspend<W, ()> {
        Suspend::of(Ok(Want::timer(Due::At(moment))))
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
