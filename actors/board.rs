//! The board: where each living actor of a node can be written to. One per life of a node, never a static, so that any
//! number of nodes fit in one process. A message to an actor that is being started again is lost; none is needed for safety.

use super::{advancer, caller, committer, heart, ingester, janitor, notifier, root, submitter, timekeeper};
use ractor::{ActorCell, ActorRef};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// The kinds of actors below a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Supervises heart, committer, advancer, timekeeper.
    Core,
    /// Supervises notifier, providers, janitor.
    Satellites,
    /// Beats.
    Heart,
    /// Writes owned transitions.
    Committer,
    /// Claims runs and runs their steps.
    Advancer,
    /// Wakes what is due.
    Timekeeper,
    /// Carries hints between nodes.
    Notifier,
    /// Takes over from dead nodes.
    Janitor,
    /// Sends the batches of a provider.
    Submitter(String),
    /// Reads the batches of a provider.
    Ingester(String),
    /// Makes the live calls of a provider.
    Caller(String),
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Submitter(provider) => write!(f, "submitter({provider})"),
            Self::Ingester(provider) => write!(f, "ingester({provider})"),
            Self::Caller(provider) => write!(f, "caller({provider})"),
            other => write!(f, "{}", format!("{other:?}").to_lowercase()),
        }
    }
}

/// The address of one actor, while it lives.
pub(crate) struct Slot<M: ractor::Message>(RwLock<Option<ActorRef<M>>>);

impl<M: ractor::Message> Default for Slot<M> {
    fn default() -> Self {
        Self(RwLock::new(None))
    }
}

impl<M: ractor::Message> Slot<M> {
    /// Enters an actor that has just started.
    pub(crate) fn enter(&self, actor: ActorRef<M>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(actor);
    }

    /// Sends, if somebody is there. `false`: the message is lost.
    pub(crate) fn send(&self, message: M) -> bool {
        let actor = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        actor.is_some_and(|actor| actor.cast(message).is_ok())
    }
}

/// Addresses by role, and every actor by kind.
#[derive(Default)]
pub(crate) struct Board {
    pub root: Slot<root::Msg>,
    pub heart: Slot<heart::Msg>,
    pub committer: Slot<committer::Msg>,
    pub advancer: Slot<advancer::Msg>,
    pub timekeeper: Slot<timekeeper::Msg>,
    pub notifier: Slot<notifier::Msg>,
    pub janitor: Slot<janitor::Msg>,
    pub submitters: BTreeMap<String, Slot<submitter::Msg>>,
    pub ingesters: BTreeMap<String, Slot<ingester::Msg>>,
    pub callers: BTreeMap<String, Slot<caller::Msg>>,
    cells: Mutex<BTreeMap<Kind, ActorCell>>,
}

impl Board {
    /// A board for these providers.
    pub(crate) fn new(providers: impl Iterator<Item = String> + Clone) -> Self {
        Self {
            submitters: providers.clone().map(|p| (p, Slot::default())).collect(),
            ingesters: providers.clone().map(|p| (p, Slot::default())).collect(),
            callers: providers.map(|p| (p, Slot::default())).collect(),
            ..Self::default()
        }
    }

    fn cells(&self) -> MutexGuard<'_, BTreeMap<Kind, ActorCell>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters an actor by kind, as its supervisor does.
    pub(crate) fn enter(&self, kind: Kind, cell: ActorCell) {
        self.cells().insert(kind, cell);
    }

    /// The kinds that have been started.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        self.cells().keys().cloned().collect()
    }

    /// The latest actor of a kind.
    pub(crate) fn cell(&self, kind: &Kind) -> Option<ActorCell> {
        self.cells().get(kind).cloned()
    }

    /// Tells every caller that there may be calls to make.
    pub(crate) fn wake_callers(&self) {
        for caller in self.callers.values() {
            caller.send(caller::Msg::Wake);
        }
    }

    /// Tells every submitter that there may be requests.
    pub(crate) fn wake_submitters(&self) {
        for submitter in self.submitters.values() {
            submitter.send(submitter::Msg::Wake);
        }
    }
}
