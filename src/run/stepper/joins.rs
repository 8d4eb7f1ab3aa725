//! Joins: what a run gets of its branches. It depends on what became of them, never on the order in which they came to it.

use super::members::{Members, Opened, Status};
use crate::domain::{EventType, Failure, FailureCode, ForkPolicy, JsonText, Ordinal, RunKey};
use crate::run::trampoline::event;
use serde_json::json;

impl Members {
    /// Whether the branches of a run have come far enough for it to go on, or to fail with them.
    pub(super) fn is_decided(&self, run: RunKey) -> bool {
        match &self.get(run).status {
            Status::Forked { branches, .. } => branches.iter().all(|branch| self.get(branch.run()).status.is_over()),
            _ => false,
        }
    }

    /// Hands a run the results of its branches, or fails it with one of them.
    pub(super) fn join(&mut self, run: RunKey) {
        let Status::Forked { ordinal, branches, policy } = self.get(run).status.clone() else { return };
        match self.results(&branches, policy) {
            Ok(results) => self.joined(run, ordinal, &results),
            Err((guilty, why)) => {
                self.tell(run, &event(EventType::ForkFailed, &json!({"wait": ordinal, "branch": guilty})));
                let step = self.get(run).position.step.clone();
                let text = format!("branch `{guilty}`: {why}");
                self.fail(run, Failure::new(FailureCode::BranchFailed, step, text));
            }
        }
    }

    fn joined(&mut self, run: RunKey, fork: Ordinal, results: &JsonText) {
        let payload = json!({"wait": fork, "bytes": results.as_str().len()});
        self.tell(run, &event(EventType::ForkJoined, &payload));
        self.change(run, |member| member.take(results));
    }

    /// The results in the order of the branches; or the first branch that failed, and why.
    fn results(&self, branches: &[Opened], policy: ForkPolicy) -> Result<JsonText, (String, String)> {
        let mut results = Vec::with_capacity(branches.len());
        for branch in branches {
            let member = self.get(branch.run());
            let failure = match &member.status {
                Status::Completed { output } => {
                    results.push(match policy {
                        ForkPolicy::WaitAll => output.as_str().to_owned(),
                        ForkPolicy::Collect => format!(r#"{{"ok":{}}}"#, output.as_str()),
                    });
                    continue;
                }
                Status::Failed { failure, .. } => failure.clone(),
                _ => Failure::new(FailureCode::BranchFailed, member.position.step.clone(), "it was canceled"),
            };
            match policy {
                ForkPolicy::WaitAll => return Err((branch.name.clone(), failure.message)),
                ForkPolicy::Collect => {
                    results.push(format!(r#"{{"failed":{}}}"#, serde_json::to_string(&failure).unwrap_or_default()));
                }
            }
        }
        Ok(JsonText::stored(format!("[{}]", results.join(","))))
    }
}
