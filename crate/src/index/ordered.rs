//! The keys in order. Touched only when a key appears or disappears.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use byteview::ByteView;

/// A key that the engine owns: short ones lie inline and take no allocation.
///
/// Compared as slices: byteview 0.10.2's own `PartialEq` reads a `u64` through a 4-aligned pointer
/// on wasm32, which panics in debug builds and is undefined behaviour in release.
#[derive(Clone, Debug)]
pub struct Key(ByteView);

impl Key {
    /// Copies `bytes`.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Key(ByteView::new(bytes))
    }
}

impl std::ops::Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

/// The keys of one keyspace in byte order.
#[derive(Debug, Default)]
pub struct OrderedKeys {
    keys: BTreeSet<Key>,
}

impl OrderedKeys {
    /// Adds a key.
    pub fn insert(&mut self, key: &[u8]) {
        self.keys.insert(Key::new(key));
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &[u8]) {
        self.keys.remove(key);
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys between two bounds, forwards or (with `rev`) backwards. Empty when the bounds
    /// leave nothing between them.
    pub fn range(
        &self,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = &Key> {
        let empty = match (lower, upper) {
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
                a >= b
            }
            _ => false,
        };
        (!empty).then(|| self.keys.range::<[u8], _>((lower, upper))).into_iter().flatten()
    }
}

impl FromIterator<Key> for OrderedKeys {
    /// Builds the set from keys in any order, by sorting once.
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Self {
        OrderedKeys { keys: keys.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_byte_order_whatever_their_length() {
        let words: [&[u8]; 5] = [b"b", b"a", b"\xff", b"a long key that is not inline", b"a\0"];
        let keys: OrderedKeys = words.iter().map(|w| Key::new(w)).collect();
        let mut sorted = words.to_vec();
        sorted.sort();
        let all: Vec<&[u8]> =
            keys.range(Bound::Unbounded, Bound::Unbounded).map(|k| &**k).collect();
        assert_eq!(all, sorted);
    }

    #[test]
    fn a_range_without_room_is_empty_and_not_a_panic() {
        let mut keys = OrderedKeys::default();
        keys.insert(b"k");
        let none = |a, b| keys.range(a, b).count();
        assert_eq!(none(Bound::Included(b"z".as_slice()), Bound::Excluded(b"a".as_slice())), 0);
        assert_eq!(none(Bound::Excluded(b"k".as_slice()), Bound::Excluded(b"k".as_slice())), 0);
        assert_eq!(none(Bound::Included(b"k".as_slice()), Bound::Included(b"k".as_slice())), 1);
    }
}
