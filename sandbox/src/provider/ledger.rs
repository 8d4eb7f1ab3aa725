//! The paid ledger: an append-only JSONL file with one line for each item that was paid.
//!
//! A line is written in one piece, and is in the file (not necessarily on the disk) before the item's result can be read
//! by anyone. A reader ignores a last line without its line end: it was never completely written.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::app::locked;
use super::error::Error;

/// One paid item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paid {
    /// The caller's id of the request in its batch; `None` for a live call.
    pub custom_id: Option<String>,
    /// The batch; `None` for a live call.
    pub batch_id: Option<String>,
    /// Stands for the logical request: the first 32 hex characters of the SHA-256 of its canonical `params`. Callers that
    /// send the same text for different purposes tell them apart by `params.metadata.user_id`.
    pub logical: String,
    /// The model that was asked for.
    pub model: String,
    /// Tokens that were read.
    pub input_tokens: u64,
    /// Tokens that were written.
    pub output_tokens: u64,
    /// The cost in nano-dollars (10^-9 USD); `None` when the price of the model is unknown.
    pub nano_usd: Option<u64>,
    /// Whether it was a live call at full price.
    pub live: bool,
    /// When it was paid.
    pub at: DateTime<Utc>,
}

/// What a ledger adds up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Paid items, batched and live.
    pub items_paid: usize,
    /// Logical requests that were paid more than once.
    pub logical_paid_twice: usize,
    /// Custom ids that were paid more than once, in whatever batches.
    pub custom_ids_paid_twice: usize,
    /// The cost of the batched items in nano-dollars.
    pub nano_usd_batch: u64,
    /// The cost of the live items in nano-dollars.
    pub nano_usd_live: u64,
    /// Items whose model has no known price; they are in neither cost.
    pub items_without_price: usize,
}

/// The ledger file of a sandbox.
#[derive(Debug)]
pub struct PaidLedger {
    path: PathBuf,
    file: Mutex<File>,
    temporary: bool,
}

impl PaidLedger {
    /// Reads all complete lines of a ledger, in the order of payment.
    ///
    /// # Errors
    /// When the file cannot be read, or a complete line is not a ledger line.
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<Paid>, Error> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|source| Error::Ledger { path: path.to_owned(), source })?;
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |(n, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|source| Error::LedgerLine {
                path: path.to_owned(),
                line: n + 1,
                source,
            })
        };
        complete.lines().enumerate().map(parse).collect()
    }

    /// Adds a ledger up.
    pub fn summary(paid: &[Paid]) -> Summary {
        let mut summary = Summary { items_paid: paid.len(), ..Summary::default() };
        let mut logical: HashMap<&str, usize> = HashMap::new();
        let mut custom_ids: HashMap<&str, usize> = HashMap::new();
        for item in paid {
            *logical.entry(&item.logical).or_default() += 1;
            if let Some(id) = &item.custom_id {
                *custom_ids.entry(id).or_default() += 1;
            }
            match (item.nano_usd, item.live) {
                (Some(cost), true) => summary.nano_usd_live += cost,
                (Some(cost), false) => summary.nano_usd_batch += cost,
                (None, _) => summary.items_without_price += 1,
            }
        }
        summary.logical_paid_twice = logical.values().filter(|n| **n > 1).count();
        summary.custom_ids_paid_twice = custom_ids.values().filter(|n| **n > 1).count();
        summary
    }

    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Error> {
        let temporary = path.is_none();
        let path = path.map_or_else(temporary_path, Path::to_owned);
        let open = || {
            drop_torn_line(&path)?;
            OpenOptions::new().create(true).append(true).open(&path)
        };
        let file = open().map_err(|source| Error::Ledger { path: path.clone(), source })?;
        Ok(Self { path, file: Mutex::new(file), temporary })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn pay(&self, paid: &Paid) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(paid)?;
        line.push(b'\n');
        locked(&self.file).write_all(&line)
    }
}

impl Drop for PaidLedger {
    fn drop(&mut self) {
        if self.temporary {
            // Nothing can be done about a temporary file that does not go away.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn temporary_path() -> PathBuf {
    std::env::temp_dir().join(format!("longhaul-sandbox-paid-{}.jsonl", uuid::Uuid::new_v4()))
}

/// A process that was killed while writing leaves a piece of a line, to which the next line must not be glued.
fn drop_torn_line(path: &Path) -> std::io::Result<()> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let complete = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    if complete == bytes.len() {
        return Ok(());
    }
    let length = u64::try_from(complete).map_err(std::io::Error::other)?;
    OpenOptions::new().write(true).open(path)?.set_len(length)
}
