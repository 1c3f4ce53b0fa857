//! Emptying a keyspace, or a range of it.
//!
//! A range is emptied by a deletion for each key. A whole keyspace is emptied by one record, whatever it holds:
//! from then on its records with smaller versions do not count. The index names them for a while, and lookups
//! pass over them; housekeeping goes over the log once, takes them out, and has what lives where add up again.
//! That is the sweep.

use alloc::vec::Vec;
use core::ops::Bound;

use crate::aligned_buf::AlignedBytes;
use crate::error::Error;
use crate::file::File;
use crate::format::KEYSPACE_ENGINE;
use crate::format::frame::{self, FrameHeader};
use crate::format::record::{self, KIND_CLEAR, KIND_EXTENT, KIND_PIECES, KIND_SET, RecordHeader};
use crate::format::system_records::{PiecesRef, clear_key, clear_of};
use crate::index::hash_index::Position;
use crate::index::keyspaces::Spaces;
use crate::index::ordered_index::{Key, OrderedKeys};
use crate::log::append::WriteError;
use crate::log::slot_allocator::AllocPriority;
use crate::log::tombstones::covers;
use crate::radix_sort;

use super::compaction::{Compacting, Moving};
use super::maintenance::Job;
use super::{Store, TOGETHER, replay};

/// A keyspace with fewer keys, or less than this part of all, is emptied key by key: a sweep goes over
/// everything.
const FEW: u64 = 1024;
const PART: u64 = 64;

/// So many keys of a range are deleted together, in the order of the file.
const AT_ONCE: usize = 1 << 16;
/// A segment is read as a whole if so many of them lie in it.
const WORTH_LOADING: usize = 512;

/// Opening takes out of an index with so few entries what does not count any more.
const SMALL: usize = 1 << 14;

/// Bytes of a segment that one slice of a sweep goes over.
const SLICE: usize = 256 << 10;

/// How to take back that a keyspace was emptied in the open group.
#[derive(Debug)]
pub(super) struct Cleared {
    /// How many changes of the index there were before it.
    changes: usize,
    keyspace: u32,
    keys: OrderedKeys,
    count: u64,
    cleared: u64,
    /// The keys that were in order then.
    sorted: Position,
}

/// What a store knows of keyspaces that were emptied.
#[derive(Debug, Default)]
pub(super) struct Clears {
    /// Whether there may be records in the index that do not count.
    pub any: bool,
    /// How many they are.
    pub dead: u64,
    /// Those of the open group, in order.
    open: Vec<Cleared>,
    /// The order of keys that are gone, until their memory was given back.
    remains: Vec<OrderedKeys>,
    /// Whether a sweep has to begin,
    unswept: bool,
    /// and there was no room for what it has to delete.
    is_paused: bool,
    /// Whether replay could not tell how many keys are left of a keyspace.
    is_miscounted: bool,
}

/// Going over the log.
#[derive(Debug)]
pub(super) struct Sweeping {
    /// Segments that it has to go over, the next one last.
    slots: Vec<u32>,
    at: Option<Moving>,
    /// Memory of the one before.
    spare: Option<AlignedBytes>,
    /// Whether something could not be gone over.
    is_stuck: bool,
}

/// What a sweep found in a part of a segment.
enum Swept {
    Some,
    All,
    /// A frame is damaged.
    Stuck,
}

/// A record that does not count any more.
#[derive(Clone, Copy, Default)]
struct Dead {
    hash: u32,
    position: Position,
    size: u32,
    pieces: Option<PiecesRef>,
}

impl<F: File> Store<F> {
    /// Deletes the keys between two bounds, at most so many, the last ones if `reverse`: all of them or, after
    /// an error, none. Tells how many these were. Where that is a whole keyspace, it costs as much as one
    /// deletion, whatever the keyspace holds.
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
        // Any key will do.
        self.check_write(keyspace, b"-")?;
        let count = self.count(keyspace);
        let is_open = bounds == (Bound::Unbounded, Bound::Unbounded);
        let is_whole = limit >= count
            && (is_open || self.range_keys(keyspace, bounds)?.remaining() as u64 == count);
        if count == 0 {
            return Ok(0);
        }
        if is_whole && self.is_many(keyspace, count) {
            return self.empty(keyspace);
        }
        let _ = self.savepoint();
        match self.delete_range(keyspace, bounds, reverse, limit) {
            Ok(deleted) => self.release_last().map(|()| deleted),
            Err(error) => {
                self.take_back_last();
                Err(error)
            }
        }
    }

    /// Deletes all keys of a keyspace, not the engine's own, by one record. Tells how many these were. It costs as
    /// much as one deletion; then housekeeping goes over the log once, in slices.
    ///
    /// # Errors
    /// As for [`delete`](Store::delete).
    pub fn empty(&mut self, keyspace: u32) -> Result<u64, Error> {
        self.check_write(keyspace, b"-")?;
        if keyspace == KEYSPACE_ENGINE {
            return Err(Error::Misuse);
        }
        let is_first = self.savepoints.is_empty() && self.log.batch_bytes() == 0;
        match self.clear_all(keyspace) {
            // As for a deletion.
            Err(Error::Quota | Error::Full) if is_first => {
                self.catch_up(0);
                self.clear_all(keyspace)
            }
            done => done,
        }
    }

    /// Whether a keyspace with so many keys is emptied by one record.
    fn is_many(&self, keyspace: u32, count: u64) -> bool {
        let is_part = count > FEW && count.saturating_mul(PART) >= self.index.len() as u64;
        // To sort all keys for a few of them takes longer than a sweep.
        let needs_order = self.sorted != replay::ALL && self.index.len() > SMALL;
        keyspace != KEYSPACE_ENGINE && (is_part || needs_order || !self.ordered)
    }

    #[inline(never)]
    fn clear_all(&mut self, keyspace: u32) -> Result<u64, Error> {
        if self.count(keyspace) == 0 {
            return Ok(0);
        }
        let key = clear_key(keyspace);
        let hash = self.hash(KEYSPACE_ENGINE, &key);
        let old = self.find_shared(hash, KEYSPACE_ENGINE, &key)?.map(|at| self.predecessor(at));
        let header = RecordHeader {
            kind: KIND_CLEAR,
            key_len: key.len() as u16,
            keyspace: KEYSPACE_ENGINE as u16,
            value_len: 8,
            capacity: 8,
            oldest: old.map_or(0, |old| old.oldest),
            previous: old.map_or(0, |old| old.position),
            replaced: record::in_words(old.map_or(0, |old| old.size)),
            ..Default::default()
        };
        let size = header.size();
        self.log.make_room(&mut self.file, size, AllocPriority::Relief)?;
        let version = self.take_version();
        // It is never changed where it lies: what was written since must not come behind it.
        let (position, place) = self.log.stage(RecordHeader { version, ..header }, &key);
        let newest = u64::from(self.log.sequence_at(position));
        self.log.value_mut(place).copy_from_slice(&newest.to_le_bytes());
        self.log.advance(size, false);

        let (changes, sorted) = (self.undo.len(), self.sorted);
        let space = self.spaces.entry(keyspace);
        let cleared = Cleared {
            changes,
            keyspace,
            keys: core::mem::take(&mut space.keys),
            count: core::mem::take(&mut space.count),
            cleared: core::mem::replace(&mut space.cleared, version),
            sorted,
        };
        let count = cleared.count;
        self.note_cleared(count);
        self.clears.open.push(cleared);
        self.reindex(hash, old, position, size as u32, Some(position));
        self.commit_large_batch()?;
        Ok(count)
    }

    /// So many records of the index do not count any more.
    fn note_cleared(&mut self, count: u64) {
        self.last = None;
        let clears = &mut self.clears;
        clears.dead += count;
        (clears.any, clears.unswept, clears.is_paused) = (true, true, false);
    }

    /// Takes back the keyspaces that were emptied when there were so many changes of the index as are left.
    pub(super) fn undo_clears(&mut self) {
        let left = self.undo.len();
        while let Some(cleared) = self.clears.open.pop_if(|cleared| cleared.changes >= left) {
            let space = self.spaces.entry(cleared.keyspace);
            space.keys = cleared.keys;
            (space.count, space.cleared) = (cleared.count, cleared.cleared);
            self.clears.dead = self.clears.dead.saturating_sub(cleared.count);
            self.last = None;
            if self.sorted != cleared.sorted {
                // Keys that have come into order since are missing in it.
                self.sorted = 0;
                self.spaces.forget_order();
            }
            self.clears.any = self.spaces.any_cleared();
            self.clears.unswept &= self.clears.any;
        }
    }

    /// The open group was committed.
    pub(super) fn keep_clears(&mut self) {
        let gone = self.clears.open.drain(..).map(|cleared| cleared.keys);
        self.clears.remains.extend(gone.filter(|keys| !keys.is_empty()));
    }

    /// Gives back some of the memory of keys that are gone. Answers whether there is more.
    pub(super) fn sweep_cleared(&mut self) -> bool {
        let remains = &mut self.clears.remains;
        if remains.last_mut().is_some_and(|keys| !keys.shed()) {
            remains.pop();
        }
        !remains.is_empty()
    }

    /// Deletes the keys of a range one by one.
    fn delete_range(
        &mut self,
        keyspace: u32,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        limit: u64,
    ) -> Result<u64, Error> {
        let mut deleted = 0;
        while deleted < limit {
            let wanted = (limit - deleted).min(AT_ONCE as u64) as usize;
            let range = self.range_keys(keyspace, bounds)?;
            let keys: Vec<Key> = match reverse {
                true => range.rev().take(wanted).cloned().collect(),
                false => range.take(wanted).cloned().collect(),
            };
            if keys.is_empty() {
                break;
            }
            self.delete_keys(keyspace, &keys)?;
            deleted += keys.len() as u64;
        }
        Ok(deleted)
    }

    /// Deletes keys that are there, in the order in which their records lie.
    fn delete_keys(&mut self, keyspace: u32, keys: &[Key]) -> Result<(), Error> {
        let mut order = Vec::with_capacity(keys.len());
        for (from, some) in (0..).step_by(TOGETHER).zip(keys.chunks(TOGETHER)) {
            let mut positions = [0; TOGETHER];
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
        let mut places = [None; TOGETHER];
        for inside in order.chunk_by(|one, next| slot_of(one) == slot_of(next)) {
            if inside.len() >= WORTH_LOADING && self.log.place_of(inside[0].0).is_none() {
                self.log.load_whole(&mut self.file, slot_of(&inside[0]))?;
            }
            for some in inside.chunks(TOGETHER) {
                let mut positions = [0; TOGETHER];
                positions.iter_mut().zip(some).for_each(|(to, one)| *to = one.0);
                self.prefetch_records(&positions[..some.len()], &mut places);
                for &(_, i) in some {
                    self.append_tombstone(keyspace, &keys[i as usize])?;
                }
            }
        }
        Ok(())
    }

    // ---------------------------------------------------------------- opening

    /// What a checkpoint knows of keyspaces that were emptied before it.
    pub(super) fn load_clears(&mut self) {
        let counted: u64 = self.spaces.counts().map(|(_, count)| count).sum();
        self.clears.any = self.spaces.any_cleared();
        self.clears.unswept = self.clears.any;
        if self.clears.any {
            self.clears.dead = (self.index.len() as u64).saturating_sub(counted);
        }
    }

    /// Whether a record stands before the one that emptied its keyspace, in time.
    #[inline]
    pub(super) fn is_cleared(&self, header: &RecordHeader) -> bool {
        self.clears.any && self.spaces.has_cleared(header.space(), header.version)
    }

    /// A record is replayed that emptied a keyspace, and that the index does not know. One that was moved may
    /// stand behind records that came after it: then the keyspace's keys have to be counted.
    pub(super) fn replay_clear(&mut self, version: u64, keyspace: u32, was_moved: bool) {
        let space = self.spaces.entry(keyspace);
        if version <= space.cleared {
            return;
        }
        space.cleared = version;
        if was_moved {
            self.note_cleared(0);
            self.clears.is_miscounted = true;
        } else {
            let count = core::mem::take(&mut space.count);
            self.note_cleared(count);
        }
    }

    /// Counts the keys of keyspaces that were emptied, if replay could not.
    ///
    /// # Errors
    /// What the file said.
    pub(super) fn recount(&mut self) -> Result<(), Error> {
        if !core::mem::take(&mut self.clears.is_miscounted) {
            return Ok(());
        }
        let (mut counts, mut dead) = (Spaces::default(), 0);
        for (position, _) in self.entries() {
            match self.log.find_intact(&mut self.file, position) {
                Ok((_, record)) => {
                    let (keyspace, version) = (record.header.space(), record.header.version);
                    match self.spaces.has_cleared(keyspace, version) {
                        true => dead += 1,
                        false => counts.entry(keyspace).count += 1,
                    }
                }
                // Whoever reads it is told.
                Err(Error::Corruption(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.clears.dead = dead;
        self.spaces.recount_cleared(&counts);
        Ok(())
    }

    /// Takes out of a small index what does not count any more, without a write: what lives adds up then as it did
    /// before. Records whose values lie in pieces stay until a sweep deletes these.
    ///
    /// # Errors
    /// What the file said.
    pub(super) fn sweep_small(&mut self) -> Result<(), Error> {
        if !self.clears.any || self.index.len() > SMALL {
            return Ok(());
        }
        let mut left = 0;
        for (position, hash) in self.entries() {
            let header = match self.log.find_intact(&mut self.file, position) {
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
            if header.kind == KIND_PIECES {
                left += 1;
                continue;
            }
            self.index.remove(hash, position);
            self.log.record_superseded(position, header.size() as u32);
            self.log.drop_name(position);
            self.clears.dead = self.clears.dead.saturating_sub(1);
        }
        if left == 0 {
            (self.clears.any, self.clears.unswept, self.clears.dead) = (false, false, 0);
            self.spaces.forget_cleared();
        }
        Ok(())
    }

    /// Values of keyspaces that were emptied need not be there any more.
    ///
    /// # Errors
    /// What the file said.
    pub(super) fn drop_cleared_extents(&mut self) -> Result<(), Error> {
        if !self.clears.any {
            return Ok(());
        }
        for position in self.log.naming_extents() {
            match self.log.place(&mut self.file, position) {
                Ok(place) => {
                    let header = self.log.get(place).map(|record| *record.header);
                    if header.is_some_and(|header| self.is_cleared(&header)) {
                        self.log.drop_name(position);
                    }
                }
                Err(Error::Corruption(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    // ---------------------------------------------------------------- the sweep

    /// Whether there is a sweep to begin.
    pub(super) fn wants_sweep(&self) -> bool {
        self.clears.unswept && !self.clears.is_paused
    }

    /// Whether a sweep is under way, or is to begin.
    pub(super) fn is_sweeping(&self) -> bool {
        self.wants_sweep() || matches!(self.job, Job::Sweeping(_))
    }

    /// Whether that is done so soon that nobody need wait for what lives to add up.
    pub(super) fn is_sweeping_little(&self) -> bool {
        self.is_sweeping() && self.index.len() <= SMALL && self.log.file_bytes() <= 16 << 20
    }

    /// Whether memory of keys that are gone is left.
    pub(super) fn has_cleared(&self) -> bool {
        !self.clears.remains.is_empty()
    }

    /// A sweep that found no room may try again.
    pub(super) fn resume_sweep(&mut self) {
        self.clears.is_paused = false;
    }

    /// Begins a sweep, instead of a compaction that is under way: that one moves nothing that is dead.
    pub(super) fn begin_sweep(&mut self, instead: Option<Compacting>) -> Job {
        if let Some(compacting) = instead {
            self.abandon(&compacting);
        }
        self.clears.unswept = false;
        let mut slots = self.log.live_slots();
        slots.reverse();
        Job::Sweeping(Sweeping { slots, at: None, spare: None, is_stuck: false })
    }

    /// Goes on with a segment, or takes up the next.
    pub(super) fn sweep_slice(&mut self, mut job: Sweeping) -> Result<Job, WriteError> {
        let Some(mut moving) = job.at.take() else {
            match job.slots.pop() {
                Some(slot) if self.log.has_live_records(slot) => {
                    let taken = self.take_up(slot, job.spare.take());
                    // What fails here is tried again.
                    self.clears.unswept |= taken.is_err();
                    job.at = taken.map_err(WriteError::RolledBack)?;
                }
                Some(_) => {}
                None => {
                    self.end_sweep(&job);
                    return Ok(Job::Nothing);
                }
            }
            return Ok(Job::Sweeping(job));
        };
        match self.sweep_some(&mut moving) {
            Ok(Swept::Some) if self.log.has_live_records(moving.slot) => {
                job.at = Some(moving);
                return Ok(Job::Sweeping(job));
            }
            Ok(Swept::Some | Swept::All) => {}
            Ok(Swept::Stuck) => {
                self.log.keep(moving.slot);
                job.is_stuck = true;
            }
            Err(Error::Quota | Error::Full) if !self.poisoned => {
                // Compaction may make room.
                self.undo_to(0);
                self.log.discard_batch();
                (self.clears.unswept, self.clears.is_paused) = (true, true);
                return Ok(Job::Nothing);
            }
            Err(error) => {
                self.clears.unswept = true;
                return Err(WriteError::RolledBack(error));
            }
        }
        job.spare = Some(moving.bytes);
        Ok(Job::Sweeping(job))
    }

    fn end_sweep(&mut self, job: &Sweeping) {
        if !self.clears.unswept && !job.is_stuck {
            (self.clears.any, self.clears.dead) = (false, 0);
            self.spaces.forget_cleared();
        }
    }

    /// Takes records of a segment that do not count out of the index.
    fn sweep_some(&mut self, moving: &mut Moving) -> Result<Swept, Error> {
        let geometry = self.log.geometry();
        let until = moving.at + SLICE;
        let (mut dead, mut count) = ([Dead::default(); TOGETHER], 0);
        loop {
            if count == TOGETHER || moving.at >= until.min(moving.end) {
                self.take_out(&dead[..count])?;
                count = 0;
                if moving.at >= moving.end {
                    return Ok(Swept::All);
                }
                if moving.at >= until {
                    return Ok(Swept::Some);
                }
            }
            if moving.at == moving.frame_end {
                let position = geometry.slot_start(moving.slot) + moving.at as u64;
                let bytes = &moving.bytes[moving.at..geometry.room_end()];
                let header = FrameHeader::open(bytes, self.log.salt(moving.slot), position);
                let Some(header) = header else {
                    self.take_out(&dead[..count])?;
                    return Ok(Swept::Stuck);
                };
                moving.frame_end = moving.at + header.length as usize;
                moving.at += frame::SIZE;
                continue;
            }
            let bytes = &moving.bytes[moving.at..moving.frame_end];
            let parts = record::parts(bytes).filter(|(header, ..)| header.fits(bytes.len()));
            let Some((header, key, value)) = parts else {
                self.take_out(&dead[..count])?;
                return Ok(Swept::Stuck);
            };
            let size = header.size();
            if matches!(header.kind, KIND_SET | KIND_EXTENT | KIND_PIECES)
                && self.is_cleared(header)
            {
                let is_chunked = header.kind == KIND_PIECES;
                dead[count] = Dead {
                    hash: self.hash(header.space(), key),
                    position: geometry.position(moving.slot, moving.at),
                    size: size as u32,
                    pieces: is_chunked.then(|| PiecesRef::decode(value)).flatten(),
                };
                count += 1;
            }
            moving.at += size;
        }
    }

    /// Takes records out of the index, if they are in it, and deletes the pieces of their values before.
    fn take_out(&mut self, dead: &[Dead]) -> Result<(), Error> {
        let mut hashes = [0; TOGETHER];
        hashes.iter_mut().zip(dead).for_each(|(hash, one)| *hash = one.hash);
        self.index.prefetch(&hashes[..dead.len()]);
        for &Dead { hash, position, size, pieces } in dead {
            if !self.index.contains(hash, position) {
                continue;
            }
            if let Some(pieces) = pieces {
                self.delete_chunks_of(&pieces)?;
                self.commit_batch()?;
            }
            self.index.remove(hash, position);
            self.log.record_superseded(position, size);
            self.log.drop_cleared_name(position);
            self.clears.dead = self.clears.dead.saturating_sub(1);
        }
        Ok(())
    }

    /// Whether a record that emptied a keyspace is still needed, if it is moved out of a segment while others
    /// stand.
    pub(super) fn clear_is_needed(
        &self,
        moving: &Moving,
        header: &RecordHeader,
        key: &[u8],
        value: &[u8],
    ) -> bool {
        let Some((keyspace, clear)) = clear_of(header.space(), key, value) else { return true };
        let is_swept = self.spaces.get(keyspace).is_none_or(|space| space.cleared == 0);
        !is_swept || covers(&moving.segments, 0, clear.newest, moving.sequence)
    }

    /// A record that emptied a keyspace, of which nothing is left, need not move.
    pub(super) fn drop_clear(&mut self, hash: u32, position: Position, key: &[u8], size: u32) {
        self.index.remove(hash, position);
        self.log.record_superseded(position, size);
        self.last = None;
        let space = self.spaces.entry(KEYSPACE_ENGINE);
        space.count = space.count.saturating_sub(1);
        if position < self.sorted {
            space.keys.remove(key);
        }
    }
}
