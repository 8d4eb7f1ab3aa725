//! Branches: runs of their own that start from a copy of the state, and whose results are joined.

use super::flow::{Act, Outcome};
use super::next::Next;
use super::want::argument;
use super::workflow::{Data, Step, Workflow};
use crate::domain::limits::NAME_BYTES;
use crate::domain::{Failure, ForkPolicy, Frame, JoinRule, NewBranch};
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;

/// Named branches; `Outs` is the tuple of what they end with. It needs at least two of them, and a [`join`](Fork::join).
#[must_use = "no branch is opened until `.join(step)` says who takes the results, and the step returns that"]
pub struct Fork<W: Workflow, Outs> {
    branches: Result<Vec<NewBranch>, Outcome>,
    merge: bool,
    types: PhantomData<fn() -> (W, Outs)>,
}

/// A tuple that another type can be added to.
pub trait Push {
    /// The tuple with that type at its end.
    type With<T>;
}

/// A tuple of results.
pub trait Collect {
    /// The tuple of what became of each, failures included.
    type Collected: Data;
}

macro_rules! push {
    ($($name:ident),*) => {
        impl<$($name),*> Push for ($($name,)*) {
            type With<T> = ($($name,)* T,);
        }
    };
}

macro_rules! collect {
    ($($name:ident),*) => {
        impl<$($name: Data),*> Collect for ($($name,)*) {
            type Collected = ($(Branch<$name>,)*);
        }
    };
}

collect!(A, B);
collect!(A, B, C);
collect!(A, B, C, D);
collect!(A, B, C, D, E);
collect!(A, B, C, D, E, F);
collect!(A, B, C, D, E, F, G);
collect!(A, B, C, D, E, F, G, H);
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
        Self { branches: Ok(Vec::new()), merge: false, types: PhantomData }
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
        Fork { branches, merge: self.merge, types: PhantomData }
    }

    /// Brings together what the branches changed in their copies of the state, by top-level key of its JSON: what one of them
    /// changed is taken, also if others changed it to the same; a key that was removed is gone. If two changed a key differently, the
    /// run fails with [`ForkConflict`](crate::FailureCode::ForkConflict). Without this, the state is what it was before the fork.
    pub fn merge(mut self) -> Self {
        self.merge = true;
        self
    }
}

impl<W: Workflow, Outs: Data> Fork<W, Outs> {
    /// The step that takes the results, as a tuple in the order of the branches, once all of them are over. If one fails, the
    /// run fails then.
    pub fn join<S: Step<W, Input = Outs>>(self, step: S) -> Next<W, S::Output> {
        self.joining(ForkPolicy::WaitAll).join(step)
    }

    /// Does not wait for the others when a branch fails: they are canceled, and the run fails. What they have at a provider is
    /// paid all the same. When an operator sets the run going again, they go on from where they were.
    pub fn fail_fast(self) -> Joining<W, Outs> {
        self.joining(ForkPolicy::FailFast)
    }
}

impl<W: Workflow, Outs: Collect> Fork<W, Outs> {
    /// As [`join`](Self::join), but a branch that fails is a result too.
    pub fn collect<S: Step<W, Input = Outs::Collected>>(self, step: S) -> Next<W, S::Output> {
        self.joining(ForkPolicy::Collect).join(step)
    }
}

impl<W: Workflow, Outs> Fork<W, Outs> {
    fn joining<R>(self, policy: ForkPolicy) -> Joining<W, R> {
        Joining { branches: self.branches, rule: JoinRule { policy, merge: self.merge }, types: PhantomData }
    }
}

/// Branches of which it is known how they are joined, but not by which step.
#[must_use = "no branch is opened until `.join(step)` says who takes the results, and the step returns that"]
pub struct Joining<W: Workflow, R> {
    branches: Result<Vec<NewBranch>, Outcome>,
    rule: JoinRule,
    types: PhantomData<fn() -> (W, R)>,
}

impl<W: Workflow, R: Data> Joining<W, R> {
    /// The step that takes the results, in the order of the branches.
    pub fn join<S: Step<W, Input = R>>(self, step: S) -> Next<W, S::Output> {
        let _ = step;
        let (rule, then) = (self.rule, Frame { step: S::NAME.to_owned(), carry: None });
        Next::of(self.branches.map(|branches| Act::Fork { branches, rule, then }))
    }
}

/// Branches of one kind, one for each of a list.
#[must_use = "no branch is opened until `.join(step)` says who takes the results, and the step returns that"]
pub struct ForkEach<W: Workflow, T> {
    branches: Result<Vec<NewBranch>, Outcome>,
    merge: bool,
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
        Self { branches, merge: false, types: PhantomData }
    }

    /// As [`Fork::merge`].
    pub fn merge(mut self) -> Self {
        self.merge = true;
        self
    }

    /// The step that takes the results, in the order of the list, once all branches are over. If one fails, the run fails then.
    pub fn join<S: Step<W, Input = Vec<T>>>(self, step: S) -> Next<W, S::Output> {
        self.joining(ForkPolicy::WaitAll).join(step)
    }

    /// As [`Fork::fail_fast`].
    pub fn fail_fast(self) -> Joining<W, Vec<T>> {
        self.joining(ForkPolicy::FailFast)
    }

    /// As [`join`](Self::join), but a branch that fails is a result too.
    pub fn collect<S: Step<W, Input = Vec<Branch<T>>>>(self, step: S) -> Next<W, S::Output> {
        self.joining(ForkPolicy::Collect).join(step)
    }

    fn joining<R>(self, policy: ForkPolicy) -> Joining<W, R> {
        Joining { branches: self.branches, rule: JoinRule { policy, merge: self.merge }, types: PhantomData }
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
