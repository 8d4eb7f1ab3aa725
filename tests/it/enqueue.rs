//! Enqueueing is idempotent by run id and digest, answers each item, and settles races by the unique id.

use crate::flows::Trial;
use crate::support::{Count, builder, connect, database, execute, number, until_over};
use longhaul::{Client, Enqueued, Error, RunStatus, Workflow, workflow};
use longhaul::{Next, Result, Run};
use sqlx::Connection;
use std::collections::BTreeMap;

/// An input whose keys have an order of the caller's.
pub struct Ordered;

#[workflow]
mod ordered {
    use super::*;

    impl Workflow for Ordered {
        const NAME: &'static str = "ordered";
        const VERSION: u32 = 1;
        type Input = serde_json::Value;
        type State = ();
        type Output = ();
        type Entry = step::only;
    }

    #[step]
    async fn only(_: &mut Run<Ordered>) -> Result<Next<Ordered>> {
        Ok(Next::finish(()))
    }
}

async fn made(client: &Client, runs: &[(&str, i64)]) -> Vec<std::result::Result<Enqueued, &'static str>> {
    let runs = runs.iter().map(|(id, n)| ((*id).to_owned(), *n)).collect();
    let made = client.enqueue_many::<Count>(runs).await.unwrap();
    made.into_iter().map(|m| m.map(|(_, e)| e).map_err(|e| e.code())).collect()
}

const CREATED: std::result::Result<Enqueued, &'static str> = Ok(Enqueued::Created);
const EXISTING: std::result::Result<Enqueued, &'static str> = Ok(Enqueued::Existing(RunStatus::Runnable));

#[tokio::test(flavor = "multi_thread")]
async fn the_same_again_is_the_same_run() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    assert_eq!(made(&client, &[("r", 1)]).await, [CREATED]);
    assert_eq!(made(&client, &[("r", 1)]).await, [EXISTING]);
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.runs").await, 1);
    assert_eq!(number(&mut conn, "select count(*) from longhaul.events").await, 1);
    assert_eq!(number(&mut conn, "select count(*) from longhaul.inputs").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_input_under_that_id_is_a_duplicate() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    assert_eq!(made(&client, &[("r", 1)]).await, [CREATED]);
    assert_eq!(made(&client, &[("r", 2)]).await, [Err("duplicate-run")]);
    let other = client.enqueue::<Trial>("r", "1".into()).await;
    assert!(matches!(other, Err(Error::DuplicateRun(id)) if id == "r"), "another workflow is another run");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_keys_does_not_matter_and_the_kind_of_a_number_does() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let put = async |text: &str| client.enqueue::<Ordered>("r", read(text)).await.map(|_| ()).map_err(|e| e.code());
    assert_eq!(put(r#"{"a": {"x": 1, "y": [2, 3]}, "b": "é"}"#).await, Ok(()));
    assert_eq!(put(r#"{"b": "\u00e9", "a": {"y": [2,3], "x": 1}}"#).await, Ok(()));
    assert_eq!(put(r#"{"a": {"x": 1.0, "y": [2, 3]}, "b": "é"}"#).await, Err("duplicate-run"));
    assert_eq!(put(r#"{"a": {"x": 1, "y": [3, 2]}, "b": "é"}"#).await, Err("duplicate-run"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_id_twice_in_one_call_is_one_run() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let answers = made(&client, &[("r", 1), ("s", 1), ("r", 1), ("r", 2)]).await;
    assert_eq!(answers, [CREATED, CREATED, EXISTING, Err("duplicate-run")]);
    let answers = made(&client, &[("r", 2), ("r", 1), ("r", 1)]).await;
    assert_eq!(answers[0], Err("duplicate-run"));
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.runs").await, 2);
}

/// What is first under an id in one call decides nothing that the database has decided before.
#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_does_not_hide_the_same_run_behind_it() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    assert_eq!(made(&client, &[("r", 1)]).await, [CREATED]);
    assert_eq!(made(&client, &[("r", 2), ("r", 1)]).await, [Err("duplicate-run"), EXISTING]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_item_stops_nobody() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let answers = made(&client, &[("a", 1), ("", 1), ("b", 1), ("\u{7}", 1), ("~c", 1), ("c", 1), (" ", 9)]).await;
    let bad = Err("invalid-run-id");
    assert_eq!(answers, [CREATED, bad, CREATED, bad, bad, CREATED, bad]);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_ids_have_rules() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let longest = "ä".repeat(100);
    for good in ["1790", "a b", "ünïcode/☃", "x~", longest.as_str()] {
        assert_eq!(made(&client, &[(good, 1)]).await, [CREATED], "{good}");
        assert_eq!(client.run(good).await.unwrap().run_id, good);
    }
    let too_long = format!("{longest}x");
    for bad in ["", "  ", "\0", "a\nb", "~child", too_long.as_str()] {
        assert_eq!(made(&client, &[(bad, 1)]).await, [Err("invalid-run-id")], "{bad:?}");
    }
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.runs").await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_callers_on_the_same_ids_make_each_run_once() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..20 {
        let client = client.clone();
        callers.spawn(async move {
            // Each goes through the ids from another side.
            let mut runs: Vec<(String, i64)> = (0..50).map(|k| (format!("r{k}"), 1)).collect();
            runs.rotate_left(caller * 7 % 50);
            client.enqueue_many::<Count>(runs).await.unwrap().into_iter().map(|m| m.unwrap().1).collect::<Vec<_>>()
        });
    }
    let mut tally = BTreeMap::new();
    for answer in callers.join_all().await.into_iter().flatten() {
        *tally.entry(format!("{answer:?}")).or_insert(0) += 1;
    }
    assert_eq!(tally.get("Created"), Some(&50), "{tally:?}");
    assert_eq!(tally.values().sum::<i32>(), 1000, "each caller has an answer for each: {tally:?}");
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.runs").await, 50);
    assert_eq!(number(&mut conn, "select count(*) from longhaul.events").await, 50);
}

/// Another transaction holds the id and does not commit: the caller waits for it, and then there is a run.
#[tokio::test(flavor = "multi_thread")]
async fn a_competitor_that_rolls_back_leaves_the_run_to_the_other() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    made(&client, &[("earlier", 1)]).await;
    let (mut competitor, mut observer) = (connect(&db).await, connect(&db).await);
    let mut tx = competitor.begin().await.unwrap();
    hold_id(&mut tx).await;
    let caller = tokio::spawn({
        let client = client.clone();
        async move { made(&client, &[("r", 1)]).await }
    });
    until_blocked(&mut observer).await;
    assert!(!caller.is_finished());
    tx.rollback().await.unwrap();
    assert_eq!(caller.await.unwrap(), [CREATED]);
    assert_eq!(number(&mut observer, "select count(*) from longhaul.inputs").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_competitor_that_commits_is_seen() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    made(&client, &[("earlier", 1)]).await;
    let (mut competitor, mut observer) = (connect(&db).await, connect(&db).await);
    let mut tx = competitor.begin().await.unwrap();
    hold_id(&mut tx).await;
    let caller = tokio::spawn({
        let client = client.clone();
        async move { made(&client, &[("r", 1), ("q", 1)]).await }
    });
    until_blocked(&mut observer).await;
    tx.commit().await.unwrap();
    assert_eq!(caller.await.unwrap(), [EXISTING, CREATED], "the same digest, so the same run");
}

/// Makes run `r` as an enqueue of `earlier`'s input would, in the caller's own transaction.
async fn hold_id(tx: &mut sqlx::PgConnection) {
    let sql = "with made as (
            insert into longhaul.runs (run_id, workflow, status, ready_at, cursor, input_bytes, step)
            select 'r', workflow, 1, longhaul.now(), 1, 1, step from longhaul.runs where run_id = 'earlier'
            returning id),
        told as (insert into longhaul.events (run, ordinal, nonce, type, payload)
            select id, 0, longhaul.nonce(), 1, '{}' from made)
        insert into longhaul.inputs (run, digest, body)
        select m.id, i.digest, i.body from made m, longhaul.inputs i";
    execute(tx, sql).await;
}

/// Waits until some session of the engine's waits for a lock.
async fn until_blocked(conn: &mut sqlx::PgConnection) {
    crate::support::eventually("a session waits for a lock", async || {
        let waiting = number(
            conn,
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
        )
        .await;
        (waiting > 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_again_after_its_end_tells_of_the_end() {
    let db = database().await;
    let node = builder(&db, "a").workflow(Trial::default()).start().await.unwrap();
    let client = node.client();
    client.enqueue::<Count>("r", 1).await.unwrap().output().await.unwrap();
    assert_eq!(made(&client, &[("r", 1)]).await, [Ok(Enqueued::Existing(RunStatus::Completed))]);
    client.enqueue::<Trial>("f", "fatal".into()).await.unwrap();
    until_over(&client).await;
    let again = client.enqueue_many::<Trial>(vec![("f".into(), "fatal".into())]).await.unwrap().remove(0);
    assert_eq!(again.unwrap().1, Enqueued::Existing(RunStatus::Failed));
    assert_eq!(client.run("r").await.unwrap().events, 12, "nothing ran again");
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_in_one_call_are_answered_in_order() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let runs = (0..5_000).map(|k| (format!("r{k}"), k)).collect();
    let made = client.enqueue_many::<Count>(runs).await.unwrap();
    let mut conn = connect(&db).await;
    let keys: Vec<(String, i64)> =
        sqlx::query_as("select run_id, id from longhaul.runs").fetch_all(&mut conn).await.unwrap();
    let keys: BTreeMap<String, i64> = keys.into_iter().collect();
    for (k, made) in made.into_iter().enumerate() {
        assert_eq!(keys[&format!("r{k}")], made.unwrap().0.0, "the answer at {k} is of the run at {k}");
    }
    assert_eq!(keys.len(), 5_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_registered_with_other_steps_is_refused() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    made(&client, &[("r", 1)]).await;
    let mut conn = connect(&db).await;
    execute(&mut conn, "update longhaul.workflow_versions set steps = array_append(steps, 'six')").await;
    let client = Client::connect(db.url()).await.unwrap();
    let refused = client.enqueue::<Count>("s", 1).await.unwrap_err();
    assert_eq!(refused.code(), "workflow-drift");
    let refused = builder(&db, "a").start().await.unwrap_err();
    assert_eq!(refused.code(), "workflow-drift");
    assert!(refused.to_string().contains("VERSION"), "it says what to do: {refused}");
    assert_eq!(number(&mut conn, "select count(*) from longhaul.runs").await, 1);
}
