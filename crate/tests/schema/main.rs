//! Schemas in Rust against those of TypeScript: the same layouts, fingerprints, bytes and keys.

mod keys;
mod layouts;
mod parts;
mod print;
// As toRust printed it.
#[rustfmt::skip]
mod printed;
