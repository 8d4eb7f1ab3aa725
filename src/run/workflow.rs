//! What a workflow is: its types, and its steps.

use super::error::{Result, StepError};
use super::flow::{Act, Outcome, StepInfo, TypeInfo};
use super::next::Next;
use super::run::Run;
use super::upgrade::InFlight;
use crate::domain::{JsonText, ModelRetry, StepPolicy};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// What is kept of a run: anything that serde can write as JSON and read back.
pub trait Data: Serialize + DeserializeOwned + Send + 'static {}

impl<T: Serialize + DeserializeOwned + Send + 'static> Data for T {}

/// A workflow: what one kind of run takes in, remembers, does and gives.
///
/// The type that implements it holds what steps need from the service around them (clients, settings): steps find it in
/// `run.app`. The steps are written beside the implementation, in one inline module under
/// [`#[workflow]`](macro@crate::workflow): async functions of the run and at most one input, each of which ends by
/// returning a [`Next`]. Between two steps everything that matters is on disk, so any node can go on.
///
/// ```
/// use longhaul::{Next, Rehearsal, Reply, Result, Run, Workflow, workflow};
///
/// pub struct Greetings;
///
/// #[workflow]
/// mod greetings {
///     use super::*;
///
///     impl Workflow for Greetings {
///         const NAME: &'static str = "greetings";
///         const VERSION: u32 = 1;
///         type Input = String;
///         type State = ();
///         type Output = String;
///         type Entry = step::ask;
///     }
///
///     #[step(attempts = 3, backoff = "1s..1m", timeout = "30s")]
///     async fn ask(run: &mut Run<Greetings>) -> Result<Next<Greetings>> {
///         let content = format!("Greet {} in one line.", run.input);
///         let request = serde_json::json!({
///             "model": "claude-haiku-4-5", "max_tokens": 50,
///             "messages": [{"role": "user", "content": content}],
///         });
///         Ok(run.model("claude", request).then(step::answered))
///     }
///
///     #[step]
///     async fn answered(_: &mut Run<Greetings>, reply: Reply) -> Result<Next<Greetings>> {
///         Ok(Next::finish(reply.text()))
///     }
/// }
///
/// # fn main() {
/// let mut rehearsal = Rehearsal::new(Greetings).answer(|_| Reply::of_text("Good day, Ada."));
/// let greeting = futures::executor::block_on(rehearsal.run("ada", "Ada".to_owned())).unwrap();
/// assert_eq!(greeting, "Good day, Ada.");
/// # }
/// ```
///
/// # Steps
/// A step runs at least once, and never again after what it returned is committed. State that it changed before it failed
/// is forgotten. `#[step(..)]` declares how it runs: `attempts` (1) counts executions that may end with an error,
/// `backoff` (`"1s..1m"`) is what is waited between them, doubling; `timeout` (none) limits one execution; `crash_limit` (3)
/// is how often its process may die under it; `blocking` moves it off the async threads. A panic ends the run at once.
pub trait Workflow: Steps + Send + Sync + Sized + 'static {
    /// Its name: what enqueued runs are stored under. At most 128 bytes.
    const NAME: &'static str;
    /// Its version. A run belongs to the version it was enqueued with; raise it when the steps of runs in flight would no
    /// longer fit.
    const VERSION: u32;
    /// The oldest version whose runs in flight this one takes over: those from it up to, but not with, [`VERSION`](Self::VERSION).
    /// Each is passed through [`upgrade`](Self::upgrade) before its next step. By default none is: they need a node that has
    /// their version.
    const UPGRADES_FROM: u32 = Self::VERSION;
    /// How errors of a provider are tried again, unless [`ModelCall::retry`](crate::ModelCall::retry) says otherwise of one request.
    /// By default as the node's settings say.
    const MODEL_RETRY: Option<ModelRetry> = None;
    /// What a run is given. Stored once, never rewritten.
    type Input: Data + Sync;
    /// What a run remembers: small, and written again whenever a step has changed it. Its default is where a run begins,
    /// and must be the same each time.
    type State: Data + Default;
    /// What a run gives.
    type Output: Data;
    /// The step that a run begins with.
    type Entry: Step<Self, Input = (), Output = Self::Output>;

    /// Makes a run of an older version one of this version. Called before the run's next step on a node that has this version
    /// and not that of the run; what it returns is committed before that step runs. It decides by its arguments alone, and
    /// may be called again for the same run if its process dies before that commit.
    ///
    /// An error or a panic, a step that does not exist, or a value that does not fit parks the run as it was, with the reason.
    /// `Client::retry` tries again.
    ///
    /// ```
    /// # use longhaul::{InFlight, Next, Result, Run, Workflow, workflow};
    /// # use serde::{Deserialize, Serialize};
    /// # pub struct Tickets;
    /// #[derive(Default, Serialize, Deserialize)]
    /// pub struct Notes {
    ///     text: String,
    ///     tries: u32, // new in version 2
    /// }
    ///
    /// #[workflow]
    /// mod tickets {
    ///     use super::*;
    ///
    ///     impl Workflow for Tickets {
    ///         const NAME: &'static str = "tickets";
    ///         const VERSION: u32 = 2;
    ///         const UPGRADES_FROM: u32 = 1;
    ///         type Input = String;
    ///         type State = Notes;
    ///         type Output = String;
    ///         type Entry = step::classify;
    ///
    ///         fn upgrade(_from: u32, mut moved: InFlight) -> Result<InFlight> {
    ///             moved.rename("label", "classify"); // this step was called `label` in version 1
    ///             if let Some(state) = &mut moved.state {
    ///                 state["tries"] = 0.into();
    ///             }
    ///             Ok(moved)
    ///         }
    ///     }
    ///
    ///     #[step]
    ///     async fn classify(run: &mut Run<Tickets>) -> Result<Next<Tickets>> {
    ///         run.state.tries += 1;
    ///         Ok(Next::finish(run.state.text.clone()))
    ///     }
    /// }
    ///
    /// # fn main() {
    /// let mut old = InFlight::at("label");
    /// old.state = Some(serde_json::json!({"text": "on fire"}));
    /// let new = Tickets::upgrade(1, old).unwrap();
    /// assert_eq!(new.step, "classify");
    /// assert_eq!(new.state.unwrap()["tries"], 0);
    /// # }
    /// ```
    ///
    /// # Errors
    /// Whatever it says of a run that it cannot take over.
    fn upgrade(from: u32, moved: InFlight) -> Result<InFlight> {
        let _ = moved;
        Err(StepError::fatal(format!("version {} does not say how to take over version {from}", Self::VERSION)))
    }
}

/// The steps of a workflow. Written by [`#[workflow]`](macro@crate::workflow).
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no steps",
    label = "its `impl Workflow` belongs inside a `#[workflow]` module, beside its steps"
)]
pub trait Steps: Sized {
    /// All of them.
    fn table() -> Vec<StepEntry<Self>>
    where
        Self: Workflow;

    /// The types of input, state and output.
    fn types() -> [TypeInfo; 3]
    where
        Self: Workflow,
    {
        [TypeInfo::named::<Self::Input>(), TypeInfo::named::<Self::State>(), TypeInfo::named::<Self::Output>()]
    }
}

/// The future of a step.
pub type StepFuture<'a, W, O> = BoxFuture<'a, Result<Next<W, O>>>;

/// A step of the workflow `W`, as a value: what `then` and `goto` take. Written by
/// [`#[workflow]`](macro@crate::workflow), in the module `step`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a step of `{W}`",
    label = "expected `step::name`, the handle of a function under `#[step]` in the module of `{W}`"
)]
pub trait Step<W: Workflow>: Copy + Send + Sync + 'static {
    /// What it takes beside the run.
    type Input: Data;
    /// What it, or whatever it leads to, ends with.
    type Output: Data;
    /// Its name.
    const NAME: &'static str;
    /// Attempts, backoff, timeout, crash limit.
    const POLICY: StepPolicy;
    /// Whether it blocks its thread.
    const BLOCKING: bool;

    /// The type of its input.
    fn input() -> TypeInfo {
        TypeInfo::named::<Self::Input>()
    }

    /// Calls the function.
    fn call<'a>(run: &'a mut Run<W>, input: Self::Input) -> StepFuture<'a, W, Self::Output>;
}

/// What a step may return.
#[diagnostic::on_unimplemented(
    message = "a step returns `longhaul::Result<Next<..>>`, not `{Self}`",
    label = "should be `Result<Next<W>>` or `Result<Next<W, Output>>`"
)]
pub trait StepReturn {
    /// What it, or whatever it leads to, ends with.
    type Output;
}

impl<W: Workflow, O> StepReturn for std::result::Result<Next<W, O>, StepError> {
    type Output = O;
}

/// What a step asks for, or how it failed.
pub(super) type Called = std::result::Result<Act, Outcome>;
/// The function of a step, without its types.
pub(super) type Call<W> = Arc<dyn for<'a> Fn(&'a mut Run<W>, Option<JsonText>) -> BoxFuture<'a, Called> + Send + Sync>;

/// A row of a workflow's table of steps.
pub struct StepEntry<W: Workflow> {
    pub(super) info: StepInfo,
    pub(super) call: Call<W>,
    /// What of a value does not fit the step's input.
    pub(super) misfit: fn(Option<&JsonText>) -> Option<String>,
}

impl<W: Workflow> StepEntry<W> {
    /// The step's name.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// The row of a step.
    pub fn of<S: Step<W>>(step: S) -> Self {
        let _ = step;
        Self {
            info: StepInfo { name: S::NAME.into(), input: S::input(), policy: S::POLICY, blocking: S::BLOCKING },
            call: Arc::new(call_untyped::<W, S>),
            misfit: |arg| input::<W, S>(arg).err(),
        }
    }
}

fn input<W: Workflow, S: Step<W>>(arg: Option<&JsonText>) -> std::result::Result<S::Input, String> {
    let read = arg.map_or_else(|| JsonText::null().read(), JsonText::read);
    read.map_err(|why| format!("the input does not fit `{}`: {why}", std::any::type_name::<S::Input>()))
}

/// Decodes the input, calls the step, and takes the types off what it returns.
fn call_untyped<W: Workflow, S: Step<W>>(run: &mut Run<W>, arg: Option<JsonText>) -> BoxFuture<'_, Called> {
    async move {
        let input = input::<W, S>(arg.as_ref()).map_err(Outcome::Undecodable)?;
        match S::call(run, input).await {
            Ok(next) => next.into_act(),
            Err(error) => Err(Outcome::Error { message: error.message().to_owned(), fatal: error.is_fatal() }),
        }
    }
    .boxed()
}
