//! The keys in order. Touched only when a key appears or disappears.
//!
//! A tree of three levels: blocks of keys in order, groups of blocks, and all groups, each with the
//! keys at which they start. Against the B-tree of the standard library that is a quarter of the
//! code, fewer bytes a key, and a range is a walk over arrays.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Bound;

use super::hash_index::Position;
use crate::radix_sort;

/// Bytes of a key that lie inline: what makes it no larger than its pointer, length and tag would, but on
/// wasm32, where most keys would not fit then.
const INLINE: usize = if cfg!(target_pointer_width = "32") { 18 } else { 22 };

/// A key that the engine owns: short ones lie inline and take no allocation, as those of the crate
/// `byteview` do.
#[derive(Clone, Debug)]
pub struct Key {
    bytes: Bytes,
    /// Where its record lay when somebody looked last: what a walk asks for first.
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
            Some(room) => {
                room.copy_from_slice(bytes);
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

/// The order of bytes, eight at a time.
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
    // What is left lies within the last eight bytes, and what comes before it is equal.
    words(shared - 8).unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// How many keys a block and how many blocks a group holds at most.
const BLOCK: usize = 64;
const GROUP: usize = 128;

/// Keys that are added together.
const AT_ONCE: usize = 1 << 16;

/// How many of some keys in order are below `key`, or with `behind` not above it.
///
/// Ahead by 64, by eight and by one: the processor guesses how that goes on and has the next keys on
/// their way, where halving waits for each.
fn count_below(keys: &[Key], key: &[u8], behind: bool) -> usize {
    let (mut at, mut step) = (0, 1);
    while step * 8 < keys.len() {
        step *= 8;
    }
    while step > 0 {
        while let Some(other) = keys.get(at + step - 1) {
            match compare(other, key) {
                Ordering::Less => at += step,
                Ordering::Equal if behind => at += step,
                _ => break,
            }
        }
        step /= 8;
    }
    at
}

/// Parts in order, and for each a key that is not above those in it, and above all in the parts
/// before it. The first part's key means nothing.
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
    /// The part in which a key is or would be. There must be one.
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

    /// Bytes that it takes itself.
    fn bytes(&self) -> usize {
        self.starts.capacity() * size_of::<Key>() + self.parts.capacity() * size_of::<T>()
    }
}

type Block = Vec<Key>;
type Group = Tier<Block>;

/// A place between two keys: group, block, and how many of its keys lie before it. It is less than
/// the block has, and the block less than the group has, unless nothing comes behind.
type Place = (usize, usize, usize);

/// The keys of one keyspace in byte order.
#[derive(Debug, Default)]
pub struct OrderedKeys {
    /// No group and no block is empty.
    groups: Tier<Group>,
    len: usize,
    later: Vec<Key>,
    /// Right behind the key that was added last.
    next: Place,
}

/// So many groups lie in the processor's caches.
const NEAR: usize = 8;

impl OrderedKeys {
    /// Adds a key that is not there, and whose record lies at a position.
    pub fn insert(&mut self, key: &[u8], position: Position) {
        self.put(Key { position, ..Key::new(key) }, None);
    }

    /// Notes where the record of a key that is there lies.
    pub fn note(&mut self, key: &[u8], position: Position) {
        if self.is_empty() {
            return;
        }
        let (in_groups, in_group, at) = self.find(key, false);
        if let Some(found) = self.groups.parts[in_groups].parts[in_group].get_mut(at) {
            found.position = position;
        }
    }

    fn put(&mut self, new: Key, place: Option<Place>) {
        self.len += 1;
        if self.groups.parts.is_empty() {
            self.groups.insert(0, new.clone(), Group::default());
            self.groups.parts[0].insert(0, new.clone(), vec![new]);
            return;
        }
        let (in_groups, mut in_group, mut at) =
            place.or_else(|| self.behind_all(&new)).unwrap_or_else(|| self.find(&new, false));
        let group = &mut self.groups.parts[in_groups];
        let block = &mut group.parts[in_group];
        if block.len() == BLOCK {
            // Keys that come in order fill their blocks: at the end of one a new one begins, and what
            // stands behind them goes there.
            let cut = if self.next == (in_groups, in_group, at) { at } else { BLOCK / 2 };
            let (behind, is_in_new) = match at {
                BLOCK => (Vec::with_capacity(BLOCK), true),
                _ => (block.split_off(cut), at > cut),
            };
            let start = behind.first().unwrap_or(&new).clone();
            let left = block.len();
            group.insert(in_group + 1, start, behind);
            if is_in_new {
                (in_group, at) = (in_group + 1, at - left);
            }
        }
        group.parts[in_group].insert(at, new);
        self.next = (in_groups, in_group, at + 1);
        if group.parts.len() > GROUP {
            let is_end = in_group == GROUP;
            let behind = group.split_off(if is_end { GROUP } else { GROUP / 2 });
            self.groups.insert(in_groups + 1, behind.starts[0].clone(), behind);
        }
    }

    /// As [`insert`](OrderedKeys::insert) for keys of which many come at once. They are there when
    /// [`insert_rest`](OrderedKeys::insert_rest) has been called.
    pub fn insert_later(&mut self, key: &[u8], position: Position) {
        self.later.push(Key { position, ..Key::new(key) });
        if self.later.len() == AT_ONCE {
            self.insert_rest();
        }
    }

    /// Adds what was to be added later, in order but for keys that are alike for long, so that the next key
    /// mostly goes where the processor has just been.
    pub fn insert_rest(&mut self) {
        let keys = core::mem::take(&mut self.later);
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
            // They are waited for together.
            core::hint::black_box(order.iter().map(|&(_, i)| keys[i as usize].position).max());
            for &(_, i) in order {
                let new = keys[i as usize].clone();
                let place = self.near(&new);
                self.put(new, place);
            }
        }
    }

    /// Takes a key out.
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
        block.remove(at);
        self.len -= 1;
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

    /// Gives back the memory of some keys, which are not there for anybody any more. Says whether there is more.
    pub fn shed(&mut self) -> bool {
        self.groups.starts.pop();
        self.groups.parts.pop();
        !self.groups.parts.is_empty()
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that it takes, but for those of keys that do not lie inline.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let groups = &self.groups.parts;
        let blocks = groups.iter().flat_map(|group| &group.parts).map(Vec::capacity);
        let keys = blocks.sum::<usize>() * size_of::<Key>();
        keys + groups.iter().map(Tier::bytes).sum::<usize>() + self.groups.bytes()
    }

    /// The keys between two bounds, forwards or backwards. Empty when the bounds leave nothing
    /// between them.
    #[must_use]
    pub fn range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Range<'_> {
        let from = match lower {
            Bound::Unbounded => (0, 0, 0),
            Bound::Included(key) => self.place(key, false),
            Bound::Excluded(key) => self.place(key, true),
        };
        let to = match upper {
            Bound::Unbounded => (self.groups.parts.len(), 0, 0),
            Bound::Included(key) => self.place(key, true),
            Bound::Excluded(key) => self.place(key, false),
        };
        Range { groups: &self.groups.parts, from, to }
    }

    /// The place of a key that is above all others, as numbers and times that grow are: nothing is
    /// looked for then.
    fn behind_all(&self, key: &[u8]) -> Option<Place> {
        let group = self.groups.parts.last()?;
        let block = group.parts.last()?;
        (compare(block.last()?, key) == Ordering::Less)
            .then(|| (self.groups.parts.len() - 1, group.parts.len() - 1, block.len()))
    }

    /// The place of a key that goes into the block of the one before it, and behind that.
    fn near(&self, key: &[u8]) -> Option<Place> {
        let (in_groups, in_group, at) = self.next;
        let block = self.groups.parts.get(in_groups)?.parts.get(in_group)?;
        let is_between = compare(block.get(at.checked_sub(1)?)?, key) == Ordering::Less
            && compare(block.last()?, key) == Ordering::Greater;
        is_between.then(|| (in_groups, in_group, at + count_below(&block[at..], key, false)))
    }

    /// Group and block in which a key is or would be, and how many of the block's keys are below
    /// it, or with `behind` not above it. There must be a block; its lines are waited for together, where
    /// there are more than stay near the processor.
    fn find(&self, key: &[u8], behind: bool) -> Place {
        let in_groups = self.groups.index_of(key);
        let group = &self.groups.parts[in_groups];
        let in_group = group.index_of(key);
        if self.groups.parts.len() > NEAR {
            let lines = group.parts[in_group].iter().step_by(2);
            core::hint::black_box(lines.map(|key| key.position).max());
        }
        (in_groups, in_group, count_below(&group.parts[in_group], key, behind))
    }

    fn place(&self, key: &[u8], behind: bool) -> Place {
        if self.is_empty() {
            return (0, 0, 0);
        }
        normal(&self.groups.parts, self.find(key, behind))
    }
}

/// The end of a block is the beginning of the next, and that of a group of the next.
fn normal(groups: &[Group], (in_groups, in_group, at): Place) -> Place {
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
        keys.into_iter().for_each(|key| all.insert_later(key, 0));
        all.insert_rest();
        all
    }
}

/// Keys of a range.
#[derive(Clone, Debug, Default)]
pub struct Range<'a> {
    groups: &'a [Group],
    from: Place,
    to: Place,
}

impl Range<'_> {
    /// How many keys are left, told without a walk over them.
    #[must_use]
    pub fn remaining(&self) -> usize {
        if self.from >= self.to { 0 } else { self.before(self.to) - self.before(self.from) }
    }

    /// How many keys lie before a place.
    fn before(&self, (in_groups, in_group, at): Place) -> usize {
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
            self.from = normal(self.groups, self.from);
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
            // More than go at once; ends of every length, and some with nothing behind the start.
            let count = if start.is_empty() { 2 * AT_ONCE } else { 3000 };
            let end = |n: u64| n.to_be_bytes()[8 - (n % 7 + 1) as usize..].to_vec();
            let keys: BTreeSet<Vec<u8>> =
                numbers.take(count).map(|n| [start, &end(n)].concat()).collect();
            assert!(!start.is_empty() || keys.len() > AT_ONCE + 5000, "not all at once");
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

    /// Bounds for a range between two numbers: both kinds, and none.
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
        // In order, in reverse, appended in the middle, and at random.
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
        // Most of the first half come when the second is there, some of it in the block where they go.
        let numbers = (0..10).chain(50_000..100_000).chain(10..50_000_u32);
        numbers.for_each(|n| keys.insert(&n.to_be_bytes(), 0));
        assert!(keys.bytes() < 100_000 * (size_of::<Key>() + 2), "{}", keys.bytes());
        let all = keys.range(Bound::Unbounded, Bound::Unbounded);
        assert!(all.map(|key| &**key).eq((0..100_000_u32).map(u32::to_be_bytes)));
    }
}
