//! What authors of runs write against, and what turns it into transitions.
//!
//! - [`Workflow`] is a workflow, its types and its [`Step`]s; [`Run`] is the run as a step sees it; [`Next`] is what a step
//!   returns; [`ModelRequest`] and [`Reply`] are what a model is asked and answers.
//! - [`DynamicWorkflow`] is a workflow whose steps are registered by name, with JSON for all values.
//! - [`flow`] is the boundary below which there are no types; [`TypedFlow`] is how a typed workflow gets there.
//! - `trampoline` leads from what a step asked for to the transition that is committed; it is pure.
//! - [`Stepper`] is a run in memory, step by step; [`Rehearsal`] plays one to its end, with scripted answers.
//!
//! Deliberately absent: tokio, sqlx and ractor. Whatever runs user code or waits lives elsewhere.

mod ask;
pub(crate) mod builtin;
mod dynamic;
mod error;
pub mod flow;
mod fork;
mod manifest;
pub(crate) mod merge;
mod model;
mod next;
mod record;
mod rehearsal;
mod reply;
#[allow(clippy::module_inception)] // the word for it
mod run;
pub(crate) mod schemas;
mod stepper;
pub(crate) mod tool;
pub(crate) mod trampoline;
mod typed;
pub(crate) mod upgrade;
mod want;
mod workflow;

pub use ask::{Asking, ModelCall};
pub use dynamic::{Dynamic, DynamicAsking, DynamicBuilder, DynamicCarrying, DynamicFork, DynamicNext, DynamicRun};
pub use dynamic::{DynamicSuspend, DynamicWorkflow, InvalidWorkflow, StepOptions};
pub use error::{Result, StepError};
pub use fork::{Branch, Collect, Fork, ForkEach, Joining, Push};
pub use manifest::{Differences, Manifest, StepInfo, TypeInfo};
pub use model::ModelRequest;
pub use next::{Carrying, Next, Suspend};
pub use record::RecordError;
pub use rehearsal::Rehearsal;
pub use reply::{Reply, ToolUse, Usage};
pub use run::Run;
pub use stepper::{Action, Answer, Ask, LedgerEvent, Snapshot, Stepper, StepperError};
pub use tool::{Tool, ToolCall, ToolResult, ToolResultBlock};
pub use typed::TypedFlow;
pub(crate) use typed::misfit as type_misfit;
pub use upgrade::{Caller, InFlight};
pub(crate) use want::misfit;
pub use workflow::{Data, Step, StepEntry, StepFuture, StepReturn, Steps, Workflow};

/// What the code written by `#[workflow]` names, and nobody else.
#[doc(hidden)]
pub mod private {
    pub use super::manifest::{Described, Named, Probe, TypeInfo};
    pub use crate::domain::{Backoff, StepPolicy};
    pub use std::time::Duration;

    /// Checks the name of a workflow while it is compiled.
    pub const fn check_name(name: &str) {
        assert!(!name.is_empty() && name.len() <= crate::domain::limits::NAME_BYTES, "a name has 1 to 128 bytes");
    }

    /// Checks the versions of a workflow while it is compiled.
    pub const fn check_versions(from: u32, version: u32) {
        assert!(version <= i32::MAX as u32, "a VERSION is at most 2147483647");
        assert!(from <= version, "UPGRADES_FROM is an older version, or VERSION itself");
    }
}
