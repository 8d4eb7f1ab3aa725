//! What operators say: pause, ceiling, drain, park, the same for many runs, and why a workflow does not move.

use crate::flows::Trial;
use crate::questions::Twice;
use crate::support::{
    Count, builder, check, config, connect, database, eventually, execute, number, until_over, until_status,
};
use longhaul::{BulkAction, Client, Config, EnqueueOptions, Filter, Kind, Node, RunStatus};
use longhaul_sandbox::postgres::testing::TestDatabase;

async fn node(db: &TestDatabase, name: &str, trial: &Trial) -> Node {
    builder(db, name).workflow(trial.clone()).workflow(Twice).start().await.unwrap()
}

async fn enqueue(client: &Client, kind: &str, n: usize) {
    let runs = (0..n).map(|k| (format!("{kind}{k}"), kind.to_owned())).collect();
    for made in client.enqueue_many::<Trial>(runs).await.unwrap() {
        made.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_workflow_is_not_claimed_and_holds_up_no_other() {
    let (db, trial) = (database().await, Trial::default());
    let node = node(&db, "a", &trial).await;
    let client = node.client();
    enqueue(&client, "stuck", 2).await;
    eventually("both are at the gate", async || (trial.log.len() == 4).then_some(())).await;
    assert!(client.pause("trial", "ann", "bad prompt").await.unwrap());
    assert!(!client.pause("trial", "bob", "other").await.unwrap(), "the first one stands");
    assert_eq!(client.pause("nobody", "ann", "").await.unwrap_err().code(), "unknown-workflow");
    assert_eq!(client.pause("trial", "\n", "").await.unwrap_err().code(), "invalid-name");

    enqueue(&client, "fine", 3).await;
    client.enqueue::<Count>("c", 1).await.unwrap().output().await.unwrap();
    // What a node holds goes on.
    trial.gate.open();
    for run in ["stuck0", "stuck1"] {
        until_status(&client, run, RunStatus::Completed).await;
    }
    let why = client.explain("fine0").await.unwrap().to_string();
    assert!(why.contains("paused by ann") && why.contains("bad prompt"), "{why}");
    let control = &client.controls().await.unwrap()[0];
    assert_eq!((control.workflow.as_str(), control.paused_by.as_deref()), ("trial", Some("ann")));
    assert_eq!(client.counts().await.unwrap().runnable, 3);
    assert_eq!(trial.log.count("fine0", "begin"), 0);

    assert!(client.resume("trial", "bob").await.unwrap());
    assert!(!client.resume("trial", "bob").await.unwrap());
    until_over(&client).await;
    let mut conn = connect(&db).await;
    let told = "select count(*) from longhaul.control_log where target = 'trial' and (action, by) in
        (('paused', 'ann'), ('resumed', 'bob'))";
    assert_eq!(number(&mut conn, told).await, 2);
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ceiling_is_exact_over_all_nodes() {
    let (db, trial) = (database().await, Trial::default());
    let client = Client::connect(db.url()).await.unwrap();
    enqueue(&client, "flaky", 1).await;
    assert!(client.limit_running("trial", "ann", Some(3)).await.unwrap());
    assert_eq!(client.limit_running("trial", "ann", Some(0)).await.unwrap_err().code(), "invalid-limit");
    // Every claim is watched: the most that were ever owned at once.
    let mut conn = connect(&db).await;
    execute(
        &mut conn,
        "create table public.most (owned bigint);
         create function public.watch() returns trigger language plpgsql as $$ begin
             insert into public.most select count(*) from longhaul.runs r join longhaul.workflow_versions v
                 on v.id = r.workflow where r.owner is not null and v.name = 'trial';
             return null;
         end $$;
         create trigger watch after update on longhaul.runs for each statement execute function public.watch()",
    )
    .await;
    let nodes = [node(&db, "a", &trial).await, node(&db, "b", &trial).await, node(&db, "c", &trial).await];
    enqueue(&client, "fine", 60).await;
    enqueue(&client, "called", 20).await;
    client.enqueue_many::<Count>((0..50).map(|k| (format!("c{k}"), k)).collect()).await.unwrap();
    until_over(&client).await;
    assert_eq!(number(&mut conn, "select max(owned) from public.most").await, 3, "never more, and as many at times");
    for node in nodes {
        node.shutdown().await.unwrap();
    }
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ceiling_is_seen_and_lifted() {
    let (db, trial) = (database().await, Trial::default());
    let node = node(&db, "a", &trial).await;
    let client = node.client();
    client.enqueue::<Trial>("first", "stuck".into()).await.unwrap();
    until_status(&client, "first", RunStatus::Owned).await;
    client.limit_running("trial", "ann", Some(1)).await.unwrap();
    enqueue(&client, "stuck", 4).await;
    let why = client.explain("stuck0").await.unwrap().to_string();
    assert!(why.contains("ceiling: 1 of 1"), "{why}");
    let why = client.explain_workflow("trial").await.unwrap().to_string();
    for words in
        ["the ceiling is reached: 1 of 1", "4 runs may be claimed", "node `a` is working on 1 run", "`longhaul limit"]
    {
        assert!(why.contains(words), "{words}: {why}");
    }
    client.limit_running("trial", "ann", None).await.unwrap();
    eventually("all are held", async || (node.running() == 5).then_some(())).await;
    trial.gate.open();
    until_over(&client).await;
    node.shutdown().await.unwrap();
}

/// A node that is slow to look must not leave the room under a ceiling empty until its next look.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_run_makes_room_for_the_next_at_once() {
    let (db, trial) = (database().await, Trial::default());
    let client = Client::connect(db.url()).await.unwrap();
    enqueue(&client, "fine", 40).await;
    client.limit_running("trial", "ann", Some(1)).await.unwrap();
    let slow = Config { poll_interval: std::time::Duration::from_secs(30), ..config("a") };
    let begun = std::time::Instant::now();
    let node = Node::builder(db.url()).workflow(trial).config(slow).start().await.unwrap();
    until_over(&client).await;
    assert!(begun.elapsed() < std::time::Duration::from_secs(29), "not one run a look");
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_asked_to_drain_takes_no_more_and_lets_go_at_the_boundary() {
    let (db, trial) = (database().await, Trial::default());
    let a = node(&db, "a", &trial).await;
    let client = a.client();
    enqueue(&client, "stuck", 2).await;
    eventually("both are at the gate", async || (a.running() == 2).then_some(())).await;
    assert_eq!(client.drain_node("nobody", "ann").await.unwrap_err().code(), "unknown-node");
    assert_eq!(client.drain_node("a", "ann").await.unwrap(), 1);
    a.drain_asked().await;
    assert!(client.nodes().await.unwrap()[0].draining);
    enqueue(&client, "fine", 2).await;
    let why = client.explain_workflow("trial").await.unwrap().to_string();
    assert!(why.contains("all 1 living nodes that have version 1 are draining"), "{why}");
    // It looks, and does not claim.
    a.tree().wake(&Kind::Advancer);
    trial.gate.open();
    eventually("it holds nothing", async || (a.running() == 0).then_some(())).await;
    assert_eq!(client.counts().await.unwrap().runnable, 2);
    let b = node(&db, "b", &trial).await;
    until_over(&client).await;
    assert_eq!(b.progress().runs_completed, 2);
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_run_stays_where_it_is_until_it_is_retried() {
    let (db, trial) = (database().await, Trial::default());
    let node = node(&db, "a", &trial).await;
    let client = node.client();
    enqueue(&client, "stuck", 1).await;
    eventually("it is at the gate", async || (trial.log.len() == 2).then_some(())).await;
    assert_eq!(client.park("stuck0", "ann", "nul \0 in it").await.unwrap(), RunStatus::Owned);
    assert_eq!(client.park("stuck0", "ann", "again").await.unwrap_err().code(), "not-parkable");
    assert_eq!(client.park("nobody", "ann", "x").await.unwrap_err().code(), "unknown-run");
    trial.gate.open();
    eventually("its step is over", async || (node.running() == 0).then_some(())).await;
    let run = client.run("stuck0").await.unwrap();
    assert_eq!((run.status, run.reason.as_deref()), (RunStatus::Parked, Some("nul \u{fffd} in it")));
    client.enqueue::<Twice>("asks", ()).await.unwrap();
    until_status(&client, "asks", RunStatus::Waiting).await;
    assert_eq!(client.park("asks", "ann", "x").await.unwrap_err().code(), "not-parkable", "it does nothing");
    client.retry("stuck0").await.unwrap();
    until_status(&client, "stuck0", RunStatus::Completed).await;
    assert_eq!(trial.log.count("stuck0", "stuck"), 2, "what it did while it was parked was not committed");
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_runs_are_counted_first_and_then_changed_one_by_one() {
    let (db, trial) = (database().await, Trial::default());
    let client = Client::connect(db.url()).await.unwrap();
    let tagged = |k: usize| EnqueueOptions::new().tag(if k < 600 { "old" } else { "new" });
    let runs = (0..700).map(|k| (format!("r{k}"), "fine".to_owned(), tagged(k))).collect();
    client.enqueue_many_with::<Trial>(runs).await.unwrap();
    client.enqueue_many::<Count>((0..20).map(|k| (format!("c{k}"), k)).collect()).await.unwrap();

    let park = client.bulk(BulkAction::Park("a look".into()), "ann", &Filter::new().tag("old")).await.unwrap();
    let plan = park.plan().await.unwrap();
    assert_eq!(plan.runs, 600);
    assert_eq!(client.counts().await.unwrap().parked, 0, "counting changes nothing");
    let mut told = Vec::new();
    let outcomes = park.execute(plan, |outcomes| told.push(outcomes.runs)).await.unwrap();
    assert_eq!((outcomes.runs, outcomes.done(), told), (600, 600, vec![500, 600]));
    assert_eq!(park.execute(plan, |_| {}).await.unwrap().runs, 0, "done again, there is nothing left");

    let retry = client.bulk(BulkAction::Retry, "ann", &Filter::new().workflow("trial")).await.unwrap();
    let plan = retry.plan().await.unwrap();
    client.park("r650", "ann", "one more").await.unwrap();
    assert_eq!(retry.execute(plan, |_| {}).await.unwrap_err().code(), "bulk-changed");
    assert_eq!(client.counts().await.unwrap().parked, 601, "nothing was done");
    let plan = retry.plan().await.unwrap();
    assert_eq!(retry.execute(plan, |_| {}).await.unwrap().done(), 601);

    let cancel = client.bulk(BulkAction::Cancel, "ann", &Filter::new().workflow("trial")).await.unwrap();
    let plan = cancel.plan().await.unwrap();
    enqueue(&client, "late", 3).await;
    assert_eq!(cancel.execute(plan, |_| {}).await.unwrap().done(), 700, "what came later is left alone");
    let node = node(&db, "a", &trial).await;
    until_over(&client).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.canceled, counts.completed), (700, 23));

    let refused = [
        (BulkAction::Retry, Filter::new()),
        (BulkAction::Cancel, Filter::new().roots()),
        (BulkAction::Retry, Filter::new().status(RunStatus::Waiting)),
        (BulkAction::Park("x".into()), Filter::new().status(RunStatus::Failed)),
    ];
    for (action, filter) in refused {
        let error = client.bulk(action.clone(), "ann", &filter).await.unwrap_err();
        assert_eq!(error.code(), "invalid-filter", "{action:?} {filter:?}");
    }
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_is_explained() {
    let (db, trial) = (database().await, Trial::default());
    let first = node(&db, "a", &trial).await;
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Twice>("asks", ()).await.unwrap();
    client.enqueue::<Trial>("patient", "patient".into()).await.unwrap();
    enqueue(&client, "fatal", 2).await;
    until_status(&client, "asks", RunStatus::Waiting).await;
    eventually("one is put off, two have failed", async || {
        let counts = client.counts().await.unwrap();
        (counts.failed == 2 && counts.owned == 0).then_some(())
    })
    .await;
    first.shutdown().await.unwrap();
    client.enqueue::<Trial>("due", "fine".into()).await.unwrap();
    client.enqueue::<Trial>("parked", "fine".into()).await.unwrap();
    client.park("parked", "ann", "look at it").await.unwrap();
    let why = client.explain_workflow("trial").await.unwrap().to_string();
    for words in [
        "1 run may be claimed",
        "no living node has version 1",
        "is due in",
        "2 runs failed, the newest is `fatal1`",
        "1 run parked, the newest is `parked`: look at it",
    ] {
        assert!(why.contains(words), "{words}: {why}");
    }
    let why = client.explain_workflow("twice").await.unwrap().to_string();
    assert!(why.contains("1 run wait for people") && why.contains("--kind human"), "{why}");
    assert_eq!(client.explain_workflow("nobody").await.unwrap_err().code(), "unknown-workflow");
}
