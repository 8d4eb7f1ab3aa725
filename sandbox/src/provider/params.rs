//! The checks on the `params` of one request. In a batch they run when the request is processed, not when it is sent.

use serde_json::Value;

/// The `anthropic-version` of a call; it is part of what its requests mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiVersion {
    /// 2023-01-01 and 2023-06-01.
    Of2023,
    /// 2026-10-21: without sampling parameters.
    Of2026,
}

impl ApiVersion {
    pub(crate) fn parse(header: &str) -> Option<Self> {
        match header {
            "2023-01-01" | "2023-06-01" => Some(Self::Of2023),
            "2026-10-21" => Some(Self::Of2026),
            _ => None,
        }
    }
}

/// Says what is wrong with a request, in the message of an `invalid_request_error`.
pub(crate) fn check(params: &Value, version: ApiVersion) -> Result<(), String> {
    let Some(map) = params.as_object() else {
        return Err("params: Input should be a valid dictionary".to_owned());
    };
    match map.get("model") {
        None => return Err("model: Field required".to_owned()),
        Some(Value::String(model)) if !model.is_empty() => {}
        Some(_) => return Err("model: Input should be a valid string".to_owned()),
    }
    match map.get("max_tokens") {
        None => return Err("max_tokens: Field required".to_owned()),
        Some(tokens) if tokens.as_u64().is_some_and(|n| n > 0) => {}
        Some(tokens) if tokens.is_i64() || tokens.is_u64() => {
            return Err("max_tokens: Input should be greater than or equal to 1".to_owned());
        }
        Some(_) => return Err("max_tokens: Input should be a valid integer".to_owned()),
    }
    if map.get("stream").is_some_and(|stream| *stream != Value::Bool(false)) {
        return Err("stream: streaming is not supported here".to_owned());
    }
    if map.contains_key("speed") {
        return Err("speed: Extra inputs are not permitted".to_owned());
    }
    if version == ApiVersion::Of2026
        && let Some(name) = ["temperature", "top_p", "top_k"].into_iter().find(|name| map.contains_key(*name))
    {
        return Err(format!("{name}: Extra inputs are not permitted"));
    }
    messages(map.get("messages"))
}

fn messages(messages: Option<&Value>) -> Result<(), String> {
    let Some(messages) = messages else {
        return Err("messages: Field required".to_owned());
    };
    let Some(messages) = messages.as_array() else {
        return Err("messages: Input should be a valid list".to_owned());
    };
    if messages.is_empty() {
        return Err("messages: at least one message is required".to_owned());
    }
    for (n, message) in messages.iter().enumerate() {
        if !matches!(message["role"].as_str(), Some("user" | "assistant")) {
            return Err(format!("messages.{n}.role: Input should be 'user' or 'assistant'"));
        }
        if !message["content"].is_string() && !message["content"].is_array() {
            return Err(format!("messages.{n}.content: Input should be a valid string or list"));
        }
    }
    Ok(())
}
