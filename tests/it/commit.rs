//! Commits whose outcome is unknown are decided, and what the server refuses is refused alone.

use crate::flows::Trial;
use crate::proxy::{CLAIM, Cut, ENQUEUE, FLUSH, Proxy, TAKE_OVER};
use crate::support::{Count, check, config, connect, database, eventually, execute, number, until_over};
use longhaul::{Client, Config, Enqueued, FailureCode, Node};
use longhaul_sandbox::postgres::testing::TestDatabase;
use std::time::Duration;

async fn enqueue(db: &TestDatabase, n: i64) -> Client {
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue_many::<Count>((0..n).map(|k| (format!("r{k}"), k)).collect()).await.unwrap();
    client
}

async fn node(url: &str) -> Node {
    Node::builder(url).workflow(Count).workflow(Trial::default()).config(config("a")).start().await.unwrap()
}

/// Every run completed with the right output: nothing was lost and nothing was applied twice.
async fn all_counted(db: &TestDatabase, client: &Client, n: i64) {
    until_over(client).await;
    assert_eq!(client.counts().await.unwrap().completed, n);
    let mut conn = connect(db).await;
    let wrong = number(
        &mut conn,
        "select count(*) from longhaul.outputs o join longhaul.inputs i on i.run = o.run
         where o.body::text::bigint <> i.body::text::bigint + 4",
    )
    .await;
    assert_eq!(wrong, 0);
    check(db).await;
}

async fn survives_cuts_of_the_flush(cut: Cut) {
    let db = database().await;
    let client = enqueue(&db, 300).await;
    let proxy = Proxy::start(&db).await;
    proxy.arm(FLUSH, cut, 6);
    let node = node(proxy.url()).await;
    all_counted(&db, &client, 300).await;
    assert_eq!(proxy.hits(), 6);
    let mut conn = connect(&db).await;
    // Every step was told of once, by whichever attempt got in.
    let twice = number(
        &mut conn,
        "select count(*) from (select run from longhaul.events where type = 21 group by run having count(*) <> 5) as x",
    )
    .await;
    assert_eq!(twice, 0);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_was_lost_is_known_to_be_in() {
    survives_cuts_of_the_flush(Cut::After).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_never_arrived_is_known_not_to_be_in() {
    survives_cuts_of_the_flush(Cut::Before).await;
}

/// The connection stays open and nothing comes: the statement's own deadline leads to the same decision.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_never_answered_is_decided_after_its_deadline() {
    let db = database().await;
    let client = enqueue(&db, 20).await;
    let proxy = Proxy::start(&db).await;
    proxy.arm(FLUSH, Cut::Silence, 1);
    let node = node(proxy.url()).await;
    all_counted(&db, &client, 20).await;
    assert_eq!(proxy.hits(), 1);
    node.shutdown().await.unwrap();
}

/// What was committed although nobody heard of it is not run again.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_completion_got_in_does_not_run_again() {
    let (db, trial) = (database().await, Trial::default());
    let client = Client::connect(db.url()).await.unwrap();
    let proxy = Proxy::start(&db).await;
    client.enqueue_many::<Trial>((0..50).map(|k| (format!("r{k}"), "stuck".into())).collect()).await.unwrap();
    proxy.arm(FLUSH, Cut::After, 4);
    trial.gate.open();
    let node = Node::builder(proxy.url()).workflow(trial.clone()).config(config("a")).start().await.unwrap();
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 50);
    for k in 0..50 {
        let run = format!("r{k}");
        assert_eq!((trial.log.count(&run, "begin"), trial.log.count(&run, "stuck")), (1, 1), "{run}");
    }
    assert!(proxy.hits() > 0);
    node.shutdown().await.unwrap();
    check(&db).await;
}

/// An enqueue that was committed although its answer was lost is the same run when it is asked for again.
#[tokio::test(flavor = "multi_thread")]
async fn an_enqueue_whose_answer_was_lost_is_settled_by_repeating_it() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let client = Client::connect(proxy.url()).await.unwrap();
    for (cut, created) in [(Cut::After, false), (Cut::Before, true)] {
        proxy.arm(ENQUEUE, cut, 1);
        let runs = (0..30).map(|k| (format!("{created}{k}"), 1)).collect();
        for made in client.enqueue_many::<Count>(runs).await.unwrap() {
            assert_eq!(made.unwrap().1 == Enqueued::Created, created);
        }
    }
    assert_eq!(proxy.hits(), 2);
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.runs").await, 60);
    assert_eq!(number(&mut conn, "select count(*) from longhaul.events").await, 60);
}

/// Sessions are ended by the server while they work, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn terminated_sessions_lose_nothing() {
    let db = database().await;
    let client = enqueue(&db, 1_500).await;
    let node = node(db.url()).await;
    let mut conn = connect(&db).await;
    let mut ended = 0;
    while client_counts(&mut conn).await < 1_500 {
        ended += number(
            &mut conn,
            "select count(pg_terminate_backend(pid)) from pg_stat_activity
             where datname = current_database() and application_name = 'longhaul' and random() < 0.5",
        )
        .await;
        let before = node.progress().flushes;
        eventually("it has flushed again, or is done", async || {
            (node.progress().flushes > before + 3 || client_counts(&mut conn).await == 1_500).then_some(())
        })
        .await;
    }
    assert!(ended > 0);
    // The client's own sessions were among them.
    let counted = Client::connect(db.url()).await.unwrap();
    all_counted(&db, &counted, 1_500).await;
    drop(client);
    node.shutdown().await.unwrap();
}

async fn client_counts(conn: &mut sqlx::PgConnection) -> i64 {
    number(conn, "select count(*) from longhaul.runs where status in (5, 6)").await
}

/// All of a node's connections go silent: its leases run out, another node does the work, and it comes back as another.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_behind_a_black_hole_is_taken_over() {
    let (db, trial) = (database().await, Trial::default());
    let client = Client::connect(db.url()).await.unwrap();
    let proxy = Proxy::start(&db).await;
    let start =
        async |url: &str, name| Node::builder(url).workflow(trial.clone()).config(config(name)).start().await.unwrap();
    let a = start(proxy.url(), "a").await;
    client.enqueue_many::<Trial>((0..20).map(|k| (format!("r{k}"), "stuck".into())).collect()).await.unwrap();
    eventually("a runs them", async || (trial.log.len() == 40).then_some(())).await;
    let (first, b) = (a.id(), start(db.url(), "b").await);
    proxy.black_hole();
    eventually("b runs them", async || (trial.log.len() == 60).then_some(())).await;
    trial.gate.open();
    until_over(&client).await;
    eventually("b did them", async || (b.progress().runs_completed == 20).then_some(())).await;
    proxy.heal();
    eventually("a lives again, under another id", async || (a.id() != first).then_some(())).await;
    assert_eq!(a.progress().runs_completed, 0);
    b.shutdown().await.unwrap();
    a.shutdown().await.unwrap();
    check(&db).await;
}

/// One value that the server refuses, among many: its run fails, its neighbours' transitions are in.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_transition_fails_its_run_alone() {
    let db = database().await;
    let mut conn = connect(&db).await;
    execute(
        &mut conn,
        "create function public.refuse() returns trigger language plpgsql as $$ begin
             raise exception 'not this one' using errcode = '23514'; end $$;
         create trigger refuse before insert on longhaul.outputs for each row
             when (new.body::text = '104') execute function public.refuse()",
    )
    .await;
    let client = enqueue(&db, 300).await;
    let node = node(db.url()).await;
    until_over(&client).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.completed, counts.failed), (299, 1));
    let (_, message) = crate::support::failure::<Count>(&client, "r100").await;
    assert!(message.contains("23514"), "{message}");
    node.shutdown().await.unwrap();
    check(&db).await;
}

/// The name of a provider that no text column can hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_no_column_can_hold_fails_its_run_alone() {
    use crate::flows::Asking;
    let db = database().await;
    let client = enqueue(&db, 100).await;
    client.enqueue::<Asking>("bad", "at:a\0b".into()).await.unwrap();
    let node =
        Node::builder(db.url()).workflow(Count).workflow(Asking::default()).config(config("a")).start().await.unwrap();
    until_over(&client).await;
    let (code, message) = crate::support::failure::<Asking>(&client, "bad").await;
    assert_eq!(code, FailureCode::LimitExceeded, "{message}");
    assert_eq!(client.counts().await.unwrap().completed, 100);
    node.shutdown().await.unwrap();
    check(&db).await;
}

/// The server asks to try again, so often that it cannot be a mood: the run waits for better times, and does not fail.
#[tokio::test(flavor = "multi_thread")]
async fn a_transition_that_the_server_asks_to_repeat_does_not_fail_its_run() {
    for (times, state) in [("3", "40001"), ("14", "40P01")] {
        let db = database().await;
        let mut conn = connect(&db).await;
        let sql = "create sequence public.n;
             create function public.refuse() returns trigger language plpgsql as $$ begin
                 if nextval('public.n') <= TIMES then raise exception 'again' using errcode = 'STATE'; end if;
                 return new; end $$;
             create trigger refuse before insert on longhaul.outputs for each row execute function public.refuse()";
        let sql = sql.replace("TIMES", times).replace("STATE", state);
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
        let client = enqueue(&db, 2).await;
        let node = node(db.url()).await;
        all_counted(&db, &client, 2).await;
        assert!(number(&mut conn, "select last_value from public.n").await > times.parse().unwrap());
        node.shutdown().await.unwrap();
    }
}

/// Many lanes of several nodes write the same tables in their own order, and others lock rows across them.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_flushes_do_not_deadlock() {
    let db = database().await;
    let client = enqueue(&db, 1_000).await;
    let nodes = [node(db.url()).await, node(db.url()).await, node(db.url()).await];
    let mut conn = connect(&db).await;
    while client.counts().await.unwrap().completed < 1_000 {
        // As an operator's statement would, in the same order.
        execute(&mut conn, "select id from longhaul.runs where owner is not null order by id for update").await;
    }
    all_counted(&db, &client, 1_000).await;
    let deadlocks =
        number(&mut conn, "select deadlocks from pg_stat_database where datname = current_database()").await;
    assert_eq!(deadlocks, 0);
    for node in nodes {
        node.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_over_whose_answer_was_lost_is_told_once() {
    let (db, trial) = (database().await, Trial::default());
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue_many::<Trial>((0..20).map(|k| (format!("r{k}"), "stuck".into())).collect()).await.unwrap();
    let a = Node::builder(db.url()).workflow(trial.clone()).config(config("a")).start().await.unwrap();
    eventually("a runs them", async || (trial.log.len() == 40).then_some(())).await;
    drop(a);
    let proxy = Proxy::start(&db).await;
    proxy.arm(TAKE_OVER, Cut::Before, 1);
    proxy.arm(TAKE_OVER, Cut::After, 1);
    proxy.arm(CLAIM, Cut::Before, 1);
    let b = Node::builder(proxy.url())
        .workflow(trial.clone())
        .config(Config { poll_interval: Duration::from_millis(100), ..config("b") })
        .start()
        .await
        .unwrap();
    eventually("b runs them", async || (trial.log.len() == 60).then_some(())).await;
    trial.gate.open();
    until_over(&client).await;
    assert_eq!(proxy.hits(), 3);
    assert_eq!(client.count_events(Some(longhaul::EventType::RunTakenOver)).await.unwrap(), 20);
    assert!((0..20).all(|k| trial.log.count(&format!("r{k}"), "stuck") == 2));
    b.shutdown().await.unwrap();
    check(&db).await;
}
