//! Whole workflows in memory.

use futures::executor::block_on;
use longhaul::{Answer, EventId, Failure, FailureCode, Next, RecordError, Rehearsal, Reply, Result, Run, StepError};
use longhaul::{WaitKind, Workflow, workflow};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};

/// Plays out a plan that stands in its input.
#[derive(Default)]
pub struct Clerk {
    calls: AtomicU32,
}

/// What the clerk is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Task {
    /// Ask a model, and answer with what it says.
    Ask(String),
    /// Ask about each word, one after the other.
    Each(Vec<String>),
    /// Add up to a number by calling itself.
    Sum(u32),
    /// Fail so many times, then succeed.
    Stumble(u32),
    /// Fail for good.
    Despair,
    /// Panic.
    Panic,
    /// Go round for ever.
    Circle,
    /// Record events.
    Record,
    /// Name a cause that does not exist.
    Misname,
}

/// What the clerk remembers.
#[derive(Default, Serialize, Deserialize)]
pub struct Memory {
    answers: Vec<String>,
}

#[workflow]
mod clerk {
    use super::*;

    impl Workflow for Clerk {
        const NAME: &'static str = "clerk";
        const VERSION: u32 = 1;
        type Input = Task;
        type State = Memory;
        type Output = String;
        type Entry = step::begin;
    }

    #[step(attempts = 3, backoff = "1h..1d")]
    async fn begin(run: &mut Run<Clerk>) -> Result<Next<Clerk>> {
        let call = run.app.calls.fetch_add(1, Ordering::Relaxed);
        run.state.answers.push(format!("call {call}"));
        match run.input.as_ref().clone() {
            Task::Ask(text) => Ok(run.model("claude", json!({"ask": text})).then(step::said)),
            Task::Each(words) => Ok(Next::goto(step::each, words)),
            Task::Sum(number) => Ok(run.call(step::sum, number).carry("sum".to_owned()).then(step::summed)),
            Task::Stumble(times) if call < times => Err(StepError::new("stumbled")),
            Task::Stumble(_) => Ok(Next::finish(run.state.answers.join(", "))),
            Task::Despair => Err(StepError::fatal("hopeless")),
            Task::Panic => panic!("aaah"),
            Task::Circle => Ok(Next::goto(step::circle, ())),
            Task::Record => Ok(Next::goto(step::record, None)),
            Task::Misname => Ok(Next::goto(step::misname, ())),
        }
    }

    #[step]
    async fn said(_: &mut Run<Clerk>, reply: Reply) -> Result<Next<Clerk>> {
        Ok(Next::finish(reply.text()))
    }

    #[step]
    async fn each(run: &mut Run<Clerk>, mut words: Vec<String>) -> Result<Next<Clerk>> {
        let Some(word) = words.pop() else {
            return Ok(Next::finish(run.state.answers.join(" ")));
        };
        Ok(run.model("claude", json!({"word": word})).carry(words).then(step::heard))
    }

    #[step]
    async fn heard(run: &mut Run<Clerk>, (reply, words): (Reply, Vec<String>)) -> Result<Next<Clerk>> {
        run.state.answers.push(reply.text());
        Ok(Next::goto(step::each, words))
    }

    #[step]
    async fn sum(run: &mut Run<Clerk>, number: u32) -> Result<Next<Clerk, u64>> {
        if number == 0 {
            return Ok(Next::finish(0));
        }
        Ok(run.call(step::sum, number - 1).carry(number).then(step::add))
    }

    #[step]
    async fn add(_: &mut Run<Clerk>, (sum, number): (u64, u32)) -> Result<Next<Clerk, u64>> {
        Ok(Next::finish(sum + u64::from(number)))
    }

    #[step]
    async fn summed(_: &mut Run<Clerk>, (sum, what): (u64, String)) -> Result<Next<Clerk>> {
        Ok(Next::finish(format!("{what}: {sum}")))
    }

    #[step]
    async fn circle(_: &mut Run<Clerk>) -> Result<Next<Clerk>> {
        Ok(Next::goto(step::circle, ()))
    }

    #[step]
    async fn record(run: &mut Run<Clerk>, earlier: Option<String>) -> Result<Next<Clerk>> {
        if let Some(earlier) = earlier {
            let cause: EventId = earlier.parse()?;
            run.record_caused_by("ticket.closed", &json!({"durable": true}), cause)?;
            return Ok(Next::finish(run.id().to_owned()));
        }
        let loaded = run.record("ticket.loaded", &7)?;
        let read = run.record_caused_by("ticket.read", &(), loaded)?;
        Ok(Next::goto(step::record, Some(read.to_string())))
    }

    #[step]
    async fn misname(run: &mut Run<Clerk>) -> Result<Next<Clerk>> {
        let loaded = run.record("ticket.loaded", &())?;
        let unknown = EventId { ordinal: loaded.ordinal + 1, ..loaded };
        match run.record_caused_by("ticket.read", &(), unknown) {
            Err(RecordError::UnknownCause(cause)) if cause == unknown => Ok(Next::finish("refused".into())),
            other => Err(StepError::fatal(format!("{other:?}"))),
        }
    }
}

fn echo() -> Rehearsal<Clerk> {
    Rehearsal::new(Clerk::default()).answer(|ask| {
        let request = ask.request();
        Reply::of_text(request["word"].as_str().or(request["ask"].as_str()).unwrap_or_default())
    })
}

fn run(rehearsal: &mut Rehearsal<Clerk>, task: Task) -> Result<String, Failure> {
    block_on(rehearsal.run("1790", task))
}

#[test]
fn a_model_is_asked_and_heard() {
    let mut rehearsal = echo();
    assert_eq!(run(&mut rehearsal, Task::Ask("tone?".into())).unwrap(), "tone?");
    assert_eq!(rehearsal.steps(), ["begin", "said"]);
    let asks = rehearsal.requests();
    assert_eq!((asks.len(), asks[0].kind(), asks[0].provider()), (1, WaitKind::Model, "claude"));
    assert_eq!(asks[0].raw(), r#"{"ask":"tone?"}"#);
}

#[test]
fn the_ledger_is_told_in_order() {
    let mut rehearsal = echo();
    run(&mut rehearsal, Task::Ask("tone?".into())).unwrap();
    let first = ["run.enqueued", "step.started", "step.completed", "model.asked"];
    let second = ["model.answered", "model.applied", "step.started", "step.completed", "run.completed"];
    assert_eq!(rehearsal.events(), [first.as_slice(), second.as_slice()].concat());
}

#[test]
fn a_loop_of_questions_carries_what_is_left() {
    let mut rehearsal = echo();
    let words = ["trade", "and", "peace"].map(String::from).to_vec();
    assert_eq!(run(&mut rehearsal, Task::Each(words)).unwrap(), "call 0 peace and trade");
    assert_eq!(rehearsal.requests().len(), 3);
}

#[test]
fn calls_return_to_their_callers() {
    let mut rehearsal = echo();
    assert_eq!(run(&mut rehearsal, Task::Sum(200)).unwrap(), "sum: 20100");
    let count = |name| rehearsal.steps().iter().filter(|step| *step == name).count();
    assert_eq!((count("sum"), count("add"), count("summed")), (201, 200, 1));
}

#[test]
fn calls_that_nest_too_deep_fail_the_run() {
    let failure = run(&mut echo(), Task::Sum(300)).unwrap_err();
    assert_eq!((failure.code, failure.step.as_str()), (FailureCode::LimitExceeded, "sum"));
    assert!(failure.message.contains("256"), "{}", failure.message);
}

#[test]
fn a_step_that_stumbles_is_tried_again_at_once_from_the_same_state() {
    let mut rehearsal = echo();
    assert_eq!(run(&mut rehearsal, Task::Stumble(2)).unwrap(), "call 2");
    let tail = ["step.failed", "step.started", "step.failed", "step.started", "step.completed", "run.completed"];
    assert_eq!(rehearsal.events()[2..], tail);
}

#[test]
fn the_last_attempt_ends_the_run() {
    let mut rehearsal = echo();
    let failure = run(&mut rehearsal, Task::Stumble(3)).unwrap_err();
    assert_eq!(failure, Failure::new(FailureCode::StepError, "begin", "stumbled"));
    assert_eq!(rehearsal.steps(), ["begin"; 3]);
    assert_eq!(rehearsal.events().last().unwrap(), "run.failed");
}

#[test]
fn fatal_errors_and_panics_are_not_tried_again() {
    for (task, code, message) in
        [(Task::Despair, FailureCode::StepFatal, "hopeless"), (Task::Panic, FailureCode::StepPanic, "aaah")]
    {
        let mut rehearsal = echo();
        assert_eq!(run(&mut rehearsal, task).unwrap_err(), Failure::new(code, "begin", message));
        assert_eq!(rehearsal.steps(), ["begin"]);
        assert_eq!(rehearsal.events()[2..], ["step.failed", "run.failed"]);
    }
}

#[test]
fn a_run_that_never_ends_is_ended() {
    let mut rehearsal = echo();
    let failure = run(&mut rehearsal, Task::Circle).unwrap_err();
    assert_eq!(failure.code, FailureCode::LimitExceeded);
    assert!(failure.message.contains("100000 events"), "{}", failure.message);
}

#[test]
fn own_events_appear_under_their_names_and_can_be_causes() {
    let mut rehearsal = echo();
    assert_eq!(run(&mut rehearsal, Task::Record).unwrap(), "1790");
    let own: Vec<_> = rehearsal.events().iter().filter(|kind| kind.starts_with("ticket.")).collect();
    assert_eq!(own, ["ticket.loaded", "ticket.read", "ticket.closed"]);
    assert_eq!(run(&mut rehearsal, Task::Misname).unwrap(), "refused");
}

#[test]
fn what_the_script_refuses_fails_the_run() {
    let mut rehearsal = Rehearsal::new(Clerk::default()).answer(|_| Answer::refused("overloaded"));
    let failure = run(&mut rehearsal, Task::Ask("tone?".into())).unwrap_err();
    assert_eq!(failure, Failure::new(FailureCode::ModelFailed, "said", "overloaded"));
    assert_eq!(rehearsal.events()[4..], ["model.failed", "run.failed"]);
    let unscripted = run(&mut Rehearsal::new(Clerk::default()), Task::Ask("tone?".into())).unwrap_err();
    assert_eq!(unscripted.code, FailureCode::ModelFailed);
}

#[test]
fn any_json_is_an_answer_and_an_odd_one_has_no_text() {
    let mut rehearsal = Rehearsal::new(Clerk::default()).answer(|_| json!({"content": "not blocks"}));
    assert_eq!(run(&mut rehearsal, Task::Ask("tone?".into())).unwrap(), "");
}

#[test]
fn a_rehearsal_begins_afresh_each_time() {
    let mut rehearsal = echo();
    run(&mut rehearsal, Task::Sum(3)).unwrap();
    run(&mut rehearsal, Task::Ask("tone?".into())).unwrap();
    assert_eq!((rehearsal.steps().len(), rehearsal.requests().len()), (2, 1));
}

#[test]
fn an_input_that_is_too_large_is_refused() {
    let failure = run(&mut echo(), Task::Ask("x".repeat(9 << 20))).unwrap_err();
    assert_eq!(failure.code, FailureCode::LimitExceeded);
}

#[test]
fn a_rehearsal_can_be_sent_to_another_thread() {
    let mut rehearsal = echo();
    let answer = std::thread::spawn(move || run(&mut rehearsal, Task::Ask("tone?".into())));
    assert_eq!(answer.join().unwrap().unwrap(), "tone?");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn any_words_come_back_unchanged(words in prop::collection::vec(any::<String>(), 0..6)) {
        let spoken = run(&mut echo(), Task::Each(words.iter().rev().cloned().collect())).unwrap();
        let want = std::iter::once("call 0").chain(words.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
        prop_assert_eq!(spoken, want);
    }
}
