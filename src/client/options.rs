//! What a caller may say of a run beside its input.

use crate::domain::JsonText;
use crate::domain::limits::{METADATA_BYTES, TAG_BYTES, TAGS};
use crate::error::Error;
use serde_json::{Map, Value};

/// What is said of a run when it is enqueued, and is no part of its identity: the same id with the same input is the same run
/// whatever its options are, and keeps those that it was made with.
///
/// ```
/// # use longhaul::EnqueueOptions;
/// let mut about = serde_json::Map::new();
/// about.insert("ticket".into(), 4711.into());
/// let options = EnqueueOptions::new().tag("customer-7").tag("nightly").metadata(about);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EnqueueOptions {
    tags: Vec<String>,
    metadata: Option<Map<String, Value>>,
}

/// Why options were refused. Nothing was written then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOptions {
    /// More than [`TAGS`].
    #[error("a run has at most {TAGS} tags, these are {0}")]
    Tags(usize),
    /// Empty, longer than [`TAG_BYTES`], or with a control character.
    #[error("the tag {0:?} has to have 1 to {TAG_BYTES} bytes and no control characters")]
    Tag(String),
}

impl EnqueueOptions {
    /// No tags, no metadata.
    pub fn new() -> Self {
        Self::default()
    }

    /// A tag: a short word that runs are listed by, at most [`TAGS`] of [`TAG_BYTES`] bytes each. The same one twice is one.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        let tag = tag.into();
        if !self.tags.contains(&tag) {
            self.tags.push(tag);
        }
        self
    }

    /// What people want to know of it, at most [`METADATA_BYTES`] bytes of JSON. Nothing looks into it.
    #[must_use]
    pub fn metadata(mut self, metadata: Map<String, Value>) -> Self {
        self.metadata = Some(metadata);
        self
    }

    pub(super) fn check(self) -> Result<(Vec<String>, Option<JsonText>), Error> {
        if self.tags.len() > TAGS {
            return Err(InvalidOptions::Tags(self.tags.len()).into());
        }
        if let Some(bad) =
            self.tags.iter().find(|tag| !(1..=TAG_BYTES).contains(&tag.len()) || tag.chars().any(char::is_control))
        {
            return Err(InvalidOptions::Tag(bad.chars().take(TAG_BYTES).collect()).into());
        }
        let metadata = self.metadata.map(|m| JsonText::of(&m, "the metadata", METADATA_BYTES)).transpose()?;
        Ok((self.tags, metadata))
    }
}
