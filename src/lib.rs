//! Longhaul.

pub mod domain;
pub use domain::*;

pub mod run;
#[doc(hidden)]
pub use run::private as __private;
pub use run::{Answer, Ask, Carrying, Data, ModelRequest, Next, RecordError, Rehearsal, Reply, Result, Run, StepError};
pub use run::{Step, StepEntry, StepFuture, StepReturn, Steps, Suspend, ToolUse, TypedFlow, Usage, Workflow};

pub use longhaul_macros::{step, workflow};

#[cfg(feature = "node")]
#[path = "../actors/mod.rs"]
mod actors;
pub mod config;
pub mod observe;
pub mod store;
pub mod provider;
