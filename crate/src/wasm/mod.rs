//! The boundary to JavaScript: exports that take and return integers, and the host's file.
//!
//! Each instance has one store. Keys are passed in a fixed scratch area; values are read and
//! written in place, at addresses that the calls return. It uses plain `extern "C"` and no binding
//! generator: only integers cross the boundary, so there is no glue code with state, and any number
//! of instances may exist. The other side is `js/engine/engine.ts`.
//!
//! | file | what it exports |
//! |---|---|
//! | [`instance`] | the addresses of the key areas and the answer |
//! | [`point_ops`] | one key: reading, writing, changing in place; savepoints |
//! | [`range_ops`] | pages of a range, and many keys at once |
//! | [`log_ops`] | notes of transactions, and walks over the log |
//! | [`lifecycle`] | opening, turns, committing and flushing, closing |
//! | [`stats`] | statistics of the store, the last opening, the last error; verification |
//!
//! [`imports`] declares the imports.
#![allow(unsafe_code)]

mod imports;
mod instance;
mod lifecycle;
mod log_ops;
mod point_ops;
mod range_ops;
mod stats;
