//! The workflows that a check is told of, as far as they can be without running.

use crate::domain::{Failure, FailureCode, JsonText};
use crate::run::flow::{Flow, Image, Live, Part};
use crate::run::{InFlight, Manifest, StepEntry, StepError, Workflow, misfit};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Flows by name and version, and whether they decode for real.
#[derive(Default)]
pub(super) struct Known(BTreeMap<(String, u32), (Arc<dyn Flow>, bool)>);

impl Known {
    pub(super) fn add(&mut self, flow: Arc<dyn Flow>, decodes: bool) {
        let key = (flow.manifest().workflow.to_string(), flow.manifest().version);
        // Who decodes knows more.
        if decodes || !self.0.contains_key(&key) {
            self.0.insert(key, (flow, decodes));
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.keys().map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.keys().any(|(known, _)| known == name)
    }

    /// Which of them would run a run of that version, and whether it is its own.
    pub(super) fn of(&self, name: &str, version: u32) -> Option<(&dyn Flow, bool)> {
        self.served(name, version).map(|(flow, _)| (flow, flow.manifest().version == version))
    }

    /// Which of them would run a run of that version, and whether it decodes.
    pub(super) fn served(&self, name: &str, version: u32) -> Option<(&dyn Flow, bool)> {
        let newest = || {
            let all = self.0.iter().rev().map(|(_, known)| known);
            all.into_iter().find(|(flow, _)| flow.manifest().workflow == name && flow.manifest().upgrades(version))
        };
        let (flow, decodes) = self.0.get(&(name.to_owned(), version)).or_else(newest)?;
        Some((&**flow, *decodes))
    }

    /// The versions of a workflow.
    pub(super) fn versions(&self, name: &str) -> Vec<u32> {
        self.0.keys().filter(|(known, _)| known == name).map(|(_, version)| *version).collect()
    }
}

/// A workflow without the service around it: its types and its upgrade. It runs nothing.
pub(super) struct Types<W: Workflow> {
    manifest: Manifest,
    table: Vec<StepEntry<W>>,
}

impl<W: Workflow> Types<W> {
    pub(super) fn new() -> Self {
        Self { manifest: Manifest::of::<W>(), table: W::table() }
    }
}

impl<W: Workflow> Flow for Types<W> {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn load(&self, _: Image) -> Result<Box<dyn Live>, Failure> {
        Err(runs_nothing())
    }

    fn upgrade(&self, from: u32, moved: InFlight) -> Result<InFlight, StepError> {
        W::upgrade(from, moved)
    }

    fn misfit(&self, part: Part<'_>, value: Option<&JsonText>) -> Option<String> {
        misfit::<W>(&self.table, part, value)
    }
}

/// What a manifest says, and no more.
pub(super) struct Words(pub(super) Manifest);

impl Flow for Words {
    fn manifest(&self) -> &Manifest {
        &self.0
    }

    fn load(&self, _: Image) -> Result<Box<dyn Live>, Failure> {
        Err(runs_nothing())
    }
}

fn runs_nothing() -> Failure {
    Failure::new(FailureCode::Undecodable, "", "a check runs nothing")
}
