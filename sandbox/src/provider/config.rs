//! How a sandbox is set up.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::answer::{Answer, RequestView, Responder};
use super::faults::Script;

/// Requests in one batch, at most.
const MAX_REQUESTS: usize = 100_000;
/// Bytes of one create body, at most. The documentation says "256 MB".
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// Batches on a page of the list when the caller gives no `limit`.
const LIST_PAGE: usize = 20;

/// OpenAI: requests in one batch, at most.
const OPENAI_MAX_REQUESTS: usize = 50_000;
/// OpenAI: bytes of one uploaded file, at most.
const OPENAI_MAX_BYTES: usize = 200 * 1024 * 1024;

/// Whose API a sandbox speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Anthropic's Message Batches and Messages.
    #[default]
    Anthropic,
    /// OpenAI's Batch API with its files, Chat Completions and Responses.
    OpenAi,
}

/// An API key that never shows in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Takes the key.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(redacted)")
    }
}

/// The settings of a [`Sandbox`](super::Sandbox). [`Config::default`] is a fast, unlimited provider on a free port that takes
/// any key and speaks Anthropic's API; [`Config::openai`] speaks OpenAI's.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) dialect: Dialect,
    pub(crate) port: u16,
    pub(crate) processing: Duration,
    pub(crate) jitter: Duration,
    pub(crate) canceling: Duration,
    pub(crate) validating: Duration,
    pub(crate) finalizing: Duration,
    pub(crate) enqueued_tokens: Option<u64>,
    pub(crate) api_key: Option<ApiKey>,
    pub(crate) organization: String,
    pub(crate) workspace: String,
    pub(crate) max_requests: usize,
    pub(crate) max_bytes: usize,
    pub(crate) list_page: usize,
    pub(crate) ledger: Option<PathBuf>,
    pub(crate) seed: Option<u64>,
    pub(crate) responder: Responder,
    pub(crate) script: Script,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dialect: Dialect::Anthropic,
            port: 0,
            processing: Duration::from_millis(100),
            jitter: Duration::ZERO,
            canceling: Duration::ZERO,
            validating: Duration::ZERO,
            finalizing: Duration::ZERO,
            enqueued_tokens: None,
            api_key: None,
            organization: "org_sandbox".to_owned(),
            workspace: "wrkspc_sandbox".to_owned(),
            max_requests: MAX_REQUESTS,
            max_bytes: MAX_BYTES,
            list_page: LIST_PAGE,
            ledger: None,
            seed: None,
            responder: Responder::default(),
            script: Script::default(),
        }
    }
}

impl Config {
    /// The same for OpenAI's Batch API, with its limits: 50,000 requests, files of 200 MiB.
    pub fn openai() -> Self {
        Self {
            dialect: Dialect::OpenAi,
            max_requests: OPENAI_MAX_REQUESTS,
            max_bytes: OPENAI_MAX_BYTES,
            organization: "org-sandbox".to_owned(),
            workspace: "proj_sandbox".to_owned(),
            ..Self::default()
        }
    }

    /// OpenAI: how long a batch is `validating` before it is `in_progress` or `failed`. Default zero.
    #[must_use]
    pub fn validating(mut self, time: Duration) -> Self {
        self.validating = time;
        self
    }

    /// OpenAI: how long a batch is `finalizing` before it is `completed`. Default zero.
    #[must_use]
    pub fn finalizing(mut self, time: Duration) -> Self {
        self.finalizing = time;
        self
    }

    /// OpenAI: tokens that may wait in batches of one model at a time (about four bytes of a request's body are one). A
    /// batch that would be over the limit becomes `failed` with `token_limit_exceeded`. Default: no limit.
    #[must_use]
    pub fn enqueued_tokens(mut self, tokens: u64) -> Self {
        self.enqueued_tokens = Some(tokens);
        self
    }

    /// The TCP port on 127.0.0.1; 0 (the default) takes any free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// How long a batch is `in_progress` before it is processed. Default 100 ms. [`Duration::MAX`] waits for
    /// [`Control::finish`](super::Control::finish).
    #[must_use]
    pub fn processing(mut self, time: Duration) -> Self {
        self.processing = time;
        self
    }

    /// Up to this much is added to the processing time, by the id of the batch. Default zero.
    #[must_use]
    pub fn jitter(mut self, at_most: Duration) -> Self {
        self.jitter = at_most;
        self
    }

    /// How long a canceled batch stays `canceling` before it has `ended`. Default zero.
    #[must_use]
    pub fn canceling(mut self, time: Duration) -> Self {
        self.canceling = time;
        self
    }

    /// The only key that is let in. By default every key that is not empty is.
    #[must_use]
    pub fn api_key(mut self, key: ApiKey) -> Self {
        self.api_key = Some(key);
        self
    }

    /// The `anthropic-organization-id` (or `openai-organization`) of every response.
    #[must_use]
    pub fn organization(mut self, id: impl Into<String>) -> Self {
        self.organization = id.into();
        self
    }

    /// The `anthropic-workspace-id` (or `openai-project`) of every response.
    #[must_use]
    pub fn workspace(mut self, id: impl Into<String>) -> Self {
        self.workspace = id.into();
        self
    }

    /// Requests in one batch, at most; more are answered with 413 (OpenAI: the batch becomes `failed`). Default 100,000, or
    /// 50,000 for OpenAI.
    #[must_use]
    pub fn max_requests(mut self, requests: usize) -> Self {
        self.max_requests = requests;
        self
    }

    /// Bytes of a request body or an uploaded file, at most; more are answered with 413. Default 256 MiB, or 200 MiB for
    /// OpenAI.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Batches on a page of the list when the caller gives no `limit`. Default 20.
    #[must_use]
    pub fn list_page(mut self, batches: usize) -> Self {
        self.list_page = batches;
        self
    }

    /// The file of the paid ledger; it is appended to. By default it is a temporary file that goes away with the sandbox.
    #[must_use]
    pub fn ledger(mut self, path: impl Into<PathBuf>) -> Self {
        self.ledger = Some(path.into());
        self
    }

    /// Makes batch ids (and so the jitter and the order of results) the same at every start. By default they differ.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Replaces the default answers. The function is called once for each valid request and should depend on it alone.
    #[must_use]
    pub fn responder(mut self, respond: impl Fn(&RequestView<'_>) -> Answer + Send + Sync + 'static) -> Self {
        self.responder = Responder::new(respond);
        self
    }

    /// The faults that are in force from the first request on.
    #[must_use]
    pub fn script(mut self, script: Script) -> Self {
        self.script = script;
        self
    }
}
