//! What a step of a dynamic workflow can ask for: the wants of the typed form, with names for steps and JSON for values.

use super::{Dynamic, DynamicNext, NAME_RULE, is_name};
use crate::domain::{Due, ForkPolicy, Frame, JoinRule, JsonText, ModelRetry, NewBranch, WaitKind, WhenLost};
use crate::run::flow::{Act, Outcome};
use crate::run::fork::named_branch;
use crate::run::model::ModelRequest;
use crate::run::next::Next;
use crate::run::reply::ToolUse;
use crate::run::run::Run;
use crate::run::want::{Question, Want, Wanted, argument, carried};
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// The key under which the names of branches travel to the step that takes their results by name. Nobody else may carry it.
const NAMES: &str = "~branches";

/// A run of a dynamic workflow, as its steps see it. `run.state` is the JSON object that it remembers; `run.id()`, `run.record(..)`
/// and `run.record_caused_by(..)` are those of a [`Run`].
pub struct DynamicRun<'r>(&'r mut Run<Dynamic>);

impl Deref for DynamicRun<'_> {
    type Target = Run<Dynamic>;

    fn deref(&self) -> &Run<Dynamic> {
        self.0
    }
}

impl DerefMut for DynamicRun<'_> {
    fn deref_mut(&mut self) -> &mut Run<Dynamic> {
        self.0
    }
}

impl std::fmt::Debug for DynamicRun<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DynamicRun({})", self.0.id())
    }
}

impl<'r> DynamicRun<'r> {
    pub(super) fn of(run: &'r mut Run<Dynamic>) -> Self {
        Self(run)
    }

    /// What the run was given.
    pub fn input(&self) -> &Value {
        &self.0.input
    }

    /// Goes on with another step. One that does not exist parks the run.
    pub fn goto(&self, step: impl Into<String>, input: impl Into<Value>) -> DynamicNext {
        let act = checked(step).and_then(|step| Ok(Act::Goto { step: step.into(), arg: argument(&input.into())? }));
        Next::of(act)
    }

    /// As [`Next::finish`].
    pub fn finish(&self, result: impl Into<Value>) -> DynamicNext {
        Next::finish(result.into())
    }

    /// As [`Next::halt`].
    pub fn halt(&self, output: impl Into<Value>) -> DynamicNext {
        Next::halt(output.into())
    }

    /// As [`Run::call`].
    pub fn call(&self, step: impl Into<String>, input: impl Into<Value>) -> DynamicSuspend {
        DynamicSuspend(checked(step).and_then(|step| Want::call(step, &input.into())))
    }

    /// As [`Run::model`]. The answer is the provider's message; [`Reply`](crate::Reply) reads it (`Reply::from(answer)`).
    pub fn model(&self, provider: impl Into<String>, request: impl Into<ModelRequest>) -> DynamicSuspend {
        DynamicSuspend(Want::model(provider.into(), request.into()))
    }

    /// As [`Run::converse`].
    pub fn converse(&self, provider: impl Into<String>, request: impl Into<ModelRequest>) -> DynamicSuspend {
        DynamicSuspend(Want::converse(provider.into(), request.into()))
    }

    /// As [`Run::tools`]. The answer is a list of result blocks.
    pub fn tools(&self, uses: &[ToolUse]) -> DynamicSuspend {
        DynamicSuspend(Want::tools(uses))
    }

    /// Asks a person. Say by [`schema`](DynamicAsking::schema) what an answer looks like; without it, any JSON is one.
    pub fn human(&self, prompt: impl Into<String>) -> DynamicAsking {
        DynamicAsking(Question::new(WaitKind::Human, prompt.into()))
    }

    /// As [`Run::external`].
    pub fn external(&self, what: impl Into<String>) -> DynamicAsking {
        DynamicAsking(Question::new(WaitKind::External, what.into()))
    }

    /// As [`Run::sleep`].
    pub fn sleep(&self, time: Duration) -> DynamicSuspend {
        DynamicSuspend(Ok(Want::timer(Due::After(time))))
    }

    /// As [`Run::until`].
    pub fn until(&self, moment: DateTime<Utc>) -> DynamicSuspend {
        DynamicSuspend(Ok(Want::timer(Due::At(moment))))
    }

    /// As [`Run::fork`], with 2 to 1,024 branches.
    pub fn fork(&self) -> DynamicFork {
        DynamicFork { branches: Ok(Vec::new()), rule: JoinRule::default() }
    }
}

/// What a step wants done before the run goes on. It needs a [`then`](DynamicSuspend::then).
#[must_use = "nothing is asked for until `.then(step)` says who takes the answer, and the step returns that"]
pub struct DynamicSuspend(Wanted);

impl DynamicSuspend {
    /// As [`ModelCall::live`](crate::ModelCall::live).
    pub fn live(self) -> Self {
        self.deadline(Duration::ZERO)
    }

    /// As [`ModelCall::deadline`](crate::ModelCall::deadline).
    pub fn deadline(self, within: Duration) -> Self {
        Self(self.0.and_then(|want| want.by(Due::After(within))))
    }

    /// As [`ModelCall::when_lost`](crate::ModelCall::when_lost).
    pub fn when_lost(self, then: WhenLost) -> Self {
        Self(self.0.and_then(|want| want.when_lost(then)))
    }

    /// As [`ModelCall::retry`](crate::ModelCall::retry), of what a model is asked; anything else fails the run.
    pub fn retry(self, retry: ModelRetry) -> Self {
        Self(self.0.and_then(|want| want.retry(retry)))
    }

    /// A value for the step that takes the result, which then gets both: `[result, value]`.
    pub fn carry(self, value: impl Into<Value>) -> DynamicCarrying {
        DynamicCarrying(self.0.and_then(|want| Ok((want, kept(&value.into())?))))
    }

    /// The step that takes the result.
    pub fn then(self, step: impl Into<String>) -> DynamicNext {
        Next::of(self.0.and_then(|want| Ok(want.then(&checked(step)?, None))))
    }
}

/// A [`DynamicSuspend`] with a value for the step that takes the result.
#[must_use = "nothing is asked for until `.then(step)` says who takes the answer, and the step returns that"]
pub struct DynamicCarrying(Result<(Want, JsonText), Outcome>);

impl DynamicCarrying {
    /// The step that takes `[result, value]`.
    pub fn then(self, step: impl Into<String>) -> DynamicNext {
        Next::of(self.0.and_then(|(want, carry)| Ok(want.then(&checked(step)?, Some(carry)))))
    }
}

/// A question to a person or another service. It needs a [`then`](DynamicAsking::then).
#[must_use = "nobody is asked until `.then(step)` says who takes the answer, and the step returns that"]
pub struct DynamicAsking(Question);

impl DynamicAsking {
    /// The JSON Schema of the answer: an answer is checked against it before it is written. A schema that is none fails the run.
    pub fn schema(self, schema: impl Into<Value>) -> Self {
        Self(self.0.schema(schema.into()))
    }

    /// What the answerer needs to know beside the prompt.
    pub fn context<C: Serialize + ?Sized>(self, context: &C) -> Self {
        Self(self.0.with("context", context))
    }

    /// What programs between here and the answerer need: a queue, a priority, a language.
    pub fn metadata<M: Serialize + ?Sized>(self, metadata: &M) -> Self {
        Self(self.0.with("metadata", metadata))
    }

    /// The answer when nobody has answered after that long.
    pub fn or_after(self, delay: Duration, answer: impl Into<Value>) -> Self {
        Self(self.0.or_after(delay, &answer.into()))
    }

    /// As [`DynamicSuspend::carry`].
    pub fn carry(self, value: impl Into<Value>) -> DynamicCarrying {
        DynamicSuspend(self.0.want()).carry(value)
    }

    /// The step that takes the answer.
    pub fn then(self, step: impl Into<String>) -> DynamicNext {
        DynamicSuspend(self.0.want()).then(step)
    }
}

/// Named branches. It needs a [`join`](DynamicFork::join).
#[must_use = "no branch is opened until `.join(step)` says who takes the results, and the step returns that"]
pub struct DynamicFork {
    branches: Result<Vec<NewBranch>, Outcome>,
    rule: JoinRule,
}

impl DynamicFork {
    /// Another branch, which begins with this step.
    pub fn branch(self, name: impl Into<String>, step: impl Into<String>, input: impl Into<Value>) -> Self {
        let branches = self.branches.and_then(|mut branches| {
            branches.push(named_branch(&name.into(), &checked(step)?, &input.into())?);
            Ok(branches)
        });
        Self { branches, ..self }
    }

    /// As [`Fork::merge`](crate::Fork::merge).
    pub fn merge(mut self) -> Self {
        self.rule.merge = true;
        self
    }

    /// As [`Fork::fail_fast`](crate::Fork::fail_fast).
    pub fn fail_fast(mut self) -> Self {
        self.rule.policy = ForkPolicy::FailFast;
        self
    }

    /// The step that takes the results as an array in the order of the branches, once all of them are over. If one fails, the run
    /// fails.
    pub fn join(self, step: impl Into<String>) -> DynamicNext {
        self.joined(step, false)
    }

    /// As [`join`](Self::join), but the results are an object, by the names of the branches. Two of the same name fail the run.
    pub fn join_by_name(self, step: impl Into<String>) -> DynamicNext {
        self.joined(step, true)
    }

    /// As [`join`](Self::join), but a branch that fails is a result too: each is `{"ok": result}` or `{"failed": failure}`.
    pub fn collect(mut self, step: impl Into<String>) -> DynamicNext {
        self.rule.policy = ForkPolicy::Collect;
        self.joined(step, false)
    }

    /// As [`collect`](Self::collect), by name.
    pub fn collect_by_name(mut self, step: impl Into<String>) -> DynamicNext {
        self.rule.policy = ForkPolicy::Collect;
        self.joined(step, true)
    }

    fn joined(self, step: impl Into<String>, by_name: bool) -> DynamicNext {
        let rule = self.rule;
        let act = self.branches.and_then(|branches| {
            let carry = by_name.then(|| names(&branches)).transpose()?;
            Ok(Act::Fork { then: Frame { step: checked(step)?, carry }, branches, rule })
        });
        Next::of(act)
    }
}

fn names(branches: &[NewBranch]) -> Result<JsonText, Outcome> {
    let names: Vec<&str> = branches.iter().map(|branch| branch.name.as_str()).collect();
    if let Some(twice) = names.iter().enumerate().find_map(|(k, name)| names[..k].contains(name).then_some(name)) {
        return Err(Outcome::Limit(format!("two branches are named `{twice}`, and their results are wanted by name")));
    }
    carried(&serde_json::json!({NAMES: names}))
}

/// The input of a step: results that are wanted by name are put under their names.
pub(super) fn by_name(input: Value) -> Value {
    match input {
        Value::Array(mut pair) if pair.len() == 2 && pair[1].get(NAMES).is_some() => {
            let (names, results) = (pair.pop().unwrap_or_default(), pair.pop().unwrap_or_default());
            let (names, results) = (names[NAMES].as_array().cloned(), results.as_array().cloned());
            let names = names.into_iter().flatten().map(|name| name.as_str().unwrap_or_default().to_owned());
            Value::Object(names.zip(results.into_iter().flatten()).collect())
        }
        other => other,
    }
}

/// A carried value.
fn kept(value: &Value) -> Result<JsonText, Outcome> {
    if value.get(NAMES).is_some() {
        return Err(Outcome::Limit(format!("a carried value has no key `{NAMES}`")));
    }
    carried(value)
}

/// The name of a step, which may not be one of the engine's own.
fn checked(step: impl Into<String>) -> Result<String, Outcome> {
    let step = step.into();
    if is_name(&step) {
        return Ok(step);
    }
    Err(Outcome::Limit(format!("this cannot be the name of a step: {NAME_RULE}")))
}
