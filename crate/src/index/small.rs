//! A map of few entries, sorted in a vector; and one sort for all that is sorted in passing.
//!
//! The standard library's maps and sorts are faster, and each type that they are used with adds
//! kilobytes of WebAssembly.

/// A map from 32-bit numbers.
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

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: u32) -> Option<&V> {
        self.find(key).ok().map(|at| &self.entries[at].1)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: u32) -> Option<&mut V> {
        self.find(key).ok().map(|at| &mut self.entries[at].1)
    }

    /// The value of a key, which gets an empty one if it has none.
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

    /// Sets the value of a key.
    pub fn insert(&mut self, key: u32, value: V) {
        match self.find(key) {
            Ok(at) => self.entries[at].1 = value,
            Err(at) => self.entries.insert(at, (key, value)),
        }
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: u32) -> Option<V> {
        self.find(key).ok().map(|at| self.entries.remove(at).1)
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The entries by growing key.
    pub fn iter(&self) -> impl Iterator<Item = &(u32, V)> {
        self.entries.iter()
    }
}

impl<V> IntoIterator for SmallMap<V> {
    type Item = (u32, V);
    type IntoIter = std::vec::IntoIter<(u32, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

/// Sorts pairs where they are (heapsort; Williams, CACM 1964).
pub fn sort(pairs: &mut [(u32, u32)]) {
    let sift = |pairs: &mut [(u32, u32)], mut parent: usize| {
        loop {
            let mut child = 2 * parent + 1;
            if child + 1 < pairs.len() && pairs[child] < pairs[child + 1] {
                child += 1;
            }
            if child >= pairs.len() || pairs[parent] >= pairs[child] {
                return;
            }
            pairs.swap(parent, child);
            parent = child;
        }
    };
    for parent in (0..pairs.len() / 2).rev() {
        sift(pairs, parent);
    }
    for end in (1..pairs.len()).rev() {
        pairs.swap(0, end);
        sift(&mut pairs[..end], 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sort_sorts_and_the_map_is_one() {
        let mut x = 7_u32;
        for length in 0..200 {
            let mut pairs: Vec<(u32, u32)> = Vec::new();
            let mut map = SmallMap::default();
            let mut model = std::collections::BTreeMap::new();
            for _ in 0..length {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                pairs.push((x >> 27, x));
                if x & 0x300 == 0 {
                    assert_eq!(map.remove(x >> 26), model.remove(&(x >> 26)));
                } else {
                    map.insert(x >> 26, x);
                    model.insert(x >> 26, x);
                }
            }
            let mut sorted = pairs.clone();
            sorted.sort_unstable();
            sort(&mut pairs);
            assert_eq!(pairs, sorted);
            let all: Vec<(u32, u32)> = map.iter().copied().collect();
            assert_eq!(all, model.into_iter().collect::<Vec<_>>());
        }
    }
}
