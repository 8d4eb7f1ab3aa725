//! A local HTTP server that behaves as a provider's batch API does, for demos and tests without a key: Anthropic's Message
//! Batches ([`Config::default`]) or OpenAI's Batch API ([`Config::openai`]).
//!
//! **Purpose.** Code that talks to the real API can be pointed at [`Sandbox::base_url`] unchanged: the calls of batches (and
//! OpenAI's files), the calls that answer at once, the headers, the limits, the error bodies, the asynchronous validation and
//! the unordered results are as documented. Answers are deterministic: the same request gets the same text and the same usage
//! each time.
//!
//! **State model.** A batch is in progress, may become canceled, and has ended once: it is processed as a whole when its
//! simulated time has passed ([`Config::processing`]), and a second processing of the same batch is refused. All of it
//! is in memory only: a stopped sandbox forgets its batches. What survives is the [`PaidLedger`], one flushed line for each
//! item that was paid, which tells afterwards whether anything was paid twice.
//!
//! **Failure handling.** A [`Fault`] is one thing that goes wrong, [`When`] says for which requests, and [`Control`] or a
//! [`Script`] puts it in force. Each counts how often it has happened, so that a test can prove that it did. Whatever the
//! faults do to replies and results, the ledger tells what was really billed.
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
//!
//! # Testing your own work against it
//!
//! Your test starts a sandbox, points the code under test at it, says what goes wrong, and looks at the outcome, at the
//! counters and at the ledger. None of it needs a key or the network, so it runs in CI. In the examples below plain HTTP
//! stands for the code under test.
//!
//! **Expiry.** Every second request of the first batch expires; those are to be sent again, and the others are not.
//!
//! ```
//! use longhaul_sandbox::provider::{Config, Fault, Operation, PaidLedger, Sandbox, When};
//! # use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sandbox = Sandbox::start(Config::default().processing(Duration::ZERO)).await?;
//! let control = sandbox.control();
//! let expiry = control.inject(Operation::Create, When::Nth(1), Fault::Expire { every: 2 });
//!
//! let send = async |ids: &[&str]| {
//!     let params = r#"{"model":"claude-haiku-4-5","max_tokens":64,"messages":[{"role":"user","content":"Hello."}]}"#;
//!     let requests: Vec<String> =
//!         ids.iter().map(|id| format!(r#"{{"custom_id":"{id}","params":{params}}}"#)).collect();
//!     let body = format!(r#"{{"requests":[{}]}}"#, requests.join(","));
//!     let url = format!("{}/v1/messages/batches", sandbox.base_url());
//!     let create = reqwest::Client::new().post(url).header("x-api-key", "any");
//!     create.header("anthropic-version", "2023-06-01").body(body).send().await
//! };
//! send(&["a-1", "b-1"]).await?;
//! control.wait_ended(&control.batches()[0]).await;
//! send(&["b-2"]).await?;
//! control.wait_ended(&control.batches()[1]).await;
//!
//! assert_eq!(expiry.fired(), 1); // It has happened: the test tests something.
//! let paid = PaidLedger::read(sandbox.ledger_path())?;
//! let ids: Vec<_> = paid.iter().filter_map(|item| item.custom_id.as_deref()).collect();
//! assert_eq!(ids, ["a-1", "b-2"]); // What expired was not billed, and nothing was billed twice.
//! # sandbox.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! **Partial failure.** [`Fault::ErrorItems`] and [`Fault::EveryOutcome`] make requests of a batch fail in all the ways there
//! are, [`Fault::GuiltyItem`] lets one request refuse its whole batch, [`Fault::EndResultsAt`] and its like spoil a download,
//! and [`Fault::SpoilLines`] one line of it. [`Fault::ALL`] names them all, for a test that goes through them; and
//! [`Script::all`] mixes all of which a patient client gets the better:
//!
//! ```
//! use longhaul_sandbox::provider::{Config, Dialect, Fault, Sandbox, Script};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), longhaul_sandbox::provider::Error> {
//! for named in Fault::ALL.iter().filter(|named| named.is_of(Dialect::Anthropic)) {
//!     println!("{}: {:?} of {:?}", named.name, named.faults(), named.operation);
//! }
//! let sandbox = Sandbox::start(Config::default().script(Script::all(Dialect::Anthropic, 42))).await?;
//! // Run the work to its end here. Then see what it has been through:
//! for rule in sandbox.control().faults().iter().filter(|rule| rule.fired > 0) {
//!     println!("{:?} happened {} times", rule.fault, rule.fired);
//! }
//! # sandbox.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! **Crash.** The worst moment is after the provider has accepted a batch and before its id is stored. Hold the reply there,
//! kill the code under test (a child process, or as here a task), start it again, and count what was paid:
//!
//! ```
//! use longhaul_sandbox::provider::{Config, PaidLedger, Sandbox};
//! # use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sandbox = Sandbox::start(Config::default().processing(Duration::ZERO)).await?;
//! let control = sandbox.control();
//! let held = control.hold_next_create();
//!
//! # let url = format!("{}/v1/messages/batches", sandbox.base_url());
//! # let create = |url: String| async move {
//! #     let params = r#"{"model":"claude-haiku-4-5","max_tokens":64,"messages":[{"role":"user","content":"Hello."}]}"#;
//! #     let body = format!(r#"{{"requests":[{{"custom_id":"a","params":{params}}}]}}"#);
//! #     let create = reqwest::Client::new().post(url).header("x-api-key", "any");
//! #     create.header("anthropic-version", "2023-06-01").body(body).send().await
//! # };
//! let worker = tokio::spawn(create(url));
//! let batch = held.accepted().await; // The provider has it, the worker does not know.
//! worker.abort();
//!
//! // Start the worker again here: it has to find the batch, not to send it once more.
//! control.wait_ended(&batch).await;
//! let paid = PaidLedger::summary(&PaidLedger::read(sandbox.ledger_path())?);
//! assert_eq!((paid.items_paid, paid.custom_ids_paid_twice), (1, 0));
//! # sandbox.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! To the client the same moment also looks like [`Fault::AcceptThenCut`], and worse with [`Fault::LateCommit`] beside it: the
//! batch is in no list yet when the client first looks for it.
//!
//! **Money.** Each line of the ledger has the batch, the `custom_id`, the model and the tokens of an item that was billed. A
//! test that multiplies them with its own prices must come to what the code under test has booked, to the last unit.
//!
//! # Steering it over HTTP
//!
//! The same for tests that are not in Rust, or in another process. These calls need no key and are not counted as requests.
//!
//! | call | does |
//! |---|---|
//! | `POST /sandbox/faults` `{"operation", "when", "fault"}` | [`Control::inject`]; `when` is `"next"` if left out, else `"always"`, `{"nth": 2}`, `{"rate": {"per_mille": 50, "seed": 1}}` and so on |
//! | `GET /sandbox/faults` | [`Control::faults`], with `fired` |
//! | `DELETE /sandbox/faults` | [`Control::clear`] |
//! | `POST /sandbox/faults/all` `{"seed"}` | plays [`Script::all`] |
//! | `GET /sandbox/faults/named` | [`Fault::ALL`], with examples in JSON |
//! | `POST /sandbox/release` | [`Control::release_all`] |
//! | `GET /sandbox/requests` | [`Control::seen`] and [`Control::served`] of each operation |
//! | `GET /sandbox/batches` | [`Control::batches`] |
//! | `POST /sandbox/batches` `{"requests"}` | [`Control::foreign_batch`] |
//! | `POST /sandbox/batches/{id}/finish` | [`Control::finish`]; answers when the batch has ended |
//! | `POST /sandbox/batches/{id}/archive` | [`Control::archive`] |
//! | `GET /sandbox/paid` | the ledger: `summary` and `items` |
//!
//! ```
//! use longhaul_sandbox::provider::{Config, Sandbox};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sandbox = Sandbox::start(Config::openai()).await?;
//! let fault = r#"{"operation": "results", "when": {"times": 2}, "fault": {"end_results_at": 1000}}"#;
//! let inject = reqwest::Client::new().post(format!("{}/sandbox/faults", sandbox.base_url()));
//! let reply = inject.header("content-type", "application/json").body(fault).send().await?;
//! assert_eq!(reply.status(), 200);
//! # sandbox.stop().await;
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
