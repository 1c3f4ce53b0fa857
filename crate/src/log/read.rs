//! Reading records wherever they are: in a resident segment, among the copies of cold records, or
//! in the file.

use alloc::vec::Vec;

use crate::error::{Damage, Error};
use crate::file::{File, read_full};
use crate::format::frame::{self, FrameHeader};
use crate::format::record::{self, RecordHeader};
use crate::format::segment;
use crate::format::system_records::PiecesRef;
use crate::index::hash_index::Position;

use super::buffer_pool::{AccessKind, BufferContent, BufferId};
use super::record_cache::RecordCache;
use super::{Log, NO_BUFFER, RecordRef, Slot};

/// Where a record lies in memory, until the pool takes a buffer again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    pub(super) buffer: BufferId,
    pub(super) offset: u32,
}

/// A value that stays where it is.
#[derive(Debug)]
pub enum Pin {
    /// In its record.
    Record(Place),
    /// In the extent that begins at this slot.
    Extent(u32),
    /// Put together from pieces.
    Pieces(PiecesRef),
}

/// Which segments must stay, whatever the pool needs.
struct Busy<'a> {
    slots: &'a mut [Slot],
    record_cache: &'a mut RecordCache,
    all_at_hand: &'a mut bool,
    group: [Option<u32>; 2],
    shift: u8,
}

impl Busy<'_> {
    /// Lets go of a buffer's content, if it may go.
    fn let_go(&mut self, id: BufferId, holds: BufferContent, bytes: &[u8]) -> bool {
        match holds {
            BufferContent::Segment(slot) => {
                let may = self.slots[slot as usize].written && !self.group.contains(&Some(slot));
                if may {
                    self.slots[slot as usize].buffer = NO_BUFFER;
                    *self.all_at_hand = false;
                }
                may
            }
            BufferContent::RecordCache => {
                self.record_cache.forget(id, bytes, self.shift);
                true
            }
            BufferContent::Nothing | BufferContent::Zombie => false,
        }
    }
}

impl Log {
    /// A buffer for something new. Places that were given before may no longer hold.
    pub(super) fn take_buffer(&mut self, holds: BufferContent) -> Result<BufferId, Error> {
        let shift = self.geometry.segment_log2 - 3;
        let group = [self.cursor.slot, self.group.slot];
        let Log { pool, slots, record_cache, all_at_hand, .. } = self;
        let mut busy = Busy { slots, record_cache, all_at_hand, group, shift };
        pool.take(holds, &mut |id, holds, bytes| busy.let_go(id, holds, bytes))
    }

    /// Frees what is above the budget, at the end of a turn.
    pub(super) fn trim_pool(&mut self) -> bool {
        let shift = self.geometry.segment_log2 - 3;
        let group = [self.cursor.slot, self.group.slot];
        let Log { pool, slots, record_cache, all_at_hand, .. } = self;
        let mut busy = Busy { slots, record_cache, all_at_hand, group, shift };
        pool.end_turn(&mut |id, holds, bytes| busy.let_go(id, holds, bytes))
    }

    /// Where the record at `position` lies in memory, after reading it from the file if need be.
    ///
    /// # Errors
    /// What the file said, [`Error::Corruption`] when the record there is not intact, or
    /// [`Error::ViewsHeld`] when there is no memory for it inside a callback.
    #[inline(always)]
    pub fn place(&mut self, file: &mut impl File, position: Position) -> Result<Place, Error> {
        self.load_record(file, position, AccessKind::Own)
    }

    /// As [`place`](Log::place), for a purpose.
    #[inline(always)]
    pub fn load_record(
        &mut self,
        file: &mut impl File,
        position: Position,
        purpose: AccessKind,
    ) -> Result<Place, Error> {
        match self.resident_for(position, purpose) {
            Some(place) => Ok(place),
            None => self.cold(file, position, purpose),
        }
    }

    /// Where the record at `position` lies, if its segment is in memory. It does not count as looked at.
    #[inline(always)]
    pub fn place_of(&self, position: Position) -> Option<Place> {
        let (slot, offset) = self.geometry.locate(position);
        let buffer = self.slots[slot as usize].buffer;
        (buffer != NO_BUFFER).then_some(Place { buffer, offset: offset as u32 })
    }

    /// Where the record at `position` lies, if its segment is in memory.
    #[inline(always)]
    #[must_use]
    pub fn resident(&mut self, position: Position) -> Option<Place> {
        self.resident_for(position, AccessKind::Own)
    }

    /// As [`resident`](Log::resident), for a purpose.
    #[inline(always)]
    #[must_use]
    pub fn resident_for(&mut self, position: Position, purpose: AccessKind) -> Option<Place> {
        let place = self.place_of(position)?;
        self.touch_for(place, purpose);
        Some(place)
    }

    /// Notes that the record at a place was looked at, and for what.
    #[inline(always)]
    pub fn touch_for(&mut self, place: Place, purpose: AccessKind) {
        self.pool.touch_for(place.buffer, purpose);
    }

    /// The record at a place that the index led to: none if it lied.
    #[inline]
    #[must_use]
    pub fn get(&self, place: Place) -> Option<RecordRef<'_>> {
        let bytes = self.pool.bytes(place.buffer).get(place.offset as usize..)?;
        let (header, key, value) = record::parts(bytes)?;
        Some(RecordRef { header, key, value })
    }

    /// The record at a place.
    ///
    /// # Panics
    /// If there is none: the place was looked at before.
    #[inline]
    #[must_use]
    pub fn record_in(&self, place: Place) -> RecordRef<'_> {
        let bytes = &self.pool.bytes(place.buffer)[place.offset as usize..];
        let (header, key, value) = record::parts(bytes).expect("a placed record is whole");
        RecordRef { header, key, value }
    }

    /// A look at the lines of a record that a reader looks at, for which nobody waits: wherever in a line it begins,
    /// the value of a short one may end in the fourth.
    #[inline(always)]
    #[must_use]
    pub fn prefetch(&self, place: Place) -> u8 {
        let bytes = self.pool.bytes(place.buffer).get(place.offset as usize..);
        let lines = bytes.and_then(|bytes| bytes.first_chunk::<192>());
        lines.map_or(0, |lines| lines[0] ^ lines[64] ^ lines[128] ^ lines[184])
    }

    /// The record at a place, for a view. Whether that counts as looked at is the caller's to say.
    #[inline]
    pub fn get_resident(&mut self, place: Place, counts: bool) -> Option<RecordRef<'_>> {
        // Where values are given as copies its memory may be used again before it is looked at.
        if self.pool.is_crowded() {
            return None;
        }
        let bytes = self.pool.borrow(place.buffer, counts).get(place.offset as usize..)?;
        let (header, key, value) = record::parts(bytes)?;
        Some(RecordRef { header, key, value })
    }

    /// Brings a whole segment into memory, so that [`record_at`](Log::record_at) finds what is in it.
    ///
    /// # Errors
    /// As for [`place`](Log::place).
    pub fn load(&mut self, file: &mut impl File, slot: u32) -> Result<(), Error> {
        let resident = self.slots[slot as usize].buffer;
        if resident != NO_BUFFER {
            self.pool.turn_to(resident);
            return Ok(());
        }
        let id = self.take_buffer(BufferContent::Segment(slot))?;
        let start = self.geometry.slot_start(slot);
        let bytes = self.pool.bytes_mut(id);
        let there = match read_full(file, bytes, start) {
            Ok(there) => there,
            Err(error) => {
                self.pool.leave(id);
                return Err(error.into());
            }
        };
        bytes[there..].fill(0);
        self.slots[slot as usize].buffer = id;
        self.look_for_cold();
        Ok(())
    }

    /// Brings a segment into memory if all of its frames are whole, as replay would have them; else its
    /// records stay cold, to be verified one by one.
    ///
    /// # Errors
    /// As for [`place`](Log::place).
    pub fn load_whole(&mut self, file: &mut impl File, slot: u32) -> Result<(), Error> {
        let Slot { buffer, salt, end, pinned_by_damage: kept, .. } = self.slots[slot as usize];
        if buffer != NO_BUFFER || kept {
            return Ok(());
        }
        self.load(file, slot)?;
        let start = self.geometry.slot_start(slot);
        let bytes = &self.pool.bytes(self.slots[slot as usize].buffer)[..self.geometry.room_end()];
        let mut at = segment::SIZE;
        while at < end as usize {
            let header = FrameHeader::open(&bytes[at..], salt, start + at as u64);
            let Some(length) = header.filter(|it| is_sound(it, &bytes[at..])).map(|it| it.length)
            else {
                self.slots[slot as usize].pinned_by_damage = true;
                self.leave_memory(slot);
                self.all_at_hand = false;
                return Ok(());
            };
            at += length as usize;
        }
        Ok(())
    }

    /// Shows the positions of all records in a segment that is in memory, as far as its frames lead.
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

    /// As [`place`](Log::place), for those who go through the file in order, of records that may not be
    /// intact or not there.
    ///
    /// # Errors
    /// As for [`place`](Log::place).
    #[inline(never)]
    pub(crate) fn find_intact(
        &mut self,
        file: &mut impl File,
        position: Position,
    ) -> Result<(Place, RecordRef<'_>), Error> {
        let (slot, _) = self.geometry.locate(position);
        self.load_whole(file, slot)?;
        let place = self.place(file, position)?;
        match self.get(place) {
            Some(record) => Ok((place, record)),
            None => Err(damaged(0)),
        }
    }

    /// The memory from a record's header to the end of its segment.
    #[inline]
    pub(crate) fn bytes_at(&mut self, place: Place) -> &mut [u8] {
        &mut self.pool.bytes_mut(place.buffer)[place.offset as usize..]
    }

    /// A copy of the record at a place that the index led to: none if it lied.
    #[inline(never)]
    pub(crate) fn copy_of(&self, place: Place) -> Option<Vec<u8>> {
        let size = self.get(place)?.header.size();
        let bytes = self.pool.bytes(place.buffer).get(place.offset as usize..)?.get(..size)?;
        Some(bytes.to_vec())
    }

    /// The value of the record at a place that has no extent, to be changed.
    #[inline]
    pub(crate) fn value_mut(&mut self, place: Place) -> &mut [u8] {
        let bytes = self.bytes_at(place);
        let header = RecordHeader::at(bytes).expect("a placed record has a header");
        let (from, length) = (header.value_offset(), header.value_len as usize);
        &mut bytes[from..from + length]
    }

    /// Whether a new value of so many bytes may be written over that of a record of the group: no view
    /// may show it, and the record stays as long as it is.
    #[inline]
    pub(crate) fn may_write_over(&self, at: Position, place: Place, length: usize) -> bool {
        if !self.is_mutable(at) || self.pool.is_shown(place.buffer) {
            return false;
        }
        let header = self.record_in(place).header;
        header.kind == record::KIND_SET && header.value_len as usize == length
    }

    /// The header of the record at a place, to be changed.
    #[inline]
    pub(crate) fn header_mut(&mut self, place: Place) -> &mut RecordHeader {
        let bytes = self.bytes_at(place);
        RecordHeader::at_mut(bytes).expect("a placed record has a header")
    }

    /// The value of the record at a place, from its extent where it has one; of one in pieces what says where
    /// these are.
    ///
    /// # Errors
    /// As for [`place`](Log::place).
    #[inline(always)]
    pub fn value(&mut self, file: &mut impl File, place: Place) -> Result<&[u8], Error> {
        if self.record_in(place).header.kind == record::KIND_EXTENT {
            return self.extent_value(file, place);
        }
        Ok(self.record_in(place).value)
    }

    /// Keeps the value of the record at a place, not one in pieces, in memory until [`unpin`](Log::unpin).
    ///
    /// # Errors
    /// As for [`place`](Log::place).
    pub fn pin(&mut self, file: &mut impl File, place: Place) -> Result<Pin, Error> {
        self.value(file, place)?;
        let pin = match self.record_in(place).extent() {
            Some(extent) => Pin::Extent(extent.slot),
            None => Pin::Record(place),
        };
        match pin {
            Pin::Extent(slot) => self.slots[slot as usize].held.pins += 1,
            _ => self.pool.pin(place.buffer),
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
            Pin::Record(place) => {
                self.pool.show(place.buffer);
                self.record_in(place).value
            }
            Pin::Extent(slot) => {
                let slot = &mut self.slots[slot as usize];
                slot.held.shown = self.views;
                &slot.held.value.as_ref().expect("a pinned value is resident")
                    [..slot.length as usize]
            }
            Pin::Pieces(ref pieces) => self.show_assembled(pieces, true),
        }
    }

    /// Ends a pin.
    pub fn unpin(&mut self, pin: Pin) {
        match pin {
            Pin::Record(place) => self.pool.unpin(place.buffer),
            Pin::Extent(slot) => self.slots[slot as usize].held.pins -= 1,
            Pin::Pieces(pieces) => self.unpin_assembled(&pieces),
        }
    }
}

/// Whether the records of the frame at the start of `bytes` are as many as it says, and none has to be
/// refused.
fn is_sound(frame: &FrameHeader, bytes: &[u8]) -> bool {
    let Some(bytes) = bytes.get(..frame.length as usize) else { return false };
    let (mut at, mut records) = (frame::SIZE, 0);
    while let Ok((header, ..)) = record::sound(&bytes[at..]) {
        at += header.size();
        records += 1;
    }
    at == bytes.len() && records == frame.records
}

/// One record, or one value, is not what was written there.
pub(crate) fn damaged(position: u64) -> Error {
    Error::from(Damage { position, ..Damage::default() })
}
