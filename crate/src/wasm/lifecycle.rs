//! Opening, turns, what goes to the file and when, closing.

use super::imports::{self, HostFile};
use super::instance::{PIECE, instance};
use crate::error::Error;
use crate::store::{OnDamage, Options, Store};

/// Opens the database in the host's file, with `memory` bytes between turns, letting it
/// grow to `factor` per cent of what lives in it. Flags: 1 points only, 2 read-only; of flushed data
/// that is damaged, 4 what comes before, 8 all that is intact; 16 new frames to a fresh segment.
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
    let word = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    let options = Options {
        segment_log2: segment_log2 as u8,
        entropy: [word(e0, e1), word(e2, e3), word(e4, e5), word(e6, e7)],
        ordered: flags & 1 == 0,
        read_only: flags & 2 != 0,
        fresh: flags & 16 != 0,
        on_damage: match flags & 12 {
            0 => OnDamage::Refuse,
            4 => OnDamage::Prefix,
            _ => OnDamage::Salvage,
        },
        memory,
        factor,
        views: imports::VIEWS,
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

/// Bit 0: detach views before the next call. Bit 1: there is maintenance to do. Bit 2: it has
/// failed and poisoned the store, and the next `maintain` reports how. Memory that the
/// next turn may need is taken here, between turns, since growing detaches all views.
#[unsafe(no_mangle)]
extern "C" fn end_turn() -> u32 {
    let end = |store: &mut Store<HostFile>| {
        u32::from(store.end_turn())
            | u32::from(store.wants_maintenance()) << 1
            | u32::from(store.has_deferred_error()) << 2
    };
    let instance = instance();
    let answer = instance.store.as_mut().map_or(0, end);
    instance.make_room(0, PIECE);
    answer
}

/// Does a step of maintenance; with `all` begins a compaction of all that can be gained. 1: there
/// is more to do, 0: there is not, -1: it failed.
#[unsafe(no_mangle)]
extern "C" fn maintain(all: u32) -> i32 {
    let more = instance().run(|store, _, _| store.maintain(all != 0));
    more.map_or(-1, i32::from)
}

/// Bytes of the open batch.
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
