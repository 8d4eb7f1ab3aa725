//! Replies: JSON bodies, the documented error bodies, and reading a request's body within a limit.

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use futures::StreamExt;
use serde::Serialize;

/// An error reply. The outermost layer writes its body, because the body repeats the request's id.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) error_type: &'static str,
    pub(crate) message: String,
    /// Anthropic: `error.details.error_code`. OpenAI: `error.code`.
    pub(crate) code: Option<&'static str>,
}

impl ApiError {
    /// The error whose type is the documented one of a status.
    pub(crate) fn of(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, error_type: error_type(status), message: message.into(), code: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::of(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::of(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn too_large() -> Self {
        Self::of(StatusCode::PAYLOAD_TOO_LARGE, "Request exceeds the maximum allowed number of bytes")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

pub(crate) fn error_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// The error object of Anthropic's API, in replies and in result lines.
#[derive(Serialize)]
pub(crate) struct ErrorBody<'a> {
    r#type: &'static str,
    error: ErrorDetail<'a>,
    request_id: &'a str,
}

#[derive(Serialize)]
struct ErrorDetail<'a> {
    r#type: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details<'a>>,
}

#[derive(Serialize)]
struct Details<'a> {
    error_code: &'a str,
}

impl<'a> ErrorBody<'a> {
    pub(crate) fn new(error_type: &'a str, message: &'a str, code: Option<&'a str>, request_id: &'a str) -> Self {
        let details = code.map(|error_code| Details { error_code });
        Self { r#type: "error", error: ErrorDetail { r#type: error_type, message, details }, request_id }
    }
}

/// The status that goes with a type of error.
pub(crate) fn status_of(error_type: &str) -> StatusCode {
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

pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => ApiError::of(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

pub(crate) fn ok(body: &impl Serialize) -> Response {
    json(StatusCode::OK, body)
}

pub(crate) fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Reads a body of at most so many bytes. A longer one is read to its end and thrown away, so that the client, which
/// writes first and reads afterwards, gets to see the refusal.
pub(crate) async fn read_body(body: Body, declared: Option<usize>, at_most: usize) -> Result<Bytes, ApiError> {
    let too_large = declared.is_some_and(|length| length > at_most);
    let mut kept = BytesMut::with_capacity(if too_large { 0 } else { declared.unwrap_or(0) });
    let mut length = 0_usize;
    let mut stream = body.into_data_stream();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| ApiError::invalid(format!("the request body could not be read: {error}")))?;
        length = length.saturating_add(chunk.len());
        if length <= at_most && !too_large {
            kept.extend_from_slice(&chunk);
        }
    }
    if length > at_most { Err(ApiError::too_large()) } else { Ok(kept.freeze()) }
}

/// Reads a body and forgets it.
pub(crate) async fn drain(body: Body) {
    let mut stream = body.into_data_stream();
    while let Some(Ok(_)) = stream.next().await {}
}
