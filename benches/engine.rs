//! What the engine does per second, on a private PostgreSQL with its default durability.
//!
//! Every measurement asserts its own work: how many events each run has, how many different transactions wrote them, that the
//! sessions of the node itself commit synchronously, and how many transactions the server saw per run.
//! docs/performance/ says how to repeat it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use longhaul::{Client, Config, Next, Node, Result, Run, Workflow, workflow};
use longhaul_sandbox::postgres::{Options, Server};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection, Row};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Runs per measurement.
const RUNS: usize = 10_000;

/// A small state, as the peers' benches have it: a counter in an object of about 170 bytes.
#[derive(Serialize, Deserialize, Clone, Default)]
pub struct Tally {
    count: u32,
    note: String,
}

pub struct Five;

#[workflow]
mod five {
    use super::*;

    impl Workflow for Five {
        const NAME: &'static str = "five";
        const VERSION: u32 = 1;
        type Input = Tally;
        type State = Tally;
        type Output = u32;
        type Entry = step::one;
    }

    #[step]
    async fn one(run: &mut Run<Five>) -> Result<Next<Five>> {
        run.state = (*run.input).clone();
        run.state.count += 1;
        Ok(Next::goto(step::two, ()))
    }
    #[step]
    async fn two(run: &mut Run<Five>) -> Result<Next<Five>> {
        run.state.count += 1;
        Ok(Next::goto(step::three, ()))
    }
    #[step]
    async fn three(run: &mut Run<Five>) -> Result<Next<Five>> {
        run.state.count += 1;
        Ok(Next::goto(step::four, ()))
    }
    #[step]
    async fn four(run: &mut Run<Five>) -> Result<Next<Five>> {
        run.state.count += 1;
        Ok(Next::goto(step::last, ()))
    }
    #[step]
    async fn last(run: &mut Run<Five>) -> Result<Next<Five>> {
        run.state.count += 1;
        Ok(Next::finish(run.state.count))
    }
}

/// A server, and a fresh database for each measurement.
struct Bench {
    runtime: tokio::runtime::Runtime,
    server: Server,
    databases: AtomicU32,
}

impl Bench {
    fn start() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let options = Options::default().setting("shared_buffers", "512MB").setting("max_wal_size", "4GB");
        let server = runtime.block_on(Server::private(options)).unwrap();
        Self { runtime, server, databases: AtomicU32::new(0) }
    }

    async fn database(&self) -> String {
        let name = format!("bench{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.server.create_database(&name).await.unwrap();
        let url = self.server.url(&name);
        longhaul::migrate(&url).await.unwrap();
        url
    }
}

fn inputs() -> Vec<(String, Tally)> {
    let note = "a state of about one hundred and seventy bytes, which is what a small agent keeps between two of its \
                steps: a counter and some words about it";
    (0..RUNS).map(|k| (format!("run-{k}"), Tally { count: 0, note: note.into() })).collect()
}

async fn enqueue(client: &Client) {
    for made in client.enqueue_many::<Five>(inputs()).await.unwrap() {
        made.unwrap();
    }
}

/// Claim to completed: the time from the start of a node to the last run's COMMIT.
async fn five_steps(bench: &Bench) -> Duration {
    let url = bench.database().await;
    enqueue(&Client::connect(&url).await.unwrap()).await;
    let mut conn = PgConnection::connect(&url).await.unwrap();
    watch_sessions(&mut conn).await;
    sqlx::query("checkpoint").execute(&mut conn).await.unwrap();
    let before = transactions(&mut conn).await;
    let config = Config { name: "bench".into(), ..Config::default() };
    let begun = Instant::now();
    let node = Node::builder(&url).workflow(Five).config(config).start().await.unwrap();
    while node.progress().runs_completed < RUNS as u64 {
        assert_eq!(node.progress().runs_failed, 0, "no statement is refused");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = begun.elapsed();
    let flushes = node.progress().flushes;
    durable(&mut conn, flushes).await;
    node.shutdown().await.unwrap();
    let per_run = (transactions(&mut conn).await - before) as f64 / RUNS as f64;
    assert!(per_run < 0.1, "{per_run} transactions per run");
    verify(&mut conn).await;
    eprintln!(
        "  {RUNS} runs in {:.2} s: {:.0} runs/s, {:.4} transactions per run, {:.0} transitions per flush",
        took.as_secs_f64(),
        RUNS as f64 / took.as_secs_f64(),
        per_run,
        5.0 * RUNS as f64 / flushes as f64
    );
    took
}

/// Committed transactions of this database, as the server counts them.
async fn transactions(conn: &mut PgConnection) -> i64 {
    sqlx::query("select pg_stat_force_next_flush()").execute(&mut *conn).await.unwrap();
    sqlx::query("select xact_commit + xact_rollback from pg_stat_database where datname = current_database()")
        .fetch_one(conn)
        .await
        .unwrap()
        .get(0)
}

/// From here on, each statement that writes events asks its own session whether it commits synchronously, and is refused if not.
async fn watch_sessions(conn: &mut PgConnection) {
    sqlx::raw_sql(
        "create sequence public.asked;
         create function public.ask() returns trigger language plpgsql as $$ begin
             perform nextval('public.asked');
             if current_setting('synchronous_commit') <> 'on' then raise 'this session does not commit synchronously'; end if;
             return null;
         end $$;
         create trigger ask after insert on longhaul.events for each statement execute function public.ask()",
    )
    .execute(conn)
    .await
    .unwrap();
}

/// The server syncs, and the sessions that wrote were asked.
async fn durable(conn: &mut PgConnection, flushes: u64) {
    let setting = |name: &'static str| sqlx::query_scalar::<_, String>(name);
    for name in ["show fsync", "show full_page_writes"] {
        assert_eq!(setting(name).fetch_one(&mut *conn).await.unwrap(), "on", "{name}");
    }
    let asked: i64 = sqlx::query_scalar("select last_value from public.asked").fetch_one(&mut *conn).await.unwrap();
    assert!(asked as u64 >= flushes, "every flush was asked: {asked} of {flushes}");
}

/// Twelve events per run, written by seven different transactions.
async fn verify(conn: &mut PgConnection) {
    let (runs, wrong): (i64, i64) = sqlx::query_as(
        "select count(*), count(*) filter (where events <> 12 or xmins <> 7) from (
            select run, count(*) as events, count(distinct xmin::text) as xmins from longhaul.events group by run
         ) r",
    )
    .fetch_one(conn)
    .await
    .unwrap();
    assert_eq!((runs, wrong), (RUNS as i64, 0), "every run has 12 events of 7 transactions");
}

async fn bulk_enqueue(bench: &Bench) -> Duration {
    let client = Client::connect(&bench.database().await).await.unwrap();
    let runs = inputs();
    let begun = Instant::now();
    let made = client.enqueue_many::<Five>(runs).await.unwrap();
    let took = begun.elapsed();
    assert!(made.iter().all(Result::is_ok) && made.len() == RUNS);
    assert_eq!(client.count_events(None).await.unwrap(), RUNS as i64, "an event for each");
    took
}

fn engine(c: &mut Criterion) {
    let bench = Bench::start();
    let mut group = c.benchmark_group("engine");
    group.sample_size(10).measurement_time(Duration::from_secs(20)).throughput(Throughput::Elements(RUNS as u64));
    group.bench_function("five local steps, claim to completed", |b| {
        b.iter_custom(|n| (0..n).map(|_| bench.runtime.block_on(five_steps(&bench))).sum());
    });
    group.bench_function("bulk enqueue", |b| {
        b.iter_custom(|n| (0..n).map(|_| bench.runtime.block_on(bulk_enqueue(&bench))).sum());
    });
    group.finish();
}

criterion_group!(benches, engine);
criterion_main!(benches);
