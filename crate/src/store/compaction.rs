//! Compaction: moves the live records of mostly dead segments to the tail.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::aligned_buf::AlignedBytes;
use crate::error::Error;
use crate::file::File;
use crate::format::frame::{self, FrameHeader};
use crate::format::record::{self, KIND_CLEAR, KIND_DELETE, KIND_EXTENT, KIND_SET, RecordHeader};
use crate::format::record::{KIND_CHUNKED, KIND_TRANSACTION, KIND_VOID};
use crate::format::system_records::{ExtentRef, KEY_GAP};
use crate::format::{KEYSPACE_ENGINE, segment};
use crate::index::Position;
use crate::log::append::WriteError;
use crate::log::relocate_extent::Relocation;
use crate::log::slot_allocator::AllocPriority;
use crate::log::space_accounting::ExtentId;
use crate::log::tombstones::covers_any;

use super::maintenance_jobs::{Compacting, Job, SegmentScan};
use super::transaction::Undo;
use super::{Staged, Store};

/// Bytes of a victim that one maintenance step scans.
const STEP_BYTES: usize = 64 << 10;
/// A victim whose live records are known from the index is moved in one step if they are at most `MAX_KNOWN_BYTES`
/// bytes and the index is at most `SMALL_INDEX` bytes: scanning that index is faster than scanning the
/// victim.
const MAX_KNOWN_BYTES: usize = 192 << 10;
const SMALL_INDEX: usize = 64 << 10;

/// A victim must free at least this part of a segment. At a factor of 1.2, the smallest one, a sixth of the file may
/// be dead, so it must be less than that.
const MIN_GAIN: usize = 8;
/// With no space left, or when all is to be compacted, less suffices.
const MIN_GAIN_IF_THOROUGH: usize = 64;

/// Records of a victim that are looked up in the index together.
const PREFETCH: usize = 16;

/// The outcome of moving the records of one step.
enum Moved {
    Some,
    All,
    /// Something in the segment is damaged, or unknown to this build.
    Stuck,
}

impl<F: File> Store<F> {
    /// Whether the used space exceeds its target, or the file is longer than needed.
    pub(super) fn wants_compaction(&self) -> bool {
        if !self.may_compact() {
            return false;
        }
        let is_large =
            self.exceeds_space_target() || self.is_shrinkable() || self.log.is_out_of_slots();
        is_large && self.reaches_compaction_trigger()
            || self.log.reclaimable.extents_freed && self.can_relocate()
    }

    /// Whether what was replaced may be dropped: neither a snapshot nor the file's history needs it.
    fn may_compact(&self) -> bool {
        self.snapshots.is_empty() && !self.keeps_history()
    }

    /// Whether there are enough dead bytes for another compaction: many more than when it last found nothing to gain.
    fn reaches_compaction_trigger(&self) -> bool {
        self.log.dead_bytes() >= self.maintenance.compaction_trigger
    }

    /// Whether large values may move. That takes space before it frees any, and frees only space behind
    /// them.
    fn can_relocate(&self) -> bool {
        self.is_shrinkable() && !self.log.is_out_of_slots()
    }

    /// Whether a full compaction was requested and can begin.
    pub(super) fn wants_full_compaction(&self) -> bool {
        self.maintenance.compact_all_below.is_some() && self.may_compact()
    }

    /// Whether there is too little space to continue, and some to gain.
    pub(super) fn is_low_on_space(&self) -> bool {
        self.may_compact()
            && self.log.is_out_of_slots()
            && (self.reaches_compaction_trigger() || self.is_sweeping())
    }

    /// Whether the used space exceeds its target.
    pub(super) fn exceeds_space_target(&self) -> bool {
        self.log.used_space() > self.log.space_target(70, 2)
    }

    pub(super) fn is_shrinkable(&self) -> bool {
        self.log.file_space() > self.log.space_target(100, 4)
    }

    fn wants_shrinking(&self, job: &Compacting) -> bool {
        job.all || self.is_shrinkable()
    }

    /// Whether maintenance between turns cannot keep up.
    pub(super) fn is_behind(&self) -> bool {
        let is_large = self.log.used_space() > self.log.space_target(80, 2);
        self.is_low_on_space() || is_large && self.wants_maintenance()
    }

    pub(super) fn begin_compaction(&mut self, all: Option<u32>) -> Result<Job, WriteError> {
        self.maintenance.compaction_trigger = 0;
        self.log.reclaimable.extents_freed = false;
        self.load_history(true);
        let now = self.log.next_sequence();
        // Until there is space again, or something was written, no record moves twice. A second
        // move would gain nothing, and large records, which leave unused space behind them, would
        // move forever.
        let low_space_from = self.maintenance.low_space_from.take().unwrap_or(now);
        let goes_on = self.is_low_on_space() || !core::mem::take(&mut self.maintenance.has_written);
        self.maintenance.low_space_from = goes_on.then_some(low_space_from);
        let below = all.or(self.maintenance.low_space_from).unwrap_or(now);
        self.compaction_step(Compacting {
            victim: None,
            spare: None,
            relocation: None,
            has_relocated: false,
            below,
            all: all.is_some(),
        })
    }

    /// Continues with a victim, or picks the next; ends with the checkpoint that frees the retired
    /// segments.
    pub(super) fn compaction_step(&mut self, mut job: Compacting) -> Result<Job, WriteError> {
        if let Some(relocation) = job.relocation.take() {
            return self.relocation_step(job, relocation);
        }
        self.update_retained();
        let Some(mut scan) = job.victim.take() else {
            return match self.choose_victim(&job) {
                Some(victim) => {
                    if let Err(error) = self.move_known_records(victim) {
                        return self.end_without_space(&job, error);
                    }
                    self.commit_batch().map_err(WriteError::RolledBack)?;
                    if self.log.live_records_of(victim) == Some(0) {
                        self.forget(self.log.newest_deletion(victim));
                        return self.retire_victim(victim, job);
                    }
                    job.victim = self
                        .start_scan(victim, job.spare.take())
                        .map_err(WriteError::RolledBack)?;
                    Ok(Job::Compacting(job))
                }
                None if !self.log.is_out_of_slots()
                    && (self.wants_shrinking(&job) && self.log.log_end_is_last()
                        || job.all && self.log.end_segment_is_wasteful()) =>
                {
                    self.log.begin_segment(&mut self.file).map_err(WriteError::RolledBack)?;
                    Ok(Job::Compacting(job))
                }
                None if self.try_begin_relocation(&mut job)? => Ok(Job::Compacting(job)),
                None if self.wants_shrinking(&job)
                    && (self.log.checkpoint_can_move_forward()
                        || self.log.key_runs_can_move_forward()) =>
                {
                    self.maintenance.compact_all_below =
                        self.maintenance.compact_all_below.or(job.all.then_some(job.below));
                    self.begin_checkpoint()
                }
                None => self.end_compaction(&job),
            };
        };
        let moved = match self.move_step(&mut scan) {
            // A tombstone whose key fills its segment has no space for the range that it covers.
            Err(Error::KeyTooLong) => Moved::Stuck,
            Err(error) => return self.end_without_space(&job, error),
            Ok(moved) => moved,
        };
        self.commit_batch().map_err(WriteError::RolledBack)?;
        match moved {
            Moved::Some => job.victim = Some(scan),
            Moved::All => {
                job.spare = Some(scan.bytes);
                return self.retire_victim(scan.slot, job);
            }
            Moved::Stuck => self.log.pin_damaged(scan.slot),
        }
        Ok(Job::Compacting(job))
    }

    fn end_without_space(&mut self, job: &Compacting, error: Error) -> Result<Job, WriteError> {
        if !matches!(error, Error::Quota | Error::Full) {
            return Err(WriteError::RolledBack(error));
        }
        // Freeing the segments that were emptied before makes space for the rest.
        self.undo_to(0);
        self.log.discard_batch();
        self.end_compaction(job)
    }

    /// Moves the live records of a resident segment if they are few, each verified. Stops before a damaged
    /// one.
    fn move_known_records(&mut self, slot: u32) -> Result<(), Error> {
        let is_small = self
            .log
            .live_records_of(slot)
            .is_some_and(|bytes| bytes > 0 && bytes <= MAX_KNOWN_BYTES);
        if !is_small || self.unloaded.is_some() || self.index.bytes() > SMALL_INDEX {
            return Ok(());
        }
        let geometry = self.log.geometry();
        let mut entries = Vec::new();
        self.index.collect(0, u32::MAX, &mut entries);
        entries.retain(|&(_, position)| geometry.locate(position).0 == slot);
        for (hash, position) in entries {
            let Some(addr) = self.log.resident_addr(position) else { break };
            let Some(bytes) = self.log.copy_of(addr) else { break };
            if self.log.get(addr).is_none_or(|record| self.is_cleared(record.header)) {
                break;
            }
            let at = geometry.slot_start(slot) + geometry.locate(position).1 as u64;
            let is_whole = RecordHeader::verify(&bytes, self.log.salt(slot), at);
            if !is_whole || record::validate(&bytes).is_err() {
                break;
            }
            self.move_record(hash, position, &bytes, None)?;
        }
        Ok(())
    }

    /// Abandons the compaction. Retired segments go with the next checkpoint.
    pub(super) fn abandon(&mut self, job: &Compacting) {
        if let Some(relocation) = &job.relocation {
            self.log.abandon_relocation(relocation);
        }
        self.maintenance.compact_all_below =
            self.maintenance.compact_all_below.or(job.all.then_some(job.below));
    }

    fn choose_victim(&self, job: &Compacting) -> Option<u32> {
        // Retired segments are freed together by one checkpoint, but not so many that the file grows by
        // them.
        let segment = self.log.geometry().segment();
        let retired = self.log.retired_bytes();
        if retired >= (self.log.file_space() / 16).max(2 * segment as u64) {
            return None;
        }
        let thorough = job.all || self.is_low_on_space();
        let is_large = thorough || self.log.used_space() > self.log.space_target(40, 1);
        let least = segment / if thorough { MIN_GAIN_IF_THOROUGH } else { MIN_GAIN };
        // Segments that were begun since the last flush are freed without flush or checkpoint.
        let prefer_unflushed = retired == 0 && !job.all;
        let best =
            self.log.pick_victim(job.below, prefer_unflushed).filter(|victim| victim.gain >= least);
        if is_large && let Some(victim) = best {
            return Some(victim.slot);
        }
        // A tombstone can be dropped only after the segments that it covers, so the oldest segment
        // is compacted first.
        if is_large && !job.all && self.log.tombstone_bytes() * 8 > self.log.file_space() {
            return self.log.oldest_below(job.below);
        }
        if self.wants_shrinking(job) {
            return self.log.last_movable_segment(u32::MAX);
        }
        None
    }

    /// Retires a segment of which nothing is needed; it is freed with the next checkpoint. A
    /// segment begun since the last flush is freed at once, which may suffice until flushes are
    /// needed.
    fn retire_victim(&mut self, slot: u32, job: Compacting) -> Result<Job, WriteError> {
        // If the file is only too long, what lies behind the segment must move as well.
        let frees_at_once =
            self.exceeds_space_target() && self.log.retired_bytes() == 0 && !job.all;
        if self.log.is_retained(slot) {
            // A mark was set while it was being emptied.
            return Ok(Job::Compacting(job));
        }
        self.log.retire(slot);
        if !frees_at_once || !self.log.is_unflushed_segment(slot) {
            return Ok(Job::Compacting(job));
        }
        self.ensure_end_is_written()?;
        self.record_gaps().map_err(WriteError::RolledBack)?;
        self.log.free_unflushed_segment(&mut self.file, slot)?;
        self.end_compaction(&job)
    }

    pub(super) fn start_scan(
        &mut self,
        slot: u32,
        spare: Option<AlignedBytes>,
    ) -> Result<Option<SegmentScan>, Error> {
        let segment = self.log.geometry().segment();
        let mut bytes = spare.unwrap_or_else(|| AlignedBytes::zeroed(segment));
        self.log.copy_segment(&mut self.file, slot, &mut bytes)?;
        let (sequence, end) = self.log.segment_end(slot);
        let segments = self.log.sequences();
        let at = segment::SIZE;
        Ok(Some(SegmentScan { slot, sequence, bytes, at, frame_end: at, end, segments }))
    }

    /// Scans some records of a victim and appends those that are needed.
    fn move_step(&mut self, scan: &mut SegmentScan) -> Result<Moved, Error> {
        let geometry = self.log.geometry();
        let until = scan.at + STEP_BYTES;
        self.check_limited_growth(STEP_BYTES / record::SIZE)?;
        let mut fetched = 0;
        while scan.at < until {
            if scan.at >= scan.end {
                return Ok(Moved::All);
            }
            if scan.at == scan.frame_end {
                let position = geometry.slot_start(scan.slot) + scan.at as u64;
                let bytes = &scan.bytes[scan.at..geometry.frames_end()];
                let Some(header) = FrameHeader::open(bytes, self.log.salt(scan.slot), position)
                else {
                    return Ok(Moved::Stuck);
                };
                scan.frame_end = scan.at + header.length as usize;
                scan.at += frame::SIZE;
                continue;
            }
            let bytes = &scan.bytes[scan.at..scan.frame_end];
            if scan.at >= fetched {
                fetched = scan.at + self.prefetch_entries(bytes);
            }
            // A moved record is replayed one day. A malformed one would then be refused together with
            // everything behind it.
            let Ok((header, key, value)) = record::validate(bytes) else { return Ok(Moved::Stuck) };
            let size = header.size();
            let position = geometry.position(scan.slot, scan.at);
            match header.kind {
                KIND_SET | KIND_EXTENT | KIND_CHUNKED => {
                    let hash = self.hash(header.keyspace(), key);
                    if self.is_live(hash, position) {
                        if self.is_cleared(header) {
                            // A sweep ran out of space before removing it.
                            return Ok(Moved::Stuck);
                        }
                        self.move_record(hash, position, &bytes[..size], None)?;
                    }
                }
                KIND_CLEAR => {
                    let hash = self.hash(header.keyspace(), key);
                    if !self.is_live(hash, position) {
                        // Nothing refers to it.
                    } else if self.clear_is_needed(scan, header, key, value) {
                        self.move_record(hash, position, &bytes[..size], None)?;
                    } else {
                        self.forget(header.version);
                        self.drop_clear(hash, position, key, size as u32);
                    }
                }
                // A tombstone is dropped when no segment is left that may hold an older record of its key.
                KIND_DELETE => {
                    let newest = value.get(..4).and_then(|bytes| bytes.try_into().ok());
                    let newest = newest.map_or(scan.sequence, u32::from_le_bytes);
                    let newest = newest.min(self.log.newest_covered(scan.slot, header.oldest));
                    if covers_any(&scan.segments, header.oldest, newest, scan.sequence) {
                        self.move_tombstone(*header, key, newest)?;
                    } else if !self.log.hidden_keyspaces.contains(&header.keyspace()) {
                        self.forget(header.version);
                    }
                }
                KIND_VOID | KIND_TRANSACTION => {}
                _ => return Ok(Moved::Stuck),
            }
            scan.at += size;
        }
        Ok(Moved::Some)
    }

    /// Prefetches the index entries of the first records in `bytes`; returns how many bytes these records
    /// take.
    fn prefetch_entries(&self, bytes: &[u8]) -> usize {
        let (mut hashes, mut at) = ([0; PREFETCH], 0);
        for hash in &mut hashes {
            let Some(bytes) = bytes.get(at..) else { break };
            let Some((header, key, _)) = record::parts(bytes) else { break };
            if !header.fits(bytes.len()) {
                break;
            }
            *hash = self.hash(header.keyspace(), key);
            at += header.size();
        }
        self.index.prefetch(&hashes);
        at
    }

    pub(super) fn move_record(
        &mut self,
        hash: u32,
        from: Position,
        bytes: &[u8],
        extent: Option<ExtentRef>,
    ) -> Result<(), Error> {
        // Relocating a large value empties no segment, so it does not use the reserve.
        let need = if extent.is_some() { AllocPriority::Write } else { AllocPriority::Move };
        self.log.reserve_record(&mut self.file, bytes.len(), need)?;
        let to = self.log.append_copy(bytes, from);
        let size = bytes.len() as u32;
        self.log.record_superseded(from, size);
        self.log.record_added(to, size);
        match extent {
            None => self.log.move_extent_reference(from, to),
            Some(extent) => {
                self.write_descriptor(to, &extent);
                self.log.remove_extent_reference(from);
                self.log.add_extent_reference(to, ExtentId::from(&extent));
            }
        }
        let (old, new, moved) = (Some(from), Some(to), extent.is_none());
        self.undo.push(Undo {
            hash,
            old,
            new,
            appended: to,
            added_size: size,
            superseded_size: size,
            moved,
        });
        self.move_in_index(hash, old, new, to);
        Ok(())
    }

    /// Whether a large value moves next.
    fn try_begin_relocation(&mut self, job: &mut Compacting) -> Result<bool, WriteError> {
        if self.wants_shrinking(job) && !self.log.is_out_of_slots() {
            // Only after the old extents of relocated values are free; otherwise all values would
            // exist twice.
            let may_gain_space = self.log.may_gain_space();
            let may_grow = self.is_shrinkable() && !may_gain_space;
            job.relocation = self.log.begin_relocation(&mut self.file, may_grow)?;
            self.log.reclaimable.extents_freed |= may_gain_space && job.relocation.is_none();
        }
        Ok(job.relocation.is_some())
    }

    /// Continues moving a large value.
    fn relocation_step(
        &mut self,
        mut job: Compacting,
        mut relocation: Box<Relocation>,
    ) -> Result<Job, WriteError> {
        let moved = match self.log.relocate_chunk(&mut self.file, &mut relocation) {
            Ok(Some(true)) => {
                job.relocation = Some(relocation);
                return Ok(Job::Compacting(job));
            }
            Ok(None) => Ok(false),
            Ok(Some(false)) => self.end_relocation(&relocation),
            Err(error) => Err(error),
        };
        match moved {
            Ok(true) => job.has_relocated = true,
            _ => self.log.abandon_relocation(&relocation),
        }
        match moved {
            Err(Error::Quota | Error::Full) if !self.poisoned => self.end_compaction(&job),
            moved => Ok(moved.map(|_| Job::Compacting(job))?),
        }
    }

    /// Appends the record that refers to the new extent of a large value; returns whether it did. It
    /// does not if the value is damaged.
    fn end_relocation(&mut self, relocation: &Relocation) -> Result<bool, Error> {
        let addr = match self.log.fetch(&mut self.file, relocation.record) {
            Err(Error::Corruption(_)) => None,
            addr => Some(addr?),
        };
        let bytes = addr.and_then(|addr| self.log.copy_of(addr));
        let record = addr.and_then(|addr| self.log.get(addr));
        let record = record.filter(|it| !self.is_cleared(it.header));
        let found = record.map(|it| (self.hash(it.header.keyspace(), it.key), it.extent()));
        // A malicious checkpoint may refer to an extent for a record that no key has.
        let found = found.filter(|&(hash, _)| self.is_live(hash, relocation.record));
        let (Some(bytes), Some((hash, Some(old)))) = (bytes, found) else {
            self.log.pin_source(relocation);
            return Ok(false);
        };
        let Some(extent) = self.log.end_relocation(&mut self.file, relocation, old)? else {
            return Ok(false);
        };
        if let Err(error) = self.move_record(hash, relocation.record, &bytes, Some(extent)) {
            self.undo_to(0);
            self.log.discard_batch();
            return Err(error);
        }
        self.commit_batch()?;
        Ok(true)
    }

    /// Appends a copy of a tombstone that states the last segment that it may cover.
    pub(super) fn move_tombstone(
        &mut self,
        header: RecordHeader,
        key: &[u8],
        newest: u32,
    ) -> Result<(), Error> {
        let size = record::size_of_record(key.len(), 8);
        self.log.reserve_record(&mut self.file, size, AllocPriority::Move)?;
        let moved =
            RecordHeader { value_len: 8, capacity: 8, previous: 0, replaced: [0; 3], ..header };
        let (position, _) = self.log.stage(moved, key);
        let from = moved.value_offset();
        let value = &mut self.log.record_mut(position)[from..from + 8];
        value.copy_from_slice(&u64::from(newest).to_le_bytes());
        self.log.advance(size, false);
        self.log.tombstone_added(position, size as u32, header.oldest, newest);
        self.log.deletion_added(position);
        let (appended, added_size) = (position, size as u32);
        let copy = Undo {
            hash: 0,
            old: None,
            new: None,
            appended,
            added_size,
            superseded_size: 0,
            moved: true,
        };
        self.undo.push(copy);
        Ok(())
    }

    /// Lowers `compaction_trigger`, so that compaction is tried again after half a segment of further
    /// dead bytes.
    pub(super) fn lower_compaction_trigger(&mut self) {
        let step = self.log.geometry().segment() as u64 / 2;
        self.maintenance.compaction_trigger =
            self.maintenance.compaction_trigger.min(self.log.dead_bytes() + step);
    }

    /// Begins the checkpoint without the retired segments.
    fn end_compaction(&mut self, job: &Compacting) -> Result<Job, WriteError> {
        self.resume_sweep();
        let is_retired = self.log.retired_bytes() > 0;
        if is_retired || job.has_relocated {
            // Compaction continues when these are free.
            self.maintenance.compact_all_below =
                self.maintenance.compact_all_below.or(job.all.then_some(job.below));
        }
        if !is_retired && self.log.needs_checkpoint_slots() {
            self.maintenance.compact_all_below =
                self.maintenance.compact_all_below.or(job.all.then_some(job.below));
            self.free_retired_without_checkpoint()?;
            return Ok(Job::Nothing);
        }
        if !is_retired {
            self.maintenance.compaction_trigger = u64::MAX;
            self.maintenance.low_space_from = None;
            self.lower_compaction_trigger();
            return Ok(Job::Nothing);
        }
        self.begin_checkpoint()
    }

    /// Commits records of the gaps that retired segments leave.
    ///
    /// After a crash between such a commit and the checkpoint the retired segments exist again, without the
    /// records of gaps before them. So the first time in a session all gaps are checked.
    pub(super) fn record_gaps(&mut self) -> Result<(), Error> {
        debug_assert!(matches!(self.staging.staged, Staged::Nothing));
        let key = |frame: u64| [KEY_GAP, &frame.to_be_bytes()].concat();
        for gap in self.log.gaps() {
            let key_to = key(gap.to);
            // A record that cannot be read may exist.
            if gap.inside.is_empty()
                && (self.maintenance.knows_gaps
                    || self.has(KEYSPACE_ENGINE, &key_to).unwrap_or(true))
            {
                continue;
            }
            for frame in gap.inside {
                self.delete(KEYSPACE_ENGINE, &key(frame))?;
            }
            match gap.from {
                Some(from) => {
                    self.set(KEYSPACE_ENGINE, &key_to, &from.to_le_bytes())?;
                }
                // No needed segment lies before it: the superblock states where the log begins.
                None => {
                    self.delete(KEYSPACE_ENGINE, &key_to)?;
                }
            }
        }
        self.record_forgotten()?;
        self.commit_batch()?;
        self.maintenance.knows_gaps = true;
        Ok(())
    }
}
