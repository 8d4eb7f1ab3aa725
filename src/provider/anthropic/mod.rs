//! Anthropic's Message Batches. claudius types are taken at the edge; below them is a thin transport of our own for the six
//! batch calls, since a client that retries `create` pays twice, and one that parses results drops what it does not know.

mod edge;
mod live;
mod transport;
mod wire;

pub use super::http::ApiKey;
use super::line::{Line, Usage};
use super::money::PriceTable;
use super::port::{BatchProvider, Body, Called, Capabilities, Identity, Listed, Polled, ProviderError, Results, Sent};
use crate::domain::{CustomId, InvalidJson, JsonText};
use futures::future::BoxFuture;
use std::time::Instant;
use transport::Transport;

/// The API version that requests are written for unless another is chosen.
pub const API_VERSION: &str = "2023-06-01";

/// Where Anthropic's API is.
pub const BASE_URL: &str = "https://api.anthropic.com";

/// Anthropic's Message Batches API.
///
/// ```
/// use longhaul::provider::anthropic::{Anthropic, ApiKey};
/// let claude = Anthropic::new(ApiKey::new("sk-ant-..")).unwrap();
/// assert!(!format!("{claude:?}").contains("sk-ant"));
/// ```
#[derive(Debug)]
pub struct Anthropic {
    transport: Transport,
    capabilities: Capabilities,
    prices: PriceTable,
}

impl Anthropic {
    /// With a key, at [`BASE_URL`].
    ///
    /// # Errors
    /// [`ProviderError::Unavailable`] when no HTTP client can be built on this machine.
    pub fn new(key: ApiKey) -> Result<Self, ProviderError> {
        Ok(Self {
            transport: Transport::new(BASE_URL, key, API_VERSION)?,
            capabilities: Capabilities {
                kind: "anthropic",
                max_requests: 100_000,
                max_bytes: 250_000_000,
                certain_adoption: false,
                grouped: false,
                late_refusals: false,
            },
            prices: PriceTable::standard(),
        })
    }

    /// Another address: a gateway, or the sandbox.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.transport.set_base_url(url.into());
        self
    }

    /// Another version of the API.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.transport.set_version(version.into());
        self
    }

    /// Other prices.
    #[must_use]
    pub fn prices(mut self, prices: PriceTable) -> Self {
        self.prices = prices;
        self
    }
}

impl BatchProvider for Anthropic {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn api_version(&self) -> &str {
        self.transport.version()
    }

    fn identify(&self) -> BoxFuture<'_, Result<Identity, ProviderError>> {
        Box::pin(self.transport.identify())
    }

    fn frame(&self) -> (&'static str, &'static str, &'static str) {
        (r#"{"requests":["#, ",", "]}")
    }

    fn item(&self, id: CustomId, request: &str) -> String {
        format!(r#"{{"custom_id":"{id}","params":{request}}}"#)
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

    fn results(&self, id: &str, url: Option<&str>) -> BoxFuture<'_, Result<Results, ProviderError>> {
        let (id, url) = (id.to_owned(), url.map(str::to_owned));
        Box::pin(async move { self.transport.results(&id, url.as_deref()).await })
    }

    fn read_line(&self, line: &[u8]) -> Line {
        wire::read_line(line)
    }

    fn reply(&self, line: &[u8]) -> Result<JsonText, InvalidJson> {
        wire::reply(line)
    }

    fn cost(&self, model: &str, usage: &Usage) -> Option<i64> {
        self.prices.batch_cost(model, usage)
    }

    fn has_live(&self) -> bool {
        true
    }

    fn live<'a>(&'a self, request: &'a str, deadline: Instant) -> BoxFuture<'a, Called> {
        Box::pin(self.transport.live(request, deadline))
    }

    fn live_cost(&self, model: &str, usage: &Usage) -> Option<i64> {
        self.prices.live_cost(model, usage)
    }

    fn estimate(&self, request: &str) -> Option<i64> {
        let (model, max_tokens) = wire::asked(request)?;
        self.prices.most(&model, request.len(), max_tokens)
    }

    fn live_estimate(&self, request: &str) -> Option<i64> {
        // Twice the price of a batch.
        self.estimate(request)?.checked_mul(2)
    }
}
