//! The only SQL: one file per table or per statement of the hot path, one function per statement, checked at build.
//!
//! A status changes only through a named statement here, guarded by what it changes from. Deliberately absent: decisions
//! (they are made in `domain`, `run` and the actors), actors, and SQL glued together at run time.

mod accounts;
mod answers;
pub(crate) mod audit;
#[doc(hidden)]
pub mod audit_plant;
mod budgets;
mod cancel;
mod check;
mod claim;
#[cfg(feature = "node")]
mod clock;
mod codec;
mod connect;
mod costs;
mod counts;
mod decide;
mod doctor;
mod enqueue;
mod error;
mod explain;
mod finished;
mod flush;
mod forks;
mod groups;
mod handle;
mod holes;
mod ingest;
mod lane;
mod list;
mod live;
mod migrate;
mod nodes;
mod operate;
mod pauses;
#[cfg(test)]
pub(crate) mod planted;
mod pulse;
mod questions;
mod queue;
mod read;
mod refuse;
mod reserve;
mod retention;
mod revive;
mod submit;
mod timers;
mod tree;
mod upgrade;
mod workflows;

pub use connect::Database;
pub use costs::{CostLine, CostSums};
pub use error::StoreError;
pub use live::LiveTotals;
pub use operate::Control;
pub use pauses::AccountView;
pub use read::{BatchTotals, BatchView, Counts, EventView, NodeView, RunView};
pub use sqlx::PgConnection;
pub use tree::WaitView;

pub(crate) use accounts::{Brake, Lease};
pub(crate) use answers::OpenWait;
pub(crate) use budgets::{Concern, Decision, Standing as BudgetStanding};
pub(crate) use check::{Flying, Stored};
pub(crate) use claim::{Answer, Claimed, Claimer, Demand, Floor};
#[cfg(feature = "node")]
pub(crate) use clock::advance as advance_clock;
pub(crate) use codec::Code;
pub(crate) use doctor::{Examined, Health, Nodes, Schema, Server, Sessions, health};
pub(crate) use enqueue::{Made, NewRun};
pub(crate) use explain::{Batch, Call, Facts, HeldBy, Owner, Paused, Wait};
pub(crate) use finished::Told;
pub(crate) use forks::BranchState;
pub(crate) use handle::Store;
pub(crate) use holes::Holes;
pub(crate) use ingest::{Held as HeldBatch, Lines};
pub(crate) use lane::Lane;
pub(crate) use list::Wanted;
pub(crate) use live::{CallKey, Caller, Fate, Unanswered};
pub(crate) use nodes::Peer;
pub(crate) use pulse::{Hint, Listener, Pulse};
pub(crate) use queue::{Holder, MOST, Stopped, Trouble, VersionFacts, Waiting};
pub(crate) use refuse::{Convicted, Lone, Suspects};
pub(crate) use reserve::{Filled, Most, Queue, Watermark};
pub(crate) use submit::Intent;
pub(crate) use tree::TreePlace;
pub(crate) use upgrade::{EVENTS as UPGRADE_EVENTS, Upgrade};
pub(crate) use workflows::{Registered, Registrar};

/// Brings the schema `longhaul` of a database up to this build. Any number of processes may call it at once.
///
/// # Errors
/// [`StoreError`] when the server cannot be reached or refuses; the schema is then as it was.
pub async fn migrate(url: &str) -> Result<(), StoreError> {
    migrate::migrate(&Database::new(url)?).await
}

/// What names this build's migrations as a whole: a template database for tests is made anew when it changes.
#[doc(hidden)]
pub fn schema_digest() -> String {
    migrate::digest()
}
