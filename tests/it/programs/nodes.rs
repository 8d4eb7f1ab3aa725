//! The same programs on two nodes with a database: they end as in memory, by the same way.

use super::plan::{Double, Plan, World, answers, flow, plans, says};
use super::trace::{End, Ledgers, Told, ledgers};
use super::whole;
use crate::models::{Models, asking, check_paid};
use crate::support::{check, connect, eventually};
use longhaul::run::flow::Flow;
use longhaul::testing::TestNode;
use longhaul::{Client, Dynamic, Error};
use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::provider::{Answer, Config as SandboxConfig};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::sync::Arc;
use std::time::Duration;

/// How many programs run side by side.
const PROGRAMS: usize = 24;
/// Programs that are passed over first: to look at others than usual.
const FROM: &str = "LONGHAUL_PROGRAMS_FROM";

/// Programs that take a while, the same each time.
fn programs() -> Vec<Plan> {
    let mut runner = TestRunner::deterministic();
    let from = std::env::var(FROM).map_or(0, |from| from.parse().unwrap());
    let all = std::iter::repeat_with(|| plans().new_tree(&mut runner).unwrap().current());
    let long = |plan: &Plan| {
        let events: usize = whole(plan, Arc::default()).ledgers.values().map(Vec::len).sum();
        (15..150).contains(&events)
    };
    all.filter(long).skip(from).take(PROGRAMS).collect()
}

fn name(k: usize) -> String {
    format!("program {k}")
}

async fn node(db: &TestDatabase, name: &str, models: &Models, programs: &[Plan], world: &Arc<World>) -> TestNode {
    TestNode::start(db.url(), |mut node| {
        for (k, plan) in programs.iter().enumerate() {
            node = node.flow(flow(&super::nodes::name(k), plan, world));
        }
        node.provider("claude", models.provider()).tool(Double).config(asking(name))
    })
    .await
    .unwrap()
}

/// Answers whatever people and services are asked, until no run is under way.
async fn drive(client: &Client, conn: &mut PgConnection) {
    eventually("every program is over", async || {
        let open: Vec<(String, String)> = sqlx::query_as(
            "select r.run_id, q.body::text from longhaul.waits w
             join longhaul.runs r on r.id = w.run and r.wait = w.ordinal and r.status = 3
             join longhaul.requests q on q.run = w.run and q.ordinal = w.ordinal
             where w.kind in (3, 4) and w.status = 1 and w.due_at is null order by random()",
        )
        .fetch_all(&mut *conn)
        .await
        .unwrap();
        for (run, request) in open {
            let request: Value = serde_json::from_str(&request).unwrap();
            // A fork that fails fast may have stopped it meanwhile.
            match answers(&request) {
                Some(answer) => drop(client.answer(&run, "ann", &answer).await),
                None => drop(client.cancel(&run).await),
            }
        }
        let counts = client.counts().await.unwrap();
        (counts.runnable + counts.owned + counts.waiting == 0).then_some(())
    })
    .await;
}

async fn end(client: &Client, k: usize) -> End {
    match client.handle::<Dynamic>(&name(k)).await.unwrap().output().await {
        Ok(output) => End::Finished(output),
        Err(Error::RunFailed { failure, .. }) => End::Failed(failure.code),
        Err(Error::NoOutput { .. }) => End::Canceled,
        Err(other) => panic!("{other}"),
    }
}

async fn ledgers_of(client: &Client, conn: &mut PgConnection, k: usize) -> Ledgers {
    let runs: Vec<String> = sqlx::query_scalar(
        "select r.run_id from longhaul.runs r join longhaul.runs t on t.id = coalesce(r.root, r.id) where t.run_id = $1",
    )
    .bind(name(k))
    .fetch_all(conn)
    .await
    .unwrap();
    let mut told = Vec::new();
    for run in runs {
        let events = client.events(&run).await.unwrap();
        told.extend(events.into_iter().map(|e| Told {
            id: e.id,
            kind: e.kind,
            payload: serde_json::from_str(&e.payload).unwrap(),
        }));
    }
    ledgers(told)
}

#[tokio::test(flavor = "multi_thread")]
async fn on_two_nodes_they_end_as_in_memory_and_by_the_same_way() {
    let programs = programs();
    let db = crate::support::database().await;
    let world: Arc<World> = Arc::default();
    let asked = world.clone();
    let sandbox = SandboxConfig::default().processing(Duration::from_millis(10)).responder(move |request| {
        match says(request.params(), &asked) {
            Some(content) => {
                let stop = if content[0]["type"] == "tool_use" { "tool_use" } else { "end_turn" };
                Answer::Message { content, stop_reason: stop.into() }
            }
            None => Answer::error("invalid_request_error", "not today"),
        }
    });
    let models = Models::answering(sandbox).await;
    let a = node(&db, "a", &models, &programs, &world).await;
    let b = node(&db, "b", &models, &programs, &world).await;
    let (client, mut conn) = (a.client(), connect(&db).await);

    for (k, plan) in programs.iter().enumerate() {
        client.enqueue_dynamic(flow(&name(k), plan, &world).manifest(), name(k), &json!(1)).await.unwrap();
    }
    drive(&client, &mut conn).await;
    let mut failed = Vec::new();
    for (k, plan) in programs.iter().enumerate() {
        let (wanted, ended) = (whole(plan, Arc::default()), end(&client, k).await);
        assert_eq!(ended, wanted.end, "{plan:#?}");
        assert_eq!(ledgers_of(&client, &mut conn, k).await, wanted.ledgers, "{plan:#?}");
        failed.extend(matches!(ended, End::Failed(_)).then_some((k, plan)));
    }
    check(&db).await;

    world.mend();
    assert!(!failed.is_empty(), "some have to fail for this to say something");
    for (k, _) in &failed {
        client.retry(&name(*k)).await.unwrap();
    }
    drive(&client, &mut conn).await;
    for (k, plan) in failed {
        assert_eq!(end(&client, k).await, whole(plan, World::mended()).end, "{plan:#?}");
    }
    check(&db).await;
    check_paid(&models, &mut conn).await;
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
}

#[test]
fn the_programs_have_everything_in_them() {
    use longhaul::EventType as T;
    let traces: Vec<_> = programs().iter().map(|plan| whole(plan, Arc::default())).collect();
    let mut seen = std::collections::BTreeMap::<T, usize>::new();
    for (kind, _) in traces.iter().flat_map(|trace| trace.ledgers.values().flatten()) {
        *seen.entry(*kind).or_default() += 1;
    }
    let wanted = [
        T::RunCompleted,
        T::RunFailed,
        T::RunCanceled,
        T::StepFailed,
        T::ModelAnswered,
        T::ModelFailed,
        T::HumanAnswered,
        T::HumanExpired,
        T::ExternalAnswered,
        T::TimerFired,
        T::ForkJoined,
        T::ForkFailed,
        T::ToolsCompleted,
        T::Custom,
    ];
    for kind in wanted {
        assert!(seen.contains_key(&kind), "no {kind} in {seen:?}");
    }
    let ended = |end: fn(&End) -> bool| traces.iter().filter(|trace| end(&trace.end)).count();
    let (finished, failed) = (ended(|e| matches!(e, End::Finished(_))), ended(|e| matches!(e, End::Failed(_))));
    assert!(finished > 4 && failed > 4, "{finished} finished, {failed} failed");
}
