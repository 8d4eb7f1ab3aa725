//! OpenAI's Batch API: files, batches, Chat Completions and Responses.
//!
//! A batch is made of an uploaded file. It is `validating` first: what is wrong with the file, or the limit of enqueued
//! tokens, makes it `failed` after the create was answered with 200. Its results are two files, of the requests that succeeded
//! and of all others. `metadata` comes back with each batch, also in the list.
//!
//! A responder sees each request in the form of Messages, with `system`, `messages`, `tools` and `max_tokens`.
//!
//! **Deliberately absent.** Other endpoints than the two, multi-part answers (`n`), and the sizes and names of other purposes
//! than `batch`. The codes in `errors` are those seen in reports, not a documented list.

mod batches;
mod details;
mod files;
mod live;
mod requests;
mod said;
mod validate;

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post};
use serde_json::{Value, json};

use super::app::App;
use super::faults::Operation;
use super::routes::on;
use super::wire::ApiError;

pub(crate) use details::{Details, finalizing, publish, withdraw};
pub(crate) use files::Files;
pub(crate) use requests::judge;
pub(crate) use said::line;
pub(crate) use validate::validate;

pub(crate) fn routes(app: &Arc<App>) -> Router<Arc<App>> {
    let on = |operation, handler| on(app, operation, handler);
    let files = on(Operation::Upload, post(files::upload)).merge(on(Operation::Files, get(files::list)));
    let file = on(Operation::Files, get(files::retrieve)).merge(on(Operation::Delete, delete(files::delete)));
    let batches = on(Operation::Create, post(batches::create)).merge(on(Operation::List, get(batches::list)));
    Router::new()
        .route("/v1/files", files)
        .route("/v1/files/{id}", file)
        .route("/v1/files/{id}/content", on(Operation::Results, get(files::content)))
        .route("/v1/batches", batches)
        .route("/v1/batches/{id}", on(Operation::Retrieve, get(batches::retrieve)))
        .route("/v1/batches/{id}/cancel", on(Operation::Cancel, post(batches::cancel)))
        .route("/v1/chat/completions", on(Operation::Live, post(live::chat_completions)))
        .route("/v1/responses", on(Operation::Live, post(live::responses)))
}

/// The endpoints that a batch can be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    ChatCompletions,
    Responses,
}

impl Endpoint {
    pub(crate) fn parse(path: &str) -> Option<Self> {
        [Self::ChatCompletions, Self::Responses].into_iter().find(|endpoint| endpoint.path() == path)
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
        }
    }
}

/// The body of an error reply.
pub(crate) fn error_body(error: &ApiError) -> Value {
    let (kind, code) = match (error.status.as_u16(), error.code) {
        (_, Some("insufficient_quota")) => ("insufficient_quota", error.code),
        (401, None) => ("invalid_request_error", Some("invalid_api_key")),
        (429, code) => ("requests", code.or(Some("rate_limit_exceeded"))),
        (500.., code) => ("server_error", code),
        (_, code) => ("invalid_request_error", code),
    };
    json!({"error": {"message": error.message, "type": kind, "param": null, "code": code}})
}
