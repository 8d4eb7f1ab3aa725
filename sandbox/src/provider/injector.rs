//! Carries out a fault script: counts the requests, says which faults meet each, counts how often each fault happened, and
//! holds replies back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde::Serialize;
use tokio::sync::watch;

use super::app::locked;
use super::canonical::SplitMix;
use super::faults::{Fault, Operation, Script, When};

/// How many requests of each operation have arrived, and how many have taken effect or been refused.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) seen: [usize; Operation::COUNT],
    pub(crate) served: [usize; Operation::COUNT],
}

/// A reply that is held. It can be released before it is reached.
#[derive(Default)]
pub(crate) struct Gate {
    /// The id of the batch whose reply is being held; empty for operations that have none.
    pub(crate) reached: watch::Sender<Option<String>>,
    pub(crate) released: watch::Sender<bool>,
}

impl Gate {
    /// Tells that a reply is held, and holds it.
    pub(crate) async fn hold(&self, batch_id: String) {
        self.reached.send_replace(Some(batch_id));
        // The sender lives as long as this gate does, so waiting ends only by release.
        let _ = self.released.subscribe().wait_for(|released| *released).await;
    }
}

/// How often a fault has happened.
pub(crate) type Fired = Arc<watch::Sender<usize>>;

/// A fault that meets a request, or what was made by one.
#[derive(Clone)]
pub(crate) struct Met {
    pub(crate) fault: Fault,
    fired: Fired,
}

impl Met {
    /// Tells that it has happened.
    pub(crate) fn fire(&self) {
        self.fired.send_modify(|fired| *fired += 1);
    }
}

/// The faults that meet a request, or what was made by one: in a request's extensions.
#[derive(Clone, Default)]
pub(crate) struct Faults(Arc<[Met]>);

impl Faults {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Met> {
        self.0.iter()
    }

    /// The first fault that is picked; it counts as having happened.
    pub(crate) fn take<T>(&self, pick: impl Fn(&Fault) -> Option<T>) -> Option<T> {
        self.iter().find_map(|met| pick(&met.fault).inspect(|_| met.fire()))
    }

    /// Whether this very fault is among them; if so it counts as having happened.
    pub(crate) fn has(&self, fault: &Fault) -> bool {
        self.take(|met| (met == fault).then_some(())).is_some()
    }
}

/// A rule as it is told to those who ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Rule {
    /// The operation whose requests it is for.
    pub operation: Operation,
    /// Which of them it meets.
    pub when: When,
    /// What goes wrong.
    pub fault: Fault,
    /// How often it has happened. A fault of single requests or lines counts each of them.
    pub fired: usize,
    /// Whether it will meet no further request.
    pub spent: bool,
}

struct Entry {
    operation: Operation,
    when: When,
    met: Met,
    /// How many requests it has met.
    met_requests: usize,
    spent: bool,
}

impl Entry {
    fn meets(&self, number: usize) -> bool {
        match self.when {
            When::Next | When::Times(_) | When::Always => true,
            When::Nth(n) => number == n,
            When::From(n) => number >= n,
            When::Every(n) => number.is_multiple_of(n.max(1)),
            When::Rate { per_mille, seed } => chance(seed, number) < u64::from(per_mille),
        }
    }

    fn over(&self) -> bool {
        match self.when {
            When::Next | When::Nth(_) => true,
            When::Times(n) => self.met_requests >= n,
            When::From(_) | When::Every(_) | When::Always | When::Rate { .. } => false,
        }
    }
}

/// A number below 1000 that depends on nothing else than these.
fn chance(seed: u64, number: usize) -> u64 {
    SplitMix(SplitMix(seed).next() ^ u64::try_from(number).unwrap_or(u64::MAX)).next() % 1_000
}

#[derive(Default)]
struct Inner {
    entries: Vec<Entry>,
    /// Gates for the next creates that are accepted.
    next_creates: VecDeque<Arc<Gate>>,
    /// Gates of `Fault::Hold`.
    held: Vec<Arc<Gate>>,
}

/// The faults of one sandbox.
pub(crate) struct Injector {
    inner: Mutex<Inner>,
    pub(crate) tally: watch::Sender<Tally>,
}

impl Injector {
    pub(crate) fn new(script: &Script) -> Self {
        let injector = Self { inner: Mutex::default(), tally: watch::Sender::new(Tally::default()) };
        for (operation, when, fault) in &script.rules {
            injector.inject(*operation, *when, fault.clone());
        }
        injector
    }

    pub(crate) fn inject(&self, operation: Operation, when: When, fault: Fault) -> Fired {
        let fired = Fired::default();
        let met = Met { fault, fired: Arc::clone(&fired) };
        let spent = when == When::Times(0);
        locked(&self.inner).entries.push(Entry { operation, when, met, met_requests: 0, spent });
        fired
    }

    pub(crate) fn clear(&self) {
        let mut inner = locked(&self.inner);
        inner.entries.iter_mut().for_each(|entry| entry.spent = true);
        inner.next_creates.clear();
    }

    pub(crate) fn rules(&self) -> Vec<Rule> {
        let rule = |entry: &Entry| Rule {
            operation: entry.operation,
            when: entry.when,
            fault: entry.met.fault.clone(),
            fired: *entry.met.fired.borrow(),
            spent: entry.spent,
        };
        locked(&self.inner).entries.iter().map(rule).collect()
    }

    /// Counts a request that has arrived, and gives the faults that it meets. `ended` tells whether it is about a batch
    /// that has ended.
    pub(crate) fn arrived(&self, operation: Operation, ended: bool) -> Faults {
        let mut number = 0;
        let mut inner = locked(&self.inner);
        self.tally.send_modify(|tally| {
            tally.seen[operation.index()] += 1;
            number = tally.seen[operation.index()];
        });
        let mut faults = Vec::new();
        for entry in &mut inner.entries {
            if entry.spent || entry.operation != operation || !entry.meets(number) {
                continue;
            }
            if matches!(entry.met.fault, Fault::FailAfterEnd(_)) && !ended {
                continue;
            }
            faults.push(entry.met.clone());
            entry.met_requests += 1;
            entry.spent = entry.over();
        }
        Faults(faults.into())
    }

    pub(crate) fn served(&self, operation: Operation) {
        self.tally.send_modify(|tally| tally.served[operation.index()] += 1);
    }

    pub(crate) fn hold_next_create(&self) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        locked(&self.inner).next_creates.push_back(Arc::clone(&gate));
        gate
    }

    /// The gate that a create which was just accepted has to pass, if any.
    pub(crate) fn gate_of_create(&self) -> Option<Arc<Gate>> {
        locked(&self.inner).next_creates.pop_front()
    }

    pub(crate) fn gate_of_hold(&self) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        locked(&self.inner).held.push(Arc::clone(&gate));
        gate
    }

    pub(crate) fn release_all(&self) {
        for gate in locked(&self.inner).held.drain(..) {
            gate.released.send_replace(true);
        }
    }
}
