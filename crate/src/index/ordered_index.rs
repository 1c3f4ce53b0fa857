//! The keys in order. It is accessed only when a key is added or removed.
//!
//! A tree of three levels: blocks of keys, groups of blocks, and the list of groups, each with the
//! first keys of its parts. Compared to the B-tree of the standard library it needs a quarter of
//! the code and fewer bytes per key, and a range is a walk over arrays.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Bound;

use super::Position;
use crate::radix_sort;

/// The maximum size of an inline key. A key is then no larger than a pointer, a length and a tag,
/// except on wasm32, where most keys would not fit into those.
const INLINE: usize = if cfg!(target_pointer_width = "32") { 18 } else { 22 };

/// A key that the index owns. Short ones are stored inline without an allocation, as in the crate
/// `byteview`.
#[derive(Clone, Debug)]
pub struct Key {
    bytes: Bytes,
    /// The last known position of its record: a scan tries it first. 0 if the key was deleted.
    pub position: Position,
}

#[derive(Clone, Debug)]
enum Bytes {
    Inline(u8, [u8; INLINE]),
    Boxed(Box<[u8]>),
}

impl Key {
    /// Copies `bytes`.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE];
        let bytes = match inline.get_mut(..bytes.len()) {
            Some(target) => {
                target.copy_from_slice(bytes);
                Bytes::Inline(bytes.len() as u8, inline)
            }
            None => Bytes::Boxed(bytes.into()),
        };
        Key { bytes, position: 0 }
    }
}

impl core::ops::Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Inline(length, bytes) => bytes.get(..usize::from(*length)).unwrap_or(bytes),
            Bytes::Boxed(bytes) => bytes,
        }
    }
}

/// Compares bytes lexicographically, eight at a time.
#[inline(never)]
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let shared = a.len().min(b.len());
    let words = |at: usize| {
        let word = |bytes: &[u8]| bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
        let (x, y) = (word(a).map_or(0, u64::from_le_bytes), word(b).map_or(0, u64::from_le_bytes));
        (x != y).then(|| x.swap_bytes().cmp(&y.swap_bytes()))
    };
    let mut at = 0;
    while at + 8 <= shared {
        if let Some(order) = words(at) {
            return order;
        }
        at += 8;
    }
    if shared < 8 {
        return a.cmp(b);
    }
    // The rest lies within the last eight bytes, and everything before it is equal.
    words(shared - 8).unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// The maximum number of keys in a block and of blocks in a group.
const BLOCK: usize = 64;
const GROUP: usize = 128;

/// Keys that are inserted together.
const BATCH: usize = 1 << 15;
/// Fewer are, if those that have memory of their own have this many bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Memory that inserting a deferred key takes meanwhile, beside its own.
const INSERT_BYTES: usize = 96;

/// How many of some sorted keys are below `key`, or with `after` not above it.
///
/// Steps of 64, of eight and of one: the processor predicts these and prefetches the next keys,
/// whereas a binary search waits for each of them.
fn count_below(keys: &[Key], key: &[u8], after: bool) -> usize {
    let (mut at, mut step) = (0, 1);
    while step * 8 < keys.len() {
        step *= 8;
    }
    while step > 0 {
        while let Some(other) = keys.get(at + step - 1) {
            match compare(other, key) {
                Ordering::Less => at += step,
                Ordering::Equal if after => at += step,
                _ => break,
            }
        }
        step /= 8;
    }
    at
}

/// Parts in order. Each has a start key that is not above its own keys and above all keys of the
/// parts before it. The start key of the first part is not used.
#[derive(Debug)]
struct Tier<T> {
    starts: Vec<Key>,
    parts: Vec<T>,
}

impl<T> Default for Tier<T> {
    fn default() -> Self {
        Tier { starts: Vec::new(), parts: Vec::new() }
    }
}

impl<T> Tier<T> {
    /// The part that contains a key or would contain it. There must be one.
    fn index_of(&self, key: &[u8]) -> usize {
        count_below(&self.starts[1..], key, true)
    }

    fn insert(&mut self, at: usize, start: Key, part: T) {
        self.starts.insert(at, start);
        self.parts.insert(at, part);
    }

    fn remove(&mut self, at: usize) -> (Key, T) {
        (self.starts.remove(at), self.parts.remove(at))
    }

    fn split_off(&mut self, at: usize) -> Self {
        Tier { starts: self.starts.split_off(at), parts: self.parts.split_off(at) }
    }

    /// Bytes of its own allocations.
    fn bytes(&self) -> usize {
        self.starts.capacity() * size_of::<Key>() + self.parts.capacity() * size_of::<T>()
    }
}

type Block = Vec<Key>;
type Group = Tier<Block>;

/// A location between two keys: group, block, and how many keys of the block come before it. That
/// is less than the number of keys in the block, and the block is an existing one, unless the
/// location is the end.
type KeyLocation = (usize, usize, usize);

/// The keys of one keyspace in byte order. Entries of deleted keys hide those of runs in the file.
#[derive(Debug, Default)]
pub struct OrderedKeys {
    /// No group and no block is empty.
    groups: Tier<Group>,
    len: usize,
    /// How many entries are of deleted keys.
    deleted: usize,
    /// Bytes of all keys.
    key_bytes: usize,
    deferred: Vec<Key>,
    /// Bytes of the deferred keys that are not inline.
    deferred_bytes: usize,
    /// The location after the key that was added last.
    next: KeyLocation,
    /// Whether an entry stays as it is when its key is added again.
    pub keeps_first: bool,
}

/// Up to this many groups stay in the processor's caches.
const CACHED_GROUPS: usize = 8;

impl OrderedKeys {
    /// Adds a key with the position of its record, or 0 if it was deleted. A former entry is replaced.
    pub fn insert(&mut self, key: &[u8], position: Position) {
        self.insert_at(Key { position, ..Key::new(key) }, None);
    }

    /// Adds a key with a position unless it is here.
    pub fn insert_missing(&mut self, key: &[u8], position: Position) {
        if self.position_of(key).is_none() {
            self.insert(key, position);
        }
    }

    /// The position of a key, if it is here.
    #[must_use]
    pub fn position_of(&self, key: &[u8]) -> Option<Position> {
        if self.is_empty() {
            return None;
        }
        let (in_groups, in_group, at) = self.find(key, false);
        let found = self.groups.parts[in_groups].parts[in_group].get(at)?;
        (**found == *key).then_some(found.position)
    }

    /// Sets the position of the record of a key, if it is here.
    pub fn set_position(&mut self, key: &[u8], position: Position) {
        if self.is_empty() {
            return;
        }
        let (in_groups, in_group, at) = self.find(key, false);
        let found = self.groups.parts[in_groups].parts[in_group].get_mut(at);
        if let Some(found) = found.filter(|found| ***found == *key && found.position != 0) {
            found.position = position;
        }
    }

    fn insert_at(&mut self, new: Key, location: Option<KeyLocation>) {
        self.len += 1;
        self.deleted += usize::from(new.position == 0);
        self.key_bytes += new.len();
        if self.groups.parts.is_empty() {
            self.groups.insert(0, new.clone(), Group::default());
            self.groups.parts[0].insert(0, new.clone(), vec![new]);
            return;
        }
        let (in_groups, mut in_group, mut at) = location
            .or_else(|| self.location_after_all(&new))
            .unwrap_or_else(|| self.find(&new, false));
        let group = &mut self.groups.parts[in_groups];
        let block = &mut group.parts[in_group];
        if let Some(found) = block.get_mut(at).filter(|found| ***found == *new) {
            self.len -= 1;
            self.key_bytes -= new.len();
            let dropped = match self.keeps_first {
                true => new.position,
                false => core::mem::replace(&mut found.position, new.position),
            };
            self.deleted -= usize::from(dropped == 0);
            return;
        }
        if block.len() == BLOCK {
            // Keys that are inserted in order fill their blocks: a new block begins at the
            // insertion point, and what comes after it moves there.
            let split = if self.next == (in_groups, in_group, at) { at } else { BLOCK / 2 };
            let (after, is_in_new) = match at {
                BLOCK => (Vec::with_capacity(BLOCK), true),
                _ => (block.split_off(split), at > split),
            };
            let start = after.first().unwrap_or(&new).clone();
            let left = block.len();
            group.insert(in_group + 1, start, after);
            if is_in_new {
                (in_group, at) = (in_group + 1, at - left);
            }
        }
        group.parts[in_group].insert(at, new);
        self.next = (in_groups, in_group, at + 1);
        if group.parts.len() > GROUP {
            let is_end = in_group == GROUP;
            let after = group.split_off(if is_end { GROUP } else { GROUP / 2 });
            self.groups.insert(in_groups + 1, after.starts[0].clone(), after);
        }
    }

    /// As [`insert`](OrderedKeys::insert), for bulk inserts. The entries are here after
    /// [`apply_deferred`](OrderedKeys::apply_deferred), which must come before other changes.
    pub fn defer_insert(&mut self, key: &[u8], position: Position) {
        self.deferred.push(Key { position, ..Key::new(key) });
        if key.len() > INLINE {
            self.deferred_bytes += key.len();
        }
        if self.deferred.len() == BATCH || self.deferred_bytes >= BATCH_BYTES {
            self.apply_deferred(true);
        }
    }

    /// Bytes that inserting `count` keys may allocate, by deferring them.
    #[must_use]
    pub fn bytes_to_insert(count: usize) -> usize {
        count.min(BATCH) * INSERT_BYTES + 2 * BATCH_BYTES
    }

    /// How many entries are deferred.
    #[must_use]
    pub fn deferred(&self) -> usize {
        self.deferred.len()
    }

    /// Inserts the deferred keys. They are sorted by the first eight bytes after their common
    /// prefix, so that the next key mostly goes near the previous one, which is in the cache. A key that was
    /// deleted keeps an entry only if `keeps_deleted`.
    pub fn apply_deferred(&mut self, keeps_deleted: bool) {
        let mut keys = core::mem::take(&mut self.deferred);
        self.deferred_bytes = 0;
        let Some(first) = keys.first() else { return };
        let mut shared = first.len();
        for key in &keys {
            let both = first[..shared].iter().zip(&**key);
            shared = both.take_while(|(a, b)| a == b).count();
        }
        let word = |i: u32, at: usize| {
            let mut next = [0; 4];
            let rest = keys[i as usize].get(shared + at..).unwrap_or_default();
            next.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            (u32::from_be_bytes(next), i)
        };
        let mut order: Vec<_> = (0..keys.len() as u32).map(|i| word(i, 4)).collect();
        order = radix_sort::by_number(order);
        order.iter_mut().for_each(|one| *one = word(one.1, 0));
        for order in radix_sort::by_number(order).chunks(16) {
            // The cache misses of these keys overlap.
            core::hint::black_box(order.iter().map(|&(_, i)| keys[i as usize].position).max());
            for &(_, i) in order {
                let new = core::mem::replace(&mut keys[i as usize], Key::new(&[]));
                if new.position == 0 && !keeps_deleted {
                    self.remove(&new);
                    continue;
                }
                let location = self.location_near_last(&new);
                self.insert_at(new, location);
            }
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &[u8]) {
        if self.is_empty() {
            return;
        }
        let (in_groups, in_group, at) = self.find(key, false);
        let group = &mut self.groups.parts[in_groups];
        let block = &mut group.parts[in_group];
        if block.get(at).is_none_or(|found| **found != *key) {
            return;
        }
        let removed = block.remove(at);
        self.len -= 1;
        self.deleted -= usize::from(removed.position == 0);
        self.key_bytes -= key.len();
        let left = block.len();
        let next = group.parts.get(in_group + 1).map_or(BLOCK, Vec::len);
        if left == 0 {
            group.remove(in_group);
        } else if left + next <= BLOCK / 2 {
            let (_, next) = group.remove(in_group + 1);
            group.parts[in_group].extend(next);
        } else {
            return;
        }
        let left = group.parts.len();
        let next = self.groups.parts.get(in_groups + 1).map_or(GROUP, |next| next.parts.len());
        if left == 0 {
            self.groups.remove(in_groups);
        } else if left + next <= GROUP / 2 {
            let (start, mut next) = self.groups.remove(in_groups + 1);
            next.starts[0] = start;
            let group = &mut self.groups.parts[in_groups];
            group.starts.append(&mut next.starts);
            group.parts.append(&mut next.parts);
        }
    }

    /// Frees the memory of some keys of an index that is not used any more. Returns whether there
    /// is more.
    pub fn free_some(&mut self) -> bool {
        self.groups.starts.pop();
        self.groups.parts.pop();
        !self.groups.parts.is_empty()
    }

    /// How many entries are of deleted keys.
    #[must_use]
    pub fn deleted(&self) -> usize {
        self.deleted
    }

    /// Bytes of all keys.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// How many entries there are, those of deleted keys included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory, except for keys that are not inline.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let groups = &self.groups.parts;
        let blocks = groups.iter().flat_map(|group| &group.parts).map(Vec::capacity);
        let keys = blocks.sum::<usize>() * size_of::<Key>();
        keys + groups.iter().map(Tier::bytes).sum::<usize>() + self.groups.bytes()
    }

    /// The keys between two bounds, forwards or backwards. It is empty if no key can be between the
    /// bounds.
    #[must_use]
    pub fn range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Range<'_> {
        let from = match lower {
            Bound::Unbounded => (0, 0, 0),
            Bound::Included(key) => self.locate(key, false),
            Bound::Excluded(key) => self.locate(key, true),
        };
        let to = match upper {
            Bound::Unbounded => (self.groups.parts.len(), 0, 0),
            Bound::Included(key) => self.locate(key, true),
            Bound::Excluded(key) => self.locate(key, false),
        };
        Range { groups: &self.groups.parts, from, to }
    }

    /// The location of a key that is above all others, as growing numbers and timestamps are. This
    /// needs no search.
    fn location_after_all(&self, key: &[u8]) -> Option<KeyLocation> {
        let group = self.groups.parts.last()?;
        let block = group.parts.last()?;
        (compare(block.last()?, key) == Ordering::Less)
            .then(|| (self.groups.parts.len() - 1, group.parts.len() - 1, block.len()))
    }

    /// The location of a key that belongs in the block of the last added key and after it.
    fn location_near_last(&self, key: &[u8]) -> Option<KeyLocation> {
        let (in_groups, in_group, at) = self.next;
        let block = self.groups.parts.get(in_groups)?.parts.get(in_group)?;
        let is_between = compare(block.get(at.checked_sub(1)?)?, key) == Ordering::Less
            && compare(block.last()?, key) == Ordering::Greater;
        is_between.then(|| (in_groups, in_group, at + count_below(&block[at..], key, false)))
    }

    /// The group and block that contain a key or would contain it, and how many of the block's keys
    /// are below it, or with `after` not above it. There must be a block. If there are more groups
    /// than stay in the caches, the cache misses of the block are made to overlap.
    fn find(&self, key: &[u8], after: bool) -> KeyLocation {
        let in_groups = self.groups.index_of(key);
        let group = &self.groups.parts[in_groups];
        let in_group = group.index_of(key);
        if self.groups.parts.len() > CACHED_GROUPS {
            let lines = group.parts[in_group].iter().step_by(2);
            core::hint::black_box(lines.map(|key| key.position).max());
        }
        (in_groups, in_group, count_below(&group.parts[in_group], key, after))
    }

    fn locate(&self, key: &[u8], after: bool) -> KeyLocation {
        if self.is_empty() {
            return (0, 0, 0);
        }
        normalize(&self.groups.parts, self.find(key, after))
    }
}

/// Replaces the end of a block by the beginning of the next one, and the end of a group likewise.
fn normalize(groups: &[Group], (in_groups, in_group, at): KeyLocation) -> KeyLocation {
    let blocks = &groups[in_groups].parts;
    if at < blocks[in_group].len() {
        (in_groups, in_group, at)
    } else if in_group + 1 < blocks.len() {
        (in_groups, in_group + 1, 0)
    } else {
        (in_groups + 1, 0, 0)
    }
}

impl<'a> FromIterator<&'a [u8]> for OrderedKeys {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(keys: I) -> Self {
        let mut all = OrderedKeys::default();
        keys.into_iter().for_each(|key| all.defer_insert(key, 0));
        all.apply_deferred(true);
        all
    }
}

/// The keys of a range.
#[derive(Clone, Debug, Default)]
pub struct Range<'a> {
    groups: &'a [Group],
    from: KeyLocation,
    to: KeyLocation,
}

impl Range<'_> {
    /// How many keys are left, without iterating over them.
    #[must_use]
    pub fn remaining(&self) -> usize {
        if self.from >= self.to { 0 } else { self.before(self.to) - self.before(self.from) }
    }

    /// How many keys come before a location.
    fn before(&self, (in_groups, in_group, at): KeyLocation) -> usize {
        let (groups, rest) = self.groups.split_at(in_groups);
        let len = |blocks: &[Block]| blocks.iter().map(Vec::len).sum::<usize>();
        let whole: usize = groups.iter().map(|group| len(&group.parts)).sum();
        whole + rest.first().map_or(0, |group| len(&group.parts[..in_group])) + at
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = &'a Key;

    #[inline]
    fn next(&mut self) -> Option<&'a Key> {
        if self.from >= self.to {
            return None;
        }
        let (in_groups, in_group, at) = self.from;
        let block = &self.groups[in_groups].parts[in_group];
        self.from.2 += 1;
        if self.from.2 == block.len() {
            self.from = normalize(self.groups, self.from);
        }
        block.get(at)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.from >= self.to {
            return None;
        }
        let (mut in_groups, mut in_group, mut at) = self.to;
        if (in_group, at) == (0, 0) {
            in_groups -= 1;
            in_group = self.groups[in_groups].parts.len();
        }
        let blocks = &self.groups[in_groups].parts;
        if at == 0 {
            in_group -= 1;
            at = blocks[in_group].len();
        }
        self.to = (in_groups, in_group, at - 1);
        blocks[in_group].get(at - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_of_any_length_are_in_byte_order() {
        let words: [&[u8]; 9] = [
            b"b",
            b"a",
            b"\xff",
            b"a long key that is not inline",
            b"a\0",
            b"eight by",
            b"eight bytes and more",
            b"eight by\0",
            b"eight bx\xff",
        ];
        let keys: OrderedKeys = words.into_iter().collect();
        let mut sorted = words.to_vec();
        sorted.sort();
        let all: Vec<&[u8]> =
            keys.range(Bound::Unbounded, Bound::Unbounded).map(|k| &**k).collect();
        assert_eq!(all, sorted);
    }

    #[test]
    fn bulk_added_keys_are_ordered_with_any_shared_prefix() {
        let starts: [&[u8]; 4] = [b"", b"user", b"a long start that all of them share/", &[0; 9]];
        for start in starts {
            let mut x = 1u64;
            let numbers = std::iter::from_fn(|| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                Some(x >> 20)
            });
            // More keys than one batch; suffixes of every length, and some keys that equal the
            // prefix.
            let count = if start.is_empty() { 2 * BATCH } else { 3000 };
            let end = |n: u64| n.to_be_bytes()[8 - (n % 7 + 1) as usize..].to_vec();
            let keys: BTreeSet<Vec<u8>> =
                numbers.take(count).map(|n| [start, &end(n)].concat()).collect();
            assert!(!start.is_empty() || keys.len() > BATCH + 5000, "not all at once");
            let mut shuffled: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            shuffled.sort_by_key(|key| crate::format::checksum::checksum(key, 1));
            let all: OrderedKeys = shuffled.into_iter().collect();
            assert_eq!(all.len(), keys.len());
            assert!(all.range(Bound::Unbounded, Bound::Unbounded).map(|k| &**k).eq(&keys));
        }
    }

    #[test]
    fn inverted_range_is_empty() {
        let none = |keys: &OrderedKeys, a, b| {
            let range = keys.range(a, b);
            (range.remaining(), range.clone().count(), range.rev().count())
        };
        let (a, k, z) = (b"a".as_slice(), b"k".as_slice(), b"z".as_slice());
        let mut keys = OrderedKeys::default();
        assert_eq!(none(&keys, Bound::Unbounded, Bound::Unbounded), (0, 0, 0));
        assert_eq!(none(&keys, Bound::Included(a), Bound::Excluded(k)), (0, 0, 0));
        keys.insert(b"k", 0);
        assert_eq!(none(&keys, Bound::Included(z), Bound::Excluded(a)), (0, 0, 0));
        assert_eq!(none(&keys, Bound::Excluded(k), Bound::Excluded(k)), (0, 0, 0));
        assert_eq!(none(&keys, Bound::Included(k), Bound::Included(k)), (1, 1, 1));
    }

    /// Bounds of both kinds, and none.
    fn bound(number: u64, key: &[u8]) -> Bound<&[u8]> {
        match number % 5 {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(key),
            _ => Bound::Excluded(key),
        }
    }

    #[test]
    fn ordered_index_matches_set_through_growth_and_ranges() {
        let mut x = 1u64;
        let mut random = move || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            x >> 33
        };
        // Ascending, descending, appended in the middle, and random.
        let orders: [fn(u64, u64) -> u64; 4] =
            [|n, _| n, |n, _| 5000 - n, |n, _| (n % 2) << 20 | n, |_, random| random % 6000];
        for order in orders {
            let (mut keys, mut model) = (OrderedKeys::default(), BTreeSet::new());
            for step in 0..12_000 {
                let number = order(step % 5000, random());
                let key = [&[0; 7][..], &number.to_be_bytes()].concat();
                if step < 5000 && model.insert(key.clone()) {
                    keys.insert(&key, 0);
                } else if step >= 5000 {
                    model.remove(&key);
                    keys.remove(&key);
                }
                if step % 97 != 0 {
                    continue;
                }
                assert_eq!((keys.len(), keys.is_empty()), (model.len(), model.is_empty()));
                let ends = [random(), random()]
                    .map(|n| [&[0; 7][..], &order(n % 5000, n).to_be_bytes()].concat());
                let bounds = (bound(random(), &ends[0]), bound(random(), &ends[1]));
                let inside = |key: &&Vec<u8>| std::ops::RangeBounds::contains(&bounds, &key[..]);
                let expected: Vec<&[u8]> = model.iter().filter(inside).map(|k| &k[..]).collect();
                let range = keys.range(bounds.0, bounds.1);
                assert_eq!(range.remaining(), expected.len());
                assert!(range.clone().map(|key| &**key).eq(expected.iter().copied()));
                assert!(range.rev().map(|key| &**key).eq(expected.iter().rev().copied()));
            }
        }
    }

    #[test]
    fn ascending_inserts_fill_blocks_before_larger_keys() {
        let mut keys = OrderedKeys::default();
        // Most of the first half is inserted after the second half, some of it into the block where
        // it belongs.
        let numbers = (0..10).chain(50_000..100_000).chain(10..50_000_u32);
        numbers.for_each(|n| keys.insert(&n.to_be_bytes(), 0));
        assert!(keys.bytes() < 100_000 * (size_of::<Key>() + 2), "{}", keys.bytes());
        let all = keys.range(Bound::Unbounded, Bound::Unbounded);
        assert!(all.map(|key| &**key).eq((0..100_000_u32).map(u32::to_be_bytes)));
    }
}
