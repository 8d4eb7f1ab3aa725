//! OpenAI's Batch API: a file of requests is uploaded, a batch is made of it, and its results are two files. `metadata` carries
//! our intent and comes back in every listing, so a create without a readable answer is found again for certain.
//!
//! Requests are those of `/v1/chat/completions` or `/v1/responses`, told apart by their shape (`messages` or `input`). A batch
//! is for one of the two and for one model, so requests travel in groups of both. Deliberately absent: the other endpoints,
//! and the deletion of files, which OpenAI removes after 30 days.

mod prices;
mod transport;
mod wire;

pub use super::http::ApiKey;
use super::line::{Line, Usage};
use super::money::PriceTable;
use super::port::{BatchProvider, Body, Capabilities, Identity, Listed, Polled, ProviderError, Results, Sent};
use crate::domain::{CustomId, InvalidJson, JsonText};
use futures::future::BoxFuture;
use transport::Transport;

/// Where OpenAI's API is.
pub const BASE_URL: &str = "https://api.openai.com";

/// OpenAI's Batch API.
///
/// ```
/// use longhaul::provider::openai::{ApiKey, OpenAi};
/// let gpt = OpenAi::new(ApiKey::new("sk-proj-..")).unwrap().project("proj_1");
/// assert!(!format!("{gpt:?}").contains("sk-proj"));
/// ```
#[derive(Debug)]
pub struct OpenAi {
    transport: Transport,
    capabilities: Capabilities,
    prices: PriceTable,
}

impl OpenAi {
    /// With a key, at [`BASE_URL`].
    ///
    /// # Errors
    /// [`ProviderError::Unavailable`] when no HTTP client can be built on this machine.
    pub fn new(key: ApiKey) -> Result<Self, ProviderError> {
        Ok(Self {
            transport: Transport::new(BASE_URL, key)?,
            capabilities: Capabilities {
                kind: "openai",
                max_requests: 50_000,
                max_bytes: 200_000_000,
                certain_adoption: true,
                grouped: true,
                late_refusals: true,
            },
            prices: prices::standard(),
        })
    }

    /// Another address: a gateway, or the sandbox. Without `/v1`.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.transport.base_url = url.into().trim_end_matches('/').to_owned();
        self
    }

    /// The organization that is asked for, where a key reaches several.
    #[must_use]
    pub fn organization(mut self, id: impl Into<String>) -> Self {
        self.transport.organization = Some(id.into());
        self
    }

    /// The project that is asked for, where a key reaches several.
    #[must_use]
    pub fn project(mut self, id: impl Into<String>) -> Self {
        self.transport.project = Some(id.into());
        self
    }

    /// Other prices. What is read from the prompt cache costs a tenth; set none for models where that is not so.
    #[must_use]
    pub fn prices(mut self, prices: PriceTable) -> Self {
        self.prices = prices;
        self
    }

    /// List prices of OpenAI's models for batches with text, as known when this version was written. A model that is not
    /// among them has an unknown cost.
    pub fn standard_prices() -> PriceTable {
        prices::standard()
    }
}

impl BatchProvider for OpenAi {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn api_version(&self) -> &str {
        "v1"
    }

    fn identify(&self) -> BoxFuture<'_, Result<Identity, ProviderError>> {
        Box::pin(self.transport.identify())
    }

    /// A line each. Nothing stands before the first.
    fn frame(&self) -> (&'static str, &'static str, &'static str) {
        ("", "\n", "\n")
    }

    fn group(&self, request: &str) -> String {
        wire::group(request)
    }

    fn item(&self, id: CustomId, request: &str) -> String {
        wire::item(id, request)
    }

    fn create(&self, body: Body) -> BoxFuture<'_, Sent> {
        Box::pin(self.transport.create(body))
    }

    fn list(&self, after: Option<&str>) -> BoxFuture<'_, Result<Listed, ProviderError>> {
        let after = after.map(str::to_owned);
        Box::pin(async move { self.transport.list(after.as_deref()).await })
    }

    fn poll(&self, id: &str) -> BoxFuture<'_, Result<Polled, ProviderError>> {
        let id = id.to_owned();
        Box::pin(async move { self.transport.poll(&id).await })
    }

    fn cancel(&self, id: &str) -> BoxFuture<'_, Result<(), ProviderError>> {
        let id = id.to_owned();
        Box::pin(async move { self.transport.cancel(&id).await })
    }

    fn results(&self, _: &str, files: Option<&str>) -> BoxFuture<'_, Result<Results, ProviderError>> {
        let files = files.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        Box::pin(self.transport.results(files))
    }

    fn read_line(&self, line: &[u8]) -> Line {
        wire::read_line(line)
    }

    fn reply(&self, line: &[u8]) -> Result<JsonText, InvalidJson> {
        wire::reply(line)
    }

    fn cost(&self, model: &str, usage: &Usage) -> Option<i64> {
        prices::cost(&self.prices, model, usage)
    }

    fn estimate(&self, request: &str) -> Option<i64> {
        let (model, output_tokens) = wire::asked(request)?;
        // A token for every three bytes; there is no price for being written into the cache.
        let input_tokens = i64::try_from(request.len().div_ceil(3)).ok()?;
        self.cost(&model, &Usage { input_tokens, output_tokens, ..Usage::default() })
    }
}
