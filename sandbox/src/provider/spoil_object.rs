//! How the JSON of a reply about batches can be spoilt.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::spoil_line::strangers;

/// A way to spoil the reply of create, retrieve, list or cancel. In a list every batch on the page is spoilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SpoiltObject {
    /// 200 with a body that is cut in the middle: not JSON. The batch's id can still be found in it.
    Half,
    /// 200 with an empty body.
    Empty,
    /// 200 with a web page.
    WebPage,
    /// The status is one that nobody knows.
    UnknownStatus,
    /// The status is null.
    NullStatus,
    /// The counts are missing.
    MissingCounts,
    /// The counts are null.
    NullCounts,
    /// One of the counts is missing.
    MissingCount,
    /// The time of expiry is null.
    NullExpiry,
    /// The times are without a zone (Anthropic), or texts instead of numbers (OpenAI).
    OddTimes,
    /// The places of the results (`results_url`, or the two file ids) are null although the batch has ended.
    NullResults,
    /// The places of the results are empty texts.
    EmptyResults,
    /// `results_url` names another host, which must never see the key.
    ForeignResultsUrl,
    /// List: `has_more`, `first_id` and `last_id` are missing.
    MissingPaging,
    /// List: the page is the other way round.
    Reversed,
    /// There are fields that nobody knows, everywhere.
    UnknownFields,
}

impl SpoiltObject {
    /// The spoilt body; `None` when there is nothing in it to spoil in this way.
    pub(crate) fn spoil(self, body: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Half => return Some(body[..body.len() / 2].to_vec()),
            Self::Empty => return Some(Vec::new()),
            Self::WebPage => return Some(b"<html><body>One moment, please</body></html>".to_vec()),
            _ => {}
        }
        let mut reply: Value = serde_json::from_slice(body).ok()?;
        let changed = match (self, reply.get_mut("data")) {
            (Self::UnknownFields, _) => {
                strangers(&mut reply);
                true
            }
            (Self::Reversed, Some(Value::Array(batches))) if batches.len() > 1 => {
                batches.reverse();
                true
            }
            (Self::MissingPaging, Some(_)) => {
                let page = reply.as_object_mut()?;
                ["has_more", "first_id", "last_id"].iter().for_each(|name| drop(page.remove(*name)));
                true
            }
            (_, Some(Value::Array(batches))) => {
                // Not `any`, which would stop at the first.
                let changed = batches.iter_mut().filter_map(|batch| Some(self.change(batch.as_object_mut()?)));
                changed.fold(false, |all, one| all | one)
            }
            (_, _) => self.change(reply.as_object_mut()?),
        };
        changed.then(|| reply.to_string().into_bytes())
    }

    fn change(self, batch: &mut Map<String, Value>) -> bool {
        let results = ["results_url", "output_file_id", "error_file_id"];
        match self {
            Self::UnknownStatus => set(batch, &["processing_status", "status"], &json!("contemplating")),
            Self::NullStatus => set(batch, &["processing_status", "status"], &Value::Null),
            Self::MissingCounts => batch.remove("request_counts").is_some(),
            Self::NullCounts => set(batch, &["request_counts"], &Value::Null),
            Self::MissingCount => {
                let counts = batch.get_mut("request_counts").and_then(Value::as_object_mut);
                counts.is_some_and(|counts| counts.remove("errored").or_else(|| counts.remove("failed")).is_some())
            }
            Self::NullExpiry => set(batch, &["expires_at"], &Value::Null),
            Self::OddTimes => {
                let times = batch.iter_mut().filter(|(name, at)| name.ends_with("_at") && !at.is_null());
                times.map(|(_, at)| *at = odd(at)).count() > 0
            }
            Self::NullResults => set(batch, &results, &Value::Null),
            Self::EmptyResults => set(batch, &results, &json!("")),
            Self::ForeignResultsUrl => {
                let url = batch.get_mut("results_url").filter(|url| url.is_string());
                url.map(|url| *url = json!("http://results.invalid/elsewhere")).is_some()
            }
            Self::Half | Self::Empty | Self::WebPage | Self::MissingPaging | Self::Reversed | Self::UnknownFields => {
                false
            }
        }
    }
}

/// Whether any of these fields was there and is another now.
fn set(batch: &mut Map<String, Value>, names: &[&str], to: &Value) -> bool {
    let mut changed = false;
    for name in names {
        if let Some(field) = batch.get_mut(*name).filter(|field| *field != to) {
            *field = to.clone();
            changed = true;
        }
    }
    changed
}

fn odd(at: &Value) -> Value {
    match at.as_str() {
        Some(text) => json!(text.trim_end_matches('Z')),
        None => json!(at.to_string()),
    }
}
