//! Finding a batch again whose create call had no readable answer. Where a listed batch carries our intent, it is ours for
//! certain or not at all. Where the provider's listing has no name or tag of ours, a
//! candidate is one that nobody knows, is not older than the newest batch seen before the send, and has our number of
//! requests; its results will prove it or not. Choosing is pure, listing is not.

use crate::provider::{BatchProvider, ListedBatch, ProviderError};
use crate::store::Intent;
use chrono::{DateTime, Utc};
use std::time::Duration;

/// How far the provider's timestamps may be apart from each other.
const SKEW: chrono::TimeDelta = chrono::TimeDelta::seconds(2);
/// Pages of a listing that are read at most.
const PAGES: usize = 50;

/// What to do about an ambiguous send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// Take this batch for ours, until its results say otherwise.
    Adopt(String),
    /// Look again after this.
    LookAgain(Duration),
    /// It was never created: send the requests anew.
    GiveBack,
}

/// The batches listed since the watermark, oldest first. `unordered`: the provider does not promise an order.
pub(super) async fn listed_since(
    provider: &dyn BatchProvider,
    watermark: Option<DateTime<Utc>>,
    unordered: bool,
) -> Result<Vec<ListedBatch>, ProviderError> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..PAGES {
        let page = provider.list(after.as_deref()).await?;
        let past = if unordered {
            !page.batches.is_empty() && page.batches.iter().all(|batch| older(batch, watermark))
        } else {
            page.batches.iter().any(|batch| older(batch, watermark))
        };
        found.extend(page.batches.into_iter().filter(|batch| !older(batch, watermark)));
        match page.next {
            Some(next) if !past => after = Some(next),
            _ => break,
        }
    }
    found.reverse();
    Ok(found)
}

pub(super) fn older(batch: &ListedBatch, watermark: Option<DateTime<Utc>>) -> bool {
    match (batch.created_at, watermark) {
        (Some(created), Some(mark)) => created < mark - SKEW,
        _ => false,
    }
}

/// Chooses among the listed ones, `known` left out. The oldest candidate is tried first; if it proves foreign, the next is.
/// `certain`: ours carries our intent, and no other is a candidate.
pub(super) fn choose(
    intent: &Intent,
    listed: &[ListedBatch],
    known: &[String],
    quarantine: Duration,
    certain: bool,
) -> Finding {
    let unknown = || listed.iter().filter(|batch| !known.contains(&batch.id));
    let fits = |batch: &&ListedBatch| match certain {
        true => batch.intent == Some(intent.intent),
        false => batch.requests == Some(i64::from(intent.n)),
    };
    if let Some(batch) = unknown().find(fits) {
        return Finding::Adopt(batch.id.clone());
    }
    // Quarantine counts from when the last byte can have been sent.
    let ago = Duration::from_millis(intent.sent_ms_ago.max(0) as u64);
    let over = Duration::from_millis(intent.send_limit_ms.max(0) as u64) + quarantine;
    if ago >= over {
        // One whose number the provider did not tell, all that time, may be it.
        let untold = unknown().find(|batch| !certain && batch.requests.is_none());
        return untold.map_or(Finding::GiveBack, |batch| Finding::Adopt(batch.id.clone()));
    }
    let again = (quarantine / 20).clamp(Duration::from_millis(50), Duration::from_secs(30));
    Finding::LookAgain(again.min(over - ago))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{BatchStatus, IntentId};

    const Q: Duration = Duration::from_secs(900);

    fn intent(sent_ms_ago: i64) -> Intent {
        Intent {
            batch: 1,
            intent: IntentId(uuid::Uuid::from_u128(7)),
            status: BatchStatus::Ambiguous,
            n: 64,
            watermark_at: None,
            sent_ms_ago,
            send_limit_ms: 600_000,
            late: false,
        }
    }

    fn batch(id: &str, requests: i64) -> ListedBatch {
        ListedBatch { id: id.into(), created_at: None, requests: Some(requests), intent: None }
    }

    #[test]
    fn the_oldest_unknown_batch_of_that_size_is_taken() {
        let listed = [batch("known", 64), batch("other", 63), batch("a", 64), batch("b", 64)];
        assert_eq!(choose(&intent(0), &listed, &["known".into()], Q, false), Finding::Adopt("a".into()));
    }

    #[test]
    fn nothing_is_sent_again_before_deadline_and_quarantine_are_over() {
        assert!(matches!(choose(&intent(0), &[], &[], Q, false), Finding::LookAgain(_)));
        assert!(
            matches!(choose(&intent(1_499_999), &[], &[], Q, false), Finding::LookAgain(d) if d == Duration::from_millis(1))
        );
        assert_eq!(choose(&intent(1_500_000), &[], &[], Q, false), Finding::GiveBack);
    }

    #[test]
    fn where_batches_carry_an_intent_only_ours_is_taken() {
        let ours = ListedBatch { intent: Some(intent(0).intent), requests: None, ..batch("ours", 0) };
        let other = ListedBatch { intent: Some(IntentId::new()), ..batch("other", 64) };
        let listed = [batch("foreign", 64), other.clone(), ours];
        assert_eq!(choose(&intent(0), &listed, &[], Q, true), Finding::Adopt("ours".into()));
        assert_eq!(choose(&intent(1_500_000), &[batch("foreign", 64), other], &[], Q, true), Finding::GiveBack);
    }

    #[test]
    fn one_without_a_number_is_taken_only_when_nothing_else_shows_up() {
        let listed = [ListedBatch { requests: None, ..batch("untold", 0) }];
        assert!(matches!(choose(&intent(0), &listed, &[], Q, false), Finding::LookAgain(_)));
        assert_eq!(choose(&intent(1_500_000), &listed, &[], Q, false), Finding::Adopt("untold".into()));
        let listed = [listed[0].clone(), batch("ours", 64)];
        assert_eq!(choose(&intent(0), &listed, &[], Q, false), Finding::Adopt("ours".into()));
    }

    #[test]
    fn a_batch_of_another_size_is_not_ours() {
        assert_eq!(choose(&intent(1_500_000), &[batch("a", 65)], &[], Q, false), Finding::GiveBack);
    }
}
