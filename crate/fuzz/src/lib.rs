//! What is fuzzed. `cargo fuzz` runs it for ever and is guided by coverage; `tests/fuzz` of the crate
//! runs the same for a while, on a stable toolchain and the same way each time.

pub mod allocations;
pub mod repair;
pub mod targets;
