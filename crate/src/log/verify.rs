//! Verification of the file in small steps while the database is in use.

use musli_zerocopy::ZeroCopy;

use crate::aligned_buf::AlignedBytes;
use crate::error::Error;
use crate::file::{File, read_full};
use crate::format::checkpoint::{self, BLOCK, CheckpointHead, HEAD};
use crate::format::checksum::{checksum, seed_at};
use crate::format::frame::{self, FrameHeader};
use crate::format::key_run::block::{self, DecodedBlock};
use crate::format::record::{self, KIND_EXTENT, RecordHeader};
use crate::format::segment::{self, SegmentHeader};
use crate::format::superblock::{self, SLOT_STRIDE, Superblock};
use crate::format::system_records::ExtentRef;
use crate::index::Position;

use super::{Log, MissingHeader, SlotState};

/// A file is verified in units: first its two superblocks, then its slots.
const FIRST_SLOT: u32 = 2;
/// The parts of a segment: its header, its trailer, and then the offsets between them.
const TRAILER: u32 = 1;
const FIRST_FRAME: u32 = segment::SIZE as u32;
/// Blocks of a checkpoint that one step verifies.
const BLOCKS_PER_STEP: usize = 16;

/// What a problem concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProblemKind {
    /// Nothing is wrong.
    #[default]
    Nothing,
    /// One of the two superblocks; the other one is valid.
    Superblock,
    /// The header or the trailer of a segment; the other one is valid.
    Header,
    /// Frames of the log.
    Frame,
    /// A record.
    Record,
    /// Bytes that should be zeros.
    Zeros,
    /// A large value.
    Extent,
    /// The checkpoint; the log contains the same information.
    Checkpoint,
    /// The index disagrees with the records of a segment.
    Index,
}

/// The progress of a verification. It starts with both fields zero and is finished when they are
/// zero again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyCursor {
    /// A superblock or a slot.
    pub unit: u32,
    /// The part of the unit.
    pub part: u32,
}

/// The result of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Where the next step starts.
    pub next: VerifyCursor,
    /// Bytes that were verified.
    pub bytes: u64,
    /// Segments whose verification was started.
    pub segments: u64,
    /// Valid frames.
    pub frames: u64,
    /// Records in these frames.
    pub records: u64,
    /// The kind of problem that was found, if any.
    pub what: ProblemKind,
    /// The file position of the problem.
    pub at: u64,
    /// The length of the problem in bytes.
    pub length: u64,
}

impl Verified {
    fn report(&mut self, what: ProblemKind, at: u64, length: usize) {
        (self.what, self.at, self.length) = (what, at, length as u64);
    }
}

impl Log {
    /// Where a verification continues after a unit.
    pub(crate) fn position_after(&self, unit: u32) -> VerifyCursor {
        let is_last = unit + 1 >= self.slots.len() as u32 + FIRST_SLOT;
        VerifyCursor { unit: if is_last { 0 } else { unit + 1 }, part: 0 }
    }

    /// The slot of a unit, if it is not a superblock.
    pub(crate) fn slot_of_unit(unit: u32) -> Option<u32> {
        unit.checked_sub(FIRST_SLOT)
    }

    /// Verifies the next part of the file. `indexed` returns whether the index refers to a record and, if
    /// it does, whether its value must exist.
    ///
    /// # Errors
    /// An error of the file. Damage is a result, not an error.
    pub(crate) fn verify(
        &mut self,
        file: &mut impl File,
        cursor: VerifyCursor,
        indexed: impl FnMut(Position, &RecordHeader, &[u8]) -> Option<bool>,
    ) -> Result<Verified, Error> {
        let VerifyCursor { unit, part } = cursor;
        let mut found = Verified { next: self.position_after(unit), ..Verified::default() };
        let Some(slot) = unit.checked_sub(FIRST_SLOT) else {
            self.verify_superblock(file, unit, &mut found)?;
            return Ok(found);
        };
        // The file may have been truncated since the last step.
        let Some(s) = self.slots.get(slot as usize) else { return Ok(found) };
        if s.state.has_headers() && s.written && part < FIRST_FRAME {
            found.next =
                VerifyCursor { unit, part: if part == TRAILER { FIRST_FRAME } else { TRAILER } };
            self.verify_header(file, slot, part == TRAILER, &mut found)?;
        } else if s.state == SlotState::Free && !s.dirty_tail
            || s.state == SlotState::Log && s.written
        {
            self.verify_segment(file, cursor, indexed, &mut found)?;
        } else if s.state == SlotState::Extent && s.written {
            self.verify_value(file, slot, &mut found)?;
        } else if s.state == SlotState::Checkpoint && s.written {
            self.verify_blocks(file, cursor, &mut found)?;
        } else if s.state == SlotState::KeyRun && s.written {
            self.verify_run(file, cursor, &mut found)?;
        }
        Ok(found)
    }

    fn verify_superblock(
        &self,
        file: &mut impl File,
        unit: u32,
        found: &mut Verified,
    ) -> Result<(), Error> {
        let mut bytes = [0; superblock::SIZE];
        let at = u64::from(unit) * SLOT_STRIDE;
        read_full(file, &mut bytes, at)?;
        found.bytes = bytes.len() as u64;
        if !matches!(Superblock::decode(&bytes, u64::from(unit)), superblock::Slot::Valid(_)) {
            // If a crash tore this superblock, the next one that is written replaces it.
            let by_crash = self.superblock_state.lost_copy
                && superblock::may_be_torn(&bytes, unit.into(), &self.superblock);
            if !by_crash {
                found.report(ProblemKind::Superblock, at, bytes.len());
            }
        } else if unit == 0
            && self.superblock.checkpoint_sequence != 0
            && self.checkpoint.slot.is_none()
        {
            // Opening could not use the checkpoint, and its slots have been reclaimable since.
            found.report(ProblemKind::Checkpoint, at, bytes.len());
        }
        if unit + 1 == FIRST_SLOT && self.slots.is_empty() {
            found.next = VerifyCursor::default();
        }
        Ok(())
    }

    fn verify_header(
        &self,
        file: &mut impl File,
        slot: u32,
        is_trailer: bool,
        found: &mut Verified,
    ) -> Result<(), Error> {
        let s = &self.slots[slot as usize];
        let start = self.geometry.slot_start(slot);
        let end = self.geometry.slot_start(slot + s.span) - segment::SIZE as u64;
        let at = if is_trailer { end } else { start };
        let mut bytes = [0; segment::SIZE];
        read_full(file, &mut bytes, at)?;
        let header = SegmentHeader::decode(&bytes, self.superblock.file_id[0], start);
        if header.is_none_or(|header| header.sequence != s.sequence) {
            // A header or trailer that a crash took is rewritten before the next flush.
            let missing = (slot, s.sequence, is_trailer);
            let is_match =
                |lost: &&MissingHeader| (lost.slot, lost.sequence, lost.is_trailer) == missing;
            let by_crash = self
                .leftovers
                .missing_headers
                .iter()
                .find(is_match)
                .is_some_and(|lost| lost.by_crash);
            if !by_crash {
                found.report(ProblemKind::Header, at, bytes.len());
            }
        }
        found.bytes = bytes.len() as u64;
        found.segments = u64::from(!is_trailer);
        Ok(())
    }

    /// Verifies the frames from an offset up to the first problem, and that zeros follow the last
    /// frame.
    fn verify_segment(
        &self,
        file: &mut impl File,
        VerifyCursor { unit, part }: VerifyCursor,
        mut indexed: impl FnMut(Position, &RecordHeader, &[u8]) -> Option<bool>,
        found: &mut Verified,
    ) -> Result<(), Error> {
        let slot = unit - FIRST_SLOT;
        let s = &self.slots[slot as usize];
        let start = self.geometry.slot_start(slot);
        let mut bytes = AlignedBytes::zeroed(self.geometry.segment());
        read_full(file, &mut bytes, start)?;
        found.bytes = bytes.len() as u64 - u64::from(part);
        let (frames_end, end) = (self.geometry.frames_end(), s.end as usize);
        let frame_at =
            |at: usize| FrameHeader::open(&bytes[at..frames_end], s.salt, start + at as u64);
        let (mut at, mut live) = (part as usize, 0);
        while at < end {
            let Some(header) = frame_at(at) else {
                let next = (at + 8..end).step_by(8).find(|&next| frame_at(next).is_some());
                let next = next.unwrap_or(end);
                found.report(ProblemKind::Frame, start + at as u64, next - at);
                found.next = VerifyCursor { unit, part: next as u32 };
                return Ok(());
            };
            let frame_end = at + header.length as usize;
            let mut record = at + frame::SIZE;
            at = frame_end;
            found.frames += 1;
            let records = found.records + u64::from(header.records);
            while record < frame_end {
                let bytes = &bytes[record..frame_end];
                let at = start + record as u64;
                let is_whole = |header: &RecordHeader| {
                    RecordHeader::verify(&bytes[..header.size()], s.salt, at)
                };
                let sound = record::validate(bytes).ok().filter(|(header, ..)| is_whole(header));
                let Some((header, key, value)) = sound else {
                    found.report(ProblemKind::Record, at, bytes.len());
                    found.next = VerifyCursor { unit, part: frame_end as u32 };
                    return Ok(());
                };
                let position = self.geometry.position(slot, record);
                let indexed = indexed(position, header, key);
                live += u32::from(indexed.is_some());
                found.records += 1;
                record += header.size();
                if indexed == Some(true) && header.kind == KIND_EXTENT && !self.extent_exists(value)
                {
                    found.report(ProblemKind::Extent, at, header.size());
                }
            }
            // The number of records differs from the frame's header, or a record refers to no valid
            // extent. Checksums rule out an accident, so the writer was malicious.
            if found.records != records {
                found.report(ProblemKind::Frame, start + at as u64 - u64::from(header.length), 0);
            }
            if found.what != ProblemKind::Nothing {
                found.next = VerifyCursor { unit, part: frame_end as u32 };
                return Ok(());
            }
        }
        // Records of the open batch count as live but are not in the file yet.
        if part == FIRST_FRAME && end > segment::SIZE && live != s.live && self.batch_bytes() == 0 {
            found.report(ProblemKind::Index, start, 0);
            found.next = VerifyCursor { unit, part: end as u32 };
            return Ok(());
        }
        let (from, to) =
            if s.state == SlotState::Free { (0, bytes.len()) } else { (end, frames_end) };
        let rest = &bytes[from..to];
        let is_known = self
            .leftovers
            .discarded_ranges
            .iter()
            .any(|&(at, _)| (start..start + to as u64).contains(&at))
            || s.dirty_tail && self.batch.start.slot == Some(slot);
        if let (Some(first), Some(last), false) =
            (rest.iter().position(|&b| b != 0), rest.iter().rposition(|&b| b != 0), is_known)
        {
            found.report(ProblemKind::Zeros, start + (from + first) as u64, last + 1 - first);
        }
        Ok(())
    }

    /// Whether the extent that a record describes exists. Its content is verified on its own.
    fn extent_exists(&self, value: &[u8]) -> bool {
        let Some(extent) = ExtentRef::decode(value) else { return false };
        self.slots.get(extent.slot as usize).is_some_and(|slot| {
            let described = (extent.sequence, extent.length, extent.check);
            slot.state == SlotState::Extent
                && (slot.sequence, slot.length, slot.length_check) == described
        })
    }

    /// Bytes between header and trailer according to the header, limited to what fits.
    fn payload_of(&self, slot: u32) -> usize {
        let s = &self.slots[slot as usize];
        let capacity = (u64::from(s.span) << self.geometry.segment_log2) - 2 * segment::SIZE as u64;
        s.length.min(capacity) as usize
    }

    fn verify_value(
        &mut self,
        file: &mut impl File,
        slot: u32,
        found: &mut Verified,
    ) -> Result<(), Error> {
        let s = &self.slots[slot as usize];
        let (salt, check, length) = (s.salt, s.length_check, self.payload_of(slot));
        let at = self.geometry.slot_start(slot) + segment::SIZE as u64;
        let mut bytes = self.allocate_value(length)?;
        let read = read_full(file, &mut bytes[..length], at);
        let is_whole = read.is_ok_and(|read_len| read_len == length)
            && checksum(&bytes[..length], seed_at(salt, at)) == check;
        self.release_value(Some(bytes));
        found.bytes = length as u64;
        read?;
        if !is_whole {
            found.report(ProblemKind::Extent, at, length);
        }
        Ok(())
    }

    /// Verifies the head and the tables of a checkpoint, or some of its blocks.
    fn verify_blocks(
        &self,
        file: &mut impl File,
        VerifyCursor { unit, part }: VerifyCursor,
        found: &mut Verified,
    ) -> Result<(), Error> {
        let s = &self.slots[(unit - FIRST_SLOT) as usize];
        let start = self.geometry.slot_start(unit - FIRST_SLOT);
        let end = segment::SIZE + self.payload_of(unit - FIRST_SLOT);
        let mut at = part as usize;
        let mut bytes = AlignedBytes::zeroed(HEAD.max(BLOCK));
        for _ in 0..BLOCKS_PER_STEP {
            if at >= end {
                return Ok(());
            }
            let mut length = BLOCK.min(end - at);
            if at == segment::SIZE {
                read_full(file, &mut bytes[..HEAD], start + at as u64)?;
                let head = CheckpointHead::from_bytes(&bytes[..HEAD]).ok().copied();
                let full = head.and_then(|head| head.full_length()).filter(|&n| n <= end - at);
                let Some(full) = full else {
                    found.report(ProblemKind::Checkpoint, start + at as u64, HEAD);
                    return Ok(());
                };
                length = full;
                bytes = AlignedBytes::zeroed(length.max(BLOCK));
            }
            let bytes = &mut bytes[..length];
            read_full(file, bytes, start + at as u64)?;
            found.bytes += length as u64;
            let is_whole = checkpoint::verify(bytes, s.salt, start + at as u64);
            if !is_whole {
                found.report(ProblemKind::Checkpoint, start + at as u64, length);
            }
            // If the head is damaged, the start of the blocks is unknown.
            if is_whole || at > segment::SIZE {
                found.next = VerifyCursor { unit, part: (at + length) as u32 };
            }
            if !is_whole {
                return Ok(());
            }
            at += length;
        }
        Ok(())
    }

    /// Verifies the blocks of a segment of a run.
    fn verify_run(
        &self,
        file: &mut impl File,
        VerifyCursor { unit, .. }: VerifyCursor,
        found: &mut Verified,
    ) -> Result<(), Error> {
        let slot = unit - FIRST_SLOT;
        let (start, length) = (self.geometry.slot_start(slot), self.payload_of(slot));
        let mut bytes = AlignedBytes::zeroed(length);
        let start = start + segment::SIZE as u64;
        read_full(file, &mut bytes, start)?;
        found.bytes += length as u64;
        let (mut at, mut decoded) = (0, DecodedBlock::default());
        while at < length {
            let rest = &bytes[at..];
            let block = block::length_of(rest).and_then(|length| rest.get(..length));
            let is_whole = block.is_some_and(|block| {
                checkpoint::verify(block, self.slots[slot as usize].salt, start + at as u64)
                    && decoded.decode(block)
            });
            let Some(block) = block.filter(|_| is_whole) else {
                found.report(ProblemKind::Checkpoint, start + at as u64, length - at);
                return Ok(());
            };
            at += block.len();
        }
        Ok(())
    }
}
