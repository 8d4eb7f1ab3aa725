//! When a batch is sent: at once when none is in flight (after a short linger, so that the first of a thousand requests does
//! not travel alone), else when it is worth it or the oldest request has waited long enough. Nagle's rule; pure.

use crate::config::Config;
use crate::store::Queue;
use std::time::Duration;

/// What to do with the queue now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    /// Nothing waits.
    Nothing,
    /// Look again after this.
    Wait(Duration),
    /// Send a batch.
    Send,
}

pub(super) fn decide(queue: &Queue, config: &Config) -> Policy {
    if queue.requests == 0 {
        return Policy::Nothing;
    }
    let oldest = Duration::from_millis(queue.oldest_ms.max(0) as u64);
    let full = queue.requests >= config.max_batch_requests as i64 || queue.bytes >= config.max_batch_bytes as i64;
    let alone = queue.in_flight == 0 || queue.requests >= config.min_batch_requests as i64;
    let due = if alone { config.linger } else { config.max_batch_age };
    if full || oldest >= due { Policy::Send } else { Policy::Wait(due - oldest) }
}

/// How many requests the next batch takes at most, so that its number differs from those of all ambiguous sends: a batch is
/// found again by its number. `None`: no number is free, wait.
pub(super) fn size(waiting: i64, most: usize, ambiguous: &[i32]) -> Option<i32> {
    let most = i32::try_from(most).unwrap_or(i32::MAX).min(i32::try_from(waiting).unwrap_or(i32::MAX));
    (1..=most).rev().find(|n| !ambiguous.contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queue(requests: i64, oldest_ms: i64, in_flight: i64) -> Queue {
        Queue { requests, bytes: requests * 100, oldest_ms, in_flight }
    }

    #[test]
    fn an_empty_queue_sends_nothing() {
        assert_eq!(decide(&queue(0, 0, 0), &Config::default()), Policy::Nothing);
    }

    #[test]
    fn the_first_request_lingers_and_then_goes_at_once_when_none_is_in_flight() {
        let config = Config::default();
        assert_eq!(decide(&queue(1, 400, 0), &config), Policy::Wait(Duration::from_millis(600)));
        assert_eq!(decide(&queue(1, 1_000, 0), &config), Policy::Send);
    }

    #[test]
    fn with_one_in_flight_it_waits_for_size_or_age() {
        let config = Config::default();
        assert_eq!(decide(&queue(99, 1_000, 1), &config), Policy::Wait(Duration::from_secs(299)));
        assert_eq!(decide(&queue(100, 1_000, 1), &config), Policy::Send);
        assert_eq!(decide(&queue(1, 300_000, 1), &config), Policy::Send);
    }

    #[test]
    fn a_full_batch_does_not_wait() {
        let config = Config::default();
        assert_eq!(decide(&queue(10_000, 0, 3), &config), Policy::Send);
        let bytes = Queue { bytes: 32 << 20, ..queue(5, 0, 3) };
        assert_eq!(decide(&bytes, &config), Policy::Send);
    }

    #[test]
    fn a_number_under_doubt_is_not_used_again() {
        assert_eq!(size(64, 10_000, &[]), Some(64));
        assert_eq!(size(64, 10_000, &[64, 63]), Some(62));
        assert_eq!(size(64, 10, &[64]), Some(10));
        assert_eq!(size(1, 10, &[1]), None);
        assert_eq!(size(0, 10, &[]), None);
    }

    proptest! {
        #[test]
        fn whatever_waits_is_sent_in_the_end(requests in 1i64..20_000, in_flight in 0i64..5) {
            let config = Config::default();
            let old = queue(requests, i64::try_from(config.max_batch_age.as_millis()).unwrap(), in_flight);
            prop_assert_eq!(decide(&old, &config), Policy::Send);
        }
    }
}
