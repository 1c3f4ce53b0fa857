//! Opening, turns, committing and flushing, closing.

use super::imports::{self, HostFile};
use super::instance::{CHUNK, SMALL_RESERVE, instance};
use crate::error::Error;
use crate::store::{OnDamage, Options, Store};

/// Flags of [`open`], the same as in `js/engine/engine.ts`: keys have no order.
const POINTS_ONLY: u32 = 1;
const READ_ONLY: u32 = 2;
/// If flushed data is damaged, the commits before the damage are kept, or all that is intact.
const PREFIX: u32 = 4;
const SALVAGE: u32 = 8;
/// New frames go to a fresh segment.
const FRESH: u32 = 16;
/// Little memory is reserved until [`reserve`] is called.
const RESERVES_LATER: u32 = 32;
/// A new file keeps its history, and one that does not is refused; or the reverse.
const KEEP_HISTORY: u32 = 64;
const NO_HISTORY: u32 = 128;

/// Opens the database in the host's file with `memory` bytes between turns. The file may grow to
/// `factor` percent of its live data.
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
        ordered: flags & POINTS_ONLY == 0,
        read_only: flags & READ_ONLY != 0,
        fresh_segment: flags & FRESH != 0,
        on_damage: match flags & (PREFIX | SALVAGE) {
            0 => OnDamage::Refuse,
            PREFIX => OnDamage::Prefix,
            _ => OnDamage::Salvage,
        },
        memory,
        index_memory: Options::index_share(memory),
        factor,
        keeps_history: (flags & (KEEP_HISTORY | NO_HISTORY) != 0)
            .then_some(flags & KEEP_HISTORY != 0),
        views: imports::VIEWS,
        ..Options::default()
    };
    let instance = instance();
    if instance.store.is_some() {
        return instance.fail(Error::Misuse);
    }
    match Store::open(HostFile, options) {
        Ok(store) => {
            if flags & READ_ONLY != 0 {
                // The whole file resident, a copy of all of it, and some more buffers.
                let file = store.stats().file_bytes as usize;
                instance.max_reserve = file.saturating_mul(2).saturating_add(CHUNK / 2);
            }
            if flags & RESERVES_LATER != 0 {
                instance.max_reserve = SMALL_RESERVE;
            }
            instance.store = Some(store);
            // Little of the memory is free yet, so large pieces need no more memory than small
            // ones, for which it would have to grow repeatedly: 3 ms instead of 0.2 ms.
            instance.reserve_memory(memory, 1 << 30);
            0
        }
        Err(error) => instance.fail(error),
    }
}

/// Reserves all that the next turn may need of a store that was opened with `memory` and [`RESERVES_LATER`].
#[unsafe(no_mangle)]
extern "C" fn reserve(memory: usize) {
    let instance = instance();
    instance.max_reserve = usize::MAX;
    instance.memory_usage = [0; 3];
    instance.reserve_memory(memory, 1 << 30);
}

/// Commits the open batch.
#[unsafe(no_mangle)]
extern "C" fn commit() -> u32 {
    instance().status(Store::commit)
}

/// Commits and flushes.
#[unsafe(no_mangle)]
extern "C" fn flush() -> u32 {
    instance().status(Store::flush)
}

/// Writes a witness of the last flush.
#[unsafe(no_mangle)]
extern "C" fn witness() -> u32 {
    instance().status(Store::witness)
}

/// Commits, flushes, records the clean end of the log, and drops the store in any case.
#[unsafe(no_mangle)]
extern "C" fn close() -> u32 {
    let instance = instance();
    let status = instance.status(Store::shut);
    instance.store = None;
    status
}

/// Ends a turn. Bit 0: detach views before the next call. Bit 1: there is maintenance to do. Bit 2:
/// maintenance failed and poisoned the store, and the next `maintain` reports the error. Memory
/// that the next turn may need is reserved here, between turns, because growing it detaches all
/// views.
#[unsafe(no_mangle)]
extern "C" fn end_turn() -> u32 {
    let end = |store: &mut Store<HostFile>| {
        u32::from(store.end_turn())
            | u32::from(store.wants_maintenance()) << 1
            | u32::from(store.has_deferred_error()) << 2
    };
    let instance = instance();
    let answer = instance.store.as_mut().map_or(0, end);
    instance.reserve_memory(0, CHUNK);
    answer
}

/// Runs one maintenance step; with `all` it requests a full compaction. 1: there is more to do, 0:
/// there is not, -1: it failed.
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

/// Returns 1 if something is written and not flushed.
#[unsafe(no_mangle)]
extern "C" fn unflushed() -> u32 {
    instance().store.as_ref().map_or(0, |store| u32::from(store.is_unflushed()))
}

/// Returns 1 if the last flush has no witness.
#[unsafe(no_mangle)]
extern "C" fn unwitnessed() -> u32 {
    instance().store.as_ref().map_or(0, |store| u32::from(store.is_unwitnessed()))
}
