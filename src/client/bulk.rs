//! The same for many runs: first counted, then done, run by run through the statements that do it to one.

use super::list::{Cursor, Filter};
use super::operate::named;
use super::{Canceled, Client};
use crate::domain::RunStatus;
use crate::error::Error;
use crate::store::Wanted;
use futures::StreamExt;
use std::collections::BTreeMap;

/// Runs per page.
const BATCH: u32 = 500;
/// Runs worked on at a time.
const AT_ONCE: usize = 4;

/// What is to be done to each run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BulkAction {
    /// Set it going again, as [`Client::retry`] does.
    Retry,
    /// End it, as [`Client::cancel`] does.
    Cancel,
    /// Hold it back with this reason, as [`Client::park`] does.
    Park(String),
}

impl BulkAction {
    /// What it can be done to.
    fn statuses(&self) -> &'static [RunStatus] {
        use RunStatus::{Failed, Owned, Parked, Runnable, Waiting};
        match self {
            Self::Retry => &[Parked, Failed],
            Self::Cancel => &[Runnable, Owned, Waiting, Parked],
            Self::Park(_) => &[Runnable, Owned],
        }
    }
}

/// An action on all runs of a filter. Made by [`Client::bulk`].
#[derive(Debug, Clone)]
pub struct Bulk {
    client: Client,
    action: BulkAction,
    by: String,
    wanted: Wanted,
}

/// What a bulk action would be done to: the result of a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Plan {
    /// How many runs fit.
    pub runs: u64,
    /// The key right above the newest of them: what is enqueued later is not touched.
    through: i64,
}

/// What a bulk action came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Outcomes {
    /// How many runs were looked at.
    pub runs: u64,
    /// How many had which answer: `done`, or the code of the error that one call of the action would have answered.
    pub verdicts: BTreeMap<&'static str, u64>,
}

impl Outcomes {
    fn add(&mut self, verdict: &'static str) {
        self.runs += 1;
        *self.verdicts.entry(verdict).or_default() += 1;
    }

    /// How many it was done to.
    pub fn done(&self) -> u64 {
        self.verdicts.get("done").copied().unwrap_or(0)
    }
}

impl Client {
    /// An action on all runs that fit a filter. Nothing is done yet. Without a status in the filter it is about those that the action
    /// can be done to. Branches go with the run at their top: only a filter that names parked runs finds branches as well, since
    /// a parked branch has nobody above it that could be retried.
    ///
    /// ```no_run
    /// # use longhaul::{BulkAction, Client, Filter};
    /// # async fn f(client: Client) -> Result<(), longhaul::Error> {
    /// let bulk = client.bulk(BulkAction::Retry, "ann", &Filter::new().workflow("speeches")).await?;
    /// let plan = bulk.plan().await?;
    /// println!("{} runs would be retried", plan.runs);
    /// let outcomes = bulk.execute(plan, |_| {}).await?;
    /// println!("{:?}", outcomes.verdicts);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidFilter`] for a filter that says nothing, or a status that the action cannot be done to;
    /// [`Error::UnknownWorkflow`]; [`Error::InvalidName`]; [`Error::Store`].
    pub async fn bulk(&self, action: BulkAction, by: &str, filter: &Filter) -> Result<Bulk, Error> {
        named(by)?;
        if *filter == Filter::new() || *filter == Filter::new().roots() {
            let why = "a bulk action needs to be told which runs: a workflow, a status, a tag or an age";
            return Err(Error::InvalidFilter(why.into()));
        }
        let mut wanted = self.wanted(filter).await?;
        if wanted.statuses.is_empty() {
            wanted.statuses = action.statuses().to_vec();
        }
        if let Some(status) = wanted.statuses.iter().find(|s| !action.statuses().contains(s)) {
            let why = format!("this cannot be done to a run that is {status}");
            return Err(Error::InvalidFilter(why));
        }
        wanted.roots = filter.roots || wanted.statuses != [RunStatus::Parked];
        Ok(Bulk { client: self.clone(), action, by: by.to_owned(), wanted })
    }
}

impl Bulk {
    /// The dry run: how many runs fit now. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn plan(&self) -> Result<Plan, Error> {
        self.count(Cursor(i64::MAX)).await
    }

    async fn count(&self, below: Cursor) -> Result<Plan, Error> {
        let (mut plan, mut after) = (Plan { runs: 0, through: 0 }, Some(below));
        while let Some(from) = after {
            let page = self.client.page(&self.wanted, from, BATCH).await?;
            plan.runs += page.runs.len() as u64;
            plan.through = plan.through.max(page.runs.first().map_or(0, |run| run.key.0 + 1));
            after = page.next;
        }
        Ok(plan)
    }

    /// Does it to what a dry run has counted, the newest first. Runs that do not fit any more are passed over. It may be broken off at any
    /// point and begun again: what is done already does not fit any more. `told` is called after every batch of a few hundred.
    ///
    /// # Errors
    /// [`Error::BulkChanged`] when more runs fit than were counted: nothing was done, or, should they come while it goes on, the
    /// rest is left alone. [`Error::Store`] when the
    /// database fails; what one run answers is counted and stops nobody.
    pub async fn execute(&self, plan: Plan, mut told: impl FnMut(&Outcomes)) -> Result<Outcomes, Error> {
        if self.count(Cursor(plan.through)).await?.runs > plan.runs {
            return Err(Error::BulkChanged { counted: plan.runs });
        }
        let (mut outcomes, mut after) = (Outcomes::default(), Some(Cursor(plan.through)));
        while let Some(from) = after {
            let page = self.client.page(&self.wanted, from, BATCH).await?;
            if outcomes.runs + page.runs.len() as u64 > plan.runs {
                return Err(Error::BulkChanged { counted: plan.runs });
            }
            let mut verdicts =
                futures::stream::iter(page.runs.into_iter().map(|run| self.one(run.run_id))).buffer_unordered(AT_ONCE);
            while let Some(verdict) = verdicts.next().await {
                outcomes.add(verdict?);
            }
            drop(verdicts);
            told(&outcomes);
            after = page.next;
        }
        Ok(outcomes)
    }

    async fn one(&self, run_id: String) -> Result<&'static str, Error> {
        let result = match &self.action {
            BulkAction::Retry => self.client.retry(&run_id).await.map(|_| "done"),
            BulkAction::Park(reason) => self.client.park(&run_id, &self.by, reason).await.map(|_| "done"),
            BulkAction::Cancel => self.client.cancel(&run_id).await.map(|canceled| match canceled {
                Canceled::Canceled(_) => "done",
                Canceled::AlreadyTerminal(_) => "run-terminal",
            }),
        };
        match result {
            Ok(verdict) => Ok(verdict),
            Err(error @ Error::Store(_)) => Err(error),
            Err(error) => Ok(error.code()),
        }
    }
}
