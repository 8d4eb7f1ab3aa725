//! What a check has found, for people and for programs.

use crate::run::{Differences, Manifest};
use crate::store::Flying;
use serde::{Serialize, Serializer};
use std::fmt;

/// Ids of runs that are named for each finding.
const EXAMPLES: usize = 3;

/// Why runs would be stuck. The words are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No workflow of that name is there.
    Workflow,
    /// There is no such version of it, and none that takes it over.
    Version,
    /// What is stored of them cannot be read at all.
    Unreadable,
    /// The upgrade refuses them, or leads to something that is not there or does not fit.
    Upgrade,
    /// A step that they are at, or come back to, is not there.
    Step,
    /// Their input does not fit the type.
    Input,
    /// Their state does not fit the type.
    State,
    /// What their step would be given does not fit its type.
    Arg,
}

impl Reason {
    /// A stable name for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workflow => "unknown-workflow",
            Self::Version => "unknown-version",
            Self::Unreadable => "unreadable",
            Self::Upgrade => "upgrade-failed",
            Self::Step => "unknown-step",
            Self::Input => "input-mismatch",
            Self::State => "state-mismatch",
            Self::Arg => "argument-mismatch",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

/// Runs that would be stuck for one reason in one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckFinding {
    /// Their workflow.
    pub workflow: String,
    /// Their version.
    pub version: u32,
    /// The step they are at.
    pub step: String,
    /// Why.
    pub reason: Reason,
    /// More of it, said of the first of them.
    pub detail: String,
    /// How many they are.
    pub runs: u64,
    /// The ids of up to three of them.
    pub examples: Vec<String>,
}

/// A version that is not what it was when it was last registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VersionChange {
    /// The workflow.
    pub workflow: String,
    /// The version that both say they are.
    pub version: u32,
    /// Steps that are gone: a node would be refused as `workflow-drift`.
    pub missing: Vec<String>,
    /// Steps that are new: a node would be refused, unless it says that it extends the workflow.
    pub added: Vec<String>,
    /// What else is different, a sentence each.
    pub changed: Vec<String>,
}

/// What a check has found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Runs that can go on, as far as can be told.
    pub fits: u64,
    /// Runs that would be stuck.
    pub stuck: u64,
    /// Runs that would be taken over by a version of which only the manifest was given: whether that succeeds was not tried.
    pub unread: u64,
    /// Runs of workflows that are said to be run elsewhere.
    pub elsewhere: u64,
    /// Why runs would be stuck, by workflow, version, step and reason. A run may be in several.
    pub findings: Vec<CheckFinding>,
    /// Versions that have changed without another number.
    pub changes: Vec<VersionChange>,
}

impl CheckReport {
    /// Whether no run would be stuck, and no node refused for steps that are gone.
    pub fn ok(&self) -> bool {
        self.stuck == 0 && self.changes.iter().all(|change| change.missing.is_empty())
    }

    pub(super) fn stuck(&mut self, run: &Flying, reasons: Vec<(Reason, String)>) {
        self.stuck += 1;
        // Several values of a stack may be wrong in one and the same run.
        let mut seen = Vec::new();
        for (reason, detail) in reasons {
            if !seen.contains(&reason) {
                seen.push(reason);
                self.find(run, reason, detail);
            }
        }
    }

    fn find(&mut self, run: &Flying, reason: Reason, detail: String) {
        let key = (run.workflow.as_str(), run.version, run.step.as_str(), reason);
        let of = |f: &CheckFinding| key.cmp(&(f.workflow.as_str(), f.version, f.step.as_str(), f.reason)).reverse();
        let place = self.findings.binary_search_by(of).unwrap_or_else(|place| {
            let (workflow, step) = (run.workflow.clone(), run.step.clone());
            let (version, examples) = (run.version, Vec::new());
            self.findings.insert(place, CheckFinding { workflow, version, step, reason, detail, runs: 0, examples });
            place
        });
        let finding = &mut self.findings[place];
        finding.runs += 1;
        if finding.examples.len() < EXAMPLES {
            finding.examples.push(run.run_id.clone());
        }
    }

    /// Notes what a version is not any more.
    pub(super) fn compared(&mut self, now: &Manifest, before: &Manifest) {
        let Differences { missing, added, changed } = now.since(before);
        if !(missing.is_empty() && added.is_empty() && changed.is_empty()) {
            let (workflow, version) = (now.workflow.to_string(), now.version);
            self.changes.push(VersionChange { workflow, version, missing, added, changed });
        }
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fits, stuck, unread, elsewhere, .. } = self;
        writeln!(f, "{} runs in flight: {fits} can go on, {stuck} would be stuck", fits + stuck + unread + elsewhere)?;
        if *unread > 0 {
            writeln!(f, "  {unread} would be upgraded; whether that succeeds only the service itself can check")?;
        }
        if *elsewhere > 0 {
            writeln!(f, "  {elsewhere} are of workflows that are run elsewhere")?;
        }
        for finding in &self.findings {
            let CheckFinding { workflow, version, step, reason, detail, runs, examples } = finding;
            writeln!(f, "STUCK {runs} of `{workflow}` version {version} at step `{step}`: {reason}")?;
            writeln!(f, "      {detail}")?;
            writeln!(f, "      for example {}", examples.join(", "))?;
        }
        for VersionChange { workflow, version, missing, added, changed } in &self.changes {
            writeln!(f, "CHANGED `{workflow}` version {version}, without another number")?;
            if !missing.is_empty() {
                writeln!(f, "      steps that are gone: {}; a node would be refused", missing.join(", "))?;
            }
            if !added.is_empty() {
                let steps = added.join(", ");
                writeln!(f, "      steps that are new: {steps}; a node would be refused unless it says `extends`")?;
            }
            for sentence in changed {
                writeln!(f, "      {}", sentence.replace('\n', "\n      "))?;
            }
        }
        Ok(())
    }
}
