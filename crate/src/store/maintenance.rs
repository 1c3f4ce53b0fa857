//! Housekeeping in slices of well under a millisecond, between turns: compaction, checkpoints, and
//! giving back what they leave.
//!
//! Compaction moves what lives in the emptiest segments to the tail and dooms them. The doomed go
//! together: a record of each gap that they leave in the numbers of frames is committed, then a
//! checkpoint is taken that does not name them, and once both superblocks lead to it they are
//! erased. Until then a crash loses nothing but the work. A segment that no flush has seen goes at once,
//! with nothing but the record of its gap.

use alloc::vec::Vec;

use crate::error::Error;
use crate::file::File;
use crate::index::hash_index::Position;
use crate::log::append::WriteError;
use crate::log::checkpoint::Writing;
use crate::log::slot_allocator::AllocPriority;
use crate::radix_sort;

use super::clear::Sweeping;
use super::compaction::Compacting;
use super::{Staged, Store};

/// Entries that one range of hashes holds on average when a checkpoint begins; there may be many more
/// when its turn comes.
const RANGE: usize = 1024;
/// A slice ends when it has written so many.
const ENTRIES_PER_SLICE: usize = 4 * RANGE;

/// For each so many bytes that are committed while the file is too large,
const SLICE: usize = 128 << 10;
/// so many slices are done at once; where there is no room at all, as many as it takes.
const STEPS_TO_CATCH_UP: usize = 6;

/// A checkpoint is worth its flushes when opening would have to replay this many segments,
const TAIL_SEGMENTS: u64 = 8;
/// or at a close, when it would have to replay this many.
const TAIL_SEGMENTS_AT_CLOSE: u64 = 1;
/// or to verify as many bytes of large values as these segments have,
const TAIL_SEGMENTS_OF_VALUES: u64 = 64;
/// and so many times the bytes of the checkpoint.
const TAIL_OF_VALUES: u64 = 8;

/// What is under way.
#[derive(Debug, Default)]
pub(super) enum Job {
    #[default]
    Nothing,
    /// Moving records out of segments.
    Compacting(Compacting),
    /// Taking out of the index what was in keyspaces that were emptied.
    Sweeping(Sweeping),
    /// Writing the index.
    Checkpointing(Checkpointing),
}

/// A checkpoint shows the index as it was when it began; what changes before it is written is kept.
#[derive(Debug)]
pub(super) struct Checkpointing {
    writing: Writing,
    /// Ranges are told apart by this many upper bits of the hash.
    bits: u32,
    next: usize,
    changed: Vec<Vec<Change>>,
}

/// A record of the index that moved, came or went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub hash: u32,
    pub old: Option<Position>,
    pub new: Option<Position>,
}

impl Checkpointing {
    pub(super) fn note(&mut self, change: Change) {
        let range = (u64::from(change.hash) >> (32 - self.bits)) as usize;
        if range >= self.next {
            self.changed[range].push(change);
        }
    }
}

/// Takes changes back from the entries of a range: what went since comes, and what came since goes.
/// Each of them is met once, however often the same key changed.
fn rewind(entries: &mut Vec<(u32, Position)>, changed: &[Change]) {
    let came = changed.iter().filter_map(|change| Some((change.hash, change.new?)));
    let mut came = radix_sort::by_number(came.collect());
    let went = changed.iter().filter_map(|change| Some((change.hash, change.old?)));
    let mut went = radix_sort::by_number(went.collect());
    let mut first = 0;
    // What came and went is in neither.
    went.retain(|&(hash, position)| {
        // Those that were met have no position any more. Under one hash both are in the order of time.
        while came.get(first).is_some_and(|&(other, at)| other < hash || at == 0) {
            first += 1;
        }
        let mut same = came[first..].iter_mut().take_while(|(other, _)| *other == hash);
        same.find(|(_, at)| *at == position).map(|(_, at)| *at = 0).is_none()
    });
    came.retain(|&(_, at)| at != 0);
    // Most entries have not changed: a bit for each hash's lower end tells that of nearly all.
    let mut some = [0_u64; 64];
    let bit_of = |hash: u32| ((hash / 64 % 64) as usize, 1 << (hash % 64));
    for &(hash, _) in &came {
        let (word, bit) = bit_of(hash);
        some[word] |= bit;
    }
    entries.retain(|entry| {
        let (word, bit) = bit_of(entry.0);
        some[word] & bit == 0 || {
            let from = came.partition_point(|(hash, _)| *hash < entry.0);
            !came[from..].iter().take_while(|(hash, _)| *hash == entry.0).any(|came| came == entry)
        }
    });
    entries.append(&mut went);
}

impl<F: File> Store<F> {
    /// Whether there is housekeeping to do: see [`tend`](Store::tend).
    #[must_use]
    pub fn wants_maintenance(&self) -> bool {
        let may = !self.read_only && !self.poisoned;
        may && (!matches!(self.job, Job::Nothing)
            || self.wants_all.is_some()
            || self.log.can_reclaim()
            || self.wants_compaction()
            || self.wants_sweep()
            || self.has_cleared()
            || self.wants_sure_extents()
            || self.wants_checkpoint())
    }

    /// Whether opening would have so much to read that a checkpoint is worth its flushes. Of values in
    /// extents a checkpoint has it read nothing.
    fn wants_checkpoint(&self) -> bool {
        let values = TAIL_SEGMENTS_OF_VALUES << self.log.geometry().segment_log2;
        let values = values.max(TAIL_OF_VALUES * 8 * self.index.len() as u64);
        self.log.tail_bytes() > self.tail_limit() || self.log.tail_values() > values
    }

    /// Whether large values that were replaced take so much room that they cannot wait until a flush
    /// comes by itself.
    fn wants_sure_extents(&self) -> bool {
        self.log.has_unsure_extents()
            && (self.wants_all.is_some()
                || self.is_over_budget()
                || self.is_shrinkable()
                || self.log.is_out_of_slots())
    }

    /// A crash should not cost more than reading half of what lives.
    fn tail_limit(&self) -> u64 {
        let segments = TAIL_SEGMENTS << self.log.geometry().segment_log2;
        segments.max(self.log.live_total() / 2)
    }

    /// Does one slice of housekeeping. Answers whether there is more to do. With `all`, given once,
    /// everything is compacted that is not worth it by itself. The open group is committed first.
    ///
    /// # Errors
    /// As for [`commit`](Store::commit) and [`flush`](Store::flush). Nothing of the content changes
    /// whatever happens; what was under way is given up and begun again later.
    pub fn maintain(&mut self, all: bool) -> Result<bool, Error> {
        if self.poisoned {
            return Err(self.refusal());
        }
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        if !matches!(self.staged, Staged::Nothing) || !self.savepoints.is_empty() {
            return Err(Error::Reentrancy);
        }
        self.commit_group()?;
        self.is_in_maintenance = true;
        if all {
            self.wants_all = Some(self.log.next_sequence());
        }
        let job = core::mem::take(&mut self.job);
        let done = self.slice(job);
        self.is_in_maintenance = false;
        match done {
            Ok(job) => {
                self.job = job;
                Ok(self.wants_maintenance())
            }
            Err(failure) => Err(self.fail(failure)),
        }
    }

    /// Does as much housekeeping as a commit of so many bytes makes necessary, where the time
    /// between turns was not enough. The commit has succeeded whatever fails here: what poisons is
    /// told at the end of the turn, all else by the next call that needs it.
    pub(super) fn catch_up(&mut self, bytes: usize) {
        self.update_garbage_stats();
        if self.is_in_maintenance || self.poisoned {
            return;
        }
        if !self.log.is_out_of_slots() {
            self.pressed_from = None;
        }
        // What was emptied is dead, although nothing tells how much of each segment is.
        let may_be_late = bytes > 0 && self.is_sweeping();
        if !may_be_late && !self.is_behind() {
            return;
        }
        let mut slices = bytes.div_ceil(SLICE).max(1) * STEPS_TO_CATCH_UP;
        while slices > 0 || self.is_low_on_space() || self.is_sweeping_little() {
            slices = slices.saturating_sub(1);
            match self.maintain(false) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.deferred_error = self.poisoned.then_some(error);
                    break;
                }
            }
        }
    }

    /// Whether housekeeping poisoned the store and nobody was told: [`tend`](Store::tend) tells.
    #[must_use]
    pub fn has_deferred_error(&self) -> bool {
        self.deferred_error.is_some()
    }

    /// Why a poisoned store refuses: the failure that poisoned it, if nobody was told of it yet.
    pub(super) fn refusal(&mut self) -> Error {
        let refused = if self.file.is_lost() { Error::Lost } else { Error::Poisoned };
        self.deferred_error.take().unwrap_or(refused)
    }

    fn slice(&mut self, job: Job) -> Result<Job, WriteError> {
        self.sweep_cleared();
        match job {
            Job::Compacting(compacting) if self.wants_sweep() => {
                Ok(self.begin_sweep(Some(compacting)))
            }
            Job::Sweeping(sweeping) => self.sweep_slice(sweeping),
            Job::Compacting(compacting) => self.compact_slice(compacting),
            Job::Checkpointing(checkpointing) => self.checkpoint_slice(checkpointing),
            Job::Nothing if self.reclaim_step()? => Ok(Job::Nothing),
            Job::Nothing if self.wants_sweep() => Ok(self.begin_sweep(None)),
            Job::Nothing if self.wants_all.is_some() || self.wants_compaction() => {
                let all = core::mem::take(&mut self.wants_all);
                self.begin_compaction(all)
            }
            Job::Nothing if self.wants_checkpoint() => self.begin_checkpoint(),
            Job::Nothing => Ok(Job::Nothing),
        }
    }

    /// Takes a step towards a file that holds nothing but what is needed. Answers whether there was one
    /// to take.
    fn reclaim_step(&mut self) -> Result<bool, WriteError> {
        if !self.log.reclaim(&mut self.file)? {
            if self.log.is_reclaimed() && !self.wants_sure_extents() {
                return Ok(false);
            }
            // What a recovery dropped can be erased once the log behind it is flushed, and a
            // flushed frame says so; likewise an extent that was deleted.
            if !self.log.is_anchored() || self.log.is_unwitnessed() {
                self.log.write_witness(&mut self.file, AllocPriority::Note, self.next_version)?;
            }
            self.log.flush(&mut self.file).map_err(WriteError::Unclear)?;
        }
        self.unflushed &= self.log.is_unflushed();
        Ok(true)
    }

    /// Starts a checkpoint of the index as it is.
    pub(super) fn begin_checkpoint(&mut self) -> Result<Job, WriteError> {
        // A gap ends where a segment begins, so the last one has to stand in the file.
        self.anchor()?;
        if self.log.pending_free_bytes() > 0 {
            self.note_gaps().map_err(WriteError::RolledBack)?;
        }
        let entries = self.index.len();
        let Store { file, log, spaces, next_version, .. } = self;
        let writing = match log.begin_checkpoint(file, entries, spaces, *next_version) {
            // Room matters more now than opening fast.
            Err(Error::Quota | Error::Full) if log.pending_free_bytes() > 0 => {
                log.go_without_checkpoint(file, *next_version)?;
                self.unflushed = false;
                return Ok(Job::Nothing);
            }
            begun => begun.map_err(WriteError::RolledBack)?,
        };
        let bits = (entries / RANGE).next_power_of_two().trailing_zeros();
        let changed = (0..1 << bits).map(|_| Vec::new()).collect();
        Ok(Job::Checkpointing(Checkpointing { writing, bits, next: 0, changed }))
    }

    /// Makes sure that the log ends in a segment that stands in the file.
    pub(super) fn anchor(&mut self) -> Result<(), WriteError> {
        if !self.log.is_anchored() {
            self.log.write_witness(&mut self.file, AllocPriority::Note, self.next_version)?;
            self.unflushed = true;
        }
        Ok(())
    }

    fn checkpoint_slice(&mut self, mut job: Checkpointing) -> Result<Job, WriteError> {
        match self.write_ranges(&mut job) {
            Ok(false) => Ok(Job::Checkpointing(job)),
            Ok(true) => {
                self.unflushed = false;
                Ok(Job::Nothing)
            }
            Err(failure) => {
                self.log.drop_checkpoint(&job.writing);
                Err(failure)
            }
        }
    }

    /// Writes a few ranges of the index; after the last one, ends the checkpoint.
    fn write_ranges(&mut self, job: &mut Checkpointing) -> Result<bool, WriteError> {
        let width = 1_u64 << (32 - job.bits);
        let mut written = 0;
        while written < ENTRIES_PER_SLICE {
            if job.next == job.changed.len() {
                let Store { file, log, next_version, .. } = self;
                log.end_checkpoint(file, &mut job.writing, *next_version)?;
                return Ok(true);
            }
            let first = (job.next as u64 * width) as u32;
            let last = (first as u64 + width - 1) as u32;
            let changed = core::mem::take(&mut job.changed[job.next]);
            let mut entries = Vec::with_capacity(2 * RANGE);
            self.index.collect(first, last, &mut entries);
            if !changed.is_empty() {
                rewind(&mut entries, &changed);
            }
            written += entries.len();
            let added = self.log.add_entries(&mut self.file, &mut job.writing, &entries);
            added.map_err(WriteError::RolledBack)?;
            job.next += 1;
        }
        Ok(false)
    }

    /// Takes a checkpoint before closing, if opening would otherwise take its time. The close goes
    /// on without one when there is no room for it.
    pub(super) fn checkpoint_at_close(&mut self) -> Result<(), Error> {
        self.is_in_maintenance = true;
        let done = self.last_checkpoint().map_err(|failure| self.fail(failure));
        if self.poisoned { done } else { Ok(()) }
    }

    #[inline(never)]
    fn last_checkpoint(&mut self) -> Result<(), WriteError> {
        // As many bytes of index as of log would not open faster.
        let segment = TAIL_SEGMENTS_AT_CLOSE << self.log.geometry().segment_log2;
        let limit = segment.max(2 * self.index.len() as u64);
        let mut job = core::mem::take(&mut self.job);
        if let Job::Checkpointing(begun) = &job
            && self.log.tail_behind(&begun.writing) > limit
        {
            // Much came since it began: one of now costs little more, and nothing at the next opening.
            self.log.drop_checkpoint(&begun.writing);
            job = Job::Nothing;
        }
        if !matches!(job, Job::Checkpointing(_)) {
            if self.log.tail_bytes() + self.log.tail_values() <= limit {
                return Ok(());
            }
            while !self.log.is_reclaimed() {
                self.reclaim_step()?;
            }
            job = self.begin_checkpoint()?;
        }
        while let Job::Checkpointing(checkpointing) = job {
            job = self.checkpoint_slice(checkpointing)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn rollback_restores_overwritten_keys_with_colliding_hashes() {
        // Twelve keys under four hashes; the first of them changes most of the time.
        let hash = |key: u32| key % 4;
        let (mut now, mut changed, mut before) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut x = 1u64;
        for step in 1..20_000u32 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let key = if x >> 63 == 0 { 0 } else { (x >> 33) as u32 % 12 };
            // Positions are used again, as those in segments are that were given back.
            let position = step % 5000 * 12 + key + 1;
            let goes = (x >> 40).is_multiple_of(3);
            let old = now.remove(&key);
            let new = (!goes).then_some(position);
            new.map(|new| now.insert(key, new));
            if step == 10_000 {
                before = now.iter().map(|(&key, &position)| (hash(key), position)).collect();
            } else if step > 10_000 && old != new {
                changed.push(Change { hash: hash(key), old, new });
            }
        }
        let mut found = now.iter().map(|(&key, &position)| (hash(key), position)).collect();
        rewind(&mut found, &changed);
        found.sort_unstable();
        before.sort_unstable();
        assert_eq!(found, before);
    }
}
