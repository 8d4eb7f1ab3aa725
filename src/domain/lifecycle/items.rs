//! The moves of an item. Once settled, it never moves again, but for an answer that is wanted after all.

use crate::domain::ItemStatus;

moves! {
    /// Every way in which an item's row changes.
    ItemMove of ItemStatus {
        /// A wait becomes an item.
        Taken = "taken", "reserve::fill", LeaseHolder, [nothing -> Pending], stays, [],
            "one row per request sent";
        /// Its batch is at the provider.
        Submitted = "submitted", "submit::tell_submitted", Anyone, [Pending -> Sent], stays, [],
            "";
        /// Its answer reached its wait.
        Answered = "answered", "ingest::answer", Keeper, [Pending -> Succeeded, Sent -> Succeeded], stays, [],
            "paid; at most one per wait";
        /// Its answer came when its wait did not ask any more.
        Superseded = "superseded", "ingest::answer", Keeper, [Pending -> Superseded, Sent -> Superseded], stays, [],
            "paid, and changes nothing else";
        /// Its wait was stopped when the answer came, and is taken up again.
        Wanted = "wanted", "revive::retry", Anyone, [Superseded -> Succeeded], stays, [],
            "paid once, and not asked again";
        /// It has no answer, and its wait goes out again.
        Requeued = "requeued", "ingest::retry", Keeper,
            [Pending -> Errored, Pending -> Expired, Pending -> Canceled, Pending -> Missing,
             Sent -> Errored, Sent -> Expired, Sent -> Canceled, Sent -> Missing], stays, [],
            "the line says which; its wait may have gone on already";
        /// Its batch was created, and refused as a whole afterwards.
        TurnedBack = "turned back", "refuse::turn_back", Keeper, [Pending -> Errored, Sent -> Errored], stays, [],
            "without a line; its wait may have gone on already";
        /// It was refused alone.
        Convicted = "convicted", "refuse::convict", LeaseHolder, [Pending -> Errored, Sent -> Errored], stays, [],
            "without a line";
        /// It was paid for, as far as the provider says, and is in no result.
        Lost = "lost", "holes::park_missing", Keeper, [Pending -> MissingPaid, Sent -> MissingPaid], stays, [],
            "its run is parked";
        /// It has no answer, and its run failed.
        Failed = "failed", "ingest::fail", Keeper,
            [Pending -> Errored, Pending -> Expired, Pending -> Canceled, Pending -> MissingPaid, Pending -> Unreadable,
             Sent -> Errored, Sent -> Expired, Sent -> Canceled, Sent -> MissingPaid, Sent -> Unreadable], stays, [],
            "the line says which; its wait may have gone on already";
    }
}
