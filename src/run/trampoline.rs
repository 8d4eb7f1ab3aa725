//! The trampoline: from what a step asked for to what is to be committed. Pure; nothing here waits, reads a clock or
//! touches a database, so a node and a rehearsal bounce on the very same one.
//!
//! One bounce: [`admit`] says whether the step may run; its user code runs elsewhere; [`settle`] turns the outcome into one
//! [`Transition`]; once that is durable, [`advance`] says what the holder holds now. A run that is released, suspended or
//! over is held no longer.

mod limits;
mod payload;
#[cfg(test)]
mod program;
#[cfg(test)]
mod tests;

use super::builtin;
use super::flow::{Act, Executed, Manifest, Outcome, StepInfo};
use crate::domain::{Change, EventType, Failure, FailureCode, Fence, Frame, JsonText, NewEvent, Ordinal};
use crate::domain::{Position, RunKey, Transition, WaitKind};
use payload::{Asked, Completed, Failed, Halted, Mark, Opened, Parked};
pub(super) use payload::{Ended, Started, event};
use std::time::Duration;

/// What the holder of a run knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    /// Which run.
    pub(crate) run: RunKey,
    /// The run that waits for it, if it is a branch.
    pub(crate) parent: Option<RunKey>,
    /// The fence that its claim gave.
    pub(crate) fence: Fence,
    /// How many events its ledger has.
    pub(crate) cursor: Ordinal,
    /// Where it is.
    pub(crate) position: Position,
    /// How often the present step has failed so far.
    pub(crate) errors: u32,
    /// How often the present step was started without an outcome, this start included.
    pub(crate) starts: u32,
}

/// Whether the step that `held` is at may run. `Err` is what to commit instead: a run whose step is unknown here is parked,
/// one that took its process down too often fails.
pub(crate) fn admit<'m>(manifest: &'m Manifest, held: &Held) -> Result<&'m StepInfo, Box<Transition>> {
    let step = held.position.step.as_str();
    let Some(info) = manifest.step(step).or_else(|| builtin::find(step)) else {
        let reason =
            format!("workflow `{}` version {} has no step `{step}` on this node", manifest.workflow, manifest.version);
        return Err(Box::new(park(held, "unknown-step", reason)));
    };
    if held.starts > info.policy.crash_limit {
        let text = format!("started {} times, and its process died each time", held.starts - 1);
        return Err(Box::new(fail(held, Failure::new(FailureCode::CrashLoop, step, text))));
    }
    Ok(info)
}

/// What a step gets when something answers: the answer; with a value carried to it, the pair of both.
pub(crate) fn resume_arg(carry: Option<&JsonText>, answer: Option<&JsonText>) -> Option<JsonText> {
    match (carry, answer) {
        (None, answer) => answer.cloned(),
        (Some(carry), Some(answer)) => Some(answer.pair(carry)),
        (Some(carry), None) => Some(JsonText::null().pair(carry)),
    }
}

/// Where a run goes on with an answer. The engine's own steps get the request beside it.
pub(crate) fn resume(position: Position, answer: &JsonText, request: Option<&JsonText>) -> Position {
    let carry = position.arg.as_ref();
    let arg = match (builtin::find(&position.step), request) {
        (Some(_), Some(request)) => Some(builtin::heard_arg(answer, request, carry)),
        _ => resume_arg(carry, Some(answer)),
    };
    Position { arg, ..position }
}

/// What is to be committed after a step's user code has run for `took`. With `more`, the holder keeps its slot and the
/// start of the next step travels along; without, it lets go. `spread` is a random number in `0.0..1.0` for the backoff.
pub(crate) fn settle(
    held: &Held,
    info: &StepInfo,
    executed: Executed,
    took: Duration,
    more: bool,
    spread: f64,
) -> Transition {
    let Executed { outcome, state, records } = executed;
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let settled = match outcome {
        Outcome::Done(act) => done(held, act, state, records, us, more),
        Outcome::Error { message, fatal: true } => last(held, FailureCode::StepFatal, message, records, us),
        Outcome::Error { message, fatal: false } => {
            retried(held, info, FailureCode::StepError, message, records, us, spread)
        }
        Outcome::TimedOut => {
            let message = format!("ran longer than its timeout of {:?}", info.policy.timeout.unwrap_or_default());
            retried(held, info, FailureCode::StepTimeout, message, records, us, spread)
        }
        Outcome::Panic(message) => last(held, FailureCode::StepPanic, message, records, us),
        Outcome::Undecodable(message) => last(held, FailureCode::Undecodable, message, records, us),
        Outcome::Limit(message) => last(held, FailureCode::LimitExceeded, message, records, us),
    };
    match limits::broken(&settled) {
        None => settled,
        Some(message) => last(held, FailureCode::LimitExceeded, message, Vec::new(), us),
    }
}

/// What is held after a committed transition, if it still is.
pub(crate) fn advance(held: Held, transition: Transition) -> Option<Held> {
    let cursor = transition.next_cursor();
    match transition.change {
        Change::Continue(position) => Some(Held { cursor, position, errors: 0, starts: 1, ..held }),
        Change::Release { .. }
        | Change::Suspend { .. }
        | Change::Fork { .. }
        | Change::Complete(_)
        | Change::Fail(_)
        | Change::Park(_) => None,
    }
}

/// Ends the run with a failure that no step's outcome brought about: it cannot be loaded, or its transition was refused.
pub(crate) fn fail(held: &Held, failure: Failure) -> Transition {
    let step = held.position.step.as_str();
    let failure = Failure { step: step.to_owned(), ..failure };
    let code = failure.code.as_str();
    let failed = Failed { step, code, attempt: held.errors.saturating_add(1), us: None, retry_ms: None };
    let events = vec![event(EventType::StepFailed, &failed), event(EventType::RunFailed, &Ended { step, code })];
    transition(held, Change::Fail(failure), None, events)
}

/// Holds the run back for an operator: this node lacks something that the run needs.
pub(crate) fn park(held: &Held, code: &'static str, reason: String) -> Transition {
    let parked = event(EventType::RunParked, &Parked { step: &held.position.step, code });
    transition(held, Change::Park(reason), None, vec![parked])
}

fn transition(held: &Held, change: Change, state: Option<JsonText>, events: Vec<NewEvent>) -> Transition {
    Transition { run: held.run, parent: held.parent, fence: held.fence, cursor: held.cursor, change, state, events }
}

/// The step returned: records, `step.completed`, and what follows from it.
fn done(held: &Held, act: Act, state: Option<JsonText>, records: Vec<NewEvent>, us: u64, more: bool) -> Transition {
    let mut events = records;
    let mark = state.as_ref().map(Mark::of);
    let mut completed = |flow: &'static str, next: Option<&str>| {
        let step = held.position.step.as_str();
        events.push(event(EventType::StepCompleted, &Completed { step, flow, next, us, state: mark.as_ref() }));
    };
    let mut stack = held.position.stack.clone();
    let position = match act {
        Act::Goto { step, arg } => {
            completed("goto", Some(&step));
            Position { step: step.into_owned(), arg, stack }
        }
        Act::Call { step, arg, then } => {
            completed("call", Some(&step));
            stack.push(then);
            Position { step: step.into_owned(), arg, stack }
        }
        Act::Finish(value) => match stack.pop() {
            Some(Frame { step, carry }) => {
                completed("finish", Some(&step));
                Position { step, arg: resume_arg(carry.as_ref(), Some(&value)), stack }
            }
            None => {
                completed("complete", None);
                events.push(event(EventType::RunCompleted, &Mark::of(&value)));
                return transition(held, Change::Complete(value), state, events);
            }
        },
        Act::Halt(_) if held.parent.is_some() => {
            let text = "a branch cannot halt the run: it ends with its own result".to_owned();
            return last(held, FailureCode::LimitExceeded, text, Vec::new(), us);
        }
        Act::Halt(output) => {
            completed("halt", None);
            events.push(event(EventType::RunCompleted, &Halted { output: Mark::of(&output), dropped: stack.len() }));
            return transition(held, Change::Complete(output), state, events);
        }
        Act::Fork { branches, rule, then: Frame { step, carry } } => {
            completed("fork", Some(&step));
            events.push(event(EventType::ForkOpened, &Opened { branches: branches.len(), rule }));
            let position = Position { step, arg: carry, stack };
            return transition(held, Change::Fork { position, branches, rule }, state, events);
        }
        Act::Suspend { wait, then: Frame { step, carry }, under } => {
            completed("suspend", Some(&step));
            stack.extend(under);
            events.push(event(asked(wait.kind), &Asked::of(&wait)));
            let position = Position { step, arg: carry, stack };
            return transition(held, Change::Suspend { position, wait }, state, events);
        }
    };
    if more {
        events.push(event(EventType::StepStarted, &Started { step: &position.step, attempt: 1 }));
        return transition(held, Change::Continue(position), state, events);
    }
    transition(held, Change::Release { position, delay: Duration::ZERO, errors: 0 }, state, events)
}

/// The step failed: it is tried again as long as its policy has attempts left. What it recorded goes with the attempt.
fn retried(
    held: &Held,
    info: &StepInfo,
    code: FailureCode,
    message: String,
    records: Vec<NewEvent>,
    us: u64,
    spread: f64,
) -> Transition {
    let errors = held.errors.saturating_add(1);
    if errors >= info.policy.attempts {
        return last(held, code, message, records, us);
    }
    let delay = info.policy.backoff.after(errors, spread);
    let retry_ms = Some(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
    let failed = Failed { step: &info.name, code: code.as_str(), attempt: errors, us: Some(us), retry_ms };
    let events = vec![event(EventType::StepFailed, &failed)];
    transition(held, Change::Release { position: held.position.clone(), delay, errors }, None, events)
}

/// The event that opens a wait.
fn asked(kind: WaitKind) -> EventType {
    match kind {
        WaitKind::Model => EventType::ModelAsked,
        WaitKind::Human => EventType::HumanAsked,
        WaitKind::External => EventType::ExternalAsked,
        WaitKind::Timer => EventType::TimerSet,
        // No step can ask for these by a suspension.
        WaitKind::Tools | WaitKind::Fork | WaitKind::Unknown(_) => EventType::Custom,
    }
}

/// The step failed for good: records, `step.failed`, `run.failed`. The stored state stays the last durable one.
fn last(held: &Held, code: FailureCode, message: String, records: Vec<NewEvent>, us: u64) -> Transition {
    let step = held.position.step.as_str();
    let failure = Failure::new(code, step, message);
    let code = code.as_str();
    let failed = Failed { step, code, attempt: held.errors.saturating_add(1), us: Some(us), retry_ms: None };
    let mut events = records;
    events.push(event(EventType::StepFailed, &failed));
    events.push(event(EventType::RunFailed, &Ended { step, code }));
    transition(held, Change::Fail(failure), None, events)
}
