//! The calls that steer a sandbox over HTTP: what [`Control`] can do, for tests that are not written in Rust or run in another
//! process. They need no key, and are not counted among the requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;

use super::app::App;
use super::catalogue::NAMED;
use super::control::Control;
use super::faults::{Fault, Operation, Script, When};
use super::ledger::PaidLedger;
use super::wire::{ApiError, json, ok};

/// What their paths begin with.
pub(crate) const PREFIX: &str = "/sandbox/";

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/sandbox/faults", get(faults).post(inject).delete(clear))
        .route("/sandbox/faults/all", post(all))
        .route("/sandbox/faults/named", get(named))
        .route("/sandbox/release", post(release))
        .route("/sandbox/requests", get(requests))
        .route("/sandbox/batches", get(batches).post(foreign))
        .route("/sandbox/batches/{id}/finish", post(finish))
        .route("/sandbox/batches/{id}/archive", post(archive))
        .route("/sandbox/paid", get(paid))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Injection {
    operation: Operation,
    #[serde(default = "next")]
    when: When,
    fault: Fault,
}

fn next() -> When {
    When::Next
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct All {
    seed: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Foreign {
    requests: usize,
}

type Body<T> = Result<Json<T>, JsonRejection>;

fn refused(status: StatusCode, why: impl Into<String>) -> Response {
    json(status, &json!({"error": why.into()}))
}

/// Writes the body of an error that no handler here has made.
pub(crate) fn completed(response: Response) -> Response {
    match response.extensions().get::<ApiError>() {
        Some(error) => refused(error.status, &*error.message),
        None => response,
    }
}

async fn faults(State(app): State<Arc<App>>) -> Response {
    ok(&Control::new(app).faults())
}

async fn inject(State(app): State<Arc<App>>, body: Body<Injection>) -> Response {
    match body {
        Ok(Json(Injection { operation, when, fault })) => {
            let control = Control::new(app);
            control.inject(operation, when, fault);
            ok(&control.faults().last())
        }
        Err(error) => refused(error.status(), error.body_text()),
    }
}

async fn clear(State(app): State<Arc<App>>) -> Response {
    let control = Control::new(app);
    control.clear();
    ok(&control.faults())
}

async fn all(State(app): State<Arc<App>>, body: Body<All>) -> Response {
    match body {
        Ok(Json(All { seed })) => {
            let script = Script::all(app.config.dialect, seed);
            let control = Control::new(app);
            control.play(&script);
            ok(&control.faults())
        }
        Err(error) => refused(error.status(), error.body_text()),
    }
}

async fn named(State(app): State<Arc<App>>) -> Response {
    let dialect = app.config.dialect;
    let named = NAMED.iter().filter(|named| named.is_of(dialect)).map(|named| {
        json!({"name": named.name, "operation": named.operation, "faults": named.faults(), "heals": named.heals})
    });
    ok(&named.collect::<Vec<_>>())
}

async fn release(State(app): State<Arc<App>>) -> Response {
    Control::new(app).release_all();
    ok(&json!({}))
}

async fn requests(State(app): State<Arc<App>>) -> Response {
    let control = Control::new(app);
    let counts = Operation::ALL.map(|operation| {
        let counts = json!({"seen": control.seen(operation), "served": control.served(operation)});
        (json!(operation).as_str().unwrap_or_default().to_owned(), counts)
    });
    ok(&BTreeMap::from(counts))
}

async fn batches(State(app): State<Arc<App>>) -> Response {
    ok(&Control::new(app).batches())
}

async fn foreign(State(app): State<Arc<App>>, body: Body<Foreign>) -> Response {
    match body {
        Ok(Json(Foreign { requests })) if (1..=app.config.max_requests).contains(&requests) => {
            ok(&json!({"id": Control::new(app).foreign_batch(requests)}))
        }
        Ok(_) => refused(StatusCode::BAD_REQUEST, format!("requests: from 1 to {}", app.config.max_requests)),
        Err(error) => refused(error.status(), error.body_text()),
    }
}

async fn finish(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    let control = Control::new(app);
    let finished = control.finish(&id);
    if finished {
        control.wait_ended(&id).await;
    }
    ok(&json!({"finished": finished}))
}

async fn archive(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    ok(&json!({"archived": Control::new(app).archive(&id)}))
}

async fn paid(State(app): State<Arc<App>>) -> Response {
    match PaidLedger::read(app.ledger.path()) {
        Ok(items) => ok(&json!({"summary": PaidLedger::summary(&items), "items": items})),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
