//! What can be made to go wrong, and when: the words of a fault script.

use std::time::Duration;

/// The calls of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `POST /v1/messages/batches`
    Create,
    /// `GET /v1/messages/batches/{id}`
    Retrieve,
    /// `GET /v1/messages/batches`
    List,
    /// `POST /v1/messages/batches/{id}/cancel`
    Cancel,
    /// `DELETE /v1/messages/batches/{id}`
    Delete,
    /// `GET /v1/messages/batches/{id}/results`
    Results,
    /// `POST /v1/messages`
    Live,
}

impl Operation {
    pub(crate) const COUNT: usize = 7;

    pub(crate) fn index(self) -> usize {
        match self {
            Self::Create => 0,
            Self::Retrieve => 1,
            Self::List => 2,
            Self::Cancel => 3,
            Self::Delete => 4,
            Self::Results => 5,
            Self::Live => 6,
        }
    }
}

/// Which requests of an operation a fault meets. Requests are counted from 1, from the start of the sandbox, as they
/// arrive; those refused for their headers are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The next one that arrives.
    Next,
    /// The n-th one.
    Nth(usize),
    /// The n-th one and all after it.
    From(usize),
    /// Each one whose number is a multiple of n.
    Every(usize),
    /// Each one.
    Always,
}

/// One thing that goes wrong. Several faults may meet the same request; the earliest refusal wins.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Any operation: the connection is closed without a reply, and nothing has happened.
    Cut,
    /// Any operation: it takes effect, then the connection is closed without a reply.
    AcceptThenCut,
    /// Any operation: it takes effect, and the reply is an error of this status.
    AcceptThenStatus(u16),
    /// Any operation: it takes effect, and the reply is held until [`Control::release_all`](super::Control::release_all)
    /// or until the client goes away.
    Hold,
    /// Any operation: nothing happens, and this is the reply.
    Status {
        /// The HTTP status.
        code: u16,
        /// The body; `None` for the documented error body of that status.
        body: Option<String>,
        /// More headers, such as `retry-after`.
        headers: Vec<(String, String)>,
    },
    /// Any operation on one batch: it answers as if the batch were unknown.
    NotFoundFlap,
    /// Create: the batch is not shown in the list for this long.
    ListLag(Duration),
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
    /// Cancel: the first k requests are too far along; they are processed and paid all the same.
    FinishBeforeCancel(usize),
    /// Results: the connection breaks after so many bytes.
    CutResultsAt(usize),
    /// Results: the stream ends after so many bytes as if it were complete.
    EndResultsAt(usize),
    /// Results: the first k lines are missing.
    MissingLines(usize),
    /// Results: every line is there twice.
    DuplicateLines,
    /// Results: the line at this index (from 0, in the order of the results) is replaced by this text.
    BadLine(usize, String),
}

impl Fault {
    /// The documented error reply of a status.
    pub fn status(code: u16) -> Self {
        Self::Status { code, body: None, headers: Vec::new() }
    }

    /// 429 with a `retry-after` of so many seconds.
    pub fn rate_limited(retry_after_seconds: u64) -> Self {
        let headers = vec![("retry-after".to_owned(), retry_after_seconds.to_string())];
        Self::Status { code: 429, body: None, headers }
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
