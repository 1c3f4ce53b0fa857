//! A seeded mutator that knows values that parsers may mishandle.

use varve::engine::format::checkpoint;

use crate::rng::{Rng, bytes_of};

fn word_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

/// An offset that probably contains a number: after a magic, or after another number.
fn number_offset(data: &[u8], rng: &mut Rng) -> usize {
    let somewhere = rng.below(data.len() / 4) * 4;
    if rng.one_in(6) {
        return somewhere;
    }
    // The next structure from there on, if one is near.
    let magics = [*b"VSEG", *b"VFRM", checkpoint::MAGIC.to_le_bytes(), *b"varv"];
    let near = (somewhere / 8 * 8..data.len().saturating_sub(8)).step_by(4).take(2048);
    let mut found = near.filter(|&at| magics.iter().any(|magic| &data[at..at + 4] == magic));
    let Some(at) = found.next() else { return somewhere };
    (at + rng.below(60) * 4).min(data.len() - 4) / 4 * 4
}

fn corrupt_number(old: u32, rng: &mut Rng) -> u32 {
    match rng.below(9) {
        0 => 0,
        1 => u32::MAX,
        2 => 1 << rng.below(32),
        3 => old.wrapping_add(1 << rng.below(12)),
        4 => old.wrapping_sub(1 << rng.below(12)),
        5 => old ^ (1 << rng.below(32)),
        6 => rng.below(20) as u32,
        7 => old.wrapping_add(1),
        _ => rng.next() as u32,
    }
}

/// Applies one to five changes to the data.
pub fn mutate(data: &mut Vec<u8>, others: &[Vec<u8>], rng: &mut Rng) {
    for _ in 0..rng.within(1..6) {
        if data.len() < 8 {
            data.resize(64, 0);
        }
        match rng.below(20) {
            0 => data.truncate(rng.within(1..data.len())),
            1 => {
                let more = rng.below(2000);
                data.extend(bytes_of(rng.next(), more));
            }
            2..4 => {
                // Copies a part of another file, or of this one, to another offset.
                let other = rng.pick(others);
                let unit = *rng.pick(&[8, 40, 64, 256, 512, 4096]);
                if other.len() >= unit && data.len() >= unit {
                    let from = rng.below(other.len() / unit) * unit;
                    let to = rng.below(data.len() / unit) * unit;
                    data[to..to + unit].copy_from_slice(&other[from..from + unit]);
                }
            }
            4 => {
                let at = rng.below(data.len());
                data[at] ^= 1 << rng.below(8);
            }
            5 => {
                // Also 8-byte numbers: the largest, and half of it.
                let at = number_offset(data, rng) / 8 * 8;
                let new = *rng.pick(&[u64::MAX, 1 << 63, 1 << 56, (1 << 56) - 1, 0, 1]);
                let end = data.len().min(at + 8);
                data[at..end].copy_from_slice(&new.to_le_bytes()[..end - at]);
            }
            6 => {
                // Replaces one number by another: counts, sizes and positions that do not belong
                // there.
                let (from, to) = (number_offset(data, rng), number_offset(data, rng));
                data.copy_within(from..from + 4, to);
            }
            _ => {
                let at = number_offset(data, rng);
                let new = corrupt_number(word_at(data, at), rng).to_le_bytes();
                data[at..at + 4].copy_from_slice(&new);
            }
        }
    }
}
