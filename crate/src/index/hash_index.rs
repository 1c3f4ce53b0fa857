//! A flat hash table from key hash to record position.
//!
//! Open addressing with linear probing over 8-byte slots `{hash: u32, position: u32}`. The home
//! slot of an entry is given by the upper bits of its hash, so the table doubles without reading
//! any record. Removal shifts those after it back (Knuth, TAOCP 6.4, algorithm R), so there are no
//! tombstones. Keys are compared by the caller, which knows where the records are.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::Position;
use super::position_set::PositionSet;
use crate::format::checksum::checksum;

/// Keys of up to this many bytes are hashed by 32-bit multiplications alone.
const SHORT_KEY: usize = 64;

/// The hash of keys: NH of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway, CRYPTO 1999), followed
/// by the finalizer of MurmurHash.
///
/// For two keys that were chosen without knowing the secret, the chance of equal sums is 2^-32, so
/// an attacker cannot flood the table. In wasm it takes less than half the time of XXH3, which
/// multiplies 64 by 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct KeyHash {
    /// For the keyspace and the length, for all words except the last, and for the last.
    secret: [u64; 1 + SHORT_KEY / 8],
}

impl KeyHash {
    /// The hash under the seed in the superblock.
    #[must_use]
    pub fn new(seed: [u64; 2]) -> Self {
        let mut secret = [0; 1 + SHORT_KEY / 8];
        for (i, word) in secret.iter_mut().enumerate() {
            *word = checksum(&(seed[1] ^ i as u64).to_le_bytes(), seed[0]);
        }
        KeyHash { secret }
    }

    /// The hash of a key.
    #[inline(never)]
    #[must_use]
    pub fn hash(&self, keyspace: u32, key: &[u8]) -> u32 {
        let [first, rest @ .., last] = &self.secret;
        let length = key.len();
        let mut sum = product((length as u64) << 32 | u64::from(keyspace), *first);
        if let Some(end) = key.last_chunk::<8>().filter(|_| length <= SHORT_KEY) {
            // The last word overlaps the previous one unless it begins where that ends.
            for (word, secret) in key[..length - 1].chunks_exact(8).zip(rest) {
                sum = sum.wrapping_add(halves(half(&word[..4]), half(&word[4..]), *secret));
            }
            sum = sum.wrapping_add(halves(half(&end[..4]), half(&end[4..]), *last));
        } else if length > SHORT_KEY {
            sum = sum.wrapping_add(checksum(key, *last));
        } else {
            let word = key.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            sum = sum.wrapping_add(product(word, *last));
        }
        sum ^= sum >> 32;
        sum = sum.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        sum ^= sum >> 29;
        (sum.wrapping_mul(0xC4CE_B9FE_1A85_EC53) >> 32) as u32
    }
}

/// Multiplies the two halves of a word, each masked with its half of the secret.
#[inline(always)]
const fn product(word: u64, secret: u64) -> u64 {
    halves(word as u32, (word >> 32) as u32, secret)
}

#[inline(always)]
const fn halves(low: u32, high: u32, secret: u64) -> u64 {
    let low = low.wrapping_add(secret as u32);
    let high = high.wrapping_add((secret >> 32) as u32);
    (low as u64).wrapping_mul(high as u64)
}

/// Half of a word. The key was just written four bytes at a time, and a processor that reads eight
/// of them has to wait until both writes have reached its cache.
#[inline(always)]
fn half(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

/// Slots of the smallest table.
const MIN_SLOTS: usize = 16;

/// The table. At most 3/4 of its slots are used.
#[derive(Debug)]
pub struct HashIndex {
    slots: Box<[u64]>,
    /// 32 minus the binary logarithm of the number of slots.
    shift: u32,
    len: usize,
    /// The set of positions in the table, if it is tracked.
    position_set: PositionSet,
}

/// The state of a walk over the positions under one hash.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    hash: u32,
    at: usize,
}

/// The last cluster of a table that is filled in the order of hashes: neighboring slots without an empty one between.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastCluster {
    start: usize,
    end: usize,
}

const fn pack(hash: u32, position: Position) -> u64 {
    (hash as u64) << 32 | position as u64
}

const fn hash_of(slot: u64) -> u32 {
    (slot >> 32) as u32
}

const fn position_of(slot: u64) -> Position {
    (slot & 0xFFFF_FFFF) as u32
}

impl Default for HashIndex {
    fn default() -> Self {
        HashIndex::with_slots(MIN_SLOTS)
    }
}

impl HashIndex {
    /// How many records the table holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the table and of the set of positions.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.len() * 8 + self.position_set.bytes()
    }

    /// Bytes of the table.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.slots.len() * 8
    }

    /// Starts to track positions for [`contains_position`](HashIndex::contains_position).
    pub fn track_positions(&mut self) {
        if !self.position_set.is_used() {
            self.position_set.start();
            let slots = self.slots.iter().filter(|&&slot| slot != 0);
            slots.for_each(|&slot| self.position_set.track(position_of(slot)));
        }
    }

    /// As [`track_positions`](HashIndex::track_positions), for a table that lacks entries. They are added with
    /// [`track`](HashIndex::track). Allocates all that positions up to `last` need.
    pub fn track_more_positions(&mut self, last: Position) {
        self.track_positions();
        self.position_set.reserve(last);
    }

    /// Adds the position of an entry that the table lacks to the tracked ones.
    #[inline]
    pub fn track(&mut self, position: Position) {
        self.position_set.track(position);
    }

    /// Whether positions are tracked.
    #[must_use]
    pub fn tracks_positions(&self) -> bool {
        self.position_set.is_used()
    }

    /// Whether a position is in the table under any hash, or that of an entry that was evicted or tracked
    /// without it. It is false as long as positions are not tracked.
    #[inline]
    #[must_use]
    pub fn contains_position(&self, position: Position) -> bool {
        self.position_set.contains(position)
    }

    /// How many of the `positions` positions from `first` on are in the table; both numbers are
    /// multiples of 256. It is 0 as long as positions are not tracked.
    #[must_use]
    pub fn count_positions(&self, first: Position, positions: u32) -> usize {
        self.position_set.count(first, positions)
    }

    /// Whether adding an eighth more records may double the table.
    #[must_use]
    pub fn nears_growth(&self) -> bool {
        self.len * 3 > self.slots.len() * 2
    }

    /// Bytes of the larger table that adding `records` records would allocate; 0 if the table
    /// suffices.
    #[inline]
    #[must_use]
    pub fn growth_bytes(&self, records: usize) -> usize {
        let doubles = (self.len + records) * 4 > self.slots.len() * 3;
        if doubles { self.slots.len() * 16 } else { 0 }
    }

    /// Starts a walk over the positions under `hash`, for callers that read records in between.
    #[inline]
    #[must_use]
    pub fn probe(&self, hash: u32) -> Probe {
        Probe { hash, at: (hash >> self.shift) as usize }
    }

    /// The next position under the hash of the probe. The table must not have changed in between.
    #[inline]
    pub fn next(&self, probe: &mut Probe) -> Option<Position> {
        let mask = self.slots.len() - 1;
        loop {
            let slot = self.slots[probe.at & mask];
            if slot == 0 {
                return None;
            }
            probe.at += 1;
            if hash_of(slot) == probe.hash {
                return Some(position_of(slot));
            }
        }
    }

    /// The first position under `hash` for which `is_match` returns true.
    #[inline]
    pub fn find(&self, hash: u32, mut is_match: impl FnMut(Position) -> bool) -> Option<Position> {
        let mut probe = self.probe(hash);
        loop {
            let position = self.next(&mut probe)?;
            if is_match(position) {
                return Some(position);
            }
        }
    }

    /// Whether the table contains `position` under `hash`.
    #[must_use]
    pub fn contains(&self, hash: u32, position: Position) -> bool {
        self.find(hash, |p| p == position).is_some()
    }

    /// Bytes of a table with space for so many records.
    #[must_use]
    pub fn bytes_for(records: usize) -> usize {
        HashIndex::slots_for(records) * 8
    }

    /// Slots of the largest table that takes at most so many bytes, but at least of the smallest one.
    const fn slots_in(bytes: usize) -> usize {
        let slots = bytes / 8;
        if slots < MIN_SLOTS { MIN_SLOTS } else { 1 << slots.ilog2() }
    }

    /// The largest table that takes at most so many bytes.
    #[must_use]
    pub fn with_bytes(bytes: usize) -> Self {
        HashIndex::with_slots(HashIndex::slots_in(bytes))
    }

    /// Whether a table of at most so many bytes is smaller than this one.
    #[must_use]
    pub fn exceeds(&self, bytes: usize) -> bool {
        self.slots.len() > HashIndex::slots_in(bytes)
    }

    /// How many records the [table of so many bytes](HashIndex::with_bytes) has space for.
    #[must_use]
    pub const fn capacity_of(bytes: usize) -> usize {
        HashIndex::slots_in(bytes) / 4 * 3
    }

    /// Moves the entries to the [table of so many bytes](HashIndex::with_bytes), which has space for them.
    pub fn shrink_to(&mut self, bytes: usize) {
        let smaller = HashIndex::with_bytes(bytes);
        debug_assert!(
            self.len <= smaller.capacity(),
            "the smaller table has space for all entries"
        );
        let old = core::mem::replace(&mut self.slots, smaller.slots);
        self.shift = smaller.shift;
        for &slot in old.iter().filter(|&&slot| slot != 0) {
            self.insert_slot(slot);
        }
    }

    fn slots_for(records: usize) -> usize {
        (records + 1).saturating_mul(4).div_ceil(3).next_power_of_two().max(MIN_SLOTS)
    }

    /// How many records the table has space for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.len() / 4 * 3
    }

    /// Prefetches the slots of these hashes, all at once.
    pub fn prefetch(&self, hashes: &[u32]) {
        let slots = hashes.iter().map(|hash| self.slots[(hash >> self.shift) as usize]);
        core::hint::black_box(slots.fold(0, |all, slot| all ^ slot));
    }

    /// Adds a record that is not in the table.
    pub fn insert(&mut self, hash: u32, position: Position) {
        debug_assert!(position != 0, "position 0 marks an empty slot");
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.double();
        }
        self.insert_slot(pack(hash, position));
        self.position_set.track(position);
        self.len += 1;
    }

    /// Grows the table until it has space for this many more records. Returns whether it has grown.
    pub fn reserve(&mut self, records: usize) -> bool {
        let slots = self.slots.len();
        while (self.len + records) * 4 > self.slots.len() * 3 {
            self.double();
        }
        self.slots.len() > slots
    }

    /// As [`insert`](HashIndex::insert) into a table with enough capacity, for records in the order
    /// in which [`collect`](HashIndex::collect) returns them: each goes right after the previous
    /// one without probing. Its position is not [tracked](HashIndex::track).
    #[inline]
    pub fn append(&mut self, appended: &mut LastCluster, hash: u32, position: Position) {
        debug_assert!(position != 0, "position 0 marks an empty slot");
        let mask = self.slots.len() - 1;
        let home = (hash >> self.shift) as usize;
        // No branches, because they would be unpredictable.
        appended.start = if home > appended.end { home } else { appended.start };
        appended.end = appended.end.max(home);
        match self.slots.get_mut(appended.end & mask) {
            Some(slot) if home >= appended.start && *slot == 0 => {
                *slot = pack(hash, position);
                appended.end += 1;
            }
            _ => self.insert_slot(pack(hash, position)),
        }
        self.len += 1;
    }

    /// Moves a record of the table to another position.
    pub fn replace(&mut self, hash: u32, from: Position, to: Position) {
        let i = self.slot_of(hash, from);
        self.slots[i] = pack(hash, to);
        self.position_set.remove(from);
        self.position_set.track(to);
    }

    /// Moves a record to another position if it is in the table.
    #[inline]
    pub fn replace_if_present(&mut self, hash: u32, from: Position, to: Position) -> bool {
        let mask = self.slots.len() - 1;
        let wanted = pack(hash, from);
        let mut i = (hash >> self.shift) as usize & mask;
        // Most entries are in one of the first slots, but which of them is unpredictable.
        for _ in 0..3 {
            i = (i + usize::from(self.slots[i] != wanted)) & mask;
        }
        loop {
            match &mut self.slots[i] {
                slot if *slot == wanted => {
                    *slot = pack(hash, to);
                    if self.tracks_positions() {
                        self.position_set.remove(from);
                        self.position_set.track(to);
                    }
                    return true;
                }
                0 => return false,
                _ => i = (i + 1) & mask,
            }
        }
    }

    /// Removes a record from the table.
    pub fn remove(&mut self, hash: u32, position: Position) {
        self.remove_slot(self.slot_of(hash, position));
        self.position_set.remove(position);
    }

    /// Removes up to `wanted` entries whose positions `may_go`, which stay tracked. They are found after slots that
    /// are spread evenly by a Weyl sequence, which `seed` continues: a hand that sweeps the table would leave
    /// parts of it full.
    pub fn evict(
        &mut self,
        seed: &mut u32,
        wanted: usize,
        mut may_go: impl FnMut(u32, Position) -> bool,
    ) -> usize {
        let mask = self.slots.len() - 1;
        for evicted in 0..wanted {
            *seed = seed.wrapping_add(0x9E37_79B9);
            let from = (*seed >> self.shift) as usize;
            let found = (from..from + self.slots.len()).map(|at| at & mask).find(|&at| {
                let slot = self.slots[at];
                slot != 0 && may_go(hash_of(slot), position_of(slot))
            });
            let Some(at) = found else { return evicted };
            self.remove_slot(at);
        }
        wanted
    }

    fn remove_slot(&mut self, mut hole: usize) {
        let mask = self.slots.len() - 1;
        let mut i = hole;
        loop {
            i = (i + 1) & mask;
            let slot = self.slots[i];
            if slot == 0 {
                break;
            }
            let home = (hash_of(slot) >> self.shift) as usize;
            // The slot may move back to the hole unless its home slot is after the hole.
            if (i.wrapping_sub(home) & mask) >= (i.wrapping_sub(hole) & mask) {
                self.slots[hole] = slot;
                hole = i;
            }
        }
        self.slots[hole] = 0;
        self.len -= 1;
    }

    /// All positions, in no particular order.
    pub fn positions(&self) -> impl Iterator<Item = Position> + '_ {
        self.slots.iter().filter(|&&slot| slot != 0).map(|&slot| position_of(slot))
    }

    /// Appends the entries whose hash is from `first` to `last` to `out`, as hash and position,
    /// nearly in the order of their hashes.
    pub fn collect(&self, first: u32, last: u32, out: &mut Vec<(u32, Position)>) {
        let mask = self.slots.len() - 1;
        let (from, to) = ((first >> self.shift) as usize, (last >> self.shift) as usize);
        let is_inside = |slot: u64| slot != 0 && (first..=last).contains(&hash_of(slot));
        // Every second slot is empty at random, so a branch would be unpredictable.
        let mut n = out.len();
        out.resize(n + to - from + 1, (0, 0));
        for &slot in &self.slots[from..to] {
            out[n] = (hash_of(slot), position_of(slot));
            n += usize::from(is_inside(slot));
        }
        out.truncate(n);
        // An entry is at its home slot or after it, with no empty slot between.
        for at in to..from + self.slots.len() {
            let slot = self.slots[at & mask];
            if is_inside(slot) {
                out.push((hash_of(slot), position_of(slot)));
            } else if slot == 0 {
                break;
            }
        }
    }

    /// A table with capacity for `count` records.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        HashIndex::with_slots(HashIndex::slots_for(count))
    }

    fn with_slots(slots: usize) -> Self {
        let shift = 32 - slots.trailing_zeros();
        HashIndex {
            slots: vec![0; slots].into_boxed_slice(),
            shift,
            len: 0,
            position_set: PositionSet::default(),
        }
    }

    fn slot_of(&self, hash: u32, position: Position) -> usize {
        let mask = self.slots.len() - 1;
        let wanted = pack(hash, position);
        let mut i = (hash >> self.shift) as usize & mask;
        while self.slots[i] != wanted {
            // Invariant: callers give a record of the table, so the search ends before an empty
            // slot.
            assert!(self.slots[i] != 0, "the record is not in the index");
            i = (i + 1) & mask;
        }
        i
    }

    #[inline(never)]
    fn insert_slot(&mut self, slot: u64) {
        let mask = self.slots.len() - 1;
        let mut i = (hash_of(slot) >> self.shift) as usize & mask;
        while self.slots[i] != 0 {
            i = (i + 1) & mask;
        }
        self.slots[i] = slot;
    }

    fn double(&mut self) {
        let larger = vec![0; self.slots.len() * 2].into_boxed_slice();
        let old = core::mem::replace(&mut self.slots, larger);
        self.shift -= 1;
        for &slot in old.iter().filter(|&&slot| slot != 0) {
            self.insert_slot(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn table_matches_map_through_collisions_growth_and_removal() {
        let mut table = HashIndex::default();
        let mut model: BTreeMap<u32, u32> = BTreeMap::new();
        let mut x = 1u64;
        for step in 0..200_000u32 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Few distinct upper bits: long runs, wrapping around the end of the table.
            let position = (x >> 33) as u32 % 3000 + 1;
            let hash = position.wrapping_mul(0x9E37_79B9) | 0xF000_0000;
            if let Some(old) = model.remove(&position) {
                table.remove(old, position);
            } else {
                table.insert(hash, position);
                model.insert(position, hash);
            }
            if step % 1000 == 0 {
                assert_eq!(table.len(), model.len());
                for position in 1..=3000u32 {
                    let hash = position.wrapping_mul(0x9E37_79B9) | 0xF000_0000;
                    let found = table.find(hash, |p| p == position);
                    assert_eq!(found.is_some(), model.contains_key(&position));
                }
            }
        }
    }

    #[test]
    fn table_reports_which_positions_it_contains() {
        let mut table = HashIndex::default();
        // Records of the minimum size, some of them far away.
        let position = |n: u32| (n % 1000 + 1) * 6 + ((n % 3) << 22);
        let hash = |n: u32| n.wrapping_mul(0x9E37_79B9);
        (0..500).for_each(|n| table.insert(hash(n), position(n)));
        assert!(
            (0..500).all(|n| !table.contains_position(position(n))),
            "positions are not tracked yet"
        );
        table.track_positions();
        table.track_positions();
        (500..900).for_each(|n| table.insert(hash(n), position(n)));
        (0..100).for_each(|n| table.remove(hash(n), position(n)));
        (100..150).for_each(|n| table.replace(hash(n), position(n), position(n - 100)));
        for n in 0..3000 {
            assert_eq!(table.contains_position(position(n)), matches!(n, 0..50 | 150..900), "{n}");
        }
        assert_eq!(table.bytes(), 2048 * 8 + 3 * PositionSet::bytes_for(0));
        let mut inside = vec![0; 13 << 10];
        let there = (0..900).map(position).filter(|&at| table.contains_position(at));
        there.for_each(|at| inside[at as usize / 1024] += 1);
        for (first, count) in (0..).step_by(1024).zip(inside) {
            assert_eq!(table.count_positions(first, 1024), count, "from {first}");
        }
    }

    #[test]
    fn evicting_keeps_all_parts_of_the_table_equally_full() {
        let mut table = HashIndex::with_capacity(3 << 14);
        let (capacity, mut seed, mut evicted) = (table.capacity(), 0, 0);
        let mut live = std::collections::BTreeSet::new();
        let mut x = 1_u64;
        for position in 1..400_000_u32 {
            if table.len() == capacity {
                // Those divisible by three stay.
                evicted += table.evict(&mut seed, 8, |hash, position| {
                    let goes = !position.is_multiple_of(3);
                    goes && live.remove(&(hash, position))
                });
            }
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let hash = (x >> 32) as u32;
            if position.is_multiple_of(3) && position > 60_000 {
                continue;
            }
            table.insert(hash, position);
            live.insert((hash, position));
        }
        assert!(evicted > 150_000, "{evicted} evicted");
        assert_eq!((table.len(), table.capacity()), (live.len(), capacity));
        assert!(live.iter().all(|&(hash, position)| table.contains(hash, position)));
        let full = |slots: &[u64]| slots.iter().filter(|&&slot| slot != 0).count();
        let least = table.slots.chunks(1 << 10).map(full).min();
        let most = table.slots.chunks(1 << 10).map(full).max();
        assert!(least > Some(640) && most < Some(896), "{least:?} to {most:?} of 1024");
        assert_eq!(table.evict(&mut seed, 1, |_, _| false), 0);
    }

    #[test]
    fn bulk_appended_entries_are_found_in_any_order() {
        let mut random = (1..3000_u32).map(|n| n.wrapping_mul(0x9E37_79B9));
        // Runs at both ends of the table, one of which wraps around, and many entries with the same
        // hash.
        let mut entries: Vec<(u32, Position)> =
            (1..3000).zip(&mut random).map(|(p, h)| (h, p)).collect();
        entries.extend((3000..3200).map(|p| (u32::MAX - p % 7, p)));
        entries.extend((3200..3300).map(|p| (p % 5, p)));
        let mut table = HashIndex::default();
        entries.iter().for_each(|&(hash, position)| table.insert(hash, position));
        let mut collected = Vec::new();
        for first in [0, 1 << 31] {
            table.collect(first, first + (u32::MAX >> 1), &mut collected);
        }
        let sorted = {
            let mut all = entries.clone();
            all.sort();
            all
        };
        let mut whole = Vec::new();
        table.collect(0, u32::MAX, &mut whole);
        whole.sort_unstable();
        assert_eq!(whole, sorted);
        for order in [collected, sorted, entries.clone(), entries.iter().rev().copied().collect()] {
            let (mut copy, mut appended) =
                (HashIndex::with_capacity(order.len()), LastCluster::default());
            order.iter().for_each(|&(hash, position)| copy.append(&mut appended, hash, position));
            assert_eq!(copy.len(), entries.len());
            for &(hash, position) in &entries {
                assert!(copy.contains(hash, position), "{hash:x} at {position}");
                copy.remove(hash, position);
            }
        }
    }

    #[test]
    fn table_of_some_bytes_takes_no_more_and_shrinks_to_them() {
        for bytes in [0, 128, 129, 1000, 4096, 100_000, 1 << 17] {
            let table = HashIndex::with_bytes(bytes);
            assert!(table.slot_bytes() <= bytes.max(128), "{} for {bytes}", table.slot_bytes());
            assert!(table.slot_bytes() * 2 > bytes, "{} for {bytes}", table.slot_bytes());
            assert_eq!(table.capacity(), HashIndex::capacity_of(bytes));
            assert!(!table.exceeds(bytes));
            let mut larger = HashIndex::with_capacity(10_000);
            larger.track_positions();
            let entries = (1..=table.capacity().min(10_000) as u32)
                .map(|position| (position.wrapping_mul(0x9E37_79B9), position));
            entries.clone().for_each(|(hash, position)| larger.insert(hash, position));
            assert_eq!(larger.exceeds(bytes), larger.slot_bytes() > table.slot_bytes());
            if !larger.exceeds(bytes) {
                continue;
            }
            larger.shrink_to(bytes);
            assert_eq!(
                (larger.slot_bytes(), larger.len()),
                (table.slot_bytes(), entries.clone().count())
            );
            for (hash, position) in entries {
                assert!(larger.contains(hash, position) && larger.contains_position(position));
            }
        }
    }

    fn collisions(keys: impl Iterator<Item = Vec<u8>>, bits: u32) -> usize {
        let hash = KeyHash::new([7, 11]);
        let mut seen = std::collections::BTreeSet::new();
        keys.filter(|key| !seen.insert(hash.hash(0, key) >> (32 - bits))).count()
    }

    #[test]
    fn similar_keys_hash_like_random_keys() {
        // 65,536 random hashes of 24 bits have 127 collisions on average, and hardly ever 190.
        let numbers = || 0..1 << 16_u32;
        for length in [4, 7, 8, 9, 12, 16, 20, 33, 64, 65, 100] {
            let front = |n: u32| [&n.to_be_bytes()[..], &vec![0; length - 4]].concat();
            assert!(collisions(numbers().map(front), 24) < 190, "{length} bytes, first four");
            let end = |n: u32| [&vec![0; length - 4], &n.to_le_bytes()[..]].concat();
            assert!(collisions(numbers().map(end), 24) < 190, "{length} bytes, last four");
        }
        let decimal = |n: u32| format!("key-{n:012}").into_bytes();
        assert!(collisions(numbers().map(decimal), 24) < 190, "numbered keys");
        assert!(collisions((1..2000).map(|n| vec![0; n]), 24) < 5, "zeros");
    }

    #[test]
    fn hash_depends_on_keyspace_and_secret() {
        let key = b"a key of 16 byte";
        let hashes = [
            KeyHash::new([1, 2]).hash(0, key),
            KeyHash::new([1, 2]).hash(1, key),
            KeyHash::new([1, 3]).hash(0, key),
            KeyHash::new([2, 2]).hash(0, key),
        ];
        assert_eq!(hashes.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    }

    #[test]
    fn replace_moves_only_the_given_position() {
        let mut table = HashIndex::default();
        table.insert(7, 1);
        table.insert(7, 2);
        table.replace(7, 1, 9);
        assert_eq!(table.find(7, |p| p == 9), Some(9));
        assert_eq!(table.find(7, |p| p == 2), Some(2));
        assert_eq!(table.find(7, |p| p == 1), None);
    }
}
