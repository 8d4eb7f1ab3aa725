//! What steps write: their own events and causes, limits, and the state that is stored only when it changed.

use crate::flows::Trial;
use crate::steps::kinds;
use crate::support::{Count, builder, check, config, connect, database, failure, number, until_over};
use longhaul::{EventId, EventType, FailureCode, Node, RunStatus};
use longhaul_sandbox::postgres::testing::TestDatabase;

async fn node(db: &TestDatabase) -> Node {
    Node::builder(db.url()).workflow(Trial::default()).config(config("a")).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn own_events_get_the_ids_that_they_were_told() {
    let db = database().await;
    let node = node(&db).await;
    let run = node.client().enqueue::<Trial>("r", "record".into()).await.unwrap();
    let first: EventId = run.output().await.unwrap().parse().unwrap();
    let events = node.client().events("r").await.unwrap();
    let own: Vec<_> = events.iter().filter(|e| e.kind == EventType::Custom).collect();
    assert_eq!(own.len(), 3);
    assert_eq!(own[0].id, first);
    assert_eq!(own[1].cause, Some(first), "a pending event can be a cause at once");
    assert_eq!((own[0].cause, own[2].cause), (None, None), "by default it is the previous event");
    assert_eq!(own[0].payload, r#"{"type":"trial.first","data":1}"#);
    assert!(events.iter().enumerate().all(|(k, e)| e.id.ordinal == k as i32));
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_event_of_another_run_can_be_a_cause() {
    let db = database().await;
    let node = node(&db).await;
    let client = node.client();
    let earlier = client.enqueue::<Trial>("earlier", "record".into()).await.unwrap().output().await.unwrap();
    let input = format!("record caused by {earlier}");
    client.enqueue::<Trial>("r", input).await.unwrap().output().await.unwrap();
    let events = client.events("r").await.unwrap();
    let caused: Vec<_> = events.iter().filter_map(|e| e.cause).collect();
    assert_eq!(caused, [earlier.parse().unwrap()]);
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_cause_is_refused_alone() {
    let db = database().await;
    let node = node(&db).await;
    let client = node.client();
    let real = client.enqueue::<Trial>("earlier", "record".into()).await.unwrap().output().await.unwrap();
    let real: EventId = real.parse().unwrap();
    let forged = EventId { nonce: real.nonce ^ 1, ..real };
    let mut runs: Vec<(String, String)> = (0..200).map(|k| (format!("r{k}"), "record".to_owned())).collect();
    runs.insert(100, ("forged".into(), format!("record caused by {forged}")));
    client.enqueue_many::<Trial>(runs).await.unwrap();
    until_over(&client).await;
    assert_eq!(failure::<Trial>(&client, "forged").await.0, FailureCode::UnknownCause);
    assert!(!kinds(&client, "forged").await.contains(&EventType::Custom), "nothing of the refused transition is in");
    assert_eq!(client.counts().await.unwrap().completed, 201);
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_a_limit_fails_its_run_with_that_reason() {
    let db = database().await;
    let node = node(&db).await;
    let client = node.client();
    let limits = ["limit of a state", "limit of an output", "limit of an argument"];
    client.enqueue_many::<Trial>(limits.iter().map(|l| ((*l).into(), (*l).into())).collect()).await.unwrap();
    client.enqueue::<Trial>("limit of an event", "limit of an event".into()).await.unwrap();
    until_over(&client).await;
    for limit in limits {
        let (code, message) = failure::<Trial>(&client, limit).await;
        assert_eq!(code, FailureCode::LimitExceeded, "{limit}: {message}");
    }
    let (code, message) = failure::<Trial>(&client, "limit of an event").await;
    assert_eq!(code, FailureCode::StepError, "the step was told, and returned it: {message}");
    node.shutdown().await.unwrap();
    check(&db).await;
}

/// A state of 100 kB travels once: of six transitions over it only those that changed it carry it.
#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_state_is_not_written_again() {
    let db = database().await;
    let node = node(&db).await;
    let client = node.client();
    let output = client.enqueue::<Trial>("r", "large".into()).await.unwrap().output().await.unwrap();
    assert_eq!(output, "2");
    let mut conn = connect(&db).await;
    let bytes: i32 = sqlx::query_scalar("select state_bytes from longhaul.runs where run_id = 'r'")
        .fetch_one(&mut conn)
        .await
        .unwrap();
    assert!(bytes > 100_000);
    let written: Vec<Option<String>> = {
        let events = client.events("r").await.unwrap();
        let done = events.iter().filter(|e| e.kind == EventType::StepCompleted);
        done.map(|e| {
            serde_json::from_str::<serde_json::Value>(&e.payload).unwrap()["state"]["sha256"]
                .as_str()
                .map(str::to_owned)
        })
        .collect()
    };
    assert_eq!(written.iter().filter(|digest| digest.is_some()).count(), 2, "begun, then made large: {written:?}");
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_boundary_is_one_commit_and_started_is_durable_before_the_step() {
    let db = database().await;
    let node = builder(&db, "a").start().await.unwrap();
    let client = node.client();
    client.enqueue_many::<Count>((0..50).map(|k| (format!("r{k}"), k)).collect()).await.unwrap();
    until_over(&client).await;
    let mut conn = connect(&db).await;
    // Enqueue, claim, and five steps' ends, the next start in the same one.
    let different = number(
        &mut conn,
        "select count(*) from (select run, count(distinct xmin::text) as n from longhaul.events group by run) as x
         where n <> 7",
    )
    .await;
    assert_eq!(different, 0);
    let apart = number(
        &mut conn,
        "select count(*) from longhaul.events s join longhaul.events c on c.run = s.run and c.ordinal = s.ordinal - 1
         where s.type = 20 and c.type = 21 and s.xmin::text <> c.xmin::text",
    )
    .await;
    assert_eq!(apart, 0, "a completion and the next start are in one transaction");
    node.shutdown().await.unwrap();
}

/// Boundary commits change no indexed column and find room on their page.
#[tokio::test(flavor = "multi_thread")]
async fn boundary_commits_are_hot_updates() {
    let db = database().await;
    let node = builder(&db, "a").start().await.unwrap();
    let client = node.client();
    client.enqueue_many::<Count>((0..1_000).map(|k| (format!("r{k}"), k)).collect()).await.unwrap();
    until_over(&client).await;
    node.shutdown().await.unwrap();
    let mut conn = connect(&db).await;
    // Six updates a run: the claim and the last one touch an index, the four boundaries between do not.
    let (updates, hot) = crate::support::eventually("the statistics are in", async || {
        let row: (i64, i64) = sqlx::query_as(
            "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where schemaname = 'longhaul' and relname = 'runs'",
        )
        .fetch_one(&mut conn)
        .await
        .unwrap();
        (row.0 >= 6_000).then_some(row)
    })
    .await;
    // Four of six can be; on a busy machine some find their page still full of versions that somebody may see.
    assert!(hot * 3 >= updates, "{hot} of {updates} updates were HOT");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_durable_and_never_idle_in_a_transaction() {
    let db = database().await;
    let node = builder(&db, "a").start().await.unwrap();
    let client = node.client();
    client.enqueue_many::<Count>((0..2_000).map(|k| (format!("r{k}"), k)).collect()).await.unwrap();
    let mut conn = connect(&db).await;
    let mut looks = 0;
    loop {
        let idle = number(
            &mut conn,
            "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'longhaul'
                 and state like 'idle in transaction%' and now() - state_change > interval '1 second'",
        )
        .await;
        assert_eq!(idle, 0);
        looks += 1;
        if client.counts().await.unwrap().completed == 2_000 {
            break;
        }
    }
    assert!(looks > 0);
    // No role or database default weakens what a session of ours commits with.
    let weak = number(
        &mut conn,
        "select count(*) from pg_settings where name in ('synchronous_commit', 'fsync', 'full_page_writes')
             and setting <> 'on'",
    )
    .await;
    assert_eq!(weak, 0);
    let sessions = number(
        &mut conn,
        "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'longhaul'",
    )
    .await;
    assert!((1..=8).contains(&sessions), "a node has at most 8 connections, these are {sessions}");
    assert_eq!(client.run("r0").await.unwrap().status, RunStatus::Completed);
    node.shutdown().await.unwrap();
}
