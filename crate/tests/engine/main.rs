//! The engine against crashes, faults, damage, a model, and the defects of its ancestor.
//!
//! All that is random has a seed, and a failure prints it. `VARVE_CRASH_SEED`, `VARVE_LIE_SEED`,
//! `VARVE_FAULT_SEED` and `VARVE_MODEL_SEED` run one seed alone; `VARVE_CRASH_SEEDS`,
//! `VARVE_FAULT_SEEDS` and `VARVE_MODEL_SEEDS` run that many, for as long as one has patience.

mod bound;
mod closing;
mod cold;
mod crafted;
mod crash;
mod deletions;
mod faults;
mod files;
mod flips;
mod gaps;
mod graus;
mod hostile;
mod keys;
mod model;
mod opening;
mod pieces;
mod quota;
mod reused;
mod salvage;
mod sparse;
mod support;
mod taken_over;
mod together;
