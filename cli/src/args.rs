//! What the command line says.

use crate::which::{FilterArgs, PageArgs};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

const EXIT_CODES: &str = "\
Exit codes:
  0    it is done, and all is well
  1    something was found: a failed run, a request paid twice, a broken rule, no run of that id, or it could not be done
       to some of the runs
  2    the command line or an input file is wrong
  3    the database or the provider cannot be reached or used
  4    the command itself broke
  130  interrupted

Environment:
  LONGHAUL_DATABASE_URL  the database, where --database does not name it
  RUST_LOG               what is logged to stderr (default: warn)";

/// Long work, run durably on Postgres.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, about, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// Print JSON: one value, on the last line of stdout.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything on this machine: a database, a local provider, workers, and one of them killed half-way.
    #[command(after_help = EXIT_CODES)]
    Demo(DemoArgs),
    /// A worker of the demo.
    #[command(hide = true)]
    DemoWorker(WorkerArgs),
    /// Serve a local provider that behaves as Anthropic's Message Batches API does, or OpenAI's Batch API.
    Sandbox(SandboxArgs),
    /// Bring the schema `longhaul` of a database up to this build.
    Migrate(DatabaseArgs),
    /// Look whether a server, a database and a role are fit for nodes. Exits with 1 when something is bad.
    #[command(after_help = EXIT_CODES)]
    Doctor(DatabaseArgs),
    /// Show how many runs there are of each status, totals of the batches, and the living nodes.
    Status(DatabaseArgs),
    /// List and show runs.
    Runs(RunsArgs),
    /// Print the ledger of a run.
    Events(EventsArgs),
    /// Say why a run, or a whole workflow, does not move, and what would move it.
    Explain(ExplainArgs),
    /// List what waiting runs wait for, and for how long already.
    Waits(WaitsArgs),
    /// List the open questions to people, the oldest first.
    Questions(QuestionsArgs),
    /// Answer what a run asks a person or another service; without an answer, show the question.
    Answer(AnswerArgs),
    /// End a run, or many, whatever they are doing.
    #[command(after_help = EXIT_CODES)]
    Cancel(ManyArgs),
    /// Set failed or parked runs going again from their last durable state.
    #[command(after_help = EXIT_CODES)]
    Retry(ManyArgs),
    /// Hold back runs that are runnable or owned, until they are retried.
    #[command(after_help = EXIT_CODES)]
    Park(ParkArgs),
    /// Stop claiming runs of a workflow; what nodes hold goes on until it next leaves them.
    Pause(PauseArgs),
    /// End the pause of a workflow.
    Resume(ResumeArgs),
    /// Set how many runs of a workflow may be worked on at a time, over all nodes.
    Limit(LimitArgs),
    /// Ask a node to take no more runs.
    Drain(DrainArgs),
    /// Keep the records of a run's tree, however long it has been over, until they are let go of.
    Hold(HoldArgs),
    /// Let go of records that are held.
    Unhold(RunArgs),
    /// List the latest batches, the newest first.
    Batches(BatchesArgs),
    /// List the living nodes, how many runs each holds, and whether it is draining.
    Nodes(DatabaseArgs),
    /// Sum up what answers cost: of everything, a run, a tree of branches, a workflow or an account.
    Costs(crate::money::CostsArgs),
    /// Say how much a run, a workflow or an account may spend.
    Budget(crate::money::BudgetArgs),
    /// List accounts at providers, and hold them back.
    Accounts(crate::money::AccountsArgs),
    /// Check the tables against the rules the engine keeps. Exits with 1 when one is broken.
    #[command(after_help = EXIT_CODES)]
    Audit(AuditArgs),
    /// Say whether the runs in flight could go on with other versions of their workflows, before those are deployed. Exits with
    /// 1 when one would be stuck.
    ///
    /// Manifests are the golden files of `longhaul::testing::check_manifest`. Names of steps are compared, and stored values are
    /// held against the schemas. What only the service itself can tell (whether an upgrade succeeds, types without a schema) is
    /// for a check of its own: `longhaul::Check`.
    #[command(after_help = EXIT_CODES)]
    Check(CheckArgs),
    /// Print a script that completes this command's words in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Which database.
#[derive(Debug, Args)]
pub(crate) struct DatabaseArgs {
    /// The database.
    #[arg(long, value_name = "URL", env = "LONGHAUL_DATABASE_URL", hide_env_values = true)]
    pub database: String,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// A server to make the demo's own database on; by default a private one is started.
    #[arg(long, value_name = "URL", env = "LONGHAUL_DATABASE_URL", hide_env_values = true)]
    pub database: Option<String>,
    /// How many runs; the input is repeated, under ids such as `1790-2` [default: one for each line].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub runs: Option<u32>,
    /// Workers that share the work; one more replaces the one that is killed.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub workers: u8,
    /// Texts of your own: one JSON object a line, with `text`, and if you like `id`, `year` and `title`.
    #[arg(long, value_name = "FILE.jsonl")]
    pub input: Option<PathBuf>,
    /// Leave database, provider and workers up until Ctrl-C, and say how to look at them.
    #[arg(long)]
    pub keep: bool,
    /// Break one rule on purpose before the audit (`list` prints the names).
    #[arg(long, value_name = "NAME")]
    pub plant: Option<String>,
    /// Ask you, at this terminal, what the workflow asks a person; otherwise a script answers.
    #[arg(long)]
    pub ask: bool,
    /// How long the provider takes for a batch.
    #[arg(long, value_name = "DURATION", default_value = "600ms", value_parser = duration)]
    pub processing: Duration,
    /// Have the provider misbehave: about a third of all its replies are wrong, cut, late or missing, in every way that it knows and
    /// that a client can get over by itself. Left out are `create_twin` and `create_twin_after_cut`: a create that is carried out
    /// twice is paid twice, whatever a client does.
    #[arg(long, value_name = "WHICH")]
    pub faults: Option<Faults>,
}

/// Which faults a demo has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Faults {
    /// All that heal.
    All,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// The provider's address.
    #[arg(long, value_name = "URL")]
    pub provider: String,
    /// What the node is called.
    #[arg(long)]
    pub name: String,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Speak OpenAI's Batch API instead of Anthropic's Message Batches.
    #[arg(long)]
    pub openai: bool,
    /// Misbehave in every way of which a patient client gets the better, mixed by this seed.
    #[arg(long, value_name = "SEED")]
    pub faults: Option<u64>,
    /// The port on 127.0.0.1; 0 takes any free one.
    #[arg(long, default_value_t = 8087)]
    pub port: u16,
    /// How long a batch is in progress.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub processing: Duration,
    /// The file of the paid ledger, which is appended to [default: a temporary one].
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    pub command: RunsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, the newest first.
    List(ListArgs),
    /// Show a run.
    Show(RunArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WaitsArgs {
    /// Of this workflow.
    #[arg(long, value_name = "NAME")]
    pub workflow: Option<String>,
    /// Of this kind.
    #[arg(long, value_name = "KIND", value_parser = crate::which::kinds())]
    pub kind: Option<longhaul::WaitKind>,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    pub run: RunArgs,
    /// Those of all branches below it as well, in the order of time.
    #[arg(long)]
    pub tree: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false, id = "what")]
pub(crate) struct Explained {
    /// The id that a run was enqueued under.
    pub id: Option<String>,
    /// A workflow, whatever its version.
    #[arg(long, value_name = "NAME")]
    pub workflow: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub what: Explained,
    #[command(flatten)]
    pub database: DatabaseArgs,
}

/// One run by its id, or many by a filter.
#[derive(Debug, Args)]
pub(crate) struct ManyArgs {
    /// The id that a run was enqueued under; without it, say which runs.
    pub id: Option<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Only count the runs that fit.
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Do it to all that fit.
    #[arg(long)]
    pub yes: bool,
    /// Do nothing if more than so many fit.
    #[arg(long, value_name = "N", requires = "yes")]
    pub expect: Option<u64>,
    /// Who says so, for the record.
    #[arg(long, value_name = "NAME", default_value = "operator")]
    pub by: String,
    #[command(flatten)]
    pub database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ParkArgs {
    #[command(flatten)]
    pub many: ManyArgs,
    /// Why, for whoever finds it parked.
    #[arg(long, value_name = "TEXT", default_value = "parked by an operator")]
    pub reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    pub run: RunArgs,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
    /// Who says so, for the record.
    #[arg(long, value_name = "NAME", default_value = "operator")]
    pub by: String,
}

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// The workflow, whatever its version.
    pub workflow: String,
    /// Why, for whoever asks why nothing moves.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
    /// Who says so, for the record.
    #[arg(long, value_name = "NAME", default_value = "operator")]
    pub by: String,
    #[command(flatten)]
    pub database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The workflow, whatever its version.
    pub workflow: String,
    /// Who says so, for the record.
    #[arg(long, value_name = "NAME", default_value = "operator")]
    pub by: String,
    #[command(flatten)]
    pub database: DatabaseArgs,
}

/// A ceiling, or `none`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most(pub Option<u32>);

#[derive(Debug, Args)]
pub(crate) struct LimitArgs {
    /// The workflow, whatever its version.
    pub workflow: String,
    /// How many, or `none`.
    #[arg(value_name = "N", value_parser = most)]
    pub most: Most,
    /// Who says so, for the record.
    #[arg(long, value_name = "NAME", default_value = "operator")]
    pub by: String,
    #[command(flatten)]
    pub database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// A node's name or id, as `longhaul nodes` prints them.
    pub node: String,
    /// Who says so, for the record.
    #[arg(long, value_name = "NAME", default_value = "operator")]
    pub by: String,
    #[command(flatten)]
    pub database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The id it was enqueued under.
    pub id: String,
    #[command(flatten)]
    pub database: DatabaseArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    #[command(flatten)]
    pub run: RunArgs,
    /// The answer, as JSON; a plain word is taken as a text.
    pub answer: Option<String>,
    /// The number of the question that is answered: a later one is not answered by mistake.
    #[arg(long, value_name = "N")]
    pub question: Option<i32>,
    /// Who answers, for the record.
    #[arg(long, value_name = "NAME", default_value = "operator")]
    pub by: String,
}

#[derive(Debug, Args)]
pub(crate) struct QuestionsArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// How many.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct BatchesArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// How many.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// The provider's own record of what it was paid for: one JSON object a line, as the sandbox writes it.
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// What the new build has, a file for each version of a workflow.
    #[arg(long, value_name = "FILE.json", required = true, num_args = 1..)]
    pub manifest: Vec<PathBuf>,
    /// Workflows without a file are run elsewhere: their runs would not be stuck.
    #[arg(long)]
    pub others_elsewhere: bool,
}

/// Reads a number or `none`.
fn most(text: &str) -> Result<Most, String> {
    match text {
        "none" => Ok(Most(None)),
        number => number.parse().map(|n| Most(Some(n))).map_err(|_| "write a number, or `none`".into()),
    }
}

/// Reads `800ms`, `2s`, `5m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let ms_per_unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("write a whole number and a unit: 800ms, 2s, 5m, 1h".into()),
    };
    let number: u64 = number.parse().map_err(|_| "write a whole number and a unit: 800ms, 2s, 5m, 1h")?;
    let ms = number.checked_mul(ms_per_unit).filter(|ms| *ms <= 7 * 24 * 3_600_000);
    ms.map(Duration::from_millis).ok_or_else(|| "at most a week".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("800ms"), Ok(Duration::from_millis(800)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "5", "ms", "-1s", "1.5s", "99999999999h", "1 s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
