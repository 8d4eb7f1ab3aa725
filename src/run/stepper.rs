//! A run in memory, step by step: for custom runtimes, for tools that look at workflows from outside, and below
//! [`Rehearsal`](super::Rehearsal).
//!
//! A [`Stepper`] is the trampoline with a tree of runs (the run and the branches of its forks) as its only store. It says what
//! can be done next, does one thing when told to, and lets the ledger's events out; whoever drives it keeps its
//! [`Snapshot`] wherever they like. Deliberately absent: clocks, threads, timeouts and durability. Delays and due times are told,
//! not waited for.

mod joins;
mod members;
mod snapshot;
mod words;

use super::builtin;
use super::flow::{Executed, Flow, Image, Live, Outcome, StepInfo};
use super::tool::{Tool, Toolbox};
use super::trampoline::{self, Held};
use super::want::misfit;
use crate::domain::limits::INPUT_BYTES;
use crate::domain::{Failure, FailureCode, JsonText, RunId, RunKey, WaitKey};
use members::{Members, Status};
use serde::Serialize;
pub use snapshot::Snapshot;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
pub use words::{Action, Answer, Ask, LedgerEvent, StepperError};

/// A run in memory, over any [`Flow`], typed or dynamic. It needs no runtime: any executor will do.
///
/// ```
/// use longhaul::{Action, DynamicWorkflow, Reply, Stepper};
/// use serde_json::json;
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let flow = DynamicWorkflow::builder("titles", 1)
///     .step("ask", |run, _| {
///         Box::pin(async move {
///             let request = json!({"messages": [{"role": "user", "content": run.input()}]});
///             Ok(run.model("claude", request).then("answered"))
///         })
///     })
///     .step("answered", |run, reply| Box::pin(async move { Ok(run.finish(Reply::from(reply).text())) }))
///     .build()?;
/// let flow = Arc::new(flow);
/// let mut stepper = Stepper::begin(flow.clone(), "1790", &json!("Fellow-Citizens .."))?;
/// let output = loop {
///     match stepper.next_action() {
///         Action::RunStep { .. } | Action::Join { .. } => futures::executor::block_on(stepper.run_one_step())?,
///         Action::Wait(questions) => {
///             // Between any two actions, the run can be stored and go on elsewhere.
///             let stored = serde_json::to_string(&stepper.snapshot())?;
///             stepper = Stepper::resume(flow.clone(), serde_json::from_str(&stored)?)?;
///             stepper.answer(questions[0].wait(), Reply::of_text("On the State of the Union"))?;
///         }
///         Action::Finished(output) => break output,
///         other => panic!("{other:?}"),
///     }
/// };
/// assert_eq!(output.as_str(), "\"On the State of the Union\"");
/// let kinds: Vec<_> = stepper.take_events().iter().map(|event| event.kind.to_string()).collect();
/// assert_eq!(kinds[..3], ["run.enqueued", "step.started", "step.completed"]);
/// # Ok(()) }
/// ```
///
/// # What it does as a node does it, and what not
/// Steps, calls, waits, forks, joins, retries, parking and cancels are those of a node, by the same code, and the ledger's events
/// come in the same order with the same ordinals; only `model.submitted`, which tells of a batch, is missing. A future of
/// [`run_one_step`](Self::run_one_step) that is dropped is a start without an outcome: it counts against the step's
/// `crash_limit`, as a node's death does. Timeouts are left to whoever drives it: drop the future and call
/// [`time_out`](Self::time_out).
pub struct Stepper {
    flow: Arc<dyn Flow>,
    tools: Toolbox,
    members: Members,
    /// Runs that are loaded: what their steps left in memory, as long as it is what their last transition says.
    live: HashMap<RunKey, Box<dyn Live>>,
}

impl Stepper {
    /// A new run of a workflow.
    ///
    /// # Errors
    /// [`StepperError::RunId`] and [`StepperError::Input`] when id or input cannot be kept.
    pub fn begin<T: Serialize + ?Sized>(flow: Arc<dyn Flow>, run_id: &str, input: &T) -> Result<Self, StepperError> {
        let run_id = RunId::new(run_id)?;
        let input = JsonText::of(input, "the input of a run", INPUT_BYTES)?;
        Ok(Self::open(flow, run_id.as_str(), input))
    }

    pub(super) fn open(flow: Arc<dyn Flow>, run_id: &str, input: JsonText) -> Self {
        let members = Members::new(flow.manifest(), run_id, input);
        Self { flow, tools: Toolbox::default(), members, live: HashMap::new() }
    }

    /// Takes up a run that was stored. The flow has to be of the same workflow and version; it may be another instance, in
    /// another process.
    ///
    /// # Errors
    /// [`StepperError::Snapshot`].
    pub fn resume(flow: Arc<dyn Flow>, snapshot: Snapshot) -> Result<Self, StepperError> {
        let members = snapshot.open(flow.manifest())?;
        Ok(Self { flow, tools: Toolbox::default(), members, live: HashMap::new() })
    }

    /// A tool that the run may use, as a node has it.
    #[must_use]
    pub fn tool<T: Tool>(mut self, tool: T) -> Self {
        self.tools.add(tool);
        self
    }

    pub(super) fn with_tools(mut self, tools: Toolbox) -> Self {
        self.tools = tools;
        self
    }

    /// Everything that has to be kept of the run, events that were not taken yet included.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.flow.manifest(), &self.members)
    }

    /// The run itself; branches have other keys.
    pub fn root(&self) -> RunKey {
        members::ROOT
    }

    /// The events since they were last taken, each run's in the order of its ordinals.
    pub fn take_events(&mut self) -> Vec<LedgerEvent> {
        std::mem::take(&mut self.members.told)
    }

    /// What can be done next: the first of [`actions`](Self::actions), or why there is none.
    pub fn next_action(&self) -> Action {
        if let Some(action) = self.actions().into_iter().next() {
            return action;
        }
        match &self.members.get(members::ROOT).status {
            Status::Completed { output } => return Action::Finished(output.clone()),
            Status::Failed { failure, .. } => return Action::Failed(failure.clone()),
            Status::Canceled { .. } => return Action::Canceled,
            Status::Ready { .. } | Status::Waiting { .. } | Status::Forked { .. } | Status::Parked { .. } => {}
        }
        let questions = self.questions();
        if !questions.is_empty() {
            return Action::Wait(questions);
        }
        let parked = self.members.under_way().into_iter().find_map(|run| match &self.members.get(run).status {
            Status::Parked { reason } => Some((run, reason.clone())),
            _ => None,
        });
        let (run, reason) = parked.unwrap_or_else(|| (members::ROOT, "nothing moves it".to_owned()));
        Action::Parked { run, reason }
    }

    /// Everything that can be done now, in any order: a step for each run that is ready, and forks that can be joined. The first is
    /// what goes deepest into the first branches.
    pub fn actions(&self) -> Vec<Action> {
        let of = |run| {
            let member = self.members.get(run);
            match &member.status {
                Status::Ready { after_ms } => {
                    let step = member.position.step.clone();
                    let timeout = self.info(&step).and_then(|info| info.policy.timeout);
                    let (attempt, after) = (member.errors.saturating_add(1), Duration::from_millis(*after_ms));
                    Some(Action::RunStep { run, step, attempt, after, timeout })
                }
                Status::Forked { .. } if self.members.is_decided(run) => Some(Action::Join { run }),
                _ => None,
            }
        };
        self.members.under_way().into_iter().filter_map(of).collect()
    }

    /// The open questions, those of the first branches first.
    pub fn questions(&self) -> Vec<Ask> {
        let of = |run| match &self.members.get(run).status {
            Status::Waiting { ordinal, wait } => {
                Some(Ask { key: WaitKey { run, ordinal: *ordinal }, wait: wait.clone() })
            }
            _ => None,
        };
        self.members.under_way().into_iter().filter_map(of).collect()
    }

    /// Does what [`next_action`](Self::next_action) says, if that is a step or a join.
    ///
    /// # Errors
    /// [`StepperError::NothingToDo`] if it is neither.
    pub async fn run_one_step(&mut self) -> Result<(), StepperError> {
        match self.next_action() {
            Action::RunStep { run, .. } | Action::Join { run } => self.perform(run).await,
            _ => Err(StepperError::NothingToDo(members::ROOT)),
        }
    }

    /// Runs the step of this run, or joins its fork: one of the [`actions`](Self::actions), in an order of your own.
    ///
    /// # Errors
    /// [`StepperError::NothingToDo`] when neither can be done now.
    pub async fn perform(&mut self, run: RunKey) -> Result<(), StepperError> {
        let nothing = StepperError::NothingToDo(run);
        match self.members.find(run).map(|member| &member.status) {
            Some(Status::Ready { .. }) => self.bounce(run).await,
            Some(Status::Forked { .. }) if self.members.is_decided(run) => {
                self.members.join(run);
                // Its branches may have made something of the state.
                self.live.remove(&run);
            }
            _ => return Err(nothing),
        }
        Ok(())
    }

    /// Settles a step whose future was dropped because its time was over.
    ///
    /// # Errors
    /// [`StepperError::NothingToDo`] when no step of this run was begun.
    pub fn time_out(&mut self, run: RunKey) -> Result<(), StepperError> {
        let held = self.members.held(run).filter(|held| held.starts > 0).ok_or(StepperError::NothingToDo(run))?;
        let info = self.info(&held.position.step).cloned().ok_or(StepperError::NothingToDo(run))?;
        let executed =
            self.live.get_mut(&run).map_or_else(|| Executed::bare(Outcome::TimedOut), |live| live.timed_out());
        let transition = trampoline::settle(&held, &info, executed, Duration::ZERO, false, 0.0);
        self.members.apply(transition);
        Ok(())
    }

    /// Answers a question. A person's answer is checked against the schema of the question first.
    ///
    /// # Errors
    /// [`StepperError::NotWaiting`] when it is not open any more; [`StepperError::Answer`] when the answer does not fit: the
    /// question stays open.
    pub fn answer(&mut self, wait: WaitKey, answer: impl Into<Answer>) -> Result<(), StepperError> {
        let asked = self.members.waiting(wait).ok_or(StepperError::NotWaiting(wait))?.clone();
        match answer.into().0 {
            Err(why) => self.members.refuse(wait.run, &why),
            Ok(answer) => {
                if let Some(why) = misfit(asked.request.as_str(), &answer) {
                    return Err(StepperError::Answer(why));
                }
                self.members.answer(wait, &asked, &answer, false);
            }
        }
        Ok(())
    }

    /// Ends a wait whose time is over: a sleeper is woken, a question gets the answer agreed on.
    ///
    /// # Errors
    /// [`StepperError::NotWaiting`] when it is not open any more; [`StepperError::NeverDue`] when it has no such time.
    pub fn expire(&mut self, wait: WaitKey) -> Result<(), StepperError> {
        let asked = self.members.waiting(wait).ok_or(StepperError::NotWaiting(wait))?.clone();
        if asked.due.is_none() {
            return Err(StepperError::NeverDue(wait));
        }
        let answer = asked.otherwise.clone().unwrap_or_else(JsonText::null);
        self.members.answer(wait, &asked, &answer, true);
        Ok(())
    }

    /// Ends a run, and what it has opened, by request. `false`: it was over already.
    pub fn cancel(&mut self, run: RunKey) -> bool {
        self.members.cancel(run)
    }

    /// Sets a failed or parked run going again from its last state, or one that was stopped because its fork did not wait; the
    /// branches that it fell with go first, and whoever fell because of it waits for it again.
    ///
    /// # Errors
    /// [`StepperError::NotRetryable`] when it is none of that.
    pub fn retry(&mut self, run: RunKey) -> Result<(), StepperError> {
        if self.members.retry(run) { Ok(()) } else { Err(StepperError::NotRetryable(run)) }
    }

    fn info(&self, step: &str) -> Option<&StepInfo> {
        self.flow.manifest().step(step).or_else(|| builtin::find(step))
    }

    /// One step, through the trampoline.
    async fn bounce(&mut self, run: RunKey) {
        let Some(held) = self.members.start(run) else { return };
        let transition = match trampoline::admit(self.flow.manifest(), &held) {
            Err(instead) => *instead,
            Ok(info) => {
                let info = info.clone();
                match self.execute(&held).await {
                    Ok(executed) => trampoline::settle(&held, &info, executed, Duration::ZERO, false, 0.0),
                    Err(failure) => trampoline::fail(&held, failure),
                }
            }
        };
        if self.members.apply(transition) {
            return;
        }
        // What its steps left in memory is not what it is now.
        self.live.remove(&run);
    }

    async fn execute(&mut self, held: &Held) -> Result<Executed, Failure> {
        let (step, arg) = (&held.position.step, held.position.arg.clone());
        let member = self.members.get(held.run);
        if builtin::find(step).is_some() {
            return Ok(builtin::call(step, arg, &member.run_id, &self.tools).await);
        }
        if !self.live.contains_key(&held.run) {
            let (run_id, input) = (member.run_id.as_str().into(), self.members.input.clone());
            let (state, unsaved) = self.members.state(held.run).map_err(|conflict| {
                Failure::new(FailureCode::ForkConflict, held.position.step.clone(), conflict.to_string())
            })?;
            let image = Image { run: held.run, run_id, input, state, unsaved };
            self.live.insert(held.run, self.flow.load(image)?);
        }
        match self.live.get_mut(&held.run) {
            Some(live) => Ok(live.call(step, arg, held.cursor).await),
            None => Ok(Executed::bare(Outcome::Undecodable("the run is not loaded".to_owned()))),
        }
    }
}

impl std::fmt::Debug for Stepper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let manifest = self.flow.manifest();
        write!(f, "Stepper({} version {}, {:?})", manifest.workflow, manifest.version, self.next_action())
    }
}
