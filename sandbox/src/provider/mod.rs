//! A local Message Batches API.
