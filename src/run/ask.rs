//! Asking people and other services.

use super::next::{Carrying, Next, Suspend};
use super::want::Question;
use super::workflow::{Data, Step, Workflow};
use serde::Serialize;
use std::marker::PhantomData;
use std::time::Duration;

/// A question to a person or another service, whose answer is a `T`. It needs a [`then`](Asking::then).
///
/// What is asked is stored as a JSON object: `prompt`, and `context`, `metadata` and `schema` where there are any.
#[must_use = "nobody is asked until `.then(step)` says who takes the answer, and the step returns that"]
pub struct Asking<W: Workflow, T> {
    question: Question,
    types: PhantomData<fn() -> (W, T)>,
}

impl<W: Workflow, T: Data> Asking<W, T> {
    pub(super) fn new(question: Question) -> Self {
        Self { question, types: PhantomData }
    }

    /// What the answerer needs to know beside the prompt.
    pub fn context<C: Serialize>(self, context: &C) -> Self {
        Self::new(self.question.with("context", context))
    }

    /// What programs between here and the answerer need: a queue, a priority, a language.
    pub fn metadata<M: Serialize>(self, metadata: &M) -> Self {
        Self::new(self.question.with("metadata", metadata))
    }

    /// The answer when nobody has answered after that long.
    pub fn or_after(self, delay: Duration, answer: T) -> Self {
        Self::new(self.question.or_after(delay, &answer))
    }

    fn suspend(self) -> Suspend<W, T> {
        Suspend::of(self.question.want())
    }

    /// A value for the step that takes the answer, which then gets both: `(answer, value)`.
    pub fn carry<C: Data>(self, value: C) -> Carrying<W, T, C> {
        self.suspend().carry(value)
    }

    /// The step that takes the answer.
    pub fn then<S: Step<W, Input = T>>(self, step: S) -> Next<W, S::Output> {
        self.suspend().then(step)
    }
}
