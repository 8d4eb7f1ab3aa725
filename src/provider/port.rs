//! The port: what the engine asks of a batch API.

use super::line::{Line, Usage};
use crate::domain::{CustomId, IntentId, InvalidJson, JsonText};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::time::{Duration, Instant};

/// What a provider's batch API can do, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The kind of provider, such as `anthropic`.
    pub kind: &'static str,
    /// Requests per batch at most.
    pub max_requests: i32,
    /// Bytes of a batch's body at most.
    pub max_bytes: i64,
    /// Whether a batch can be found again for certain by something we put on it. If not, it is found by time and count and
    /// proved by its results.
    pub certain_adoption: bool,
    /// Whether a batch takes requests of one kind only, as [`BatchProvider::group`] tells them apart.
    pub grouped: bool,
    /// Whether a batch that was created may be refused as a whole afterwards.
    pub late_refusals: bool,
}

/// Who a provider says we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The kind of provider, such as `anthropic`.
    pub kind: String,
    /// Where its API is.
    pub base_url: String,
    /// The organisation, from the response headers.
    pub organization: String,
    /// The workspace, from the response headers.
    pub workspace: String,
}

/// The body of a create call: its exact length, and its bytes as they are read from the database.
pub struct Body {
    /// What the batch is known by to us: on it, if the provider keeps such a thing.
    pub intent: IntentId,
    /// The group of its requests; empty where they are not told apart.
    pub group: String,
    /// In bytes.
    pub length: u64,
    /// The bytes, in order.
    pub chunks: BoxStream<'static, Result<Bytes, std::io::Error>>,
    /// Not one byte is sent after this, by the monotonic clock.
    pub deadline: Instant,
}

/// What is known after a create call. There is no third try and no fourth outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// The provider has it, under this id.
    Created(String),
    /// It does not have it.
    NotCreated(RefusedCreate),
    /// Nobody knows.
    Ambiguous(String),
}

/// Why a batch was not created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedCreate {
    /// For people.
    pub why: String,
    /// When the provider asked to be left alone for a while.
    pub retry_after: Option<Duration>,
    /// What it is about.
    pub because: Refusal,
}

/// What a refusal is about, and so what may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The moment: no connection, a rate limit, a full queue. The same may be sent later.
    Moment,
    /// The account: a wrong key, an unpaid bill, a spending cap. Nothing is of use until somebody acts: the account is parked.
    Account,
    /// The size of the body. Half of it may be taken.
    Size,
    /// One of the requests, which makes the whole body unacceptable; which one, if the provider says.
    Request(Option<i32>),
    /// What all of its requests have in common, such as a model that the provider does not have.
    Every,
}

/// A batch that was created, and is not worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedBatch {
    /// For people.
    pub why: String,
    /// What it is about.
    pub because: Refusal,
    /// The requests that the provider names, by their place in the body.
    pub items: Vec<i32>,
}

/// What is known after a live call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Called {
    /// Answered, and paid.
    Answered(LiveReply),
    /// Not answered, and not paid.
    Refused(RefusedCreate),
    /// The provider could not do it this time. Not paid; worth another attempt.
    Failed {
        /// For people.
        why: String,
        /// When it asked to be left alone for a while.
        retry_after: Option<Duration>,
    },
    /// Answered, and paid, but in a form that no step could take.
    Unreadable {
        /// For people.
        why: String,
        /// What came.
        body: Bytes,
    },
    /// Nobody knows.
    Ambiguous(String),
}

/// An answer that came at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveReply {
    /// The reply that a step gets, as [`BatchProvider::reply`] would read it from a line.
    pub body: JsonText,
    /// The model that answered.
    pub model: Option<String>,
    /// What it used; `None` when the provider did not say so in a form that can be read.
    pub usage: Option<Usage>,
}

/// What a provider's reply to a question may lack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// No reply, or a reply that asks to come again.
    #[error("the provider gave no answer: {why}")]
    Unavailable {
        /// For people.
        why: String,
        /// When it asked to be left alone for a while.
        retry_after: Option<Duration>,
    },
    /// It does not know the id; for a batch that it has created this passes.
    #[error("the provider does not know this batch (yet)")]
    NotFound,
    /// The key is refused.
    #[error("the provider refuses the key: {0}")]
    Unauthorized(String),
    /// A reply that cannot be read.
    #[error("the provider's answer cannot be read: {0}")]
    Unreadable(String),
}

/// One batch of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBatch {
    /// The provider's id.
    pub id: String,
    /// When it was created, by the provider's clock.
    pub created_at: Option<DateTime<Utc>>,
    /// How many requests it has, if the listing tells.
    pub requests: Option<i64>,
    /// What we put on it, if it is ours and the provider keeps such a thing.
    pub intent: Option<IntentId>,
}

/// One page of a listing, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listed {
    /// The batches of this page that could be read.
    pub batches: Vec<ListedBatch>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<String>,
}

/// How far the provider is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchState {
    /// Not done.
    InProgress,
    /// Done: results can be read.
    Ended,
    /// Refused as a whole: nothing was worked on, or paid.
    Refused(RefusedBatch),
    /// A word that this version does not know; taken as not done.
    Unknown(String),
}

/// A reply to a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polled {
    /// How far it is.
    pub state: BatchState,
    /// How many requests it has.
    pub requests: Option<i64>,
    /// How many of them succeeded, once it has ended, as far as it says.
    pub succeeded: Option<i64>,
    /// Where its results are, in words that [`BatchProvider::results`] understands.
    pub results_url: Option<String>,
}

/// A stream of bytes from the provider.
pub type Results = BoxStream<'static, Result<Bytes, ProviderError>>;

/// A batch API.
pub trait BatchProvider: Send + Sync + 'static {
    /// What it can do.
    fn capabilities(&self) -> &Capabilities;

    /// The version of the API that requests are written for: part of their meaning.
    fn api_version(&self) -> &str;

    /// Who the provider says we are, and the newest batch it lists.
    fn identify(&self) -> BoxFuture<'_, Result<Identity, ProviderError>>;

    /// What stands before the first request, between two, and after the last.
    fn frame(&self) -> (&'static str, &'static str, &'static str);

    /// The group of a request, never empty: those of one group may travel in one batch. Asked only where requests are
    /// [`grouped`](Capabilities::grouped).
    fn group(&self, _request: &str) -> String {
        "any".to_owned()
    }

    /// One request in the form it has in a body.
    fn item(&self, id: CustomId, request: &str) -> String;

    /// Sends a batch, once: without retries, redirects or second connections.
    fn create(&self, body: Body) -> BoxFuture<'_, Sent>;

    /// One page of the listing; `after` is the place that the page before it named.
    fn list(&self, after: Option<&str>) -> BoxFuture<'_, Result<Listed, ProviderError>>;

    /// Asks how far a batch is.
    fn poll(&self, id: &str) -> BoxFuture<'_, Result<Polled, ProviderError>>;

    /// Asks that a batch be canceled. What is under way may be finished and paid all the same; every request gets a result.
    fn cancel(&self, id: &str) -> BoxFuture<'_, Result<(), ProviderError>>;

    /// Reads a batch's results.
    fn results(&self, id: &str, url: Option<&str>) -> BoxFuture<'_, Result<Results, ProviderError>>;

    /// Reads one line of them. Never fails: what cannot be read is unknown.
    fn read_line(&self, line: &[u8]) -> Line;

    /// The reply that a step gets, from a line that succeeded.
    ///
    /// # Errors
    /// [`InvalidJson`] when the line holds no such reply.
    fn reply(&self, line: &[u8]) -> Result<JsonText, InvalidJson>;

    /// What a request cost in a batch, in nano-dollars; `None` is unknown.
    fn cost(&self, model: &str, usage: &Usage) -> Option<i64>;

    /// Whether it takes requests one by one, outside of batches. If not, requests that want to be live travel in batches.
    fn has_live(&self) -> bool {
        false
    }

    /// Sends one request by itself, once: without retries, redirects or second connections; gives up at the deadline.
    fn live<'a>(&'a self, request: &'a str, deadline: Instant) -> BoxFuture<'a, Called> {
        let _ = (request, deadline);
        let why = "this provider has no live calls".to_owned();
        let refused = RefusedCreate { why, retry_after: None, because: Refusal::Request(None) };
        Box::pin(std::future::ready(Called::Refused(refused)))
    }

    /// What a live call cost, in nano-dollars; `None` is unknown.
    fn live_cost(&self, model: &str, usage: &Usage) -> Option<i64> {
        let _ = (model, usage);
        None
    }

    /// What a request may come to cost at most, in nano-dollars: what budgets reserve for it. `None` is unknown. By default everything
    /// is.
    fn estimate(&self, request: &str) -> Option<i64> {
        let _ = request;
        None
    }

    /// The same of a live call.
    fn live_estimate(&self, request: &str) -> Option<i64> {
        let _ = request;
        None
    }
}
