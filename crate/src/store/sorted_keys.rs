//! The keys in order: sorted once, then kept in order by each key that is added or deleted. A checkpoint writes
//! them to runs in the file, so that the next opening need not sort them. From then on memory has only
//! what changed since.

use alloc::vec::Vec;

use crate::error::{Error, damaged};
use crate::file::File;
use crate::format::key_run::block::DecodedBlock;
use crate::index::Position;
use crate::index::keyspaces::Keyspace;
use crate::index::ordered_index::OrderedKeys;
use crate::log::key_runs::{KeyRun, KeyRuns};
use crate::log::recovery::OnDamage;
use crate::radix_sort;

use super::{Options, Store};

/// Blocks of the checkpoint that are loaded at once before keys are sorted part by part.
const BLOCKS_PER_PART: usize = 64;
/// One step of maintenance sorts this many keys at most.
const KEYS_PER_STEP: usize = 1024;
/// So many changed keys in memory are worth a run, and with it a checkpoint.
pub(super) const MAX_CHANGED: usize = 1 << 19;

/// With more unsorted keys than this, commits sort some themselves.
const MAX_UNSORTED: u64 = 1 << 16;
/// A commit then sorts as many keys as one step of maintenance for each of so many bytes: more than it added.
const BYTES_PER_SORT: usize = 32 << 10;

/// So many changes of a keyspace wait at most.
const MAX_DEFERRED: usize = 1 << 14;

/// The value of `sorted_below` when all keys are sorted.
pub(super) const ALL_SORTED: Position = Position::MAX;

/// How far the keys are sorted, and the runs of sorted keys in the file.
#[derive(Debug, Default)]
pub(super) struct SortedKeys {
    /// Invariant: keys whose records lie before this position are in `keyspaces`, in their ordered keys, or all keys are
    /// there or in runs, except for those in `unreadable`. They are sorted when first needed, at once or part by part, and
    /// kept sorted from then on.
    pub sorted_below: Position,
    /// Damaged records, in the order of the file. Their keys are missing in the order of keys.
    pub unreadable: Vec<Position>,
    /// The runs in the file. If there are some, all keys are sorted.
    pub runs: KeyRuns,
    /// How many changes may wait until they are needed, so that they are searched together.
    deferred: usize,
    /// Set when too many keys are not sorted, until all are.
    is_catching_up: bool,
    /// A database with no more keys than this is not worth a run.
    pub max_keys_without_run: u64,
    /// Runs could not be written. This is not tried again in this session.
    pub cannot_write_runs: bool,
    /// The sequence of the run to which the frozen keys are being written; 0 if there is none.
    pub writing_run: u32,
    /// How often all of this was dropped.
    pub generation: u32,
    /// Entries on their way to a run.
    pub batch: DecodedBlock,
}

impl SortedKeys {
    /// Whether there are keys older than those in `space.keys`, so that deleted ones need an entry.
    #[inline]
    pub(super) fn has_older_keys(&self, space: &Keyspace) -> bool {
        !space.frozen_keys.is_empty() || self.runs.any_from(space.first_run)
    }

    /// A record was replaced or deleted. Returns whether its key was missing in the order.
    #[cold]
    pub(super) fn forget_unreadable(&mut self, position: Position) -> bool {
        let found = self.unreadable.binary_search(&position);
        found.map(|at| self.unreadable.remove(at)).is_ok()
    }

    /// Whether every key is in the order.
    pub(super) fn is_complete(&self) -> bool {
        self.sorted_below == ALL_SORTED && self.unreadable.is_empty()
    }

    /// Bytes of memory for blocks of runs.
    pub(super) fn bytes(&self) -> usize {
        self.runs.bytes()
    }

    /// A key of a keyspace was added, with a record at a position, or deleted.
    #[inline(never)]
    pub(super) fn key_changed(
        &mut self,
        space: &mut Keyspace,
        key: &[u8],
        position: Option<Position>,
    ) {
        if space.keys.deferred() >= MAX_DEFERRED {
            space.keys.apply_deferred(self.has_older_keys(space));
        }
        space.keys.defer_insert(key, position.unwrap_or(0));
        self.deferred += 1;
    }

    /// Whether so many changes wait that maintenance should insert them.
    pub(super) fn has_many_deferred(&self) -> bool {
        self.deferred >= MAX_DEFERRED / 16
    }
}

impl<F: File> Store<F> {
    /// Takes over the runs that the checkpoint refers to, if there is one.
    pub(super) fn load_key_runs(
        &mut self,
        has_checkpoint: bool,
        runs: Option<Vec<KeyRun>>,
        options: &Options,
    ) {
        self.sorted_keys.max_keys_without_run = options.load_at_once as u64 / 4;
        if has_checkpoint && runs.is_none() {
            self.log.mark_checkpoint_damaged();
        }
        // What the checkpoint lists, used or not, stays until the next one: an opening believes that it exists.
        match &runs {
            Some(runs) => self.log.discard_unreferenced_key_runs(runs),
            None if has_checkpoint => {}
            None => self.log.discard_unreferenced_key_runs(&[]),
        }
        let is_used = options.ordered && options.on_damage == OnDamage::Refuse;
        let runs = runs.filter(|_| is_used).unwrap_or_default();
        self.sorted_keys.runs = KeyRuns::new(runs, options.memory);
        if !self.sorted_keys.runs.is_empty() {
            self.sorted_keys.sorted_below = ALL_SORTED;
        }
    }

    /// The runs in the file are not needed any more: there is no space for a checkpoint.
    pub(super) fn drop_key_runs(&mut self) {
        if !self.sorted_keys.runs.is_empty() {
            self.forget_sorted_keys();
        }
    }

    /// Drops the sorted keys and their runs. Keys are sorted again when that is needed.
    pub(super) fn forget_sorted_keys(&mut self) {
        let sorted_keys = &mut self.sorted_keys;
        (sorted_keys.sorted_below, sorted_keys.writing_run, sorted_keys.deferred) = (0, 0, 0);
        sorted_keys.runs = KeyRuns::default();
        sorted_keys.unreadable = Vec::new();
        sorted_keys.generation += 1;
        self.keyspaces.forget_sorted_keys();
    }

    #[cold]
    pub(super) fn drop_damaged_key_runs(&mut self) {
        self.forget_sorted_keys();
        self.log.mark_checkpoint_damaged();
    }

    // ---------------------------------------------------------------- sorting

    /// Sorts keys, once; from then on the order is maintained with each new and deleted key. Works through
    /// the segments of this many positions in the order of the file, so that a database larger than memory
    /// is read once. Returns whether all keys are sorted.
    ///
    /// # Errors
    /// As for [`get`](Store::get); [`Error::ViewsHeld`] if memory would have to grow and a view must stay valid.
    pub fn sort(&mut self, positions: u32) -> Result<bool, Error> {
        let is_sorted = self.sort_readable(positions)?;
        if is_sorted && !self.sorted_keys.unreadable.is_empty() {
            self.sort_unreadable()?;
        }
        Ok(is_sorted)
    }

    /// As [`sort`](Store::sort), without those keys that cannot be read because of damage.
    pub(super) fn sort_readable(&mut self, positions: u32) -> Result<bool, Error> {
        if self.sorted_keys.deferred > 0 {
            self.check_memory_for_keys(self.sorted_keys.deferred)?;
            self.apply_deferred_keys();
        }
        if self.sorted_keys.sorted_below == ALL_SORTED {
            return Ok(true);
        }
        if self.wants_index_loading() {
            let blocks = if positions == ALL_SORTED { usize::MAX } else { BLOCKS_PER_PART };
            if self.load_or_survey(blocks)? {
                return Ok(false);
            }
        }
        self.index.track_positions();
        let end = self.sorted_keys.sorted_below.saturating_add(positions);
        let mut outcome = Ok(());
        while outcome.is_ok() && self.sorted_keys.sorted_below < end {
            let left = self.unsorted() as usize;
            outcome = self.check_memory_for_keys(left).and_then(|()| self.sort_segment(usize::MAX));
        }
        self.keyspaces.apply_deferred(|_| false);
        outcome.map(|()| self.sorted_keys.sorted_below == ALL_SORTED)
    }

    /// Reads again what could not be read before, up to the first record that still cannot.
    #[cold]
    fn sort_unreadable(&mut self) -> Result<(), Error> {
        let mut outcome = Ok(());
        while let Some(&position) = self.sorted_keys.unreadable.last()
            && outcome.is_ok()
        {
            outcome = self.sort_record(position);
            if outcome.is_ok() {
                self.sorted_keys.unreadable.pop();
            }
        }
        self.keyspaces.apply_deferred(|_| false);
        outcome
    }

    /// Refuses to insert this many keys if memory would have to grow and a view must stay valid.
    fn check_memory_for_keys(&self, count: usize) -> Result<(), Error> {
        let bytes = OrderedKeys::bytes_to_insert(count);
        if self.log.can_allocate_chunks(bytes) { Ok(()) } else { Err(Error::ViewsHeld) }
    }

    /// Inserts changes that were deferred.
    #[inline]
    pub(super) fn apply_deferred_keys(&mut self) {
        let Store { sorted_keys, keyspaces, .. } = self;
        if core::mem::take(&mut sorted_keys.deferred) > 0 {
            keyspaces.apply_deferred(|space| sorted_keys.has_older_keys(space));
        }
    }

    /// Whether maintenance should sort keys, to write them to a run.
    pub(super) fn wants_sorting(&self) -> bool {
        self.ordered
            && self.sorted_keys.sorted_below != ALL_SORTED
            && self.has_space_for_key_runs()
            && !self.wants_index_loading()
            && self.live_keys() > self.sorted_keys.max_keys_without_run
    }

    /// How many keys are not sorted, while none are in runs.
    fn unsorted(&self) -> u64 {
        self.live_keys().saturating_sub(self.keyspaces.ordered_len() as u64)
    }

    /// Sorts some keys after a commit of this many bytes, where the time between turns did not suffice.
    pub(super) fn catch_up_sorting(&mut self, bytes: usize) {
        if bytes == 0 || !self.wants_sorting() {
            return;
        }
        self.sorted_keys.is_catching_up |= self.unsorted() > MAX_UNSORTED;
        if !self.sorted_keys.is_catching_up {
            return;
        }
        for _ in 0..bytes.div_ceil(BYTES_PER_SORT) {
            // An error comes again where keys are needed. Under views that must stay valid memory cannot grow.
            if !self.log.can_allocate(self.bytes_of_step())
                || self.sort_step().is_err()
                || self.sorted_keys.sorted_below == ALL_SORTED
            {
                self.sorted_keys.is_catching_up = false;
                return;
            }
        }
    }

    /// Whether more keys changed in memory than should wait for the time between turns.
    pub(super) fn is_key_run_behind(&self) -> bool {
        self.sorted_keys.sorted_below == ALL_SORTED
            && self.keyspaces.ordered_len() > MAX_CHANGED + MAX_CHANGED / 2
    }

    /// Sorts the rest of the keys before a close, unless they are so many that it would take long.
    pub(super) fn sort_at_close(&mut self) {
        if self.wants_sorting() && self.unsorted() <= 2 * MAX_UNSORTED {
            // Without the order, closing goes on as well.
            let _ = self.sort_readable(ALL_SORTED);
        }
    }

    pub(super) fn live_keys(&self) -> u64 {
        self.keyspaces.counts().map(|(_, count)| count).sum()
    }

    /// One step of maintenance: sorts some keys.
    pub(super) fn sort_step(&mut self) -> Result<(), Error> {
        self.index.track_positions();
        let sorted = self.sort_segment(KEYS_PER_STEP);
        self.keyspaces.apply_deferred(|_| false);
        sorted
    }

    /// Sorts the keys of the next segment, as many as are wanted.
    fn sort_segment(&mut self, wanted: usize) -> Result<(), Error> {
        let geometry = self.log.geometry();
        let (slot, _) = geometry.locate(self.sorted_keys.sorted_below);
        let mut left = wanted;
        for position in self.live_records_in(slot)? {
            if position < self.sorted_keys.sorted_below {
                continue;
            }
            self.sorted_keys.sorted_below = position;
            if left == 0 {
                return Ok(());
            }
            left -= 1;
            match self.sort_record(position) {
                Err(Error::Corruption(_)) => self.sorted_keys.unreadable.push(position),
                sorted => sorted?,
            }
        }
        let is_last = slot + 1 >= self.log.slot_count();
        self.sorted_keys.sorted_below =
            if is_last { ALL_SORTED } else { geometry.position(slot + 1, 0) };
        Ok(())
    }

    fn sort_record(&mut self, position: Position) -> Result<(), Error> {
        let (_, record) = self.log.scan_record(&mut self.file, position)?;
        let (keyspace, version) = (record.header.keyspace(), record.header.version);
        if !self.clears.may_have_dead || !self.keyspaces.has_cleared(keyspace, version) {
            self.keyspaces.entry(keyspace).keys.defer_insert(record.key, position);
        }
        Ok(())
    }

    /// Positions of the index entries in a slot, in order.
    pub(super) fn live_records_in(&mut self, slot: u32) -> Result<Vec<Position>, Error> {
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
}
