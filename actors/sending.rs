//! One batch from the queue to the provider: reserve, build and hash, seal, mark as sending, send once, and record what is
//! known then. Each phase is durable before the next begins; a process may die between any two of them.

use super::ctx::Ctx;
use super::policy;
use crate::domain::{CustomId, IntentId};
use crate::observe::count;
use crate::provider::{BatchProvider, Body, ProviderError, Refusal, RefusedCreate, Sent};
use crate::store::{Brake, Convicted, Filled, Lease, Most, Queue, Store, StoreError, Suspects, Watermark};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Waits reserved per statement.
const RESERVE: i64 = 1_000;
/// Requests read per statement while the body is made.
const PAGE: i64 = 200;
/// Requests refused one by one, with none accepted in between, whose runs fail for it. The next one shows that it is about the account.
pub(super) const REFUSED_IN_ROW: i32 = 2;
/// How long to wait after a refusal that does not say how long.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// What became of an attempt to send a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The provider has it.
    Submitted,
    /// It does not have it, or there was nothing to send.
    NotSent,
    /// It was refused for one of its requests, or for its size: smaller ones are to be sent at once.
    Split,
    /// All of its requests are over budget: they are held, and what is behind them may be sent.
    Held,
    /// Every number of requests that could be sent is that of a send in doubt.
    Numberless,
    /// Nobody knows; it has to be looked for.
    Ambiguous,
    /// Another node holds the lease.
    LeaseLost,
}

/// What the phases share.
pub(super) struct Sending<'a> {
    pub ctx: &'a Ctx,
    pub name: &'a str,
    pub provider: &'a Arc<dyn BatchProvider>,
    pub lease: Lease,
    /// Of which all requests are; empty where they are not told apart.
    pub group: &'a str,
}

impl Sending<'_> {
    pub(super) fn store(&self) -> &Store {
        self.ctx.store()
    }

    /// Sends one batch of what waits. `doubtful` are the numbers of requests of ambiguous sends.
    pub(super) async fn send(&self, queue: &Queue, doubtful: &[i32]) -> Result<Attempt, StoreError> {
        let most = self.ctx.config().max_batch_requests.min(self.provider.capabilities().max_requests.max(1) as usize);
        let most = queue.company.map_or(most, |company| most.min(company.max(1) as usize));
        let Some(size) = policy::size(queue.requests, most, doubtful) else { return Ok(Attempt::Numberless) };
        // Read first: an older watermark is as good, and without a listing nothing is worth being reserved.
        let Some(watermark) = self.watermark().await? else { return Ok(Attempt::NotSent) };
        let intent = IntentId::new();
        let Some(batch) = self.store().open(self.lease, intent, self.group).await? else {
            return Ok(Attempt::LeaseLost);
        };
        let filled = self.reserve(batch, size, queue.company).await?;
        let Some(items) = self.fund(batch, filled.items).await? else {
            let kept = self.store().give_back(batch, self.lease, Duration::ZERO, "its budgets changed").await?;
            return Ok(if kept { Attempt::NotSent } else { Attempt::LeaseLost });
        };
        if items == 0 || doubtful.contains(&items) {
            self.store().give_back(batch, self.lease, Duration::ZERO, "nothing to send").await?;
            return Ok(match (items, filled.items) {
                (0, 0) => Attempt::NotSent,
                (0, _) => Attempt::Held,
                _ => Attempt::Numberless,
            });
        }
        let (length, digest) = measure(self.store(), self.provider, batch, intent, items).await?;
        let version = self.provider.api_version();
        if !self.store().seal(batch, self.lease, self.name, length as i64, &digest, version).await? {
            // One of its runs was canceled meanwhile, the account was paused, or the lease is lost.
            let why = "a run of it was canceled, or its account was paused";
            let kept = self.store().give_back(batch, self.lease, Duration::ZERO, why).await?;
            return Ok(if kept { Attempt::NotSent } else { Attempt::LeaseLost });
        }
        self.transmit(batch, intent, items, length, &watermark).await
    }

    async fn reserve(&self, batch: i64, size: i32, company: Option<i32>) -> Result<Filled, StoreError> {
        let bytes = (self.ctx.config().max_batch_bytes as i64).min(self.provider.capabilities().max_bytes);
        let live_ms = self.ctx.live_ms(self.name);
        // What a request costs in a body beside itself, at most: custom id, braces, what stands between two.
        let id = CustomId { intent: IntentId::new(), index: size };
        let around = self.provider.item(id, "{}").len() as i64;
        let most = Most { items: size, bytes: bytes - i64::from(size) * around, company, live_ms };
        let mut filled = Filled { more: true, ..Filled::default() };
        while filled.more && filled.items < size {
            filled = self.store().fill(self.name, batch, self.lease, filled, RESERVE, most).await?;
        }
        Ok(filled)
    }

    /// The newest batch that is listed now. Without an answer, nothing is sent for a while; with a refused key, until an operator
    /// acts.
    async fn watermark(&self) -> Result<Option<Watermark>, StoreError> {
        match self.provider.list(None).await {
            Ok(page) => {
                let newest = page.batches.into_iter().next();
                let created_at = newest.as_ref().and_then(|b| b.created_at);
                Ok(Some(Watermark { created_at, id: newest.map(|b| b.id) }))
            }
            Err(error) => {
                tracing::warn!(provider = self.name, %error, "nothing is sent: the provider's listing was not to be had");
                let (wait, parked) = match &error {
                    ProviderError::Unavailable { retry_after, .. } => (retry_after.unwrap_or(REFUSED_PAUSE), None),
                    ProviderError::Unauthorized(_) => (REFUSED_PAUSE, Some(error.to_string())),
                    ProviderError::NotFound | ProviderError::Unreadable(_) => (REFUSED_PAUSE, None),
                };
                self.store().slow_down(self.lease, &Brake { wait: Some(wait), parked, paused: None }).await?;
                Ok(None)
            }
        }
    }

    async fn transmit(
        &self,
        batch: i64,
        intent: IntentId,
        items: i32,
        length: u64,
        watermark: &Watermark,
    ) -> Result<Attempt, StoreError> {
        let limit = self.ctx.config().send_limit;
        // Taken before the mark is written: the deadline is never later than what the mark promises to others.
        let deadline = Instant::now() + limit;
        let limit_ms = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        if !self.store().sending(batch, self.lease, self.name, watermark, limit_ms).await? {
            return Ok(Attempt::LeaseLost);
        }
        let chunks = body(self.store().clone(), self.provider.clone(), batch, intent, items);
        match self.provider.create(Body { intent, group: self.group.to_owned(), length, chunks, deadline }).await {
            Sent::Created(id) => {
                count(&self.ctx.counters().batches_submitted, 1);
                count(&self.ctx.counters().requests_submitted, items as u64);
                tracing::info!(provider = self.name, batch = %id, requests = items, "a batch was submitted");
                let accepted = !self.provider.capabilities().late_refusals;
                let kept = self.store().created(batch, self.lease, &id, accepted).await?;
                Ok(if kept { Attempt::Submitted } else { Attempt::LeaseLost })
            }
            Sent::NotCreated(refused) => self.refused(batch, items, refused).await,
            Sent::Ambiguous(why) => {
                count(&self.ctx.counters().ambiguous_creates, 1);
                tracing::warn!(provider = self.name, batch, why, "it is not known whether a batch was created");
                let kept = self.store().ambiguous(batch, self.lease, &why).await?;
                Ok(if kept { Attempt::Ambiguous } else { Attempt::LeaseLost })
            }
        }
    }

    async fn refused(&self, batch: i64, items: i32, refused: RefusedCreate) -> Result<Attempt, StoreError> {
        let RefusedCreate { why, retry_after, because } = refused;
        tracing::warn!(provider = self.name, why, ?because, items, "a batch was refused");
        match because {
            Refusal::Moment => self.leave_alone(batch, retry_after, None, &why).await,
            Refusal::Account => self.leave_alone(batch, retry_after, Some(why.clone()), &why).await,
            Refusal::Size | Refusal::Request(_) | Refusal::Every if items > 1 => {
                let suspects = match because {
                    Refusal::Request(Some(item)) if (0..items).contains(&item) => Suspects::One(item),
                    _ => Suspects::All(items - items / 2),
                };
                let kept = self.store().split(batch, self.lease, suspects, &why).await?;
                Ok(if kept { Attempt::Split } else { Attempt::LeaseLost })
            }
            Refusal::Size => self.convict(batch, None, &why).await,
            Refusal::Request(_) | Refusal::Every => self.convict(batch, Some(REFUSED_IN_ROW), &why).await,
        }
    }

    /// Gives the batch back and sends nothing for a while, or until an operator acts.
    async fn leave_alone(
        &self,
        batch: i64,
        retry_after: Option<Duration>,
        parked: Option<String>,
        why: &str,
    ) -> Result<Attempt, StoreError> {
        self.store().give_back(batch, self.lease, Duration::ZERO, why).await?;
        let wait = Some(retry_after.unwrap_or(REFUSED_PAUSE));
        self.store().slow_down(self.lease, &Brake { wait, parked, paused: None }).await?;
        Ok(Attempt::NotSent)
    }

    /// A request that was refused alone fails its run. When that happens more often than `in_row` allows, it is not about the
    /// requests.
    async fn convict(&self, batch: i64, in_row: Option<i32>, why: &str) -> Result<Attempt, StoreError> {
        match self.store().convict(batch, self.lease, in_row, why).await? {
            None => Ok(Attempt::LeaseLost),
            Some(Convicted { failed: true, parent }) => {
                count(&self.ctx.counters().runs_failed, 1);
                if self.store().join_all(parent.into_iter().collect(), true).await? {
                    self.ctx.runs_ready();
                }
                Ok(Attempt::Split)
            }
            Some(Convicted { failed: false, .. }) => {
                let refused = REFUSED_IN_ROW + 1;
                let reason =
                    format!("{refused} requests in a row were refused one by one, and none was accepted: {why}");
                self.leave_alone(batch, None, Some(reason.clone()), &reason).await
            }
        }
    }
}

/// The length and the digest of the exact body, read through once without being held.
async fn measure(
    store: &Store,
    provider: &Arc<dyn BatchProvider>,
    batch: i64,
    intent: IntentId,
    items: i32,
) -> Result<(u64, [u8; 32]), StoreError> {
    let mut chunks = body(store.clone(), provider.clone(), batch, intent, items);
    let (mut length, mut hash) = (0, Sha256::new());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| StoreError::Connection(error.to_string()))?;
        length += chunk.len() as u64;
        hash.update(&chunk);
    }
    Ok((length, hash.finalize().into()))
}

/// The body of a batch as it is read from the database, page by page.
fn body(
    store: Store,
    provider: Arc<dyn BatchProvider>,
    batch: i64,
    intent: IntentId,
    items: i32,
) -> BoxStream<'static, Result<Bytes, std::io::Error>> {
    stream::unfold(Some(0), move |from| {
        let (store, provider) = (store.clone(), provider.clone());
        async move {
            let from = from?;
            let (open, between, close) = provider.frame();
            let page = match store.bodies(batch, from, PAGE).await {
                Ok(page) => page,
                Err(error) => return Some((Err(std::io::Error::other(error.to_string())), None)),
            };
            let mut text = String::with_capacity(page.iter().map(|(_, body)| body.len() + 80).sum());
            let mut next = from;
            for (index, request) in page {
                text.push_str(if index == 0 { open } else { between });
                text.push_str(&provider.item(CustomId { intent, index }, &request));
                next = index + 1;
            }
            let done = next >= items;
            if done {
                text.push_str(close);
            } else if next == from {
                return Some((Err(std::io::Error::other("requests of a batch are missing")), None));
            }
            Some((Ok(Bytes::from(text)), (!done).then_some(next)))
        }
    })
    .boxed()
}
