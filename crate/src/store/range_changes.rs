//! The changes of index entries while a checkpoint is being written, by range of hashes.

use alloc::vec;
use alloc::vec::Vec;

use crate::index::Position;

/// Changes are kept in chunks, so that a record takes a bounded amount of memory, whatever came before it.
const CHUNK: usize = 1024;

/// A change of one index entry: moved, added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub hash: u32,
    pub old: Option<Position>,
    pub new: Option<Position>,
}

/// The changes of each range, as a list that leads from its latest to its first.
#[derive(Debug)]
pub(super) struct RangeChanges {
    /// By range, the number of its latest change; 0 if it has none. Numbers begin at 1.
    latest: Vec<u32>,
    /// The changes, each with the number of the one before it in its range.
    chunks: Vec<Vec<(Change, u32)>>,
    count: u32,
}

impl RangeChanges {
    pub(super) fn new(ranges: usize) -> Self {
        RangeChanges { latest: vec![0; ranges], chunks: Vec::new(), count: 0 }
    }

    /// How many ranges there are.
    pub(super) fn ranges(&self) -> usize {
        self.latest.len()
    }

    /// Adds a change. A rollback undoes the latest change first: both are then forgotten, which takes no memory.
    pub(super) fn add(&mut self, range: usize, change: Change) {
        let before = self.latest[range];
        let undone = Change { hash: change.hash, old: change.new, new: change.old };
        if before == self.count
            && let Some(&(last, previous)) = self.get(before)
            && last == undone
        {
            self.latest[range] = previous;
            self.count -= 1;
            self.chunks.last_mut().map(Vec::pop);
            if self.chunks.last().is_some_and(Vec::is_empty) {
                self.chunks.pop();
            }
            return;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push((change, before));
        }
        self.count += 1;
        self.latest[range] = self.count;
    }

    /// The changes of a range, the first one first.
    pub(super) fn of(&self, range: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut number = self.latest[range];
        while let Some(&(change, previous)) = self.get(number) {
            changes.push(change);
            number = previous;
        }
        changes.reverse();
        changes
    }

    fn get(&self, number: u32) -> Option<&(Change, u32)> {
        let at = number.checked_sub(1)? as usize;
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn change(hash: u32, old: Position, new: Position) -> Change {
        Change { hash, old: Some(old), new: Some(new) }
    }

    #[test]
    fn each_range_has_its_changes_in_their_order() {
        let mut changes = RangeChanges::new(3);
        for i in 0..5 * CHUNK as u32 {
            changes.add((i % 2) as usize, change(i, i, i + 1));
        }
        for range in 0..2 {
            let hashes: Vec<_> = changes.of(range).iter().map(|change| change.hash).collect();
            let all = 0..5 * CHUNK as u32;
            assert_eq!(hashes, all.filter(|i| i % 2 == range as u32).collect::<Vec<_>>());
        }
        assert_eq!(changes.of(2), []);
    }

    #[test]
    fn what_is_undone_takes_no_memory_and_is_forgotten() {
        let mut changes = RangeChanges::new(2);
        changes.add(0, change(7, 1, 2));
        for i in 0..3 * CHUNK as u32 {
            changes.add((i % 2) as usize, change(i, i, i + 1));
        }
        for i in (0..3 * CHUNK as u32).rev() {
            changes.add((i % 2) as usize, change(i, i + 1, i));
        }
        assert_eq!((changes.of(0), changes.of(1)), (vec![change(7, 1, 2)], vec![]));
        assert_eq!((changes.count, changes.chunks.len()), (1, 1));
        // The inverse of an earlier change is a change.
        changes.add(1, change(8, 1, 2));
        changes.add(0, change(7, 2, 1));
        assert_eq!(changes.of(0), [change(7, 1, 2), change(7, 2, 1)]);
    }
}
