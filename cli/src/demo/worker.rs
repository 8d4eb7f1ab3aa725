//! A worker of the demo: a process with one node. It tells its parent how it is, and ends when its standard input ends, in
//! whatever way the parent went.

use super::speeches::{PROVIDER, Speeches, WordCount};
use crate::args::WorkerArgs;
use crate::error::{CliError, Exit};
use longhaul::provider::anthropic::{Anthropic, ApiKey};
use longhaul::{Config, Node};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};

/// How often a worker tells how it is.
const TELLING: Duration = Duration::from_millis(200);
/// What fetching a document takes.
const READING: Duration = Duration::from_millis(150);

/// What a worker tells, one JSON object a line.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Heard {
    /// Enqueued runs that it has completed.
    pub completed: u64,
    /// The most memory it ever had, in kB.
    pub peak_rss_kb: u64,
    /// Whether this is its last word.
    pub last: bool,
}

pub(crate) async fn run(args: WorkerArgs) -> Result<Exit, CliError> {
    // Ctrl-C in a terminal reaches every process: the parent decides what to do then.
    let listen = |kind| signal(kind).map_err(|error| CliError::io("listen for signals", error));
    let (_interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let mut ended = stdin_ended()?;
    let provider = Anthropic::new(ApiKey::new("sandbox"))?.base_url(args.provider);
    let node = Node::builder(args.database.database)
        .workflow(Speeches { reading: READING })
        .provider(PROVIDER, provider)
        .tool(WordCount)
        .config(config(args.name))
        .start()
        .await?;
    let mut tick = interval(TELLING);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = terminate.recv() => break,
            _ = &mut ended => break,
        }
        if tell(completed(&node), false).is_err() {
            break; // nobody listens any more
        }
    }
    let completed = completed(&node);
    let shut_down = node.shutdown().await;
    // The parent may be gone.
    let _ = tell(completed, true);
    shut_down?;
    Ok(Exit::Well)
}

fn completed(node: &Node) -> u64 {
    let progress = node.progress();
    progress.runs_completed.saturating_sub(progress.branches_completed)
}

/// Leases and polls for a demo of seconds, and few, well-filled batches.
fn config(name: String) -> Config {
    Config {
        name,
        // Longer than reading a document takes, so that what goes on at the same time travels together.
        linger: Duration::from_millis(400),
        min_batch_requests: 1_000,
        runs_in_flight: 256,
        // A busy machine with few cores may leave a healthy worker unheard for a second.
        heartbeat: Duration::from_millis(250),
        lease: Duration::from_secs(2),
        ..Config::brisk()
    }
}

fn tell(completed: u64, last: bool) -> std::io::Result<()> {
    let line = serde_json::to_string(&Heard { completed, peak_rss_kb: peak_rss_kb(), last })?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// Done when standard input has ended. A thread of its own, which the end of the process does not wait for.
fn stdin_ended() -> Result<oneshot::Receiver<()>, CliError> {
    let (end, ended) = oneshot::channel();
    let wait = move || {
        let mut bytes = [0; 64];
        while std::io::stdin().read(&mut bytes).is_ok_and(|n| n > 0) {}
        // Nobody may wait for it any more.
        let _ = end.send(());
    };
    std::thread::Builder::new().spawn(wait).map_err(|error| CliError::io("start a thread", error))?;
    Ok(ended)
}

/// `VmHWM` of this process; 0 where the system does not tell.
fn peak_rss_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix("kB")).and_then(|kb| kb.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_are_valid() {
        assert_eq!(config("worker-1".into()).validate(), Ok(()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_told() {
        assert!(peak_rss_kb() > 1_000);
    }
}
