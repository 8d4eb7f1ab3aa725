//! The audit on a small world that the store's own statements made, healthy and then damaged in one place.

mod damage;
mod world;

use super::{Auditor, Check, LedgerLine, Report};
use crate::store::audit_plant;
use std::time::Duration;
use world::World;

/// The checks that found something.
fn broken(report: &Report) -> Vec<Check> {
    report.counts.iter().map(|(check, _)| *check).collect()
}

#[tokio::test]
async fn a_healthy_world_is_clean() {
    let world = World::new().await;
    let report = world.audit().await;
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.runs, report.batches, report.items), (10, 3, 6), "{report}");
    assert!(report.events > 40 && report.paid == Some(2), "{report}");

    // However the rows fall into pages, the same is read and nothing is found.
    for rows in [1, 2, 3, 7] {
        let auditor = Auditor::new(world.database.clone()).pages_of(rows);
        assert_eq!(auditor.run(Some(&world.ledger)).await.unwrap(), report, "pages of {rows}");
    }
}

#[tokio::test]
async fn an_empty_database_is_clean() {
    let (_keep, database) = world::empty().await;
    let report = super::audit(&database, Some(&[])).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.runs, report.paid), (0, Some(0)));
}

#[tokio::test]
async fn each_plant_is_found_by_the_check_of_its_name() {
    let names: Vec<&str> = Check::ALL.iter().map(|check| check.as_str()).collect();
    let mut planted = audit_plant::names().to_vec();
    planted.sort_by_key(|name| names.iter().position(|other| other == name));
    assert_eq!(planted, names);

    let world = World::new().await;
    for name in audit_plant::names() {
        audit_plant::plant(&world.database, name).await.unwrap();
        let report = world.audit().await;
        let found: Vec<&str> = broken(&report).iter().map(|check| check.as_str()).collect();
        assert_eq!(found, [*name], "{report}");
        assert_eq!(report.findings.len(), 1, "{report}");
        world.restore().await;
    }
}

#[tokio::test]
async fn plants_need_a_name_and_something_to_plant_on() {
    let (_keep, database) = world::empty().await;
    for name in ["ordinals-gapless", "items-booked-once", "fences-and-leases"] {
        let refused = audit_plant::plant(&database, name).await.unwrap_err().to_string();
        assert!(refused.contains("nothing to plant on"), "{refused}");
    }
    let unknown = audit_plant::plant(&database, "no-such").await.unwrap_err().to_string();
    assert!(unknown.contains("steps-pair"), "{unknown}");
    for name in ["owner-alive", "open-has-reason"] {
        audit_plant::plant(&database, name).await.unwrap();
    }
    let report = super::audit(&database, None).await.unwrap();
    assert_eq!(broken(&report), [Check::OwnerAlive, Check::OpenHasReason], "{report}");
}

#[tokio::test]
async fn what_the_provider_was_paid_for_is_compared() {
    let world = World::new().await;
    let found = async |change: &dyn Fn(&mut Vec<LedgerLine>)| {
        let mut ledger = world.ledger.clone();
        change(&mut ledger);
        let report = Auditor::new(world.database.clone()).run(Some(&ledger)).await.unwrap();
        assert!(report.counts.iter().all(|(check, _)| *check == Check::LedgerOfProvider), "{report}");
        report.findings.into_iter().map(|finding| finding.detail).collect::<Vec<_>>().join("; ")
    };
    let nothing = async |change: &dyn Fn(&mut Vec<LedgerLine>)| assert_eq!(found(change).await, "");

    assert_eq!(found(&|l| l.push(l[0].clone())).await, "was paid more than once under one id");
    assert_eq!(found(&|l| drop(l.pop())).await, "is booked as paid, but the provider was not paid for it");
    assert_eq!(found(&|l| l[0].output_tokens += 1).await, "is booked with 11 + 7 tokens, but 11 + 8 were paid");
    assert_eq!(found(&|l| l[0].nano_usd = Some(1)).await, "is booked with 5500 nano-dollars, but 1 were paid");
    let strange = "0000000000000000000000-0".to_owned();
    assert_eq!(found(&|l| l[0].custom_id = Some(strange.clone())).await.matches("; ").count(), 1);
    // What failed, and what is at the provider still.
    let failed = world.custom_id(0, world::FAILED);
    assert_eq!(found(&|l| l.push(world::line(&failed, 1))).await, "was paid, but is booked as errored");
    let sent = world.custom_id(1, 0);
    nothing(&|l| l.push(world::line(&sent, 1))).await;
    let given_back = world.custom_id(2, 0);
    assert_eq!(found(&|l| l.push(world::line(&given_back, 1))).await, "was paid, but its batch is abandoned");
    // Live calls and other people's requests are not ours to judge.
    nothing(&|l| l.push(LedgerLine { live: true, custom_id: None, ..l[0].clone() })).await;
    nothing(&|l| l.push(LedgerLine { custom_id: Some("other-1".into()), ..l[0].clone() })).await;
    nothing(&|l| l[0].nano_usd = None).await;
}

#[tokio::test]
async fn who_died_a_moment_ago_may_still_hold_things() {
    let world = World::new().await;
    world.sql("update longhaul.nodes set dead_at = longhaul.now() - interval '10 s'").await;
    let auditor = Auditor::new(world.database.clone());
    assert!(auditor.run(None).await.unwrap().is_clean());
    let report = auditor.grace(Duration::from_secs(9)).run(None).await.unwrap();
    // A run, the account, and the batch that is still looked after.
    assert_eq!(report.counts, [(Check::OwnerAlive, 1), (Check::FencesAndLeases, 2)], "{report}");
}

#[test]
fn a_report_is_capped_but_counts_on() {
    let mut report = Report::default();
    for run in 0..1_500 {
        report.add(Check::StepsPair, || format!("run {run}"), "is wrong");
    }
    report.add(Check::CausesExist, || "run 1".into(), "is wrong");
    assert_eq!((report.findings.len(), report.count(Check::StepsPair)), (1_000, 1_500));
    let text = report.to_string();
    assert!(text.contains("WRONG steps-pair: 1500") && text.ends_with("and 501 more\n"), "{text}");
    assert!(text.contains("ok    state-agrees") && text.contains("ledger-of-provider: no ledger"), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["counts"], serde_json::json!({"causes-exist": 1, "steps-pair": 1500}));
    assert_eq!(json["findings"][0]["check"], "steps-pair");
}
