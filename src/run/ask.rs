//! Asking people and other services.

use super::flow::Outcome;
use super::next::{Carrying, Next, Suspend, Want};
use super::workflow::{Data, Step, Workflow};
use crate::domain::limits::{PROMPT_BYTES, REPLY_BYTES, REQUEST_BYTES};
use crate::domain::{Due, InvalidJson, JsonText, NewWait, WaitKind};
use serde::Serialize;
use serde_json::{Map, Value};
use std::marker::PhantomData;
use std::time::Duration;

/// A question to a person or another service, whose answer is a `T`. It needs a [`then`](Asking::then).
///
/// What is asked is stored as a JSON object: `prompt`, and `context`, `metadata` and `schema` where there are any.
#[must_use = "nobody is asked until `.then(step)` says who takes the answer, and the step returns that"]
pub struct Asking<W: Workflow, T> {
    kind: WaitKind,
    asked: Map<String, Value>,
    due: Option<Due>,
    otherwise: Option<JsonText>,
    wrong: Option<Outcome>,
    types: PhantomData<fn() -> (W, T)>,
}

impl<W: Workflow, T: Data> Asking<W, T> {
    pub(super) fn new(kind: WaitKind, prompt: String, schema: Option<Value>) -> Self {
        let wrong = (prompt.len() > PROMPT_BYTES).then(|| {
            Outcome::Limit(format!("a prompt has at most {PROMPT_BYTES} bytes, this one has {}", prompt.len()))
        });
        let mut asked = Map::new();
        asked.insert("prompt".into(), Value::String(prompt));
        if let Some(schema) = schema {
            asked.insert("schema".into(), schema);
        }
        Self { kind, asked, due: None, otherwise: None, wrong, types: PhantomData }
    }

    /// What the answerer needs to know beside the prompt.
    pub fn context<C: Serialize>(self, context: &C) -> Self {
        self.with("context", context)
    }

    /// What programs between here and the answerer need: a queue, a priority, a language.
    pub fn metadata<M: Serialize>(self, metadata: &M) -> Self {
        self.with("metadata", metadata)
    }

    /// The answer when nobody has answered after that long.
    pub fn or_after(mut self, delay: Duration, answer: T) -> Self {
        match JsonText::of(&answer, "the answer agreed on", REPLY_BYTES) {
            Ok(answer) => self.otherwise = Some(answer),
            Err(why) => self.wrong = Some(why.into()),
        }
        self.due = Some(Due::After(delay));
        self
    }

    fn with<V: Serialize>(mut self, key: &str, value: &V) -> Self {
        match serde_json::to_value(value) {
            Ok(value) => {
                self.asked.insert(key.to_owned(), value);
            }
            Err(why) => {
                let what = "what is asked";
                self.wrong = Some(InvalidJson::Malformed { what, why: why.to_string() }.into());
            }
        }
        self
    }

    fn suspend(self) -> Suspend<W, T> {
        if let Some(wrong) = self.wrong {
            return Suspend::of(Err(wrong));
        }
        let request = JsonText::of(&self.asked, "what is asked", REQUEST_BYTES).map_err(Outcome::from);
        let (kind, due, otherwise) = (self.kind, self.due, self.otherwise);
        Suspend::of(request.map(|request| Want::Wait(NewWait { kind, provider: None, request, due, otherwise })))
    }

    /// A value for the step that takes the answer, which then gets both: `(answer, value)`.
    pub fn carry<C: Data>(self, value: C) -> Carrying<W, T, C> {
        self.suspend().carry(value)
    }

    /// The step that takes the answer.
    pub fn then<S: Step<W, Input = T>>(self, step: S) -> Next<W, S::Output> {
        self.suspend().then(step)
    }
}

/// What of an answer does not fit the schema that is stored with the question.
pub(crate) fn misfit(asked: &str, answer: &JsonText) -> Option<String> {
    let asked: Value = serde_json::from_str(asked).ok()?;
    let schema = asked.get("schema")?;
    let answer: Value = match answer.read() {
        Ok(answer) => answer,
        Err(why) => return Some(why.to_string()),
    };
    let validator = match jsonschema::validator_for(schema) {
        Ok(validator) => validator,
        Err(why) => return Some(format!("the schema of the question cannot be used: {why}")),
    };
    validator.iter_errors(&answer).next().map(|error| format!("{error} (at `{}`)", error.instance_path()))
}
