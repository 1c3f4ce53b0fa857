//! Steps of random programs about records that expire, and about marks.

use super::oracle::KEYSPACES;
use super::rng::Rng;
use super::session::{Step, key_of};

/// The time at which programs begin, in seconds.
pub const START: u32 = 1_800_000_000;

/// The next step: a record that expires, a clock that goes on or jumps, or a mark that moves.
pub fn expiry_step(rng: &mut Rng, keys: usize, segment: usize) -> Step {
    let keyspace = *rng.pick(&KEYSPACES);
    let key = key_of(rng.below(keys));
    let fill = rng.next();
    // From the present on, in seconds.
    let after = match rng.below(10) {
        0 => -i64::from(rng.below(3) as u32),
        1 => 1_000_000,
        _ => 1 + rng.below(12) as i64,
    };
    match rng.below(24) {
        0..11 => {
            let len = match rng.below(8) {
                // In an extent, or in chunks.
                0 if after > 0 => rng.within(segment / 2..segment * 2),
                1 => rng.below(segment / 8),
                _ => rng.below(60),
            };
            Step::SetExpiring { keyspace, key, len, fill, after }
        }
        11..14 => Step::Touch { keyspace, key, after: Some(after) },
        14 => Step::Touch { keyspace, key, after: None },
        15..21 => Step::SetNow { by: 1 + rng.below(8) as i64 },
        21 => Step::SetNow { by: if rng.one_in(2) { 1_000 } else { -1 - rng.below(500) as i64 } },
        22 => Step::Retain { drops: false },
        _ => Step::Retain { drops: true },
    }
}
