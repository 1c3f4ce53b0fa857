//! Programs of unusual shapes: keys whose records fill a segment to the last byte, values at every
//! size limit, batches over several segments with extents, staged records that are aborted or
//! shortened, pins held across maintenance, and sessions with changing options on a disk with
//! changing free space.

use varve::engine::format::{KEYSPACE_ENGINE, align_up, frame, inline_limit, record, segment};

use super::oracle::KEYSPACES;
use super::rng::{Rng, bytes_of};
use super::session::{Step, Update};

/// Adjusts a length: every second one to that of a value in an extent. Most of the others that are
/// too long for a record become those of chunked values.
pub fn chunked_length(length: usize, segment: usize) -> usize {
    if length.is_multiple_of(2) {
        return length;
    }
    // Four fifths of the slots, beside their headers.
    let slots = length.div_ceil(segment);
    let least = slots * segment * 4 / 5 + 1;
    least + (length * 7) % (slots * segment - 2 * segment::SIZE + 1 - least)
}

/// Bytes for records in a segment of this size with one frame.
fn record_space(segment: usize) -> usize {
    segment - 2 * segment::SIZE - frame::SIZE
}

/// A key of a small set; some leave little or no space for a value in their records.
fn key(rng: &mut Rng, segment: usize) -> (u32, Vec<u8>) {
    let most = record_space(segment) - record::SIZE;
    let limit = inline_limit(segment.trailing_zeros() as u8);
    let length = match rng.below(16) {
        // Only the key fits; or a relocated tombstone; or the descriptor of an extent or of chunks;
        0 => most,
        1 => most - 8,
        2 => *rng.pick(&[most - 32, most - 24]),
        // or the longest value; or half of it.
        3 => most - limit,
        4 => record_space(segment) / 2 - record::SIZE,
        5 | 6 => 1,
        _ => rng.within(2..9),
    };
    // The engine's own keyspace also contains records that others write: the results of clients.
    let keyspace = match rng.one_in(8) {
        true => KEYSPACE_ENGINE,
        false => *rng.pick(&KEYSPACES),
    };
    (keyspace, bytes_of(length as u64, length))
}

/// The length of a value at some limit, which fits beside the key or is stored elsewhere.
fn length(rng: &mut Rng, segment: usize, key: &[u8]) -> usize {
    let limit = inline_limit(segment.trailing_zeros() as u8);
    let left = record_space(segment) - record::SIZE - align_up(key.len());
    let near = |rng: &mut Rng, at: usize| at - 1 + rng.below(3);
    let slots = rng.within(1..4);
    let wanted = match rng.below(12) {
        0 => 0,
        1 => near(rng, limit),
        2 => left.min(limit),
        // To the last byte of the last slot.
        3 | 4 => near(rng, slots * segment - 2 * segment::SIZE),
        // Or as much as may be chunked.
        5 => match rng.one_in(3) {
            true => near(rng, slots * segment * 4 / 5),
            false => chunked_length(rng.within(limit + 1..3 * segment), segment),
        },
        6..9 => rng.below(limit),
        _ => rng.below(60),
    };
    if wanted > limit && left < 32 || wanted > left && left < 24 { left.min(limit) } else { wanted }
}

/// The next step of such a program.
pub fn next_step(rng: &mut Rng, segment: usize) -> Step {
    let (keyspace, key) = key(rng, segment);
    let fill = rng.next();
    let len = length(rng, segment, &key);
    match rng.below(48) {
        0..9 => Step::Set { keyspace, key, len, fill },
        9 | 10 => Step::Staged { keyspace, key, capacity: len, len: rng.below(len + 1), fill },
        11 => Step::AbortedUpdate { keyspace, key, resize: rng.one_in(2).then_some(len) },
        12 => Step::AbortedSet { keyspace, key, capacity: len },
        13..16 => Step::Delete { keyspace, key },
        16 => Step::Update { keyspace, key, fill, end: Update::InPlace },
        17 | 18 => Step::Update { keyspace, key, fill, end: Update::Resize(len) },
        19 => Step::Update { keyspace, key, fill, end: Update::Throw },
        20 | 21 => Step::Pin { keyspace, key },
        22 => Step::Unpin,
        23 | 24 => Step::Savepoint,
        25 | 26 => Step::Release,
        27 | 28 => Step::Rollback,
        29 | 30 => Step::Commit,
        31 => Step::Flush,
        32 => Step::Witness,
        33 => Step::EndTurn,
        34 => Step::Reopen,
        35 => Step::ChangeOptions {
            factor: *rng.pick(&[120, 150, 300]),
            memory: *rng.pick(&[0, 64 << 20]),
        },
        36 => Step::LimitGrowth(rng.one_in(2).then(|| rng.below(4 * segment))),
        37..44 => Step::Maintain { steps: rng.within(1..12), all: rng.one_in(3) },
        44 | 45 => Step::Maintain { steps: 1000, all: true },
        46 => Step::Crash,
        _ => Step::Die { ahead: rng.next() % 8, byte: rng.below(600) },
    }
}
