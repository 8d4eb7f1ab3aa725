//! A local HTTP server that behaves as Anthropic's Message Batches API does, for demos and tests without a key.
//!
//! **Purpose.** Code that talks to the real API can be pointed at [`Sandbox::base_url`] unchanged: the six batch calls and
//! `POST /v1/messages`, the headers, the limits, the error bodies, the asynchronous validation and the unordered results
//! are as documented. Answers are deterministic: the same request gets the same text and the same usage each time.
//!
//! **State model.** A batch is `in_progress`, may become `canceling`, and is `ended` once: it is processed as a whole when
//! its simulated time has passed ([`Config::processing`]), and a second processing of the same batch is refused. All of it
//! is in memory only: a stopped sandbox forgets its batches. What survives is the [`PaidLedger`], one flushed line for each
//! item that was paid, which tells afterwards whether anything was paid twice.
//!
//! **Failure handling.** [`Control`] and [`Script`] let a test break chosen requests: a create that is accepted and then
//! cut off, a reply that is held, a 404 that comes and goes, results that end early, and so on (see [`Fault`]).
//!
//! **Deliberately absent.** Streaming answers, prompt caching, server tools, several workspaces behind one key, rate
//! limits other than scripted ones, and the 24-hour clock (a batch expires only when [`Fault::Expire`] says so).
//!
//! ```
//! use longhaul_sandbox::provider::{Config, PaidLedger, Sandbox};
//! # use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), longhaul_sandbox::provider::Error> {
//! let sandbox = Sandbox::start(Config::default().processing(Duration::from_millis(200))).await?;
//! // Point a client at `sandbox.base_url()`, with any API key, and afterwards:
//! let paid = PaidLedger::read(sandbox.ledger_path())?;
//! assert_eq!(PaidLedger::summary(&paid).logical_paid_twice, 0);
//! sandbox.stop().await;
//! # Ok(())
//! # }
//! ```

mod accept;
mod answer;
mod app;
mod auth;
mod batch;
mod batches;
mod canonical;
mod catalogue;
mod config;
mod control;
mod create;
mod default_answers;
mod download;
mod error;
mod faults;
mod injector;
mod layer;
mod ledger;
mod live;
mod message;
mod openai;
mod params;
mod prices;
mod processor;
mod remote;
mod results;
mod routes;
mod sandbox;
mod serve;
mod shelf;
mod spoil_line;
mod spoil_object;
mod text;
mod tools;
mod wire;

pub use answer::{Answer, RequestView, Responder};
pub use canonical::canonical_json;
pub use catalogue::Named;
pub use config::{ApiKey, Config, Dialect};
pub use control::{Control, Held, Injected};
pub use error::Error;
pub use faults::{Fault, Operation, Script, When};
pub use injector::Rule;
pub use ledger::{Paid, PaidLedger, Summary};
pub use prices::{PRICES_AS_OF, Price, price_of};
pub use sandbox::Sandbox;
pub use spoil_line::SpoiltLine;
pub use spoil_object::SpoiltObject;
