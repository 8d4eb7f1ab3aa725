//! One held run, from its claim to the moment it is let go: a value in a pipeline of small steps (load, admit, execute,
//! settle, commit, advance). Runs in a task of the advancer's.

use super::board::Kind;
use super::ctx::Ctx;
use super::{committer, timekeeper};
use crate::domain::{Change, Failure, FailureCode, InvalidJson, JsonText, Position, Transition, Verdict};
use crate::observe::count;
use crate::run::flow::{Executed, Flow, Image, Live, StepInfo};
use crate::run::trampoline::{self, Held};
use crate::store::Claimed;
use ractor::RpcReplyPort;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

/// Runs the steps of a claimed run until it is over, suspended, released, or not ours any more.
pub(super) async fn run(ctx: Arc<Ctx>, claimed: Claimed) {
    let Some(flow) = ctx.shared.flows.get(&claimed.workflow).cloned() else { return };
    let (held, image) = match take_up(&ctx, claimed) {
        Ok(taken) => taken,
        Err((held, failure)) => return commit_last(&ctx, &held, failure).await,
    };
    match flow.load(image) {
        Ok(live) => steps(&ctx, &*flow, held, live).await,
        Err(failure) => commit_last(&ctx, &held, failure).await,
    }
}

/// The argument of the step, with the answer that it waited for.
fn take_up(ctx: &Ctx, claimed: Claimed) -> Result<(Held, Image), (Held, Failure)> {
    let image =
        Image { run: claimed.run, run_id: claimed.run_id.as_str().into(), input: claimed.input, state: claimed.state };
    let mut held = Held {
        run: claimed.run,
        fence: claimed.fence,
        cursor: claimed.cursor,
        position: Position { step: claimed.step, arg: claimed.arg, stack: claimed.stack },
        errors: claimed.errors,
        starts: claimed.starts,
    };
    if claimed.waited {
        match answer(ctx, claimed.answer) {
            Ok(answer) => {
                count(&ctx.counters().runs_resumed, 1);
                held.position.arg = trampoline::resume_arg(held.position.arg.as_ref(), Some(&answer));
            }
            Err(error) => {
                let failure = Failure::new(FailureCode::Undecodable, held.position.step.clone(), error.to_string());
                return Err((held, failure));
            }
        }
    }
    Ok((held, image))
}

fn answer(ctx: &Ctx, answer: Option<(String, Vec<u8>)>) -> Result<JsonText, InvalidJson> {
    let lost = |why: String| InvalidJson::Malformed { what: "the answer of a wait", why };
    let (name, line) = answer.ok_or_else(|| lost("it is not stored".into()))?;
    let provider =
        ctx.shared.providers.get(&name).ok_or_else(|| lost(format!("no provider `{name}` is registered here")))?;
    provider.reply(&line)
}

async fn steps(ctx: &Arc<Ctx>, flow: &dyn Flow, mut held: Held, mut live: Box<dyn Live>) {
    loop {
        let transition = match trampoline::admit(flow.manifest(), &held) {
            Err(instead) => *instead,
            Ok(info) => {
                let begun = Instant::now();
                let executed;
                (live, executed) = match execute(ctx, live, info, &held).await {
                    Some(done) => done,
                    None => return,
                };
                let more = !ctx.draining();
                trampoline::settle(&held, info, executed, begun.elapsed(), more, rand::random())
            }
        };
        match commit(ctx, &held, transition).await {
            Some(next) => held = next,
            None => return,
        }
    }
}

/// Runs the user code of one step, within its timeout, where it belongs. `None`: this task is being ended.
async fn execute(
    ctx: &Arc<Ctx>,
    mut live: Box<dyn Live>,
    info: &StepInfo,
    held: &Held,
) -> Option<(Box<dyn Live>, Executed)> {
    let (step, arg, cursor) = (held.position.step.clone(), held.position.arg.clone(), held.cursor);
    if info.blocking {
        let permit = ctx.shared.blocking.clone().acquire_owned().await.ok()?;
        let (runtime, timeout) = (tokio::runtime::Handle::current(), info.policy.timeout);
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let executed = runtime.block_on(within(timeout, live.as_mut(), &step, arg, cursor));
            (live, executed)
        });
        return work.await.ok();
    }
    let executed = within(info.policy.timeout, live.as_mut(), &step, arg, cursor).await;
    Some((live, executed))
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
