//! Checking, before a deploy, which runs in flight would be stuck with it.

use crate::letters::{DAY, New, Old};
use crate::support::{connect, database, execute, until_status};
use longhaul::check::{CheckFinding, Reason};
use longhaul::testing::TestNode;
use longhaul::{Check, CheckReport, Client, InFlight, Manifest, Next, Result, Run, RunStatus, Workflow, workflow};
use longhaul_sandbox::postgres::testing::TestDatabase;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Version 1 as somebody might change it by mistake: without an upgrade, with two of its steps under another name, and with a
/// field more in its state.
pub struct Careless;

#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub struct Notes {
    text: String,
    tries: u32,
}

#[workflow]
mod careless {
    use super::*;

    impl Workflow for Careless {
        const NAME: &'static str = "letters";
        const VERSION: u32 = 1;
        type Input = String;
        type State = Notes;
        type Output = String;
        type Entry = step::open;
    }

    #[step]
    async fn open(run: &mut Run<Careless>) -> Result<Next<Careless>> {
        Ok(run.human::<bool>("Well?").carry("three".to_owned()).then(step::judged))
    }
    #[step]
    async fn judged(run: &mut Run<Careless>, (_, n): (bool, String)) -> Result<Next<Careless>> {
        Ok(Next::finish(format!("{} {n} {}", run.state.text, run.state.tries)))
    }
    #[step]
    async fn inner_slept(_: &mut Run<Careless>, ((), n): ((), i64)) -> Result<Next<Careless, i64>> {
        Ok(Next::finish(n))
    }
    #[step]
    async fn awake(run: &mut Run<Careless>) -> Result<Next<Careless>> {
        Ok(Next::finish(run.state.text.clone()))
    }
}

/// A later version whose upgrade forgets something.
pub struct Forgetful;

#[workflow]
mod forgetful {
    use super::*;

    impl Workflow for Forgetful {
        const NAME: &'static str = "letters";
        const VERSION: u32 = 3;
        const UPGRADES_FROM: u32 = 1;
        type Input = String;
        type State = Notes;
        type Output = String;
        type Entry = step::open;

        fn upgrade(_: u32, mut moved: InFlight) -> Result<InFlight> {
            moved.rename("slept", "open");
            Ok(moved)
        }
    }

    #[step]
    async fn open(_: &mut Run<Forgetful>) -> Result<Next<Forgetful>> {
        Ok(Next::finish("done".into()))
    }
}

/// Runs of version 1: three that sleep, one in a call, one that asks a person, one that has not begun, one that is over.
async fn in_flight() -> (TestDatabase, Client) {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let node = TestNode::start(db.url(), |node| node.workflow(Old::default())).await.unwrap();
    for (run, input) in
        [("s1", "sleep"), ("s2", "sleep"), ("s3", "sleep"), ("c", "call"), ("h", "human"), ("over", "middle")]
    {
        client.enqueue::<Old>(run, input.into()).await.unwrap();
    }
    node.run_until_quiescent(Duration::from_secs(60)).await.unwrap();
    node.shutdown().await.unwrap();
    client.enqueue::<Old>("new", "middle".into()).await.unwrap();
    (db, client)
}

fn find<'a>(report: &'a CheckReport, step: &str, reason: Reason) -> Option<&'a CheckFinding> {
    report.findings.iter().find(|f| f.step == step && f.reason == reason)
}

async fn checked(check: Check, client: &Client) -> CheckReport {
    let small_pages = check.pages_of(2);
    small_pages.run(client).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_names_what_would_be_stuck_and_how_many() {
    let (_db, client) = in_flight().await;
    let same = checked(Check::new().workflow::<Old>(), &client).await;
    assert!(same.ok() && same.changes.is_empty(), "{same}");
    assert_eq!((same.fits, same.stuck, same.unread), (6, 0, 0));

    let report = checked(Check::new().workflow::<Careless>(), &client).await;
    assert!(!report.ok());
    assert_eq!((report.fits, report.stuck), (1, 5), "only the one that has not begun can: {report}");
    let renamed = find(&report, "slept", Reason::Step).unwrap();
    assert_eq!((renamed.runs, renamed.version, renamed.examples.len()), (3, 1, 3));
    assert_eq!(find(&report, "slept", Reason::State).unwrap().runs, 3, "decoded for real");
    let caller = find(&report, "inner_slept", Reason::Step).unwrap();
    assert!(caller.detail.contains("comes back to step `outer`"), "{report}");
    let carried = find(&report, "judged", Reason::Arg).unwrap();
    assert!(carried.detail.contains("schema at `/1`"), "beside an answer that has not come: {report}");
    let change = &report.changes[0];
    assert_eq!((change.version, change.added.as_slice()), (1, &["awake".to_owned()][..]));
    assert!(change.missing.contains(&"slept".to_owned()));
    assert!(change.changed.iter().any(|sentence| sentence.contains("state")), "{report}");
    let text = report.to_string();
    for words in ["6 runs in flight", "STUCK 3 of `letters` version 1 at step `slept`: unknown-step", "CHANGED"] {
        assert!(text.contains(words), "`{words}` in\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_is_tried_for_real() {
    let (db, client) = in_flight().await;
    let report = checked(Check::new().workflow::<New>(), &client).await;
    assert!(report.ok(), "{report}");
    assert_eq!((report.fits, report.stuck), (6, 0));

    let report = checked(Check::new().workflow::<Forgetful>(), &client).await;
    assert_eq!((report.fits, report.stuck), (1, 5), "{report}");
    let unread = find(&report, "slept", Reason::Upgrade).unwrap();
    assert!(unread.runs == 3 && unread.detail.contains("missing field `tries`"), "{report}");
    assert!(find(&report, "judged", Reason::Upgrade).unwrap().detail.contains("leads to step `judged`"));

    // What it says comes true.
    let node = TestNode::start(db.url(), |node| node.workflow(Forgetful)).await.unwrap();
    node.advance(DAY).await.unwrap();
    for run in ["s1", "s2", "s3", "c"] {
        until_status(&client, run, RunStatus::Parked).await;
    }
    until_status(&client, "new", RunStatus::Completed).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_has_would_be_stuck_unless_it_is_run_elsewhere() {
    let (_db, client) = in_flight().await;
    let nothing = checked(Check::new(), &client).await;
    assert_eq!((nothing.stuck, find(&nothing, "slept", Reason::Workflow).unwrap().runs), (6, 3));
    let elsewhere = checked(Check::new().others_elsewhere(), &client).await;
    assert!(elsewhere.ok() && elsewhere.elsewhere == 6, "{elsewhere}");
    let takes_nothing = Manifest { upgrades_from: 2, ..Manifest::of::<New>() };
    let report = checked(Check::new().manifest(takes_nothing), &client).await;
    let version = find(&report, "slept", Reason::Version).unwrap();
    assert!(version.detail.contains("version 2 is there"), "{report}");
}

/// As the command does: without the types, by the names and the schemas.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_alone_checks_names_and_schemas() {
    let (db, client) = in_flight().await;
    let stored = |manifest: Manifest| Manifest::from_json(manifest.to_json().unwrap().as_str()).unwrap();
    let same = checked(Check::new().manifest(stored(Manifest::of::<Old>())), &client).await;
    assert!(same.ok() && same.fits == 6, "{same}");
    let report = checked(Check::new().manifest(stored(Manifest::of::<Careless>())), &client).await;
    assert_eq!((report.fits, report.stuck), (1, 5), "{report}");
    assert!(find(&report, "slept", Reason::State).unwrap().detail.contains("tries"), "{report}");
    assert!(find(&report, "judged", Reason::Arg).is_some());
    let report = checked(Check::new().manifest(stored(Manifest::of::<New>())), &client).await;
    assert!(report.ok() && report.unread == 6, "an upgrade is not in a manifest: {report}");

    let mut conn = connect(&db).await;
    execute(&mut conn, "update longhaul.runs set stack = '{}' where run_id = 'c'").await;
    execute(&mut conn, "update longhaul.runs set step = 'middle', arg = '\"five\"' where run_id = 'new'").await;
    let report = checked(Check::new().workflow::<Old>(), &client).await;
    assert!(find(&report, "inner_slept", Reason::Unreadable).is_some(), "{report}");
    assert!(find(&report, "middle", Reason::Arg).is_some(), "{report}");
    assert!(!report.to_string().contains("five"), "values are not repeated: {report}");
}
