//! What all actors of one life of a node share.

use super::board::Board;
use super::flows::Flows;
use crate::config::Config;
use crate::domain::NodeId;
use crate::observe::Counters;
use crate::provider::BatchProvider;
use crate::run::tool::Toolbox;
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, watch};

/// What stays the same when a node has to begin again under a new id.
pub(crate) struct Shared {
    pub config: Config,
    pub store: Store,
    /// By the key of (workflow, version).
    pub flows: Flows,
    pub providers: BTreeMap<String, Arc<dyn BatchProvider>>,
    pub tools: Toolbox,
    pub accounts: Accounts,
    pub counters: Counters,
    /// Set when the node is to take nothing new.
    pub draining: AtomicBool,
    /// Set when an operator has asked the node to take no more runs.
    pub leaving: watch::Sender<bool>,
    pub blocking: Arc<Semaphore>,
}

/// One life of a node.
pub(crate) struct Ctx {
    pub shared: Arc<Shared>,
    pub node: NodeId,
    pub board: Board,
    /// Runs that this node holds now.
    pub running: AtomicUsize,
}

impl Ctx {
    pub(crate) fn new(shared: Arc<Shared>, node: NodeId) -> Self {
        let board = Board::new(shared.providers.keys().cloned().collect::<Vec<_>>().into_iter());
        Self { shared, node, board, running: AtomicUsize::new(0) }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    pub(crate) fn store(&self) -> &Store {
        &self.shared.store
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// How close to its deadline a request to this provider goes live, in milliseconds; never, if it has no live calls.
    pub(crate) fn live_ms(&self, provider: &str) -> Option<i64> {
        let live = self.shared.providers.get(provider).is_some_and(|port| port.has_live());
        live.then(|| i64::try_from(self.config().batch_time.as_millis()).unwrap_or(i64::MAX))
    }

    /// Whether no more runs are taken, and those in hand are let go at their next boundary. Batches are looked after all the
    /// same, until the node is shut down.
    pub(crate) fn leaving(&self) -> bool {
        self.draining() || *self.shared.leaving.borrow()
    }

    pub(crate) fn draining(&self) -> bool {
        self.shared.draining.load(std::sync::atomic::Ordering::Acquire)
    }
}

/// The accounts that providers' keys belong to, as far as the providers have said.
#[derive(Default)]
pub(crate) struct Accounts {
    by_name: Mutex<BTreeMap<String, i32>>,
    /// Those whose lease this process has had.
    leased: Mutex<BTreeSet<i32>>,
}

impl Accounts {
    pub(crate) fn read(&self, provider: &str) -> Option<i32> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner).get(provider).copied()
    }

    /// Enters an account. `Err` is another provider's name that has it already: two would take its lease from each other.
    pub(crate) fn write(&self, provider: &str, account: i32) -> Result<(), String> {
        let mut accounts = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((other, _)) = accounts.iter().find(|(name, key)| **key == account && *name != provider) {
            return Err(other.clone());
        }
        accounts.insert(provider.to_owned(), account);
        Ok(())
    }

    /// Whether this process has never had the lease of that account.
    pub(crate) fn first_lease(&self, account: i32) -> bool {
        !self.leased.lock().unwrap_or_else(PoisonError::into_inner).contains(&account)
    }

    /// This process has it now.
    pub(crate) fn leased(&self, account: i32) {
        self.leased.lock().unwrap_or_else(PoisonError::into_inner).insert(account);
    }
}
