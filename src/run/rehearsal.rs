//! A whole workflow in memory: a stepper with a script.

use super::stepper::{Action, Answer, Ask, Stepper};
use super::tool::{Tool, Toolbox};
use super::typed::TypedFlow;
use super::workflow::{Step, Workflow};
use crate::domain::limits::INPUT_BYTES;
use crate::domain::{EventType, Failure, FailureCode, JsonText, WaitKind};
use serde::Deserialize;
use std::sync::Arc;

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
    flow: Arc<TypedFlow<W>>,
    script: Box<dyn FnMut(&Ask) -> Answer + Send>,
    steps: Vec<String>,
    events: Vec<String>,
    requests: Vec<Ask>,
    tools: Toolbox,
}

impl<W: Workflow> Rehearsal<W> {
    /// A rehearsal that refuses whatever is asked.
    pub fn new(app: W) -> Self {
        let script = Box::new(|_: &Ask| Answer::refused("the rehearsal has no answer to it"));
        let (steps, events, requests) = Default::default();
        Self { flow: Arc::new(TypedFlow::new(app)), script, steps, events, requests, tools: Toolbox::default() }
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

    /// Runs the workflow from its entry to its end; the branches of a fork one after the other.
    ///
    /// # Errors
    /// The [`Failure`] that the run would be stored with. Also when an answer does not fit the schema of its question, which a
    /// client would hear instead.
    pub async fn run(&mut self, id: &str, input: W::Input) -> Result<W::Output, Failure> {
        (self.steps, self.events, self.requests) = Default::default();
        let refused = |code: FailureCode, why: String| Failure::new(code, W::Entry::NAME, why);
        let input = JsonText::of(&input, "the input of a run", INPUT_BYTES)
            .map_err(|why| refused(FailureCode::LimitExceeded, why.to_string()))?;
        let mut stepper = Stepper::open(self.flow.clone(), id, input).with_tools(self.tools.clone());
        let output = self.play(&mut stepper).await;
        self.note(&mut stepper);
        output?
            .read()
            .map_err(|why| refused(FailureCode::Undecodable, format!("the output cannot be read back: {why}")))
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

    async fn play(&mut self, stepper: &mut Stepper) -> Result<JsonText, Failure> {
        let stuck = |why: String| Failure::new(FailureCode::Undecodable, W::Entry::NAME, why);
        loop {
            for ask in stepper.questions() {
                self.answered(stepper, ask).map_err(stuck)?;
            }
            match stepper.next_action() {
                Action::RunStep { step, .. } => self.steps.push(step),
                Action::Join { .. } => {}
                Action::Finished(output) => return Ok(output),
                Action::Failed(failure) => return Err(failure),
                // A typed workflow has every step it names, and whatever is asked was answered.
                Action::Wait(_) => return Err(stuck("a question was not answered".to_owned())),
                Action::Canceled => return Err(stuck("it was canceled".to_owned())),
                Action::Parked { reason, .. } => return Err(stuck(reason)),
            }
            stepper.run_one_step().await.map_err(|why| stuck(why.to_string()))?;
            self.note(stepper);
        }
    }

    /// What the world outside does in time happens at once.
    fn answered(&mut self, stepper: &mut Stepper, ask: Ask) -> Result<(), String> {
        let done = match ask.kind() {
            WaitKind::Timer => stepper.expire(ask.wait()),
            _ => stepper.answer(ask.wait(), (self.script)(&ask)),
        };
        self.requests.push(ask);
        done.map_err(|why| why.to_string())
    }

    fn note(&mut self, stepper: &mut Stepper) {
        let events = stepper.take_events();
        self.events.extend(events.iter().map(|event| match event.kind {
            EventType::Custom => custom_name(&event.payload),
            kind => kind.to_string(),
        }));
    }
}

fn custom_name(payload: &JsonText) -> String {
    #[derive(Deserialize)]
    struct Named {
        r#type: String,
    }
    payload.read().map_or_else(|_| EventType::Custom.to_string(), |Named { r#type }| r#type)
}
