//! A lane: one connection that writes owned transitions, and never answers before it knows.

use super::connect::{Backend, Database, within};
use super::decide::decide;
use super::error::StoreError;
use super::flush;
use crate::domain::{Transition, Verdict};
use sqlx::PgConnection;
use std::time::Duration;

/// How often a flush is repeated when the server asks for it.
const TRANSIENT_TRIES: u32 = 5;

/// One connection of the committer.
pub(crate) struct Lane {
    database: Database,
    conn: Option<(PgConnection, Backend)>,
    /// The backend of a connection that lost an answer.
    doubtful: Option<Backend>,
}

impl Lane {
    pub(crate) fn new(database: Database) -> Self {
        Self { database, conn: None, doubtful: None }
    }

    /// Writes transitions of different runs, and answers each, in their order. Returns only when every fate is known; while
    /// the database cannot be reached it goes on trying.
    pub(crate) async fn commit(&mut self, mut transitions: Vec<Transition>) -> Vec<(Transition, Verdict)> {
        transitions.sort_by_key(|t| t.run);
        let mut answered = Vec::with_capacity(transitions.len());
        let mut work = vec![transitions];
        while let Some(batch) = work.pop() {
            match self.attempt(&batch).await {
                Ok(verdicts) => answered.extend(batch.into_iter().zip(verdicts)),
                Err(StoreError::Connection(why)) => {
                    tracing::warn!(why, transitions = batch.len(), "the outcome of a commit is unknown: deciding it");
                    let verdicts = self.decide(&batch).await;
                    answered.extend(batch.into_iter().zip(verdicts));
                }
                // Nothing of it is in, and its time may come: whoever holds the run forgets it, and a later claim runs it.
                Err(error) if batch.len() == 1 && error.is_transient() => {
                    tracing::warn!(%error, run = batch[0].run.0, "a transition was given up for now");
                    answered.extend(batch.into_iter().map(|t| (t, Verdict::Unknown)));
                }
                // A value that the server refuses: halve until the guilty one is alone, so that it fails no neighbour.
                Err(error) if batch.len() == 1 => {
                    let verdict = Verdict::Refused(format!("{}: {error}", error.code()));
                    answered.extend(batch.into_iter().map(|t| (t, verdict.clone())));
                }
                Err(_) => {
                    let mut front = batch;
                    let back = front.split_off(front.len() / 2);
                    work.extend([back, front]);
                }
            }
        }
        answered
    }

    /// One try, repeated where the server asks for it.
    async fn attempt(&mut self, batch: &[Transition]) -> Result<Vec<Verdict>, StoreError> {
        let mut tries = 0;
        loop {
            match self.once(batch).await {
                Err(error) if error.is_transient() && tries < TRANSIENT_TRIES => {
                    tries += 1;
                    tokio::time::sleep(Duration::from_millis(5 << tries)).await;
                }
                other => return other,
            }
        }
    }

    async fn once(&mut self, batch: &[Transition]) -> Result<Vec<Verdict>, StoreError> {
        let (mut conn, backend) = match self.conn.take() {
            Some(conn) => conn,
            None => self.reconnect().await,
        };
        let work = async {
            let refused = flush::without_cause(&mut conn, batch).await?;
            if refused.is_empty() {
                let written = flush::flush(&mut conn, batch).await?;
                return Ok(written.into_iter().map(verdict).collect());
            }
            let kept: Vec<Transition> =
                batch.iter().enumerate().filter(|(k, _)| !refused.contains(k)).map(|(_, t)| t.clone()).collect();
            let mut written = flush::flush(&mut conn, &kept).await?.into_iter().map(verdict);
            let unknown = || Verdict::Refused("unknown-cause: no such event is durable".into());
            Ok((0..batch.len())
                .map(|k| if refused.contains(&k) { unknown() } else { written.next().unwrap_or(Verdict::Unknown) })
                .collect())
        };
        let result = within(work).await;
        // A connection that lost an answer is dropped, but its backend's number is kept for the decision.
        match &result {
            Err(error) if error.is_connection() => self.doubtful = Some(backend),
            _ => self.conn = Some((conn, backend)),
        }
        result
    }

    async fn decide(&mut self, batch: &[Transition]) -> Vec<Verdict> {
        let doubtful = self.doubtful.take();
        let mut wait = Duration::from_millis(20);
        loop {
            let (mut conn, backend) = self.reconnect().await;
            match within(decide(&mut conn, doubtful, batch)).await {
                Ok(verdicts) => {
                    self.conn = Some((conn, backend));
                    return verdicts;
                }
                Err(error) => tracing::warn!(%error, "an unknown commit could not be decided yet"),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(1));
        }
    }

    /// A connection, however long it takes.
    async fn reconnect(&mut self) -> (PgConnection, Backend) {
        let mut wait = Duration::from_millis(20);
        loop {
            match self.database.connect_hot().await {
                Ok(conn) => return conn,
                Err(error) => tracing::debug!(%error, "no connection for the committer"),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(1));
        }
    }
}

fn verdict(written: bool) -> Verdict {
    if written { Verdict::Committed } else { Verdict::Superseded }
}
