//! One live call, from its claim to its books: sent once, and what became of it is written down, however long that takes.

use super::ctx::Ctx;
use crate::domain::{ItemStatus, NodeId};
use crate::observe::count;
use crate::provider::{BatchProvider, Called, LiveReply, Refusal, Usage, kept_name};
use crate::store::{CallKey, Fate, StoreError, Unanswered};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a request waits, at the least, before it goes out again after an error of the provider's.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// How long to leave things alone after an error of the database's.
const ERROR_PAUSE: Duration = Duration::from_millis(200);
/// How often an answer that the database refuses is offered to it.
const OFFERS: u32 = 5;
/// Forks joined per look.
const RIPE: i64 = 500;

/// A call that this node is to make now.
#[derive(Debug)]
pub(crate) struct HeldCall {
    pub key: CallKey,
    /// The body of the request.
    pub request: String,
}

/// Makes a call and writes down what became of it.
pub(super) async fn call(ctx: &Arc<Ctx>, name: &str, account: i32, held: HeldCall) {
    let Some(provider) = ctx.shared.providers.get(name) else { return };
    let deadline = Instant::now() + ctx.config().live_limit;
    let called = provider.live(&held.request, deadline).await;
    match &called {
        Called::Answered(_) => {}
        Called::Refused(refused) => tracing::warn!(provider = name, why = refused.why, "a live call was refused"),
        Called::Failed { why, .. } => tracing::warn!(provider = name, why, "a live call failed"),
        Called::Unreadable { why, .. } => {
            tracing::error!(provider = name, why, "the answer of a live call cannot be read")
        }
        Called::Ambiguous(why) => tracing::warn!(provider = name, why, "nobody knows what became of a live call"),
    }
    let mut tries = 0;
    // What is not written down is lost with this task, and might be paid for again.
    while let Err(error) = settle(ctx, provider, account, held.key, &called, tries >= OFFERS).await {
        tracing::warn!(provider = name, %error, "what became of a live call is not written down yet");
        tries += u32::from(matches!(error, StoreError::Refused { .. }));
        tokio::time::sleep(ERROR_PAUSE).await;
    }
}

async fn settle(
    ctx: &Ctx,
    provider: &Arc<dyn BatchProvider>,
    account: i32,
    key: CallKey,
    called: &Called,
    refused: bool,
) -> Result<(), StoreError> {
    let store = ctx.store();
    let what = match called {
        Called::Answered(reply) if !refused => return answered(ctx, provider, key, reply).await,
        Called::Answered(reply) => {
            let why = "the database does not take the answer; it is kept".to_owned();
            unanswered(ItemStatus::Unreadable, true, true, why, Some(reply.body.as_str().as_bytes().to_vec()))
        }
        Called::Refused(refused) => {
            let last = match refused.because {
                Refusal::Moment => {
                    store.pause_calls(account, refused.retry_after).await?;
                    false
                }
                Refusal::Account => {
                    store.park_account(account, &refused.why).await?;
                    false
                }
                Refusal::Size | Refusal::Request(_) | Refusal::Every => true,
            };
            // What the provider did not work on counts against no budget.
            unanswered(ItemStatus::Errored, last, last, refused.why.clone(), None)
        }
        Called::Failed { why, retry_after } => {
            if retry_after.is_some() {
                store.pause_calls(account, *retry_after).await?;
            }
            unanswered(ItemStatus::Errored, false, true, why.clone(), None)
        }
        Called::Unreadable { why, body } => {
            unanswered(ItemStatus::Unreadable, true, true, why.clone(), Some(body.to_vec()))
        }
        Called::Ambiguous(why) => unanswered(ItemStatus::Missing, false, true, why.clone(), None),
    };
    write_down(ctx, key, &what).await
}

fn unanswered(outcome: ItemStatus, last: bool, counts: bool, why: String, line: Option<Vec<u8>>) -> Unanswered {
    Unanswered { outcome, last, counts, note: crate::domain::failure::cut(&why), line }
}

async fn answered(
    ctx: &Ctx,
    provider: &Arc<dyn BatchProvider>,
    key: CallKey,
    reply: &LiveReply,
) -> Result<(), StoreError> {
    let (model, usage) = (reply.model.as_deref().map(kept_name), reply.usage.filter(Usage::is_sane));
    let model = model.as_deref();
    let cost = usage.zip(model).and_then(|(usage, model)| provider.live_cost(model, &usage));
    if ctx.store().answer_call(key, reply.body.as_str(), model, usage, cost).await? {
        ctx.runs_ready();
    }
    count(&ctx.counters().live_calls_answered, 1);
    Ok(())
}

async fn write_down(ctx: &Ctx, key: CallKey, what: &Unanswered) -> Result<(), StoreError> {
    let budget = ctx.config().model_attempts.saturating_sub(1);
    match ctx.store().call_unanswered(key, what, budget, RETRY_DELAY).await? {
        Fate::Again | Fate::Parked | Fate::Nothing => {}
        Fate::Failed => {
            count(&ctx.counters().runs_failed, 1);
            // A branch may be among them.
            if ctx.store().sweep_forks(RIPE).await? {
                ctx.runs_ready();
            }
        }
    }
    Ok(())
}

/// Settles the calls that carry a node's name and that nobody makes any more: nobody knows what became of them.
pub(super) async fn lose(
    ctx: &Ctx,
    node: NodeId,
    account: Option<i32>,
    held: &[CallKey],
    why: &str,
) -> Result<(), StoreError> {
    loop {
        let lost = ctx.store().unheld_calls(node, account, held).await?;
        if lost.is_empty() {
            return Ok(());
        }
        tracing::warn!(%node, calls = lost.len(), why, "nobody knows what became of live calls");
        for key in lost {
            write_down(ctx, key, &unanswered(ItemStatus::Missing, false, true, why.to_owned(), None)).await?;
        }
        ctx.board.wake_callers();
    }
}
