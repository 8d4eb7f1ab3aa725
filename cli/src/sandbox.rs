//! `longhaul sandbox`: the local provider alone, until it is interrupted.

use crate::args::SandboxArgs;
use crate::error::{CliError, Exit};
use crate::{out, signals};
use longhaul_sandbox::provider::{Config, Dialect, PaidLedger, Sandbox, Script};
use serde_json::json;

pub(crate) async fn run(args: SandboxArgs, as_json: bool) -> Result<Exit, CliError> {
    let (config, dialect) = match args.openai {
        true => (Config::openai(), Dialect::OpenAi),
        false => (Config::default(), Dialect::Anthropic),
    };
    let mut config = config.port(args.port).processing(args.processing);
    if let Some(seed) = args.faults {
        config = config.script(Script::all(dialect, seed));
    }
    if let Some(ledger) = &args.ledger {
        config = config.ledger(ledger);
    }
    let sandbox = Sandbox::start(config).await?;
    let (url, ledger) = (sandbox.base_url(), sandbox.ledger_path().display().to_string());
    if as_json {
        out::json(&json!({"url": url, "ledger": ledger}))?;
    } else {
        out::text(&format!("provider  {url}  (any key; Ctrl-C ends it)\nledger    {ledger}\n"))?;
    }
    signals::interrupted().await?;
    if args.faults.is_some() {
        let fired: usize = sandbox.control().faults().iter().map(|rule| rule.fired).sum();
        eprintln!("faults: {fired} happened");
    }
    let paid = PaidLedger::summary(&PaidLedger::read(sandbox.ledger_path())?);
    sandbox.stop().await;
    let cost = i64::try_from(paid.nano_usd_batch + paid.nano_usd_live).unwrap_or(i64::MAX);
    let (items, twice) = (paid.items_paid, paid.logical_paid_twice);
    eprintln!("paid: {items} items, {}; requests paid more than once: {twice}", out::dollars(cost));
    Ok(Exit::Well)
}
