//! The layer around each route that carries out faults: it refuses, or lets the request take effect and spoils the reply.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chrono::{SecondsFormat, TimeDelta, Utc};

use super::app::{App, locked};
use super::batch::Batch;
use super::config::Dialect;
use super::faults::{Fault, Operation};
use super::injector::Faults;
use super::serve::Cut;
use super::spoil_object::SpoiltObject;
use super::wire::{ApiError, drain, set};

/// Bytes of a reply that may be spoilt, at most: a list of a thousand batches is far below it.
const SPOILT_BYTES: usize = 64 * 1024 * 1024;

/// In a response's extensions: the id of the batch it is about.
#[derive(Clone)]
pub(crate) struct About(String);

pub(crate) fn about(id: String, mut response: Response) -> Response {
    response.extensions_mut().insert(About(id));
    response
}

/// What becomes of a reply.
enum Spoiling {
    Cut,
    Reset,
    Reply(Response),
}

pub(crate) async fn faulty(
    State((app, operation)): State<(Arc<App>, Operation)>,
    mut request: Request,
    next: Next,
) -> Response {
    let faults = app.injector.arrived(operation, about_an_end(&app, request.uri().path()));
    let cut = request.extensions().get::<Cut>().cloned().unwrap_or_default();
    if let Some(refusal) = faults.take(|fault| refusal(fault, app.config.dialect)) {
        drain(request.into_body()).await;
        app.injector.served(operation);
        return spoiled(refusal, &cut).await;
    }
    request.extensions_mut().insert(faults.clone());
    // Made before the request takes effect, so that whoever has seen the effect can release the reply.
    let held = faults.has(&Fault::Hold).then(|| app.injector.gate_of_hold());
    let response = next.run(request).await;
    let accepted = response.status().is_success();
    let next_create = (accepted && operation == Operation::Create).then(|| app.injector.gate_of_create()).flatten();
    app.injector.served(operation);
    let about = response.extensions().get::<About>().map(|about| about.0.clone()).unwrap_or_default();
    for gate in next_create.into_iter().chain(held) {
        gate.hold(about.clone()).await;
    }
    if let Some(time) = faults.take(|fault| if let Fault::HoldFor(time) = fault { Some(*time) } else { None }) {
        tokio::time::sleep(time).await;
    }
    // A request that was refused has taken no effect.
    match accepted.then(|| faults.take(accepted_but)).flatten() {
        Some(spoiling) => spoiled(spoiling, &cut).await,
        None => spoil_object(response, &faults).await,
    }
}

async fn spoiled(spoiling: Spoiling, cut: &Cut) -> Response {
    match spoiling {
        Spoiling::Cut => cut.now().await,
        Spoiling::Reset => cut.reset().await,
        Spoiling::Reply(response) => response,
    }
}

/// Whether the path names a batch that has ended. OpenAI's files of results exist only then.
fn about_an_end(app: &App, path: &str) -> bool {
    let ended = path.split('/').any(|part| locked(&app.shelf).get(part).is_some_and(Batch::ended));
    ended || path.split('/').any(|part| locked(&app.files).is_result(part))
}

fn refusal(fault: &Fault, dialect: Dialect) -> Option<Spoiling> {
    let reply = match fault {
        Fault::Cut => return Some(Spoiling::Cut),
        Fault::Status { code, body, headers } => status(*code, body.as_deref(), headers),
        Fault::FailAfterEnd(code) => status(*code, None, &[]),
        Fault::NotFoundFlap => ApiError::not_found("Not found").into_response(),
        Fault::RateLimited { retry_after } => rate_limited(*retry_after, dialect),
        Fault::SpendCap => spend_cap(dialect),
        _ => return None,
    };
    Some(Spoiling::Reply(reply))
}

fn accepted_but(fault: &Fault) -> Option<Spoiling> {
    match fault {
        Fault::AcceptThenCut => Some(Spoiling::Cut),
        Fault::AcceptThenReset => Some(Spoiling::Reset),
        Fault::AcceptThenStatus(code) => Some(Spoiling::Reply(status(*code, None, &[]))),
        _ => None,
    }
}

async fn spoil_object(response: Response, faults: &Faults) -> Response {
    let of = |fault: &Fault| if let Fault::SpoilObject(with) = fault { Some(*with) } else { None };
    let Some((met, with)) = faults.iter().find_map(|met| Some((met, of(&met.fault)?))) else { return response };
    if !response.status().is_success() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, SPOILT_BYTES).await else {
        return ApiError::of(StatusCode::INTERNAL_SERVER_ERROR, "too large to be spoilt").into_response();
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    let spoilt = with.spoil(&body);
    if spoilt.is_some() {
        met.fire();
    }
    let mut response = Response::from_parts(parts, spoilt.map_or_else(|| Body::from(body), Body::from));
    if with == SpoiltObject::WebPage {
        set(&mut response, header::CONTENT_TYPE, "text/html");
    }
    response
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
        401 => "invalid x-api-key",
        403 => "Your API key does not have permission to use the specified resource",
        413 => "Request exceeds the maximum allowed number of bytes",
        429 => "This request would exceed your organization's rate limit",
        529 => "Overloaded",
        504 => "Request timed out",
        500.. => "Internal server error",
        _ => "The request was refused",
    }
}

fn rate_limited(retry_after: Option<u64>, dialect: Dialect) -> Response {
    let mut error = ApiError::of(StatusCode::TOO_MANY_REQUESTS, message_of(429));
    let wait = retry_after.unwrap_or(60);
    let headers = match dialect {
        Dialect::Anthropic => {
            let reset = Utc::now() + TimeDelta::seconds(i64::try_from(wait.min(86_400)).unwrap_or(86_400));
            let reset = reset.to_rfc3339_opts(SecondsFormat::Secs, true);
            [
                ("anthropic-ratelimit-requests-limit", "50".to_owned()),
                ("anthropic-ratelimit-requests-remaining", "0".to_owned()),
                ("anthropic-ratelimit-requests-reset", reset),
            ]
        }
        Dialect::OpenAi => {
            error.code = Some("rate_limit_exceeded");
            [
                ("x-ratelimit-limit-requests", "50".to_owned()),
                ("x-ratelimit-remaining-requests", "0".to_owned()),
                ("x-ratelimit-reset-requests", format!("{wait}s")),
            ]
        }
    };
    let mut response = error.into_response();
    for (name, value) in headers {
        set(&mut response, HeaderName::from_static(name), &value);
    }
    if let Some(seconds) = retry_after {
        set(&mut response, header::RETRY_AFTER, &seconds.to_string());
    }
    response
}

fn spend_cap(dialect: Dialect) -> Response {
    let (message, code) = match dialect {
        Dialect::Anthropic => {
            ("Your organization has reached its spend limit for this month", "enforced_spend_limit_reached")
        }
        Dialect::OpenAi => {
            ("You exceeded your current quota, please check your plan and billing details.", "insufficient_quota")
        }
    };
    let mut error = ApiError::of(StatusCode::TOO_MANY_REQUESTS, message);
    error.code = Some(code);
    error.into_response()
}
