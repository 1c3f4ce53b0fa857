//! Opening: which frames count, and whether missing frames had been flushed.
//!
//! Reading never repairs: nothing here writes, except to create an empty file.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::aligned_buf::used_length;
use crate::error::{Damage, Error};
use crate::file::File;
use crate::format::checkpoint::CheckpointHead;
use crate::format::frame::{self, FrameHeader};
use crate::format::record::{KIND_CLEAR, RecordError, RecordHeader};
use crate::format::segment;
use crate::format::superblock::{COMPATIBLE_HISTORY, FLAG_CLEAN, MODE_KEEP_HISTORY, Superblock};
use crate::format::system_records::ExtentRef;
use crate::format::{MAJOR, SEGMENT_LOG2};
use crate::index::Position;
use crate::radix_sort;

use super::buffer_pool::{Pool, ViewCallbacks};
use super::checkpoint::LoadedCheckpoint;
use super::frame_chain::{Chain, FrameAt};
use super::log_start::RecentCommits;
use super::open_frame::OpenFrame;
use super::record_cache::RecordCache;
use super::{
    CheckpointState, DiscardedTail, Extents, Geometry, LargeValues, Leftovers, Log, OpenBatch,
    Reclaimable, RecoveryState, Slot, SlotState, SpaceUsage, SuperblockState, ViewState,
    Watermarks, superblocks,
};

/// What opening found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes of an unflushed tail that were dropped.
    pub torn_bytes: u64,
    /// Valid frames in that tail.
    pub dropped_frames: u64,
    /// Number of the last frame that counts; 0 if there is none.
    pub last_frame: u64,
    /// Frames that were replayed: all of them, or those after the checkpoint.
    pub replayed_frames: u64,
    /// Whether the index came from a checkpoint.
    pub checkpoint: bool,
    /// Whether the file was closed properly and has not been written since.
    pub clean: bool,
    /// Whether this opening created the database.
    pub created: bool,
    /// Whether flushed data was damaged. The other fields then describe what [`OnDamage`] kept.
    pub damaged: bool,
    /// Frames that had been flushed and are lost.
    pub lost_frames: u64,
    /// Bytes of these frames that are still in the file.
    pub lost_bytes: u64,
    /// Keys that are known to have existed and whose values are lost: they are absent.
    pub lost_keys: u64,
    /// Keys that exist but that lost frames may have changed or deleted.
    pub uncertain_keys: u64,
}

/// What opening does when flushed data is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDamage {
    /// Fails, and writes nothing.
    #[default]
    Refuse,
    /// Keeps the commits before the damage.
    Prefix,
    /// Keeps everything that can be verified.
    Salvage,
}

/// How a log is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenMode {
    /// Whether nothing may be written.
    pub read_only: bool,
    /// What to do about damage.
    pub on_damage: OnDamage,
    /// Frames from this number on do not count.
    pub below: u64,
    /// Whether the log always continues in a fresh segment.
    pub fresh_segment: bool,
    /// Whether and how much of a checkpoint is read: none is if this is none; its entries are if there
    /// are at most so many, and later otherwise.
    pub load_at_once: Option<usize>,
    /// Bytes of memory for the hash index. A larger one is not loaded.
    pub index_memory: usize,
    /// Whether the file is to be one that keeps its history; none for whatever it is.
    pub keeps_history: Option<bool>,
}

/// A log whose frames have not been read yet.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub log: Log,
    /// The index as of before the frames, if a checkpoint contains it.
    pub checkpoint: Option<LoadedCheckpoint>,
    /// Whether the file was created just now.
    pub created: bool,
}

/// The state of reading the frames of a log.
#[derive(Debug)]
pub struct Walk {
    head: Option<CheckpointHead>,
    /// See [`log_segments`](Log::log_segments).
    segments: Vec<(u32, u64)>,
    /// Index of the next segment.
    next: usize,
    /// Flushed frames from this number on must not be missing.
    salvage_below: u64,
    chain: Chain,
}

impl Walk {
    fn new(head: Option<CheckpointHead>, first_frame: u64, segments: Vec<(u32, u64)>) -> Self {
        let expected = head.map_or(first_frame, |head| head.frame);
        let next_version = head.map_or(1, |head| head.next_version);
        let chain = Chain { expected, next_version, ..Chain::default() };
        Walk { head, segments, next: 0, salvage_below: 0, chain }
    }

    /// The frames so far.
    #[must_use]
    pub fn frames(&self) -> &[FrameAt] {
        &self.chain.frames
    }

    /// How many frames are certain to count whatever follows them; `before` of them were already.
    #[must_use]
    pub fn certain_frames(&self, before: usize, mode: OpenMode) -> usize {
        let Chain { frames, gaps, extents, record_error, .. } = &self.chain;
        // Later frames may account for a gap, or show that an extent is not needed.
        if mode.on_damage == OnDamage::Salvage || !gaps.is_empty() || !extents.is_empty() {
            return before;
        }
        let end = record_error.map_or(frames.len(), |(frame, _)| frame);
        let counts = |frame: &FrameAt| frame.commits && frame.number < mode.below;
        let last = frames[before..end.max(before)].iter().rposition(counts);
        last.map_or(before, |last| before + last + 1)
    }
}

/// The result of reading all frames.
#[derive(Debug)]
pub struct Recovered {
    /// The frames that count, in order.
    pub frames: Vec<FrameAt>,
    /// The records among them whose values lie in extents.
    pub extents: Vec<(Position, ExtentRef)>,
    /// The statistics of the recovery.
    pub recovery: Recovery,
    /// The damage, if flushed data is damaged: then the log is read-only.
    pub damage: Option<Damage>,
}

impl Log {
    /// Opens the log in `file`, or creates one with segments of `1 << segment_log2` bytes in an
    /// empty file. Its frames must be walked next.
    pub fn open(
        file: &mut impl File,
        segment_log2: u8,
        entropy: &[u64; 4],
        memory: usize,
        views: ViewCallbacks,
        mode: OpenMode,
    ) -> Result<Opened, Error> {
        let size = file.size()?;
        let salvages = mode.on_damage == OnDamage::Salvage;
        let mut refusal = Error::NotADatabase;
        let mut lost_superblock = false;
        let new_mode = if mode.keeps_history == Some(true) { MODE_KEEP_HISTORY } else { 0 };
        let (mut superblock, created) = match superblocks::read(file, size) {
            Ok(Some((superblock, is_alone))) => {
                lost_superblock = is_alone;
                (superblock, false)
            }
            Ok(None) if mode.read_only => return Err(Error::NotADatabase),
            Ok(None) => (superblocks::create(file, segment_log2, entropy, new_mode)?, true),
            Err(error @ (Error::Corruption(_) | Error::NotADatabase)) if salvages => {
                refusal = error;
                (superblocks::missing(entropy, new_mode), false)
            }
            Err(error) => return Err(error),
        };
        if mode.keeps_history.is_some() && superblock.mode != new_mode {
            return Err(Error::OtherHistory);
        }
        // A superblock that was lost may have referred to a later checkpoint, and slots that this one lists may have
        // been reused since.
        let mut trusts_lists = mode.load_at_once.is_some() && !lost_superblock && !salvages;
        let mut log;
        let mut checkpoint;
        loop {
            let pool = Pool::new(1 << superblock.segment_log2, memory, views);
            log = Log::empty(superblock, entropy[3], pool);
            log.reset_slots(size)?;
            let tables = if trusts_lists { log.occupy_listed(file)? } else { None };
            if tables.is_none() {
                log.reset_slots(size)?;
            }
            trusts_lists = tables.is_some();
            log.scan_slots(file)?;
            log.recovery.salvages = salvages;
            log.superblock_state.lost_copy = lost_superblock;
            checkpoint = match mode.load_at_once {
                Some(at_once) => log.load_checkpoint(file, tables, at_once, mode.index_memory)?,
                None => None,
            };
            if checkpoint.is_none() && trusts_lists {
                // Without the checkpoint, all headers are needed.
                trusts_lists = false;
                continue;
            }
            if superblock.generation > 0 || log.segments() > 0 {
                break;
            }
            // Without a superblock, the segment size is found by trying: headers are only valid at
            // the right size.
            superblock.segment_log2 -= 1;
            if !SEGMENT_LOG2.contains(&superblock.segment_log2) {
                return Err(refusal);
            }
        }
        if checkpoint.is_none() {
            log.reset_tables();
            log.recovery.damaged = superblock.generation == 0;
        }
        Ok(Opened { log, checkpoint, created })
    }

    #[inline(never)]
    pub(super) fn empty(superblock: Superblock, entropy: u64, pool: Pool) -> Log {
        Log {
            geometry: Geometry { segment_log2: superblock.segment_log2 },
            superblock,
            superblock_state: SuperblockState {
                marked_open: false,
                // The previous session may have written a superblock without flushing it.
                unflushed: superblock.generation > 2,
                lost_copy: false,
            },
            slots: Vec::new(),
            space: SpaceUsage {
                live: 0,
                live_is_estimate: false,
                spare_slots: 0,
                free_slots: 0,
                log_slots: 0,
                checkpoint_slots: 0,
                factor: 150,
                full: false,
            },
            extents: Extents::default(),
            reclaimable: Reclaimable::default(),
            checkpoint: CheckpointState::default(),
            open_frame: OpenFrame::default(),
            batch: OpenBatch::default(),
            mutable_from: 0,
            next_frame: superblock.first_frame,
            next_sequence: superblock.next_sequence as u32,
            entropy,
            watermarks: Watermarks {
                flushed: superblock.next_frame,
                written: superblock.next_frame,
                confirmed: 0,
                segments_flushed_below: 0,
            },
            pool,
            record_cache: RecordCache::new(),
            all_resident: false,
            large: LargeValues::default(),
            views: ViewState { generation: 1, stale: false },
            leftovers: Leftovers {
                dropped_tail: DiscardedTail::Nothing,
                discarded_ranges: Vec::new(),
                missing_headers: Vec::new(),
            },
            recovery: RecoveryState::default(),
            // Older builds did not say what they moved.
            moves_marked_from: if superblock.compatible & COMPATIBLE_HISTORY == 0 {
                u64::MAX
            } else {
                0
            },
            retained_from: u64::MAX,
            recent_commits: RecentCommits::default(),
            known_starts: Vec::new(),
            hidden_keyspaces: Vec::new(),
        }
    }

    /// Starts at the first frame, or at that of the checkpoint.
    pub fn begin_walk(&mut self, head: Option<CheckpointHead>) -> Walk {
        let segments = self.log_segments(head.as_ref());
        Walk::new(head, self.superblock.first_frame, segments)
    }

    /// Ends a complete walk: determines which frames count, and whether that is all of them.
    ///
    /// # Errors
    /// [`Error::UnsupportedFormat`], or an error of the file.
    pub fn end_walk(
        &mut self,
        file: &mut impl File,
        walk: Walk,
        mode: OpenMode,
    ) -> Result<Recovered, Error> {
        let Walk { head, segments, mut chain, .. } = walk;
        chain.end_at_unexplained_gap(self.watermarks.flushed.max(chain.watermark), 0);
        let (after_end, mut committed) = loop {
            let after_end = self.scan_after_end(file, &chain, &segments)?;
            self.watermarks.flushed =
                self.watermarks.flushed.max(chain.watermark).max(after_end.watermark);
            let committed = self.drop_incomplete_commit(file, &mut chain, mode.below)?;
            // The dropped commit may have contained the record that accounted for a gap.
            if !chain.end_at_unexplained_gap(self.watermarks.flushed, 0) {
                break (after_end, committed);
            }
        };
        if head.is_some() && !self.is_clean_end(&chain, committed) {
            let overwriting = self.watermark_of_overwriting_segments(file)?;
            self.watermarks.flushed = self.watermarks.flushed.max(overwriting);
        }
        let flushed_frames = self.watermarks.flushed;
        let is_damaged = committed < flushed_frames || self.recovery.damaged;
        let damage = is_damaged.then(|| Damage {
            position: chain.end_position(self.geometry),
            expected_frame: committed,
            flushed_frames,
            intact_frames: after_end.frames,
            intact_bytes: after_end.bytes,
            // Nothing is freed before a checkpoint permits it, and by then its live records have
            // been copied before the frame of that checkpoint.
            is_prefix_whole: committed >= self.superblock.checkpoint_frame,
            ..Damage::default()
        });
        if is_damaged && mode.on_damage == OnDamage::Salvage {
            self.leftovers.discarded_ranges.clear();
            let mut walk = Walk::new(head, self.superblock.first_frame, segments.clone());
            walk.salvage_below = flushed_frames;
            while self.walk_segment(file, &mut walk)? {}
            chain = walk.chain;
            chain.end_at_unexplained_gap(flushed_frames.max(chain.watermark), flushed_frames);
            committed = self.salvage_end(file, &mut chain)?;
        }
        self.next_frame = committed;
        self.watermarks.written = flushed_frames;
        let is_torn = is_damaged || after_end.frames > 0;
        let (left, torn_bytes) = match is_damaged && mode.on_damage != OnDamage::Prefix {
            true => (0, 0),
            false => self.set_log_end(file, &chain, &segments, is_torn, mode.fresh_segment)?,
        };
        let torn = torn_bytes > 0 && !is_damaged;
        let recovery = Recovery {
            torn_bytes: if is_damaged { 0 } else { torn_bytes },
            dropped_frames: chain.incomplete + if torn { after_end.frames } else { 0 },
            last_frame: committed.saturating_sub(1),
            replayed_frames: chain.frames.len() as u64,
            checkpoint: head.is_some(),
            clean: left == 0 && !is_damaged && self.is_clean_end(&chain, committed),
            damaged: is_damaged,
            lost_frames: chain.lost_frames + flushed_frames.saturating_sub(committed),
            lost_bytes: if is_damaged { torn_bytes + chain.lost_bytes } else { 0 },
            ..Recovery::default()
        };
        self.classify_missing_headers(&chain);
        self.checkpoint.frame_bytes_since =
            chain.frames.iter().map(|frame| u64::from(frame.length)).sum();
        self.reclaimable.from_frame = match recovery.clean {
            // The superblock states that they are flushed, and only a witness follows them.
            true => flushed_frames,
            false => committed + u64::from(self.leftovers.dropped_tail == DiscardedTail::Present),
        };
        self.reclaimable.may_exist = true;
        let extents = chain.extents.into_iter().map(|it| (it.position, it.extent));
        let (extents, frames) = (extents.collect(), chain.frames);
        Ok(Recovered { frames, extents, recovery, damage })
    }

    /// Ends a chain that continues after missing frames, and returns the number after its last
    /// frame.
    fn salvage_end(&mut self, file: &mut impl File, chain: &mut Chain) -> Result<u64, Error> {
        // If the end of a flushed commit is missing, the part that exists is kept.
        let end = match chain.expected < self.watermarks.flushed && chain.record_error.is_none() {
            true => chain.expected,
            false => self.drop_incomplete_commit(file, chain, u64::MAX)?,
        };
        chain.end_at_unexplained_gap(self.watermarks.flushed, self.watermarks.flushed);
        self.recovery.uncertain_below = match end < self.watermarks.flushed {
            true => u64::MAX,
            false => chain.uncertain_below,
        };
        Ok(end)
    }

    /// Whether at most a witness follows the end that a clean close recorded. The superblock that
    /// removes the clean mark is not flushed, so it may be lost while frames are not.
    fn is_clean_end(&self, chain: &Chain, committed: u64) -> bool {
        let after_end = committed.saturating_sub(self.superblock.next_frame);
        let is_witness = chain.frames.last().is_none_or(|frame| frame.is_void);
        self.superblock.flags & FLAG_CLEAN != 0 && (after_end == 0 || after_end == 1 && is_witness)
    }

    /// The log segments to walk, in order, each with the frame number at which the next one takes
    /// over: a fresh segment that starts at a number cancels that number and all above it in older
    /// segments. With a checkpoint these are the segments from its end on. Segments that are not
    /// needed become reclaimable.
    fn log_segments(&mut self, head: Option<&CheckpointHead>) -> Vec<(u32, u64)> {
        // Segments below the first sequence are not part of the log any more, whatever they
        // contain.
        let first = u32::try_from(self.superblock.first_sequence).unwrap_or(u32::MAX);
        let current = self.checkpoint.slot;
        let mut order: Vec<(u32, u32)> = Vec::new();
        for (slot, i) in self.slots.iter_mut().zip(0..) {
            let sequence = slot.sequence;
            match (slot.state, head) {
                (SlotState::Checkpoint, _) if current != Some(i) => {
                    slot.state = SlotState::Reclaimable
                }
                // The store discards runs that the checkpoint does not refer to.
                (SlotState::KeyRun, None) => slot.state = SlotState::Reclaimable,
                (SlotState::Log, None) if sequence >= first => order.push((sequence, i)),
                (SlotState::Log, Some(head)) if sequence >= head.next_sequence => {
                    order.push((sequence, i));
                }
                (SlotState::Log, Some(head)) if sequence == head.end_sequence => {
                    order.push((sequence, i));
                }
                (SlotState::Log, Some(_)) if slot.end > 0 => {}
                (SlotState::Log, _) => slot.state = SlotState::Reclaimable,
                _ => {}
            }
        }
        let order = radix_sort::by_number(order);
        if self.superblock.generation == 0 {
            // Without a superblock, the log begins with its oldest segment.
            let first = order.first().map(|&(_, i)| self.slots[i as usize].first_frame);
            self.superblock.first_frame = first.unwrap_or(1);
        }
        let mut limit = u64::MAX;
        let mut kept = Vec::new();
        for &(sequence, index) in order.iter().rev() {
            let slot = &mut self.slots[index as usize];
            let is_end = head.is_some_and(|head| head.end_sequence == sequence);
            if slot.first_frame >= limit && !is_end {
                slot.state = SlotState::Reclaimable;
                continue;
            }
            kept.push((index, limit));
            limit = slot.first_frame.min(limit);
        }
        kept.reverse();
        kept
    }

    /// The bytes of a loaded segment from `offset` to the end of its frame area.
    fn frame_area_from(&self, slot: u32, offset: usize) -> &[u8] {
        let bytes = self.pool.bytes(self.slots[slot as usize].buffer);
        bytes.get(offset..self.geometry.frames_end()).unwrap_or_default()
    }

    /// The frame at `offset` of a loaded segment, if there is a valid one.
    fn frame_at(&self, slot: u32, offset: usize) -> Option<FrameHeader> {
        let position = self.geometry.slot_start(slot) + offset as u64;
        FrameHeader::open(
            self.frame_area_from(slot, offset),
            self.slots[slot as usize].salt,
            position,
        )
    }

    /// Follows the frames of the next segment up to the first missing one, or beyond it as long as
    /// frames may be missing. Returns false if no segment is left.
    ///
    /// # Errors
    /// An error of the file.
    pub fn walk_segment(&mut self, file: &mut impl File, walk: &mut Walk) -> Result<bool, Error> {
        let Walk { head, segments, next, salvage_below, chain } = walk;
        let Some(&(slot, limit)) = segments.get(*next) else { return Ok(false) };
        let Slot { sequence, first_frame, .. } = self.slots[slot as usize];
        let goes_on = head.filter(|head| head.end_sequence == sequence);
        if goes_on.is_none() && first_frame != chain.expected {
            // The segments between may have been removed; only later records can say so.
            chain.record_gap(first_frame);
        }
        self.load(file, slot)?;
        chain.segment = *next;
        chain.offset = goes_on.map_or(segment::SIZE, |head| head.end_offset as usize);
        chain.slot = Some(slot);
        let lost = chain.lost_bytes;
        while chain.expected < limit {
            let header = self.frame_at(slot, chain.offset);
            let salvages = chain.expected < *salvage_below;
            let goes_on = |number: u64| {
                number == chain.expected || salvages && (chain.expected..limit).contains(&number)
            };
            if let Some(header) = header.filter(|h| goes_on(h.number)) {
                chain.has_remains = true;
                chain.record_gap(header.number);
                let bytes = &self.frame_area_from(slot, chain.offset)[..header.length as usize];
                chain.push(slot, self.geometry.position(slot, chain.offset), &header, bytes);
                if header.commits() {
                    chain.end_commit();
                }
            } else if !salvages || !self.salvage_record(slot, chain) {
                break;
            }
        }
        let left = self.record_segment_end(slot, chain, limit);
        // What a recovery dropped is erased before the segment that cancels it is freed.
        chain.has_remains = chain.expected < limit && left as u64 + chain.lost_bytes > lost;
        *next += 1;
        Ok(true)
    }

    /// Appends an intact record of a damaged frame, or skips eight bytes. Returns false at the end
    /// of the segment.
    fn salvage_record(&self, slot: u32, chain: &mut Chain) -> bool {
        let bytes = self.frame_area_from(slot, chain.offset);
        let Some(word) = bytes.get(..8) else { return false };
        let is_record = |header: &&RecordHeader| {
            let at = self.geometry.slot_start(slot) + chain.offset as u64;
            let record = bytes.get(..header.size()).unwrap_or_default();
            let sane = (1..=KIND_CLEAR).contains(&header.kind) && header.key_len > 0;
            sane && header.fits(bytes.len())
                && RecordHeader::verify(record, self.slots[slot as usize].salt, at)
        };
        match RecordHeader::at(bytes).filter(is_record).map(RecordHeader::size) {
            Some(size) => {
                // It is treated as the only record of a frame that begins before it.
                chain.offset -= frame::SIZE;
                let length = frame::SIZE + size;
                let bytes = &self.frame_area_from(slot, chain.offset)[..length];
                let position = self.geometry.position(slot, chain.offset);
                let number = chain.expected;
                let header =
                    FrameHeader { length: length as u32, number, records: 1, ..Default::default() };
                chain.push(slot, position, &header, bytes);
                chain.expected = number;
            }
            None => {
                chain.lost_bytes += if word == [0; 8] { 0 } else { 8 };
                chain.offset += 8;
            }
        }
        true
    }

    /// Records where the frames of a segment end, and what a recovery left after them. Returns how
    /// many bytes that is.
    fn record_segment_end(&mut self, slot: u32, chain: &Chain, limit: u64) -> usize {
        let (offset, end) = (chain.offset, self.geometry.frames_end());
        let left = used_length(self.frame_area_from(slot, offset));
        if chain.expected == limit && left > 0 {
            self.leftovers
                .discarded_ranges
                .push((self.geometry.slot_start(slot) + offset as u64, end - offset));
        }
        let slot = &mut self.slots[slot as usize];
        (slot.end, slot.end_frame) = (offset as u32, chain.expected);
        left
    }

    /// Looks for valid frames after the end of the chain at every aligned offset. Their watermarks
    /// show whether the missing frames had been flushed.
    fn scan_after_end(
        &mut self,
        file: &mut impl File,
        chain: &Chain,
        segments: &[(u32, u64)],
    ) -> Result<FramesAfterEnd, Error> {
        let mut after_end = FramesAfterEnd::default();
        for (i, &(slot, _)) in segments.iter().enumerate().skip(chain.segment) {
            self.load(file, slot)?;
            let is_end = chain.slot == Some(slot) && i == chain.segment;
            let mut offset = if is_end { chain.offset } else { segment::SIZE };
            // No frame begins among zeros.
            let end = offset + used_length(self.frame_area_from(slot, offset));
            while offset < end {
                match self.frame_at(slot, offset) {
                    Some(header) => {
                        after_end.frames += 1;
                        after_end.bytes += u64::from(header.length);
                        after_end.watermark = after_end.watermark.max(header.watermark);
                        offset += header.length as usize;
                    }
                    None => offset += 8,
                }
            }
        }
        Ok(after_end)
    }

    /// Drops an incomplete commit, or one with damaged extents, and returns the number of the first
    /// frame that does not count. Extents of flushed commits are verified when they are read,
    /// because those of superseded records may be gone.
    fn drop_incomplete_commit(
        &mut self,
        file: &mut impl File,
        chain: &mut Chain,
        below: u64,
    ) -> Result<u64, Error> {
        let record_error = chain.record_error.take();
        let mut end = record_error.map_or(chain.frames.len(), |(frame, _)| frame);
        end = end.min(chain.frames.partition_point(|frame| frame.number < below));
        // Extents are checked in the order of records: the first problem ends the log or rejects
        // the file. The frame with the record error listed no extents after it.
        let mut refuses =
            record_error.is_some_and(|(_, record_error)| record_error == RecordError::Unknown);
        for referenced in chain.extents.iter().take_while(|it| it.frame <= end) {
            let flushed = chain.frames[referenced.frame].number < self.watermarks.flushed;
            if !flushed && !self.verify_extent(file, &referenced.extent)? {
                (end, refuses) = (referenced.frame, false);
                break;
            }
        }
        if refuses {
            return Err(Error::UnsupportedFormat { major: MAJOR, features: Box::default() });
        }
        let complete = chain.frames[..end].iter().rposition(|f| f.commits).map_or(0, |i| i + 1);
        chain.incomplete = (chain.frames.len() - complete) as u64;
        let mut committed = chain.expected;
        if let Some(dropped) = chain.frames.get(complete) {
            committed = dropped.number;
            chain.incomplete_start = Some((dropped.slot, dropped.offset as usize));
        }
        chain.truncate(complete);
        Ok(committed)
    }

    /// Begins a frame at the end of the last commit, and returns how many bytes of an unfinished write follow it, and how
    /// many of them were dropped.
    ///
    /// Zeros are no write, and neither is what an earlier use of the slot left. If there is anything else, the log goes
    /// on in a fresh segment. In a reused slot bytes count as dropped only if a frame begins there, or if the end
    /// `is_torn` for another reason.
    fn set_log_end(
        &mut self,
        file: &mut impl File,
        chain: &Chain,
        segments: &[(u32, u64)],
        is_torn: bool,
        fresh_segment: bool,
    ) -> Result<(u64, u64), Error> {
        let (slot, offset) = match (chain.incomplete_start, chain.slot) {
            (Some(cut), _) => cut,
            (None, Some(slot)) => (slot, chain.offset),
            (None, None) => (u32::MAX, segment::SIZE),
        };
        let at = segments.iter().position(|&(s, _)| s == slot).unwrap_or(0);
        let (mut all, mut torn) = (0, 0);
        for (i, &(s, _)) in segments.iter().enumerate().skip(at) {
            let from = if s == slot { offset } else { segment::SIZE };
            self.load(file, s)?;
            let rest = self.frame_area_from(s, from);
            let left = used_length(rest);
            let Slot { dirty_tail: stale, first_frame, .. } = self.slots[s as usize];
            let number = if s == slot { self.next_frame } else { first_frame };
            all += left as u64;
            if is_torn || !stale || FrameHeader::is_begun(rest, number) {
                torn += left as u64;
            }
            // If no frame of the first segment counts, that segment is reclaimable too.
            if i > at || s != slot {
                self.slots[s as usize].state = SlotState::Reclaimable;
            } else if left > 0 {
                self.leftovers
                    .discarded_ranges
                    .push((self.geometry.slot_start(s) + from as u64, left));
            }
            if s == slot {
                let end_frame = self.next_frame;
                let slot = &mut self.slots[s as usize];
                (slot.end, slot.end_frame) = (offset as u32, end_frame);
                slot.dirty_tail = left > 0;
            }
        }
        if torn == 0 && !fresh_segment && slot != u32::MAX && at + 1 == segments.len() {
            self.open_frame = OpenFrame::at(slot, offset);
            if all > 0 {
                // Zeros are written over it before anything else.
                self.leftovers.discarded_ranges.pop();
                self.leftovers.dropped_tail = DiscardedTail::NeedsZeroing;
            }
        } else if all > 0 || fresh_segment {
            // This also cancels what a writer that lost the file may still write there.
            self.leftovers.dropped_tail = DiscardedTail::Present;
        }
        self.batch.start = self.open_frame;
        self.mutable_from = self.open_frame.tail;
        Ok((all, torn))
    }
}

/// What follows the end of the chain.
#[derive(Debug, Default)]
struct FramesAfterEnd {
    frames: u64,
    bytes: u64,
    watermark: u64,
}
