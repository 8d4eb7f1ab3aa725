//! The `longhaul` command: the demo, the local provider, and what operators need.
//!
//! Answers go to stdout, everything told on the way to stderr. Exit codes are those of [`error::Exit`], and `--help` prints
//! them. With `--json` the last line of stdout is one JSON value, also when the command fails: then an object with `error`
//! and `code`.
//!
//! Deliberately absent: SQL, and knowledge of the engine's inside. Whatever is shown here comes through the library's client.

mod act;
mod args;
mod audit;
mod bulk;
mod check;
mod control;
mod demo;
mod doctor;
mod error;
mod look;
mod migrate;
mod money;
mod out;
mod sandbox;
mod signals;
mod which;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use error::{CliError, Exit};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use tracing_subscriber::EnvFilter;

/// How long what still runs may take when the command is over.
const FAREWELL: Duration = Duration::from_millis(500);
/// What is logged unless `RUST_LOG` says otherwise: of sqlx, what is not told by our own errors anyway.
const LOGGED: &str = "warn,sqlx=error,sqlx_core=error";

fn main() -> ExitCode {
    let cli = Cli::parse();
    log();
    let json = cli.json;
    let result = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let result = runtime.block_on(dispatch(cli));
            runtime.shutdown_timeout(FAREWELL);
            result
        }
        Err(error) => Err(CliError::io("start the async runtime", error)),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("longhaul: {error}");
            if json {
                // There is nobody left to tell when stdout is closed.
                let _ = out::json(&serde_json::json!({"error": error.to_string(), "code": error.code()}));
            }
            error.exit().into()
        }
    }
}

fn log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(LOGGED));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
}

async fn dispatch(cli: Cli) -> Result<Exit, CliError> {
    let json = cli.json;
    match cli.command {
        Command::Demo(args) => demo::run(args, json).await,
        Command::DemoWorker(args) => demo::worker::run(args).await,
        Command::Sandbox(args) => sandbox::run(args, json).await,
        Command::Migrate(database) => migrate::run(&database, json).await,
        Command::Doctor(database) => doctor::run(&database, json).await,
        Command::Status(database) => look::status(&database, json).await,
        Command::Runs(args) => match args.command {
            args::RunsCommand::List(args) => look::list(&args, json).await,
            args::RunsCommand::Show(args) => look::run(&args, json).await,
        },
        Command::Events(args) => look::events(&args, json).await,
        Command::Explain(args) => act::explain(&args, json).await,
        Command::Answer(args) => act::answer(&args, json).await,
        Command::Questions(args) => look::questions(&args, json).await,
        Command::Waits(args) => look::waits(&args, json).await,
        Command::Cancel(args) => bulk::cancel(&args, json).await,
        Command::Retry(args) => bulk::retry(&args, json).await,
        Command::Park(args) => bulk::park(&args, json).await,
        Command::Pause(args) => control::pause(&args, json).await,
        Command::Resume(args) => control::resume(&args, json).await,
        Command::Limit(args) => control::limit(&args, json).await,
        Command::Drain(args) => control::drain(&args, json).await,
        Command::Hold(args) => control::hold(&args, json).await,
        Command::Unhold(args) => control::unhold(&args, json).await,
        Command::Batches(args) => look::batches(&args, json).await,
        Command::Nodes(database) => look::nodes(&database, json).await,
        Command::Costs(args) => money::costs(args, json).await,
        Command::Budget(args) => money::budget(args, json).await,
        Command::Accounts(args) => money::accounts(args, json).await,
        Command::Audit(args) => audit::run(&args, json).await,
        Command::Check(args) => check::run(&args, json).await,
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "longhaul", &mut script);
    out::text(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Well)
}
