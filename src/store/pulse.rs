//! The heart's connection, and the listener's.

use super::connect::{Database, within};
use super::error::StoreError;
use super::nodes;
use crate::domain::NodeId;
use sqlx::PgConnection;
use sqlx::postgres::{PgListener, PgPoolOptions};

/// The connection that beats. It is used for nothing else, so that no other work can make a node look dead.
pub(crate) struct Pulse {
    database: Database,
    node: NodeId,
    conn: Option<PgConnection>,
}

impl Pulse {
    pub(crate) fn new(database: Database, node: NodeId) -> Self {
        Self { database, node, conn: None }
    }

    /// Beats once, and answers whether the node is to drain. `None`: it was declared dead, for good.
    pub(crate) async fn beat(&mut self, progress: i64, leaving: bool) -> Result<Option<bool>, StoreError> {
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => self.database.connect().await?,
        };
        let alive = within(nodes::beat(&mut conn, self.node, progress, leaving)).await?;
        self.conn = Some(conn);
        Ok(alive)
    }
}

/// What a notification says: look, nothing more. It carries no data, and a lost one costs latency only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Hint {
    /// There may be runs to claim.
    Runs,
    /// There may be requests to send.
    Requests,
    /// There may be live calls to make.
    Calls,
}

impl Hint {
    pub(crate) const ALL: [Self; 3] = [Self::Runs, Self::Requests, Self::Calls];

    pub(crate) fn channel(self) -> &'static str {
        match self {
            Self::Runs => "longhaul_runs",
            Self::Requests => "longhaul_requests",
            Self::Calls => "longhaul_calls",
        }
    }

    fn of(channel: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hint| hint.channel() == channel)
    }
}

/// A connection that listens.
pub(crate) struct Listener(PgListener);

impl Listener {
    /// Listens on a connection of its own.
    pub(crate) async fn connect(database: &Database) -> Result<Self, StoreError> {
        let pool = PgPoolOptions::new().max_connections(1).connect_with(database.options().clone()).await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        // Errors are ours to see: after one, this listener is thrown away and another one made.
        listener.eager_reconnect(false);
        listener.ignore_pool_close_event(true);
        listener.listen_all(Hint::ALL.map(Hint::channel)).await?;
        Ok(Self(listener))
    }

    /// The next hint. An error, or a connection that was lost in between, ends this listener.
    pub(crate) async fn next(&mut self) -> Result<Hint, StoreError> {
        loop {
            match self.0.try_recv().await? {
                None => return Err(StoreError::Connection("the listening connection was lost".into())),
                Some(told) => {
                    if let Some(hint) = Hint::of(told.channel()) {
                        return Ok(hint);
                    }
                }
            }
        }
    }
}
