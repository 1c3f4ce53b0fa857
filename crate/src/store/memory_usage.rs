//! The memory that a store uses, and how much more it may need.

use crate::file::File;

use super::Store;
use super::maintenance_jobs::Job;
use super::sorted_keys::ALL_SORTED;

impl<F: File> Store<F> {
    /// Returns the bytes of memory in use, without the ordered keys; the first number of the
    /// [reserve](Store::reserve_needed) that is needed beside them; and the second one in steps of 4 MiB, with
    /// snapshots in steps of 1 MiB. When any of it changes, memory must be reserved again.
    #[must_use]
    pub fn memory_usage(&self) -> [usize; 3] {
        let (larger, order) = self.reserve_needed();
        let order = (order >> 22) + (self.snapshots.bytes() >> 20);
        [self.log.memory_bytes() as usize + self.index.bytes(), larger, order]
    }

    /// Returns how many bytes a turn may allocate: at once, if the hash index is close to doubling, and in small
    /// blocks. The latter are for the ordered keys, which the first range builds; or for the blocks of key runs that
    /// ranges read; and for what lookups note of the checkpoint's entries.
    #[must_use]
    pub fn reserve_needed(&self) -> (usize, usize) {
        let larger = if self.nears_growth() { 2 * self.index.bytes() } else { 0 };
        let left = self
            .index_len()
            .saturating_sub(self.keyspaces.ordered_len() + self.clears.dead as usize);
        let order = match self.ordered {
            true if self.sorted_keys.sorted_below == ALL_SORTED => self.key_run_reserve(),
            true => 28 * left,
            false => 0,
        };
        let unloaded = self.unloaded.as_ref().map_or(0, |unloaded| unloaded.bytes_to_grow());
        (larger, order + unloaded + self.maintenance.job.bytes_to_grow())
    }

    /// Subtracts what a limited index takes beyond its share from the memory for records, of which half stays.
    #[inline]
    pub(super) fn share_memory(&mut self) {
        let taken = match &self.unloaded {
            Some(unloaded) if unloaded.is_limited() => self.index.bytes() + unloaded.bytes(),
            _ => 0,
        };
        let excess = taken.saturating_sub(self.index_memory);
        self.log.set_budget(self.memory.saturating_sub(excess).max(self.memory / 2));
    }

    /// Bytes of memory for the index: the hash index, and keys in order.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        let unloaded = self.unloaded.as_ref().map_or(0, |unloaded| unloaded.bytes());
        let order = self.keyspaces.bytes() + self.sorted_keys.bytes();
        self.index.bytes() + unloaded + order + self.snapshots.bytes()
    }

    /// Bytes that records may take in memory between turns, and again within one turn.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.log.budget()
    }

    /// Bytes of segment buffers that are in use temporarily: of a segment being compacted, and
    /// above the budget.
    #[must_use]
    pub fn transient_bytes(&self) -> usize {
        let is_emptying =
            matches!(self.maintenance.job, Job::Compacting(_) | Job::Packing(_) | Job::Sweeping(_));
        (usize::from(is_emptying) << self.log.geometry().segment_log2) + self.log.above_budget()
    }
}
