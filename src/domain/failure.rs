//! How a run can fail: a code that is stable, and a text for people.

use super::limits::ERROR_TEXT_BYTES;
use serde::{Deserialize, Serialize};

/// The stable name of a kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureCode {
    /// A step returned an error, and its attempts are used up.
    StepError,
    /// A step returned an error that it called fatal.
    StepFatal,
    /// A step panicked.
    StepPanic,
    /// A step ran longer than its timeout, and its attempts are used up.
    StepTimeout,
    /// A step was started too often without an outcome: its process died each time.
    CrashLoop,
    /// A stored value does not fit the type that a step expects, or a value that it gave cannot be written as JSON.
    Undecodable,
    /// What a step returned breaks a limit of the engine.
    LimitExceeded,
    /// A step named a cause that does not exist.
    UnknownCause,
    /// The provider refused the request, or gave up on it.
    ModelFailed,
    /// A branch that was waited for failed or was canceled.
    BranchFailed,
    /// Branches changed the same part of the state differently.
    ForkConflict,
}

impl FailureCode {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StepError => "step-error",
            Self::StepFatal => "step-fatal",
            Self::StepPanic => "step-panic",
            Self::StepTimeout => "step-timeout",
            Self::CrashLoop => "crash-loop",
            Self::Undecodable => "undecodable",
            Self::LimitExceeded => "limit-exceeded",
            Self::UnknownCause => "unknown-cause",
            Self::ModelFailed => "model-failed",
            Self::BranchFailed => "branch-failed",
            Self::ForkConflict => "fork-conflict",
        }
    }
}

/// Why a run failed. Stored beside its outputs, not in the ledger: the text may quote what user code said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{} in step `{step}`: {message}", code.as_str())]
pub struct Failure {
    /// The kind.
    pub code: FailureCode,
    /// The step it happened in.
    pub step: String,
    /// For people; cut with a mark when longer than 4 KiB, so that a failure can always be saved.
    pub message: String,
}

impl Failure {
    /// A failure whose text is cut to what is kept.
    pub fn new(code: FailureCode, step: impl Into<String>, message: impl AsRef<str>) -> Self {
        Self { code, step: step.into(), message: cut(message.as_ref()) }
    }
}

/// Cuts a text to what is kept of an error. NUL, which the database cannot look at as text, is replaced.
pub fn cut(text: &str) -> String {
    let mended;
    let text = if text.contains('\0') {
        mended = text.replace('\0', "\u{fffd}");
        &mended
    } else {
        text
    };
    const MARK: &str = " .. (cut)";
    if text.len() <= ERROR_TEXT_BYTES {
        return text.to_owned();
    }
    let mut end = ERROR_TEXT_BYTES - MARK.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MARK}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_with_a_mark() {
        let failure = Failure::new(FailureCode::StepError, "s", "ä".repeat(1 << 20));
        assert!(failure.message.len() <= ERROR_TEXT_BYTES && failure.message.ends_with(".. (cut)"));
    }

    #[test]
    fn nul_is_replaced() {
        assert_eq!(Failure::new(FailureCode::StepError, "s", "a\0b").message, "a\u{fffd}b");
    }

    #[test]
    fn the_code_is_the_serialized_word() {
        for code in [FailureCode::StepError, FailureCode::CrashLoop, FailureCode::ModelFailed] {
            assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{}\"", code.as_str()));
        }
    }
}
