//! Statistics of the store, of the last opening and of the last error; verification.

use super::instance::instance;
use crate::error::Error;
use crate::store::VerifyCursor;

/// In `numbers`, from index 1 (JavaScript counts from 0): key count, bytes live, in the file and in memory, segments, frame, version,
/// poisoned, bytes of the batch and of the index in memory, evictions, budget, bytes of the index in the
/// file; of the open snapshots the count, the bytes held in the file, and those of memory; whether the file
/// keeps its history.
#[unsafe(no_mangle)]
extern "C" fn stats() {
    let instance = instance();
    // An error comes again where keys are needed.
    let due = instance.store.as_mut().map_or(0, |store| store.due().unwrap_or(0));
    let Some(store) = instance.store.as_ref() else {
        return;
    };
    let (s, snapshots) = (store.stats(), store.snapshot_stats());
    instance.numbers(&[
        s.count.saturating_sub(due),
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
        s.index_file_bytes,
        snapshots.count,
        snapshots.held_bytes,
        snapshots.memory_bytes,
        u64::from(store.keeps_history()),
    ]);
}

/// In `numbers`, from index 1: torn bytes, dropped frames, last frame, replayed frames, clean, created, whether
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

/// In `numbers`, from index 1, of the last error. For an unknown format: major version, unknown features. For
/// damage: position, expected frame, flushed frames, intact frames and bytes beyond; whether the
/// commits before can be kept, their number of keys and last version.
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

/// Verifies a part of the file from a position that is given by two numbers; -1 if it could not be
/// read. In `numbers`, from index 1: the next position, bytes, segments, frames and records that were verified;
/// the kind, position and length of a problem.
#[unsafe(no_mangle)]
extern "C" fn verify(unit: u32, part: u32) -> i32 {
    let instance = instance();
    let Some(v) = instance.run(|store, _, _| store.verify(VerifyCursor { unit, part })) else {
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
