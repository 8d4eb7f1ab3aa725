//! What a program came to, told so that it can be compared: without what is a matter of time, place or chance.

use longhaul::{EventId, EventType, FailureCode};
use serde_json::Value;
use std::collections::BTreeMap;

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    Finished(Value),
    Failed(FailureCode),
    Canceled,
}

/// An event: where it stands, what it tells of, and its payload.
pub struct Told {
    pub id: EventId,
    pub kind: EventType,
    pub payload: Value,
}

/// The ledger of each run, by its place in the tree: `/0.1` is the second branch of the first fork.
pub type Ledgers = BTreeMap<String, Vec<(EventType, Value)>>;

#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    pub end: End,
    pub ledgers: Ledgers,
}

/// The ledgers of a tree of runs. Left out is what a fork that fails fast had opened when it failed: how far its branches have come
/// then is a matter of time.
pub fn ledgers(told: Vec<Told>) -> Ledgers {
    let mut runs: BTreeMap<i64, Vec<Told>> = BTreeMap::new();
    for event in told {
        runs.entry(event.id.run.0).or_default().push(event);
    }
    for (run, events) in &mut runs {
        events.sort_by_key(|event| event.id.ordinal);
        let ordinals: Vec<i32> = events.iter().map(|event| event.id.ordinal).collect();
        assert_eq!(ordinals, (0..events.len() as i32).collect::<Vec<_>>(), "the ordinals of run {run} have no gap");
    }
    let mut paths: BTreeMap<i64, Option<String>> = BTreeMap::new();
    let mut ledgers = Ledgers::new();
    // Parents have smaller keys than their branches.
    for (run, events) in &runs {
        let born = &events[0].payload;
        let path = match born["parent"].as_i64() {
            None => Some(String::new()),
            Some(parent) => paths[&parent].clone().and_then(|path| {
                let opened = runs[&parent].iter().filter(|event| event.kind == EventType::ForkOpened);
                let opened: Vec<_> = opened.collect();
                let fork =
                    opened.iter().position(|event| Some(i64::from(event.id.ordinal)) == born["fork"].as_i64()).unwrap();
                let failed = runs[&parent]
                    .iter()
                    .any(|event| event.kind == EventType::ForkFailed && event.payload["wait"] == born["fork"]);
                let rash = opened[fork].payload["policy"] == "fail_fast" && failed;
                (!rash).then(|| format!("{path}/{fork}.{}", born["branch"]))
            }),
        };
        if let Some(path) = &path {
            ledgers.insert(path.clone(), events.iter().filter_map(comparable).collect());
        }
        paths.insert(*run, path);
    }
    for ledger in ledgers.values_mut() {
        // A start that nothing came of is followed by another.
        ledger.dedup_by(|a, b| a.0 == EventType::StepStarted && b.0 == EventType::StepStarted);
    }
    ledgers
}

fn comparable(event: &Told) -> Option<(EventType, Value)> {
    let payload = match event.kind {
        // Only where there are batches.
        EventType::ModelSubmitted => return None,
        // How often it was started is a matter of deaths.
        EventType::StepStarted => event.payload["step"].clone(),
        EventType::StepCompleted | EventType::StepFailed => {
            let mut payload = event.payload.clone();
            for chance in ["us", "retry_ms"] {
                payload.as_object_mut().unwrap().remove(chance);
            }
            payload
        }
        EventType::RunCompleted
        | EventType::Custom
        | EventType::ToolsCompleted
        | EventType::HumanAsked
        | EventType::ExternalAsked
        | EventType::TimerSet
        | EventType::ForkOpened => event.payload.clone(),
        // A message that goes back to the model is as its provider has written it.
        EventType::ModelAsked => event.payload["provider"].clone(),
        // What happens from outside has its own words there.
        _ => Value::Null,
    };
    Some((event.kind, payload))
}
