//! The outermost layer: who is asking, in which version, and the headers and error bodies of every reply.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::app::App;
use super::config::Dialect;
use super::params::ApiVersion;
use super::wire::{ApiError, ErrorBody, drain, json, set};
use super::{openai, remote};

/// Lets a request in or refuses it, and completes the reply.
pub(crate) async fn layer(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    if request.uri().path().starts_with(remote::PREFIX) {
        return remote::completed(next.run(request).await);
    }
    let request_id = app.next_request_id();
    let response = match admit(&app, request.headers()) {
        Ok(version) => {
            request.extensions_mut().insert(version);
            next.run(request).await
        }
        Err(refusal) => {
            drain(request.into_body()).await;
            refusal.into_response()
        }
    };
    complete(&app, &request_id, response)
}

fn admit(app: &App, headers: &HeaderMap) -> Result<ApiVersion, ApiError> {
    let unauthorized = |message: &str| ApiError::of(StatusCode::UNAUTHORIZED, message);
    let (missing, wrong) = match app.config.dialect {
        Dialect::Anthropic => ("x-api-key header is required", "invalid x-api-key"),
        Dialect::OpenAi => ("You didn't provide an API key.", "Incorrect API key provided."),
    };
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let own = header("x-api-key").filter(|_| app.config.dialect == Dialect::Anthropic);
    match (own.or(bearer).map(str::trim).filter(|key| !key.is_empty()), &app.config.api_key) {
        (None, _) => return Err(unauthorized(missing)),
        (Some(key), Some(right)) if key != right.reveal() => return Err(unauthorized(wrong)),
        (Some(_), _) => {}
    }
    if app.config.dialect == Dialect::OpenAi {
        return Ok(ApiVersion::Of2023);
    }
    let version =
        header("anthropic-version").ok_or_else(|| ApiError::invalid("anthropic-version: header is required"))?;
    ApiVersion::parse(version)
        .ok_or_else(|| ApiError::invalid(format!("anthropic-version: \"{version}\" is not a valid version")))
}

fn complete(app: &App, request_id: &str, response: Response) -> Response {
    let mut response = match response.extensions().get::<ApiError>() {
        Some(error) => {
            let mut rendered = match app.config.dialect {
                Dialect::Anthropic => {
                    json(error.status, &ErrorBody::new(error.error_type, &error.message, error.code, request_id))
                }
                Dialect::OpenAi => json(error.status, &openai::error_body(error)),
            };
            // Headers that came with the error, such as retry-after, stay.
            let own = response.headers().iter().filter(|(name, _)| !name.as_str().starts_with("content-"));
            rendered.headers_mut().extend(own.map(|(name, value)| (name.clone(), value.clone())));
            rendered
        }
        None => response,
    };
    let (organization, workspace) = (&app.config.organization, &app.config.workspace);
    let headers = match app.config.dialect {
        Dialect::Anthropic => [
            ("request-id", request_id),
            ("anthropic-organization-id", organization),
            ("anthropic-workspace-id", workspace),
        ],
        Dialect::OpenAi => {
            [("x-request-id", request_id), ("openai-organization", organization), ("openai-project", workspace)]
        }
    };
    for (name, value) in headers {
        set(&mut response, HeaderName::from_static(name), value);
    }
    response
}
