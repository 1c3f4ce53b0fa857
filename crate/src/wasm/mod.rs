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
//! | [`point_ops`] | one key: reading, writing, changing in place; going back |
//! | [`range_ops`] | pages of a range, and many keys at once |
//! | [`lifecycle`] | opening, turns, what goes to the file and when, closing |
//! | [`stats`] | numbers about the store, the last opening, the last error; verifying |
//!
//! [`imports`] declares the imports.
#![allow(unsafe_code)]

mod imports;
mod instance;
mod lifecycle;
mod point_ops;
mod range_ops;
mod stats;
