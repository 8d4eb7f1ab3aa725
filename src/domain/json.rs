//! JSON as text. A value is checked once, where it enters, and then kept and stored as the text it is: what is read back is
//! equal, and no value can fail a statement that carries its neighbours.

use super::limits::JSON_DEPTH;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;

/// A JSON value as its text: valid, of bounded size and depth. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct JsonText(Arc<str>);

/// Why a value was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJson {
    /// The type's `Serialize` failed, or the text is no JSON.
    #[error("{what} is not valid JSON: {why}")]
    Malformed {
        /// Which value.
        what: &'static str,
        /// The parser's or the serializer's words.
        why: String,
    },
    /// More bytes than the value may have.
    #[error("{what} has {bytes} bytes of JSON, at most {limit} are allowed")]
    TooLarge {
        /// Which value.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// Nested deeper than [`JSON_DEPTH`].
    #[error("{what} is nested deeper than {JSON_DEPTH} levels")]
    TooDeep {
        /// Which value.
        what: &'static str,
    },
}

impl JsonText {
    /// The JSON of a value. `what` names it in the error; `limit` is in bytes.
    ///
    /// # Errors
    /// [`InvalidJson`] when the value cannot be serialized, is too large or nested too deeply.
    pub fn of<T: Serialize + ?Sized>(value: &T, what: &'static str, limit: usize) -> Result<Self, InvalidJson> {
        let text = serde_json::to_string(value).map_err(|e| InvalidJson::Malformed { what, why: e.to_string() })?;
        bounded(&text, what, limit)?;
        Ok(Self(text.into()))
    }

    /// Checks a text that came from outside.
    ///
    /// # Errors
    /// As [`JsonText::of`].
    pub fn parse(text: &str, what: &'static str, limit: usize) -> Result<Self, InvalidJson> {
        bounded(text, what, limit)?;
        serde_json::from_str::<&serde_json::value::RawValue>(text)
            .map_err(|e| InvalidJson::Malformed { what, why: e.to_string() })?;
        Ok(Self(text.trim().into()))
    }

    /// `null`.
    pub fn null() -> Self {
        Self("null".into())
    }

    /// A text that the database holds, which was checked before it was written.
    pub(crate) fn stored(text: String) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads the value.
    ///
    /// # Errors
    /// What serde says when the type does not fit.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        &*self.0 == "null"
    }

    /// The pair `[self, other]`.
    pub(crate) fn pair(&self, other: &Self) -> Self {
        Self(format!("[{},{}]", self.0, other.0).into())
    }

    /// The SHA-256 of the text, in hexadecimal digits.
    pub fn sha256(&self) -> String {
        hex(&Sha256::digest(self.0.as_bytes()))
    }
}

// Bodies are never printed by accident: only their size is.
impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonText({} bytes)", self.0.len())
    }
}

/// Reads and writes a [`JsonText`] as the JSON that it is.
pub(crate) mod raw {
    use super::JsonText;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::value::RawValue;

    pub(crate) fn serialize<S: Serializer>(text: &JsonText, out: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(text.as_str()).map_err(serde::ser::Error::custom)?;
        raw.serialize(out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<JsonText, D::Error> {
        Ok(JsonText::stored(Box::<RawValue>::deserialize(from)?.get().to_owned()))
    }
}

/// Reads and writes a [`JsonText`] as a string that holds it: any format keeps it exactly. What is read is checked.
pub(crate) mod text {
    use super::JsonText;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(text: &JsonText, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(text.as_str())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<JsonText, D::Error> {
        let text = String::deserialize(from)?;
        JsonText::parse(&text, "a stored value", usize::MAX).map_err(serde::de::Error::custom)
    }

    pub(crate) mod option {
        use super::{Deserialize, Deserializer, JsonText, Serializer};

        pub(crate) fn serialize<S: Serializer>(text: &Option<JsonText>, out: S) -> Result<S::Ok, S::Error> {
            match text {
                Some(text) => out.serialize_some(text.as_str()),
                None => out.serialize_none(),
            }
        }

        pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<JsonText>, D::Error> {
            let text = Option::<String>::deserialize(from)?;
            text.map(|text| JsonText::parse(&text, "a stored value", usize::MAX).map_err(serde::de::Error::custom))
                .transpose()
        }
    }
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [HEX[usize::from(b >> 4)] as char, HEX[usize::from(b & 15)] as char]).collect()
}

fn bounded(text: &str, what: &'static str, limit: usize) -> Result<(), InvalidJson> {
    if text.len() > limit {
        return Err(InvalidJson::TooLarge { what, bytes: text.len(), limit });
    }
    if depth(text) > JSON_DEPTH { Err(InvalidJson::TooDeep { what }) } else { Ok(()) }
}

/// How deep a text is nested: brackets outside strings. No recursion, so that no text can exhaust the stack.
fn depth(text: &str) -> usize {
    let (mut deepest, mut now, mut in_string, mut escaped) = (0usize, 0usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                now += 1;
                deepest = deepest.max(now);
            }
            b']' | b'}' if !in_string => now = now.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nul_and_large_integers_are_kept_as_text() {
        let text = r#"{"a":"\u0000","b":18446744073709551617}"#;
        assert_eq!(JsonText::parse(text, "input", 100).unwrap().as_str(), text);
    }

    #[test]
    fn size_and_depth_are_bounded() {
        assert!(matches!(JsonText::of("aaaa", "state", 5), Err(InvalidJson::TooLarge { bytes: 6, limit: 5, .. })));
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(JsonText::parse(&deep(100), "input", 1 << 20).is_ok());
        assert_eq!(JsonText::parse(&deep(101), "input", 1 << 20), Err(InvalidJson::TooDeep { what: "input" }));
        assert_eq!(JsonText::parse(&deep(100_000), "input", 1 << 20), Err(InvalidJson::TooDeep { what: "input" }));
        let quoted = JsonText::of(&json!(["[[[", "\"[", 1]), "input", 100).unwrap();
        assert_eq!(depth(quoted.as_str()), 1);
    }

    #[test]
    fn debug_shows_no_body() {
        assert_eq!(format!("{:?}", JsonText::of("secret", "input", 100).unwrap()), "JsonText(8 bytes)");
    }
}
