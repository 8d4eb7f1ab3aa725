//! `longhaul pause`, `resume`, `limit`, `drain`, `hold`, `unhold`: what operators say of workflows, nodes and records.

use crate::args::{DrainArgs, HoldArgs, LimitArgs, PauseArgs, ResumeArgs, RunArgs};
use crate::error::{CliError, Exit};
use crate::out;
use longhaul::Client;
use serde_json::json;

/// `longhaul pause`.
pub(crate) async fn pause(args: &PauseArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let changed = client.pause(&args.workflow, &args.by, &args.reason).await?;
    let text =
        if changed { "is paused: what nodes hold goes on until it next leaves them" } else { "was paused before" };
    said(as_json, &args.workflow, "paused", changed, text)
}

/// `longhaul resume`.
pub(crate) async fn resume(args: &ResumeArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let changed = client.resume(&args.workflow, &args.by).await?;
    said(as_json, &args.workflow, "resumed", changed, if changed { "goes on" } else { "was not paused" })
}

/// `longhaul limit`.
pub(crate) async fn limit(args: &LimitArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let changed = client.limit_running(&args.workflow, &args.by, args.most.0).await?;
    let most = args.most.0.map_or_else(|| "has no ceiling".to_owned(), |most| format!("has a ceiling of {most} runs"));
    said(as_json, &args.workflow, "limited", changed, &most)
}

fn said(as_json: bool, workflow: &str, what: &str, changed: bool, text: &str) -> Result<Exit, CliError> {
    if as_json {
        out::json(&json!({"workflow": workflow, "said": what, "changed": changed}))?
    } else {
        out::text(&format!("workflow {workflow} {text}\n"))?
    }
    Ok(Exit::Well)
}

/// `longhaul drain`.
pub(crate) async fn drain(args: &DrainArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let nodes = client.drain_node(&args.node, &args.by).await?;
    if as_json {
        out::json(&json!({"node": args.node, "nodes": nodes}))?
    } else {
        out::text(&format!("asked {nodes} nodes to take no more runs: `longhaul nodes` shows what they still hold\n"))?
    }
    Ok(Exit::Well)
}

/// `longhaul hold`.
pub(crate) async fn hold(args: &HoldArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.run.database.database).await?;
    client.hold(&args.run.id, &args.by, &args.reason).await?;
    held(as_json, &args.run.id, true, "its records are kept, and those of its whole tree")
}

/// `longhaul unhold`.
pub(crate) async fn unhold(args: &RunArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let held_before = client.release_hold(&args.id).await?;
    let text = if held_before { "its records go when their time is over" } else { "was not held" };
    held(as_json, &args.id, false, text)
}

fn held(as_json: bool, run: &str, held: bool, text: &str) -> Result<Exit, CliError> {
    if as_json {
        out::json(&json!({"run": run, "held": held}))?
    } else {
        out::text(&format!("run {run}: {text}\n"))?
    }
    Ok(Exit::Well)
}
