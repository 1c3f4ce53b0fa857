//! Programs of shapes that others seldom have: keys whose records fill a segment to the last byte, values
//! at every border, groups over several segments with extents among them, staged records that come to
//! nothing or to less than their room, pins held across maintenance, and sessions with other options on
//! a disk whose room comes and goes.

use varve::format::{KEYSPACE_ENGINE, align_up, frame, inline_limit, record, segment};

use super::oracle::KEYSPACES;
use super::rng::{Rng, bytes_of};
use super::session::{Step, Update};

/// A length of which every second one is of a value that has slots to itself. Of the others those that are too long
/// for a record are mostly of values in pieces.
pub fn chunked_length(length: usize, segment: usize) -> usize {
    if length.is_multiple_of(2) {
        return length;
    }
    // Four fifths of its slots, and their headers beside it.
    let slots = length.div_ceil(segment);
    let least = slots * segment * 4 / 5 + 1;
    least + (length * 7) % (slots * segment - 2 * segment::SIZE + 1 - least)
}

/// Bytes that records can take in a segment of so many bytes that is one frame.
fn room(segment: usize) -> usize {
    segment - 2 * segment::SIZE - frame::SIZE
}

/// A key of a small universe; some of them leave their records no room or next to none.
fn key(rng: &mut Rng, segment: usize) -> (u32, Vec<u8>) {
    let most = room(segment) - record::SIZE;
    let limit = inline_limit(segment.trailing_zeros() as u8);
    let length = match rng.below(16) {
        // Nothing but its key fits; or a moved deletion does; or what names an extent, or pieces;
        0 => most,
        1 => most - 8,
        2 => *rng.pick(&[most - 32, most - 24]),
        // or the largest value; or one half of it.
        3 => most - limit,
        4 => room(segment) / 2 - record::SIZE,
        5 | 6 => 1,
        _ => rng.within(2..9),
    };
    // The engine's own keyspace holds more than it writes itself: a client's results.
    let keyspace = match rng.one_in(8) {
        true => KEYSPACE_ENGINE,
        false => *rng.pick(&KEYSPACES),
    };
    (keyspace, bytes_of(length as u64, length))
}

/// The length of a value at some border, for which there is room beside the key, or which may lie elsewhere.
fn length(rng: &mut Rng, segment: usize, key: &[u8]) -> usize {
    let limit = inline_limit(segment.trailing_zeros() as u8);
    let left = room(segment) - record::SIZE - align_up(key.len());
    let near = |rng: &mut Rng, at: usize| at - 1 + rng.below(3);
    let slots = rng.within(1..4);
    let wanted = match rng.below(12) {
        0 => 0,
        1 => near(rng, limit),
        2 => left.min(limit),
        // To the last byte of their last slot.
        3 | 4 => near(rng, slots * segment - 2 * segment::SIZE),
        // Or as much as pieces are for, and no more.
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
        9 | 10 => Step::Staged { keyspace, key, room: len, len: rng.below(len + 1), fill },
        11 => Step::Broken { keyspace, key, resize: rng.one_in(2).then_some(len) },
        12 => Step::Abandoned { keyspace, key, room: len },
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
        35 => {
            Step::Become { factor: *rng.pick(&[120, 150, 300]), memory: *rng.pick(&[0, 64 << 20]) }
        }
        36 => Step::Room(rng.one_in(2).then(|| rng.below(4 * segment))),
        37..44 => Step::Tend { slices: rng.within(1..12), all: rng.one_in(3) },
        44 | 45 => Step::Tend { slices: 1000, all: true },
        46 => Step::Crash,
        _ => Step::Die { ahead: rng.next() % 8, byte: rng.below(600) },
    }
}
