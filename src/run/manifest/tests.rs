#![allow(clippy::needless_borrow)] // What the macro writes: the reference decides which trait is meant.

use super::*;
use schemars::JsonSchema;
use serde_json::json;

/// A comment that is no change.
#[derive(JsonSchema)]
#[allow(dead_code)]
struct Draft {
    /// Neither is this.
    title: String,
    words: Option<u32>,
}

#[allow(dead_code)]
struct Bare;

#[derive(JsonSchema)]
#[allow(dead_code)]
struct Tree(Vec<Tree>);

fn manifest(version: u32, steps: &[(&'static str, TypeInfo)]) -> Manifest {
    let unit = (&Probe::<()>::NEW).describe();
    let step = |(name, input): &(&'static str, TypeInfo)| StepInfo {
        name: (*name).into(),
        input: input.clone(),
        policy: StepPolicy::DEFAULT,
        blocking: false,
    };
    Manifest {
        workflow: "w".into(),
        version,
        upgrades_from: version,
        entry: "a".into(),
        input: unit.clone(),
        state: unit.clone(),
        output: unit,
        steps: steps.iter().map(step).collect(),
    }
}

#[test]
fn a_type_is_described_as_far_as_it_can_be() {
    let draft = (&Probe::<Draft>::NEW).describe();
    let schema = draft.schema.unwrap();
    assert_eq!(schema["properties"]["title"], json!({"type": "string"}), "a field may be called title: {schema}");
    assert_eq!((schema.get("title"), schema.get("description"), schema.get("$schema")), (None, None, None));
    let bare = (&Probe::<Vec<Bare>>::NEW).describe();
    assert_eq!(bare.schema, None);
    assert!(bare.name.contains("Bare"), "{}", bare.name);
    assert!((&Probe::<(Draft, Vec<i64>)>::NEW).describe().schema.unwrap()["prefixItems"][0]["properties"].is_object());
    assert_eq!((&Probe::<(Draft, Bare)>::NEW).describe().schema, None, "half a schema is none");
    assert!((&Probe::<Tree>::NEW).describe().schema.is_some());
}

#[test]
fn the_json_form_is_read_back_equal_and_has_a_fingerprint() {
    let draft = (&Probe::<Draft>::NEW).describe();
    let one = manifest(3, &[("a", draft), ("b", TypeInfo::named::<Bare>())]);
    let text = one.to_json().unwrap();
    let back = Manifest::from_json(text.as_str()).unwrap();
    assert!(back.since(&one).is_empty(), "{}", back.since(&one));
    assert_eq!(back.to_json(), Ok(text));
    assert_eq!(back.fingerprint(), one.fingerprint());
    let taking_over = Manifest { upgrades_from: 1, ..one.clone() };
    assert_eq!(taking_over.fingerprint(), one.fingerprint(), "what it takes over changes no run of its own");
    assert_eq!(Manifest::from_json(taking_over.to_json().unwrap().as_str()).unwrap().upgrades_from, 1);
    assert!(taking_over.upgrades(1) && taking_over.upgrades(2) && !taking_over.upgrades(3) && !taking_over.upgrades(0));
    assert!(Manifest::from_json("{}").is_err());
}

#[test]
fn differences_are_named() {
    let number = (&Probe::<i64>::NEW).describe();
    let was = manifest(1, &[("a", number.clone()), ("b", number.clone()), ("d", TypeInfo::named::<Bare>())]);
    let text = (&Probe::<String>::NEW).describe();
    let described = (&Probe::<Draft>::NEW).describe();
    let is = manifest(1, &[("a", text), ("c", number), ("d", described)]);
    let found = is.since(&was);
    assert_eq!((found.missing.as_slice(), found.added.as_slice()), (&["b".to_owned()][..], &["c".to_owned()][..]));
    assert_eq!(found.changed.len(), 1, "a type that got a schema is no other type: {found}");
    let said = found.to_string();
    assert!(
        said.contains("step `b` is gone") && said.contains("input of step `a`") && said.contains("int64"),
        "{said}"
    );
    assert!(was.since(&was).is_empty());
}
