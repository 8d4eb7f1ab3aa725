//! Whether one run could go on. Pure.

use super::known::{Given, Known};
use super::report::Reason;
use crate::domain::{JsonText, Position, WaitKind};
use crate::run::flow::{Manifest, Part};
use crate::run::upgrade::{self, After, Before};
use crate::run::{Reply, trampoline};
use crate::store::{Flying, Stored};

/// What was seen of a run.
pub(super) enum Seen {
    /// It can go on, as far as anybody can tell.
    Fits,
    /// It would be taken over, but only a manifest says so.
    Unread,
    /// It could not, for these reasons.
    Stuck(Vec<(Reason, String)>),
}

pub(super) fn look(known: &Known, run: &Flying) -> Seen {
    let Some(given) = known.server(&run.workflow, run.version) else {
        return Seen::Stuck(vec![nobody(known, run)]);
    };
    let Some(stored) = &run.stored else {
        return Seen::Stuck(vec![(Reason::Unreadable, "its stored input or stack cannot be read".into())]);
    };
    if given.manifest().version == run.version {
        let Stored { position, state, .. } = stored;
        return judged(as_it_is(given, position, state.as_ref(), stored));
    }
    if !given.decodes {
        return Seen::Unread;
    }
    let before = Before {
        from: run.version,
        run_id: &run.run_id,
        position: &stored.position,
        state: stored.state.as_ref(),
        input: &stored.input,
        answered: stored.wait.is_some(),
    };
    match upgrade::apply(&*given.flow, before) {
        Ok(After { position, state }) => judged(as_it_is(given, &position, state.as_ref(), stored)),
        Err(why) => Seen::Stuck(vec![(Reason::Upgrade, why)]),
    }
}

fn judged(reasons: Vec<(Reason, String)>) -> Seen {
    if reasons.is_empty() { Seen::Fits } else { Seen::Stuck(reasons) }
}

fn nobody(known: &Known, run: &Flying) -> (Reason, String) {
    let versions: Vec<String> = known.versions(&run.workflow).iter().map(ToString::to_string).collect();
    if versions.is_empty() {
        return (Reason::Workflow, "no workflow of this name is there".into());
    }
    (Reason::Version, format!("version {} is there, and does not take this one over", versions.join(" and ")))
}

/// What is wrong with a run of the flow's own version.
fn as_it_is(given: &Given, position: &Position, state: Option<&JsonText>, stored: &Stored) -> Vec<(Reason, String)> {
    let (flow, manifest) = (&*given.flow, given.manifest());
    let mut wrong = Vec::new();
    let mut note = |reason: Reason, why: Option<String>| wrong.extend(why.map(|why| (reason, why)));
    note(Reason::Step, unknown(manifest, position));
    note(Reason::Input, flow.misfit(Part::Input, Some(&stored.input)));
    note(Reason::State, flow.misfit(Part::State, state));
    note(Reason::Arg, arg(given, position, stored));
    for frame in position.stack.iter().rev() {
        let carried = frame.carry.as_ref().and_then(|carry| given.schemas.second_misfit(&frame.step, carry));
        note(Reason::Arg, carried.map(|why| format!("what is carried to step `{}`: {why}", frame.step)));
    }
    wrong
}

fn unknown(manifest: &Manifest, position: &Position) -> Option<String> {
    let step = upgrade::unknown_step(manifest, position)?;
    let version = manifest.version;
    Some(if step == position.step {
        format!("version {version} has no such step")
    } else {
        format!("it comes back to step `{step}`, which version {version} does not have")
    })
}

/// What of the step's input does not fit, as far as its answer is known.
fn arg(given: &Given, position: &Position, stored: &Stored) -> Option<String> {
    let (flow, step) = (&*given.flow, position.step.as_str());
    // The engine's own steps read what they wrote.
    flow.manifest().step(step)?;
    let fits = |answer: &JsonText| {
        let at = trampoline::resume(position.clone(), answer, None);
        flow.misfit(Part::Arg(step), at.arg.as_ref())
    };
    match (stored.wait, &stored.answer) {
        (None, _) => flow.misfit(Part::Arg(step), position.arg.as_ref()),
        (Some(_), Some(answer)) => fits(answer),
        (Some(WaitKind::Timer), None) => fits(&JsonText::null()),
        // Any reply is like any other.
        (Some(WaitKind::Model), None) => fits(&Reply::of_text("").into_json()),
        (Some(_), None) => given.schemas.second_misfit(step, position.arg.as_ref()?),
    }
}
