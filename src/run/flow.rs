//! The boundary between typed workflows and the engine: a workflow without its types, as a node runs it.
//!
//! Above it are Rust types and user code; below it are names, JSON texts and what is to be committed. Whoever holds a run
//! *loads* it into a [`Live`] and *calls* its steps one by one; each call says what the step asked for as an [`Executed`]
//! and changes nothing durable. Deliberately absent: timers, threads and databases. Timeouts, retries and the pool for
//! blocking steps are the holder's business; the boundary only carries what was declared.

pub use super::manifest::{Manifest, StepInfo, TypeInfo};

use super::error::StepError;
use super::schemas::Schemas;
use super::upgrade::InFlight;
use crate::domain::{Failure, Frame, InvalidJson, JoinRule, JsonText, NewBranch, NewEvent, NewWait, Ordinal, RunKey};
use futures::future::BoxFuture;
use std::borrow::Cow;
use std::sync::Arc;

/// A workflow without its types: what a node runs.
pub trait Flow: Send + Sync + 'static {
    /// Its name, its version and its steps.
    fn manifest(&self) -> &Manifest;

    /// Decodes a run, so that its steps can be called.
    ///
    /// # Errors
    /// A [`Failure`] when input or state do not fit the workflow's types. It names no step: the holder knows which one
    /// the run is at.
    fn load(&self, image: Image) -> Result<Box<dyn Live>, Failure>;

    /// Makes a run of an older version, which the manifest says it takes over, one of its own. May panic.
    ///
    /// # Errors
    /// Why that run cannot be taken over.
    fn upgrade(&self, from: u32, moved: InFlight) -> Result<InFlight, StepError> {
        let _ = moved;
        Err(StepError::fatal(format!("there is no upgrade from version {from}")))
    }

    /// What of a stored value does not fit, if anything. Never panics. By default its schema in the manifest is asked.
    fn misfit(&self, part: Part<'_>, value: Option<&JsonText>) -> Option<String> {
        Schemas::of(self.manifest()).misfit(part, value)
    }
}

/// A stored value of a run, by what it has to fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// The input of the run.
    Input,
    /// The state of the run.
    State,
    /// The input of a step.
    Arg(&'a str),
}

/// What the database holds of a run, as far as its steps need it.
#[derive(Debug, Clone)]
pub struct Image {
    /// The key inside the database.
    pub run: RunKey,
    /// The name its caller gave it.
    pub run_id: Arc<str>,
    /// The input.
    pub input: JsonText,
    /// The state; `None` as long as no step has changed it.
    pub state: Option<JsonText>,
    /// Whether this state is not stored yet, so that the next step's commit has to store it even if that leaves it as it is.
    pub unsaved: bool,
}

/// A loaded run: input and state are decoded.
///
/// It keeps the typed state between calls. A holder calls again only after what the last call asked for is durable, or
/// after an outcome other than [`Outcome::Done`]: then the state of the last durable commit is decoded again first. A call
/// whose future was dropped counts as such an outcome.
pub trait Live: Send {
    /// Runs the user code of one step. `cursor` is the ordinal that its first recorded event will get. Never panics:
    /// a panic of the step is an outcome.
    fn call<'a>(&'a mut self, step: &'a str, arg: Option<JsonText>, cursor: Ordinal) -> BoxFuture<'a, Executed>;

    /// What is left of a call that the holder dropped because its time was over.
    fn timed_out(&mut self) -> Executed;
}

/// What came of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// How it ended.
    pub outcome: Outcome,
    /// The state, if the step changed it.
    pub state: Option<JsonText>,
    /// What the step recorded, in order.
    pub records: Vec<NewEvent>,
}

impl Executed {
    /// An ending without a new state and without records.
    pub fn bare(outcome: Outcome) -> Self {
        Self { outcome, state: None, records: Vec::new() }
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The step returned what comes next.
    Done(Act),
    /// The step returned an error.
    Error {
        /// For people.
        message: String,
        /// Whether the step's policy is to be passed over: the run fails now.
        fatal: bool,
    },
    /// The step panicked, with this text.
    Panic(String),
    /// A value does not fit the type that the step expects, or cannot be written as JSON.
    Undecodable(String),
    /// What the step returned breaks a limit.
    Limit(String),
    /// It ran longer than its timeout, and the holder gave it up.
    TimedOut,
}

impl From<InvalidJson> for Outcome {
    fn from(why: InvalidJson) -> Self {
        match why {
            InvalidJson::Malformed { .. } => Self::Undecodable(why.to_string()),
            InvalidJson::TooLarge { .. } | InvalidJson::TooDeep { .. } => Self::Limit(why.to_string()),
        }
    }
}

/// What a step asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Go on with another step.
    Goto {
        /// Which.
        step: Cow<'static, str>,
        /// Its input.
        arg: Option<JsonText>,
    },
    /// Run another step, and whatever it leads to, and continue with the result.
    Call {
        /// Which.
        step: Cow<'static, str>,
        /// Its input.
        arg: Option<JsonText>,
        /// Who takes the result.
        then: Frame,
    },
    /// Give the innermost caller this result; without a caller, end the run with it.
    Finish(JsonText),
    /// End the run with this output, whoever called.
    Halt(JsonText),
    /// Open branches, and continue with their results.
    Fork {
        /// In the order of their results.
        branches: Vec<NewBranch>,
        /// How they are joined.
        rule: JoinRule,
        /// Who takes the results.
        then: Frame,
    },
    /// Wait, and continue with the answer.
    Suspend {
        /// For what.
        wait: NewWait,
        /// Who takes the answer.
        then: Frame,
        /// Who takes what comes of that, if it is somebody else.
        under: Option<Frame>,
    },
}
