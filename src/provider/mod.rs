//! Providers of models: the port that a batch API is reached through, and what it costs.
//!
//! A provider is data about what its API can do, plus one function per call; raw JSON goes in and raw lines come out.
//! Deliberately absent: retries, batching and bookkeeping. They are the submitter's and the ingester's, so that they are the
//! same for every provider and testable without one.

#[cfg(feature = "anthropic")]
pub mod anthropic;
#[cfg(any(feature = "anthropic", feature = "openai"))]
mod http;
mod line;
mod money;
#[cfg(feature = "openai")]
pub mod openai;
mod port;

pub(crate) use line::kept_name;
pub use line::{Line, LineOutcome, Usage};
pub use money::{Price, PriceTable};
pub use port::{
    BatchProvider, BatchState, Body, Called, Capabilities, Identity, Listed, ListedBatch, LiveReply, Polled,
    ProviderError, Refusal, RefusedBatch, RefusedCreate, Results, Sent,
};
