//! How a batch comes to exist: at once, later, twice, and beside somebody else's.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;

use super::app::{App, locked};
use super::batch::{Batch, Item, Kind, Plan};
use super::canonical::sha256_seed;
use super::config::Dialect;
use super::faults::Fault;
use super::injector::Faults;
use super::openai;
use super::processor;

/// Takes a batch. Once this returns it exists, or will, whatever becomes of the reply; `shown` makes the reply of it.
pub(crate) fn accept<T>(
    app: &Arc<App>,
    items: Vec<Item>,
    kind: Kind,
    faults: &Faults,
    shown: impl FnOnce(&Batch) -> T,
) -> T {
    let lag = |fault: &Fault| if let Fault::ListLag(time) = fault { Some(*time) } else { None };
    let late = |fault: &Fault| if let Fault::LateCommit(time) = fault { Some(*time) } else { None };
    let plan = Plan { faults: faults.clone(), list_lag: faults.take(lag).unwrap_or_default(), foreign: false };
    if faults.has(&Fault::ForeignBatch) {
        foreign(app, count(&items, &kind));
    }
    let twin = faults.has(&Fault::Twin).then(|| (items.clone(), kind.clone(), plan.clone()));
    let late = faults.take(late);
    let batch = named(app, items, kind, plan);
    let reply = shown(&batch);
    commit(app, batch, late);
    if let Some((items, kind, plan)) = twin {
        let batch = named(app, items, kind, plan);
        commit(app, batch, late);
    }
    reply
}

/// Puts a batch of so many requests of somebody else into the workspace, and gives its id.
pub(crate) fn foreign(app: &Arc<App>, requests: usize) -> String {
    let (items, kind) = match app.config.dialect {
        Dialect::Anthropic => (foreign_items(requests), Kind::Anthropic(super::params::ApiVersion::Of2023)),
        Dialect::OpenAi => (Vec::new(), Kind::OpenAi(Box::new(openai::Details::foreign(app, requests)))),
    };
    let batch = named(app, items, kind, Plan { foreign: true, ..Plan::default() });
    let id = batch.id.clone();
    commit(app, batch, None);
    id
}

fn foreign_items(requests: usize) -> Vec<Item> {
    let params = r#"{"model":"claude-haiku-4-5","max_tokens":64,"messages":[{"role":"user","content":"Not yours."}]}"#;
    let params = Bytes::from_static(params.as_bytes());
    (0..requests).map(|n| Item { custom_id: format!("somebody-else-{n}"), params: params.clone() }).collect()
}

/// OpenAI's requests are in a file until the batch is validated.
fn count(items: &[Item], kind: &Kind) -> usize {
    match kind {
        Kind::Anthropic(_) => items.len(),
        Kind::OpenAi(details) => details.input_lines(),
    }
}

fn named(app: &App, items: Vec<Item>, kind: Kind, plan: Plan) -> Batch {
    let prefix = match app.config.dialect {
        Dialect::Anthropic => "msgbatch_",
        Dialect::OpenAi => "batch_",
    };
    let id = locked(&app.shelf).next_id(prefix, app.seed);
    Batch::new(id, items, kind, plan)
}

fn commit(app: &Arc<App>, batch: Batch, late: Option<Duration>) {
    let Some(late) = late else { return shelve(app, batch) };
    let app = Arc::clone(app);
    tokio::spawn(async move {
        let mut stopping = app.stopping.subscribe();
        tokio::select! {
            () = tokio::time::sleep(late) => shelve(&app, batch),
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    });
}

/// Puts the batch on the shelf and starts its clock.
fn shelve(app: &Arc<App>, batch: Batch) {
    let delay = app.config.processing.saturating_add(jitter(app, &batch.id));
    let (id, signals) = (batch.id.clone(), Arc::clone(&batch.signals));
    locked(&app.shelf).add(batch);
    app.shelved.send_modify(|shelved| *shelved += 1);
    processor::start(Arc::clone(app), id, delay, signals);
}

fn jitter(app: &App, id: &str) -> Duration {
    let at_most = u64::try_from(app.config.jitter.as_micros()).unwrap_or(u64::MAX - 1);
    Duration::from_micros(sha256_seed(id.as_bytes()) % (at_most + 1))
}
