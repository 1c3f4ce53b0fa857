//! Checkpoints: the index as of just before one frame, so that opening replays only the tail of the
//! log. They are stored in segments of their own: a head with six tables, then blocks of entries in the
//! order of their hashes, so that one entry is found without reading the others.

use musli_zerocopy::ZeroCopy;

use super::align_up;
use super::checksum::{checksum, seed_at};

/// `b"VCP5"`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"VCP5");
/// Bytes of a full block of entries: its checksum, followed by entries of 8 bytes each.
pub const BLOCK: usize = 4 << 10;
/// Entries of a full block.
pub const BLOCK_ENTRIES: usize = BLOCK / 8 - 1;

/// The start of a checkpoint.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CheckpointHead {
    /// XXH3-64 of bytes 8..`length`, seeded with the segment's salt and the head's position.
    pub check: u64,
    /// [`MAGIC`].
    pub magic: u32,
    /// Bytes of the head with its tables; a multiple of 8.
    pub length: u32,
    /// The index is as of just before this frame.
    pub frame: u64,
    /// Sequence of the segment in which that frame is expected.
    pub end_sequence: u32,
    /// Offset at which it is expected there, if it does not begin the next segment.
    pub end_offset: u32,
    /// Versions below this may have been used.
    pub next_version: u64,
    /// Entries in the blocks.
    pub entries: u64,
    /// Rows of the first table, [`KeyspaceRow`].
    pub keyspaces: u32,
    /// Rows of the second, [`SegmentRow`]: every segment of the log that is needed.
    pub segments: u32,
    /// Rows of the third, [`ExtentRow`].
    pub extents: u32,
    /// Segments from this sequence on are younger.
    pub next_sequence: u32,
    /// Rows of the fourth table, [`RunRow`]: the runs of keys, the oldest first. The last row may be blank.
    pub runs: u32,
    /// Rows of the fifth, [`RunSegmentRow`]: the segments of the first run in order, then those of the next.
    /// The last rows may be blank. The sixth table has the first hash of each block, a u32, and zeros
    /// up to a multiple of 8.
    pub run_segments: u32,
}

/// The number of keys in a keyspace.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KeyspaceRow {
    /// The keyspace.
    pub keyspace: u16,
    /// Zero.
    pub reserved: u16,
    /// Its number of keys, limited by the number of positions.
    pub count: u32,
    /// Records with smaller versions are dead, although there are entries for them; 0 if there are
    /// none.
    pub cleared: u64,
    /// Runs below this sequence do not count for it.
    pub first_run: u32,
    /// Zero.
    pub reserved2: u32,
}

/// A segment of the log, with what its header says, so that opening need not read one header for each
/// segment of the file.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SegmentRow {
    /// Its slot.
    pub slot: u32,
    /// Its sequence.
    pub sequence: u32,
    /// Its salt.
    pub salt: u64,
    /// The number of its first frame.
    pub first_frame: u64,
    /// Number after its last frame.
    pub end_frame: u64,
    /// Offset after its last frame.
    pub end: u32,
    /// Its live records.
    pub live: u32,
    /// The bytes of its live records.
    pub live_bytes: u32,
    /// Bytes of its tombstones.
    pub tombstone_bytes: u32,
    /// The oldest segment that any of its tombstones covers.
    pub oldest_tombstone: u32,
    /// [`FLAG_REUSED`](super::segment::FLAG_REUSED) if earlier uses of the slot left bytes after its last frame.
    pub flags: u32,
}

/// An extent that a live record refers to.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ExtentRow {
    /// Its first slot.
    pub slot: u32,
    /// Its sequence.
    pub sequence: u32,
    /// Position of the record, in units of 8 bytes from the first segment.
    pub record: u32,
    /// Zero.
    pub reserved: u32,
}

/// A run of keys.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RunRow {
    /// Entries in its leaf blocks.
    pub entries: u64,
    /// Position of its root block, in units of 8 bytes from the first segment.
    pub root: u32,
    /// Bytes of its root block.
    pub root_length: u32,
    /// The sequence of its first segment, which orders runs.
    pub sequence: u32,
    /// How many segments it has; 0 in a blank row.
    pub segments: u32,
}

/// A segment of a run.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RunSegmentRow {
    /// Its slot.
    pub slot: u32,
    /// Its sequence.
    pub sequence: u32,
    /// Its salt.
    pub salt: u64,
}

/// Bytes of the head without its tables.
pub const HEAD: usize = size_of::<CheckpointHead>();

const _: () = assert!(HEAD == 72);
const _: () = assert!(size_of::<KeyspaceRow>() == 24);
const _: () = assert!(size_of::<SegmentRow>() == 56);
const _: () = assert!(size_of::<ExtentRow>() == 16);
const _: () = assert!(size_of::<RunRow>() == 24);
const _: () = assert!(size_of::<RunSegmentRow>() == 16);

impl CheckpointHead {
    /// Bytes of the head and its tables; none if that overflows.
    #[must_use]
    pub fn full_length(&self) -> Option<usize> {
        let rows = (self.keyspaces as usize).checked_mul(size_of::<KeyspaceRow>())?;
        let segments = (self.segments as usize).checked_mul(size_of::<SegmentRow>())?;
        let extents = (self.extents as usize).checked_mul(size_of::<ExtentRow>())?;
        let runs = (self.runs as usize).checked_mul(size_of::<RunRow>())?;
        let parts = (self.run_segments as usize).checked_mul(size_of::<RunSegmentRow>())?;
        let hashes = align_up(self.blocks().checked_mul(size_of::<u32>())?);
        [rows, segments, extents, runs, parts, hashes]
            .into_iter()
            .try_fold(HEAD, usize::checked_add)
    }

    /// How many blocks follow the head.
    #[must_use]
    pub fn blocks(&self) -> usize {
        usize::try_from(self.entries.div_ceil(BLOCK_ENTRIES as u64)).unwrap_or(usize::MAX / 8)
    }

    /// Bytes of the blocks after the head.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        let blocks = self.entries.div_ceil(BLOCK_ENTRIES as u64);
        self.entries.saturating_add(blocks).saturating_mul(8)
    }
}

/// Writes the checksum of a head or a block to its first eight bytes.
pub fn seal(bytes: &mut [u8], salt: u64, position: u64) {
    let check = checksum(&bytes[8..], seed_at(salt, position));
    bytes[..8].copy_from_slice(&check.to_le_bytes());
}

/// Whether a head or a block is intact.
#[must_use]
pub fn verify(bytes: &[u8], salt: u64, position: u64) -> bool {
    bytes.len() >= 8 && bytes[..8] == checksum(&bytes[8..], seed_at(salt, position)).to_le_bytes()
}

/// Splits `count` rows of `T` off the front of `bytes`, which are aligned.
#[must_use]
pub fn take_rows<'a, T: ZeroCopy + Copy + 'a>(
    bytes: &mut &'a [u8],
    count: u32,
) -> Option<impl Iterator<Item = T> + use<'a, T>> {
    let length = (count as usize).checked_mul(size_of::<T>())?;
    let (rows, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(rows.chunks_exact(size_of::<T>()).filter_map(|row| T::from_bytes(row).ok().copied()))
}
