//! What a step returns: where the run goes from here.

use super::flow::{Act, Outcome};
use super::want::{Want, Wanted, argument, carried};
use super::workflow::{Data, Step, Workflow};
use crate::domain::JsonText;
use crate::domain::limits::OUTPUT_BYTES;
use std::fmt;
use std::marker::PhantomData;

/// Types that are known and not held: whatever they are, the value can be sent.
type Types<T> = PhantomData<fn() -> T>;

/// Where a run goes from here. `O` is what the step, or whatever it leads to, ends with: the run's output unless said
/// otherwise.
///
/// A value that cannot be written as JSON or is too large does not fail here, but fails the run when the step returns.
#[must_use = "a step must return it"]
pub struct Next<W: Workflow, O = <W as Workflow>::Output> {
    act: Result<Act, Outcome>,
    types: Types<(W, O)>,
}

impl<W: Workflow, O: Data> Next<W, O> {
    /// Goes on with another step.
    pub fn goto<S: Step<W, Output = O>>(step: S, input: S::Input) -> Self {
        let _ = step;
        Self::of(argument(&input).map(|arg| Act::Goto { step: S::NAME.into(), arg }))
    }

    /// Ends with a result: whoever called gets it; without a caller, it is the output of the run.
    pub fn finish(result: O) -> Self {
        Self::of(JsonText::of(&result, "the result of a step", OUTPUT_BYTES).map(Act::Finish).map_err(Outcome::from))
    }

    /// Ends the run with this output, whoever called: their calls are dropped, and the ledger says how many.
    pub fn halt(output: W::Output) -> Self {
        Self::of(JsonText::of(&output, "the output of a run", OUTPUT_BYTES).map(Act::Halt).map_err(Outcome::from))
    }
}

impl<W: Workflow, O> Next<W, O> {
    pub(super) fn of(act: Result<Act, Outcome>) -> Self {
        Self { act, types: PhantomData }
    }

    pub(super) fn into_act(self) -> Result<Act, Outcome> {
        self.act
    }

    /// The name of the step it leads to, once all that is called or waited for is done; `None` if it finishes.
    pub fn leads_to(&self) -> Option<&str> {
        match self.act.as_ref().ok()? {
            Act::Goto { step, .. } => Some(step),
            Act::Call { then, .. } | Act::Fork { then, .. } => Some(&then.step),
            Act::Suspend { then, under, .. } => Some(&under.as_ref().unwrap_or(then).step),
            Act::Finish(_) | Act::Halt(_) => None,
        }
    }

    /// The result, if it finishes with one: for a test that calls a step as the function it is.
    pub fn finished(&self) -> Option<O>
    where
        O: Data,
    {
        match self.act.as_ref().ok()? {
            Act::Finish(result) => result.read().ok(),
            Act::Goto { .. } | Act::Call { .. } | Act::Suspend { .. } | Act::Fork { .. } | Act::Halt(_) => None,
        }
    }
}

impl<W: Workflow, O> fmt::Debug for Next<W, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.act, f)
    }
}

/// What a step wants done before the run goes on: a call of another step, or an answer from outside. `T` is what comes
/// of it. It needs a [`then`](Suspend::then).
#[must_use = "nothing is asked for until `.then(step)` says who takes the answer, and the step returns that"]
pub struct Suspend<W: Workflow, T> {
    want: Wanted,
    types: Types<(W, T)>,
}

impl<W: Workflow, T> Suspend<W, T> {
    pub(super) fn of(want: Wanted) -> Self {
        Self { want, types: PhantomData }
    }

    /// The step that takes the result.
    pub fn then<S: Step<W, Input = T>>(self, step: S) -> Next<W, S::Output> {
        let _ = step;
        Next::of(self.want.map(|want| want.then(S::NAME, None)))
    }

    /// A value for the step that takes the result, which then gets both: `(result, value)`.
    pub fn carry<C: Data>(self, value: C) -> Carrying<W, T, C> {
        Carrying { want: self.want.and_then(|want| Ok((want, carried(&value)?))), types: PhantomData }
    }
}

/// A [`Suspend`] with a value for the step that takes the result.
#[must_use = "nothing is asked for until `.then(step)` says who takes the answer, and the step returns that"]
pub struct Carrying<W: Workflow, T, C> {
    want: Result<(Want, JsonText), Outcome>,
    types: Types<(W, T, C)>,
}

impl<W: Workflow, T, C> Carrying<W, T, C> {
    /// The step that takes the result and the value.
    pub fn then<S: Step<W, Input = (T, C)>>(self, step: S) -> Next<W, S::Output> {
        let _ = step;
        Next::of(self.want.map(|(want, carry)| want.then(S::NAME, Some(carry))))
    }
}
