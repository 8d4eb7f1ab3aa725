//! The janitor: declares nodes dead that have made no progress for their lease, and takes over what dead nodes held, in
//! bounded batches, for as long as there is anything. It also removes records that were kept long enough, and looks for older
//! versions that were registered meanwhile. Nobody talks to it but its timer. It owns what it saw of the others and
//! since when; a restart forgets that, which only makes it slower to judge. It never judges before it has itself looked
//! without interruption for a lease, so that an outage of the database makes nobody look dead to the first that comes back.

use super::ctx::Ctx;
use super::{Handled, advancer, calling};
use crate::domain::NodeId;
use crate::observe::count;
use crate::store::{Peer, StoreError};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs taken over per statement.
const BATCH: i64 = 1_000;

pub(crate) struct Janitor;

#[derive(Clone)]
pub(crate) struct Args {
    pub ctx: Arc<Ctx>,
}

/// What the janitor is told.
pub(crate) enum Msg {
    /// Time to look around.
    Tick,
    /// What was seen: the living, or that the database did not answer.
    Seen(Result<Vec<Peer>, StoreError>),
    /// Time to look for records that were kept long enough.
    Sweep,
}

/// What is remembered of a node: its progress, and since when it has been that.
struct Known {
    progress: i64,
    since: Instant,
}

pub(crate) struct State {
    ctx: Arc<Ctx>,
    /// Since when looks have succeeded without a gap.
    looking_since: Option<Instant>,
    last_look: Option<Instant>,
    known: HashMap<NodeId, Known>,
}

impl Actor for Janitor {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        args.ctx.board.janitor.enter(myself);
        Ok(State { ctx: args.ctx, looking_since: None, last_look: None, known: HashMap::new() })
    }

    async fn post_start(&self, myself: ActorRef<Msg>, _: &mut State) -> Handled {
        myself.cast(Msg::Tick)?;
        myself.cast(Msg::Sweep)?;
        Ok(())
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Handled {
        match message {
            Msg::Tick => state.look(&myself),
            Msg::Seen(seen) => state.seen(&myself, seen),
            Msg::Sweep => state.sweep(&myself),
        }
        Ok(())
    }
}

impl State {
    fn interval(&self) -> Duration {
        self.ctx.config().lease / 4
    }

    fn look(&self, myself: &ActorRef<Msg>) {
        let (ctx, myself) = (self.ctx.clone(), myself.clone());
        tokio::spawn(async move {
            let seen = ctx.store().peers(ctx.node).await;
            let _ = myself.cast(Msg::Seen(seen));
        });
    }

    fn sweep(&self, myself: &ActorRef<Msg>) {
        let (ctx, myself) = (self.ctx.clone(), myself.clone());
        tokio::spawn(async move {
            if let Err(error) = sweep(&ctx).await {
                tracing::warn!(%error, "records that were kept long enough are not removed yet");
            }
            myself.send_after(ctx.config().retention.interval, || Msg::Sweep);
        });
    }

    fn seen(&mut self, myself: &ActorRef<Msg>, seen: Result<Vec<Peer>, StoreError>) {
        let now = Instant::now();
        let suspects = match seen {
            Ok(peers) => self.judge(peers, now),
            Err(error) => {
                tracing::warn!(%error, "the other nodes could not be looked at");
                self.looking_since = None;
                Vec::new()
            }
        };
        let (ctx, myself, interval) = (self.ctx.clone(), myself.clone(), self.interval());
        tokio::spawn(async move {
            if let Err(error) = clean(&ctx, suspects).await {
                tracing::warn!(%error, "what dead nodes held could not be taken over yet");
            }
            myself.send_after(interval, || Msg::Tick);
        });
    }

    /// Which of them have shown no progress for their lease while this node looked on without a gap.
    fn judge(&mut self, peers: Vec<Peer>, now: Instant) -> Vec<(NodeId, i64)> {
        // A gap between two looks as long as a lease is an interruption too: this node was asleep.
        let gap = self.last_look.is_some_and(|last| now - last > self.ctx.config().lease);
        if gap || self.looking_since.is_none() {
            self.looking_since = Some(now);
            self.known.clear();
        }
        self.last_look = Some(now);
        self.known.retain(|id, _| peers.iter().any(|peer| peer.id == *id));
        let mut suspects = Vec::new();
        for peer in peers {
            let known = self.known.entry(peer.id).or_insert(Known { progress: peer.progress, since: now });
            if known.progress != peer.progress {
                *known = Known { progress: peer.progress, since: now };
            }
            if now - known.since > peer.lease {
                suspects.push((peer.id, peer.progress));
            }
        }
        suspects
    }
}

/// Roots removed per statement, at most.
const ROOTS: i64 = 200;

/// Adds up the counts, and removes what was kept long enough.
async fn sweep(ctx: &Ctx) -> Result<(), StoreError> {
    let (store, terms) = (ctx.store(), ctx.config().retention);
    store.fold().await?;
    while let Some(term) = terms.tombstones {
        let gone = store.forget(ms(term), ROOTS).await?;
        if gone < ROOTS {
            break;
        }
    }
    let removed = remove(ctx).await?;
    if removed > 0 {
        tracing::info!(runs = removed, "the records of runs were kept long enough and are removed");
    }
    Ok(())
}

/// A term that nothing outlives stands for longer ones: a thousand years.
fn ms(term: Duration) -> i64 {
    const LONGEST: i64 = 1_000 * 366 * 24 * 3_600_000;
    i64::try_from(term.as_millis()).unwrap_or(LONGEST).min(LONGEST)
}

/// Removes roots in bounded statements, the oldest first. A statement that the server does not finish is repeated with fewer roots; one
/// root that is too much for a statement is passed over. Answers how many are gone.
async fn remove(ctx: &Ctx) -> Result<i64, StoreError> {
    let (store, terms) = (ctx.store(), ctx.config().retention);
    let (done, failed) = (terms.completed.map(ms), terms.failed.map(ms));
    let (mut after, mut limit, mut removed) = ((0, 0), ROOTS, 0);
    while done.or(failed).is_some() && !ctx.draining() {
        match store.remove(after, done, failed, limit).await {
            Ok(some) => {
                (after, removed) = (some.after, removed + some.roots);
                if some.looked < limit {
                    break;
                }
                limit = ROOTS.min(limit * 2);
            }
            Err(error) if error.is_connection() => return Err(error),
            Err(error) if limit > 1 => {
                tracing::debug!(%error, limit, "too much to remove in one statement");
                limit = (limit / 8).max(1);
            }
            Err(error) => {
                let Some(next) = store.next_over(after).await? else { break };
                tracing::warn!(run = next.1, %error, "the records of a run cannot be removed, and are passed over");
                after = next;
            }
        }
    }
    Ok(removed)
}

/// Declares the suspects dead, if they still stand where they were seen, and empties the hands of all dead nodes.
async fn clean(ctx: &Ctx, suspects: Vec<(NodeId, i64)>) -> Result<(), StoreError> {
    let store = ctx.store();
    for (node, progress) in suspects {
        if store.declare_dead(node, progress).await? {
            tracing::warn!(%node, "a node made no progress for its lease and is declared dead");
        }
    }
    let mut taken = 0;
    for dead in store.dead_holders().await? {
        store.free_leases(dead).await?;
        calling::lose(ctx, dead, None, &[], "the node that made it died").await?;
        loop {
            let batch = store.take_over_runs(dead, ctx.node, BATCH).await?;
            taken += batch;
            if batch < BATCH as u64 {
                break;
            }
        }
    }
    if taken > 0 {
        count(&ctx.counters().runs_taken_over, taken);
        tracing::info!(runs = taken, "runs were taken over from dead nodes");
        ctx.board.advancer.send(advancer::Msg::Wake);
    }
    ctx.board.wake_submitters();
    if ctx.shared.flows.look(store).await? {
        store.serves(ctx.node, &ctx.shared.flows.keys()).await?;
        tracing::info!("there are runs of older versions to take over that nobody had registered before");
        ctx.board.advancer.send(advancer::Msg::Wake);
    }
    Ok(())
}
