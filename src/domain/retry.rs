//! When something is tried again.

use std::time::Duration;

/// A delay that doubles from `first` to `most`, with up to a quarter taken off at random so that a crowd spreads out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Before the second attempt.
    pub first: Duration,
    /// The longest.
    pub most: Duration,
}

impl Backoff {
    /// The delay after the `failed`-th failure (counted from 1). `spread` is a random number in `0.0..1.0`.
    ///
    /// ```
    /// # use longhaul::Backoff; use std::time::Duration;
    /// let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(60) };
    /// assert_eq!(backoff.after(1, 0.0), Duration::from_secs(1));
    /// assert_eq!(backoff.after(3, 0.0), Duration::from_secs(4));
    /// assert_eq!(backoff.after(40, 0.0), Duration::from_secs(60));
    /// ```
    pub fn after(&self, failed: u32, spread: f64) -> Duration {
        let doubled = self.first.saturating_mul(1u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(self.most).mul_f64(1.0 - 0.25 * spread.clamp(0.0, 1.0))
    }
}

/// How often and when a provider is asked again after an error that may pass (overloaded, a 500). What the provider did not work on
/// (expired, canceled) goes out again without counting, up to 20 times; a request that it refuses fails its run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ModelRetry {
    /// How often it is asked, counting the first time, before the run fails: 1 to 1,000.
    pub attempts: u32,
    /// How long to wait before the second attempt, at most an hour; each failure doubles it, up to an hour, and up to a quarter is
    /// taken off at random.
    pub backoff: Duration,
}

impl ModelRetry {
    /// The most attempts.
    pub const MOST_ATTEMPTS: u32 = 1_000;
    /// The longest first delay.
    pub const LONGEST_BACKOFF: Duration = Duration::from_secs(3_600);

    /// What is wrong with it.
    pub(crate) fn wrong(&self) -> Option<String> {
        if !(1..=Self::MOST_ATTEMPTS).contains(&self.attempts) {
            return Some(format!("a request is tried 1 to {} times, not {}", Self::MOST_ATTEMPTS, self.attempts));
        }
        let too_long = self.backoff > Self::LONGEST_BACKOFF;
        too_long.then(|| format!("the backoff of a request is at most an hour, not {:?}", self.backoff))
    }
}

/// What `#[step(..)]` declares about the running of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepPolicy {
    /// How often it is tried, counting the first time, before an error ends the run.
    pub attempts: u32,
    /// How long to wait before it is tried again.
    pub backoff: Backoff,
    /// How long one execution may take.
    pub timeout: Option<Duration>,
    /// How often it may be started without an outcome (its process died) before the run fails as a crash loop.
    pub crash_limit: u32,
}

impl StepPolicy {
    /// One attempt, no timeout, three crashes.
    pub const DEFAULT: Self = Self {
        attempts: 1,
        backoff: Backoff { first: Duration::from_secs(1), most: Duration::from_secs(60) },
        timeout: None,
        crash_limit: 3,
    };
}

impl Default for StepPolicy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_delay_never_exceeds_the_longest(failed in 0u32..10_000, spread in 0.0f64..1.0, first in 0u64..100_000) {
            let backoff = Backoff { first: Duration::from_millis(first), most: Duration::from_secs(60) };
            prop_assert!(backoff.after(failed, spread) <= Duration::from_secs(60));
        }
    }
}
