//! `POST /v1/messages/batches`: what is checked at once, and how a batch starts.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::accept::accept;
use super::app::App;
use super::batch::{Item, Kind};
use super::faults::Fault;
use super::injector::Faults;
use super::layer::about;
use super::params::ApiVersion;
use super::wire::{ApiError, ok, read_body};

const CUSTOM_ID_CHARACTERS: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateBody<'a> {
    #[serde(borrow)]
    requests: Option<Vec<CreateItem<'a>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateItem<'a> {
    #[serde(borrow)]
    custom_id: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(version): Extension<ApiVersion>,
    Extension(faults): Extension<Faults>,
    request: Request,
) -> Result<Response, ApiError> {
    let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse().ok());
    let body = read_body(request.into_body(), declared, app.config.max_bytes).await?;
    let max_requests = app.config.max_requests;
    // Parsing a hundred megabytes would keep the other connections waiting.
    let items = tokio::task::spawn_blocking(move || parse(&body, max_requests)).await;
    let items = items.map_err(|error| ApiError::of(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))??;
    let params = items.iter().map(|item| &*item.params);
    if let Some(refusal) = faults.take(|fault| guilty(fault, params.clone())) {
        return Err(refusal);
    }
    Ok(accept(&app, items, Kind::Anthropic(version), &faults, |batch| {
        about(batch.id.clone(), ok(&batch.object(&app.base_url)))
    }))
}

/// The refusal that one request brings upon all of them.
pub(crate) fn guilty<'a>(fault: &Fault, mut requests: impl Iterator<Item = &'a [u8]>) -> Option<ApiError> {
    let Fault::GuiltyItem { containing, message } = fault else { return None };
    let n = requests.position(|request| contains(request, containing.as_bytes()))?;
    Some(ApiError::invalid(message.replace("{n}", &n.to_string())))
}

pub(crate) fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}

/// The requests of a create body. Their `params` are only known to be JSON.
fn parse(body: &Bytes, max_requests: usize) -> Result<Vec<Item>, ApiError> {
    let parsed: CreateBody<'_> = serde_json::from_slice(body).map_err(|error| unreadable(&error))?;
    if let Some(at) = lone_surrogate(body) {
        let message = format!("The request body is not valid JSON: no low surrogate in string: char {at}");
        return Err(ApiError::invalid(message));
    }
    let requests = parsed.requests.ok_or_else(|| ApiError::invalid("requests: Field required"))?;
    if requests.is_empty() {
        return Err(ApiError::invalid("requests: List should have at least 1 item after validation, not 0"));
    }
    if requests.len() > max_requests {
        return Err(ApiError::too_large());
    }
    let mut seen = HashSet::with_capacity(requests.len());
    let mut items = Vec::with_capacity(requests.len());
    for (n, request) in requests.iter().enumerate() {
        let custom_id =
            custom_id(request.custom_id).map_err(|why| ApiError::invalid(format!("requests.{n}.custom_id: {why}")))?;
        if !seen.insert(custom_id.clone()) {
            return Err(ApiError::invalid(format!(
                "requests.{n}.custom_id: \"{custom_id}\" is not unique in the batch"
            )));
        }
        let params = request.params.ok_or_else(|| ApiError::invalid(format!("requests.{n}.params: Field required")))?;
        items.push(Item { custom_id, params: body.slice_ref(params.get().as_bytes()) });
    }
    Ok(items)
}

fn unreadable(error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    match error.classify() {
        Category::Data => match text.split('`').nth(1).filter(|_| text.starts_with("unknown field")) {
            Some(field) => ApiError::invalid(format!("{field}: Extra inputs are not permitted")),
            None => ApiError::invalid(format!("requests: {text}")),
        },
        Category::Syntax | Category::Eof | Category::Io => {
            ApiError::invalid(format!("The request body is not valid JSON: {text}"))
        }
    }
}

fn custom_id(raw: Option<&RawValue>) -> Result<String, &'static str> {
    let raw = raw.ok_or("Field required")?;
    let id: String = serde_json::from_str(raw.get()).map_err(|_| "Input should be a valid string")?;
    if id.is_empty() {
        return Err("String should have at least 1 character");
    }
    if id.chars().count() > CUSTOM_ID_CHARACTERS {
        return Err("String should have at most 64 characters");
    }
    if !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
        return Err("String should match pattern '^[a-zA-Z0-9_-]{1,64}$'");
    }
    Ok(id)
}

/// Where a `\uD800`..`\uDFFF` stands without its other half. The text must be JSON otherwise.
fn lone_surrogate(json: &[u8]) -> Option<usize> {
    let unit = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut at = 0;
    while let Some(step) = json.get(at..)?.iter().position(|b| *b == b'\\') {
        at += step;
        match unit(at) {
            Some(0xD800..=0xDBFF) => match unit(at + 6) {
                Some(0xDC00..=0xDFFF) => at += 12,
                _ => return Some(at),
            },
            Some(0xDC00..=0xDFFF) => return Some(at),
            Some(_) => at += 6,
            None => at += 2,
        }
    }
    None
}
