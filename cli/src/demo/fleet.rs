//! The workers, as their parent sees them.

use super::teller::Teller;
use super::worker::Heard;
use crate::error::CliError;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long a worker may take to end when it is told to.
const GRACE: Duration = Duration::from_secs(20);
/// How long the last lines of an ended worker may take.
const LAST_LINES: Duration = Duration::from_secs(2);
/// What workers log unless `RUST_LOG` says otherwise: that one of them is lost is part of the story.
const LOGGED: &str = "error";
/// How often living workers are looked after.
const LOOK: Duration = Duration::from_millis(100);
/// Long enough for every worker to have told how it is since a moment ago.
const SETTLING: Duration = Duration::from_millis(500);

/// All workers there ever were, in the order in which they started.
pub(super) struct Fleet {
    program: PathBuf,
    database: String,
    provider: String,
    teller: Teller,
    workers: Vec<Worker>,
}

struct Worker {
    name: String,
    child: Child,
    /// Held open: its end tells the worker to end. `None`: it is not alive, or should not be.
    stdin: Option<ChildStdin>,
    heard: watch::Receiver<Heard>,
    readers: [JoinHandle<()>; 2],
    /// The last line it logged.
    logged: Arc<Mutex<String>>,
}

impl Fleet {
    pub(super) fn new(database: &str, provider: &str, teller: Teller) -> Result<Self, CliError> {
        let program = std::env::current_exe().map_err(|error| CliError::io("find this program", error))?;
        Ok(Self { program, database: database.into(), provider: provider.into(), teller, workers: Vec::new() })
    }

    /// Starts another worker, and answers its name.
    pub(super) fn start(&mut self) -> Result<String, CliError> {
        let name = format!("worker-{}", self.workers.len() + 1);
        let mut child = Command::new(&self.program)
            .args(["demo-worker", "--provider", &self.provider, "--name", &name])
            // Not as an argument: it may hold a password, and every user sees arguments.
            .env("LONGHAUL_DATABASE_URL", &self.database)
            .env("RUST_LOG", std::env::var("RUST_LOG").unwrap_or_else(|_| LOGGED.into()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| CliError::io("start a worker", error))?;
        let (tell, heard) = watch::channel(Heard::default());
        let logged = Arc::<Mutex<String>>::default();
        let readers = [
            each_line(child.stdout.take(), move |line| {
                if let Ok(heard) = serde_json::from_str(&line) {
                    tell.send_replace(heard);
                }
            }),
            each_line(child.stderr.take(), {
                let (logged, teller, name) = (logged.clone(), self.teller.clone(), name.clone());
                move |line| {
                    teller.aside(&format!("         {name}: {line}"));
                    *logged.lock().unwrap_or_else(PoisonError::into_inner) = line;
                }
            }),
        ];
        let stdin = child.stdin.take();
        self.workers.push(Worker { name: name.clone(), child, stdin, heard, readers, logged });
        Ok(name)
    }

    pub(super) fn teller(&self) -> &Teller {
        &self.teller
    }

    /// What was last heard of each worker.
    pub(super) fn heard(&self) -> impl Iterator<Item = (&str, Heard)> {
        self.workers.iter().map(|worker| (worker.name.as_str(), *worker.heard.borrow()))
    }

    /// How many are alive.
    pub(super) fn living(&self) -> usize {
        self.workers.iter().filter(|worker| worker.stdin.is_some()).count()
    }

    /// Waits for something, unless a worker ends by itself, or nothing has moved for `patience`.
    pub(super) async fn until<T>(
        &mut self,
        what: &'static str,
        patience: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, CliError> {
        tokio::select! {
            done = timeout(patience, work) => {
                done.map_err(|_| CliError::Stalled { what, seconds: patience.as_secs() })
            }
            ended = self.any_ended() => Err(ended),
        }
    }

    async fn any_ended(&mut self) -> CliError {
        loop {
            if let Err(error) = self.look_after().await {
                return error;
            }
            sleep(LOOK).await;
        }
    }

    /// Finds out whether a worker has ended that nobody told to.
    pub(super) async fn look_after(&mut self) -> Result<(), CliError> {
        for worker in self.workers.iter_mut().filter(|worker| worker.stdin.is_some()) {
            let status = worker.child.try_wait().map_err(|error| CliError::io("look after a worker", error))?;
            if let Some(status) = status {
                worker.read_out().await;
                return Err(CliError::WorkerEnded {
                    name: worker.name.clone(),
                    status: status.to_string(),
                    last: worker.last_line(),
                });
            }
        }
        Ok(())
    }

    /// Kills the first worker with SIGKILL, and waits until it is gone.
    pub(super) async fn kill_first(&mut self) -> Result<(), CliError> {
        let Some(worker) = self.workers.first_mut() else { return Ok(()) };
        worker.child.kill().await.map_err(|error| CliError::io("kill a worker", error))?;
        worker.stdin = None;
        worker.read_out().await;
        Ok(())
    }

    /// How many runs the first worker has completed, each time it tells.
    pub(super) fn first(&self) -> Option<watch::Receiver<Heard>> {
        self.workers.first().map(|worker| worker.heard.clone())
    }

    /// Waits until every living worker has told how it is now.
    pub(super) async fn settle(&self) {
        sleep(SETTLING).await;
    }

    /// Tells every worker to end, and waits for that.
    pub(super) async fn shut_down(&mut self) -> Result<(), CliError> {
        let told: Vec<bool> = self.workers.iter_mut().map(|worker| worker.stdin.take().is_some()).collect();
        for (worker, _) in self.workers.iter_mut().zip(told).filter(|(_, told)| *told) {
            let status = match timeout(GRACE, worker.child.wait()).await {
                Ok(status) => status.map_err(|error| CliError::io("wait for a worker", error))?,
                Err(_) => {
                    let killed = worker.child.kill().await;
                    killed.map_err(|error| CliError::io("kill a worker", error))?;
                    self.teller.aside(&format!("{} did not end within {} s: killed", worker.name, GRACE.as_secs()));
                    continue;
                }
            };
            worker.read_out().await;
            if !status.success() {
                self.teller.aside(&format!("{} ended with {status}{}", worker.name, worker.last_line()));
            }
        }
        Ok(())
    }
}

impl Worker {
    /// Reads what it wrote before it ended.
    async fn read_out(&mut self) {
        for reader in &mut self.readers {
            // What is not there by then is lost.
            let _ = timeout(LAST_LINES, reader).await;
        }
    }

    fn last_line(&self) -> String {
        let line = self.logged.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if line.is_empty() { line } else { format!("; its last words: {line}") }
    }
}

fn each_line<R>(from: Option<R>, mut act: impl FnMut(String) + Send + 'static) -> JoinHandle<()>
where
    R: AsyncRead + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        let Some(from) = from else { return };
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            act(line);
        }
    })
}
