//! Retrieve, list, cancel and delete.

use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};

use super::app::{App, locked};
use super::batch::BatchObject;
use super::faults::Fault;
use super::injector::Faults;
use super::layer::about;
use super::shelf::Cursor;
use super::wire::{ApiError, ok};

/// Batches on one page, at most.
const LIST_LIMIT: usize = 1_000;

#[derive(Deserialize)]
pub(crate) struct ListQuery {
    limit: Option<String>,
    after_id: Option<String>,
    before_id: Option<String>,
}

#[derive(Serialize)]
struct ListObject {
    data: Vec<BatchObject>,
    has_more: bool,
    first_id: Option<String>,
    last_id: Option<String>,
}

pub(crate) async fn list(
    State(app): State<Arc<App>>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(query) = query.map_err(|error| ApiError::invalid(error.body_text()))?;
    let limit = match query.limit {
        None => app.config.list_page.clamp(1, LIST_LIMIT),
        Some(limit) => limit
            .parse()
            .ok()
            .filter(|limit| (1..=LIST_LIMIT).contains(limit))
            .ok_or_else(|| ApiError::invalid("limit: Input should be an integer from 1 to 1000"))?,
    };
    let cursor = match (query.after_id, query.before_id) {
        (None, None) => Cursor::Newest,
        (Some(id), None) => Cursor::After(id),
        (None, Some(id)) => Cursor::Before(id),
        (Some(_), Some(_)) => return Err(ApiError::invalid("only one of after_id and before_id may be given")),
    };
    let shelf = locked(&app.shelf);
    let page =
        shelf.page(&cursor, limit).ok_or_else(|| ApiError::invalid("the batch of the page cursor was not found"))?;
    Ok(ok(&ListObject {
        data: page.batches.iter().map(|batch| batch.object(&app.base_url)).collect(),
        has_more: page.has_more,
        first_id: page.batches.first().map(|batch| batch.id.clone()),
        last_id: page.batches.last().map(|batch| batch.id.clone()),
    }))
}

pub(crate) async fn retrieve(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let shelf = locked(&app.shelf);
    let batch = shelf.get(&id).ok_or_else(|| unknown(&id))?;
    Ok(about(id, ok(&batch.object(&app.base_url))))
}

pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Extension(faults): Extension<Faults>,
) -> Result<Response, ApiError> {
    let mut shelf = locked(&app.shelf);
    let batch = shelf.get_mut(&id).ok_or_else(|| unknown(&id))?;
    if batch.ended() {
        return Err(ApiError::invalid(format!("Message batch {id} has ended and cannot be canceled")));
    }
    batch.cancel(uncancelable(&faults));
    Ok(about(id, ok(&batch.object(&app.base_url))))
}

pub(crate) async fn delete(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    #[derive(Serialize)]
    struct Deleted<'a> {
        id: &'a str,
        r#type: &'static str,
    }
    let mut shelf = locked(&app.shelf);
    let batch = shelf.get(&id).ok_or_else(|| unknown(&id))?;
    if !batch.ended() {
        let message =
            format!("Message batch {id} is still being processed: cancel it first, and delete it when it has ended");
        return Err(ApiError::invalid(message));
    }
    shelf.remove(&id);
    let reply = ok(&Deleted { id: &id, r#type: "message_batch_deleted" });
    Ok(about(id, reply))
}

/// How many requests a cancel comes too late for.
pub(crate) fn uncancelable(faults: &Faults) -> usize {
    let k = faults.take(|fault| if let Fault::FinishBeforeCancel(k) = fault { Some(*k) } else { None });
    k.unwrap_or(0)
}

pub(crate) fn unknown(id: &str) -> ApiError {
    ApiError::not_found(format!("Message batch {id} not found"))
}
