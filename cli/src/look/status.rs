//! `longhaul status`.

use super::nodes::{NodeLine, listing, living};
use crate::args::DatabaseArgs;
use crate::error::{CliError, Exit};
use crate::out::{self, dollars, thousands};
use longhaul::Client;
use longhaul::store::{BatchTotals, Counts};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Status {
    runs: Counts,
    batches: BatchTotals,
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

pub(crate) async fn status(args: &DatabaseArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database).await?;
    let (runs, batches) = (client.counts().await?, client.batch_totals().await?);
    let status = Status { runs, batches, nodes: living(&client).await?, held_back: held_back(&client).await? };
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
    format!("Runs\n{}\nBatches\n{}{cost}\nNodes\n{}{back}", figures(&runs), figures(&totals), listing(&status.nodes))
}
