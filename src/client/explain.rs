//! `explain`: why a run does not move, and what would move it.

use super::Client;
use super::money::dollars;
use crate::domain::{BatchStatus, RunStatus, WaitKind, WaitStatus};
use crate::error::Error;
use crate::store::{Batch, Call, Facts, HeldBy, Owner, Paused, Wait};
use std::fmt;

/// What a run is doing, why it does not go on, and what would make it: for an operator at night.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Explanation {
    /// The run.
    pub run: String,
    /// What it is doing, in a word.
    pub status: String,
    /// What is known of it, a sentence each.
    pub because: Vec<String>,
    /// What would move it; nothing, if it is over.
    pub moves: Vec<String>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "run `{}` is {}", self.run, self.status)?;
        for sentence in &self.because {
            writeln!(f, "  {sentence}")?;
        }
        for (k, sentence) in self.moves.iter().enumerate() {
            writeln!(f, "{} {sentence}", if k == 0 { "what would move it:" } else { "                or:" })?;
        }
        Ok(())
    }
}

impl Client {
    /// Why a run does not move, and what would move it.
    ///
    /// # Errors
    /// [`Error::UnknownRun`] when there is none.
    pub async fn explain(&self, run_id: &str) -> Result<Explanation, Error> {
        let facts = self.store().facts(run_id).await?.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))?;
        Ok(explain(&facts))
    }
}

fn explain(facts: &Facts) -> Explanation {
    let mut said = Said::default();
    said.because(format!("workflow `{}` version {}, at step `{}`", facts.workflow, facts.version, facts.step));
    match facts.status {
        RunStatus::Runnable => runnable(facts, &mut said),
        RunStatus::Owned => owned(facts, &mut said),
        RunStatus::Waiting => match &facts.wait {
            Some(wait) => waiting(facts, wait, &mut said),
            None => said.because("it waits, but its wait is not there: run the audit".into()),
        },
        RunStatus::Parked => {
            said.because(format!("held back: {}", facts.reason.as_deref().unwrap_or("no reason is stored")));
            said.moves("mend the reason, then `longhaul retry`".into());
        }
        RunStatus::Completed | RunStatus::Canceled => said.because(ended(facts)),
        RunStatus::Failed => {
            said.because(ended(facts));
            said.because(facts.error.clone().unwrap_or_else(|| "no error is stored".into()));
            said.moves("`longhaul retry`: it goes on from its last durable state".into());
        }
        RunStatus::Unknown(code) => said.because(format!("status {code} is of a newer version: use a newer program")),
    }
    let status = facts.status.to_string();
    Explanation { run: facts.run_id.clone(), status, because: said.because, moves: said.moves }
}

/// Sentences, as they are found.
#[derive(Default)]
pub(super) struct Said {
    pub(super) because: Vec<String>,
    pub(super) moves: Vec<String>,
}

impl Said {
    pub(super) fn because(&mut self, sentence: String) {
        self.because.push(sentence);
    }

    pub(super) fn moves(&mut self, sentence: String) {
        if !self.moves.contains(&sentence) {
            self.moves.push(sentence);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.because.is_empty()
    }
}

fn runnable(facts: &Facts, said: &mut Said) {
    if facts.errors > 0 {
        said.because(format!("the step has failed {} times so far", facts.errors));
    }
    if let Some(wait) = facts.ready_in_ms.filter(|ms| *ms > 0) {
        said.because(format!("it is not due yet: in {}", time(wait)));
        said.moves("time".into());
        return;
    }
    if let Some(Paused { ago_ms, by, reason }) = &facts.paused {
        said.because(format!("its workflow was paused by {by} {} ago: {reason}", time(*ago_ms)));
        said.moves(format!("`longhaul resume {}`", facts.workflow));
        return;
    }
    if let Some((running, most)) = facts.ceiling.filter(|(running, most)| running >= &i64::from(*most)) {
        said.because(format!("its workflow has reached its ceiling: {running} of {most} runs are being worked on"));
        said.moves(format!("one of them ending or waiting; a higher ceiling: `longhaul limit {} N`", facts.workflow));
        return;
    }
    match (facts.nodes, facts.able) {
        (0, _) => {
            said.because("no node is alive".into());
            said.moves("start a node that has this workflow".into());
        }
        (_, 0) => nobody(facts, said),
        (nodes, able) => {
            said.because(format!("{able} of {nodes} living nodes may claim it: they are busy, or about to"));
            said.moves("a free place on one of them; more nodes, if they are always busy".into());
        }
    }
}

/// No living node may claim the run.
fn nobody(facts: &Facts, said: &mut Said) {
    let nodes = facts.nodes;
    let there = match facts.versions.as_slice() {
        [] => "nor any other of it".to_owned(),
        others => {
            let others: Vec<String> = others.iter().map(ToString::to_string).collect();
            format!("they have {}, which does not take this one over", others.join(" and "))
        }
    };
    said.because(format!("none of the {nodes} living nodes has this version of the workflow; {there}"));
    said.moves("start a node that has it, or one whose newer version takes it over".into());
}

fn owned(facts: &Facts, said: &mut Said) {
    said.because(format!(
        "start {} of this step, {} failed attempts; fence {}",
        facts.starts, facts.errors, facts.fence
    ));
    let Some(Owner { name, id, dead, beat_ago_ms, lease_ms }) = &facts.owner else {
        said.because("its owner is not among the nodes: run the audit".into());
        return;
    };
    said.because(format!("node `{name}` ({id}) holds it, whose last heartbeat was {} ago", time(*beat_ago_ms)));
    if *dead {
        said.moves("the janitor of any living node: that node is declared dead, and its runs are taken over".into());
    } else if *beat_ago_ms > i64::from(*lease_ms) {
        said.moves(format!(
            "a living node: it takes over what makes no progress for its lease of {}",
            time((*lease_ms).into())
        ));
    } else {
        said.moves("the step returning; its `timeout`, if it declares one".into());
    }
}

fn waiting(facts: &Facts, wait: &Wait, said: &mut Said) {
    said.because(format!("it has been waiting for {}", time(wait.age_ms)));
    if facts.nodes > 0 && facts.able == 0 {
        said.because("what it waits for would not be enough: nobody could go on with it".into());
        nobody(facts, said);
    }
    match wait.kind {
        WaitKind::Model => model(facts, wait, said),
        WaitKind::Human | WaitKind::External => {
            let whom = if wait.kind == WaitKind::Human { "a person" } else { "another service" };
            said.because(format!("for {whom}: {}", wait.prompt.as_deref().unwrap_or("(no prompt)")));
            said.moves("`longhaul answer`, or `Client::answer`".into());
            if let Some(ms) = wait.due_in_ms {
                said.moves(format!("time: the answer agreed on, in {}", time(ms.max(0))));
            }
        }
        WaitKind::Timer => {
            said.because("for a moment in time".into());
            said.moves(format!("time: in {}", time(wait.due_in_ms.unwrap_or(0).max(0))));
        }
        WaitKind::Fork => {
            said.because(format!("for its branches: {} of them are not over", facts.branches));
            match &facts.a_branch {
                Some(branch) => said.moves(format!("their ends; `longhaul explain {branch}` tells of one")),
                None => said.moves("the sweep of any node, within its poll interval".into()),
            }
        }
        WaitKind::Tools | WaitKind::Unknown(_) => {
            said.because(format!("for something of kind `{}`", wait.kind));
        }
    }
}

fn model(facts: &Facts, wait: &Wait, said: &mut Said) {
    let provider = wait.provider.as_deref().unwrap_or("?");
    if let Some(why) = &wait.parked {
        said.because(format!("nothing is sent: {why}"));
        said.moves("mend that, and `longhaul accounts resume`; or start a node anew".into());
    }
    if let Some(paused) = &wait.paused {
        said.because(format!("nothing is sent while this is paused: {paused}"));
        said.moves("`longhaul accounts resume`, or `Client::resume_sends`".into());
    }
    if let Some(held) = &wait.held {
        over_budget(held, said);
        return;
    }
    if wait.errors > 0 {
        said.because(format!("the provider has failed it {} times so far", wait.errors));
    }
    if let Some(call) = &wait.call
        && facts.batch.is_none()
    {
        return live(provider, call, wait, said);
    }
    let Some(batch) = facts.batch.as_ref().filter(|_| wait.status != WaitStatus::Open) else {
        match wait.queued_in_ms {
            Some(ms) if ms > 0 => said.because(format!("its request goes out again in {}", time(ms))),
            _ => said.because(format!("its request to `{provider}` is in no batch yet")),
        }
        match wait.deadline_in_ms {
            None => said.moves(format!("a node with provider `{provider}` sending the next batch")),
            Some(ms) if ms > 0 => {
                said.because(format!("its answer is wanted in {}", time(ms)));
                said.moves(format!("a node with provider `{provider}`: by a batch, or live if that would be too late"));
            }
            Some(_) => said.moves(format!("a node with provider `{provider}` making a live call")),
        }
        return;
    };
    let Batch { key, status, provider_batch_id, n, sent_ago_ms, note } = batch;
    let id = provider_batch_id.as_deref().unwrap_or("without an id yet");
    said.because(format!(
        "its request to `{provider}` (attempt {}) is in batch {key} of {n} requests: {status}, {id}",
        wait.attempt
    ));
    if let Some(ms) = sent_ago_ms {
        said.because(format!("that was sent {} ago; the provider takes up to 24 h", time(*ms)));
    }
    said.because.extend(note.iter().map(|note| format!("last noted of it: {note}")));
    said.moves(match status {
        BatchStatus::Reserved | BatchStatus::Sealed | BatchStatus::Sending => {
            "its sender; another node, should that be lost".into()
        }
        BatchStatus::Ambiguous => {
            "the provider's listing: it is looked for, and sent again only after the quarantine".into()
        }
        _ => "the provider finishing the batch; its results are read at the next poll".to_owned(),
    });
}

fn live(provider: &str, call: &Call, wait: &Wait, said: &mut Said) {
    let Call { under_way, node, sent_ago_ms, note } = call;
    let ago = time(*sent_ago_ms);
    if *under_way {
        said.because(format!("node `{node}` has been calling `{provider}` live for {ago} (attempt {})", wait.attempt));
        said.moves("the answer; should that node die, the rule for calls that are lost".into());
        return;
    }
    said.because(format!("it was sent to `{provider}` live {ago} ago, by node `{node}` (attempt {})", wait.attempt));
    said.because.extend(note.iter().map(|note| format!("last noted of it: {note}")));
    if let Some(ms) = wait.queued_in_ms.filter(|ms| *ms > 0) {
        said.because(format!("it is sent again in {}", time(ms)));
    }
    said.moves(format!("a node with provider `{provider}` making another live call"));
}

/// A request waits for money.
fn over_budget(held: &HeldBy, said: &mut Said) {
    let HeldBy { kind, period, subject, limit, spent, in_flight, estimate, ends_in_ms } = held;
    let whom = match kind {
        1 => "account",
        2 => "workflow",
        _ => "run",
    };
    let per = match period {
        1 => " for today",
        2 => " for this month",
        _ => "",
    };
    let Some(limit) = limit else {
        said.because(format!("it was held by a budget of {whom} `{subject}`, which is none any more"));
        said.moves("the next look of its sender, within its poll interval".into());
        return;
    };
    said.because(format!(
        "held: budget of {whom} `{subject}`{per}: {} of {} dollars spent, {} in flight",
        dollars(*spent),
        dollars(*limit),
        dollars(*in_flight)
    ));
    said.because(match estimate {
        Some(estimate) => format!("this request may cost up to {} dollars", dollars(*estimate)),
        None => "what this request costs is not known".into(),
    });
    let Some(estimate) = estimate else {
        said.moves("`longhaul budget set` without `--priced-only`, or `budget clear`".into());
        return;
    };
    said.moves("`longhaul budget set` with a higher limit, or `Client::set_budget`".into());
    // More than all of it: no time and no answer makes room for that.
    if estimate > limit {
        return;
    }
    if *in_flight > 0 {
        said.moves("an answer under way that comes to cost less than was reserved".into());
    }
    if let Some(ms) = ends_in_ms {
        said.moves(format!("time: the budget is renewed in {}", time((*ms).max(0))));
    }
}

fn ended(facts: &Facts) -> String {
    format!("over since {}", time(facts.finished_ago_ms.unwrap_or(0)))
}

/// A length of time for people.
pub(super) fn time(ms: i64) -> String {
    match ms {
        ..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} days", ms / 86_400_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(status: RunStatus) -> Facts {
        Facts {
            run_id: "r".into(),
            workflow: "w".into(),
            version: 1,
            status,
            step: "s".into(),
            fence: 3,
            starts: 1,
            errors: 0,
            reason: None,
            ready_in_ms: None,
            finished_ago_ms: None,
            owner: None,
            wait: None,
            batch: None,
            nodes: 2,
            able: 1,
            versions: vec![],
            paused: None,
            ceiling: None,
            branches: 2,
            a_branch: Some("~1.2.0".into()),
            error: None,
        }
    }

    fn wait(kind: WaitKind) -> Wait {
        Wait {
            kind,
            status: WaitStatus::Open,
            provider: Some("claude".into()),
            age_ms: 7_300_000,
            queued_in_ms: Some(-1),
            due_in_ms: None,
            attempt: 2,
            errors: 0,
            prompt: Some("Tone?".into()),
            parked: Some("402".into()),
            deadline_in_ms: None,
            call: None,
            paused: None,
            held: None,
        }
    }

    fn says(facts: &Facts, words: &[&str]) {
        let text = explain(facts).to_string();
        for word in words {
            assert!(text.contains(word), "`{word}` is not in:\n{text}");
        }
    }

    #[test]
    fn a_runnable_run_lacks_time_or_a_node() {
        says(
            &Facts { ready_in_ms: Some(5_000), errors: 2, ..facts(RunStatus::Runnable) },
            &["failed 2 times", "in 5 s"],
        );
        says(&Facts { nodes: 0, able: 0, ..facts(RunStatus::Runnable) }, &["no node is alive", "start a node"]);
        says(&Facts { able: 0, ..facts(RunStatus::Runnable) }, &["none of the 2 living nodes has this version"]);
        let others = Facts { able: 0, versions: vec![2, 3], ..facts(RunStatus::Runnable) };
        says(&others, &["they have 2 and 3", "takes it over"]);
        let paused = Paused { ago_ms: 60_000, by: "ann".into(), reason: "bad prompt".into() };
        let facts_paused = Facts { paused: Some(paused), ..facts(RunStatus::Runnable) };
        says(&facts_paused, &["paused by ann 60 s ago: bad prompt", "`longhaul resume w`"]);
        says(&Facts { ceiling: Some((3, 3)), ..facts(RunStatus::Runnable) }, &["3 of 3 runs", "`longhaul limit w N`"]);
        says(&Facts { ceiling: Some((2, 3)), ..facts(RunStatus::Runnable) }, &["may claim it"]);
        says(&facts(RunStatus::Runnable), &["1 of 2 living nodes may claim it"]);
    }

    #[test]
    fn an_owned_run_has_an_owner_who_lives_or_not() {
        let owner =
            |dead, beat_ago_ms| Owner { name: "a".into(), id: uuid::Uuid::nil(), dead, beat_ago_ms, lease_ms: 15_000 };
        let with = |owner| Facts { owner: Some(owner), ..facts(RunStatus::Owned) };
        says(&with(owner(false, 100)), &["node `a`", "fence 3", "the step returning"]);
        says(&with(owner(false, 16_000)), &["takes over", "15 s"]);
        says(&with(owner(true, 60_000)), &["declared dead"]);
    }

    #[test]
    fn a_run_that_waits_says_for_whom_and_since_when() {
        let with = |wait| Facts { wait: Some(wait), ..facts(RunStatus::Waiting) };
        says(&with(wait(WaitKind::Human)), &["a person: Tone?", "2 h", "`longhaul answer`"]);
        says(&with(Wait { due_in_ms: Some(600_000), ..wait(WaitKind::Human) }), &["the answer agreed on, in 10 min"]);
        says(&with(Wait { due_in_ms: Some(172_800_000), ..wait(WaitKind::Timer) }), &["2 days"]);
        says(&with(wait(WaitKind::External)), &["another service"]);
        says(&with(wait(WaitKind::Fork)), &["2 of them are not over", "`longhaul explain ~1.2.0`"]);
        says(&with(wait(WaitKind::Model)), &["in no batch yet", "sending the next batch"]);
    }

    #[test]
    fn a_live_call_tells_who_makes_it() {
        let with = |wait| Facts { wait: Some(wait), ..facts(RunStatus::Waiting) };
        let called = |under_way, note: Option<&str>| {
            let call = Call { under_way, node: "a".into(), sent_ago_ms: 3_000, note: note.map(str::to_owned) };
            Wait { call: Some(call), queued_in_ms: Some(4_000), ..wait(WaitKind::Model) }
        };
        says(&with(called(true, None)), &["node `a` has been calling `claude` live for 3 s (attempt 2)"]);
        says(&with(called(false, Some("529"))), &["last noted of it: 529", "sent again in 4 s", "another live call"]);
        says(&with(Wait { deadline_in_ms: Some(-1), ..wait(WaitKind::Model) }), &["making a live call"]);
        says(&with(Wait { deadline_in_ms: Some(600_000), ..wait(WaitKind::Model) }), &["wanted in 10 min", "or live"]);
    }

    #[test]
    fn a_request_in_a_batch_tells_the_batchs_story() {
        let batch = |status| Batch {
            key: 9,
            status,
            provider_batch_id: Some("msgbatch_1".into()),
            n: 64,
            sent_ago_ms: Some(3_600_000),
            note: Some("a note".into()),
        };
        let with = |status| {
            let wait = Wait { status: WaitStatus::Sent, ..wait(WaitKind::Model) };
            Facts { wait: Some(wait), batch: Some(batch(status)), ..facts(RunStatus::Waiting) }
        };
        says(&with(BatchStatus::Submitted), &["batch 9 of 64 requests", "msgbatch_1", "60 min ago", "a note", "402"]);
        says(&with(BatchStatus::Ambiguous), &["only after the quarantine"]);
        says(&with(BatchStatus::Sending), &["its sender"]);
    }

    #[test]
    fn a_request_that_waits_for_money_says_how_much() {
        let held = HeldBy {
            kind: 2,
            period: 1,
            subject: "titles".into(),
            limit: Some(1_000_000_000),
            spent: 1_200_000_000,
            in_flight: 300_000_001,
            estimate: Some(50),
            ends_in_ms: Some(7_200_000),
        };
        let with = |held, paused: Option<String>| {
            let wait = Wait { parked: None, paused, held, ..wait(WaitKind::Model) };
            Facts { wait: Some(wait), ..facts(RunStatus::Waiting) }
        };
        says(
            &with(Some(held.clone()), None),
            &[
                "held: budget of workflow `titles` for today: 1.20 of 1.00 dollars spent, 0.300000001 in flight",
                "up to 0.00000005 dollars",
                "`longhaul budget set`",
                "renewed in 2 h",
            ],
        );
        says(&with(Some(HeldBy { limit: None, ..held }), None), &["none any more"]);
        says(&with(None, Some("provider `claude` by ada: audit".into())), &["by ada: audit", "accounts resume"]);
    }

    #[test]
    fn a_run_that_is_over_says_how() {
        says(&Facts { reason: Some("no such step".into()), ..facts(RunStatus::Parked) }, &["held back: no such step"]);
        says(&Facts { error: Some("boom".into()), ..facts(RunStatus::Failed) }, &["boom", "`longhaul retry`"]);
        assert!(explain(&facts(RunStatus::Completed)).moves.is_empty());
    }
}
