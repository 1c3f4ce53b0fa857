//! Many keys: pages of a range, and values of keys that are given together.

use core::ops::Bound;

use super::imports::HostFile;
use super::instance::{Instance, KEY_AREA, instance};
use crate::aligned_buf::copy_short;
use crate::store::{Store, LOOKUP_BATCH};

/// Marks an absent bound.
const NO_BOUND: usize = 0xFFFF_FFFF;
/// A page of keys ends when it has this many bytes.
const PAGE_BYTES: usize = 64 << 10;
/// Keys are sorted by parts of so many positions, which are 1 MiB of the file.
const PART: u32 = 1 << 17;
/// Room for so many keys in the second key area, for [`find_many`].
const MANY: usize = 256;

/// A page of the keys in a range, see [`bounds`]: its address, or 0 with a code. In the answer how
/// many keys there are; at the address the places where each begins and the last one ends, 4 bytes
/// each, in room for `max_keys` and one, and then the keys, from place 0 on. With flag 8 address and
/// length of each value come between, in room for as many pairs; an address of 0 says that the value is
/// not at hand. They hold until a write, or until all views die.
#[unsafe(no_mangle)]
extern "C" fn scan(
    keyspace: u32,
    lower_len: usize,
    upper_len: usize,
    flags: u32,
    max_keys: usize,
) -> *const u8 {
    let instance = instance();
    let with_values = flags & 8 != 0;
    let keys_at = 4 + if with_values { 12 } else { 4 } * max_keys;
    // What the page before has left is written over.
    let mut page = core::mem::take(&mut instance.page);
    instance.run(|store, scratch, answer| {
        let range = bounds(scratch, lower_len, upper_len, flags);
        let mut keys = store.range_keys(keyspace, range)?;
        let (mut count, mut end) = (0, 0);
        page.resize(page.len().max(keys_at), 0);
        while count < max_keys && end < PAGE_BYTES {
            let key = if flags & 4 == 0 { keys.next() } else { keys.next_back() };
            let Some(key) = key else { break };
            let from = keys_at + end;
            end += key.len();
            if page.len() < keys_at + end {
                page.resize(2 * (keys_at + end), 0);
            }
            copy_short(&mut page[from..keys_at + end], key);
            if with_values {
                put(&mut page, max_keys + 1 + 2 * count, key.position as usize);
            }
            count += 1;
            put(&mut page, count, end);
        }
        answer.length = count as u32;
        if with_values {
            find_values(store, keyspace, page.split_at_mut(keys_at), count, true);
        }
        Ok(())
    });
    instance.page = page;
    if instance.answer.code == 0 { instance.page.as_ptr() } else { core::ptr::null() }
}

/// Sorts a part of the keys, as the first range does with all: 1 when there are more, 0 when that was
/// all, -1 when it failed.
#[unsafe(no_mangle)]
extern "C" fn sort_part() -> i32 {
    let sorted = instance().run(|store, _, _| store.sort(PART));
    sorted.map_or(-1, |all| i32::from(!all))
}

/// How many keys are in a range, see [`bounds`]; -1 when that failed.
#[unsafe(no_mangle)]
extern "C" fn count_range(keyspace: u32, lower_len: usize, upper_len: usize, flags: u32) -> f64 {
    let counted = instance().run(|store, keys, _| {
        let range = bounds(keys, lower_len, upper_len, flags);
        Ok(store.range_keys(keyspace, range)?.remaining() as f64)
    });
    counted.unwrap_or(-1.0)
}

/// Deletes the keys in a range, see [`bounds`], at most so many: all of them or none. How many these were; -1
/// when it failed.
#[unsafe(no_mangle)]
extern "C" fn clear(
    keyspace: u32,
    lower_len: usize,
    upper_len: usize,
    flags: u32,
    limit: f64,
) -> f64 {
    let cleared = instance().run(|store, keys, _| {
        let range = bounds(keys, lower_len, upper_len, flags);
        store.clear(keyspace, range, flags & 4 != 0, limit as u64)
    });
    cleared.map_or(-1.0, |count| count as f64)
}

/// The bounds of a range: the lower one in the first key area, the upper one in the second, either
/// absent by [`NO_BOUND`]. Flags: 1 lower excluded, 2 upper included, 4 backwards.
fn bounds(
    scratch: &[u8],
    lower_len: usize,
    upper_len: usize,
    flags: u32,
) -> (Bound<&[u8]>, Bound<&[u8]>) {
    let (lower, upper) = scratch.split_at(KEY_AREA);
    let lower = match (lower_len, flags & 1) {
        (NO_BOUND, _) => Bound::Unbounded,
        (length, 0) => Bound::Included(&lower[..length]),
        (length, _) => Bound::Excluded(&lower[..length]),
    };
    let upper = match (upper_len, flags & 2) {
        (NO_BOUND, _) => Bound::Unbounded,
        (length, 0) => Bound::Excluded(&upper[..length]),
        (length, _) => Bound::Included(&upper[..length]),
    };
    (lower, upper)
}

/// Looks for the values of up to [`MANY`] keys, which lie in the second key area as [`scan`] gives keys
/// with values, and writes there what it writes. 0 also stands for a key that is absent.
#[unsafe(no_mangle)]
extern "C" fn find_many(keyspace: u32, count: usize) {
    let Instance { store, scratch, .. } = instance();
    if let Some(store) = store {
        let page = scratch.0[KEY_AREA..].split_at_mut(4 + 12 * MANY);
        find_values(store, keyspace, page, count.min(MANY), false);
    }
}

/// The keys of a walk stand there with the positions that they had where values come. Looking at those
/// does not count.
fn find_values(
    store: &mut Store<HostFile>,
    keyspace: u32,
    (numbers, keys): (&mut [u8], &mut [u8]),
    count: usize,
    is_walk: bool,
) {
    let values = numbers.len() / 12 + 1;
    let (mut positions, mut places) = ([0; LOOKUP_BATCH], [None; LOOKUP_BATCH]);
    for from in (0..count).step_by(LOOKUP_BATCH) {
        let together = from..count.min(from + LOOKUP_BATCH);
        let positions = &mut positions[..together.len()];
        let mut are_there = is_walk;
        for (position, i) in positions.iter_mut().zip(together.clone()) {
            *position = get(numbers, values + 2 * i) as u32;
            are_there &= store.is_current(*position);
        }
        if !are_there {
            for (hash, i) in positions.iter_mut().zip(together.clone()) {
                *hash = store.hash(keyspace, &keys[get(numbers, i)..get(numbers, i + 1)]);
            }
            store.positions_of(positions);
        }
        store.prefetch_records(positions, &mut places);
        for ((&place, &mut position), i) in places.iter().zip(positions).zip(together) {
            let key = &keys[get(numbers, i)..get(numbers, i + 1)];
            let value = place.and_then(|place| store.get_resident(place, keyspace, key, !is_walk));
            let (address, length) = value.map_or((0, 0), |value| (value.addr(), value.len()));
            if is_walk && address != 0 && get(numbers, values + 2 * i) as u32 != position {
                store.index_record(keyspace, key, position);
            }
            put(numbers, values + 2 * i, address);
            put(numbers, values + 2 * i + 1, length);
        }
    }
}

#[inline]
fn put(page: &mut [u8], index: usize, number: usize) {
    page[index * 4..index * 4 + 4].copy_from_slice(&(number as u32).to_le_bytes());
}

#[inline(always)]
fn get(page: &[u8], index: usize) -> usize {
    let bytes = page[index * 4..index * 4 + 4].try_into();
    bytes.map_or(0, u32::from_le_bytes) as usize
}
