//! What is read back is equal, or it was refused with a typed error and nothing was written.

use crate::support::{connect, database, execute, number};
use longhaul::{Client, Next, Node, NodeBuilder, Result, Run, Workflow, workflow};
use longhaul_sandbox::postgres::testing::TestDatabase;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Gives back what it was given, after it has been through state, argument and output.
pub struct Echo;

#[workflow]
mod echo {
    use super::*;

    impl Workflow for Echo {
        const NAME: &'static str = "echo";
        const VERSION: u32 = 1;
        type Input = Value;
        type State = Value;
        type Output = Value;
        type Entry = step::first;
    }

    #[step]
    async fn first(run: &mut Run<Echo>) -> Result<Next<Echo>> {
        run.state = (*run.input).clone();
        Ok(Next::goto(step::second, (*run.input).clone()))
    }

    /// Leaves the node, so that everything is read back from the database.
    #[step(attempts = 3, backoff = "5ms..5ms")]
    async fn second(run: &mut Run<Echo>, value: Value) -> Result<Next<Echo>> {
        if value != *run.input || run.state != *run.input {
            return Err(longhaul::StepError::fatal("it is not what it was"));
        }
        Ok(Next::finish(value))
    }
}

/// A value that keeps its text.
#[derive(Serialize, Deserialize)]
pub struct Text(Box<RawValue>);

impl Default for Text {
    fn default() -> Self {
        Self(RawValue::from_string("null".into()).unwrap())
    }
}

pub struct Raw;

#[workflow]
mod raw {
    use super::*;

    impl Workflow for Raw {
        const NAME: &'static str = "raw";
        const VERSION: u32 = 1;
        type Input = Text;
        type State = ();
        type Output = Text;
        type Entry = step::only;
    }

    #[step]
    async fn only(run: &mut Run<Raw>) -> Result<Next<Raw>> {
        Ok(Next::finish(Text(RawValue::from_string(run.input.0.get().to_owned())?)))
    }
}

fn builder(db: &TestDatabase) -> NodeBuilder {
    Node::builder(db.url()).workflow(Echo).workflow(Raw).config(crate::support::config("a"))
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_values_come_back_equal() {
    let db = database().await;
    let node = builder(&db).start().await.unwrap();
    let mut deep = json!(1);
    for _ in 0..99 {
        deep = json!([deep]);
    }
    let values = [
        json!(null),
        json!("a\u{0}b"),
        json!({"\u{0}": "\u{0}"}),
        json!("\u{1F600} \u{2028} \u{feff} ä"),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1.0),
        json!(-0.0),
        json!(f64::MAX),
        json!(5e-324),
        json!(0.1 + 0.2),
        json!({"": [], "x": {}}),
        json!("\"\\/\u{8}\u{c}\n\r\t"),
        deep,
    ];
    for (k, value) in values.iter().enumerate() {
        let run = node.client().enqueue::<Echo>(format!("r{k}"), value.clone()).await.unwrap();
        let back = run.output().await.unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), serde_json::to_string(value).unwrap());
    }
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_no_number_or_string_type_can_hold_are_kept_or_refused() {
    let db = database().await;
    let node = builder(&db).start().await.unwrap();
    let client = node.client();
    let mut conn = connect(&db).await;
    let texts = [
        "18446744073709551617",
        "1e400",
        "-1E+2",
        "0.1000000000000000000000000000000000001",
        r#""\ud800""#,
        r#"{"a":1,"a":2}"#,
        r#""\u0000""#,
        "[1e-400]",
    ];
    let mut kept = 0;
    for (k, text) in texts.iter().enumerate() {
        let before = number(&mut conn, "select count(*) from longhaul.runs").await;
        let input = Text(RawValue::from_string((*text).to_owned()).unwrap());
        match client.enqueue::<Raw>(format!("r{k}"), input).await {
            Ok(run) => {
                assert_eq!(run.output().await.unwrap().0.get(), *text);
                kept += 1;
            }
            Err(refused) => {
                assert!(matches!(refused.code(), "not-canonical" | "invalid-value"), "{text}: {refused}");
                let after = number(&mut conn, "select count(*) from longhaul.runs").await;
                assert_eq!(after, before, "{text}: nothing was written");
            }
        }
    }
    assert!(kept > 0, "not everything may be refused");
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn too_deep_and_too_large_are_refused_and_nothing_is_written() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let mut deep = json!(1);
    for _ in 0..101 {
        deep = json!([deep]);
    }
    for input in [deep, json!("x".repeat(9 << 20))] {
        let refused = client.enqueue::<Echo>("r", input).await.unwrap_err();
        assert_eq!(refused.code(), "invalid-value", "{refused}");
    }
    let mut conn = connect(&db).await;
    for table in ["select count(*) from longhaul.runs", "select count(*) from longhaul.inputs"] {
        assert_eq!(number(&mut conn, table).await, 0);
    }
}

/// A row of a newer version is skipped, never misread, and holds up nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_of_a_newer_version_is_skipped() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Echo>("new", json!(1)).await.unwrap();
    let mut conn = connect(&db).await;
    execute(
        &mut conn,
        "alter table longhaul.runs drop constraint runs_status_known;
         update longhaul.runs set status = 99, ready_at = null",
    )
    .await;
    let node = builder(&db).start().await.unwrap();
    let run = client.enqueue::<Echo>("old", json!(1)).await.unwrap();
    assert_eq!(run.output().await.unwrap(), json!(1));
    assert_eq!(client.run("new").await.unwrap().status, longhaul::RunStatus::Unknown(99));
    assert_eq!(client.run("new").await.unwrap().events, 1);
    node.shutdown().await.unwrap();
}
