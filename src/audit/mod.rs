//! The audit: whether the tables keep the promises that the engine makes.
//!
//! It reads everything once, page by page, each page in one snapshot, and never writes: it may run beside living nodes, and is
//! as exact there as on a database at rest. The rules themselves are pure functions over rows; one that is broken is a
//! [`Finding`], whose check has a name that does not change. One row may break several.
//!
//! With the ledger of the provider (what it was paid for), money is compared as well. That needs a database at rest: an answer
//! that was paid and booked after the ledger was read would look as if it was never paid.
//!
//! Deliberately absent: repairing. What is broken is for people to look at; what can heal, heals by itself.

mod batches;
mod ledger;
mod report;
mod runs;
mod story;
mod waits;

#[cfg(test)]
mod tests;

pub use ledger::LedgerLine;
pub use report::{Check, Finding, MOST_FINDINGS, Report};

use crate::store::{Database, StoreError, audit::Reader};
use ledger::Ledger;
use std::time::Duration;

/// How long after a node's death what it held may still carry its name, before that is a finding.
pub const GRACE: Duration = Duration::from_secs(300);

/// An audit, and how it is made.
#[derive(Debug, Clone)]
pub struct Auditor {
    database: Database,
    limits: Limits,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    grace_ms: i64,
    /// Runs in one snapshot.
    runs: i64,
    /// Batches in one snapshot.
    batches: i64,
    /// Events, waits or items in one statement.
    rows: i64,
}

impl Auditor {
    /// An audit of this database.
    pub fn new(database: Database) -> Self {
        let grace_ms = i64::try_from(GRACE.as_millis()).unwrap_or(i64::MAX);
        Self { database, limits: Limits { grace_ms, runs: 2_000, batches: 20, rows: 10_000 } }
    }

    /// How long after a node's death what it held may still carry its name; [`GRACE`] unless it is said here.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.limits.grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
        self
    }

    /// How many rows of a kind are read at a time, for tests of the paging itself.
    #[doc(hidden)]
    pub fn pages_of(mut self, rows: i64) -> Self {
        (self.limits.runs, self.limits.batches, self.limits.rows) = (rows, rows, rows);
        self
    }

    /// Reads everything, and says what is wrong. With the provider's ledger, what was paid is compared too.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read; what it holds is never an error.
    pub async fn run(&self, provider_ledger: Option<&[LedgerLine]>) -> Result<Report, StoreError> {
        let mut report = Report::default();
        let mut ledger = provider_ledger.map(|lines| Ledger::new(lines, &mut report));
        let mut reader = Reader::connect(&self.database).await?;
        runs::check(&mut reader, self.limits, &mut report).await?;
        batches::check(&mut reader, self.limits, ledger.as_mut(), &mut report).await?;
        reader.close().await;
        if let Some(ledger) = ledger {
            ledger.finish(&mut report);
        }
        Ok(report)
    }
}

/// Audits a database as [`Auditor`] does when nothing else is said.
///
/// # Errors
/// [`StoreError`] when the database cannot be read.
pub async fn audit(database: &Database, provider_ledger: Option<&[LedgerLine]>) -> Result<Report, StoreError> {
    Auditor::new(database.clone()).run(provider_ledger).await
}

/// What is wrong with a holder, if anything: it is unknown, or was declared dead too long ago.
fn bad_holder(known: bool, dead_ms: Option<i64>, grace_ms: i64) -> Option<String> {
    match dead_ms {
        _ if !known => Some("is held by a node that does not exist".into()),
        Some(ms) if ms > grace_ms => Some(format!("is held by a node that has been dead for {} s", ms / 1000)),
        _ => None,
    }
}
