//! The cache of cold records: finding and reading them.

use alloc::vec::Vec;

use crate::error::{Error, damaged};
use crate::file::{File, read_full};
use crate::format::align_up;
use crate::format::record::{self, RecordHeader};
use crate::index::Position;
use crate::index::hash_index::HashIndex;

use super::buffer_pool::{AccessKind, BufferAddr, BufferContent, BufferId};
use super::{Log, Slot};

/// Bounds of one read of a cold record, which includes what follows it: one call suffices for most.
const MIN_READ: usize = 512;
const MAX_READ: usize = 4096;
/// After this many cold records in a row from one segment, the whole segment is read. Random access
/// hardly ever does that; a scan in the order of writing does.
const RUN_LENGTH: u32 = 8;
/// After this many cold records from one segment, in any order, it is read too if a buffer is unused: so many
/// reads cost as much.
const MANY_READS: u8 = 64;

/// Bytes of an entry. Each buffer ends with a directory that grows downwards: the position of each
/// cached record and its offset in the buffer, and a position of 0 at the end. Evicting a buffer
/// reads only this directory.
const ENTRY: usize = 8;

/// Copies of cold records, one after the other in buffers of the pool.
#[derive(Debug)]
pub(super) struct RecordCache {
    /// From the position of a record, hashed by a bijection, to the address of its copy.
    index: HashIndex,
    current: Option<BufferId>,
    /// The offset of the next copy in the current buffer, and the start of its directory.
    tail: usize,
    entries: usize,
    /// The size of the largest recent record. It grows at once and shrinks slowly.
    largest_recent: usize,
    /// The slot of the last cold record, and how many others of that slot were read just before it.
    slot: u32,
    run: u32,
    /// How many cold records were read in each slot.
    reads: Vec<u8>,
}

impl RecordCache {
    pub(super) fn new() -> Self {
        let index = HashIndex::default();
        RecordCache {
            index,
            current: None,
            tail: 0,
            entries: 0,
            largest_recent: MAX_READ,
            slot: 0,
            run: 0,
            reads: Vec::new(),
        }
    }

    /// How many bytes to read next: an eighth more than recent records needed. A second read costs
    /// as much as some thousand bytes too many.
    fn read_size(&self) -> usize {
        align_up(self.largest_recent + self.largest_recent / 8).clamp(MIN_READ, MAX_READ)
    }

    /// Whether reads of cold records in this slot have become a run.
    fn is_run(&mut self, slot: u32) -> bool {
        self.run = if slot == self.slot { self.run + 1 } else { 0 };
        self.slot = slot;
        self.run % RUN_LENGTH == RUN_LENGTH - 1
    }
}

impl Log {
    /// Whether a segment should be read as a whole, since many of its records are cold.
    fn is_worth_loading(&mut self, slot: u32) -> bool {
        if self.pool.callback_open {
            return false;
        }
        if self.record_cache.is_run(slot) {
            return true;
        }
        if self.record_cache.reads.len() < self.slots.len() {
            self.record_cache.reads.resize(self.slots.len(), 0);
        }
        let reads = &mut self.record_cache.reads[slot as usize];
        *reads = (*reads + 1) % MANY_READS;
        *reads == 0 && self.pool.has_unused()
    }
}

/// Multiplication by an odd number is a bijection: equal hashes are equal positions.
#[inline]
const fn hash_position(position: Position) -> u32 {
    position.wrapping_mul(0x9E37_79B9)
}

/// The inverse of [`hash_position`].
const HASH_INVERSE: u32 = 0x144C_BC89;
const _: () = assert!(HASH_INVERSE.wrapping_mul(0x9E37_79B9) == 1);

#[inline]
fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl RecordCache {
    /// Removes the cached records of a buffer. `shift` is that of positions.
    pub(super) fn evict_buffer(&mut self, id: BufferId, bytes: &[u8], shift: u8) {
        for entry in bytes.rchunks_exact(ENTRY) {
            let position = read_u32(entry, 0);
            if position == 0 {
                break;
            }
            let copy = id << shift | read_u32(entry, 4);
            if self.index.contains(hash_position(position), copy) {
                self.index.remove(hash_position(position), copy);
            }
        }
        if self.current == Some(id) {
            self.current = None;
        }
    }

    /// Bytes of the index.
    pub(super) fn bytes(&self) -> usize {
        self.index.bytes()
    }

    /// Frees what the index does not need any more above so many bytes.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let needed = HashIndex::bytes_for(self.index.len());
        if self.index.bytes() > bytes.max(needed) {
            self.index.shrink_to(needed);
        }
    }
}

impl Log {
    /// Removes cached records of slots that are being freed: other records will take their
    /// positions.
    pub(super) fn forget_cached(&mut self, goes: impl Fn(&Slot) -> bool) {
        let mut entries = Vec::new();
        self.record_cache.index.collect(0, u32::MAX, &mut entries);
        for (hash, copy) in entries {
            let (slot, _) = self.geometry.locate(hash.wrapping_mul(HASH_INVERSE));
            if goes(&self.slots[slot as usize]) {
                self.record_cache.index.remove(hash, copy);
            }
        }
    }

    /// The address of a cold record in the cache, after reading it from the file if it is not
    /// there.
    ///
    /// # Errors
    /// As for [`fetch`](Log::fetch).
    #[cold]
    pub(super) fn load_cold(
        &mut self,
        file: &mut impl File,
        position: Position,
        access: AccessKind,
    ) -> Result<BufferAddr, Error> {
        let shift = self.geometry.segment_log2 - 3;
        if let Some(copy) = self.record_cache.index.find(hash_position(position), |_| true) {
            let (buffer, offset) = (copy >> shift, (copy & ((1 << shift) - 1)) << 3);
            self.pool.touch_for(buffer, access);
            return Ok(BufferAddr { buffer, offset });
        }
        let (slot, offset) = self.geometry.locate(position);
        if self.is_worth_loading(slot) {
            self.load_valid_segment(file, slot)?;
            if let Some(addr) = self.resident_for(position, access) {
                return Ok(addr);
            }
        }
        let available = self.geometry.frames_end().saturating_sub(offset);
        let at = self.geometry.slot_start(slot) + offset as u64;
        let read_size = self.record_cache.read_size().min(available);
        let (id, tail) = self.reserve_cache_space(read_size)?;
        let bytes = &mut self.pool.bytes_mut(id)[tail..];
        let mut read_len = read_full(file, &mut bytes[..read_size], at)?;
        let size = match RecordHeader::at(&bytes[..read_len]) {
            Some(header) if header.fits(available) => header.size(),
            _ => return Err(damaged(at)),
        };
        let before = self.record_cache.largest_recent;
        self.record_cache.largest_recent = size.max(before - before / 256).min(MAX_READ);
        let (id, tail) =
            if size <= read_size { (id, tail) } else { self.reserve_cache_space(size)? };
        let bytes = &mut self.pool.bytes_mut(id)[tail..];
        if size > read_size {
            read_len = read_full(file, &mut bytes[..size], at)?;
        }
        let salt = self.slots[slot as usize].salt;
        let is_whole = read_len >= size && RecordHeader::verify(&bytes[..size], salt, at);
        // A malicious checkpoint may lead anywhere.
        let record = if is_whole { record::validate(&bytes[..size]).ok() } else { None };
        if !record.is_some_and(|(header, ..)| header.has_value()) {
            return Err(damaged(at));
        }
        let offset = tail as u32;
        let entries = self.record_cache.entries - ENTRY;
        let (next, entry) = self.pool.bytes_mut(id)[entries - ENTRY..].split_at_mut(ENTRY);
        next.fill(0);
        entry[..4].copy_from_slice(&position.to_le_bytes());
        entry[4..ENTRY].copy_from_slice(&(offset >> 3).to_le_bytes());
        (self.record_cache.tail, self.record_cache.entries) = (tail + size, entries);
        self.pool.touch_for(id, access);
        self.record_cache.index.insert(hash_position(position), id << shift | offset >> 3);
        Ok(BufferAddr { buffer: id, offset })
    }

    /// A buffer with space for a record of `size` bytes, and the offset for it.
    #[inline(never)]
    fn reserve_cache_space(&mut self, size: usize) -> Result<(BufferId, usize), Error> {
        if let Some(id) = self.record_cache.current
            && self.record_cache.tail + size + 2 * ENTRY <= self.record_cache.entries
        {
            self.pool.touch(id);
            return Ok((id, self.record_cache.tail));
        }
        let id = self.acquire_buffer(BufferContent::RecordCache)?;
        let end = self.geometry.segment();
        self.pool.bytes_mut(id)[end - ENTRY..].fill(0);
        // Offset 0 of buffer 0 would be the reserved position 0.
        (self.record_cache.tail, self.record_cache.entries) = (ENTRY, end);
        self.record_cache.current = Some(id);
        Ok((id, ENTRY))
    }
}
