//! The entries of the checkpoint that the hash index does not have yet, so that opening need not read all of
//! them: a block is read when a key of it is needed first, and all blocks one after the other between turns.

use alloc::vec::Vec;

use crate::aligned_buf::AlignedBytes;
use crate::error::Error;
use crate::file::{File, read_full};
use crate::format::checkpoint::{self, BLOCK, BLOCK_ENTRIES, CheckpointHead};
use crate::index::hash_index::{HashIndex, Position, PositionSet, Run};

use super::Log;

/// No block.
const NONE: usize = usize::MAX;

/// What is left of a checkpoint's entries.
#[derive(Debug)]
pub struct UnloadedIndex {
    salt: u64,
    /// The file position of the first block.
    at: u64,
    /// Entries of all blocks.
    entries: usize,
    /// The first hash of each block.
    first_hashes: Vec<u32>,
    /// Positions that the index took over, or that were superseded: their entries do not count any more.
    taken: PositionSet,
    /// How many entries were not taken.
    left: usize,
    /// Entries that were skipped because their segments are lost.
    lost: u64,
    /// All blocks before this one are loaded.
    next: usize,
    /// The block that was read last, and its number.
    block: AlignedBytes,
    current: usize,
    /// How many blocks were read for a lookup.
    reads: usize,
    /// The part of the log that the checkpoint contains.
    frame: u64,
    end_sequence: u32,
    end_offset: u32,
    next_sequence: u32,
}

impl UnloadedIndex {
    /// All entries of a checkpoint whose blocks begin at a position of the file. None if the first hashes
    /// are not in order.
    pub(super) fn new(
        head: &CheckpointHead,
        first_hashes: Vec<u32>,
        salt: u64,
        at: u64,
    ) -> Option<Self> {
        first_hashes.is_sorted().then(|| UnloadedIndex {
            salt,
            at,
            entries: head.entries as usize,
            first_hashes,
            taken: PositionSet::default(),
            left: head.entries as usize,
            lost: 0,
            next: 0,
            block: AlignedBytes::zeroed(BLOCK),
            current: NONE,
            reads: 0,
            frame: head.frame,
            end_sequence: head.end_sequence,
            end_offset: head.end_offset,
            next_sequence: head.next_sequence,
        })
    }

    /// Allocates everything now that lookups need: memory that grows during a turn detaches its views.
    pub(super) fn reserve(&mut self, log: &Log) {
        self.taken.reserve(log.geometry.position(log.slot_count(), 0));
    }

    /// How many entries of the checkpoint count and are not in the index.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }

    /// How many entries were skipped because their segments are lost, which only salvage accepts.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// How many blocks were read for a lookup.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.reads
    }

    /// Counts these reads from 0 again.
    pub fn forget_reads(&mut self) {
        self.reads = 0;
    }

    /// The entries are as of just before this frame.
    #[must_use]
    pub fn frame(&self) -> u64 {
        self.frame
    }

    /// Whether an entry still counts and is not in the index.
    #[must_use]
    pub fn counts(&self, hash: u32, position: Position) -> bool {
        let is_after = self.first_hashes.get(self.next).is_some_and(|&first| hash >= first);
        is_after && !self.taken.contains(position)
    }

    /// The index took an entry over, or it was superseded. Returns whether it counted until now.
    pub fn take(&mut self, position: Position) -> bool {
        let counted = self.taken.insert(position);
        self.left = self.left.saturating_sub(usize::from(counted));
        counted
    }

    /// Whether `position`, which the log says was a key's record after the checkpoint, must be that of an
    /// entry that counts.
    #[must_use]
    pub fn must_contain(&self, log: &Log, position: Position) -> bool {
        let (slot, offset) = log.geometry.locate(position);
        let is_before = log.slots.get(slot as usize).is_some_and(|slot| {
            let is_known = slot.end > 0 && slot.sequence < self.next_sequence;
            is_known && (slot.sequence != self.end_sequence || offset < self.end_offset as usize)
        });
        is_before && !self.taken.contains(position)
    }

    /// Reads a block unless it was read last. Returns false if it is damaged.
    fn read(&mut self, file: &mut impl File, log: &Log, number: usize) -> Result<bool, Error> {
        if self.current == number {
            return Ok(true);
        }
        self.current = NONE;
        let length = 8 * (1 + self.entries_of(number));
        let at = self.at + (number * BLOCK) as u64;
        let bytes = &mut self.block[..length];
        let is_whole =
            read_full(file, bytes, at)? == length && checkpoint::verify(bytes, self.salt, at);
        // A malicious file may have a valid checksum.
        let (words, _) = bytes[8..].as_chunks();
        let mut before = self.first_hashes.get(number).copied().unwrap_or(u32::MAX);
        let starts = words.first().is_some_and(|&word| entry_of(word).0 == before);
        let is_valid = starts
            && words.iter().all(|&word| {
                let (hash, position) = entry_of(word);
                let is_sorted = hash >= before;
                before = hash;
                is_sorted && (log.recovery.damaged || log.may_hold_record(position))
            })
            && self.first_hashes.get(number + 1).is_none_or(|&next| next >= before);
        if is_whole && is_valid {
            self.current = number;
        }
        Ok(is_whole && is_valid)
    }

    fn entries_of(&self, number: usize) -> usize {
        BLOCK_ENTRIES.min(self.entries.saturating_sub(number * BLOCK_ENTRIES))
    }

    /// Moves the entries with a hash to the index. Returns how many these are; none if a block is damaged.
    ///
    /// # Errors
    /// An error of the file.
    pub fn load_hash(
        &mut self,
        file: &mut impl File,
        log: &Log,
        index: &mut HashIndex,
        hash: u32,
    ) -> Result<Option<usize>, Error> {
        // Equal hashes may be in several blocks.
        let first = self.first_hashes.partition_point(|&first| first < hash).saturating_sub(1);
        let mut moved = 0;
        for number in first.max(self.next)..self.first_hashes.len() {
            if self.first_hashes[number] > hash {
                break;
            }
            self.reads += usize::from(self.current != number);
            if !self.read(file, log, number)? {
                return Ok(None);
            }
            let (words, _) = self.block[8..8 * (1 + self.entries_of(number))].as_chunks();
            let from = words.partition_point(|&word| entry_of(word).0 < hash);
            for &word in &words[from..] {
                let (other, position) = entry_of(word);
                if other != hash {
                    break;
                }
                if self.taken.insert(position) {
                    self.left = self.left.saturating_sub(1);
                    index.insert(hash, position);
                    moved += 1;
                }
            }
        }
        Ok(Some(moved))
    }

    /// Moves the entries of the next blocks to the index. Returns whether there are more; none if a block is
    /// damaged.
    ///
    /// # Errors
    /// An error of the file.
    pub fn load_next(
        &mut self,
        file: &mut impl File,
        log: &Log,
        index: &mut HashIndex,
        blocks: usize,
    ) -> Result<Option<bool>, Error> {
        let end = self.next.saturating_add(blocks).min(self.first_hashes.len());
        let mut run = Run::default();
        while self.next < end {
            if !self.read(file, log, self.next)? {
                return Ok(None);
            }
            let before = index.len();
            // Keys that were added since the checkpoint take space too.
            if index.reserve(self.entries_of(self.next)) {
                run = Run::default();
            }
            self.next += 1;
            let after = self.first_hashes.get(self.next).copied();
            let (words, _) = self.block[8..8 * (1 + self.entries_of(self.current))].as_chunks();
            for &word in words {
                let (hash, position) = entry_of(word);
                if !log.may_hold_record(position) {
                    self.lost += 1;
                } else if !self.taken.contains(position) {
                    index.append(&mut run, hash, position);
                    if Some(hash) == after {
                        // The next block begins with the same hash.
                        self.taken.insert(position);
                    }
                }
            }
            self.left = self.left.saturating_sub(index.len() - before);
        }
        Ok(Some(self.next < self.first_hashes.len()))
    }
}

/// The hash and the position of an entry.
#[inline(always)]
fn entry_of(word: [u8; 8]) -> (u32, Position) {
    let word = u64::from_le_bytes(word);
    (word as u32, (word >> 32) as Position)
}
