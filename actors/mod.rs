//! How it stays alive: the tree of actors of one node.
//!
//! ```text
//! root                  one per node; begins again under a new id when the node was declared dead
//! |- core, rest_for_one
//! |  |- heart           this node's heartbeat, on its own thread and connection
//! |  |- committer       coalesces owned transitions into set-based statements, then answers each sender
//! |  |- advancer        claims by demand, runs local steps, hands transitions to the committer
//! |  `- timekeeper      wakes the advancer when a run becomes due
//! `- satellites, one_for_one
//!    |- notifier        LISTEN with self-test; turns notifications into wake-ups, coalesces our own
//!    |- janitor         takes over what dead nodes held
//!    `- per provider    submitter (fills and sends batches), ingester (polls, streams results)
//! ```
//!
//! A message that changes state carries its reply port, and the reply is sent after COMMIT. Wake-ups carry none: losing one
//! costs latency, never work. Any actor may be killed at any time: what it knew is read again from Postgres, and rows that no
//! living task holds are released. Deliberately absent: SQL (`store` has it all), and decisions that could be pure functions
//! (`supervision`, `policy`, the trampoline).

mod advancer;
pub(crate) mod board;
mod committer;
pub(crate) mod ctx;
mod heart;
mod ingester;
mod janitor;
mod notifier;
mod policy;
mod reconcile;
mod results;
pub(crate) mod root;
mod runner;
mod sending;
mod submitter;
mod supervision;
mod supervisor;
mod timekeeper;

/// What every handler returns; an error means "my state cannot be trusted, start me again".
type Handled = Result<(), ractor::ActorProcessingErr>;
