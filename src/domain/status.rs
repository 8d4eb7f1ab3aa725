//! What things can be. A code that this version does not know is `Unknown`: such a row is skipped, never misread.

macro_rules! status {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
            /// A code that a newer version wrote.
            Unknown(i16),
        }

        impl $name {
            /// All that this version knows, in the order of their life.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word for it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ Self::Unknown(_) => "unknown" }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.as_str()) }
        }

        impl std::str::FromStr for $name {
            type Err = crate::domain::status::UnknownWord;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text { $($text => Ok(Self::$variant),)+ _ => Err(crate::domain::status::UnknownWord(text.into())) }
            }
        }
    };
}
pub(crate) use status;

/// A word that names no status or type of that kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a word of this list")]
pub struct UnknownWord(pub String);

/// Writes a value as the text that it is shown as, and reads it from there.
pub(crate) mod word {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Display;
    use std::str::FromStr;

    pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }

    pub(crate) mod option {
        use super::{Deserialize, Deserializer, Display, FromStr, Serializer};

        pub(crate) fn serialize<T: Display, S: Serializer>(value: &Option<T>, out: S) -> Result<S::Ok, S::Error> {
            match value {
                Some(value) => out.serialize_some(&value.to_string()),
                None => out.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<T>, D::Error> {
            let text = Option::<String>::deserialize(from)?;
            text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
        }
    }
}

status! {
    /// What a run is doing.
    RunStatus {
        /// Any node that has the workflow may claim it, once it is due.
        Runnable = "runnable",
        /// A node holds it and runs its steps.
        Owned = "owned",
        /// Suspended on its open wait.
        Waiting = "waiting",
        /// Held back, with a reason, until an operator acts.
        Parked = "parked",
        /// Ended with an output.
        Completed = "completed",
        /// Ended with an error.
        Failed = "failed",
        /// Ended by request.
        Canceled = "canceled",
    }
}

impl RunStatus {
    /// Whether it is over.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Canceled => true,
            Self::Runnable | Self::Owned | Self::Waiting | Self::Parked | Self::Unknown(_) => false,
        }
    }
}

status! {
    /// What a run waits for.
    WaitKind {
        /// A model's reply, through a provider's batch API.
        Model = "model",
        /// The results of tools.
        Tools = "tools",
        /// A person's answer.
        Human = "human",
        /// Another service's answer.
        External = "external",
        /// The branches of a fork.
        Fork = "fork",
        /// A moment in time.
        Timer = "timer",
    }
}

status! {
    /// How far a wait is.
    WaitStatus {
        /// Nobody has taken it up.
        Open = "open",
        /// In a batch that is being made.
        Reserved = "reserved",
        /// At the provider.
        Sent = "sent",
        /// The answer is stored.
        Answered = "answered",
        /// The run has taken the answer.
        Applied = "applied",
        /// No answer will come; the run failed.
        Failed = "failed",
        /// Its time was over.
        Expired = "expired",
        /// The run was canceled.
        Canceled = "canceled",
    }
}

status! {
    /// How far a batch is.
    BatchStatus {
        /// Its items are chosen.
        Reserved = "reserved",
        /// Its body is fixed: count, bytes and digest are stored.
        Sealed = "sealed",
        /// The first byte may be on its way.
        Sending = "sending",
        /// It is not known whether the provider has it.
        Ambiguous = "ambiguous",
        /// The provider has it, and told us its id.
        Submitted = "submitted",
        /// Found by listing; its results will prove it.
        AdoptedUnverified = "adopted_unverified",
        /// The provider is done with it.
        Ended = "ended",
        /// Every item is accounted for.
        Settled = "settled",
        /// Never created, or given up; its items went back.
        Abandoned = "abandoned",
    }
}

status! {
    /// What became of one request of a batch.
    ItemStatus {
        /// Not known to be at the provider.
        Pending = "pending",
        /// At the provider.
        Sent = "sent",
        /// Answered, and paid.
        Succeeded = "succeeded",
        /// Refused by the provider, not paid.
        Errored = "errored",
        /// Not worked on in time, not paid.
        Expired = "expired",
        /// Canceled at the provider, not paid.
        Canceled = "canceled",
        /// In no result, and not paid.
        Missing = "missing",
        /// In no result, and perhaps paid.
        MissingPaid = "missing_paid",
        /// Its result cannot be read.
        Unreadable = "unreadable",
        /// Answered, when another attempt had been answered before; paid.
        Superseded = "superseded",
    }
}
