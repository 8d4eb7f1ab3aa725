//! Bringing together what branches have made of the state, when their run takes their results up.

use super::ctx::Ctx;
use super::flows::Served;
use super::taking_over::Stored;
use crate::domain::{JsonText, Ordinal, RunKey};
use crate::run::merge::Merge;
use crate::run::upgrade;
use crate::store::{BranchState, StoreError};

/// States of branches read at once: each has up to a mebibyte.
const STATES: i64 = 16;

/// What came of it.
pub(super) enum Merged {
    /// No branch has changed anything.
    Unchanged,
    /// This.
    Changed(JsonText),
    /// Two branches changed one thing differently.
    Conflict(String),
    /// The state of a branch is of a version that cannot be taken over.
    Refused(String),
    /// A branch has gone on under a newer version than this node has: another node is to merge it.
    Newer,
    /// It could not be read: the run is to be forgotten.
    Lost,
}

/// Merges the states of a fork's branches into the run's. A branch that ended under another version than the run is at now has its
/// state upgraded first.
pub(super) async fn merge(
    ctx: &Ctx,
    served: &Served,
    run: RunKey,
    fork: Ordinal,
    base: Option<JsonText>,
    stored: &Stored<'_>,
) -> Merged {
    match merged(ctx, served, run, fork, base, stored).await {
        Ok(merged) => merged,
        Err(error) => {
            tracing::warn!(run = run.0, %error, "what branches left could not be read");
            Merged::Lost
        }
    }
}

async fn merged(
    ctx: &Ctx,
    served: &Served,
    run: RunKey,
    fork: Ordinal,
    base: Option<JsonText>,
    stored: &Stored<'_>,
) -> Result<Merged, StoreError> {
    let (mut merge, mut from) = (Merge::new(base.unwrap_or_else(JsonText::null)), 0);
    loop {
        let branches = ctx.store().states(run, fork, from, STATES).await?;
        let Some(last) = branches.last() else {
            return Ok(merge.finish().map_or(Merged::Unchanged, Merged::Changed));
        };
        from = last.branch + 1;
        if branches.iter().any(|branch| branch.version > served.flow.manifest().version) {
            return Ok(Merged::Newer);
        }
        for branch in branches {
            let state = match of_this_version(ctx, served, &branch, stored) {
                Ok(state) => state,
                Err(why) => return Ok(Merged::Refused(format!("the state of branch `{}`: {why}", branch.name))),
            };
            if let Some(state) = state
                && let Err(conflict) = merge.add(&branch.name, &state)
            {
                return Ok(Merged::Conflict(conflict.to_string()));
            }
        }
    }
}

fn of_this_version(
    ctx: &Ctx,
    served: &Served,
    branch: &BranchState,
    stored: &Stored<'_>,
) -> Result<Option<JsonText>, String> {
    if branch.workflow == served.key {
        return Ok(branch.state.clone());
    }
    let Some(its) = ctx.shared.flows.get(branch.workflow).filter(|its| its.key == served.key) else {
        return Err(format!("it is of a version that version {} does not take over", served.flow.manifest().version));
    };
    upgrade::state(&*served.flow, its.version, stored.run_id, &branch.step, branch.state.as_ref(), stored.input)
}
