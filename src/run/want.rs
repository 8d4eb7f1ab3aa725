//! What a step wants done before the run goes on, without types: below the typed form and the dynamic one.

use super::builtin::{self, Conversation};
use super::flow::{Act, Outcome};
use super::model::ModelRequest;
use super::reply::ToolUse;
use crate::domain::limits::{CARRY_BYTES, NAME_BYTES, PROMPT_BYTES, REPLY_BYTES, REQUEST_BYTES};
use crate::domain::{Due, Frame, InvalidJson, JsonText, LiveCall, ModelRetry, NewWait, WaitKind, WhenLost};
use serde::Serialize;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::time::Duration;

/// A call of another step, or an answer from outside.
pub(super) enum Want {
    Call {
        step: Cow<'static, str>,
        arg: Option<JsonText>,
    },
    Wait(NewWait),
    /// A wait whose answer one of the engine's own steps looks at first.
    Through {
        wait: NewWait,
        first: Frame,
    },
}

/// Something wanted, or why it cannot be.
pub(super) type Wanted = Result<Want, Outcome>;

impl Want {
    pub(super) fn call<T: Serialize + ?Sized>(step: impl Into<Cow<'static, str>>, input: &T) -> Wanted {
        Ok(Self::Call { step: step.into(), arg: argument(input)? })
    }

    pub(super) fn model(provider: String, request: ModelRequest) -> Wanted {
        Ok(Self::Wait(NewWait::model(named(provider)?, request.into_text()?)))
    }

    pub(super) fn converse(provider: String, request: ModelRequest) -> Wanted {
        let conversation = Conversation { provider: named(provider)?, turns: 0, live: None, retry: None };
        let (wait, first) = builtin::ask(&conversation, request.into_text()?)?;
        Ok(Self::Through { wait, first })
    }

    pub(super) fn tools(uses: &[ToolUse]) -> Wanted {
        let arg = JsonText::of(uses, "uses of tools", CARRY_BYTES)?;
        Ok(Self::Call { step: builtin::TOOLS.into(), arg: Some(arg) })
    }

    pub(super) fn timer(due: Due) -> Self {
        let (kind, due, request) = (WaitKind::Timer, Some(due), JsonText::null());
        Self::Wait(NewWait { kind, provider: None, request, due, otherwise: None, live: None, retry: None })
    }

    /// When the answer of a model is wanted.
    pub(super) fn by(self, by: Due) -> Wanted {
        self.asked(|wait| {
            let when_lost = wait.live.as_deref().map(|live| live.when_lost).unwrap_or_default();
            wait.live = Some(Box::new(LiveCall { by, when_lost }));
            Ok(())
        })
    }

    /// What becomes of a live call of which nobody knows whether it was answered.
    pub(super) fn when_lost(self, when_lost: WhenLost) -> Wanted {
        self.asked(|wait| match wait.live.as_deref_mut() {
            Some(live) => {
                live.when_lost = when_lost;
                Ok(())
            }
            None => {
                Err(Outcome::Undecodable("`when_lost` is for requests that are `live` or have a `deadline`".into()))
            }
        })
    }

    /// How errors of the provider are tried again.
    pub(super) fn retry(self, retry: ModelRetry) -> Wanted {
        if let Some(wrong) = retry.wrong() {
            return Err(Outcome::Limit(wrong));
        }
        self.asked(|wait| {
            wait.retry = Some(Box::new(retry));
            Ok(())
        })
    }

    /// Changes how a model is asked: by this request, or by every turn of a conversation.
    fn asked(self, change: impl FnOnce(&mut NewWait) -> Result<(), Outcome>) -> Wanted {
        match self {
            Self::Wait(mut wait) if wait.kind == WaitKind::Model => {
                change(&mut wait)?;
                Ok(Self::Wait(wait))
            }
            Self::Through { mut wait, first } if wait.kind == WaitKind::Model => {
                change(&mut wait)?;
                let first = builtin::each_turn_like(&wait, first)?;
                Ok(Self::Through { wait, first })
            }
            Self::Call { .. } | Self::Wait(_) | Self::Through { .. } => {
                let why = "only a request to a model can be `live`, have a `deadline`, or say how it is tried again";
                Err(Outcome::Undecodable(why.into()))
            }
        }
    }

    /// With the step that takes what comes of it, and what it gets beside that.
    pub(super) fn then(self, step: &str, carry: Option<JsonText>) -> Act {
        let then = Frame { step: step.to_owned(), carry };
        match self {
            Self::Call { step, arg } => Act::Call { step, arg, then },
            Self::Wait(wait) => Act::Suspend { wait, then, under: None },
            Self::Through { wait, first } => Act::Suspend { wait, then: first, under: Some(then) },
        }
    }
}

/// The input of a step as it is stored: nothing for `null`.
pub(super) fn argument<T: Serialize + ?Sized>(input: &T) -> Result<Option<JsonText>, Outcome> {
    let text = JsonText::of(input, "the input of a step", CARRY_BYTES)?;
    Ok(Some(text).filter(|text| !text.is_null()))
}

/// A value for the step that takes a result.
pub(super) fn carried<T: Serialize + ?Sized>(value: &T) -> Result<JsonText, Outcome> {
    Ok(JsonText::of(value, "a carried value", CARRY_BYTES)?)
}

fn named(provider: String) -> Result<String, Outcome> {
    if provider.is_empty() || provider.len() > NAME_BYTES {
        let text = format!("the name of a provider has 1 to {NAME_BYTES} bytes, this one has {}", provider.len());
        return Err(Outcome::Limit(text));
    }
    Ok(provider)
}

/// A question to a person or another service, as it is stored: a JSON object.
pub(super) struct Question {
    kind: WaitKind,
    asked: Map<String, Value>,
    due: Option<Due>,
    otherwise: Option<JsonText>,
    wrong: Option<Outcome>,
}

impl Question {
    pub(super) fn new(kind: WaitKind, prompt: String) -> Self {
        let wrong = (prompt.len() > PROMPT_BYTES).then(|| {
            Outcome::Limit(format!("a prompt has at most {PROMPT_BYTES} bytes, this one has {}", prompt.len()))
        });
        let asked = Map::from_iter([("prompt".to_owned(), Value::String(prompt))]);
        Self { kind, asked, due: None, otherwise: None, wrong }
    }

    pub(super) fn with<V: Serialize + ?Sized>(mut self, key: &str, value: &V) -> Self {
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

    /// The JSON Schema of the answer.
    pub(super) fn schema(mut self, schema: Value) -> Self {
        if let Err(why) = jsonschema::validator_for(&schema) {
            self.wrong = Some(Outcome::Undecodable(format!("the schema of an answer cannot be used: {why}")));
        }
        self.asked.insert("schema".into(), schema);
        self
    }

    pub(super) fn or_after<T: Serialize + ?Sized>(mut self, delay: Duration, answer: &T) -> Self {
        match JsonText::of(answer, "the answer agreed on", REPLY_BYTES) {
            Ok(answer) => self.otherwise = Some(answer),
            Err(why) => self.wrong = Some(why.into()),
        }
        self.due = Some(Due::After(delay));
        self
    }

    pub(super) fn want(self) -> Wanted {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let request = JsonText::of(&self.asked, "what is asked", REQUEST_BYTES)?;
        let (kind, due, otherwise) = (self.kind, self.due, self.otherwise);
        Ok(Want::Wait(NewWait { kind, provider: None, request, due, otherwise, live: None, retry: None }))
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
