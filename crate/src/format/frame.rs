//! Frames: the unit of checksums and of writing. A commit is one frame, or several of which the
//! last has a flag that makes all of them visible.

use musli_zerocopy::ZeroCopy;

use super::checksum::{checksum, seed_at};

/// `b"VFRM"`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"VFRM");
/// Bytes of a frame header.
pub const SIZE: usize = 40;
/// Flag: this frame completes its commit.
pub const FLAG_COMMIT: u32 = 1;
/// Flag: maintenance wrote this frame. Its records are copies of earlier ones, or the engine's own, so it changes
/// nothing that programs see.
pub const FLAG_MOVED: u32 = 2;

/// The header of a frame.
#[derive(ZeroCopy, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FrameHeader {
    /// XXH3-64 of bytes 8..`length`, seeded with the segment's salt and the frame's position.
    pub check: u64,
    /// [`MAGIC`].
    pub magic: u32,
    /// Bytes of the whole frame, header included; a multiple of 8.
    pub length: u32,
    /// Number of the frame; without gaps over the whole log.
    pub number: u64,
    /// Frames below this number had been flushed when this one was sealed.
    pub watermark: u64,
    /// The number of records that follow.
    pub records: u32,
    /// [`FLAG_COMMIT`], [`FLAG_MOVED`].
    pub flags: u32,
}

const _: () = assert!(size_of::<FrameHeader>() == SIZE);

impl FrameHeader {
    /// Writes this header over the start of `frame` (the whole frame) and seals it.
    pub fn seal(mut self, frame: &mut [u8], salt: u64, position: u64) {
        self.magic = MAGIC;
        self.check = 0;
        frame[..SIZE].copy_from_slice(self.to_bytes());
        let check = checksum(&frame[8..], seed_at(salt, position));
        frame[..8].copy_from_slice(&check.to_le_bytes());
    }

    /// The header of the frame at the start of `bytes`, which extend to the end of the segment's
    /// frame area; none unless the whole frame is there and its checksum is correct.
    #[must_use]
    pub fn open(bytes: &[u8], salt: u64, position: u64) -> Option<FrameHeader> {
        let header = *FrameHeader::from_bytes(bytes.get(..SIZE)?).ok()?;
        let length = header.length as usize;
        if header.magic != MAGIC || length < SIZE || !length.is_multiple_of(super::ALIGN) {
            return None;
        }
        // Numbers this large cannot be reached by counting, and incrementing them would overflow.
        if (header.number | header.watermark) >> 56 != 0 {
            return None;
        }
        let frame = bytes.get(..length)?;
        (header.check == checksum(&frame[8..], seed_at(salt, position))).then_some(header)
    }

    /// Bytes of the frame at the start of `bytes`, which are known to be frames.
    #[must_use]
    pub fn length_at(bytes: &[u8]) -> Option<usize> {
        let header = FrameHeader::from_bytes(bytes.get(..SIZE)?).ok()?;
        let length = header.length as usize;
        (header.magic == MAGIC && (SIZE..=bytes.len()).contains(&length)).then_some(length)
    }

    /// Whether writing the frame of that number was started at the start of `bytes`, even if it was
    /// not completed.
    #[must_use]
    pub fn is_begun(bytes: &[u8], number: u64) -> bool {
        let header = bytes.get(..SIZE).and_then(|bytes| FrameHeader::from_bytes(bytes).ok());
        header.is_some_and(|header| header.magic == MAGIC && header.number == number)
    }

    /// Whether this frame completes its commit.
    #[must_use]
    pub fn commits(&self) -> bool {
        self.flags & FLAG_COMMIT != 0
    }

    /// Whether maintenance wrote this frame.
    #[must_use]
    pub fn is_moved(&self) -> bool {
        self.flags & FLAG_MOVED != 0
    }

    /// Whether the frame at the start of `bytes`, whose header this is, would be valid with the other value of
    /// [`FLAG_COMMIT`].
    #[must_use]
    pub fn is_valid_with_other_flag(&self, bytes: &[u8], salt: u64, position: u64) -> bool {
        let Some(frame) = bytes.get(..self.length as usize).filter(|it| it.len() >= SIZE) else {
            return false;
        };
        let mut other = frame.to_vec();
        let header = FrameHeader { flags: self.flags ^ FLAG_COMMIT, ..*self };
        other[..SIZE].copy_from_slice(header.to_bytes());
        self.check == checksum(&other[8..], seed_at(salt, position))
    }
}
