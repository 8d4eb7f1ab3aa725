//! The routes, and the layer around each that carries out faults.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};

use super::app::App;
use super::faults::{Fault, Operation};
use super::serve::Cut;
use super::wire::{ApiError, drain, set};
use super::{auth, batches, create, live, results};

/// In a response's extensions: the id of the batch it is about.
#[derive(Clone)]
pub(crate) struct About(pub(crate) String);

/// In a request's extensions: the faults that it meets.
#[derive(Clone)]
pub(crate) struct Faults(pub(crate) Arc<[Fault]>);

pub(crate) fn router(app: &Arc<App>) -> Router {
    let on = |operation, handler: MethodRouter<Arc<App>>| {
        handler.route_layer(from_fn_with_state((Arc::clone(app), operation), faulty))
    };
    let batches = on(Operation::Create, post(create::create)).merge(on(Operation::List, get(batches::list)));
    let batch = on(Operation::Retrieve, get(batches::retrieve)).merge(on(Operation::Delete, delete(batches::delete)));
    Router::new()
        .route("/v1/messages", on(Operation::Live, post(live::create)))
        .route("/v1/messages/batches", batches)
        .route("/v1/messages/batches/{id}", batch)
        .route("/v1/messages/batches/{id}/cancel", on(Operation::Cancel, post(batches::cancel)))
        .route("/v1/messages/batches/{id}/results", on(Operation::Results, get(results::results)))
        .fallback(async || ApiError::not_found("Not Found"))
        .method_not_allowed_fallback(async || ApiError::of(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"))
        .layer(from_fn_with_state(Arc::clone(app), auth::layer))
        .with_state(Arc::clone(app))
}

/// Refuses, or lets the request take effect and then spoils the reply.
async fn faulty(State((app, operation)): State<(Arc<App>, Operation)>, mut request: Request, next: Next) -> Response {
    let faults: Arc<[Fault]> = app.injector.arrived(operation).into();
    let cut = request.extensions().get::<Cut>().cloned();
    if let Some(refusal) = faults.iter().find_map(refusal) {
        drain(request.into_body()).await;
        app.injector.served(operation);
        return match (refusal, cut) {
            (Refusal::Cut, Some(cut)) => cut.now().await,
            (Refusal::Cut, None) => ApiError::of(StatusCode::INTERNAL_SERVER_ERROR, "cut").into_response(),
            (Refusal::Reply(response), _) => response,
        };
    }
    request.extensions_mut().insert(Faults(Arc::clone(&faults)));
    // Made before the request takes effect, so that whoever has seen the effect can release the reply.
    let held = faults.contains(&Fault::Hold).then(|| app.injector.gate_of_hold());
    let response = next.run(request).await;
    let accepted = operation == Operation::Create && response.status().is_success();
    let next_create = accepted.then(|| app.injector.gate_of_create()).flatten();
    app.injector.served(operation);
    let about = response.extensions().get::<About>().map(|about| about.0.clone()).unwrap_or_default();
    for gate in next_create.into_iter().chain(held) {
        gate.hold(about.clone()).await;
    }
    let failed =
        faults.iter().find_map(|fault| if let Fault::AcceptThenStatus(code) = fault { Some(*code) } else { None });
    match (cut.filter(|_| faults.contains(&Fault::AcceptThenCut)), failed) {
        (Some(cut), _) => cut.now().await,
        (None, Some(code)) => status(code, None, &[]),
        (None, None) => response,
    }
}

enum Refusal {
    Cut,
    Reply(Response),
}

fn refusal(fault: &Fault) -> Option<Refusal> {
    match fault {
        Fault::Cut => Some(Refusal::Cut),
        Fault::Status { code, body, headers } => Some(Refusal::Reply(status(*code, body.as_deref(), headers))),
        Fault::NotFoundFlap => Some(Refusal::Reply(ApiError::not_found("Not found").into_response())),
        Fault::AcceptThenCut
        | Fault::AcceptThenStatus(_)
        | Fault::Hold
        | Fault::ListLag(_)
        | Fault::Expire { .. }
        | Fault::ErrorItems { .. }
        | Fault::FinishBeforeCancel(_)
        | Fault::CutResultsAt(_)
        | Fault::EndResultsAt(_)
        | Fault::MissingLines(_)
        | Fault::DuplicateLines
        | Fault::BadLine(..) => None,
    }
}

fn status(code: u16, body: Option<&str>, headers: &[(String, String)]) -> Response {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match body {
        Some(body) => (status, [(header::CONTENT_TYPE, "application/json")], body.to_owned()).into_response(),
        None => ApiError::of(status, message_of(code)).into_response(),
    };
    for (name, value) in headers {
        if let Ok(name) = HeaderName::try_from(name.as_str()) {
            set(&mut response, name, value);
        }
    }
    response
}

fn message_of(code: u16) -> &'static str {
    match code {
        429 => "This request would exceed your organization's rate limit",
        529 => "Overloaded",
        504 => "Request timed out",
        500.. => "Internal server error",
        _ => "The request was refused",
    }
}
