//! `POST /v1/messages`: one request, answered and paid at once, at full price.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;

use super::app::App;
use super::message::Message;
use super::params::ApiVersion;
use super::processor::{self, Outcome, Payer};
use super::wire::{ApiError, ok, read_body, status_of};

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(version): Extension<ApiVersion>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = read_body(request.into_body(), None, app.config.max_bytes).await?;
    let params: Value = serde_json::from_slice(&body)
        .map_err(|error| ApiError::invalid(format!("The request body is not valid JSON: {error}")))?;
    match processor::judge(&app, &params, version, Payer::Live) {
        Outcome::Succeeded(said) => Ok(ok(&Message::of(&said))),
        Outcome::Errored { error_type, message } => Err(ApiError::of(status_of(&error_type), message)),
        Outcome::Canceled | Outcome::Expired => Err(ApiError::of(status_of("api_error"), "never answered")),
    }
}
