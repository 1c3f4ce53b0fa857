//! Runs of keys: the keys in order, on the medium, so that a range need not sort them after opening.
//!
//! A run is immutable. Its blocks lie in segments of a kind of their own: leaf blocks with the keys in order,
//! inner blocks that say where each leaf begins, and one root block that does so for the inner ones. The
//! segments of a run need not be contiguous. An entry in a newer run replaces that of an older one, so
//! a checkpoint writes only the keys that were added or deleted, and merges small runs into larger ones
//! (O'Neil et al., The Log-Structured Merge-Tree, 1996). Values stay where they were written.

pub mod block;

/// Longest key of an entry: two bytes of the keyspace, and the key.
pub const MAX_RUN_KEY: usize = 2 + super::MAX_KEY;

/// What a run says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRunValue {
    /// The key was deleted: entries of older runs do not count.
    Deleted,
    /// The key exists. Its record was at this position, in units of 8 bytes from the first segment, when the
    /// entry was written. It may have moved since: this is a hint.
    Record(u32),
    /// In inner blocks and the root: the block whose keys are not below this one.
    Block {
        /// Its position, in units of 8 bytes from the first segment.
        position: u32,
        /// Its length in bytes, a multiple of 8 and at least 16.
        length: u32,
    },
}

/// The key of an entry: the keyspace, big-endian, before the key, so that keyspaces are sorted one after
/// the other.
pub fn run_key(keyspace: u32, key: &[u8], out: &mut alloc::vec::Vec<u8>) {
    out.clear();
    out.extend_from_slice(&(keyspace as u16).to_be_bytes());
    out.extend_from_slice(key);
}
