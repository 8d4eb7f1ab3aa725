//! Runs, with their events and waits.

use super::report::{Check, Report};
use super::story::Story;
use super::waits::{self, Waits};
use super::{Limits, bad_holder};
use crate::domain::RunStatus;
use crate::domain::lifecycle::statuses_after;
use crate::store::audit::{EventRow, Range, Reader, RunRow, Snapshot};
use crate::store::{Code, StoreError};
use std::collections::HashMap;

/// A page of runs, and what was read of each.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) rows: Vec<RunRow>,
    stories: HashMap<i64, Story>,
}

impl Page {
    /// The run of that key.
    pub(super) fn run(&self, id: i64) -> Option<&RunRow> {
        self.rows.binary_search_by_key(&id, |row| row.id).ok().and_then(|place| self.rows.get(place))
    }
}

pub(super) async fn check(reader: &mut Reader, limits: Limits, report: &mut Report) -> Result<(), StoreError> {
    let mut snapshot = reader.snapshot().await?;
    for (workflow, status, counted, there) in snapshot.miscounts().await? {
        let detail = format!("has {there} runs that are {}, but {counted} are counted", RunStatus::decode(status));
        report.add(Check::CountsAgree, || format!("workflow version {workflow}"), detail);
    }
    snapshot.end().await?;
    let mut after = i64::MIN;
    loop {
        let mut snapshot = reader.snapshot().await?;
        let rows = snapshot.runs(after, limits.runs).await?;
        let full = rows.len() as i64 >= limits.runs;
        // The last page goes on to the end of all keys: what has no run is found there too.
        let through = rows.last().filter(|_| full).map_or(i64::MAX, |row| row.id);
        let range = Range { after, through };
        report.runs += rows.len() as u64;

        let mut page = Page { rows, ..Page::default() };
        read_events(&mut snapshot, range, limits, &mut page, report).await?;
        let waits = waits::read(&mut snapshot, range, limits, &page, report).await?;
        for (run, ordinal, n) in snapshot.answered_twice(range).await? {
            let detail = format!("was answered by {n} items");
            report.add(Check::ItemsBookedOnce, || format!("run {run} wait {ordinal}"), detail);
        }
        for (run, detail) in snapshot.joins(range).await? {
            report.add(Check::JoinsAgree, || format!("run {run}"), detail);
        }
        for run in snapshot.strays(range).await? {
            report.add(Check::BodiesPresent, || format!("run {run}"), "does not exist, but has an input or an output");
        }
        snapshot.end().await?;
        judge(&page, &waits, limits, report);
        if through == i64::MAX {
            return Ok(());
        }
        after = through;
    }
}

async fn read_events(
    snapshot: &mut Snapshot<'_>,
    range: Range,
    limits: Limits,
    page: &mut Page,
    report: &mut Report,
) -> Result<(), StoreError> {
    let mut after = (range.after, i32::MAX);
    loop {
        let events = snapshot.events(after, range.through, limits.rows).await?;
        report.events += events.len() as u64;
        for event in &events {
            page.stories.entry(event.run).or_default().read(event, report);
        }
        check_causes(snapshot, &events, report).await?;
        match events.last() {
            Some(last) if events.len() as i64 >= limits.rows => after = (last.run, last.ordinal),
            _ => return Ok(()),
        }
    }
}

async fn check_causes(snapshot: &mut Snapshot<'_>, events: &[EventRow], report: &mut Report) -> Result<(), StoreError> {
    let caused: Vec<(&EventRow, i64, i32)> =
        events.iter().filter_map(|event| Some((event, event.cause_run?, event.cause_ordinal.unwrap_or(-1)))).collect();
    if caused.is_empty() {
        return Ok(());
    }
    let run: Vec<i64> = caused.iter().map(|c| c.1).collect();
    let ordinal: Vec<i32> = caused.iter().map(|c| c.2).collect();
    let found: HashMap<i32, _> =
        snapshot.causes(&run, &ordinal).await?.into_iter().map(|cause| (cause.place, cause)).collect();
    for (place, (event, run, ordinal)) in (0..).zip(caused) {
        let subject = || format!("run {}", event.run);
        let at = event.ordinal;
        let there = |nonce: Option<i64>| nonce.is_none() || nonce == event.cause_nonce;
        let Some(cause) = found.get(&place).filter(|cause| there(cause.nonce)) else {
            let detail = format!("has event {at} caused by event {ordinal} of run {run}, which is not there");
            report.add(Check::CausesExist, subject, detail);
            continue;
        };
        let late = if run == event.run { ordinal >= at } else { cause.at.is_some_and(|cause| cause > event.at) };
        if late {
            let detail = format!("has event {at} caused by event {ordinal} of run {run}, which came later");
            report.add(Check::CausesPrecede, subject, detail);
        }
    }
    Ok(())
}

/// What can be said of each run once all of it has been read.
fn judge(page: &Page, waits: &Waits, limits: Limits, report: &mut Report) {
    let unread = Story::default();
    for row in &page.rows {
        let subject = || format!("run {}", row.id);
        let story = page.stories.get(&row.id).unwrap_or(&unread);
        if row.removed {
            let rest = story.next != 0 || row.has_input || row.has_output || row.has_error;
            let open = !RunStatus::decode(row.status).is_terminal();
            if rest || open {
                report.add(Check::StateAgrees, subject, "has lost its records, but not all of them, or is not over");
            }
            continue;
        }
        if story.next != row.cursor {
            let detail = format!("should have {} events, but they end at {}", row.cursor, story.next);
            report.add(Check::OrdinalsGapless, subject, detail);
        }
        if !row.has_input {
            report.add(Check::BodiesPresent, subject, "has no input");
        }
        if let Some(wrong) = holder(row, limits.grace_ms) {
            report.add(Check::OwnerAlive, subject, wrong);
        }
        if let Some(wrong) = disagreement(row, story) {
            report.add(Check::StateAgrees, subject, wrong);
        }
        if let Some(wrong) = ending(row) {
            report.add(Check::StateAgrees, subject, wrong);
        }
        if let Some(wrong) = stuck(row, waits) {
            report.add(Check::OpenHasReason, subject, wrong);
        }
    }
    for run in page.stories.keys().filter(|run| page.run(**run).is_none()) {
        report.add(Check::OrdinalsGapless, || format!("run {run}"), "does not exist, but has events");
    }
}

fn holder(row: &RunRow, grace_ms: i64) -> Option<String> {
    let owned = match RunStatus::decode(row.status) {
        RunStatus::Unknown(_) => return None,
        status => status == RunStatus::Owned,
    };
    match (owned, row.owner) {
        (true, None) => Some("is owned by nobody".into()),
        (false, Some(owner)) => Some(format!("is not owned, but has the owner {owner}")),
        (true, Some(_)) => bad_holder(row.owner_known, row.owner_dead_ms, grace_ms),
        (false, None) => None,
    }
}

/// Whether the row's status is one that its events lead to.
fn disagreement(row: &RunRow, story: &Story) -> Option<String> {
    let status = RunStatus::decode(row.status);
    if story.unknown || matches!(status, RunStatus::Unknown(_)) {
        return None;
    }
    let last = story.last?;
    if !statuses_after(last).contains(&status) {
        return Some(format!("is {status}, but its events end with `{last}`"));
    }
    if status == RunStatus::Owned && story.step.as_deref() != Some(&row.step) {
        let started = story.step.as_deref().unwrap_or("?");
        return Some(format!("is at step `{}`, but `{started}` was started last", row.step));
    }
    None
}

/// Whether it has the body that its end asks for, and no other.
fn ending(row: &RunRow) -> Option<String> {
    let wrong = match RunStatus::decode(row.status) {
        RunStatus::Completed => (row.has_output, row.has_error) != (true, false),
        RunStatus::Failed => (row.has_output, row.has_error) != (false, true),
        RunStatus::Canceled => row.has_output,
        RunStatus::Runnable | RunStatus::Owned | RunStatus::Waiting | RunStatus::Parked => {
            row.has_output || row.has_error
        }
        RunStatus::Unknown(_) => false,
    };
    let has = match (row.has_output, row.has_error) {
        (true, true) => "an output and an error",
        (true, false) => "an output",
        (false, true) => "an error",
        (false, false) => "neither output nor error",
    };
    wrong.then(|| format!("is {}, and has {has}", RunStatus::decode(row.status)))
}

/// Why nothing will ever move it on, if that is so.
fn stuck(row: &RunRow, waits: &Waits) -> Option<String> {
    match RunStatus::decode(row.status) {
        RunStatus::Runnable => (!row.ready).then(|| "is runnable, but never due".into()),
        RunStatus::Parked => (!row.has_reason).then(|| "is parked without a reason".into()),
        RunStatus::Waiting => match row.wait.and_then(|ordinal| waits.get(&(row.id, ordinal))) {
            None => Some("waits on nothing".into()),
            Some(hope) => hope.clone().err(),
        },
        RunStatus::Owned | RunStatus::Completed | RunStatus::Failed | RunStatus::Canceled | RunStatus::Unknown(_) => {
            None
        }
    }
}
