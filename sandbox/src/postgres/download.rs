//! Fetching the server's programs where none are installed, for those who allow it.
//!
//! `curl` and `tar` do the work, as every supported system has them: a client of our own would weigh more than the rest
//! of this crate. Running fetched programs is nothing to do unasked, so it needs `LONGHAUL_POSTGRES_DOWNLOAD`.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tokio::process::Command;

use super::{Error, find, folder};

const ALLOW: &str = "LONGHAUL_POSTGRES_DOWNLOAD";
const MIRROR: &str = "LONGHAUL_POSTGRES_MIRROR";
const RELEASES: &str = "https://github.com/theseus-rs/postgresql-binaries/releases/download";
const VERSION: &str = "17.5.0";

/// Whether the user allows a download.
pub(super) fn is_allowed() -> bool {
    std::env::var(ALLOW).is_ok_and(|value| !value.is_empty() && value != "0")
}

/// The fetched server; fetches it if the cache folder does not have it yet.
pub(super) async fn installation() -> Result<find::Installation, Error> {
    let version = std::env::var(ALLOW).ok().filter(|value| value.contains('.')).unwrap_or_else(|| VERSION.to_owned());
    let mirror = std::env::var(MIRROR).unwrap_or_else(|_| RELEASES.to_owned());
    fetched(&mirror, &version, target()?, &cache()?).await
}

async fn fetched(mirror: &str, version: &str, target: &str, cache: &Path) -> Result<find::Installation, Error> {
    let name = format!("postgresql-{version}-{target}");
    let home = cache.join(&name);
    if !home.exists() {
        std::fs::create_dir_all(cache).map_err(Error::file(cache))?;
        let work = cache.join(format!("{name}.{}", folder::unguessable()));
        let outcome = fetch(&format!("{mirror}/{version}/{name}.tar.gz"), &work, &home).await;
        // On success only the archive is left in there; on failure nothing is of use.
        let _ = std::fs::remove_dir_all(&work);
        outcome?;
    }
    find::newest(&[home.join("bin")])
}

async fn fetch(url: &str, work: &Path, home: &Path) -> Result<(), Error> {
    let unpacked = work.join("unpacked");
    std::fs::create_dir_all(&unpacked).map_err(Error::file(&unpacked))?;
    let (archive, checksum) = (work.join("archive"), work.join("checksum"));
    for (url, file) in [(url, &archive), (&format!("{url}.sha256"), &checksum)] {
        tool(Command::new("curl").args(["-fsSL", "--retry", "3", "-o"]).arg(file).arg(url)).await?;
    }
    let published = std::fs::read_to_string(&checksum).map_err(Error::file(&checksum))?;
    let content = std::fs::read(&archive).map_err(Error::file(&archive))?;
    let actual: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
    if published.split_whitespace().next() != Some(actual.as_str()) {
        return Err(Error::Download(format!("the SHA-256 of {url} is not the published one")));
    }
    tool(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&unpacked).arg("--strip-components=1")).await?;
    match std::fs::rename(&unpacked, home) {
        // Another process was faster: its programs are as good.
        Err(_) if home.exists() => Ok(()),
        outcome => outcome.map_err(Error::file(home)),
    }
}

async fn tool(command: &mut Command) -> Result<(), Error> {
    let program = PathBuf::from(command.as_std().get_program());
    let output = command.kill_on_drop(true).output().await.map_err(Error::program(&program))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Download(format!("{}: {}", program.display(), said.trim())))
}

/// A folder that outlives us. As root it must be open to the account the server runs as, which root's home is not.
fn cache() -> Result<PathBuf, Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/cache/longhaul"));
    }
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    from("XDG_CACHE_HOME")
        .or_else(|| from("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("longhaul"))
        .ok_or_else(|| Error::Download("neither XDG_CACHE_HOME nor HOME is set".to_owned()))
}

fn target() -> Result<&'static str, Error> {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => Ok("x86_64-unknown-linux-gnu"),
        ("linux", "aarch64") => Ok("aarch64-unknown-linux-gnu"),
        ("macos", "x86_64") => Ok("x86_64-apple-darwin"),
        ("macos", "aarch64") => Ok("aarch64-apple-darwin"),
        (os, arch) => Err(Error::Download(format!("there is no archive for {os} on {arch}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use sha2::{Digest, Sha256};

    use super::{Error, fetched};

    /// A mirror in a folder, with an archive whose `postgres` only states a version.
    fn mirror(root: &Path, checksum: Option<&str>) -> String {
        let bin = root.join("tree/postgresql/bin");
        std::fs::create_dir_all(&bin).unwrap();
        for program in ["postgres", "initdb"] {
            std::fs::write(bin.join(program), "#!/bin/sh\necho 'postgres (PostgreSQL) 17.5'\n").unwrap();
            std::fs::set_permissions(bin.join(program), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let release = root.join("17.5.0");
        std::fs::create_dir_all(&release).unwrap();
        let archive = release.join("postgresql-17.5.0-any.tar.gz");
        let mut tar = std::process::Command::new("tar");
        assert!(
            tar.arg("-czf")
                .arg(&archive)
                .arg("-C")
                .arg(root.join("tree"))
                .arg("postgresql")
                .status()
                .unwrap()
                .success()
        );
        let digest = Sha256::digest(std::fs::read(&archive).unwrap());
        let actual: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let published = format!("{}  {}\n", checksum.unwrap_or(&actual), archive.display());
        std::fs::write(release.join("postgresql-17.5.0-any.tar.gz.sha256"), published).unwrap();
        format!("file://{}", root.display())
    }

    #[tokio::test]
    async fn an_archive_is_checked_unpacked_and_kept() {
        let root = tempfile::tempdir().unwrap();
        let mirror = mirror(root.path(), None);
        let cache = root.path().join("cache");
        for _ in 0..2 {
            let found = fetched(&mirror, "17.5.0", "any", &cache).await.unwrap();
            assert_eq!(found.version, "17.5");
        }
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1, "nothing else is left in the cache");
    }

    #[tokio::test]
    async fn a_wrong_checksum_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let mirror = mirror(root.path(), Some("00"));
        let cache = root.path().join("cache");
        let refused = fetched(&mirror, "17.5.0", "any", &cache).await;
        assert!(matches!(refused, Err(Error::Download(_))), "{refused:?}");
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 0, "nothing is kept");
    }
}
