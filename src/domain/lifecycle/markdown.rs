//! The tables of `docs/lifecycle.md`.

use super::{BatchMove, CallMove, ItemMove, Move, RunMove, WaitMove};
#[cfg(test)]
use crate::domain::EventType;
use std::fmt::Write;

const HEAD: &str = "# Who moves what

Printed by a test from `domain::lifecycle`: edit it there, and write this file anew with

    UPDATE_DOCS=1 cargo test -p longhaul --lib lifecycle

Runs, waits, batches, items and live calls change only as these tables say. A row of the first table of each is one named statement of the
store, below `src/store/`; *rises* is the fence of the row. In the second table a cell is the status that the move leads to, and an
empty cell cannot happen: the statement changes no row there, and that is its answer.

An *owned* move of a run names its fence and its cursor and goes through the committer. All others are guarded by what they
change from. Steps may record events of their own before those of an owned move.
";

/// The tables, as `docs/lifecycle.md` holds them.
pub fn to_markdown() -> String {
    let mut out = HEAD.to_owned();
    machine::<RunMove>(&mut out, "Runs");
    machine::<WaitMove>(&mut out, "Waits");
    machine::<BatchMove>(&mut out, "Batches");
    machine::<ItemMove>(&mut out, "Items");
    machine::<CallMove>(&mut out, "Live calls");
    out
}

// Writing to a string does not fail, so what `write!` answers is left.
fn machine<M: Move>(out: &mut String, title: &str) {
    let _ = write!(out, "\n## {title}\n\n| Move | Statement | Who | Fence | Events | |\n|---|---|---|---|---|---|\n");
    for rule in M::ALL.iter().map(|step| step.rule()) {
        let fence = if rule.fence_rises { "rises" } else { "" };
        let events: Vec<String> = rule.events.iter().map(|event| format!("`{event}`")).collect();
        let (by, events) = (rule.by.as_str(), events.join(", "));
        let _ = writeln!(out, "| {} | `{}` | {by} | {fence} | {events} | {} |", rule.name, rule.statement, rule.note);
    }
    matrix::<M>(out);
}

fn matrix<M: Move>(out: &mut String) {
    let _ = write!(out, "\n| | (none) |");
    for status in M::STATUSES {
        let _ = write!(out, " {status} |");
    }
    let _ = writeln!(out, "\n|---{}|", "|---".repeat(M::STATUSES.len() + 1));
    for step in M::ALL {
        let _ = write!(out, "| {} |", step.rule().name);
        for from in std::iter::once(None).chain(M::STATUSES.iter().copied().map(Some)) {
            let to: Vec<String> = step.apply(from).unwrap_or_default().iter().map(ToString::to_string).collect();
            let _ = write!(out, " {} |", to.join(", "));
        }
        out.push('\n');
    }
}

/// The events that no move of this version writes: they are kept for what is to come.
#[cfg(test)]
pub(super) fn unwritten() -> Vec<EventType> {
    let runs = RunMove::ALL.iter().flat_map(|m| m.rule().events);
    let waits = WaitMove::ALL.iter().flat_map(|m| m.rule().events);
    let written: Vec<EventType> = runs.chain(waits).copied().collect();
    EventType::ALL.iter().copied().filter(|event| !written.contains(event)).collect()
}
