//! `longhaul batches`.

use super::row;
use crate::args::BatchesArgs;
use crate::error::{CliError, Exit};
use crate::out::{self, thousands};
use longhaul::Client;
use longhaul::store::BatchView;
use serde::Serialize;

#[derive(Debug, Serialize)]
struct BatchLine {
    key: i64,
    status: &'static str,
    provider_batch_id: Option<String>,
    requests: i32,
    bytes: i64,
    reserved_at: String,
    ambiguous_at: Option<String>,
    adopted_at: Option<String>,
    settled_at: Option<String>,
    note: Option<String>,
}

impl From<BatchView> for BatchLine {
    fn from(batch: BatchView) -> Self {
        Self {
            key: batch.key,
            status: batch.status.as_str(),
            provider_batch_id: batch.provider_batch_id,
            requests: batch.requests,
            bytes: batch.bytes,
            reserved_at: batch.reserved_at.to_rfc3339(),
            ambiguous_at: batch.ambiguous_at.map(|at| at.to_rfc3339()),
            adopted_at: batch.adopted_at.map(|at| at.to_rfc3339()),
            settled_at: batch.settled_at.map(|at| at.to_rfc3339()),
            note: batch.note,
        }
    }
}

pub(crate) async fn batches(args: &BatchesArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let batches = client.batches(args.limit).await?;
    if as_json {
        out::json(&batches.into_iter().map(BatchLine::from).collect::<Vec<_>>())?;
        return Ok(Exit::Well);
    }
    if batches.is_empty() {
        out::text("no batch was ever made\n")?;
        return Ok(Exit::Well);
    }
    let mut rows = vec![row(&["batch", "status", "requests", "bytes", "reserved", "history", "at the provider"])];
    rows.extend(batches.iter().map(line));
    out::text(&out::table(&rows))?;
    Ok(Exit::Well)
}

fn line(batch: &BatchView) -> Vec<String> {
    let history = match (batch.ambiguous_at, batch.adopted_at) {
        (Some(_), Some(_)) => "found again",
        (Some(_), None) => "in doubt",
        (None, _) => "",
    };
    vec![
        batch.key.to_string(),
        batch.status.to_string(),
        thousands(batch.requests),
        thousands(batch.bytes),
        batch.reserved_at.format("%F %T").to_string(),
        history.to_owned(),
        batch.provider_batch_id.clone().unwrap_or_default(),
    ]
}
