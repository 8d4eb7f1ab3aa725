//! Money and accounts: `longhaul costs`, `budget`, `accounts`.

use crate::args::DatabaseArgs;
use crate::error::{CliError, Exit};
use crate::out::{self, dollars, thousands};
use chrono::NaiveDate;
use clap::{Args, Subcommand, ValueEnum};
use longhaul::{Budget, Client, Costs, CostsOf, Pausable, Period, Spender};
use serde_json::json;

#[derive(Debug, Args)]
pub(crate) struct CostsArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    #[command(flatten)]
    pub of: CostsOfArgs,
    /// From the beginning of this day on, by UTC.
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub since: Option<NaiveDate>,
}

/// Whose costs: by default everything.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct CostsOfArgs {
    /// One run, without its branches.
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
    /// The run at the top of this run's tree, with all branches.
    #[arg(long, value_name = "ID")]
    pub root: Option<String>,
    /// All runs of a workflow.
    #[arg(long, value_name = "NAME")]
    pub workflow: Option<String>,
    /// All that was sent for an account.
    #[arg(long, value_name = "ID")]
    pub account: Option<i32>,
    /// All runs that were enqueued with a tag, with all their branches.
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BudgetArgs {
    #[command(subcommand)]
    pub command: BudgetCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BudgetCommand {
    /// Show all budgets, and how far they are used up.
    Show(DatabaseArgs),
    /// Set or change a budget. Requests that it has no room for are held until it has.
    Set(SetArgs),
    /// Take a budget away, and let go of what it held.
    Clear(ClearArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// How much, in dollars, such as 2.50.
    #[arg(value_name = "DOLLARS", value_parser = nano_dollars)]
    pub limit: i64,
    #[command(flatten)]
    pub of: BudgetOfArgs,
    /// Hold requests whose price is not known; they pass otherwise, and are in no sum.
    #[arg(long)]
    pub priced_only: bool,
    /// Who sets it, for the record.
    #[arg(long, value_name = "NAME", default_value = "operator")]
    pub by: String,
    #[command(flatten)]
    pub database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ClearArgs {
    #[command(flatten)]
    pub of: BudgetOfArgs,
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Who does it, for the record.
    #[arg(long, value_name = "NAME", default_value = "operator")]
    pub by: String,
}

/// Whose budget, and for how long.
#[derive(Debug, Args)]
pub(crate) struct BudgetOfArgs {
    #[command(flatten)]
    pub spender: SpenderArgs,
    /// How long it lasts; days and months by UTC.
    #[arg(long, value_enum, default_value_t = Per::Total)]
    pub per: Per,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct SpenderArgs {
    /// A run with all its branches.
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
    /// All runs of a workflow.
    #[arg(long, value_name = "NAME")]
    pub workflow: Option<String>,
    /// An account, by the id that `longhaul accounts` shows.
    #[arg(long, value_name = "ID")]
    pub account: Option<i32>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Per {
    Total,
    Day,
    Month,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct AccountsArgs {
    #[command(subcommand)]
    pub command: Option<AccountsCommand>,
    #[command(flatten)]
    pub database: Option<DatabaseArgs>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccountsCommand {
    /// List accounts: who sends for them, what holds them back, what they have spent.
    List(DatabaseArgs),
    /// Send nothing for an account, or a provider, until it is resumed.
    Pause(PauseArgs),
    /// End a pause; of an account also its being parked.
    Resume(ResumeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub of: PausableArgs,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT")]
    pub why: String,
    /// Who, for the record.
    #[arg(long, value_name = "NAME", default_value = "operator")]
    pub by: String,
    #[command(flatten)]
    pub database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub of: PausableArgs,
    #[command(flatten)]
    pub database: DatabaseArgs,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PausableArgs {
    /// The account.
    #[arg(value_name = "ID")]
    pub account: Option<i32>,
    /// A provider instead, by the name that nodes have it under.
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
}

/// `longhaul costs`.
pub(crate) async fn costs(args: CostsArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let CostsOfArgs { run, root, workflow, account, tag } = args.of;
    let of = (run.map(CostsOf::Run))
        .or(root.map(CostsOf::Root))
        .or(workflow.map(CostsOf::Workflow))
        .or(account.map(CostsOf::Account))
        .or(tag.map(CostsOf::Tag))
        .unwrap_or_default();
    let report = client.costs(Costs { of, since: args.since }).await?;
    if as_json {
        out::json(&report)?;
        return Ok(Exit::Well);
    }
    let head = ["workflow", "account", "model", "answers", "cost", "unused", "for", "unpriced", "in", "out", "cached"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut line = |names: [String; 3], s: &longhaul::CostSums| {
        let figures = [
            thousands(s.items),
            dollars(s.nano_usd),
            thousands(s.unused),
            dollars(s.unused_nano_usd),
            thousands(s.unpriced),
            thousands(s.input_tokens + s.cache_write_tokens),
            thousands(s.output_tokens),
            thousands(s.cache_read_tokens),
        ];
        rows.push(names.into_iter().chain(figures).collect());
    };
    for l in &report.lines {
        line([l.workflow.clone(), l.account.to_string(), l.model.clone()], &l.sums);
    }
    line(["total".into(), String::new(), String::new()], &report.total);
    out::text(&out::table(&rows))?;
    Ok(Exit::Well)
}

/// `longhaul budget`.
pub(crate) async fn budget(args: BudgetArgs, as_json: bool) -> Result<Exit, CliError> {
    match args.command {
        BudgetCommand::Show(database) => {
            let views = Client::connect(&database.database).await?.budgets().await?;
            if as_json {
                out::json(&views)?;
            } else if views.is_empty() {
                out::text("there is no budget\n")?;
            } else {
                let lines = views.iter().map(|view| format!("{view}; {} requests are held\n", thousands(view.held)));
                out::text(&lines.collect::<String>())?;
            }
        }
        BudgetCommand::Set(args) => {
            let client = Client::connect(&args.database.database).await?;
            let (of, period) = args.of.read();
            let budget = Budget { of, period, limit_nano_usd: args.limit, unpriced: !args.priced_only };
            client.set_budget(&budget, &args.by).await?;
            said(as_json, &budget, format!("the budget of {} is set to {}\n", budget.of, dollars(args.limit)))?;
        }
        BudgetCommand::Clear(args) => {
            let client = Client::connect(&args.database.database).await?;
            let (of, period) = args.of.read();
            let cleared = client.clear_budget(&of, period, &args.by).await?;
            let text = if cleared { "is none any more" } else { "was none" };
            said(as_json, &json!({"cleared": cleared}), format!("the budget of {of} {text}\n"))?;
        }
    }
    Ok(Exit::Well)
}

impl BudgetOfArgs {
    fn read(self) -> (Spender, Period) {
        let SpenderArgs { run, workflow, account } = self.spender;
        let of = match (run, workflow, account) {
            (Some(id), ..) => Spender::Run(id),
            (_, Some(name), _) => Spender::Workflow(name),
            // One of the three is required.
            (.., account) => Spender::Account(account.unwrap_or_default()),
        };
        let period = match self.per {
            Per::Total => Period::Total,
            Per::Day => Period::Day,
            Per::Month => Period::Month,
        };
        (of, period)
    }
}

/// `longhaul accounts`.
pub(crate) async fn accounts(args: AccountsArgs, as_json: bool) -> Result<Exit, CliError> {
    match (args.command, args.database) {
        (Some(AccountsCommand::List(database)), _) | (None, Some(database)) => list(&database, as_json).await?,
        // Without a subcommand the database is required.
        (None, None) => {}
        (Some(AccountsCommand::Pause(args)), _) => {
            let client = Client::connect(&args.database.database).await?;
            let (of, name) = args.of.read();
            client.pause_sends(&of, &args.by, &args.why).await?;
            said(as_json, &json!({"paused": of}), format!("{name} is paused\n"))?;
        }
        (Some(AccountsCommand::Resume(args)), _) => {
            let client = Client::connect(&args.database.database).await?;
            let (of, name) = args.of.read();
            let resumed = client.resume_sends(&of).await?;
            let text = if resumed { "goes on" } else { "was neither paused nor parked" };
            said(as_json, &json!({"resumed": resumed}), format!("{name} {text}\n"))?;
        }
    }
    Ok(Exit::Well)
}

impl PausableArgs {
    fn read(self) -> (Pausable, String) {
        match (self.account, self.provider) {
            (_, Some(name)) => (Pausable::Provider(name.clone()), format!("provider `{name}`")),
            (account, None) => {
                let id = account.unwrap_or_default();
                (Pausable::Account(id), format!("account {id}"))
            }
        }
    }
}

async fn list(database: &DatabaseArgs, as_json: bool) -> Result<(), CliError> {
    let client = Client::connect(&database.database).await?;
    let accounts = client.accounts().await?;
    if as_json {
        return out::json(&accounts);
    }
    let head = ["account", "provider", "at", "workspace", "sender", "batches", "today", "this month", "held back"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for a in accounts {
        let waits = a.not_before.map(|at| format!("asked to wait until {}", at.format("%F %T UTC")));
        let parked = a.parked.map(|why| format!("parked: {why}"));
        let paused = a.paused.map(|why| format!("paused: {why}"));
        let back: Vec<String> = [parked, paused, waits].into_iter().flatten().collect();
        rows.push(vec![
            a.id.to_string(),
            a.provider.unwrap_or(a.kind),
            a.base_url,
            a.workspace,
            a.sender.unwrap_or_else(|| "nobody".into()),
            thousands(a.batches),
            dollars(a.spent_today),
            dollars(a.spent_this_month),
            back.join("; "),
        ]);
    }
    out::text(&out::table(&rows))
}

fn said(as_json: bool, value: &impl serde::Serialize, text: String) -> Result<(), CliError> {
    if as_json { out::json(value) } else { out::text(&text) }
}

/// Dollars as nano-dollars, exactly.
fn nano_dollars(text: &str) -> Result<i64, String> {
    const RULE: &str = "write dollars with at most 9 decimals: 5, 2.50, 0.000001";
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || decimals.len() > 9 || !digits(whole) || !digits(decimals) {
        return Err(RULE.into());
    }
    format!("{whole}{decimals:0<9}").parse().map_err(|_| "that is too much".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_read_exactly() {
        assert_eq!(nano_dollars("2.50"), Ok(2_500_000_000));
        assert_eq!(nano_dollars("0.000000001"), Ok(1));
        assert_eq!(nano_dollars("7"), Ok(7_000_000_000));
        for bad in ["", ".5", "-1", "1e9", "0.0000000001", "1,000", "99999999999999"] {
            assert!(nano_dollars(bad).is_err(), "{bad}");
        }
    }
}
