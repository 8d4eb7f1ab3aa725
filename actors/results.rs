//! Reading the results of a batch: line by line with bounded memory, settled in chunks, repeatable from any cut. What cannot
//! be read costs its own item and no other.

use super::ctx::Ctx;
use super::ingester::{Look, pause};
use super::policy::{self, Verdict};
use crate::domain::{FailureCode, ItemStatus};
use crate::observe::count;
use crate::provider::{BatchProvider, Line, LineOutcome, ProviderError, Usage, kept_name};
use crate::store::{Code, HeldBatch, Lines, StoreError};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// Lines settled per statement.
pub(super) const CHUNK_LINES: usize = 500;
/// Bytes of lines settled per statement, about.
const CHUNK_BYTES: usize = 4 << 20;
/// The longest line that is kept.
const LINE_BYTES: usize = 64 << 20;
/// Complete downloads after which an adopted batch without a line of ours is foreign, though lines are missing.
const SHORT_DOWNLOADS: i32 = 3;
/// Forks joined per look.
pub(super) const RIPE: i64 = 500;
/// Runs told per statement.
const TELL: i64 = 1_000;
/// How often a request goes out again that the provider did not work on: it expired, or its batch was canceled.
const RETURNS: u32 = 20;
/// How long a request waits before it goes out again after an error of the provider's.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Lines of one class.
#[derive(Default)]
struct Chunk {
    answered: Lines,
    retried: Lines,
    returned: Lines,
    failed: Lines,
    lines: usize,
    bytes: usize,
}

/// Cuts a stream of bytes into lines, whatever the chunks it comes in.
#[derive(Default)]
struct Cutter {
    rest: Vec<u8>,
    /// The rest of a line that is too long is passed over.
    skipping: bool,
}

impl Cutter {
    /// Calls back with each line that these bytes complete.
    fn push(&mut self, bytes: &[u8], mut line: impl FnMut(Vec<u8>)) {
        let mut pieces = bytes.split(|b| *b == b'\n').peekable();
        while let Some(piece) = pieces.next() {
            if !self.skipping {
                self.rest.extend_from_slice(piece);
                if self.rest.len() > LINE_BYTES {
                    self.rest = Vec::new();
                    self.skipping = true;
                }
            }
            if pieces.peek().is_some() {
                let done = std::mem::take(&mut self.rest);
                if !std::mem::take(&mut self.skipping) {
                    line(done);
                }
            }
        }
    }

    /// What was left without a line end.
    fn finish(self) -> Option<Vec<u8>> {
        (!self.skipping && !self.rest.is_empty()).then_some(self.rest)
    }
}

/// Ingests a stream of results.
pub(super) async fn ingest(
    ctx: &Ctx,
    provider: &Arc<dyn BatchProvider>,
    name: &str,
    batch: &HeldBatch,
    succeeded: Option<i64>,
    mut stream: BoxStream<'static, Result<Bytes, ProviderError>>,
) -> Result<Look, StoreError> {
    let mut reading = Reading {
        ctx,
        provider,
        batch,
        chunk: Chunk::default(),
        verified: batch.verified,
        strangers: 0,
        seen: Seen::of(batch.n),
    };
    let mut cutter = Cutter::default();
    let mut cut = None;
    if batch.verified {
        tell(ctx, batch).await?;
    }
    while let Some(bytes) = stream.next().await {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            // One of several files is gone: like one without lines.
            Err(ProviderError::NotFound) => continue,
            Err(error) => {
                cut = Some(error.to_string());
                break;
            }
        };
        let mut lines = Vec::new();
        cutter.push(&bytes, |line| lines.push(line));
        for line in lines {
            if !reading.line(line).await? {
                return Ok(Look::Done);
            }
        }
    }
    if cut.is_none()
        && let Some(line) = cutter.finish()
        && !reading.line(line).await?
    {
        return Ok(Look::Done);
    }
    reading.settle().await?;
    if cut.is_none() && reading.is_foreign() {
        tracing::warn!(batch = %batch.provider_batch_id, "an adopted batch is somebody else's");
        ctx.store().foreign(batch.batch, batch.fence).await?;
        ctx.board.wake_submitters();
        return Ok(Look::Done);
    }
    finish(ctx, name, batch, cut, succeeded).await
}

/// The results of a batch that has ended are not found. That passes; if it does not, they are gone (archived, or deleted), and count like
/// complete downloads that lack every item.
pub(super) async fn gone(ctx: &Ctx, name: &str, batch: &HeldBatch, succeeded: Option<i64>) -> Result<Look, StoreError> {
    if batch.verified {
        tell(ctx, batch).await?;
    }
    finish(ctx, name, batch, None, succeeded).await
}

/// That a request was submitted is told before that it was answered, should the submitter not have come to it yet.
pub(super) async fn tell(ctx: &Ctx, batch: &HeldBatch) -> Result<(), StoreError> {
    while ctx.store().tell_submitted(batch.batch, TELL).await? > 0 {}
    Ok(())
}

/// Closes the batch, or says what is missing. `succeeded` is what the provider counts.
async fn finish(
    ctx: &Ctx,
    name: &str,
    batch: &HeldBatch,
    cut: Option<String>,
    succeeded: Option<i64>,
) -> Result<Look, StoreError> {
    if settled(ctx, name, batch).await? {
        return Ok(Look::Done);
    }
    let open = ctx.store().open_items(batch.batch).await?;
    if cut.is_none() && give_up_holes(ctx, name, batch, &open, succeeded).await? && settled(ctx, name, batch).await? {
        return Ok(Look::Done);
    }
    let open = open.len();
    let why = cut.unwrap_or_else(|| "the results ended".into());
    let note = format!("{open} items are in no result yet: {why}");
    tracing::warn!(provider = name, batch = %batch.provider_batch_id, note, "the results are read again");
    let wait = pause(ctx, batch).saturating_mul(1 << batch.downloads.clamp(0, 6));
    Ok(Look::Later(wait.min(ctx.config().batch_poll_interval), Some(note)))
}

pub(super) async fn settled(ctx: &Ctx, name: &str, batch: &HeldBatch) -> Result<bool, StoreError> {
    let settled = ctx.store().settle(batch.batch, batch.fence).await?;
    if settled {
        count(&ctx.counters().batches_completed, 1);
        tracing::info!(provider = name, batch = %batch.provider_batch_id, items = batch.n, "a batch is settled");
        ctx.board.wake_submitters();
    }
    Ok(settled)
}

/// Once enough complete downloads agree on which items are in no result, they are given up. `false`: not yet.
async fn give_up_holes(
    ctx: &Ctx,
    name: &str,
    batch: &HeldBatch,
    open: &[i32],
    succeeded: Option<i64>,
) -> Result<bool, StoreError> {
    let mut digest = Sha256::new();
    open.iter().for_each(|item| digest.update(item.to_be_bytes()));
    let Some(holes) = ctx.store().holes(batch.batch, batch.fence, &digest.finalize()).await? else { return Ok(false) };
    let verdict = policy::holes(&holes, succeeded, ctx.config().missing_after);
    let (provider, provider_batch) = (name, &batch.provider_batch_id);
    match verdict {
        Verdict::Wait => return Ok(false),
        // Whose it was cannot be found out any more; if it was ours, it was paid.
        Verdict::Unpaid if batch.verified => {
            tracing::warn!(provider, batch = %provider_batch, items = open.len(), "requests without a result go out again");
            for some in open.chunks(CHUNK_LINES) {
                let mut lines = Lines::default();
                some.iter().for_each(|item| lines.push(*item, ItemStatus::Missing, None, None));
                ctx.store().retry(batch.batch, batch.fence, &lines, true, budget(ctx), RETRY_DELAY).await?;
                for error in &mut lines.error {
                    *error = Some("the provider's results lack it again and again".to_owned());
                }
                ctx.store().fail(batch.batch, batch.fence, &lines).await?;
            }
        }
        Verdict::Unpaid | Verdict::Paid => {
            tracing::error!(provider, batch = %provider_batch, items = open.len(), "requests were paid for and have no result");
            for some in open.chunks(CHUNK_LINES) {
                ctx.store().park_missing(batch.batch, batch.fence, some).await?;
            }
        }
    }
    join(ctx).await;
    Ok(true)
}

/// Joins forks whose branches may have ended. What cannot be joined is no reason to read results again: the next sweep tries.
pub(super) async fn join(ctx: &Ctx) {
    match ctx.store().sweep_forks(RIPE).await {
        Ok(true) => ctx.runs_ready(),
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, "branches could not be joined yet"),
    }
}

/// Failures of a request that are tried again.
fn budget(ctx: &Ctx) -> u32 {
    ctx.config().model_attempts.saturating_sub(1)
}

/// Why a request fails that went out again and again.
fn not_worked_on() -> String {
    format!("the provider did not work on it (expired or canceled) in {} batches", RETURNS + 1)
}

/// What a line says of an adopted batch.
enum Proof {
    Ours,
    /// Somebody else's, or not ours to read any more.
    Foreign,
    Neither,
}

/// Which items of a batch have been read: a bit for each.
struct Seen(Vec<u64>);

impl Seen {
    fn of(items: i32) -> Self {
        Self(vec![0; usize::try_from(items).unwrap_or(0).div_ceil(64)])
    }

    /// Whether it is read for the first time. One that no such batch has is not.
    fn insert(&mut self, item: i32) -> bool {
        let Ok(item) = usize::try_from(item) else { return false };
        let Some(bits) = self.0.get_mut(item / 64) else { return false };
        let bit = 1 << (item % 64);
        let first = *bits & bit == 0;
        *bits |= bit;
        first
    }
}

struct Reading<'a> {
    ctx: &'a Ctx,
    provider: &'a Arc<dyn BatchProvider>,
    batch: &'a HeldBatch,
    chunk: Chunk,
    verified: bool,
    /// Lines of an adopted batch that name somebody else's request.
    strangers: usize,
    /// Items of this reading: a line that comes twice counts once.
    seen: Seen,
}

impl Reading<'_> {
    /// Takes one line. `false`: the batch is not ours.
    async fn line(&mut self, line: Vec<u8>) -> Result<bool, StoreError> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(true);
        }
        let read = self.provider.read_line(&line);
        if !self.verified {
            match self.verify(&read).await? {
                Proof::Ours => self.verified = true,
                Proof::Foreign => return Ok(false),
                Proof::Neither => return Ok(true),
            }
        }
        let Some(id) = read.custom_id.filter(|id| id.intent == self.batch.intent) else {
            tracing::warn!(batch = self.batch.batch, bytes = line.len(), "a result line of nobody was passed over");
            return Ok(true);
        };
        if !self.seen.insert(id.index) {
            return Ok(true);
        }
        self.chunk.lines += 1;
        self.chunk.bytes += line.len();
        self.sort(id.index, read.outcome, line);
        if self.chunk.lines >= CHUNK_LINES || self.chunk.bytes >= CHUNK_BYTES {
            self.settle().await?;
        }
        Ok(true)
    }

    /// One line of ours proves that the batch is; one that cannot be read proves nothing. Nor does one of somebody else's prove the
    /// contrary: it may have strayed in.
    async fn verify(&mut self, line: &Line) -> Result<Proof, StoreError> {
        let store = self.ctx.store();
        if line.custom_id.is_some_and(|id| id.intent == self.batch.intent) {
            let verified = store.verified(self.batch.batch, self.batch.fence).await?;
            tell(self.ctx, self.batch).await?;
            return Ok(if verified { Proof::Ours } else { Proof::Foreign });
        }
        if !line.named {
            return Ok(Proof::Neither);
        }
        if let Some(id) = line.custom_id
            && store.hand_over(self.batch.batch, self.batch.fence, id.intent).await?
        {
            tracing::warn!(batch = %self.batch.provider_batch_id, "an adopted batch is that of another send of ours");
            self.ctx.board.wake_submitters();
            return Ok(Proof::Foreign);
        }
        self.strangers += 1;
        Ok(Proof::Neither)
    }

    /// Whether a complete download had only lines of somebody else's: as many as were asked for, unless it is short again and again.
    fn is_foreign(&self) -> bool {
        let enough = usize::try_from(self.batch.n).unwrap_or(usize::MAX);
        !self.verified && self.strangers > 0 && (self.strangers >= enough || self.batch.downloads >= SHORT_DOWNLOADS)
    }

    fn sort(&mut self, item: i32, outcome: LineOutcome, line: Vec<u8>) {
        match outcome {
            LineOutcome::Succeeded { model, usage } => {
                let (model, usage) = (model.map(|name| kept_name(&name)), usage.filter(Usage::is_sane));
                let cost = usage.zip(model.as_deref()).and_then(|(usage, model)| self.provider.cost(model, &usage));
                let lines = &mut self.chunk.answered;
                lines.push(item, ItemStatus::Succeeded, Some(line), None);
                lines.input_tokens.push(usage.map(|u| u.input_tokens));
                lines.output_tokens.push(usage.map(|u| u.output_tokens));
                lines.cache_write_tokens.push(usage.map(|u| u.cache_write_tokens));
                lines.cache_read_tokens.push(usage.map(|u| u.cache_read_tokens));
                lines.nano_usd.push(cost);
                lines.model.push(model);
            }
            LineOutcome::Errored { retryable: true, message } => {
                self.chunk.retried.push(item, ItemStatus::Errored, Some(line), Some(message));
            }
            LineOutcome::Errored { retryable: false, message } => {
                self.chunk.failed.push(item, ItemStatus::Errored, Some(line), Some(message));
            }
            LineOutcome::Expired => {
                self.chunk.returned.push(item, ItemStatus::Expired, Some(line), Some(not_worked_on()))
            }
            LineOutcome::Canceled => {
                self.chunk.returned.push(item, ItemStatus::Canceled, Some(line), Some(not_worked_on()));
            }
            LineOutcome::Unknown => {
                let why = "the provider's result line cannot be read by this version; it is kept".to_owned();
                self.chunk.failed.push(item, ItemStatus::Unreadable, Some(line), Some(why));
            }
        }
    }

    /// Commits what has been gathered.
    async fn settle(&mut self) -> Result<(), StoreError> {
        let chunk = std::mem::take(&mut self.chunk);
        let (store, batch, fence) = (self.ctx.store(), self.batch.batch, self.batch.fence);
        let mut settled = 0;
        if !chunk.answered.item.is_empty() {
            let done = store.answer(batch, fence, &chunk.answered).await?;
            settled += done.items;
            if done.waits > 0 {
                self.ctx.runs_ready();
            }
        }
        // Not worked on by the provider: goes out again, and counts against no budget of errors; but not for ever.
        if !chunk.returned.item.is_empty() {
            settled += store.retry(batch, fence, &chunk.returned, false, RETURNS, Duration::ZERO).await?.items;
            settled += self.fail(&chunk.returned).await?;
        }
        if !chunk.retried.item.is_empty() {
            settled += store.retry(batch, fence, &chunk.retried, true, budget(self.ctx), RETRY_DELAY).await?.items;
            // What is left is over budget.
            settled += self.fail(&chunk.retried).await?;
        }
        if !chunk.failed.item.is_empty() {
            settled += self.fail(&chunk.failed).await?;
        }
        count(&self.ctx.counters().results_completed, settled.max(0) as u64);
        Ok(())
    }

    /// Fails the runs of these requests. Answers how many items were settled.
    async fn fail(&self, lines: &Lines) -> Result<i64, StoreError> {
        let store = self.ctx.store();
        let done = store.fail(self.batch.batch, self.batch.fence, lines).await?;
        if done.waits > 0 {
            count(&self.ctx.counters().runs_failed, done.waits.max(0) as u64);
            tracing::warn!(runs = done.waits, code = FailureCode::ModelFailed.as_str(), "requests failed for good");
            // Branches may be among them.
            join(self.ctx).await;
        }
        Ok(done.items)
    }
}

impl Lines {
    pub(super) fn push(&mut self, item: i32, outcome: ItemStatus, line: Option<Vec<u8>>, error: Option<String>) {
        self.item.push(item);
        self.outcome.push(outcome.code());
        self.line.push(line);
        self.error.push(error.map(|e| crate::domain::failure::cut(&e)));
    }
}

#[cfg(test)]
#[cfg(feature = "anthropic")]
mod cuts;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut cutter, mut lines) = (Cutter::default(), Vec::new());
        for piece in pieces {
            cutter.push(piece, |line| lines.push(line));
        }
        lines.extend(cutter.finish());
        lines
    }

    #[test]
    fn a_last_line_without_an_end_counts() {
        assert_eq!(cut(&[b"a\nb"]), [b"a".to_vec(), b"b".to_vec()]);
        assert_eq!(cut(&[b"a\n"]), [b"a".to_vec()]);
        assert!(cut(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_the_stream_is_cut(text in "[a-c\n]{0,60}", places in proptest::collection::vec(0usize..60, 0..6)) {
            let mut places: Vec<usize> = places.into_iter().map(|p| p.min(text.len())).collect();
            places.extend([0, text.len()]);
            places.sort_unstable();
            let pieces: Vec<&[u8]> = places.windows(2).map(|w| &text.as_bytes()[w[0]..w[1]]).collect();
            prop_assert_eq!(cut(&pieces), cut(&[text.as_bytes()]));
        }
    }
}
