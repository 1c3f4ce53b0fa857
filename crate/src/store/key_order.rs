//! The keys in order: sorted once, then kept in order by each key that is added or deleted. A checkpoint writes
//! them to runs in the file, so that the next opening need not sort them. From then on memory has only
//! what changed since.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Bound;

use crate::error::{Error, damaged};
use crate::file::File;
use crate::format::LAST_KEYSPACE;
use crate::format::key_run::block::DecodedBlock;
use crate::format::key_run::{RunValue, run_key};
use crate::index::hash_index::Position;
use crate::index::keyspaces::Space;
use crate::index::ordered_index::{Key, Range};
use crate::log::Log;
use crate::log::checkpoint::{CheckpointWriter, RunPlan};
use crate::log::key_runs::{KeyRun, KeyRuns, RunCursor};
use crate::log::recovery::OnDamage;
use crate::radix_sort;

use super::{Options, Store};

/// Blocks of the checkpoint that are loaded at once before keys are sorted part by part.
const BLOCKS_PER_PART: usize = 64;
/// One step of maintenance sorts this many keys at most,
const KEYS_PER_STEP: usize = 1024;
/// or writes this many to a run.
const ENTRIES_PER_STEP: usize = 2048;
/// There are at most this many runs.
const MAX_RUNS: usize = 16;
/// So many changed keys in memory are worth a run, and with it a checkpoint.
const MAX_CHANGED: usize = 1 << 19;

/// After a commit keys are sorted at once if there are more than this many unsorted ones,
const MAX_UNSORTED: u64 = 1 << 16;
/// as many as one step of maintenance for this many bytes: more than are added.
const BYTES_PER_SORT: usize = 32 << 10;

/// So many changes of a keyspace wait at most.
const MAX_DEFERRED: usize = 1 << 14;

/// The value of `sorted` when all keys are sorted.
pub(super) const ALL: Position = Position::MAX;

/// The lower and the upper bound of a range of keys.
pub type KeyBounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The state of the keys in order.
#[derive(Debug, Default)]
pub(super) struct KeyOrder {
    /// Invariant: keys whose records lie before this position are in `spaces`' ordered keys, or all keys are
    /// there or in runs. They are sorted when first needed, at once or part by part, and kept sorted from
    /// then on.
    pub sorted: Position,
    /// The runs in the file. If there are some, all keys are sorted.
    runs: KeyRuns,
    /// How many changes may wait until they are needed, so that they are searched together.
    deferred: usize,
    /// Set when too many keys are not sorted, until all are.
    is_catching_up: bool,
    /// A database with no more keys than this is not worth a run.
    small: u64,
    /// Runs could not be written. This is not tried again in this session.
    is_paused: bool,
    /// The sequence of the run to which the frozen keys are being written; 0 if there is none.
    writing: u32,
    /// How often all of this was dropped.
    pub generation: u32,
    /// Entries on their way to a run.
    batch: DecodedBlock,
}

impl KeyOrder {
    /// Whether there are keys older than those in `space.keys`, so that deleted ones need an entry.
    #[inline]
    fn has_older_keys(&self, space: &Space) -> bool {
        !space.frozen_keys.is_empty() || self.runs.any_from(space.first_run)
    }

    /// Bytes of memory for blocks of runs.
    pub(super) fn bytes(&self) -> usize {
        self.runs.bytes()
    }

    /// A key of a keyspace was added, with a record at a position, or deleted.
    #[inline(never)]
    pub(super) fn key_changed(
        &mut self,
        space: &mut Space,
        key: &[u8],
        position: Option<Position>,
    ) {
        if space.keys.deferred() >= MAX_DEFERRED {
            space.keys.flush_deferred(self.has_older_keys(space));
        }
        space.keys.insert_deferred(key, position.unwrap_or(0));
        self.deferred += 1;
    }

    /// Whether so many changes wait that maintenance should insert them.
    pub(super) fn wants_flush(&self) -> bool {
        self.deferred >= MAX_DEFERRED / 16
    }
}

/// The run that a checkpoint in progress writes, of the keys as they were when it began.
#[derive(Debug)]
pub(super) struct RunJob {
    /// The run replaces those from this one on.
    merges: usize,
    /// The keyspaces, and which runs count for each.
    keyspaces: Vec<(u32, u32)>,
    /// The next keyspace to write, and the last key of it that was written; empty at its start.
    next: usize,
    last: Vec<u8>,
}

/// How a walk through the keys ended.
enum Walked {
    /// After all keys, or when the visitor had enough.
    Done,
    /// At a part of a run that is damaged.
    Damaged,
}

/// Keys in memory, and the next one of them.
struct MemoryCursor<'a> {
    keys: Range<'a>,
    current: Option<&'a Key>,
}

impl MemoryCursor<'_> {
    fn advance(&mut self, reverse: bool) {
        self.current = if reverse { self.keys.next_back() } else { self.keys.next() };
    }
}

/// What a walk needs of a store, and which runs count.
struct Walk<'a, F> {
    file: &'a mut F,
    log: &'a Log,
    runs: &'a mut KeyRuns,
    /// Runs from this sequence on count, of those that the range of numbers selects.
    first_run: u32,
    numbers: core::ops::Range<usize>,
}

impl<F: File> Walk<'_, F> {
    /// Calls `visit` with the keys between two bounds in order, and with the position of each one's record or,
    /// if it was deleted, none; until it returns false. Of several entries the newest counts: those in
    /// memory, the newest first, come before those of runs.
    fn each(
        self,
        keyspace: u32,
        memory: &[Range<'_>],
        (lower, upper): KeyBounds<'_>,
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], Option<Position>) -> bool,
    ) -> Result<Walked, Error> {
        let Walk { file, log, runs, first_run, numbers } = self;
        let mut memory: Vec<MemoryCursor<'_>> =
            memory.iter().map(|keys| MemoryCursor { keys: keys.clone(), current: None }).collect();
        memory.iter_mut().for_each(|cursor| cursor.advance(reverse));
        let prefix = (keyspace as u16).to_be_bytes();
        let (near, far) = if reverse { (upper, lower) } else { (lower, upper) };
        let (mut start, mut next) = (Vec::new(), Vec::new());
        run_key(keyspace, bound_key(near), &mut start);
        run_key(keyspace + 1, &[], &mut next);
        let start = match near {
            Bound::Included(_) => Bound::Included(&start[..]),
            Bound::Excluded(_) => Bound::Excluded(&start[..]),
            Bound::Unbounded if !reverse => Bound::Included(&start[..]),
            Bound::Unbounded if keyspace < LAST_KEYSPACE => Bound::Excluded(&next[..]),
            Bound::Unbounded => Bound::Unbounded,
        };
        let mut cursors: Vec<RunCursor> = Vec::new();
        for number in numbers.rev() {
            if runs.all()[number].sequence < first_run {
                break;
            }
            match runs.seek(file, log, number, start, reverse)? {
                Ok(cursor) => cursors.push(cursor),
                Err(_) => return Ok(Walked::Damaged),
            }
        }
        let is_inside = |key: &[u8]| match far {
            Bound::Unbounded => true,
            Bound::Included(end) => {
                if reverse {
                    key >= end
                } else {
                    key <= end
                }
            }
            Bound::Excluded(end) => {
                if reverse {
                    key > end
                } else {
                    key < end
                }
            }
        };
        loop {
            let mut best: Option<(&[u8], Option<Position>)> = None;
            // The cursors at that key.
            let mut at_best = 0_u32;
            let in_memory = memory.iter().map(|cursor| {
                cursor.current.map(|key| (&**key, Some(key.position).filter(|&at| at != 0)))
            });
            let in_runs = cursors.iter().map(|cursor| {
                let (key, value) = cursor.current()?;
                let position = match value {
                    RunValue::Record(position) => Some(position),
                    _ => None,
                };
                Some((key.strip_prefix(&prefix)?, position)).filter(|(key, _)| is_inside(key))
            });
            for (i, one) in in_memory.chain(in_runs).enumerate() {
                let Some((key, position)) = one else { continue };
                let order = best.map_or(Ordering::Less, |(other, _)| key.cmp(other));
                let is_before = order == if reverse { Ordering::Greater } else { Ordering::Less };
                if best.is_none() || is_before {
                    (best, at_best) = (Some((key, position)), 1 << i);
                } else if order == Ordering::Equal {
                    at_best |= 1 << i;
                }
            }
            let Some((key, position)) = best else { return Ok(Walked::Done) };
            if !visit(key, position) {
                return Ok(Walked::Done);
            }
            for (i, cursor) in memory.iter_mut().enumerate() {
                if at_best & 1 << i != 0 {
                    cursor.advance(reverse);
                }
            }
            for (i, cursor) in (memory.len()..).zip(&mut cursors) {
                if at_best & 1 << i != 0 && cursor.advance(runs, file, log)?.is_err() {
                    return Ok(Walked::Damaged);
                }
            }
        }
    }
}

fn bound_key(bound: Bound<&[u8]>) -> &[u8] {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    }
}

impl<F: File> Store<F> {
    /// Returns the keys of a keyspace in byte order.
    ///
    /// # Errors
    /// As for [`range`](Store::range).
    pub fn keys(&mut self, keyspace: u32) -> Result<Vec<Vec<u8>>, Error> {
        let mut keys = Vec::new();
        self.range(keyspace, (Bound::Unbounded, Bound::Unbounded), false, |key, _| {
            keys.push(key.to_vec());
            true
        })?;
        Ok(keys)
    }

    /// Passes the keys between two bounds to `visit`, in order, until it returns false; with each key where its
    /// record was when this was last known, or 0. No record is read, unless keys have to be sorted first.
    ///
    /// # Errors
    /// [`Error::PointsOnly`] when the store was opened without order; an error of the file; as for
    /// [`get`](Store::get) when keys have to be sorted.
    pub fn range(
        &mut self,
        keyspace: u32,
        bounds: KeyBounds<'_>,
        reverse: bool,
        mut visit: impl FnMut(&[u8], Position) -> bool,
    ) -> Result<(), Error> {
        self.visit_range(keyspace, bounds, reverse, &mut visit)
    }

    #[inline(never)]
    fn visit_range(
        &mut self,
        keyspace: u32,
        bounds: KeyBounds<'_>,
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], Position) -> bool,
    ) -> Result<(), Error> {
        if !self.ordered {
            return Err(Error::PointsOnly);
        }
        self.sort(ALL)?;
        if let Some(mut keys) = self.keys_in_memory(keyspace, bounds) {
            while let Some(key) = if reverse { keys.next_back() } else { keys.next() } {
                if key.position != 0 && !visit(key, key.position) {
                    break;
                }
            }
            return Ok(());
        }
        let mut last = Vec::new();
        loop {
            // After a run was found damaged, this goes on behind the last key.
            let from: Vec<u8> = last.clone();
            let behind = Bound::Excluded(&from[..]);
            let bounds = match (from.is_empty(), reverse) {
                (true, _) => bounds,
                (_, false) => (behind, bounds.1),
                (_, true) => (bounds.0, behind),
            };
            let walked = self.walk(keyspace, bounds, reverse, &mut |key, position| {
                last.clear();
                last.extend_from_slice(key);
                position.is_none_or(|position| visit(key, position))
            })?;
            if let Walked::Done = walked {
                return Ok(());
            }
            self.drop_damaged_runs();
            self.sort(ALL)?;
        }
    }

    /// The number of keys between two bounds. No record is read, unless keys have to be sorted first.
    ///
    /// # Errors
    /// As for [`range`](Store::range).
    pub fn count_range(&mut self, keyspace: u32, bounds: KeyBounds<'_>) -> Result<u64, Error> {
        if !self.ordered {
            return Err(Error::PointsOnly);
        }
        if bounds == (Bound::Unbounded, Bound::Unbounded) {
            return Ok(self.count(keyspace));
        }
        self.sort(ALL)?;
        let has_deleted = self.spaces.get(keyspace).is_some_and(|space| space.keys.deleted() > 0);
        match self.keys_in_memory(keyspace, bounds) {
            Some(keys) if !has_deleted => Ok(keys.remaining() as u64),
            _ => {
                let mut count = 0;
                self.range(keyspace, bounds, false, |_, _| {
                    count += 1;
                    true
                })?;
                Ok(count)
            }
        }
    }

    /// The keys between two bounds if they are all in memory, with entries of deleted ones.
    fn keys_in_memory(&self, keyspace: u32, (lower, upper): KeyBounds<'_>) -> Option<Range<'_>> {
        match self.spaces.get(keyspace) {
            Some(space) if self.order.has_older_keys(space) => None,
            Some(space) => Some(space.keys.range(lower, upper)),
            None => Some(Range::default()),
        }
    }

    fn walk(
        &mut self,
        keyspace: u32,
        (lower, upper): KeyBounds<'_>,
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], Option<Position>) -> bool,
    ) -> Result<Walked, Error> {
        let Store { file, log, spaces, order, .. } = self;
        let Some(space) = spaces.get(keyspace) else { return Ok(Walked::Done) };
        let mut memory = [space.keys.range(lower, upper), Range::default()];
        // A keyspace that was cleared since the keys were frozen has none of them any more.
        if order.writing >= space.first_run {
            memory[1] = space.frozen_keys.range(lower, upper);
        }
        let numbers = 0..order.runs.all().len();
        let runs = &mut order.runs;
        let walk = Walk { file, log, runs, first_run: space.first_run, numbers };
        walk.each(keyspace, &memory, (lower, upper), reverse, visit)
    }

    // ---------------------------------------------------------------- opening and dropping

    /// Takes over the runs that the checkpoint names, if there is one.
    pub(super) fn load_order(
        &mut self,
        has_checkpoint: bool,
        runs: Option<Vec<KeyRun>>,
        options: &Options,
    ) {
        self.order.small = options.load_at_once as u64 / 4;
        if has_checkpoint && runs.is_none() {
            self.log.mark_checkpoint_damaged();
        }
        let is_used = options.ordered && options.on_damage == OnDamage::Refuse;
        let runs = runs.filter(|_| is_used).unwrap_or_default();
        self.order.runs = KeyRuns::new(runs, options.memory);
        self.log.retire_unnamed_runs(&self.order.runs);
        if !self.order.runs.is_empty() {
            self.order.sorted = ALL;
        }
    }

    /// The runs in the file are not needed any more: there is no space for a checkpoint.
    pub(super) fn drop_runs(&mut self) {
        if !self.order.runs.is_empty() {
            self.forget_order();
        }
    }

    /// Drops all that is known of the order. Keys are sorted again when that is needed.
    pub(super) fn forget_order(&mut self) {
        let order = &mut self.order;
        (order.sorted, order.writing, order.deferred) = (0, 0, 0);
        order.runs = KeyRuns::default();
        order.generation += 1;
        self.spaces.forget_order();
    }

    #[cold]
    fn drop_damaged_runs(&mut self) {
        self.forget_order();
        self.log.mark_checkpoint_damaged();
    }

    // ---------------------------------------------------------------- sorting

    /// Sorts keys, once; from then on the order is maintained with each new and deleted key. Works through
    /// the segments of this many positions in the order of the file, so that a database larger than memory
    /// is read once. Returns whether all keys are sorted.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn sort(&mut self, positions: u32) -> Result<bool, Error> {
        self.flush_order();
        if self.order.sorted == ALL {
            return Ok(true);
        }
        if self.wants_index() {
            let blocks = if positions == ALL { usize::MAX } else { BLOCKS_PER_PART };
            if self.know_positions(blocks)? {
                return Ok(false);
            }
        }
        self.index.track_positions();
        let end = self.order.sorted.saturating_add(positions);
        let mut outcome = Ok(());
        while outcome.is_ok() && self.order.sorted < end {
            outcome = self.sort_segment(usize::MAX);
        }
        self.spaces.flush_deferred(|_| false);
        outcome.map(|()| self.order.sorted == ALL)
    }

    /// Inserts changes that were deferred.
    #[inline]
    pub(super) fn flush_order(&mut self) {
        let Store { order, spaces, .. } = self;
        if core::mem::take(&mut order.deferred) > 0 {
            spaces.flush_deferred(|space| order.has_older_keys(space));
        }
    }

    /// Whether maintenance should sort keys, to write them to a run.
    pub(super) fn wants_order(&self) -> bool {
        self.ordered
            && self.order.sorted != ALL
            && self.has_space_for_runs()
            && !self.wants_index()
            && self.live_keys() > self.order.small
    }

    /// How many keys are not sorted, while none are in runs.
    fn unsorted(&self) -> u64 {
        self.live_keys().saturating_sub(self.spaces.ordered_len() as u64)
    }

    /// Sorts some keys after a commit of this many bytes, where the time between turns did not suffice.
    pub(super) fn catch_up_order(&mut self, bytes: usize) {
        if bytes == 0 || !self.wants_order() {
            return;
        }
        self.order.is_catching_up |= self.unsorted() > MAX_UNSORTED;
        if !self.order.is_catching_up {
            return;
        }
        for _ in 0..bytes.div_ceil(BYTES_PER_SORT) {
            // An error comes again where keys are needed.
            if self.sort_step().is_err() || self.order.sorted == ALL {
                self.order.is_catching_up = false;
                return;
            }
        }
    }

    /// Whether more keys changed in memory than should wait for the time between turns.
    pub(super) fn is_order_behind(&self) -> bool {
        self.order.sorted == ALL && self.spaces.ordered_len() > MAX_CHANGED + MAX_CHANGED / 2
    }

    /// Sorts the rest of the keys before a close, unless they are so many that it would take long.
    pub(super) fn sort_at_close(&mut self) {
        if self.wants_order() && self.unsorted() <= 2 * MAX_UNSORTED {
            // Without the order, closing goes on as well.
            let _ = self.sort(ALL);
        }
    }

    fn live_keys(&self) -> u64 {
        self.spaces.counts().map(|(_, count)| count).sum()
    }

    /// One step of maintenance: sorts some keys.
    pub(super) fn sort_step(&mut self) -> Result<(), Error> {
        self.index.track_positions();
        let sorted = self.sort_segment(KEYS_PER_STEP);
        self.spaces.flush_deferred(|_| false);
        sorted
    }

    /// Sorts the keys of the next segment, as many as are wanted.
    fn sort_segment(&mut self, wanted: usize) -> Result<(), Error> {
        let geometry = self.log.geometry();
        let (slot, _) = geometry.locate(self.order.sorted);
        let mut left = wanted;
        for position in self.live_records_in(slot)? {
            if position < self.order.sorted {
                continue;
            }
            self.order.sorted = position;
            if left == 0 {
                return Ok(());
            }
            left -= 1;
            let (_, record) = self.log.scan_record(&mut self.file, position)?;
            let (keyspace, version) = (record.header.space(), record.header.version);
            if self.clears.any && self.spaces.has_cleared(keyspace, version) {
                continue;
            }
            self.spaces.entry(keyspace).keys.insert_deferred(record.key, position);
        }
        let is_last = slot + 1 >= self.log.slot_count();
        self.order.sorted = if is_last { ALL } else { geometry.position(slot + 1, 0) };
        Ok(())
    }

    /// Positions of the index entries in a slot, in order.
    fn live_records_in(&mut self, slot: u32) -> Result<Vec<Position>, Error> {
        let geometry = self.log.geometry();
        let (first, all) = (geometry.position(slot, 0), geometry.positions());
        let count = self.index.count_positions(first, all);
        let mut live = Vec::with_capacity(count);
        if count == 0 {
            return Ok(live);
        }
        self.log.load_valid_segment(&mut self.file, slot)?;
        self.log.each_record(slot, |position| {
            if self.index.contains_position(position) {
                live.push(position);
            }
        });
        if live.len() != count {
            // Records outside complete frames, or of the open batch, are known only to the index.
            let is_in = |&position: &Position| position.wrapping_sub(first) < all;
            let positions = self.index.positions().filter(is_in).chain(live);
            let sorted = radix_sort::by_number(positions.map(|at| (at, at)).collect());
            live = sorted.into_iter().map(|(position, _)| position).collect();
            live.dedup();
            if live.len() < count {
                // An entry that is not loaded is of a record that is not there.
                return Err(damaged(geometry.slot_start(slot)));
            }
        }
        Ok(live)
    }

    // ---------------------------------------------------------------- runs

    /// Whether a checkpoint is worth its flushes because the next opening would have to sort all keys, or
    /// because many changed keys are in memory.
    pub(super) fn wants_run(&self) -> bool {
        let order = &self.order;
        let is_ready = self.ordered && order.sorted == ALL && self.has_space_for_runs();
        is_ready
            && (order.runs.is_empty() && self.live_keys() > order.small
                || self.spaces.ordered_len() > MAX_CHANGED)
    }

    /// On a full disk the last slots are for data, and for deleting it.
    fn has_space_for_runs(&self) -> bool {
        !self.order.is_paused && !self.log.is_full()
    }

    /// Whether a checkpoint keeps the order of keys in runs.
    fn has_runs(&self) -> bool {
        let order = &self.order;
        let is_ready = self.ordered && order.sorted == ALL && self.has_space_for_runs();
        // Half of it, so that they do not come and go.
        let most = if order.runs.is_empty() { order.small } else { order.small / 2 };
        is_ready && self.live_keys() > most
    }

    /// Decides which runs the next checkpoint keeps and whether it writes a new one, for which changed keys are set
    /// aside. The new run is merged with those before it that have no more entries, so that sizes double from run to
    /// run, and with one of a single segment. All are written again if they could move towards the front of
    /// the file, or if most of their entries are of deleted keys. A close leaves larger merges to the next
    /// session.
    pub(super) fn plan_runs(&mut self, is_closing: bool) -> (RunPlan, Option<RunJob>) {
        if !self.has_runs() {
            self.drop_runs();
            return Default::default();
        }
        self.flush_order();
        let mut kept = self.order.runs.all().to_vec();
        let changed = self.spaces.ordered_len();
        let written: u64 = kept.iter().map(|run| run.entries).sum();
        let is_stale = written / 2 > self.live_keys().saturating_add(self.order.small);
        let moves = !is_closing && (is_stale || self.log.runs_can_move_forward());
        if changed == 0 && !moves {
            return (RunPlan { kept, new_segments: None }, None);
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
        let bytes = 4 * (self.spaces.key_bytes() + 32 * changed);
        let new_segments = 4 * merged + (bytes >> self.log.geometry().segment_log2) + MAX_RUNS;
        let keyspaces = self.spaces.iter().map(|(id, space)| (id, space.first_run)).collect();
        let job = RunJob { merges, keyspaces, next: 0, last: Vec::new() };
        (RunPlan { kept, new_segments: Some(new_segments) }, Some(job))
    }

    /// The run of a checkpoint begins: changes from here on are not part of it.
    pub(super) fn begin_run(&mut self, writing: &CheckpointWriter) {
        self.order.writing = writing.run_sequence();
        self.spaces.freeze_keys();
    }

    /// Writes some entries of the run; returns whether it is complete. A run that cannot be written is left out,
    /// and with it all others.
    ///
    /// # Errors
    /// An error of the file other than a lack of space.
    pub(super) fn write_run(
        &mut self,
        writing: &mut CheckpointWriter,
        job: &mut RunJob,
    ) -> Result<bool, Error> {
        if self.order.writing == 0 {
            // The order was dropped meanwhile.
            writing.drop_runs(&mut self.log);
            return Ok(true);
        }
        match self.write_entries(writing, job) {
            Err(Error::Quota | Error::Full) => self.order.is_paused = true,
            Ok(Walked::Damaged) => self.log.mark_checkpoint_damaged(),
            Ok(Walked::Done) => return Ok(job.next == job.keyspaces.len()),
            Err(error) => return Err(error),
        }
        writing.drop_runs(&mut self.log);
        self.forget_order();
        Ok(true)
    }

    fn write_entries(
        &mut self,
        writing: &mut CheckpointWriter,
        job: &mut RunJob,
    ) -> Result<Walked, Error> {
        let mut batch = core::mem::take(&mut self.order.batch);
        batch.clear();
        let walked = self.collect_entries(job, &mut batch);
        let mut written = Ok(());
        if let (Some(run), Ok(Walked::Done)) = (&mut writing.run, &walked) {
            for at in 0..batch.len() {
                written = run.add(&mut self.log, &mut self.file, batch.key(at), batch.value(at));
                if written.is_err() {
                    break;
                }
            }
        }
        self.order.batch = batch;
        written?;
        if job.next == job.keyspaces.len() {
            writing.end_run(&mut self.log, &mut self.file)?;
        }
        walked
    }

    /// Collects the next entries of the run.
    fn collect_entries(
        &mut self,
        job: &mut RunJob,
        batch: &mut DecodedBlock,
    ) -> Result<Walked, Error> {
        let Store { file, log, spaces, order, .. } = self;
        // There is nothing below that a deleted key has to hide.
        let keeps_deleted = job.merges > 0;
        while let Some(&(keyspace, first_run)) = job.keyspaces.get(job.next) {
            let after = match job.last.is_empty() {
                true => Bound::Unbounded,
                false => Bound::Excluded(&job.last[..]),
            };
            let frozen = spaces.get(keyspace).map(|space| &space.frozen_keys);
            let memory = frozen.map(|keys| keys.range(after, Bound::Unbounded));
            let numbers = job.merges..order.runs.all().len();
            let walk = Walk { file, log, runs: &mut order.runs, first_run, numbers };
            let bounds = (after, Bound::Unbounded);
            let walked =
                walk.each(keyspace, memory.as_slice(), bounds, false, &mut |key, position| {
                    let value = position.map_or(RunValue::Deleted, RunValue::Record);
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
    pub(super) fn install_runs(&mut self, writing: &mut CheckpointWriter) {
        self.order.runs = KeyRuns::new(writing.take_runs(), self.log.budget());
        if core::mem::take(&mut self.order.writing) > 0 {
            let written: Vec<_> = self.spaces.take_frozen().collect();
            self.free_later(written.into_iter());
        }
    }

    /// The checkpoint was abandoned: its keys are changes again.
    pub(super) fn abandon_run(&mut self) {
        self.flush_order();
        let run = core::mem::take(&mut self.order.writing);
        if run > 0 {
            self.spaces.unfreeze_keys(run);
        }
    }

    /// Bytes of memory for blocks of runs that the next ranges may take.
    pub(super) fn run_reserve(&self) -> usize {
        self.order.runs.bytes_to_grow()
    }
}
