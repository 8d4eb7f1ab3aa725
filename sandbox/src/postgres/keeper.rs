//! The keeper process (`keeper.sh`) as seen from here: commands go in, reports come out.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::sync::mpsc;

use super::Error;
use super::account::Account;

const SCRIPT: &str = include_str!("keeper.sh");

/// How long a keeper may take to answer: `initdb` on a slow disk is the longest.
const ANSWER: Duration = Duration::from_secs(120);

/// How the keeper stops the server when nobody needs it any more.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ending {
    /// The data is thrown away with the folder it is in: stop at once.
    Remove,
    /// The data stays: a fast shutdown with a checkpoint; only the temporary folder beside it goes.
    Keep,
}

/// What a keeper needs to know.
#[derive(Debug, Clone)]
pub(super) struct Charge {
    pub(super) account: Account,
    pub(super) bin_dir: PathBuf,
    /// Holds the log and the socket; removed at the end.
    pub(super) folder: PathBuf,
    pub(super) data_dir: PathBuf,
    pub(super) ending: Ending,
    pub(super) settings: Vec<(String, String)>,
    /// For a shared server: the file whose absence says that nobody may come in, and how many seconds to linger.
    pub(super) door: Option<(PathBuf, u32)>,
}

impl Charge {
    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn command(&self) -> Command {
        let mut command = Command::new("/bin/sh");
        let signal = match self.ending {
            Ending::Remove => "QUIT",
            Ending::Keep => "INT",
        };
        let (door, linger) = self.door.clone().unwrap_or_default();
        command.args(["-c", SCRIPT, "longhaul-keeper"]).arg(&self.bin_dir).arg(&self.data_dir).arg(self.log());
        command.arg(&self.folder).arg(signal).arg(door).arg(linger.to_string());
        for (name, value) in &self.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        self.account.run(&mut command).process_group(0);
        command
    }
}

/// A running keeper. Dropping it closes the commands, which ends the server.
#[derive(Debug)]
pub(super) struct Keeper {
    commands: File,
    reports: mpsc::UnboundedReceiver<String>,
}

impl Keeper {
    /// Starts a keeper that lives as long as the returned value.
    pub(super) fn of_one(charge: &Charge) -> Result<Self, Error> {
        let mut child = spawn(charge, Stdio::piped())?;
        let commands = child.stdin.take().map(OwnedFd::from).ok_or(Error::KeeperGone)?;
        Self::listen(child, File::from(commands))
    }

    /// Starts a keeper that lives as long as anybody has the named pipe open for writing, as `commands` has.
    pub(super) fn of_many(charge: &Charge, input: File, commands: File) -> Result<Self, Error> {
        Self::listen(spawn(charge, Stdio::from(input))?, commands)
    }

    fn listen(mut child: Child, commands: File) -> Result<Self, Error> {
        let output = child.stdout.take().ok_or(Error::KeeperGone)?;
        let (reporter, reports) = mpsc::unbounded_channel();
        // A thread, not a task: the runtime that started the server may end before the server does.
        std::thread::Builder::new()
            .name("longhaul-keeper".to_owned())
            .spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let _ = reporter.send(line);
                }
                let _ = child.wait();
            })
            .map_err(Error::program(Path::new("/bin/sh")))?;
        Ok(Self { commands, reports })
    }

    /// Makes the data folder if there is none.
    pub(super) async fn init(&mut self, charge: &Charge) -> Result<(), Error> {
        match self.ask("init").await?.as_str() {
            "initialised" => Ok(()),
            _ => Err(Error::Failed { step: "initialise", log: tail(&charge.log()) }),
        }
    }

    /// Starts the server; answers the number of its process. It is not ready to be used yet.
    pub(super) async fn start(&mut self) -> Result<u32, Error> {
        let report = self.ask("start").await?;
        report.strip_prefix("started ").and_then(|pid| pid.parse().ok()).ok_or(Error::KeeperGone)
    }

    /// Stops the server as a power cut would; answers when its process is gone.
    pub(super) async fn crash(&mut self) -> Result<(), Error> {
        self.ask("crash").await.map(|_| ())
    }

    /// Closes the commands; answers when the server is stopped and its folder removed.
    pub(super) async fn end(self) -> Result<(), Error> {
        let Self { commands, mut reports } = self;
        drop(commands);
        let gone = async { while reports.recv().await.is_some() {} };
        tokio::time::timeout(ANSWER, gone).await.map_err(|_| late("the server to stop"))
    }

    async fn ask(&mut self, command: &str) -> Result<String, Error> {
        // A line of a few bytes: it goes into the pipe at once, or the keeper is gone.
        self.commands.write_all(format!("{command}\n").as_bytes()).map_err(|_| Error::KeeperGone)?;
        match tokio::time::timeout(ANSWER, self.reports.recv()).await {
            Ok(report) => report.ok_or(Error::KeeperGone),
            Err(_) => Err(late("the server's keeper")),
        }
    }
}

fn late(what: &'static str) -> Error {
    Error::Deadline { what, after: ANSWER }
}

fn spawn(charge: &Charge, input: Stdio) -> Result<Child, Error> {
    let mut command = charge.command();
    command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().map_err(Error::program(Path::new("/bin/sh")))
}

/// The last lines of the log, for an error message.
pub(super) fn tail(log: &Path) -> String {
    const LINES: usize = 12;
    let text = std::fs::read_to_string(log).unwrap_or_default();
    // Our own attempts to connect while it starts are in there too, and tell nothing.
    let ours = ["the database system is starting up", "the database system is not yet accepting connections"];
    let lines: Vec<&str> = text.lines().filter(|line| !ours.iter().any(|noise| line.ends_with(noise))).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
