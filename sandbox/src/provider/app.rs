//! What all requests of one sandbox share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::canonical::provider_id;
use super::config::Config;
use super::injector::Injector;
use super::ledger::PaidLedger;
use super::openai::Files;
use super::shelf::Shelf;

/// The state behind the routes.
pub(crate) struct App {
    pub(crate) config: Config,
    /// `http://127.0.0.1:port`, without a slash at its end.
    pub(crate) base_url: String,
    /// What ids are made from: the configured seed, or one of this start's own.
    pub(crate) seed: u64,
    pub(crate) shelf: Mutex<Shelf>,
    /// OpenAI's files. Whoever needs both locks the shelf first.
    pub(crate) files: Mutex<Files>,
    pub(crate) ledger: PaidLedger,
    pub(crate) injector: Injector,
    /// Counts the batches that came to exist.
    pub(crate) shelved: watch::Sender<u64>,
    /// Counts the batches that have ended; those who wait for an end watch it.
    pub(crate) ended: watch::Sender<u64>,
    /// Becomes true once; then nothing more is processed or paid.
    pub(crate) stopping: watch::Sender<bool>,
    requests: AtomicU64,
}

impl App {
    pub(crate) fn new(config: Config, base_url: String, ledger: PaidLedger) -> Self {
        let seed = config.seed.unwrap_or_else(rand::random);
        let injector = Injector::new(&config.script);
        Self {
            config,
            base_url,
            seed,
            shelf: Mutex::default(),
            files: Mutex::default(),
            ledger,
            injector,
            shelved: watch::Sender::new(0),
            ended: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
            requests: AtomicU64::new(0),
        }
    }

    pub(crate) fn next_request_id(&self) -> String {
        let n = self.requests.fetch_add(1, Ordering::Relaxed);
        provider_id("req_", &format!("{}/{n}", self.seed))
    }

    pub(crate) fn stopped(&self) -> bool {
        *self.stopping.borrow()
    }
}

/// Locks, also after a panic of another holder: nothing here is left half-changed by one.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
