//! Shared by the tests: seeded randomness, files that inject faults or count bytes, crash images, the oracle.

pub mod counting_file;
pub mod crash_images;
pub mod crash_programs;
pub mod expiry;
pub mod fault_file;
pub mod fault_programs;
pub mod in_flight;
pub mod oracle;
pub mod pages;
pub mod past_commits;
pub mod phases;
pub mod raw_file;
pub mod rng;
pub mod session;
pub mod shapes;
pub mod snapshots;
