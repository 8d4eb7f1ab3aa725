//! `longhaul questions`.

use super::row;
use crate::args::QuestionsArgs;
use crate::error::{CliError, Exit};
use crate::out;
use longhaul::Client;

pub(crate) async fn questions(args: &QuestionsArgs, as_json: bool) -> Result<Exit, CliError> {
    let questions = Client::connect(&args.database.database).await?.questions(args.limit).await?;
    if as_json {
        out::json(&questions)?;
        return Ok(Exit::Well);
    }
    if questions.is_empty() {
        out::text("nobody is asked anything\n")?;
        return Ok(Exit::Well);
    }
    let mut rows = vec![row(&["run", "asked", "until", "question"])];
    rows.extend(questions.iter().map(|question| {
        let time = |at: &dyn std::fmt::Display| at.to_string().chars().take(19).collect::<String>();
        let until = question.until.as_ref().map_or_else(|| "-".to_owned(), |until| time(until));
        let prompt = question.asked["prompt"].as_str().unwrap_or_default();
        vec![question.run.clone(), time(&question.asked_at), until, prompt.to_owned()]
    }));
    out::text(&out::table(&rows))?;
    Ok(Exit::Well)
}
