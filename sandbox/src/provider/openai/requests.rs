//! Requests of Chat Completions and Responses: what is checked, and their form as Messages, in which they are answered.

use serde_json::{Map, Value, json};

use super::super::app::App;
use super::super::processor::{Outcome, Payer, answer, logical};
use super::Endpoint;

/// Checks a request and answers it.
pub(crate) fn judge(app: &App, body: &Value, endpoint: Endpoint, payer: Payer<'_>) -> Outcome {
    match as_messages(body, endpoint) {
        Ok(messages) => answer(app, &messages, &logical(body), payer),
        Err(message) => Outcome::invalid(message),
    }
}

fn as_messages(body: &Value, endpoint: Endpoint) -> Result<Value, String> {
    let Some(body) = body.as_object() else { return Err("The body must be an object.".to_owned()) };
    let model = body.get("model").and_then(Value::as_str).filter(|model| !model.is_empty());
    let model = model.ok_or("Missing required parameter: 'model'.")?;
    if body.get("stream").is_some_and(|stream| *stream == Value::Bool(true)) {
        return Err("'stream' is not supported here.".to_owned());
    }
    let (mut system, messages, limits) = match endpoint {
        Endpoint::ChatCompletions => {
            let (system, messages) = chat(body.get("messages"))?;
            (system, messages, ["max_completion_tokens", "max_tokens"])
        }
        Endpoint::Responses => {
            let (system, messages) = input(body.get("input"))?;
            (system, messages, ["max_output_tokens", "max_output_tokens"])
        }
    };
    if let Some(instructions) = body.get("instructions").and_then(Value::as_str) {
        system.insert(0, instructions.to_owned());
    }
    let mut request = Map::new();
    request.insert("model".to_owned(), model.into());
    request.insert("messages".to_owned(), messages.into());
    if !system.is_empty() {
        request.insert("system".to_owned(), system.join("\n").into());
    }
    if let Some(limit) = limits.into_iter().find_map(|name| body.get(name).filter(|limit| limit.is_u64())) {
        request.insert("max_tokens".to_owned(), limit.clone());
    }
    if let Some(tools) = body.get("tools").and_then(Value::as_array) {
        request.insert("tools".to_owned(), tools.iter().filter_map(tool).collect());
    }
    Ok(Value::Object(request))
}

/// The system's texts, and the messages of Chat Completions as those of Messages.
fn chat(messages: Option<&Value>) -> Result<(Vec<String>, Vec<Value>), String> {
    let messages = messages.and_then(Value::as_array).filter(|messages| !messages.is_empty());
    let messages = messages.ok_or("Missing required parameter: 'messages'.")?;
    let (mut system, mut written) = (Vec::new(), Vec::new());
    for (n, message) in messages.iter().enumerate() {
        match message["role"].as_str() {
            Some("system" | "developer") => system.push(text(&message["content"])),
            Some("user") => written.push(json!({"role": "user", "content": content(&message["content"])})),
            Some("assistant") => {
                let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
                let said = Some(text(&message["content"])).filter(|said| !said.is_empty() || calls.is_empty());
                let said = said.map(|said| json!({"type": "text", "text": said}));
                let calls = calls.iter().map(|call| tool_use(&call["id"], &call["function"]));
                written
                    .push(json!({"role": "assistant", "content": said.into_iter().chain(calls).collect::<Vec<_>>()}));
            }
            Some("tool") => written.push(tool_result(&message["tool_call_id"], &message["content"])),
            Some(_) | None => return Err(format!("Invalid value: 'messages[{n}].role'.")),
        }
    }
    Ok((system, written))
}

/// The same for the input of Responses: a text, or a list of messages, calls and their outputs.
fn input(input: Option<&Value>) -> Result<(Vec<String>, Vec<Value>), String> {
    let items = match input {
        Some(Value::String(text)) => return Ok((Vec::new(), vec![json!({"role": "user", "content": text})])),
        Some(Value::Array(items)) if !items.is_empty() => items,
        Some(_) | None => return Err("Missing required parameter: 'input'.".to_owned()),
    };
    let (mut system, mut written) = (Vec::new(), Vec::new());
    for (n, item) in items.iter().enumerate() {
        match (item["type"].as_str().unwrap_or("message"), item["role"].as_str()) {
            ("message", Some("system" | "developer")) => system.push(text(&item["content"])),
            ("message", Some(role @ ("user" | "assistant"))) => {
                written.push(json!({"role": role, "content": content(&item["content"])}));
            }
            ("message", _) => return Err(format!("Invalid value: 'input[{n}].role'.")),
            ("function_call", _) => {
                written.push(json!({"role": "assistant", "content": [tool_use(&item["call_id"], item)]}));
            }
            ("function_call_output", _) => written.push(tool_result(&item["call_id"], &item["output"])),
            // Reasoning and references say nothing to a responder.
            (_, _) => {}
        }
    }
    Ok((system, written))
}

/// A text, or parts of which those with a text are told as such.
fn content(content: &Value) -> Value {
    let Some(parts) = content.as_array() else { return content.clone() };
    let part = |part: &Value| match part["text"].as_str() {
        Some(text) => json!({"type": "text", "text": text}),
        None => part.clone(),
    };
    parts.iter().map(part).collect()
}

fn text(of: &Value) -> String {
    match of.as_array() {
        Some(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
        None => of.as_str().unwrap_or_default().to_owned(),
    }
}

fn tool(tool: &Value) -> Option<Value> {
    let function = tool.get("function").unwrap_or(tool);
    let name = function.get("name")?;
    let schema = function.get("parameters").cloned().unwrap_or_else(|| json!({"type": "object"}));
    Some(json!({"name": name, "description": function["description"], "input_schema": schema}))
}

fn tool_use(id: &Value, function: &Value) -> Value {
    let arguments = function["arguments"].as_str().and_then(|arguments| serde_json::from_str::<Value>(arguments).ok());
    json!({"type": "tool_use", "id": id, "name": function["name"], "input": arguments})
}

fn tool_result(id: &Value, output: &Value) -> Value {
    let result = json!({"type": "tool_result", "tool_use_id": id, "content": content(output)});
    json!({"role": "user", "content": [result]})
}
