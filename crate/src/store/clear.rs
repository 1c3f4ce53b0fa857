//! Clearing a keyspace, or a range of it.
//!
//! A range is cleared by a tombstone for each key. A whole keyspace is cleared by one record, whatever it
//! holds: from then on its records with smaller versions are dead. The index still contains them for a
//! while, and lookups skip them. Maintenance then scans the log once, removes them from the index and
//! corrects the live accounting. That is the sweep.

use alloc::vec::Vec;
use core::ops::Bound;

use crate::error::Error;
use crate::file::File;
use crate::format::KEYSPACE_ENGINE;
use crate::format::frame::{self, FrameHeader};
use crate::format::record::{self, KIND_CHUNKED, KIND_CLEAR, KIND_EXTENT, KIND_SET, RecordHeader};
use crate::format::system_records::{ChunksRef, clear_key, clear_of};
use crate::index::Position;
use crate::index::keyspaces::Keyspaces;
use crate::index::ordered_index::{Key, OrderedKeys};
use crate::log::append::WriteError;
use crate::log::slot_allocator::AllocPriority;
use crate::log::tombstones::covers_any;
use crate::radix_sort;

use super::maintenance_jobs::{Compacting, Job, SegmentScan, Sweeping};
use super::sorted_keys::ALL_SORTED;
use super::{IfExpired, LOOKUP_BATCH, Store};

/// A keyspace with fewer keys, or less than this part of all keys, is cleared key by key, because a sweep
/// scans the whole log.
const MIN_KEYS: u64 = 1024;
const MIN_SHARE: u64 = 64;

/// Keys of a range that are deleted together, in the order of the file.
const BATCH: usize = 1 << 16;
/// A segment is read as a whole if this many of the keys lie in it.
const MIN_KEYS_TO_LOAD: usize = 512;

/// Opening sweeps an index of at most this many entries at once.
const SMALL_INDEX: usize = 1 << 14;

/// Bytes of a segment that one step of a sweep scans.
const STEP_BYTES: usize = 256 << 10;

/// The state to restore if the clearing of a keyspace in the open batch is undone.
#[derive(Debug)]
pub(super) struct Cleared {
    /// Length of the undo log before it.
    changes: usize,
    keyspace: u32,
    keys: OrderedKeys,
    count: u64,
    cleared: u64,
    first_run: u32,
    /// The state of the sorted keys before it.
    sorted_below: Position,
    generation: u32,
}

/// The state of cleared keyspaces.
#[derive(Debug, Default)]
pub(super) struct Clears {
    /// Whether the index may contain dead records.
    pub may_have_dead: bool,
    /// The number of dead records.
    pub dead: u64,
    /// Clears of the open batch, in order.
    open: Vec<Cleared>,
    /// Ordered keys of cleared keyspaces whose memory is not freed yet.
    unfreed_keys: Vec<OrderedKeys>,
    /// Whether a sweep has to begin,
    needs_sweep: bool,
    /// and whether it waits for space for what it has to delete.
    is_paused: bool,
    /// Whether replay could not determine the key count of a keyspace.
    is_miscounted: bool,
}

/// The result of sweeping a part of a segment.
enum Swept {
    Some,
    All,
    /// A frame is damaged.
    Stuck,
}

/// A dead record of a cleared keyspace.
#[derive(Clone, Copy, Default)]
struct DeadRecord {
    hash: u32,
    position: Position,
    size: u32,
    chunks: Option<ChunksRef>,
}

impl<F: File> Store<F> {
    /// Deletes the keys between two bounds, at most `limit` of them, the last ones if `reverse`: all of
    /// them or, after an error, none. Returns how many. Clearing a whole keyspace costs as much as one
    /// deletion.
    ///
    /// # Errors
    /// As for [`delete`](Store::delete) and, unless all is to be deleted, [`range_keys`](Store::range_keys).
    pub fn clear(
        &mut self,
        keyspace: u32,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        limit: u64,
    ) -> Result<u64, Error> {
        // Only the keyspace and the state are checked.
        self.check_write(keyspace, b"-")?;
        let count = self.live_count(keyspace)?;
        let is_open = bounds == (Bound::Unbounded, Bound::Unbounded);
        let is_whole = limit >= count && (is_open || self.count_range(keyspace, bounds)? == count);
        if count == 0 {
            return Ok(0);
        }
        if is_whole && self.is_worth_one_record(keyspace, count) {
            return self.empty(keyspace).map(|_| count);
        }
        let is_unordered = is_whole && !self.ordered;
        let _ = self.savepoint();
        let deleted = match is_unordered {
            true => self.delete_all(keyspace),
            false => self.delete_range(keyspace, bounds, reverse, limit),
        };
        match deleted {
            Ok(deleted) => self.release_last().map(|()| deleted),
            Err(error) => {
                self.undo_last();
                Err(error)
            }
        }
    }

    /// Deletes all keys of a keyspace, other than the engine's own, by one record; returns how many. That
    /// costs as much as one deletion; maintenance then scans the log once, in steps.
    ///
    /// # Errors
    /// As for [`delete`](Store::delete).
    pub fn empty(&mut self, keyspace: u32) -> Result<u64, Error> {
        self.check_write(keyspace, b"-")?;
        if keyspace == KEYSPACE_ENGINE {
            return Err(Error::Misuse);
        }
        // What has expired is gone already.
        let count = self.live_count(keyspace)?;
        if self.keeps_history() {
            return self.delete_each(keyspace).map(|_| count);
        }
        let is_first = self.savepoints.is_empty() && self.log.batch_bytes() == 0;
        let cleared = match self.clear_with_entries(keyspace) {
            // As in `delete`.
            Err(Error::Quota | Error::Full) if is_first => {
                self.catch_up(0);
                self.clear_with_entries(keyspace)
            }
            done => done,
        };
        cleared.map(|_| count)
    }

    /// Deletes all keys of a keyspace one by one, all or none.
    fn delete_each(&mut self, keyspace: u32) -> Result<u64, Error> {
        let _ = self.savepoint();
        match self.delete_all(keyspace) {
            Ok(deleted) => self.release_last().map(|()| deleted),
            Err(error) => {
                self.undo_last();
                Err(error)
            }
        }
    }

    /// Deletes all keys of a keyspace one by one, in the order of the log and not in that of keys.
    fn delete_all(&mut self, keyspace: u32) -> Result<u64, Error> {
        while self.wants_index_loading() && self.load_or_survey(usize::MAX)? {}
        self.index.track_positions();
        let mut deleted = 0;
        for slot in 0..self.log.slot_count() {
            let mut keys: Vec<Key> = Vec::new();
            for position in self.live_records_in(slot)? {
                let (_, record) = self.log.scan_record(&mut self.file, position)?;
                if record.header.keyspace() == keyspace {
                    keys.push(Key::new(record.key));
                }
            }
            self.delete_keys(keyspace, &keys)?;
            deleted += keys.len() as u64;
        }
        Ok(deleted)
    }

    /// Whether a keyspace with this many keys is cleared by one record.
    fn is_worth_one_record(&self, keyspace: u32, count: u64) -> bool {
        let is_part =
            count > MIN_KEYS && count.saturating_mul(MIN_SHARE) >= self.index_len() as u64;
        // Sorting all keys for a few of them takes longer than a sweep.
        let needs_sorting =
            self.sorted_keys.sorted_below != ALL_SORTED && self.index_len() > SMALL_INDEX;
        // Where history is kept each key has a deletion of its own, which says what it deleted.
        keyspace != KEYSPACE_ENGINE
            && !self.keeps_history()
            && (is_part || needs_sorting || !self.ordered)
    }

    /// Clears a keyspace and deletes the entries of its records that expire.
    fn clear_with_entries(&mut self, keyspace: u32) -> Result<u64, Error> {
        if !self.has_entries(keyspace)? {
            return self.clear_all(keyspace);
        }
        let _ = self.savepoint();
        match self.clear_entries(keyspace).and_then(|()| self.clear_all(keyspace)) {
            Ok(count) => self.release_last().map(|()| count),
            Err(error) => {
                self.undo_last();
                Err(error)
            }
        }
    }

    #[inline(never)]
    fn clear_all(&mut self, keyspace: u32) -> Result<u64, Error> {
        if self.count(keyspace) == 0 {
            return Ok(0);
        }
        if !self.snapshots.is_empty() {
            self.note_all(keyspace)?;
        }
        let key = clear_key(keyspace);
        let hash = self.hash(KEYSPACE_ENGINE, &key);
        let old = self.find_outlined(hash, KEYSPACE_ENGINE, &key)?.map(|at| self.predecessor(at));
        let header = RecordHeader {
            kind: KIND_CLEAR,
            key_len: key.len() as u16,
            keyspace: KEYSPACE_ENGINE as u16,
            value_len: 8,
            capacity: 8,
            oldest: old.map_or(0, |old| old.oldest),
            previous: old.map_or(0, |old| old.position),
            replaced: record::size_in_words(old.map_or(0, |old| old.size)),
            ..Default::default()
        };
        let size = header.size();
        self.log.reserve_record(&mut self.file, size, AllocPriority::Delete)?;
        let version = self.take_version();
        // The record is never changed in place: it must not come to precede later writes.
        let (position, addr) = self.log.stage(RecordHeader { version, ..header }, &key);
        let newest = u64::from(self.log.sequence_of(position));
        self.log.value_mut(addr).copy_from_slice(&newest.to_le_bytes());
        self.log.advance(size, false);

        self.apply_deferred_keys();
        let (changes, sorted_below) = (self.undo.len(), self.sorted_keys.sorted_below);
        let (generation, next_sequence) = (self.sorted_keys.generation, self.log.next_sequence());
        let space = self.keyspaces.entry(keyspace);
        let cleared = Cleared {
            changes,
            keyspace,
            keys: core::mem::take(&mut space.keys),
            count: core::mem::take(&mut space.count),
            cleared: core::mem::replace(&mut space.cleared, version),
            first_run: core::mem::replace(&mut space.first_run, next_sequence),
            sorted_below,
            generation,
        };
        let count = cleared.count;
        self.add_dead(count);
        self.clears.open.push(cleared);
        self.reindex(hash, old, position, size as u32, Some(position));
        self.commit_large_batch()?;
        Ok(count)
    }

    /// Counts further dead records in the index and requests a sweep.
    fn add_dead(&mut self, count: u64) {
        self.last = None;
        let clears = &mut self.clears;
        clears.dead += count;
        (clears.may_have_dead, clears.needs_sweep, clears.is_paused) = (true, true, false);
    }

    /// Restores the keyspaces that were cleared after the undo log had its current length.
    pub(super) fn undo_clears(&mut self) {
        let left = self.undo.len();
        while let Some(cleared) = self.clears.open.pop_if(|cleared| cleared.changes >= left) {
            let space = self.keyspaces.entry(cleared.keyspace);
            space.keys = cleared.keys;
            (space.count, space.cleared) = (cleared.count, cleared.cleared);
            self.clears.dead = self.clears.dead.saturating_sub(cleared.count);
            self.last = None;
            let before = (cleared.sorted_below, cleared.generation);
            if before == (self.sorted_keys.sorted_below, self.sorted_keys.generation) {
                space.first_run = cleared.first_run;
            } else {
                // Keys that were sorted since are missing in the restored ones.
                self.forget_sorted_keys();
            }
            self.clears.may_have_dead = self.keyspaces.any_cleared();
            self.clears.needs_sweep &= self.clears.may_have_dead;
        }
    }

    /// Keeps the clears of the open batch, which was committed; queues their ordered keys for freeing.
    pub(super) fn keep_clears(&mut self) {
        let cleared_keys = self.clears.open.drain(..).map(|cleared| cleared.keys);
        self.clears.unfreed_keys.extend(cleared_keys.filter(|keys| !keys.is_empty()));
    }

    /// Frees the memory of ordered keys that are not needed any more, step by step.
    pub(super) fn free_later(&mut self, keys: impl Iterator<Item = OrderedKeys>) {
        self.clears.unfreed_keys.extend(keys.filter(|keys| !keys.is_empty()));
    }

    /// Frees some of the memory of cleared ordered keys; returns whether there is more.
    pub(super) fn sweep_cleared(&mut self) -> bool {
        let unfreed_keys = &mut self.clears.unfreed_keys;
        if unfreed_keys.last_mut().is_some_and(|keys| !keys.free_some()) {
            unfreed_keys.pop();
        }
        !unfreed_keys.is_empty()
    }

    /// Deletes the keys of a range one by one.
    pub(super) fn delete_range(
        &mut self,
        keyspace: u32,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        limit: u64,
    ) -> Result<u64, Error> {
        let mut deleted = 0;
        // The next keys are searched behind the last deleted one: passing those that are deleted takes time too.
        let mut last: Option<Key> = None;
        while deleted < limit {
            let behind = last.as_deref().map(Bound::Excluded);
            let rest = match (behind, reverse) {
                (None, _) => bounds,
                (Some(behind), false) => (behind, bounds.1),
                (Some(behind), true) => (bounds.0, behind),
            };
            let wanted = (limit - deleted).min(BATCH as u64) as usize;
            let mut keys: Vec<Key> = Vec::new();
            self.range(keyspace, rest, reverse, |key, _| {
                keys.push(Key::new(key));
                keys.len() < wanted
            })?;
            if keys.is_empty() {
                break;
            }
            self.delete_keys(keyspace, &keys)?;
            deleted += keys.len() as u64;
            last = keys.pop();
        }
        Ok(deleted)
    }

    /// Deletes existing keys, in the order of their records in the file.
    fn delete_keys(&mut self, keyspace: u32, keys: &[Key]) -> Result<(), Error> {
        let mut order = Vec::with_capacity(keys.len());
        for (from, some) in (0..).step_by(LOOKUP_BATCH).zip(keys.chunks(LOOKUP_BATCH)) {
            let mut positions = [0; LOOKUP_BATCH];
            for (hash, key) in positions.iter_mut().zip(some) {
                *hash = self.hash(keyspace, key);
            }
            let positions = &mut positions[..some.len()];
            self.positions_of(positions);
            order.extend(positions.iter().zip(from..).map(|(&position, i)| (position, i)));
        }
        let order = radix_sort::by_number(order);
        let geometry = self.log.geometry();
        let slot_of = |one: &(u32, u32)| geometry.locate(one.0).0;
        let mut addrs = [None; LOOKUP_BATCH];
        for inside in order.chunk_by(|one, next| slot_of(one) == slot_of(next)) {
            if inside.len() >= MIN_KEYS_TO_LOAD && self.log.resident_addr(inside[0].0).is_none() {
                self.log.load_valid_segment(&mut self.file, slot_of(&inside[0]))?;
            }
            for some in inside.chunks(LOOKUP_BATCH) {
                let mut positions = [0; LOOKUP_BATCH];
                positions.iter_mut().zip(some).for_each(|(to, one)| *to = one.0);
                self.prefetch_records(&positions[..some.len()], &mut addrs);
                for &(_, i) in some {
                    self.append_tombstone(keyspace, &keys[i as usize], IfExpired::Delete)?;
                }
            }
        }
        Ok(())
    }

    // ---------------------------------------------------------------- opening

    /// Initializes the state from the cleared keyspaces that a checkpoint lists.
    pub(super) fn load_clears(&mut self) {
        let counted: u64 = self.keyspaces.counts().map(|(_, count)| count).sum();
        self.clears.may_have_dead = self.keyspaces.any_cleared();
        self.clears.needs_sweep = self.clears.may_have_dead;
        if self.clears.may_have_dead {
            self.clears.dead = (self.index_len() as u64).saturating_sub(counted);
        }
    }

    /// Whether a record is older than the clearing of its keyspace.
    #[inline]
    pub(super) fn is_cleared(&self, header: &RecordHeader) -> bool {
        self.clears.may_have_dead && self.keyspaces.has_cleared(header.keyspace(), header.version)
    }

    /// Replays a record that cleared a keyspace and that the index does not contain. One that was moved may
    /// lie behind records that are newer than it, so the keys of the keyspace have to be counted.
    pub(super) fn replay_clear(&mut self, version: u64, keyspace: u32, was_moved: bool) {
        let space = self.keyspaces.entry(keyspace);
        if version <= space.cleared {
            return;
        }
        space.cleared = version;
        if was_moved {
            self.add_dead(0);
            self.clears.is_miscounted = true;
            self.forget_sorted_keys();
        } else {
            space.keys = OrderedKeys::default();
            space.first_run = self.log.next_sequence();
            let count = core::mem::take(&mut space.count);
            self.add_dead(count);
        }
    }

    /// Counts the keys of cleared keyspaces if replay could not.
    ///
    /// # Errors
    /// An error of the file.
    pub(super) fn recount(&mut self) -> Result<(), Error> {
        if !core::mem::take(&mut self.clears.is_miscounted) {
            return Ok(());
        }
        self.load_all()?;
        let (mut counts, mut dead) = (Keyspaces::default(), 0);
        for (position, _) in self.entries() {
            match self.log.scan_record(&mut self.file, position) {
                Ok((_, record)) => {
                    let (keyspace, version) = (record.header.keyspace(), record.header.version);
                    match self.keyspaces.has_cleared(keyspace, version) {
                        true => dead += 1,
                        false => counts.entry(keyspace).count += 1,
                    }
                }
                // Reading that record reports the damage.
                Err(Error::Corruption(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.clears.dead = dead;
        self.keyspaces.recount_cleared(&counts);
        Ok(())
    }

    /// Removes the dead records from a small index without a write, and corrects the live accounting.
    /// Records of chunked values stay until a sweep deletes their chunks.
    ///
    /// # Errors
    /// An error of the file.
    pub(super) fn sweep_small(&mut self) -> Result<(), Error> {
        if !self.clears.may_have_dead || self.unloaded.is_some() || self.index.len() > SMALL_INDEX {
            return Ok(());
        }
        let mut left = 0;
        for (position, hash) in self.entries() {
            let header = match self.log.scan_record(&mut self.file, position) {
                Ok((_, record)) => *record.header,
                Err(Error::Corruption(_)) => {
                    left += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if !self.is_cleared(&header) {
                continue;
            }
            if header.kind == KIND_CHUNKED {
                left += 1;
                continue;
            }
            self.index.remove(hash, position);
            self.log.record_superseded(position, header.size() as u32);
            self.log.remove_extent_reference(position);
            self.clears.dead = self.clears.dead.saturating_sub(1);
        }
        if left == 0 {
            (self.clears.may_have_dead, self.clears.needs_sweep, self.clears.dead) =
                (false, false, 0);
            self.keyspaces.forget_cleared();
        }
        Ok(())
    }

    /// Drops the extents of cleared keyspaces, so that opening does not require them.
    ///
    /// # Errors
    /// An error of the file.
    pub(super) fn drop_cleared_extents(&mut self) -> Result<(), Error> {
        if !self.clears.may_have_dead {
            return Ok(());
        }
        for position in self.log.records_with_extents() {
            match self.log.fetch(&mut self.file, position) {
                Ok(addr) => {
                    let header = self.log.get(addr).map(|record| *record.header);
                    if header.is_some_and(|header| self.is_cleared(&header)) {
                        self.log.remove_extent_reference(position);
                    }
                }
                Err(Error::Corruption(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    // ---------------------------------------------------------------- the sweep

    /// Whether a sweep is to begin.
    pub(super) fn wants_sweep(&self) -> bool {
        self.clears.needs_sweep && !self.clears.is_paused
    }

    /// Whether a sweep is in progress or is to begin.
    pub(super) fn is_sweeping(&self) -> bool {
        self.wants_sweep() || matches!(self.maintenance.job, Job::Sweeping(_))
    }

    /// Whether a sweep is so short that a commit can wait for it.
    pub(super) fn is_sweeping_small(&self) -> bool {
        self.is_sweeping() && self.index_len() <= SMALL_INDEX && self.log.file_bytes() <= 16 << 20
    }

    /// Whether memory of cleared ordered keys is not freed yet.
    pub(super) fn has_cleared(&self) -> bool {
        !self.clears.unfreed_keys.is_empty()
    }

    /// Lets a sweep that ran out of space try again.
    pub(super) fn resume_sweep(&mut self) {
        self.clears.is_paused = false;
    }

    /// Begins a sweep in place of a running compaction, which does not move dead records.
    pub(super) fn begin_sweep(&mut self, instead: Option<Compacting>) -> Job {
        if let Some(compacting) = instead {
            self.abandon(&compacting);
        }
        self.clears.needs_sweep = false;
        let mut slots = self.log.live_slots();
        slots.reverse();
        Job::Sweeping(Sweeping { slots, at: None, spare: None, is_stuck: false })
    }

    /// Continues with a segment, or takes the next.
    pub(super) fn sweep_step(&mut self, mut job: Sweeping) -> Result<Job, WriteError> {
        let Some(mut scan) = job.at.take() else {
            match job.slots.pop() {
                Some(slot) if self.log.has_live_records(slot) => {
                    let loaded = self.start_scan(slot, job.spare.take());
                    // After a failure the sweep begins again later.
                    self.clears.needs_sweep |= loaded.is_err();
                    job.at = loaded.map_err(WriteError::RolledBack)?;
                }
                Some(_) => {}
                None => {
                    self.end_sweep(&job);
                    return Ok(Job::Nothing);
                }
            }
            return Ok(Job::Sweeping(job));
        };
        match self.sweep_part(&mut scan) {
            Ok(Swept::Some) if self.log.has_live_records(scan.slot) => {
                job.at = Some(scan);
                return Ok(Job::Sweeping(job));
            }
            Ok(Swept::Some | Swept::All) => {}
            Ok(Swept::Stuck) => {
                self.log.pin_damaged(scan.slot);
                job.is_stuck = true;
            }
            Err(Error::Quota | Error::Full) if !self.poisoned => {
                // Compaction may free space.
                self.undo_to(0);
                self.log.discard_batch();
                (self.clears.needs_sweep, self.clears.is_paused) = (true, true);
                return Ok(Job::Nothing);
            }
            Err(error) => {
                self.clears.needs_sweep = true;
                return Err(WriteError::RolledBack(error));
            }
        }
        job.spare = Some(scan.bytes);
        Ok(Job::Sweeping(job))
    }

    fn end_sweep(&mut self, job: &Sweeping) {
        if !self.clears.needs_sweep && !job.is_stuck {
            (self.clears.may_have_dead, self.clears.dead) = (false, 0);
            self.keyspaces.forget_cleared();
        }
    }

    /// Removes the dead records of a part of a segment from the index.
    fn sweep_part(&mut self, scan: &mut SegmentScan) -> Result<Swept, Error> {
        let geometry = self.log.geometry();
        let until = scan.at + STEP_BYTES;
        let (mut dead, mut count) = ([DeadRecord::default(); LOOKUP_BATCH], 0);
        self.check_limited_growth(STEP_BYTES / record::SIZE)?;
        loop {
            if count == LOOKUP_BATCH || scan.at >= until.min(scan.end) {
                self.remove_dead(&dead[..count])?;
                count = 0;
                if scan.at >= scan.end {
                    return Ok(Swept::All);
                }
                if scan.at >= until {
                    return Ok(Swept::Some);
                }
            }
            if scan.at == scan.frame_end {
                let position = geometry.slot_start(scan.slot) + scan.at as u64;
                let bytes = &scan.bytes[scan.at..geometry.frames_end()];
                let header = FrameHeader::open(bytes, self.log.salt(scan.slot), position);
                let Some(header) = header else {
                    self.remove_dead(&dead[..count])?;
                    return Ok(Swept::Stuck);
                };
                scan.frame_end = scan.at + header.length as usize;
                scan.at += frame::SIZE;
                continue;
            }
            let bytes = &scan.bytes[scan.at..scan.frame_end];
            let parts = record::parts(bytes).filter(|(header, ..)| header.fits(bytes.len()));
            let Some((header, key, value)) = parts else {
                self.remove_dead(&dead[..count])?;
                return Ok(Swept::Stuck);
            };
            let size = header.size();
            if matches!(header.kind, KIND_SET | KIND_EXTENT | KIND_CHUNKED)
                && self.is_cleared(header)
            {
                let is_chunked = header.kind == KIND_CHUNKED;
                dead[count] = DeadRecord {
                    hash: self.hash(header.keyspace(), key),
                    position: geometry.position(scan.slot, scan.at),
                    size: size as u32,
                    chunks: is_chunked.then(|| ChunksRef::decode(value)).flatten(),
                };
                count += 1;
            }
            scan.at += size;
        }
    }

    /// Removes records from the index if it contains them; deletes the chunks of their values first.
    fn remove_dead(&mut self, dead: &[DeadRecord]) -> Result<(), Error> {
        let mut hashes = [0; LOOKUP_BATCH];
        hashes.iter_mut().zip(dead).for_each(|(hash, one)| *hash = one.hash);
        self.index.prefetch(&hashes[..dead.len()]);
        for &DeadRecord { hash, position, size, chunks } in dead {
            if !self.is_live(hash, position) {
                continue;
            }
            if let Some(chunks) = chunks {
                self.delete_chunks_of(&chunks)?;
                self.commit_batch()?;
                // Deleting may rebuild the index, and that of a malicious checkpoint had another hash.
                if !self.is_live(hash, position) {
                    continue;
                }
            }
            self.remove_entry(hash, position);
            self.log.record_superseded(position, size);
            self.log.remove_cleared_extent_reference(position);
            self.clears.dead = self.clears.dead.saturating_sub(1);
        }
        Ok(())
    }

    /// Whether a clear record is still needed when it is moved out of a segment while others still exist.
    pub(super) fn clear_is_needed(
        &self,
        scan: &SegmentScan,
        header: &RecordHeader,
        key: &[u8],
        value: &[u8],
    ) -> bool {
        let Some((keyspace, clear)) = clear_of(header.keyspace(), key, value) else { return true };
        let is_swept = self.keyspaces.get(keyspace).is_none_or(|space| space.cleared == 0);
        !is_swept || covers_any(&scan.segments, 0, clear.newest, scan.sequence)
    }

    /// Drops a clear record whose keyspace has no dead records left, instead of moving it.
    pub(super) fn drop_clear(&mut self, hash: u32, position: Position, key: &[u8], size: u32) {
        self.remove_entry(hash, position);
        self.log.record_superseded(position, size);
        self.last = None;
        let space = self.keyspaces.entry(KEYSPACE_ENGINE);
        space.count = space.count.saturating_sub(1);
        if position < self.sorted_keys.sorted_below {
            self.sorted_keys.key_changed(space, key, None);
        }
    }
}
