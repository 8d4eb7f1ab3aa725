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
}

pub(super) async fn living(client: &Client) -> Result<Vec<NodeLine>, CliError> {
    let nodes = client.nodes().await?;
    Ok(nodes.into_iter().map(|(id, name, runs)| NodeLine { id: id.to_string(), name, runs }).collect())
}

pub(super) fn listing(nodes: &[NodeLine]) -> String {
    if nodes.is_empty() {
        return "no node is alive\n".into();
    }
    let mut rows = vec![row(&["node", "holds", "id"])];
    rows.extend(nodes.iter().map(|node| vec![node.name.clone(), out::thousands(node.runs), node.id.clone()]));
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
