//! Result lines as a streamed body, and how faults spoil them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use futures::stream;

use super::canonical::{SplitMix, sha256_seed};
use super::faults::Fault;
use super::injector::{Faults, Met};
use super::serve::Cut;

/// Lines are sent in pieces of about this many bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// The lines, spoilt by the faults that every download meets (`always`) and by those of this one.
pub(crate) fn download(
    lines: Arc<Vec<Bytes>>,
    always: &Faults,
    now: &Faults,
    cut: Cut,
    content_type: &'static str,
) -> Response {
    let faults = always.iter().chain(now.iter()).filter(|met| met.fault.is_of_lines());
    let lines = Lines { lines: spoil(lines, faults), at: 0, rest: BytesMut::new(), sent: 0, end: End::of(now), cut };
    let body = Body::from_stream(stream::unfold(lines, Lines::next));
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}

/// What is left to send.
struct Lines {
    lines: Arc<Vec<Bytes>>,
    at: usize,
    /// What was taken of the lines and may not be sent yet.
    rest: BytesMut,
    sent: usize,
    end: Option<End>,
    cut: Cut,
}

/// Where it stops, and how.
struct End {
    bytes: usize,
    how: How,
    met: Met,
}

enum How {
    Close,
    Reset,
    Finish,
    Stall(Duration),
}

impl End {
    fn of(faults: &Faults) -> Option<Self> {
        faults.iter().find_map(|met| {
            let (bytes, how) = match &met.fault {
                Fault::CutResultsAt(bytes) => (*bytes, How::Close),
                Fault::ResetResultsAt(bytes) => (*bytes, How::Reset),
                Fault::EndResultsAt(bytes) => (*bytes, How::Finish),
                Fault::StallResultsAt { bytes, time } => (*bytes, How::Stall(*time)),
                _ => return None,
            };
            Some(Self { bytes, how, met: met.clone() })
        })
    }
}

impl Lines {
    async fn next(mut self) -> Option<(Result<Bytes, std::io::Error>, Self)> {
        while let Some(line) = self.lines.get(self.at).filter(|_| self.rest.len() < PIECE_BYTES) {
            self.rest.extend_from_slice(line);
            self.at += 1;
        }
        let left = self.end.as_ref().map_or(usize::MAX, |end| end.bytes - self.sent);
        if self.rest.is_empty() {
            return None;
        }
        if left > 0 {
            let piece = self.rest.split_to(self.rest.len().min(left)).freeze();
            self.sent += piece.len();
            return Some((Ok(piece), self));
        }
        let end = self.end.take()?;
        end.met.fire();
        // What was given out before must reach the socket first.
        tokio::task::yield_now().await;
        match end.how {
            How::Finish => None,
            How::Close => {
                (self.at, self.lines) = (0, Arc::default());
                self.rest.clear();
                Some((Err(std::io::Error::other("the connection breaks here")), self))
            }
            How::Reset => {
                self.cut.reset().await;
                None
            }
            How::Stall(time) => {
                tokio::time::sleep(time).await;
                let piece = self.rest.split().freeze();
                Some((Ok(piece), self))
            }
        }
    }
}

fn spoil<'a>(mut lines: Arc<Vec<Bytes>>, faults: impl Iterator<Item = &'a Met>) -> Arc<Vec<Bytes>> {
    for met in faults {
        lines = spoil_by(lines, met);
    }
    lines
}

fn spoil_by(mut lines: Arc<Vec<Bytes>>, met: &Met) -> Arc<Vec<Bytes>> {
    match &met.fault {
        Fault::MissingLines(k) => {
            lines.iter().take(*k).for_each(|_| met.fire());
            Arc::new(lines.iter().skip(*k).cloned().collect())
        }
        Fault::DuplicateLines if !lines.is_empty() => {
            met.fire();
            Arc::new(lines.iter().flat_map(|line| [line.clone(), line.clone()]).collect())
        }
        Fault::ReorderLines if lines.len() > 1 => {
            met.fire();
            let first = lines.first().map_or(0, |line| sha256_seed(line));
            SplitMix(first).shuffle(Arc::make_mut(&mut lines).as_mut_slice());
            lines
        }
        Fault::ForeignLines(k) => {
            let all = Arc::make_mut(&mut lines);
            for n in 0..*k {
                met.fire();
                let line = format!("{{\"custom_id\":\"somebody-else-{n}\",\"result\":{{\"type\":\"canceled\"}}}}\n");
                all.insert((2 * n).min(all.len()), Bytes::from(line));
            }
            lines
        }
        Fault::BadLine(index, text) => {
            if let Some(line) = Arc::make_mut(&mut lines).get_mut(*index) {
                met.fire();
                *line = Bytes::from(format!("{text}\n"));
            }
            lines
        }
        Fault::SpoilLines { every, with } => {
            let every = (*every).max(1);
            for line in Arc::make_mut(&mut lines).iter_mut().skip(every - 1).step_by(every) {
                if let Some(spoilt) = with.spoil(line) {
                    met.fire();
                    *line = spoilt;
                }
            }
            lines
        }
        _ => lines,
    }
}
