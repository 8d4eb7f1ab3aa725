//! The workflows that a check is told of, as far as they can be without running.

use crate::domain::{Failure, FailureCode, JsonText};
use crate::run::flow::{Flow, Image, Live, Part};
use crate::run::schemas::Schemas;
use crate::run::{InFlight, Manifest, StepEntry, StepError, Workflow, type_misfit};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Workflows by name and version.
#[derive(Default)]
pub(super) struct Known(BTreeMap<(String, u32), Given>);

/// A version of a workflow.
pub(super) struct Given {
    pub(super) flow: Arc<dyn Flow>,
    /// Whether it decodes for real.
    pub(super) decodes: bool,
    pub(super) schemas: Arc<Schemas>,
}

impl Given {
    pub(super) fn manifest(&self) -> &Manifest {
        self.flow.manifest()
    }
}

impl Known {
    pub(super) fn flow(&mut self, flow: Arc<dyn Flow>) {
        let schemas = Arc::new(Schemas::of(flow.manifest()));
        self.0.insert(key(flow.manifest()), Given { flow, decodes: true, schemas });
    }

    pub(super) fn manifest(&mut self, manifest: Manifest) {
        let (key, schemas) = (key(&manifest), Arc::new(Schemas::of(&manifest)));
        let flow = Arc::new(Words { manifest, schemas: schemas.clone() });
        // A workflow that was given itself knows more.
        self.0.entry(key).or_insert(Given { flow, decodes: false, schemas });
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.keys().map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.keys().any(|(known, _)| known == name)
    }

    /// That very version.
    pub(super) fn exactly(&self, name: &str, version: u32) -> Option<&Given> {
        self.0.get(&(name.to_owned(), version))
    }

    /// Who would run a run of that version: itself, or else the newest one that takes it over.
    pub(super) fn server(&self, name: &str, version: u32) -> Option<&Given> {
        let takes_over = |given: &&Given| given.manifest().workflow == name && given.manifest().upgrades(version);
        self.exactly(name, version).or_else(|| self.0.values().rev().find(takes_over))
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
        type_misfit::<W>(&self.table, part, value)
    }
}

/// What a manifest says, and no more.
struct Words {
    manifest: Manifest,
    schemas: Arc<Schemas>,
}

impl Flow for Words {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn misfit(&self, part: Part<'_>, value: Option<&JsonText>) -> Option<String> {
        self.schemas.misfit(part, value)
    }

    fn load(&self, _: Image) -> Result<Box<dyn Live>, Failure> {
        Err(runs_nothing())
    }
}

fn key(manifest: &Manifest) -> (String, u32) {
    (manifest.workflow.to_string(), manifest.version)
}

fn runs_nothing() -> Failure {
    Failure::new(FailureCode::Undecodable, "", "a check runs nothing")
}
