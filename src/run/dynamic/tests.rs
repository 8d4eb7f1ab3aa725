use super::super::stepper::{Action, Answer, Ask, Stepper};
use super::super::tool::{Tool, ToolCall, ToolResult};
use super::*;
use crate::domain::{EventType, FailureCode, WaitKind};
use crate::run::error::StepError;
use crate::run::reply::Reply;
use chrono::DateTime;
use futures::executor::block_on;
use serde_json::json;
use std::time::Duration;

type Step = for<'a> fn(&'a mut DynamicRun<'_>, Value) -> BoxFuture<'a, Result<DynamicNext>>;

/// A workflow whose step `open` is this function, with steps that give back what they are given.
fn flow(open: Step) -> Arc<DynamicWorkflow> {
    let echo: Step = |run, input| Box::pin(async move { Ok(run.finish(input)) });
    let fails: Step = |_, input| Box::pin(async move { Err(StepError::fatal(input)) });
    let sets: Step = |run, input| {
        Box::pin(async move {
            run.state.insert(input.as_str().unwrap_or_default().to_owned(), json!(1));
            Ok(run.finish(input))
        })
    };
    let state: Step = |run, _| Box::pin(async move { Ok(run.finish(run.state.clone())) });
    let builder = DynamicWorkflow::builder("trial", 1).step("open", open).step("echo", echo).step("fails", fails);
    Arc::new(builder.step("sets", sets).step("state", state).build().unwrap())
}

/// Plays to the end; whatever is asked is answered by the script.
fn play(open: Step, mut script: impl FnMut(&Ask) -> Answer) -> (Action, Stepper) {
    let mut stepper = Stepper::begin(flow(open), "r", &json!({"n": 7})).unwrap().tool(Double);
    loop {
        match stepper.next_action() {
            Action::RunStep { .. } | Action::Join { .. } => block_on(stepper.run_one_step()).unwrap(),
            Action::Wait(asks) => {
                for ask in asks {
                    match ask.kind() {
                        WaitKind::Timer => stepper.expire(ask.wait()).unwrap(),
                        _ => stepper.answer(ask.wait(), script(&ask)).unwrap(),
                    }
                }
            }
            end => return (end, stepper),
        }
    }
}

fn output(open: Step) -> Value {
    match play(open, |_| json!("answered").into()).0 {
        Action::Finished(output) => output.read().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn failure(open: Step) -> (FailureCode, String) {
    match play(open, |_| json!("answered").into()).0 {
        Action::Failed(failure) => (failure.code, failure.message),
        other => panic!("{other:?}"),
    }
}

struct Double;

impl Tool for Double {
    const NAME: &'static str = "double";
    async fn call(&self, call: ToolCall) -> ToolResult {
        let input: Value = call.input.read().map_err(|e| e.to_string())?;
        Ok((2 * input["n"].as_i64().unwrap_or_default()).to_string())
    }
}

#[test]
fn what_cannot_be_built_is_told() {
    let step: Step = |run, _| Box::pin(async move { Ok(run.finish(1)) });
    let code = |builder: DynamicBuilder| builder.build().unwrap_err().code();
    let builder = |name: &str| DynamicWorkflow::builder(name, 1);
    assert_eq!(code(builder("w")), "no-steps");
    for name in ["", "~a", "a\n", &"x".repeat(129)] {
        assert_eq!(code(builder(name).step("a", step)), "invalid-name", "{name:?}");
        assert_eq!(code(builder("w").step(name, step)), "invalid-name", "{name:?}");
    }
    assert_eq!(code(builder("w").step("a", step).step("b", step).step("a", step)), "duplicate-step");
    assert_eq!(code(builder("w").step("a", step).entry("b")), "unknown-entry");
    let policies = [
        StepPolicy { attempts: 0, ..StepPolicy::DEFAULT },
        StepPolicy { crash_limit: 0, ..StepPolicy::DEFAULT },
        StepPolicy { timeout: Some(Duration::ZERO), ..StepPolicy::DEFAULT },
        StepPolicy { backoff: Backoff { first: Duration::from_secs(2), most: Duration::ZERO }, ..StepPolicy::DEFAULT },
    ];
    for policy in policies {
        let options = StepOptions { policy, blocking: false };
        assert_eq!(code(builder("w").step_with("a", options, step)), "invalid-policy", "{policy:?}");
    }
}

#[test]
fn the_manifest_is_sorted_and_begins_where_it_should() {
    let step: Step = |run, _| Box::pin(async move { Ok(run.finish(1)) });
    let options = StepOptions { policy: StepPolicy { attempts: 3, ..StepPolicy::DEFAULT }, blocking: true };
    let flow = DynamicWorkflow::builder("w", 4).step("z", step).step_with("a", options, step).build().unwrap();
    let manifest = flow.manifest();
    assert_eq!((&*manifest.workflow, manifest.version, &*manifest.entry), ("w", 4, "z"));
    assert_eq!(manifest.steps.iter().map(|step| &*step.name).collect::<Vec<_>>(), ["a", "z"]);
    assert!(manifest.step("a").is_some_and(|step| step.blocking && step.policy.attempts == 3));
}

#[test]
fn steps_go_on_call_and_end() {
    assert_eq!(output(|run, _| Box::pin(async move { Ok(run.goto("echo", run.input()["n"].clone())) })), 7);
    assert_eq!(
        output(|run, _| Box::pin(async move { Ok(run.call("echo", 1).carry("kept").then("echo")) })),
        json!([1, "kept"])
    );
    assert_eq!(output(|run, _| Box::pin(async move { Ok(run.halt("out")) })), "out");
    assert_eq!(output(|run, _| Box::pin(async move { Ok(run.call("sets", "k").then("state")) })), json!({"k": 1}));
}

#[test]
fn whatever_a_typed_step_can_wait_for() {
    assert_eq!(
        output(|run, _| Box::pin(async move { Ok(run.model("claude", json!({})).carry(2).then("echo")) })),
        json!(["answered", 2])
    );
    assert_eq!(output(|run, _| Box::pin(async move { Ok(run.external("scan").then("echo")) })), "answered");
    assert_eq!(
        output(|run, _| Box::pin(async move { Ok(run.sleep(Duration::from_secs(9)).then("echo")) })),
        Value::Null
    );
    assert_eq!(output(|run, _| Box::pin(async move { Ok(run.until(DateTime::UNIX_EPOCH).then("echo")) })), Value::Null);
    let uses: Step = |run, _| {
        Box::pin(async move {
            let wanted = Reply::from(json!({"content": [
                {"type": "tool_use", "id": "u", "name": "double", "input": {"n": 4}},
            ]}));
            Ok(run.tools(&wanted.tool_uses()).then("echo"))
        })
    };
    assert_eq!(output(uses)[0]["content"], "8");
}

#[test]
fn a_conversation_goes_through_the_tools() {
    let open: Step = |run, _| {
        Box::pin(async move {
            Ok(run.converse("claude", json!({"messages": [{"role": "user", "content": "go"}]})).then("echo"))
        })
    };
    let mut turns = 0;
    let (end, stepper) = play(open, |ask| {
        turns += 1;
        if turns == 1 {
            let used = json!({"content": [{"type": "tool_use", "id": "u", "name": "double", "input": {"n": 4}}]});
            return used.into();
        }
        let messages = ask.request()["messages"].clone();
        json!({"content": [], "said": messages[2]["content"][0]["content"]}).into()
    });
    let Action::Finished(output) = end else { panic!("{end:?}") };
    assert_eq!(output.read::<Value>().unwrap()["said"], "8");
    assert_eq!(stepper.questions().len(), 0);
}

#[test]
fn a_person_is_asked_by_schema_and_by_time() {
    let open: Step = |run, _| {
        Box::pin(async move {
            let asking =
                run.human("How many?").schema(json!({"type": "integer", "minimum": 1})).context(&json!({"of": 3}));
            Ok(asking.or_after(Duration::from_secs(60), 5).then("echo"))
        })
    };
    let mut stepper = Stepper::begin(flow(open), "r", &json!(null)).unwrap();
    block_on(stepper.run_one_step()).unwrap();
    let Action::Wait(asks) = stepper.next_action() else { panic!() };
    assert_eq!(asks[0].request()["schema"]["minimum"], 1);
    assert!(asks[0].due().is_some());
    let misfit = stepper.answer(asks[0].wait(), json!(0)).unwrap_err();
    assert_eq!(misfit.code(), "answer-mismatch");
    stepper.expire(asks[0].wait()).unwrap();
    assert_eq!(stepper.answer(asks[0].wait(), json!(2)).unwrap_err().code(), "not-waiting");
    block_on(stepper.run_one_step()).unwrap();
    assert_eq!(stepper.next_action(), Action::Finished(JsonText::of(&5, "five", 9).unwrap()));
    let (code, why) =
        failure(|run, _| Box::pin(async move { Ok(run.human("?").schema(json!({"type": 7})).then("echo")) }));
    assert_eq!(code, FailureCode::Undecodable);
    assert!(why.contains("schema"), "{why}");
}

#[test]
fn forks_give_lists_or_objects() {
    assert_eq!(
        output(|run, _| Box::pin(
            async move { Ok(run.fork().branch("a", "echo", 1).branch("b", "echo", 2).join("echo")) }
        )),
        json!([1, 2])
    );
    assert_eq!(
        output(|run, _| {
            Box::pin(async move { Ok(run.fork().branch("a", "echo", 1).branch("b", "echo", 2).join_by_name("echo")) })
        }),
        json!({"a": 1, "b": 2})
    );
    let collected = output(|run, _| {
        Box::pin(
            async move { Ok(run.fork().branch("a", "echo", 1).branch("b", "fails", "no").collect_by_name("echo")) },
        )
    });
    assert_eq!((&collected["a"]["ok"], &collected["b"]["failed"]["message"]), (&json!(1), &json!("\"no\"")));
    let merged: Step = |run, _| {
        Box::pin(async move {
            run.state.insert("w".into(), json!(1));
            Ok(run.fork().branch("a", "sets", "x").branch("b", "sets", "y").merge().join("state"))
        })
    };
    assert_eq!(output(merged), json!({"w": 1, "x": 1, "y": 1}));
    let (code, _) = failure(|run, _| {
        Box::pin(
            async move { Ok(run.fork().branch("a", "fails", "no").branch("b", "goes on", 1).fail_fast().join("echo")) },
        )
    });
    assert_eq!(code, FailureCode::BranchFailed);
}

#[test]
fn what_cannot_be_asked_fails_the_run() {
    let (_, why) = failure(|run, _| Box::pin(async move { Ok(run.call("echo", 1).live().then("echo")) }));
    assert!(why.contains("only a request to a model"), "{why}");
    let (code, why) = failure(|run, _| {
        Box::pin(async move { Ok(run.fork().branch("a", "echo", 1).branch("a", "echo", 2).join_by_name("echo")) })
    });
    assert_eq!(code, FailureCode::LimitExceeded);
    assert!(why.contains("two branches"), "{why}");
    assert_eq!(
        failure(|run, _| Box::pin(async move { Ok(run.fork().branch("a", "echo", 1).join("echo")) })).0,
        FailureCode::LimitExceeded
    );
    // The engine's own steps are nobody else's.
    for step in [
        |run: &mut DynamicRun<'_>| run.goto("~tools", json!([])),
        |run: &mut DynamicRun<'_>| run.call("~heard", 1).then("echo"),
        |run: &mut DynamicRun<'_>| run.sleep(Duration::ZERO).then("~tools"),
        |run: &mut DynamicRun<'_>| run.fork().branch("a", "~tools", 1).branch("b", "echo", 1).join("echo"),
        |run: &mut DynamicRun<'_>| run.call("echo", 1).carry(json!({"~branches": []})).then("echo"),
    ] {
        let mut app = Run::detached(Dynamic(()), json!(null));
        let next = step(&mut DynamicRun::of(&mut app));
        assert!(matches!(next.into_act(), Err(Outcome::Limit(_))));
    }
}

#[test]
fn a_step_that_does_not_exist_parks_the_run() {
    let (end, mut stepper) = play(|run, _| Box::pin(async move { Ok(run.goto("missing", 1)) }), |_| json!(1).into());
    let Action::Parked { run, reason } = end else { panic!("{end:?}") };
    assert!(reason.contains("has no step `missing`"), "{reason}");
    let kinds: Vec<_> = stepper.take_events().iter().map(|event| event.kind).collect();
    assert_eq!(kinds.last(), Some(&EventType::RunParked));
    stepper.retry(run).unwrap();
    block_on(stepper.run_one_step()).unwrap();
    assert!(matches!(stepper.next_action(), Action::Parked { .. }), "it is not there yet");
}

#[test]
fn records_and_their_causes() {
    let open: Step = |run, _| {
        Box::pin(async move {
            let first = run.record("sum.opened", &1)?;
            run.record_caused_by("sum.closed", &2, first)?;
            Ok(run.finish(run.id()))
        })
    };
    let (_, mut stepper) = play(open, |_| json!(1).into());
    let events = stepper.take_events();
    assert_eq!(events[2].kind, EventType::Custom);
    assert_eq!(events[3].cause, Some(events[2].id));
    assert_eq!(events.iter().map(|event| event.id.ordinal).collect::<Vec<_>>(), (0..6).collect::<Vec<_>>());
}
