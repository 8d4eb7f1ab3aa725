//! The schemas of a manifest, made ready once, to hold stored values against them.

use super::flow::{Manifest, Part};
use crate::domain::JsonText;
use jsonschema::Validator;
use serde_json::Value;
use std::collections::BTreeMap;

/// What is known of the values of one version. A type without a schema fits anything.
#[derive(Default)]
pub(crate) struct Schemas {
    input: Option<Validator>,
    state: Option<Validator>,
    steps: BTreeMap<String, Step>,
}

struct Step {
    whole: Option<Validator>,
    /// Of a step that takes a pair, its schema with anything for the first half.
    second: Option<Validator>,
}

impl Schemas {
    pub(crate) fn of(manifest: &Manifest) -> Self {
        let ready = |schema: &Value| match jsonschema::validator_for(schema) {
            Ok(validator) => Some(validator),
            Err(why) => {
                tracing::warn!(workflow = %manifest.workflow, %why, "a schema of the manifest cannot be used");
                None
            }
        };
        let steps = manifest.steps.iter().map(|step| {
            let schema = step.input.schema.as_deref();
            let second = schema.and_then(any_first).and_then(|schema| ready(&schema));
            (step.name.to_string(), Step { whole: schema.and_then(ready), second })
        });
        let (input, state) = (manifest.input.schema.as_deref(), manifest.state.schema.as_deref());
        Self { input: input.and_then(ready), state: state.and_then(ready), steps: steps.collect() }
    }

    /// What of a stored value does not fit, if anything.
    pub(crate) fn misfit(&self, part: Part<'_>, value: Option<&JsonText>) -> Option<String> {
        let (schema, what) = match part {
            Part::Input => (self.input.as_ref(), "the input"),
            // As long as no step has changed it, it is the default of its type.
            Part::State => (value.and(self.state.as_ref()), "the state"),
            Part::Arg(step) => (self.steps.get(step)?.whole.as_ref(), "the input of the step"),
        };
        against(schema?, what, value.map_or(Ok(Value::Null), JsonText::read))
    }

    /// What of a value carried beside an answer does not fit the second half of what a step takes.
    pub(crate) fn second_misfit(&self, step: &str, carry: &JsonText) -> Option<String> {
        let pair = carry.read().map(|carry| Value::Array(vec![Value::Null, carry]));
        against(self.steps.get(step)?.second.as_ref()?, "what it carries", pair)
    }
}

/// The values themselves are not repeated: they may be long, and are nobody's business here.
fn against(schema: &Validator, what: &str, value: Result<Value, serde_json::Error>) -> Option<String> {
    match value {
        Ok(value) => {
            let error = schema.iter_errors(&value).next()?;
            Some(format!("{what} does not fit its schema at `{}`: {}", error.instance_path(), error.masked()))
        }
        Err(why) => Some(format!("{what} cannot be read: {why}")),
    }
}

/// The schema of a pair with anything for its first half; whole, since its definitions may be referred to.
fn any_first(pair: &Value) -> Option<Value> {
    if pair.get("prefixItems")?.as_array()?.len() != 2 {
        return None;
    }
    let mut schema = pair.clone();
    *schema.pointer_mut("/prefixItems/0")? = Value::Bool(true);
    Some(schema)
}
