//! varve: an append-only key-value engine.
pub mod error;
pub mod file;
pub mod format;
