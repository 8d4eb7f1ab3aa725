//! Runs of older versions: what `upgrade` is given of them, and what is checked of what it returns.
//!
//! Pure, like the trampoline: whoever holds a run, and the check that looks at all of them, take the same way.

use super::builtin;
use super::flow::{Flow, Manifest, Part};
use super::typed::panic_text;
use crate::domain::limits::{CARRY_BYTES, STACK_FRAMES, STATE_BYTES};
use crate::domain::{Frame, JsonText, Position};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A run in flight, as an upgrade sees it: where it is, what it carries and what it remembers. What is left as it is stays as
/// it was stored, to the byte.
///
/// `arg` is the input of `step`. If the run was waiting ([`InFlight::answered`]), the step gets the answer, which stays what it
/// is, and `arg` is what it gets beside it: with `Some`, the pair of both.
///
/// ```
/// # use longhaul::{Caller, InFlight};
/// let mut moved = InFlight::at("drafted");
/// moved.stack.push(Caller::new("judged"));
/// moved.rename("judged", "reviewed");
/// assert_eq!(moved.stack[0].step, "reviewed");
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InFlight {
    /// The step that comes next.
    pub step: String,
    /// Its input, or what it gets beside an answer; `None` is no value, or `null`.
    pub arg: Option<Value>,
    /// The state; `None` as long as no step has changed it, which is the default of its type.
    pub state: Option<Value>,
    /// Who continues when the present call finishes; the last is the innermost.
    pub stack: Vec<Caller>,
    run_id: Arc<str>,
    input: JsonText,
    answered: bool,
}

/// A step that waits for the result of a call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Caller {
    /// The step that takes the result.
    pub step: String,
    /// What it gets beside the result: with `Some`, the pair of both.
    pub carry: Option<Value>,
}

impl Caller {
    /// A step that takes the result alone.
    pub fn new(step: impl Into<String>) -> Self {
        Self { step: step.into(), carry: None }
    }
}

impl InFlight {
    /// A run at a step, with nothing else to it: for tests of an upgrade.
    pub fn at(step: impl Into<String>) -> Self {
        let (step, run_id, input) = (step.into(), "in-flight".into(), JsonText::null());
        Self { step, arg: None, state: None, stack: Vec::new(), run_id, input, answered: false }
    }

    /// The run's id.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The run's input, which no upgrade can change.
    ///
    /// # Errors
    /// What serde says when the type does not fit.
    pub fn input<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.input.read()
    }

    /// Whether the step gets an answer that the run was waiting for, with `arg` beside it.
    pub fn answered(&self) -> bool {
        self.answered
    }

    /// Gives a step another name, wherever the run mentions it.
    pub fn rename(&mut self, from: &str, to: &str) {
        let callers = self.stack.iter_mut().map(|caller| &mut caller.step);
        for step in callers.chain([&mut self.step]).filter(|step| **step == from) {
            to.clone_into(step);
        }
    }
}

/// A run before its upgrade, as it is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before<'a> {
    pub(crate) from: u32,
    pub(crate) run_id: &'a str,
    pub(crate) position: &'a Position,
    pub(crate) state: Option<&'a JsonText>,
    pub(crate) input: &'a JsonText,
    pub(crate) answered: bool,
}

/// A run after its upgrade, as it is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct After {
    pub(crate) position: Position,
    pub(crate) state: Option<JsonText>,
}

/// The state of a run that is over, as the flow's own version would have it: that of a branch whose run goes on under another version.
pub(crate) fn state(
    flow: &dyn Flow,
    from: u32,
    run_id: &str,
    step: &str,
    state: Option<&JsonText>,
    input: &JsonText,
) -> Result<Option<JsonText>, String> {
    let position = Position { step: step.to_owned(), arg: None, stack: Vec::new() };
    let before = Before { from, run_id, position: &position, state, input, answered: false };
    let moved = in_flight(before).map_err(|why| format!("what is stored cannot be read: {why}"))?;
    let was = moved.clone();
    match catch_unwind(AssertUnwindSafe(|| flow.upgrade(from, moved))) {
        Ok(Ok(now)) => Ok(written(before, &was, now)?.state),
        Ok(Err(error)) => Err(error.message().to_owned()),
        Err(panic) => Err(format!("it panicked: {}", panic_text(panic.as_ref()))),
    }
}

/// Passes a run through the upgrade of a flow. `Err` is why it cannot be taken over, for people. Whether the input of its step
/// fits is for the caller to see, who knows the answer.
pub(crate) fn apply(flow: &dyn Flow, before: Before<'_>) -> Result<After, String> {
    let moved = in_flight(before).map_err(|why| format!("what is stored cannot be read: {why}"))?;
    let was = moved.clone();
    let now = match catch_unwind(AssertUnwindSafe(|| flow.upgrade(before.from, moved))) {
        Ok(Ok(now)) => now,
        Ok(Err(error)) => return Err(error.message().to_owned()),
        Err(panic) => return Err(format!("it panicked: {}", panic_text(panic.as_ref()))),
    };
    let after = written(before, &was, now)?;
    if let Some(unknown) = unknown_step(flow.manifest(), &after.position) {
        return Err(format!("it leads to step `{unknown}`, which version {} does not have", flow.manifest().version));
    }
    match flow.misfit(Part::Input, Some(before.input)).or_else(|| flow.misfit(Part::State, after.state.as_ref())) {
        Some(why) => Err(why),
        None => Ok(after),
    }
}

/// The first step, where the run is or where it comes back to, that a version does not have.
pub(crate) fn unknown_step<'p>(manifest: &Manifest, position: &'p Position) -> Option<&'p str> {
    let callers = position.stack.iter().rev().map(|frame| frame.step.as_str());
    std::iter::once(position.step.as_str()).chain(callers).find(|step| !knows(manifest, step))
}

/// Whether a step is one of the version's, or of the engine's own.
pub(crate) fn knows(manifest: &Manifest, step: &str) -> bool {
    manifest.step(step).is_some() || builtin::find(step).is_some()
}

fn in_flight(before: Before<'_>) -> Result<InFlight, serde_json::Error> {
    let read = |text: Option<&JsonText>| text.map(JsonText::read::<Value>).transpose();
    let caller = |frame: &Frame| Ok(Caller { step: frame.step.clone(), carry: read(frame.carry.as_ref())? });
    Ok(InFlight {
        step: before.position.step.clone(),
        arg: read(before.position.arg.as_ref())?,
        state: read(before.state)?,
        stack: before.position.stack.iter().map(caller).collect::<Result<_, serde_json::Error>>()?,
        run_id: before.run_id.into(),
        input: before.input.clone(),
        answered: before.answered,
    })
}

/// The texts of a moved run: the stored one wherever the value is the same.
fn written(before: Before<'_>, was: &InFlight, now: InFlight) -> Result<After, String> {
    let text = |was: Option<&Value>, stored: Option<&JsonText>, now: Option<&Value>, what, limit| {
        if was == now {
            return Ok(stored.cloned());
        }
        now.map(|value| JsonText::of(value, what, limit)).transpose().map_err(|why| why.to_string())
    };
    if now.stack.len() > STACK_FRAMES {
        return Err(format!("at most {STACK_FRAMES} calls may be open"));
    }
    let carry = |(place, caller): (usize, Caller)| {
        let (old, stored) = (was.stack.get(place), before.position.stack.get(place));
        let (old, stored) = (old.and_then(|c| c.carry.as_ref()), stored.and_then(|f| f.carry.as_ref()));
        let carry = text(old, stored, caller.carry.as_ref(), "a carried value", CARRY_BYTES)?;
        Ok(Frame { step: caller.step, carry })
    };
    let stored = before.position.arg.as_ref();
    let arg = text(was.arg.as_ref(), stored, now.arg.as_ref(), "the input of the step", CARRY_BYTES)?;
    let state = text(was.state.as_ref(), before.state, now.state.as_ref(), "the state", STATE_BYTES)?;
    let stack = now.stack.into_iter().enumerate().map(carry).collect::<Result<_, String>>()?;
    Ok(After { position: Position { step: now.step, arg, stack }, state })
}

#[cfg(test)]
mod tests;
