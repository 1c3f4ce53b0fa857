//! Schemas in Rust compared with those of TypeScript: the same layouts, fingerprints, bytes and
//! keys.

#[cfg(feature = "json")]
mod json;
mod keys;
mod layouts;
mod parts;
mod print;
// Printed by toRust.
#[rustfmt::skip]
mod printed;
