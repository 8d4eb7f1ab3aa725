//! `longhaul nodes`.

use super::row;
use crate::args::DatabaseArgs;
use crate::error::{CliError, Exit};
use crate::out;
use longhaul::Client;
use serde::Serialize;

/// A living node.
#[derive(Debug, Serialize)]
pub(super) struct NodeLine {
    pub id: String,
    pub name: String,
    pub runs: i64,
    pub draining: bool,
    pub version: String,
    pub beat_ago_ms: i64,
}

pub(super) async fn living(client: &Client) -> Result<Vec<NodeLine>, CliError> {
    let nodes = client.nodes().await?;
    Ok(nodes
        .into_iter()
        .map(|node| NodeLine {
            id: node.id.to_string(),
            name: node.name,
            runs: node.runs,
            draining: node.draining,
            version: node.version,
            beat_ago_ms: node.beat_ago_ms,
        })
        .collect())
}

pub(super) fn listing(nodes: &[NodeLine]) -> String {
    if nodes.is_empty() {
        return "no node is alive\n".into();
    }
    let mut rows = vec![row(&["node", "holds", "id", "version", "heartbeat", ""])];
    rows.extend(nodes.iter().map(|node| {
        let (runs, beat) = (out::thousands(node.runs), format!("{} ago", out::time(node.beat_ago_ms)));
        let draining = if node.draining { "draining" } else { "" };
        vec![node.name.clone(), runs, node.id.clone(), node.version.clone(), beat, draining.into()]
    }));
    out::table(&rows)
}

pub(crate) async fn nodes(args: &DatabaseArgs, as_json: bool) -> Result<Exit, CliError> {
    let nodes = living(&Client::connect(&args.database).await?).await?;
    if as_json {
        out::json(&nodes)?
    } else {
        out::text(&listing(&nodes))?
    }
    Ok(Exit::Well)
}
