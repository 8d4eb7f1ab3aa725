//! How it stays alive: the tree of actors of one node.
//!
//! ```text
//! root                  one per node; begins again under a new id when the node was declared dead
//! |- core, rest_for_one
//! |  |- heart           this node's heartbeat, on its own thread and connection
//! |  |- committer       coalesces owned transitions into set-based statements, then answers each sender
//! |  |- advancer        claims by demand, runs local steps, hands transitions to the committer
//! |  `- timekeeper      ends waits whose time is over, wakes the advancer when a run is due
//! `- satellites, one_for_one
//!    |- notifier        LISTEN with self-test; turns notifications into wake-ups, coalesces our own
//!    |- janitor         takes over what dead nodes held
//!    `- per provider    submitter (fills and sends batches), ingester (polls, streams results), caller (makes live calls)
//! ```
//!
//! A message that changes state carries its reply port, and the reply is sent after COMMIT. Wake-ups carry none: losing one
//! costs latency, never work. Any actor may be killed at any time: what it knew is read again from Postgres, and rows that no
//! living task holds are released. Deliberately absent: SQL (`store` has it all), and decisions that could be pure functions
//! (`supervision`, `policy`, the trampoline).

mod advancer;
pub(crate) mod board;
mod caller;
mod calling;
mod committer;
pub(crate) mod ctx;
pub(crate) mod flows;
mod funding;
mod heart;
mod ingester;
mod janitor;
mod joining;
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
mod taking_over;
mod timekeeper;
mod turning_back;

/// What every handler returns; an error means "my state cannot be trusted, start me again".
type Handled = Result<(), ractor::ActorProcessingErr>;

use board::Kind;
use ctx::Ctx;
use ractor::RpcReplyPort;
use std::time::Instant;
use tokio::sync::oneshot;

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drain {
    /// Nothing is held any more.
    Empty,
    /// The deadline passed first.
    Late,
}

/// Waits until the advancer holds nothing, no submitter is sending and no live call is under way, at most until the deadline. The node is draining
/// already: nothing new is taken.
pub(crate) async fn drain(ctx: &Ctx, deadline: Instant) -> Drain {
    let mut ends = Vec::new();
    let mut port = || {
        let (port, end) = oneshot::channel();
        ends.push(end);
        RpcReplyPort::from(port)
    };
    ctx.board.advancer.send(advancer::Msg::Drain(port()));
    for submitter in ctx.board.submitters.values() {
        submitter.send(submitter::Msg::Drain(port()));
    }
    for caller in ctx.board.callers.values() {
        caller.send(caller::Msg::Drain(port()));
    }
    let all = futures::future::join_all(ends);
    match tokio::time::timeout_at(deadline.into(), all).await {
        Ok(_) => Drain::Empty,
        Err(_) => Drain::Late,
    }
}

/// Tells an actor to look for work now. `false`: there is no such actor, or it does not look.
pub(crate) fn wake(ctx: &Ctx, kind: &Kind) -> bool {
    match kind {
        Kind::Advancer => ctx.board.advancer.send(advancer::Msg::Wake),
        Kind::Submitter(name) => ctx.board.submitters.get(name).is_some_and(|s| s.send(submitter::Msg::Wake)),
        Kind::Ingester(name) => ctx.board.ingesters.get(name).is_some_and(|i| i.send(ingester::Msg::Wake)),
        Kind::Caller(name) => ctx.board.callers.get(name).is_some_and(|c| c.send(caller::Msg::Wake)),
        Kind::Core
        | Kind::Satellites
        | Kind::Heart
        | Kind::Committer
        | Kind::Timekeeper
        | Kind::Notifier
        | Kind::Janitor => false,
    }
}
