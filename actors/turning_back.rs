//! A batch that was created and then refused as a whole, when it was validated: nothing in it was worked on, or paid. Its
//! requests go back into the queue, the suspects to travel with fewer others; a request that is refused alone fails its run. In
//! chunks that may be repeated from any cut: the provider says the same again.

use super::ctx::Ctx;
use super::ingester::{Look, pause};
use super::results::{CHUNK_LINES, join, settled, tell};
use super::sending::REFUSED_IN_ROW;
use crate::domain::ItemStatus;
use crate::observe::count;
use crate::provider::{Refusal, RefusedBatch};
use crate::store::{HeldBatch, Lines, Lone, StoreError};
use std::time::Duration;

/// What to do with the requests of a refused batch.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// All go out again, after a pause.
    Later,
    /// All go out again, the suspects in batches of at most so many.
    Halves(i32),
    /// All go out again, these each alone.
    Apart(Vec<i32>),
    /// All fail: what they have in common is refused.
    Fail,
    /// The only one fails, unless too many were refused before it one by one.
    Convict,
    /// All go out again, once an operator has acted.
    Park,
}

/// `alone`: no other batch of its kind is under way, which could take up room.
fn judge(refused: &RefusedBatch, n: i32, alone: bool) -> Verdict {
    let half = Verdict::Halves(n - n / 2);
    let mut named: Vec<i32> = refused.items.iter().copied().filter(|item| (0..n).contains(item)).collect();
    named.sort_unstable();
    named.dedup();
    match refused.because {
        // What does not fit into an empty queue does not fit as it is.
        Refusal::Moment if alone && n > 1 => half,
        Refusal::Moment => Verdict::Later,
        Refusal::Account => Verdict::Park,
        Refusal::Every => Verdict::Fail,
        Refusal::Size if n > 1 => half,
        // Too large alone: that says nothing of the account.
        Refusal::Size => Verdict::Fail,
        Refusal::Request(_) if n == 1 => Verdict::Convict,
        Refusal::Request(_) if !named.is_empty() => Verdict::Apart(named),
        Refusal::Request(_) => half,
    }
}

/// Gives back what a refused batch holds.
pub(super) async fn turn_back(
    ctx: &Ctx,
    name: &str,
    batch: &HeldBatch,
    refused: RefusedBatch,
) -> Result<Look, StoreError> {
    let store = ctx.store();
    let verdict = judge(&refused, batch.n, store.alone(batch.batch).await?);
    let (why, provider_batch) = (refused.why.as_str(), &batch.provider_batch_id);
    tracing::warn!(provider = name, batch = %provider_batch, why, ?verdict, items = batch.n, "a batch was refused after it was created");
    // That a request was submitted is told before that it goes out again.
    tell(ctx, batch).await?;
    let open = store.open_items(batch.batch).await?;
    let verdict = match verdict {
        Verdict::Convict => match store.judge_lone(batch.batch, batch.fence, REFUSED_IN_ROW).await? {
            None => return Ok(Look::Done),
            Some(Lone::Guilty) => Verdict::Convict,
            Some(Lone::OneOfMany) => Verdict::Park,
            Some(Lone::Stale) => Verdict::Apart(vec![0]),
        },
        verdict => verdict,
    };
    if matches!(verdict, Verdict::Fail | Verdict::Convict) {
        let failed = fail(ctx, batch, &open, why).await?;
        // Afterwards: should this be cut off in between, one more may fail, but no account is parked for one request.
        if failed > 0 && verdict == Verdict::Convict {
            store.count_refusal(batch.batch, batch.fence).await?;
        }
    } else {
        let delay = if verdict == Verdict::Later { pause(ctx, batch) } else { Duration::ZERO };
        let delay_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        let company = |item: &i32| match &verdict {
            Verdict::Halves(most) => Some(*most),
            Verdict::Apart(named) => named.contains(item).then_some(1),
            Verdict::Later | Verdict::Fail | Verdict::Convict | Verdict::Park => None,
        };
        for some in open.chunks(CHUNK_LINES) {
            let company: Vec<_> = some.iter().map(company).collect();
            store.turn_back(batch.batch, batch.fence, some, &company, delay_ms).await?;
        }
        // Only now: once somebody has acted, nothing of this batch is to be judged again.
        if verdict == Verdict::Park {
            store.park_account_of(batch.batch, batch.fence, why).await?;
        }
    }
    ctx.board.wake_submitters();
    match settled(ctx, name, batch).await? {
        true => Ok(Look::Done),
        false => Ok(Look::Later(pause(ctx, batch), Some(refused.why))),
    }
}

/// Answers how many runs have failed.
async fn fail(ctx: &Ctx, batch: &HeldBatch, open: &[i32], why: &str) -> Result<i64, StoreError> {
    let mut failed = 0;
    for some in open.chunks(CHUNK_LINES) {
        let mut lines = Lines::default();
        some.iter().for_each(|item| lines.push(*item, ItemStatus::Errored, None, Some(why.to_owned())));
        let done = ctx.store().fail(batch.batch, batch.fence, &lines).await?;
        failed += done.waits.max(0);
    }
    // Branches may be among them.
    count(&ctx.counters().runs_failed, failed as u64);
    join(ctx).await;
    Ok(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_refusal_leads_to_what_it_is_about() {
        let of = |because, items: &[i32], n, alone| {
            judge(&RefusedBatch { why: String::new(), because, items: items.to_vec() }, n, alone)
        };
        assert_eq!(of(Refusal::Moment, &[], 8, false), Verdict::Later);
        assert_eq!(of(Refusal::Moment, &[], 9, true), Verdict::Halves(5));
        assert_eq!(of(Refusal::Moment, &[], 1, true), Verdict::Later);
        assert_eq!(of(Refusal::Account, &[3], 8, true), Verdict::Park);
        assert_eq!(of(Refusal::Every, &[0], 8, true), Verdict::Fail);
        assert_eq!(of(Refusal::Size, &[], 8, false), Verdict::Halves(4));
        assert_eq!(of(Refusal::Size, &[], 1, false), Verdict::Fail);
        assert_eq!(of(Refusal::Request(None), &[], 8, false), Verdict::Halves(4));
        assert_eq!(of(Refusal::Request(None), &[5, 2, 5, -1, 8], 8, false), Verdict::Apart(vec![2, 5]));
        assert_eq!(of(Refusal::Request(None), &[0], 1, false), Verdict::Convict);
        assert_eq!(of(Refusal::Request(None), &[-1], 1, true), Verdict::Convict);
    }
}
