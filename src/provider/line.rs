//! One line of a batch's results, as far as it can be read.

use crate::domain::CustomId;

/// What a provider says it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens read at the full price.
    pub input_tokens: i64,
    /// Tokens written.
    pub output_tokens: i64,
    /// Tokens written into the prompt cache.
    pub cache_write_tokens: i64,
    /// Tokens read from the prompt cache.
    pub cache_read_tokens: i64,
}

/// What became of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineOutcome {
    /// Answered, and paid.
    Succeeded {
        /// The model that answered.
        model: Option<String>,
        /// What it used; `None` when the provider did not say so in a form that can be read.
        usage: Option<Usage>,
    },
    /// Refused. Not paid.
    Errored {
        /// Whether another attempt may succeed.
        retryable: bool,
        /// The provider's words.
        message: String,
    },
    /// Not worked on in time. Not paid.
    Expired,
    /// Canceled. Not paid.
    Canceled,
    /// A form that this version does not know.
    Unknown,
}

/// A result line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Whose it is; `None` when the id cannot be read or is not of our making.
    pub custom_id: Option<CustomId>,
    /// Whether the line names a request at all, ours or somebody else's.
    pub named: bool,
    /// What became of the request; [`LineOutcome::Unknown`] when the line cannot be read.
    pub outcome: LineOutcome,
}

impl Line {
    /// A line that cannot be read at all.
    pub fn unreadable() -> Self {
        Self { custom_id: None, named: false, outcome: LineOutcome::Unknown }
    }
}
