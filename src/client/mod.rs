//! The client: enqueue runs, look at them, take their outputs. It needs the database only; nodes may be anywhere, or down.
//!
//! Deliberately absent: actors. A client never owns a run; what it changes goes through the store's named statements.

mod answer;
mod bulk;
mod doctor;
mod enqueue;
mod explain;
mod explain_workflow;
mod handle;
mod keep;
mod list;
mod money;
mod operate;
mod options;
mod outputs;
mod questions;
mod tree;

pub use answer::Canceled;
pub use bulk::{Bulk, BulkAction, Outcomes, Plan};
pub use doctor::{Diagnosis, HealthCheck, Level, doctor};
pub use enqueue::Enqueued;
pub use explain::Explanation;
pub use explain_workflow::WorkflowExplanation;
pub use handle::RunHandle;
pub use list::{Cursor, Filter, Page};
pub use money::{Budget, BudgetView, CostReport, Costs, CostsOf, Pausable, Pause, Period, Spender};
pub use options::{EnqueueOptions, InvalidOptions};
pub use outputs::{Finished, FinishedPage, OutputCursor};
pub use questions::Question;
pub use tree::{EventCursor, EventPage, WaitPage};

use crate::domain::{EventType, RunId};
use crate::error::Error;
use crate::run::Workflow;
use crate::store::{BatchTotals, BatchView, Counts, Database, EventView, LiveTotals, NodeView, RunView, Store};

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Connections of a client that is not a node's.
const CONNECTIONS: u32 = 4;
/// Events read per statement.
const EVENTS_PAGE: i64 = 1_000;

/// Access to the runs of one database. Cheap to clone.
///
/// ```no_run
/// # async fn f() -> Result<(), longhaul::Error> {
/// let client = longhaul::Client::connect("postgres://localhost/app").await?;
/// println!("{:?}", client.counts().await?);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    store: Store,
    /// The keys of workflow versions that were registered or found by this client.
    workflows: Arc<Mutex<HashMap<(&'static str, u32), i32>>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Client").field(self.store.database()).finish()
    }
}

impl Client {
    /// Connects to a database whose schema is of this build.
    ///
    /// # Errors
    /// [`Error::Store`] when it cannot be reached or its schema is another one.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let store = Store::new(Database::new(url)?, CONNECTIONS);
        store.check().await?;
        Ok(Self::of(store))
    }

    pub(crate) fn of(store: Store) -> Self {
        Self { store, workflows: Arc::default() }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Closes its connections; other clones of it have none either then.
    pub async fn close(&self) {
        self.store.close().await;
    }

    /// A run by its id.
    ///
    /// # Errors
    /// [`Error::UnknownRun`] when there is none.
    pub async fn run(&self, run_id: &str) -> Result<RunView, Error> {
        self.store.run(run_id).await?.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))
    }

    /// The whole ledger of a run.
    ///
    /// # Errors
    /// [`Error::UnknownRun`] when there is no such run; [`Error::Removed`] when its ledger is gone.
    pub async fn events(&self, run_id: &str) -> Result<Vec<EventView>, Error> {
        let view = self.run(run_id).await?;
        if view.removed_at.is_some() {
            return Err(Error::Removed(run_id.to_owned()));
        }
        let run = view.key;
        let mut events: Vec<EventView> = Vec::new();
        loop {
            let from = events.last().map_or(0, |e| e.id.ordinal + 1);
            let page = self.store.events(run, from, EVENTS_PAGE).await?;
            let last = page.len() < EVENTS_PAGE as usize;
            events.extend(page);
            if last {
                return Ok(events);
            }
        }
    }

    /// A handle on a run that was enqueued before, by whomever.
    ///
    /// # Errors
    /// [`Error::UnknownRun`] when there is no such run.
    pub async fn handle<W: Workflow>(&self, run_id: &str) -> Result<RunHandle<W>, Error> {
        let view = self.run(run_id).await?;
        Ok(RunHandle::new(self.clone(), view.key, RunId::new(view.run_id)?))
    }

    /// How many runs there are of each status, branches included. Nothing is scanned for it, whatever their number.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn counts(&self) -> Result<Counts, Error> {
        Ok(self.store.counts(false, None).await?)
    }

    /// As [`counts`](Self::counts), but only of runs that were enqueued: their branches are not counted.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn counts_enqueued(&self) -> Result<Counts, Error> {
        Ok(self.store.counts(true, None).await?)
    }

    /// As [`counts`](Self::counts), but only of a workflow, in all its versions.
    ///
    /// # Errors
    /// [`Error::UnknownWorkflow`].
    pub async fn counts_of(&self, workflow: &str) -> Result<Counts, Error> {
        let versions = self.versions(workflow).await?;
        Ok(self.store.counts(false, Some(&versions)).await?)
    }

    /// The latest batches, the newest first.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn batches(&self, limit: u32) -> Result<Vec<BatchView>, Error> {
        Ok(self.store.batches(i64::from(limit)).await?)
    }

    /// Totals over all batches.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn batch_totals(&self) -> Result<BatchTotals, Error> {
        Ok(self.store.batch_totals().await?)
    }

    /// Totals over all live calls, which [`batch_totals`](Self::batch_totals) leaves out.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn live_totals(&self) -> Result<LiveTotals, Error> {
        Ok(self.store.live_totals().await?)
    }

    /// How many events the ledger has, or how many of one kind. Reads the whole table of events.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn count_events(&self, kind: Option<EventType>) -> Result<i64, Error> {
        Ok(self.store.events_of(kind).await?)
    }

    /// The living nodes, and how many runs each holds.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn nodes(&self) -> Result<Vec<NodeView>, Error> {
        Ok(self.store.living().await?)
    }
}
