//! One private server: its keeper, its folder, its process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;

use super::account::Account;
use super::find::Installation;
use super::keeper::{Charge, Ending, Keeper, tail};
use super::{Error, Options, admin, folder, url};

/// How long a server may take to start, recovery after a crash included.
const STARTING: Duration = Duration::from_secs(60);

/// A server that belongs to this process.
#[derive(Debug)]
pub(super) struct Private {
    keeper: Keeper,
    charge: Charge,
    pid: u32,
}

impl Private {
    /// Makes the data folder if needed and starts the server; it can be used when this returns.
    pub(super) async fn start(installation: &Installation, options: &Options) -> Result<Self, Error> {
        let account = Account::of_server()?;
        let folder = folder::create_temporary(account)?;
        let charge = charge(account, installation, options, folder, None);
        let started = async {
            if let Some(data_dir) = &options.data_dir {
                folder::prepare_data(data_dir, account)?;
            }
            Keeper::of_one(&charge)
        };
        // Until there is a keeper, the folder is ours to remove.
        let keeper = started.await.inspect_err(|_| drop(std::fs::remove_dir_all(&charge.folder)))?;
        let mut private = Self { keeper, charge, pid: 0 };
        match private.bring_up().await {
            Ok(()) => Ok(private),
            Err(error) => {
                // The first error is the one to tell; the keeper clears up in either case.
                let _ = private.keeper.end().await;
                Err(error)
            }
        }
    }

    async fn bring_up(&mut self) -> Result<(), Error> {
        self.keeper.init(&self.charge).await?;
        self.start_again().await
    }

    /// Starts the server on the data that is there, and waits until it can be used.
    pub(super) async fn start_again(&mut self) -> Result<(), Error> {
        self.pid = up(&mut self.keeper, &self.charge).await?;
        Ok(())
    }

    /// Stops the server as a power cut would.
    pub(super) async fn crash(&mut self) -> Result<(), Error> {
        self.keeper.crash().await
    }

    /// Stops the server and clears up.
    pub(super) async fn stop(self) -> Result<(), Error> {
        self.keeper.end().await
    }

    pub(super) fn socket_dir(&self) -> &Path {
        &self.charge.folder
    }

    pub(super) fn data_dir(&self) -> &Path {
        &self.charge.data_dir
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }
}

/// What the keeper of a server below `folder` needs to know.
pub(super) fn charge(
    account: Account,
    installation: &Installation,
    options: &Options,
    folder: PathBuf,
    door: Option<(PathBuf, u32)>,
) -> Charge {
    let socket_dir = folder.display().to_string();
    let settings = options
        .clone()
        .setting("listen_addresses", "")
        .setting("port", &folder::PORT.to_string())
        .setting("unix_socket_directories", &format!("\"{socket_dir}\""))
        .setting("logging_collector", "off")
        .settings;
    let (data_dir, ending) = match &options.data_dir {
        Some(chosen) => (std::path::absolute(chosen).unwrap_or_else(|_| chosen.clone()), Ending::Keep),
        None => (folder.join("data"), Ending::Remove),
    };
    Charge { account, bin_dir: installation.bin_dir.clone(), folder, data_dir, ending, settings, door }
}

/// Has the keeper start the server and waits until it can be used; answers the number of its process.
pub(super) async fn up(keeper: &mut Keeper, charge: &Charge) -> Result<u32, Error> {
    let pid = keeper.start().await?;
    let url = url::of_socket(&charge.folder, "postgres");
    match admin::ready(&url, Instant::now() + STARTING, || has_ended(pid)).await {
        Ok(()) => Ok(pid),
        Err(None) => Err(Error::Failed { step: "start", log: tail(&charge.log()) }),
        Err(Some(_)) => Err(Error::Deadline { what: "the server to start", after: STARTING }),
    }
}

/// Whether a process is gone, or ended and only waits for its parent to ask.
fn has_ended(pid: u32) -> bool {
    let state = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The state follows the name, which is in parentheses and may hold anything.
        Ok(stat) => stat.rsplit(')').next().map(str::to_owned),
        Err(_) if Path::new("/proc/self/stat").exists() => None,
        Err(_) => state_from_ps(pid),
    };
    state.is_none_or(|state| state.trim_start().is_empty() || state.trim_start().starts_with('Z'))
}

/// For systems without `/proc`. If `ps` cannot be run, the process counts as alive: the deadline decides.
fn state_from_ps(pid: u32) -> Option<String> {
    match Command::new("ps").args(["-o", "stat=", "-p"]).arg(pid.to_string()).stderr(Stdio::null()).output() {
        Ok(output) => String::from_utf8(output.stdout).ok(),
        Err(_) => Some("unknown".to_owned()),
    }
}
