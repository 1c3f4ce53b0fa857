//! Notes of transactions, walks over the log, and what it says about the past.

use super::instance::{Instance, KEY_AREA, instance};
use crate::format::record;
use crate::store::Store;

/// Gives the transaction of the outermost savepoint, in which nothing was written yet, a time in milliseconds since
/// 1970, and the `length` bytes in the second key area as its note. `client` is the number of the client that asked for
/// it, 0 for none.
#[unsafe(no_mangle)]
extern "C" fn note(client: f64, time_ms: f64, length: usize) -> u32 {
    let instance = instance();
    instance.run(|store, areas, _| {
        let note = areas.get(KEY_AREA..KEY_AREA + length).unwrap_or_default();
        store.note_for(client as u64, time_ms as u64, note)
    });
    instance.answer.code
}

/// Begins a walk over the transactions with numbers above `since` and at most `until`, from the newest one if `back` is not
/// 0, and returns its handle.
#[unsafe(no_mangle)]
extern "C" fn walk_begin(since: f64, until: f64, back: u32) -> usize {
    let Instance { store, walks, .. } = instance();
    let (since, until) = (since as u64, until as u64);
    let walk = store.as_ref().map(|store| match back {
        0 => store.begin_log_walk(since, until),
        _ => store.begin_log_walk_back(since, until),
    });
    let handle = walks.iter().position(Option::is_none).unwrap_or(walks.len());
    if handle == walks.len() {
        walks.push(None);
    }
    walks[handle] = walk;
    handle
}

/// Goes on to the next segment with any parts, and returns how many these are; 0 at the end, -1 if the file could not
/// be read. Numbers 1 and 2 are the addresses of the parts, 24 bytes each, and of the segment: parts state offsets in it.
/// Number 3 is the segment's sequence.
#[unsafe(no_mangle)]
extern "C" fn walk_next(handle: usize) -> i32 {
    let instance = instance();
    let Some(Some(mut walk)) = instance.walks.get_mut(handle).map(Option::take) else { return 0 };
    let count = instance.run(|store, _, _| {
        while store.walk_log(&mut walk)? {
            if !walk.parts().is_empty() {
                return Ok(walk.parts().len() as i32);
            }
        }
        Ok(0)
    });
    let (parts, bytes) = (walk.parts().as_ptr().addr(), walk.bytes().as_ptr().addr());
    instance.numbers(&[parts as u64, bytes as u64, walk.sequence().into()]);
    instance.walks[handle] = Some(walk);
    count.unwrap_or(-1)
}

/// Returns the address of a value that lies outside of its record, with its length in the answer. The record is at an
/// offset of the walk's segment. 0 if the value is not there any more or, with a code, if it could not be read.
#[unsafe(no_mangle)]
extern "C" fn walk_value(handle: usize, at: usize) -> *const u8 {
    let Instance { store, walks, answer, error, .. } = instance();
    answer.code = 0;
    let walk = walks.get(handle).and_then(Option::as_ref);
    let record = walk.and_then(|walk| record::parts(walk.bytes().get(at..)?));
    let (Some(store), Some((header, key, value))) = (store, record) else {
        return core::ptr::null();
    };
    match store.walked_value(header, key, value) {
        Ok(value) => value.map_or(core::ptr::null(), |value| answer.bytes(value)),
        Err(failure) => {
            (answer.code, *error) = (failure.code(), Some(failure));
            core::ptr::null()
        }
    }
}

/// Ends a walk and frees its memory.
#[unsafe(no_mangle)]
extern "C" fn walk_end(handle: usize) {
    if let Some(walk) = instance().walks.get_mut(handle) {
        *walk = None;
    }
}

/// Whether the record at an offset of a walk's segment says what its key is now: 1 if so, 0 if not, -1 with a code if it
/// is not known.
#[unsafe(no_mangle)]
extern "C" fn walk_current(handle: usize, at: usize) -> i32 {
    let instance = instance();
    let Some(Some(walk)) = instance.walks.get_mut(handle).map(Option::take) else { return 0 };
    let record = walk.bytes().get(at..).and_then(record::parts);
    let found = instance.run(|store, _, _| match record {
        Some((header, key, _)) => store.walked_is_current(&walk, at, header, key),
        None => Ok(false),
    });
    instance.walks[handle] = Some(walk);
    found.map_or(-1, i32::from)
}

/// Returns the number of the newest commit.
#[unsafe(no_mangle)]
extern "C" fn last_commit() -> f64 {
    instance().store.as_ref().map_or(0, Store::last_commit) as f64
}

/// Deletes all that has expired.
#[unsafe(no_mangle)]
extern "C" fn delete_due() -> u32 {
    let instance = instance();
    instance.run(|store, _, _| store.delete_due_now());
    instance.answer.code
}

/// What is known of the time since a cursor: bit 0, each key that changed; bit 1, each transaction. -1 with a code if it
/// is not known.
#[unsafe(no_mangle)]
extern "C" fn since(cursor: f64) -> i32 {
    let known = instance().run(|store, _, _| store.since(cursor as u64));
    known.map_or(-1, |it| i32::from(it.changes_are_known) | i32::from(it.is_whole) << 1)
}

/// Sets the mark whose name is the `length` bytes in the first key area to a cursor; a negative one drops it.
#[unsafe(no_mangle)]
extern "C" fn retain(length: usize, cursor: f64) -> u32 {
    let instance = instance();
    let cursor = (cursor >= 0.0).then_some(cursor as u64);
    instance.run(|store, areas, _| {
        let name = areas.get(..length).unwrap_or_default();
        store.retain(name, cursor)
    });
    instance.answer.code
}

/// Begins to forget the history before a cursor; -1 with a code if that failed, else the version up to which it is packed
/// then.
#[unsafe(no_mangle)]
extern "C" fn pack(cursor: f64) -> f64 {
    let packed = instance().run(|store, _, _| store.pack(cursor as u64));
    packed.map_or(-1.0, |version| version as f64)
}

/// Whether the history is being packed. With `end`, that ends.
#[unsafe(no_mangle)]
extern "C" fn packing(end: u32) -> u32 {
    let Some(store) = instance().store.as_mut() else { return 0 };
    if end != 0 {
        store.end_packing();
    }
    u32::from(store.is_packing())
}

/// Returns how many bytes of the file marks keep from compaction.
#[unsafe(no_mangle)]
extern "C" fn retained_bytes() -> f64 {
    instance().store.as_mut().map_or(0, Store::retained_bytes) as f64
}
