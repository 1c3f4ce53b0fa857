//! Tests of the engine: crashes, faults, damage, comparison with a model, and the defects of its
//! ancestor.
//!
//! All random tests use seeds, and a failure prints its seed. `VARVE_CRASH_SEED`, `VARVE_LIE_SEED`,
//! `VARVE_FAULT_SEED` and `VARVE_MODEL_SEED` run one seed alone; `VARVE_CRASH_SEEDS`,
//! `VARVE_FAULT_SEEDS` and `VARVE_MODEL_SEEDS` run that many.

mod batched_sets;
mod bit_flips;
mod chunked_values;
mod closing;
mod cold_reads;
mod crafted_records;
mod crash;
mod disk_full;
mod expiry;
mod faults;
mod file_contract;
mod gap_records;
mod grausdb_regressions;
mod history;
mod index_loading;
mod kept_history;
mod key_runs;
mod keys;
mod large_files;
mod limited_index;
mod log_walk;
mod malicious_files;
mod model;
mod open_cost;
#[path = "../../fuzz/src/repair.rs"]
#[allow(
    dead_code,
    reason = "these tests need only some helpers of a file that it shares with the fuzz targets"
)]
mod repair;
mod salvage;
mod slot_reuse;
mod snapshots;
mod space_bound;
mod support;
mod takeover;
mod tombstones;
