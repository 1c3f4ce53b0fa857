//! The fuzz targets. `cargo fuzz` runs them forever, guided by coverage; `tests/fuzz` of the crate
//! runs them for a limited time, on a stable toolchain and deterministically.

pub mod allocations;
pub mod repair;
pub mod targets;
