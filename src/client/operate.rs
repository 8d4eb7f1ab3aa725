//! What operators do to a workflow, a node or one run: pause and resume, a ceiling, draining, parking.

use super::Client;
use crate::domain::RunStatus;
use crate::domain::failure::cut;
use crate::domain::limits::NAME_BYTES;
use crate::error::Error;
use crate::store::{Control, Hint};
use chrono::{DateTime, Utc};

impl Client {
    /// Pauses a workflow, whatever its version: from the next claim on, no node takes a run of it. Runs that a node holds go on until
    /// they next leave it: when they wait, end, or are released. What waits goes on waiting: requests that were asked are sent,
    /// answers are taken and stored, and the runs they belong to stay runnable until [`Client::resume`]. Enqueueing goes on.
    ///
    /// `by` and `reason` are for whoever asks later why nothing moves. `false`: it was paused before, and that stands.
    ///
    /// # Errors
    /// [`Error::UnknownWorkflow`]; [`Error::InvalidName`] when `by` cannot be kept; [`Error::Store`].
    pub async fn pause(&self, workflow: &str, by: &str, reason: &str) -> Result<bool, Error> {
        named(by)?;
        self.versions(workflow).await?;
        let paused = self.store().pause(workflow, by, &text(reason)).await?;
        if paused {
            tracing::info!(workflow, by, "a workflow is paused");
        }
        Ok(paused)
    }

    /// Ends the pause of a workflow. `false`: it was not paused.
    ///
    /// # Errors
    /// As [`Client::pause`].
    pub async fn resume(&self, workflow: &str, by: &str) -> Result<bool, Error> {
        named(by)?;
        self.versions(workflow).await?;
        let resumed = self.store().resume(workflow, by).await?;
        if resumed {
            tracing::info!(workflow, by, "a workflow goes on");
            let _ = self.store().nudge(Hint::Runs).await;
        }
        Ok(resumed)
    }

    /// Sets how many runs of a workflow, of all versions together, may be owned at a time over all nodes; `None` is as many as the
    /// nodes can hold. The bound is exact: claims of that workflow go one after the other. When it is lowered, runs in hand go
    /// on, and no more are claimed until enough have left. `false`: it was that before.
    ///
    /// # Errors
    /// As [`Client::pause`], and [`Error::InvalidLimit`] for 0 (that is a pause) and for more than 2^31 - 1.
    pub async fn limit_running(&self, workflow: &str, by: &str, most: Option<u32>) -> Result<bool, Error> {
        named(by)?;
        let number = most.map(i32::try_from).transpose().ok().filter(|n| *n != Some(0));
        let number = number.ok_or(Error::InvalidLimit(most.unwrap_or(0)))?;
        self.versions(workflow).await?;
        let changed = self.store().limit_workflow(workflow, by, number).await?;
        if changed {
            tracing::info!(workflow, by, limit = ?most, "the ceiling of a workflow has changed");
            let _ = self.store().nudge(Hint::Runs).await;
        }
        Ok(changed)
    }

    /// What operators have said of workflows: those of which anything was ever said, by name.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn controls(&self) -> Result<Vec<Control>, Error> {
        Ok(self.store().controls(None).await?)
    }

    /// What time it is by the database's clock.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn now(&self) -> Result<DateTime<Utc>, Error> {
        Ok(self.store().database_now().await?)
    }

    /// Asks the living nodes of a name, or the one of an id, to take no more runs. It is kept in the database and heard with the
    /// next heartbeat; there is no way back but a new node. Answers how many nodes were asked. See
    /// [`Node::drain_asked`](crate::Node::drain_asked) for what a node makes of it.
    ///
    /// # Errors
    /// [`Error::UnknownNode`] when none of them lives; [`Error::InvalidName`]; [`Error::Store`].
    pub async fn drain_node(&self, node: &str, by: &str) -> Result<u64, Error> {
        named(by)?;
        match self.store().drain(node, by).await? {
            0 => Err(Error::UnknownNode(node.to_owned())),
            asked => Ok(asked),
        }
    }

    /// Holds back a run that is runnable or owned, until [`Client::retry`]: no node goes on with it, and what its present step still
    /// does is not committed. Answers what it was. A run that waits does nothing: it is not parked, but may be canceled.
    ///
    /// # Errors
    /// [`Error::UnknownRun`]; [`Error::NotParkable`]; [`Error::InvalidName`] when `by` cannot be kept; [`Error::Store`].
    pub async fn park(&self, run_id: &str, by: &str, reason: &str) -> Result<RunStatus, Error> {
        named(by)?;
        let run = self.run(run_id).await?;
        let was = self.store().park(run.key, by, &text(reason)).await?;
        match was.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))? {
            was @ (RunStatus::Runnable | RunStatus::Owned) => Ok(was),
            status => Err(Error::NotParkable { run: run_id.to_owned(), status }),
        }
    }
}

/// A name that can be kept.
pub(super) fn named(by: &str) -> Result<(), Error> {
    if by.trim().is_empty() || by.len() > NAME_BYTES || by.chars().any(char::is_control) {
        return Err(Error::InvalidName(by.chars().take(NAME_BYTES).collect()));
    }
    Ok(())
}

/// A text that can be kept.
fn text(reason: &str) -> String {
    match reason.trim() {
        "" => "no reason was given".into(),
        reason => cut(reason),
    }
}
