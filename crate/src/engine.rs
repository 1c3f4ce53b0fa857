//! The engine without files and locks, for the crate's own tests and tools. It may change in any release.
//!
//! | module | what it holds |
//! |---|---|
//! | [`store`] | the operations; owns log, index and memory |
//! | [`log`] | the append-only log: append, recover |
//! | [`index`] | hash table for points, ordered keys for ranges |
//! | [`mod@format`] | the bytes of the file; `FORMAT.md` is its twin |
//! | [`mod@file`] | the interface to the outside: five methods |
//! | [`aligned_buf`] | aligned memory for segments |
//! | [`wasm_allocator`] | the memory allocator of the wasm |
//! | [`radix_sort`] | radix sort by numbers |
//! | [`error`] | errors and their codes |
//!
//! Imports go one way: `error`, `wasm_allocator`, `aligned_buf` and `radix_sort` <- `format`, `file` <- `index`, `log` <-
//! `store` <- `wasm`, and natively `format` <- `schema`, `store` <- `native`.

pub use crate::error::{Damage, Error};
pub use crate::file::{File, IoError, MemoryFile};
pub use crate::store::{
    KeyBounds, OnDamage, Options, ProblemKind, Recovery, Savepoint, Set, Stats, Store, Verified,
    VerifyCursor,
};
pub use crate::{aligned_buf, error, file, format, index, log, radix_sort, store, wasm_allocator};
