//! What an operator does to a run: `explain`, `answer`, `cancel`, `retry`.

use crate::args::{AnswerArgs, RunArgs};
use crate::error::{CliError, Exit};
use crate::out;
use longhaul::{Canceled, Client};
use serde_json::json;

/// `longhaul explain`.
pub(crate) async fn explain(args: &RunArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let why = client.explain(&args.id).await?;
    if as_json {
        out::json(&why)?
    } else {
        out::text(&why.to_string())?
    }
    Ok(Exit::Well)
}

/// `longhaul answer`. Without an answer it shows the question.
pub(crate) async fn answer(args: &AnswerArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.run.database.database).await?;
    let id = &args.run.id;
    let Some(text) = &args.answer else {
        let question = client.question(id).await?;
        if as_json {
            out::json(&question)?
        } else {
            out::text(&format!("{question:#}\n"))?
        }
        return Ok(Exit::Well);
    };
    // A word without quotes is meant as a text.
    let answer = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    client.answer(id, &args.by, &answer).await?;
    done(as_json, id, "answered", format!("run {id} has its answer\n"))
}

/// `longhaul cancel`.
pub(crate) async fn cancel(args: &RunArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let id = &args.id;
    match client.cancel(id).await? {
        Canceled::Canceled(was) => done(as_json, id, "canceled", format!("run {id} is canceled; it was {was}\n")),
        Canceled::AlreadyTerminal(status) => {
            done(as_json, id, status.as_str(), format!("run {id} was over already: it is {status}\n"))
        }
    }
}

/// `longhaul retry`.
pub(crate) async fn retry(args: &RunArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let status = client.retry(&args.id).await?;
    done(as_json, &args.id, status.as_str(), format!("run {} goes on: it is {status}\n", args.id))
}

fn done(as_json: bool, run: &str, status: &str, text: String) -> Result<Exit, CliError> {
    if as_json {
        out::json(&json!({"run": run, "status": status}))?
    } else {
        out::text(&text)?
    }
    Ok(Exit::Well)
}
