//! The moves of a run.

use crate::domain::{Change, RunStatus};

moves! {
    /// Every way in which a run's row changes. Of the owned ones, which the holder makes, there is one per [`Change`].
    RunMove of RunStatus {
        /// It is accepted.
        Enqueued = "enqueued", "enqueue::enqueue", Anyone, [nothing -> Runnable], stays, [RunEnqueued],
            "idempotent by run id and digest";
        /// A node takes it and starts its step.
        Claimed = "claimed", "claim::claim", LivingNode, [Runnable -> Owned], rises, [StepStarted],
            "counts the start; with an answer to take up, `model.applied` comes first";
        /// Owned: the next step starts under the same holder.
        Continue = "continue", "flush::flush", Owner, [Owned -> Owned], stays, [StepCompleted, StepStarted],
            "goes on";
        /// Owned: the holder lets go, after a completed step or a failed attempt.
        Release = "release", "flush::flush", Owner, [Owned -> Runnable], stays, [StepCompleted],
            "holds it no longer; a failed attempt tells `step.failed`";
        /// Owned: it waits.
        Suspend = "suspend", "flush::flush", Owner, [Owned -> Waiting], stays, [StepCompleted, ModelAsked],
            "holds it no longer; makes a wait";
        /// Owned: it waits for branches.
        Fork = "fork", "flush::flush", Owner, [Owned -> Waiting], stays, [StepCompleted, ForkOpened],
            "holds it no longer; makes its branches, which are runs";
        /// Owned: it ends with an output.
        Complete = "complete", "flush::flush", Owner, [Owned -> Completed], stays, [StepCompleted, RunCompleted],
            "holds it no longer; stores the output";
        /// Owned: it ends with an error.
        Fail = "fail", "flush::flush", Owner, [Owned -> Failed], stays, [StepFailed, RunFailed],
            "holds it no longer; stores the error";
        /// Owned: it is held back for an operator.
        Park = "park", "flush::flush", Owner, [Owned -> Parked], stays, [RunParked],
            "holds it no longer; the reason is stored";
        /// Its holder makes it a run of a newer version, before its step.
        Upgraded = "upgraded", "upgrade::upgrade", Owner, [Owned -> Owned], stays, [RunUpgraded, StepStarted],
            "goes on at the step that the upgrade says; a statement of its own";
        /// A node lets go of what it does not hold.
        Released = "released", "claim::release_unheld", Anyone, [Owned -> Runnable], rises, [],
            "only what carries that node's own id; the old owner hears `Superseded`";
        /// Its step could not begin: every slot for blocking steps was taken, or a branch of its has gone on under a newer version.
        HandedBack = "handed back", "claim::hand_back", Anyone, [Owned -> Runnable], rises, [],
            "only under the fence that its holder has; the start is not counted";
        /// An operator holds it back.
        HeldBack = "held back", "operate::park", Anyone, [Runnable -> Parked, Owned -> Parked], rises, [RunParked],
            "the owner hears `Superseded`; the reason is stored";
        /// Its row does not read back.
        Unreadable = "unreadable", "claim::park_unreadable", LivingNode, [Owned -> Parked], rises, [RunParked],
            "right after the claim; the reason is stored";
        /// A transition whose commit was in doubt is decided not to be in.
        Decided = "decided", "decide::decide", Owner, [Owned -> Runnable], rises, [],
            "the old owner hears `Superseded`";
        /// It is taken from a dead node.
        TakenOver = "taken over", "nodes::take_over_runs", Anyone, [Owned -> Runnable], rises, [RunTakenOver],
            "only from a node that is declared dead; it hears `Superseded`, if it hears anything";
        /// Its request is at the provider.
        Submitted = "submitted", "submit::tell_submitted", Anyone, [Waiting -> Waiting], stays, [ModelSubmitted],
            "nobody owns it";
        /// Its answer is stored.
        Answered = "answered", "ingest::answer", Keeper, [Waiting -> Runnable], stays, [ModelAnswered],
            "nobody owns it";
        /// A person or another service has answered, or its time is over.
        Woken = "woken", "answers::answer", Anyone, [Waiting -> Runnable], stays, [HumanAnswered],
            "nobody owns it; the event tells who or what woke it";
        /// Time woke it.
        Expired = "expired", "answers::expire", Anyone, [Waiting -> Runnable], stays, [TimerFired],
            "nobody owns it; the answer agreed on is stored";
        /// It is ended by request.
        Canceled = "canceled", "cancel::cancel", Anyone,
            [Runnable -> Canceled, Owned -> Canceled, Waiting -> Canceled, Parked -> Canceled], rises, [RunCanceled],
            "the owner hears `Superseded`; orders the same for its branches";
        /// A branch of a fork that does not wait has failed, and this is another one.
        Stopped = "stopped", "cancel::cancel", Anyone,
            [Runnable -> Canceled, Owned -> Canceled, Waiting -> Canceled, Parked -> Canceled], rises, [RunCanceled],
            "the owner hears `Superseded`; only by an order, and it may go on later";
        /// All its branches are over.
        Joined = "joined", "forks::join", Anyone, [Waiting -> Runnable], stays, [ForkJoined],
            "their results are the answer";
        /// All its branches are over, and one of them failed.
        BranchFailed = "branch failed", "forks::join", Anyone, [Waiting -> Failed], stays, [ForkFailed, RunFailed],
            "unless failures are collected; stores the error";
        /// An operator sets it going again, from its last durable state.
        Retried = "retried", "revive::retry", Anyone,
            [Failed -> Runnable, Failed -> Waiting, Parked -> Runnable, Parked -> Waiting, Canceled -> Runnable,
                Canceled -> Waiting, Canceled -> Parked], rises, [RunRetried],
            "waiting when its request goes out again; the stored error is gone; of canceled ones only what was stopped";
        /// Its request is sent by itself.
        Called = "called live", "live::claim", LivingNode, [Waiting -> Waiting], stays, [ModelSubmitted],
            "nobody owns it; the last commit before the first byte";
        /// The answer of its live call is stored.
        AnsweredLive = "answered live", "live::answer", Anyone, [Waiting -> Runnable], stays, [ModelAnswered],
            "nobody owns it";
        /// Its live call had no answer, and it is made again.
        CalledAgain = "to be called again", "live::unanswered", Anyone, [Waiting -> Waiting], stays, [ModelRetried],
            "nobody owns it; within its budget of errors";
        /// Its live call had no answer, and none will come.
        CallFailed = "call failed", "live::unanswered", Anyone, [Waiting -> Failed], stays, [ModelFailed, RunFailed],
            "nobody owns it; stores the error";
        /// Nobody knows what became of its live call, and it is not to be made twice.
        CallLost = "call lost", "live::unanswered", Anyone, [Waiting -> Parked], stays, [ModelFailed, RunParked],
            "nobody owns it; the reason is stored, and a retry asks again";
        /// Its request goes out again.
        TurnedBack = "turned back", "refuse::turn_back", Keeper, [Waiting -> Waiting], stays, [ModelRetried],
            "its batch was refused after it was created: the request goes out again";
        /// Its request goes out again.
        Requeued = "requeued", "ingest::retry", Keeper, [Waiting -> Waiting], stays, [ModelRetried],
            "nobody owns it";
        /// Its request was refused when it was sent alone.
        Convicted = "refused by provider", "refuse::convict", LeaseHolder, [Waiting -> Failed], stays, [ModelFailed, RunFailed],
            "nobody owns it; stores the error";
        /// Its request was paid for and has no result.
        MissingPaid = "missing", "holes::park_missing", Keeper, [Waiting -> Parked], stays, [ModelFailed, RunParked],
            "nobody owns it; the reason is stored";
        /// No answer will come.
        ModelFailed = "failed by provider", "ingest::fail", Keeper, [Waiting -> Failed], stays, [ModelFailed, RunFailed],
            "nobody owns it; stores the error";
    }
}

impl RunMove {
    /// The move that a transition makes.
    pub fn of(change: &Change) -> Self {
        match change {
            Change::Continue(_) => Self::Continue,
            Change::Release { .. } => Self::Release,
            Change::Suspend { .. } => Self::Suspend,
            Change::Fork { .. } => Self::Fork,
            Change::Complete(_) => Self::Complete,
            Change::Fail(_) => Self::Fail,
            Change::Park(_) => Self::Park,
        }
    }
}
