//! Operations on many keys: pages of a range, and the values of several keys.

use alloc::vec::Vec;
use core::ops::Bound;

use super::imports::HostFile;
use super::instance::{Instance, KEY_AREA, instance};
use crate::aligned_buf::copy_short;
use crate::error::Error;
use crate::format::LAST_KEYSPACE;
use crate::store::{LOOKUP_BATCH, Store};

/// Marks an absent bound.
const NO_BOUND: usize = 0xFFFF_FFFF;
/// A page of keys ends when it has this many bytes.
const PAGE_BYTES: usize = 64 << 10;
/// A page of copied values ends when they have this many bytes, and before a value with more.
const VALUE_BYTES: usize = 256 << 10;
/// Keys are sorted in parts of this many positions, which are 1 MiB of the file.
const PART_POSITIONS: u32 = 1 << 17;
/// Flags of a range, the same as in `js/engine/engine.ts`.
const LOWER_EXCLUDED: u32 = 1;
const UPPER_INCLUDED: u32 = 2;
const BACKWARDS: u32 = 4;
/// Flags of [`scan`] in addition.
const WITH_VALUES: u32 = 8;
const COPY_VALUES: u32 = 16;
const SEPARATE_VALUES: u32 = 32;
/// The second key area has space for this many keys of [`find_many`].
const MAX_KEYS: usize = 256;

/// Returns the address of a page of the keys in a range, see [`bounds`], or 0 with a code. The
/// answer contains the number of keys. The page consists of the offsets at which each key begins
/// and the last one ends, 4 bytes each, with space for `max_keys` + 1 of them, and then the keys,
/// starting at offset 0. With [`WITH_VALUES`], the address and the length of each value come between, with
/// space for `max_keys` pairs; an address of 0 means that the value is not in memory, and the length
/// is then the last known position of its record, or 0. They are valid until a write, or until all
/// views are detached.
///
/// With [`COPY_VALUES`] the values are copied one after the other, and their ends come in the place of the
/// addresses, 4 bytes each. Number 0 of the answer is the address of the first one. With
/// [`SEPARATE_VALUES`] there are commas between them. The page ends after the value
/// with which they become long, and before a long one: it has no rows if the first one is long.
#[unsafe(no_mangle)]
extern "C" fn scan(
    keyspace: u32,
    lower_len: usize,
    upper_len: usize,
    flags: u32,
    max_keys: usize,
) -> *const u8 {
    let instance = instance();
    let with_values = flags & (WITH_VALUES | COPY_VALUES) != 0;
    let keys_at = 4 + if with_values { 12 } else { 4 } * max_keys;
    // The previous page is overwritten.
    let mut page = core::mem::take(&mut instance.page);
    let mut values = core::mem::take(&mut instance.values);
    instance.run(|store, scratch, answer| {
        let range = bounds(scratch, lower_len, upper_len, flags);
        let (mut count, mut end) = (0, 0);
        page.resize(page.len().max(keys_at), 0);
        if max_keys > 0 {
            store.range(keyspace, range, flags & BACKWARDS != 0, |key, position| {
                let from = keys_at + end;
                end += key.len();
                if page.len() < keys_at + end {
                    page.resize(2 * (keys_at + end), 0);
                }
                copy_short(&mut page[from..keys_at + end], key);
                if with_values {
                    put(&mut page, max_keys + 1 + 2 * count, position as usize);
                }
                count += 1;
                put(&mut page, count, end);
                count < max_keys && end < PAGE_BYTES
            })?;
        }
        if flags & COPY_VALUES != 0 {
            let rows = page.split_at_mut(keys_at);
            let at = (max_keys + 1, count);
            count =
                copy_values(store, keyspace, rows, at, &mut values, flags & SEPARATE_VALUES != 0)?;
            answer.numbers[0] = values.as_ptr() as usize as f64;
        }
        answer.length = count as u32;
        if flags & WITH_VALUES != 0 {
            find_values(store, keyspace, page.split_at_mut(keys_at), count, true);
        }
        Ok(())
    });
    instance.page = page;
    instance.values = values;
    if instance.answer.code == 0 { instance.page.as_ptr() } else { core::ptr::null() }
}

/// Copies the values of the first `count` keys of a page, and writes where each ends from the
/// number `ends_at` on. Returns how many were copied until they had become, or would have become,
/// too long.
fn copy_values(
    store: &mut Store<HostFile>,
    keyspace: u32,
    (numbers, keys): (&mut [u8], &mut [u8]),
    (ends_at, count): (usize, usize),
    values: &mut Vec<u8>,
    are_separated: bool,
) -> Result<usize, Error> {
    values.clear();
    for i in 0..count {
        let key = &keys[get(numbers, i)..get(numbers, i + 1)];
        // Its end comes before the positions that are still to be read.
        store.expect_at(get(numbers, ends_at + 2 * i) as u32);
        // Every key of the order has a value.
        let value = store.read(keyspace, key)?.unwrap_or_default();
        if values.len() >= VALUE_BYTES || value.len() > VALUE_BYTES {
            return Ok(i);
        }
        if are_separated && i > 0 {
            values.push(b',');
        }
        values.extend_from_slice(value);
        put(numbers, ends_at + i, values.len());
    }
    Ok(count)
}

/// Sorts a part of the keys, as the first range does with all of them. 1: there are more, 0: all
/// are sorted, -1: it failed.
#[unsafe(no_mangle)]
extern "C" fn sort_part() -> i32 {
    let sorted = instance().run(|store, _, _| store.sort(PART_POSITIONS));
    sorted.map_or(-1, |all| i32::from(!all))
}

/// Returns how many keys are in a range, see [`bounds`]; -1 if that failed.
#[unsafe(no_mangle)]
extern "C" fn count_range(keyspace: u32, lower_len: usize, upper_len: usize, flags: u32) -> f64 {
    let counted = instance().run(|store, keys, _| {
        let range = bounds(keys, lower_len, upper_len, flags);
        Ok(store.count_range(keyspace, range)? as f64)
    });
    counted.unwrap_or(-1.0)
}

/// Deletes the keys in a range, see [`bounds`], at most `limit`: all of them or none. Returns how
/// many; -1 if it failed.
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
        store.clear(keyspace, range, flags & BACKWARDS != 0, limit as u64)
    });
    cleared.map_or(-1.0, |count| count as f64)
}

/// The bounds of a range: the lower one in the first key area, the upper one in the second, either
/// absent by [`NO_BOUND`].
fn bounds(
    scratch: &[u8],
    lower_len: usize,
    upper_len: usize,
    flags: u32,
) -> (Bound<&[u8]>, Bound<&[u8]>) {
    let (lower, upper) = scratch.split_at(KEY_AREA);
    let lower = match (lower_len, flags & LOWER_EXCLUDED) {
        (NO_BOUND, _) => Bound::Unbounded,
        (length, 0) => Bound::Included(&lower[..length]),
        (length, _) => Bound::Excluded(&lower[..length]),
    };
    let upper = match (upper_len, flags & UPPER_INCLUDED) {
        (NO_BOUND, _) => Bound::Unbounded,
        (length, 0) => Bound::Excluded(&upper[..length]),
        (length, _) => Bound::Included(&upper[..length]),
    };
    (lower, upper)
}

/// Looks up the values of up to [`MAX_KEYS`] keys, which are stored in the second key area in the
/// layout of [`scan`] with values, and writes the results there likewise. 0 also means that the key
/// is absent.
#[unsafe(no_mangle)]
extern "C" fn find_many(keyspace: u32, count: usize) {
    let Instance { store, scratch, .. } = instance();
    if let Some(store) = store {
        let page = scratch.0[KEY_AREA..].split_at_mut(4 + 12 * MAX_KEYS);
        find_values(store, keyspace, page, count.min(MAX_KEYS), false);
    }
}

/// For a scan, the value entries contain the positions of the records when the keys were read.
/// These reads do not count for eviction.
fn find_values(
    store: &mut Store<HostFile>,
    keyspace: u32,
    (numbers, keys): (&mut [u8], &mut [u8]),
    count: usize,
    is_walk: bool,
) {
    let values = numbers.len() / 12 + 1;
    // Without the snapshot that the number selects.
    let own = keyspace & LAST_KEYSPACE;
    let (mut positions, mut addrs) = ([0; LOOKUP_BATCH], [None; LOOKUP_BATCH]);
    for from in (0..count).step_by(LOOKUP_BATCH) {
        let together = from..count.min(from + LOOKUP_BATCH);
        let positions = &mut positions[..together.len()];
        let mut have_values = is_walk;
        for (position, i) in positions.iter_mut().zip(together.clone()) {
            *position = get(numbers, values + 2 * i) as u32;
            have_values &= store.is_current(*position);
        }
        if !have_values {
            for (hash, i) in positions.iter_mut().zip(together.clone()) {
                *hash = store.hash(own, &keys[get(numbers, i)..get(numbers, i + 1)]);
            }
            store.positions_of(positions);
        }
        if own != keyspace {
            for (position, i) in positions.iter_mut().zip(together.clone()) {
                let key = &keys[get(numbers, i)..get(numbers, i + 1)];
                *position = store.position_then(keyspace, key).unwrap_or(*position);
            }
        }
        store.prefetch_records(positions, &mut addrs);
        for ((&addr, &mut position), i) in addrs.iter().zip(positions).zip(together) {
            let key = &keys[get(numbers, i)..get(numbers, i + 1)];
            let value = addr.and_then(|addr| store.get_resident(addr, own, key, !is_walk));
            let known = get(numbers, values + 2 * i);
            let (address, length) = value.map_or((0, known), |value| (value.addr(), value.len()));
            if is_walk && address != 0 && known as u32 != position && own == keyspace {
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
