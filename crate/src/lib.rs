//! varve: an append-only key-value store for browsers, edge runtimes and native programs.
//!
//! | name | what it is |
//! |---|---|
//! | [`Store`] | a database file that this process has open |
//! | [`Collection`] | records of one type in it, with their indexes |
//! | [`Reader`] | a database in memory, read by any number of threads |
//! | [`CollectionOptions`], [`IndexBy`] | the keys and the indexes of a collection |
//! | [`Batch`] | writes that are made together |
//! | [`KeyRange`] | a range of keys and its order |
//! | [`Slice`] | a key or a value that belongs to the program |
//! | [`Snapshot`] | everything as it was, while the store goes on |
//! | [`Log`] | the log as history: a walk over its transactions |
//! | [`Changes`], [`Follower`] | what happened since a cursor, and from then on |
//! | [`SetOptions`], [`Expiry`] | when a record expires, and which version a write expects |
//! | [`Error`] | the errors, with the codes of the TypeScript package |
//! | [`schema`] | records that Rust and TypeScript share |
//! | `web` | the same in browsers, with the feature `web` on wasm32-unknown-unknown: a store is opened by its name there |
//!
//! `FORMAT.md` specifies the file, and `DESIGN.md` explains the engine, which is in [`engine`] for the crate's own
//! tests and tools.

// The package's wasm does not use the standard library, whose panics need the code for formatting text: 3 KB of brotli
// out of 60. The exports, the allocator and the panic handler are part of the feature `module`.
#![cfg_attr(all(target_arch = "wasm32", not(feature = "web")), no_std)]
// That wasm has neither `native` nor `schema`, to which the table above links.
#![cfg_attr(
    any(not(target_arch = "wasm32"), feature = "web"),
    deny(rustdoc::broken_intra_doc_links, rustdoc::private_intra_doc_links)
)]

#[cfg(all(target_arch = "wasm32", feature = "module", feature = "web"))]
compile_error!(
    "the feature `module` is for the npm package's own wasm: a program takes the feature `web` alone"
);

extern crate alloc;

#[doc(hidden)]
pub mod aligned_buf;
#[doc(hidden)]
pub mod engine;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod file;
#[doc(hidden)]
pub mod format;
#[doc(hidden)]
pub mod index;
#[doc(hidden)]
pub mod log;
#[doc(hidden)]
pub mod radix_sort;
#[doc(hidden)]
pub mod store;
#[cfg(all(target_arch = "wasm32", feature = "module"))]
mod wasm;
#[doc(hidden)]
pub mod wasm_allocator;

#[cfg(not(target_arch = "wasm32"))]
pub mod native;
// The same API in browsers: `web` provides the files.
#[cfg(all(target_arch = "wasm32", feature = "web"))]
mod native;
#[cfg(any(not(target_arch = "wasm32"), feature = "web"))]
pub mod schema;
#[cfg(all(target_arch = "wasm32", feature = "web"))]
pub mod web;

/// The Rust program of docs/records.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/records.md")]
struct Records;

#[cfg(any(not(target_arch = "wasm32"), feature = "web"))]
pub use aligned_buf::AlignedBytes;
#[cfg(any(not(target_arch = "wasm32"), feature = "web"))]
pub use native::*;
#[cfg(any(not(target_arch = "wasm32"), feature = "web"))]
pub use store::{OnDamage, Recovery, Stats};
