//! Following the ends of runs: every output of a workflow, in an order that a reader can keep its place in.

use super::Client;
use crate::domain::{Failure, JsonText};
use crate::error::Error;
use crate::run::Workflow;
use crate::store::Told;
use chrono::{DateTime, Utc};
use futures::Stream;
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Ends read per statement.
const PAGE: u32 = 500;
/// The pause between two looks that found nothing.
const PAUSE: Duration = Duration::from_millis(200);

/// A place among the ends of runs. What is kept of it, as text, is where a reader goes on after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutputCursor {
    transaction: i64,
    run: i64,
}

impl OutputCursor {
    /// Before the first end that there is.
    pub const START: Self = Self { transaction: 0, run: 0 };
}

impl fmt::Display for OutputCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "o{}.{}", self.transaction, self.run)
    }
}

impl FromStr for OutputCursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text.strip_prefix('o').and_then(|rest| rest.split_once('.'));
        let numbers = parts.and_then(|(a, b)| Some((a.parse::<u64>().ok()?, b.parse::<u64>().ok()?)));
        let place = numbers.and_then(|(a, b)| Some((i64::try_from(a).ok()?, i64::try_from(b).ok()?)));
        let place = place.map(|(transaction, run)| Self { transaction, run });
        place.ok_or_else(|| Error::InvalidCursor(text.chars().take(64).collect()))
    }
}

/// A run that is over.
#[derive(Debug)]
pub struct Finished<O> {
    /// Its id.
    pub run_id: String,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// Its output; [`Error::RunFailed`] with the failure; [`Error::Output`] when the output does not fit the type.
    pub output: Result<O, Error>,
    /// The place right behind it.
    pub cursor: OutputCursor,
}

/// Ends of runs, and where to go on.
#[derive(Debug)]
pub struct FinishedPage<O> {
    /// The ends in order.
    pub finished: Vec<Finished<O>>,
    /// The place behind all that was looked at; further than the last of `finished` when others ended as well.
    pub next: OutputCursor,
    /// Whether there may be more right now.
    pub more: bool,
}

impl Client {
    /// The runs of a workflow that have completed or failed since a place, for ever: when there are no more, it waits for the next.
    /// Runs that were canceled have no output and are not among them, nor are branches.
    ///
    /// Each end comes after the place that the end before it names, so a reader that keeps the cursor of what it has handled misses
    /// none and, after a crash, sees again only what it had not kept. A run that failed, was set going again and completed comes
    /// twice: each of its ends is one. The order is that of the transactions, which is nearly that of time.
    ///
    /// An end is told once every transaction that began before its own is over. So a transaction that stays open for long, of
    /// whatever application on the same server, holds up this stream (and loses nothing) for as long as it has written anything.
    ///
    /// An error of the database is an item of the stream, which goes on afterwards.
    ///
    /// ```no_run
    /// # use longhaul::{Client, OutputCursor, Workflow};
    /// # async fn f<W: Workflow<Output = String>>(client: Client) -> Result<(), longhaul::Error> {
    /// use futures::{StreamExt, pin_mut};
    /// let outputs = client.outputs::<W>(OutputCursor::START);
    /// pin_mut!(outputs);
    /// while let Some(finished) = outputs.next().await {
    ///     let finished = finished?;
    ///     println!("{} {:?}, go on at {}", finished.run_id, finished.output, finished.cursor);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn outputs<W: Workflow>(
        &self,
        since: OutputCursor,
    ) -> impl Stream<Item = Result<Finished<W::Output>, Error>> + Send + use<W> {
        let (client, ready) = (self.clone(), VecDeque::<Finished<W::Output>>::new());
        futures::stream::unfold((client, since, ready), |(client, mut since, mut ready)| async move {
            loop {
                if let Some(finished) = ready.pop_front() {
                    return Some((Ok(finished), (client, since, ready)));
                }
                match client.finished::<W>(since, PAGE).await {
                    Ok(page) => {
                        since = page.next;
                        ready.extend(page.finished);
                        if !page.more && ready.is_empty() {
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                    Err(error) => {
                        tokio::time::sleep(PAUSE).await;
                        return Some((Err(error), (client, since, ready)));
                    }
                }
            }
        })
    }

    /// One look of [`Client::outputs`]: what has ended since a place, at most `limit` ends looked at.
    ///
    /// # Errors
    /// [`Error::ForeignCursor`] when the database was restored from a dump onto another server, whose transactions have other
    /// numbers; [`Error::UnknownWorkflow`]; [`Error::Store`].
    pub async fn finished<W: Workflow>(
        &self,
        since: OutputCursor,
        limit: u32,
    ) -> Result<FinishedPage<W::Output>, Error> {
        let workflows = self.versions(W::NAME).await?;
        let limit = i64::from(limit.max(1));
        let ends = self.store().ends(&workflows, (since.transaction, since.run), limit).await?;
        let ends = ends.ok_or(Error::ForeignCursor)?;
        let more = ends.len() as i64 == limit;
        let cursor = |(transaction, run)| OutputCursor { transaction, run };
        let next = ends.last().map_or(since, |end| cursor(end.place));
        let finished = ends.into_iter().filter_map(|end| Some(finished(end.told?, cursor(end.place)))).collect();
        Ok(FinishedPage { finished, next, more })
    }

    /// The place behind all ends that [`Client::outputs`] would tell now: for who wants only what comes.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn outputs_end(&self) -> Result<OutputCursor, Error> {
        let (transaction, run) = self.store().horizon().await?;
        Ok(OutputCursor { transaction, run })
    }

    /// The output of a run that is over, without waiting: `None` as long as it is not.
    ///
    /// # Errors
    /// [`Error::UnknownRun`]; otherwise as [`RunHandle::output`](super::RunHandle::output).
    pub async fn output<W: Workflow>(&self, run_id: &str) -> Result<Option<W::Output>, Error> {
        let run = self.run(run_id).await?;
        if run.workflow != W::NAME {
            let why = format!("it is a run of workflow `{}`", run.workflow);
            return Err(Error::Output { run: run_id.to_owned(), why });
        }
        self.handle::<W>(run_id).await?.try_output().await
    }
}

fn finished<O: serde::de::DeserializeOwned>(told: Told, cursor: OutputCursor) -> Finished<O> {
    let run = || told.run_id.clone();
    let unfit = |why: serde_json::Error| Error::Output { run: run(), why: why.to_string() };
    let output = match (told.body, told.error) {
        (Some(body), _) => JsonText::stored(body).read().map_err(unfit),
        (None, error) => Err(match serde_json::from_str::<Failure>(&error.unwrap_or_default()) {
            Ok(failure) => Error::RunFailed { run: run(), failure },
            Err(why) => unfit(why),
        }),
    };
    Finished { run_id: told.run_id.clone(), finished_at: told.finished_at, output, cursor }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_kept_as_text() {
        let place = OutputCursor { transaction: 712, run: 4 };
        assert_eq!(place.to_string().parse::<OutputCursor>().ok(), Some(place));
        for bad in ["", "o", "o1", "o1.", "r1.2", "o-1.2", "o1.2.3", "o99999999999999999999.1"] {
            assert_eq!(bad.parse::<OutputCursor>().map_err(|e| e.code()), Err("invalid-cursor"), "{bad}");
        }
    }
}
