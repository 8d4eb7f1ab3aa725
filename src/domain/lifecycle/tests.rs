use super::*;
use crate::domain::{BatchStatus, ItemStatus, RunStatus, WaitStatus};

#[test]
fn the_document_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/lifecycle.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, to_markdown()).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(there == to_markdown(), "docs/lifecycle.md is not what the code says: UPDATE_DOCS=1 writes it");
}

fn ends<M: Move>(status: M::Status) -> bool {
    M::ALL.iter().all(|step| step.apply(Some(status)).is_err())
}

#[test]
fn an_end_is_an_end() {
    for status in RunStatus::ALL {
        // Parked and failed ones can be set going again by an operator, and so can canceled ones that were stopped with their fork.
        assert_eq!(ends::<RunMove>(*status), *status == RunStatus::Completed, "{status}");
    }
    let again: Vec<_> = RunMove::ALL.iter().filter(|step| step.apply(Some(RunStatus::Canceled)).is_ok()).collect();
    assert_eq!(again, [&RunMove::Retried]);
    for status in [WaitStatus::Applied, WaitStatus::Expired] {
        assert!(ends::<WaitMove>(status), "{status}");
    }
    assert!(ends::<BatchMove>(BatchStatus::Settled));
    // What was given up on may show up late, and nothing else.
    let late: Vec<_> = BatchMove::ALL.iter().filter(|step| step.apply(Some(BatchStatus::Abandoned)).is_ok()).collect();
    assert_eq!(late, [&BatchMove::FoundLate, &BatchMove::HandedOver]);
    for status in ItemStatus::ALL {
        // An answer that nobody asked for any more may be wanted after all.
        let open = matches!(status, ItemStatus::Pending | ItemStatus::Sent | ItemStatus::Superseded);
        assert_eq!(ends::<ItemMove>(*status), !open, "{status}");
    }
}

#[test]
fn one_move_leads_to_one_status() {
    for step in RunMove::ALL {
        let mut ends: Vec<RunStatus> = step.rule().paths.iter().map(|(_, to)| *to).collect();
        ends.dedup();
        // A retry leads to the wait, if the request goes out again.
        assert!(ends.len() == 1 || *step == RunMove::Retried, "{step:?}");
    }
    assert_eq!(RunMove::Claimed.apply(Some(RunStatus::Runnable)), Ok(vec![RunStatus::Owned]));
    let refused = RunMove::Claimed.apply(Some(RunStatus::Completed));
    assert_eq!(refused.map_err(|e| e.to_string()), Err("`claimed` leads nowhere from completed".into()));
    assert!(RunMove::Claimed.apply(Some(RunStatus::Unknown(99))).is_err());
}

#[test]
fn whoever_is_pushed_out_of_a_run_cannot_come_back() {
    let out = |step: &&RunMove| {
        let rule = step.rule();
        rule.by != By::Owner && rule.paths.iter().any(|(from, _)| *from == Some(RunStatus::Owned))
    };
    assert!(RunMove::ALL.iter().filter(out).all(|step| step.rule().fence_rises));
}

#[test]
fn the_last_event_of_a_move_tells_the_status() {
    for step in RunMove::ALL {
        let rule = step.rule();
        if let Some(last) = rule.events.last() {
            assert!(statuses_after(*last).contains(&rule.paths[0].1), "{step:?}");
        } else {
            // What is let go of without a word had begun a step.
            assert!(statuses_after(EventType::StepStarted).contains(&rule.paths[0].1), "{step:?}");
        }
    }
}

#[test]
fn events_without_a_move_are_known() {
    // Told where the table names their sisters: a suspend tells what is asked, an answer who answered.
    let left = [
        EventType::HumanAsked,
        EventType::HumanExpired,
        EventType::ExternalAsked,
        EventType::ExternalAnswered,
        EventType::ExternalExpired,
        EventType::TimerSet,
        EventType::ToolsCompleted,
        EventType::Custom,
    ];
    assert_eq!(markdown::unwritten(), left);
}

#[test]
fn every_statement_is_there() {
    fn check<M: Move>() {
        for rule in M::ALL.iter().map(|step| step.rule()) {
            let (file, function) = rule.statement.split_once("::").unwrap();
            let path = format!("{}/src/store/{file}.rs", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.contains(&format!("async fn {function}(")), "{}", rule.statement);
        }
    }
    check::<RunMove>();
    check::<WaitMove>();
    check::<BatchMove>();
    check::<ItemMove>();
    check::<CallMove>();
}
