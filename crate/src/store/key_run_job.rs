//! Writing changed keys to an immutable sorted run in the file, merged with older runs, as a part of a checkpoint.

use alloc::vec::Vec;
use core::ops::Bound;

use crate::error::Error;
use crate::file::File;
use crate::format::key_run::KeyRunValue;
use crate::format::key_run::block::DecodedBlock;
use crate::log::checkpoint::{CheckpointWriter, KeyRunPlan};
use crate::log::key_runs::KeyRuns;

use super::Store;
use super::key_range::{Walk, Walked};
use super::sorted_keys::MAX_CHANGED;

/// One step of maintenance writes this many entries to a run at most.
const ENTRIES_PER_STEP: usize = 2048;
/// There are at most this many runs.
const MAX_RUNS: usize = 16;

/// The run that a checkpoint in progress writes, of the keys as they were when it began.
#[derive(Debug)]
pub(super) struct KeyRunJob {
    /// The run replaces those from this one on.
    merges: usize,
    /// The keyspaces, and which runs count for each.
    keyspaces: Vec<(u32, u32)>,
    /// The next keyspace to write, and the last key of it that was written; empty at its start.
    next: usize,
    last: Vec<u8>,
}

impl<F: File> Store<F> {
    /// Whether a checkpoint is worth its flushes because the next opening would have to sort all keys, or
    /// because many changed keys are in memory.
    pub(super) fn wants_key_run(&self) -> bool {
        let sorted_keys = &self.sorted_keys;
        let is_ready = self.ordered && sorted_keys.is_complete() && self.has_space_for_key_runs();
        is_ready
            && (sorted_keys.runs.is_empty() && self.live_keys() > sorted_keys.max_keys_without_run
                || self.keyspaces.ordered_len() > MAX_CHANGED)
    }

    /// On a full disk the last slots are for data, and for deleting it.
    pub(super) fn has_space_for_key_runs(&self) -> bool {
        !self.sorted_keys.cannot_write_runs && !self.log.is_full()
    }

    /// Whether a checkpoint keeps the order of keys in runs.
    fn keeps_key_runs(&self) -> bool {
        let sorted_keys = &self.sorted_keys;
        let is_ready = self.ordered && sorted_keys.is_complete() && self.has_space_for_key_runs();
        // Half of it, so that they do not come and go.
        let most = if sorted_keys.runs.is_empty() {
            sorted_keys.max_keys_without_run
        } else {
            sorted_keys.max_keys_without_run / 2
        };
        is_ready && self.live_keys() > most
    }

    /// Decides which runs the next checkpoint keeps and whether it writes a new one, for which changed keys are set
    /// aside. The new run is merged with those before it that have no more entries, so that sizes double from run to
    /// run, and with one of a single segment. All are written again if they could move towards the front of
    /// the file, or if most of their entries are of deleted keys. A close leaves larger merges to the next
    /// session.
    pub(super) fn plan_key_runs(&mut self, is_closing: bool) -> (KeyRunPlan, Option<KeyRunJob>) {
        if !self.keeps_key_runs() {
            self.drop_key_runs();
            return Default::default();
        }
        self.apply_deferred_keys();
        let mut kept = self.sorted_keys.runs.all().to_vec();
        let changed = self.keyspaces.ordered_len();
        let written: u64 = kept.iter().map(|run| run.entries).sum();
        let is_stale =
            written / 2 > self.live_keys().saturating_add(self.sorted_keys.max_keys_without_run);
        let moves = !is_closing && (is_stale || self.log.key_runs_can_move_forward());
        if changed == 0 && !moves {
            return (KeyRunPlan { kept, new_segments: None }, None);
        }
        let (mut merges, mut entries) = (kept.len(), changed as u64);
        while let Some(before) = merges.checked_sub(1)
            && (moves
                || merges >= MAX_RUNS
                || kept[before].segments.len() == 1
                || !is_closing && kept[before].entries <= entries)
        {
            entries = entries.saturating_add(kept[before].entries);
            merges = before;
        }
        let merged: usize = kept.drain(merges..).map(|run| run.segments.len()).sum();
        // Keys that are in another order may share fewer bytes with those before them.
        let bytes = 4 * (self.keyspaces.key_bytes() + 32 * changed);
        let new_segments = 4 * merged + (bytes >> self.log.geometry().segment_log2) + MAX_RUNS;
        let keyspaces = self.keyspaces.iter().map(|(id, space)| (id, space.first_run)).collect();
        let job = KeyRunJob { merges, keyspaces, next: 0, last: Vec::new() };
        (KeyRunPlan { kept, new_segments: Some(new_segments) }, Some(job))
    }

    /// The run of a checkpoint begins: changes from here on are not part of it.
    pub(super) fn begin_key_run(&mut self, writing: &CheckpointWriter) {
        self.sorted_keys.writing_run = writing.run_sequence();
        self.keyspaces.freeze_keys();
    }

    /// Writes some entries of the run; returns whether it is complete. A run that cannot be written is left out,
    /// and with it all others.
    ///
    /// # Errors
    /// An error of the file other than a lack of space.
    pub(super) fn write_key_run(
        &mut self,
        writing: &mut CheckpointWriter,
        job: &mut KeyRunJob,
    ) -> Result<bool, Error> {
        if self.sorted_keys.writing_run == 0 {
            // The order was dropped meanwhile.
            writing.drop_key_runs(&mut self.log);
            return Ok(true);
        }
        match self.write_entries(writing, job) {
            Err(Error::Quota | Error::Full) => self.sorted_keys.cannot_write_runs = true,
            Ok(Walked::Damaged) => self.log.mark_checkpoint_damaged(),
            Ok(Walked::Done) => return Ok(job.next == job.keyspaces.len()),
            Err(error) => return Err(error),
        }
        writing.drop_key_runs(&mut self.log);
        self.forget_sorted_keys();
        Ok(true)
    }

    fn write_entries(
        &mut self,
        writing: &mut CheckpointWriter,
        job: &mut KeyRunJob,
    ) -> Result<Walked, Error> {
        let mut batch = core::mem::take(&mut self.sorted_keys.batch);
        batch.clear();
        let walked = self.collect_entries(job, &mut batch);
        let mut written = Ok(());
        if let (Some(run), Ok(Walked::Done)) = (&mut writing.key_run, &walked) {
            for at in 0..batch.len() {
                written = run.add(&mut self.log, &mut self.file, batch.key(at), batch.value(at));
                if written.is_err() {
                    break;
                }
            }
        }
        self.sorted_keys.batch = batch;
        written?;
        if job.next == job.keyspaces.len() {
            writing.end_key_run(&mut self.log, &mut self.file)?;
        }
        walked
    }

    /// Collects the next entries of the run.
    fn collect_entries(
        &mut self,
        job: &mut KeyRunJob,
        batch: &mut DecodedBlock,
    ) -> Result<Walked, Error> {
        let Store { file, log, keyspaces, sorted_keys, .. } = self;
        // There is nothing below that a deleted key has to hide.
        let keeps_deleted = job.merges > 0;
        while let Some(&(keyspace, first_run)) = job.keyspaces.get(job.next) {
            let after = match job.last.is_empty() {
                true => Bound::Unbounded,
                false => Bound::Excluded(&job.last[..]),
            };
            let frozen = keyspaces.get(keyspace).map(|space| &space.frozen_keys);
            let memory = frozen.map(|keys| keys.range(after, Bound::Unbounded));
            let numbers = job.merges..sorted_keys.runs.all().len();
            let walk = Walk { file, log, runs: &mut sorted_keys.runs, first_run, numbers };
            let bounds = (after, Bound::Unbounded);
            let walked =
                walk.each(keyspace, memory.as_slice(), bounds, false, &mut |key, position| {
                    let value = position.map_or(KeyRunValue::Deleted, KeyRunValue::Record);
                    if position.is_some() || keeps_deleted {
                        batch.push(keyspace, key, value);
                    }
                    batch.len() < ENTRIES_PER_STEP
                })?;
            if let Walked::Damaged = walked {
                return Ok(walked);
            }
            if batch.len() >= ENTRIES_PER_STEP {
                job.last.clear();
                job.last.extend_from_slice(&batch.key(batch.len() - 1)[2..]);
                break;
            }
            job.last.clear();
            job.next += 1;
        }
        Ok(Walked::Done)
    }

    /// The checkpoint is complete: its runs are the current ones.
    pub(super) fn install_key_runs(&mut self, writing: &mut CheckpointWriter) {
        self.sorted_keys.runs = KeyRuns::new(writing.take_runs(), self.log.budget());
        if core::mem::take(&mut self.sorted_keys.writing_run) > 0 {
            let written: Vec<_> = self.keyspaces.take_frozen().collect();
            self.free_later(written.into_iter());
        }
    }

    /// The checkpoint was abandoned: its keys are changes again.
    pub(super) fn abandon_key_run(&mut self) {
        self.apply_deferred_keys();
        let run = core::mem::take(&mut self.sorted_keys.writing_run);
        if run > 0 {
            self.keyspaces.unfreeze_keys(run);
        }
    }

    /// Bytes of memory for blocks of runs that the next ranges may take.
    pub(super) fn key_run_reserve(&self) -> usize {
        self.sorted_keys.runs.bytes_to_grow()
    }
}
