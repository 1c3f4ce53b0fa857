//! The index in the blocks of the checkpoint, for what the hash index in memory does not have of it: opening need not
//! read all blocks, because each is read when a key of it is needed first. If the whole index fits into its share of
//! the memory, all blocks are loaded one after the other between turns. Otherwise the hash index has only what changed
//! since the checkpoint, and entries that were looked up, some of which are evicted for others. What is known of all
//! entries then is the set of their positions, and a filter of their hashes.

use alloc::vec::Vec;

use crate::aligned_buf::AlignedBytes;
use crate::error::Error;
use crate::file::{File, read_full};
use crate::format::checkpoint::{self, BLOCK, BLOCK_ENTRIES, CheckpointHead};
use crate::index::Position;
use crate::index::hash_filter::HashFilter;
use crate::index::hash_index::{HashIndex, LastCluster};
use crate::index::position_set::PositionSet;

use super::Log;

/// No block.
const NONE: usize = usize::MAX;

/// Whether an index of so many entries takes more than `memory` bytes. One that `is_limited` already stays so
/// until more of it fits, so that the same keys are not loaded and evicted in turn. The table must not double
/// before a checkpoint has all entries, so there is a margin for those that are added meanwhile.
#[must_use]
pub fn index_exceeds_memory(entries: usize, is_limited: bool, memory: usize) -> bool {
    let margin = if is_limited { entries / 4 } else { entries / 8 };
    HashIndex::bytes_for(entries + margin) > memory
}

/// The index of a checkpoint, and which of its entries the hash index has taken over.
#[derive(Debug)]
pub struct CheckpointIndex {
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
    /// The positions that the last lookup found.
    found: Vec<Position>,
    /// Hashes of all entries, if the index in memory is limited; none if all entries are to be loaded.
    filter: Option<HashFilter>,
    /// Of all blocks before this one the positions and hashes are known.
    surveyed: usize,
    /// Entries of the hash index whose records are younger than the checkpoint, which cannot be evicted.
    recent: usize,
    /// Where an entry to evict was searched last.
    seed: u32,
    /// The part of the log that the checkpoint contains.
    frame: u64,
    end_sequence: u32,
    end_offset: u32,
    next_sequence: u32,
}

impl CheckpointIndex {
    /// All entries of a checkpoint whose blocks begin at a position of the file. None if the first hashes
    /// are not in order.
    pub(super) fn new(
        head: &CheckpointHead,
        first_hashes: Vec<u32>,
        salt: u64,
        at: u64,
        is_limited: bool,
    ) -> Option<Self> {
        first_hashes.is_sorted().then(|| CheckpointIndex {
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
            found: Vec::new(),
            filter: is_limited.then(|| HashFilter::new(head.entries as usize)),
            surveyed: 0,
            recent: 0,
            seed: 0,
            frame: head.frame,
            end_sequence: head.end_sequence,
            end_offset: head.end_offset,
            next_sequence: head.next_sequence,
        })
    }

    /// Knows from now on what lookups may allocate.
    pub(super) fn prepare(&mut self, log: &Log) {
        self.taken.prepare_up_to(log.end_position());
    }

    /// Bytes that lookups may allocate, in small pieces. They are to be reserved: memory that grows during a turn
    /// detaches its views.
    #[must_use]
    pub fn bytes_to_grow(&self) -> usize {
        self.taken.bytes_to_grow()
    }

    /// How many entries of the checkpoint count and are not in the index.
    #[must_use]
    pub fn unloaded_len(&self) -> usize {
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

    /// Whether the index in memory is limited, so that entries are loaded only for lookups.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether the positions and hashes of all entries are known.
    #[must_use]
    pub fn is_surveyed(&self) -> bool {
        self.surveyed >= self.first_hashes.len()
    }

    /// Whether there may be entries with a hash.
    #[must_use]
    pub fn may_contain(&self, hash: u32) -> bool {
        let filter = self.filter.as_ref().filter(|_| self.is_surveyed());
        filter.is_none_or(|filter| filter.may_contain(hash))
    }

    /// Entries of the hash index whose records are younger than the checkpoint.
    #[must_use]
    pub fn recent(&self) -> usize {
        self.recent
    }

    /// An entry of the hash index changed: counts the recent ones.
    pub fn entry_changed(&mut self, log: &Log, old: Option<Position>, new: Option<Position>) {
        let is_recent = |at: Option<Position>| at.is_some_and(|at| !self.is_before(log, at));
        let (was, is) = (is_recent(old), is_recent(new));
        self.recent = (self.recent + usize::from(is)).saturating_sub(usize::from(was));
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, HashFilter::bytes);
        filter + self.taken.bytes() + 4 * self.first_hashes.len()
    }

    /// Bytes of memory, with that of the set of tracked positions, beside a checkpoint of so many entries.
    #[must_use]
    pub fn bytes_for(entries: usize, log: &Log) -> usize {
        HashFilter::bytes_for(entries) + 2 * PositionSet::bytes_for(log.end_position())
    }

    /// Bytes of memory that the first [`survey`](CheckpointIndex::survey) allocates at most.
    #[must_use]
    pub fn bytes_to_survey(&self, log: &Log) -> usize {
        if self.surveyed == 0 { PositionSet::bytes_for(log.end_position()) } else { 0 }
    }

    /// Evicts up to `wanted` entries of the hash index that are in the checkpoint, other than those with a hash to
    /// keep. Returns how many. `next` is the index of a checkpoint in progress.
    pub fn evict(
        &mut self,
        log: &Log,
        index: &mut HashIndex,
        mut next: Option<&mut CheckpointIndex>,
        wanted: usize,
        kept: Option<u32>,
    ) -> usize {
        if self.next > 0 {
            // Blocks that were loaded as a whole are not read again.
            return 0;
        }
        let mut seed = self.seed;
        let evicted = index.evict(&mut seed, wanted, |other, position| {
            let goes = Some(other) != kept && self.is_before(log, position);
            if goes {
                self.untake(position);
                if let Some(next) = &mut next {
                    next.untake(position);
                }
            }
            goes
        });
        self.seed = seed;
        evicted
    }

    /// No entry of the hash index could be evicted.
    pub fn mark_all_recent(&mut self, index: &HashIndex) {
        self.recent = index.len();
    }

    /// The index evicted an entry, which counts here again.
    fn untake(&mut self, position: Position) {
        self.left += usize::from(self.taken.remove(position));
    }

    /// The entries are as of just before this frame.
    #[must_use]
    pub fn frame(&self) -> u64 {
        self.frame
    }

    /// Whether an entry still counts and is not in the index.
    #[must_use]
    pub fn is_unloaded(&self, hash: u32, position: Position) -> bool {
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
        self.is_before(log, position) && !self.taken.contains(position)
    }

    /// Whether a position lies in the part of the log that the checkpoint contains.
    fn is_before(&self, log: &Log, position: Position) -> bool {
        let (slot, offset) = log.geometry.locate(position);
        log.slots.get(slot as usize).is_some_and(|slot| {
            let is_known = slot.end > 0 && slot.sequence < self.next_sequence;
            is_known && (slot.sequence != self.end_sequence || offset < self.end_offset as usize)
        })
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

    /// Finds the entries with a hash that count. Returns how many these are; none if a block is damaged.
    ///
    /// # Errors
    /// An error of the file.
    pub fn find(
        &mut self,
        file: &mut impl File,
        log: &Log,
        hash: u32,
    ) -> Result<Option<usize>, Error> {
        self.found.clear();
        let before = self.current;
        let mut found = core::mem::take(&mut self.found);
        let is_whole = self.each(file, log, hash, hash, |_, position| found.push(position));
        self.found = found;
        self.reads += usize::from(self.current != before);
        Ok(is_whole?.then_some(self.found.len()))
    }

    /// Moves the entries that were found to the index, which has space for them.
    pub fn move_found(
        &mut self,
        index: &mut HashIndex,
        mut next: Option<&mut CheckpointIndex>,
        hash: u32,
    ) {
        for at in 0..self.found.len() {
            let position = self.found[at];
            if self.take(position) {
                index.insert(hash, position);
                if let Some(next) = &mut next {
                    next.take(position);
                }
            }
        }
    }

    /// Appends the entries from one hash to another that count to a list. Returns false if a block is damaged.
    ///
    /// # Errors
    /// An error of the file.
    pub fn collect(
        &mut self,
        file: &mut impl File,
        log: &Log,
        (first, last): (u32, u32),
        out: &mut Vec<(u32, Position)>,
    ) -> Result<bool, Error> {
        self.each(file, log, first, last, |hash, position| out.push((hash, position)))
    }

    /// Calls `visit` with the entries from one hash to another that count. Returns false if a block is damaged.
    fn each(
        &mut self,
        file: &mut impl File,
        log: &Log,
        first: u32,
        last: u32,
        mut visit: impl FnMut(u32, Position),
    ) -> Result<bool, Error> {
        // Equal hashes may be in several blocks.
        let from = self.first_hashes.partition_point(|&hash| hash < first).saturating_sub(1);
        for number in from.max(self.next)..self.first_hashes.len() {
            if self.first_hashes[number] > last {
                break;
            }
            if !self.read(file, log, number)? {
                return Ok(false);
            }
            let (words, _) = self.block[8..8 * (1 + self.entries_of(number))].as_chunks();
            let from = words.partition_point(|&word| entry_of(word).0 < first);
            for (hash, position) in words[from..].iter().map(|&word| entry_of(word)) {
                if hash > last {
                    break;
                }
                if !self.taken.contains(position) {
                    visit(hash, position);
                }
            }
        }
        Ok(true)
    }

    /// Learns the positions and hashes of the next blocks. Returns whether there are more; none if a block is
    /// damaged.
    ///
    /// # Errors
    /// An error of the file.
    pub fn survey(
        &mut self,
        file: &mut impl File,
        log: &Log,
        index: &mut HashIndex,
        blocks: usize,
    ) -> Result<Option<bool>, Error> {
        if self.surveyed == 0 {
            index.track_more_positions(log.end_position());
        }
        let end = self.surveyed.saturating_add(blocks).min(self.first_hashes.len());
        while self.surveyed < end {
            if !self.read(file, log, self.surveyed)? {
                return Ok(None);
            }
            let (words, _) = self.block[8..8 * (1 + self.entries_of(self.surveyed))].as_chunks();
            for (hash, position) in words.iter().map(|&word| entry_of(word)) {
                if let Some(filter) = &mut self.filter {
                    filter.add(hash);
                }
                if !self.taken.contains(position) {
                    index.track(position);
                }
            }
            self.surveyed += 1;
        }
        Ok(Some(!self.is_surveyed()))
    }

    // ---------------------------------------------------------------- while its checkpoint is written

    /// The index of a checkpoint that begins, whose blocks begin at a position of the file.
    pub(super) fn of_next(
        head: &CheckpointHead,
        salt: u64,
        at: u64,
        is_limited: bool,
        log: &Log,
    ) -> Option<Self> {
        let mut next = CheckpointIndex::new(head, Vec::new(), salt, at, is_limited)?;
        next.prepare(log);
        Some(next)
    }

    /// Entries are written to the checkpoint. Those that the hash index has stay there.
    pub fn add_written(&mut self, entries: &[(u32, Position)]) {
        if let Some(filter) = &mut self.filter {
            entries.iter().for_each(|&(hash, _)| filter.add(hash));
        }
    }

    /// Entries that the checkpoint contains are in the hash index, or were superseded.
    pub fn take_all(&mut self, log: &Log, positions: impl IntoIterator<Item = Position>) {
        for position in positions {
            if self.is_before(log, position) {
                self.take(position);
            }
        }
    }

    /// The checkpoint is complete, with these first hashes of its blocks. The positions of all entries are known
    /// if `is_surveyed`.
    pub(super) fn complete(&mut self, first_hashes: Vec<u32>, is_surveyed: bool) {
        self.surveyed = if is_surveyed { first_hashes.len() } else { 0 };
        self.first_hashes = first_hashes;
    }

    /// Moves the entries of the next blocks to the index, which a `checkpoint` in progress need not have. Returns whether there are more; none if a block is
    /// damaged.
    ///
    /// # Errors
    /// An error of the file.
    pub fn load_next(
        &mut self,
        file: &mut impl File,
        log: &Log,
        index: &mut HashIndex,
        mut checkpoint: Option<&mut CheckpointIndex>,
        blocks: usize,
    ) -> Result<Option<bool>, Error> {
        let tracks = index.tracks_positions();
        let end = self.next.saturating_add(blocks).min(self.first_hashes.len());
        let mut appended = LastCluster::default();
        while self.next < end {
            if !self.read(file, log, self.next)? {
                return Ok(None);
            }
            let before = index.len();
            // Keys that were added since the checkpoint take space too.
            if index.reserve(self.entries_of(self.next)) {
                appended = LastCluster::default();
            }
            self.next += 1;
            let after = self.first_hashes.get(self.next).copied();
            let (words, _) = self.block[8..8 * (1 + self.entries_of(self.current))].as_chunks();
            for &word in words {
                let (hash, position) = entry_of(word);
                if !log.may_hold_record(position) {
                    self.lost += 1;
                } else if !self.taken.contains(position) {
                    index.append(&mut appended, hash, position);
                    if tracks {
                        index.track(position);
                    }
                    if let Some(checkpoint) = &mut checkpoint {
                        checkpoint.take(position);
                    }
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
