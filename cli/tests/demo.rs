//! The built command, from outside: what it prints, and what it exits with.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use longhaul_sandbox::postgres::testing::TestDatabase;
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const KEYS: [&str; 22] = [
    "runs",
    "completed",
    "failed",
    "events",
    "batches",
    "items",
    "live_items",
    "ambiguous_creates",
    "adopted",
    "late_duplicates",
    "items_paid_twice",
    "takeovers",
    "audit_violations",
    "seconds",
    "worker_peak_rss_mb",
    "nano_usd_batch",
    "nano_usd_live",
    "runs_per_worker",
    "tool_calls",
    "forks",
    "human_answers",
    "answered_by",
];

fn longhaul(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn output(args: &[&str]) -> Output {
    longhaul(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The last line of stdout.
fn json(output: &Output) -> Value {
    let text = stdout(output);
    let line = text.lines().last().unwrap_or_else(|| panic!("no output; stderr: {}", stderr(output)));
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn a_demo_completes_every_run_though_a_worker_is_killed() {
    let output = output(&["demo", "--json", "--runs", "12", "--processing", "300ms"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let figures = json(&output);
    let mut keys: Vec<&str> = figures.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected: Vec<&str> = KEYS.to_vec();
    keys.sort_unstable();
    expected.sort_unstable();
    assert_eq!(keys, expected);
    let figure = |key: &str| figures[key].as_i64().unwrap_or_else(|| panic!("{key} in {figures}"));
    assert_eq!((figure("runs"), figure("completed"), figure("failed")), (12, 12, 0));
    assert!(figure("items") >= 5 * 12, "{figures}");
    assert!((5..=16).contains(&figure("batches")), "{figures}");
    assert!(figure("tool_calls") >= 12, "{figures}");
    assert_eq!(figure("forks"), 12, "{figures}");
    // The first and the fifth text are of unclear tone.
    assert_eq!((figure("human_answers"), &figures["answered_by"]), (2, &serde_json::json!({"script": 2})), "{figures}");
    for at_least_one in ["ambiguous_creates", "adopted", "takeovers", "nano_usd_batch"] {
        assert!(figure(at_least_one) >= 1, "{at_least_one} in {figures}");
    }
    for none in ["live_items", "nano_usd_live", "items_paid_twice", "audit_violations"] {
        assert_eq!(figure(none), 0, "{none} in {figures}");
    }
    // Of each run and its two branches: enqueued and completed, a start and an end of ten steps, five calls asked, answered and
    // applied, a tool used, a fork opened and joined.
    assert!(figure("events") >= 12 * (3 * 2 + 10 * 2 + 5 * 3 + 1 + 2), "{figures}");
    let by_worker = figures["runs_per_worker"].as_object().unwrap();
    assert_eq!(by_worker.keys().collect::<Vec<_>>(), ["worker-1", "worker-2"]);
    assert!(by_worker.values().all(|runs| runs.as_u64().unwrap() > 0), "{figures}");
    assert!(figures["worker_peak_rss_mb"].as_f64().unwrap() < 300.0, "{figures}");
    assert!(stderr(&output).contains("worker-1 killed with SIGKILL: it held "), "{}", stderr(&output));
}

#[test]
fn a_single_run_survives_too_and_the_report_is_for_people() {
    let output = output(&["demo", "--runs", "1", "--processing", "100ms"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = stdout(&output);
    for expected in ["What happened", "worker-1 killed with SIGKILL: it held no run", "Figures", "1790", "themes: "] {
        assert!(report.contains(expected), "{expected} in {report}");
    }
    assert!(report.contains("answered by a script"), "{report}");
    assert!(report.lines().count() <= 50, "more than a screen: {report}");
}

#[test]
fn whoever_sits_at_the_terminal_is_asked_and_after_them_the_script() {
    let mut demo = longhaul(&["demo", "--json", "--ask", "--runs", "5", "--processing", "100ms"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One line for two questions.
    demo.stdin.take().unwrap().write_all(b"Grave\n").unwrap();
    let output = demo.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let figures = json(&output);
    assert_eq!(figures["human_answers"], 2);
    assert_eq!(figures["answered_by"], serde_json::json!({"script": 1, "terminal": 1}));
    let told = stderr(&output);
    assert!(
        told.contains("What is the tone of this address?") && told.contains("a script answers from here on"),
        "{told}"
    );
}

#[test]
fn plants_are_listed_and_an_unknown_one_is_refused() {
    let listed = stdout(&output(&["demo", "--plant", "list"]));
    assert!(listed.lines().count() > 5 && listed.lines().any(|name| name == "ordinals-gapless"), "{listed}");
    let refused = output(&["demo", "--plant", "no-such-plant"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("there is no plant `no-such-plant`"), "{}", stderr(&refused));
}

#[test]
fn a_plant_is_found() {
    let output = output(&["demo", "--json", "--runs", "2", "--processing", "100ms", "--plant", "ordinals-gapless"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let figures = json(&output);
    assert_eq!(figures["completed"], 2);
    assert!(figures["audit_violations"].as_u64().unwrap() >= 1, "{figures}");
}

#[test]
fn a_bad_input_line_is_named() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"{\"text\": \"fine\"}\n{\"title\": \"no text\"}\n").unwrap();
    let path = file.path().to_str().unwrap();
    let output = output(&["demo", "--json", "--input", path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains(&format!("{path} line 2: ")), "{}", stderr(&output));
    assert_eq!(json(&output)["code"], "invalid-line");
    let missing = longhaul(&["demo", "--input", "no/such/file.jsonl"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn help_tells_the_exit_codes() {
    for args in [&["--help"][..], &["demo", "--help"], &["audit", "--help"]] {
        let output = output(args);
        assert_eq!(output.status.code(), Some(0));
        let help = stdout(&output);
        assert!(help.contains("Exit codes:") && help.contains("interrupted"), "{help}");
        assert!(!help.contains("demo-worker"), "{help}");
    }
    assert_eq!(output(&["demo", "--runs", "0"]).status.code(), Some(2));
    assert_eq!(output(&["nonsense"]).status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_database_can_be_looked_at() {
    let template = longhaul::store::schema_digest();
    let database = TestDatabase::create(&template, |url| async move { longhaul::migrate(&url).await }).await.unwrap();
    let at = |args: &[&str]| longhaul(args).env("LONGHAUL_DATABASE_URL", database.url()).output().unwrap();
    let status = at(&["status", "--json"]);
    assert_eq!(status.status.code(), Some(0), "{}", stderr(&status));
    let status = json(&status);
    assert_eq!((&status["runs"]["completed"], &status["batches"]["items"]), (&Value::from(0), &Value::from(0)));
    assert_eq!(status["nodes"], Value::Array(Vec::new()));
    for args in [&["status"][..], &["nodes"], &["batches"], &["audit"], &["migrate"]] {
        let output = at(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    }
    assert_eq!(json(&at(&["audit", "--json"]))["findings"], Value::Array(Vec::new()));
    let unknown = at(&["runs", "show", "nobody", "--json"]);
    assert_eq!((unknown.status.code(), &json(&unknown)["code"]), (Some(1), &Value::from("unknown-run")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_the_schema_says_what_to_do() {
    let database = TestDatabase::empty().await.unwrap();
    let at = |args: &[&str]| longhaul(args).env("LONGHAUL_DATABASE_URL", database.url()).output().unwrap();
    let before = at(&["status", "--json"]);
    assert_eq!((before.status.code(), &json(&before)["code"]), (Some(3), &Value::from("schema-mismatch")));
    assert!(stderr(&before).contains("longhaul migrate"), "{}", stderr(&before));
    assert_eq!(at(&["migrate", "--json"]).status.code(), Some(0));
    assert_eq!(at(&["status"]).status.code(), Some(0));
}

#[test]
fn nobody_at_the_address_is_told_apart() {
    let output = output(&["status", "--database", "postgres://nobody@127.0.0.1:1/none"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_process_outlives_a_killed_demo() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = longhaul(&["demo", "--json", "--processing", "1h"])
        .env("TMPDIR", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let workers = || children_of(demo.id(), "demo-worker");
    while workers().is_empty() {
        assert!(Instant::now() < deadline, "no worker was started");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let workers = workers();
    demo.kill().unwrap();
    demo.wait().unwrap();
    while workers.iter().any(|pid| std::path::Path::new(&format!("/proc/{pid}/exe")).exists()) {
        assert!(Instant::now() < deadline, "a worker outlives its parent");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The children of a process whose command line has that word.
#[cfg(target_os = "linux")]
fn children_of(parent: u32, word: &str) -> Vec<u32> {
    let mut children: Vec<u32> = Vec::new();
    // Each thread has a list of its own.
    for task in std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
        let listed = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.extend(listed.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    children.retain(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    });
    children
}
