//! What is kept of a run between two actions, in whatever format serde has. Bodies are strings that hold JSON, so that every
//! format keeps them exactly.

use super::StepperError;
use super::members::Members;
use crate::run::flow::Manifest;
use serde::{Deserialize, Serialize};

/// The form of what is written. Raised when it changes.
const FORM: u32 = 1;

/// A run as it is between two actions. It is read back by this version of the library and later ones; its fields are nobody
/// else's business.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    form: u32,
    workflow: String,
    version: u32,
    members: Members,
}

impl Snapshot {
    pub(super) fn of(manifest: &Manifest, members: &Members) -> Self {
        let (workflow, version) = (manifest.workflow.to_string(), manifest.version);
        Self { form: FORM, workflow, version, members: members.clone() }
    }

    /// The name of its workflow.
    pub fn workflow(&self) -> &str {
        &self.workflow
    }

    /// The version of its workflow.
    pub fn version(&self) -> u32 {
        self.version
    }

    pub(super) fn open(self, manifest: &Manifest) -> Result<Members, StepperError> {
        let refused = |why: String| Err(StepperError::Snapshot(why));
        if self.form != FORM {
            return refused(format!("it has form {}, this version of the library reads form {FORM}", self.form));
        }
        if (self.workflow.as_str(), self.version) != (&*manifest.workflow, manifest.version) {
            let (of, here) = (&self.workflow, &manifest.workflow);
            return refused(format!(
                "it is of `{of}` version {}, the flow is `{here}` version {}",
                self.version, manifest.version
            ));
        }
        if !self.members.is_whole() {
            return refused("it names runs that are not in it".to_owned());
        }
        Ok(self.members)
    }
}

/// Writes a stack as JSON, the way the database keeps it.
pub(super) mod stack {
    use crate::domain::Frame;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::run::stepper) fn serialize<S: Serializer>(stack: &[Frame], out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&serde_json::to_string(stack).map_err(serde::ser::Error::custom)?)
    }

    pub(in crate::run::stepper) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Frame>, D::Error> {
        serde_json::from_str(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}
