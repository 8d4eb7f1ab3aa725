//! Answering people's questions and other services' waits, and canceling runs.

use super::Client;
use super::operate::named;
use crate::domain::canonical::canonical;
use crate::domain::limits::REPLY_BYTES;
use crate::domain::{JsonText, Ordinal, RunKey, RunStatus, WaitKind, WaitStatus};
use crate::error::Error;
use crate::run::misfit;
use crate::store::{Hint, OpenWait};
use serde::Serialize;
use serde_json::Value;

/// How often a cancel is repeated that crosses a step.
const CANCEL_TRIES: u32 = 1_000;

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
    /// the `schema` of the answer where there are any. `question` is its number, for [`Client::answer_question`].
    ///
    /// # Errors
    /// [`Error::UnknownRun`]; [`Error::NotWaiting`] when it asks nobody.
    pub async fn question(&self, run_id: &str) -> Result<Value, Error> {
        let wait = self.open(run_id).await?;
        let text = wait.request.unwrap_or_else(|| "null".into());
        let mut question: Value =
            serde_json::from_str(&text).map_err(|e| Error::Output { run: run_id.to_owned(), why: e.to_string() })?;
        if let (Some(asked), Some(ordinal)) = (question.as_object_mut(), wait.ordinal) {
            asked.insert("question".into(), ordinal.into());
        }
        Ok(question)
    }

    /// Answers what a run asks a person or another service. A person's answer is checked against the schema of the question
    /// before anything is written. `by` says who answers, for the record. The same answer by the same person again, after a reply
    /// that was lost, is done already as long as the run asks nothing else; where a run may ask more than once, name the
    /// question: [`Client::answer_question`].
    ///
    /// # Errors
    /// [`Error::Answer`] when it does not fit: the question stays open. [`Error::AlreadyAnswered`], [`Error::Expired`],
    /// [`Error::RunOver`] or [`Error::NotWaiting`] when there is nothing to answer any more.
    pub async fn answer<T: Serialize + ?Sized>(&self, run_id: &str, by: &str, answer: &T) -> Result<(), Error> {
        let body = JsonText::of(answer, "an answer", REPLY_BYTES)?;
        self.answer_to(run_id, None, by, &body).await
    }

    /// Answers a certain question of a run: the one that [`Client::question`] has shown under that number. A later question of the
    /// same run is not answered by mistake, and the same answer by the same person again is done already, whatever the run
    /// does by now.
    ///
    /// # Errors
    /// As [`Client::answer`], and [`Error::UnknownQuestion`] when the run never asked that.
    pub async fn answer_question<T: Serialize + ?Sized>(
        &self,
        run_id: &str,
        question: Ordinal,
        by: &str,
        answer: &T,
    ) -> Result<(), Error> {
        let body = JsonText::of(answer, "an answer", REPLY_BYTES)?;
        self.answer_to(run_id, Some(question), by, &body).await
    }

    async fn answer_to(&self, run_id: &str, question: Option<Ordinal>, by: &str, body: &JsonText) -> Result<(), Error> {
        named(by)?;
        let wait = self.look(run_id).await?;
        let asks = asks(&wait) && question.is_none_or(|question| wait.ordinal == Some(question));
        let (Some(ordinal), Some(kind), true) = (wait.ordinal, wait.kind, asks) else {
            return self.said_before(run_id, &wait, question, by, body).await;
        };
        if let Some(why) = wait.request.as_deref().and_then(|asked| misfit(asked, body)) {
            return Err(Error::Answer { run: run_id.to_owned(), why });
        }
        if self.store().answer_wait(wait.run, ordinal, kind, Some(by), body.as_str()).await? {
            let _ = self.store().nudge(Hint::Runs).await;
            return Ok(());
        }
        // Somebody or something was quicker. Which, this very wait tells: the run may wait for something else by now.
        self.said_before(run_id, &wait, Some(ordinal), by, body).await
    }

    /// There is no such question to answer now: whether this very answer was given to it before, else why not.
    async fn said_before(
        &self,
        run_id: &str,
        wait: &OpenWait,
        question: Option<Ordinal>,
        by: &str,
        body: &JsonText,
    ) -> Result<(), Error> {
        let run = || run_id.to_owned();
        let given = self.store().given(wait.run, question).await?;
        if given.as_ref().is_some_and(|given| given.by.as_deref() == Some(by) && same(&given.body, body)) {
            return Ok(());
        }
        let Some(question) = question else { return Err(refusal(run_id, wait)) };
        Err(match (given.map(|given| given.by), self.store().wait_status(wait.run, question).await?) {
            (Some(None), _) => Error::Expired(run()),
            (Some(Some(_)), _) => Error::AlreadyAnswered(run()),
            (None, None) => Error::UnknownQuestion { run: run(), question },
            (None, Some(_)) => refusal(run_id, &self.look(run_id).await?),
        })
    }

    /// Ends a run by request, in whatever state it is, and its branches. What it has at a provider is paid and booked when it comes,
    /// and changes nothing else.
    ///
    /// # Errors
    /// [`Error::UnknownRun`].
    pub async fn cancel(&self, run_id: &str) -> Result<Canceled, Error> {
        let run = self.run(run_id).await?;
        let mut tries = 0;
        let before = loop {
            let before = self.store().cancel(&[run.key], false).await?;
            let before = before.first().ok_or_else(|| Error::UnknownRun(run_id.to_owned()))?;
            if before.done || before.status.is_terminal() {
                break before.status;
            }
            // It came to wait for something since that statement began; the next one sees it.
            tries += 1;
            if tries == CANCEL_TRIES {
                return Err(Error::Deadline(
                    "the run goes on to wait for something else each time it is to be canceled",
                ));
            }
        };
        // The order for them is durable: should this process die here, any node's sweep carries it out.
        let branches = self.store().ordered_below(&[run.key]).await?;
        self.store().carry_out(branches).await?;
        if let Some(parent) = run.parent
            && self.store().join_all(vec![parent], true).await?
        {
            let _ = self.store().nudge(Hint::Runs).await;
        }
        Ok(if before.is_terminal() { Canceled::AlreadyTerminal(before) } else { Canceled::Canceled(before) })
    }

    /// Sets a failed or parked run going again from its last durable state; a request that failed for good goes out again, with a
    /// fresh budget. Answers what the run is then.
    ///
    /// A run that failed with its branches waits for them again: those that failed go on too, and those that were stopped because
    /// the fork did not wait. Whoever failed because this one did waits for it again, and so on upwards. Repeating a retry that was
    /// interrupted finishes it.
    ///
    /// # Errors
    /// [`Error::UnknownRun`]; [`Error::NotRetryable`] when it is neither failed nor parked; [`Error::Removed`] when there is nothing
    /// to go on from any more.
    pub async fn retry(&self, run_id: &str) -> Result<RunStatus, Error> {
        let run = self.run(run_id).await?;
        let refused = |status| Error::NotRetryable { run: run_id.to_owned(), status };
        let standing = self.store().standing(run.key).await?.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))?;
        if standing.removed {
            return Err(Error::Removed(run_id.to_owned()));
        }
        let able = matches!(standing.status, RunStatus::Failed | RunStatus::Parked) || standing.stopped;
        // Of a retry that was interrupted, the rest: this one goes on already, and whoever failed because of it does not yet.
        let begun = !standing.status.is_terminal() && self.store().fallen_parent(run.key).await?.is_some();
        if !(able || begun) {
            return Err(refused(standing.status));
        }
        let revived = self.revive(run.key, true).await?;
        let mut child = run.key;
        while let Some(parent) = self.store().fallen_parent(child).await? {
            self.revive(parent, false).await?;
            child = parent;
        }
        for hint in [Hint::Runs, Hint::Requests, Hint::Calls] {
            let _ = self.store().nudge(hint).await;
        }
        match revived {
            Some(status) => Ok(status),
            // Somebody else was quicker.
            None => match self.run(run_id).await?.status {
                over if over.is_terminal() => Err(refused(over)),
                status => Ok(status),
            },
        }
    }

    /// Sets a run going again, after the branches that it failed with: they go first, so that it does not fail again.
    async fn revive(&self, run: RunKey, named: bool) -> Result<Option<RunStatus>, Error> {
        for branch in self.store().fallen_branches(run).await? {
            Box::pin(self.revive(branch, false)).await?;
        }
        let status = self.store().retry_run(run, named).await?;
        // Its branches may all be over by now.
        self.store().join_all(vec![run], false).await?;
        Ok(status)
    }

    async fn look(&self, run_id: &str) -> Result<OpenWait, Error> {
        self.store().look(run_id).await?.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))
    }

    async fn open(&self, run_id: &str) -> Result<OpenWait, Error> {
        let wait = self.look(run_id).await?;
        if asks(&wait) { Ok(wait) } else { Err(refusal(run_id, &wait)) }
    }
}

/// Whether there is a question to answer now.
fn asks(wait: &OpenWait) -> bool {
    let somebody = matches!(wait.kind, Some(WaitKind::Human | WaitKind::External));
    wait.run_status == RunStatus::Waiting && somebody && wait.status == Some(WaitStatus::Open) && !wait.over
}

/// Whether a stored answer says the same.
fn same(stored: &str, body: &JsonText) -> bool {
    stored == body.as_str() || canonical(&JsonText::stored(stored.to_owned())).ok() == canonical(body).ok()
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
