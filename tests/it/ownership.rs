//! Who owns a run: nodes share the work, the living take over from the dead, and the dead commit nothing.

use crate::flows::Trial;
use crate::proxy::{CLAIM, Cut, Proxy};
use crate::steps::kinds;
use crate::support::{check, config, connect, database, eventually, execute, number, until_over};
use longhaul::{Client, EventType, Kind, Node};
use longhaul_sandbox::postgres::testing::TestDatabase;
use std::collections::HashMap;

async fn node(db: &TestDatabase, name: &str, trial: &Trial) -> Node {
    Node::builder(db.url()).workflow(trial.clone()).config(config(name)).start().await.unwrap()
}

async fn enqueue(db: &TestDatabase, kind: &str, n: usize) -> Client {
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue_many::<Trial>((0..n).map(|k| (format!("r{k}"), kind.to_owned())).collect()).await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_share_the_work() {
    let (db, trial) = (database().await, Trial::default());
    let settings = |name| longhaul::Config { runs_in_flight: 20, ..config(name) };
    let client = enqueue(&db, "stuck", 40).await;
    let start =
        async |name| Node::builder(db.url()).workflow(trial.clone()).config(settings(name)).start().await.unwrap();
    let (a, b) = (start("a").await, start("b").await);
    eventually("both hold all they can", async || (a.running() == 20 && b.running() == 20).then_some(())).await;
    let mut held: Vec<(String, i64)> =
        client.nodes().await.unwrap().into_iter().map(|node| (node.name, node.runs)).collect();
    held.sort();
    assert_eq!(held, [("a".into(), 20), ("b".into(), 20)]);
    trial.gate.open();
    until_over(&client).await;
    let done = || a.progress().runs_completed + b.progress().runs_completed;
    eventually("they did them all", async || (done() == 40).then_some(())).await;
    assert!((0..40).all(|k| trial.log.count(&format!("r{k}"), "stuck") == 1), "each step ran once");
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_node_held_is_taken_over_and_told() {
    let (db, trial) = (database().await, Trial::default());
    let client = enqueue(&db, "stuck", 30).await;
    let a = node(&db, "a", &trial).await;
    eventually("a runs them all", async || (trial.log.len() == 60).then_some(())).await;
    drop(a);
    let b = node(&db, "b", &trial).await;
    eventually("b runs them all", async || (trial.log.len() >= 90).then_some(())).await;
    trial.gate.open();
    until_over(&client).await;
    for k in 0..30 {
        let run = format!("r{k}");
        let taken = kinds(&client, &run).await.iter().filter(|k| **k == EventType::RunTakenOver).count();
        assert_eq!(taken, 1);
        assert_eq!(trial.log.count(&run, "begin"), 1, "a completed step does not run again");
        assert_eq!(trial.log.count(&run, "stuck"), 2, "the step that the dead node was at does");
    }
    assert_eq!(b.progress().runs_taken_over, 30);
    b.shutdown().await.unwrap();
    check(&db).await;
}

/// Declared dead while it lives: it commits nothing of what it held, and begins again under another id.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_declared_dead_commits_nothing_and_begins_again() {
    let (db, trial) = (database().await, Trial::default());
    let client = enqueue(&db, "stuck", 10).await;
    let a = node(&db, "a", &trial).await;
    eventually("a runs them all", async || (trial.log.len() == 20).then_some(())).await;
    let first = a.id();
    let mut conn = connect(&db).await;
    // A judge that was wrong: dead, and its rows taken, while the node goes on. Its own heart hears of it later.
    execute(
        &mut conn,
        "with dead as (update longhaul.nodes set dead_at = longhaul.now() returning id),
            taken as (update longhaul.runs r set status = 1, owner = null, fence = fence + 1, cursor = cursor + 1,
                ready_at = longhaul.now() + interval '1 hour' where status = 2 returning id, cursor)
         insert into longhaul.events (run, ordinal, nonce, type, payload)
         select id, cursor - 1, longhaul.nonce(), 6, '{}' from taken",
    )
    .await;
    trial.gate.open();
    eventually("it has another id", async || (a.id() != first).then_some(())).await;
    assert_eq!(
        number(&mut conn, "select count(*) from longhaul.runs where status = 5").await,
        0,
        "nothing was committed"
    );
    execute(&mut conn, "update longhaul.runs set ready_at = longhaul.now()").await;
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 10);
    assert_eq!(number(&mut conn, "select count(*) from longhaul.nodes where dead_at is not null").await, 1);
    a.shutdown().await.unwrap();
    check(&db).await;
}

/// Death is final: the row of a dead node changes no more, whatever beats.
#[tokio::test(flavor = "multi_thread")]
async fn the_heartbeat_of_a_dead_node_is_refused() {
    let (db, trial) = (database().await, Trial::default());
    let a = node(&db, "a", &trial).await;
    let first = a.id();
    let mut conn = connect(&db).await;
    execute(&mut conn, "update longhaul.nodes set dead_at = longhaul.now()").await;
    let beat = number(&mut conn, "select beat from longhaul.nodes").await;
    eventually("it has another id", async || (a.id() != first).then_some(())).await;
    eventually("the new one beats", async || {
        (number(&mut conn, "select max(beat) from longhaul.nodes where dead_at is null").await > 1).then_some(())
    })
    .await;
    let after = number(&mut conn, "select beat from longhaul.nodes where dead_at is not null").await;
    assert_eq!(after, beat);
    let run = a.client().enqueue::<Trial>("r", "plain".into()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "plain", "and it works under the new one");
    a.shutdown().await.unwrap();
}

/// A dead node's claim takes nothing, even before it knows that it is dead.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_claims_nothing() {
    let (db, trial) = (database().await, Trial::default());
    // It beats so seldom that it does not learn of its death while the test looks.
    let deaf = longhaul::Config {
        heartbeat: std::time::Duration::from_secs(20),
        lease: std::time::Duration::from_secs(60),
        quarantine: std::time::Duration::from_secs(60),
        ..config("a")
    };
    let a = Node::builder(db.url()).workflow(trial.clone()).config(deaf).start().await.unwrap();
    let mut conn = connect(&db).await;
    eventually("it has beaten once", async || {
        (number(&mut conn, "select beat from longhaul.nodes").await > 0).then_some(())
    })
    .await;
    execute(&mut conn, "update longhaul.nodes set dead_at = longhaul.now()").await;
    let client = enqueue(&db, "plain", 20).await;
    for _ in 0..5 {
        a.tree().wake(&Kind::Advancer);
    }
    let b = node(&db, "b", &trial).await;
    until_over(&client).await;
    assert_eq!((a.progress().runs_claimed, b.progress().runs_claimed), (0, 20));
    b.shutdown().await.unwrap();
}

/// A node that others cannot judge in time is not judged: one whose own looks were interrupted waits a lease first.
#[tokio::test(flavor = "multi_thread")]
async fn a_living_node_is_not_declared_dead_under_load() {
    let (db, trial) = (database().await, Trial::default());
    let client = enqueue(&db, "plain", 3_000).await;
    let (a, b) = (node(&db, "a", &trial).await, node(&db, "b", &trial).await);
    let ids = (a.id(), b.id());
    until_over(&client).await;
    assert_eq!((a.id(), b.id()), ids);
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.nodes where dead_at is not null").await, 0);
    assert_eq!(number(&mut conn, "select count(*) from longhaul.events where type = 6").await, 0);
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
}

/// The advancer dies with its tasks: what it held is released by the next one, without waiting for any lease.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_advancer_held_is_released_by_the_next() {
    let (db, trial) = (database().await, Trial::default());
    let long = longhaul::Config { lease: std::time::Duration::from_secs(600), ..config("a") };
    let a = Node::builder(db.url()).workflow(trial.clone()).config(long).start().await.unwrap();
    let client = enqueue(&db, "stuck", 20).await;
    eventually("they run", async || (trial.log.len() == 40).then_some(())).await;
    let id = a.id();
    assert!(a.tree().kill(&Kind::Advancer));
    eventually("they run again", async || (trial.log.len() == 60).then_some(())).await;
    trial.gate.open();
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 20);
    assert_eq!(a.id(), id);
    a.shutdown().await.unwrap();
    check(&db).await;
}

/// A claim whose answer is lost: the rows carry the node's id, and nobody runs them until they are released.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_was_lost_is_released() {
    let (db, trial) = (database().await, Trial::default());
    let client = enqueue(&db, "plain", 20).await;
    let proxy = Proxy::start(&db).await;
    proxy.arm(CLAIM, Cut::After, 1);
    proxy.arm(CLAIM, Cut::Before, 1);
    let long = longhaul::Config { lease: std::time::Duration::from_secs(600), ..config("a") };
    let a = Node::builder(proxy.url()).workflow(trial.clone()).config(long).start().await.unwrap();
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 20);
    assert_eq!(proxy.hits(), 2);
    assert!((0..20).all(|k| trial.log.count(&format!("r{k}"), "begin") == 1), "the lost claim ran nothing");
    a.shutdown().await.unwrap();
    check(&db).await;
}

/// Fences only rise, and each row has at most one owner: a trigger writes down every change.
#[tokio::test(flavor = "multi_thread")]
async fn fences_only_rise() {
    let (db, trial) = (database().await, Trial::default());
    let mut conn = connect(&db).await;
    execute(
        &mut conn,
        "create table public.seen (run bigint, before bigint, after bigint, owner_before uuid, owner_after uuid);
         create function public.see() returns trigger language plpgsql as $$ begin
             insert into public.seen values (new.id, old.fence, new.fence, old.owner, new.owner); return new; end $$;
         create trigger see after update on longhaul.runs for each row execute function public.see()",
    )
    .await;
    let client = enqueue(&db, "stuck", 50).await;
    for name in ["a", "b"] {
        let node = node(&db, name, &trial).await;
        let runs: HashMap<String, usize> =
            (0..50).map(|k| (format!("r{k}"), trial.log.count(&format!("r{k}"), "stuck"))).collect();
        eventually("it runs some", async || {
            runs.iter().any(|(run, n)| trial.log.count(run, "stuck") > *n).then_some(())
        })
        .await;
        node.tree().kill(&Kind::Advancer);
        drop(node);
    }
    trial.gate.open();
    let last = node(&db, "c", &trial).await;
    until_over(&client).await;
    last.shutdown().await.unwrap();
    let wrong = number(
        &mut conn,
        "select count(*) from public.seen where after < before
             or owner_before is distinct from owner_after and owner_before is not null and owner_after is not null
             or owner_before is null and owner_after is not null and after = before",
    )
    .await;
    assert_eq!(wrong, 0);
    check(&db).await;
}
