//! The routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, delete, get, post};

use super::app::App;
use super::config::Dialect;
use super::faults::Operation;
use super::layer::faulty;
use super::wire::ApiError;
use super::{auth, batches, create, live, openai, remote, results};

/// A handler with the layer that carries out the faults of its operation.
pub(crate) fn on(app: &Arc<App>, operation: Operation, handler: MethodRouter<Arc<App>>) -> MethodRouter<Arc<App>> {
    handler.route_layer(from_fn_with_state((Arc::clone(app), operation), faulty))
}

pub(crate) fn router(app: &Arc<App>) -> Router {
    let routes = match app.config.dialect {
        Dialect::Anthropic => anthropic(app),
        Dialect::OpenAi => openai::routes(app),
    };
    routes
        .fallback(async || ApiError::not_found("Not Found"))
        .method_not_allowed_fallback(async || ApiError::of(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"))
        .merge(remote::routes())
        // Bodies are measured where they are read.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::clone(app), auth::layer))
        .with_state(Arc::clone(app))
}

fn anthropic(app: &Arc<App>) -> Router<Arc<App>> {
    let on = |operation, handler| on(app, operation, handler);
    let batches = on(Operation::Create, post(create::create)).merge(on(Operation::List, get(batches::list)));
    let batch = on(Operation::Retrieve, get(batches::retrieve)).merge(on(Operation::Delete, delete(batches::delete)));
    Router::new()
        .route("/v1/messages", on(Operation::Live, post(live::create)))
        .route("/v1/messages/batches", batches)
        .route("/v1/messages/batches/{id}", batch)
        .route("/v1/messages/batches/{id}/cancel", on(Operation::Cancel, post(batches::cancel)))
        .route("/v1/messages/batches/{id}/results", on(Operation::Results, get(results::results)))
}
