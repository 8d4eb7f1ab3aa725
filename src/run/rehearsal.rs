//! A whole workflow in memory: the same trampoline and the same boundary that a node uses, without a database.

use super::builtin;
use super::flow::{Flow, Image, Live};
use super::reply::Reply;
use super::tool::{Tool, Toolbox};
use super::trampoline::{self, Held};
use super::typed::TypedFlow;
use super::workflow::{Step, Workflow};
use crate::domain::limits::{INPUT_BYTES, REQUEST_BYTES};
use crate::domain::{Change, EventType, Failure, FailureCode, Fence, ForkPolicy, InvalidJson, JsonText, NewBranch};
use crate::domain::{NewEvent, NewWait};
use crate::domain::{Ordinal, Position, RunKey, Transition, WaitKind};
use futures::future::BoxFuture;
use serde::Deserialize;
use std::ops::ControlFlow;
use std::time::Duration;

/// Runs a workflow in memory, with scripted answers: the first test of a workflow, in microseconds.
///
/// Steps that fail are tried again as their policy says, but at once; timeouts are not watched. It needs no runtime: any
/// executor will do.
///
/// ```
/// # use longhaul::{Next, Rehearsal, Reply, Result, Run, Workflow, workflow};
/// # pub struct Titles;
/// # #[workflow]
/// # mod titles {
/// #     use super::*;
/// #     impl Workflow for Titles {
/// #         const NAME: &'static str = "titles"; const VERSION: u32 = 1;
/// #         type Input = String; type State = (); type Output = String; type Entry = step::ask;
/// #     }
/// #     #[step]
/// #     async fn ask(run: &mut Run<Titles>) -> Result<Next<Titles>> {
/// #         let request = serde_json::json!({"messages": [{"role": "user", "content": &*run.input}]});
/// #         Ok(run.model("claude", request).then(step::answered))
/// #     }
/// #     #[step]
/// #     async fn answered(_: &mut Run<Titles>, reply: Reply) -> Result<Next<Titles>> {
/// #         Ok(Next::finish(reply.text()))
/// #     }
/// # }
/// # fn main() {
/// let mut rehearsal = Rehearsal::new(Titles).answer(|ask| {
///     assert_eq!(ask.provider(), "claude");
///     Reply::of_text("On the State of the Union")
/// });
/// let title = futures::executor::block_on(rehearsal.run("1790", "Fellow-Citizens ..".to_owned()));
///
/// assert_eq!(title.unwrap(), "On the State of the Union");
/// assert_eq!(rehearsal.steps(), ["ask", "answered"]);
/// assert_eq!(rehearsal.requests()[0].request()["messages"][0]["role"], "user");
/// # }
/// ```
pub struct Rehearsal<W: Workflow> {
    flow: TypedFlow<W>,
    script: Box<dyn FnMut(&Ask) -> Answer + Send>,
    steps: Vec<String>,
    events: Vec<String>,
    requests: Vec<Ask>,
    tools: Toolbox,
    run_id: String,
}

/// What a run waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask(NewWait);

impl Ask {
    /// What kind of answer is waited for.
    pub fn kind(&self) -> WaitKind {
        self.0.kind
    }

    /// The provider that is asked; empty if it is not a model.
    pub fn provider(&self) -> &str {
        self.0.provider.as_deref().unwrap_or_default()
    }

    /// The request; `null` if it has numbers that [`serde_json::Value`] cannot hold.
    pub fn request(&self) -> serde_json::Value {
        self.0.request.read().unwrap_or_default()
    }

    /// The request, as it would be sent.
    pub fn raw(&self) -> &str {
        self.0.request.as_str()
    }
}

/// What a script answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer(Result<JsonText, String>);

impl Answer {
    /// No answer will come, and that is why: the run fails with `model-failed`.
    pub fn refused(why: impl Into<String>) -> Self {
        Self(Err(why.into()))
    }
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self::from(JsonText::parse(reply.raw(), "an answer", REQUEST_BYTES))
    }
}

impl From<serde_json::Value> for Answer {
    fn from(answer: serde_json::Value) -> Self {
        Self::from(JsonText::of(&answer, "an answer", REQUEST_BYTES))
    }
}

impl From<Result<JsonText, InvalidJson>> for Answer {
    fn from(answer: Result<JsonText, InvalidJson>) -> Self {
        Self(answer.map_err(|why| why.to_string()))
    }
}

impl<W: Workflow> Rehearsal<W> {
    /// A rehearsal that refuses whatever is asked.
    pub fn new(app: W) -> Self {
        let script = Box::new(|_: &Ask| Answer::refused("the rehearsal has no answer to it"));
        Self {
            flow: TypedFlow::new(app),
            script,
            steps: Vec::new(),
            events: Vec::new(),
            requests: Vec::new(),
            tools: Toolbox::default(),
            run_id: String::new(),
        }
    }

    /// A tool that the run may use, as a node has it.
    #[must_use]
    pub fn tool<T: Tool>(mut self, tool: T) -> Self {
        self.tools.add(tool);
        self
    }

    /// What is answered to whatever the run waits for.
    #[must_use]
    pub fn answer<A: Into<Answer>>(mut self, mut script: impl FnMut(&Ask) -> A + Send + 'static) -> Self {
        self.script = Box::new(move |ask| script(ask).into());
        self
    }

    /// Runs the workflow from its entry to its end.
    ///
    /// # Errors
    /// The [`Failure`] that the run would be stored with.
    pub async fn run(&mut self, id: &str, input: W::Input) -> Result<W::Output, Failure> {
        (self.steps, self.events, self.requests) = Default::default();
        self.run_id = id.to_owned();
        let entry = <W::Entry as Step<W>>::NAME;
        let refused = |code: FailureCode, why: String| Failure::new(code, entry, why);
        let input = JsonText::of(&input, "the input of a run", INPUT_BYTES)
            .map_err(|why| refused(FailureCode::LimitExceeded, why.to_string()))?;
        let image = Image { run: RunKey(1), run_id: id.into(), input, state: None };
        let output = self.play(image, Position { step: entry.to_owned(), arg: None, stack: Vec::new() }, None).await?;
        output.read().map_err(|why| refused(FailureCode::Undecodable, format!("the output cannot be read back: {why}")))
    }

    /// The steps that ran, in order, one entry for each execution.
    pub fn steps(&self) -> &[String] {
        &self.steps
    }

    /// The types of the ledger's events, in order; events of your own under the names they were recorded with.
    pub fn events(&self) -> &[String] {
        &self.events
    }

    /// What was asked, in order.
    pub fn requests(&self) -> &[Ask] {
        &self.requests
    }

    /// One run, from a position to its end; its branches one after the other.
    fn play(
        &mut self,
        image: Image,
        position: Position,
        parent: Option<RunKey>,
    ) -> BoxFuture<'_, Result<JsonText, Failure>> {
        Box::pin(self.played(image, position, parent))
    }

    async fn played(
        &mut self,
        mut image: Image,
        position: Position,
        parent: Option<RunKey>,
    ) -> Result<JsonText, Failure> {
        let mut held = Held { run: image.run, parent, fence: Fence(1), cursor: 0, position, errors: 0, starts: 1 };
        self.happens(&mut held, &[EventType::RunEnqueued, EventType::StepStarted]);
        let mut live = match self.flow.load(image.clone()) {
            Ok(live) => live,
            Err(failure) => {
                let failed = trampoline::fail(&held, failure.clone());
                self.note(&failed.events);
                return Err(Failure { step: held.position.step, ..failure });
            }
        };
        loop {
            let transition = self.bounce(live.as_mut(), &held).await;
            self.note(&transition.events);
            if let Some(state) = &transition.state {
                image.state = Some(state.clone());
            }
            if let Change::Fork { position, branches, policy } = &transition.change {
                let (cursor, position) = (transition.next_cursor(), position.clone());
                held = Held { cursor, position, errors: 0, starts: 1, ..held };
                held = self.joined(&image, held, branches, *policy).await?;
                continue;
            }
            held = match self.outside(held, transition) {
                ControlFlow::Continue(held) => held,
                ControlFlow::Break(end) => return end,
            };
        }
    }

    /// One step, through the trampoline.
    async fn bounce(&mut self, live: &mut dyn Live, held: &Held) -> Transition {
        let info = match trampoline::admit(self.flow.manifest(), held) {
            Ok(info) => info.clone(),
            Err(instead) => return *instead,
        };
        self.steps.push(held.position.step.clone());
        let (step, arg) = (&held.position.step, held.position.arg.clone());
        let executed = match builtin::find(step) {
            Some(_) => builtin::call(step, arg, &self.run_id, &self.tools).await,
            None => live.call(step, arg, held.cursor).await,
        };
        trampoline::settle(held, &info, executed, Duration::ZERO, true, 0.0)
    }

    /// What the world outside does in time happens at once: what was released is claimed, what was asked is answered.
    fn outside(&mut self, held: Held, transition: Transition) -> ControlFlow<Result<JsonText, Failure>, Held> {
        let (cursor, change) = (transition.next_cursor(), transition.change.clone());
        if let Some(held) = trampoline::advance(held.clone(), transition) {
            return ControlFlow::Continue(held);
        }
        let after = |position, errors| Held { cursor, position, errors, starts: 1, ..held.clone() };
        match change {
            Change::Continue(position) => ControlFlow::Continue(after(position, 0)),
            Change::Release { position, errors, .. } => {
                let mut held = after(position, errors);
                self.happens(&mut held, &[EventType::StepStarted]);
                ControlFlow::Continue(held)
            }
            Change::Suspend { position, wait } => match self.answered(after(position, 0), wait) {
                Ok(held) => ControlFlow::Continue(held),
                Err(failure) => ControlFlow::Break(Err(failure)),
            },
            // Branches are played where the transition is made.
            Change::Fork { position, .. } => ControlFlow::Continue(after(position, 0)),
            Change::Complete(output) => ControlFlow::Break(Ok(output)),
            Change::Fail(failure) => ControlFlow::Break(Err(failure)),
            // A typed workflow has every step it names, so nothing is ever held back here.
            Change::Park(reason) => {
                ControlFlow::Break(Err(Failure::new(FailureCode::Undecodable, &held.position.step, reason)))
            }
        }
    }

    /// Runs the branches one after the other, and hands on their results.
    async fn joined(
        &mut self,
        image: &Image,
        mut held: Held,
        branches: &[NewBranch],
        policy: ForkPolicy,
    ) -> Result<Held, Failure> {
        let mut results = Vec::with_capacity(branches.len());
        for branch in branches {
            let position = Position { step: branch.step.clone(), arg: branch.arg.clone(), stack: Vec::new() };
            let result = self.play(image.clone(), position, Some(image.run)).await;
            results.push(match (policy, result) {
                (ForkPolicy::WaitAll, Ok(result)) => result.as_str().to_owned(),
                (ForkPolicy::WaitAll, Err(why)) => {
                    self.happens(&mut held, &[EventType::ForkFailed, EventType::RunFailed]);
                    let text = format!("branch `{}`: {}", branch.name, why.message);
                    return Err(Failure::new(FailureCode::BranchFailed, &held.position.step, text));
                }
                (ForkPolicy::Collect, Ok(result)) => format!(r#"{{"ok":{}}}"#, result.as_str()),
                (ForkPolicy::Collect, Err(why)) => {
                    format!(r#"{{"failed":{}}}"#, serde_json::to_string(&why).unwrap_or_default())
                }
            });
        }
        self.happens(&mut held, &[EventType::ForkJoined, EventType::StepStarted]);
        let results = JsonText::stored(format!("[{}]", results.join(",")));
        held.position = trampoline::resume(held.position, &results, None);
        Ok(held)
    }

    fn answered(&mut self, mut held: Held, wait: NewWait) -> Result<Held, Failure> {
        let answered: &[EventType] = match wait.kind {
            WaitKind::Human => &[EventType::HumanAnswered, EventType::StepStarted],
            WaitKind::External => &[EventType::ExternalAnswered, EventType::StepStarted],
            WaitKind::Timer => &[EventType::TimerFired, EventType::StepStarted],
            _ => &[EventType::ModelAnswered, EventType::ModelApplied, EventType::StepStarted],
        };
        let ask = Ask(wait);
        // Time passes at once.
        let answer = match ask.kind() {
            WaitKind::Timer => Answer(Ok(JsonText::null())),
            _ => (self.script)(&ask),
        };
        self.requests.push(ask);
        match answer.0 {
            Ok(answer) => {
                self.happens(&mut held, answered);
                let request = self.requests.last().map(|ask| &ask.0.request);
                held.position = trampoline::resume(held.position, &answer, request);
                Ok(held)
            }
            Err(why) => {
                self.happens(&mut held, &[EventType::ModelFailed, EventType::RunFailed]);
                Err(Failure::new(FailureCode::ModelFailed, &held.position.step, why))
            }
        }
    }

    /// Events that a node or a client adds from outside.
    fn happens(&mut self, held: &mut Held, kinds: &[EventType]) {
        self.events.extend(kinds.iter().map(ToString::to_string));
        held.cursor += kinds.len() as Ordinal;
    }

    fn note(&mut self, events: &[NewEvent]) {
        self.events.extend(events.iter().map(|event| custom_name(event).unwrap_or_else(|| event.kind.to_string())));
    }
}

fn custom_name(event: &NewEvent) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        r#type: String,
    }
    (event.kind == EventType::Custom).then(|| event.payload.read().ok().map(|Named { r#type }| r#type)).flatten()
}
