//! What is kept for each keyspace: how many keys it has and, once asked for, which; and when it was emptied.

use alloc::vec::Vec;

use super::ordered_index::OrderedKeys;

/// One keyspace.
#[derive(Debug)]
pub struct Space {
    id: u32,
    /// How many keys it has.
    pub count: u64,
    /// Its keys, if order is kept.
    pub keys: OrderedKeys,
    /// Records with smaller versions do not count, although the index still names some; 0 for none.
    pub cleared: u64,
}

/// All keyspaces that ever had a key.
#[derive(Debug, Default)]
pub struct Spaces {
    /// By number.
    spaces: Vec<Space>,
}

impl Spaces {
    fn place(&self, id: u32) -> usize {
        self.spaces.partition_point(|space| space.id < id)
    }

    /// A keyspace; none if it never had a key.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&Space> {
        self.spaces.get(self.place(id)).filter(|space| space.id == id)
    }

    /// A keyspace, new if it never had a key.
    pub fn entry(&mut self, id: u32) -> &mut Space {
        let place = self.place(id);
        if self.spaces.get(place).is_none_or(|space| space.id != id) {
            self.spaces
                .insert(place, Space { id, count: 0, keys: OrderedKeys::default(), cleared: 0 });
        }
        &mut self.spaces[place]
    }

    /// Adds the keys that were to be added later, to each.
    pub fn insert_rest(&mut self) {
        for space in &mut self.spaces {
            space.keys.insert_rest();
        }
    }

    /// How many keys are in order.
    #[must_use]
    pub fn in_order(&self) -> usize {
        self.spaces.iter().map(|space| space.keys.len()).sum()
    }

    /// How many keys each keyspace has.
    pub fn counts(&self) -> impl Iterator<Item = (u32, u64)> {
        self.spaces.iter().map(|space| (space.id, space.count))
    }

    /// Number, number of keys and `cleared` of each keyspace.
    pub fn rows(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        self.spaces.iter().map(|space| (space.id, space.count, space.cleared))
    }

    /// Whether a record of this version was in a keyspace when that was emptied.
    #[must_use]
    #[inline(never)]
    pub fn has_cleared(&self, id: u32, version: u64) -> bool {
        self.get(id).is_some_and(|space| version < space.cleared)
    }

    /// Whether the index still names records of before a keyspace was emptied.
    #[must_use]
    pub fn any_cleared(&self) -> bool {
        self.spaces.iter().any(|space| space.cleared > 0)
    }

    /// The index names none any more.
    pub fn forget_cleared(&mut self) {
        self.spaces.iter_mut().for_each(|space| space.cleared = 0);
    }

    /// Takes over the counts of keyspaces that were emptied.
    pub fn recount_cleared(&mut self, counts: &Spaces) {
        for space in self.spaces.iter_mut().filter(|space| space.cleared > 0) {
            space.count = counts.get(space.id).map_or(0, |counted| counted.count);
        }
    }

    /// Forgets which keys there are.
    pub fn forget_order(&mut self) {
        self.spaces.iter_mut().for_each(|space| space.keys = OrderedKeys::default());
    }

    /// Bytes of the ordered keys.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.spaces.iter().map(|space| space.keys.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyspaces_are_isolated() {
        let mut spaces = Spaces::default();
        for id in [5, 1, 9, 1, 0, u32::MAX] {
            spaces.entry(id).count += 1;
        }
        let counts = [0, 1, 2, 5, 9, u32::MAX].map(|id| spaces.get(id).map(|space| space.count));
        assert_eq!(counts, [Some(1), Some(2), None, Some(1), Some(1), Some(1)]);
    }
}
