//! The integration tests of Longhaul: at its boundaries, on a real PostgreSQL, driven by messages.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod actors;
mod asking;
mod audit;
mod checking;
mod clock;
mod commit;
mod drain;
mod dynamic;
mod enqueue;
mod flows;
mod forks;
mod form;
mod letters;
mod local;
mod merging;
mod models;
mod notify;
mod ownership;
mod people;
mod policies;
mod programs;
mod proxy;
mod rehearsal;
mod results;
mod retention;
mod send;
mod send_again;
mod steps;
mod steps_ledger;
mod support;
mod tidy;
mod unlucky;
mod values;
mod versions;
mod wrong;
