//! When a child ends: which children are started again, after how long, or whether to give up. A pure core; the shell around
//! it is `supervisor`. The words are OTP's.

use crate::domain::Backoff;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// Which children share a fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Only the one that ended is started again.
    OneForOne,
    /// The one that ended and those started after it are.
    RestForOne,
}

/// How many restarts within how long are borne.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Intensity {
    pub restarts: usize,
    pub within: Duration,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Stop what still lives of these, then start all of them in order, after the delay.
    Restart { children: Range<usize>, after: Duration },
    /// Too many restarts: end, and let the supervisor above decide.
    GiveUp,
}

/// The state of one supervisor.
#[derive(Debug)]
pub(crate) struct Core {
    strategy: Strategy,
    children: usize,
    intensity: Intensity,
    backoff: Backoff,
    /// When restarts were decided, by the supervisor's own clock.
    restarts: VecDeque<Duration>,
}

impl Core {
    pub(crate) fn new(strategy: Strategy, children: usize, intensity: Intensity, backoff: Backoff) -> Self {
        Self { strategy, children, intensity, backoff, restarts: VecDeque::new() }
    }

    /// A child has ended, at this time of the supervisor's clock.
    pub(crate) fn on_exit(&mut self, child: usize, now: Duration, spread: f64) -> Decision {
        while self.restarts.front().is_some_and(|then| now.saturating_sub(*then) > self.intensity.within) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= self.intensity.restarts {
            return Decision::GiveUp;
        }
        self.restarts.push_back(now);
        let children = match self.strategy {
            Strategy::OneForOne => child..child + 1,
            Strategy::RestForOne => child..self.children,
        };
        // The first restart within the window is at once; a child that keeps falling waits longer each time.
        let after = match self.restarts.len() {
            1 => Duration::ZERO,
            n => self.backoff.after(n as u32 - 1, spread),
        };
        Decision::Restart { children, after }
    }
}

#[cfg(test)]
mod tests {
    use super::Strategy;
    use super::*;
    use proptest::prelude::*;

    const BACKOFF: Backoff = Backoff { first: Duration::from_millis(10), most: Duration::from_secs(1) };

    fn core(strategy: Strategy) -> Core {
        Core::new(strategy, 4, Intensity { restarts: 3, within: Duration::from_secs(10) }, BACKOFF)
    }

    fn children(decision: Decision) -> Range<usize> {
        match decision {
            Decision::Restart { children, .. } => children,
            Decision::GiveUp => panic!("gave up"),
        }
    }

    #[test]
    fn strategies_differ_in_who_shares_the_fate() {
        assert_eq!(children(core(Strategy::OneForOne).on_exit(1, Duration::ZERO, 0.0)), 1..2);
        assert_eq!(children(core(Strategy::RestForOne).on_exit(1, Duration::ZERO, 0.0)), 1..4);
    }

    #[test]
    fn the_first_restart_is_at_once_and_the_next_ones_wait() {
        let mut core = core(Strategy::OneForOne);
        let after = |decision| match decision {
            Decision::Restart { after, .. } => after,
            Decision::GiveUp => panic!("gave up"),
        };
        assert_eq!(after(core.on_exit(0, Duration::from_secs(1), 0.0)), Duration::ZERO);
        assert_eq!(after(core.on_exit(0, Duration::from_secs(1), 0.0)), Duration::from_millis(10));
        assert_eq!(after(core.on_exit(0, Duration::from_secs(1), 0.0)), Duration::from_millis(20));
    }

    #[test]
    fn too_many_restarts_are_given_up_and_old_ones_forgotten() {
        let mut core = core(Strategy::OneForOne);
        for second in 0..3 {
            assert_ne!(core.on_exit(0, Duration::from_secs(second), 0.0), Decision::GiveUp);
        }
        assert_eq!(core.on_exit(0, Duration::from_secs(3), 0.0), Decision::GiveUp);
        assert_ne!(core.on_exit(0, Duration::from_secs(20), 0.0), Decision::GiveUp);
    }

    proptest! {
        #[test]
        fn never_more_restarts_in_a_window_than_borne(times in proptest::collection::vec(0u64..100_000, 1..200)) {
            let (mut times, mut core) = (times, core(Strategy::RestForOne));
            times.sort_unstable();
            let mut granted: Vec<u64> = Vec::new();
            for now in times {
                if core.on_exit(2, Duration::from_millis(now), 0.5) != Decision::GiveUp {
                    granted.push(now);
                }
            }
            for window in granted.windows(4) {
                prop_assert!(window[3] - window[0] > 10_000);
            }
        }
    }
}
