//! Seeded XXH3-64, the one checksum of the format.
//!
//! The seed binds bytes to their place: a frame's is its segment's salt and its position, so that
//! stale frames of reused segments, misplaced writes, and images of databases stored as values
//! never pass for frames of this log.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// XXH3-64 of `bytes` under `seed`.
#[must_use]
pub fn checksum(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// The seed for bytes at file position `position` in a segment with `salt`.
#[must_use]
pub const fn seed_at(salt: u64, position: u64) -> u64 {
    salt ^ position.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
