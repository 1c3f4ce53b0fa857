//! The chain of consecutive frames, and the gaps in it.

use alloc::vec::Vec;

use crate::format::frame::{self, FrameHeader};
use crate::format::record::{self, KIND_EXTENT, KIND_SET, KIND_VOID, RecordError};
use crate::format::system_records::{ExtentRef, KEY_GAP};
use crate::format::{DATA_START, KEYSPACE_ENGINE};
use crate::index::Position;

use super::Geometry;

/// A frame that counts.
#[derive(Clone, Copy, Debug)]
pub struct FrameAt {
    /// Its slot.
    pub slot: u32,
    /// Its offset in the slot.
    pub offset: u32,
    /// Its bytes.
    pub length: u32,
    pub(super) number: u64,
    pub(super) is_void: bool,
    pub(super) commits: bool,
}

impl FrameAt {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it contains an offset of a slot.
    #[must_use]
    pub fn contains(&self, slot: u32, offset: usize) -> bool {
        let range = self.offset as usize..(self.offset + self.length) as usize;
        self.slot == slot && range.contains(&offset)
    }
}

/// An extent that a record refers to.
#[derive(Debug)]
pub(super) struct ReferencedExtent {
    /// Index of the record's frame.
    pub frame: usize,
    pub position: Position,
    pub extent: ExtentRef,
}

/// Missing frames between two segments, and the state of the chain before them.
#[derive(Debug)]
pub(super) struct Gap {
    /// Index of the segment, its slot, and the offset in it.
    pub resume_at: (usize, Option<u32>, usize),
    /// Frames before it.
    pub frames: usize,
    pub from: u64,
    pub to: u64,
    /// Whether anything except zeros lies where the gap begins. A segment that was freed as a whole
    /// leaves nothing there.
    pub is_damage: bool,
    /// The next version when the first commit after the gap ended: the gap may have contained
    /// changes of keys whose records are older.
    pub uncertain_below: u64,
}

/// Decodes a gap record: the first frame that was removed, and the one after the gap.
fn decode_gap_record(key: &[u8], value: &[u8]) -> Option<(u64, u64)> {
    let to = key.get(KEY_GAP.len()..)?.try_into().ok().map(u64::from_be_bytes)?;
    let from = value.get(..8)?.try_into().ok().map(u64::from_le_bytes)?;
    Some((from, to))
}

/// Consecutive frames, starting at the first one.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub gaps: Vec<Gap>,
    /// Gaps that records account for, each with the frame of its record.
    pub gap_records: Vec<(u64, u64, u64)>,
    pub frames: Vec<FrameAt>,
    /// Extents that the frames refer to.
    pub extents: Vec<ReferencedExtent>,
    /// Index of the first frame that is rejected although its checksum is correct.
    pub record_error: Option<(usize, RecordError)>,
    /// Number of the missing frame.
    pub expected: u64,
    /// Whether anything except zeros lies where the missing frame should be.
    pub has_remains: bool,
    pub watermark: u64,
    /// Index, slot and offset where the missing frame should be.
    pub segment: usize,
    pub slot: Option<u32>,
    pub offset: usize,
    /// Valid frames at the end that belong to an incomplete commit, and where they start.
    pub incomplete: u64,
    pub incomplete_start: Option<(u32, usize)>,
    /// Frames that are missing inside the chain, and bytes that do not belong to it.
    pub lost_frames: u64,
    pub lost_bytes: u64,
    /// As of the last gap inside the chain that no record accounts for.
    pub uncertain_below: u64,
    /// Above all versions in the chain.
    pub next_version: u64,
}

impl Chain {
    /// Records a gap before the frame `number`, if that is not the expected one.
    pub fn record_gap(&mut self, number: u64) {
        let is_damage = core::mem::take(&mut self.has_remains);
        if number == self.expected {
            return;
        }
        self.gaps.push(Gap {
            resume_at: (self.segment, self.slot, self.offset),
            frames: self.frames.len(),
            from: self.expected,
            to: number,
            is_damage,
            uncertain_below: u64::MAX,
        });
        self.expected = number;
    }

    /// A commit is complete. Keys that are set in later commits do not depend on earlier gaps.
    pub fn end_commit(&mut self) {
        let open = self.gaps.iter_mut().rev();
        for gap in open.take_while(|gap| gap.uncertain_below == u64::MAX) {
            gap.uncertain_below = self.next_version;
        }
    }

    /// Goes back to the first gap from `salvage_below` on that no record accounts for; the chain
    /// ends there. Returns whether there was one. Earlier gaps count as losses.
    ///
    /// A gap record is committed before its segments are removed, and after everything that
    /// removing them requires. So it can be trusted if it is flushed, or if it is part of the chain
    /// and its whole gap is missing. Otherwise it may refer to frames whose relocated records were
    /// lost in a power failure, or of which only some were: a deletion may be gone while the record
    /// that it covers is still there. The same holds if a frame is damaged in a segment that still
    /// exists.
    pub fn end_at_unexplained_gap(&mut self, flushed: u64, salvage_below: u64) -> bool {
        let mut went_back = false;
        loop {
            let end = self.frames.last().map_or(0, |frame| frame.number + 1);
            let gap_records = &self.gap_records;
            let is_open = |gap: &Gap| {
                let accounts_for = |&(frame, from, to): &(u64, u64, u64)| {
                    let covers = from <= gap.from && gap.to <= to;
                    covers && frame < flushed || frame < end && (from, to) == (gap.from, gap.to)
                };
                gap.is_damage || !gap_records.iter().any(accounts_for)
            };
            (self.lost_frames, self.uncertain_below) = (0, 0);
            let mut broken = None;
            for (i, gap) in self.gaps.iter().enumerate().filter(|(_, gap)| is_open(gap)) {
                if gap.from >= salvage_below {
                    broken = Some(i);
                    break;
                }
                self.lost_frames += gap.to.saturating_sub(gap.from);
                self.uncertain_below = gap.uncertain_below;
            }
            let Some(open) = broken else { return went_back };
            let gap = &self.gaps[open];
            (self.segment, self.slot, self.offset) = gap.resume_at;
            self.expected = gap.from;
            self.incomplete_start = None;
            let frames = gap.frames;
            self.gaps.truncate(open);
            self.truncate(frames);
            went_back = true;
        }
    }

    /// Drops all except the first `frames` frames.
    pub fn truncate(&mut self, frames: usize) {
        self.frames.truncate(frames);
        self.extents.retain(|extent| extent.frame < frames);
        self.gaps.retain(|gap| gap.frames <= frames);
        self.record_error = self.record_error.filter(|&(frame, _)| frame < frames);
    }

    /// Appends the frame in `bytes`, which starts at position `start`.
    pub fn push(&mut self, slot: u32, start: Position, header: &FrameHeader, bytes: &[u8]) {
        let index = self.frames.len();
        let is_void = match self.check_records(start, header, bytes) {
            Ok(is_void) => is_void,
            Err(record_error) => {
                self.record_error.get_or_insert((index, record_error));
                false
            }
        };
        self.frames.push(FrameAt {
            slot,
            offset: self.offset as u32,
            length: header.length,
            number: header.number,
            is_void,
            commits: header.commits(),
        });
        self.watermark = self.watermark.max(header.watermark);
        self.offset += header.length as usize;
        self.expected += 1;
    }

    /// Whether a frame contains only voids, which rolled-back calls leave. Its extents and gap
    /// records are collected.
    fn check_records(
        &mut self,
        start: Position,
        frame: &FrameHeader,
        bytes: &[u8],
    ) -> Result<bool, RecordError> {
        let (mut at, mut records, mut is_void) = (frame::SIZE, 0, true);
        while at < bytes.len() {
            let rest = &bytes[at..];
            let (header, key, value) = record::validate(rest)?;
            self.next_version = self.next_version.max(header.version + 1);
            // A deletion that was relocated has a value too, but that is not a gap record.
            let is_set = header.kind == KIND_SET;
            if is_set && header.keyspace() == KEYSPACE_ENGINE && key.starts_with(KEY_GAP) {
                let gap = decode_gap_record(key, value);
                self.gap_records.extend(gap.map(|(from, to)| (frame.number, from, to)));
            }
            if header.kind == KIND_EXTENT {
                let extent = ExtentRef::decode(value).ok_or(RecordError::Malformed)?;
                let position = start + (at >> 3) as Position;
                self.extents.push(ReferencedExtent { frame: self.frames.len(), position, extent });
            }
            is_void &= header.kind == KIND_VOID;
            records += 1;
            at += header.size();
        }
        if records == frame.records { Ok(is_void) } else { Err(RecordError::Malformed) }
    }

    pub fn end_position(&self, geometry: Geometry) -> u64 {
        let incomplete_start = self.incomplete_start.or(self.slot.map(|slot| (slot, self.offset)));
        incomplete_start
            .map_or(DATA_START, |(slot, offset)| geometry.slot_start(slot) + offset as u64)
    }
}
