//! varve: an append-only key-value engine for browsers, edge runtimes and native programs.
//!
//! | module | what it holds |
//! |---|---|
//! | [`store`] | the operations; owns log, index and memory |
//! | [`log`] | the append-only log: append, recover |
//! | [`index`] | hash table for points, ordered keys for ranges |
//! | [`mod@format`] | the bytes of the file; `FORMAT.md` is its twin |
//! | [`mod@file`] | the interface to the outside: five methods |
//! | [`aligned_buf`] | aligned memory for segments |
//! | [`allocator`] | the allocator of the wasm |
//! | [`radix_sort`] | radix sort by numbers |
//! | [`error`] | errors and their codes |
//! | [`schema`] | records that Rust and TypeScript share; not in the wasm |
//! | [`native`] | the API for programs: files with locks, collections; not in the wasm |
//!
//! Imports go one way: `error`, `allocator`, `aligned_buf` and `radix_sort` <- `format`, `file` <-
//! `index`, `log` <- `store` <- `wasm`, and natively `format` <- `schema`, `store` <- `native`.
//!
//! On wasm32 the crate does not use the standard library, whose panics need the code for formatting
//! text: 3 KB of brotli out of 60. The exports, the allocator and the panic handler are part of the
//! feature `module`.

#![cfg_attr(target_arch = "wasm32", no_std)]
// The wasm has neither `native` nor `schema`, to which the table above links.
#![cfg_attr(
    not(target_arch = "wasm32"),
    deny(rustdoc::broken_intra_doc_links, rustdoc::private_intra_doc_links)
)]

extern crate alloc;

pub mod aligned_buf;
pub mod allocator;
pub mod error;
pub mod file;
pub mod format;
pub mod index;
pub mod log;
pub mod radix_sort;
pub mod store;
#[cfg(all(target_arch = "wasm32", feature = "module"))]
mod wasm;

#[cfg(not(target_arch = "wasm32"))]
pub mod native;
#[cfg(not(target_arch = "wasm32"))]
pub mod schema;

/// The Rust program of docs/records.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/records.md")]
struct Records;

pub use error::{Damage, Error};
pub use file::{File, IoError, MemoryFile};
#[cfg(not(target_arch = "wasm32"))]
pub use native::StdFile;
pub use store::{OnDamage, Options, Recovery, Savepoint, Set, Stats, Store};
pub use store::{ProblemKind, Verified, VerifyCursor};
// Their former names.
#[doc(hidden)]
pub use store::{ProblemKind as Part, VerifyCursor as Spot};
