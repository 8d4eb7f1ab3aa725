//! The form in which workflows are written, and what a node sees of them.

use futures::FutureExt;
use futures::executor::block_on;
use longhaul::run::flow::{Act, Executed, Flow, Image, Live, Outcome};
use longhaul::{Backoff, Cause, FailureCode, JsonText, RunKey, StepPolicy, TypedFlow};
use longhaul::{ModelRequest, Next, Reply, Result, Run, StepError, Workflow, workflow};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

/// A workflow with a step for each thing that a step can do.
pub struct Desk;

/// What it is given.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ticket {
    title: String,
}

/// What it remembers.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Notes {
    seen: HashMap<String, u32>,
}

// Nobody outside needs to know what steps hand each other.
#[derive(Serialize, Deserialize)]
struct Draft {
    text: String,
}

#[workflow]
mod desk {
    use super::*;

    impl Workflow for Desk {
        const NAME: &'static str = "desk";
        const VERSION: u32 = 3;
        type Input = Ticket;
        type State = Notes;
        type Output = String;
        type Entry = step::opened;
    }

    #[step(attempts = 3, backoff = "500ms..1m", timeout = "30s", crash_limit = 5)]
    async fn opened(run: &mut Run<Desk>) -> Result<Next<Desk>> {
        run.state.seen.insert("opened".into(), 1);
        run.state.seen.insert("again".into(), 2);
        let loaded = run.record("ticket.loaded", &json!({"bytes": run.input.title.len()}))?;
        run.record_caused_by("ticket.read", "fast", loaded)?;
        Ok(Next::goto(step::drafted, Draft { text: run.input.title.clone() }))
    }

    #[step]
    pub(super) async fn drafted(run: &mut Run<Desk>, draft: Draft) -> Result<Next<Desk>> {
        Ok(run.call(step::count, draft.text).then(step::counted))
    }

    #[step(blocking)]
    async fn count(_: &mut Run<Desk>, text: String) -> Result<Next<Desk, usize>> {
        Ok(Next::finish(text.len()))
    }

    #[step]
    async fn counted(run: &mut Run<Desk>, length: usize) -> Result<Next<Desk>> {
        let request = json!({"model": "m", "messages": [{"role": "user", "content": run.input.title}]});
        Ok(run.model("claude", request).carry(Draft { text: length.to_string() }).then(step::answered))
    }

    #[step]
    async fn answered(_: &mut Run<Desk>, (reply, draft): (Reply, Draft)) -> Result<Next<Desk>> {
        Ok(Next::finish(format!("{}: {}", draft.text, reply.text())))
    }

    #[step]
    async fn spoils(run: &mut Run<Desk>, how: String) -> Result<Next<Desk>> {
        run.state.seen.insert("spoilt".into(), 9);
        run.record("ticket.spoilt", &())?;
        match how.as_str() {
            "panic" => panic!("no {how}"),
            "odd panic" => std::panic::panic_any(7),
            "fatal" => Err(StepError::fatal("hopeless")),
            "hang" => std::future::pending().await,
            "request" => Ok(run.model("claude", ModelRequest::raw("[]")).then(step::reply)),
            "provider" => Ok(run.model("", json!({})).then(step::reply)),
            "output" => Ok(Next::finish("x".repeat(9 << 20))),
            "input" => Ok(Next::goto(step::spoils, "x".repeat(2 << 20))),
            "carry" => Ok(run.model("claude", json!({})).carry(json!("x".repeat(2 << 20))).then(step::heavy)),
            "state" => {
                run.state.seen.insert("x".repeat(2 << 20), 1);
                Ok(Next::finish("ok".into()))
            }
            number => Ok(Next::finish(number.parse::<u8>()?.to_string())),
        }
    }

    #[step]
    async fn reply(_: &mut Run<Desk>, reply: Reply) -> Result<Next<Desk>> {
        Ok(Next::finish(reply.text()))
    }

    #[step]
    async fn heavy(_: &mut Run<Desk>, (reply, _): (Reply, Value)) -> Result<Next<Desk>> {
        Ok(Next::finish(reply.text()))
    }

    #[step]
    async fn optional(run: &mut Run<Desk>, value: Option<u8>) -> Result<Next<Desk>> {
        run.state.seen.remove("opened");
        Ok(Next::finish(format!("{value:?} {:?}", run.state.seen)))
    }
}

fn image(state: Option<&str>) -> Image {
    Image {
        run: RunKey(7),
        run_id: "ticket-7".into(),
        input: JsonText::parse(r#"{"title": "It is on fire"}"#, "input", 100).unwrap(),
        state: state.map(|state| JsonText::parse(state, "state", 1000).unwrap()),
        unsaved: false,
    }
}

fn load() -> Box<dyn Live> {
    TypedFlow::new(Desk).load(image(None)).unwrap()
}

fn call(live: &mut dyn Live, step: &str, arg: Option<&Value>) -> Executed {
    let arg = arg.map(|arg| JsonText::of(arg, "arg", 1 << 24).unwrap());
    block_on(live.call(step, arg, 10))
}

fn spoil(how: &str) -> Outcome {
    call(load().as_mut(), "spoils", Some(&json!(how))).outcome
}

#[test]
fn the_manifest_lists_what_was_declared() {
    let flow = TypedFlow::new(Desk);
    let manifest = flow.manifest();
    assert_eq!((&*manifest.workflow, manifest.version, &*manifest.entry), ("desk", 3, "opened"));
    let names: Vec<_> = manifest.steps.iter().map(|step| &*step.name).collect();
    assert_eq!(names, ["answered", "count", "counted", "drafted", "heavy", "opened", "optional", "reply", "spoils"]);
    let opened = manifest.step("opened").unwrap();
    let backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(60) };
    let timeout = Some(Duration::from_secs(30));
    assert_eq!(opened.policy, StepPolicy { attempts: 3, backoff, timeout, crash_limit: 5 });
    assert_eq!((&*opened.input.name, opened.blocking), ("()", false));
    let count = manifest.step("count").unwrap();
    assert_eq!((count.policy, count.blocking), (StepPolicy::DEFAULT, true));
    let draft = &manifest.step("drafted").unwrap().input;
    assert!(draft.name.ends_with("::Draft"), "{draft:?}");
    assert_eq!(draft.schema, None, "no type has to have a schema");
    assert_eq!(opened.input.schema.as_deref(), Some(&json!({"type": "null"})), "but one that has shows it");
    assert_eq!(manifest.step("missing"), None);
}

#[test]
fn a_step_is_still_a_function() {
    let mut run = Run::detached(Desk, Ticket { title: "x".into() });
    let next = block_on(desk::drafted(&mut run, Draft { text: "abc".into() })).unwrap();
    assert_eq!(next.leads_to(), Some("counted"));
    assert_eq!(run.id(), "detached");
    assert!(!format!("{run:?} {next:?}").contains("abc"));
}

#[test]
fn goto_carries_the_input_and_nothing_for_null() {
    let executed = call(load().as_mut(), "opened", None);
    let Outcome::Done(Act::Goto { step, arg: Some(arg) }) = executed.outcome else { panic!() };
    assert_eq!(step, "drafted");
    assert_eq!(arg.as_str(), r#"{"text":"It is on fire"}"#);
    let next = Next::<Desk>::goto(desk::step::drafted, Draft { text: String::new() });
    assert_eq!(next.leads_to(), Some("drafted"));
}

#[test]
fn records_count_from_the_cursor_and_name_their_cause() {
    let records = call(load().as_mut(), "opened", None).records;
    assert_eq!(records.len(), 2);
    assert_eq!(records[1].cause, Cause::Event(records[0].id(RunKey(7), 10)));
    assert_eq!(records[0].payload.as_str(), r#"{"type":"ticket.loaded","data":{"bytes":13}}"#);
}

#[test]
fn a_call_says_who_takes_the_result() {
    let executed = call(load().as_mut(), "drafted", Some(&json!({"text": "abc"})));
    let Outcome::Done(Act::Call { step, arg: Some(arg), then }) = executed.outcome else { panic!() };
    assert_eq!(step, "count");
    assert_eq!((arg.as_str(), then.step.as_str(), then.carry), (r#""abc""#, "counted", None));
}

#[test]
fn a_model_call_is_a_wait_with_the_request_as_text() {
    let executed = call(load().as_mut(), "counted", Some(&json!(3)));
    let Outcome::Done(Act::Suspend { wait, then, under: None }) = executed.outcome else { panic!() };
    assert_eq!(wait.provider.as_deref(), Some("claude"));
    assert_eq!(wait.request.read::<Value>().unwrap()["messages"][0]["content"], "It is on fire");
    assert_eq!((then.step.as_str(), then.carry.unwrap().as_str()), ("answered", r#"{"text":"3"}"#));
}

#[test]
fn an_answer_and_a_carried_value_arrive_as_a_pair() {
    let reply: Value = serde_json::from_str(Reply::of_text("yes").raw()).unwrap();
    let executed = call(load().as_mut(), "answered", Some(&json!([reply, {"text": "3"}])));
    assert_eq!(executed.outcome, Outcome::Done(Act::Finish(JsonText::of("3: yes", "x", 100).unwrap())));
}

#[test]
fn the_state_is_written_only_when_a_step_changed_it() {
    let mut live = load();
    assert_eq!(call(live.as_mut(), "count", Some(&json!("x"))).state, None);
    let state = call(live.as_mut(), "opened", None).state.unwrap();
    assert_eq!(state.read::<Value>().unwrap(), json!({"seen": {"opened": 1, "again": 2}}));
    assert_eq!(call(live.as_mut(), "opened", None).state, None, "the same again is no change");
    assert_eq!(call(live.as_mut(), "optional", None).state.unwrap().as_str(), r#"{"seen":{"again":2}}"#);
}

#[test]
fn reading_a_map_back_in_another_order_is_no_change() {
    let state: Vec<_> = (0..20).map(|n| format!(r#""k{n}": {n}"#)).collect();
    let state = format!(r#"{{"seen": {{{}}}}}"#, state.join(", "));
    for _ in 0..5 {
        let mut live = TypedFlow::new(Desk).load(image(Some(&state))).unwrap();
        assert_eq!(call(live.as_mut(), "count", Some(&json!("x"))).state, None);
    }
}

#[test]
fn nothing_and_null_are_the_same_input() {
    for arg in [None, Some(&Value::Null)] {
        let Outcome::Done(Act::Finish(text)) = call(load().as_mut(), "optional", arg).outcome else { panic!() };
        assert_eq!(text.as_str(), r#""None {}""#);
    }
}

#[test]
fn after_a_bad_end_the_next_call_starts_from_the_last_good_state() {
    let mut live = load();
    call(live.as_mut(), "opened", None).state.unwrap();
    for how in ["panic", "fatal", "not a number", "request", "state"] {
        let spoilt = call(live.as_mut(), "spoils", Some(&json!(how)));
        assert!(!matches!(spoilt.outcome, Outcome::Done(_)), "{how}");
        assert_eq!((spoilt.state, spoilt.records.len()), (None, 1), "{how}");
        let Outcome::Done(Act::Finish(text)) = call(live.as_mut(), "optional", None).outcome else { panic!() };
        assert_eq!(text.as_str(), r#""None {\"again\": 2}""#, "{how}");
    }
}

#[test]
fn a_dropped_call_leaves_its_records_and_no_state() {
    let mut live = load();
    let arg = JsonText::of("hang", "arg", 100).unwrap();
    let mut hanging = live.call("spoils", Some(arg), 3);
    assert!(hanging.as_mut().now_or_never().is_none());
    drop(hanging);
    let left = live.timed_out();
    assert_eq!((left.outcome, left.state, left.records.len()), (Outcome::TimedOut, None, 1));
    let Outcome::Done(Act::Finish(text)) = call(live.as_mut(), "optional", None).outcome else { panic!() };
    assert_eq!(text.as_str(), r#""None {}""#);
}

#[test]
fn bad_ends_are_told_apart() {
    assert_eq!(spoil("panic"), Outcome::Panic("no panic".into()));
    assert_eq!(spoil("odd panic"), Outcome::Panic("a panic that is no text".into()));
    assert_eq!(spoil("fatal"), Outcome::Error { message: "hopeless".into(), fatal: true });
    let error = Outcome::Error { message: "invalid digit found in string".into(), fatal: false };
    assert_eq!(spoil("x"), error);
    assert!(matches!(spoil("request"), Outcome::Undecodable(text) if text.contains("JSON object")));
    for (how, what) in [
        ("provider", "name of a provider"),
        ("output", "result of a step"),
        ("input", "input of a step"),
        ("carry", "carried value"),
        ("state", "the state"),
    ] {
        let outcome = spoil(how);
        assert!(matches!(&outcome, Outcome::Limit(text) if text.contains(what)), "{how}: {outcome:?}");
    }
}

#[test]
fn an_input_that_does_not_fit_is_named() {
    let Outcome::Undecodable(text) = call(load().as_mut(), "count", Some(&json!(7))).outcome else { panic!() };
    assert!(text.contains("alloc::string::String"), "{text}");
    assert!(matches!(call(load().as_mut(), "missing", None).outcome, Outcome::Undecodable(_)));
}

#[test]
fn a_run_that_does_not_fit_is_not_loaded() {
    let refused = |image| TypedFlow::new(Desk).load(image).err().unwrap();
    let failure = refused(image(Some(r#"{"seen": 7}"#)));
    assert_eq!(failure.code, FailureCode::Undecodable);
    assert!(failure.message.starts_with("the state does not fit"), "{}", failure.message);
    let input = JsonText::parse("7", "input", 10).unwrap();
    assert!(refused(Image { input, ..image(None) }).message.starts_with("the input does not fit"));
}
