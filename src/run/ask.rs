//! Asking models, people and other services.

use super::next::{Carrying, Next, Suspend};
use super::reply::Reply;
use super::want::{Question, Wanted};
use super::workflow::{Data, Step, Workflow};
use crate::domain::{Due, ModelRetry, WhenLost};
use serde::Serialize;
use std::marker::PhantomData;
use std::time::Duration;

/// What a model is asked. It needs a [`then`](ModelCall::then).
#[must_use = "nothing is asked for until `.then(step)` says who takes the answer, and the step returns that"]
pub struct ModelCall<W: Workflow> {
    want: Wanted,
    types: PhantomData<fn() -> W>,
}

impl<W: Workflow> ModelCall<W> {
    pub(super) fn new(want: Wanted) -> Self {
        let call = Self { want, types: PhantomData };
        match W::MODEL_RETRY {
            Some(retry) => call.retry(retry),
            None => call,
        }
    }

    /// How errors of the provider are tried again, instead of as [`Workflow::MODEL_RETRY`] or the node's settings say; in a
    /// conversation, for every turn. What cannot be fails the run when the step returns. A rehearsal takes no notice of it.
    ///
    /// ```
    /// # use longhaul::{ModelRetry, Next, Reply, Result, Run, Workflow, workflow};
    /// # use std::time::Duration;
    /// # pub struct Titles;
    /// # #[workflow]
    /// # mod titles {
    /// #     use super::*;
    /// #     impl Workflow for Titles {
    /// #         const NAME: &'static str = "titles"; const VERSION: u32 = 1;
    /// #         type Input = String; type State = (); type Output = String; type Entry = step::ask;
    /// #     }
    /// #[step]
    /// async fn ask(run: &mut Run<Titles>) -> Result<Next<Titles>> {
    ///     let request = serde_json::json!({"model": "claude-haiku-4-5", "max_tokens": 50, "messages": []});
    ///     let patient = ModelRetry { attempts: 50, backoff: Duration::from_secs(60) };
    ///     Ok(run.model("claude", request).retry(patient).then(step::answered))
    /// }
    /// #     #[step]
    /// #     async fn answered(_: &mut Run<Titles>, reply: Reply) -> Result<Next<Titles>> { Ok(Next::finish(reply.text())) }
    /// # }
    /// # fn main() {}
    /// ```
    pub fn retry(mut self, retry: ModelRetry) -> Self {
        self.want = self.want.and_then(|want| want.retry(retry));
        self
    }

    /// Sends the request by itself, at once, at the full price: twice that of a batch. A node answers within seconds instead of
    /// within hours. Live calls are **at-least-once**: one whose node dies before the answer is stored is made again, and may be paid
    /// twice, unless [`when_lost`](Self::when_lost) says otherwise. In a conversation, each turn is.
    ///
    /// A provider without live calls answers in its batches.
    ///
    /// ```
    /// # use longhaul::{Next, Reply, Result, Run, Workflow, workflow};
    /// # pub struct Front;
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
    /// # fn main() {}
    /// ```
    pub fn live(self) -> Self {
        self.deadline(Duration::ZERO)
    }

    /// Wants the answer within that time, from the commit of this step on. The request joins a batch as long as a batch would be in
    /// time, which is [`Config::batch_time`](crate::Config::batch_time) before the deadline; after that it is sent
    /// [`live`](Self::live). One that is in a batch already stays there, whatever the deadline: it is as good as paid. In a conversation,
    /// each turn has that time.
    pub fn deadline(mut self, within: Duration) -> Self {
        self.want = self.want.and_then(|want| want.by(Due::After(within)));
        self
    }

    /// What becomes of the live call when nobody knows whether it was answered, and so paid. Comes after `live` or `deadline`.
    pub fn when_lost(mut self, then: WhenLost) -> Self {
        self.want = self.want.and_then(|want| want.when_lost(then));
        self
    }

    fn suspend(self) -> Suspend<W, Reply> {
        Suspend::of(self.want)
    }

    /// A value for the step that takes the reply, which then gets both: `(reply, value)`.
    pub fn carry<C: Data>(self, value: C) -> Carrying<W, Reply, C> {
        self.suspend().carry(value)
    }

    /// The step that takes the reply.
    pub fn then<S: Step<W, Input = Reply>>(self, step: S) -> Next<W, S::Output> {
        self.suspend().then(step)
    }
}

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
