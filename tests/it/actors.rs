//! Any actor may die at any time, with work in its hands and messages in its mailbox, and nothing is lost.

use crate::flows::{Asking, Trial};
use crate::models::{Models, asking, check_paid};
use crate::support::{check, connect, database, number, until_over};
use longhaul::{Client, Kind, Node};
use longhaul_sandbox::postgres::testing::TestDatabase;
use std::collections::BTreeSet;

const RUNS: usize = 150;

async fn enqueue(client: &Client, round: usize) {
    let local = (0..RUNS).map(|k| (format!("t{round}-{k}"), "flaky".to_owned())).collect();
    let asking = (0..RUNS).map(|k| (format!("m{round}-{k}"), format!("twice {k}"))).collect();
    for made in client.enqueue_many::<Trial>(local).await.unwrap() {
        made.unwrap();
    }
    for made in client.enqueue_many::<Asking>(asking).await.unwrap() {
        made.unwrap();
    }
}

async fn start(db: &TestDatabase, models: &Models) -> Node {
    Node::builder(db.url())
        .workflow(Trial::default())
        .workflow(Asking::default())
        .provider("claude", models.provider())
        .config(asking("a"))
        .start()
        .await
        .unwrap()
}

async fn all_is_well(db: &TestDatabase, models: &Models, client: &Client, rounds: usize) {
    until_over(client).await;
    let counts = client.counts().await.unwrap();
    assert_eq!(counts.completed as usize, 2 * RUNS * rounds, "{counts:?}");
    let mut conn = connect(db).await;
    crate::support::eventually("every batch is settled", async || {
        (number(&mut conn, "select count(*) from longhaul.batches where status < 8").await == 0).then_some(())
    })
    .await;
    check_paid(models, &mut conn).await;
    check(db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tree_has_every_kind() {
    let (db, models) = (database().await, Models::start().await);
    let node = start(&db, &models).await;
    let kinds: BTreeSet<Kind> = crate::support::eventually("all are started", async || {
        let kinds: BTreeSet<Kind> = node.tree().kinds().into_iter().collect();
        (kinds.len() == 11).then_some(kinds)
    })
    .await;
    let claude = || "claude".to_owned();
    let expected = [
        Kind::Core,
        Kind::Satellites,
        Kind::Heart,
        Kind::Committer,
        Kind::Advancer,
        Kind::Timekeeper,
        Kind::Notifier,
        Kind::Janitor,
        Kind::Submitter(claude()),
        Kind::Ingester(claude()),
        Kind::Caller(claude()),
    ];
    assert_eq!(kinds, expected.into_iter().collect());
    assert!(!node.tree().kill(&Kind::Submitter("nobody".into())));
    node.shutdown().await.unwrap();
}

/// Each kind that the tree has, supervisors too, is killed in the middle of the work, right after messages were put into
/// its mailbox.
#[tokio::test(flavor = "multi_thread")]
async fn killing_each_kind_of_actor_under_load_loses_nothing() {
    let (db, models) = (database().await, Models::start().await);
    let node = start(&db, &models).await;
    let client = node.client();
    let kinds = crate::support::eventually("all are started", async || {
        let kinds = node.tree().kinds();
        (kinds.len() == 11).then_some(kinds)
    })
    .await;
    for (round, kind) in kinds.iter().enumerate() {
        let before = node.progress();
        enqueue(&client, round).await;
        crate::support::eventually("the work has begun", async || {
            ((node.progress() - before).runs_advanced > 20).then_some(())
        })
        .await;
        node.tree().wake(kind);
        assert!(node.tree().kill(kind), "{kind} lives");
    }
    all_is_well(&db, &models, &client, kinds.len()).await;
    node.shutdown().await.unwrap();
}

/// Faster than supervisors bear: they give up, and the node begins again under another id.
#[tokio::test(flavor = "multi_thread")]
async fn killing_one_kind_again_and_again_loses_nothing() {
    let (db, models) = (database().await, Models::start().await);
    let node = start(&db, &models).await;
    let client = node.client();
    let (first, tree) = (node.id(), node.tree());
    enqueue(&client, 0).await;
    // What it does then is up to the supervisors; that it does not stay as it was is what this waits for.
    crate::support::eventually("the node began again", async || {
        tree.kill(&Kind::Committer);
        (node.id() != first).then_some(())
    })
    .await;
    all_is_well(&db, &models, &client, 1).await;
    node.shutdown().await.unwrap();
}
