//! The two superblock slots as a whole: which one counts, what is refused, how a file begins.

use alloc::vec::Vec;

use crate::error::{Damage, Error};
use crate::file::{File, read_full, write_all};
use crate::format::superblock::{
    self, FLAG_CLEAN, KNOWN_INCOMPATIBLE, MAGIC, SLOT_STRIDE, Superblock,
};
use crate::format::{DATA_START, MAJOR, MINOR, SEGMENT_LOG2};

/// The superblock that counts, and whether the other one is not valid; none for a file that is empty or whose
/// creation was cut short.
pub(super) fn read(file: &mut impl File, size: u64) -> Result<Option<(Superblock, bool)>, Error> {
    use superblock::Slot as Found;
    let mut start = [0; DATA_START as usize];
    let there = read_full(file, &mut start, 0)?;
    let mut found = Vec::new();
    let mut valid = Vec::new();
    for slot in 0..2 {
        let at = slot * SLOT_STRIDE as usize;
        let bytes = start[..there].get(at..).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(superblock::SIZE)];
        match Superblock::decode(bytes, slot as u64) {
            Found::Valid(superblock) => valid.push(check_superblock(*superblock)?),
            other => found.push(other),
        }
    }
    // Versions and frames that either has seen are used up.
    let next_version = valid.iter().map(|sb| sb.next_version).max();
    if let Some(newest) = valid.into_iter().max_by_key(|superblock| superblock.generation) {
        // Only creation leaves the first generation alone: it was cut short, and is done again so
        // that the flush at its end precedes all use.
        if newest.generation == 1 && size <= DATA_START {
            return Ok(None);
        }
        // Perhaps whoever created it died before its flush, which has to precede all use.
        if newest.generation == 2 && size <= DATA_START {
            file.flush()?;
        }
        // Both slots are flushed before the database is used, so it cannot end before the second.
        if newest.generation > 2 && size < SLOT_STRIDE + superblock::SIZE as u64 {
            return Err(Damage::default().into());
        }
        let next_version = next_version.unwrap_or(newest.next_version);
        return Ok(Some((Superblock { next_version, ..newest }, !found.is_empty())));
    }
    if size <= DATA_START && is_unfinished_creation(&start, &found) {
        return Ok(None);
    }
    match found.iter().any(|slot| matches!(slot, Found::Damaged)) {
        true => Err(Damage::default().into()),
        false => Err(Error::NotADatabase),
    }
}

/// In place of the superblock of a file that has lost both. Generation 0 says that its identity is not
/// known, so that headers cannot be verified by it.
pub(super) fn missing(entropy: &[u64; 4]) -> Superblock {
    Superblock { generation: 0, ..first_superblock(*SEGMENT_LOG2.end(), entropy) }
}

/// Creation writes and flushes both slots before the first segment exists, so a file that ends
/// with them and holds nothing else never held a key.
fn is_unfinished_creation(start: &[u8], found: &[superblock::Slot]) -> bool {
    let outside = |slot: usize| {
        let at = slot * SLOT_STRIDE as usize;
        &start[at + superblock::SIZE..at + SLOT_STRIDE as usize]
    };
    !found.iter().any(|slot| matches!(slot, superblock::Slot::Foreign))
        && (0..2).all(|slot| outside(slot).iter().all(|&b| b == 0))
}

fn check_superblock(superblock: Superblock) -> Result<Superblock, Error> {
    let unknown = superblock.incompatible & !KNOWN_INCOMPATIBLE;
    // History is written down in the format and not built yet.
    if superblock.major != MAJOR || unknown != 0 || superblock.mode != 0 {
        return Err(Error::UnsupportedFormat { major: superblock.major, features: unknown.into() });
    }
    // A checksum proves that the bytes are as written, not that their writer meant well.
    let Superblock { first_frame, next_frame, next_version, generation, .. } = superblock;
    let counts = [first_frame, next_frame, next_version, generation];
    let sane = counts.iter().all(|n| (1..1 << 56).contains(n));
    if !SEGMENT_LOG2.contains(&superblock.segment_log2) || !sane {
        return Err(Damage::default().into());
    }
    Ok(superblock)
}

/// Writes both slots of a new database and flushes them, before any segment exists.
pub(super) fn create(
    file: &mut impl File,
    segment_log2: u8,
    entropy: &[u64; 4],
) -> Result<Superblock, Error> {
    if !SEGMENT_LOG2.contains(&segment_log2) {
        return Err(Error::Misuse);
    }
    let mut superblock = first_superblock(segment_log2, entropy);
    write_all(file, &superblock.encode(0), 0)?;
    superblock.generation = 2;
    write_all(file, &superblock.encode(1), SLOT_STRIDE)?;
    file.flush()?;
    Ok(superblock)
}

fn first_superblock(segment_log2: u8, entropy: &[u64; 4]) -> Superblock {
    Superblock {
        magic: MAGIC,
        check: 0,
        major: MAJOR,
        minor: MINOR,
        segment_log2,
        mode: 0,
        flags: FLAG_CLEAN,
        incompatible: 0,
        compatible: 0,
        file_id: [entropy[0], entropy[1]],
        hash_seed: [entropy[2], entropy[3]],
        generation: 1,
        created_ms: 0,
        next_version: 1,
        next_frame: 1,
        end_sequence: 0,
        end_position: DATA_START,
        next_sequence: 1,
        first_sequence: 1,
        first_frame: 1,
        checkpoint_sequence: 0,
        checkpoint_frame: 0,
        reserved: [0; 12],
    }
}
