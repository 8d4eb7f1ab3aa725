//! The words and the rules: ids, statuses, transitions, events, fences, retry rules, canonical JSON.
//!
//! Everything here is a value or a pure function. Deliberately absent: clocks, tokio, sqlx, ractor, and the numbers that
//! statuses have in the database (see `store::codec`).

pub mod canonical;
pub mod event;
pub mod failure;
pub mod ids;
pub mod json;
pub mod lifecycle;
pub mod limits;
pub mod retry;
pub mod status;
pub mod transition;

pub use event::{Cause, EventType, NewEvent};
pub use failure::{Failure, FailureCode};
pub use ids::{CustomId, EventId, Fence, IntentId, InvalidRunId, NodeId, Ordinal, RunId, RunKey, WaitKey};
pub use json::{InvalidJson, JsonText};
pub use retry::{Backoff, ModelRetry, StepPolicy};
pub use status::{BatchStatus, ItemStatus, RunStatus, WaitKind, WaitStatus};
pub use transition::WhenLost;
pub use transition::{
    Change, Due, ForkPolicy, Frame, JoinRule, LiveCall, NewBranch, NewWait, Position, Transition, Verdict,
};
