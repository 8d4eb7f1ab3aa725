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
pub mod audit;
pub mod client;
mod config;
mod error;
#[cfg(feature = "node")]
mod node;
mod observe;
pub mod provider;
pub mod store;

pub use client::{Client, Enqueued, RunHandle};
pub use config::{Config, InvalidConfig};
pub use error::Error;
pub use observe::Progress;
pub use store::migrate;
#[cfg(feature = "node")]
pub use {
    actors::board::Kind,
    node::{Node, NodeBuilder, Tree},
};
