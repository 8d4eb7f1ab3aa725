//! Joins: what a run gets of its branches. It depends on what became of them, never on the order in which they came to it.

use super::members::{Members, Opened, Status};
use crate::domain::{EventType, Failure, FailureCode, ForkPolicy, JsonText, RunKey};
use crate::run::merge::{Conflict, Merge};
use crate::run::trampoline::event;
use serde_json::json;

impl Members {
    /// Whether the branches of a run have come far enough for it to go on, or to fail with them.
    pub(super) fn is_decided(&self, run: RunKey) -> bool {
        let Status::Forked { branches, rule, .. } = &self.get(run).status else { return false };
        branches.iter().all(|branch| self.get(branch.run()).status.is_over())
            || rule.policy == ForkPolicy::FailFast && self.fallen(branches).is_some()
    }

    /// Hands a run the results of its branches, or fails it with one of them.
    pub(super) fn join(&mut self, run: RunKey) {
        let Status::Forked { ordinal, branches, rule } = self.get(run).status.clone() else { return };
        if rule.policy != ForkPolicy::Collect
            && let Some((guilty, why)) = self.fallen(&branches)
        {
            for branch in &branches {
                self.stop(branch.run());
            }
            self.tell(run, &event(EventType::ForkFailed, &json!({"wait": ordinal, "branch": guilty})));
            let step = self.get(run).position.step.clone();
            let text = format!("branch `{guilty}`: {why}");
            return self.fail(run, Failure::new(FailureCode::BranchFailed, step, text));
        }
        let results = self.results(&branches, rule.policy);
        let payload = json!({"wait": ordinal, "bytes": results.as_str().len()});
        self.tell(run, &event(EventType::ForkJoined, &payload));
        self.change(run, |member| {
            member.take(&results);
            member.merging = if rule.merge { branches } else { Vec::new() };
        });
    }

    /// The branch that a run fails with, and why: the first that failed, or else the first that was canceled.
    fn fallen(&self, branches: &[Opened]) -> Option<(String, String)> {
        let failed = branches.iter().find_map(|branch| match &self.get(branch.run()).status {
            Status::Failed { failure, .. } => Some((branch.name.clone(), failure.message.clone())),
            _ => None,
        });
        let canceled = || {
            let canceled = |branch: &&Opened| matches!(self.get(branch.run()).status, Status::Canceled { .. });
            branches.iter().find(canceled).map(|branch| (branch.name.clone(), "it was canceled".to_owned()))
        };
        failed.or_else(canceled)
    }

    /// The results, in the order of the branches.
    fn results(&self, branches: &[Opened], policy: ForkPolicy) -> JsonText {
        let of = |branch: &Opened| {
            let member = self.get(branch.run());
            let failure = match &member.status {
                Status::Completed { output } if policy != ForkPolicy::Collect => return output.as_str().to_owned(),
                Status::Completed { output } => return format!(r#"{{"ok":{}}}"#, output.as_str()),
                Status::Failed { failure, .. } => failure.clone(),
                _ => Failure::new(FailureCode::BranchFailed, member.position.step.clone(), "it was canceled"),
            };
            format!(r#"{{"failed":{}}}"#, serde_json::to_string(&failure).unwrap_or_default())
        };
        let results: Vec<String> = branches.iter().map(of).collect();
        JsonText::stored(format!("[{}]", results.join(",")))
    }

    /// The state that the next step finds, and whether it is more than what is kept: what branches have made of it.
    pub(super) fn state(&self, run: RunKey) -> Result<(Option<JsonText>, bool), Conflict> {
        let member = self.get(run);
        let mut merge = Merge::new(member.state.clone().unwrap_or_else(JsonText::null));
        for branch in &member.merging {
            let left = self.get(branch.run());
            if let (Status::Completed { .. }, Some(state)) = (&left.status, &left.state) {
                merge.add(&branch.name, state)?;
            }
        }
        Ok(match merge.finish() {
            Some(merged) => (Some(merged), true),
            None => (member.state.clone(), false),
        })
    }
}
