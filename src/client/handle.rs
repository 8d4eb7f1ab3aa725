//! A run in the hands of whoever enqueued it.

use super::Client;
use crate::domain::{Failure, JsonText, RunId, RunKey, RunStatus};
use crate::error::Error;
use crate::run::Workflow;
use crate::store::RunView;
use std::marker::PhantomData;
use std::time::Duration;

/// The first pause between two looks; it doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(500);

/// A run, with the type of its output.
pub struct RunHandle<W: Workflow> {
    client: Client,
    key: RunKey,
    id: RunId,
    workflow: PhantomData<fn() -> W>,
}

impl<W: Workflow> std::fmt::Debug for RunHandle<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RunHandle({} of {})", self.id, W::NAME)
    }
}

impl<W: Workflow> RunHandle<W> {
    pub(super) fn new(client: Client, key: RunKey, id: RunId) -> Self {
        Self { client, key, id, workflow: PhantomData }
    }

    /// Its id.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// What it is doing.
    ///
    /// # Errors
    /// [`Error::UnknownRun`] when it is gone.
    pub async fn view(&self) -> Result<RunView, Error> {
        self.client.run(self.id.as_str()).await
    }

    /// Waits until it is over and answers its output.
    ///
    /// # Errors
    /// [`Error::RunFailed`] with the failure; [`Error::NoOutput`] when it was canceled; [`Error::Removed`] when it ended long ago;
    /// [`Error::Output`] when the output does not fit the type.
    pub async fn output(&self) -> Result<W::Output, Error> {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(output) = self.try_output().await? {
                return Ok(output);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Its output, without waiting: `None` as long as it is not over.
    ///
    /// # Errors
    /// As [`RunHandle::output`].
    pub async fn try_output(&self) -> Result<Option<W::Output>, Error> {
        let outcome = self.client.store().outcome(self.key).await?;
        let outcome = outcome.ok_or_else(|| Error::UnknownRun(self.id.to_string()))?;
        let run = || self.id.to_string();
        let unfit = |why: serde_json::Error| Error::Output { run: run(), why: why.to_string() };
        match (outcome.status, outcome.body, outcome.error) {
            (RunStatus::Completed, Some(body), _) => JsonText::stored(body).read().map(Some).map_err(unfit),
            (RunStatus::Failed, _, Some(error)) => {
                let failure: Failure = serde_json::from_str(&error).map_err(unfit)?;
                Err(Error::RunFailed { run: run(), failure })
            }
            (status, ..) if status.is_terminal() => {
                let removed = self.view().await?.removed_at.is_some();
                Err(if removed { Error::Removed(run()) } else { Error::NoOutput { run: run(), status } })
            }
            _ => Ok(None),
        }
    }
}
