//! The moves of a live call: an item without a batch. Once settled, it never moves again, but for an answer that comes late or is wanted
//! after all.

use crate::domain::ItemStatus;

moves! {
    /// Every way in which a live call's row changes.
    CallMove of ItemStatus {
        /// It is about to be made.
        Made = "made", "live::claim", LivingNode, [nothing -> Sent], stays, [],
            "the intent: who makes it, and which attempt it is";
        /// Its answer is stored.
        Answered = "answered", "live::answer", Anyone,
            [Sent -> Succeeded, Sent -> Superseded, Missing -> Succeeded, Missing -> Superseded, Superseded -> Succeeded], stays, [],
            "paid; superseded if nobody waits for it; a late answer counts like any";
        /// It has no answer.
        Unanswered = "unanswered", "live::unanswered", Anyone, [Sent -> Errored, Sent -> Missing, Sent -> Unreadable], stays, [],
            "errored is not paid, unreadable is, and of missing ones nobody knows";
        /// Its wait was stopped when the answer came, and is taken up again.
        Wanted = "wanted", "revive::retry", Anyone, [Superseded -> Succeeded], stays, [],
            "paid once, and not asked again";
    }
}
