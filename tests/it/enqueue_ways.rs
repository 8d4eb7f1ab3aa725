//! The ways in: with tags and metadata, inside a transaction of the caller's, and by plain SQL from any driver.

use crate::support::{Count, builder, check, connect, database, number, until_over};
use longhaul::{Client, EnqueueOptions, Enqueued, Filter, RunStatus, Workflow, workflow};
use longhaul::{Next, Result, Run};
use longhaul_sandbox::postgres::testing::TestDatabase;
use sqlx::{Connection, PgConnection};

/// Gives back what it is given.
pub struct Echo;

#[workflow]
mod echo {
    use super::*;

    impl Workflow for Echo {
        const NAME: &'static str = "echo";
        const VERSION: u32 = 1;
        type Input = serde_json::Value;
        type State = ();
        type Output = serde_json::Value;
        type Entry = step::only;
    }

    #[step]
    async fn only(run: &mut Run<Echo>) -> Result<Next<Echo>> {
        Ok(Next::finish((*run.input).clone()))
    }
}

fn tagged(tags: &[&str]) -> EnqueueOptions {
    tags.iter().fold(EnqueueOptions::new(), |options, tag| options.tag(*tag))
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_and_metadata_are_kept_and_are_no_part_of_the_identity() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let about = serde_json::json!({"ticket": 7, "nul": "\0"});
    let options = tagged(&["b", "a", "b"]).metadata(about.as_object().unwrap().clone());
    client.enqueue_with::<Count>("r", 1, options).await.unwrap();
    let again = vec![("r".to_owned(), 1, tagged(&["c"])), ("s".to_owned(), 1, EnqueueOptions::new())];
    let answers = client.enqueue_many_with::<Count>(again).await.unwrap();
    assert!(matches!(answers[0], Ok((_, Enqueued::Existing(RunStatus::Runnable)))));
    let run = client.run("r").await.unwrap();
    assert_eq!(run.tags, ["a", "b"], "those that it was made with");
    let kept: serde_json::Value = serde_json::from_str(run.metadata.as_deref().unwrap()).unwrap();
    assert_eq!(kept, about);
    assert_eq!(client.run("s").await.unwrap().tags, [""; 0]);
    let page = client.list(&Filter::new().tag("a"), None, 10).await.unwrap();
    assert_eq!(page.runs.iter().map(|run| run.run_id.as_str()).collect::<Vec<_>>(), ["r"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_cannot_be_kept_stop_nobody_else() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let many: Vec<String> = (0..17).map(|k| format!("tag {k}")).collect();
    let long = "x".repeat(65);
    let large = serde_json::json!({"a": "x".repeat(5_000)});
    let runs = vec![
        ("many".to_owned(), 1, tagged(&many.iter().map(String::as_str).collect::<Vec<_>>())),
        ("long".to_owned(), 1, tagged(&[&long])),
        ("blank".to_owned(), 1, tagged(&[""])),
        ("nul".to_owned(), 1, tagged(&["a\0"])),
        ("large".to_owned(), 1, EnqueueOptions::new().metadata(large.as_object().unwrap().clone())),
        ("good".to_owned(), 1, tagged(&["ä", &long[..64]])),
    ];
    let answers = client.enqueue_many_with::<Count>(runs).await.unwrap();
    let codes: Vec<_> = answers.iter().map(|a| a.as_ref().map(|(_, made)| *made).map_err(|e| e.code())).collect();
    let bad = Err("invalid-options");
    assert_eq!(codes, [bad, bad, bad, bad, Err("invalid-value"), Ok(Enqueued::Created)]);
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.runs").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_comes_and_goes_with_the_callers_transaction() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let mut conn = connect(&db).await;
    let mut tx = conn.begin().await.unwrap();
    let made = client.enqueue_in::<Count>(&mut tx, "r", 1, tagged(&["t"])).await.unwrap();
    assert_eq!(made, Enqueued::Created);
    assert_eq!(client.run("r").await.unwrap_err().code(), "unknown-run", "nobody sees it before the COMMIT");
    tx.rollback().await.unwrap();
    assert_eq!(client.run("r").await.unwrap_err().code(), "unknown-run");
    let mut other = connect(&db).await;
    assert_eq!(number(&mut other, "select count(*) from longhaul.run_tags").await, 0);

    let mut tx = conn.begin().await.unwrap();
    client.enqueue_in::<Count>(&mut tx, "r", 1, tagged(&["t"])).await.unwrap();
    // A refusal writes nothing and leaves the transaction usable.
    let other_input = client.enqueue_in::<Count>(&mut tx, "r", 2, tagged(&[])).await.unwrap_err();
    assert_eq!(other_input.code(), "duplicate-run");
    assert_eq!(client.enqueue_in::<Count>(&mut tx, "\0", 2, tagged(&[])).await.unwrap_err().code(), "invalid-run-id");
    let again = client.enqueue_in::<Count>(&mut tx, "r", 1, tagged(&[])).await.unwrap();
    assert_eq!(again, Enqueued::Existing(RunStatus::Runnable));
    tx.commit().await.unwrap();

    let node = builder(&db, "a").start().await.unwrap();
    client.nudge().await.unwrap();
    assert_eq!(client.handle::<Count>("r").await.unwrap().output().await.unwrap(), 5);
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_the_callers_snapshot_does_not_see_is_no_duplicate() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let mut conn = connect(&db).await;
    let mut tx = conn.begin().await.unwrap();
    sqlx::raw_sql("set transaction isolation level repeatable read; select 1").execute(&mut *tx).await.unwrap();
    client.enqueue::<Count>("r", 1).await.unwrap();
    let error = client.enqueue_in::<Count>(&mut tx, "r", 1, EnqueueOptions::new()).await.unwrap_err();
    assert_eq!(error.code(), "store-transient", "{error}");
}

/// Enqueues by SQL; answers what it said, or its SQLSTATE and the code in its message.
async fn by_sql(conn: &mut PgConnection, id: &str, input: &str) -> std::result::Result<String, (String, String)> {
    let sql = "select longhaul.enqueue('echo', 1, $1, $2::text::json, array['sql'], '{\"by\": \"cron\"}')";
    sqlx::query_scalar::<_, String>(sql).bind(id).bind(input).fetch_one(conn).await.map_err(refused)
}

fn refused(error: sqlx::Error) -> (String, String) {
    let error = error.as_database_error().unwrap();
    let word = error.message().split(':').next().unwrap_or_default().to_owned();
    (error.code().unwrap_or_default().into_owned(), word)
}

/// A client that has registered the workflow.
async fn registered(db: &TestDatabase) -> Client {
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Echo>("first", 0.into()).await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_sql_enqueues_the_same_runs() {
    let db = database().await;
    let client = registered(&db).await;
    let mut conn = connect(&db).await;
    let (text, shuffled) = (r#"{"b": [1, 2.50], "a": "\u0000é"}"#, r#"{"a":"\u0000\u00e9","b":[1,2.5]}"#);
    assert_eq!(by_sql(&mut conn, "r", text).await.as_deref(), Ok("created"));
    assert_eq!(by_sql(&mut conn, "r", text).await.as_deref(), Ok("runnable"));

    // By the digest in Rust, whatever the order of keys and the escapes.
    let value: serde_json::Value = serde_json::from_str(shuffled).unwrap();
    let made = client.enqueue_many::<Echo>(vec![("r".into(), value.clone())]).await.unwrap();
    assert!(matches!(made[0], Ok((_, Enqueued::Existing(RunStatus::Runnable)))));
    assert_eq!(client.enqueue::<Echo>("r", 1.into()).await.unwrap_err().code(), "duplicate-run");
    assert_eq!(client.enqueue::<Count>("r", 1).await.unwrap_err().code(), "duplicate-run");

    // And the other way round.
    assert_eq!(by_sql(&mut conn, "first", "0").await.as_deref(), Ok("runnable"));
    assert_eq!(by_sql(&mut conn, "first", "0.0").await, Err(("LH003".into(), "duplicate-run".into())));
    assert_eq!(by_sql(&mut conn, "sorted", r#"{"a": 1, "b": 2}"#).await.as_deref(), Ok("created"));
    assert_eq!(by_sql(&mut conn, "sorted", r#"{"b":2,"a":1}"#).await.as_deref(), Ok("runnable"));

    let node = builder(&db, "a").workflow(Echo).start().await.unwrap();
    assert_eq!(client.handle::<Echo>("r").await.unwrap().output().await.unwrap(), value, "read back equal");
    until_over(&client).await;
    assert_eq!(by_sql(&mut conn, "sorted", r#"{"b":2,"a":1}"#).await.as_deref(), Ok("completed"));
    let run = client.run("r").await.unwrap();
    assert_eq!((run.tags, run.metadata.as_deref()), (vec!["sql".to_owned()], Some(r#"{"by": "cron"}"#)));
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_plain_sql_cannot_mean_is_refused_with_a_code() {
    let db = database().await;
    let _client = registered(&db).await;
    let mut conn = connect(&db).await;
    let bad_id = Err(("LH001".to_owned(), "invalid-run-id".to_owned()));
    for id in ["", " ", "\u{2003}", "a\nb", "a\u{85}b", "~child", &"ä".repeat(101)] {
        assert_eq!(by_sql(&mut conn, id, "1").await, bad_id, "{id:?}");
    }
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert_eq!(by_sql(&mut conn, "deep", &deep(101)).await, Err(("LH004".into(), "invalid-value".into())));
    assert_eq!(by_sql(&mut conn, "deep", &deep(100)).await.as_deref(), Ok("created"));
    assert_eq!(by_sql(&mut conn, "text", r#"{"[\"[": "]{{{\\"}"#).await.as_deref(), Ok("created"));
    let large = format!("\"{}\"", "x".repeat(8 << 20));
    assert_eq!(by_sql(&mut conn, "large", &large).await, Err(("LH004".into(), "invalid-value".into())));
    let calls = [
        ("select longhaul.enqueue('nobody', 1, 'x', '1')", "LH002", "unknown-workflow"),
        ("select longhaul.enqueue('echo', 2, 'x', '1')", "LH002", "unknown-workflow"),
        ("select longhaul.enqueue('echo', 1, null, '1')", "LH001", "invalid-run-id"),
        ("select longhaul.enqueue('echo', 1, 'x', '1', array[''])", "LH005", "invalid-options"),
        ("select longhaul.enqueue('echo', 1, 'x', '1', array[null])", "LH005", "invalid-options"),
        ("select longhaul.enqueue('echo', 1, 'x', '1', '{}', '[]')", "LH005", "invalid-options"),
        (
            "select longhaul.enqueue('echo', 1, 'x', '1', array(select k::text from generate_series(1, 17) k))",
            "LH005",
            "invalid-options",
        ),
    ];
    for (sql, state, word) in calls {
        let refusal = sqlx::query_scalar::<_, String>(sql).fetch_one(&mut conn).await.map_err(refused);
        assert_eq!(refusal, Err((state.into(), word.into())), "{sql}");
    }
    assert_eq!(number(&mut conn, "select count(*) from longhaul.runs").await, 3);
}

/// What has two keys of one name, or no double for a number, has no canonical form: no input of a client equals it.
#[tokio::test(flavor = "multi_thread")]
async fn an_input_without_canonical_form_equals_only_itself() {
    let db = database().await;
    let client = registered(&db).await;
    let mut conn = connect(&db).await;
    let twice = r#"{"a": 1, "a": 2}"#;
    assert_eq!(by_sql(&mut conn, "twice", twice).await.as_deref(), Ok("created"));
    assert_eq!(by_sql(&mut conn, "twice", twice).await.as_deref(), Ok("runnable"));
    let value: serde_json::Value = serde_json::from_str(twice).unwrap();
    assert_eq!(client.enqueue::<Echo>("twice", value).await.unwrap_err().code(), "duplicate-run");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_by_sql_and_by_client_at_once_make_each_run_once() {
    let db = database().await;
    let client = registered(&db).await;
    let ids: Vec<String> = (0..20).map(|k| format!("r{k}")).collect();
    let sql = async {
        let mut conn = connect(&db).await;
        let mut created = 0;
        for id in &ids {
            created += usize::from(by_sql(&mut conn, id, "7").await.unwrap() == "created");
        }
        created
    };
    let rust = async {
        let mut created = 0;
        for id in ids.iter().rev() {
            let made = client.enqueue_many::<Echo>(vec![(id.clone(), 7.into())]).await.unwrap();
            created += usize::from(matches!(made[0], Ok((_, Enqueued::Created))));
        }
        created
    };
    let (a, b) = tokio::join!(sql, rust);
    assert_eq!(a + b, 20);
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.events").await, 21);
}
