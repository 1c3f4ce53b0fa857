//! Opening: which frames count, and whether what is missing was promised.
//!
//! Reading never repairs: nothing here writes, but for the creation of an empty file.

use crate::error::{Damage, Error};
use crate::file::File;
use crate::format::checkpoint::CheckpointHead;
use crate::format::frame::{self, FrameHeader};
use crate::format::payload::{ExtentRef, KEY_GAP};
use crate::format::record::{self, KIND_EXTENT, KIND_SET, KIND_SKIPPABLE, KIND_VOID};
use crate::format::segment;
use crate::format::superblock::{FLAG_CLEAN, Superblock};
use crate::format::{DATA_START, KEYSPACE_ENGINE, MAJOR, MAX_VALUE};
use crate::index::hash::Position;
use crate::index::small::SmallMap;
use crate::sort;

use super::checkpoint::Loaded;
use super::group::Cursor;
use super::pool::Pool;
use super::read::Copies;
use super::{DroppedTail, Geometry, Log, Slot, Use, superblocks};

/// What opening found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes of an unflushed tail that were left behind.
    pub torn_bytes: u64,
    /// Whole frames among them.
    pub dropped_frames: u64,
    /// Number of the last frame that counts; 0 for none.
    pub last_frame: u64,
    /// Frames that were replayed: all, or those behind the checkpoint.
    pub replayed_frames: u64,
    /// Whether the index came from a checkpoint.
    pub checkpoint: bool,
    /// Whether the file had been closed in order and not been written since.
    pub clean: bool,
    /// Whether the database was made by this opening.
    pub created: bool,
}

/// A frame that counts.
#[derive(Clone, Copy, Debug)]
pub struct FrameAt {
    /// Its slot.
    pub slot: u32,
    /// Its offset in the slot.
    pub offset: u32,
    /// Its bytes.
    pub length: u32,
    number: u64,
    is_void: bool,
    commits: bool,
}

/// A log read from its file.
#[derive(Debug)]
pub struct Opened {
    /// The log, ready to append.
    pub log: Log,
    /// The index as of before the frames, where a checkpoint tells it.
    pub checkpoint: Option<Loaded>,
    /// The frames that count, in order.
    pub frames: Vec<FrameAt>,
    /// The records among them whose values lie in extents.
    pub extents: Vec<(Position, ExtentRef)>,
    /// What there was to tell.
    pub recovery: Recovery,
    /// Versions below this may have been used.
    pub next_version: u64,
}

impl Log {
    /// Opens the log in `file`, or creates one with segments of `1 << segment_log2` bytes in an
    /// empty file.
    pub fn open(
        file: &mut impl File,
        segment_log2: u8,
        entropy: &[u64; 4],
        memory: usize,
        detach: fn(),
        read_only: bool,
    ) -> Result<Opened, Error> {
        let size = file.size()?;
        let found = superblocks::read(file, size)?;
        let (superblock, created) = match found {
            Some(superblock) => (superblock, false),
            None if read_only => return Err(Error::NotADatabase),
            None => (superblocks::create(file, segment_log2, entropy)?, true),
        };
        let pool = Pool::new(1 << superblock.segment_log2, memory, detach);
        let mut log = Log::empty(superblock, entropy[3], pool);
        log.find_slots(file, size)?;
        let checkpoint = log.load_checkpoint(file)?;
        if checkpoint.is_none() {
            log.forget_tables();
        }
        let mut opened = log.replay(file, checkpoint)?;
        opened.recovery.created = created;
        Ok(opened)
    }

    fn empty(superblock: Superblock, entropy: u64, pool: Pool) -> Log {
        Log {
            geometry: Geometry { segment_log2: superblock.segment_log2 },
            superblock,
            marked_open: false,
            dropped_tail: DroppedTail::Gone,
            slots: Vec::new(),
            cursor: Cursor::default(),
            group: Cursor::default(),
            pending: Vec::new(),
            extents: Vec::new(),
            extent_of: SmallMap::default(),
            dead_extents: Vec::new(),
            floor: 0,
            next_frame: superblock.first_frame,
            next_sequence: superblock.next_sequence as u32,
            entropy,
            flushed_frames: superblock.next_frame,
            witnessed_frames: superblock.next_frame,
            sure_frames: 0,
            pool,
            copies: Copies::new(),
            value_bytes: 0,
            spare_value: None,
            quarantine: Vec::new(),
            views_stale: false,
            file_slots: 0,
            checkpoint: None,
            tail_bytes: 0,
            stale: Vec::new(),
            untidy: false,
            garbage_after: 0,
            live_total: 0,
            spare_slots: 0,
        }
    }

    fn replay(mut self, file: &mut impl File, checkpoint: Option<Loaded>) -> Result<Opened, Error> {
        let head = checkpoint.as_ref().map(|checkpoint| checkpoint.head);
        let segments = self.log_segments(head.as_ref());
        let mut chain = self.walk(file, &segments, head.as_ref())?;
        let (beyond, committed) = loop {
            let beyond = self.scan_beyond(file, &chain, &segments)?;
            self.flushed_frames = self.flushed_frames.max(chain.watermark).max(beyond.watermark);
            let committed = self.cut(file, &mut chain)?;
            // What was cut off may have been what accounted for a gap.
            if !chain.close_gaps(self.flushed_frames) {
                break (beyond, committed);
            }
        };
        if committed < self.flushed_frames {
            return Err(Error::Corruption(Damage {
                position: chain.end_position(self.geometry),
                expected_frame: committed,
                flushed_frames: self.flushed_frames,
                intact_frames: beyond.frames,
                intact_bytes: beyond.bytes,
            }));
        }
        self.next_frame = committed;
        self.witnessed_frames = self.flushed_frames;
        let torn_bytes = self.settle(file, &chain, &segments)?;
        let torn = torn_bytes > 0;
        let recovery = Recovery {
            torn_bytes,
            dropped_frames: chain.incomplete + if torn { beyond.frames } else { 0 },
            last_frame: committed - 1,
            replayed_frames: chain.frames.len() as u64,
            checkpoint: head.is_some(),
            clean: !torn && self.ends_clean(&chain, committed),
            created: false,
        };
        self.tail_bytes = chain.frames.iter().map(|frame| u64::from(frame.length)).sum();
        self.garbage_after = committed + u64::from(torn);
        self.untidy = true;
        let known = head.map_or(0, |head| head.next_version);
        let next_version = self.superblock.next_version.max(known);
        let extents = chain.extents.into_iter().map(|named| (named.position, named.extent));
        let extents = extents.collect();
        let frames = chain.frames;
        Ok(Opened { log: self, checkpoint, frames, extents, recovery, next_version })
    }

    /// Whether nothing but the witness frame follows the end that a clean close recorded: the
    /// superblock that takes the mark back is not flushed, so it may be lost where frames are not.
    fn ends_clean(&self, chain: &Chain, committed: u64) -> bool {
        let beyond = committed.saturating_sub(self.superblock.next_frame);
        let is_witness = chain.frames.last().is_none_or(|frame| frame.is_void);
        self.superblock.flags & FLAG_CLEAN != 0 && (beyond == 0 || beyond == 1 && is_witness)
    }

    /// Log segments that have to be walked, in order, each with the frame number at which the next
    /// one takes over: a fresh segment that starts at a number cancels that number and all above
    /// it in older segments. With a checkpoint those are the ones from its end on. What nobody
    /// needs becomes garbage.
    fn log_segments(&mut self, head: Option<&CheckpointHead>) -> Vec<(u32, u64)> {
        // Segments below the first sequence are no longer needed by the log, whatever they hold.
        let first = u32::try_from(self.superblock.first_sequence).unwrap_or(u32::MAX);
        let current = self.checkpoint;
        let mut order: Vec<(u32, u32)> = Vec::new();
        for (slot, i) in self.slots.iter_mut().zip(0..) {
            let sequence = slot.sequence;
            match (slot.used, head) {
                (Use::Checkpoint, _) if current != Some(i) => slot.used = Use::Garbage,
                (Use::Log, None) if sequence >= first => order.push((sequence, i)),
                (Use::Log, Some(head)) if sequence >= head.next_sequence => {
                    order.push((sequence, i));
                }
                (Use::Log, Some(head)) if sequence == head.end_sequence => {
                    order.push((sequence, i));
                }
                (Use::Log, Some(_)) if slot.end > 0 => {}
                (Use::Log, _) => slot.used = Use::Garbage,
                _ => {}
            }
        }
        let order = sort::by_number(order);
        let mut limit = u64::MAX;
        let mut kept = Vec::new();
        for &(sequence, index) in order.iter().rev() {
            let slot = &mut self.slots[index as usize];
            let is_end = head.is_some_and(|head| head.end_sequence == sequence);
            if slot.first_frame >= limit && !is_end {
                slot.used = Use::Garbage;
                continue;
            }
            kept.push((index, limit));
            limit = slot.first_frame.min(limit);
        }
        kept.reverse();
        kept
    }

    /// The bytes of a loaded segment from `offset` to the end of its room.
    fn room_from(&self, slot: u32, offset: usize) -> &[u8] {
        let bytes = self.pool.bytes(self.slots[slot as usize].buffer);
        bytes.get(offset..self.geometry.room_end()).unwrap_or_default()
    }

    /// The frame at `offset` of a loaded segment, if a valid one is there.
    fn frame_at(&self, slot: u32, offset: usize) -> Option<FrameHeader> {
        let position = self.geometry.slot_start(slot) + offset as u64;
        FrameHeader::open(self.room_from(slot, offset), self.slots[slot as usize].salt, position)
    }

    /// Follows the frames from the first, or from the checkpoint, to the first that is missing.
    fn walk(
        &mut self,
        file: &mut impl File,
        segments: &[(u32, u64)],
        head: Option<&CheckpointHead>,
    ) -> Result<Chain, Error> {
        let start = head.map_or(self.superblock.first_frame, |head| head.frame);
        let mut chain = Chain { expected: start, ..Chain::default() };
        for (i, &(slot, limit)) in segments.iter().enumerate() {
            let Slot { sequence, first_frame, .. } = self.slots[slot as usize];
            let goes_on = head.filter(|head| head.end_sequence == sequence);
            if goes_on.is_none() && first_frame != chain.expected {
                // Perhaps what lay between was given back: only what comes later can tell.
                let place = (chain.segment, chain.slot, chain.offset);
                let (frames, expected) = (chain.frames.len(), chain.expected);
                chain.gaps.push(Gap { place, frames, from: expected, to: first_frame });
                chain.expected = first_frame;
            }
            self.load(file, slot)?;
            chain.segment = i;
            chain.offset = goes_on.map_or(segment::SIZE, |head| head.end_offset as usize);
            chain.slot = Some(slot);
            while chain.expected < limit {
                let header = self.frame_at(slot, chain.offset);
                let Some(header) = header.filter(|h| h.number == chain.expected) else { break };
                let bytes = &self.room_from(slot, chain.offset)[..header.length as usize];
                chain.take(slot, self.geometry.position(slot, chain.offset), &header, bytes);
            }
            self.note_end(slot, &chain, limit);
        }
        chain.close_gaps(self.flushed_frames.max(chain.watermark));
        Ok(chain)
    }

    /// Notes where the frames of a segment end, and what a recovery left behind them.
    fn note_end(&mut self, slot: u32, chain: &Chain, limit: u64) {
        let (offset, end) = (chain.offset, self.geometry.room_end());
        let rest = self.room_from(slot, offset);
        let is_blank = rest.iter().all(|&b| b == 0);
        if chain.expected == limit && !is_blank {
            self.stale.push((self.geometry.slot_start(slot) + offset as u64, end - offset));
        }
        let slot = &mut self.slots[slot as usize];
        (slot.end, slot.end_frame) = (offset as u32, chain.expected);
    }

    /// Looks for valid frames behind the end of the chain, at every aligned place: their
    /// watermarks tell whether what is missing had been flushed.
    fn scan_beyond(
        &mut self,
        file: &mut impl File,
        chain: &Chain,
        segments: &[(u32, u64)],
    ) -> Result<Beyond, Error> {
        let mut beyond = Beyond::default();
        for (i, &(slot, _)) in segments.iter().enumerate().skip(chain.segment) {
            self.load(file, slot)?;
            let is_end = chain.slot == Some(slot) && i == chain.segment;
            let mut offset = if is_end { chain.offset } else { segment::SIZE };
            while offset + frame::SIZE <= self.geometry.room_end() {
                match self.frame_at(slot, offset) {
                    Some(header) => {
                        beyond.frames += 1;
                        beyond.bytes += u64::from(header.length);
                        beyond.watermark = beyond.watermark.max(header.watermark);
                        offset += header.length as usize;
                    }
                    None => offset += 8,
                }
            }
        }
        Ok(beyond)
    }

    /// Cuts off an incomplete commit, or one whose extents are not whole, and gives the number of
    /// the first frame that does not count. Extents of flushed commits are verified when they are
    /// read, since one that was superseded may be gone.
    fn cut(&mut self, file: &mut impl File, chain: &mut Chain) -> Result<u64, Error> {
        let flaw = chain.flaw.take();
        let mut end = flaw.map_or(chain.frames.len(), |(frame, _)| frame);
        // In the order of records: what comes first, ends the log or refuses the file. None behind
        // a flaw was noted in its own frame.
        let mut refuses = flaw.is_some_and(|(_, flaw)| flaw == Flaw::Unknown);
        for named in chain.extents.iter().take_while(|named| named.frame <= end) {
            let flushed = chain.frames[named.frame].number < self.flushed_frames;
            if !flushed && !self.verify_extent(file, &named.extent)? {
                (end, refuses) = (named.frame, false);
                break;
            }
        }
        if refuses {
            return Err(Error::UnsupportedFormat { major: MAJOR, features: 0 });
        }
        let complete = chain.frames[..end].iter().rposition(|f| f.commits).map_or(0, |i| i + 1);
        chain.incomplete = (chain.frames.len() - complete) as u64;
        let mut committed = chain.expected;
        if let Some(dropped) = chain.frames.get(complete) {
            committed = dropped.number;
            chain.cut = Some((dropped.slot, dropped.offset as usize));
        }
        chain.keep(complete);
        Ok(committed)
    }

    /// Puts the cursor behind the last commit, or nowhere (a fresh segment) if anything but zeros
    /// lies there. Returns the bytes that were left behind.
    fn settle(
        &mut self,
        file: &mut impl File,
        chain: &Chain,
        segments: &[(u32, u64)],
    ) -> Result<u64, Error> {
        let (slot, offset) = match (chain.cut, chain.slot) {
            (Some(cut), _) => cut,
            (None, Some(slot)) => (slot, chain.offset),
            (None, None) => (u32::MAX, segment::SIZE),
        };
        let at = segments.iter().position(|&(s, _)| s == slot).unwrap_or(0);
        let mut torn = 0;
        for (i, &(s, _)) in segments.iter().enumerate().skip(at) {
            let from = if s == slot { offset } else { segment::SIZE };
            self.load(file, s)?;
            let rest = self.room_from(s, from);
            let left = rest.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
            torn += left as u64;
            if i > at {
                self.slots[s as usize].used = Use::Garbage;
            } else if left > 0 {
                self.stale.push((self.geometry.slot_start(s) + from as u64, left));
            }
            if s == slot {
                let end_frame = self.next_frame;
                let slot = &mut self.slots[s as usize];
                (slot.end, slot.end_frame) = (offset as u32, end_frame);
            }
        }
        if torn == 0 && slot != u32::MAX && at + 1 == segments.len() {
            self.cursor = Cursor::at(slot, offset);
        } else if torn > 0 {
            self.dropped_tail = DroppedTail::Stands;
        }
        self.group = self.cursor;
        self.floor = self.cursor.tail;
        Ok(torn)
    }
}

/// Why a frame whose checksum holds does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// What it holds are not records.
    Malformed,
    /// A record of a kind that must be understood and is not.
    Unknown,
}

/// An extent that a record names.
#[derive(Debug)]
struct NamedExtent {
    /// Index of the record's frame.
    frame: usize,
    position: Position,
    extent: ExtentRef,
}

/// Missing frames between two segments, and how far the chain had come before them.
#[derive(Debug)]
struct Gap {
    /// Index of the segment, its slot, and the offset in it.
    place: (usize, Option<u32>, usize),
    /// Frames before it.
    frames: usize,
    from: u64,
    to: u64,
}

/// What a record about a gap says: the frames that were given back, and the one behind them.
fn claim(key: &[u8], value: &[u8]) -> Option<(u64, u64)> {
    let to = key.get(KEY_GAP.len()..)?.try_into().ok().map(u64::from_be_bytes)?;
    let from = value.get(..8)?.try_into().ok().map(u64::from_le_bytes)?;
    Some((from, to))
}

/// The frames from the first on, as far as they follow each other.
#[derive(Debug, Default)]
struct Chain {
    gaps: Vec<Gap>,
    /// Gaps that records speak of, each with the frame of its record.
    claims: Vec<(u64, u64, u64)>,
    frames: Vec<FrameAt>,
    /// Extents that they name.
    extents: Vec<NamedExtent>,
    /// Index of the first frame that does not count although its checksum holds.
    flaw: Option<(usize, Flaw)>,
    /// Number of the frame that is missing.
    expected: u64,
    watermark: u64,
    /// Index, slot and offset where it should have been.
    segment: usize,
    slot: Option<u32>,
    offset: usize,
    /// Valid frames at the end that belong to a commit that is not whole, and where they start.
    incomplete: u64,
    cut: Option<(u32, usize)>,
}

impl Chain {
    /// Goes back to the first gap that no record accounts for: the chain ends there. Answers whether
    /// there was one.
    ///
    /// A record is committed before anything is given back, and all that its gap needs before it: so
    /// it speaks the truth if it is flushed, or itself part of the chain. Else it may speak of frames
    /// whose copies were lost with the power.
    fn close_gaps(&mut self, flushed: u64) -> bool {
        let mut went_back = false;
        loop {
            let end = flushed.max(self.frames.last().map_or(0, |frame| frame.number + 1));
            let claims = &self.claims;
            let is_open = |gap: &Gap| {
                let holds = |&(frame, from, to): &(u64, u64, u64)| {
                    frame < end && from <= gap.from && gap.to <= to
                };
                !claims.iter().any(holds)
            };
            let Some(open) = self.gaps.iter().position(is_open) else { return went_back };
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
    fn keep(&mut self, frames: usize) {
        self.frames.truncate(frames);
        self.extents.retain(|named| named.frame < frames);
        self.gaps.retain(|gap| gap.frames <= frames);
        self.flaw = self.flaw.filter(|&(frame, _)| frame < frames);
    }

    /// Takes the frame in `bytes`, which lies at position `start`.
    fn take(&mut self, slot: u32, start: Position, header: &FrameHeader, bytes: &[u8]) {
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
    ) -> Result<bool, Flaw> {
        let (mut at, mut records, mut is_void) = (frame::SIZE, 0, true);
        while at < bytes.len() {
            let rest = &bytes[at..];
            let (header, key, value) = record::parts(rest).ok_or(Flaw::Malformed)?;
            let skippable = header.kind & KIND_SKIPPABLE != 0;
            // As in superblocks, a checksum does not prove that the writer meant well.
            let sane = header.kind != 0 && header.version >> 56 == 0;
            if !header.fits(rest.len()) || !sane || (key.is_empty() && !skippable) {
                return Err(Flaw::Malformed);
            }
            if header.kind > KIND_EXTENT && !skippable {
                return Err(Flaw::Unknown);
            }
            // A deletion that was moved has a value too, which is no account.
            let is_set = header.kind == KIND_SET;
            if is_set && header.space() == KEYSPACE_ENGINE && key.starts_with(KEY_GAP) {
                let told = claim(key, value);
                self.claims.extend(told.map(|(from, to)| (frame.number, from, to)));
            }
            if header.kind == KIND_EXTENT {
                let extent = ExtentRef::decode(value).ok_or(Flaw::Malformed)?;
                if extent.length > MAX_VALUE as u64 {
                    return Err(Flaw::Malformed);
                }
                let position = start + (at >> 3) as Position;
                self.extents.push(NamedExtent { frame: self.frames.len(), position, extent });
            }
            is_void &= header.kind == KIND_VOID;
            records += 1;
            at += header.size();
        }
        if records == frame.records { Ok(is_void) } else { Err(Flaw::Malformed) }
    }

    fn end_position(&self, geometry: Geometry) -> u64 {
        let cut = self.cut.or(self.slot.map(|slot| (slot, self.offset)));
        cut.map_or(DATA_START, |(slot, offset)| geometry.slot_start(slot) + offset as u64)
    }
}

/// What lies behind the end of the chain.
#[derive(Debug, Default)]
struct Beyond {
    frames: u64,
    bytes: u64,
    watermark: u64,
}
