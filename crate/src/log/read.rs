//! Reading records wherever they are: in a resident segment, in the record cache, or in the file.

use alloc::vec::Vec;

use crate::error::{Error, damaged};
use crate::file::{File, read_full};
use crate::format::frame::{self, FrameHeader};
use crate::format::record::{self, RecordHeader};
use crate::format::segment;
use crate::format::system_records::ChunksRef;
use crate::index::Position;

use super::buffer_pool::{AccessKind, BufferAddr, BufferContent, BufferId};
use super::record_cache::RecordCache;
use super::{Log, NO_BUFFER, RecordRef, Slot};

/// A value that stays in memory.
#[derive(Debug)]
pub enum Pin {
    /// In its record.
    Record(BufferAddr),
    /// In the extent that starts at this slot.
    Extent(u32),
    /// Assembled from chunks.
    Chunks(ChunksRef),
}

/// Decides which buffers may be evicted: segments that are not written yet must stay.
struct Evictor<'a> {
    slots: &'a mut [Slot],
    record_cache: &'a mut RecordCache,
    all_resident: &'a mut bool,
    batch_slots: [Option<u32>; 2],
    shift: u8,
}

impl Evictor<'_> {
    /// Drops the content of a buffer if it may be evicted.
    fn evict(&mut self, id: BufferId, content: BufferContent, bytes: &[u8]) -> bool {
        match content {
            BufferContent::Segment(slot) => {
                let may =
                    self.slots[slot as usize].written && !self.batch_slots.contains(&Some(slot));
                if may {
                    self.slots[slot as usize].buffer = NO_BUFFER;
                    *self.all_resident = false;
                }
                may
            }
            BufferContent::RecordCache => {
                self.record_cache.evict_buffer(id, bytes, self.shift);
                true
            }
            BufferContent::Nothing | BufferContent::ViewsOnly => false,
        }
    }
}

impl Log {
    /// Acquires a buffer for new content. Addresses that were returned before may become invalid.
    pub(super) fn acquire_buffer(&mut self, content: BufferContent) -> Result<BufferId, Error> {
        let shift = self.geometry.segment_log2 - 3;
        let batch_slots = [self.open_frame.slot, self.batch.start.slot];
        let Log { pool, slots, record_cache, all_resident, .. } = self;
        let mut evictor = Evictor { slots, record_cache, all_resident, batch_slots, shift };
        pool.acquire(content, &mut |id, content, bytes| evictor.evict(id, content, bytes))
    }

    /// Frees what is above the budget at the end of a turn.
    pub(super) fn trim_pool(&mut self) -> bool {
        let shift = self.geometry.segment_log2 - 3;
        let batch_slots = [self.open_frame.slot, self.batch.start.slot];
        let Log { pool, slots, record_cache, all_resident, .. } = self;
        let mut evictor = Evictor { slots, record_cache, all_resident, batch_slots, shift };
        pool.end_turn(&mut |id, content, bytes| evictor.evict(id, content, bytes))
    }

    /// The address of the record at `position`, after reading it from the file if necessary. The
    /// access is the engine's own.
    ///
    /// # Errors
    /// An error of the file, [`Error::Corruption`] if the record is not intact, or
    /// [`Error::ViewsHeld`] if there is no memory for it inside a callback.
    #[inline(always)]
    pub fn fetch(&mut self, file: &mut impl File, position: Position) -> Result<BufferAddr, Error> {
        self.load_record(file, position, AccessKind::Own)
    }

    /// As [`fetch`](Log::fetch), for a kind of access.
    #[inline(always)]
    pub fn load_record(
        &mut self,
        file: &mut impl File,
        position: Position,
        access: AccessKind,
    ) -> Result<BufferAddr, Error> {
        match self.resident_for(position, access) {
            Some(addr) => Ok(addr),
            None => self.load_cold(file, position, access),
        }
    }

    /// The address of the record at `position` if its segment is in memory. This does not count as
    /// an access.
    #[inline(always)]
    pub fn resident_addr(&self, position: Position) -> Option<BufferAddr> {
        let (slot, offset) = self.geometry.locate(position);
        let buffer = self.slots[slot as usize].buffer;
        (buffer != NO_BUFFER).then_some(BufferAddr { buffer, offset: offset as u32 })
    }

    /// The address of the record at `position` if its segment is in memory.
    #[inline(always)]
    #[must_use]
    pub fn resident(&mut self, position: Position) -> Option<BufferAddr> {
        self.resident_for(position, AccessKind::Own)
    }

    /// As [`resident`](Log::resident), for a kind of access.
    #[inline(always)]
    #[must_use]
    pub fn resident_for(&mut self, position: Position, access: AccessKind) -> Option<BufferAddr> {
        let addr = self.resident_addr(position)?;
        self.touch_for(addr, access);
        Some(addr)
    }

    /// Records an access to the record at an address.
    #[inline(always)]
    pub fn touch_for(&mut self, addr: BufferAddr, access: AccessKind) {
        self.pool.touch_for(addr.buffer, access);
    }

    /// The record at an address that the index led to; none if the index was wrong.
    #[inline]
    #[must_use]
    pub fn get(&self, addr: BufferAddr) -> Option<RecordRef<'_>> {
        let bytes = self.pool.bytes(addr.buffer).get(addr.offset as usize..)?;
        let (header, key, value) = record::parts(bytes)?;
        Some(RecordRef { header, key, value })
    }

    /// The record at an address.
    ///
    /// # Panics
    /// If there is none. Callers have checked the address before.
    #[inline]
    #[must_use]
    pub fn record_in(&self, addr: BufferAddr) -> RecordRef<'_> {
        let bytes = &self.pool.bytes(addr.buffer)[addr.offset as usize..];
        let (header, key, value) = record::parts(bytes).expect("a loaded record is valid");
        RecordRef { header, key, value }
    }

    /// When the record at an address expires; its other fields are not looked at.
    #[inline(always)]
    #[must_use]
    pub fn expiry_in(&self, addr: BufferAddr) -> u32 {
        let bytes = &self.pool.bytes(addr.buffer)[addr.offset as usize..];
        RecordHeader::at(bytes).map_or(0, |header| header.expiry)
    }

    /// Touches the cache lines of a record that a reader needs, without waiting for them. Four
    /// lines: wherever in a line the record begins, a short value ends in the fourth at the latest.
    #[inline(always)]
    #[must_use]
    pub fn prefetch(&self, addr: BufferAddr) -> u8 {
        let bytes = self.pool.bytes(addr.buffer).get(addr.offset as usize..);
        let lines = bytes.and_then(|bytes| bytes.first_chunk::<192>());
        lines.map_or(0, |lines| lines[0] ^ lines[64] ^ lines[128] ^ lines[184])
    }

    /// The record at an address, for a view; `counts` says whether this is an access for eviction.
    #[inline]
    pub fn get_resident(&mut self, addr: BufferAddr, counts: bool) -> Option<RecordRef<'_>> {
        // While values are copied, the memory may be reused before the caller reads it.
        if self.pool.must_copy() {
            return None;
        }
        let bytes = self.pool.borrow(addr.buffer, counts).get(addr.offset as usize..)?;
        let (header, key, value) = record::parts(bytes)?;
        Some(RecordRef { header, key, value })
    }

    /// Reads a whole segment into memory, so that [`record_at`](Log::record_at) finds its records.
    ///
    /// # Errors
    /// As for [`fetch`](Log::fetch).
    pub fn load(&mut self, file: &mut impl File, slot: u32) -> Result<(), Error> {
        let resident = self.slots[slot as usize].buffer;
        if resident != NO_BUFFER {
            self.pool.touch_as_newest(resident);
            return Ok(());
        }
        let id = self.acquire_buffer(BufferContent::Segment(slot))?;
        let start = self.geometry.slot_start(slot);
        let bytes = self.pool.bytes_mut(id);
        let read_len = match read_full(file, bytes, start) {
            Ok(read_len) => read_len,
            Err(error) => {
                self.pool.release(id);
                return Err(error.into());
            }
        };
        bytes[read_len..].fill(0);
        self.slots[slot as usize].buffer = id;
        self.update_all_resident();
        Ok(())
    }

    /// Reads a segment into memory if all of its frames are valid by the rules of replay. Otherwise
    /// its records stay cold and are verified one by one.
    ///
    /// # Errors
    /// As for [`fetch`](Log::fetch).
    pub fn load_valid_segment(&mut self, file: &mut impl File, slot: u32) -> Result<(), Error> {
        let Slot { buffer, salt, end, pinned_by_damage: kept, .. } = self.slots[slot as usize];
        if buffer != NO_BUFFER || kept {
            return Ok(());
        }
        self.load(file, slot)?;
        let start = self.geometry.slot_start(slot);
        let bytes =
            &self.pool.bytes(self.slots[slot as usize].buffer)[..self.geometry.frames_end()];
        let mut at = segment::SIZE;
        while at < end as usize {
            let header = FrameHeader::open(&bytes[at..], salt, start + at as u64);
            let Some(length) =
                header.filter(|it| is_valid_frame(it, &bytes[at..])).map(|it| it.length)
            else {
                self.slots[slot as usize].pinned_by_damage = true;
                self.release_memory(slot);
                self.all_resident = false;
                return Ok(());
            };
            at += length as usize;
        }
        Ok(())
    }

    /// Calls `see` with the positions of all records in a resident segment, as far as its frames
    /// can be followed.
    pub(crate) fn each_record(&self, slot: u32, mut see: impl FnMut(Position)) {
        let Slot { buffer, end, .. } = self.slots[slot as usize];
        if buffer == NO_BUFFER {
            return;
        }
        let (mut at, mut frame_end) = (segment::SIZE, segment::SIZE);
        let bytes = self.pool.bytes(buffer).get(..end as usize).unwrap_or_default();
        while let Some(rest) = bytes.get(at..) {
            if at == frame_end {
                let Some(length) = FrameHeader::length_at(rest) else { return };
                (at, frame_end) = (at + frame::SIZE, at + length);
                continue;
            }
            let Some((header, ..)) = record::parts(rest) else { return };
            if !header.fits(rest.len()) {
                return;
            }
            see(self.geometry.position(slot, at));
            at += header.size();
        }
    }

    /// As [`fetch`](Log::fetch), for callers that go through the file in order and may meet records
    /// that are damaged or missing.
    ///
    /// # Errors
    /// As for [`fetch`](Log::fetch).
    #[inline(never)]
    pub(crate) fn scan_record(
        &mut self,
        file: &mut impl File,
        position: Position,
    ) -> Result<(BufferAddr, RecordRef<'_>), Error> {
        let (slot, _) = self.geometry.locate(position);
        self.load_valid_segment(file, slot)?;
        let addr = self.fetch(file, position)?;
        match self.get(addr) {
            Some(record) => Ok((addr, record)),
            None => Err(damaged(0)),
        }
    }

    /// The memory from the header of a record to the end of its buffer.
    #[inline]
    pub(crate) fn bytes_at(&mut self, addr: BufferAddr) -> &mut [u8] {
        &mut self.pool.bytes_mut(addr.buffer)[addr.offset as usize..]
    }

    /// A copy of the record at an address that the index led to; none if the index was wrong.
    #[inline(never)]
    pub(crate) fn copy_of(&self, addr: BufferAddr) -> Option<Vec<u8>> {
        let size = self.get(addr)?.header.size();
        let bytes = self.pool.bytes(addr.buffer).get(addr.offset as usize..)?.get(..size)?;
        Some(bytes.to_vec())
    }

    /// The value, for changes, of the record at an address. It has no extent.
    #[inline]
    pub(crate) fn value_mut(&mut self, addr: BufferAddr) -> &mut [u8] {
        let bytes = self.bytes_at(addr);
        let header = RecordHeader::at(bytes).expect("a loaded record has a header");
        let (from, length) = (header.value_offset(), header.value_len as usize);
        &mut bytes[from..from + length]
    }

    /// Whether a new value of `length` bytes may overwrite that of a record of the open batch: no
    /// view may show it, and the length must stay the same.
    #[inline]
    pub(crate) fn can_overwrite(&self, at: Position, addr: BufferAddr, length: usize) -> bool {
        if !self.is_mutable(at) || self.pool.is_shown(addr.buffer) {
            return false;
        }
        let header = self.record_in(addr).header;
        header.kind == record::KIND_SET && header.value_len as usize == length
    }

    /// The header, for changes, of the record at an address.
    #[inline]
    pub(crate) fn header_mut(&mut self, addr: BufferAddr) -> &mut RecordHeader {
        let bytes = self.bytes_at(addr);
        RecordHeader::at_mut(bytes).expect("a loaded record has a header")
    }

    /// The value of the record at an address, read from its extent if it has one. For a chunked
    /// value this is the descriptor of its chunks.
    ///
    /// # Errors
    /// As for [`fetch`](Log::fetch).
    #[inline(always)]
    pub fn value(&mut self, file: &mut impl File, addr: BufferAddr) -> Result<&[u8], Error> {
        if self.record_in(addr).header.kind == record::KIND_EXTENT {
            return self.extent_value(file, addr);
        }
        Ok(self.record_in(addr).value)
    }

    /// Keeps the value of the record at an address in memory until [`unpin`](Log::unpin). It is not
    /// a chunked value.
    ///
    /// # Errors
    /// As for [`fetch`](Log::fetch).
    pub fn pin(&mut self, file: &mut impl File, addr: BufferAddr) -> Result<Pin, Error> {
        self.value(file, addr)?;
        let pin = match self.record_in(addr).extent() {
            Some(extent) => Pin::Extent(extent.slot),
            None => Pin::Record(addr),
        };
        match pin {
            Pin::Extent(slot) => self.slots[slot as usize].cached.pins += 1,
            _ => self.pool.pin(addr.buffer),
        }
        Ok(pin)
    }

    /// The pinned value. A view may show it.
    ///
    /// # Panics
    /// If the pin has ended.
    #[must_use]
    pub fn pinned(&mut self, pin: &Pin) -> &[u8] {
        match *pin {
            Pin::Record(addr) => {
                self.pool.show(addr.buffer);
                self.record_in(addr).value
            }
            Pin::Extent(slot) => {
                let slot = &mut self.slots[slot as usize];
                slot.cached.shown = self.views.generation;
                &slot.cached.value.as_ref().expect("a pinned value is resident")
                    [..slot.length as usize]
            }
            Pin::Chunks(ref chunks) => self.assembled_for_view(chunks, true),
        }
    }

    /// Ends a pin.
    pub fn unpin(&mut self, pin: Pin) {
        match pin {
            Pin::Record(addr) => self.pool.unpin(addr.buffer),
            Pin::Extent(slot) => self.slots[slot as usize].cached.pins -= 1,
            Pin::Chunks(chunks) => self.unpin_assembled(&chunks),
        }
    }
}

/// Whether the frame at the start of `bytes` has as many records as its header says, all of them
/// valid.
fn is_valid_frame(frame: &FrameHeader, bytes: &[u8]) -> bool {
    let Some(bytes) = bytes.get(..frame.length as usize) else { return false };
    let (mut at, mut records) = (frame::SIZE, 0);
    while let Ok((header, ..)) = record::validate(&bytes[at..]) {
        at += header.size();
        records += 1;
    }
    at == bytes.len() && records == frame.records
}
