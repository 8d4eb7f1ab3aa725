//! When the default answer is a tool call, and with what input.

use serde_json::{Map, Value, json};

use super::answer::{Answer, RequestView};
use super::canonical::provider_id;
use super::text;

/// Of the document so much (in bytes) is handed to a tool in each text argument.
const ARGUMENT_BYTES: usize = 2_000;

/// Calls the tool that the caller forces, or else the first whose name the instruction spells out ("count the words" for
/// `word_count`), or none. `draft` is what the answer would be without tools.
pub(crate) fn call(
    request: &RequestView<'_>,
    instruction: &str,
    document: &str,
    draft: &dyn Fn() -> String,
) -> Option<Answer> {
    let choice = &request.params()["tool_choice"];
    let tool = match choice["type"].as_str() {
        Some("none") => None,
        Some("tool") => request.tools().iter().find(|tool| tool["name"] == choice["name"]),
        Some("any") => fitting(request, instruction).or(request.tools().first()),
        Some(_) | None => fitting(request, instruction),
    }?;
    let name = tool["name"].as_str()?;
    let id = provider_id("toolu_", &format!("{}/{name}", request.logical()));
    let schema = &tool["input_schema"];
    let mut input = input(schema, document);
    // A tool that is to look at the draft gets the draft, not the document.
    if let Some(text) = input.get_mut("draft").filter(|_| schema["properties"]["draft"]["type"] == "string") {
        *text = Value::String(draft());
    }
    Some(Answer::tool_use(id, name, input))
}

fn fitting<'a>(request: &RequestView<'a>, instruction: &str) -> Option<&'a Value> {
    let said: Vec<String> = text::words(instruction).map(stem).collect();
    let spelt_out = |name: &str| {
        let mut parts = name.split(['_', '-', '.']).filter(|part| !part.is_empty()).peekable();
        parts.peek().is_some() && parts.all(|part| said.contains(&stem(part)))
    };
    let whole = |name: &str| instruction.contains(name);
    request.tools().iter().find(|tool| tool["name"].as_str().is_some_and(|name| spelt_out(name) || whole(name)))
}

/// A word without its plural, so that "words" spells out "word".
fn stem(word: &str) -> String {
    let word = word.to_lowercase();
    match word.strip_suffix('s') {
        Some(singular) if singular.len() > 2 => singular.to_owned(),
        _ => word,
    }
}

/// An input that has every required property (or every property, when none is required) of the tool's schema.
fn input(schema: &Value, document: &str) -> Value {
    let empty = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let required: Option<Vec<&str>> =
        schema["required"].as_array().map(|names| names.iter().filter_map(Value::as_str).collect());
    let wanted = |name: &str| required.as_ref().is_none_or(|names| names.contains(&name));
    let chosen = properties.iter().filter(|(name, _)| wanted(name));
    Value::Object(chosen.map(|(name, schema)| (name.clone(), argument(schema, document))).collect())
}

fn argument(schema: &Value, document: &str) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("string") => Value::String(text::shortened(document, ARGUMENT_BYTES)),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => Value::Bool(true),
        Some("array") => Value::Array(vec![argument(&schema["items"], document)]),
        Some("object") => input(schema, document),
        Some(_) | None => Value::Null,
    }
}
