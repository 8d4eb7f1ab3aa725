//! Upgrading a held run of an older version, before its step: thought out in memory, committed in one fenced statement.

use super::ctx::Ctx;
use super::flows::Served;
use crate::domain::{JsonText, Position};
use crate::run::builtin;
use crate::run::flow::Part;
use crate::run::trampoline::{self, Held};
use crate::run::upgrade::{self, After, Before};
use crate::store::{UPGRADE_EVENTS, Upgrade};

/// What is known of a run beside where it is and what it remembers.
pub(super) struct Stored<'a> {
    pub run_id: &'a str,
    pub input: &'a JsonText,
    /// The answer that it takes.
    pub answer: Option<&'a JsonText>,
    /// What was asked, for the engine's own steps.
    pub asked: Option<&'a JsonText>,
}

/// What came of it.
pub(super) enum Upgraded {
    /// It is durable: this is what is held now, and its state.
    Held(Box<Held>, Option<JsonText>),
    /// The run cannot be taken over: it is to be parked with this reason.
    Refused(String),
    /// The run is not ours any more, or it is not known whether the upgrade is in: it is to be forgotten.
    Lost,
}

/// Makes a held run one of the flow's own version.
pub(super) async fn upgrade(
    ctx: &Ctx,
    served: &Served,
    held: &Held,
    state: Option<&JsonText>,
    stored: &Stored<'_>,
) -> Upgraded {
    let (from, to) = (served.version, served.flow.manifest().version);
    let after = match think(served, held, state, stored) {
        Ok(after) => after,
        Err(why) => return Upgraded::Refused(format!("the upgrade from version {from} to {to}: {why}")),
    };
    let written = Upgrade {
        run: held.run,
        fence: held.fence,
        cursor: held.cursor,
        workflow: served.key,
        from,
        to,
        was: &held.position.step,
        position: &after.position,
        state: after.state.as_ref(),
    };
    match ctx.store().upgrade(written).await {
        Ok(true) => {
            let cursor = held.cursor + UPGRADE_EVENTS;
            let held = Held { cursor, position: after.position, ..held.clone() };
            Upgraded::Held(Box::new(held), after.state)
        }
        Ok(false) => Upgraded::Lost,
        Err(error) => {
            // Whether it is in or not, the row says where to go on; until then it is not held.
            tracing::warn!(run = held.run.0, %error, "an upgrade was not answered: its run is released as not held");
            Upgraded::Lost
        }
    }
}

fn think(served: &Served, held: &Held, state: Option<&JsonText>, stored: &Stored<'_>) -> Result<After, String> {
    let flow = &*served.flow;
    let before = Before {
        from: served.version,
        run_id: stored.run_id,
        position: &held.position,
        state,
        input: stored.input,
        answered: stored.answer.is_some(),
    };
    let after = upgrade::apply(flow, before)?;
    let Position { step, arg, .. } = resumed(after.position.clone(), stored);
    if builtin::find(&step).is_none()
        && let Some(why) = flow.misfit(Part::Arg(&step), arg.as_ref())
    {
        return Err(format!("step `{step}`: {why}"));
    }
    Ok(after)
}

/// Where the run goes on, with its answer if it takes one.
pub(super) fn resumed(position: Position, stored: &Stored<'_>) -> Position {
    match stored.answer {
        Some(answer) => trampoline::resume(position, answer, stored.asked),
        None => position,
    }
}
