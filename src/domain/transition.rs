//! An owned transition: what the holder of a run wants written, as one value. Only the committer writes it.

use super::event::NewEvent;
use super::failure::Failure;
use super::ids::{Fence, Ordinal, RunKey};
use super::json::JsonText;
use super::retry::ModelRetry;
use super::status::WaitKind;
use chrono::{DateTime, Utc};
use std::time::Duration;

/// Where to continue when something has been called or waited for: a step, and the value carried to it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Frame {
    /// The step that takes the result.
    pub step: String,
    /// What it gets beside the result.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "carried")]
    pub carry: Option<JsonText>,
}

/// Where a run is in its program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The step that runs next.
    pub step: String,
    /// Its input; while the run waits, the value carried beside the answer. `None` is no value, or `null`.
    pub arg: Option<JsonText>,
    /// Who continues when the present call finishes; the last is the innermost.
    pub stack: Vec<Frame>,
}

/// A wait that a step opens.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NewWait {
    /// What is waited for.
    #[serde(with = "super::status::word")]
    pub kind: WaitKind,
    /// The provider that is asked; of model waits only.
    pub provider: Option<String>,
    /// The request, exactly as it is to be sent or shown.
    #[serde(with = "super::json::text")]
    pub request: JsonText,
    /// When it is over without an answer from outside.
    pub due: Option<Due>,
    /// The answer then; `None` is `null`.
    #[serde(with = "super::json::text::option")]
    pub otherwise: Option<JsonText>,
    /// Of model waits: when it goes live, if ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Box<LiveCall>>,
    /// How its errors are tried again; `None` is the node's setting. Of model waits only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Box<ModelRetry>>,
}

/// A request to a model that is not left to a batch for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LiveCall {
    /// When its answer is wanted. As soon as a batch would be later than that, the request is sent by itself, at the full price.
    pub by: Due,
    /// What becomes of it when nobody knows whether the provider answered, and was paid.
    #[serde(default)]
    pub when_lost: WhenLost,
}

/// What becomes of a live call of which nobody knows whether it was answered, and so paid: its process died, or its connection broke
/// after it was sent. Nothing can find that out later: a provider keeps no list of such calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenLost {
    /// It is made again, within its budget of errors: **it may be paid twice**. Live calls are at-least-once unless said otherwise.
    #[default]
    Retry,
    /// Its run is parked with the reason: nothing is paid twice unless a person says so, by a retry of the run.
    Park,
}

impl NewWait {
    /// A request to a model.
    pub fn model(provider: impl Into<String>, request: JsonText) -> Self {
        Self {
            kind: WaitKind::Model,
            provider: Some(provider.into()),
            request,
            due: None,
            otherwise: None,
            live: None,
            retry: None,
        }
    }
}

/// A moment, by the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Due {
    /// So long after the commit that opens the wait.
    After(Duration),
    /// Then.
    At(DateTime<Utc>),
}

/// A branch that a step opens: a run of its own, from `step` on, with the input and a copy of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBranch {
    /// Its name, for people.
    pub name: String,
    /// Where it begins.
    pub step: String,
    /// The input of that step.
    pub arg: Option<JsonText>,
}

/// What the join gets of branches that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForkPolicy {
    /// Nothing: once all are over, the run fails if one of them did.
    #[default]
    WaitAll,
    /// Nothing: as soon as one fails the others are canceled, and then the run fails.
    FailFast,
    /// Each branch's result or failure.
    Collect,
}

/// How branches are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct JoinRule {
    /// What the join gets of branches that fail.
    pub policy: ForkPolicy,
    /// Whether what the branches changed in their copies of the state is brought together.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merge: bool,
}

/// What becomes of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The holder goes on with the next step, whose start is among the events.
    Continue(Position),
    /// The holder lets go: another claim runs `position`, not before the delay. `errors` counts its failed attempts.
    Release {
        /// Where it goes on.
        position: Position,
        /// Not before this has passed.
        delay: Duration,
        /// How often the step has failed so far.
        errors: u32,
    },
    /// It waits; `position` takes the answer.
    Suspend {
        /// Where it goes on.
        position: Position,
        /// What it waits for; opened by the last event.
        wait: NewWait,
    },
    /// It waits for branches; `position` takes their results.
    Fork {
        /// Where it goes on.
        position: Position,
        /// The branches, in the order of their results.
        branches: Vec<NewBranch>,
        /// How they are joined.
        rule: JoinRule,
    },
    /// It is over, with this output.
    Complete(JsonText),
    /// It is over, with this error.
    Fail(Failure),
    /// It is held back for an operator, with this reason; it stays where it is.
    Park(String),
}

/// One transition of a run by its holder. It is committed as a whole if fence and cursor are still those of the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// Which run.
    pub run: RunKey,
    /// The run that waits for it, if it is a branch.
    pub parent: Option<RunKey>,
    /// The fence that its claim gave.
    pub fence: Fence,
    /// The ordinal that the first event gets: how many events the holder knows of.
    pub cursor: Ordinal,
    /// What becomes of the run.
    pub change: Change,
    /// The state, if it changed.
    pub state: Option<JsonText>,
    /// What is told of it; never empty.
    pub events: Vec<NewEvent>,
}

impl Transition {
    /// How many bytes it carries to the database, about.
    pub fn bytes(&self) -> usize {
        let of = |j: &Option<JsonText>| j.as_ref().map_or(0, |j| j.as_str().len());
        let at = |p: &Position| of(&p.arg) + p.stack.iter().map(|f| f.step.len() + of(&f.carry)).sum::<usize>();
        let change = match &self.change {
            Change::Continue(p) | Change::Release { position: p, .. } => at(p),
            Change::Suspend { position, wait } => at(position) + wait.request.as_str().len() + of(&wait.otherwise),
            Change::Fork { position, branches, .. } => {
                at(position) + branches.iter().map(|b| 64 + b.step.len() + of(&b.arg)).sum::<usize>()
            }
            Change::Complete(output) => output.as_str().len(),
            Change::Fail(failure) => failure.message.len(),
            Change::Park(reason) => reason.len(),
        };
        change + of(&self.state) + self.events.iter().map(|e| 64 + e.payload.as_str().len()).sum::<usize>()
    }

    /// The cursor after it.
    pub fn next_cursor(&self) -> Ordinal {
        self.cursor + self.events.len() as Ordinal
    }
}

/// What a sender learns of its transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is durable.
    Committed,
    /// The row has moved on under another fence or cursor: nothing of it was written. Forget the run.
    Superseded,
    /// The database refused this transition, and no other: nothing of it was written; the holder still holds the run.
    Refused(String),
    /// Whether it is durable cannot be told yet. Forget the run: the next claim reads it as it is.
    Unknown,
}

mod carried {
    use super::JsonText;
    use crate::domain::json::raw;
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Option<JsonText>, out: S) -> Result<S::Ok, S::Error> {
        match value {
            None => out.serialize_none(),
            Some(text) => raw::serialize(text, out),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<JsonText>, D::Error> {
        raw::deserialize(from).map(Some)
    }
}
