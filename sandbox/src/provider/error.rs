//! What can go wrong when a sandbox is started or a ledger is read.

use std::net::SocketAddr;
use std::path::PathBuf;

/// An error of the local provider itself, not of a request sent to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The listening socket could not be opened.
    #[error("cannot listen on {address}: {source}; choose another port, or port 0 for any free one")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The ledger file could not be opened, written or read.
    #[error("cannot use the paid ledger {}: {source}", path.display())]
    Ledger {
        /// The ledger file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A complete line of the ledger is not a ledger line.
    #[error("line {line} of the paid ledger {} is not readable: {source}", path.display())]
    LedgerLine {
        /// The ledger file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What the parser said.
        source: serde_json::Error,
    },
}
