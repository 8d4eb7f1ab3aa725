//! Answering people's questions and other services' waits, and canceling runs.

use super::Client;
use crate::domain::limits::REPLY_BYTES;
use crate::domain::{JsonText, RunStatus, WaitKind, WaitStatus};
use crate::error::Error;
use crate::run::misfit;
use crate::store::{Hint, OpenWait, RunView};
use serde::Serialize;
use serde_json::Value;

/// What a cancel came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Canceled {
    /// The run is over now; it was doing this.
    Canceled(RunStatus),
    /// It was over already.
    AlreadyTerminal(RunStatus),
}

impl Client {
    /// What a run asks a person or another service: the question as a JSON object with `prompt`, and `context`, `metadata` and
    /// the `schema` of the answer where there are any.
    ///
    /// # Errors
    /// [`Error::UnknownRun`]; [`Error::NotWaiting`] when it asks nobody.
    pub async fn question(&self, run_id: &str) -> Result<Value, Error> {
        let wait = self.open(run_id).await?;
        let text = wait.request.unwrap_or_else(|| "null".into());
        serde_json::from_str(&text).map_err(|e| Error::Output { run: run_id.to_owned(), why: e.to_string() })
    }

    /// Answers what a run asks a person or another service. A person's answer is checked against the schema of the question
    /// before anything is written. `by` says who answers, for the record.
    ///
    /// # Errors
    /// [`Error::Answer`] when it does not fit: the question stays open. [`Error::AlreadyAnswered`], [`Error::Expired`],
    /// [`Error::RunOver`] or [`Error::NotWaiting`] when there is nothing to answer any more.
    pub async fn answer<T: Serialize + ?Sized>(&self, run_id: &str, by: &str, answer: &T) -> Result<(), Error> {
        let wait = self.open(run_id).await?;
        let body = JsonText::of(answer, "an answer", REPLY_BYTES)?;
        let (Some(ordinal), Some(kind)) = (wait.ordinal, wait.kind) else { return Err(refusal(run_id, &wait)) };
        if let Some(why) = wait.request.as_deref().and_then(|asked| misfit(asked, &body)) {
            return Err(Error::Answer { run: run_id.to_owned(), why });
        }
        if self.store().answer_wait(wait.run, ordinal, kind, Some(by), body.as_str()).await? {
            let _ = self.store().nudge(Hint::Runs).await;
            return Ok(());
        }
        // Somebody or something was quicker. Which, this very wait tells: the run may wait for something else by now.
        Err(match self.store().fate(wait.run, ordinal).await? {
            Some((WaitStatus::Answered | WaitStatus::Applied, true)) => Error::Expired(run_id.to_owned()),
            Some((WaitStatus::Answered | WaitStatus::Applied, false)) => Error::AlreadyAnswered(run_id.to_owned()),
            _ => refusal(run_id, &self.look(run_id).await?),
        })
    }

    /// Ends a run by request, in whatever state it is. What it has at a provider is paid and booked when it comes, and changes
    /// nothing else.
    ///
    /// # Errors
    /// [`Error::UnknownRun`].
    pub async fn cancel(&self, run_id: &str) -> Result<Canceled, Error> {
        let run = self.run(run_id).await?;
        let before = loop {
            let unknown = || Error::UnknownRun(run_id.to_owned());
            let before = self.store().cancel(run.key).await?.ok_or_else(unknown)?;
            if before.done || before.status.is_terminal() {
                break before.status;
            }
        };
        // Read when no more can come. Those that are over already say so, and nothing else.
        for (branch, _) in self.store().branches(run.key).await? {
            Box::pin(self.cancel(&branch)).await?;
        }
        if let Some(parent) = run.parent
            && self.store().join_all(vec![parent]).await?
        {
            let _ = self.store().nudge(Hint::Runs).await;
        }
        Ok(if before.is_terminal() { Canceled::AlreadyTerminal(before) } else { Canceled::Canceled(before) })
    }

    /// Sets a failed or parked run going again from its last durable state; a request that failed for good goes out again, with a
    /// fresh budget. Answers what the run is then.
    ///
    /// # Errors
    /// [`Error::UnknownRun`]; [`Error::NotRetryable`] when it is neither failed nor parked.
    pub async fn retry(&self, run_id: &str) -> Result<RunStatus, Error> {
        let run = self.run(run_id).await?;
        if run.status == RunStatus::Failed {
            // A run that failed with its branches waits for them again; they go first, so that it does not fail again.
            for (branch, failed) in self.store().branches(run.key).await? {
                if failed {
                    Box::pin(self.retry(&branch)).await?;
                }
            }
        }
        match self.store().retry_run(run.key).await? {
            Some(status) => {
                self.revive_above(run).await?;
                let hint = if status == RunStatus::Waiting { Hint::Requests } else { Hint::Runs };
                let _ = self.store().nudge(hint).await;
                Ok(status)
            }
            None => {
                let status = self.run(run_id).await?.status;
                // A branch that was set going has done it already.
                if status != run.status {
                    return Ok(status);
                }
                Err(Error::NotRetryable { run: run_id.to_owned(), status })
            }
        }
    }

    /// Whoever failed with this branch waits for it again, and so on upwards.
    async fn revive_above(&self, branch: RunView) -> Result<(), Error> {
        let (mut child, mut above) = (branch.run_id, branch.parent);
        while let Some(parent) = above {
            let waits = self.store().branches(parent).await?.into_iter().any(|(id, _)| id == child);
            if !waits || self.store().retry_run(parent).await?.is_none() {
                break;
            }
            (child, above) =
                (self.store().run_id(parent).await?.unwrap_or_default(), self.store().parent(parent).await?);
        }
        Ok(())
    }

    async fn look(&self, run_id: &str) -> Result<OpenWait, Error> {
        self.store().look(run_id).await?.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))
    }

    async fn open(&self, run_id: &str) -> Result<OpenWait, Error> {
        let wait = self.look(run_id).await?;
        let asks = matches!(wait.kind, Some(WaitKind::Human | WaitKind::External));
        if wait.run_status == RunStatus::Waiting && asks && wait.status == Some(WaitStatus::Open) && !wait.over {
            return Ok(wait);
        }
        Err(refusal(run_id, &wait))
    }
}

/// Why a run has no question to answer.
fn refusal(run_id: &str, wait: &OpenWait) -> Error {
    let run = run_id.to_owned();
    match (wait.run_status, wait.kind, wait.status) {
        (status, ..) if status.is_terminal() => Error::RunOver { run, status },
        (_, Some(WaitKind::Human | WaitKind::External), Some(WaitStatus::Open)) if wait.over => Error::Expired(run),
        (_, Some(WaitKind::Human | WaitKind::External), Some(WaitStatus::Answered | WaitStatus::Applied)) => {
            Error::AlreadyAnswered(run)
        }
        _ => Error::NotWaiting(run),
    }
}

