//! `longhaul runs list` and `longhaul waits`.

use super::row;
use super::runs::RunLine;
use crate::args::{ListArgs, WaitsArgs};
use crate::error::{CliError, Exit};
use crate::out;
use longhaul::store::WaitView;
use longhaul::{Client, Cursor, Filter};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Listed<T> {
    #[serde(flatten)]
    rows: T,
    /// Where the rest begins, if there is any.
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct Runs {
    runs: Vec<RunLine>,
}

#[derive(Debug, Serialize)]
struct Waits {
    waits: Vec<WaitLine>,
}

#[derive(Debug, Serialize)]
struct WaitLine {
    run: String,
    workflow: String,
    question: i32,
    kind: &'static str,
    status: &'static str,
    age_ms: i64,
    due_in_ms: Option<i64>,
    asks: Option<String>,
}

impl From<WaitView> for WaitLine {
    fn from(wait: WaitView) -> Self {
        Self {
            run: wait.run_id,
            workflow: wait.workflow,
            question: wait.question,
            kind: wait.kind.as_str(),
            status: wait.status.as_str(),
            age_ms: wait.age_ms,
            due_in_ms: wait.due_in_ms,
            asks: wait.asks,
        }
    }
}

pub(crate) async fn runs(args: &ListArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let filter = args.filter.filter(&client).await?;
    let (mut runs, mut next) = (Vec::new(), args.page.cursor()?);
    // A page may be short though there is more.
    loop {
        let page = client.list(&filter, next, args.page.limit - runs.len() as u32).await?;
        runs.extend(page.runs.into_iter().map(RunLine::from));
        next = page.next;
        if next.is_none() || runs.len() as u32 >= args.page.limit {
            break;
        }
    }
    if as_json {
        out::json(&Listed { rows: Runs { runs }, next: text(next) })?;
        return Ok(Exit::Well);
    }
    let mut rows = vec![row(&["run", "workflow", "status", "step", "enqueued", "remarks"])];
    rows.extend(runs.iter().map(RunLine::cells));
    out::text(&paged(&rows, "no run fits", next))?;
    Ok(Exit::Well)
}

pub(crate) async fn waits(args: &WaitsArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let mut filter = Filter::new();
    if let Some(workflow) = &args.workflow {
        filter = filter.workflow(workflow);
    }
    if let Some(kind) = args.kind {
        filter = filter.waits_for(kind);
    }
    let (mut waits, mut next) = (Vec::new(), args.page.cursor()?);
    loop {
        let page = client.waits(&filter, next, args.page.limit - waits.len() as u32).await?;
        waits.extend(page.waits.into_iter().map(WaitLine::from));
        next = page.next;
        if next.is_none() || waits.len() as u32 >= args.page.limit {
            break;
        }
    }
    if as_json {
        out::json(&Listed { rows: Waits { waits }, next: text(next) })?;
        return Ok(Exit::Well);
    }
    let mut rows = vec![row(&["run", "question", "kind", "status", "for", "over in", "asks"])];
    rows.extend(waits.iter().map(|wait| {
        let due = wait.due_in_ms.map(out::time).unwrap_or_default();
        let asks: String = wait.asks.iter().flat_map(|asks| asks.chars()).map(plain).take(60).collect();
        let question = wait.question.to_string();
        vec![wait.run.clone(), question, wait.kind.into(), wait.status.into(), out::time(wait.age_ms), due, asks]
    }));
    out::text(&paged(&rows, "nothing is waited for", next))?;
    Ok(Exit::Well)
}

/// A prompt on one line.
fn plain(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

fn text(next: Option<Cursor>) -> Option<String> {
    next.map(|next| next.to_string())
}

fn paged(rows: &[Vec<String>], none: &str, next: Option<Cursor>) -> String {
    let mut text = if rows.len() == 1 { format!("{none}\n") } else { out::table(rows) };
    if let Some(next) = next {
        text.push_str(&format!("there are more: --after {next}\n"));
    }
    text
}
