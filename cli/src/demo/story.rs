//! The story of a demo, from the first worker to the last run.

use super::fleet::Fleet;
use super::input::Inputs;
use super::speeches::Speeches;
use super::stage::Stage;
use super::teller::Teller;
use crate::args::DemoArgs;
use crate::error::CliError;
use crate::out::thousands;
use longhaul::domain::{BatchStatus, EventType};
use longhaul::store::{BatchTotals, Counts};
use longhaul::{Client, Enqueued};
use std::ops::Range;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How long nothing may move, beyond what the provider takes for a batch.
const PATIENCE: Duration = Duration::from_secs(600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Runs at most that the first worker is given alone, twice.
const FIRST_RUNS: usize = 128;
/// Runs that a worker can claim at once.
const FIRST_CLAIM: usize = 256;
/// Runs enqueued in one call.
const CHUNK: usize = 1_000;
/// How often a worker's runs are looked at before it is killed.
const AIM: Duration = Duration::from_millis(10);
/// How often the tables are looked at while runs are under way.
const LOOK: Duration = Duration::from_millis(100);
/// How long batches may take to be booked when all runs are over.
const BOOKING: Duration = Duration::from_secs(10);

/// How it went.
pub(super) struct Played {
    pub runs: i64,
    pub counts: Counts,
    pub took: Duration,
    /// How many runs the killed worker held.
    pub held: i64,
}

/// Which runs are enqueued when.
struct Parts {
    /// Completed before anything happens.
    first: Range<usize>,
    /// Their batch is the one whose reply is held.
    second: Range<usize>,
    /// Held by the worker when it is killed: enqueued while nobody else is there to claim them.
    third: Range<usize>,
    /// Enqueued after that.
    rest: Range<usize>,
}

impl Parts {
    fn of(runs: usize) -> Self {
        let part = (runs / 8).clamp(1, FIRST_RUNS);
        // A single run is the one whose reply is held.
        let first = if runs < 2 { 0 } else { part };
        let second = (first + part).min(runs);
        let third = (second + FIRST_CLAIM).min(runs);
        Self { first: 0..first, second: first..second, third: second..third, rest: third..runs }
    }
}

struct Player<'a> {
    inputs: &'a Inputs,
    client: &'a Client,
    fleet: &'a mut Fleet,
    teller: Teller,
    patience: Duration,
}

pub(super) async fn play(
    args: &DemoArgs,
    inputs: &Inputs,
    stage: &Stage,
    client: &Client,
    fleet: &mut Fleet,
) -> Result<Played, CliError> {
    let parts = Parts::of(inputs.runs());
    // A person at the terminal may take as long as the questions wait.
    let patience = if args.ask { DAY } else { PATIENCE + 3 * args.processing };
    let teller = fleet.teller().clone();
    let mut player = Player { inputs, client, fleet, teller, patience };
    let began = Instant::now();
    player.begin(parts.first).await?;
    let held = stage.sandbox.control().hold_next_create();
    player.enqueue(parts.second).await?;
    let batch = player.fleet.until("the provider waits for a batch", patience, held.accepted()).await?;
    player.teller.say(format!("the provider has accepted batch {batch} and holds its reply"));
    let holding = !parts.third.is_empty();
    player.enqueue(parts.third).await?;
    if holding {
        player.until_first_holds().await?;
    }
    for _ in 1..args.workers {
        let name = player.fleet.start()?;
        player.teller.say(format!("{name} started"));
    }
    let runs_held = player.kill().await?;
    held.release();
    let name = player.fleet.start()?;
    player.teller.say(format!("{name} started in its place"));
    player.enqueue(parts.rest).await?;
    let counts = player.finish().await?;
    let took = began.elapsed();
    player.booked().await?;
    Ok(Played { runs: inputs.runs() as i64, counts, took, held: runs_held })
}

impl Player<'_> {
    /// The first worker completes some runs, so that it is in the middle of its work when it is killed.
    async fn begin(&mut self, first: Range<usize>) -> Result<(), CliError> {
        let name = self.fleet.start()?;
        self.teller.say(format!("{name} started"));
        if first.is_empty() {
            return Ok(());
        }
        let runs = first.len() as u64;
        self.enqueue(first).await?;
        let Some(mut heard) = self.fleet.first() else { return Ok(()) };
        let completed = heard.wait_for(|heard| heard.completed >= runs);
        let completed = self.fleet.until("the first runs are under way", self.patience, completed).await?;
        // It cannot fail: a worker that ended was noticed above.
        let completed = completed.map_or(0, |heard| heard.completed);
        self.teller.say(format!("{name} has completed {}", count(completed as i64, "run")));
        Ok(())
    }

    async fn enqueue(&mut self, runs: Range<usize>) -> Result<(), CliError> {
        let number = runs.len();
        let mut next = runs.start;
        while next < runs.end {
            let chunk = next..(next + CHUNK).min(runs.end);
            next = chunk.end;
            let made = self.client.enqueue_many::<Speeches>(chunk.map(|run| self.inputs.run(run)).collect()).await?;
            for made in made {
                match made? {
                    (_, Enqueued::Created) => {}
                    (key, Enqueued::Existing(_)) => {
                        tracing::warn!(run = key.0, "two runs have the same id and input: they are one");
                    }
                }
            }
        }
        if number > 0 {
            self.teller.say(format!("{} enqueued", count(number as i64, "run")));
        }
        Ok(())
    }

    /// Waits until the first worker holds runs: it reads their documents then, which takes it a while.
    async fn until_first_holds(&mut self) -> Result<(), CliError> {
        let client = self.client;
        let holds = async {
            while held_by_first(client).await? == 0 {
                sleep(AIM).await;
            }
            Ok::<_, CliError>(())
        };
        self.fleet.until("runs are claimed", self.patience, holds).await?
    }

    /// Kills the first worker with SIGKILL, and answers how many runs it held.
    async fn kill(&mut self) -> Result<i64, CliError> {
        self.fleet.kill_first().await?;
        let held = held_by_first(self.client).await?;
        let runs = match held {
            0 => "it held no run".to_owned(),
            held => format!("it held {}", count(held, "run")),
        };
        self.teller.say(format!(
            "worker-1 killed with SIGKILL: {runs}, and the provider had accepted a batch whose reply it never read"
        ));
        Ok(held)
    }

    /// Waits until all runs are over.
    async fn finish(&mut self) -> Result<Counts, CliError> {
        let total = self.inputs.runs() as i64;
        let (mut last, mut moved) = (None, Instant::now());
        let mut news = News::default();
        loop {
            let looked = Instant::now();
            let (counts, batches) = (self.client.counts_enqueued().await?, self.client.batch_totals().await?);
            let takeovers = self.client.count_events(Some(EventType::RunTakenOver)).await?;
            self.teller.state(counts.completed.max(0) as u64, state(&counts, &batches, takeovers));
            news.tell(&self.teller, &batches, takeovers);
            if counts.completed + counts.failed + counts.canceled + counts.parked >= total {
                self.teller.say(format!("all runs are over, {} completed", thousands(counts.completed)));
                return Ok(counts);
            }
            self.fleet.look_after().await?;
            let now = Some((counts, batches, takeovers));
            if now != last {
                (last, moved) = (now, Instant::now());
            } else if moved.elapsed() > self.patience {
                return Err(CliError::Stalled { what: "runs are under way", seconds: self.patience.as_secs() });
            }
            // Whole tables are read: they should not be what keeps the server busy.
            sleep(LOOK.max(looked.elapsed() * 10)).await;
        }
    }

    /// Waits until every batch is accounted for; if one is not, the audit will say so.
    async fn booked(&mut self) -> Result<(), CliError> {
        let deadline = Instant::now() + BOOKING;
        let over = |status: BatchStatus| matches!(status, BatchStatus::Settled | BatchStatus::Abandoned);
        while Instant::now() < deadline {
            if self.client.batches(u32::MAX).await?.iter().all(|batch| over(batch.status)) {
                break;
            }
            self.fleet.look_after().await?;
            sleep(LOOK).await;
        }
        Ok(())
    }
}

/// What is told once, when it is seen in the tables.
#[derive(Default)]
struct News {
    takeover: bool,
    adoption: bool,
}

impl News {
    fn tell(&mut self, teller: &Teller, batches: &BatchTotals, takeovers: i64) {
        if takeovers > 0 && !std::mem::replace(&mut self.takeover, true) {
            teller.say("worker-1 is declared dead, and what it held is taken over");
        }
        if batches.adopted > 0 && !std::mem::replace(&mut self.adoption, true) {
            teller.say("the batch in doubt is found again in the provider's list: it is not sent a second time");
        }
    }
}

/// Runs that the first worker holds, or holds still though it is dead.
async fn held_by_first(client: &Client) -> Result<i64, CliError> {
    Ok(client.nodes().await?.into_iter().find(|node| node.name == "worker-1").map_or(0, |node| node.runs))
}

fn state(counts: &Counts, batches: &BatchTotals, takeovers: i64) -> String {
    let failed = if counts.failed > 0 { format!(", {} failed", thousands(counts.failed)) } else { String::new() };
    let (waiting, held) = (thousands(counts.waiting), thousands(counts.owned));
    let batches = count(batches.batches, "batch");
    let takeovers = count(takeovers, "takeover");
    format!("({waiting} waiting, {held} held{failed}, {batches}, {takeovers})")
}

/// `1 run`, `2 runs`, `3 batches`.
pub(super) fn count(number: i64, noun: &str) -> String {
    let end = match (number, noun.ends_with("ch")) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {noun}{end}", thousands(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_in_one_part() {
        for runs in 1..3_000 {
            let Parts { first, second, third, rest } = Parts::of(runs);
            let bounds = (first.start, first.end, second.end, third.end, rest.end);
            assert_eq!(bounds, (0, second.start, third.start, rest.start, runs));
            assert!(!second.is_empty(), "{runs}: there must be a batch to hold");
            assert_eq!(third.is_empty(), runs < 3, "{runs}: there must be runs to take over");
        }
        assert_eq!(Parts::of(2_000).second, 128..256);
    }

    #[test]
    fn numbers_agree_with_their_nouns() {
        assert_eq!(
            (count(1, "run"), count(0, "run"), count(2, "batch")),
            ("1 run".into(), "0 runs".into(), "2 batches".into())
        );
    }
}
