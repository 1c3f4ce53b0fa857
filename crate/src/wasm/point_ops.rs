//! Operations on one key: reading, writing, changing in place; savepoints.

use super::instance::{KEY_AREA, QUEUE, instance};
use crate::format::align_up;
use crate::format::record;
use crate::store::{LOOKUP_BATCH, Set, Store};

/// Finds a key: returns the address of its value, with its length in the answer; 0 if it is absent
/// or, with a code, if a cold record could not be read.
#[unsafe(no_mangle)]
extern "C" fn find(keyspace: u32, key_len: usize) -> *const u8 {
    let found = instance().run(|store, keys, answer| {
        let value = store.get(keyspace, &keys[..key_len])?;
        Ok(value.map(|value| answer.bytes(value)))
    });
    found.flatten().unwrap_or(core::ptr::null())
}

/// The record of the next key that is looked up may be at a position.
#[unsafe(no_mangle)]
extern "C" fn expect_at(position: u32) {
    if let Some(store) = instance().store.as_mut() {
        store.expect_at(position);
    }
}

/// Returns 1 with a key's version in number 0 and its expiry in seconds, or 0, in number 1; 3 if the
/// version is uncertain; 0 if the key is absent; -1 if a cold record could not be read.
#[unsafe(no_mangle)]
extern "C" fn version(keyspace: u32, key_len: usize) -> i32 {
    let found = instance().run(|store, keys, answer| {
        let Some((version, uncertain)) = store.version_and_certainty(keyspace, &keys[..key_len])?
        else {
            return Ok(0);
        };
        answer.numbers[0] = version as f64;
        let expiry = if store.expires() { store.expiry(keyspace, &keys[..key_len])? } else { None };
        answer.numbers[1] = expiry.unwrap_or(0).into();
        Ok(1 | i32::from(uncertain) << 1)
    });
    found.unwrap_or(-1)
}

/// Returns the number of keys; -1 if that failed.
#[unsafe(no_mangle)]
extern "C" fn count(keyspace: u32) -> f64 {
    let counted = instance().run(|store, _, _| store.live_count(keyspace));
    counted.map_or(-1.0, |count| count as f64)
}

/// Gives the store the time in seconds. Returns the time up to which records have expired, with a code if a batch was
/// lost.
#[unsafe(no_mangle)]
extern "C" fn set_now(seconds: u32) -> u32 {
    let instance = instance();
    instance.run(|store, _, _| store.set_now(seconds));
    instance.store.as_ref().map_or(0, Store::now)
}

/// Returns 1 if the store has, or had, records that expire.
#[unsafe(no_mangle)]
extern "C" fn expires() -> u32 {
    instance().store.as_ref().map_or(0, |store| u32::from(store.expires()))
}

/// Gives the record that is set next an expiry in seconds; 0 for none.
#[unsafe(no_mangle)]
extern "C" fn expire_next(seconds: u32) {
    if let Some(store) = instance().store.as_mut() {
        store.expire_next(seconds);
    }
}

/// Changes when a key expires. 1: it exists; 0: it does not; -1: failed.
#[unsafe(no_mangle)]
extern "C" fn touch(keyspace: u32, key_len: usize, seconds: u32) -> i32 {
    let touched = instance().run(|store, keys, _| store.touch(keyspace, &keys[..key_len], seconds));
    touched.map_or(-1, i32::from)
}

/// Pins a key's value: returns a handle, or 0, with a code unless the key is absent.
#[unsafe(no_mangle)]
extern "C" fn pin(keyspace: u32, key_len: usize) -> u32 {
    let pinned = instance().run(|store, keys, _| store.pin(keyspace, &keys[..key_len]));
    pinned.flatten().map_or(0, |id| id + 1)
}

/// Returns the address of a pinned value, with its length in the answer; 0 if the pin has ended.
#[unsafe(no_mangle)]
extern "C" fn pinned(handle: u32) -> *const u8 {
    let value = instance().run(|store, _, answer| {
        let value = store.pinned(handle.wrapping_sub(1));
        Ok(value.map(|value| answer.bytes(value)))
    });
    value.flatten().unwrap_or(core::ptr::null())
}

/// Ends a pin.
#[unsafe(no_mangle)]
extern "C" fn unpin(handle: u32) {
    if let Some(store) = instance().store.as_mut() {
        store.unpin(handle.wrapping_sub(1));
    }
}

/// Takes a snapshot: returns the number to add to that of a keyspace, to read it as it is now; 0 if that failed.
#[unsafe(no_mangle)]
extern "C" fn snapshot() -> u32 {
    let taken = instance().run(|store, _, _| store.snapshot());
    taken.map_or(0, |snapshot| snapshot.keyspace(0))
}

/// As [`snapshot`], of a past commit, by a cursor; with `before`, of the one before it.
#[unsafe(no_mangle)]
extern "C" fn at(cursor: f64, before: u32) -> u32 {
    let taken = instance().run(|store, _, _| match before {
        0 => store.at(cursor as u64),
        _ => store.before(cursor as u64),
    });
    taken.map_or(0, |snapshot| snapshot.keyspace(0))
}

/// Ends a snapshot.
#[unsafe(no_mangle)]
extern "C" fn end_snapshot(snapshot: u32) {
    if let Some(store) = instance().store.as_mut() {
        store.end_snapshot(snapshot.into());
    }
}

/// Sets a key to the `length` bytes in the second key area. Returns what [`finish`] returns, or the negative code of the error
/// if nothing was staged.
#[unsafe(no_mangle)]
extern "C" fn set(keyspace: u32, key_len: usize, length: usize) -> i32 {
    let instance = instance();
    let staged = instance.run(|store, areas, _| {
        let (key, value) = areas.split_at(KEY_AREA);
        store.put(keyspace, &key[..key_len], &value[..length])
    });
    match staged {
        Some(()) => finish(length) as i32,
        None => -(instance.answer.code as i32),
    }
}

/// Returns how many bytes of sets may be queued for [`set_queued`] as long as nothing else is
/// called: these sets cannot fail.
#[unsafe(no_mangle)]
extern "C" fn queue_capacity() -> usize {
    instance().store.as_ref().map_or(0, Store::infallible_capacity).min(QUEUE)
}

/// Executes the sets in the first `length` bytes of the queue. Each takes as much of the queue as
/// its record will take of the log: instead of the header, its keyspace and the lengths of key and
/// value, 4 bytes each; then key and value, each padded to 8 bytes.
#[unsafe(no_mangle)]
extern "C" fn set_queued(length: usize) -> u32 {
    let instance = instance();
    instance.run(|store, areas, _| {
        let mut waiting = &areas[2 * KEY_AREA..][..length];
        let mut sets = [Set::default(); LOOKUP_BATCH];
        while !waiting.is_empty() {
            let mut count = 0;
            while count < LOOKUP_BATCH && !waiting.is_empty() {
                let (head, rest) = waiting.split_at(record::SIZE);
                let number = |i: usize| head[i..i + 4].try_into().map_or(0, u32::from_le_bytes);
                let (key_len, value_len) = (number(4) as usize, number(8) as usize);
                let (key, rest) = rest.split_at(align_up(key_len));
                let (value, rest) = rest.split_at(align_up(value_len));
                let (key, value) = (&key[..key_len], &value[..value_len]);
                sets[count] = Set { keyspace: number(0), key, value };
                (count, waiting) = (count + 1, rest);
            }
            store.set_many(&sets[..count])?;
        }
        Ok(())
    });
    instance.answer.code
}

/// Stages a record: returns the address for its value, or 0.
#[unsafe(no_mangle)]
extern "C" fn set_begin(keyspace: u32, key_len: usize, capacity: usize) -> *const u8 {
    let staged = instance().run(|store, keys, answer| {
        store.begin_set(keyspace, &keys[..key_len], capacity)?;
        Ok(answer.bytes(store.staged_value()))
    });
    staged.unwrap_or(core::ptr::null())
}

/// Deletes a key. 1: it existed; 0: it did not; -1: failed.
#[unsafe(no_mangle)]
extern "C" fn remove(keyspace: u32, key_len: usize) -> i32 {
    let removed = instance().run(|store, keys, _| store.delete(keyspace, &keys[..key_len]));
    removed.map_or(-1, i32::from)
}

/// Stages a record for change in place: returns the address of its value, or 0 (with code 0 if
/// absent).
#[unsafe(no_mangle)]
extern "C" fn update_begin(keyspace: u32, key_len: usize) -> *const u8 {
    let staged = instance().run(|store, keys, answer| {
        let found = store.begin_update(keyspace, &keys[..key_len])?;
        Ok(found.then(|| answer.bytes(store.staged_value())))
    });
    staged.flatten().unwrap_or(core::ptr::null())
}

/// Reserves memory for bytes that replace the staged value: returns its address, or 0.
#[unsafe(no_mangle)]
extern "C" fn update_resize(capacity: usize) -> *const u8 {
    let staged = instance().run(|store, _, answer| {
        store.resize_update(capacity)?;
        Ok(answer.bytes(store.staged_value()))
    });
    staged.unwrap_or(core::ptr::null())
}

/// Finishes the staged record, new or changed, with `length` bytes of value.
#[unsafe(no_mangle)]
extern "C" fn finish(length: usize) -> u32 {
    instance().status(|store| store.finish(length).map(drop))
}

/// Aborts the staged record; if it was being changed, every byte is restored.
#[unsafe(no_mangle)]
extern "C" fn abort() {
    instance().status(|store| {
        store.abort();
        Ok(())
    });
}

/// Makes a savepoint: returns how many are open then.
#[unsafe(no_mangle)]
extern "C" fn savepoint() -> u32 {
    let Some(store) = instance().store.as_mut() else {
        return 0;
    };
    drop(store.savepoint());
    store.depth() as u32
}

/// Releases the innermost savepoint and keeps the changes since.
#[unsafe(no_mangle)]
extern "C" fn release() -> u32 {
    instance().status(Store::release_last)
}

/// Rolls back the changes since the innermost savepoint.
#[unsafe(no_mangle)]
extern "C" fn rollback() {
    instance().status(|store| {
        store.rollback_last();
        Ok(())
    });
}
