//! `longhaul retry`, `cancel` and `park`: one run by its id, or many by a filter, counted first.

use crate::args::{ManyArgs, ParkArgs};
use crate::error::{CliError, Exit};
use crate::out::{self, thousands};
use crate::signals::interrupted;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul::{Bulk, BulkAction, Canceled, Client, Plan};
use serde_json::json;

/// `longhaul cancel`.
pub(crate) async fn cancel(args: &ManyArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let Some(id) = one(args)? else { return many(&client, BulkAction::Cancel, args, as_json).await };
    match client.cancel(id).await? {
        Canceled::Canceled(was) => done(as_json, id, "canceled", &format!("run {id} is canceled; it was {was}\n")),
        Canceled::AlreadyTerminal(status) => {
            done(as_json, id, status.as_str(), &format!("run {id} was over already: it is {status}\n"))
        }
    }
}

/// `longhaul retry`.
pub(crate) async fn retry(args: &ManyArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let Some(id) = one(args)? else { return many(&client, BulkAction::Retry, args, as_json).await };
    let status = client.retry(id).await?;
    done(as_json, id, status.as_str(), &format!("run {id} goes on: it is {status}\n"))
}

/// `longhaul park`.
pub(crate) async fn park(args: &ParkArgs, as_json: bool) -> Result<Exit, CliError> {
    let ParkArgs { many: args, reason } = args;
    let client = Client::connect(&args.database.database).await?;
    let Some(id) = one(args)? else { return many(&client, BulkAction::Park(reason.clone()), args, as_json).await };
    let was = client.park(id, &args.by, reason).await?;
    done(as_json, id, "parked", &format!("run {id} is parked; it was {was}\n"))
}

fn done(as_json: bool, run: &str, status: &str, text: &str) -> Result<Exit, CliError> {
    if as_json {
        out::json(&json!({"run": run, "status": status}))?
    } else {
        out::text(text)?
    }
    Ok(Exit::Well)
}

/// The one run that is meant; `None` when it is those of a filter.
fn one(args: &ManyArgs) -> Result<Option<&str>, CliError> {
    match (&args.id, args.filter.is_empty()) {
        (Some(id), true) => Ok(Some(id)),
        (None, false) => Ok(None),
        (Some(_), false) => Err(CliError::Usage("name one run, or say which runs: not both")),
        (None, true) => Err(CliError::Usage("name a run, or say which runs: --workflow, --status, --tag, ..")),
    }
}

async fn many(client: &Client, action: BulkAction, args: &ManyArgs, as_json: bool) -> Result<Exit, CliError> {
    let filter = args.filter.filter(client).await?;
    let bulk = client.bulk(action, &args.by, &filter).await?;
    let plan = bulk.plan().await?;
    if args.dry_run || !args.yes {
        return counted(plan, args, as_json);
    }
    if args.expect.is_some_and(|expected| plan.runs > expected) {
        return Err(longhaul::Error::BulkChanged { counted: args.expect.unwrap_or(0) }.into());
    }
    execute(&bulk, plan, as_json).await
}

/// The dry run's answer.
fn counted(plan: Plan, args: &ManyArgs, as_json: bool) -> Result<Exit, CliError> {
    if as_json {
        out::json(&json!({"dry_run": true, "runs": plan.runs}))?;
    } else {
        let runs = thousands(plan.runs);
        out::text(&format!("{runs} runs fit; nothing was done. To do it: --yes --expect {}\n", plan.runs))?;
    }
    Ok(if args.dry_run { Exit::Well } else { Exit::Usage })
}

async fn execute(bulk: &Bulk, plan: Plan, as_json: bool) -> Result<Exit, CliError> {
    let bar = ProgressBar::with_draw_target(Some(plan.runs), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {human_pos} of {human_len} runs, {eta} left") {
        bar.set_style(style);
    }
    let work = bulk.execute(plan, |outcomes| bar.set_position(outcomes.runs));
    let outcomes = tokio::select! {
        outcomes = work => outcomes,
        asked = interrupted() => {
            bar.finish_and_clear();
            asked?;
            tracing::warn!("what was done stays done; the same command again does the rest");
            return Err(CliError::Interrupted);
        }
    };
    bar.finish_and_clear();
    let outcomes = outcomes?;
    if as_json {
        out::json(&outcomes)?;
    } else {
        let mut text = format!("{} runs\n", thousands(outcomes.runs));
        for (verdict, runs) in &outcomes.verdicts {
            text.push_str(&format!("  {verdict:<16}{:>12}\n", thousands(*runs)));
        }
        out::text(&text)?;
    }
    Ok(if outcomes.done() == outcomes.runs { Exit::Well } else { Exit::Finding })
}
