//! `longhaul audit`, and reading the provider's ledger.

use crate::args::AuditArgs;
use crate::error::{CliError, Exit};
use crate::out;
use longhaul::Client;
use longhaul::audit::{Auditor, LedgerLine, Report};
use longhaul::store::Database;
use std::path::Path;

pub(crate) async fn run(args: &AuditArgs, as_json: bool) -> Result<Exit, CliError> {
    let ledger = args.ledger.as_deref().map(read_ledger).transpose()?;
    // Connecting refuses a schema of another build, which an audit would misread.
    Client::connect(&args.database.database).await?;
    let report = audit(&args.database.database, ledger.as_deref()).await?;
    if as_json {
        out::json(&report)?;
    } else {
        out::text(&report.to_string())?;
    }
    Ok(if report.is_clean() { Exit::Well } else { Exit::Finding })
}

/// Audits a database, with the provider's ledger or without.
pub(crate) async fn audit(database: &str, ledger: Option<&[LedgerLine]>) -> Result<Report, CliError> {
    Ok(Auditor::new(Database::new(database)?).run(ledger).await?)
}

/// Reads a ledger file. A last line without its line end was never completely written, and is passed over.
pub(crate) fn read_ledger(file: &Path) -> Result<Vec<LedgerLine>, CliError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| CliError::File { file: file.to_owned(), why: error.to_string() })?;
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |(place, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| CliError::Line {
            file: file.to_owned(),
            line: place + 1,
            why: format!("not a line of a ledger: {error}"),
        })
    };
    complete.lines().enumerate().map(parse).collect()
}
