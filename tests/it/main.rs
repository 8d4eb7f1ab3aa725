//! The integration tests of Longhaul: at its boundaries, on a real PostgreSQL, driven by messages.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod actors;
mod asking;
mod audit;
mod clock;
mod commit;
mod doctor;
mod drain;
mod enqueue;
mod flows;
mod forks;
mod form;
mod local;
mod models;
mod notify;
mod ownership;
mod people;
mod policies;
mod proxy;
mod rehearsal;
mod results;
mod send;
mod send_again;
mod steps;
mod steps_ledger;
mod support;
mod tidy;
mod values;
