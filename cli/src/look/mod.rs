//! The commands that look and change nothing.

mod batches;
mod list;
mod nodes;
mod questions;
mod runs;
mod status;

pub(crate) use batches::batches;
pub(crate) use list::{runs as list, waits};
pub(crate) use nodes::nodes;
pub(crate) use questions::questions;
pub(crate) use runs::{events, run};
pub(crate) use status::status;

/// A head of a table, or a row of words.
fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}
