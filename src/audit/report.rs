//! What an audit says.

use serde::{Serialize, Serializer};
use std::fmt;

/// How many findings a report keeps; beyond that they are only counted.
pub const MOST_FINDINGS: usize = 1_000;

macro_rules! checks {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// A rule that an audit tests.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Check {
            $($(#[$doc])* $name),+
        }

        impl Check {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its name.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }
        }
    };
}

checks! {
    /// A run's events are numbered from 0 without gap, and there are as many as the run says. No run is without events, no
    /// event without a run.
    OrdinalsGapless = "ordinals-gapless",
    /// The event that an event names as its cause exists, nonce and all.
    CausesExist = "causes-exist",
    /// A cause comes before its effect: in the same run by ordinal, in another by time.
    CausesPrecede = "causes-precede",
    /// What is owned is owned by a node that exists and is not long dead, and nothing else is.
    OwnerAlive = "owner-alive",
    /// Whatever is not over has something that will move it on.
    OpenHasReason = "open-has-reason",
    /// A wait that is not over belongs to a run that waits on it, and was opened by an event.
    WaitAgrees = "wait-agrees",
    /// A request is answered once: one succeeded item per answered wait, complete, and known to its batch.
    ItemsBookedOnce = "items-booked-once",
    /// What the provider was paid for is what is booked, and nothing was paid twice under one id.
    LedgerOfProvider = "ledger-of-provider",
    /// The status of a run is the one that its events tell of, and it has an output or an error exactly when it is over.
    StateAgrees = "state-agrees",
    /// Nothing follows the end of a run.
    NothingAfterTheEnd = "nothing-after-the-end",
    /// A step is started before it is completed, each time.
    StepsPair = "steps-pair",
    /// Leases and batches are held by nodes that exist and are not long dead, and no batch is ahead of its account.
    FencesAndLeases = "fences-and-leases",
    /// A fork has the branches that it opened, and each of them is a run that knows whose branch it is.
    JoinsAgree = "joins-agree",
    /// As many runs are counted of each status as there are.
    CountsAgree = "counts-agree",
    /// What is added up as spent of an account is what its answers cost, and what is held for money is held by a budget that there is.
    MoneyAgrees = "money-agrees",
    /// A run has its input, a wait its request, and no body is without its run.
    BodiesPresent = "bodies-present",
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which rule.
    pub check: Check,
    /// Where: `run 17`, `batch 3 item 7`.
    pub subject: String,
    /// What is wrong there: ids, words and counts, never a body.
    pub detail: String,
}

/// What an audit found, and how much it looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The first [`MOST_FINDINGS`].
    pub findings: Vec<Finding>,
    /// Runs read.
    pub runs: u64,
    /// Events read.
    pub events: u64,
    /// Waits read.
    pub waits: u64,
    /// Batches read.
    pub batches: u64,
    /// Items read.
    pub items: u64,
    /// Paid lines of the provider's ledger that were compared, if there was one.
    pub paid: Option<u64>,
    /// How often each rule was broken: complete, also where the findings are not. Rules that hold are not in it.
    #[serde(serialize_with = "by_name")]
    pub counts: Vec<(Check, u64)>,
}

fn by_name<S: Serializer>(counts: &[(Check, u64)], out: S) -> Result<S::Ok, S::Error> {
    out.collect_map(counts.iter().copied())
}

impl Report {
    /// Whether every rule holds.
    pub fn is_clean(&self) -> bool {
        self.counts.is_empty()
    }

    /// How often a rule was broken.
    pub fn count(&self, check: Check) -> u64 {
        self.counts.iter().find(|(c, _)| *c == check).map_or(0, |(_, n)| *n)
    }

    pub(super) fn add(&mut self, check: Check, subject: impl FnOnce() -> String, detail: impl Into<String>) {
        match self.counts.binary_search_by_key(&check, |(c, _)| *c) {
            Ok(place) => self.counts[place].1 += 1,
            Err(place) => self.counts.insert(place, (check, 1)),
        }
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(Finding { check, subject: subject(), detail: detail.into() });
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, events, waits, batches, items, .. } = self;
        write!(f, "read {runs} runs, {events} events, {waits} waits, {batches} batches, {items} items")?;
        match self.paid {
            Some(paid) => writeln!(f, ", {paid} paid lines")?,
            None => writeln!(f)?,
        }
        for check in Check::ALL {
            match self.count(*check) {
                0 if *check == Check::LedgerOfProvider && self.paid.is_none() => {
                    writeln!(f, "  -     {check}: no ledger")?
                }
                0 => writeln!(f, "  ok    {check}")?,
                n => writeln!(f, "  WRONG {check}: {n}")?,
            }
        }
        for finding in &self.findings {
            writeln!(f, "{}: {} {}", finding.check, finding.subject, finding.detail)?;
        }
        let total: u64 = self.counts.iter().map(|(_, n)| n).sum();
        match total - self.findings.len() as u64 {
            0 if total == 0 => writeln!(f, "every rule holds"),
            0 => Ok(()),
            more => writeln!(f, "and {more} more"),
        }
    }
}
