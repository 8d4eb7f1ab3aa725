//! `longhaul runs show` and `longhaul events`.

use super::row;
use crate::args::{EventsArgs, RunArgs};
use crate::error::{CliError, Exit};
use crate::out;
use longhaul::Client;
use longhaul::store::{EventView, RunView};
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Debug, Serialize)]
pub(super) struct RunLine {
    id: String,
    workflow: String,
    version: u32,
    status: &'static str,
    step: String,
    waits_for: Option<WaitLine>,
    events: i32,
    errors: u32,
    owner: Option<String>,
    reason: Option<String>,
    created_at: String,
    finished_at: Option<String>,
    tags: Vec<String>,
    metadata: Option<Box<RawValue>>,
}

impl RunLine {
    /// A row of a list.
    pub(super) fn cells(&self) -> Vec<String> {
        let waits = self.waits_for.as_ref().filter(|_| self.status == "waiting");
        let waits = waits.map(|wait| format!("for {} ({})", wait.kind, wait.status));
        let remarks = waits.or_else(|| self.reason.clone()).unwrap_or_default();
        let workflow = format!("{} v{}", self.workflow, self.version);
        vec![self.id.clone(), workflow, self.status.into(), self.step.clone(), self.created_at.clone(), remarks]
    }
}

#[derive(Debug, Serialize)]
struct WaitLine {
    kind: &'static str,
    status: &'static str,
}

impl From<RunView> for RunLine {
    fn from(run: RunView) -> Self {
        Self {
            id: run.run_id,
            workflow: run.workflow,
            version: run.version,
            status: run.status.as_str(),
            step: run.step,
            waits_for: run.wait.map(|(kind, status)| WaitLine { kind: kind.as_str(), status: status.as_str() }),
            events: run.events,
            errors: run.errors,
            owner: run.owner.map(|owner| owner.to_string()),
            reason: run.reason,
            created_at: run.created_at.to_rfc3339(),
            finished_at: run.finished_at.map(|at| at.to_rfc3339()),
            tags: run.tags,
            metadata: run.metadata.and_then(|text| RawValue::from_string(text).ok()),
        }
    }
}

pub(crate) async fn run(args: &RunArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.database.database).await?;
    let run = RunLine::from(client.run(&args.id).await?);
    if as_json {
        out::json(&run)?
    } else {
        out::text(&readable(&run))?
    }
    Ok(Exit::Well)
}

fn readable(run: &RunLine) -> String {
    let mut text = format!("run {}\n", run.id);
    let mut line = |name: &str, value: &str| text.push_str(&format!("  {name:<12}{value}\n"));
    line("workflow", &format!("{} version {}", run.workflow, run.version));
    line("status", run.status);
    line("step", &run.step);
    if let (Some(wait), None) = (&run.waits_for, &run.finished_at) {
        line("waits for", &format!("{} ({})", wait.kind, wait.status));
    }
    line("events", &run.events.to_string());
    if run.errors > 0 {
        line("errors", &format!("{} in the present step", run.errors));
    }
    for (name, value) in [("held by", &run.owner), ("reason", &run.reason)] {
        if let Some(value) = value {
            line(name, value);
        }
    }
    if !run.tags.is_empty() {
        line("tags", &run.tags.join(", "));
    }
    if let Some(metadata) = &run.metadata {
        line("metadata", metadata.get());
    }
    line("enqueued", &run.created_at);
    if let Some(at) = &run.finished_at {
        line("finished", at);
    }
    text
}

#[derive(Debug, Serialize)]
struct EventLine<'a> {
    run: &'a str,
    ordinal: i32,
    r#type: &'static str,
    at: String,
    /// The ordinal of the event of this run that caused it, where that is not the one before.
    cause: Option<i32>,
    payload: &'a RawValue,
}

/// Events per page of a tree.
const PAGE: u32 = 5_000;

pub(crate) async fn events(args: &EventsArgs, as_json: bool) -> Result<Exit, CliError> {
    let client = Client::connect(&args.run.database.database).await?;
    let id = &args.run.id;
    let mut events: Vec<(String, EventView)> = Vec::new();
    if args.tree {
        let mut after = None;
        loop {
            let page = client.tree_events(id, after, PAGE).await?;
            events.extend(page.events);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    } else {
        events.extend(client.events(id).await?.into_iter().map(|event| (id.clone(), event)));
    }
    if as_json {
        let lines: Result<Vec<EventLine<'_>>, serde_json::Error> = events.iter().map(event).collect();
        out::json(&lines.map_err(|error| CliError::io("read the payload of an event", error.into()))?)?;
    } else {
        out::text(&listing(&events, args.tree))?;
    }
    Ok(Exit::Well)
}

fn event((run, event): &(String, EventView)) -> Result<EventLine<'_>, serde_json::Error> {
    Ok(EventLine {
        run,
        ordinal: event.id.ordinal,
        r#type: event.kind.as_str(),
        at: event.at.to_rfc3339(),
        cause: event.cause.map(|cause| cause.ordinal),
        payload: serde_json::from_str(&event.payload)?,
    })
}

fn listing(events: &[(String, EventView)], tree: bool) -> String {
    let mut rows = vec![row(&["no", "at", "event", "payload"])];
    rows.extend(events.iter().map(|(_, event)| {
        let at = event.at.format("%T%.3f").to_string();
        vec![event.id.ordinal.to_string(), at, event.kind.to_string(), event.payload.clone()]
    }));
    if tree {
        let runs = std::iter::once("run").chain(events.iter().map(|(run, _)| run.as_str()));
        rows.iter_mut().zip(runs).for_each(|(row, run)| row.insert(0, run.to_owned()));
    }
    out::table(&rows)
}
