//! Finding an installed server.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Error;

/// Major versions that Longhaul supports.
pub(super) const SUPPORTED: std::ops::RangeInclusive<u32> = 15..=18;

/// Programs that a private server needs.
const PROGRAMS: [&str; 2] = ["postgres", "initdb"];

/// An installed server of a supported version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Installation {
    /// For example `17.5`.
    pub(super) version: String,
    /// The folder with `postgres` and `initdb`.
    pub(super) bin_dir: PathBuf,
}

/// The newest supported server in the usual places.
pub(super) fn installed() -> Result<Installation, Error> {
    newest(&usual_places())
}

/// The newest supported server in these folders; the earlier folder wins between equals.
pub(super) fn newest(places: &[PathBuf]) -> Result<Installation, Error> {
    let mut best: Option<((u32, u32), Installation)> = None;
    let mut unsupported: Option<Error> = None;
    for bin_dir in places {
        let Some(version) = version_in(bin_dir) else { continue };
        let numbers = numbers(&version);
        if !SUPPORTED.contains(&numbers.0) {
            let place = bin_dir.display().to_string();
            unsupported.get_or_insert(Error::UnsupportedVersion { version, place });
        } else if best.as_ref().is_none_or(|(known, _)| numbers > *known) {
            best = Some((numbers, Installation { version, bin_dir: bin_dir.clone() }));
        }
    }
    match best {
        Some((_, installation)) => Ok(installation),
        None => Err(unsupported.unwrap_or(Error::NotInstalled)),
    }
}

/// `17.5` from `postgres (PostgreSQL) 17.5 (Debian 17.5-1)`, or `None` when no complete server is in the folder.
fn version_in(bin_dir: &Path) -> Option<String> {
    if !PROGRAMS.iter().all(|program| bin_dir.join(program).is_file()) {
        return None;
    }
    let output = Command::new(bin_dir.join("postgres")).arg("--version").stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned)
}

/// `(17, 5)` from `17.5`, `(18, 0)` from `18beta1`.
pub(super) fn numbers(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    });
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// PATH, what `pg_config` says, and where the packages of the common systems put the programs.
fn usual_places() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    places.extend(from_pg_config());
    for (parent, prefix, tail) in [
        ("/usr/lib/postgresql", "", "bin"),
        ("/usr", "pgsql-", "bin"),
        ("/opt/homebrew/opt", "postgresql", "bin"),
        ("/usr/local/opt", "postgresql", "bin"),
        ("/home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"),
        ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
        ("/Library/PostgreSQL", "", "bin"),
    ] {
        places.extend(children(Path::new(parent), prefix).into_iter().map(|child| child.join(tail)));
    }
    places.extend(["/usr/local/pgsql/bin", "/usr/local/bin", "/usr/libexec/postgresql"].map(PathBuf::from));
    let mut seen = BTreeSet::new();
    places.retain(|place| place.is_absolute() && seen.insert(place.clone()));
    places
}

fn from_pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(text.trim()))
}

/// Folders below `parent` whose name starts with `prefix`, in a fixed order.
fn children(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn versions_are_read_as_postgres_writes_them() {
        for (text, expected) in [("15.18", (15, 18)), ("18beta1", (18, 0)), ("9.6.24", (9, 6)), ("", (0, 0))] {
            assert_eq!(numbers(text), expected, "{text}");
        }
    }
}
