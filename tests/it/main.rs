//! The integration tests of Longhaul: at its boundaries, on a real PostgreSQL, driven by messages.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod local;
mod support;
