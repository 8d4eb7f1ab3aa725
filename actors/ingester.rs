//! The ingester of one provider: asks how far its batches are and reads the results of those that have ended. Each batch is
//! claimed by fence and handled in a task of its own, so that a bad one delays no other.
//!
//! Who talks to it: the submitter when a batch was accepted, its own timer and tasks. It owns the claims of its tasks. A
//! restart loses nothing: claims that no task holds are released, and reading results may begin again from any cut.

use super::ctx::Ctx;
use super::{Handled, results, turning_back};
use crate::provider::{BatchProvider, BatchState, ProviderError};
use crate::store::{HeldBatch, StoreError};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Batches handled at the same time.
const BATCHES: usize = 4;
/// How soon a young batch is asked for, at the least.
const SOONEST: Duration = Duration::from_secs(1);
/// How long to leave things alone after an error.
const ERROR_PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct Ingester;

#[derive(Clone)]
pub(crate) struct Args {
    pub ctx: Arc<Ctx>,
    pub provider: String,
}

/// What the ingester is told.
pub(crate) enum Msg {
    /// A batch may be due.
    Wake,
    /// Time to look without having been told.
    Tick,
    /// A look has claimed these; the next one is due in that long.
    Claimed(Vec<HeldBatch>, Option<Duration>),
    /// A task is done with its batch.
    Over(i64),
}

pub(crate) struct State {
    args: Args,
    /// Held by tasks.
    held: HashSet<i64>,
    tasks: JoinSet<()>,
    looking: bool,
    again: bool,
}

impl Actor for Ingester {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        if let Some(slot) = args.ctx.board.ingesters.get(&args.provider) {
            slot.enter(myself);
        }
        Ok(State { args, held: HashSet::new(), tasks: JoinSet::new(), looking: false, again: false })
    }

    async fn post_start(&self, myself: ActorRef<Msg>, _: &mut State) -> Handled {
        myself.cast(Msg::Tick)?;
        Ok(())
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Handled {
        match message {
            Msg::Wake => state.again = true,
            Msg::Tick => {
                state.again = true;
                myself.send_after(state.args.ctx.config().poll_interval, || Msg::Tick);
            }
            Msg::Claimed(batches, due) => state.claimed(&myself, batches, due),
            Msg::Over(batch) => {
                state.held.remove(&batch);
                while state.tasks.try_join_next().is_some() {}
                state.again = true;
            }
        }
        state.look(&myself);
        Ok(())
    }
}

impl State {
    fn look(&mut self, myself: &ActorRef<Msg>) {
        let room = BATCHES.saturating_sub(self.held.len());
        if self.looking || room == 0 || self.args.ctx.draining() || !std::mem::take(&mut self.again) {
            return;
        }
        self.looking = true;
        let (args, myself, held) = (self.args.clone(), myself.clone(), self.held.iter().copied().collect::<Vec<_>>());
        tokio::spawn(async move {
            let (batches, due) = match claim(&args, &held, room as i64).await {
                Ok(claimed) => claimed,
                Err(error) => {
                    tracing::warn!(provider = args.provider, %error, "no batch could be looked at");
                    (Vec::new(), Some(ERROR_PAUSE))
                }
            };
            let _ = myself.cast(Msg::Claimed(batches, due));
        });
    }

    fn claimed(&mut self, myself: &ActorRef<Msg>, batches: Vec<HeldBatch>, due: Option<Duration>) {
        self.looking = false;
        for batch in batches {
            self.held.insert(batch.batch);
            let over = Over { batch: batch.batch, myself: myself.clone() };
            let args = self.args.clone();
            self.tasks.spawn(async move {
                let _over = over;
                handle(&args, batch).await;
            });
        }
        if let Some(due) = due {
            myself.send_after(due.max(Duration::from_millis(5)), || Msg::Wake);
        }
    }
}

/// Tells the ingester that a task has ended, in whatever way.
struct Over {
    batch: i64,
    myself: ActorRef<Msg>,
}

impl Drop for Over {
    fn drop(&mut self) {
        let _ = self.myself.cast(Msg::Over(self.batch));
    }
}

/// Releases what is not held, claims what is due, and says when the next one is.
async fn claim(args: &Args, held: &[i64], room: i64) -> Result<(Vec<HeldBatch>, Option<Duration>), StoreError> {
    let Some(account) = args.ctx.account(&args.provider).await? else { return Ok((Vec::new(), None)) };
    let (store, node) = (args.ctx.store(), args.ctx.node);
    store.release_batches(account, node, held).await?;
    let batches = store.claim_batches(account, node, room).await?;
    let due = store.next_check(account).await?;
    Ok((batches, due.map(|ms| Duration::from_millis(ms.max(0) as u64))))
}

/// One look at one batch.
async fn handle(args: &Args, batch: HeldBatch) {
    let Some(provider) = args.ctx.shared.providers.get(&args.provider) else { return };
    let (after, note) = match look(&args.ctx, provider, &args.provider, &batch).await {
        Ok(Look::Done) => return,
        Ok(Look::Later(after, note)) => (after, note),
        Err(error) => {
            tracing::warn!(provider = args.provider, batch = batch.batch, %error, "a batch could not be handled");
            (ERROR_PAUSE, None)
        }
    };
    if let Err(error) = args.ctx.store().let_go(batch.batch, batch.fence, after, note.as_deref()).await {
        tracing::debug!(%error, "a batch was not let go: it is released as not held");
    }
}

/// How old a batch is, in milliseconds, when it is over at every provider: a day, and an hour for clocks and clean-up.
const GONE_MS: i64 = 25 * 3_600_000;

/// What a look leads to.
pub(super) enum Look {
    /// Settled, or not this batch after all.
    Done,
    /// To be looked at again.
    Later(Duration, Option<String>),
}

async fn look(ctx: &Ctx, provider: &Arc<dyn BatchProvider>, name: &str, batch: &HeldBatch) -> Result<Look, StoreError> {
    let polled = match provider.poll(&batch.provider_batch_id).await {
        Ok(polled) => polled,
        // A batch that is not found when it must be over will not be found again: its results count as read, and as lacking all.
        Err(ProviderError::NotFound) if batch.age_ms > GONE_MS => return results::gone(ctx, name, batch, None).await,
        Err(error) => return Ok(unanswered(ctx, name, batch, &error)),
    };
    match polled.state {
        BatchState::Ended => {}
        BatchState::InProgress => {
            cancel_unwanted(ctx, provider, name, batch).await?;
            return Ok(Look::Later(pause(ctx, batch), None));
        }
        BatchState::Refused(refused) => return turning_back::turn_back(ctx, name, batch, refused).await,
        BatchState::Unknown(word) => {
            return Ok(Look::Later(pause(ctx, batch), Some(format!("the provider says `{word}`"))));
        }
    }
    let url = polled.results_url.as_deref();
    if !ctx.store().ended(batch.batch, batch.fence, url).await? {
        return Ok(Look::Done);
    }
    match provider.results(&batch.provider_batch_id, url).await {
        Ok(stream) => results::ingest(ctx, provider, name, batch, polled.succeeded, stream).await,
        Err(ProviderError::NotFound) => results::gone(ctx, name, batch, polled.succeeded).await,
        Err(error) => Ok(unanswered(ctx, name, batch, &error)),
    }
}

/// A batch that nobody waits for any more (its runs were canceled, or have their answers from another attempt) need not be worked on.
/// Asked for until the provider agrees; what it finishes all the same is booked like anything else.
async fn cancel_unwanted(
    ctx: &Ctx,
    provider: &Arc<dyn BatchProvider>,
    name: &str,
    batch: &HeldBatch,
) -> Result<(), StoreError> {
    if !ctx.store().unwanted(batch.batch, batch.fence).await? {
        return Ok(());
    }
    match provider.cancel(&batch.provider_batch_id).await {
        Ok(()) => {
            tracing::info!(provider = name, batch = %batch.provider_batch_id, "a batch that nobody waits for is canceled");
            ctx.store().canceling(batch.batch, batch.fence).await?;
        }
        Err(error) => {
            tracing::warn!(provider = name, batch = %batch.provider_batch_id, %error, "a batch was not canceled")
        }
    }
    Ok(())
}

/// Nothing was learned: the batch stays as it is. A 404 on an id that the provider gave us passes.
fn unanswered(ctx: &Ctx, name: &str, batch: &HeldBatch, error: &ProviderError) -> Look {
    tracing::warn!(provider = name, batch = %batch.provider_batch_id, %error, "nothing was learned of a batch");
    let asked = match error {
        ProviderError::Unavailable { retry_after, .. } => retry_after.unwrap_or_default(),
        ProviderError::NotFound | ProviderError::Unauthorized(_) | ProviderError::Unreadable(_) => Duration::ZERO,
    };
    Look::Later(pause(ctx, batch).max(asked), Some(error.to_string()))
}

/// A tenth of the batch's age, within bounds: a young batch is asked for soon, an old one as often as is configured.
pub(super) fn pause(ctx: &Ctx, batch: &HeldBatch) -> Duration {
    let most = ctx.config().batch_poll_interval;
    Duration::from_millis(batch.age_ms.max(0) as u64 / 10).clamp(SOONEST.min(most), most)
}
