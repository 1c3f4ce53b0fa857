//! The boundary: exports of integers, and the host's file.
//!
//! One store per instance. Keys arrive in a fixed scratch area; values are read and written where
//! they lie, at addresses that the calls return. Plain `extern "C"` and no binding generator:
//! nothing but integers crosses, so there is no glue to keep state in, and any number of instances
//! may live side by side. Its twin is `js/engine/engine.ts`.
//!
//! | file | what it exports |
//! |---|---|
//! | [`instance`] | where the key areas and the answer are |
//! | [`points`] | one key: reading, writing, changing in place; going back |
//! | [`ranges`] | pages of a range, and many keys at once |
//! | [`life`] | opening, turns, what goes to the file and when, closing |
//! | [`reports`] | numbers about the store, the last opening, the last error; verifying |
//!
//! [`host`] is what it imports.
#![allow(unsafe_code)]

mod imports;
mod instance;
mod lifecycle;
mod point_ops;
mod range_ops;
mod stats;
