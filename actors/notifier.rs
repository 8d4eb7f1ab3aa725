//! The notifier: carries hints between nodes. It listens on a connection of its own and turns notifications into wake-ups,
//! proves from time to time that it still hears (a notification to itself), and sends this node's own hints, coalesced to one
//! per channel and moment, each in a statement of its own after the COMMIT it tells of.
//!
//! Who talks to it: whoever has committed something that others may act on. It owns the listening task. A restart, a lost
//! notification or a deaf connection cost latency only: everything is polled as well.

use super::ctx::Ctx;
use super::{Handled, advancer};
use crate::store::{Hint, Listener};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Hints are sent at most this often per channel.
const MOMENT: Duration = Duration::from_millis(10);
/// How often the listener proves that it hears.
const SELF_TEST: Duration = Duration::from_secs(30);
/// How long a notification to oneself may take.
const DEAF_AFTER: Duration = Duration::from_secs(5);

pub(crate) struct Notifier;

#[derive(Clone)]
pub(crate) struct Args {
    pub ctx: Arc<Ctx>,
}

/// What the notifier is told.
pub(crate) enum Msg {
    /// Tell the other nodes.
    Tell(Hint),
    /// The moment of gathering hints is over.
    Send,
    /// Another node, or this one, said so.
    Heard(Hint),
}

pub(crate) struct State {
    ctx: Arc<Ctx>,
    hints: HashSet<Hint>,
    _listening: JoinSet<()>,
}

impl Actor for Notifier {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        args.ctx.board.notifier.enter(myself.clone());
        let mut listening = JoinSet::new();
        listening.spawn(listen(args.ctx.clone(), myself));
        Ok(State { ctx: args.ctx, hints: HashSet::new(), _listening: listening })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Handled {
        match message {
            Msg::Tell(hint) => state.tell(&myself, hint),
            Msg::Send => state.send(),
            Msg::Heard(hint) => state.heard(hint),
        }
        Ok(())
    }
}

impl State {
    fn tell(&mut self, myself: &ActorRef<Msg>, hint: Hint) {
        if self.hints.is_empty() {
            myself.send_after(MOMENT, || Msg::Send);
        }
        self.hints.insert(hint);
    }

    fn send(&mut self) {
        let (ctx, hints) = (self.ctx.clone(), std::mem::take(&mut self.hints));
        tokio::spawn(async move {
            for hint in hints {
                if let Err(error) = ctx.store().nudge(hint).await {
                    tracing::debug!(%error, "a notification was not sent");
                }
            }
        });
    }

    fn heard(&self, hint: Hint) {
        match hint {
            Hint::Runs => {
                self.ctx.board.advancer.send(advancer::Msg::Wake);
            }
            Hint::Requests => self.ctx.board.wake_submitters(),
            Hint::Calls => self.ctx.board.wake_callers(),
        }
    }
}

/// Listens for ever; a listener that fails or has gone deaf is replaced, at most about once a second.
async fn listen(ctx: Arc<Ctx>, notifier: ActorRef<Msg>) {
    loop {
        match Listener::connect(ctx.store().database()).await {
            Ok(listener) => hear(&ctx, &notifier, listener).await,
            Err(error) => tracing::debug!(%error, "no connection to listen on"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        // What was missed in between is looked for.
        for hint in Hint::ALL {
            let _ = notifier.cast(Msg::Heard(hint));
        }
    }
}

/// Passes on what one listener hears, until it fails or does not hear its own voice.
async fn hear(ctx: &Ctx, notifier: &ActorRef<Msg>, mut listener: Listener) {
    let mut quiet = Duration::ZERO;
    loop {
        match tokio::time::timeout(if quiet.is_zero() { SELF_TEST } else { DEAF_AFTER }, listener.next()).await {
            Ok(Ok(hint)) => {
                quiet = Duration::ZERO;
                if notifier.cast(Msg::Heard(hint)).is_err() {
                    return;
                }
            }
            Ok(Err(error)) => return tracing::debug!(%error, "the listening connection failed"),
            Err(_) if quiet.is_zero() => {
                quiet = SELF_TEST;
                let _ = ctx.store().nudge(Hint::Runs).await;
            }
            Err(_) => return tracing::warn!("the listener has gone deaf: it is replaced"),
        }
    }
}
