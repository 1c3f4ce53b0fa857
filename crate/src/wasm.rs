//! The boundary: exports of integers, and the host's file.
//!
//! One store per instance. Keys arrive in a fixed scratch area; values are read and written where
//! they lie, at addresses that the calls return. Plain `extern "C"` and no binding generator:
//! nothing but integers crosses, so there is no glue to keep state in, and any number of instances
//! may live side by side. The twin of this file is `js/engine.ts`.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::Bound;

use crate::error::Error;
use crate::file::{File, IoError};
use crate::format::MAX_KEY;
use crate::memory::copy_short;
use crate::store::{OnDamage, Options, Spot, Store};

/// Imports of the module `host`.
mod host {
    #[link(wasm_import_module = "host")]
    unsafe extern "C" {
        pub fn read(address: *mut u8, length: usize, at: f64) -> i32;
        pub fn write(address: *const u8, length: usize, at: f64) -> i32;
        pub fn truncate(size: f64) -> i32;
        pub fn size() -> f64;
        pub fn flush() -> i32;
        pub fn detach();
        pub fn panicked(address: *const u8, length: usize);
    }
}

/// The file that the host holds.
#[derive(Debug)]
struct HostFile;

fn host_error(code: i32) -> IoError {
    match code {
        -2 => IoError::Quota,
        -3 => IoError::Lost,
        _ => IoError::Other,
    }
}

impl File for HostFile {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        // SAFETY: the host writes at most `length` bytes at `address`, which are ours.
        let n = unsafe { host::read(buf.as_mut_ptr(), buf.len(), at as f64) };
        let n = usize::try_from(n).map_err(|_| host_error(n))?;
        if n > buf.len() { Err(IoError::Other) } else { Ok(n) }
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> Result<usize, IoError> {
        // SAFETY: the host reads `length` bytes at `address`.
        let n = unsafe { host::write(bytes.as_ptr(), bytes.len(), at as f64) };
        usize::try_from(n).map_err(|_| host_error(n))
    }

    fn truncate(&mut self, size: u64) -> Result<(), IoError> {
        // SAFETY: no memory is passed.
        match unsafe { host::truncate(size as f64) } {
            0 => Ok(()),
            code => Err(host_error(code)),
        }
    }

    fn size(&mut self) -> Result<u64, IoError> {
        // SAFETY: no memory is passed.
        let size = unsafe { host::size() };
        if size < 0.0 { Err(host_error(size as i32)) } else { Ok(size as u64) }
    }

    fn flush(&mut self) -> Result<(), IoError> {
        // SAFETY: no memory is passed.
        match unsafe { host::flush() } {
            0 => Ok(()),
            code => Err(host_error(code)),
        }
    }
}

/// Bytes of one key area.
const KEY_AREA: usize = MAX_KEY + 1;
/// Marks an absent bound.
const NO_BOUND: usize = 0xFFFF_FFFF;
/// So much memory is kept free for the next turn, beside what the store may come to need.
const HEADROOM: usize = 8 << 20;
/// It is made sure of in pieces: what is free need not lie in one.
const PIECE: usize = 1 << 20;
/// A page of keys ends when it has this many bytes.
const PAGE_BYTES: usize = 64 << 10;

/// What calls answer beside their return value.
#[repr(C, align(8))]
struct Answer {
    code: u32,
    length: u32,
    numbers: [f64; 15],
}

struct Instance {
    store: Option<Store<HostFile>>,
    answer: Answer,
    error: Option<Error>,
    /// The store's footprint when room was last reserved.
    footprint: [usize; 3],
    /// More room than this is never of use: nothing is written, and there is no more to be read.
    most_room: usize,
    /// Keys of a range: their lengths and then their bytes.
    page: Vec<u8>,
    scratch: Scratch,
}

/// Two key areas. Aligned, so that short texts can be written word by word.
#[repr(align(8))]
struct Scratch([u8; 2 * KEY_AREA]);

struct Shared(UnsafeCell<Instance>);

// SAFETY: wasm32 without threads: there is one.
unsafe impl Sync for Shared {}

static INSTANCE: Shared = Shared(UnsafeCell::new(Instance {
    store: None,
    answer: Answer { code: 0, length: 0, numbers: [0.0; 15] },
    error: None,
    footprint: [0; 3],
    most_room: usize::MAX,
    page: Vec::new(),
    scratch: Scratch([0; 2 * KEY_AREA]),
}));

/// The instance. Invariant: an export takes it once and gives it up before it returns, and the
/// host's functions call no export (engine.ts refuses to), so no two borrows overlap.
fn instance() -> &'static mut Instance {
    // SAFETY: see the invariant above.
    unsafe { &mut *INSTANCE.0.get() }
}

impl Instance {
    /// Runs `call` on the store, with the key areas and the answer. Its error becomes the code.
    #[inline(always)]
    fn run<T>(
        &mut self,
        call: impl FnOnce(&mut Store<HostFile>, &[u8], &mut Answer) -> Result<T, Error>,
    ) -> Option<T> {
        let Instance { store, answer, scratch, .. } = self;
        let called = match store {
            Some(store) => call(store, &scratch.0, answer),
            None => Err(Error::NotOpen),
        };
        match called {
            Ok(value) => {
                self.answer.code = 0;
                Some(value)
            }
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    /// The same for calls that answer with a status.
    fn status(&mut self, call: impl FnOnce(&mut Store<HostFile>) -> Result<(), Error>) -> u32 {
        self.run(|store, _, _| call(store));
        self.answer.code
    }

    #[cold]
    fn fail(&mut self, error: Error) -> u32 {
        self.answer.code = error.code();
        self.error = Some(error);
        self.answer.code
    }

    /// Has memory ready for what the next turn may come to need, and so much besides.
    #[inline(never)]
    fn make_room(&mut self, besides: usize, most: usize) {
        let Some(store) = &self.store else {
            return;
        };
        let now = store.footprint();
        if std::mem::replace(&mut self.footprint, now) != now {
            let (whole, rest) = store.headroom();
            let room = (besides + HEADROOM).min(self.most_room);
            take_and_leave(whole, room + rest, most);
        }
    }

    fn numbers(&mut self, values: &[u64]) {
        for (slot, value) in self.answer.numbers[1..].iter_mut().zip(values) {
            *slot = *value as f64;
        }
    }
}

impl Answer {
    /// The address of some bytes; their length goes into the answer.
    fn bytes(&mut self, bytes: &[u8]) -> *const u8 {
        self.length = bytes.len() as u32;
        bytes.as_ptr()
    }
}

/// The address of the key area; a second one follows it.
#[unsafe(no_mangle)]
extern "C" fn scratch() -> *const u8 {
    instance().scratch.0.as_ptr()
}

/// The address of the answer block: code, length, and fifteen numbers.
#[unsafe(no_mangle)]
extern "C" fn result() -> *const Answer {
    &instance().answer
}

/// Opens the database in the host's file, with `memory` bytes between turns, letting it
/// grow to `factor` per cent of what lives in it. Flags: 1 points only, 2 read-only; of flushed data
/// that is damaged, 4 what comes before, 8 all that is intact.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "entropy crosses as integers, like everything else")]
extern "C" fn open(
    segment_log2: u32,
    flags: u32,
    memory: usize,
    factor: u32,
    e0: u32,
    e1: u32,
    e2: u32,
    e3: u32,
    e4: u32,
    e5: u32,
    e6: u32,
    e7: u32,
) -> u32 {
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        // SAFETY: the host reads `length` bytes at `address`.
        unsafe { host::panicked(text.as_ptr(), text.len()) }
    }));
    let word = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    let options = Options {
        segment_log2: segment_log2 as u8,
        entropy: [word(e0, e1), word(e2, e3), word(e4, e5), word(e6, e7)],
        ordered: flags & 1 == 0,
        read_only: flags & 2 != 0,
        on_damage: match flags & 12 {
            0 => OnDamage::Refuse,
            4 => OnDamage::Prefix,
            _ => OnDamage::Salvage,
        },
        memory,
        factor,
        // SAFETY: no memory is passed.
        detach: || unsafe { host::detach() },
    };
    let instance = instance();
    if instance.store.is_some() {
        return instance.fail(Error::Misuse);
    }
    match Store::open(HostFile, options) {
        Ok(store) => {
            if flags & 2 != 0 {
                // All of it resident, all of it copied as well, and some odd buffers.
                let file = store.stats().file_bytes as usize;
                instance.most_room = file.saturating_mul(2).saturating_add(PIECE / 2);
            }
            instance.store = Some(store);
            // Little of the memory is free yet, so that large pieces cost no more room than small
            // ones, for which it would have to grow again and again: 3 ms in place of 0.2.
            instance.make_room(memory, 1 << 30);
            0
        }
        Err(error) => instance.fail(error),
    }
}

/// Takes so many bytes in one piece and so many in pieces of at most `most`, and lets them go, so that
/// later calls need not grow memory: growth detaches every view.
fn take_and_leave(whole: usize, mut rest: usize, most: usize) {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    let mut size = whole;
    loop {
        let mut piece = Vec::new();
        // No room is no error here: the call that really needs it says so.
        if piece.try_reserve_exact(size).is_err() || rest == 0 {
            break;
        }
        taken.push(piece);
        size = rest.min(most);
        rest -= size;
    }
    std::hint::black_box(&mut taken);
}

/// The address of a key's value, its length in the answer; 0 when absent or, with a code, when a
/// cold record could not be read.
#[unsafe(no_mangle)]
extern "C" fn find(keyspace: u32, key_len: usize) -> *const u8 {
    let found = instance().run(|store, keys, answer| {
        let value = store.get(keyspace, &keys[..key_len])?;
        Ok(value.map(|value| answer.bytes(value)))
    });
    found.flatten().unwrap_or(std::ptr::null())
}

/// A key's version in number 0 and 1, or 3 when it is uncertain; 0 when absent; -1 when a cold record
/// could not be read.
#[unsafe(no_mangle)]
extern "C" fn version(keyspace: u32, key_len: usize) -> i32 {
    let found = instance().run(|store, keys, answer| {
        let Some((version, uncertain)) = store.stamp(keyspace, &keys[..key_len])? else {
            return Ok(0);
        };
        answer.numbers[0] = version as f64;
        Ok(1 | i32::from(uncertain) << 1)
    });
    found.unwrap_or(-1)
}

/// Stages a record; the address of its value's room, or 0.
#[unsafe(no_mangle)]
extern "C" fn set_begin(keyspace: u32, key_len: usize, capacity: usize) -> *const u8 {
    let staged = instance().run(|store, keys, answer| {
        store.begin_set(keyspace, &keys[..key_len], capacity)?;
        Ok(answer.bytes(store.staged_value()))
    });
    staged.unwrap_or(std::ptr::null())
}

/// Ends the staged record with `length` bytes of value.
#[unsafe(no_mangle)]
extern "C" fn set_commit(length: usize) -> u32 {
    instance().status(|store| store.finish(length).map(drop))
}

/// Drops the staged record.
#[unsafe(no_mangle)]
extern "C" fn set_abort() {
    instance().status(|store| {
        store.abort();
        Ok(())
    });
}

/// 1: was there and is gone; 0: was not; -1: failed.
#[unsafe(no_mangle)]
extern "C" fn remove(keyspace: u32, key_len: usize) -> i32 {
    let removed = instance().run(|store, keys, _| store.delete(keyspace, &keys[..key_len]));
    removed.map_or(-1, i32::from)
}

/// How many keys there are.
#[unsafe(no_mangle)]
extern "C" fn count(keyspace: u32) -> f64 {
    instance().store.as_ref().map_or(0.0, |store| store.count(keyspace) as f64)
}

/// Stages a record for change in place; the address of its value, or 0 (with code 0: absent).
#[unsafe(no_mangle)]
extern "C" fn update_begin(keyspace: u32, key_len: usize) -> *const u8 {
    let staged = instance().run(|store, keys, answer| {
        let found = store.begin_update(keyspace, &keys[..key_len])?;
        Ok(found.then(|| answer.bytes(store.staged_value())))
    });
    staged.flatten().unwrap_or(std::ptr::null())
}

/// Room for the bytes that take the staged value's place; its address, or 0.
#[unsafe(no_mangle)]
extern "C" fn update_resize(capacity: usize) -> *const u8 {
    let staged = instance().run(|store, _, answer| {
        store.resize_update(capacity)?;
        Ok(answer.bytes(store.staged_value()))
    });
    staged.unwrap_or(std::ptr::null())
}

/// Ends the staged update.
#[unsafe(no_mangle)]
extern "C" fn update_commit(length: usize) -> u32 {
    instance().status(|store| store.finish(length).map(drop))
}

/// Restores every byte.
#[unsafe(no_mangle)]
extern "C" fn update_abort() {
    set_abort();
}

/// Marks a place to go back to; how many are then open.
#[unsafe(no_mangle)]
extern "C" fn savepoint() -> u32 {
    let Some(store) = instance().store.as_mut() else {
        return 0;
    };
    drop(store.savepoint());
    store.depth() as u32
}

/// Keeps what came after the innermost savepoint.
#[unsafe(no_mangle)]
extern "C" fn release() -> u32 {
    instance().status(Store::release_last)
}

/// Takes back what came after the innermost savepoint.
#[unsafe(no_mangle)]
extern "C" fn rollback() {
    instance().status(|store| {
        store.rollback_last();
        Ok(())
    });
}

/// Hands the group to the file.
#[unsafe(no_mangle)]
extern "C" fn commit() -> u32 {
    instance().status(Store::commit)
}

/// Commits and flushes.
#[unsafe(no_mangle)]
extern "C" fn flush() -> u32 {
    instance().status(Store::flush)
}

/// Puts a watermark behind the last flush.
#[unsafe(no_mangle)]
extern "C" fn witness() -> u32 {
    instance().status(Store::witness)
}

/// Commits, flushes, records the clean end, and lets the store go whatever came of it.
#[unsafe(no_mangle)]
extern "C" fn close() -> u32 {
    let instance = instance();
    let status = instance.status(Store::shut);
    instance.store = None;
    status
}

/// Bit 0: detach views before the next call. Bit 1: there is housekeeping to do. Bit 2: it has
/// failed and poisoned the store, and the next `tend` tells how. Memory that the
/// next turn may need is taken here, between turns, since growing detaches all views.
#[unsafe(no_mangle)]
extern "C" fn end_turn() -> u32 {
    let end = |store: &mut Store<HostFile>| {
        u32::from(store.end_turn())
            | u32::from(store.wants_tending()) << 1
            | u32::from(store.is_in_trouble()) << 2
    };
    let instance = instance();
    let answer = instance.store.as_mut().map_or(0, end);
    instance.make_room(0, PIECE);
    answer
}

/// Does a slice of housekeeping; with `all` begins a compaction of all that can be gained. 1: there
/// is more to do, 0: there is not, -1: it failed.
#[unsafe(no_mangle)]
extern "C" fn tend(all: u32) -> i32 {
    let more = instance().run(|store, _, _| store.tend(all != 0));
    more.map_or(-1, i32::from)
}

/// Verifies a piece of the file, from a spot that is given by two numbers; -1 when it could not be
/// read. Numbers from 1: the next spot, bytes, segments, frames and records that were seen; what is
/// wrong, from where on, and for how many bytes.
#[unsafe(no_mangle)]
extern "C" fn verify(unit: u32, part: u32) -> i32 {
    let instance = instance();
    let Some(v) = instance.run(|store, _, _| store.verify(Spot { unit, part })) else {
        return -1;
    };
    instance.numbers(&[
        u64::from(v.next.unit),
        u64::from(v.next.part),
        v.bytes,
        v.segments,
        v.frames,
        v.records,
        v.what as u64,
        v.at,
        v.length,
    ]);
    0
}

/// Bytes of the open group.
#[unsafe(no_mangle)]
extern "C" fn pending() -> f64 {
    instance().store.as_ref().map_or(0.0, |store| store.pending() as f64)
}

/// 1 when something is written and not flushed.
#[unsafe(no_mangle)]
extern "C" fn unflushed() -> u32 {
    instance().store.as_ref().map_or(0, |store| u32::from(store.is_unflushed()))
}

/// 1 when the last flush has no watermark behind it.
#[unsafe(no_mangle)]
extern "C" fn unwitnessed() -> u32 {
    instance().store.as_ref().map_or(0, |store| u32::from(store.is_unwitnessed()))
}

/// Numbers from 1: count, live, file, memory bytes, segments, frame, version, poisoned, pending and
/// index bytes, evictions, budget.
#[unsafe(no_mangle)]
extern "C" fn stats() {
    let instance = instance();
    let Some(s) = instance.store.as_ref().map(Store::stats) else {
        return;
    };
    instance.numbers(&[
        s.count,
        s.live_bytes,
        s.file_bytes,
        s.memory_bytes,
        s.segments,
        s.next_frame,
        s.next_version,
        u64::from(s.poisoned),
        s.pending_bytes,
        s.index_bytes,
        s.evictions,
        s.budget_bytes,
    ]);
}

/// Numbers from 1: torn bytes, dropped frames, last frame, replayed frames, clean, created, whether
/// the index came from a checkpoint, whether flushed data was damaged; lost frames, bytes and keys,
/// uncertain keys.
#[unsafe(no_mangle)]
extern "C" fn recovery() {
    let instance = instance();
    let Some(r) = instance.store.as_ref().map(|store| *store.recovery()) else {
        return;
    };
    instance.numbers(&[
        r.torn_bytes,
        r.dropped_frames,
        r.last_frame,
        r.replayed_frames,
        u64::from(r.clean),
        u64::from(r.created),
        u64::from(r.checkpoint),
        u64::from(r.damaged),
        r.lost_frames,
        r.lost_bytes,
        r.lost_keys,
        r.uncertain_keys,
    ]);
}

/// Numbers from 1, of the last error when it is a format that is not known: major version, unknown
/// features. When it is damage: position, expected frame, flushed frames,
/// intact frames and bytes beyond; whether the commits before can be had, their keys and version.
#[unsafe(no_mangle)]
extern "C" fn error_report() {
    let instance = instance();
    if let Some(Error::UnsupportedFormat { major, features }) = &instance.error {
        instance.numbers(&[u64::from(*major), **features]);
    }
    if let Some(Error::Corruption(d)) = &instance.error {
        let values = [
            d.position,
            d.expected_frame,
            d.flushed_frames,
            d.intact_frames,
            d.intact_bytes,
            u64::from(d.is_prefix_whole),
            d.keys,
            d.version,
        ];
        instance.numbers(&values);
    }
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
    let mut page = std::mem::take(&mut instance.page);
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
            count += 1;
            put(&mut page, count, end);
        }
        answer.length = count as u32;
        if with_values {
            find_values(store, keyspace, page.split_at_mut(keys_at), count, false);
        }
        Ok(())
    });
    instance.page = page;
    if instance.answer.code == 0 { instance.page.as_ptr() } else { std::ptr::null() }
}

/// Room for so many keys in the second key area, for [`find_many`].
const MANY: usize = 256;

/// Looks for the values of up to [`MANY`] keys, which lie in the second key area as [`scan`] gives keys
/// with values, and writes there what it writes. 0 also stands for a key that is absent.
#[unsafe(no_mangle)]
extern "C" fn find_many(keyspace: u32, count: usize) {
    let Instance { store, scratch, .. } = instance();
    if let Some(store) = store {
        let page = scratch.0[KEY_AREA..].split_at_mut(4 + 12 * MANY);
        find_values(store, keyspace, page, count.min(MANY), true);
    }
}

/// Keys whose values are looked for together: the processor waits for all of them at once.
const TOGETHER: usize = 16;

fn find_values(
    store: &mut Store<HostFile>,
    keyspace: u32,
    (numbers, keys): (&mut [u8], &mut [u8]),
    count: usize,
    counts: bool,
) {
    let values = numbers.len() / 12 + 1;
    let (mut hashes, mut firsts) = ([0; TOGETHER], [0; TOGETHER]);
    for from in (0..count).step_by(TOGETHER) {
        let together = from..count.min(from + TOGETHER);
        let mut start = get(numbers, from);
        for (hash, i) in hashes.iter_mut().zip(together.clone()) {
            let end = get(numbers, i + 1);
            *hash = store.hash(keyspace, &keys[start..end]);
            start = end;
        }
        store.foresee(&hashes[..together.len()], &mut firsts);
        let mut start = get(numbers, from);
        for ((&hash, &first), i) in hashes.iter().zip(&firsts).zip(together) {
            let end = get(numbers, i + 1);
            let value = store.at_hand(hash, first, keyspace, &keys[start..end], counts);
            start = end;
            let (address, length) = value.map_or((0, 0), |value| (value.addr(), value.len()));
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

/// How many keys are in a range, see [`bounds`]; -1 when that failed.
#[unsafe(no_mangle)]
extern "C" fn count_range(keyspace: u32, lower_len: usize, upper_len: usize, flags: u32) -> f64 {
    let counted = instance().run(|store, keys, _| {
        let range = bounds(keys, lower_len, upper_len, flags);
        Ok(store.range_keys(keyspace, range)?.remaining() as f64)
    });
    counted.unwrap_or(-1.0)
}

/// Pins a key's value: a handle, or 0, with a code unless the key is absent.
#[unsafe(no_mangle)]
extern "C" fn pin(keyspace: u32, key_len: usize) -> u32 {
    let pinned = instance().run(|store, keys, _| store.pin(keyspace, &keys[..key_len]));
    pinned.flatten().map_or(0, |id| id + 1)
}

/// The address of a pinned value, its length in the answer; 0 when the pin has ended.
#[unsafe(no_mangle)]
extern "C" fn pinned(handle: u32) -> *const u8 {
    let value = instance().run(|store, _, answer| {
        let value = store.pinned(handle.wrapping_sub(1));
        Ok(value.map(|value| answer.bytes(value)))
    });
    value.flatten().unwrap_or(std::ptr::null())
}

/// Ends a pin.
#[unsafe(no_mangle)]
extern "C" fn unpin(handle: u32) {
    if let Some(store) = instance().store.as_mut() {
        store.unpin(handle.wrapping_sub(1));
    }
}
