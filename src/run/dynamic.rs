//! The dynamic form: workflows whose steps are registered by name while the program runs, and whose values are JSON.
//!
//! It is for tools that generate workflows, and for interpreters. Below it is everything that is below the typed form: a
//! [`DynamicRun`] is a [`Run`] of a workflow whose types are all JSON, and what its steps ask for are the same acts. What the
//! compiler checks there is checked here when a step returns: a step that does not exist parks the run, as any step does that its
//! node does not know.

mod wants;

use super::error::Result;
use super::flow::{Flow, Image, Live, Manifest, Outcome, StepInfo, TypeInfo};
use super::next::Next;
use super::run::Run;
use super::typed::TypedFlow;
use super::workflow::{Call, Called, Step, StepEntry, StepFuture, Steps, Workflow};
use crate::domain::limits::NAME_BYTES;
use crate::domain::{Backoff, Failure, JsonText, StepPolicy};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
pub use wants::{DynamicAsking, DynamicCarrying, DynamicFork, DynamicRun, DynamicSuspend};

/// Where a run of a dynamic workflow goes from here. Made by the methods of [`DynamicRun`].
pub type DynamicNext = Next<Dynamic>;

/// The types of a dynamic workflow: all JSON. It has no values of its own: see [`DynamicWorkflow`].
pub struct Dynamic(());

impl Workflow for Dynamic {
    const NAME: &'static str = "dynamic";
    const VERSION: u32 = 0;
    type Input = Value;
    type State = Map<String, Value>;
    type Output = Value;
    type Entry = Nowhere;
}

impl Steps for Dynamic {
    fn table() -> Vec<StepEntry<Self>> {
        Vec::new()
    }
}

/// A dynamic workflow has no step that is known to the compiler.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Nowhere;

impl Step<Dynamic> for Nowhere {
    type Input = ();
    type Output = Value;
    const NAME: &'static str = "";
    const POLICY: StepPolicy = StepPolicy::DEFAULT;
    const BLOCKING: bool = false;

    fn call<'a>(_: &'a mut Run<Dynamic>, (): ()) -> StepFuture<'a, Dynamic, Value> {
        async { Err(super::error::StepError::fatal("this is no step")) }.boxed()
    }
}

/// A workflow that is put together while the program runs. It is a [`Flow`]: a node runs it
/// ([`NodeBuilder::flow`](crate::NodeBuilder::flow)), and so does a [`Stepper`](super::Stepper).
///
/// A step is a function of the run and of one JSON value: its input, the answer it has waited for, or the pair of that and a value
/// carried to it. The state is a JSON object. Numbers are those of [`serde_json::Value`].
///
/// ```
/// use longhaul::{Action, DynamicWorkflow, Stepper};
/// use serde_json::json;
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut builder = DynamicWorkflow::builder("sums", 1);
/// builder = builder.step("open", |run, _| {
///     Box::pin(async move {
///         run.state.insert("opened".into(), json!(true));
///         Ok(run.fork().branch("left", "square", 3).branch("right", "square", 4).join_by_name("sum"))
///     })
/// });
/// for name in ["square", "cube"] {
///     builder = builder.step(name, move |run, n| {
///         Box::pin(async move {
///             let n = n.as_i64().ok_or_else(|| longhaul::StepError::fatal("no number"))?;
///             Ok(run.finish(if name == "square" { n * n } else { n * n * n }))
///         })
///     });
/// }
/// builder = builder.step("sum", |run, of| {
///     Box::pin(async move { Ok(run.finish(json!([of["left"], of["right"], run.state["opened"]]))) })
/// });
/// let mut stepper = Stepper::begin(Arc::new(builder.build()?), "1", &json!(null))?;
/// while matches!(stepper.next_action(), Action::RunStep { .. } | Action::Join { .. }) {
///     futures::executor::block_on(stepper.run_one_step())?;
/// }
/// let Action::Finished(output) = stepper.next_action() else { panic!() };
/// assert_eq!(output.as_str(), "[9,16,true]");
/// # Ok(()) }
/// ```
pub struct DynamicWorkflow(TypedFlow<Dynamic>);

impl DynamicWorkflow {
    /// Begins to build a workflow of that name and version.
    pub fn builder(name: impl Into<String>, version: u32) -> DynamicBuilder {
        DynamicBuilder { name: name.into(), version, entry: None, steps: Vec::new() }
    }
}

impl Flow for DynamicWorkflow {
    fn manifest(&self) -> &Manifest {
        self.0.manifest()
    }

    fn load(&self, image: Image) -> std::result::Result<Box<dyn Live>, Failure> {
        self.0.load(image)
    }
}

impl std::fmt::Debug for DynamicWorkflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DynamicWorkflow").field(self.manifest()).finish()
    }
}

/// What a dynamic workflow is made from.
pub struct DynamicBuilder {
    name: String,
    version: u32,
    entry: Option<String>,
    steps: Vec<StepEntry<Dynamic>>,
}

/// How a step of a dynamic workflow is run: what `#[step(..)]` declares of a typed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepOptions {
    /// Attempts, backoff, timeout, crash limit.
    pub policy: StepPolicy,
    /// Whether it blocks its thread, so that it belongs on the blocking pool.
    pub blocking: bool,
}

/// Why a dynamic workflow cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWorkflow {
    /// A name that the database would not keep, or that is kept for the engine's own steps.
    #[error("`{name}` cannot be the name of a {what}: {NAME_RULE}")]
    Name {
        /// A workflow or a step.
        what: &'static str,
        /// The name, cut if it is long.
        name: String,
    },
    /// Two steps of the same name.
    #[error("two steps are named `{0}`")]
    Duplicate(String),
    /// No step at all.
    #[error("workflow `{0}` has no step")]
    NoSteps(String),
    /// The entry is none of the steps.
    #[error("workflow `{workflow}` begins with `{entry}`, which is none of its steps")]
    UnknownEntry {
        /// The workflow.
        workflow: String,
        /// What it should begin with.
        entry: String,
    },
    /// A policy that cannot be followed.
    #[error("step `{step}`: {why}")]
    Policy {
        /// Whose.
        step: String,
        /// What cannot be.
        why: &'static str,
    },
}

const NAME_RULE: &str = "a name has 1 to 128 bytes without control characters, and does not begin with `~`";

impl InvalidWorkflow {
    /// The stable name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Name { .. } => "invalid-name",
            Self::Duplicate(_) => "duplicate-step",
            Self::NoSteps(_) => "no-steps",
            Self::UnknownEntry { .. } => "unknown-entry",
            Self::Policy { .. } => "invalid-policy",
        }
    }
}

impl DynamicBuilder {
    /// The step that a run begins with. Without this it is the first that was added.
    #[must_use]
    pub fn entry(mut self, step: impl Into<String>) -> Self {
        self.entry = Some(step.into());
        self
    }

    /// A step, with the policy of a plain `#[step]`.
    #[must_use]
    pub fn step<F>(self, name: impl Into<String>, function: F) -> Self
    where
        F: for<'a> Fn(&'a mut DynamicRun<'_>, Value) -> BoxFuture<'a, Result<DynamicNext>> + Send + Sync + 'static,
    {
        self.step_with(name, StepOptions::default(), function)
    }

    /// A step that is run in a certain way.
    #[must_use]
    pub fn step_with<F>(mut self, name: impl Into<String>, options: StepOptions, function: F) -> Self
    where
        F: for<'a> Fn(&'a mut DynamicRun<'_>, Value) -> BoxFuture<'a, Result<DynamicNext>> + Send + Sync + 'static,
    {
        let info = StepInfo {
            name: name.into().into(),
            input: TypeInfo::named::<Value>(),
            policy: options.policy,
            blocking: options.blocking,
        };
        let function = Arc::new(function);
        let call: Call<Dynamic> = Arc::new(move |run: &mut Run<Dynamic>, arg| call(function.clone(), run, arg));
        self.steps.push(StepEntry { info, call, misfit: |_| None });
        self
    }

    /// Puts it together.
    ///
    /// # Errors
    /// [`InvalidWorkflow`] says what cannot be.
    pub fn build(self) -> std::result::Result<DynamicWorkflow, InvalidWorkflow> {
        let Self { name, version, entry, steps } = self;
        named("workflow", &name)?;
        let mut names = BTreeSet::new();
        for StepEntry { info, .. } in &steps {
            named("step", &info.name)?;
            if let Some(why) = unfollowable(&info.policy) {
                return Err(InvalidWorkflow::Policy { step: info.name.to_string(), why });
            }
            if !names.insert(&*info.name) {
                return Err(InvalidWorkflow::Duplicate(info.name.to_string()));
            }
        }
        let first = steps.first().map(|step| step.info.name.to_string());
        let Some(entry) = entry.or(first) else { return Err(InvalidWorkflow::NoSteps(name)) };
        if !names.contains(&*entry) {
            return Err(InvalidWorkflow::UnknownEntry { workflow: name, entry });
        }
        let manifest = Manifest {
            workflow: name.into(),
            version,
            upgrades_from: version,
            entry: entry.into(),
            input: TypeInfo::named::<Value>(),
            state: TypeInfo::named::<Map<String, Value>>(),
            output: TypeInfo::named::<Value>(),
            steps: Vec::new(),
        };
        Ok(DynamicWorkflow(TypedFlow::of(Dynamic(()), manifest, steps)))
    }
}

/// Calls a step, and takes what it wants.
fn call<F>(function: Arc<F>, run: &mut Run<Dynamic>, arg: Option<JsonText>) -> BoxFuture<'_, Called>
where
    F: for<'a> Fn(&'a mut DynamicRun<'_>, Value) -> BoxFuture<'a, Result<DynamicNext>> + Send + Sync + 'static,
{
    async move {
        let input = arg.unwrap_or_else(JsonText::null).read().map_err(|why| Outcome::Undecodable(why.to_string()))?;
        let mut run = DynamicRun::of(run);
        match function(&mut run, wants::by_name(input)).await {
            Ok(next) => next.into_act(),
            Err(error) => Err(Outcome::Error { message: error.message().to_owned(), fatal: error.is_fatal() }),
        }
    }
    .boxed()
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES).contains(&name.len()) && !name.starts_with('~') && !name.chars().any(char::is_control)
}

fn named(what: &'static str, name: &str) -> std::result::Result<(), InvalidWorkflow> {
    if is_name(name) {
        return Ok(());
    }
    Err(InvalidWorkflow::Name { what, name: name.chars().take(NAME_BYTES).collect() })
}

fn unfollowable(policy: &StepPolicy) -> Option<&'static str> {
    let StepPolicy { attempts, backoff: Backoff { first, most }, timeout, crash_limit } = policy;
    match () {
        () if *attempts == 0 => Some("`attempts` is at least 1"),
        () if *crash_limit == 0 => Some("`crash_limit` is at least 1"),
        () if first > most => Some("the first delay of `backoff` must not be longer than the longest"),
        () if timeout.is_some_and(|timeout| timeout.is_zero()) => Some("a timeout is longer than nothing"),
        () => None,
    }
}

#[cfg(test)]
mod tests;
