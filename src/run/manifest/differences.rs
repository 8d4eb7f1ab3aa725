//! What is different between two manifests of one workflow, in words.

use super::{Manifest, TypeInfo};
use std::fmt;

/// Longest text of a type in a difference, in characters; the files have the whole.
const MOST: usize = 300;

/// What of a manifest is not as it was in another one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Differences {
    /// Steps that are gone.
    pub missing: Vec<String>,
    /// Steps that were not there.
    pub added: Vec<String>,
    /// What else has changed, a sentence each: types of stored values, the entry.
    pub changed: Vec<String>,
}

impl Differences {
    /// Whether nothing that runs in flight depend on is different.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.added.is_empty() && self.changed.is_empty()
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.missing {
            writeln!(f, "- step `{step}` is gone")?;
        }
        for step in &self.added {
            writeln!(f, "+ step `{step}` is new")?;
        }
        for sentence in &self.changed {
            writeln!(f, "~ {sentence}")?;
        }
        Ok(())
    }
}

impl Manifest {
    /// What is not as it was in `before`. Types are compared where both are known in the same way: by schema, or by name.
    pub fn since(&self, before: &Self) -> Differences {
        let names = |of: &Self, than: &Self| {
            of.steps.iter().filter(|s| than.step(&s.name).is_none()).map(|s| s.name.to_string()).collect()
        };
        let mut found = Differences { missing: names(before, self), added: names(self, before), changed: Vec::new() };
        if self.entry != before.entry {
            found.changed.push(format!("the entry was `{}`, it is `{}`", before.entry, self.entry));
        }
        let mut compare = |what: String, was: &TypeInfo, is: &TypeInfo| {
            if !same(was, is) {
                found.changed.push(format!("{what} was {}\n  it is {}", text(was), text(is)));
            }
        };
        compare("the input".into(), &before.input, &self.input);
        compare("the state".into(), &before.state, &self.state);
        compare("the output".into(), &before.output, &self.output);
        for step in &self.steps {
            if let Some(was) = before.step(&step.name) {
                compare(format!("the input of step `{}`", step.name), &was.input, &step.input);
            }
        }
        found
    }
}

fn same(was: &TypeInfo, is: &TypeInfo) -> bool {
    match (&was.schema, &is.schema) {
        (Some(was), Some(is)) => was == is,
        (None, None) => was.name == is.name,
        // A type that has got a schema, or lost it, is not another one for that.
        _ => true,
    }
}

fn text(of: &TypeInfo) -> String {
    let whole = of.schema.as_ref().map_or_else(|| format!("`{}`", of.name), |schema| schema.to_string());
    if whole.chars().count() <= MOST {
        return whole;
    }
    whole.chars().take(MOST).chain(" ..".chars()).collect()
}
