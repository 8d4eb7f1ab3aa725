//! `longhaul status`.

use super::nodes::{NodeLine, listing, living};
use crate::args::DatabaseArgs;
use crate::error::{CliError, Exit};
use crate::out::{self, dollars, thousands};
use longhaul::Client;
use longhaul::store::{BatchTotals, Control, Counts, LiveTotals};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Status {
    runs: Counts,
    workflows: Vec<ControlLine>,
    batches: BatchTotals,
    live: LiveTotals,
    nodes: Vec<NodeLine>,
    /// What keeps requests from being sent, a sentence each.
    held_back: Vec<String>,
}

/// Accounts and providers that are held back, and budgets that hold requests.
async fn held_back(client: &Client) -> Result<Vec<String>, CliError> {
    let mut said = Vec::new();
    for a in client.accounts().await? {
        said.extend(a.parked.map(|why| format!("account {} is parked: {why}", a.id)));
    }
    for longhaul::Pause { of, by, why } in client.pauses().await? {
        said.push(match of {
            longhaul::Pausable::Provider(name) => format!("provider `{name}` is paused by {by}: {why}"),
            longhaul::Pausable::Account(id) => format!("account {id} is paused by {by}: {why}"),
        });
    }
    let budgets = client.budgets().await?;
    let full = budgets.iter().filter(|budget| budget.held > 0);
    said.extend(full.map(|budget| format!("{} requests are held: budget of {budget}", thousands(budget.held))));
    Ok(said)
}

/// What operators have said of a workflow.
#[derive(Debug, Serialize)]
struct ControlLine {
    workflow: String,
    paused_at: Option<String>,
    paused_by: Option<String>,
    paused_reason: Option<String>,
    max_running: Option<u32>,
    running: u64,
}

impl From<Control> for ControlLine {
    fn from(control: Control) -> Self {
        Self {
            workflow: control.workflow,
            paused_at: control.paused_at.map(|at| at.to_rfc3339()),
            paused_by: control.paused_by,
            paused_reason: control.paused_reason,
            max_running: control.max_running,
            running: control.running,
        }
    }
}

pub(crate) async fn status(args: &DatabaseArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database).await?;
    let (runs, batches) = (client.counts().await?, client.batch_totals().await?);
    let said = client.controls().await?.into_iter();
    let workflows = said.filter(|c| c.paused_at.is_some() || c.max_running.is_some()).map(ControlLine::from).collect();
    let (nodes, held_back) = (living(&client).await?, held_back(&client).await?);
    let live = client.live_totals().await?;
    let status = Status { runs, workflows, batches, live, nodes, held_back };
    if as_json {
        out::json(&status)?
    } else {
        out::text(&readable(&status))?
    }
    Ok(Exit::Well)
}

fn readable(status: &Status) -> String {
    let Counts { runnable, owned, waiting, parked, completed, failed, canceled } = status.runs;
    let runs = [
        ("runnable", runnable),
        ("owned", owned),
        ("waiting", waiting),
        ("parked", parked),
        ("completed", completed),
        ("failed", failed),
        ("canceled", canceled),
    ];
    let BatchTotals { batches, items, ambiguous_creates, adopted, late_duplicates, nano_usd, unpriced } =
        status.batches;
    let totals = [
        ("batches", batches),
        ("requests", items),
        ("in doubt", ambiguous_creates),
        ("found again", adopted),
        ("late answers", late_duplicates),
        ("without price", unpriced),
    ];
    let figures = |figures: &[(&str, i64)]| {
        let lines = figures.iter().map(|(name, n)| format!("  {name:<14}{:>12}\n", thousands(*n)));
        lines.collect::<String>()
    };
    let cost = format!("  {:<14}{:>12}\n", "cost", dollars(nano_usd));
    let back: String = status.held_back.iter().map(|why| format!("  {why}\n")).collect();
    let back = if back.is_empty() { back } else { format!("\nHeld back\n{back}") };
    let (runs, totals, nodes) = (figures(&runs), figures(&totals), listing(&status.nodes));
    let workflows = controls(&status.workflows);
    let live = live(&status.live);
    format!("Runs\n{runs}\n{workflows}Batches\n{totals}{cost}\n{live}Nodes\n{nodes}{back}")
}

/// Calls that are no part of a batch; nothing where there were none.
fn live(totals: &LiveTotals) -> String {
    let LiveTotals { calls, under_way, answered, superseded, refused, lost, nano_usd, unpriced } = *totals;
    if calls == 0 {
        return String::new();
    }
    let figures = [
        ("calls", calls),
        ("under way", under_way),
        ("answered", answered),
        ("of no use", superseded),
        ("refused", refused),
        ("lost", lost),
        ("without price", unpriced),
    ];
    let lines: String = figures.iter().map(|(name, n)| format!("  {name:<14}{:>12}\n", thousands(*n))).collect();
    format!("Live calls\n{lines}  {:<14}{:>12}\n\n", "cost", dollars(nano_usd))
}

/// Workflows that do not simply run.
fn controls(workflows: &[ControlLine]) -> String {
    let mut text = String::new();
    for control in workflows {
        let ControlLine { workflow, paused_at, paused_by, paused_reason, max_running, running } = control;
        if let (Some(at), Some(by), Some(why)) = (paused_at, paused_by, paused_reason) {
            text.push_str(&format!("  {workflow} is paused by {by} since {at}: {why}\n"));
        }
        if let Some(most) = max_running {
            text.push_str(&format!("  {workflow} has {running} of at most {most} runs at work\n"));
        }
    }
    if text.is_empty() { text } else { format!("Workflows\n{text}\n") }
}
