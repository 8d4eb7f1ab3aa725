//! The handle by which a test steers a running sandbox and waits for what it has seen.

use std::sync::Arc;

use chrono::Utc;
use tokio::sync::watch;

use super::accept;
use super::app::{App, locked};
use super::batch::Stage;
use super::faults::{Fault, Operation, Script, When};
use super::injector::{Fired, Gate, Rule, Tally};
use super::openai;

/// Steers a sandbox. Cheap to clone.
#[derive(Clone)]
pub struct Control {
    app: Arc<App>,
}

/// A create whose reply is held, or will be. Dropping it does not release the reply.
pub struct Held {
    gate: Arc<Gate>,
}

impl Held {
    /// Waits until the create has been accepted and its reply is being held, and gives the id of the batch.
    pub async fn accepted(&self) -> String {
        let mut reached = self.gate.reached.subscribe();
        let id = reached.wait_for(Option::is_some).await.ok().and_then(|id| id.clone());
        id.unwrap_or_default()
    }

    /// Lets the reply go.
    pub fn release(&self) {
        self.gate.released.send_replace(true);
    }
}

/// A fault that was injected: tells how often it has happened. Dropping it changes nothing.
pub struct Injected {
    fired: Fired,
}

impl Injected {
    /// How often the fault has happened. A request that only could have met it (results that are shorter than the byte to cut
    /// at, say) does not count; a fault of single requests or lines counts each of them.
    pub fn fired(&self) -> usize {
        *self.fired.borrow()
    }

    /// Waits until the fault has happened so often.
    pub async fn wait(&self, times: usize) {
        // The sender is in `self`, so this ends only when the count is reached.
        let _ = self.fired.subscribe().wait_for(|fired| *fired >= times).await;
    }
}

impl Control {
    pub(crate) fn new(app: Arc<App>) -> Self {
        Self { app }
    }

    /// Makes a fault meet the chosen requests of an operation.
    pub fn inject(&self, operation: Operation, when: When, fault: Fault) -> Injected {
        Injected { fired: self.app.injector.inject(operation, when, fault) }
    }

    /// Adds the faults of a script to those in force.
    pub fn play(&self, script: &Script) {
        for (operation, when, fault) in &script.rules {
            self.app.injector.inject(*operation, *when, fault.clone());
        }
    }

    /// Every fault that was ever injected, in that order, and how often each has happened.
    pub fn faults(&self) -> Vec<Rule> {
        self.app.injector.rules()
    }

    /// Forgets all faults that have not happened yet. Replies that are held stay held.
    pub fn clear(&self) {
        self.app.injector.clear();
    }

    /// Holds the reply to the next create that is accepted. One that is refused passes by.
    pub fn hold_next_create(&self) -> Held {
        Held { gate: self.app.injector.hold_next_create() }
    }

    /// Releases every reply that [`Fault::Hold`] holds, or will hold because its request has arrived.
    pub fn release_all(&self) {
        self.app.injector.release_all();
    }

    /// How many requests of an operation have arrived.
    pub fn seen(&self, operation: Operation) -> usize {
        self.app.injector.tally.borrow().seen[operation.index()]
    }

    /// How many requests of an operation have taken effect or been refused, whether or not the reply was sent.
    pub fn served(&self, operation: Operation) -> usize {
        self.app.injector.tally.borrow().served[operation.index()]
    }

    /// Waits until so many requests of an operation have arrived.
    pub async fn wait_for(&self, operation: Operation, requests: usize) {
        self.wait(|tally| tally.seen[operation.index()] >= requests).await;
    }

    /// Waits until so many requests of an operation have taken effect or been refused.
    pub async fn wait_served(&self, operation: Operation, requests: usize) {
        self.wait(|tally| tally.served[operation.index()] >= requests).await;
    }

    async fn wait(&self, reached: impl FnMut(&Tally) -> bool) {
        // The sender is in `self.app`, so this ends only when the count is reached.
        let _ = self.app.injector.tally.subscribe().wait_for(reached).await;
    }

    /// The ids of all batches that exist, oldest first, listed or not.
    pub fn batches(&self) -> Vec<String> {
        locked(&self.app.shelf).ids()
    }

    /// Waits until so many batches have come to exist, counting those that were deleted since.
    pub async fn wait_batches(&self, batches: u64) {
        // The sender is in `self.app`, so this ends only when the count is reached.
        let _ = self.app.shelved.subscribe().wait_for(|shelved| *shelved >= batches).await;
    }

    /// Puts a batch of somebody else with so many requests into the workspace, and gives its id. What it costs is not in the
    /// ledger.
    pub fn foreign_batch(&self, requests: usize) -> String {
        accept::foreign(&self.app, requests)
    }

    /// Processes a batch now, whatever its simulated time. Returns whether it was still to be processed.
    pub fn finish(&self, batch_id: &str) -> bool {
        let shelf = locked(&self.app.shelf);
        let Some(batch) = shelf.get(batch_id) else { return false };
        batch.signals.wake.send_replace(true);
        matches!(batch.stage, Stage::Waiting(_))
    }

    /// Waits until a batch has ended or does not exist.
    pub async fn wait_ended(&self, batch_id: &str) {
        let mut ended: watch::Receiver<u64> = self.app.ended.subscribe();
        let over = || locked(&self.app.shelf).get(batch_id).is_none_or(super::batch::Batch::ended);
        while !over() && ended.changed().await.is_ok() {}
    }

    /// Takes the results of an ended batch away, as the provider does after 29 days. Returns whether it was ended.
    pub fn archive(&self, batch_id: &str) -> bool {
        let mut shelf = locked(&self.app.shelf);
        let Some(batch) = shelf.get_mut(batch_id).filter(|batch| batch.ended()) else { return false };
        batch.archived_at = Some(Utc::now());
        openai::withdraw(&self.app, batch);
        true
    }
}
