//! What an operator asks of a run, or answers it: `explain`, `answer`.

use crate::args::{AnswerArgs, ExplainArgs};
use crate::error::{CliError, Exit};
use crate::out;
use longhaul::Client;
use serde_json::json;

/// `longhaul explain`.
pub(crate) async fn explain(args: &ExplainArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    if let Some(workflow) = &args.what.workflow {
        let why = client.explain_workflow(workflow).await?;
        if as_json {
            out::json(&why)?
        } else {
            out::text(&why.to_string())?
        }
        return Ok(Exit::Well);
    }
    let why = client.explain(args.what.id.as_deref().unwrap_or_default()).await?;
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
    match args.question {
        Some(question) => client.answer_question(id, question, &args.by, &answer).await?,
        None => client.answer(id, &args.by, &answer).await?,
    }
    done(as_json, id, "answered", format!("run {id} has its answer\n"))
}

fn done(as_json: bool, run: &str, status: &str, text: String) -> Result<Exit, CliError> {
    if as_json {
        out::json(&json!({"run": run, "status": status}))?
    } else {
        out::text(&text)?
    }
    Ok(Exit::Well)
}
