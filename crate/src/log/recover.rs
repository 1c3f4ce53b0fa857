//! Opening: which frames count, and whether what is missing was promised.
//!
//! Reading never repairs: nothing here writes, but for the creation of an empty file.

use crate::error::{Damage, Error};
use crate::file::{File, read_full};
use crate::format::checksum::{checksum, seed_at};
use crate::format::frame::{self, FrameHeader};
use crate::format::payload::ExtentRef;
use crate::format::record::{self, KIND_EXTENT, KIND_SKIPPABLE, KIND_VOID};
use crate::format::segment;
use crate::format::superblock::{FLAG_CLEAN, Superblock};
use crate::format::{DATA_START, MAJOR, align_up};
use crate::memory::AlignedBytes;

use super::group::Cursor;
use super::{Geometry, Log, Use, superblocks};

/// What opening found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes of an unflushed tail that were left behind.
    pub torn_bytes: u64,
    /// Whole frames among them.
    pub dropped_frames: u64,
    /// Number of the last frame that counts; 0 for none.
    pub last_frame: u64,
    /// Frames that were replayed.
    pub replayed_frames: u64,
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
    records: u32,
    commits: bool,
}

/// A log read from its file.
#[derive(Debug)]
pub struct Opened {
    /// The log, ready to append.
    pub log: Log,
    /// The frames that count, in order.
    pub frames: Vec<FrameAt>,
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
    ) -> Result<Opened, Error> {
        let size = file.size()?;
        let found = superblocks::read(file, size)?;
        let (superblock, created) = match found {
            Some(superblock) => (superblock, false),
            None => (superblocks::create(file, segment_log2, entropy)?, true),
        };
        let mut log = Log::empty(superblock, entropy[3]);
        log.find_slots(file, size)?;
        let mut opened = log.replay(file)?;
        opened.recovery.created = created;
        Ok(opened)
    }

    fn empty(superblock: Superblock, entropy: u64) -> Log {
        Log {
            geometry: Geometry { segment_log2: superblock.segment_log2 },
            superblock,
            marked_open: false,
            slots: Vec::new(),
            cursor: Cursor::default(),
            group: Cursor::default(),
            pending: Vec::new(),
            extents: Vec::new(),
            floor: 0,
            next_frame: superblock.first_frame,
            next_sequence: superblock.next_sequence as u32,
            entropy,
            flushed_frames: superblock.next_frame,
            witnessed_frames: superblock.next_frame,
            quarantine: Vec::new(),
            views_stale: false,
            file_slots: 0,
        }
    }

    fn replay(mut self, file: &mut impl File) -> Result<Opened, Error> {
        let segments = self.log_segments();
        for &(slot, _) in &segments {
            let mut bytes = AlignedBytes::zeroed(self.geometry.segment());
            read_full(file, &mut bytes, self.geometry.slot_start(slot))?;
            self.slots[slot as usize].bytes = Some(bytes);
        }
        let mut chain = self.walk(&segments);
        let beyond = self.scan_beyond(&chain, &segments);
        self.flushed_frames = self.flushed_frames.max(chain.watermark).max(beyond.watermark);
        let committed = self.check_frames(file, &mut chain)?;
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
        let torn_bytes = self.settle(&chain, &segments);
        let torn = torn_bytes > 0;
        let recovery = Recovery {
            torn_bytes,
            dropped_frames: chain.incomplete + if torn { beyond.frames } else { 0 },
            last_frame: committed - 1,
            replayed_frames: chain.frames.len() as u64,
            clean: !torn && self.ends_clean(&chain, committed),
            created: false,
        };
        let next_version = self.superblock.next_version;
        Ok(Opened { log: self, frames: chain.frames, recovery, next_version })
    }

    /// Whether nothing but the witness frame follows the end that a clean close recorded: the
    /// superblock that takes the mark back is not flushed, so it may be lost where frames are not.
    fn ends_clean(&self, chain: &Chain, committed: u64) -> bool {
        let beyond = committed.saturating_sub(self.superblock.next_frame);
        let is_witness = || chain.frames.last().is_none_or(|frame| self.is_void(frame));
        self.superblock.flags & FLAG_CLEAN != 0 && (beyond == 0 || beyond == 1 && is_witness())
    }

    /// Whether a frame holds nothing, but for what rolled-back calls left.
    fn is_void(&self, frame: &FrameAt) -> bool {
        let mut at = frame.offset as usize + frame::SIZE;
        (0..frame.records).all(|_| {
            let (header, _) = self.key_at(self.geometry.position(frame.slot, at));
            at += header.size();
            header.kind == KIND_VOID
        })
    }

    /// Log segments that no recovery abandoned, in order, each with the frame number at which the
    /// next one takes over. A fresh segment that starts at a number cancels that number and all
    /// above it in older segments.
    fn log_segments(&mut self) -> Vec<(u32, u64)> {
        let logs = self.slots.iter().zip(0..).filter(|(slot, _)| slot.used == Use::Log);
        // Segments below the first sequence are no longer needed by the log, whatever they hold.
        let first = self.superblock.first_sequence;
        let mut order: Vec<(u32, u32)> = logs
            .filter(|(slot, _)| u64::from(slot.sequence) >= first)
            .map(|(slot, i)| (slot.sequence, i))
            .collect();
        order.sort_unstable();
        let mut limit = u64::MAX;
        let mut kept = Vec::new();
        for &(_, index) in order.iter().rev() {
            let slot = &mut self.slots[index as usize];
            if slot.first_frame >= limit {
                slot.used = Use::Abandoned;
                continue;
            }
            kept.push((index, limit));
            limit = slot.first_frame;
        }
        kept.reverse();
        kept
    }

    fn frame_at(&self, slot: u32, offset: usize) -> Option<FrameHeader> {
        let s = &self.slots[slot as usize];
        let bytes = s.bytes.as_ref()?.get(offset..self.geometry.room_end())?;
        FrameHeader::open(bytes, s.salt, self.geometry.slot_start(slot) + offset as u64)
    }

    /// Follows the frames from the first to the first that is missing.
    fn walk(&self, segments: &[(u32, u64)]) -> Chain {
        let mut chain = Chain { expected: self.superblock.first_frame, ..Chain::default() };
        for (i, &(slot, limit)) in segments.iter().enumerate() {
            if self.slots[slot as usize].first_frame != chain.expected {
                break;
            }
            chain.segment = i;
            chain.offset = segment::SIZE;
            chain.slot = Some(slot);
            while chain.expected < limit {
                let header = self.frame_at(slot, chain.offset);
                let Some(header) = header.filter(|h| h.number == chain.expected) else {
                    break;
                };
                chain.take(slot, &header);
            }
        }
        chain
    }

    /// Looks for valid frames behind the end of the chain, at every aligned place: their
    /// watermarks tell whether what is missing had been flushed.
    fn scan_beyond(&self, chain: &Chain, segments: &[(u32, u64)]) -> Beyond {
        let mut beyond = Beyond::default();
        for (i, &(slot, _)) in segments.iter().enumerate().skip(chain.segment) {
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
        beyond
    }

    /// Checks what the frames hold, cuts off an incomplete commit, and gives the number of the
    /// first frame that does not count.
    fn check_frames(&mut self, file: &mut impl File, chain: &mut Chain) -> Result<u64, Error> {
        let first = chain.expected - chain.frames.len() as u64;
        let mut complete = 0;
        for i in 0..chain.frames.len() {
            let flushed = first + (i as u64) < self.flushed_frames;
            if !self.check_frame(file, chain.frames[i], flushed)? {
                break;
            }
            if chain.frames[i].commits {
                complete = i + 1;
            }
        }
        chain.incomplete = (chain.frames.len() - complete) as u64;
        if let Some(dropped) = chain.frames.get(complete) {
            chain.cut = Some((dropped.slot, dropped.offset as usize));
        }
        chain.frames.truncate(complete);
        Ok(first + complete as u64)
    }

    /// Whether every record of a frame is whole. Extents of flushed commits are verified when the
    /// index is known, since one that was superseded may be gone.
    fn check_frame(
        &mut self,
        file: &mut impl File,
        frame: FrameAt,
        flushed: bool,
    ) -> Result<bool, Error> {
        let mut at = frame.offset as usize + frame::SIZE;
        let end = (frame.offset + frame.length) as usize;
        let mut records = 0;
        while at < end {
            let bytes = self.slots[frame.slot as usize].bytes.as_ref();
            let bytes = &bytes.expect("replayed segments are resident")[at..end];
            let Some((header, key, value)) = record::parts(bytes) else {
                return Ok(false);
            };
            let skippable = header.kind & KIND_SKIPPABLE != 0;
            if !header.fits(bytes.len()) || header.kind == 0 || (key.is_empty() && !skippable) {
                return Ok(false);
            }
            if header.kind > KIND_EXTENT && !skippable {
                return Err(Error::UnsupportedFormat { major: MAJOR, features: 0 });
            }
            records += 1;
            at += header.size();
            if header.kind == KIND_EXTENT {
                let Some(extent) = ExtentRef::decode(value) else {
                    return Ok(false);
                };
                if !flushed && !self.load_extent(file, &extent)? {
                    return Ok(false);
                }
            }
        }
        Ok(records == frame.records)
    }

    /// Reads an extent's value into memory if it is the one described, and intact.
    pub(crate) fn load_extent(
        &mut self,
        file: &mut impl File,
        extent: &ExtentRef,
    ) -> Result<bool, Error> {
        let geometry = self.geometry;
        let Some(slot) = self.slots.get_mut(extent.slot as usize) else {
            return Ok(false);
        };
        let room = u64::from(slot.span) << geometry.segment_log2;
        let described = slot.used == Use::Extent
            && slot.sequence == extent.sequence
            && slot.length == extent.length
            && extent.length + 2 * segment::SIZE as u64 <= room;
        if !described {
            return Ok(false);
        }
        if slot.bytes.is_some() {
            return Ok(true);
        }
        let start = geometry.slot_start(extent.slot) + segment::SIZE as u64;
        let length = extent.length as usize;
        let mut bytes = AlignedBytes::zeroed(align_up(length));
        read_full(file, &mut bytes[..length], start)?;
        let intact = checksum(&bytes[..length], seed_at(slot.salt, start)) == extent.check;
        if intact {
            slot.bytes = Some(bytes);
        }
        Ok(intact)
    }

    /// Lets go of the values of extents whose slot is not marked in `live`.
    pub(crate) fn keep_extents(&mut self, live: &[bool]) {
        for (slot, &live) in self.slots.iter_mut().zip(live) {
            if slot.used == Use::Extent && !live {
                slot.bytes = None;
            }
        }
    }

    /// How many slots the file has.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Puts the cursor behind the last commit, or nowhere (a fresh segment) if anything but zeros
    /// lies there. Returns the bytes that were left behind.
    fn settle(&mut self, chain: &Chain, segments: &[(u32, u64)]) -> u64 {
        let (slot, offset) = match (chain.cut, chain.slot) {
            (Some(cut), _) => cut,
            (None, Some(slot)) => (slot, chain.offset),
            (None, None) => (u32::MAX, segment::SIZE),
        };
        let at = segments.iter().position(|&(s, _)| s == slot).unwrap_or(0);
        let mut torn = 0;
        for (i, &(s, _)) in segments.iter().enumerate().skip(at) {
            let from = if s == slot { offset } else { segment::SIZE };
            let bytes = self.slots[s as usize].bytes.as_ref().expect("segments are resident");
            let rest = &bytes[from.min(self.geometry.room_end())..self.geometry.room_end()];
            torn += rest.iter().rposition(|&b| b != 0).map_or(0, |last| last as u64 + 1);
            if i > at {
                self.slots[s as usize].used = Use::Abandoned;
            }
        }
        if torn == 0 && slot != u32::MAX && at + 1 == segments.len() {
            self.cursor = Cursor::at(slot, offset);
        }
        self.group = self.cursor;
        self.floor = self.cursor.tail;
        torn
    }
}

/// The frames from the first on, as far as they follow each other.
#[derive(Debug, Default)]
struct Chain {
    frames: Vec<FrameAt>,
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
    fn take(&mut self, slot: u32, header: &FrameHeader) {
        self.frames.push(FrameAt {
            slot,
            offset: self.offset as u32,
            length: header.length,
            records: header.records,
            commits: header.commits(),
        });
        self.watermark = self.watermark.max(header.watermark);
        self.offset += header.length as usize;
        self.expected += 1;
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
