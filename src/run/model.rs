//! Requests to a model.

use super::reply::without_lone_surrogates;
use crate::domain::limits::REQUEST_BYTES;
use crate::domain::{InvalidJson, JsonText};
use serde::Serialize;
use std::borrow::Cow;

const WHAT: &str = "a model request";

/// A request to a model: the JSON object that the provider is sent, exactly as it is written here.
///
/// A request that is no object, too large or nested too deeply is not reported where it is built, but fails the run when
/// the step returns it: building one never needs a `?`.
///
/// ```
/// # use longhaul::ModelRequest;
/// let built: ModelRequest = serde_json::json!({"model": "claude-haiku-4-5", "max_tokens": 100}).into();
/// let written = ModelRequest::raw(r#"{"model":"claude-haiku-4-5","max_tokens":100}"#);
/// assert_eq!(written.text().unwrap().as_str(), r#"{"model":"claude-haiku-4-5","max_tokens":100}"#);
/// assert!(ModelRequest::raw("Hello!").text().is_err());
/// # let _ = built;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelRequest(Result<JsonText, InvalidJson>);

impl ModelRequest {
    /// A request that is already JSON text.
    pub fn raw(text: &str) -> Self {
        Self(JsonText::parse(text, WHAT, REQUEST_BYTES).and_then(object))
    }

    /// A request from any type that is written as a JSON object: a client library's own, or one of yours.
    pub fn of<T: Serialize + ?Sized>(request: &T) -> Self {
        Self(JsonText::of(request, WHAT, REQUEST_BYTES).and_then(object))
    }

    /// The text that is sent.
    ///
    /// # Errors
    /// [`InvalidJson`] says why it cannot be.
    pub fn text(&self) -> Result<&JsonText, &InvalidJson> {
        self.0.as_ref()
    }

    pub(crate) fn into_text(self) -> Result<JsonText, InvalidJson> {
        self.0
    }
}

impl From<serde_json::Value> for ModelRequest {
    fn from(request: serde_json::Value) -> Self {
        Self::of(&request)
    }
}

impl From<&serde_json::Value> for ModelRequest {
    fn from(request: &serde_json::Value) -> Self {
        Self::of(request)
    }
}

fn object(text: JsonText) -> Result<JsonText, InvalidJson> {
    let malformed = |why: &str| Err(InvalidJson::Malformed { what: WHAT, why: why.into() });
    if !text.as_str().starts_with('{') {
        return malformed("it must be a JSON object");
    }
    // A provider refuses the whole batch for it, and with it all its neighbours.
    if matches!(without_lone_surrogates(text.as_str()), Cow::Owned(_)) {
        return malformed("a string in it has half of a surrogate pair");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_are_requests() {
        assert!(ModelRequest::raw(" {\"a\": 1} ").text().is_ok());
        for bad in ["", "[]", "\"{}\"", "{", "{} {}", "null", r#"{"a":"\ud800"}"#] {
            assert!(ModelRequest::raw(bad).text().is_err(), "{bad}");
        }
        assert!(ModelRequest::of(&[1]).text().is_err());
    }

    #[test]
    fn a_raw_request_is_kept_byte_for_byte() {
        let text = r#"{"z": 18446744073709551617, "a": "\u0000"}"#;
        assert_eq!(ModelRequest::raw(text).text().unwrap().as_str(), text);
    }
}
