//! The state of each keyspace: its number of keys, its ordered keys if needed, and when it was
//! cleared.

use alloc::vec::Vec;
use core::ops::Bound;

use super::ordered_index::OrderedKeys;

/// One keyspace.
#[derive(Debug)]
pub struct Keyspace {
    id: u32,
    /// Its number of keys.
    pub count: u64,
    /// Its ordered keys, if order is kept: those that were added or deleted since the runs were written, or all
    /// if there are no runs.
    pub keys: OrderedKeys,
    /// The older part of `keys`, which a checkpoint is writing to a run.
    pub frozen_keys: OrderedKeys,
    /// Runs below this sequence do not count: the keyspace was cleared since.
    pub first_run: u32,
    /// Records with smaller versions are dead, although the index still contains some of them; 0 if
    /// there are none.
    pub cleared: u64,
}

/// All keyspaces that have ever had a key.
#[derive(Debug, Default)]
pub struct Keyspaces {
    /// Sorted by number.
    keyspaces: Vec<Keyspace>,
}

impl Keyspaces {
    fn index_of(&self, id: u32) -> usize {
        self.keyspaces.partition_point(|space| space.id < id)
    }

    /// A keyspace; none if it has never had a key.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&Keyspace> {
        self.keyspaces.get(self.index_of(id)).filter(|space| space.id == id)
    }

    /// A keyspace, which is added if it has never had a key.
    pub fn entry(&mut self, id: u32) -> &mut Keyspace {
        let index = self.index_of(id);
        if self.keyspaces.get(index).is_none_or(|space| space.id != id) {
            let space = Keyspace {
                id,
                count: 0,
                keys: OrderedKeys::default(),
                frozen_keys: OrderedKeys::default(),
                first_run: 0,
                cleared: 0,
            };
            self.keyspaces.insert(index, space);
        }
        &mut self.keyspaces[index]
    }

    /// Inserts the deferred keys of each keyspace. `keeps_deleted` says whether deleted keys need an entry.
    pub fn apply_deferred(&mut self, keeps_deleted: impl Fn(&Keyspace) -> bool) {
        for space in &mut self.keyspaces {
            if space.keys.deferred() > 0 {
                space.keys.apply_deferred(keeps_deleted(space));
            }
        }
    }

    /// The number of keys in the ordered indexes.
    #[must_use]
    pub fn ordered_len(&self) -> usize {
        self.keyspaces.iter().map(|space| space.keys.len() + space.frozen_keys.len()).sum()
    }

    /// Bytes of the keys in the ordered indexes.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.keyspaces.iter().map(|space| space.keys.key_bytes()).sum()
    }

    /// The number of keys in each keyspace.
    pub fn counts(&self) -> impl Iterator<Item = (u32, u64)> {
        self.keyspaces.iter().map(|space| (space.id, space.count))
    }

    /// Each keyspace with its number.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Keyspace)> {
        self.keyspaces.iter().map(|space| (space.id, space))
    }

    /// Sets the ordered keys of each keyspace aside for a run.
    pub fn freeze_keys(&mut self) {
        for space in &mut self.keyspaces {
            space.frozen_keys = core::mem::take(&mut space.keys);
        }
    }

    /// Undoes [`freeze_keys`](Keyspaces::freeze_keys): the run with this sequence was not written.
    pub fn unfreeze_keys(&mut self, run: u32) {
        for space in &mut self.keyspaces {
            let mut keys = core::mem::take(&mut space.frozen_keys);
            if space.first_run > run || keys.is_empty() {
                continue;
            }
            for key in space.keys.range(Bound::Unbounded, Bound::Unbounded) {
                keys.insert(key, key.position);
            }
            space.keys = keys;
        }
    }

    /// Takes the frozen keys out: the run that has them is part of the index.
    pub fn take_frozen(&mut self) -> impl Iterator<Item = OrderedKeys> {
        self.keyspaces.iter_mut().map(|space| core::mem::take(&mut space.frozen_keys))
    }

    /// Whether a record of this version belonged to a keyspace before it was cleared.
    #[must_use]
    #[inline(never)]
    pub fn has_cleared(&self, id: u32, version: u64) -> bool {
        self.get(id).is_some_and(|space| version < space.cleared)
    }

    /// Whether the index may still contain records of cleared keyspaces.
    #[must_use]
    pub fn any_cleared(&self) -> bool {
        self.keyspaces.iter().any(|space| space.cleared > 0)
    }

    /// Records that the index contains no cleared records any more.
    pub fn forget_cleared(&mut self) {
        self.keyspaces.iter_mut().for_each(|space| space.cleared = 0);
    }

    /// Takes over the key counts of the cleared keyspaces.
    pub fn recount_cleared(&mut self, counts: &Keyspaces) {
        for space in self.keyspaces.iter_mut().filter(|space| space.cleared > 0) {
            space.count = counts.get(space.id).map_or(0, |counted| counted.count);
        }
    }

    /// Drops all ordered keys.
    pub fn forget_sorted_keys(&mut self) {
        for space in &mut self.keyspaces {
            (space.keys, space.frozen_keys) = Default::default();
            space.first_run = 0;
        }
    }

    /// Bytes of the ordered keys.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.keyspaces.iter().map(|space| space.keys.bytes() + space.frozen_keys.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyspaces_are_isolated() {
        let mut keyspaces = Keyspaces::default();
        for id in [5, 1, 9, 1, 0, u32::MAX] {
            keyspaces.entry(id).count += 1;
        }
        let counts = [0, 1, 2, 5, 9, u32::MAX].map(|id| keyspaces.get(id).map(|space| space.count));
        assert_eq!(counts, [Some(1), Some(2), None, Some(1), Some(1), Some(1)]);
    }
}
