//! The moves of a batch.

use super::{By, Move, Rule};
use crate::domain::BatchStatus;

/// Every way in which a batch's row changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchMove {
    /// An empty one is made.
    Opened,
    /// Open waits become its items.
    Filled,
    /// Its body is fixed.
    Sealed,
    /// The first byte is about to leave.
    Sending,
    /// Nobody knows whether it arrived.
    Doubted,
    /// The provider told us its id.
    Created,
    /// A listed batch may be it.
    Adopted,
    /// It was never created, or is given up.
    GivenBack,
    /// A new holder of the submit lease takes it up.
    Inherited,
    /// A node begins to look after it.
    Claimed,
    /// The node stops looking after it for a while.
    LetGo,
    /// A node lets go of what it does not hold.
    Released,
    /// It is freed from a dead node.
    Freed,
    /// The provider is done with it.
    Ended,
    /// A result line proved that it is ours.
    Verified,
    /// A result line proved that it is not ours.
    Disproved,
    /// Every item is accounted for.
    Settled,
}

/// The statuses in which a batch is looked after, each to itself.
const KEPT: &[(Option<BatchStatus>, BatchStatus)] = &[
    (Some(BatchStatus::Submitted), BatchStatus::Submitted),
    (Some(BatchStatus::AdoptedUnverified), BatchStatus::AdoptedUnverified),
    (Some(BatchStatus::Ended), BatchStatus::Ended),
];

impl Move for BatchMove {
    type Status = BatchStatus;
    const ALL: &'static [Self] = &[
        Self::Opened,
        Self::Filled,
        Self::Sealed,
        Self::Sending,
        Self::Doubted,
        Self::Created,
        Self::Adopted,
        Self::GivenBack,
        Self::Inherited,
        Self::Claimed,
        Self::LetGo,
        Self::Released,
        Self::Freed,
        Self::Ended,
        Self::Verified,
        Self::Disproved,
        Self::Settled,
    ];
    const STATUSES: &'static [BatchStatus] = BatchStatus::ALL;

    fn rule(self) -> Rule<BatchStatus> {
        use BatchStatus::{
            Abandoned, AdoptedUnverified, Ambiguous, Ended, Reserved, Sealed, Sending, Settled, Submitted,
        };
        use By::{Anyone, Keeper, LeaseHolder, LivingNode};
        let (name, statement, by, paths, fence_rises, note): (_, _, _, &[_], _, _) = match self {
            Self::Opened => ("opened", "reserve::open", LeaseHolder, &[(None, Reserved)], false, "carries the lease"),
            Self::Filled => (
                "filled",
                "reserve::fill",
                LeaseHolder,
                &[(Some(Reserved), Reserved)],
                false,
                "in chunks; `n` is counted",
            ),
            Self::Sealed => (
                "sealed",
                "reserve::seal",
                LeaseHolder,
                &[(Some(Reserved), Sealed)],
                false,
                "count, bytes and digest are fixed",
            ),
            Self::Sending => (
                "sending",
                "reserve::sending",
                LeaseHolder,
                &[(Some(Sealed), Sending)],
                false,
                "the last commit before the first byte",
            ),
            Self::Doubted => (
                "doubted",
                "submit::ambiguous",
                LeaseHolder,
                &[(Some(Sending), Ambiguous)],
                false,
                "nothing is blindly sent again",
            ),
            Self::Created => (
                "created",
                "submit::created",
                LeaseHolder,
                &[(Some(Sending), Submitted), (Some(Ambiguous), Submitted)],
                false,
                "the provider's id is stored",
            ),
            Self::Adopted => (
                "adopted",
                "submit::adopt",
                LeaseHolder,
                &[(Some(Ambiguous), AdoptedUnverified)],
                false,
                "until a result proves it",
            ),
            Self::GivenBack => (
                "given back",
                "submit::give_back",
                LeaseHolder,
                &[
                    (Some(Reserved), Abandoned),
                    (Some(Sealed), Abandoned),
                    (Some(Sending), Abandoned),
                    (Some(Ambiguous), Abandoned),
                ],
                false,
                "its waits are open again; a new attempt is another batch",
            ),
            Self::Inherited => (
                "inherited",
                "submit::adopt_lease",
                LeaseHolder,
                &[
                    (Some(Reserved), Reserved),
                    (Some(Sealed), Sealed),
                    (Some(Sending), Sending),
                    (Some(Ambiguous), Ambiguous),
                ],
                false,
                "its lease rises: an earlier holder moves it no more",
            ),
            Self::Claimed => ("claimed", "ingest::claim", LivingNode, KEPT, true, "when nobody holds it and it is due"),
            Self::LetGo => ("let go", "ingest::let_go", Keeper, KEPT, false, "looked at again after a delay"),
            Self::Released => ("released", "ingest::release_unheld", Anyone, KEPT, true, "after an actor's restart"),
            Self::Freed => {
                ("freed", "nodes::free_leases", Anyone, KEPT, true, "only from a node that is declared dead")
            }
            Self::Ended => (
                "ended",
                "ingest::ended",
                Keeper,
                &[(Some(Submitted), Ended), (Some(AdoptedUnverified), AdoptedUnverified), (Some(Ended), Ended)],
                false,
                "an adopted one is ended when it is verified",
            ),
            Self::Verified => ("verified", "ingest::verified", Keeper, &[(Some(AdoptedUnverified), Ended)], false, ""),
            Self::Disproved => (
                "disproved",
                "ingest::foreign",
                Keeper,
                &[(Some(AdoptedUnverified), Ambiguous)],
                false,
                "the other is remembered as foreign",
            ),
            Self::Settled => (
                "settled",
                "ingest::settle",
                Keeper,
                &[(Some(Submitted), Settled), (Some(Ended), Settled)],
                false,
                "when no item is open",
            ),
        };
        Rule { name, statement, by, paths, fence_rises, events: &[], note }
    }
}
