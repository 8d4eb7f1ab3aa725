//! The integration tests of Longhaul: at its boundaries, on a real PostgreSQL, driven by messages.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod actors;
mod asking;
mod audit;
mod clock;
mod commit;
mod drain;
mod enqueue;
mod enqueue_ways;
mod flows;
mod forks;
mod form;
mod listing;
mod local;
mod models;
mod notify;
mod operate;
mod ownership;
mod people;
mod proxy;
mod questions;
mod rehearsal;
mod results;
mod send;
mod send_again;
mod steps;
mod steps_ledger;
mod support;
mod tidy;
mod values;
