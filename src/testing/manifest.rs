//! A golden file for a workflow's manifest: a test that fails when what runs in flight depend on changes under the same version.

use crate::domain::InvalidJson;
use crate::run::{Differences, Manifest, Workflow};
use std::path::Path;

/// Set to anything, it makes [`check_manifest`] write the file instead.
pub const UPDATE: &str = "LONGHAUL_UPDATE_MANIFESTS";

/// What differs between a workflow and its golden file.
#[derive(Debug, thiserror::Error)]
pub enum ManifestDrift {
    /// Steps or types have changed under the same version.
    #[error(
        "{file} does not describe version {version} any more:\n{changes}Runs in flight may be at a step that is gone, or have \
         values that cannot be read. Give the workflow a new VERSION (and an `upgrade`, if it is to take those runs over). If no \
         run of this version is in flight anywhere, or all of them fit, as `longhaul check` can say, leave it. Then set {UPDATE}=1 once."
    )]
    Changed {
        /// The file.
        file: String,
        /// The version that both say.
        version: u32,
        /// What has changed.
        changes: Differences,
    },
    /// The file is of another version, or is missing, or says the same in other words.
    #[error("{file} {why}: set {UPDATE}=1 once to write it anew")]
    Stale {
        /// The file.
        file: String,
        /// What is the matter with it.
        why: String,
    },
    /// The manifest cannot be written down.
    #[error(transparent)]
    Value(#[from] InvalidJson),
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
/// The file is the manifest's JSON form, which `longhaul check --manifest` reads as well. It has the steps and the types of
/// what is stored: the schema of those that implement `schemars::JsonSchema`, so that a changed field is seen, and the name of
/// the others.
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
/// longhaul::testing::check_manifest(app, "tests/golden/hello.json").unwrap();
/// # }
/// ```
///
/// # Errors
/// [`ManifestDrift`] names what has changed, and what to do.
pub fn check_manifest<W: Workflow>(app: W, file: impl AsRef<Path>) -> Result<(), ManifestDrift> {
    drop(app);
    compare(file.as_ref(), &Manifest::of::<W>(), std::env::var_os(UPDATE).is_some())
}

fn compare(file: &Path, now: &Manifest, update: bool) -> Result<(), ManifestDrift> {
    let name = file.display().to_string();
    let text = pretty(now)?;
    if update {
        return std::fs::write(file, text).map_err(|e| ManifestDrift::Unwritable { file: name, why: e.to_string() });
    }
    let stale = |why: String| Err(ManifestDrift::Stale { file: name.clone(), why });
    let there = match std::fs::read_to_string(file) {
        Ok(there) => there,
        Err(why) => return stale(format!("cannot be read ({why})")),
    };
    let before = match Manifest::from_json(&there) {
        Ok(before) => before,
        Err(why) => return stale(format!("is no manifest ({why})")),
    };
    if before.workflow != now.workflow {
        return stale(format!("is of workflow `{}`, not of `{}`", before.workflow, now.workflow));
    }
    if before.version != now.version {
        return stale(format!("is of version {}, the workflow is at {}", before.version, now.version));
    }
    let changes = now.since(&before);
    if !changes.is_empty() {
        return Err(ManifestDrift::Changed { file: name, version: now.version, changes });
    }
    // By what it says: line ends and white space are whoever's keeps the file.
    if before.to_json()? == now.to_json()? { Ok(()) } else { stale("says the same in another way".into()) }
}

/// The canonical form, one thing to a line.
fn pretty(manifest: &Manifest) -> Result<String, InvalidJson> {
    let malformed = |e: serde_json::Error| InvalidJson::Malformed { what: "a manifest", why: e.to_string() };
    let value: serde_json::Value = manifest.to_json()?.read().map_err(malformed)?;
    Ok(serde_json::to_string_pretty(&value).map_err(malformed)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(version: u32, step: &str) -> Manifest {
        let json = serde_json::json!({
            "workflow": "w", "version": version, "entry": step, "input": {"type": "x"}, "state": {"type": "x"},
            "output": {"type": "x"}, "steps": [{"name": step, "input": {"type": "x"}}],
        });
        Manifest::from_json(&json.to_string()).unwrap()
    }

    #[test]
    fn a_change_is_shown_until_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("w.json");
        let check = |now: &Manifest, update| compare(&file, now, update);
        let one = manifest(1, "a");
        assert!(matches!(check(&one, false), Err(ManifestDrift::Stale { .. })), "a missing file is no agreement");
        check(&one, true).unwrap();
        check(&one, false).unwrap();
        let text = check(&manifest(1, "b"), false).unwrap_err().to_string();
        for words in ["VERSION", "step `a` is gone", "step `b` is new", UPDATE] {
            assert!(text.contains(words), "{text}");
        }
        let text = check(&manifest(2, "b"), false).unwrap_err().to_string();
        assert!(text.contains("is of version 1, the workflow is at 2"), "{text}");
        let takes_over = Manifest { upgrades_from: 0, ..one.clone() };
        assert!(matches!(check(&takes_over, false), Err(ManifestDrift::Stale { .. })));
        assert!(compare(&file.join("no"), &one, true).is_err());
    }
}
