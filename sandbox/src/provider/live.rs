//! `POST /v1/messages`: one request, answered and paid at once, at full price.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use super::app::App;
use super::params::ApiVersion;
use super::processor::{self, Payer, Verdict};
use super::wire::{ApiError, ok, read_body};

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(version): Extension<ApiVersion>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = read_body(request.into_body(), None, app.config.max_bytes).await?;
    let params: Value = serde_json::from_slice(&body)
        .map_err(|error| ApiError::invalid(format!("The request body is not valid JSON: {error}")))?;
    match processor::judge(&app, &params, version, Payer::Live) {
        Verdict::Succeeded(message) => Ok(ok(&message)),
        Verdict::Errored { error_type, message } => {
            let status = status_of(&error_type);
            Err(ApiError::of(status, message))
        }
    }
}

fn status_of(error_type: &str) -> StatusCode {
    let code = match error_type {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => 500,
    };
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
