//! The submitter of one provider: fills batches and sends them, and finds again those whose send is in doubt. One node holds
//! the submit lease of an account; the others' submitters try to get it now and then.
//!
//! Who talks to it: whoever has committed a request (`Wake`), its own timer, its own round. It owns the lease and one round
//! at a time, in a task that ends with it. A restart loses nothing: a new one gives the old lease up, takes it again under a
//! higher fence, and treats what was being sent as ambiguous. It never sends anything twice blindly.

use super::ctx::Ctx;
use super::policy::{self, Policy};
use super::reconcile::{self, Finding};
use super::sending::{Attempt, Sending};
use super::{Handled, ingester};
use crate::domain::BatchStatus;
use crate::observe::count;
use crate::provider::BatchProvider;
use crate::store::{Hint, Intent, Lease, Queue, StoreError};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Runs told per statement that their requests are at the provider.
const TELL: i64 = 1_000;
/// Requests that a budget lets go of per look, at most.
const RELEASE: i64 = 10_000;
/// Stands for the look for requests that budgets hold, likewise.
const HELD: i64 = -1;
/// How often that is looked for, at the most.
const RELEASE_PAUSE: Duration = Duration::from_millis(500);
/// Stands for the look for late batches among the looks for sends in doubt, whose keys are above 0.
const LATE: i64 = 0;
/// How long a send that was given up on may show up: two days, in milliseconds.
const LATE_MS: i64 = 2 * 86_400_000;
/// Requests put into their groups per statement, and statements per round: more than a batch takes.
const GROUPING: i64 = 200;
const GROUPING_ROUNDS: usize = 250;
/// Groups that are looked at per round.
const GROUPS: i64 = 100;
/// How long to leave things alone after an error.
const ERROR_PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct Submitter;

#[derive(Clone)]
pub(crate) struct Args {
    pub ctx: Arc<Ctx>,
    pub provider: String,
}

/// What the submitter is told.
pub(crate) enum Msg {
    /// There may be requests to send.
    Wake,
    /// Time to look without having been told.
    Tick,
    /// A round is over: the lease it holds, and when to look again.
    Round(Option<Lease>, Duration),
    /// Send nothing more; answer when no round is under way.
    Drain(RpcReplyPort<()>),
}

pub(crate) struct State {
    args: Args,
    lease: Option<Lease>,
    looks: Looks,
    busy: bool,
    again: bool,
    round: JoinSet<()>,
    drains: Vec<RpcReplyPort<()>>,
}

impl Actor for Submitter {
    type Msg = Msg;
    type State = State;
    type Arguments = Args;

    async fn pre_start(&self, myself: ActorRef<Msg>, args: Args) -> Result<State, ActorProcessingErr> {
        if let Some(slot) = args.ctx.board.submitters.get(&args.provider) {
            slot.enter(myself);
        }
        let (round, drains) = (JoinSet::new(), Vec::new());
        Ok(State { args, lease: None, looks: Looks::default(), busy: false, again: false, round, drains })
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
            Msg::Round(lease, after) => state.ended(&myself, lease, after),
            Msg::Drain(port) => state.drains.push(port),
        }
        state.next(&myself);
        Ok(())
    }
}

impl State {
    fn next(&mut self, myself: &ActorRef<Msg>) {
        if self.busy {
            return;
        }
        if self.args.ctx.draining() {
            for port in self.drains.drain(..) {
                let _ = port.send(());
            }
            return;
        }
        if !std::mem::take(&mut self.again) {
            return;
        }
        self.busy = true;
        while self.round.try_join_next().is_some() {}
        let Some(provider) = self.args.ctx.shared.providers.get(&self.args.provider).cloned() else { return };
        let round = Round { args: self.args.clone(), provider, lease: self.lease, looks: self.looks.clone() };
        let report = Report { myself: myself.clone(), result: None };
        self.round.spawn(round.run(report));
    }

    fn ended(&mut self, myself: &ActorRef<Msg>, lease: Option<Lease>, after: Duration) {
        self.busy = false;
        self.lease = lease;
        if after.is_zero() {
            self.again = true;
        } else {
            myself.send_after(after, || Msg::Wake);
        }
    }
}

/// Reports the end of a round, in whatever way it ends.
struct Report {
    myself: ActorRef<Msg>,
    result: Option<(Option<Lease>, Duration)>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let (lease, after) = self.result.take().unwrap_or((None, ERROR_PAUSE));
        let _ = self.myself.cast(Msg::Round(lease, after));
    }
}

/// When the listing may next be asked for a send in doubt.
#[derive(Clone, Default)]
struct Looks(Arc<Mutex<HashMap<i64, Instant>>>);

impl Looks {
    fn after(&self, batch: i64, wait: Duration) {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        looks.retain(|_, at| *at > Instant::now());
        looks.insert(batch, Instant::now() + wait);
    }

    /// How long to wait still.
    fn wait(&self, batch: i64) -> Option<Duration> {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        looks.get(&batch)?.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero())
    }
}

/// What to do after a look at the queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Look again after this.
    After(Duration),
    /// Look at those that are not suspected.
    Others,
}

struct Round {
    args: Args,
    provider: Arc<dyn BatchProvider>,
    lease: Option<Lease>,
    looks: Looks,
}

impl Round {
    async fn run(mut self, mut report: Report) {
        let after = match self.round().await {
            Ok(after) => after,
            Err(error) => {
                tracing::warn!(provider = self.args.provider, %error, "a round of the submitter failed");
                // The lease is in doubt too: it is given up before it is taken again.
                self.lease = None;
                ERROR_PAUSE
            }
        };
        report.result = Some((self.lease, after));
    }

    fn ctx(&self) -> &Ctx {
        &self.args.ctx
    }

    /// One look: settles what is in doubt, tells what was sent, sends what is to be sent. Answers when to look again.
    async fn round(&mut self) -> Result<Duration, StoreError> {
        let idle = self.ctx().config().poll_interval;
        let Some(account) = self.ctx().account(&self.args.provider).await? else { return Ok(idle) };
        let Some(lease) = self.lease(account).await? else { return Ok(idle) };
        let (doubtful, again) = self.settle_doubts(account, lease).await?;
        self.tell(account).await?;
        let Some(brake) = self.ctx().store().brake(lease, &self.args.provider).await? else {
            self.lease = None;
            return Ok(Duration::ZERO);
        };
        if brake.parked.is_some() || brake.paused.is_some() {
            return Ok(idle);
        }
        if let Some(wait) = brake.wait {
            return Ok(wait.min(again.unwrap_or(idle)));
        }
        // What budgets have room for by now. When one is renewed at the end of its day or month, this is to be seen at once.
        // Not with every request that is asked, since all that was spent is added up for it.
        let (renewed, idle) = match self.looks.wait(HELD) {
            Some(wait) => (None, idle.min(wait)),
            None => {
                self.looks.after(HELD, RELEASE_PAUSE);
                let (released, renewed) = self.ctx().store().release_held(RELEASE).await?;
                if released > 0 {
                    self.ctx().store().nudge(Hint::Calls).await?;
                }
                (renewed, idle)
            }
        };
        let idle = renewed.map_or(idle, |ms| idle.min(Duration::from_millis(ms.max(1) as u64)));
        let mut after = self.send(account, lease, true, &doubtful, idle).await?;
        if after == Next::Others {
            // Suspects wait for a number; the others need not.
            after = self.send(account, lease, false, &doubtful, idle).await?;
        }
        let after = match after {
            Next::After(after) => after,
            Next::Others => idle,
        };
        Ok(after.min(again.unwrap_or(idle)).min(idle))
    }

    /// Sends a batch, if one is worth sending.
    async fn send(
        &mut self,
        account: i32,
        lease: Lease,
        suspects: bool,
        doubtful: &[i32],
        idle: Duration,
    ) -> Result<Next, StoreError> {
        let (chosen, later) = self.choose(lease, suspects, idle).await?;
        let after = match chosen {
            None => later,
            Some((group, queue)) => {
                let (ctx, name, provider) = (self.ctx(), self.args.provider.as_str(), &self.provider);
                match (Sending { ctx, name, provider, lease, group: &group }).send(&queue, doubtful).await? {
                    Attempt::LeaseLost => {
                        self.lease = None;
                        Duration::ZERO
                    }
                    Attempt::Submitted => {
                        self.tell(account).await?;
                        Duration::ZERO
                    }
                    Attempt::Ambiguous | Attempt::Split | Attempt::Held => Duration::ZERO,
                    Attempt::NotSent => Duration::from_millis(50),
                    Attempt::Numberless if queue.company.is_some() => return Ok(Next::Others),
                    Attempt::Numberless => idle,
                }
            }
        };
        Ok(Next::After(after))
    }

    /// The group that is worth a batch now and has waited longest; without one, when to look again.
    async fn choose(
        &self,
        lease: Lease,
        suspects: bool,
        idle: Duration,
    ) -> Result<(Option<(String, Queue)>, Duration), StoreError> {
        let (store, name, config) = (self.ctx().store(), self.args.provider.as_str(), self.ctx().config());
        let (limit, live_ms) = (config.max_batch_requests as i64, self.ctx().live_ms(name));
        let (mut chosen, mut later) = (None::<(String, Queue)>, idle);
        for group in self.groups().await? {
            let queue = store.queue(name, &group, lease, limit, suspects, live_ms).await?;
            match policy::decide(&queue, config) {
                Policy::Nothing => {
                    let due = store.next_due(name, &group).await?;
                    later = later.min(due.map_or(idle, |ms| Duration::from_millis(ms.max(1) as u64)));
                }
                Policy::Wait(wait) => later = later.min(wait),
                Policy::Send if chosen.as_ref().is_some_and(|(_, other)| other.oldest_ms >= queue.oldest_ms) => {}
                Policy::Send => chosen = Some((group, queue)),
            }
        }
        Ok((chosen, later))
    }

    /// The groups of what waits. Requests of which nobody knows the group yet are put into theirs first.
    async fn groups(&self) -> Result<Vec<String>, StoreError> {
        if !self.provider.capabilities().grouped {
            return Ok(vec![String::new()]);
        }
        let (store, name) = (self.ctx().store(), self.args.provider.as_str());
        for _ in 0..GROUPING_ROUNDS {
            let found = store.ungrouped(name, GROUPING).await?;
            let (run, ordinal): (Vec<i64>, Vec<i32>) = found.iter().map(|w| (w.run.0, w.ordinal)).unzip();
            let group: Vec<String> = found.iter().map(|w| policy::group_name(self.provider.group(&w.body))).collect();
            if !found.is_empty() {
                store.group(&run, &ordinal, &group).await?;
            }
            if (found.len() as i64) < GROUPING {
                break;
            }
        }
        store.groups(name, GROUPS).await
    }

    /// The lease of the account, taken if nobody holds it.
    async fn lease(&mut self, account: i32) -> Result<Option<Lease>, StoreError> {
        if self.lease.is_some() {
            return Ok(self.lease);
        }
        let (store, node) = (self.ctx().store(), self.ctx().node);
        // An earlier submitter of this node may still be written down as the holder.
        store.resign(account, node).await?;
        let anew = self.ctx().shared.accounts.first_lease(account);
        let Some(lease) = store.acquire(account, node, anew).await? else { return Ok(None) };
        self.ctx().shared.accounts.leased(account);
        for intent in store.adopt_lease(lease).await? {
            self.take_up(lease, &intent).await?;
        }
        self.lease = Some(lease);
        Ok(Some(lease))
    }

    /// What an earlier holder of the lease left: never sent is given back at once, being sent is in doubt.
    async fn take_up(&self, lease: Lease, intent: &Intent) -> Result<(), StoreError> {
        let store = self.ctx().store();
        match intent.status {
            BatchStatus::Reserved | BatchStatus::Sealed => {
                store.give_back(intent.batch, lease, Duration::ZERO, "its sender was lost before it was sent").await?;
            }
            BatchStatus::Sending => {
                count(&self.ctx().counters().ambiguous_creates, 1);
                tracing::warn!(provider = self.args.provider, batch = intent.batch, "the sender of a batch was lost");
                store.ambiguous(intent.batch, lease, "its sender was lost while it was being sent").await?;
            }
            BatchStatus::Ambiguous
            | BatchStatus::Submitted
            | BatchStatus::AdoptedUnverified
            | BatchStatus::Ended
            | BatchStatus::Settled
            | BatchStatus::Abandoned
            | BatchStatus::Unknown(_) => {}
        }
        Ok(())
    }

    /// Looks for every ambiguous send. Answers the numbers of requests of those still in doubt, and when to look again.
    async fn settle_doubts(&self, account: i32, lease: Lease) -> Result<(Vec<i32>, Option<Duration>), StoreError> {
        let (store, certain) = (self.ctx().store(), self.provider.capabilities().certain_adoption);
        // Also those that were found foreign after an earlier holder of the lease had adopted them.
        let intents = store.adopt_lease(lease).await?;
        let (mut doubtful, mut again) = (Vec::new(), None::<Duration>);
        // Until it is proved, an adopted batch may be another's: its number stays taken.
        doubtful.extend(intents.iter().filter(|i| i.status == BatchStatus::AdoptedUnverified && !i.late).map(|i| i.n));
        for intent in intents.iter().filter(|i| i.status == BatchStatus::Ambiguous) {
            // However often this is woken, the provider's listing is asked for at its own pace.
            if let Some(wait) = self.looks.wait(intent.batch) {
                doubtful.push(intent.n);
                again = Some(again.map_or(wait, |a| a.min(wait)));
                continue;
            }
            let listed = match reconcile::listed_since(&*self.provider, intent.watermark_at, certain).await {
                Ok(listed) => listed,
                Err(error) => {
                    tracing::warn!(provider = self.args.provider, %error, "the listing was not to be had");
                    doubtful.push(intent.n);
                    self.looks.after(intent.batch, Duration::from_secs(1));
                    again = Some(again.map_or(Duration::from_secs(1), |a| a.min(Duration::from_secs(1))));
                    continue;
                }
            };
            let ids: Vec<String> = listed.iter().map(|b| b.id.clone()).collect();
            let known = store.known(account, &ids).await?;
            match reconcile::choose(intent, &listed, &known, self.ctx().config().quarantine, certain) {
                Finding::Adopt(id) => {
                    if store.adopt(intent.batch, lease, &id, certain).await? {
                        count(&self.ctx().counters().adopted, 1);
                        tracing::info!(provider = self.args.provider, batch = %id, "a batch was found again by listing");
                    }
                }
                Finding::GiveBack => {
                    let why = "not found at the provider within the quarantine";
                    store.give_back(intent.batch, lease, Duration::ZERO, why).await?;
                }
                Finding::LookAgain(after) => {
                    doubtful.push(intent.n);
                    self.looks.after(intent.batch, after);
                    again = Some(again.map_or(after, |a| a.min(after)));
                }
            }
        }
        if certain {
            // Nothing is found by its number: any may be sent again.
            doubtful.clear();
        }
        if doubtful.is_empty() {
            self.look_for_late_ones(account, lease).await?;
        }
        Ok((doubtful, again))
    }

    /// Sends that were given up on may show up all the same. Only while nothing is in doubt: then whose a batch is would be, too.
    async fn look_for_late_ones(&self, account: i32, lease: Lease) -> Result<(), StoreError> {
        if self.looks.wait(LATE).is_some() {
            return Ok(());
        }
        self.looks.after(LATE, self.ctx().config().late_sweep);
        let (store, certain) = (self.ctx().store(), self.provider.capabilities().certain_adoption);
        let lost = store.lost(lease, LATE_MS).await?;
        let Some(mark) = lost.iter().map(|intent| intent.watermark_at).min() else { return Ok(()) };
        let Ok(listed) = reconcile::listed_since(&*self.provider, mark, certain).await else { return Ok(()) };
        let ids: Vec<String> = listed.iter().map(|b| b.id.clone()).collect();
        let mut known = store.known(account, &ids).await?;
        for intent in lost {
            let since: Vec<_> = listed.iter().filter(|b| !reconcile::older(b, intent.watermark_at)).cloned().collect();
            let found = reconcile::choose(&intent, &since, &known, Duration::ZERO, certain);
            let Finding::Adopt(id) = found else { continue };
            if store.find_late(intent.batch, lease, &id, certain).await? {
                tracing::warn!(provider = self.args.provider, batch = %id, "a batch that was given up on may be there after all");
                known.push(id);
            }
        }
        Ok(())
    }

    /// Tells the runs of submitted batches.
    async fn tell(&self, account: i32) -> Result<(), StoreError> {
        let store = self.ctx().store();
        for batch in store.untold(account).await? {
            while store.tell_submitted(batch, TELL).await? > 0 {}
        }
        if let Some(ingester) = self.ctx().board.ingesters.get(&self.args.provider) {
            ingester.send(ingester::Msg::Wake);
        }
        Ok(())
    }
}

impl Ctx {
    /// The account that a provider's key belongs to; `None` while the provider does not say.
    pub(super) async fn account(&self, provider: &str) -> Result<Option<i32>, StoreError> {
        if let Some(account) = self.shared.accounts.read(provider) {
            return Ok(Some(account));
        }
        let Some(port) = self.shared.providers.get(provider) else { return Ok(None) };
        match port.identify().await {
            Ok(identity) => {
                let account = self.store().identify(&identity, provider).await?;
                match self.shared.accounts.write(provider, account) {
                    Ok(()) => Ok(Some(account)),
                    Err(other) => {
                        tracing::error!(provider, other, "two providers are one account: register it once");
                        Ok(None)
                    }
                }
            }
            Err(error) => {
                tracing::warn!(provider, %error, "the provider does not say who we are");
                Ok(None)
            }
        }
    }

    /// Tells this node and the others that there may be runs to claim.
    pub(super) fn runs_ready(&self) {
        self.board.advancer.send(super::advancer::Msg::Wake);
        self.board.notifier.send(super::notifier::Msg::Tell(Hint::Runs));
    }
}
