//! Longhaul runs work that takes long and must not be lost: thousands or millions of items, each going through several
//! steps, most of which ask a language model. It lives inside your service and keeps everything in one PostgreSQL database.
//!
//! - A [`Workflow`] is written as async functions, the steps, in one module under [`#[workflow]`](macro@crate::workflow). A
//!   [`Run`] is one item on its way through them. What a step returns, a [`Next`], says where the run goes on.
//! - A step that asks a model ends there: the run waits as a row in a table, its request travels in a batch together with
//!   those of other runs, and another step takes the [`Reply`].
//! - [`Rehearsal`] runs a whole workflow in memory with scripted answers. It is the first test to write.
//! - A [`Node`] is a process that runs things: a supervised tree of actors. Any number of nodes share a database.
//! - A [`Client`] enqueues runs, looks at them and takes their outputs; it needs no node. [`migrate`] makes the schema.
//! - [`audit`] checks that the tables keep what the engine promises; [`check`], that runs in flight could go on with a new
//!   build.
//!
//! One rule stands above all others: every change of state is committed before whoever asked for it is told.
//!
//! # Where to begin
//!
//! The example in [`Workflow`] is a whole workflow with its rehearsal. From there to a node is three lines:
//!
//! ```no_run
//! # use longhaul::{Next, Node, Result, Run, Workflow, workflow};
//! # pub struct Greetings;
//! # #[workflow]
//! # mod greetings {
//! #     use super::*;
//! #     impl Workflow for Greetings {
//! #         const NAME: &'static str = "greetings";
//! #         const VERSION: u32 = 1;
//! #         type Input = String;
//! #         type State = ();
//! #         type Output = String;
//! #         type Entry = step::greet;
//! #     }
//! #     #[step]
//! #     async fn greet(run: &mut Run<Greetings>) -> Result<Next<Greetings>> {
//! #         Ok(Next::finish(format!("Good day, {}.", run.input)))
//! #     }
//! # }
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! longhaul::migrate("postgres://localhost/app").await?;
//! let node = Node::builder("postgres://localhost/app").workflow(Greetings).start().await?;
//! let run = node.client().enqueue::<Greetings>("ada", "Ada".to_owned()).await?;
//! assert_eq!(run.output().await?, "Good day, Ada.");
//! # Ok(())
//! # }
//! ```
//!
//! # What to know before relying on it
//!
//! Steps are at-least-once until their completion is committed, and never run again after it. Ids that callers choose make
//! enqueueing idempotent: the same id with the same input is the same run. Everything over a limit of [`domain::limits`] is
//! refused with a typed error and never cut. [`Error::code`] is stable. A program with a node in it has to be built with
//! `panic = "unwind"`, the default, or one panicking step ends the process.
//!
//! # Features
//!
//! - `node` (default): [`Node`] and the actors. Without it the crate enqueues, inspects and audits.
//! - `anthropic` (default): [`provider::anthropic`], the adapter for Anthropic's Message Batches.
//! - `openai` (default): [`provider::openai`], the adapter for OpenAI's Batch API.

// What only a node uses is compiled all the same: one set of sources, with a wall before the actors.
#![cfg_attr(not(feature = "node"), allow(dead_code, unused_imports))]

pub mod domain;
pub use domain::*;

pub mod run;
#[doc(hidden)]
pub use run::private as __private;
pub use run::{Action, LedgerEvent, Snapshot, Stepper, StepperError};
pub use run::{Answer, Ask, Carrying, Data, ModelRequest, Next, RecordError, Rehearsal, Reply, Result, Run, StepError};
pub use run::{Asking, Branch, Collect, Fork, ForkEach, Joining, ModelCall, Push};
pub use run::{Caller, InFlight, Manifest};
pub use run::{Dynamic, DynamicAsking, DynamicBuilder, DynamicCarrying, DynamicFork, DynamicNext, DynamicRun};
pub use run::{DynamicSuspend, DynamicWorkflow, InvalidWorkflow, StepOptions};
pub use run::{Step, StepEntry, StepFuture, StepReturn, Steps, Suspend, ToolUse, TypedFlow, Usage, Workflow};
pub use run::{Tool, ToolCall, ToolResult, ToolResultBlock};

pub use longhaul_macros::{step, workflow};

#[cfg(feature = "node")]
#[path = "../actors/mod.rs"]
mod actors;
pub mod audit;
pub mod check;
pub mod client;
mod config;
mod error;
#[cfg(feature = "node")]
mod node;
mod observe;
pub mod provider;
pub mod store;
#[cfg(feature = "node")]
pub mod testing;

pub use check::{Check, CheckReport};
pub use client::{Budget, BudgetView, CostReport, Costs, CostsOf, Pausable, Pause, Period, Spender};
pub use client::{Bulk, BulkAction, EventCursor, EventPage, Outcomes, Plan, WaitPage, WorkflowExplanation};
pub use client::{
    Canceled, Client, EnqueueOptions, Enqueued, Explanation, InvalidOptions, Question, RunHandle, doctor,
};
pub use client::{Cursor, Filter, Finished, FinishedPage, OutputCursor, Page};
pub use config::{Config, InvalidConfig, Retention};
pub use error::Error;
pub use observe::Progress;
pub use store::migrate;
pub use store::{AccountView, CostLine, CostSums};
#[cfg(feature = "node")]
pub use {
    actors::board::Kind,
    node::{Node, NodeBuilder, Tree},
};

/// The example of the README is compiled like any other.
#[cfg(all(doctest, feature = "node", feature = "anthropic"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The pages for users are compiled, too.
#[cfg(all(doctest, feature = "node", feature = "anthropic"))]
mod pages {
    #[doc = include_str!("../docs/first-workflow.md")]
    struct FirstWorkflow;
    #[doc = include_str!("../docs/people.md")]
    struct People;
    #[doc = include_str!("../docs/tools.md")]
    struct Tools;
    #[doc = include_str!("../docs/forks.md")]
    struct Forks;
    #[doc = include_str!("../docs/operating.md")]
    struct Operating;
}
