//! Programs as data: everything that a step can ask for, generated, and as a dynamic workflow with one step for each of its places.

use longhaul::{Backoff, DynamicNext, DynamicRun, DynamicWorkflow, Result, StepError, StepOptions, StepPolicy};
use longhaul::{Reply, Tool, ToolCall, ToolResult};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

/// What a run does, as a tree: no place is come to twice, so every program ends.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What it sets in the state.
    set: Option<(usize, u8)>,
    records: usize,
    act: Act,
}

#[derive(Debug, Clone)]
enum Act {
    Finish,
    Halt,
    Fatal,
    /// Fails the first time that it is tried.
    FailOnce(Box<Plan>),
    /// Fails as long as the world is not mended.
    Broken(Box<Plan>),
    Goto(Box<Plan>),
    Call {
        callee: Box<Plan>,
        carry: bool,
        then: Box<Plan>,
    },
    Ask {
        what: What,
        carry: bool,
        then: Box<Plan>,
    },
    Fork {
        branches: Vec<Plan>,
        join: Join,
        merge: bool,
        by_name: bool,
        then: Box<Plan>,
    },
}

/// What is waited for, and what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Model,
    /// A model that refuses as long as the world is not mended.
    Refusing,
    /// A conversation of so many turns with tools.
    Talk(u8),
    Tools,
    Person,
    /// A person who does not answer in time.
    Late,
    /// A person who ends the run instead.
    Leaves,
    Service,
    Sleep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    WaitAll,
    FailFast,
    Collect,
}

/// How long sleepers sleep and late people are waited for.
const NAP: Duration = Duration::from_millis(20);
/// The keys of the state that steps set.
const KEYS: [&str; 3] = ["a", "b", "c"];

/// Programs of up to so many turns one after the other.
const DEPTH: usize = 7;

pub fn plans() -> impl Strategy<Value = Plan> {
    let plan = |act: BoxedStrategy<Act>| {
        let set = prop::option::weighted(0.2, (0..KEYS.len(), 0u8..2));
        (set, 0usize..3, act).prop_map(|(set, records, act)| Plan { set, records, act }).boxed()
    };
    let leaf = || prop_oneof![12 => Just(Act::Finish), 1 => Just(Act::Halt), 1 => Just(Act::Fatal)];
    let mut depths = vec![plan(leaf().boxed())];
    for depth in 1..=DEPTH {
        let (next, aside) = (depths[depth - 1].clone(), depths[depth.saturating_sub(4)].clone());
        depths.push(plan(prop_oneof![1 => leaf(), 6 => inner(next, aside)].boxed()));
    }
    depths[DEPTH].clone()
}

/// What goes on: `aside` is for what is called and for branches.
fn inner(next: BoxedStrategy<Plan>, aside: BoxedStrategy<Plan>) -> impl Strategy<Value = Act> {
    let next = move || next.clone().prop_map(Box::new);
    let what = prop_oneof![
        4 => Just(What::Model),
        1 => Just(What::Refusing),
        2 => (1u8..3).prop_map(What::Talk),
        2 => Just(What::Tools),
        4 => Just(What::Person),
        1 => Just(What::Late),
        1 => Just(What::Leaves),
        2 => Just(What::Service),
        1 => Just(What::Sleep),
    ];
    let join = prop_oneof![3 => Just(Join::WaitAll), 2 => Just(Join::FailFast), 3 => Just(Join::Collect)];
    prop_oneof![
        3 => next().prop_map(Act::Goto),
        2 => next().prop_map(Act::FailOnce),
        1 => next().prop_map(Act::Broken),
        4 => (aside.clone().prop_map(Box::new), any::<bool>(), next())
            .prop_map(|(callee, carry, then)| Act::Call { callee, carry, then }),
        8 => (what, any::<bool>(), next()).prop_map(|(what, carry, then)| Act::Ask { what, carry, then }),
        6 => (prop::collection::vec(aside, 2..4), join, any::<bool>(), any::<bool>(), next())
            .prop_map(|(branches, join, merge, by_name, then)| Act::Fork { branches, join, merge, by_name, then }),
    ]
}

/// A place of a program: a step.
#[derive(Debug, Clone)]
struct Place {
    set: Option<(usize, u8)>,
    records: usize,
    op: Op,
}

#[derive(Debug, Clone)]
enum Op {
    Finish,
    Halt,
    Fatal,
    FailOnce(usize),
    Broken(usize),
    Goto(usize),
    Call { callee: usize, carry: bool, then: usize },
    Ask { what: What, carry: bool, then: usize },
    Fork { branches: Vec<usize>, join: Join, merge: bool, by_name: bool, then: usize },
}

/// What is outside of the runs: it remembers what has been tried, and can be mended.
#[derive(Default)]
pub struct World {
    tried: Mutex<HashSet<(String, usize)>>,
    mended: AtomicBool,
}

impl World {
    pub fn mended() -> Arc<Self> {
        Arc::new(Self { mended: AtomicBool::new(true), ..Self::default() })
    }
    pub fn mend(&self) {
        self.mended.store(true, Ordering::SeqCst);
    }
    pub fn is_mended(&self) -> bool {
        self.mended.load(Ordering::SeqCst)
    }
}

/// The flow of a plan.
pub fn flow(name: &str, plan: &Plan, world: &Arc<World>) -> DynamicWorkflow {
    let mut places = Vec::new();
    place(plan, false, &mut places);
    let policy = StepPolicy { attempts: 2, backoff: Backoff { first: NAP, most: NAP }, ..StepPolicy::DEFAULT };
    let options = StepOptions { policy, blocking: false };
    let mut builder = DynamicWorkflow::builder(name, 1).entry(step(0));
    for (at, here) in places.into_iter().enumerate() {
        let world = world.clone();
        builder = builder.step_with(step(at), options, move |run, input| {
            let (here, world) = (here.clone(), world.clone());
            Box::pin(async move {
                Yield(false).await;
                perform(&here, at, &world, run, &input)
            })
        });
    }
    builder.build().unwrap()
}

/// Lays a plan out, and says where it begins. What fails until the world is mended does not do so where failures are
/// collected: there the run goes on with them, and nobody sets it going again.
fn place(plan: &Plan, collected: bool, places: &mut Vec<Place>) -> usize {
    let at = places.len();
    places.push(Place { set: plan.set, records: plan.records, op: Op::Finish });
    let mut next = |plan: &Plan| place(plan, collected, places);
    let op = match &plan.act {
        Act::Finish => Op::Finish,
        Act::Halt => Op::Halt,
        Act::Fatal => Op::Fatal,
        Act::FailOnce(then) => Op::FailOnce(next(then)),
        Act::Broken(then) if collected => Op::Goto(next(then)),
        Act::Broken(then) => Op::Broken(next(then)),
        Act::Goto(then) => Op::Goto(next(then)),
        Act::Call { callee, carry, then } => Op::Call { callee: next(callee), carry: *carry, then: next(then) },
        Act::Ask { what: What::Refusing, carry, then } if collected => {
            Op::Ask { what: What::Model, carry: *carry, then: next(then) }
        }
        Act::Ask { what, carry, then } => Op::Ask { what: *what, carry: *carry, then: next(then) },
        Act::Fork { branches, join, merge, by_name, then } => {
            let inside = collected || *join == Join::Collect;
            let branches = branches.iter().map(|branch| place(branch, inside, places)).collect();
            let then = place(then, collected, places);
            Op::Fork { branches, join: *join, merge: *merge, by_name: *by_name, then }
        }
    };
    places[at].op = op;
    at
}

fn step(at: usize) -> String {
    format!("s{at}")
}

fn perform(here: &Place, at: usize, world: &World, run: &mut DynamicRun<'_>, input: &Value) -> Result<DynamicNext> {
    let value = mix(at as i64, input);
    if let Some((key, to)) = here.set {
        run.state.insert(KEYS[key].to_owned(), json!(to));
    }
    for n in 0..here.records {
        run.record("place.noted", &json!({"at": at, "n": n, "value": value}))?;
    }
    match &here.op {
        Op::Finish => Ok(run.finish(json!({"value": value, "state": run.state}))),
        Op::Halt => Ok(run.halt(value)),
        Op::Fatal => Err(StepError::fatal("fatal")),
        Op::FailOnce(_) if world.tried.lock().unwrap().insert((run.id().to_owned(), at)) => Err(StepError::new("once")),
        Op::Broken(_) if !world.is_mended() => Err(StepError::fatal("broken")),
        Op::FailOnce(then) | Op::Broken(then) | Op::Goto(then) => Ok(run.goto(step(*then), value)),
        Op::Call { callee, carry, then } => {
            let call = run.call(step(*callee), value);
            Ok(if *carry { call.carry(at).then(step(*then)) } else { call.then(step(*then)) })
        }
        Op::Ask { what, carry, then } => Ok(ask(run, *what, at, carry.then_some(value), &step(*then))),
        Op::Fork { branches, join, merge, by_name, then } => {
            let mut fork = run.fork();
            for (k, branch) in branches.iter().enumerate() {
                fork = fork.branch(format!("b{k}"), step(*branch), value + k as i64);
            }
            if *merge {
                fork = fork.merge();
            }
            let then = step(*then);
            Ok(match (join, by_name) {
                (Join::WaitAll, false) => fork.join(then),
                (Join::WaitAll, true) => fork.join_by_name(then),
                (Join::FailFast, false) => fork.fail_fast().join(then),
                (Join::FailFast, true) => fork.fail_fast().join_by_name(then),
                (Join::Collect, false) => fork.collect(then),
                (Join::Collect, true) => fork.collect_by_name(then),
            })
        }
    }
}

fn ask(run: &DynamicRun<'_>, what: What, at: usize, carry: Option<i64>, then: &str) -> DynamicNext {
    let request = |content: String, tools: Value| {
        // No two requests are the same, so that one that is paid twice is found.
        let (system, messages) = (format!("{} {at}", run.id()), json!([{"role": "user", "content": content}]));
        json!({"model": "m", "max_tokens": 10_000, "tools": tools, "system": system, "messages": messages})
    };
    let tools = json!([{"name": Double::NAME, "input_schema": {"type": "object"}}]);
    let person = |prompt: &str| run.human(prompt).schema(json!({"type": "integer"})).context(&json!({"at": at}));
    let suspend = match what {
        What::Model => run.model("claude", request(format!("say {at}"), json!([]))),
        What::Refusing => run.model("claude", request(format!("refuse {at}"), json!([]))),
        What::Talk(turns) => run.converse("claude", request(format!("talk {turns}"), tools)),
        What::Tools => {
            let used = json!([{"type": "tool_use", "id": "u", "name": Double::NAME, "input": {"n": at}}]);
            run.tools(&Reply::from(json!({"content": used})).tool_uses())
        }
        What::Sleep => run.sleep(NAP),
        What::Person | What::Late | What::Leaves | What::Service => {
            let asking = match what {
                What::Late => person("late").or_after(NAP, 3),
                What::Leaves => person("leave"),
                What::Service => run.external("scan"),
                _ => person("how many"),
            };
            return match carry {
                Some(value) => asking.carry(value).then(then),
                None => asking.then(then),
            };
        }
    };
    match carry {
        Some(value) => suspend.carry(value).then(then),
        None => suspend.then(then),
    }
}

/// What a model says to a request; `None` refuses.
pub fn says(request: &Value, world: &World) -> Option<Vec<Value>> {
    let said = request["messages"][0]["content"].as_str().unwrap_or_default();
    let (word, number) = said.split_once(' ').unwrap_or((said, "0"));
    let turn = request["messages"].as_array().map_or(0, |messages| messages.len() / 2) as u64;
    match word {
        "refuse" if !world.is_mended() => None,
        "talk" if turn < number.parse().unwrap() => Some(vec![
            json!({"type": "tool_use", "id": format!("u{turn}"), "name": Double::NAME, "input": {"n": turn}}),
        ]),
        _ => Some(vec![json!({"type": "text", "text": format!("{said} after {turn}")})]),
    }
}

/// What a person or a service answers; `None` ends the run instead.
pub fn answers(request: &Value) -> Option<Value> {
    match request["prompt"].as_str().unwrap_or_default() {
        "leave" => None,
        "scan" => Some(json!("scanned")),
        _ => Some(json!(7)),
    }
}

pub struct Double;

impl Tool for Double {
    const NAME: &'static str = "double";
    async fn call(&self, call: ToolCall) -> ToolResult {
        let input: Value = call.input.read().map_err(|e| e.to_string())?;
        Ok((2 * input["n"].as_i64().unwrap_or_default()).to_string())
    }
}

/// A number that depends on a value, but of a model's message only on what it says and of a failure only on its code.
fn mix(seed: i64, value: &Value) -> i64 {
    let add = |sum: i64, n: i64| (sum * 31 + n).rem_euclid(9973);
    match value {
        Value::Null => add(seed, 1),
        Value::Bool(b) => add(seed, 2 + i64::from(*b)),
        Value::Number(n) => add(seed, n.as_i64().unwrap_or(5)),
        Value::String(text) => text.bytes().fold(add(seed, 6), |sum, byte| add(sum, i64::from(byte))),
        Value::Array(list) => list.iter().fold(add(seed, 7), mix),
        Value::Object(object) => match (object.get("content"), object.get("code")) {
            (Some(content @ Value::Array(_)), _) => {
                content.as_array().into_iter().flatten().fold(seed, |sum, block| mix(sum, &block["text"]))
            }
            (_, Some(code)) => mix(seed, code),
            _ => {
                let mut keys: Vec<_> = object.iter().collect();
                keys.sort_by_key(|(key, _)| *key);
                keys.into_iter().fold(add(seed, 8), |sum, (key, value)| mix(mix(sum, &json!(key)), value))
            }
        },
    }
}

/// Lets whoever polls it drop it before anything has happened.
struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
