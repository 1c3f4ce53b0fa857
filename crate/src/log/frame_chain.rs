//! The frames that follow each other, and what may be missing between them.

use alloc::vec::Vec;

use crate::format::frame::{self, FrameHeader};
use crate::format::record::{self, KIND_EXTENT, KIND_SET, KIND_VOID, RecordError};
use crate::format::system_records::{ExtentRef, KEY_GAP};
use crate::format::{DATA_START, KEYSPACE_ENGINE};
use crate::index::hash_index::Position;

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

    /// Whether it holds what stands there.
    #[must_use]
    pub fn holds(&self, slot: u32, offset: usize) -> bool {
        let room = self.offset as usize..(self.offset + self.length) as usize;
        self.slot == slot && room.contains(&offset)
    }
}

/// An extent that a record names.
#[derive(Debug)]
pub(super) struct NamedExtent {
    /// Index of the record's frame.
    pub frame: usize,
    pub position: Position,
    pub extent: ExtentRef,
}

/// Missing frames between two segments, and how far the chain had come before them.
#[derive(Debug)]
pub(super) struct Gap {
    /// Index of the segment, its slot, and the offset in it.
    pub place: (usize, Option<u32>, usize),
    /// Frames before it.
    pub frames: usize,
    pub from: u64,
    pub to: u64,
    /// Whether anything but zeros lies where it begins: what was given back whole leaves nothing there.
    pub is_damage: bool,
    /// The next version when the first commit behind it ended: keys whose records are older may have
    /// been changed in it.
    pub uncertain_below: u64,
}

/// What a record about a gap says: the frames that were given back, and the one behind them.
fn claim(key: &[u8], value: &[u8]) -> Option<(u64, u64)> {
    let to = key.get(KEY_GAP.len()..)?.try_into().ok().map(u64::from_be_bytes)?;
    let from = value.get(..8)?.try_into().ok().map(u64::from_le_bytes)?;
    Some((from, to))
}

/// The frames from the first on, as far as they follow each other.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub gaps: Vec<Gap>,
    /// Gaps that records speak of, each with the frame of its record.
    pub claims: Vec<(u64, u64, u64)>,
    pub frames: Vec<FrameAt>,
    /// Extents that they name.
    pub extents: Vec<NamedExtent>,
    /// Index of the first frame that does not count although its checksum holds.
    pub flaw: Option<(usize, RecordError)>,
    /// Number of the frame that is missing.
    pub expected: u64,
    /// Whether anything but zeros lies where it should have been.
    pub is_broken: bool,
    pub watermark: u64,
    /// Index, slot and offset where it should have been.
    pub segment: usize,
    pub slot: Option<u32>,
    pub offset: usize,
    /// Valid frames at the end that belong to a commit that is not whole, and where they start.
    pub incomplete: u64,
    pub cut: Option<(u32, usize)>,
    /// Frames that are missing within it, and bytes that are none of it.
    pub lost_frames: u64,
    pub lost_bytes: u64,
    /// As of the last gap within it that no record accounts for.
    pub uncertain_below: u64,
    /// Above all versions in it.
    pub next_version: u64,
}

impl Chain {
    /// Goes on at a frame behind the one that is expected.
    pub fn miss(&mut self, number: u64) {
        let is_damage = core::mem::take(&mut self.is_broken);
        if number == self.expected {
            return;
        }
        self.gaps.push(Gap {
            place: (self.segment, self.slot, self.offset),
            frames: self.frames.len(),
            from: self.expected,
            to: number,
            is_damage,
            uncertain_below: u64::MAX,
        });
        self.expected = number;
    }

    /// A commit is complete: whatever earlier frames held, keys that are set later are as they were.
    pub fn commits(&mut self) {
        let open = self.gaps.iter_mut().rev();
        for gap in open.take_while(|gap| gap.uncertain_below == u64::MAX) {
            gap.uncertain_below = self.next_version;
        }
    }

    /// Goes back to the first gap from `salvage_below` on that no record accounts for: the chain ends
    /// there. Answers whether there was one. Those before it are losses.
    ///
    /// A record is committed before anything is given back, and all that its gap needs before it: so
    /// it speaks the truth if it is flushed; or if it is itself part of the chain, where all of its gap
    /// is missing. Else it may speak of frames whose copies were lost with the power, or of which some
    /// were: a deletion may be gone while the record that it covers stands. So it may where a frame is
    /// damaged in a segment that still stands.
    pub fn close_gaps(&mut self, flushed: u64, salvage_below: u64) -> bool {
        let mut went_back = false;
        loop {
            let end = self.frames.last().map_or(0, |frame| frame.number + 1);
            let claims = &self.claims;
            let is_open = |gap: &Gap| {
                let holds = |&(frame, from, to): &(u64, u64, u64)| {
                    let covers = from <= gap.from && gap.to <= to;
                    covers && frame < flushed || frame < end && (from, to) == (gap.from, gap.to)
                };
                gap.is_damage || !claims.iter().any(holds)
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
            (self.segment, self.slot, self.offset) = gap.place;
            self.expected = gap.from;
            self.cut = None;
            let frames = gap.frames;
            self.gaps.truncate(open);
            self.keep(frames);
            went_back = true;
        }
    }

    /// Forgets all but so many frames.
    pub fn keep(&mut self, frames: usize) {
        self.frames.truncate(frames);
        self.extents.retain(|named| named.frame < frames);
        self.gaps.retain(|gap| gap.frames <= frames);
        self.flaw = self.flaw.filter(|&(frame, _)| frame < frames);
    }

    /// Takes the frame in `bytes`, which lies at position `start`.
    pub fn take(&mut self, slot: u32, start: Position, header: &FrameHeader, bytes: &[u8]) {
        let index = self.frames.len();
        let is_void = match self.check_records(start, header, bytes) {
            Ok(is_void) => is_void,
            Err(flaw) => {
                self.flaw.get_or_insert((index, flaw));
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

    /// Whether a frame holds nothing, but for what rolled-back calls left. Its extents are noted.
    fn check_records(
        &mut self,
        start: Position,
        frame: &FrameHeader,
        bytes: &[u8],
    ) -> Result<bool, RecordError> {
        let (mut at, mut records, mut is_void) = (frame::SIZE, 0, true);
        while at < bytes.len() {
            let rest = &bytes[at..];
            let (header, key, value) = record::sound(rest)?;
            self.next_version = self.next_version.max(header.version + 1);
            // A deletion that was moved has a value too, which is no account.
            let is_set = header.kind == KIND_SET;
            if is_set && header.space() == KEYSPACE_ENGINE && key.starts_with(KEY_GAP) {
                let told = claim(key, value);
                self.claims.extend(told.map(|(from, to)| (frame.number, from, to)));
            }
            if header.kind == KIND_EXTENT {
                let extent = ExtentRef::decode(value).ok_or(RecordError::Malformed)?;
                let position = start + (at >> 3) as Position;
                self.extents.push(NamedExtent { frame: self.frames.len(), position, extent });
            }
            is_void &= header.kind == KIND_VOID;
            records += 1;
            at += header.size();
        }
        if records == frame.records { Ok(is_void) } else { Err(RecordError::Malformed) }
    }

    pub fn end_position(&self, geometry: Geometry) -> u64 {
        let cut = self.cut.or(self.slot.map(|slot| (slot, self.offset)));
        cut.map_or(DATA_START, |(slot, offset)| geometry.slot_start(slot) + offset as u64)
    }
}
