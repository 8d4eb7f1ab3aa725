//! What a node counts.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// What a node has done since it started. Counts only rise.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Progress { $($(#[$doc])* pub $name: u64,)+ }

        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: AtomicU64,)+ }

        impl Counters {
            pub(crate) fn read(&self) -> Progress {
                Progress { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }

        impl std::ops::Sub for Progress {
            type Output = Self;
            fn sub(self, earlier: Self) -> Self {
                Self { $($name: self.$name.saturating_sub(earlier.$name),)+ }
            }
        }
    };
}

counters! {
    /// Runs claimed.
    runs_claimed,
    /// Transitions committed.
    runs_advanced,
    /// Runs that ended with an output, branches among them.
    runs_completed,
    /// Branches among them.
    branches_completed,
    /// Runs that ended with an error.
    runs_failed,
    /// Runs that went on with an answer.
    runs_resumed,
    /// Runs taken from dead nodes.
    runs_taken_over,
    /// Waits opened.
    waits_opened,
    /// Batches that the provider accepted.
    batches_submitted,
    /// Batches whose items are all accounted for.
    batches_completed,
    /// Requests in the batches that the provider accepted.
    requests_submitted,
    /// Results settled.
    results_completed,
    /// Live calls that were answered.
    live_calls_answered,
    /// Events written by owned transitions.
    events_committed,
    /// Flushes: transactions of the committer.
    flushes,
    /// Transitions that came too late: their row had moved on.
    superseded,
    /// Sends whose outcome was unknown.
    ambiguous_creates,
    /// Batches found again by listing.
    adopted,
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
