//! What a version of a workflow consists of, without running it: its steps, and the types of what is stored.
//!
//! A manifest has one JSON form. It is what golden files hold, what is stored with the version in the database, and what
//! `longhaul check` reads. Only what runs in flight depend on is in it: names and types, not attempts or timeouts.

mod describe;
mod differences;
#[cfg(test)]
mod tests;

pub use describe::{Described, Named, Probe};
pub use differences::Differences;

use super::workflow::{Step, Workflow};
use crate::domain::canonical::canonical;
use crate::domain::limits::REQUEST_BYTES;
use crate::domain::{InvalidJson, JsonText, StepPolicy};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// The type of a stored value.
///
/// A type that implements `schemars::JsonSchema` is described by its schema, without titles, descriptions and defaults, so
/// that neither a comment nor another name or module is a change. Of any other type only its Rust name is known:
/// then a change of its fields is not seen. So it is where a schema has more than 256 kB or is nested too deeply to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeInfo {
    /// The Rust type, as the compiler names it: for people. Not part of the JSON form where there is a schema.
    pub name: Cow<'static, str>,
    /// The JSON Schema of its values, if the type has one.
    pub schema: Option<Arc<Value>>,
}

impl TypeInfo {
    /// A type of which nothing but its name is known.
    pub fn named<T: ?Sized>() -> Self {
        Self { name: Cow::Borrowed(std::any::type_name::<T>()), schema: None }
    }
}

/// What is known of a step without running it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepInfo {
    /// Its name: what the database knows it by.
    pub name: Cow<'static, str>,
    /// What it takes beside the run.
    pub input: TypeInfo,
    /// Attempts, backoff, timeout, crash limit. Not part of the JSON form.
    #[serde(skip)]
    pub policy: StepPolicy,
    /// Whether it blocks its thread, so that it belongs on the blocking pool. Not part of the JSON form.
    #[serde(skip)]
    pub blocking: bool,
}

/// What a version of a workflow consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Manifest {
    /// Its name.
    pub workflow: Cow<'static, str>,
    /// Its version.
    pub version: u32,
    /// The oldest version whose runs it takes over; its own version when it takes over none.
    pub upgrades_from: u32,
    /// The step that a new run begins with.
    pub entry: Cow<'static, str>,
    /// What a run is given.
    pub input: TypeInfo,
    /// What a run remembers.
    pub state: TypeInfo,
    /// What a run gives.
    pub output: TypeInfo,
    /// Its steps, sorted by name.
    pub steps: Vec<StepInfo>,
}

impl Manifest {
    /// The manifest of a workflow.
    pub fn of<W: Workflow>() -> Self {
        let [input, state, output] = W::types();
        let mut steps: Vec<StepInfo> = W::table().into_iter().map(|entry| entry.info).collect();
        steps.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            workflow: W::NAME.into(),
            version: W::VERSION,
            upgrades_from: W::UPGRADES_FROM.min(W::VERSION),
            entry: W::Entry::NAME.into(),
            input,
            state,
            output,
            steps,
        }
    }

    /// Reads the JSON form.
    ///
    /// # Errors
    /// What serde says of a text that is no manifest.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The step of that name.
    pub fn step(&self, name: &str) -> Option<&StepInfo> {
        let place = self.steps.binary_search_by(|info| (*info.name).cmp(name)).ok()?;
        self.steps.get(place)
    }

    /// Whether it takes over runs of that version.
    pub fn upgrades(&self, version: u32) -> bool {
        (self.upgrades_from..self.version).contains(&version)
    }

    /// The JSON form, in the canonical order and without white space.
    ///
    /// # Errors
    /// [`InvalidJson`] when it is larger or nested deeper than values may be.
    pub fn to_json(&self) -> Result<JsonText, InvalidJson> {
        let what = "a manifest";
        let text = JsonText::of(self, what, REQUEST_BYTES)?;
        let canonical = canonical(&text).map_err(|e| InvalidJson::Malformed { what, why: e.to_string() })?;
        JsonText::parse(&canonical, what, REQUEST_BYTES)
    }

    /// The SHA-256 of what runs in flight depend on, in hexadecimal digits: of the JSON form, but for the versions that it
    /// takes over.
    ///
    /// # Errors
    /// As [`Manifest::to_json`].
    pub fn fingerprint(&self) -> Result<String, InvalidJson> {
        let own = Self { upgrades_from: self.version, ..self.clone() };
        Ok(own.to_json()?.sha256())
    }
}

/// The JSON form.
#[derive(Serialize, Deserialize)]
struct Written {
    workflow: Cow<'static, str>,
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    upgrades_from: Option<u32>,
    entry: Cow<'static, str>,
    input: TypeInfo,
    state: TypeInfo,
    output: TypeInfo,
    steps: Vec<StepInfo>,
}

impl From<Written> for Manifest {
    fn from(written: Written) -> Self {
        let Written { workflow, version, upgrades_from, entry, input, state, output, mut steps } = written;
        steps.sort_by(|a, b| a.name.cmp(&b.name));
        let upgrades_from = upgrades_from.unwrap_or(version).min(version);
        Self { workflow, version, upgrades_from, entry, input, state, output, steps }
    }
}

impl From<Manifest> for Written {
    fn from(manifest: Manifest) -> Self {
        let Manifest { workflow, version, upgrades_from, entry, input, state, output, steps } = manifest;
        let upgrades_from = (upgrades_from < version).then_some(upgrades_from);
        Self { workflow, version, upgrades_from, entry, input, state, output, steps }
    }
}

/// The JSON form of a type: its schema, or else its name.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WrittenType {
    Schema(Arc<Value>),
    Type(Cow<'static, str>),
}

impl Serialize for TypeInfo {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match &self.schema {
            Some(schema) => WrittenType::Schema(schema.clone()).serialize(out),
            None => WrittenType::Type(self.name.clone()).serialize(out),
        }
    }
}

impl<'de> Deserialize<'de> for TypeInfo {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match WrittenType::deserialize(from)? {
            WrittenType::Schema(schema) => {
                Self { name: Cow::Borrowed("a type with this schema"), schema: Some(schema) }
            }
            WrittenType::Type(name) => Self { name, schema: None },
        })
    }
}
