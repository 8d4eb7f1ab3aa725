//! When a batch is sent: at once when none is in flight (after a short linger, so that the first of a thousand requests does
//! not travel alone), else when it is worth it or the oldest request has waited long enough. Nagle's rule; pure.

use crate::config::Config;
use crate::store::{Holes, Queue};
use sha2::{Digest, Sha256};
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
    // Whoever is guilty of a refusal is found without delay: others wait with it.
    if queue.company.is_some() {
        return Policy::Send;
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

/// What to make of items that a batch's results do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They may come yet: results have been seen to be incomplete for a while.
    Wait,
    /// They were not worked on, or not billed: they may go out again.
    Unpaid,
    /// They were paid for, or it cannot be told.
    Paid,
}

/// Complete downloads that have to agree on what is missing.
const AGREEING: i32 = 3;

/// Judges holes: after three complete downloads that agree, over at least `after`. If the lines that are there account for all successes
/// that the provider counts, the holes were not billed.
pub(super) fn holes(holes: &Holes, succeeded: Option<i64>, after: Duration) -> Verdict {
    if holes.seen < AGREEING || Duration::from_millis(holes.since_ms.max(0) as u64) < after {
        return Verdict::Wait;
    }
    // A line that cannot be read may be a success, or not.
    let accounted = holes.succeeded..=holes.succeeded + holes.unreadable;
    match succeeded {
        Some(n) if accounted.contains(&n) => Verdict::Unpaid,
        Some(_) | None => Verdict::Paid,
    }
}

/// The name of a group as it can be kept: whatever is in a request, it must not keep others from being sent.
pub(super) fn group_name(name: String) -> String {
    const BYTES: usize = 200;
    if !name.is_empty() && name.len() <= BYTES && !name.contains('\0') {
        return name;
    }
    // What comes before the first space may be the adapter's own, such as an endpoint.
    let own = name.split(' ').next().filter(|own| own.len() < BYTES / 2 && !own.contains('\0')).unwrap_or_default();
    let digest: String = Sha256::digest(&name).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{own} {digest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queue(requests: i64, oldest_ms: i64, in_flight: i64) -> Queue {
        Queue { requests, bytes: requests * 100, oldest_ms, in_flight, company: None }
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
    fn suspects_do_not_wait() {
        let suspects = Queue { company: Some(3), ..queue(1, 0, 3) };
        assert_eq!(decide(&suspects, &Config::default()), Policy::Send);
    }

    #[test]
    fn a_number_under_doubt_is_not_used_again() {
        assert_eq!(size(64, 10_000, &[]), Some(64));
        assert_eq!(size(64, 10_000, &[64, 63]), Some(62));
        assert_eq!(size(64, 10, &[64]), Some(10));
        assert_eq!(size(1, 10, &[1]), None);
        assert_eq!(size(0, 10, &[]), None);
    }

    #[test]
    fn holes_are_judged_late_and_by_what_the_provider_counts() {
        let seen = |seen, since_ms, unreadable| Holes { seen, since_ms, succeeded: 7, unreadable };
        let judge = |h: Holes, succeeded| holes(&h, succeeded, Duration::from_secs(3600));
        assert_eq!(judge(seen(2, 9_000_000, 0), Some(7)), Verdict::Wait);
        assert_eq!(judge(seen(9, 3_599_999, 0), Some(7)), Verdict::Wait);
        assert_eq!(judge(seen(3, 3_600_000, 0), Some(7)), Verdict::Unpaid);
        assert_eq!(judge(seen(3, 3_600_000, 0), Some(8)), Verdict::Paid);
        assert_eq!(judge(seen(3, 3_600_000, 1), Some(8)), Verdict::Unpaid);
        assert_eq!(judge(seen(3, 3_600_000, 1), Some(9)), Verdict::Paid);
        assert_eq!(judge(seen(3, 3_600_000, 0), None), Verdict::Paid);
    }

    #[test]
    fn a_group_can_always_be_kept() {
        assert_eq!(group_name("/v1/responses gpt-5".into()), "/v1/responses gpt-5");
        for strange in ["/v1/responses a\0b".to_owned(), format!("/v1/responses {}", "x".repeat(3_000)), String::new()]
        {
            let kept = group_name(strange.clone());
            assert!(kept.len() <= 200 && !kept.contains('\0') && !kept.is_empty(), "{kept}");
            assert_ne!(kept, group_name(format!("{strange}y")));
            assert_eq!(kept.split(' ').next(), strange.split(' ').next());
        }
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
