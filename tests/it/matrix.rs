//! Every fault that the sandbox knows, against a node: what becomes of the runs that meet it, of their money, and of the others.

use crate::flows::Asking;
use crate::models::{Models, asking, until_batch};
use crate::support::{check, connect, database, eventually, number, until_over};
use longhaul::audit::{Check, LedgerLine};
use longhaul::{BatchStatus, Client, Config};
use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::provider::{Config as SandboxConfig, Dialect, Fault, Injected, Named, Operation, When};
use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

/// Runs that meet the fault.
const RUNS: i64 = 12;
/// Runs that come after it was met.
const NEIGHBOURS: i64 = 4;
/// Databases and nodes at the same time.
const AT_ONCE: usize = 6;

/// What became of the twelve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct End {
    completed: i64,
    failed: i64,
    parked: i64,
    canceled: i64,
    /// Requests that were paid more than once.
    twice: usize,
    /// Items that were paid, and whose line nobody can read the price of, if there is one.
    unpriced: usize,
}

const WELL: End = End { completed: RUNS, failed: 0, parked: 0, canceled: 0, twice: 0, unpriced: 0 };

/// What a fault must end in. Whatever is not named here completes, is paid once and is booked to the nano-dollar.
fn expected(name: &str) -> End {
    let of = |completed: i64| End { completed, ..WELL };
    match name {
        // The provider carries out one create twice. Both are paid; the second has the ids of the first, and nobody asks for it.
        "create_twin" | "create_twin_after_cut" => End { twice: RUNS as usize, ..WELL },
        // Refused for good: their runs fail with the provider's words. Nothing is paid.
        "create_guilty_item" => End { failed: 1, ..of(11) },
        "items_invalid" => End { failed: 6, ..of(6) },
        "items_every_outcome" => End { failed: 4, ..of(8) },
        // Paid, and in no result: parked, so that only an operator asks and pays again.
        "results_archived" => End { parked: 12, unpriced: 12, ..of(0) },
        "lines_missing_for_ever" => End { parked: 1, unpriced: 1, ..of(11) },
        "lines_unreadable_for_ever" => End { parked: 6, unpriced: 6, ..of(6) },
        // Paid, and not readable: their runs fail, and the lines are kept.
        "line_without_result" | "line_without_outcome" | "line_of_unknown_outcome" | "line_with_null_message" => {
            End { failed: 6, unpriced: 6, ..of(6) }
        }
        // Paid and booked, but nested deeper than anything that a step may be given.
        "answer_is_deep" => End { failed: 6, ..of(6) },
        // Paid and answered, without a price that can be read.
        "answer_has_huge_number"
        | "answer_has_infinite_number"
        | "answer_has_null_usage"
        | "answer_has_no_usage"
        | "answer_has_null_tokens" => End { unpriced: 6, ..WELL },
        name if name.starts_with("cancel_") => End { canceled: 12, ..of(0) },
        _ => WELL,
    }
}

fn config() -> Config {
    let second = Duration::from_secs(1);
    Config { send_limit: second, quarantine: second, missing_after: second, ..asking("a") }
}

/// Whether lines that meet it are settled as they are.
fn settles(name: &str) -> bool {
    name.starts_with("answer_") || expected(name).failed > 0
}

/// What is injected for a fault, so that it is met.
fn inject(models: &Models, named: &Named) -> Vec<Injected> {
    let when = match named.operation {
        // Once at the start, once before each send, and again while something is in doubt.
        Operation::List => When::Times(8),
        // What is settled is settled at the first download; what is lacking is read again.
        Operation::Results if settles(named.name) => When::Next,
        Operation::Results => When::Times(2),
        // As often as it is sent: with the others, and alone.
        Operation::Create if named.name == "create_guilty_item" => When::Always,
        _ => When::Next,
    };
    let injected =
        named.faults().into_iter().map(|fault| models.control.inject(named.operation, when, fault)).collect();
    match named.name {
        // Only what is in doubt is looked for.
        name if name.starts_with("list_") => models.inject(Operation::Create, When::Nth(1), Fault::AcceptThenCut),
        "error_is_null" => {
            let errors = Fault::ErrorItems { error_type: "api_error".to_owned(), every: 2 };
            models.inject(Operation::Create, When::Nth(1), errors);
        }
        _ => {}
    }
    injected
}

async fn run(named: &'static Named) -> End {
    if named.operation == Operation::Cancel { cancel(named).await } else { meet(named).await }
}

/// Twelve runs meet a fault; four come when they have.
async fn meet(named: &'static Named) -> End {
    let (db, models) =
        (database().await, Models::with(SandboxConfig::default().processing(Duration::from_millis(30))).await);
    let injected = inject(&models, named);
    let client = Client::connect(db.url()).await.unwrap();
    let input = |k: i64| if k == 3 { "who is guilty?".to_owned() } else { format!("q{k}") };
    enqueue(&client, (0..RUNS).map(|k| (format!("r{k}"), input(k))).collect()).await;
    let mut node = models.node_with(&db, &Asking::default(), config()).await;
    for fault in &injected {
        fault.wait(1).await;
    }
    enqueue(&client, (0..NEIGHBOURS).map(|k| (format!("n{k}"), format!("neighbour {k}"))).collect()).await;
    let mut conn = connect(&db).await;
    if parks_the_account(named.name) {
        eventually(&format!("{} parks the account", named.name), async || {
            (number(&mut conn, "select count(*) from longhaul.accounts where parked is not null").await == 1)
                .then_some(())
        })
        .await;
        // Somebody has acted, and starts a node again.
        node.shutdown().await.unwrap();
        node = models.node_with(&db, &Asking::default(), config()).await;
    }
    until_over(&client).await;
    let batches = "select count(*) from longhaul.batches where status not in (8, 9)";
    eventually(&format!("{}: no batch is open", named.name), async || {
        (number(&mut conn, batches).await == 0).then_some(())
    })
    .await;
    let neighbours = "select count(*) from longhaul.runs where run_id like 'n%' and status = 5";
    assert_eq!(number(&mut conn, neighbours).await, NEIGHBOURS, "{}: a neighbour is held up", named.name);
    node.shutdown().await.unwrap();
    check(&db).await;
    end(named.name, &db, &models, &client).await
}

/// A batch is at the provider when all its runs are canceled: it is canceled there too, whatever the provider answers.
async fn cancel(named: &'static Named) -> End {
    let (db, models) = (database().await, Models::slow().await);
    let injected = inject(&models, named);
    let client = Client::connect(db.url()).await.unwrap();
    enqueue(&client, (0..RUNS).map(|k| (format!("r{k}"), format!("q{k}"))).collect()).await;
    let node = models.node_with(&db, &Asking::default(), config()).await;
    let mut conn = connect(&db).await;
    until_batch(&mut conn, BatchStatus::Submitted).await;
    for k in 0..RUNS {
        client.cancel(&format!("r{k}")).await.unwrap();
    }
    for fault in &injected {
        fault.wait(1).await;
    }
    until_batch(&mut conn, BatchStatus::Settled).await;
    node.shutdown().await.unwrap();
    check(&db).await;
    end(named.name, &db, &models, &client).await
}

fn parks_the_account(name: &str) -> bool {
    ["create_401", "create_402", "create_403", "create_spend_cap"].contains(&name)
}

async fn enqueue(client: &Client, runs: Vec<(String, String)>) {
    for made in client.enqueue_many::<Asking>(runs).await.unwrap() {
        made.unwrap();
    }
}

/// Counts, and holds the provider's ledger against the tables: to the nano-dollar.
async fn end(name: &str, db: &TestDatabase, models: &Models, client: &Client) -> End {
    let counts = client.counts().await.unwrap();
    let text = std::fs::read_to_string(models.sandbox.ledger_path()).unwrap();
    let ledger: Vec<LedgerLine> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tables = longhaul::store::Database::new(db.url()).unwrap();
    let report = longhaul::audit::audit(&tables, Some(&ledger)).await.unwrap();
    let mut conn = connect(db).await;
    // Those whose line has no price that can be read, or is not there.
    let unread: Vec<(uuid::Uuid, i32)> = sqlx::query_as(
        "select b.intent, i.item from longhaul.batch_items i join longhaul.batches b on b.id = i.batch
         where i.status in (8, 9) or i.status in (3, 10) and i.nano_usd is null",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    let unread: Vec<String> = unread
        .into_iter()
        .map(|(intent, index)| longhaul::CustomId { intent: longhaul::IntentId(intent), index }.to_string())
        .collect();
    let unread = |line: &&LedgerLine| line.custom_id.as_ref().is_some_and(|id| unread.contains(id));
    let unpriced = ledger.iter().filter(unread).count();
    let end = expected(name);
    for finding in &report.findings {
        let of_ledger = finding.check == Check::LedgerOfProvider && (end.unpriced > 0 || end.twice > 0);
        assert!(of_ledger, "{name}: {finding:?}");
    }
    // The second line of a twin is no item of ours.
    let mut ids = HashSet::new();
    let ledger: Vec<LedgerLine> = ledger.into_iter().filter(|line| ids.insert(line.custom_id.clone())).collect();
    let booked = number(&mut conn, "select coalesce(sum(nano_usd), 0)::bigint from longhaul.batch_items").await;
    let paid: i64 = ledger.iter().filter(|line| !unread(line)).map(|line| line.nano_usd.unwrap()).sum();
    assert_eq!(booked, paid, "{name}: nano-dollars booked and paid");
    End {
        completed: number(&mut conn, "select count(*) from longhaul.runs where run_id like 'r%' and status = 5").await,
        canceled: counts.canceled,
        failed: counts.failed,
        parked: counts.parked,
        twice: models.summary().logical_paid_twice,
        unpriced,
    }
}

/// What is so in every download of a batch.
fn of_the_work(name: &str) -> bool {
    name == "results_archived" || name.ends_with("_for_ever")
}

/// Meets the faults of these names.
fn survives(of: impl Fn(&str) -> bool) {
    let named: Vec<_> =
        Fault::ALL.iter().filter(|named| named.is_of(Dialect::Anthropic)).filter(|named| of(named.name)).collect();
    assert!(!named.is_empty());
    let (queue, wrong) = (Mutex::new(named.into_iter()), Mutex::new(Vec::new()));
    let next = || queue.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(named) = next() {
                    // A panic is that of its own fault.
                    let end =
                        std::thread::spawn(|| tokio::runtime::Runtime::new().unwrap().block_on(run(named))).join();
                    if end.as_ref().ok() != Some(&expected(named.name)) {
                        wrong.lock().unwrap().push(format!("{}: {:?}", named.name, end.ok()));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_fault_of_a_create() {
    survives(|name| name.starts_with("create_"));
}

#[test]
fn every_fault_of_the_work_itself() {
    survives(|name| name.starts_with("items_") || of_the_work(name));
}

#[test]
fn every_fault_of_a_poll_and_of_the_listing() {
    survives(|name| name.starts_with("retrieve_") || name.starts_with("list_"));
}

#[test]
fn every_fault_of_a_cancel() {
    survives(|name| name.starts_with("cancel_"));
}

#[test]
fn every_fault_of_a_download() {
    survives(|name| (name.starts_with("results_") || name.starts_with("lines_")) && !of_the_work(name));
}

#[test]
fn every_spoilt_line() {
    survives(|name| name.starts_with("line_") || name.starts_with("answer_") || name.starts_with("error_"));
}

/// Every fault is in one of the tests above; what is not is not the engine's to meet.
#[test]
fn the_rest_is_never_met() {
    let met =
        ["create_", "items_", "retrieve_", "list_", "cancel_", "results_", "lines_", "line_", "answer_", "error_"];
    let rest = Fault::ALL.iter().filter(|named| named.is_of(Dialect::Anthropic));
    let rest: HashSet<_> = rest
        .filter(|named| !met.iter().any(|start| named.name.starts_with(start)))
        .map(|named| named.operation)
        .collect();
    // Batches are never deleted.
    assert_eq!(rest, HashSet::from([Operation::Delete, Operation::Live]));
}
