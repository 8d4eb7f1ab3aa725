//! `explain` for a whole workflow: why its runs do not move, and what would move them.

use super::Client;
use super::explain::{Said, time};
use crate::domain::{RunStatus, WaitKind, WaitStatus};
use crate::error::Error;
use crate::store::{Control, Holder, MOST, Stopped, Trouble, VersionFacts, Waiting};
use chrono::{DateTime, Utc};
use std::fmt;

/// How long a provider may take for a batch before it expires, in milliseconds.
const BATCH_EXPIRES_MS: i64 = 24 * 3_600_000;

/// What a workflow's runs are doing, why they do not go on, and what would make them: a page for an operator at night.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct WorkflowExplanation {
    /// The workflow.
    pub workflow: String,
    /// What is known, a sentence each; what stops everything comes first.
    pub because: Vec<String>,
    /// What would move it, a sentence each.
    pub moves: Vec<String>,
}

impl fmt::Display for WorkflowExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "workflow `{}`", self.workflow)?;
        for sentence in &self.because {
            writeln!(f, "  {sentence}")?;
        }
        for (k, sentence) in self.moves.iter().enumerate() {
            writeln!(f, "{} {sentence}", if k == 0 { "what would move it:" } else { "               and:" })?;
        }
        Ok(())
    }
}

/// What has a say in it.
struct Facts {
    workflow: String,
    control: Option<Control>,
    now: DateTime<Utc>,
    versions: Vec<VersionFacts>,
    holders: Vec<Holder>,
    waiting: Vec<Waiting>,
    trouble: Vec<Trouble>,
    stopped: Vec<Stopped>,
}

impl Client {
    /// Why the runs of a workflow do not move, and what would move them.
    ///
    /// # Errors
    /// [`Error::UnknownWorkflow`]; [`Error::Store`].
    pub async fn explain_workflow(&self, workflow: &str) -> Result<WorkflowExplanation, Error> {
        let keys = self.versions(workflow).await?;
        let store = self.store();
        Ok(explain(&Facts {
            workflow: workflow.to_owned(),
            control: store.controls(Some(workflow)).await?.pop(),
            now: store.database_now().await?,
            versions: store.version_facts(workflow).await?,
            holders: store.holders(&keys).await?,
            waiting: store.waiting(&keys).await?,
            trouble: store.trouble(&keys).await?,
            stopped: store.stopped().await?,
        }))
    }
}

/// A count that was cut.
fn about(runs: i64) -> String {
    match runs {
        1 => "1 run".into(),
        n if n >= MOST => format!("{n} runs or more"),
        n => format!("{n} runs"),
    }
}

fn explain(facts: &Facts) -> WorkflowExplanation {
    let mut said = Said::default();
    let due: i64 = facts.versions.iter().map(|v| v.due).sum();
    controlled(facts, due, &mut said);
    for version in &facts.versions {
        queue(version, facts, &mut said);
    }
    for holder in &facts.holders {
        let Holder { node, dead, runs } = holder;
        let runs = about(*runs);
        if *dead {
            said.because(format!("node `{node}` is dead and held {runs}"));
            said.moves("the janitor of any living node: it takes over what a dead one held".into());
        } else {
            said.because(format!("node `{node}` is working on {runs}"));
        }
    }
    for waiting in &facts.waiting {
        wait(waiting, facts, &mut said);
    }
    for Trouble { status, runs, newest, reason } in &facts.trouble {
        let newest = newest.as_deref().unwrap_or("?");
        let why = reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        said.because(format!("{} {status}, the newest is `{newest}`{why}", about(*runs)));
        if *status == RunStatus::Parked {
            said.moves(format!(
                "for the parked: mend the reason, then `longhaul retry --workflow {} --status parked`",
                facts.workflow
            ));
        }
    }
    if said.is_empty() {
        said.because("no run of it is under way".into());
    }
    WorkflowExplanation { workflow: facts.workflow.clone(), because: said.because, moves: said.moves }
}

/// Pause and ceiling.
fn controlled(facts: &Facts, due: i64, said: &mut Said) {
    let Some(control) = &facts.control else { return };
    if let (Some(at), Some(by), Some(why)) = (control.paused_at, &control.paused_by, &control.paused_reason) {
        let since = time((facts.now - at).num_milliseconds());
        said.because(format!("paused by {by} {since} ago: {why}"));
        said.moves(format!("`longhaul resume {}`", facts.workflow));
    }
    if let Some(most) = control.max_running {
        let full = control.running >= u64::from(most);
        let reached = if full { "the ceiling is reached" } else { "there is a ceiling" };
        said.because(format!("{reached}: {} of {most} runs are being worked on", control.running));
        if full && due > 0 {
            said.moves(format!(
                "one of them ending or waiting; a higher ceiling: `longhaul limit {} N`",
                facts.workflow
            ));
        }
    }
}

/// What may be claimed of a version, and by whom.
fn queue(version: &VersionFacts, facts: &Facts, said: &mut Said) {
    let VersionFacts { version, able, draining, due, oldest_due_ms, next_due_ms } = version;
    if *due > 0 {
        let since = time(oldest_due_ms.unwrap_or(0));
        said.because(format!("version {version}: {} may be claimed, the first since {since}", about(*due)));
        match (*able, *draining) {
            (0, 0) => {
                said.because(format!("no living node has version {version}"));
                said.moves(format!("a node that has version {version}"));
            }
            (0, n) => {
                said.because(format!("all {n} living nodes that have version {version} are draining"));
                said.moves(format!("a new node that has version {version}"));
            }
            (n, _) if facts.control.as_ref().is_none_or(|c| c.paused_at.is_none()) => {
                said.because(format!("{n} living nodes take runs of version {version}"));
            }
            _ => {}
        }
    }
    if let Some(ms) = next_due_ms {
        said.because(format!(
            "version {version}: the next that is put off (a retry or a delay) is due in {}",
            time(*ms)
        ));
    }
}

fn wait(waiting: &Waiting, facts: &Facts, said: &mut Said) {
    let Waiting { kind, status, provider, held, live, runs, oldest_ms, batches, sent_ago_ms, next_ms } = waiting;
    let (runs, oldest) = (about(*runs), time(*oldest_ms));
    match kind {
        WaitKind::Model => {
            let provider = provider.as_deref().unwrap_or("?");
            if *held {
                said.because(format!("{runs} wait for money, the first for {oldest}: budgets have no room for them"));
                said.moves("`longhaul budget show`: a higher limit, or time".into());
            } else if *live {
                said.because(format!("{runs} are in live calls to `{provider}`, the first has waited for {oldest}"));
            } else if *status == WaitStatus::Open {
                said.because(format!("{runs} wait to be sent to `{provider}`, the first for {oldest}"));
                match next_ms {
                    Some(ms) if *ms > 0 => said.because(format!("the first of those goes out in {}", time(*ms))),
                    _ => said.moves(format!("a node with provider `{provider}` sending the next batch")),
                }
                let stopped = |s: &&Stopped| s.provider.as_deref().is_none_or(|of| of == provider);
                for Stopped { what, why, .. } in facts.stopped.iter().filter(stopped) {
                    said.because(format!("nothing is sent to {what}: {why}"));
                }
            } else {
                said.because(format!("{runs} wait for `{provider}` in {batches} batches, the first for {oldest}"));
                if let Some(ms) = sent_ago_ms {
                    let left = time((BATCH_EXPIRES_MS - ms).max(0));
                    said.because(format!("the oldest batch was sent {} ago and expires in {left}", time(*ms)));
                    said.moves(format!("`{provider}` finishing its batches: `longhaul batches`"));
                }
            }
        }
        WaitKind::Human | WaitKind::External => {
            let whom = if *kind == WaitKind::Human { "people" } else { "other services" };
            said.because(format!("{runs} wait for {whom}, the first for {oldest}"));
            said.moves(format!(
                "answers: `longhaul waits --workflow {} --kind {kind}` lists the questions",
                facts.workflow
            ));
        }
        WaitKind::Timer => {
            let next = time(next_ms.unwrap_or(0).max(0));
            said.because(format!("{runs} sleep, the next wakes in {next}"));
        }
        WaitKind::Fork => said.because(format!("{runs} wait for their branches, the first for {oldest}")),
        WaitKind::Tools | WaitKind::Unknown(_) => said.because(format!("{runs} wait for something of kind `{kind}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            workflow: "w".into(),
            control: None,
            now: DateTime::from_timestamp(10_000, 0).unwrap(),
            versions: Vec::new(),
            holders: Vec::new(),
            waiting: Vec::new(),
            trouble: Vec::new(),
            stopped: Vec::new(),
        }
    }

    fn version(able: i64, draining: i64, due: i64) -> VersionFacts {
        VersionFacts { version: 2, able, draining, due, oldest_due_ms: Some(5_000), next_due_ms: None }
    }

    fn waiting(kind: WaitKind, status: WaitStatus) -> Waiting {
        Waiting {
            kind,
            status,
            provider: Some("claude".into()),
            held: false,
            live: false,
            runs: 7,
            oldest_ms: 3_000,
            batches: 2,
            sent_ago_ms: Some(3_600_000 * 20),
            next_ms: Some(-5),
        }
    }

    fn says(facts: &Facts, words: &[&str]) {
        let text = explain(facts).to_string();
        for word in words {
            assert!(text.contains(word), "`{word}` is not in:\n{text}");
        }
    }

    #[test]
    fn nothing_under_way_is_said() {
        says(&facts(), &["no run of it is under way"]);
    }

    #[test]
    fn a_pause_and_a_ceiling_come_first() {
        let control = Control {
            workflow: "w".into(),
            paused_at: DateTime::from_timestamp(9_000, 0),
            paused_by: Some("ann".into()),
            paused_reason: Some("bad prompt".into()),
            max_running: Some(3),
            running: 3,
        };
        let facts = Facts { control: Some(control), versions: vec![version(1, 0, 9)], ..facts() };
        says(&facts, &["paused by ann 16 min ago: bad prompt", "`longhaul resume w`"]);
        says(&facts, &["the ceiling is reached: 3 of 3", "`longhaul limit w N`"]);
        assert!(explain(&facts).because[0].starts_with("paused"));
    }

    #[test]
    fn a_queue_lacks_a_node_or_has_some() {
        let with = |version| Facts { versions: vec![version], ..facts() };
        says(&with(version(0, 0, 9)), &["9 runs may be claimed", "no living node has version 2"]);
        says(&with(version(0, 2, 9)), &["all 2 living nodes", "draining", "a new node"]);
        says(&with(version(1, 0, MOST)), &["10000 runs or more", "1 living nodes take runs"]);
        says(&with(VersionFacts { next_due_ms: Some(61_000), ..version(1, 0, 0) }), &["is due in 61 s"]);
    }

    #[test]
    fn what_waits_says_for_whom_and_since_when() {
        let of = |provider: Option<&str>, what: &str| Stopped {
            provider: provider.map(str::to_owned),
            what: what.into(),
            why: "402".into(),
        };
        let stopped = vec![of(None, "a"), of(Some("claude"), "b"), of(Some("other"), "c")];
        let with = |waiting| Facts { waiting: vec![waiting], stopped: stopped.clone(), ..facts() };
        says(&with(waiting(WaitKind::Model, WaitStatus::Sent)), &["in 2 batches", "20 h ago and expires in 4 h"]);
        says(
            &with(waiting(WaitKind::Model, WaitStatus::Open)),
            &["to be sent to `claude`", "nothing is sent to a: 402", "nothing is sent to b: 402"],
        );
        let text = explain(&with(waiting(WaitKind::Model, WaitStatus::Open))).to_string();
        assert!(!text.contains("nothing is sent to c"), "{text}");
        says(&with(Waiting { held: true, ..waiting(WaitKind::Model, WaitStatus::Open) }), &["7 runs wait for money"]);
        says(
            &with(Waiting { live: true, ..waiting(WaitKind::Model, WaitStatus::Sent) }),
            &["in live calls to `claude`"],
        );
        let later = Waiting { next_ms: Some(30_000), ..waiting(WaitKind::Model, WaitStatus::Open) };
        says(&with(later), &["goes out in 30 s"]);
        says(&with(waiting(WaitKind::Human, WaitStatus::Open)), &["wait for people", "--kind human"]);
        says(&with(waiting(WaitKind::External, WaitStatus::Open)), &["other services"]);
        says(&with(waiting(WaitKind::Timer, WaitStatus::Open)), &["7 runs sleep"]);
        says(&with(waiting(WaitKind::Fork, WaitStatus::Open)), &["their branches"]);
    }

    #[test]
    fn holders_and_trouble_are_named() {
        let holder = |dead| Holder { node: "a".into(), dead, runs: 1 };
        says(&Facts { holders: vec![holder(false)], ..facts() }, &["node `a` is working on 1 run"]);
        says(&Facts { holders: vec![holder(true)], ..facts() }, &["is dead", "the janitor"]);
        let trouble = |status| Trouble { status, runs: 2, newest: Some("r9".into()), reason: Some("no step".into()) };
        says(&Facts { trouble: vec![trouble(RunStatus::Parked)], ..facts() }, &["`r9`: no step", "--status parked"]);
        says(&Facts { trouble: vec![trouble(RunStatus::Failed)], ..facts() }, &["2 runs failed"]);
    }
}
