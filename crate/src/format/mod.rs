//! The bytes of a database file: encoding, decoding and layout, without I/O.
//!
//! `FORMAT.md` next to this crate specifies the same bytes exactly. Every header is a
//! musli-zerocopy struct, little-endian, without padding, its size asserted at compile time, so
//! that the bytes on disk are the bytes in memory.

pub mod checkpoint;
pub mod checksum;
pub mod frame;
pub mod key_run;
pub mod record;
pub mod segment;
pub mod superblock;
pub mod system_records;

#[cfg(not(target_endian = "little"))]
compile_error!("varve reads its file format in place, which needs a little-endian target");

/// Format version written by this build; a file of another major version is refused.
pub const MAJOR: u16 = 1;
/// Minor version: compatible additions.
pub const MINOR: u16 = 0;

/// Everything in the file starts at a multiple of this.
pub const ALIGN: usize = 8;
/// The start of the segments, after two superblock slots.
pub const DATA_START: u64 = 2 * superblock::SLOT_STRIDE;

/// Longest key in bytes.
pub const MAX_KEY: usize = 65_535;
/// Longest value in bytes.
pub const MAX_VALUE: usize = 16 << 20;
/// Smallest and largest segment, as powers of two.
pub const SEGMENT_LOG2: core::ops::RangeInclusive<u8> = 12..=24;
/// The segment size of ordinary databases: 1 MiB.
pub const DEFAULT_SEGMENT_LOG2: u8 = 20;

/// The longest note of a transaction.
pub const MAX_NOTE: usize = 1 << 16;

/// The keyspace of calls without a collection.
pub const KEYSPACE_RAW: u32 = 0;
/// The keyspace of the engine's own records.
pub const KEYSPACE_ENGINE: u32 = 1;
/// The first keyspace of collections and indexes.
pub const KEYSPACE_FIRST_COLLECTION: u32 = 2;
/// The last possible keyspace.
pub const LAST_KEYSPACE: u32 = u16::MAX as u32;

/// `n` rounded up to the alignment of the file.
#[must_use]
pub const fn align_up(n: usize) -> usize {
    (n + (ALIGN - 1)) & !(ALIGN - 1)
}

/// The longest value that is stored in its record, in a segment of the given size. Longer ones are
/// stored in chunks or in an extent.
#[must_use]
pub const fn inline_limit(segment_log2: u8) -> usize {
    (1 << (segment_log2 - 1)) - 1024
}

/// The longest chunk of a chunked value: eight of them fill a segment. `FORMAT.md` calls them
/// chunks.
#[must_use]
pub const fn chunk_limit(segment_log2: u8) -> usize {
    (1 << (segment_log2 - 3)) - 128
}

/// The batch size at which a commit is written without waiting for the end of the turn.
#[must_use]
pub const fn commit_size_limit(segment_log2: u8) -> usize {
    let quarter = 1 << (segment_log2 - 2);
    if quarter < 256 << 10 { quarter } else { 256 << 10 }
}
