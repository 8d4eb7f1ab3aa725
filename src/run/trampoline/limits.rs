//! The limits of a transition. Each is checked where a value is built as well; here they hold for every flow, typed or not.

use crate::domain::limits::{
    BRANCHES, CARRY_BYTES, EVENTS_PER_RUN, RECORDS_PER_STEP, STACK_BYTES, STACK_FRAMES, STATE_BYTES,
};
use crate::domain::{Change, EventType, JsonText, Position, Transition};

/// Which limit it breaks, in words for people. A failure breaks none: a run must always be able to end. So the ledger of a
/// run that failed at the limit of events is longer than it by what ended it.
pub(super) fn broken(transition: &Transition) -> Option<String> {
    let position = match &transition.change {
        Change::Continue(position)
        | Change::Release { position, .. }
        | Change::Suspend { position, .. }
        | Change::Fork { position, .. } => Some(position),
        Change::Complete(_) => None,
        Change::Fail(_) | Change::Park(_) => return None,
    };
    if let Change::Fork { branches, .. } = &transition.change
        && !BRANCHES.contains(&branches.len())
    {
        let (least, most) = (BRANCHES.start(), BRANCHES.end());
        return Some(format!("a fork has {least} to {most} branches, this one {}", branches.len()));
    }
    let state = transition.state.as_ref().map_or(0, |state| state.as_str().len());
    if state > STATE_BYTES {
        return Some(format!("the state has {state} bytes of JSON, at most {STATE_BYTES} are allowed"));
    }
    let records = transition.events.iter().filter(|event| event.kind == EventType::Custom).count();
    if records > RECORDS_PER_STEP {
        return Some(format!("a step may record at most {RECORDS_PER_STEP} events, this one recorded {records}"));
    }
    if transition.next_cursor() > EVENTS_PER_RUN {
        return Some(format!("a run may have at most {EVENTS_PER_RUN} events"));
    }
    if let Change::Suspend { position: Position { arg: Some(carry), .. }, .. } = &transition.change
        && let Some(message) = too_heavy(carry)
    {
        return Some(message);
    }
    position.and_then(too_deep)
}

fn too_heavy(carry: &JsonText) -> Option<String> {
    let bytes = carry.as_str().len();
    (bytes > CARRY_BYTES)
        .then(|| format!("a carried value has {bytes} bytes of JSON, at most {CARRY_BYTES} are allowed"))
}

fn too_deep(position: &Position) -> Option<String> {
    let frames = position.stack.len();
    if frames > STACK_FRAMES {
        return Some(format!("calls are nested {frames} deep, at most {STACK_FRAMES} are allowed"));
    }
    let mut sum = 0;
    for carry in position.stack.iter().filter_map(|frame| frame.carry.as_ref()) {
        if let Some(message) = too_heavy(carry) {
            return Some(message);
        }
        sum += carry.as_str().len();
    }
    (sum > STACK_BYTES).then(|| {
        format!("the values carried by open calls have {sum} bytes of JSON, at most {STACK_BYTES} are allowed")
    })
}
