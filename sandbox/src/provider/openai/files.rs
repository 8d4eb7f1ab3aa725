//! Files: what was uploaded, and what came of the batches.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::multipart::{Field, Multipart, MultipartRejection};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::app::{App, locked};
use super::super::canonical::provider_id;
use super::super::download::download;
use super::super::injector::Faults;
use super::super::layer::about;
use super::super::serve::Cut;
use super::super::wire::{ApiError, ok};
use super::details::seconds;

/// Files on a page of the list, at most, and when nothing is said.
const LIST_LIMIT: usize = 10_000;
/// From creation to deletion.
const EXPIRES_AFTER: TimeDelta = TimeDelta::days(30);

/// What is in a file.
#[derive(Clone)]
pub(crate) enum Content {
    Uploaded(Bytes),
    /// Result lines, and the faults that every download of them meets.
    Results {
        lines: Arc<Vec<Bytes>>,
        faults: Faults,
    },
}

struct File {
    id: String,
    filename: String,
    purpose: String,
    created_at: DateTime<Utc>,
    content: Content,
}

impl File {
    fn object(&self) -> Value {
        let bytes = match &self.content {
            Content::Uploaded(bytes) => bytes.len(),
            Content::Results { lines, .. } => lines.iter().map(Bytes::len).sum(),
        };
        json!({
            "id": self.id,
            "object": "file",
            "bytes": bytes,
            "created_at": seconds(self.created_at),
            "expires_at": seconds(self.created_at + EXPIRES_AFTER),
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": null,
        })
    }
}

/// All files of a sandbox, in the order of their creation.
#[derive(Default)]
pub(crate) struct Files {
    files: BTreeMap<u64, File>,
    numbers: HashMap<String, u64>,
    created: u64,
}

impl Files {
    /// Adds a file and gives its id.
    pub(crate) fn add(&mut self, seed: u64, filename: String, purpose: String, content: Content) -> String {
        let id = provider_id("file-", &format!("{seed}/file/{}", self.created));
        let file = File { id: id.clone(), filename, purpose, created_at: Utc::now(), content };
        self.numbers.insert(id.clone(), self.created);
        self.files.insert(self.created, file);
        self.created += 1;
        id
    }

    pub(crate) fn remove(&mut self, id: &str) -> bool {
        self.numbers.remove(id).and_then(|number| self.files.remove(&number)).is_some()
    }

    pub(crate) fn content(&self, id: &str) -> Option<&Content> {
        self.get(id).map(|file| &file.content)
    }

    pub(crate) fn is_result(&self, id: &str) -> bool {
        matches!(self.content(id), Some(Content::Results { .. }))
    }

    fn get(&self, id: &str) -> Option<&File> {
        self.files.get(self.numbers.get(id)?)
    }
}

pub(crate) async fn upload(
    State(app): State<Arc<App>>,
    body: Result<Multipart, MultipartRejection>,
) -> Result<Response, ApiError> {
    let mut form = body.map_err(|error| ApiError::invalid(error.body_text()))?;
    let (mut purpose, mut file) = (None, None);
    while let Some(mut field) = form.next_field().await.map_err(|error| ApiError::invalid(error.body_text()))? {
        match field.name() {
            Some("purpose") => purpose = Some(read(&mut field, 64).await?),
            Some("file") => {
                let name = field.file_name().unwrap_or_default().to_owned();
                file = Some((name, read(&mut field, app.config.max_bytes).await?));
            }
            Some(_) | None => {}
        }
    }
    let purpose = purpose.ok_or_else(|| ApiError::invalid("Missing required parameter: 'purpose'."))?;
    let purpose = String::from_utf8_lossy(&purpose).into_owned();
    let (name, bytes) = file.ok_or_else(|| ApiError::invalid("Missing required parameter: 'file'."))?;
    if purpose == "batch" && !name.ends_with(".jsonl") {
        return Err(ApiError::invalid("Invalid file format for Batch API. Must be .jsonl"));
    }
    let mut files = locked(&app.files);
    let id = files.add(app.seed, name, purpose, Content::Uploaded(bytes));
    let object = files.get(&id).map(File::object);
    Ok(about(id, ok(&object)))
}

async fn read(field: &mut Field<'_>, at_most: usize) -> Result<Bytes, ApiError> {
    let mut bytes = BytesMut::new();
    let mut length = 0_usize;
    // What is too much is read to its end all the same: a client that writes first and reads afterwards sees the refusal.
    while let Some(chunk) = field.chunk().await.map_err(|error| ApiError::invalid(error.body_text()))? {
        length = length.saturating_add(chunk.len());
        if length <= at_most {
            bytes.extend_from_slice(&chunk);
        }
    }
    if length > at_most { Err(ApiError::too_large()) } else { Ok(bytes.freeze()) }
}

#[derive(Deserialize)]
pub(crate) struct ListQuery {
    limit: Option<usize>,
    after: Option<String>,
    order: Option<String>,
    purpose: Option<String>,
}

pub(crate) async fn list(
    State(app): State<Arc<App>>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(query) = query.map_err(|error| ApiError::invalid(error.body_text()))?;
    let limit = query.limit.unwrap_or(LIST_LIMIT);
    if !(1..=LIST_LIMIT).contains(&limit) {
        return Err(ApiError::invalid("Invalid 'limit': it must be from 1 to 10000."));
    }
    let files = locked(&app.files);
    let mut chosen: Vec<&File> = files.files.values().collect();
    match query.order.as_deref() {
        None | Some("desc") => chosen.reverse(),
        Some("asc") => {}
        Some(_) => return Err(ApiError::invalid("Invalid value: 'order' must be 'asc' or 'desc'.")),
    }
    chosen.retain(|file| query.purpose.as_ref().is_none_or(|purpose| *purpose == file.purpose));
    if let Some(after) = &query.after {
        let at = chosen.iter().position(|file| file.id == *after).ok_or_else(|| unknown(after))?;
        chosen.drain(..=at);
    }
    let has_more = chosen.len() > limit;
    chosen.truncate(limit);
    Ok(ok(&json!({
        "object": "list",
        "data": chosen.iter().map(|file| file.object()).collect::<Vec<_>>(),
        "has_more": has_more,
        "first_id": chosen.first().map(|file| &file.id),
        "last_id": chosen.last().map(|file| &file.id),
    })))
}

pub(crate) async fn retrieve(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let files = locked(&app.files);
    files.get(&id).map(|file| ok(&file.object())).ok_or_else(|| unknown(&id))
}

pub(crate) async fn delete(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    match locked(&app.files).remove(&id) {
        true => Ok(ok(&json!({"id": id, "object": "file", "deleted": true}))),
        false => Err(unknown(&id)),
    }
}

pub(crate) async fn content(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Extension(faults): Extension<Faults>,
    Extension(cut): Extension<Cut>,
) -> Result<Response, ApiError> {
    let content = locked(&app.files).content(&id).cloned().ok_or_else(|| unknown(&id))?;
    Ok(match content {
        Content::Uploaded(bytes) => ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response(),
        Content::Results { lines, faults: always } => {
            download(lines, &always, &faults, cut, "application/octet-stream")
        }
    })
}

pub(crate) fn unknown(id: &str) -> ApiError {
    ApiError::not_found(format!("No such File object: {id}"))
}
