//! What a step returns: where the run goes from here.

use super::flow::{Act, Outcome};
use super::reply::Reply;
use super::want::{Want, Wanted, argument, carried};
use super::workflow::{Data, Step, Workflow};
use crate::domain::limits::OUTPUT_BYTES;
use crate::domain::{Due, JsonText, WhenLost};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

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

/// Requests to a model may be too urgent for a batch.
impl<W: Workflow> Suspend<W, Reply> {
    /// Sends the request by itself, at once, at the full price: twice that of a batch. A node answers within seconds instead of
    /// within hours. Live calls are **at-least-once**: one whose node dies before the answer is stored is made again, and may be paid
    /// twice, unless [`when_lost`](Self::when_lost) says otherwise. In a conversation, each turn is.
    ///
    /// A provider without live calls answers in its batches. Anything but a request to a model fails the run.
    ///
    /// ```
    /// # use longhaul::{Next, Reply, Result, Run, Workflow, workflow};
    /// # struct Front;
    /// # #[workflow]
    /// # mod front {
    /// #     use super::*;
    /// #     impl Workflow for Front {
    /// #         const NAME: &'static str = "front";
    /// #         const VERSION: u32 = 1;
    /// #         type Input = String;
    /// #         type State = ();
    /// #         type Output = String;
    /// #         type Entry = step::ask;
    /// #     }
    /// #[step]
    /// async fn ask(run: &mut Run<Front>) -> Result<Next<Front>> {
    ///     let request = serde_json::json!({"model": "claude-haiku-4-5", "max_tokens": 100,
    ///         "messages": [{"role": "user", "content": *run.input}]});
    ///     Ok(run.model("claude", request).live().then(step::answered))
    /// }
    /// # #[step]
    /// # async fn answered(_: &mut Run<Front>, reply: Reply) -> Result<Next<Front>> {
    /// #     Ok(Next::finish(reply.text()))
    /// # }
    /// # }
    /// ```
    pub fn live(self) -> Self {
        self.deadline(Duration::ZERO)
    }

    /// Wants the answer within that time, from the commit of this step on. The request joins a batch as long as a batch would be in
    /// time, which is [`Config::batch_time`](crate::Config::batch_time) before the deadline; after that it is sent
    /// [`live`](Self::live). One that is in a batch already stays there, whatever the deadline: it is as good as paid. In a conversation,
    /// each turn has that time.
    pub fn deadline(self, within: Duration) -> Self {
        Self::of(self.want.and_then(|want| want.by(Due::After(within))))
    }

    /// What becomes of the live call when nobody knows whether it was answered, and so paid. Comes after `live` or `deadline`.
    pub fn when_lost(self, then: WhenLost) -> Self {
        Self::of(self.want.and_then(|want| want.when_lost(then)))
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
