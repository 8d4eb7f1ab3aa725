//! One held run, from its claim to the moment it is let go: a value in a pipeline of small steps (load, admit, execute,
//! settle, commit, advance). Runs in a task of the advancer's.

use super::board::Kind;
use super::ctx::Ctx;
use super::joining::{self, Merged};
use super::taking_over::{self, Stored, Upgraded};
use super::{committer, timekeeper};
use crate::domain::{Change, Failure, FailureCode, InvalidJson, JoinRule, JsonText, Ordinal, Position, Transition};
use crate::domain::{Verdict, WaitKind};
use crate::observe::count;
use crate::run::builtin;
use crate::run::flow::{Executed, Flow, Image, Live, Outcome, StepInfo};
use crate::run::trampoline::{self, Held};
use crate::store::{Answer, Claimed};
use ractor::RpcReplyPort;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// How long a run waits for another look at the slots for blocking steps.
const SLOT_PAUSE: Duration = Duration::from_millis(100);
/// How long a run that needs a newer build waits before this node may claim it again: each claim is told in the ledger.
const NEWER_PAUSE: Duration = Duration::from_secs(5);

/// Runs the steps of a claimed run until it is over, suspended, released, or not ours any more.
pub(super) async fn run(ctx: Arc<Ctx>, claimed: Claimed) {
    let Some(served) = ctx.shared.flows.get(claimed.workflow) else { return };
    if let Some(Answer::Line(name, _)) = &claimed.answer
        && !ctx.shared.providers.contains_key(name)
    {
        // The answer was paid for, and another node can read it.
        let reason = format!("its answer is from provider `{name}`, which this node does not have");
        ask(&ctx, trampoline::park(&held(&claimed), "unknown-provider", reason)).await;
        return;
    }
    let mut held = held(&claimed);
    let answer = match claimed.wait.map(|_| answer(&ctx, claimed.answer)).transpose() {
        Ok(answer) => answer,
        Err(error) => {
            let failure = Failure::new(FailureCode::Undecodable, held.position.step.clone(), error.to_string());
            return commit_last(&ctx, &held, failure).await;
        }
    };
    let (input, mut state) = (claimed.input, claimed.state);
    let (run_id, asked) = (&claimed.run_id, claimed.asked.as_ref());
    let stored = Stored { run_id, input: &input, answer: answer.as_ref(), asked };
    if served.upgrades() {
        match taking_over::upgrade(&ctx, &served, &held, state.as_ref(), &stored).await {
            Upgraded::Held(now, its_state) => (held, state) = (*now, its_state),
            Upgraded::Refused(why) => {
                ask(&ctx, trampoline::park(&held, "upgrade-failed", why)).await;
                return;
            }
            Upgraded::Lost => return,
        }
    }
    let mut unsaved = false;
    if let Some(fork) = merging(claimed.wait, asked) {
        match joining::merge(&ctx, &served, held.run, fork, state.clone(), &stored).await {
            Merged::Unchanged => {}
            Merged::Changed(merged) => (state, unsaved) = (Some(merged), true),
            Merged::Conflict(why) => {
                let failure = Failure::new(FailureCode::ForkConflict, held.position.step.clone(), why);
                return commit_last(&ctx, &held, failure).await;
            }
            Merged::Refused(why) => {
                ask(&ctx, trampoline::park(&held, "upgrade-failed", why)).await;
                return;
            }
            Merged::Newer => return hand_back(&ctx, &held, NEWER_PAUSE).await,
            // Not held any more, so released before long.
            Merged::Lost => return,
        }
    }
    held.position = taking_over::resumed(held.position, &stored);
    if answer.is_some() {
        count(&ctx.counters().runs_resumed, 1);
    }
    let run_id: Arc<str> = claimed.run_id.into();
    let image = Image { run: claimed.run, run_id: run_id.clone(), input, state, unsaved };
    match served.flow.load(image) {
        Ok(live) => steps(&ctx, &*served.flow, held, live, &run_id).await,
        Err(failure) => commit_last(&ctx, &held, failure).await,
    }
}

fn held(claimed: &Claimed) -> Held {
    let (step, arg, stack) = (claimed.step.clone(), claimed.arg.clone(), claimed.stack.clone());
    Held {
        run: claimed.run,
        parent: claimed.parent,
        fence: claimed.fence,
        cursor: claimed.cursor,
        position: Position { step, arg, stack },
        errors: claimed.errors,
        starts: claimed.starts,
    }
}

/// The fork whose branches' states are to be merged, if the run comes from one.
fn merging(wait: Option<(Ordinal, WaitKind)>, asked: Option<&JsonText>) -> Option<Ordinal> {
    let (ordinal, kind) = wait?;
    let rule = asked?.read::<JoinRule>().ok()?;
    (kind == WaitKind::Fork && rule.merge).then_some(ordinal)
}

/// The answer that a run waited for.
fn answer(ctx: &Ctx, answer: Option<Answer>) -> Result<JsonText, InvalidJson> {
    let lost = |why: String| InvalidJson::Malformed { what: "the answer of a wait", why };
    match answer.ok_or_else(|| lost("it is not stored".into()))? {
        Answer::Body(body) => Ok(body),
        Answer::Line(name, line) => {
            let provider = ctx.shared.providers.get(&name);
            provider.ok_or_else(|| lost(format!("no provider `{name}` is registered here")))?.reply(&line)
        }
    }
}

async fn steps(ctx: &Arc<Ctx>, flow: &dyn Flow, mut held: Held, mut live: Box<dyn Live>, run_id: &str) {
    loop {
        let transition = match trampoline::admit(flow.manifest(), &held) {
            Err(instead) => *instead,
            Ok(info) => {
                let slot = match slot(ctx, info) {
                    Ok(slot) => slot,
                    Err(NoSlot) => return hand_back(ctx, &held, SLOT_PAUSE).await,
                };
                let begun = Instant::now();
                let executed;
                if builtin::find(&info.name).is_some() {
                    let arg = held.position.arg.clone();
                    executed = builtin::call(&info.name, arg, run_id, &ctx.shared.tools).await;
                } else {
                    (live, executed) = match execute(live, info, &held, slot).await {
                        Some((Some(live), executed)) => (live, executed),
                        Some((None, executed)) => return give_up(ctx, &held, info, executed, begun).await,
                        None => return,
                    };
                }
                let more = !ctx.leaving();
                trampoline::settle(&held, info, executed, begun.elapsed(), more, rand::random())
            }
        };
        match commit(ctx, &held, transition).await {
            Some(next) => held = next,
            None => return,
        }
    }
}

/// Every thread for blocking steps is taken.
struct NoSlot;

/// The slot for the user code of a blocking step; others need none.
fn slot(ctx: &Ctx, info: &StepInfo) -> Result<Option<OwnedSemaphorePermit>, NoSlot> {
    if !info.blocking {
        return Ok(None);
    }
    ctx.shared.blocking.clone().try_acquire_owned().map(Some).map_err(|_| NoSlot)
}

/// Lets go of a run whose step cannot begin now, so that its start is not counted against the crash limit.
async fn hand_back(ctx: &Ctx, held: &Held, pause: Duration) {
    match ctx.store().hand_back(held.run, held.fence, pause).await {
        Ok(_) => {
            ctx.board.timekeeper.send(timekeeper::Msg::Due(pause));
        }
        Err(error) => tracing::warn!(run = held.run.0, %error, "a run was not handed back: it is released as not held"),
    }
}

/// A blocking step ran out of time: its thread goes on, but its run is let go, and what it may still do is fenced.
async fn give_up(ctx: &Ctx, held: &Held, info: &StepInfo, executed: Executed, begun: Instant) {
    let transition = trampoline::settle(held, info, executed, begun.elapsed(), false, rand::random());
    commit(ctx, held, transition).await;
}

/// Runs the user code of one step, within its timeout, where it belongs. Without the live run: its thread still has it.
/// `None`: this task is being ended.
async fn execute(
    mut live: Box<dyn Live>,
    info: &StepInfo,
    held: &Held,
    slot: Option<OwnedSemaphorePermit>,
) -> Option<(Option<Box<dyn Live>>, Executed)> {
    let (step, arg, cursor) = (held.position.step.clone(), held.position.arg.clone(), held.cursor);
    let Some(slot) = slot else {
        let executed = within(info.policy.timeout, live.as_mut(), &step, arg, cursor).await;
        return Some((Some(live), executed));
    };
    let runtime = tokio::runtime::Handle::current();
    let work = tokio::task::spawn_blocking(move || {
        let _slot = slot;
        let executed = runtime.block_on(live.call(&step, arg, cursor));
        (live, executed)
    });
    let limit = info.policy.timeout.unwrap_or(Duration::MAX);
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done.ok().map(|(live, executed)| (Some(live), executed)),
        Err(_) => Some((None, Executed::bare(Outcome::TimedOut))),
    }
}

async fn within(
    timeout: Option<std::time::Duration>,
    live: &mut dyn Live,
    step: &str,
    arg: Option<JsonText>,
    cursor: i32,
) -> Executed {
    let Some(limit) = timeout else { return live.call(step, arg, cursor).await };
    match tokio::time::timeout(limit, live.call(step, arg, cursor)).await {
        Ok(executed) => executed,
        Err(_) => live.timed_out(),
    }
}

/// Commits a transition and answers what is held afterwards; `None` when the run is to be forgotten.
async fn commit(ctx: &Ctx, held: &Held, transition: Transition) -> Option<Held> {
    let next = trampoline::advance(held.clone(), transition.clone());
    let due = match &transition.change {
        Change::Release { delay, .. } => Some(*delay),
        _ => None,
    };
    match ask(ctx, transition).await {
        Verdict::Committed => {
            if let Some(delay) = due.filter(|delay| !delay.is_zero()) {
                ctx.board.timekeeper.send(timekeeper::Msg::Due(delay));
            }
            next
        }
        Verdict::Superseded | Verdict::Unknown => None,
        Verdict::Refused(why) => {
            let code =
                if why.starts_with("unknown-cause") { FailureCode::UnknownCause } else { FailureCode::LimitExceeded };
            commit_last(ctx, held, Failure::new(code, held.position.step.clone(), why)).await;
            None
        }
    }
}

/// Ends the run with a failure.
async fn commit_last(ctx: &Ctx, held: &Held, failure: Failure) {
    let verdict = ask(ctx, trampoline::fail(held, failure)).await;
    if let Verdict::Refused(why) = verdict {
        tracing::error!(run = held.run.0, why, actor = %Kind::Committer, "a run could not even be failed: it is let go");
    }
}

/// Hands a transition to the committer and waits for its verdict. A port that is dropped is an unknown outcome.
async fn ask(ctx: &Ctx, transition: Transition) -> Verdict {
    let (port, verdict) = oneshot::channel();
    ctx.board.committer.send(committer::Msg::Commit(Box::new(transition), RpcReplyPort::from(port)));
    verdict.await.unwrap_or(Verdict::Unknown)
}
