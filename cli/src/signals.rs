//! Being told to stop.

use crate::error::CliError;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for Ctrl-C or SIGTERM. From the first poll on, neither ends the process by itself.
pub(crate) async fn interrupted() -> Result<(), CliError> {
    let listen = |kind| signal(kind).map_err(|error| CliError::io("listen for signals", error));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
