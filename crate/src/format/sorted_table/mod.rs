//! Sorted tables: immutable pieces of the index on the medium, which map keys to the positions of their
//! records in the log.
//!
//! A table fills one segment of its own. Blocks of entries in key order are followed by one more block,
//! the table's index, which says where each block begins, and by a filter. Tables whose key ranges do not
//! overlap form a run; an entry in a newer run replaces that of an older one. Keys and positions are
//! separate from values, which stay where they were written (Lu et al., WiscKey, FAST 2016); blocks have
//! shared prefixes and restart points as in LevelDB's tables (`doc/table_format.md` there).
//!
//! The log does not write tables yet: the index on the medium is still that of checkpoints.

pub mod block;
pub mod filter;
pub mod writer;

/// Longest key of an entry: two bytes of the keyspace, and the key.
pub const MAX_TABLE_KEY: usize = 2 + super::MAX_KEY;

/// What a table says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableValue {
    /// The key was deleted: entries of older runs do not count.
    Deleted,
    /// The key's record.
    Record {
        /// Its position, in units of 8 bytes from the first segment.
        position: u32,
        /// Its size in bytes, a multiple of 8.
        size: u32,
    },
}

/// The key of an entry: the keyspace, big-endian, before the key, so that keyspaces are sorted one after
/// the other.
pub fn table_key(keyspace: u32, key: &[u8], out: &mut alloc::vec::Vec<u8>) {
    out.clear();
    out.extend_from_slice(&(keyspace as u16).to_be_bytes());
    out.extend_from_slice(key);
}
