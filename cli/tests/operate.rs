//! The operator commands, from outside: what they print, and what they exit with.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use longhaul::{Client, EnqueueOptions, Next, Result, Run, Workflow, workflow};
use longhaul_sandbox::postgres::testing::TestDatabase;
use serde_json::Value;
use std::process::{Command, Output, Stdio};

pub struct Note;

#[workflow]
mod note {
    use super::*;

    impl Workflow for Note {
        const NAME: &'static str = "note";
        const VERSION: u32 = 1;
        type Input = u32;
        type State = ();
        type Output = u32;
        type Entry = step::only;
    }

    #[step]
    async fn only(run: &mut Run<Note>) -> Result<Next<Note>> {
        Ok(Next::finish(*run.input))
    }
}

fn longhaul(db: &TestDatabase, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(args).env_remove("RUST_LOG").env("LONGHAUL_DATABASE_URL", db.url()).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs with `--json`; answers the exit code and the value.
fn json(db: &TestDatabase, args: &[&str]) -> (Option<i32>, Value) {
    let output = longhaul(db, &[args, &["--json"]].concat());
    let said = text(&output);
    let line = said.lines().last().unwrap_or_else(|| panic!("{args:?}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), serde_json::from_str(line).unwrap())
}

async fn database(runs: u32) -> (TestDatabase, Client) {
    let template = longhaul::store::schema_digest();
    let db = TestDatabase::create(&template, |url| async move { longhaul::migrate(&url).await }).await.unwrap();
    let client = Client::connect(db.url()).await.unwrap();
    let tag = |k| EnqueueOptions::new().tag(if k % 2 == 0 { "even" } else { "odd" });
    let runs = (0..runs).map(|k| (format!("r{k}"), k, tag(k))).collect();
    client.enqueue_many_with::<Note>(runs).await.unwrap();
    (db, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_page_by_page() {
    let (db, _client) = database(5).await;
    let (code, page) = json(&db, &["runs", "list", "--tag", "even", "--limit", "2"]);
    assert_eq!((code, &page["runs"][0]["id"], &page["runs"][1]["id"]), (Some(0), &"r4".into(), &"r2".into()));
    assert_eq!(page["runs"][0]["tags"][0], "even");
    let next = page["next"].as_str().unwrap();
    let (_, rest) = json(&db, &["runs", "list", "--tag", "even", "--limit", "2", "--after", next]);
    assert_eq!((rest["runs"].as_array().unwrap().len(), &rest["next"]), (1, &Value::Null));
    let output = longhaul(&db, &["runs", "list", "--limit", "2"]);
    assert!(
        text(&output).contains("note v1") && text(&output).contains("there are more: --after r"),
        "{}",
        text(&output)
    );
    assert!(text(&longhaul(&db, &["runs", "list", "--status", "failed"])).contains("no run fits"));
    assert_eq!(json(&db, &["runs", "list", "--after", "x"]).0, Some(2));
    let (code, error) = json(&db, &["runs", "list", "--workflow", "nobody"]);
    assert_eq!((code, &error["code"]), (Some(1), &"unknown-workflow".into()));
    assert_eq!(longhaul(&db, &["runs", "list", "--status", "odd"]).status.code(), Some(2));
    assert!(text(&longhaul(&db, &["runs", "show", "r1"])).contains("tags        odd"));
    assert!(text(&longhaul(&db, &["waits"])).contains("nothing is waited for"));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_runs_are_counted_before_anything_is_done_to_them() {
    let (db, client) = database(10).await;
    let (code, counted) = json(&db, &["cancel", "--tag", "odd", "--dry-run"]);
    assert_eq!((code, &counted["runs"]), (Some(0), &5.into()));
    let hint = longhaul(&db, &["cancel", "--tag", "odd"]);
    assert_eq!(hint.status.code(), Some(2), "without --yes nothing is done, and that is said");
    assert!(text(&hint).contains("nothing was done. To do it: --yes --expect 5"), "{}", text(&hint));
    let (code, error) = json(&db, &["cancel", "--tag", "odd", "--yes", "--expect", "4"]);
    assert_eq!((code, &error["code"]), (Some(1), &"bulk-changed".into()));
    assert_eq!(client.counts().await.unwrap().canceled, 0);
    let (code, outcomes) = json(&db, &["cancel", "--tag", "odd", "--yes", "--expect", "5"]);
    assert_eq!((code, &outcomes["verdicts"]["done"]), (Some(0), &5.into()));
    assert_eq!(client.counts().await.unwrap().canceled, 5);

    let (_, outcomes) = json(&db, &["park", "--workflow", "note", "--reason", "a look", "--yes"]);
    assert_eq!(outcomes["verdicts"]["done"], 5);
    assert!(text(&longhaul(&db, &["runs", "list", "--status", "parked"])).contains("a look"));
    let (_, outcomes) = json(&db, &["retry", "--status", "parked", "--yes"]);
    assert_eq!(outcomes["runs"], 5);
    // One run by its id, and what cannot be meant.
    assert_eq!(json(&db, &["park", "r0"]), (Some(0), serde_json::json!({"run": "r0", "status": "parked"})));
    assert_eq!(json(&db, &["park", "r0"]).1["code"], "not-parkable");
    assert_eq!(json(&db, &["retry", "r0"]).1["status"], "runnable");
    for wrong in [&["retry"][..], &["retry", "r0", "--tag", "odd"], &["retry", "--status", "waiting"]] {
        assert_eq!(json(&db, wrong).0, Some(2), "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workflows_are_paused_limited_and_explained() {
    let (db, _client) = database(2).await;
    let (code, said) = json(&db, &["pause", "note", "--by", "ann", "--reason", "bad prompt"]);
    assert_eq!((code, &said["changed"]), (Some(0), &true.into()));
    assert_eq!(json(&db, &["pause", "note"]).1["changed"], false);
    assert_eq!(json(&db, &["limit", "note", "3"]).1["changed"], true);
    assert_eq!(json(&db, &["limit", "note", "0"]).0, Some(2));
    let status = text(&longhaul(&db, &["status"]));
    assert!(status.contains("note is paused by ann") && status.contains("0 of at most 3"), "{status}");
    let (_, status) = json(&db, &["status"]);
    assert_eq!(
        (&status["workflows"][0]["paused_reason"], &status["runs"]["runnable"]),
        (&"bad prompt".into(), &2.into())
    );
    let why = text(&longhaul(&db, &["explain", "--workflow", "note"]));
    assert!(why.contains("paused by ann") && why.contains("2 runs may be claimed"), "{why}");
    assert_eq!(longhaul(&db, &["explain"]).status.code(), Some(2));
    assert_eq!(json(&db, &["resume", "note"]).1["changed"], true);
    assert_eq!(json(&db, &["limit", "note", "none"]).1["changed"], true);
    let (code, error) = json(&db, &["drain", "nobody"]);
    assert_eq!((code, &error["code"]), (Some(1), &"unknown-node".into()));
    let events = json(&db, &["events", "r0", "--tree"]).1;
    assert_eq!((&events[0]["run"], &events[0]["type"]), (&"r0".into(), &"run.enqueued".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_are_a_script() {
    let (db, _client) = database(0).await;
    for shell in ["bash", "zsh", "fish"] {
        let script = longhaul(&db, &["completions", shell]);
        assert!(script.status.success() && text(&script).contains("longhaul"), "{shell}");
    }
}
