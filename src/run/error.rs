//! What a step fails with.

use std::error::Error;
use std::fmt;

/// Why a step failed: any error, which is tried again as the step's policy says, or a fatal one, which ends the run now.
///
/// ```
/// # use longhaul::StepError;
/// fn year(text: &str) -> longhaul::Result<u16> {
///     let year: u16 = text.trim().parse()?; // tried again, if the step has attempts left
///     if year < 1789 {
///         return Err(StepError::fatal("no address was given before 1789"));
///     }
///     Ok(year)
/// }
/// assert!(!year("MDCCXC").unwrap_err().is_fatal());
/// assert!(year("1066").unwrap_err().is_fatal());
/// ```
///
/// It is no [`std::error::Error`] itself: that is what lets `?` take every error there is.
pub struct StepError {
    message: String,
    fatal: bool,
}

/// The result of a step, and of what steps call.
pub type Result<T, E = StepError> = std::result::Result<T, E>;

impl StepError {
    /// A failure that is tried again as the step's policy says.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), fatal: false }
    }

    /// A failure that trying again cannot cure: the run fails now, whatever the policy.
    pub fn fatal(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), fatal: true }
    }

    /// Whether the run fails now.
    pub fn is_fatal(&self) -> bool {
        self.fatal
    }

    /// The text for people.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl<E: Error> From<E> for StepError {
    /// The error's text and those of its sources, as far as they say more.
    fn from(error: E) -> Self {
        const SOURCES: usize = 16; // a chain may be a ring
        let mut message = error.to_string();
        let mut next = error.source();
        for _ in 0..SOURCES {
            let Some(source) = next else { break };
            let text = source.to_string();
            if !message.contains(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            next = source.source();
        }
        Self { message, fatal: false }
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.fatal { "fatal" } else { "error" };
        write!(f, "{kind}: {}", self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot load ticket 7")]
    struct Outer(#[source] std::num::ParseIntError);

    #[test]
    fn the_sources_are_told_once() {
        let error = StepError::from(Outer("x".parse::<u8>().unwrap_err()));
        assert_eq!(error.message(), "cannot load ticket 7: invalid digit found in string");
        assert_eq!(StepError::from("x".parse::<u8>().unwrap_err()).message(), "invalid digit found in string");
    }

    #[test]
    fn a_fatal_error_passes_the_question_mark_unchanged() {
        fn step() -> Result<u8> {
            let number = "x".parse::<u8>().map_err(StepError::fatal)?;
            Ok(number)
        }
        assert!(step().unwrap_err().is_fatal());
    }
}
