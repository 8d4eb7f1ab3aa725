use super::*;
use crate::domain::{Failure, FailureCode, StepPolicy};
use crate::run::StepError;
use crate::run::flow::{Image, Live, StepInfo, TypeInfo};
use serde_json::json;

type Rule = fn(InFlight) -> Result<InFlight, StepError>;

/// Version 2 of a workflow with the steps `a` and `b`, whose state is a number.
struct Two(Manifest, Rule);

fn two(rule: Rule) -> Two {
    let unit = TypeInfo::named::<()>();
    let step = |name: &'static str| StepInfo {
        name: name.into(),
        input: unit.clone(),
        policy: StepPolicy::DEFAULT,
        blocking: false,
    };
    let number = TypeInfo { name: "i64".into(), schema: Some(Arc::new(json!({"type": "integer"}))) };
    let manifest = Manifest {
        workflow: "w".into(),
        version: 2,
        upgrades_from: 1,
        entry: "a".into(),
        input: unit.clone(),
        state: number,
        output: unit.clone(),
        steps: vec![step("a"), step("b")],
    };
    Two(manifest, rule)
}

impl Flow for Two {
    fn manifest(&self) -> &Manifest {
        &self.0
    }

    fn load(&self, _: Image) -> Result<Box<dyn Live>, Failure> {
        Err(Failure::new(FailureCode::Undecodable, "", "never loaded here"))
    }

    fn upgrade(&self, from: u32, moved: InFlight) -> Result<InFlight, StepError> {
        assert_eq!(from, 1);
        (self.1)(moved)
    }
}

fn json_text(text: &str) -> JsonText {
    JsonText::parse(text, "a value", 1 << 20).unwrap()
}

fn upgraded(rule: Rule, state: Option<&str>) -> Result<After, String> {
    let frame = Frame { step: "old".into(), carry: Some(json_text("[1.50, 18446744073709551617]")) };
    let position = Position { step: "old".into(), arg: Some(json_text(r#"{"b":1,"a":2}"#)), stack: vec![frame] };
    let (state, input) = (state.map(json_text), json_text("{}"));
    let before =
        Before { from: 1, run_id: "r", position: &position, state: state.as_ref(), input: &input, answered: false };
    apply(&two(rule), before)
}

fn renamed(mut moved: InFlight) -> Result<InFlight, StepError> {
    moved.rename("old", "b");
    Ok(moved)
}

#[test]
fn what_an_upgrade_leaves_stays_to_the_byte() {
    let after = upgraded(renamed, Some("1")).unwrap();
    assert_eq!(after.position.step, "b");
    assert_eq!(after.position.arg.unwrap().as_str(), r#"{"b":1,"a":2}"#);
    assert_eq!(after.position.stack[0].step, "b");
    assert_eq!(after.position.stack[0].carry.as_ref().unwrap().as_str(), "[1.50, 18446744073709551617]");
    assert_eq!(after.state.unwrap().as_str(), "1");
    assert_eq!(upgraded(renamed, None).unwrap().state, None, "a state that nobody has written is none");
}

#[test]
fn what_an_upgrade_changes_is_written() {
    let after = upgraded(
        |moved| {
            let mut moved = renamed(moved)?;
            assert_eq!((moved.run_id(), moved.answered()), ("r", false));
            moved.state = Some(json!(2));
            moved.arg = None;
            moved.stack.push(Caller::new("a"));
            moved.stack[0].carry = Some(json!("x"));
            Ok(moved)
        },
        Some("1"),
    )
    .unwrap();
    assert_eq!((after.position.arg, after.state.unwrap().as_str()), (None, "2"));
    let stack: Vec<_> = after.position.stack.iter().map(|f| (f.step.as_str(), f.carry.as_ref())).collect();
    assert_eq!((stack[0].1.unwrap().as_str(), stack[1]), (r#""x""#, ("a", None)));
}

#[test]
fn a_run_that_cannot_be_taken_over_says_why() {
    let refused = |rule, state, words: &str| {
        let why = upgraded(rule, state).unwrap_err();
        assert!(why.contains(words), "{why}");
    };
    refused(Ok, None, "step `old`");
    refused(|_| Err(StepError::new("not these")), None, "not these");
    refused(|_| panic!("by {}", "accident"), None, "panicked: by accident");
    refused(
        |moved| {
            let mut moved = renamed(moved)?;
            moved.stack[0].step = "gone".into();
            Ok(moved)
        },
        None,
        "step `gone`",
    );
    refused(renamed, Some(r#""secret""#), "the state does not fit");
    assert!(!upgraded(renamed, Some(r#""secret""#)).unwrap_err().contains("secret"), "values are not repeated");
    refused(
        |moved| {
            let mut moved = renamed(moved)?;
            moved.state = Some("x".repeat(STATE_BYTES).into());
            Ok(moved)
        },
        None,
        "at most",
    );
}
