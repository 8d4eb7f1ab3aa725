//! The moves of an item. Once settled, it never moves again.

use super::{By, Move, Rule};
use crate::domain::ItemStatus;

/// Every way in which an item's row changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemMove {
    /// A wait becomes an item.
    Taken,
    /// Its batch is at the provider.
    Submitted,
    /// Its answer reached its wait.
    Answered,
    /// Its answer came when its wait did not ask any more.
    Superseded,
    /// It has no answer, and its wait goes out again.
    Requeued,
    /// It has no answer, and its run failed.
    Failed,
}

/// Open items, each to what can become of one that has no answer.
const UNANSWERED: &[(Option<ItemStatus>, ItemStatus)] = &[
    (Some(ItemStatus::Pending), ItemStatus::Errored),
    (Some(ItemStatus::Pending), ItemStatus::Expired),
    (Some(ItemStatus::Pending), ItemStatus::Canceled),
    (Some(ItemStatus::Pending), ItemStatus::Missing),
    (Some(ItemStatus::Pending), ItemStatus::MissingPaid),
    (Some(ItemStatus::Pending), ItemStatus::Unreadable),
    (Some(ItemStatus::Sent), ItemStatus::Errored),
    (Some(ItemStatus::Sent), ItemStatus::Expired),
    (Some(ItemStatus::Sent), ItemStatus::Canceled),
    (Some(ItemStatus::Sent), ItemStatus::Missing),
    (Some(ItemStatus::Sent), ItemStatus::MissingPaid),
    (Some(ItemStatus::Sent), ItemStatus::Unreadable),
];

impl Move for ItemMove {
    type Status = ItemStatus;
    const ALL: &'static [Self] =
        &[Self::Taken, Self::Submitted, Self::Answered, Self::Superseded, Self::Requeued, Self::Failed];
    const STATUSES: &'static [ItemStatus] = ItemStatus::ALL;

    fn rule(self) -> Rule<ItemStatus> {
        use ItemStatus::{Pending, Sent, Succeeded, Superseded};
        let (name, statement, by, paths, note): (_, _, _, &[_], _) = match self {
            Self::Taken => ("taken", "reserve::fill", By::LeaseHolder, &[(None, Pending)], "one row per request sent"),
            Self::Submitted => ("submitted", "submit::tell_submitted", By::Anyone, &[(Some(Pending), Sent)], ""),
            Self::Answered => (
                "answered",
                "ingest::answer",
                By::Keeper,
                &[(Some(Pending), Succeeded), (Some(Sent), Succeeded)],
                "paid; at most one per wait",
            ),
            Self::Superseded => (
                "superseded",
                "ingest::answer",
                By::Keeper,
                &[(Some(Pending), Superseded), (Some(Sent), Superseded)],
                "paid, and changes nothing else",
            ),
            Self::Requeued => ("requeued", "ingest::retry", By::Keeper, UNANSWERED, "the line says which"),
            Self::Failed => ("failed", "ingest::fail", By::Keeper, UNANSWERED, "the line says which"),
        };
        Rule { name, statement, by, paths, fence_rises: false, events: &[], note }
    }
}
