//! What Longhaul needs around it when nothing is set up: [`postgres`], a private PostgreSQL server, and [`provider`], a
//! local HTTP server that behaves, and misbehaves, as Anthropic's Message Batches API or OpenAI's Batch API does, and keeps a
//! ledger of what it was paid for.
//!
//! This crate never names `longhaul`, so that `longhaul` can use it in its own tests.

pub mod postgres;
pub mod provider;
