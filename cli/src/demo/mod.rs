//! `longhaul demo`: the main job of the library, on one machine, with a worker killed half-way.
//!
//! This process brings up a database ([`stage`]) and a local provider, starts workers as processes of their own
//! ([`fleet`], [`worker`]), and plays the story ([`story`]): some runs are completed; then, while the provider holds the reply
//! of a batch that it has accepted and the worker holds runs, that worker is killed with SIGKILL and another one starts.
//! Where the workflow asks a person, [`reviewer`] answers. When all runs are over, the tables are audited against the provider's own ledger of what it was paid for ([`figures`]),
//! and a report is printed ([`report`]).
//!
//! Whatever way this process ends in, nothing is left: the database goes with its keeper, and a worker ends when its
//! standard input does.

mod figures;
mod fleet;
mod input;
mod report;
mod reviewer;
mod speeches;
mod stage;
mod story;
mod teller;
pub(crate) mod worker;

use crate::args::DemoArgs;
use crate::error::{CliError, Exit};
use crate::{out, signals};
use figures::Figures;
use fleet::Fleet;
use input::Inputs;
use longhaul::Client;
use longhaul::store::audit_plant;
use reviewer::Reviewer;
use stage::Stage;
use story::Played;
use teller::Teller;

pub(crate) async fn run(args: DemoArgs, as_json: bool) -> Result<Exit, CliError> {
    if let Some(plant) = &args.plant {
        if plant == "list" {
            return list_plants(as_json);
        }
        if !audit_plant::names().contains(&plant.as_str()) {
            return Err(audit_plant::PlantError::Unknown(plant.clone()).into());
        }
    }
    let inputs = Inputs::load(args.input.as_deref(), args.runs)?;
    let teller = Teller::new(inputs.runs());
    let stage = tokio::select! {
        stage = Stage::raise(&args, &teller) => stage?,
        interrupted = signals::interrupted() => return interrupted.and(Err(CliError::Interrupted)),
    };
    let outcome = tokio::select! {
        outcome = perform(&args, &inputs, &stage, &teller, as_json) => outcome,
        interrupted = signals::interrupted() => interrupted.and(Err(CliError::Interrupted)),
    };
    teller.end();
    // What went wrong first is what is told.
    let lowered = stage.lower().await;
    let exit = outcome?;
    lowered?;
    Ok(exit)
}

fn list_plants(as_json: bool) -> Result<Exit, CliError> {
    let names = audit_plant::names();
    if as_json {
        out::json(&names)?
    } else {
        out::text(&format!("{}\n", names.join("\n")))?
    }
    Ok(Exit::Well)
}

async fn perform(
    args: &DemoArgs,
    inputs: &Inputs,
    stage: &Stage,
    teller: &Teller,
    as_json: bool,
) -> Result<Exit, CliError> {
    let client = Client::connect(&stage.database).await?;
    let mut fleet = Fleet::new(&stage.database, stage.sandbox.base_url(), teller.clone())?;
    let reviewer = Reviewer::new(&client, teller, args.ask)?;
    let answers = reviewer.answers();
    let played = tokio::select! {
        played = story::play(args, inputs, stage, &client, &mut fleet) => played?,
        error = reviewer.work() => return Err(error),
    };
    teller.end();
    if let (true, None) = (args.keep, &args.plant) {
        // The workers stay: the audit is as exact beside living nodes.
        fleet.settle().await;
    } else {
        fleet.shut_down().await?;
    }
    let (figures, audit) = figures::gather(args, stage, &client, &fleet, &played, answers.by()).await?;
    if as_json {
        out::json(&figures)?;
    } else {
        let samples = report::samples(&client, inputs).await?;
        out::text(&report::readable(&figures, &audit, &played, &samples, teller))?;
    }
    if args.keep {
        keep(stage, &fleet, &inputs.id(0)).await?;
        fleet.shut_down().await?;
    }
    Ok(verdict(&figures, &played))
}

fn verdict(figures: &Figures, played: &Played) -> Exit {
    let well = figures.completed == played.runs
        && figures.failed == 0
        && figures.items_paid_twice == 0
        && figures.audit_violations == 0;
    if well { Exit::Well } else { Exit::Finding }
}

async fn keep(stage: &Stage, fleet: &Fleet, example: &str) -> Result<(), CliError> {
    let (database, provider) = (&stage.database, stage.sandbox.base_url());
    let workers = match fleet.living() {
        0 => String::new(),
        n => format!(", and {n} worker{}", if n == 1 { "" } else { "s" }),
    };
    eprintln!(
        "
Still up, until Ctrl-C: the database, the provider{workers}. To look:
  export LONGHAUL_DATABASE_URL='{database}'
  longhaul status
  longhaul batches
  longhaul events '{example}'
  longhaul audit --ledger '{ledger}'
  psql \"$LONGHAUL_DATABASE_URL\"
  curl -H 'x-api-key: any' -H 'anthropic-version: 2023-06-01' {provider}/v1/messages/batches",
        ledger = stage.sandbox.ledger_path().display(),
    );
    signals::interrupted().await
}
