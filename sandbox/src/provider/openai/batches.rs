//! Create, retrieve, list and cancel.

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::accept::accept;
use super::super::app::{App, locked};
use super::super::batch::Kind;
use super::super::batches::uncancelable;
use super::super::injector::Faults;
use super::super::layer::about;
use super::super::shelf::Cursor;
use super::super::wire::{ApiError, ok, read_body};
use super::details::{Details, object};
use super::files::Content;
use super::{Endpoint, files};

/// Bytes of a create body, at most.
const CREATE_BYTES: usize = 1024 * 1024;
/// Batches on one page, at most.
const LIST_LIMIT: usize = 100;
const METADATA_PAIRS: usize = 16;
const METADATA_KEY_CHARACTERS: usize = 64;
const METADATA_VALUE_CHARACTERS: usize = 512;

#[derive(Deserialize)]
struct CreateBody {
    input_file_id: String,
    endpoint: String,
    completion_window: String,
    metadata: Option<Map<String, Value>>,
}

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(faults): Extension<Faults>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = read_body(request.into_body(), None, CREATE_BYTES).await?;
    let body: CreateBody = serde_json::from_slice(&body).map_err(|error| ApiError::invalid(error.to_string()))?;
    let endpoint = Endpoint::parse(&body.endpoint).ok_or_else(|| {
        ApiError::invalid(format!(
            "Invalid value: '{}'. Supported here are '/v1/chat/completions' and '/v1/responses'.",
            body.endpoint
        ))
    })?;
    if body.completion_window != "24h" {
        return Err(ApiError::invalid("Invalid value: 'completion_window' must be '24h'."));
    }
    metadata(body.metadata.as_ref()).map_err(ApiError::invalid)?;
    let input = match locked(&app.files).content(&body.input_file_id) {
        Some(Content::Uploaded(bytes)) => bytes.clone(),
        Some(Content::Results { .. }) => {
            return Err(ApiError::invalid("The input file must have the purpose 'batch'."));
        }
        None => return Err(files::unknown(&body.input_file_id)),
    };
    let details = Details::new(endpoint, body.input_file_id, input, body.metadata.map(Value::Object));
    Ok(accept(&app, Vec::new(), Kind::OpenAi(Box::new(details)), &faults, |batch| {
        about(batch.id.clone(), ok(&object(batch)))
    }))
}

fn metadata(metadata: Option<&Map<String, Value>>) -> Result<(), String> {
    let Some(metadata) = metadata else { return Ok(()) };
    if metadata.len() > METADATA_PAIRS {
        return Err(format!("Invalid 'metadata': too many properties. At most {METADATA_PAIRS} are allowed."));
    }
    for (key, value) in metadata {
        let Some(value) = value.as_str() else {
            return Err(format!("Invalid type for 'metadata.{key}': a string is expected."));
        };
        if key.chars().count() > METADATA_KEY_CHARACTERS || value.chars().count() > METADATA_VALUE_CHARACTERS {
            return Err(format!("Invalid 'metadata.{key}': the key or the value is too long."));
        }
    }
    Ok(())
}

#[derive(Deserialize)]
pub(crate) struct ListQuery {
    limit: Option<usize>,
    after: Option<String>,
}

pub(crate) async fn list(
    State(app): State<Arc<App>>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(query) = query.map_err(|error| ApiError::invalid(error.body_text()))?;
    let limit = query.limit.unwrap_or(app.config.list_page.clamp(1, LIST_LIMIT));
    if !(1..=LIST_LIMIT).contains(&limit) {
        return Err(ApiError::invalid("Invalid 'limit': it must be from 1 to 100."));
    }
    let cursor = query.after.map_or(Cursor::Newest, Cursor::After);
    let shelf = locked(&app.shelf);
    let page =
        shelf.page(&cursor, limit).ok_or_else(|| ApiError::invalid("the batch of the page cursor was not found"))?;
    Ok(ok(&json!({
        "object": "list",
        "data": page.batches.iter().map(|batch| object(batch)).collect::<Vec<_>>(),
        "has_more": page.has_more,
        "first_id": page.batches.first().map(|batch| &batch.id),
        "last_id": page.batches.last().map(|batch| &batch.id),
    })))
}

pub(crate) async fn retrieve(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let shelf = locked(&app.shelf);
    let batch = shelf.get(&id).ok_or_else(|| unknown(&id))?;
    let reply = ok(&object(batch));
    Ok(about(id, reply))
}

pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Extension(faults): Extension<Faults>,
) -> Result<Response, ApiError> {
    let mut shelf = locked(&app.shelf);
    let batch = shelf.get_mut(&id).ok_or_else(|| unknown(&id))?;
    if batch.ended() {
        let message = format!("Cannot cancel a batch with status {}.", object(batch)["status"]);
        return Err(ApiError::of(StatusCode::CONFLICT, message));
    }
    batch.cancel(uncancelable(&faults));
    let reply = ok(&object(batch));
    Ok(about(id, reply))
}

fn unknown(id: &str) -> ApiError {
    ApiError::not_found(format!("No batch found with id '{id}'."))
}
