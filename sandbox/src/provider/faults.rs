//! What can be made to go wrong, and when: the words of a fault script.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::spoil_line::SpoiltLine;
use super::spoil_object::SpoiltObject;

/// The calls of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Creates a batch: `POST /v1/messages/batches` or `POST /v1/batches`.
    Create,
    /// Reads a batch: `GET` of one batch.
    Retrieve,
    /// Lists the batches: `GET` of all.
    List,
    /// Cancels a batch: `POST .../cancel`.
    Cancel,
    /// Deletes a batch (`DELETE /v1/messages/batches/{id}`) or a file (`DELETE /v1/files/{id}`).
    Delete,
    /// Downloads results: `GET /v1/messages/batches/{id}/results` or `GET /v1/files/{id}/content`.
    Results,
    /// One call at once: `POST /v1/messages`, `/v1/chat/completions` or `/v1/responses`.
    Live,
    /// Uploads a file: `POST /v1/files`.
    Upload,
    /// Lists the files (`GET /v1/files`) or reads what is known of one (`GET /v1/files/{id}`).
    Files,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Create,
        Self::Retrieve,
        Self::List,
        Self::Cancel,
        Self::Delete,
        Self::Results,
        Self::Live,
        Self::Upload,
        Self::Files,
    ];
    pub(crate) const COUNT: usize = 9;

    pub(crate) fn index(self) -> usize {
        match self {
            Self::Create => 0,
            Self::Retrieve => 1,
            Self::List => 2,
            Self::Cancel => 3,
            Self::Delete => 4,
            Self::Results => 5,
            Self::Live => 6,
            Self::Upload => 7,
            Self::Files => 8,
        }
    }
}

/// Which requests of an operation a fault meets. Requests are counted from 1, from the start of the sandbox, as they
/// arrive; those refused for their headers are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// The next one that arrives.
    Next,
    /// So many of the next ones that arrive.
    Times(usize),
    /// The n-th one.
    Nth(usize),
    /// The n-th one and all after it.
    From(usize),
    /// Each one whose number is a multiple of n.
    Every(usize),
    /// Each one.
    Always,
    /// So many of a thousand, chosen by the seed and the request's number: the same ones at every start.
    Rate {
        /// How many of a thousand.
        per_mille: u16,
        /// What the choice is made from. Rules with the same seed and rate meet the same requests.
        seed: u64,
    },
}

/// One thing that goes wrong. Several faults may meet the same request; the earliest refusal wins.
///
/// In JSON (see [the calls that steer a sandbox](super#steering-it-over-http)) a fault is its name in snake case, with its
/// fields below it, and a time is a number of milliseconds: `"cut"`, `{"list_lag": 500}`, `{"expire": {"every": 2}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Fault {
    /// Any operation: the connection is closed without a reply, and nothing has happened.
    Cut,
    /// Any operation: it takes effect, then the connection is closed without a reply.
    AcceptThenCut,
    /// Any operation: it takes effect, then the connection is reset (TCP RST) without a reply.
    AcceptThenReset,
    /// Any operation: it takes effect, and the reply is an error of this status.
    AcceptThenStatus(u16),
    /// Any operation: it takes effect, and the reply is held until [`Control::release_all`](super::Control::release_all)
    /// or until the client goes away.
    Hold,
    /// Any operation: it takes effect, and the reply is held for this long.
    HoldFor(#[serde(with = "millis")] Duration),
    /// Any operation: nothing happens, and this is the reply.
    Status {
        /// The HTTP status.
        code: u16,
        /// The body; `None` for the documented error body of that status.
        #[serde(default)]
        body: Option<String>,
        /// More headers, such as `retry-after`.
        #[serde(default)]
        headers: Vec<(String, String)>,
    },
    /// Any operation: 429 with the API's rate limit headers.
    RateLimited {
        /// Seconds of `retry-after`; without them that header is missing.
        #[serde(default)]
        retry_after: Option<u64>,
    },
    /// Any operation: the refusal of an account that has spent all it may: 429 without `retry-after`, told from a rate limit
    /// only by `error.details.error_code` (Anthropic) or `error.code` (OpenAI).
    SpendCap,
    /// Any operation on one batch or file: it answers as if that were unknown.
    NotFoundFlap,
    /// Retrieve and results, of a batch that has ended: an error of this status. Requests before the end are not met.
    FailAfterEnd(u16),
    /// Create, retrieve, list and cancel: it takes effect, and the JSON of the reply is spoilt.
    SpoilObject(SpoiltObject),

    /// Create: the batch is not shown in the list for this long.
    ListLag(#[serde(with = "millis")] Duration),
    /// Create: the batch comes to exist only after this time, whatever became of the reply. Until then it is in no list, and
    /// unknown to every other call.
    LateCommit(#[serde(with = "millis")] Duration),
    /// Create: the request takes effect twice. The reply tells of the first batch; both are processed and paid.
    Twin,
    /// Create: somebody else's batch of as many requests appears in the workspace just before. It is not in the ledger.
    ForeignBatch,
    /// Create: when the params of a request contain this text, the whole create is refused with 400. OpenAI: the batch becomes
    /// `failed` when it is validated, with an error for each such request, and with its line if the message has `{n}`.
    GuiltyItem {
        /// The text, as it stands in the JSON that was sent.
        containing: String,
        /// The message, in which `{n}` stands for the request's index (from 0).
        message: String,
    },
    /// Create: every k-th request expires (1: all of them). They are not paid.
    Expire {
        /// The k.
        every: usize,
    },
    /// Create: every k-th request is errored with this type. They are not paid.
    ErrorItems {
        /// The error's type, such as `overloaded_error`.
        error_type: String,
        /// The k.
        every: usize,
    },
    /// Create: every k-th request ends as canceled although nobody canceled. They are not paid.
    CancelItems {
        /// The k.
        every: usize,
    },
    /// Create: the requests in turn succeed, are errored with each type there is, expire and are canceled.
    EveryOutcome,
    /// Create: the results are archived as soon as the batch has ended: what was paid cannot be read.
    Archive,
    /// Create (OpenAI): the batch becomes `failed` when it is validated, with this error. Nothing is paid.
    FailValidation {
        /// The error's code, such as `token_limit_exceeded`.
        code: String,
        /// The error's message.
        message: String,
    },
    /// Cancel: the first k requests are too far along; they are processed and paid all the same.
    FinishBeforeCancel(usize),

    /// Results: the connection is closed after so many bytes, in the middle of the body.
    CutResultsAt(usize),
    /// Results: the connection is reset (TCP RST) after so many bytes. What was sent last may be lost with it.
    ResetResultsAt(usize),
    /// Results: the stream ends after so many bytes as if it were complete.
    EndResultsAt(usize),
    /// Results: nothing is sent for a while after so many bytes; then the rest is.
    StallResultsAt {
        /// The bytes before it.
        bytes: usize,
        /// How long nothing is sent.
        #[serde(with = "millis")]
        time: Duration,
    },
    /// Results, or create for every download of the batch: the first k lines are missing.
    MissingLines(usize),
    /// Results, or create for every download of the batch: every line is there twice.
    DuplicateLines,
    /// Results, or create for every download of the batch: the lines are in an order of their own.
    ReorderLines,
    /// Results, or create for every download of the batch: so many lines of an unknown batch stand between.
    ForeignLines(usize),
    /// Results, or create for every download of the batch: the line at this index (from 0, in the order of the results) is
    /// replaced by this text.
    BadLine(usize, String),
    /// Results, or create for every download of the batch: every k-th line (in the order of the results) is spoilt.
    SpoilLines {
        /// The k.
        every: usize,
        /// How.
        with: SpoiltLine,
    },
}

impl Fault {
    /// The documented error reply of a status.
    pub fn status(code: u16) -> Self {
        Self::Status { code, body: None, headers: Vec::new() }
    }

    /// 429 with a `retry-after` of so many seconds.
    pub fn rate_limited(retry_after_seconds: u64) -> Self {
        Self::RateLimited { retry_after: Some(retry_after_seconds) }
    }

    /// 413 with the page of the proxy that stands before the API, instead of an error body.
    pub fn too_large_by_proxy() -> Self {
        let page = "<html><head><title>413 Request Entity Too Large</title></head></html>";
        let headers = vec![("content-type".to_owned(), "text/html".to_owned())];
        Self::Status { code: 413, body: Some(page.to_owned()), headers }
    }

    /// Whether it says what becomes of the result lines.
    pub(crate) fn is_of_lines(&self) -> bool {
        matches!(
            self,
            Self::MissingLines(_)
                | Self::DuplicateLines
                | Self::ReorderLines
                | Self::ForeignLines(_)
                | Self::BadLine(..)
                | Self::SpoilLines { .. }
        )
    }
}

/// Faults and when they happen.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub(crate) rules: Vec<(Operation, When, Fault)>,
}

impl Script {
    /// Adds a fault.
    #[must_use]
    pub fn on(mut self, operation: Operation, when: When, fault: Fault) -> Self {
        self.rules.push((operation, when, fault));
        self
    }
}

/// Times as whole milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}
