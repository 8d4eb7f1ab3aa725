//! Accounts, batches and their items.

use super::ledger::Ledger;
use super::report::{Check, Report};
use super::{Limits, bad_holder};
use crate::domain::{BatchStatus, ItemStatus, WaitStatus};
use crate::store::audit::{BatchRow, ItemRow, Reader, Snapshot};
use crate::store::{Code, StoreError};

pub(super) async fn check(
    reader: &mut Reader,
    limits: Limits,
    mut ledger: Option<&mut Ledger<'_>>,
    report: &mut Report,
) -> Result<(), StoreError> {
    let mut snapshot = reader.snapshot().await?;
    for account in snapshot.accounts().await? {
        let bad = account.owner.and_then(|_| bad_holder(account.owner_known, account.owner_dead_ms, limits.grace_ms));
        if let Some(wrong) = bad {
            report.add(Check::FencesAndLeases, || format!("account {}", account.id), wrong);
        }
    }
    for (account, spent, cost) in snapshot.misspent().await? {
        let wrong = format!("{spent} nano-dollars are added up as spent, its answers cost {cost}");
        report.add(Check::MoneyAgrees, || format!("account {account}"), wrong);
    }
    for (run, wait) in snapshot.held_by_nothing().await? {
        let wrong = format!("wait {wait} is held by a budget that does not exist");
        report.add(Check::MoneyAgrees, || format!("run {run}"), wrong);
    }
    snapshot.end().await?;

    let mut after = i64::MIN;
    loop {
        let mut snapshot = reader.snapshot().await?;
        let rows = snapshot.batches(after, limits.batches).await?;
        let full = rows.len() as i64 >= limits.batches;
        let through = rows.last().filter(|_| full).map_or(i64::MAX, |row| row.id);
        report.batches += rows.len() as u64;
        let counts = read_items(&mut snapshot, (after, through), limits, &rows, ledger.as_deref_mut(), report).await?;
        snapshot.end().await?;
        for (row, items) in rows.iter().zip(counts) {
            judge(row, &items, limits.grace_ms, report);
        }
        if through == i64::MAX {
            return Ok(());
        }
        after = through;
    }
}

/// What was counted of a batch's items.
#[derive(Debug, Clone, Default)]
struct Counts {
    items: i32,
    open: i32,
    /// The first place that is not where it should be.
    gap: Option<i32>,
}

async fn read_items(
    snapshot: &mut Snapshot<'_>,
    (after, through): (i64, i64),
    limits: Limits,
    batches: &[BatchRow],
    mut ledger: Option<&mut Ledger<'_>>,
    report: &mut Report,
) -> Result<Vec<Counts>, StoreError> {
    let mut counts = vec![Counts::default(); batches.len()];
    let mut after = (after, i32::MAX);
    loop {
        let items = snapshot.items(after, through, limits.rows).await?;
        report.items += items.len() as u64;
        for item in &items {
            let Ok(place) = batches.binary_search_by_key(&item.batch, |batch| batch.id) else {
                let subject = || format!("batch {} item {}", item.batch, item.item);
                report.add(Check::ItemsBookedOnce, subject, "belongs to no batch");
                continue;
            };
            let seen = &mut counts[place];
            if item.item != seen.items && seen.gap.is_none() {
                seen.gap = Some(item.item);
            }
            seen.items += 1;
            seen.open += i32::from(is_open(item));
            judge_item(item, report);
            if let Some(ledger) = ledger.as_deref_mut() {
                ledger.compare(&batches[place], item, report);
            }
        }
        match items.last() {
            Some(last) if items.len() as i64 >= limits.rows => after = (last.batch, last.item),
            _ => return Ok(counts),
        }
    }
}

fn is_open(item: &ItemRow) -> bool {
    matches!(ItemStatus::decode(item.status), ItemStatus::Pending | ItemStatus::Sent)
}

fn judge(row: &BatchRow, items: &Counts, grace_ms: i64, report: &mut Report) {
    let subject = || format!("batch {}", row.id);
    let status = BatchStatus::decode(row.status);
    if items.items != row.n {
        report.add(Check::ItemsBookedOnce, subject, format!("should have {} items, but has {}", row.n, items.items));
    }
    if let Some(item) = items.gap.filter(|_| !row.thinned) {
        report.add(Check::ItemsBookedOnce, subject, format!("has item {item} out of its place"));
    }
    if status == BatchStatus::Settled && items.open > 0 {
        report.add(Check::ItemsBookedOnce, subject, format!("is settled, but {} items are open", items.open));
    }
    let Some(looked_after) = looked_after(status) else { return };
    if looked_after != row.due {
        let wrong = if row.due { "though nobody has to look at it, it is due" } else { "but nobody will look at it" };
        report.add(Check::OpenHasReason, subject, format!("is {status}, {wrong}"));
    }
    match (row.owner, row.account_fence) {
        (Some(_), _) if !looked_after => {
            report.add(Check::FencesAndLeases, subject, format!("is {status}, but a node holds it"));
        }
        (Some(_), _) => {
            if let Some(wrong) = bad_holder(row.owner_known, row.owner_dead_ms, grace_ms) {
                report.add(Check::FencesAndLeases, subject, wrong);
            }
        }
        (None, _) => {}
    }
    match row.account_fence {
        None => report.add(Check::FencesAndLeases, subject, "belongs to no account"),
        Some(fence) if fence < row.lease => {
            report.add(
                Check::FencesAndLeases,
                subject,
                format!("carries lease {}, its account is at {fence}", row.lease),
            );
        }
        Some(_) => {}
    }
}

/// Whether a batch in that status is looked after by some node, again and again.
fn looked_after(status: BatchStatus) -> Option<bool> {
    match status {
        BatchStatus::Submitted | BatchStatus::AdoptedUnverified | BatchStatus::Ended => Some(true),
        BatchStatus::Reserved
        | BatchStatus::Sealed
        | BatchStatus::Sending
        | BatchStatus::Ambiguous
        | BatchStatus::Settled
        | BatchStatus::Abandoned => Some(false),
        BatchStatus::Unknown(_) => None,
    }
}

fn judge_item(item: &ItemRow, report: &mut Report) {
    let status = ItemStatus::decode(item.status);
    let wrong = match status {
        ItemStatus::Unknown(_) => None,
        ItemStatus::Pending | ItemStatus::Sent => item.settled.then(|| format!("is {status}, but was settled")),
        _ if !item.settled => Some(format!("is {status}, but was never settled")),
        ItemStatus::Succeeded if !item.has_line => Some("succeeded without a line".into()),
        ItemStatus::Succeeded => match item.pointed_by.map(WaitStatus::decode) {
            Some(WaitStatus::Answered | WaitStatus::Applied | WaitStatus::Canceled | WaitStatus::Unknown(_)) => None,
            Some(other) => Some(format!("succeeded, but its wait is {other}")),
            None => Some("succeeded, but its wait does not point at it".into()),
        },
        ItemStatus::Superseded if !item.has_line => Some("was superseded without a line".into()),
        ItemStatus::Superseded
        | ItemStatus::Errored
        | ItemStatus::Expired
        | ItemStatus::Canceled
        | ItemStatus::Missing
        | ItemStatus::MissingPaid
        | ItemStatus::Unreadable => None,
    };
    if let Some(wrong) = wrong {
        let subject = || format!("batch {} item {} (run {} wait {})", item.batch, item.item, item.run, item.wait);
        report.add(Check::ItemsBookedOnce, subject, wrong);
    }
}
