//! Waits: whether each belongs to its run, and whether something will end it.

use super::Limits;
use super::report::{Check, Report};
use super::runs::Page;
use crate::domain::{BatchStatus, EventType, ItemStatus, RunStatus, WaitKind, WaitStatus};
use crate::store::audit::{Place, Range, RunRow, Snapshot, WaitRow};
use crate::store::{Code, StoreError};
use std::collections::HashMap;

/// The waits that runs are suspended on: why nothing will end one is its error.
pub(super) type Waits = HashMap<Place, Result<(), String>>;

pub(super) async fn read(
    snapshot: &mut Snapshot<'_>,
    range: Range,
    limits: Limits,
    page: &Page,
    report: &mut Report,
) -> Result<Waits, StoreError> {
    let mut waits = Waits::new();
    let mut after = (range.after, i32::MAX);
    loop {
        let rows = snapshot.waits(after, range.through, limits.rows).await?;
        report.waits += rows.len() as u64;
        for row in &rows {
            let run = page.run(row.run);
            judge(row, run, report);
            if run.is_some_and(|run| run.wait == Some(row.ordinal)) {
                waits.insert((row.run, row.ordinal), hope(row));
            }
        }
        match rows.last() {
            Some(last) if rows.len() as i64 >= limits.rows => after = (last.run, last.ordinal),
            _ => return Ok(waits),
        }
    }
}

fn judge(row: &WaitRow, run: Option<&RunRow>, report: &mut Report) {
    let subject = || format!("run {} wait {}", row.run, row.ordinal);
    match run {
        None => report.add(Check::WaitAgrees, subject, "belongs to no run"),
        Some(run) => {
            if let Some(wrong) = forsaken(row, run) {
                report.add(Check::WaitAgrees, subject, wrong);
            }
        }
    }
    if !row.has_request {
        report.add(Check::BodiesPresent, subject, "has no request");
    }
    if let Some(wrong) = unanswered(row) {
        report.add(Check::ItemsBookedOnce, subject, wrong);
    }
}

/// Whether its run does not wait on it, though it is not over; or no event opened it.
fn forsaken(row: &WaitRow, run: &RunRow) -> Option<String> {
    let model = WaitKind::decode(row.kind) == WaitKind::Model;
    if model && row.opened_by != Some(EventType::ModelAsked.code()) {
        return Some(format!("was opened by no `{}`", EventType::ModelAsked));
    }
    let (status, of_run) = (WaitStatus::decode(row.status), RunStatus::decode(run.status));
    let here = run.wait == Some(row.ordinal);
    let right = match status {
        // Nobody is to take up what a canceled run asked.
        WaitStatus::Open if of_run == RunStatus::Canceled => false,
        WaitStatus::Open | WaitStatus::Reserved | WaitStatus::Sent => match of_run {
            RunStatus::Waiting | RunStatus::Parked => here,
            // What is at the provider comes back, and changes nothing.
            RunStatus::Canceled | RunStatus::Unknown(_) => true,
            RunStatus::Runnable | RunStatus::Owned | RunStatus::Completed | RunStatus::Failed => false,
        },
        WaitStatus::Answered => match of_run {
            // A run that waits on an answered wait is stuck, which is another finding.
            RunStatus::Runnable | RunStatus::Parked | RunStatus::Waiting => here,
            RunStatus::Canceled | RunStatus::Unknown(_) => true,
            RunStatus::Owned | RunStatus::Completed | RunStatus::Failed => false,
        },
        WaitStatus::Applied
        | WaitStatus::Failed
        | WaitStatus::Expired
        | WaitStatus::Canceled
        | WaitStatus::Unknown(_) => true,
    };
    (!right).then(|| match run.wait {
        _ if here => format!("is {status}, but its run is {of_run}"),
        Some(other) => format!("is {status}, but its run is {of_run} at wait {other}"),
        None => format!("is {status}, but its run is {of_run} and waits on nothing"),
    })
}

/// Whether something will end it.
fn hope(row: &WaitRow) -> Result<(), String> {
    let ordinal = row.ordinal;
    match WaitStatus::decode(row.status) {
        WaitStatus::Open if row.queued => Ok(()),
        WaitStatus::Open => Err(format!("waits on wait {ordinal}, which is open but not queued")),
        WaitStatus::Sent if row.live => match row.item_status.map(ItemStatus::decode) {
            Some(ItemStatus::Sent | ItemStatus::Unknown(_)) => Ok(()),
            _ => Err(format!("waits on wait {ordinal}, which is sent in a live call that is over")),
        },
        status @ (WaitStatus::Reserved | WaitStatus::Sent) => {
            let (Some(batch), Some(item)) = (row.batch, row.item) else {
                return Err(format!("waits on wait {ordinal}, which is {status} in no batch"));
            };
            let place = format!("waits on wait {ordinal}, which is {status} as item {item} of batch {batch}");
            match row.batch_status.map(BatchStatus::decode) {
                None => return Err(format!("{place}, which does not exist")),
                Some(over @ (BatchStatus::Settled | BatchStatus::Abandoned)) => {
                    return Err(format!("{place}, which is {over}"));
                }
                Some(_) => {}
            }
            match row.item_status.map(ItemStatus::decode) {
                Some(ItemStatus::Pending | ItemStatus::Sent | ItemStatus::Unknown(_)) => Ok(()),
                Some(over) => Err(format!("{place}, which is {over}")),
                None => Err(format!("{place}, which does not exist or is of another wait")),
            }
        }
        status @ (WaitStatus::Answered
        | WaitStatus::Applied
        | WaitStatus::Failed
        | WaitStatus::Expired
        | WaitStatus::Canceled) => Err(format!("waits on wait {ordinal}, which is {status}")),
        WaitStatus::Unknown(_) => Ok(()),
    }
}

/// Whether it counts as answered by a model, but no item answered it.
fn unanswered(row: &WaitRow) -> Option<String> {
    let status = WaitStatus::decode(row.status);
    let answered = matches!(status, WaitStatus::Answered | WaitStatus::Applied);
    if !answered || WaitKind::decode(row.kind) != WaitKind::Model {
        return None;
    }
    match row.item_status.map(ItemStatus::decode) {
        Some(ItemStatus::Succeeded | ItemStatus::Unknown(_)) => None,
        Some(other) => Some(format!("is {status}, but its item is {other}")),
        None => Some(format!("is {status}, but points at no item of its own")),
    }
}
