//! Branches: runs of their own that start from a copy of the state, and whose results are joined.

use super::flow::{Act, Outcome};
use super::next::Next;
use super::want::argument;
use super::workflow::{Data, Step, Workflow};
use crate::domain::limits::NAME_BYTES;
use crate::domain::{Failure, ForkPolicy, Frame, NewBranch};
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;

/// Named branches; `Outs` is the tuple of what they end with. It needs at least two of them, and a [`join`](Fork::join).
#[must_use = "no branch is opened until `.join(step)` says who takes the results, and the step returns that"]
pub struct Fork<W: Workflow, Outs> {
    branches: Result<Vec<NewBranch>, Outcome>,
    types: PhantomData<fn() -> (W, Outs)>,
}

/// A tuple that another type can be added to.
pub trait Push {
    /// The tuple with that type at its end.
    type With<T>;
}

macro_rules! push {
    ($($name:ident),*) => {
        impl<$($name),*> Push for ($($name,)*) {
            type With<T> = ($($name,)* T,);
        }
    };
}

push!();
push!(A);
push!(A, B);
push!(A, B, C);
push!(A, B, C, D);
push!(A, B, C, D, E);
push!(A, B, C, D, E, F);
push!(A, B, C, D, E, F, G);

impl<W: Workflow> Fork<W, ()> {
    pub(super) fn new() -> Self {
        Self { branches: Ok(Vec::new()), types: PhantomData }
    }
}

impl<W: Workflow, Outs: Push> Fork<W, Outs> {
    /// Another branch, which begins with this step. Up to eight; for more of one kind there is
    /// [`Run::fork_each`](super::Run::fork_each).
    pub fn branch<S: Step<W>>(self, name: &str, step: S, input: S::Input) -> Fork<W, Outs::With<S::Output>> {
        let _ = step;
        let branches = self.branches.and_then(|mut branches| {
            branches.push(branch::<W, S>(name, &input)?);
            Ok(branches)
        });
        Fork { branches, types: PhantomData }
    }
}

impl<W: Workflow, Outs: Data> Fork<W, Outs> {
    /// The step that takes the results, as a tuple in the order of the branches, once all of them are over. If one fails, the
    /// run fails.
    pub fn join<S: Step<W, Input = Outs>>(self, step: S) -> Next<W, S::Output> {
        let _ = step;
        join::<W, S>(self.branches, ForkPolicy::WaitAll)
    }
}

/// Branches of one kind, one for each of a list.
#[must_use = "no branch is opened until `.join(step)` says who takes the results, and the step returns that"]
pub struct ForkEach<W: Workflow, T> {
    branches: Result<Vec<NewBranch>, Outcome>,
    types: PhantomData<fn() -> (W, T)>,
}

/// What became of a branch whose failures are collected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Branch<T> {
    /// What it ended with.
    Ok(T),
    /// Why it failed.
    Failed(Failure),
}

impl<W: Workflow, T: Data> ForkEach<W, T> {
    pub(super) fn new<S: Step<W, Output = T>>(inputs: &[S::Input]) -> Self {
        let branches = inputs.iter().enumerate().map(|(k, input)| branch::<W, S>(&k.to_string(), input)).collect();
        Self { branches, types: PhantomData }
    }

    /// The step that takes the results, in the order of the list, once all branches are over. If one fails, the run fails.
    pub fn join<S: Step<W, Input = Vec<T>>>(self, step: S) -> Next<W, S::Output> {
        let _ = step;
        join::<W, S>(self.branches, ForkPolicy::WaitAll)
    }

    /// As [`join`](Self::join), but a branch that fails is a result too.
    pub fn collect<S: Step<W, Input = Vec<Branch<T>>>>(self, step: S) -> Next<W, S::Output> {
        let _ = step;
        join::<W, S>(self.branches, ForkPolicy::Collect)
    }
}

fn branch<W: Workflow, S: Step<W>>(name: &str, input: &S::Input) -> Result<NewBranch, Outcome> {
    named_branch(name, S::NAME, input)
}

pub(super) fn named_branch<T: Serialize + ?Sized>(name: &str, step: &str, input: &T) -> Result<NewBranch, Outcome> {
    if name.is_empty() || name.len() > NAME_BYTES || name.chars().any(char::is_control) {
        let rule = format!("the name of a branch has 1 to {NAME_BYTES} bytes without control characters");
        return Err(Outcome::Limit(rule));
    }
    Ok(NewBranch { name: name.to_owned(), step: step.to_owned(), arg: argument(input)? })
}

fn join<W: Workflow, S: Step<W>>(branches: Result<Vec<NewBranch>, Outcome>, policy: ForkPolicy) -> Next<W, S::Output> {
    let then = Frame { step: S::NAME.to_owned(), carry: None };
    Next::of(branches.map(|branches| Act::Fork { branches, policy, then }))
}
