//! How one result line can be spoilt.
//!
//! A line is looked through for the place that a way of spoiling is about (the text, the usage, the reason of the end). A
//! line without it, such as one of an expired request, stays whole; then nothing has happened.

use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Stands in a written line for what is put in as raw text.
const MARK: &str = "longhaul-sandbox-mark";

/// Where the text of an answer may stand: Messages, Chat Completions, Responses.
const TEXT: &[&str] = &[
    "/result/message/content/0/text",
    "/response/body/choices/0/message/content",
    "/response/body/output/0/content/0/text",
];
const CONTENT: &[&str] =
    &["/result/message/content", "/response/body/choices/0/message/content", "/response/body/output/0/content"];
const BLOCKS: &[&str] =
    &["/result/message/content", "/response/body/output", "/response/body/choices/0/message/annotations"];
const STOP: &[&str] =
    &["/result/message/stop_reason", "/response/body/choices/0/finish_reason", "/response/body/status"];
const USAGE: &[&str] = &["/result/message/usage", "/response/body/usage"];
const OUTPUT_TOKENS: &[&str] = &[
    "/result/message/usage/output_tokens",
    "/response/body/usage/completion_tokens",
    "/response/body/usage/output_tokens",
];
const OUTCOME: &[&str] = &["/result/type", "/response/status_code"];
const MESSAGE: &[&str] = &["/result/message", "/response/body"];
const RESULT: &[&str] = &["/result", "/response"];
/// An OpenAI line always has an `error`, which is null; only one that says something is an error.
const ERROR: &[&str] = &["/result/error/error", "/result/error", "/response/body/error", "/error"];

/// A way to spoil a result line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SpoiltLine {
    /// The second half of the line is missing: it is not JSON.
    Half,
    /// The line is only spaces.
    Blank,
    /// The line begins with a byte order mark.
    ByteOrderMark,
    /// The line has a byte that is not UTF-8.
    NotUtf8,
    /// The line is JSON, but a list.
    NotAnObject,
    /// The answer's text has half of a surrogate pair (`\ud800`).
    LoneSurrogate,
    /// The answer's text has a NUL (`\u0000`), which PostgreSQL cannot store as text.
    Nul,
    /// The number of output tokens is 2^64.
    HugeNumber,
    /// The number of output tokens is `1e999`, which no float can hold.
    InfiniteNumber,
    /// The message has a field of lists in lists, so many deep (parsers often stop at 128).
    Deep(usize),
    /// The answer's text has so many more bytes.
    Long(usize),
    /// `custom_id` is missing.
    MissingCustomId,
    /// `custom_id` is null.
    NullCustomId,
    /// `custom_id` is one that nobody sent.
    ForeignCustomId,
    /// The outcome is missing (`result` or `response`).
    MissingResult,
    /// The kind of the outcome (`result.type`, `response.status_code`) is missing.
    MissingOutcome,
    /// The kind of the outcome is one that nobody knows.
    UnknownOutcome,
    /// The message is null.
    NullMessage,
    /// A content block (Responses: an output item, Chat Completions: an annotation) of an unknown type comes first.
    UnknownBlock,
    /// The content is null.
    NullContent,
    /// The reason why the model stopped is one that nobody knows.
    UnknownStopReason,
    /// The reason why the model stopped is null.
    NullStopReason,
    /// The usage is null.
    NullUsage,
    /// The usage is missing.
    MissingUsage,
    /// The number of output tokens is null.
    NullTokens,
    /// The error of an errored line is null.
    NullError,
    /// There are fields that nobody knows, everywhere.
    UnknownFields,
}

impl SpoiltLine {
    /// The spoilt line with its line end; `None` when there is nothing in it to spoil in this way.
    pub(crate) fn spoil(&self, line: &[u8]) -> Option<Bytes> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut spoilt = self.spoil_bytes(line).or_else(|| self.spoil_json(line))?;
        spoilt.push(b'\n');
        Some(spoilt.into())
    }

    fn spoil_bytes(&self, line: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Half => Some(line[..line.len() / 2].to_vec()),
            Self::Blank => Some(b"   ".to_vec()),
            Self::ByteOrderMark => Some([b"\xEF\xBB\xBF", line].concat()),
            Self::NotUtf8 => {
                let middle = line.len() / 2;
                Some([&line[..middle], b"\xFF", &line[middle..]].concat())
            }
            Self::NotAnObject => Some([b"[", line, b"]"].concat()),
            _ => None,
        }
    }

    fn spoil_json(&self, line: &[u8]) -> Option<Vec<u8>> {
        let mut value: Value = serde_json::from_slice(line).ok()?;
        let raw = self.change(&mut value)?;
        let text = value.to_string();
        // A mark within a text is replaced as it stands; one that is a whole value goes with its quotes.
        Some(
            match raw {
                Raw::Nothing => text,
                Raw::InText(raw) => text.replacen(MARK, &raw, 1),
                Raw::Value(raw) => text.replacen(&format!("\"{MARK}\""), &raw, 1),
            }
            .into_bytes(),
        )
    }

    fn change(&self, line: &mut Value) -> Option<Raw> {
        match self {
            Self::LoneSurrogate => in_text(line, "\\ud800".to_owned()),
            Self::Nul => in_text(line, "\\u0000".to_owned()),
            Self::Long(bytes) => in_text(line, "x".repeat(*bytes)),
            Self::HugeNumber => marked(line, OUTPUT_TOKENS, "18446744073709551616".to_owned()),
            Self::InfiniteNumber => marked(line, OUTPUT_TOKENS, "1e999".to_owned()),
            Self::Deep(depth) => {
                let message = place(line, MESSAGE)?.as_object_mut()?;
                message.insert("deep".to_owned(), MARK.into());
                Some(Raw::Value(format!("{}{}", "[".repeat(*depth), "]".repeat(*depth))))
            }
            Self::MissingCustomId => removed(line, &["/custom_id"]),
            Self::NullCustomId => set(line, &["/custom_id"], Value::Null),
            Self::ForeignCustomId => set(line, &["/custom_id"], "nobody-sent-this".into()),
            Self::MissingResult => removed(line, RESULT),
            Self::MissingOutcome => removed(line, OUTCOME),
            Self::UnknownOutcome => {
                let of = place(line, OUTCOME)?;
                *of = if of.is_number() { json!(299) } else { json!("postponed") };
                Some(Raw::Nothing)
            }
            Self::NullMessage => set(line, MESSAGE, Value::Null),
            Self::UnknownBlock => {
                let blocks = place(line, BLOCKS)?.as_array_mut()?;
                blocks.insert(0, json!({"type": "hologram", "id": "holo_01", "payload": {"of": ["anything"]}}));
                Some(Raw::Nothing)
            }
            Self::NullContent => set(line, CONTENT, Value::Null),
            Self::UnknownStopReason => set(line, STOP, "ran_out_of_ink".into()),
            Self::NullStopReason => set(line, STOP, Value::Null),
            Self::NullUsage => set(line, USAGE, Value::Null),
            Self::MissingUsage => removed(line, USAGE),
            Self::NullTokens => set(line, OUTPUT_TOKENS, Value::Null),
            Self::NullError => {
                let error = ERROR.iter().find(|at| line.pointer(at).is_some_and(|error| !error.is_null()))?;
                *line.pointer_mut(error)? = Value::Null;
                Some(Raw::Nothing)
            }
            Self::UnknownFields => {
                strangers(line);
                Some(Raw::Nothing)
            }
            Self::Half | Self::Blank | Self::ByteOrderMark | Self::NotUtf8 | Self::NotAnObject => None,
        }
    }
}

/// What is put in place of the mark.
enum Raw {
    Nothing,
    InText(String),
    Value(String),
}

fn place<'a>(line: &'a mut Value, at: &[&str]) -> Option<&'a mut Value> {
    let at = at.iter().find(|at| line.pointer(at).is_some())?;
    line.pointer_mut(at)
}

fn set(line: &mut Value, at: &[&str], to: Value) -> Option<Raw> {
    *place(line, at)? = to;
    Some(Raw::Nothing)
}

fn marked(line: &mut Value, at: &[&str], raw: String) -> Option<Raw> {
    *place(line, at)? = MARK.into();
    Some(Raw::Value(raw))
}

fn in_text(line: &mut Value, raw: String) -> Option<Raw> {
    let text = place(line, TEXT)?;
    *text = format!("{}{MARK}", text.as_str()?).into();
    Some(Raw::InText(raw))
}

fn removed(line: &mut Value, at: &[&str]) -> Option<Raw> {
    let at = at.iter().find(|at| line.pointer(at).is_some())?;
    let (above, name) = at.rsplit_once('/')?;
    line.pointer_mut(above)?.as_object_mut()?.remove(name);
    Some(Raw::Nothing)
}

/// Puts an unknown field into every object.
pub(crate) fn strangers(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(strangers);
            map.insert("a_field_of_tomorrow".to_owned(), json!({"x": [1, null]}));
        }
        Value::Array(values) => values.iter_mut().for_each(strangers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
