//! The two superblocks: which one is current, what is rejected, and creating a file.

use alloc::vec::Vec;

use crate::error::{Damage, Error};
use crate::file::{File, read_full, write_all};
use crate::format::superblock::{
    self, COMPATIBLE_HISTORY, FLAG_CLEAN, KNOWN_INCOMPATIBLE, MAGIC, MODE_KEEP_HISTORY,
    SLOT_STRIDE, Superblock,
};
use crate::format::{DATA_START, MAJOR, MINOR, SEGMENT_LOG2};

/// The current superblock, and whether the other one is invalid; none for a file that is empty or
/// whose creation was not completed.
pub(super) fn read(file: &mut impl File, size: u64) -> Result<Option<(Superblock, bool)>, Error> {
    use superblock::Slot as Found;
    let mut start = [0; DATA_START as usize];
    let read_len = read_full(file, &mut start, 0)?;
    let mut found = Vec::new();
    let mut valid = Vec::new();
    for slot in 0..2 {
        let at = slot * SLOT_STRIDE as usize;
        let bytes = start[..read_len].get(at..).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(superblock::SIZE)];
        match Superblock::decode(bytes, slot as u64) {
            Found::Valid(superblock) => valid.push(check_superblock(*superblock)?),
            other => found.push(other),
        }
    }
    // Versions and frames that either superblock has recorded are used up.
    let next_version = valid.iter().map(|sb| sb.next_version).max();
    if let Some(newest) = valid.into_iter().max_by_key(|superblock| superblock.generation) {
        // Only creation leaves generation 1 alone. It was interrupted and is repeated, so that its
        // flush precedes all use.
        if newest.generation == 1 && size <= DATA_START {
            return Ok(None);
        }
        // The creator may have crashed before its flush, which must precede all use.
        if newest.generation == 2 && size <= DATA_START {
            file.flush()?;
        }
        // Both superblocks are flushed before the database is used, so the file cannot end before
        // the second.
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

/// A substitute for the superblock of a file that has lost both. Generation 0 means that the file
/// identity is unknown, so headers cannot be verified against it.
pub(super) fn missing(entropy: &[u64; 4], mode: u8) -> Superblock {
    Superblock { generation: 0, ..first_superblock(*SEGMENT_LOG2.end(), entropy, mode) }
}

/// Creation writes and flushes both superblocks before the first segment exists. So a file that
/// ends with them and contains nothing else never had a key.
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
    if superblock.major != MAJOR || unknown != 0 || superblock.mode & !MODE_KEEP_HISTORY != 0 {
        return Err(Error::UnsupportedFormat { major: superblock.major, features: unknown.into() });
    }
    // A checksum proves that the bytes are as written, not that the writer was honest.
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
    mode: u8,
) -> Result<Superblock, Error> {
    if !SEGMENT_LOG2.contains(&segment_log2) {
        return Err(Error::Misuse);
    }
    let mut superblock = first_superblock(segment_log2, entropy, mode);
    write_all(file, &superblock.encode(0), 0)?;
    superblock.generation = 2;
    write_all(file, &superblock.encode(1), SLOT_STRIDE)?;
    file.flush()?;
    Ok(superblock)
}

fn first_superblock(segment_log2: u8, entropy: &[u64; 4], mode: u8) -> Superblock {
    Superblock {
        magic: MAGIC,
        check: 0,
        major: MAJOR,
        minor: MINOR,
        segment_log2,
        mode,
        flags: FLAG_CLEAN,
        incompatible: 0,
        compatible: COMPATIBLE_HISTORY,
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
        uncertain_below: 0,
        checkpoint_slot: 0,
        reserved: [0; 10],
    }
}
