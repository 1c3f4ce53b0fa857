//! What the tests share: seeded randomness, the fault-injecting file, crash images, the oracle.

pub mod census;
pub mod crashes;
pub mod failures;
pub mod fault_file;
pub mod images;
pub mod oracle;
pub mod pages;
pub mod phases;
pub mod rng;
pub mod session;
pub mod shapes;
pub mod witness;
