//! `POST /v1/chat/completions` and `POST /v1/responses`: one request, answered and paid at once, at full price.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;

use super::super::app::App;
use super::super::processor::{Outcome, Payer};
use super::super::wire::{ApiError, ok, read_body};
use super::said::{body, refusal};
use super::{Endpoint, judge};

pub(crate) async fn chat_completions(state: State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    answer(state, request, Endpoint::ChatCompletions).await
}

pub(crate) async fn responses(state: State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    answer(state, request, Endpoint::Responses).await
}

async fn answer(State(app): State<Arc<App>>, request: Request, endpoint: Endpoint) -> Result<Response, ApiError> {
    let read = read_body(request.into_body(), None, app.config.max_bytes).await?;
    let read: Value = serde_json::from_slice(&read)
        .map_err(|error| ApiError::invalid(format!("We could not parse the JSON body of your request: {error}")))?;
    match judge(&app, &read, endpoint, Payer::Live) {
        Outcome::Succeeded(said) => Ok(ok(&body(endpoint, &said))),
        Outcome::Errored { error_type, message } => Err(refusal(&error_type, &message)),
        Outcome::Canceled | Outcome::Expired => Err(refusal("api_error", "never answered")),
    }
}
