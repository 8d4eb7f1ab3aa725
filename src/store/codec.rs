//! The numbers that words have in the database. A number is given once and never again for something else.

use crate::domain::{BatchStatus, EventType, ItemStatus, RunStatus, WaitKind, WaitStatus};

/// A word that the database keeps as a small number.
pub(crate) trait Code: Sized + Copy {
    /// Its number.
    fn code(self) -> i16;
    /// The word of a number; `Unknown` for one that a newer version wrote.
    fn decode(code: i16) -> Self;
}

macro_rules! codes {
    ($name:ident { $($variant:ident = $code:literal),+ $(,)? }) => {
        impl Code for $name {
            fn code(self) -> i16 {
                match self { $(Self::$variant => $code,)+ Self::Unknown(code) => code }
            }
            fn decode(code: i16) -> Self {
                match code { $($code => Self::$variant,)+ other => Self::Unknown(other) }
            }
        }
    };
}

codes!(RunStatus {
    Runnable = 1,
    Owned = 2,
    Waiting = 3,
    Parked = 4,
    Completed = 5,
    Failed = 6,
    Canceled = 7
});
codes!(WaitKind { Model = 1, Tools = 2, Human = 3, External = 4, Fork = 5, Timer = 6 });
codes!(WaitStatus {
    Open = 1,
    Reserved = 2,
    Sent = 3,
    Answered = 4,
    Applied = 5,
    Failed = 6,
    Expired = 7,
    Canceled = 8
});
codes!(BatchStatus {
    Reserved = 1,
    Sealed = 2,
    Sending = 3,
    Ambiguous = 4,
    Submitted = 5,
    AdoptedUnverified = 6,
    Ended = 7,
    Settled = 8,
    Abandoned = 9,
});
codes!(ItemStatus {
    Pending = 1,
    Sent = 2,
    Succeeded = 3,
    Errored = 4,
    Expired = 5,
    Canceled = 6,
    Missing = 7,
    MissingPaid = 8,
    Unreadable = 9,
    Superseded = 10,
});
codes!(EventType {
    RunEnqueued = 1,
    RunCompleted = 2,
    RunFailed = 3,
    RunCanceled = 4,
    RunParked = 5,
    RunTakenOver = 6,
    RunRetried = 7,
    RunUpgraded = 10,
    StepStarted = 20,
    StepCompleted = 21,
    StepFailed = 22,
    ModelAsked = 30,
    ModelSubmitted = 31,
    ModelAnswered = 32,
    ModelApplied = 33,
    ModelFailed = 34,
    ModelRetried = 35,
    HumanAsked = 40,
    HumanAnswered = 41,
    HumanExpired = 42,
    ExternalAsked = 43,
    ExternalAnswered = 44,
    ExternalExpired = 45,
    TimerSet = 46,
    TimerFired = 47,
    ToolsCompleted = 48,
    ForkOpened = 50,
    ForkJoined = 51,
    ForkFailed = 52,
    Custom = 1000,
});

#[cfg(test)]
mod tests {
    use super::*;

    fn distinct<T: Code + PartialEq + std::fmt::Debug>(all: &[T]) {
        let mut codes: Vec<i16> = all.iter().map(|v| v.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), all.len(), "{all:?}");
        for value in all {
            assert_eq!(T::decode(value.code()), *value);
        }
    }

    #[test]
    fn every_word_has_a_number_of_its_own() {
        distinct(RunStatus::ALL);
        distinct(WaitKind::ALL);
        distinct(WaitStatus::ALL);
        distinct(BatchStatus::ALL);
        distinct(ItemStatus::ALL);
        distinct(EventType::ALL);
    }

    #[test]
    fn a_newer_code_is_kept() {
        assert_eq!(RunStatus::decode(99), RunStatus::Unknown(99));
        assert_eq!(EventType::decode(2000).code(), 2000);
    }
}
