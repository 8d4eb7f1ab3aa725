//! `GET /v1/messages/batches/{id}/results`: the result lines, streamed, and how faults spoil them.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use futures::stream;

use super::app::{App, locked};
use super::batch::Stage;
use super::batches::{about, unknown};
use super::faults::Fault;
use super::routes::Faults;
use super::wire::ApiError;

/// Lines are sent in pieces of about this many bytes.
const PIECE_BYTES: usize = 64 * 1024;

pub(crate) async fn results(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    Extension(Faults(faults)): Extension<Faults>,
) -> Result<Response, ApiError> {
    let lines = {
        let shelf = locked(&app.shelf);
        let batch = shelf.get(&id).ok_or_else(|| unknown(&id))?;
        match &batch.stage {
            Stage::Ended { lines, .. } if batch.archived_at.is_none() => Arc::clone(lines),
            Stage::Ended { .. } => {
                return Err(ApiError::not_found(format!("Message batch {id} is archived: its results are gone")));
            }
            Stage::Waiting(_) | Stage::Processing => {
                return Err(ApiError::not_found(format!("Message batch {id} has no results before it has ended")));
            }
        }
    };
    let lines = Lines { left: ends(&faults), lines: spoil(lines, &faults), at: 0 };
    let body = Body::from_stream(stream::unfold(lines, Lines::next));
    Ok(about(id, ([(header::CONTENT_TYPE, "application/x-jsonl")], body).into_response()))
}

/// What is left to send.
struct Lines {
    lines: Arc<Vec<Bytes>>,
    at: usize,
    left: Left,
}

/// How many bytes may still be sent, and what happens then.
enum Left {
    All,
    ThenEnd(usize),
    ThenBreak(usize),
    End,
    Break,
}

impl Lines {
    async fn next(mut self) -> Option<(Result<Bytes, std::io::Error>, Self)> {
        let mut piece = self.piece();
        match self.left {
            Left::ThenEnd(bytes) if piece.len() > bytes => {
                piece.truncate(bytes);
                self.left = Left::End;
            }
            Left::ThenBreak(bytes) if piece.len() > bytes => {
                piece.truncate(bytes);
                self.left = Left::Break;
            }
            Left::ThenEnd(ref mut bytes) | Left::ThenBreak(ref mut bytes) => *bytes -= piece.len(),
            Left::All | Left::End | Left::Break => {}
        }
        if !piece.is_empty() {
            return Some((Ok(piece.freeze()), self));
        }
        if matches!(self.left, Left::Break) {
            self.left = Left::End;
            // What was given out before must reach the socket first.
            tokio::task::yield_now().await;
            return Some((Err(std::io::Error::other("the connection breaks here")), self));
        }
        None
    }

    fn piece(&mut self) -> BytesMut {
        let mut piece = BytesMut::new();
        if matches!(self.left, Left::End | Left::Break) {
            return piece;
        }
        while let Some(line) = self.lines.get(self.at).filter(|_| piece.len() < PIECE_BYTES) {
            piece.extend_from_slice(line);
            self.at += 1;
        }
        piece
    }
}

fn ends(faults: &[Fault]) -> Left {
    for fault in faults {
        if let Fault::CutResultsAt(bytes) = fault {
            return Left::ThenBreak(*bytes);
        } else if let Fault::EndResultsAt(bytes) = fault {
            return Left::ThenEnd(*bytes);
        }
    }
    Left::All
}

fn spoil(lines: Arc<Vec<Bytes>>, faults: &[Fault]) -> Arc<Vec<Bytes>> {
    let mut spoilt = lines;
    for fault in faults {
        if let Fault::MissingLines(k) = fault {
            spoilt = Arc::new(spoilt.iter().skip(*k).cloned().collect());
        } else if let Fault::DuplicateLines = fault {
            spoilt = Arc::new(spoilt.iter().flat_map(|line| [line.clone(), line.clone()]).collect());
        } else if let Fault::BadLine(index, text) = fault
            && let Some(line) = Arc::make_mut(&mut spoilt).get_mut(*index)
        {
            *line = Bytes::from(format!("{text}\n"));
        }
    }
    spoilt
}
