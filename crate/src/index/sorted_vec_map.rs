//! A map with few entries in a sorted vector: a B-tree would add kilobytes of WebAssembly.

use alloc::vec::Vec;

/// A map with 32-bit keys.
#[derive(Clone, Debug)]
pub struct SmallMap<V> {
    entries: Vec<(u32, V)>,
}

impl<V> Default for SmallMap<V> {
    fn default() -> Self {
        SmallMap { entries: Vec::new() }
    }
}

impl<V> SmallMap<V> {
    fn find(&self, key: u32) -> Result<usize, usize> {
        self.entries.binary_search_by(|(other, _)| other.cmp(&key))
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: u32) -> Option<&V> {
        self.find(key).ok().map(|at| &self.entries[at].1)
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: u32, value: V) {
        match self.find(key) {
            Ok(at) => self.entries[at].1 = value,
            Err(at) => self.entries.insert(at, (key, value)),
        }
    }

    /// The value of a key, which is added if it is not there.
    pub fn entry(&mut self, key: u32) -> &mut V
    where
        V: Default,
    {
        let at = self.find(key).unwrap_or_else(|at| {
            self.entries.insert(at, (key, V::default()));
            at
        });
        &mut self.entries[at].1
    }

    /// Removes a key.
    pub fn remove(&mut self, key: u32) -> Option<V> {
        self.find(key).ok().map(|at| self.entries.remove(at).1)
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The values by ascending key.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.entries.into_iter().map(|(_, value)| value)
    }

    /// The entries by ascending key.
    pub fn iter(&self) -> impl Iterator<Item = &(u32, V)> {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_vec_map_matches_btree_map() {
        let mut x = 7_u32;
        let mut map = SmallMap::default();
        let mut model = std::collections::BTreeMap::new();
        for _ in 0..2000 {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = x >> 26;
            if x & 0x300 == 0 {
                assert_eq!(map.remove(key), model.remove(&key));
            } else {
                map.insert(key, x);
                model.insert(key, x);
            }
            assert_eq!(map.get(key), model.get(&key));
        }
        let all: Vec<(u32, u32)> = map.iter().copied().collect();
        assert_eq!(all, model.into_iter().collect::<Vec<_>>());
    }
}
