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

impl Usage {
    /// More than this in one answer is no count of tokens.
    const MOST: i64 = 1_000_000_000;

    /// Whether these can be counts of tokens: sums of them stay sums.
    pub(crate) fn is_sane(&self) -> bool {
        let counts = [self.input_tokens, self.output_tokens, self.cache_write_tokens, self.cache_read_tokens];
        counts.iter().all(|count| (0..=Self::MOST).contains(count))
    }
}

/// A model's name, as a provider wrote it, in a form that can be kept and looked up.
pub(crate) fn kept_name(model: &str) -> String {
    const BYTES: usize = 128;
    let mut name = model.replace('\0', "\u{fffd}");
    if name.len() > BYTES {
        let end = (0..=BYTES).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
        name.truncate(end);
    }
    name
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_provider_writes_can_be_kept_and_added_up() {
        assert_eq!(kept_name("claude-haiku-4-5"), "claude-haiku-4-5");
        assert_eq!(kept_name("a\0b"), "a\u{fffd}b");
        assert_eq!(kept_name(&"ü".repeat(1_000)).len(), 128);
        let usage = |input_tokens| Usage { input_tokens, ..Usage::default() };
        assert!(usage(0).is_sane() && usage(1_000_000_000).is_sane());
        assert!(!usage(-1).is_sane() && !usage(1_000_000_001).is_sane() && !usage(i64::MAX).is_sane());
    }
}
