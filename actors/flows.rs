//! The workflows of a node, by the keys of the versions whose runs it may claim: its own, and older ones that they take over.
//!
//! A version that nobody had registered when the node started is found later: the janitor looks from time to time.

use crate::run::flow::Flow;
use crate::store::{Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

/// What runs the runs of one version.
#[derive(Clone)]
pub(crate) struct Served {
    pub flow: Arc<dyn Flow>,
    /// The key of the flow's own version.
    pub key: i32,
    /// The version of the runs.
    pub version: u32,
}

impl Served {
    /// Whether a run has to be upgraded first.
    pub(crate) fn upgrades(&self) -> bool {
        self.version != self.flow.manifest().version
    }
}

/// All of them.
pub(crate) struct Flows {
    own: BTreeMap<i32, Arc<dyn Flow>>,
    served: RwLock<BTreeMap<i32, Served>>,
}

impl Flows {
    /// The flows of a node by the keys of their own versions, and what they take over of what is registered now.
    pub(crate) async fn load(own: BTreeMap<i32, Arc<dyn Flow>>, store: &Store) -> Result<Self, StoreError> {
        let flows = Self { own, served: RwLock::default() };
        flows.look(store).await?;
        Ok(flows)
    }

    /// Looks for versions to take over. Answers whether there are any that were not known.
    pub(crate) async fn look(&self, store: &Store) -> Result<bool, StoreError> {
        let takes_over = |flow: &&Arc<dyn Flow>| flow.manifest().upgrades_from < flow.manifest().version;
        let names: BTreeSet<String> =
            self.own.values().filter(takes_over).map(|flow| flow.manifest().workflow.to_string()).collect();
        let versions =
            if names.is_empty() { Vec::new() } else { store.versions(&names.into_iter().collect::<Vec<_>>()).await? };
        let mut served = BTreeMap::new();
        for found in versions {
            let takes_over = |(_, flow): &(&i32, &Arc<dyn Flow>)| {
                flow.manifest().workflow == found.name && flow.manifest().upgrades(found.version)
            };
            // The newest of those that would.
            let newest = self.own.iter().filter(takes_over).max_by_key(|(_, flow)| flow.manifest().version);
            if let Some((key, flow)) = newest {
                served.insert(found.key, Served { flow: flow.clone(), key: *key, version: found.version });
            }
        }
        // A version that the node has is run as it is.
        for (key, flow) in &self.own {
            served.insert(*key, Served { flow: flow.clone(), key: *key, version: flow.manifest().version });
        }
        let mut now = self.served.write().unwrap_or_else(PoisonError::into_inner);
        let more = served.keys().any(|key| !now.contains_key(key));
        *now = served;
        Ok(more)
    }

    /// The keys of the versions whose runs may be claimed.
    pub(crate) fn keys(&self) -> Vec<i32> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// What runs the runs of a version.
    pub(crate) fn get(&self, key: i32) -> Option<Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }
}
