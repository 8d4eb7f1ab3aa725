//! A golden file for a workflow's manifest: a test that fails when steps or their inputs change under the same version.

use crate::run::flow::Flow;
use crate::run::{TypedFlow, Workflow};
use std::fmt::Write;
use std::path::Path;

/// Set to anything, it makes [`check_manifest`] write the file instead.
pub const UPDATE: &str = "LONGHAUL_UPDATE_MANIFESTS";

/// What differs between a workflow and its golden file.
#[derive(Debug, thiserror::Error)]
pub enum ManifestDrift {
    /// Steps or inputs have changed.
    #[error(
        "{file} does not describe the workflow any more. Runs in flight may be at a step that is gone: give the workflow a new \
         VERSION, then set {UPDATE}=1 once.\n--- file\n{there}\n+++ workflow\n{now}"
    )]
    Changed {
        /// The file.
        file: String,
        /// What it says.
        there: String,
        /// What the workflow is.
        now: String,
    },
    /// The file cannot be written.
    #[error("{file}: {why}")]
    Unwritable {
        /// The file.
        file: String,
        /// What the system says.
        why: String,
    },
}

/// Compares a workflow with its golden file; with [`UPDATE`] set, writes it.
///
/// ```no_run
/// # use longhaul::{Next, Result, Run, Workflow, workflow};
/// # pub struct Hello;
/// # #[workflow]
/// # mod hello {
/// #     use super::*;
/// #     impl Workflow for Hello {
/// #         const NAME: &'static str = "hello"; const VERSION: u32 = 1;
/// #         type Input = (); type State = (); type Output = (); type Entry = step::only;
/// #     }
/// #     #[step] async fn only(_: &mut Run<Hello>) -> Result<Next<Hello>> { Ok(Next::finish(())) }
/// # }
/// # fn main() {
/// # let app = Hello;
/// longhaul::testing::check_manifest(app, "tests/golden/hello.manifest").unwrap();
/// # }
/// ```
///
/// # Errors
/// [`ManifestDrift`] shows both sides.
pub fn check_manifest<W: Workflow>(app: W, file: impl AsRef<Path>) -> Result<(), ManifestDrift> {
    compare(file.as_ref(), describe(app), std::env::var_os(UPDATE).is_some())
}

fn compare(file: &Path, now: String, update: bool) -> Result<(), ManifestDrift> {
    let name = file.display().to_string();
    if update {
        return std::fs::write(file, now).map_err(|why| ManifestDrift::Unwritable { file: name, why: why.to_string() });
    }
    let there = std::fs::read_to_string(file).unwrap_or_default();
    if there == now { Ok(()) } else { Err(ManifestDrift::Changed { file: name, there, now }) }
}

/// Name, version, entry, and each step with the type of its input.
fn describe<W: Workflow>(app: W) -> String {
    let flow = TypedFlow::new(app);
    let manifest = flow.manifest();
    let mut text = format!("{} version {}, begins with {}\n", manifest.workflow, manifest.version, manifest.entry);
    for step in &manifest.steps {
        // Writing into a String does not fail.
        let _ = writeln!(text, "{}({})", step.name, step.input.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_until_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("w.manifest");
        let check = |now: &str, update| compare(&file, now.to_owned(), update);
        assert!(matches!(check("a", false), Err(ManifestDrift::Changed { .. })), "a missing file is no agreement");
        check("a", true).unwrap();
        check("a", false).unwrap();
        let text = check("b", false).unwrap_err().to_string();
        assert!(text.contains("VERSION") && text.contains("--- file\na"), "{text}");
        assert!(compare(&file.join("no"), "a".into(), true).is_err());
    }
}
