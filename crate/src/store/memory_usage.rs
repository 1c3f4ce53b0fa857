//! What memory a store holds, and how much more it may come to need.

use crate::file::File;

use super::Store;
use super::maintenance::Job;

impl<F: File> Store<F> {
    /// Bytes of memory held, but for the order of keys, and the [`headroom`](Store::headroom) that
    /// there has to be beside them, roughly: when any of it changes, room has to be made.
    #[must_use]
    pub fn memory_usage(&self) -> [usize; 3] {
        let (larger, order) = self.reserve_needed();
        [self.log.memory_bytes() as usize + self.index.bytes(), larger, order >> 22]
    }

    /// Bytes of memory that a turn may come to take in one piece, for an index that is close to
    /// doubling, and in small ones, for the order of keys, which the first range builds.
    #[must_use]
    pub fn reserve_needed(&self) -> (usize, usize) {
        let larger = if self.index.is_filling_up() { 2 * self.index.bytes() } else { 0 };
        let left =
            self.index.len().saturating_sub(self.spaces.in_order() + self.clears.dead as usize);
        let order = if self.ordered { 28 * left } else { 0 };
        (larger, order)
    }

    /// Bytes that records may take in memory between turns, and as much again within one.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.log.budget()
    }

    /// Bytes of segments that are held for a while: of one that is being emptied, and above the budget.
    #[must_use]
    pub fn transient_bytes(&self) -> usize {
        let is_emptying = matches!(self.job, Job::Compacting(_) | Job::Sweeping(_));
        (usize::from(is_emptying) << self.log.geometry().segment_log2) + self.log.above_budget()
    }
}
