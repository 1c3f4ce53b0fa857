//! Segment headers, which are stored at the start of a segment and, identically, at its end.

use musli_zerocopy::ZeroCopy;

use super::checksum::{checksum, seed_at};

/// `b"VSEG"`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"VSEG");
/// Bytes of a header, and of the trailer.
pub const SIZE: usize = 64;

/// A segment of the log.
pub const KIND_LOG: u8 = 1;
/// One large value in contiguous segments.
pub const KIND_EXTENT: u8 = 2;
/// Part of a checkpoint.
pub const KIND_CHECKPOINT: u8 = 3;
/// Part of a run of keys.
pub const KIND_RUN: u8 = 4;

/// The slot was not blank when this log segment was created: remains of earlier uses may follow its
/// last frame as long as the log ends in it.
pub const FLAG_REUSED: u8 = 1;

/// The header of a segment, or of the contiguous segments of an extent.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SegmentHeader {
    /// XXH3-64 of bytes 8..64, seeded with the file's id and the segment's position.
    pub check: u64,
    /// [`MAGIC`].
    pub magic: u32,
    /// [`KIND_LOG`], [`KIND_EXTENT`], [`KIND_CHECKPOINT`] or [`KIND_RUN`].
    pub kind: u8,
    /// [`FLAG_REUSED`].
    pub flags: u8,
    /// Zero.
    pub reserved: u16,
    /// Order of the segments in time; never reused.
    pub sequence: u32,
    /// The slot of the file, counted from the first segment.
    pub slot: u32,
    /// Seed of the checksums in the segment; new for each use of the slot.
    pub salt: u64,
    /// Log: the number of its first frame.
    pub first_frame: u64,
    /// Extent: length of the value in bytes. Checkpoint and run: bytes in use after the header.
    pub payload: u64,
    /// Extent: XXH3-64 of the value, seeded with the salt and the value's position.
    pub payload_check: u64,
    /// The number of slots that it covers: 1 for log segments.
    pub span: u32,
    /// Zero.
    pub reserved2: u32,
}

const _: () = assert!(size_of::<SegmentHeader>() == SIZE);

impl SegmentHeader {
    fn seed(file_id: u64, position: u64) -> u64 {
        seed_at(file_id, position)
    }

    /// The bytes of the header for a segment at file position `position`.
    #[must_use]
    pub fn encode(mut self, file_id: u64, position: u64) -> [u8; SIZE] {
        self.magic = MAGIC;
        self.check = checksum(&self.to_bytes()[8..], Self::seed(file_id, position));
        let mut out = [0; SIZE];
        out.copy_from_slice(self.to_bytes());
        out
    }

    /// The header in `bytes` if it is a valid one of this file at this position.
    #[must_use]
    pub fn decode(bytes: &[u8], file_id: u64, position: u64) -> Option<SegmentHeader> {
        let header = SegmentHeader::unverified(bytes)?;
        let check = checksum(&bytes[8..SIZE], Self::seed(file_id, position));
        (header.check == check).then_some(header)
    }

    /// A header by its magic, of any file.
    #[must_use]
    pub fn unverified(bytes: &[u8]) -> Option<SegmentHeader> {
        #[repr(C, align(8))]
        struct Aligned([u8; SIZE]);
        let mut aligned = Aligned([0; SIZE]);
        aligned.0.copy_from_slice(bytes.get(..SIZE)?);
        let header = *SegmentHeader::from_bytes(&aligned.0).ok()?;
        // Numbers this large cannot be reached by counting, and incrementing them would overflow.
        (header.magic == MAGIC && header.first_frame >> 56 == 0).then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_header_is_bound_to_file_and_slot() {
        let header = SegmentHeader { kind: KIND_LOG, sequence: 7, span: 1, ..Default::default() };
        let bytes = header.encode(42, 8192);
        assert_eq!(SegmentHeader::decode(&bytes, 42, 8192).map(|h| h.sequence), Some(7));
        assert_eq!(SegmentHeader::decode(&bytes, 43, 8192), None);
        assert_eq!(SegmentHeader::decode(&bytes, 42, 8192 + 4096), None);
    }
}
