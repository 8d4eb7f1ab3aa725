//! The moves of a wait.

use crate::domain::WaitStatus;

moves! {
    /// Every way in which a wait's row changes.
    WaitMove of WaitStatus {
        /// A step asks.
        Asked = "asked", "flush::flush", Owner, [nothing -> Open], stays, [ModelAsked],
            "part of the run's suspend";
        /// The provider says which requests it may travel with.
        Grouped = "grouped", "groups::group", LeaseHolder, [Open -> Open], stays, [],
            "once; only where a batch does not take every mixture";
        /// It becomes an item of a batch.
        Reserved = "reserved", "reserve::fill", LeaseHolder, [Open -> Reserved], stays, [],
            "counts the attempt";
        /// Its batch was never created.
        GivenBack = "given back", "submit::give_back", LeaseHolder, [Reserved -> Open, Sent -> Open], stays, [],
            "the next attempt has another custom id";
        /// A budget has no room for it.
        HeldBack = "held back", "budgets::fund", LeaseHolder, [Reserved -> Open], stays, [],
            "outside the queue until its budget has room";
        /// Its batch was refused as a whole.
        Split = "split", "refuse::split", LeaseHolder, [Reserved -> Open, Sent -> Open], stays, [],
            "the next batch has fewer others";
        /// Its batch was created, and refused as a whole afterwards.
        TurnedBack = "turned back", "refuse::turn_back", Keeper, [Reserved -> Open, Sent -> Open], stays, [ModelRetried],
            "counts against no budget; suspects travel with fewer others";
        /// It was refused alone.
        Convicted = "convicted", "refuse::convict", LeaseHolder, [Reserved -> Failed, Sent -> Failed], stays, [ModelFailed],
            "with its run";
        /// It was paid for and has no result.
        Missing = "missing", "holes::park_missing", Keeper, [Reserved -> Failed, Sent -> Failed], stays, [ModelFailed],
            "its run is parked; a retry asks again";
        /// Its batch is at the provider.
        Submitted = "submitted", "submit::tell_submitted", Anyone, [Reserved -> Sent], stays, [ModelSubmitted],
            "while its run waits on it, and its batch is this one";
        /// The answer is stored.
        Answered = "answered", "ingest::answer", Keeper, [Open -> Answered, Reserved -> Answered, Sent -> Answered], stays,
            [ModelAnswered], "by any attempt, a late one too, while its run waits on it";
        /// The request goes out again.
        Requeued = "requeued", "ingest::retry", Keeper, [Reserved -> Open, Sent -> Open], stays, [ModelRetried],
            "within its budget of errors";
        /// No answer will come.
        Failed = "failed", "ingest::fail", Keeper, [Reserved -> Failed, Sent -> Failed], stays, [ModelFailed],
            "with its run";
        /// Its request is sent by itself.
        Called = "called live", "live::claim", LivingNode, [Open -> Sent], stays, [ModelSubmitted],
            "when a batch would miss its deadline; counts the attempt, which is written down before the first byte";
        /// The answer of a live call is stored.
        AnsweredLive = "answered live", "live::answer", Anyone, [Open -> Answered, Reserved -> Answered, Sent -> Answered], stays,
            [ModelAnswered], "by any call, a late one too, while its run waits on it";
        /// Its live call had no answer.
        Unanswered = "unanswered live", "live::unanswered", Anyone, [Sent -> Open, Sent -> Failed], stays, [ModelRetried],
            "open within its budget of errors; failed with its run, or with its run parked if that is its rule";
        /// A person or another service answers.
        AnsweredByName = "answered by name", "answers::answer", Anyone, [Open -> Answered], stays,
            [HumanAnswered], "while its run waits on it and its time is not over; a service's tells `external.answered`";
        /// Its time is over.
        Expired = "expired", "answers::expire", Anyone, [Open -> Answered], stays, [TimerFired],
            "gets the answer agreed on; tells `human.expired`, `external.expired` or `timer.fired`";
        /// All branches that it waits for are over.
        Joined = "joined", "forks::join", Anyone, [Open -> Answered, Open -> Failed], stays, [ForkJoined],
            "failed, if a branch was and failures are not collected";
        /// An operator set its run going again.
        Reopened = "reopened", "revive::retry", Anyone, [Failed -> Open, Failed -> Answered], stays, [RunRetried],
            "with a fresh budget of errors; answered, if a live call that was taken for lost was answered after all";
        /// A stopped run goes on, and its wait is taken up where it is by now.
        TakenUp = "taken up", "revive::retry", Anyone,
            [Canceled -> Open, Canceled -> Reserved, Canceled -> Sent, Canceled -> Answered], stays, [RunRetried],
            "what was at the provider is not asked again";
        /// Its run is canceled.
        Canceled = "canceled", "cancel::cancel", Anyone,
            [Open -> Canceled, Reserved -> Canceled, Sent -> Canceled, Answered -> Canceled], stays, [RunCanceled],
            "what comes for it later is booked and changes nothing else";
        /// The run takes the answer.
        Applied = "applied", "claim::claim", LivingNode, [Answered -> Applied], stays, [ModelApplied],
            "an answered wait never expires";
    }
}
