//! Maintenance in steps of well under a millisecond, between turns: compaction, checkpoints, and reclaiming
//! the space that they free.
//!
//! Compaction moves the live records of the emptiest segments to the tail and retires these segments.
//! Retired segments are freed together: a record of each gap that they leave in the frame numbers is
//! committed, then a checkpoint without them is written, and once both superblocks refer to it their headers
//! are erased. A crash before that loses only the work. A segment that was begun since the last flush is
//! freed at once, with only the record of its gap.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::error::Error;
use crate::file::File;
use crate::index::Position;
use crate::log::append::WriteError;
use crate::log::checkpoint_index::CheckpointIndex;
use crate::log::slot_allocator::AllocPriority;
use crate::radix_sort;

use super::maintenance_jobs::{Checkpointing, Job};
use super::range_changes::{Change, RangeChanges};
use super::{Staged, Store};

/// Average entries of one hash range when a checkpoint begins. There may be many more when the range is
/// written.
const RANGE: usize = 1024;
/// A step ends when it has written this many entries.
const ENTRIES_PER_STEP: usize = 4 * RANGE;
/// A step allocates no more than this many segments: those that it reads, moves records to, and sorts.
const SEGMENTS_PER_STEP: usize = 4;
/// A step loads this many blocks of the checkpoint.
const BLOCKS_PER_STEP: usize = 8;

// While the file is too large, a commit runs `STEPS_TO_CATCH_UP` steps for each `CATCH_UP_BYTES` that it wrote; with no
// space left, as many as are needed.
const CATCH_UP_BYTES: usize = 128 << 10;
const STEPS_TO_CATCH_UP: usize = 6;

// When a checkpoint is worth its flushes:

/// If opening would replay this many segments of the log.
const REPLAY_SEGMENTS: u64 = 8;
/// At a close: if opening would replay this many.
const REPLAY_SEGMENTS_AT_CLOSE: u64 = 1;
/// If opening would verify the bytes of this many segments in large values, and `CHECKPOINTS_OF_VALUES` times the bytes
/// of the checkpoint.
const REPLAY_SEGMENTS_OF_VALUES: u64 = 64;
const CHECKPOINTS_OF_VALUES: u64 = 8;

/// Reverts changes in the entries of a range: restores removed entries and removes added ones. Each entry
/// is handled once, however often its key changed.
fn rewind(entries: &mut Vec<(u32, Position)>, changed: &[Change]) {
    let came = changed.iter().filter_map(|change| Some((change.hash, change.new?)));
    let mut came = radix_sort::by_number(came.collect());
    let went = changed.iter().filter_map(|change| Some((change.hash, change.old?)));
    let mut went = radix_sort::by_number(went.collect());
    let mut first = 0;
    // Entries that were both added and removed are dropped from both lists.
    went.retain(|&(hash, position)| {
        // Matched entries have position 0. Under one hash both lists are in the order of time.
        while came.get(first).is_some_and(|&(other, at)| other < hash || at == 0) {
            first += 1;
        }
        let mut same = came[first..].iter_mut().take_while(|(other, _)| *other == hash);
        same.find(|(_, at)| *at == position).map(|(_, at)| *at = 0).is_none()
    });
    came.retain(|&(_, at)| at != 0);
    // Most entries have not changed. A 64-word bit set over the lower bits of the hash rules out nearly all
    // of them.
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

/// How much of a checkpoint is written.
enum Written {
    Some,
    All,
    /// A part of the checkpoint before it is damaged.
    Damaged,
}

impl<F: File> Store<F> {
    /// Whether there is maintenance to do: see [`maintain`](Store::maintain).
    #[must_use]
    pub fn wants_maintenance(&self) -> bool {
        let may = !self.read_only && !self.poisoned;
        may && (!matches!(self.maintenance.job, Job::Nothing)
            || self.wants_index_loading()
            || self.wants_smaller_table()
            || self.wants_full_compaction()
            || self.wants_packing()
            || self.log.can_reclaim()
            || self.wants_compaction()
            || self.wants_sweep()
            || self.wants_expiry()
            || self.has_cleared()
            || self.wants_confirmed_extents()
            || self.sorted_keys.has_many_deferred()
            || self.wants_sorting()
            || self.wants_checkpoint())
    }

    /// Whether opening would read so much that a checkpoint is worth its flushes. With a checkpoint,
    /// opening does not read the extents before it.
    fn wants_checkpoint(&self) -> bool {
        let values = REPLAY_SEGMENTS_OF_VALUES << self.log.geometry().segment_log2;
        let values = values.max(CHECKPOINTS_OF_VALUES * 8 * self.index_len() as u64);
        self.log.replay_bytes() > self.replay_limit()
            || self.log.replay_value_bytes() > values
            || self.log.checkpoint_is_damaged()
            || self.wants_key_run()
            || self.has_many_recent()
    }

    /// Whether replaced large values take so much space that they cannot wait for the next ordinary flush.
    fn wants_confirmed_extents(&self) -> bool {
        self.log.has_unconfirmed_extents()
            && (self.wants_full_compaction()
                || self.exceeds_space_target()
                || self.is_shrinkable()
                || self.log.is_out_of_slots())
    }

    /// The bytes of log that opening may have to replay: half of the live data.
    fn replay_limit(&self) -> u64 {
        let segments = REPLAY_SEGMENTS << self.log.geometry().segment_log2;
        segments.max(self.log.live_total() / 2)
    }

    /// Runs one step of maintenance; returns whether there is more to do. With `all`, passed once, a full
    /// compaction is requested. The open batch is committed first.
    ///
    /// # Errors
    /// As for [`commit`](Store::commit) and [`flush`](Store::flush). The content never changes; a job that
    /// failed is abandoned and begun again later.
    pub fn maintain(&mut self, all: bool) -> Result<bool, Error> {
        if self.poisoned {
            return Err(self.refusal());
        }
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        if !matches!(self.staging.staged, Staged::Nothing) || !self.savepoints.is_empty() {
            return Err(Error::Reentrancy);
        }
        self.commit_batch()?;
        // Deletions of what has expired are changes, which maintenance makes none of.
        if !all && self.expiry_step()? {
            self.commit_batch()?;
            return Ok(self.wants_maintenance());
        }
        self.maintenance.is_running = true;
        if all {
            self.maintenance.compact_all_below = Some(self.log.next_sequence());
        }
        let job = core::mem::take(&mut self.maintenance.job);
        let done = self.step(job);
        self.maintenance.is_running = false;
        match done {
            Ok(job) => {
                self.maintenance.job = job;
                Ok(self.wants_maintenance())
            }
            Err(failure) => Err(self.fail(failure)),
        }
    }

    /// Runs the maintenance that a commit of this many bytes makes necessary, where the time between turns
    /// did not suffice. The commit has succeeded whatever fails here: a poisoning failure is reported at
    /// the end of the turn, any other by the next call that needs the space.
    pub(super) fn catch_up(&mut self, bytes: usize) {
        self.lower_compaction_trigger();
        if self.maintenance.is_running || self.poisoned || self.expiry.is_deleting {
            return;
        }
        if !self.log.is_out_of_slots() {
            self.maintenance.low_space_from = None;
        }
        self.catch_up_sorting(bytes);
        // Records of cleared keyspaces are dead before the accounting of their segments shows it.
        let may_be_late = bytes > 0 && self.is_sweeping();
        if !may_be_late && !self.is_behind() && !self.is_key_run_behind() && !self.has_many_recent()
        {
            return;
        }
        let mut steps = bytes.div_ceil(CATCH_UP_BYTES).max(1) * STEPS_TO_CATCH_UP;
        while steps > 0 || self.is_low_on_space() || self.is_sweeping_small() {
            steps = steps.saturating_sub(1);
            // Views that must stay valid leave no memory to grow into: the time after the turn has to suffice.
            if !self.log.can_allocate(self.bytes_of_step()) {
                break;
            }
            match self.maintain(false) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.maintenance.deferred_error = self.poisoned.then_some(error);
                    break;
                }
            }
        }
    }

    /// An upper bound of the memory that a step of maintenance allocates.
    pub(super) fn bytes_of_step(&self) -> usize {
        let segments = SEGMENTS_PER_STEP << self.log.geometry().segment_log2;
        // A checkpoint collects the entries of a part of the index, and sorts them in a copy.
        let part = match &self.maintenance.job {
            Job::Checkpointing(job) => 4 * (self.index.bytes() >> job.bits),
            _ => self.index_len() / RANGE * size_of::<u32>() * 2,
        };
        segments + part
    }

    /// Whether maintenance poisoned the store and no call has reported it: [`maintain`](Store::maintain)
    /// does.
    #[must_use]
    pub fn has_deferred_error(&self) -> bool {
        self.maintenance.deferred_error.is_some()
    }

    /// The error of a poisoned store: the failure that poisoned it, until it was reported once.
    pub(super) fn refusal(&mut self) -> Error {
        let refused = if self.file.is_lost() { Error::Lost } else { Error::Poisoned };
        self.maintenance.deferred_error.take().unwrap_or(refused)
    }

    fn step(&mut self, job: Job) -> Result<Job, WriteError> {
        self.sweep_cleared();
        match job {
            Job::Compacting(compacting) if self.wants_sweep() => {
                Ok(self.begin_sweep(Some(compacting)))
            }
            Job::Sweeping(sweeping) => self.sweep_step(sweeping),
            Job::Compacting(compacting) => self.compaction_step(compacting),
            Job::Packing(packing) => self.packing_step(packing),
            Job::Checkpointing(checkpointing) => self.checkpoint_step(checkpointing),
            Job::Nothing if self.reclaim_step()? => Ok(Job::Nothing),
            // All other work needs to know all live records.
            Job::Nothing if self.wants_index_loading() => {
                self.load_or_survey(BLOCKS_PER_STEP).map_err(WriteError::RolledBack)?;
                Ok(Job::Nothing)
            }
            Job::Nothing if self.wants_smaller_table() => {
                self.shrink_table();
                Ok(Job::Nothing)
            }
            Job::Nothing if self.wants_sweep() => Ok(self.begin_sweep(None)),
            Job::Nothing if self.wants_packing() => Ok(self.begin_packing()),
            Job::Nothing if self.wants_full_compaction() || self.wants_compaction() => {
                let all = core::mem::take(&mut self.maintenance.compact_all_below);
                self.begin_compaction(all)
            }
            Job::Nothing if self.sorted_keys.has_many_deferred() => {
                self.apply_deferred_keys();
                Ok(Job::Nothing)
            }
            Job::Nothing if self.wants_sorting() => {
                self.sort_step().map_err(WriteError::RolledBack)?;
                Ok(Job::Nothing)
            }
            Job::Nothing if self.wants_checkpoint() => self.begin_checkpoint(),
            Job::Nothing => Ok(Job::Nothing),
        }
    }

    /// Runs one step of freeing unneeded space; returns whether there was one.
    fn reclaim_step(&mut self) -> Result<bool, WriteError> {
        if !self.log.reclaim(&mut self.file)? {
            if self.log.is_reclaimed() && !self.wants_confirmed_extents() {
                return Ok(false);
            }
            // The tail that a recovery dropped, and extents that were deleted, can be erased only once the
            // log behind them is flushed and a flushed frame confirms that.
            if !self.log.end_is_written() || self.log.is_unwitnessed() {
                self.log.write_witness(
                    &mut self.file,
                    AllocPriority::Bookkeeping,
                    self.next_version,
                )?;
            }
            self.log.flush(&mut self.file).map_err(WriteError::Unclear)?;
        }
        self.unflushed &= self.log.is_unflushed();
        Ok(true)
    }

    /// Starts a checkpoint of the current index.
    pub(super) fn begin_checkpoint(&mut self) -> Result<Job, WriteError> {
        if self.index_exceeds_memory() || self.unloaded.is_some() {
            // Memory grows between turns and not under views that are held.
            let bytes = CheckpointIndex::bytes_for(self.index_len(), &self.log);
            if !self.log.can_allocate(bytes) {
                return Err(WriteError::RolledBack(Error::ViewsHeld));
            }
        }
        // A gap ends where a segment begins, so the last segment must be in the file.
        self.ensure_end_is_written()?;
        if self.log.retired_bytes() > 0 {
            self.record_gaps().map_err(WriteError::RolledBack)?;
        }
        // The records of gaps are entries too, and looking for them may have loaded the index.
        let entries = self.index_len();
        let is_limited = self.index_exceeds_memory();
        let (plan, key_run) = self.plan_key_runs(self.maintenance.is_closing);
        let Store { file, log, keyspaces, next_version, .. } = self;
        let writing = match log.begin_checkpoint(file, entries, keyspaces, *next_version, plan) {
            // Free space matters more now than opening fast.
            Err(Error::Quota | Error::Full) if log.retired_bytes() > 0 => {
                self.free_retired_without_checkpoint()?;
                return Ok(Job::Nothing);
            }
            begun => begun.map_err(WriteError::RolledBack)?,
        };
        if key_run.is_some() {
            self.begin_key_run(&writing);
        }
        let generation = self.sorted_keys.generation;
        let bits = (entries / RANGE).next_power_of_two().trailing_zeros();
        let changed = RangeChanges::new(1 << bits);
        let unloaded = match is_limited || self.unloaded.is_some() {
            true => writing.new_index(&self.log, is_limited).map(Box::new),
            false => None,
        };
        if is_limited && self.unloaded.is_none() {
            // Positions of evicted entries stay tracked.
            self.index.track_more_positions(self.log.end_position());
        }
        let job = Checkpointing { writing, bits, next: 0, changed, unloaded, key_run, generation };
        Ok(Job::Checkpointing(Box::new(job)))
    }

    /// Frees retired segments without a checkpoint, and drops the existing one with its runs.
    pub(super) fn free_retired_without_checkpoint(&mut self) -> Result<(), WriteError> {
        self.load_all().map_err(WriteError::RolledBack)?;
        self.drop_key_runs();
        self.log.free_retired_without_checkpoint(&mut self.file, self.next_version)?;
        self.unflushed = false;
        Ok(())
    }

    /// Ensures that the log ends in a segment that is in the file.
    pub(super) fn ensure_end_is_written(&mut self) -> Result<(), WriteError> {
        if !self.log.end_is_written() {
            self.log.write_witness(
                &mut self.file,
                AllocPriority::Bookkeeping,
                self.next_version,
            )?;
            self.unflushed = true;
        }
        Ok(())
    }

    fn checkpoint_step(&mut self, mut job: Box<Checkpointing>) -> Result<Job, WriteError> {
        match self.write_ranges(&mut job) {
            Ok(Written::Some) => Ok(Job::Checkpointing(job)),
            Ok(Written::All) => {
                self.unflushed = false;
                Ok(Job::Nothing)
            }
            Ok(Written::Damaged) => {
                // The index is complete now, and the next checkpoint has all of it.
                self.abandon_key_run();
                self.log.abandon_checkpoint(job.writing);
                Ok(Job::Nothing)
            }
            Err(failure) => {
                self.abandon_key_run();
                self.log.abandon_checkpoint(job.writing);
                Err(failure)
            }
        }
    }

    /// Writes some ranges of the index; ends the checkpoint after the last one.
    fn write_ranges(&mut self, job: &mut Checkpointing) -> Result<Written, WriteError> {
        let width = 1_u64 << (32 - job.bits);
        let mut written = 0;
        while written < ENTRIES_PER_STEP {
            if job.next == job.changed.ranges() {
                return self.end_checkpoint(job);
            }
            let first = (job.next as u64 * width) as u32;
            let last = (first as u64 + width - 1) as u32;
            let changed = job.changed.of(job.next);
            let mut entries = Vec::with_capacity(2 * RANGE);
            self.index.collect(first, last, &mut entries);
            if let Some(next) = &mut job.unloaded {
                next.take_all(&self.log, entries.iter().map(|entry| entry.1));
            }
            if !self.collect_unloaded((first, last), &mut entries)? {
                return Ok(Written::Damaged);
            }
            if !changed.is_empty() {
                rewind(&mut entries, &changed);
            }
            let entries = radix_sort::by_number(entries);
            written += entries.len();
            if let Some(next) = &mut job.unloaded {
                next.add_written(&entries);
            }
            // A malicious checkpoint may have the same entry twice, which counts once.
            let is_last = job.next + 1 == job.changed.ranges();
            let left = job.writing.left();
            let is_exact =
                if is_last { left == entries.len() as u64 } else { left >= entries.len() as u64 };
            if !is_exact && self.unloaded.is_some() {
                self.rebuild_index().map_err(WriteError::RolledBack)?;
                return Ok(Written::Damaged);
            }
            let added = self.log.add_entries(&mut self.file, &mut job.writing, &entries);
            added.map_err(WriteError::RolledBack)?;
            job.next += 1;
        }
        Ok(Written::Some)
    }

    /// Appends the entries from one hash to another that are not loaded. Returns false if a block of them is damaged;
    /// the index is complete then.
    fn collect_unloaded(
        &mut self,
        hashes: (u32, u32),
        entries: &mut Vec<(u32, Position)>,
    ) -> Result<bool, WriteError> {
        let Store { file, log, unloaded, .. } = self;
        let Some(unloaded) = unloaded else { return Ok(true) };
        let is_whole = unloaded.collect(file, log, hashes, entries);
        if !is_whole.map_err(WriteError::RolledBack)? {
            self.rebuild_index().map_err(WriteError::RolledBack)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Writes some of the run, or ends a checkpoint that needs no more.
    fn end_checkpoint(&mut self, job: &mut Checkpointing) -> Result<Written, WriteError> {
        if let Some(key_run) = &mut job.key_run {
            if self.write_key_run(&mut job.writing, key_run).map_err(WriteError::RolledBack)? {
                job.key_run = None;
            }
            return Ok(Written::Some);
        }
        let is_current = job.generation == self.sorted_keys.generation;
        if !is_current {
            // The order was dropped since it began.
            job.writing.drop_key_runs(&mut self.log);
        }
        self.log.end_checkpoint(&mut self.file, &mut job.writing, self.next_version)?;
        if is_current {
            self.install_key_runs(&mut job.writing);
        }
        // What is evicted from now on can be read there.
        let is_surveyed = !self.wants_index_loading();
        self.unloaded = job.unloaded.take();
        if let Some(unloaded) = &mut self.unloaded {
            job.writing.complete(unloaded, is_surveyed);
        }
        Ok(Written::All)
    }

    /// Writes a checkpoint before closing if opening would otherwise take long. The close continues
    /// without one if there is no space for it.
    pub(super) fn checkpoint_at_close(&mut self) -> Result<(), Error> {
        (self.maintenance.is_running, self.maintenance.is_closing) = (true, true);
        let done = self.write_final_checkpoint().map_err(|failure| self.fail(failure));
        if self.poisoned { done } else { Ok(()) }
    }

    #[inline(never)]
    fn write_final_checkpoint(&mut self) -> Result<(), WriteError> {
        // A checkpoint as large as the log to replay would not make opening faster.
        let segment = REPLAY_SEGMENTS_AT_CLOSE << self.log.geometry().segment_log2;
        let limit = segment.max(2 * self.index_len() as u64);
        let mut job = core::mem::take(&mut self.maintenance.job);
        if let Job::Checkpointing(begun) = &job
            && self.log.replay_bytes_after(&begun.writing) > limit
        {
            // The log has grown much since it began: a new one costs little more and leaves no tail for the
            // next opening.
            self.abandon_key_run();
            if let Job::Checkpointing(begun) = job {
                self.log.abandon_checkpoint(begun.writing);
            }
            job = Job::Nothing;
        }
        if !matches!(job, Job::Checkpointing(_)) {
            self.sort_at_close();
            let tail = self.log.replay_bytes() + self.log.replay_value_bytes();
            if tail <= limit && !self.log.checkpoint_is_damaged() && !self.wants_key_run() {
                return Ok(());
            }
            while !self.log.is_reclaimed() {
                self.reclaim_step()?;
            }
            job = self.begin_checkpoint()?;
        }
        while let Job::Checkpointing(checkpointing) = job {
            job = self.checkpoint_step(checkpointing)?;
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
            // Positions are reused, as in reclaimed segments.
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
