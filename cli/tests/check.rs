//! `longhaul check` from outside: golden files in, an exit code and figures out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use longhaul::{Client, Manifest, Next, Result, Run, Workflow, workflow};
use longhaul_sandbox::postgres::testing::TestDatabase;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Waits for a person before its second step.
struct Letters;

#[workflow]
mod letters {
    use super::*;

    impl Workflow for Letters {
        const NAME: &'static str = "letters";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = step::open;
    }

    #[step]
    async fn open(_: &mut Run<Letters>) -> Result<Next<Letters>> {
        Ok(Next::finish(String::new()))
    }
}

fn check(database: &str, files: &[&Path], more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(["check", "--database", database, "--manifest"]).args(files).args(more);
    command.env_remove("RUST_LOG").stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_step_is_found_before_the_deploy() {
    let template = longhaul::store::schema_digest();
    let db = TestDatabase::create(&template, |url| async move { longhaul::migrate(&url).await }).await.unwrap();
    let client = Client::connect(db.url()).await.unwrap();
    let runs = (0..5).map(|k| (format!("r{k}"), "x".to_owned())).collect();
    client.enqueue_many::<Letters>(runs).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let (same, renamed) = (folder.path().join("same.json"), folder.path().join("renamed.json"));
    let manifest = Manifest::of::<Letters>().to_json().unwrap();
    std::fs::write(&same, manifest.as_str()).unwrap();
    std::fs::write(&renamed, manifest.as_str().replace(r#""open""#, r#""begin""#)).unwrap();

    let well = check(db.url(), &[&same], &[]);
    assert_eq!(well.status.code(), Some(0), "{}", String::from_utf8_lossy(&well.stderr));
    assert!(stdout(&well).contains("5 can go on, 0 would be stuck"), "{}", stdout(&well));

    let found = check(db.url(), &[&renamed], &[]);
    assert_eq!(found.status.code(), Some(1));
    assert!(
        stdout(&found).contains("STUCK 5 of `letters` version 1 at step `open`: unknown-step"),
        "{}",
        stdout(&found)
    );
    let found = check(db.url(), &[&renamed], &["--json"]);
    let report: Value = serde_json::from_str(stdout(&found).lines().last().unwrap()).unwrap();
    assert_eq!((&report["stuck"], &report["findings"][0]["runs"]), (&5.into(), &5.into()));
    assert_eq!(report["findings"][0]["reason"], "unknown-step");
    assert_eq!(report["changes"][0]["missing"][0], "open");

    let usage = check(db.url(), &[folder.path()], &[]);
    assert_eq!(usage.status.code(), Some(2), "a folder is no manifest");
}
