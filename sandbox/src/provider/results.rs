//! `GET /v1/messages/batches/{id}/results`: the result lines.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;

use super::app::{App, locked};
use super::batch::Stage;
use super::batches::unknown;
use super::download::download;
use super::injector::Faults;
use super::layer::about;
use super::serve::Cut;
use super::wire::ApiError;

pub(crate) async fn results(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Extension(faults): Extension<Faults>,
    Extension(cut): Extension<Cut>,
) -> Result<Response, ApiError> {
    let (lines, always) = {
        let shelf = locked(&app.shelf);
        let batch = shelf.get(&id).ok_or_else(|| unknown(&id))?;
        match &batch.stage {
            Stage::Ended { done, .. } if batch.archived_at.is_none() => {
                (Arc::clone(&done.lines), batch.plan.faults.clone())
            }
            Stage::Ended { .. } => {
                return Err(ApiError::not_found(format!("Message batch {id} is archived: its results are gone")));
            }
            Stage::Waiting(_) | Stage::Processing => {
                return Err(ApiError::not_found(format!("Message batch {id} has no results before it has ended")));
            }
        }
    };
    Ok(about(id, download(lines, &always, &faults, cut, "application/x-jsonl")))
}
