//! The caller of one provider: makes live calls, as many at a time as is configured. Each call's intent is committed, under this node's
//! name, before its first byte; each has a task of its own.
//!
//! Who talks to it: whoever has committed a request that may be live, its own timer and tasks. It owns the calls of its tasks. A restart
//! loses those: of calls that carry this node's name and that no task holds nobody knows what became, and the wait's own rule says
//! whether they are made again. It never decides that; it never sends anything twice by itself.

use super::Handled;
use super::calling::{self, HeldCall};
use super::ctx::Ctx;
use crate::store::{self, CallKey, StoreError};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long to leave things alone after an error.
const ERROR_PAUSE: Duration = Duration::from_millis(200);
/// How soon a look is followed by another one by itself.
const SOONEST: Duration = Duration::from_millis(20);

pub(crate) struct Caller;

#[derive(Clone)]
pub(crate) struct Args {
    pub ctx: Arc<Ctx>,
    pub provider: String,
}

/// What the caller is told.
pub(crate) enum Msg {
    /// There may be a call to make.
    Wake,
    /// Time to look without having been told.
    Tick,
    /// A look has claimed these for an account; the next one is due in that long.
    Claimed(Option<i32>, Vec<HeldCall>, Option<Duration>),
    /// A task is done with its call.
    Over(CallKey),
    /// The node is draining: answers when no call is under way.
    Drain(RpcReplyPort<()>),
}

pub(crate) struct State {
    args: Args,
    /// Held by tasks.
    held: HashSet<CallKey>,
    tasks: JoinSet<()>,
    looking: bool,
    again: bool,
    drains: Vec<RpcReplyPort<()>>,
}

impl Actor for Caller {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        if let Some(slot) = args.ctx.board.callers.get(&args.provider) {
            slot.enter(myself);
        }
        let (held, tasks) = (HashSet::new(), JoinSet::new());
        Ok(State { args, held, tasks, looking: false, again: false, drains: Vec::new() })
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
            Msg::Claimed(account, calls, due) => state.claimed(&myself, account, calls, due),
            Msg::Over(call) => state.over(call),
            Msg::Drain(port) => state.drains.push(port),
        }
        state.look(&myself);
        state.drained();
        Ok(())
    }
}

impl State {
    fn look(&mut self, myself: &ActorRef<Msg>) {
        let room = self.args.ctx.config().live_calls.saturating_sub(self.held.len());
        if self.looking || room == 0 || self.args.ctx.draining() || !std::mem::take(&mut self.again) {
            return;
        }
        self.looking = true;
        let (args, myself, held) = (self.args.clone(), myself.clone(), self.held.iter().copied().collect::<Vec<_>>());
        tokio::spawn(async move {
            let (account, calls, due) = match claim(&args, &held, room).await {
                Ok(claimed) => claimed,
                Err(error) => {
                    tracing::warn!(provider = args.provider, %error, "no live call could be looked for");
                    (None, Vec::new(), Some(ERROR_PAUSE))
                }
            };
            let _ = myself.cast(Msg::Claimed(account, calls, due));
        });
    }

    fn claimed(&mut self, myself: &ActorRef<Msg>, account: Option<i32>, calls: Vec<HeldCall>, due: Option<Duration>) {
        self.looking = false;
        for call in calls {
            self.held.insert(call.key);
            let over = Over { call: call.key, myself: myself.clone() };
            let args = self.args.clone();
            self.tasks.spawn(async move {
                let _over = over;
                if let Some(account) = account {
                    calling::call(&args.ctx, &args.provider, account, call).await;
                }
            });
        }
        if let Some(due) = due {
            myself.send_after(due.max(SOONEST), || Msg::Wake);
        }
    }

    fn over(&mut self, call: CallKey) {
        self.held.remove(&call);
        while self.tasks.try_join_next().is_some() {}
        self.again = true;
    }

    /// Answers those who wait for the end of all calls. A look that is under way may still bring some.
    fn drained(&mut self) {
        if self.held.is_empty() && !self.looking {
            for port in self.drains.drain(..) {
                let _ = port.send(());
            }
        }
    }
}

/// Tells the caller that a task has ended, in whatever way.
struct Over {
    call: CallKey,
    myself: ActorRef<Msg>,
}

impl Drop for Over {
    fn drop(&mut self) {
        let _ = self.myself.cast(Msg::Over(self.call));
    }
}

type Claimed = (Option<i32>, Vec<HeldCall>, Option<Duration>);

/// Settles what was lost, claims what is to go live, and says when the next one is.
async fn claim(args: &Args, held: &[CallKey], room: usize) -> Result<Claimed, StoreError> {
    let ctx = &args.ctx;
    let Some(live_ms) = ctx.live_ms(&args.provider) else { return Ok((None, Vec::new(), None)) };
    let Some(account) = ctx.account(&args.provider).await? else { return Ok((None, Vec::new(), None)) };
    calling::lose(ctx, ctx.node, Some(account), held, "it was cut off on its own node").await?;
    let of = store::Caller { provider: &args.provider, account, node: ctx.node, live_ms };
    let mut due = ctx.store().due_calls(of, room).await?;
    let Some(provider) = ctx.shared.providers.get(&args.provider) else { return Ok((None, Vec::new(), None)) };
    due.iter_mut().for_each(|call| call.estimate = provider.live_estimate(&call.request));
    let claimed = if due.is_empty() { Vec::new() } else { ctx.store().claim_calls(of, &due).await? };
    let mut requests: HashMap<_, _> = due.into_iter().map(|call| ((call.run, call.wait), call.request)).collect();
    let held = |key: CallKey| Some(HeldCall { key, request: requests.remove(&(key.run, key.wait))? });
    let calls: Vec<_> = claimed.into_iter().filter_map(held).collect();
    // A full look is followed by another one when a call is over.
    let due = if calls.len() == room { None } else { ctx.store().next_call(of).await? };
    Ok((Some(account), calls, due.map(|ms| Duration::from_millis(ms.max(0) as u64))))
}
