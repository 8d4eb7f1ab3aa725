//! The moves of a batch.

use crate::domain::BatchStatus;

moves! {
    /// Every way in which a batch's row changes.
    BatchMove of BatchStatus {
        /// An empty one is made.
        Opened = "opened", "reserve::open", LeaseHolder, [nothing -> Reserved], stays, [],
            "carries the lease";
        /// Open waits become its items.
        Filled = "filled", "reserve::fill", LeaseHolder, [Reserved -> Reserved], stays, [],
            "in chunks; `n` is counted";
        /// Its body is fixed.
        Sealed = "sealed", "reserve::seal", LeaseHolder, [Reserved -> Sealed], stays, [],
            "count, bytes and digest are fixed";
        /// The first byte is about to leave.
        Sending = "sending", "reserve::sending", LeaseHolder, [Sealed -> Sending], stays, [],
            "the last commit before the first byte";
        /// Nobody knows whether it arrived.
        Doubted = "doubted", "submit::ambiguous", LeaseHolder, [Sending -> Ambiguous], stays, [],
            "nothing is blindly sent again";
        /// The provider told us its id.
        Created = "created", "submit::created", LeaseHolder, [Sending -> Submitted, Ambiguous -> Submitted], stays, [],
            "the provider's id is stored";
        /// A listed batch may be it, or carries our intent and is it.
        Adopted = "adopted", "submit::adopt", LeaseHolder, [Ambiguous -> AdoptedUnverified, Ambiguous -> Submitted], stays,
            [], "submitted if it carries our intent; else until a result proves it";
        /// It was never created, or is given up.
        GivenBack = "given back", "submit::give_back", LeaseHolder,
            [Reserved -> Abandoned, Sealed -> Abandoned, Sending -> Abandoned, Ambiguous -> Abandoned], stays, [],
            "its waits are open again; a new attempt is another batch";
        /// It was refused as a whole, for one of its requests or its size.
        Split = "split", "refuse::split", LeaseHolder, [Sending -> Abandoned], stays, [],
            "its waits are open again, the suspects to travel with fewer others";
        /// Its only request was refused.
        Convicted = "convicted", "refuse::convict", LeaseHolder, [Sending -> Abandoned], stays, [],
            "the run fails with the provider's words";
        /// It shows up after it was given up on.
        FoundLate = "found late", "refuse::find_late", LeaseHolder,
            [Abandoned -> AdoptedUnverified, Abandoned -> Submitted], stays, [],
            "only a send that was in doubt; its results prove it or not, unless it carries our intent";
        /// A new holder of the submit lease takes it up.
        Inherited = "inherited", "submit::adopt_lease", LeaseHolder,
            [Reserved -> Reserved, Sealed -> Sealed, Sending -> Sending, Ambiguous -> Ambiguous], stays, [],
            "its lease rises: an earlier holder moves it no more";
        /// A node begins to look after it.
        Claimed = "claimed", "ingest::claim", LivingNode,
            [Submitted -> Submitted, AdoptedUnverified -> AdoptedUnverified, Ended -> Ended], rises, [],
            "when nobody holds it and it is due";
        /// The node stops looking after it for a while.
        LetGo = "let go", "ingest::let_go", Keeper,
            [Submitted -> Submitted, AdoptedUnverified -> AdoptedUnverified, Ended -> Ended], rises, [],
            "looked at again after a delay";
        /// A node lets go of what it does not hold.
        Released = "released", "ingest::release_unheld", Anyone,
            [Submitted -> Submitted, AdoptedUnverified -> AdoptedUnverified, Ended -> Ended], rises, [],
            "only what carries that node's own id";
        /// It is freed from a dead node.
        Freed = "freed", "nodes::free_leases", Anyone,
            [Submitted -> Submitted, AdoptedUnverified -> AdoptedUnverified, Ended -> Ended], rises, [],
            "only from a node that is declared dead";
        /// The provider is done with it.
        Ended = "ended", "ingest::ended", Keeper,
            [Submitted -> Ended, AdoptedUnverified -> AdoptedUnverified, Ended -> Ended], stays, [],
            "an adopted one is ended when it is verified";
        /// A result line proved that it is ours.
        Verified = "verified", "ingest::verified", Keeper, [AdoptedUnverified -> Ended], stays, [],
            "";
        /// A result line proved that it is not ours.
        Disproved = "disproved", "ingest::foreign", Keeper, [AdoptedUnverified -> Ambiguous, AdoptedUnverified -> Abandoned], stays, [],
            "the other is remembered as foreign; what had been given up on is so again";
        /// A result line proved that it belongs to another send of ours that is in doubt.
        HandedOver = "handed over", "ingest::hand_over", Keeper,
            [AdoptedUnverified -> Ambiguous, AdoptedUnverified -> Abandoned, Ambiguous -> AdoptedUnverified,
                Abandoned -> AdoptedUnverified], stays, [],
            "the other send gets the provider's id";
        /// Every item is accounted for.
        Settled = "settled", "costs::settle", Keeper, [Submitted -> Settled, Ended -> Settled], stays, [],
            "when no item is open";
    }
}
