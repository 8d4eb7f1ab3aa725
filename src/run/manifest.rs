//! What a version of a workflow consists of, without running it: its steps, and the types of what is stored.

use crate::domain::StepPolicy;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// The type of a stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeInfo {
    /// The Rust type, as the compiler names it: for people.
    pub name: Cow<'static, str>,
    /// The JSON Schema of its values, if the type has one.
    pub schema: Option<Arc<Value>>,
}

impl TypeInfo {
    /// A type of which nothing but its name is known.
    pub fn named<T: ?Sized>() -> Self {
        Self { name: Cow::Borrowed(std::any::type_name::<T>()), schema: None }
    }
}

/// What is known of a step without running it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepInfo {
    /// Its name: what the database knows it by.
    pub name: Cow<'static, str>,
    /// What it takes beside the run.
    pub input: TypeInfo,
    /// Attempts, backoff, timeout, crash limit.
    pub policy: StepPolicy,
    /// Whether it blocks its thread, so that it belongs on the blocking pool.
    pub blocking: bool,
}

/// What a version of a workflow consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Its name.
    pub workflow: Cow<'static, str>,
    /// Its version.
    pub version: u32,
    /// The oldest version whose runs it takes over; its own version when it takes over none.
    pub upgrades_from: u32,
    /// The step that a new run begins with.
    pub entry: Cow<'static, str>,
    /// What a run is given.
    pub input: TypeInfo,
    /// What a run remembers.
    pub state: TypeInfo,
    /// What a run gives.
    pub output: TypeInfo,
    /// Its steps, sorted by name.
    pub steps: Vec<StepInfo>,
}

impl Manifest {
    /// The step of that name.
    pub fn step(&self, name: &str) -> Option<&StepInfo> {
        let place = self.steps.binary_search_by(|info| (*info.name).cmp(name)).ok()?;
        self.steps.get(place)
    }
}
