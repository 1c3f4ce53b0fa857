//! Copies of cold records: which there are, and the reading of more.

use alloc::vec::Vec;

use crate::error::Error;
use crate::file::{File, read_full};
use crate::format::align_up;
use crate::format::record::{self, RecordHeader};
use crate::index::hash_index::{HashIndex, Position};

use super::buffer_pool::{AccessKind, BufferContent, BufferId};
use super::read::{Place, damaged};
use super::{Log, Slot};

/// A cold record is read with what follows it, between so many bytes: one call for most records.
const LEAST_GUESS: usize = 512;
const LARGEST_GUESS: usize = 4096;
/// After so many cold records of one segment in a row the whole segment is read: chance does not do
/// that, a walk in the order of writing does.
const IN_A_ROW: u32 = 8;

/// How a buffer tells what is in it: from its end downwards the position of each copy and where it
/// lies, then a position of 0. To let go of a buffer takes these alone, and none of the records.
const ENTRY: usize = 8;

/// Copies of cold records, one behind the other in buffers of the pool.
#[derive(Debug)]
pub(super) struct RecordCache {
    /// From a record's position, hashed by a bijection, to where its copy lies.
    index: HashIndex,
    current: Option<BufferId>,
    /// Where the next copy goes in the current buffer, and where its last entry begins.
    tail: usize,
    entries: usize,
    /// The size of the largest of late: it grows at once and shrinks by and by.
    largest: usize,
    /// The slot of the last one, and how many others of that slot came just before it.
    slot: u32,
    run: u32,
}

impl RecordCache {
    pub(super) fn new() -> Self {
        let index = HashIndex::default();
        RecordCache {
            index,
            current: None,
            tail: 0,
            entries: 0,
            largest: LARGEST_GUESS,
            slot: 0,
            run: 0,
        }
    }

    /// How many bytes to read for the next: an eighth more than those before it would have needed. A
    /// second read costs as much as some thousand bytes too many.
    fn guess(&self) -> usize {
        align_up(self.largest + self.largest / 8).clamp(LEAST_GUESS, LARGEST_GUESS)
    }

    /// Whether a cold record of this slot is one of many in a row.
    fn is_run(&mut self, slot: u32) -> bool {
        self.run = if slot == self.slot { self.run + 1 } else { 0 };
        self.slot = slot;
        self.run % IN_A_ROW == IN_A_ROW - 1
    }
}

/// Multiplication by an odd number is a bijection: equal hashes are equal positions.
#[inline]
const fn spread(position: Position) -> u32 {
    position.wrapping_mul(0x9E37_79B9)
}

/// The number that undoes [`spread`].
const UNSPREAD: u32 = 0x144C_BC89;
const _: () = assert!(UNSPREAD.wrapping_mul(0x9E37_79B9) == 1);

#[inline]
fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl RecordCache {
    /// Forgets the copies in a buffer. `shift` is that of positions.
    pub(super) fn forget(&mut self, id: BufferId, bytes: &[u8], shift: u8) {
        for entry in bytes.rchunks_exact(ENTRY) {
            let position = read_u32(entry, 0);
            if position == 0 {
                break;
            }
            let copy = id << shift | read_u32(entry, 4);
            if self.index.contains(spread(position), copy) {
                self.index.remove(spread(position), copy);
            }
        }
        if self.current == Some(id) {
            self.current = None;
        }
    }

    /// Bytes of the table.
    pub(super) fn bytes(&self) -> usize {
        self.index.bytes()
    }
}

impl Log {
    /// Forgets copies of records in slots that are going: others will stand where they did.
    pub(super) fn forget_cached(&mut self, goes: impl Fn(&Slot) -> bool) {
        let mut entries = Vec::new();
        self.record_cache.index.collect(0, u32::MAX, &mut entries);
        for (hash, copy) in entries {
            let (slot, _) = self.geometry.locate(hash.wrapping_mul(UNSPREAD));
            if goes(&self.slots[slot as usize]) {
                self.record_cache.index.remove(hash, copy);
            }
        }
    }

    /// Where the copy of a cold record lies, after reading it from the file if there is none.
    ///
    /// # Errors
    /// As for [`place`](Log::place).
    #[cold]
    pub(super) fn cold(
        &mut self,
        file: &mut impl File,
        position: Position,
        purpose: AccessKind,
    ) -> Result<Place, Error> {
        let shift = self.geometry.segment_log2 - 3;
        if let Some(copy) = self.record_cache.index.find(spread(position), |_| true) {
            let (buffer, offset) = (copy >> shift, (copy & ((1 << shift) - 1)) << 3);
            self.pool.touch_for(buffer, purpose);
            return Ok(Place { buffer, offset });
        }
        let (slot, offset) = self.geometry.locate(position);
        if self.record_cache.is_run(slot) && !self.pool.callback_open {
            self.load_whole(file, slot)?;
            if let Some(place) = self.resident_for(position, purpose) {
                return Ok(place);
            }
        }
        let room = self.geometry.room_end().saturating_sub(offset);
        let at = self.geometry.slot_start(slot) + offset as u64;
        let guess = self.record_cache.guess().min(room);
        let (id, tail) = self.room_for_copy(guess)?;
        let bytes = &mut self.pool.bytes_mut(id)[tail..];
        let mut there = read_full(file, &mut bytes[..guess], at)?;
        let size = match RecordHeader::at(&bytes[..there]) {
            Some(header) if header.fits(room) => header.size(),
            _ => return Err(damaged(at)),
        };
        let before = self.record_cache.largest;
        self.record_cache.largest = size.max(before - before / 256).min(LARGEST_GUESS);
        let (id, tail) = if size <= guess { (id, tail) } else { self.room_for_copy(size)? };
        let bytes = &mut self.pool.bytes_mut(id)[tail..];
        if size > guess {
            there = read_full(file, &mut bytes[..size], at)?;
        }
        let salt = self.slots[slot as usize].salt;
        let is_whole = there >= size && RecordHeader::verify(&bytes[..size], salt, at);
        // A checkpoint that lies may lead to anything.
        let record = if is_whole { record::sound(&bytes[..size]).ok() } else { None };
        if !record.is_some_and(|(header, ..)| header.can_live()) {
            return Err(damaged(at));
        }
        let offset = tail as u32;
        let entries = self.record_cache.entries - ENTRY;
        let (next, entry) = self.pool.bytes_mut(id)[entries - ENTRY..].split_at_mut(ENTRY);
        next.fill(0);
        entry[..4].copy_from_slice(&position.to_le_bytes());
        entry[4..ENTRY].copy_from_slice(&(offset >> 3).to_le_bytes());
        (self.record_cache.tail, self.record_cache.entries) = (tail + size, entries);
        self.pool.touch_for(id, purpose);
        self.record_cache.index.insert(spread(position), id << shift | offset >> 3);
        Ok(Place { buffer: id, offset })
    }

    /// A buffer with room for a copy of `size` bytes, and where it goes.
    #[inline(never)]
    fn room_for_copy(&mut self, size: usize) -> Result<(BufferId, usize), Error> {
        if let Some(id) = self.record_cache.current
            && self.record_cache.tail + size + 2 * ENTRY <= self.record_cache.entries
        {
            self.pool.touch(id);
            return Ok((id, self.record_cache.tail));
        }
        let id = self.take_buffer(BufferContent::RecordCache)?;
        let end = self.geometry.segment();
        self.pool.bytes_mut(id)[end - ENTRY..].fill(0);
        // Place 0 of buffer 0 would be no position.
        (self.record_cache.tail, self.record_cache.entries) = (ENTRY, end);
        self.record_cache.current = Some(id);
        Ok((id, ENTRY))
    }
}
