//! Who may move what from which status to which: the closed list, as data.
//!
//! There are five machines: runs, waits, batches, items and live calls. Each has one enum of *moves*; a move is one named statement of the
//! store (for the owned moves of runs: one [`Change`](super::Change) of a transition), and its [`Rule`] is the one exhaustive
//! match over that enum. What is not in the list cannot happen: [`Move::apply`] refuses it, no statement does it, and the
//! audit shows a row where it happened all the same. A test prints everything into `docs/lifecycle.md`.
//!
//! Two kinds of moves. *Owned* ones are made by who holds the run, name fence and cursor, and go through the committer.
//! *Outside* ones are guarded by what they change from, and get the ordinals of their events by the same guarded update.

/// Declares the moves of a machine: the enum, and the match that gives each variant its rule.
macro_rules! moves {
    ($(#[$doc:meta])* $name:ident of $status:ident {
        $($(#[$vdoc:meta])* $variant:ident = $word:literal, $statement:literal, $by:ident,
            [$($from:ident -> $to:ident),+], $fence:ident, [$($event:ident),*], $note:literal;)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$vdoc])* $variant),+
        }

        impl $crate::domain::lifecycle::Move for $name {
            type Status = $status;
            const ALL: &'static [Self] = &[$(Self::$variant),+];
            const STATUSES: &'static [$status] = $status::ALL;

            fn rule(self) -> $crate::domain::lifecycle::Rule<$status> {
                match self {
                    $(Self::$variant => $crate::domain::lifecycle::Rule {
                        name: $word,
                        statement: $statement,
                        by: $crate::domain::lifecycle::By::$by,
                        paths: &[$((moves!(@from $status $from), $status::$to)),+],
                        fence_rises: moves!(@fence $fence),
                        events: &[$($crate::domain::EventType::$event),*],
                        note: $note,
                    },)+
                }
            }
        }
    };
    (@from $status:ident nothing) => { None };
    (@from $status:ident $from:ident) => { Some($status::$from) };
    (@fence rises) => { true };
    (@fence stays) => { false };
}

mod batches;
mod calls;
mod events;
mod items;
mod markdown;
mod runs;
mod waits;

pub use batches::BatchMove;
pub use calls::CallMove;
pub use events::statuses_after;
pub use items::ItemMove;
pub use markdown::to_markdown;
pub use runs::RunMove;
pub use waits::WaitMove;

use super::event::EventType;
use std::fmt;

/// Who may make a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Who holds the run: fence and cursor have to be those of the row.
    Owner,
    /// A node that has not been declared dead.
    LivingNode,
    /// Any process: the guard is what it changes from.
    Anyone,
    /// Who holds the account's submit lease: the batch has to carry its fence.
    LeaseHolder,
    /// Who looks after the batch: the fence has to be that of its row.
    Keeper,
}

impl By {
    fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "the owner",
            Self::LivingNode => "a living node",
            Self::Anyone => "anyone",
            Self::LeaseHolder => "the lease's holder",
            Self::Keeper => "the batch's keeper",
        }
    }
}

/// What a move is allowed to do.
#[derive(Debug, Clone, Copy)]
pub struct Rule<S: 'static> {
    /// The word for it.
    pub name: &'static str,
    /// The statement that does it, as a path below `store`.
    pub statement: &'static str,
    /// Who may.
    pub by: By,
    /// From which status to which; from `None` makes the row.
    pub paths: &'static [(Option<S>, S)],
    /// Whether the row's fence rises, so that who held it before commits nothing any more.
    pub fence_rises: bool,
    /// The events it writes, in their order. Steps may record others before them.
    pub events: &'static [EventType],
    /// What else there is to know: for runs, what an owner sees afterwards.
    pub note: &'static str,
}

/// A move of one of the machines.
pub trait Move: Copy + fmt::Debug + 'static {
    /// What it moves from and to.
    type Status: Copy + PartialEq + fmt::Debug + fmt::Display + 'static;
    /// All of them.
    const ALL: &'static [Self];
    /// All statuses.
    const STATUSES: &'static [Self::Status];

    /// What it is allowed to do.
    fn rule(self) -> Rule<Self::Status>;

    /// Where it leads from a status. From `None` makes the row. Where the move itself carries what comes of it (the outcome of
    /// an item), several answers are possible.
    ///
    /// # Errors
    /// [`Illegal`] when it leads nowhere from there.
    fn apply(self, from: Option<Self::Status>) -> Result<Vec<Self::Status>, Illegal> {
        let rule = self.rule();
        let to: Vec<_> = rule.paths.iter().filter(|(start, _)| *start == from).map(|(_, end)| *end).collect();
        if to.is_empty() {
            let from = from.map_or_else(|| "nothing".to_owned(), |status| status.to_string());
            return Err(Illegal { name: rule.name, from });
        }
        Ok(to)
    }
}

/// A move that is not in the list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` leads nowhere from {from}")]
pub struct Illegal {
    /// The move.
    pub name: &'static str,
    /// The status it was tried from.
    pub from: String,
}

#[cfg(test)]
mod tests;
