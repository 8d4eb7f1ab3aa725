//! Programs as data, run through the trampoline whole or cut into pieces: whatever the cuts, they come to the same end by
//! the same way.

use super::super::flow::{Act, Executed, Manifest, Outcome, StepInfo, TypeInfo};
use super::payload::{Started, event};
use super::{Held, admit, advance, resume_arg, settle};
use crate::domain::limits::STACK_FRAMES;
use crate::domain::{Change, EventType, FailureCode, Fence, Frame, JsonText, NewEvent, NewWait, Position, RunKey};
use crate::domain::{StepPolicy, Transition};
use proptest::prelude::*;
use serde_json::json;
use std::collections::HashSet;
use std::time::Duration;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Debug, Clone)]
struct Op {
    records: usize,
    kind: Kind,
}

/// What the n-th execution of a step asks for; after the last, everything finishes.
#[derive(Debug, Clone)]
enum Kind {
    Goto(usize),
    Call { step: usize, then: usize, carry: bool },
    Suspend { then: usize, carry: bool },
    Finish,
    FailOnce,
    FailForGood,
}

/// How the holders of a run behave at its n-th execution.
#[derive(Debug, Clone, Copy, Default)]
struct Holder {
    /// It lets go afterwards.
    releases: bool,
    /// It dies after the start, and another one starts the step again.
    dies: bool,
}

#[derive(Debug, PartialEq)]
struct Trace {
    end: Change,
    steps: Vec<String>,
    /// Kind and payload; of starts that follow each other, one.
    events: Vec<(EventType, String)>,
}

fn manifest() -> Manifest {
    let policy = StepPolicy { attempts: 2, ..StepPolicy::DEFAULT };
    let number = TypeInfo::named::<i64>();
    let step = |name: &'static str| StepInfo { name: name.into(), input: number.clone(), policy, blocking: false };
    let steps = NAMES.map(step).to_vec();
    let (input, state, output) = (number.clone(), number.clone(), number);
    Manifest {
        workflow: "program".into(),
        version: 1,
        upgrades_from: 1,
        entry: "a".into(),
        input,
        state,
        output,
        steps,
    }
}

fn json(value: &serde_json::Value) -> JsonText {
    JsonText::of(value, "value", 1 << 20).unwrap()
}

/// A value that depends on the argument and on the place in the program.
fn mix(arg: Option<&JsonText>, place: usize) -> JsonText {
    let text = arg.map_or("nothing", |arg| arg.as_str());
    json(&json!(text.bytes().fold(place as u64, |sum, byte| (sum * 31 + u64::from(byte)) % 9973)))
}

/// The run as the database has it, and the world it runs in.
struct Player<'a> {
    program: &'a [Op],
    failed: HashSet<usize>,
    place: usize,
    depth: usize,
    trace: Vec<NewEvent>,
    steps: Vec<String>,
}

impl Player<'_> {
    fn execute(&mut self, arg: Option<&JsonText>) -> Executed {
        let place = self.place;
        let value = mix(arg, place);
        let op = self.program.get(place).cloned().unwrap_or(Op { records: 0, kind: Kind::Finish });
        let record = |n| NewEvent::new(EventType::Custom, &json!({"type": "test", "data": n})).unwrap();
        let records: Vec<_> = (0..op.records).map(record).collect();
        let frame = |then: usize, carry: bool| Frame {
            step: NAMES[then].into(),
            carry: carry.then(|| mix(Some(&value), place + 1)),
        };
        let act = match op.kind {
            Kind::FailOnce if self.failed.insert(place) => {
                let outcome = Outcome::Error { message: "once".into(), fatal: false };
                return Executed { records, ..Executed::bare(outcome) };
            }
            Kind::FailForGood => {
                let outcome = Outcome::Error { message: "for good".into(), fatal: true };
                return Executed { records, ..Executed::bare(outcome) };
            }
            Kind::FailOnce => Act::Goto { step: "a".into(), arg: Some(value) },
            Kind::Goto(step) => Act::Goto { step: NAMES[step].into(), arg: Some(value) },
            Kind::Call { step, then, carry } => {
                Act::Call { step: NAMES[step].into(), then: frame(then, carry), arg: Some(value) }
            }
            Kind::Suspend { then, carry } => {
                let then = frame(then, carry);
                let wait = NewWait::model("test", value);
                Act::Suspend { wait, then, under: None }
            }
            Kind::Finish => Act::Finish(value),
        };
        self.place += 1;
        let state = Some(json(&json!({"place": self.place})));
        Executed { outcome: Outcome::Done(act), state, records }
    }

    /// Starts the step, as a claim does.
    fn starts(&mut self, held: &mut Held) {
        let started = Started { step: &held.position.step, attempt: held.errors + 1 };
        self.trace.push(event(EventType::StepStarted, &started));
        held.cursor += 1;
    }

    fn play(mut self, holder: impl Fn(usize) -> Holder) -> Trace {
        let manifest = manifest();
        let position = Position { step: "a".into(), arg: None, stack: Vec::new() };
        let mut held =
            Held { run: RunKey(1), parent: None, fence: Fence(1), cursor: 0, position, errors: 0, starts: 1 };
        self.starts(&mut held);
        for turn in 0.. {
            let Holder { releases, dies } = holder(turn);
            if dies {
                held = Held { starts: held.starts + 1, ..claimed(held) };
                self.starts(&mut held);
            }
            let info = admit(&manifest, &held).unwrap().clone();
            self.steps.push(held.position.step.clone());
            let executed = self.execute(held.position.arg.as_ref());
            self.follow(&executed.outcome, &held);
            let transition = settle(&held, &info, executed, Duration::ZERO, !releases, 0.0);
            self.check(&held, &transition);
            self.trace.extend(transition.events.clone());
            let (cursor, change) = (transition.next_cursor(), transition.change.clone());
            let after = |position, errors| claimed(Held { cursor, position, errors, starts: 1, ..held.clone() });
            held = match (advance(held.clone(), transition), change) {
                (Some(held), Change::Continue(_)) => held,
                (None, Change::Release { position, errors, .. }) => {
                    let mut held = after(position, errors);
                    self.starts(&mut held);
                    held
                }
                (None, Change::Suspend { position, wait }) => {
                    let mut held = after(position, 0);
                    let answer = mix(Some(&wait.request), 7);
                    held.position.arg = resume_arg(held.position.arg.as_ref(), Some(&answer));
                    self.starts(&mut held);
                    held
                }
                (None, end @ (Change::Complete(_) | Change::Fail(_))) => {
                    assert_eq!(cursor as usize, self.trace.len(), "one ordinal for each event");
                    return self.told(end);
                }
                (_, other) => panic!("{other:?}"),
            };
            assert_eq!(held.position.stack.len(), self.depth, "the stack is as deep as calls are open");
        }
        unreachable!()
    }

    /// Counts open calls, without looking at the stack.
    fn follow(&mut self, outcome: &Outcome, held: &Held) {
        match outcome {
            Outcome::Done(Act::Call { .. }) => self.depth += 1,
            Outcome::Done(Act::Finish(_)) if !held.position.stack.is_empty() => self.depth -= 1,
            _ => {}
        }
    }

    fn check(&self, held: &Held, transition: &Transition) {
        assert_eq!(transition.next_cursor(), held.cursor + transition.events.len() as i32);
        assert!(!transition.events.is_empty());
        match &transition.change {
            Change::Complete(_) => assert_eq!(self.depth, 0),
            Change::Continue(at)
            | Change::Release { position: at, .. }
            | Change::Suspend { position: at, .. }
            | Change::Fork { position: at, .. } => {
                assert!(at.stack.len() <= STACK_FRAMES);
            }
            Change::Fail(_) | Change::Park(_) => assert_eq!(transition.state, None, "the durable state stays"),
        }
    }

    fn told(self, end: Change) -> Trace {
        let mut events: Vec<_> =
            self.trace.iter().map(|event| (event.kind, event.payload.as_str().to_owned())).collect();
        events.dedup_by(|a, b| a == b && a.0 == EventType::StepStarted);
        Trace { end, steps: self.steps, events }
    }
}

fn play(program: &[Op], holder: impl Fn(usize) -> Holder) -> Trace {
    let nothing = (HashSet::new(), Vec::new(), Vec::new());
    let (failed, trace, steps) = nothing;
    Player { program, failed, place: 0, depth: 0, trace, steps }.play(holder)
}

/// Another holder's: the position has been through the database.
fn claimed(held: Held) -> Held {
    let Position { step, arg, stack } = held.position;
    let text = serde_json::to_string(&stack).unwrap();
    let stored: Vec<Frame> = serde_json::from_str(&text).unwrap();
    assert_eq!(stored, stack);
    let arg = arg.map(|arg| JsonText::parse(arg.as_str(), "arg", 1 << 20).unwrap());
    Held { position: Position { step, arg, stack: stored }, fence: Fence(held.fence.0 + 1), ..held }
}

fn program() -> impl Strategy<Value = Vec<Op>> {
    let step = || 0..NAMES.len();
    let kind = prop_oneof![
        4 => step().prop_map(Kind::Goto),
        4 => (step(), step(), any::<bool>()).prop_map(|(step, then, carry)| Kind::Call { step, then, carry }),
        3 => (step(), any::<bool>()).prop_map(|(then, carry)| Kind::Suspend { then, carry }),
        3 => Just(Kind::Finish),
        1 => Just(Kind::FailOnce),
        1 => Just(Kind::FailForGood),
    ];
    prop::collection::vec((0usize..3, kind).prop_map(|(records, kind)| Op { records, kind }), 0..40)
}

fn holders() -> impl Strategy<Value = Vec<Holder>> {
    let holder = (any::<bool>(), prop::bool::weighted(0.2)).prop_map(|(releases, dies)| Holder { releases, dies });
    prop::collection::vec(holder, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cuts_and_deaths_change_nothing(program in program(), holders in holders()) {
        let whole = play(&program, |_| Holder::default());
        let cut = play(&program, |turn| holders.get(turn).copied().unwrap_or_default());
        prop_assert_eq!(whole, cut);
    }
}

#[test]
fn calls_nest_to_the_limit_and_no_deeper() {
    for (depth, releases) in [(255, false), (256, false), (256, true), (257, false), (257, true)] {
        let call = Op { records: 0, kind: Kind::Call { step: 1, then: 2, carry: true } };
        let trace = play(&vec![call; depth], |turn| Holder { releases: releases && turn > 250, dies: false });
        match trace.end {
            Change::Complete(_) => assert!(depth <= STACK_FRAMES),
            Change::Fail(failure) => {
                assert_eq!(failure.code, FailureCode::LimitExceeded);
                assert!(depth > STACK_FRAMES);
            }
            other => panic!("{other:?}"),
        }
    }
}
