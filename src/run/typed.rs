//! A typed workflow behind the erased boundary.

use super::error::StepError;
use super::flow::{Act, Executed, Flow, Image, Live, Manifest, Outcome, Part};
use super::run::Run;
use super::upgrade::InFlight;
use super::workflow::{StepEntry, Workflow};
use crate::domain::limits::STATE_BYTES;
use crate::domain::{Failure, FailureCode, JsonText, Ordinal};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A typed workflow as a node runs it.
pub struct TypedFlow<W: Workflow> {
    app: Arc<W>,
    manifest: Manifest,
    table: Arc<[StepEntry<W>]>,
}

impl<W: Workflow> TypedFlow<W> {
    /// The flow of a workflow; `app` is what its steps find in `run.app`.
    pub fn new(app: W) -> Self {
        Self::of(app, Manifest::of::<W>(), W::table())
    }

    /// A flow of these steps; those of the manifest are written from them.
    pub(super) fn of(app: W, mut manifest: Manifest, mut table: Vec<StepEntry<W>>) -> Self {
        table.sort_by(|a, b| a.info.name.cmp(&b.info.name));
        manifest.steps = table.iter().map(|entry| entry.info.clone()).collect();
        Self { app: Arc::new(app), manifest, table: table.into() }
    }

    fn decode(&self, image: Image) -> Result<Loaded<W>, String> {
        let (app, table) = (self.app.clone(), self.table.clone());
        let input = Arc::new(decode::<W::Input>(&image.input, "the input")?);
        let (state, written) = restore::<W>(image.state.as_ref())?;
        let run = Run::loaded(app.clone(), input.clone(), state, image.run_id, image.run);
        let unsaved = image.unsaved;
        Ok(Loaded { app, input, table, run, durable: image.state, written, unsaved, trusted: true })
    }
}

impl<W: Workflow> Flow for TypedFlow<W> {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn load(&self, image: Image) -> Result<Box<dyn Live>, Failure> {
        // User code decodes: it may panic.
        match catch_unwind(AssertUnwindSafe(|| self.decode(image))) {
            Ok(Ok(loaded)) => Ok(Box::new(loaded)),
            Ok(Err(why)) => Err(Failure::new(FailureCode::Undecodable, "", why)),
            Err(panic) => Err(Failure::new(FailureCode::StepPanic, "", panic_text(panic.as_ref()))),
        }
    }

    fn upgrade(&self, from: u32, moved: InFlight) -> Result<InFlight, StepError> {
        W::upgrade(from, moved)
    }

    fn misfit(&self, part: Part<'_>, value: Option<&JsonText>) -> Option<String> {
        misfit::<W>(&self.table, part, value)
    }
}

/// What of a stored value does not fit the workflow's types.
pub(crate) fn misfit<W: Workflow>(table: &[StepEntry<W>], part: Part<'_>, value: Option<&JsonText>) -> Option<String> {
    let null = JsonText::null();
    let looked = catch_unwind(AssertUnwindSafe(|| match part {
        Part::Input => decode::<W::Input>(value.unwrap_or(&null), "the input").err(),
        Part::State => restore::<W>(value).err(),
        Part::Arg(step) => {
            let entry = table.iter().find(|entry| entry.info.name == step)?;
            (entry.misfit)(value)
        }
    }));
    let why = looked.unwrap_or_else(|panic| Some(format!("reading it panics: {}", panic_text(panic.as_ref()))));
    why.map(|why| without_quotes(&why))
}

/// A text without what stands between double quotes: serde repeats strings that do not fit, and they may be anything.
fn without_quotes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut inside, mut escaped) = (false, false);
    for c in text.chars() {
        let quote = c == '"' && !escaped;
        escaped = inside && c == '\\' && !escaped;
        if quote {
            out.push_str(if inside { "..\"" } else { "\"" });
            inside = !inside;
        } else if !inside {
            out.push(c);
        }
    }
    out
}

struct Loaded<W: Workflow> {
    app: Arc<W>,
    input: Arc<W::Input>,
    table: Arc<[StepEntry<W>]>,
    run: Run<W>,
    /// The state as the database holds it.
    durable: Option<JsonText>,
    /// The state as it was written before the step ran: what a change is measured against. It may differ from `durable`
    /// in the order of a map's keys or by a field that is new, which is no reason to store it again.
    written: JsonText,
    /// Whether the database does not hold `durable` yet.
    unsaved: bool,
    /// Whether the typed state is that of the last commit. Not so from a step's start to its good end.
    trusted: bool,
}

impl<W: Workflow> Live for Loaded<W> {
    fn call<'a>(&'a mut self, step: &'a str, arg: Option<JsonText>, cursor: Ordinal) -> BoxFuture<'a, Executed> {
        async move {
            let (outcome, state) = match AssertUnwindSafe(self.bounce(step, arg, cursor)).catch_unwind().await {
                Ok(Ok((act, state))) => (Outcome::Done(act), state),
                Ok(Err(outcome)) => (outcome, None),
                Err(panic) => (Outcome::Panic(panic_text(panic.as_ref())), None),
            };
            Executed { outcome, state, records: self.run.recorded() }
        }
        .boxed()
    }

    fn timed_out(&mut self) -> Executed {
        Executed { outcome: Outcome::TimedOut, state: None, records: self.run.recorded() }
    }
}

impl<W: Workflow> Loaded<W> {
    /// One step: its act, and the state if that changed.
    async fn bounce(
        &mut self,
        step: &str,
        arg: Option<JsonText>,
        cursor: Ordinal,
    ) -> Result<(Act, Option<JsonText>), Outcome> {
        self.run.record_from(cursor);
        let Ok(place) = self.table.binary_search_by(|entry| (*entry.info.name).cmp(step)) else {
            return Err(Outcome::Undecodable(format!("the workflow has no step `{step}`")));
        };
        let call = self.table[place].call.clone();
        self.begin()?;
        let act = call(&mut self.run, arg).await?;
        // What branches make of the state is measured against what it was: it has to be stored.
        self.unsaved |= self.durable.is_none() && matches!(&act, Act::Fork { rule, .. } if rule.merge);
        let state = self.changed()?;
        self.trusted = true;
        Ok((act, state))
    }

    /// Hands the step what the last commit left, whatever an earlier step did to it.
    fn begin(&mut self) -> Result<(), Outcome> {
        if !self.trusted {
            (self.run.state, self.written) = restore::<W>(self.durable.as_ref()).map_err(Outcome::Undecodable)?;
        }
        self.trusted = false;
        self.run.app = self.app.clone();
        self.run.input = self.input.clone();
        Ok(())
    }

    fn changed(&mut self) -> Result<Option<JsonText>, Outcome> {
        let now = write_state(&self.run.state).map_err(Outcome::from)?;
        if now == self.written && !self.unsaved {
            return Ok(None);
        }
        self.unsaved = false;
        self.written = now.clone();
        self.durable = Some(now.clone());
        Ok(Some(now))
    }
}

/// The state of the last commit, and how it is written.
fn restore<W: Workflow>(durable: Option<&JsonText>) -> Result<(W::State, JsonText), String> {
    let state = match durable {
        None => W::State::default(),
        Some(text) => decode(text, "the state")?,
    };
    let written = write_state(&state).map_err(|why| why.to_string())?;
    Ok((state, written))
}

fn write_state<T: serde::Serialize>(state: &T) -> Result<JsonText, crate::domain::InvalidJson> {
    JsonText::of(state, "the state", STATE_BYTES)
}

fn decode<T: DeserializeOwned>(text: &JsonText, what: &str) -> Result<T, String> {
    text.read().map_err(|why| format!("{what} does not fit `{}`: {why}", std::any::type_name::<T>()))
}

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic that is no text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_is_not_repeated() {
        let masked = |text| without_quotes(text);
        assert_eq!(
            masked(r#"invalid type: string "a \"b\" c", expected i64"#),
            r#"invalid type: string "..", expected i64"#
        );
        assert_eq!(masked("missing field `tries`"), "missing field `tries`");
        assert_eq!(masked(r#"cut "open"#), "cut \"");
    }
}
