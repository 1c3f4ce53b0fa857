//! Large values in memory: those of extents, and assembled chunked values. They are read as a
//! whole, verified, and cached as long as there is memory; the least recently used are evicted
//! first.

use alloc::vec::Vec;

use crate::aligned_buf::AlignedBytes;
use crate::error::{Error, damaged};
use crate::file::{File, read_full};
use crate::format::checksum::{checksum, seed_at};
use crate::format::record::{self, KIND_PAST_SET, KIND_SET, RecordHeader};
use crate::format::system_records::{CHUNK_KEY, ChunksRef, ExtentRef};
use crate::format::{KEYSPACE_ENGINE, align_up, segment};
use crate::index::Position;

use super::buffer_pool::BufferAddr;
use super::read::Pin;
use super::{Log, SlotState};

/// A large value, if it is in memory.
#[derive(Debug, Default)]
pub(super) struct CachedValue {
    pub value: Option<AlignedBytes>,
    /// When it was accessed last, the generation of views that may show it, and how many pins need
    /// it.
    pub touched: u32,
    pub shown: u32,
    pub pins: u32,
}

/// A value that was assembled from its chunks.
#[derive(Debug)]
pub(super) struct Assembled {
    chunks: ChunksRef,
    pub cached: CachedValue,
}

/// Bytes before an assembled value. The header and the key of its first chunk are placed here when
/// that is read.
const HEADER_SPACE: usize = record::SIZE + CHUNK_KEY;

impl Log {
    /// Reads the value of an extent into memory if it is the described one and intact.
    pub(crate) fn load_extent(
        &mut self,
        file: &mut impl File,
        extent: &ExtentRef,
    ) -> Result<bool, Error> {
        let geometry = self.geometry;
        let now = self.pool.now();
        let Some(slot) = self.slots.get_mut(extent.slot as usize) else { return Ok(false) };
        let capacity = u64::from(slot.span) << geometry.segment_log2;
        let described = slot.state == SlotState::Extent
            && slot.sequence == extent.sequence
            && slot.length == extent.length
            && extent.length + 2 * segment::SIZE as u64 <= capacity;
        if !described {
            return Ok(false);
        }
        slot.cached.touched = now;
        if slot.cached.value.is_some() {
            return Ok(true);
        }
        let salt = slot.salt;
        let start = geometry.slot_start(extent.slot) + segment::SIZE as u64;
        let length = extent.length as usize;
        let mut bytes = self.allocate_value(length)?;
        let read = read_full(file, &mut bytes[..length], start);
        let intact = read.is_ok_and(|read_len| read_len == length)
            && checksum(&bytes[..length], seed_at(salt, start)) == extent.check;
        let freed = match intact {
            true => self.slots[extent.slot as usize].cached.value.replace(bytes),
            false => Some(bytes),
        };
        self.release_value(freed);
        read?;
        Ok(intact)
    }

    /// Whether the value of an extent is intact. It stays in memory only if the budget allows that.
    ///
    /// # Errors
    /// An error of the file.
    pub fn verify_extent(
        &mut self,
        file: &mut impl File,
        extent: &ExtentRef,
    ) -> Result<bool, Error> {
        let whole = self.load_extent(file, extent);
        self.trim_values();
        whole
    }

    /// Evicts values above the budget.
    pub(crate) fn trim_values(&mut self) {
        self.trim_to(self.value_budget());
    }

    #[cold]
    pub(super) fn extent_value(
        &mut self,
        file: &mut impl File,
        addr: BufferAddr,
    ) -> Result<&[u8], Error> {
        // Only a malicious checkpoint leads to a record of another kind.
        let Some(extent) = ExtentRef::decode(self.record_in(addr).value) else {
            return Err(damaged(0));
        };
        // An extent of the open batch is resident and not sealed yet.
        let resident = self
            .slots
            .get(extent.slot as usize)
            .is_some_and(|slot| slot.cached.value.is_some() && slot.sequence == extent.sequence);
        if !resident && !self.load_extent(file, &extent)? {
            return Err(damaged(self.geometry.slot_start(extent.slot) + segment::SIZE as u64));
        }
        let cached = &mut self.slots[extent.slot as usize].cached;
        cached.touched = self.pool.now();
        if !self.pool.must_copy() {
            cached.shown = self.views.generation;
        }
        let value = cached.value.as_ref().expect("it was loaded");
        // Two malicious records may refer to the same extent.
        value.get(..extent.length as usize).ok_or(damaged(0))
    }

    /// The value of an extent, for a view; none if the extent is not there any more, or damaged.
    pub(crate) fn shown_extent(
        &mut self,
        file: &mut impl File,
        extent: &ExtentRef,
    ) -> Result<Option<&[u8]>, Error> {
        if !self.load_extent(file, extent)? {
            return Ok(None);
        }
        let cached = &mut self.slots[extent.slot as usize].cached;
        cached.shown = self.views.generation;
        Ok(cached.value.as_ref().and_then(|value| value.get(..extent.length as usize)))
    }

    /// Allocates memory for a value; its bytes are undefined. Memory that was released last is
    /// reused, because zeroing costs as much as a checksum.
    ///
    /// # Errors
    /// As for [`reserve_value_memory`](Log::reserve_value_memory).
    pub(super) fn allocate_value(&mut self, length: usize) -> Result<AlignedBytes, Error> {
        self.reserve_value_memory(length)?;
        let fits = |spare: &mut AlignedBytes| (length..=2 * length).contains(&spare.len());
        let spare = self.large.spare.take_if(fits);
        let value = spare.unwrap_or_else(|| AlignedBytes::uninitialized(length));
        self.large.bytes += value.len();
        Ok(value)
    }

    /// Releases the memory of a value.
    #[inline(never)]
    pub(super) fn release_value(&mut self, value: Option<AlignedBytes>) {
        let Some(value) = value else { return };
        self.large.bytes -= value.len();
        self.large.spare = Some(value);
    }

    /// Makes memory available for a large value. The values that one turn reads, writes or rolls
    /// back may use as much as the budget. If views show all of it and must stay valid, values are
    /// returned as copies from then on; otherwise all views are detached.
    ///
    /// # Errors
    /// [`Error::ViewsHeld`] if memory would have to grow and a view must stay valid.
    pub(super) fn reserve_value_memory(&mut self, length: usize) -> Result<(), Error> {
        let kept: usize = self.large.kept_for_views.iter().map(|bytes| bytes.len()).sum();
        let (budget, needed) = (self.pool.budget(), kept + length);
        if self.pool.exposes_views && self.large.bytes + needed > budget {
            self.trim_unviewed(budget.saturating_sub(needed));
            let is_shown = kept > 0 || self.least_recent(true).is_some();
            if self.large.bytes + needed > budget && is_shown {
                if self.pool.must_keep_views() {
                    self.pool.start_copying();
                } else {
                    self.pool.detach_views()?;
                    self.views.generation += 1;
                    // No view shows any more what was rolled back in this turn.
                    self.large.kept_for_views = Vec::new();
                    self.trim_to(budget / 4);
                }
            }
        }
        let spare = self.large.spare.as_ref().map_or(0, |spare| spare.len());
        let is_spare = (length..=2 * length).contains(&spare);
        if is_spare || self.pool.can_allocate(length) { Ok(()) } else { Err(Error::ViewsHeld) }
    }

    /// Evicts large values that no view shows while all of them use more than `allowed` bytes.
    fn trim_unviewed(&mut self, allowed: usize) {
        while self.large.bytes > allowed
            && let Some(cached) = self.least_recent(false)
        {
            let value = cached.value.take();
            self.release_value(value);
        }
    }

    /// Bytes that large values may use between turns: what buffers leave of the budget, but at
    /// least a quarter of it.
    pub(super) fn value_budget(&self) -> usize {
        let budget = self.pool.budget();
        budget.saturating_sub(self.pool.memory()).max(budget / 4)
    }

    /// Evicts the least recently used large values while they use more than `allowed` bytes.
    /// Returns whether a view may show any of the evicted ones.
    pub(super) fn trim_to(&mut self, allowed: usize) -> bool {
        if self.large.bytes <= allowed {
            return false;
        }
        self.trim_unviewed(allowed);
        let mut shown = false;
        while self.large.bytes > allowed
            && let Some(cached) = self.least_recent(true)
        {
            shown = true;
            let value = cached.value.take();
            self.release_value(value);
        }
        shown
    }

    /// The least recently used value that can be read again and is not pinned, either among those
    /// that views show or among those that none shows.
    #[inline(never)]
    fn least_recent(&mut self, are_shown: bool) -> Option<&mut CachedValue> {
        let views = self.views.generation;
        let slots = self.slots.iter_mut().filter(|slot| slot.written).map(|slot| &mut slot.cached);
        let assembled = self.large.assembled.iter_mut().map(|value| &mut value.cached);
        let may_go = slots.chain(assembled).filter(|cached| {
            cached.pins == 0 && cached.value.is_some() && are_shown == (cached.shown == views)
        });
        may_go.min_by_key(|cached| cached.touched)
    }

    /// Whether a chunked value is in memory. This counts as an access.
    pub(crate) fn has_assembled(&mut self, chunks: &ChunksRef) -> bool {
        let now = self.pool.now();
        let found = find(&mut self.large.assembled, chunks);
        found.map(|value| value.cached.touched = now).is_some()
    }

    /// Allocates memory for a chunked value; its bytes are undefined.
    ///
    /// # Errors
    /// As for [`reserve_value_memory`](Log::reserve_value_memory).
    pub(crate) fn begin_assembly(&mut self, chunks: &ChunksRef) -> Result<(), Error> {
        let value = Some(self.allocate_value(HEADER_SPACE + chunks.length as usize)?);
        // It is pinned until it is complete.
        let cached = CachedValue { value, touched: self.pool.now(), shown: 0, pins: 1 };
        self.large.assembled.retain(|value| value.cached.value.is_some());
        self.large.assembled.push(Assembled { chunks: *chunks, cached });
        Ok(())
    }

    /// Ends an assembly. With a length, the value is complete and may be evicted. Without one it is
    /// abandoned, and its memory is released at once unless a view shows it.
    #[inline(never)]
    pub(crate) fn end_assembly(&mut self, chunks: &ChunksRef, length: Option<u64>) {
        let views = self.views.generation;
        let Some(Assembled { chunks, cached }) = find(&mut self.large.assembled, chunks) else {
            return;
        };
        cached.pins -= 1;
        if let Some(length) = length {
            chunks.length = length;
            return;
        }
        // No value has this length, so it is not found any more.
        (chunks.length, cached.touched) = (u64::MAX, 0);
        let value = if cached.shown == views { None } else { cached.value.take() };
        self.release_value(value);
    }

    /// The memory of a chunked value.
    ///
    /// # Panics
    /// If it is not in memory.
    #[inline(never)]
    pub(crate) fn assembled_mut(&mut self, chunks: &ChunksRef) -> &mut [u8] {
        let value =
            find(&mut self.large.assembled, chunks).and_then(|value| value.cached.value.as_mut());
        &mut value.expect("it is in memory")[HEADER_SPACE..][..chunks.length as usize]
    }

    /// The same for a view, or for a copy if values must be copied and it is not `pinned`.
    ///
    /// # Panics
    /// As for [`assembled_mut`](Log::assembled_mut).
    pub(crate) fn assembled_for_view(&mut self, chunks: &ChunksRef, pinned: bool) -> &[u8] {
        if (pinned || !self.pool.must_copy())
            && let Some(value) = find(&mut self.large.assembled, chunks)
        {
            value.cached.shown = self.views.generation;
        }
        self.assembled_mut(chunks)
    }

    /// Pins a value that is in memory until [`unpin`](Log::unpin).
    pub(crate) fn pin_assembled(&mut self, chunks: ChunksRef) -> Pin {
        if let Some(value) = find(&mut self.large.assembled, &chunks) {
            value.cached.pins += 1;
        }
        Pin::Chunks(chunks)
    }

    pub(crate) fn unpin_assembled(&mut self, chunks: &ChunksRef) {
        if let Some(value) = find(&mut self.large.assembled, chunks) {
            value.cached.pins -= 1;
        }
    }

    /// Copies between the chunk at an address and its value in memory, where the chunk starts after
    /// the first `from` bytes: into the value, or from it if it `writes`, and then as much as there
    /// is. Returns the length of the chunk, or none if it is too long.
    #[inline(never)]
    pub(crate) fn copy_chunk(
        &mut self,
        addr: BufferAddr,
        chunks: &ChunksRef,
        from: usize,
        writes: bool,
    ) -> Option<usize> {
        let value = find(&mut self.large.assembled, chunks)?.cached.value.as_mut()?;
        let rest = value[HEADER_SPACE..][..chunks.length as usize].get_mut(from..)?;
        let record = &mut self.pool.bytes_mut(addr.buffer)[addr.offset as usize..];
        let header = RecordHeader::at_mut(record)?;
        if !matches!(header.kind, KIND_SET | KIND_PAST_SET) {
            return None;
        }
        if writes {
            header.value_len = header.value_len.min(rest.len() as u32);
        }
        let (length, at, size) = (header.value_len as usize, header.value_offset(), header.size());
        let (chunk, behind) = record.get_mut(at..size)?.split_at_mut_checked(length)?;
        let part = rest.get_mut(..length)?;
        if writes {
            chunk.copy_from_slice(part);
            behind.fill(0);
        } else {
            part.copy_from_slice(chunk);
        }
        Some(length)
    }
}

impl Log {
    /// Reads the chunk of `length` bytes at a position directly to its offset `from` in the value,
    /// by one call and without a copy. The header and the key of the chunk overwrite the bytes
    /// before it, which are restored afterwards. Returns whether the expected chunk was there and
    /// intact.
    #[inline(never)]
    pub(crate) fn read_chunk(
        &mut self,
        file: &mut impl File,
        position: Position,
        key: &[u8],
        chunks: &ChunksRef,
        from: usize,
        length: usize,
    ) -> bool {
        let (slot, offset) = self.geometry.locate(position);
        let at = self.geometry.slot_start(slot) + offset as u64;
        let salt = self.salt(slot);
        let value =
            find(&mut self.large.assembled, chunks).and_then(|value| value.cached.value.as_mut());
        let to = from + record::size_of_record(CHUNK_KEY, align_up(length));
        let Some(bytes) = value.and_then(|value| value.get_mut(from..to)) else { return false };
        let mut before = [0; HEADER_SPACE];
        before.copy_from_slice(&bytes[..HEADER_SPACE]);
        let read_len = read_full(file, bytes, at);
        let is_match = read_len.is_ok_and(|read_len| read_len == bytes.len())
            && RecordHeader::verify(bytes, salt, at)
            && record::parts(bytes).is_some_and(|(header, its_key, its_value)| {
                let shape = (header.kind, header.keyspace(), header.size(), its_value.len());
                shape == (KIND_SET, KEYSPACE_ENGINE, bytes.len(), length) && its_key == key
            });
        bytes[..HEADER_SPACE].copy_from_slice(&before);
        is_match
    }
}

#[inline(never)]
fn find<'a>(assembled: &'a mut [Assembled], chunks: &ChunksRef) -> Option<&'a mut Assembled> {
    let wanted = (chunks.id, chunks.length);
    assembled.iter_mut().find(|value| {
        value.cached.value.is_some() && (value.chunks.id, value.chunks.length) == wanted
    })
}
