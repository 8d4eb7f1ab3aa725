use super::*;
use crate::domain::limits::{CARRY_BYTES, EVENTS_PER_RUN, RECORDS_PER_STEP, STATE_BYTES};
use crate::domain::{Backoff, NewWait, StepPolicy};
use crate::run::flow::TypeInfo;
use serde_json::{Value, json};

fn text(value: &Value) -> JsonText {
    JsonText::of(value, "value", 1 << 24).unwrap()
}

fn manifest(entry: &'static str, steps: Vec<StepInfo>) -> Manifest {
    let unit = TypeInfo::named::<()>();
    let (input, state, output) = (unit.clone(), unit.clone(), unit);
    let (version, upgrades_from) = (2, 2);
    Manifest { workflow: "tickets".into(), version, upgrades_from, entry: entry.into(), input, state, output, steps }
}

fn info(attempts: u32) -> StepInfo {
    let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(60) };
    let policy = StepPolicy { attempts, backoff, timeout: Some(Duration::from_secs(30)), crash_limit: 3 };
    StepInfo { name: "load".into(), input: TypeInfo::named::<()>(), policy, blocking: false }
}

fn held() -> Held {
    let position = Position { step: "load".into(), arg: None, stack: Vec::new() };
    Held { run: RunKey(7), parent: None, fence: Fence(3), cursor: 10, position, errors: 0, starts: 1 }
}

fn with_frame(carry: Option<JsonText>) -> Held {
    let mut held = held();
    held.position.stack.push(Frame { step: "joined".into(), carry });
    held
}

fn settled(held: &Held, outcome: Outcome) -> Transition {
    settle(held, &info(3), Executed::bare(outcome), Duration::from_micros(250), true, 0.0)
}

fn goto() -> Outcome {
    Outcome::Done(Act::Goto { step: "next".into(), arg: None })
}

fn told(transition: &Transition) -> Vec<(&'static str, Value)> {
    transition.events.iter().map(|event| (event.kind.as_str(), event.payload.read().unwrap())).collect()
}

#[test]
fn an_unknown_step_parks_the_run() {
    let manifest = manifest("a", vec![]);
    let parked = admit(&manifest, &held()).unwrap_err();
    assert_eq!(told(&parked), [("run.parked", json!({"step": "load", "code": "unknown-step"}))]);
    let Change::Park(reason) = parked.change else { panic!("{:?}", parked.change) };
    assert!(reason.contains("tickets") && reason.contains('2') && reason.contains("load"), "{reason}");
}

#[test]
fn too_many_deaths_are_a_crash_loop() {
    let manifest = manifest("load", vec![info(1)]);
    assert!(admit(&manifest, &Held { starts: 3, ..held() }).is_ok());
    let failed = admit(&manifest, &Held { starts: 4, ..held() }).unwrap_err();
    assert_eq!(told(&failed)[1], ("run.failed", json!({"step": "load", "code": "crash-loop"})));
    assert!(matches!(failed.change, Change::Fail(failure) if failure.code == FailureCode::CrashLoop));
}

#[test]
fn going_on_completes_this_step_and_starts_the_next() {
    let state = Some(text(&json!({"a": 1})));
    let record = NewEvent::new(EventType::Custom, &json!({"type": "x", "data": 1})).unwrap();
    let executed = Executed { outcome: goto(), state: state.clone(), records: vec![record] };
    let transition = settle(&held(), &info(1), executed, Duration::from_micros(250), true, 0.0);
    let told = told(&transition);
    assert_eq!(told[0].0, "custom");
    let mark = json!({"bytes": 7, "sha256": state.as_ref().unwrap().sha256()});
    assert_eq!(
        told[1],
        ("step.completed", json!({"step": "load", "flow": "goto", "next": "next", "us": 250, "state": mark}))
    );
    assert_eq!(told[2], ("step.started", json!({"step": "next", "attempt": 1})));
    assert_eq!(transition.state, state);
    let next = advance(Held { errors: 2, starts: 2, ..held() }, transition).unwrap();
    assert_eq!((next.cursor, next.errors, next.starts), (13, 0, 1));
    assert_eq!(next.position.step, "next");
}

#[test]
fn letting_go_starts_nothing() {
    let transition = settle(&held(), &info(1), Executed::bare(goto()), Duration::ZERO, false, 0.0);
    assert_eq!(told(&transition).len(), 1);
    assert!(matches!(transition.change, Change::Release { delay: Duration::ZERO, errors: 0, .. }));
    assert_eq!(advance(held(), transition), None);
}

#[test]
fn a_result_goes_to_the_innermost_caller() {
    let finish = || Outcome::Done(Act::Finish(text(&json!("result"))));
    for (carry, want) in [(None, json!("result")), (Some(text(&json!([1]))), json!(["result", [1]]))] {
        let transition = settled(&with_frame(carry), finish());
        assert_eq!(told(&transition)[0].1["flow"], "finish");
        let Change::Continue(position) = transition.change else { panic!() };
        assert_eq!((position.step.as_str(), position.stack.len()), ("joined", 0));
        assert_eq!(position.arg.unwrap().read::<Value>().unwrap(), want);
    }
    let transition = settled(&held(), finish());
    let told = told(&transition);
    assert_eq!((&told[0].1["flow"], &told[0].1["next"]), (&json!("complete"), &Value::Null));
    assert_eq!((told[1].0, &told[1].1["bytes"]), ("run.completed", &json!(8)));
    assert!(matches!(transition.change, Change::Complete(_)));
}

#[test]
fn a_wait_is_opened_by_the_last_event() {
    let wait = NewWait::model("claude", text(&json!({"a": "secret"})));
    let then = Frame { step: "answered".into(), carry: Some(text(&json!(5))) };
    let transition = settled(&with_frame(None), Outcome::Done(Act::Suspend { wait: wait.clone(), then, under: None }));
    let told = told(&transition);
    let asked = json!({"provider": "claude", "bytes": 14, "sha256": wait.request.sha256()});
    assert_eq!(told[1..], [("model.asked", asked)]);
    let Change::Suspend { position, wait: opened } = transition.change else { panic!() };
    assert_eq!((position.step.as_str(), position.stack.len(), opened), ("answered", 1, wait));
    assert_eq!(resume_arg(position.arg.as_ref(), Some(&text(&json!("yes")))).unwrap().as_str(), r#"["yes",5]"#);
}

#[test]
fn arguments_are_made_of_answer_and_carry() {
    let (answer, carry) = (text(&json!("a")), text(&json!({"c": 1})));
    assert_eq!(resume_arg(None, None), None);
    assert_eq!(resume_arg(None, Some(&answer)), Some(answer.clone()));
    assert_eq!(resume_arg(Some(&carry), Some(&answer)).unwrap().as_str(), r#"["a",{"c":1}]"#);
    assert_eq!(resume_arg(Some(&carry), None).unwrap().as_str(), r#"[null,{"c":1}]"#);
}

#[test]
fn errors_are_tried_again_with_growing_delays_until_the_last_attempt() {
    let error = || Outcome::Error { message: "the secret".into(), fatal: false };
    for (errors, seconds) in [(0, 1), (1, 2)] {
        let transition = settled(&Held { errors, ..held() }, error());
        let failed = json!({"step": "load", "code": "step-error", "attempt": errors + 1, "us": 250,
            "retry_ms": seconds * 1000});
        assert_eq!(told(&transition), [("step.failed", failed)]);
        let position = held().position;
        assert_eq!(
            transition.change,
            Change::Release { position, delay: Duration::from_secs(seconds), errors: errors + 1 }
        );
    }
    let transition = settled(&Held { errors: 2, ..held() }, error());
    let told = told(&transition);
    assert_eq!(told[0].1, json!({"step": "load", "code": "step-error", "attempt": 3, "us": 250}));
    assert_eq!(told[1], ("run.failed", json!({"step": "load", "code": "step-error"})));
    let Change::Fail(failure) = transition.change else { panic!() };
    assert_eq!((failure.step.as_str(), failure.message.as_str()), ("load", "the secret"));
}

#[test]
fn a_timeout_is_an_error_like_others() {
    assert!(matches!(settled(&held(), Outcome::TimedOut).change, Change::Release { errors: 1, .. }));
    let Change::Fail(failure) = settled(&Held { errors: 2, ..held() }, Outcome::TimedOut).change else { panic!() };
    assert_eq!(failure.code, FailureCode::StepTimeout);
    assert!(failure.message.contains("30s"));
}

#[test]
fn what_trying_again_cannot_cure_fails_at_once_and_keeps_the_records() {
    let record = NewEvent::new(EventType::Custom, &json!({"type": "x", "data": 1})).unwrap();
    let secret = || "secret".to_owned();
    for (outcome, code) in [
        (Outcome::Error { message: secret(), fatal: true }, FailureCode::StepFatal),
        (Outcome::Panic(secret()), FailureCode::StepPanic),
        (Outcome::Undecodable(secret()), FailureCode::Undecodable),
        (Outcome::Limit(secret()), FailureCode::LimitExceeded),
    ] {
        let executed = Executed { records: vec![record.clone()], ..Executed::bare(outcome) };
        let transition = settle(&held(), &info(3), executed, Duration::ZERO, true, 0.0);
        let kinds: Vec<_> = told(&transition).iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, ["custom", "step.failed", "run.failed"]);
        assert!(transition.events.iter().all(|event| !event.payload.as_str().contains("secret")));
        assert!(matches!(transition.change, Change::Fail(failure) if failure.code == code));
    }
}

#[test]
fn limits_hold_for_flows_of_every_kind() {
    let large = |bytes| JsonText::of(&"x".repeat(bytes), "large", usize::MAX).unwrap();
    let frame = |carry| Frame { step: "then".into(), carry };
    let call = |carry| Outcome::Done(Act::Call { step: "next".into(), arg: None, then: frame(carry) });
    let wait = NewWait::model("p", text(&json!({})));
    let suspend = Outcome::Done(Act::Suspend { wait, then: frame(Some(large(CARRY_BYTES))), under: None });
    let record = NewEvent::new(EventType::Custom, &json!({})).unwrap();
    let records = vec![record; RECORDS_PER_STEP + 1];
    let mut heavy = held();
    heavy.position.stack = vec![frame(Some(large(CARRY_BYTES / 2))); 17];
    for (held, executed, what) in [
        (held(), Executed { state: Some(large(STATE_BYTES)), ..Executed::bare(goto()) }, "state"),
        (held(), Executed { records, ..Executed::bare(goto()) }, "record"),
        (held(), Executed::bare(call(Some(large(CARRY_BYTES)))), "carried"),
        (held(), Executed::bare(suspend), "carried"),
        (heavy, Executed::bare(goto()), "open calls"),
        (Held { cursor: EVENTS_PER_RUN - 1, ..held() }, Executed::bare(goto()), "events"),
    ] {
        let transition = settle(&held, &info(3), executed, Duration::ZERO, true, 0.0);
        let Change::Fail(failure) = &transition.change else { panic!("{what}: {:?}", transition.change) };
        assert_eq!(failure.code, FailureCode::LimitExceeded);
        assert!(failure.message.contains(what), "{what}: {}", failure.message);
        assert_eq!((transition.state.is_none(), transition.events.len()), (true, 2));
    }
}

#[test]
fn the_last_event_of_the_limit_may_still_be_used() {
    let last = settled(&Held { cursor: EVENTS_PER_RUN - 2, ..held() }, goto());
    assert!(matches!(last.change, Change::Continue(_)) && last.next_cursor() == EVENTS_PER_RUN);
}

#[test]
fn a_run_that_cannot_be_loaded_fails_where_it_is() {
    let transition = fail(&held(), Failure::new(FailureCode::Undecodable, "", "the state does not fit"));
    assert_eq!(told(&transition)[1], ("run.failed", json!({"step": "load", "code": "undecodable"})));
    assert!(matches!(transition.change, Change::Fail(failure) if failure.step == "load"));
}
