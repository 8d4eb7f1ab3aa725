//! Carries out a fault script: counts the requests, says which faults meet each, and holds replies back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::app::locked;
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

struct Rule {
    operation: Operation,
    when: When,
    fault: Fault,
    spent: bool,
}

#[derive(Default)]
struct Inner {
    rules: Vec<Rule>,
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

    pub(crate) fn inject(&self, operation: Operation, when: When, fault: Fault) {
        locked(&self.inner).rules.push(Rule { operation, when, fault, spent: false });
    }

    pub(crate) fn clear(&self) {
        let mut inner = locked(&self.inner);
        inner.rules.clear();
        inner.next_creates.clear();
    }

    /// Counts a request that has arrived, and gives the faults that it meets.
    pub(crate) fn arrived(&self, operation: Operation) -> Vec<Fault> {
        let mut number = 0;
        let mut inner = locked(&self.inner);
        self.tally.send_modify(|tally| {
            tally.seen[operation.index()] += 1;
            number = tally.seen[operation.index()];
        });
        let mut faults = Vec::new();
        for rule in inner.rules.iter_mut().filter(|rule| rule.operation == operation) {
            let meets = match rule.when {
                When::Next => true,
                When::Nth(n) => number == n,
                When::From(n) => number >= n,
                When::Every(n) => number.is_multiple_of(n.max(1)),
                When::Always => true,
            };
            if meets {
                faults.push(rule.fault.clone());
                rule.spent = matches!(rule.when, When::Next | When::Nth(_));
            }
        }
        inner.rules.retain(|rule| !rule.spent);
        faults
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
