//! What branches did to their copies of the state, brought together: a three-way merge by top-level key.
//!
//! For each key the state at the fork is the base. A change that one branch made is taken, also if others made an equal one. A key
//! that is absent is a value like any other, so removing it is a change. Two different changes of one key are a [`Conflict`], and so
//! are different changes of a state that is no object. The result does not depend on the order in which branches are added.

use crate::domain::JsonText;
use crate::domain::canonical::canonical;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Two branches changed one thing differently.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("branches `{one}` and `{other}` changed {what} of the state differently", what = named(.key))]
pub(crate) struct Conflict {
    /// The key; `None` when the state is no object.
    key: Option<String>,
    one: String,
    other: String,
}

fn named(key: &Option<String>) -> String {
    key.as_ref().map_or_else(|| "the whole".to_owned(), |key| format!("`{}`", crate::domain::failure::cut(key)))
}

type Object = BTreeMap<String, Box<RawValue>>;

/// A merge in progress. It holds the base and what was changed, never a branch's whole state.
pub(crate) struct Merge {
    base: JsonText,
    /// The base by keys, if it is an object.
    keys: Option<Object>,
    changed: BTreeMap<String, Change>,
    whole: Option<(JsonText, String)>,
}

struct Change {
    /// What it became; `None` is absent.
    to: Option<Box<RawValue>>,
    by: String,
}

impl Merge {
    /// A merge of what was made of this state.
    pub(crate) fn new(base: JsonText) -> Self {
        let keys = base.read().ok();
        Self { base, keys, changed: BTreeMap::new(), whole: None }
    }

    /// Adds what a branch left.
    pub(crate) fn add(&mut self, branch: &str, state: &JsonText) -> Result<(), Conflict> {
        match (&self.keys, state.read::<Object>()) {
            (Some(_), Ok(keys)) if self.whole.is_none() => self.add_keys(branch, keys),
            _ => self.add_whole(branch, state),
        }
    }

    fn add_keys(&mut self, branch: &str, mut keys: Object) -> Result<(), Conflict> {
        let base = self.keys.iter().flatten();
        let mut changes = Vec::new();
        for (key, was) in base {
            let now = keys.remove(key);
            if !now.as_ref().is_some_and(|now| same(now.get(), was.get())) {
                changes.push((key.clone(), now));
            }
        }
        changes.extend(keys.into_iter().map(|(key, value)| (key, Some(value))));
        for (key, to) in changes {
            match self.changed.get(&key) {
                Some(earlier) if equal(&earlier.to, &to) => {}
                Some(earlier) => return Err(conflict(Some(key), &earlier.by, branch)),
                None => {
                    self.changed.insert(key, Change { to, by: branch.to_owned() });
                }
            }
        }
        Ok(())
    }

    /// For states that are no objects, or have become one or none.
    fn add_whole(&mut self, branch: &str, state: &JsonText) -> Result<(), Conflict> {
        if same(state.as_str(), self.base.as_str()) {
            return Ok(());
        }
        if let Some(change) = self.changed.values().next() {
            return Err(conflict(None, &change.by, branch));
        }
        match &self.whole {
            Some((earlier, _)) if same(earlier.as_str(), state.as_str()) => Ok(()),
            Some((_, by)) => Err(conflict(None, by, branch)),
            None => {
                self.whole = Some((state.clone(), branch.to_owned()));
                Ok(())
            }
        }
    }

    /// What became of the state; `None` if nothing was changed.
    pub(crate) fn finish(self) -> Option<JsonText> {
        if let Some((state, _)) = self.whole {
            return Some(state);
        }
        if self.changed.is_empty() {
            return None;
        }
        let mut keys = self.keys.unwrap_or_default();
        for (key, change) in self.changed {
            match change.to {
                Some(value) => keys.insert(key, value),
                None => keys.remove(&key),
            };
        }
        // Keys are texts and values are JSON already.
        serde_json::to_string(&keys).ok().map(JsonText::stored)
    }
}

fn conflict(key: Option<String>, one: &str, other: &str) -> Conflict {
    let (one, other) = if one <= other { (one, other) } else { (other, one) };
    Conflict { key, one: one.to_owned(), other: other.to_owned() }
}

fn equal(a: &Option<Box<RawValue>>, b: &Option<Box<RawValue>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => same(a.get(), b.get()),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// Whether two texts are the same value.
fn same(a: &str, b: &str) -> bool {
    let form = |text: &str| canonical(&JsonText::stored(text.to_owned())).ok();
    a == b || form(a).is_some_and(|a| form(b) == Some(a))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn merged(base: &str, states: &[&str]) -> Result<Option<String>, Conflict> {
        let text = |text: &str| JsonText::stored(text.to_owned());
        let mut merge = Merge::new(text(base));
        for (k, state) in states.iter().enumerate() {
            merge.add(&k.to_string(), &text(state))?;
        }
        Ok(merge.finish().map(|state| state.as_str().to_owned()))
    }

    #[test]
    fn changes_of_one_side_and_equal_ones_are_taken() {
        let base = r#"{"a":1,"b":2,"c":3}"#;
        assert_eq!(merged(base, &[base, r#"{ "c":3, "b":2, "a":1 }"#]), Ok(None));
        let both = [r#"{"a":9,"b":2,"c":3}"#, r#"{"a":1,"b":8,"c":3,"d":[1, 2]}"#, r#"{"a":9,"b":2,"c":3,"d":[1,2]}"#];
        assert_eq!(merged(base, &both), Ok(Some(r#"{"a":9,"b":8,"c":3,"d":[1, 2]}"#.into())));
    }

    #[test]
    fn absent_is_a_value() {
        let base = r#"{"a":1,"b":2}"#;
        assert_eq!(merged(base, &[r#"{"b":2}"#, r#"{"a":1}"#]), Ok(Some("{}".into())));
        assert_eq!(merged(base, &[r#"{"b":2}"#, r#"{"b":2}"#]), Ok(Some(r#"{"b":2}"#.into())));
        let why = merged(base, &[r#"{"b":2}"#, r#"{"a":3,"b":2}"#]).unwrap_err();
        assert_eq!(why.to_string(), "branches `0` and `1` changed `a` of the state differently");
        assert!(merged(base, &[r#"{"a":null,"b":2}"#, r#"{"b":2}"#]).is_err(), "null is not absent");
    }

    #[test]
    fn a_state_that_is_no_object_is_one_value() {
        assert_eq!(merged("1", &["1", "2", "2"]), Ok(Some("2".into())));
        let why = merged("1", &["3", "1", "2"]).unwrap_err();
        assert_eq!(why.to_string(), "branches `0` and `2` changed the whole of the state differently");
        assert!(merged(r#"{"a":1}"#, &[r#"{"a":2}"#, "5"]).is_err());
        assert!(merged(r#"{"a":1}"#, &["5", r#"{"a":2}"#]).is_err());
        assert_eq!(merged(r#"{"a":1}"#, &["5", r#"{"a":1}"#]), Ok(Some("5".into())));
    }

    fn states() -> impl Strategy<Value = Vec<String>> {
        let object = proptest::collection::btree_map("[a-c]", 0..3i32, 0..3);
        proptest::collection::vec(object.prop_map(|map| serde_json::to_string(&map).unwrap_or_default()), 2..5)
    }

    proptest! {
        #[test]
        fn the_order_of_branches_does_not_count(states in states()) {
            let (base, branches) = (&states[0], &states[1..]);
            let forward: Vec<&str> = branches.iter().map(String::as_str).collect();
            let backward: Vec<&str> = forward.iter().rev().copied().collect();
            prop_assert_eq!(merged(base, &forward).ok(), merged(base, &backward).ok());
        }

        #[test]
        fn each_key_is_the_base_or_what_every_change_made_it(states in states()) {
            let read = |text: &str| serde_json::from_str::<BTreeMap<String, i32>>(text).unwrap_or_default();
            let base = read(&states[0]);
            let branches: Vec<_> = states[1..].iter().map(|s| read(s)).collect();
            let texts: Vec<&str> = states[1..].iter().map(String::as_str).collect();
            let mut want = base.clone();
            let mut clash = false;
            for key in ["a", "b", "c"] {
                let changes: Vec<_> = branches.iter().map(|b| b.get(key)).filter(|now| *now != base.get(key)).collect();
                clash |= changes.windows(2).any(|pair| pair[0] != pair[1]);
                match changes.first() {
                    Some(Some(now)) => { want.insert(key.to_owned(), **now); }
                    Some(None) => { want.remove(key); }
                    None => {}
                }
            }
            match merged(&states[0], &texts) {
                Ok(state) => {
                    prop_assert!(!clash);
                    prop_assert_eq!(state.map_or(base, |s| read(&s)), want);
                }
                Err(_) => prop_assert!(clash),
            }
        }
    }
}
