//! Reading records wherever they are: in a resident segment, among the copies of cold records, or
//! in the file.

use crate::error::{Damage, Error};
use crate::file::{File, read_full};
use crate::format::checksum::{checksum, seed_at};
use crate::format::frame::FrameHeader;
use crate::format::payload::ExtentRef;
use crate::format::record::{self, RecordHeader};
use crate::format::{align_up, segment};
use crate::index::hash::{HashIndex, Position};
use crate::memory::AlignedBytes;
use crate::sort;

use super::pool::{BufferId, Holds, Purpose};
use super::{Log, NO_BUFFER, RecordRef, Slot, Use};

/// A cold record is read with what follows it, between so many bytes: one call for most records.
const LEAST_GUESS: usize = 512;
const LARGEST_GUESS: usize = 4096;
/// After so many cold records of one segment in a row the whole segment is read: chance does not do
/// that, a walk in the order of writing does.
const IN_A_ROW: u32 = 8;

/// How a buffer tells what is in it: from its end downwards the position of each copy and where it
/// lies, then a position of 0. To let go of a buffer takes these alone, and none of the records.
const ENTRY: usize = 8;

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
}

/// Copies of cold records, one behind the other in buffers of the pool.
#[derive(Debug)]
pub(super) struct Copies {
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

impl Copies {
    pub(super) fn new() -> Self {
        let index = HashIndex::default();
        Copies {
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

impl Copies {
    /// Forgets the copies in a buffer. `shift` is that of positions.
    fn forget(&mut self, id: BufferId, bytes: &[u8], shift: u8) {
        for entry in bytes.rchunks_exact(ENTRY) {
            let position = read_u32(entry, 0);
            if position == 0 {
                break;
            }
            let copy = id << shift | read_u32(entry, 4);
            if self.index.holds(spread(position), copy) {
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

/// Which segments must stay, whatever the pool needs.
struct Busy<'a> {
    slots: &'a mut [Slot],
    copies: &'a mut Copies,
    group: [Option<u32>; 2],
    shift: u8,
}

impl Busy<'_> {
    /// Lets go of a buffer's content, if it may go.
    fn let_go(&mut self, id: BufferId, holds: Holds, bytes: &[u8]) -> bool {
        match holds {
            Holds::Segment(slot) => {
                let may = self.slots[slot as usize].written && !self.group.contains(&Some(slot));
                if may {
                    self.slots[slot as usize].buffer = NO_BUFFER;
                }
                may
            }
            Holds::Copies => {
                self.copies.forget(id, bytes, self.shift);
                true
            }
            Holds::Nothing | Holds::Remains => false,
        }
    }
}

impl Log {
    /// Forgets copies of records in slots that are going: others will stand where they did.
    pub(super) fn forget_copies(&mut self, goes: impl Fn(&Slot) -> bool) {
        let mut copies = Vec::new();
        self.copies.index.collect(0, u32::MAX, &mut copies);
        for (hash, copy) in copies {
            let (slot, _) = self.geometry.locate(hash.wrapping_mul(UNSPREAD));
            if goes(&self.slots[slot as usize]) {
                self.copies.index.remove(hash, copy);
            }
        }
    }

    /// A buffer for something new. Places that were given before may no longer hold.
    pub(super) fn take_buffer(&mut self, holds: Holds) -> Result<BufferId, Error> {
        let shift = self.geometry.segment_log2 - 3;
        let group = [self.cursor.slot, self.group.slot];
        let Log { pool, slots, copies, .. } = self;
        let mut busy = Busy { slots, copies, group, shift };
        pool.take(holds, &mut |id, holds, bytes| busy.let_go(id, holds, bytes))
    }

    /// Frees what is above the budget, at the end of a turn.
    pub(super) fn trim_pool(&mut self) -> bool {
        let shift = self.geometry.segment_log2 - 3;
        let group = [self.cursor.slot, self.group.slot];
        let Log { pool, slots, copies, .. } = self;
        let mut busy = Busy { slots, copies, group, shift };
        pool.end_turn(&mut |id, holds, bytes| busy.let_go(id, holds, bytes))
    }

    /// Where the record at `position` lies in memory, after reading it from the file if need be.
    ///
    /// # Errors
    /// What the file said, [`Error::Corruption`] when the record there is not intact, or
    /// [`Error::ViewsHeld`] when there is no memory for it inside a callback.
    #[inline(always)]
    pub fn place(&mut self, file: &mut impl File, position: Position) -> Result<Place, Error> {
        self.look(file, position, Purpose::Own)
    }

    /// As [`place`](Log::place), for a purpose.
    #[inline(always)]
    pub fn look(
        &mut self,
        file: &mut impl File,
        position: Position,
        purpose: Purpose,
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
        self.resident_for(position, Purpose::Own)
    }

    /// As [`resident`](Log::resident), for a purpose.
    #[inline(always)]
    #[must_use]
    pub fn resident_for(&mut self, position: Position, purpose: Purpose) -> Option<Place> {
        let place = self.place_of(position)?;
        self.pool.touch_for(place.buffer, purpose);
        Some(place)
    }

    /// The record at a place that the index led to: none if it lied.
    #[inline]
    #[must_use]
    pub fn peek(&self, place: Place) -> Option<RecordRef<'_>> {
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

    /// A look at the lines of a record that a reader looks at, for which nobody waits.
    #[inline(always)]
    #[must_use]
    pub fn warm(&self, place: Place) -> u8 {
        let bytes = self.pool.bytes(place.buffer);
        let line = |far| bytes.get(place.offset as usize + far).map_or(0, |byte| *byte);
        line(0) ^ line(64) ^ line(128)
    }

    /// The record at `position`, for a view, if its segment is in memory. Whether that counts as
    /// looked at is the caller's to say.
    #[inline]
    pub fn at_hand(&mut self, position: Position, counts: bool) -> Option<RecordRef<'_>> {
        let place = self.place_of(position)?;
        self.pool.show(place.buffer);
        if counts {
            self.pool.touch(place.buffer);
        }
        self.peek(place)
    }

    #[cold]
    fn cold(
        &mut self,
        file: &mut impl File,
        position: Position,
        purpose: Purpose,
    ) -> Result<Place, Error> {
        let shift = self.geometry.segment_log2 - 3;
        if let Some(copy) = self.copies.index.find(spread(position), |_| true) {
            let (buffer, offset) = (copy >> shift, (copy & ((1 << shift) - 1)) << 3);
            self.pool.touch_for(buffer, purpose);
            return Ok(Place { buffer, offset });
        }
        let (slot, offset) = self.geometry.locate(position);
        if self.copies.is_run(slot) && !self.pool.callback_open {
            self.load_whole(file, slot)?;
            if let Some(place) = self.resident_for(position, purpose) {
                return Ok(place);
            }
        }
        let room = self.geometry.room_end().saturating_sub(offset);
        let at = self.geometry.slot_start(slot) + offset as u64;
        let guess = self.copies.guess().min(room);
        let (id, tail) = self.room_for_copy(guess)?;
        let bytes = &mut self.pool.bytes_mut(id)[tail..];
        let mut there = read_full(file, &mut bytes[..guess], at)?;
        let size = match RecordHeader::at(&bytes[..there]) {
            Some(header) if header.fits(room) => header.size(),
            _ => return Err(damaged(at)),
        };
        let before = self.copies.largest;
        self.copies.largest = size.max(before - before / 256).min(LARGEST_GUESS);
        let (id, tail) = if size <= guess { (id, tail) } else { self.room_for_copy(size)? };
        let bytes = &mut self.pool.bytes_mut(id)[tail..];
        if size > guess {
            there = read_full(file, &mut bytes[..size], at)?;
        }
        let salt = self.slots[slot as usize].salt;
        if there < size || !RecordHeader::verify(&bytes[..size], salt, at) {
            return Err(damaged(at));
        }
        let offset = tail as u32;
        let entries = self.copies.entries - ENTRY;
        let (next, entry) = self.pool.bytes_mut(id)[entries - ENTRY..].split_at_mut(ENTRY);
        next.fill(0);
        entry[..4].copy_from_slice(&position.to_le_bytes());
        entry[4..ENTRY].copy_from_slice(&(offset >> 3).to_le_bytes());
        (self.copies.tail, self.copies.entries) = (tail + size, entries);
        self.pool.touch_for(id, purpose);
        self.copies.index.insert(spread(position), id << shift | offset >> 3);
        Ok(Place { buffer: id, offset })
    }

    /// A buffer with room for a copy of `size` bytes, and where it goes.
    fn room_for_copy(&mut self, size: usize) -> Result<(BufferId, usize), Error> {
        if let Some(id) = self.copies.current
            && self.copies.tail + size + 2 * ENTRY <= self.copies.entries
        {
            self.pool.touch(id);
            return Ok((id, self.copies.tail));
        }
        let id = self.take_buffer(Holds::Copies)?;
        let end = self.geometry.segment();
        self.pool.bytes_mut(id)[end - ENTRY..].fill(0);
        // Place 0 of buffer 0 would be no position.
        (self.copies.tail, self.copies.entries) = (ENTRY, end);
        self.copies.current = Some(id);
        Ok((id, ENTRY))
    }

    /// Brings a whole segment into memory, so that [`record_at`](Log::record_at) finds what is in it.
    ///
    /// # Errors
    /// As for [`place`](Log::place).
    pub fn load(&mut self, file: &mut impl File, slot: u32) -> Result<(), Error> {
        let resident = self.slots[slot as usize].buffer;
        if resident != NO_BUFFER {
            self.pool.touch(resident);
            return Ok(());
        }
        let id = self.take_buffer(Holds::Segment(slot))?;
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
        Ok(())
    }

    /// Brings a segment into memory if all of its frames are whole; else its records stay cold, to
    /// be verified one by one.
    ///
    /// # Errors
    /// As for [`place`](Log::place).
    pub fn load_whole(&mut self, file: &mut impl File, slot: u32) -> Result<(), Error> {
        let Slot { buffer, salt, end, kept, .. } = self.slots[slot as usize];
        if buffer != NO_BUFFER || kept {
            return Ok(());
        }
        self.load(file, slot)?;
        let start = self.geometry.slot_start(slot);
        let bytes = &self.pool.bytes(self.slots[slot as usize].buffer)[..self.geometry.room_end()];
        let mut at = segment::SIZE;
        while at < end as usize {
            let Some(header) = FrameHeader::open(&bytes[at..], salt, start + at as u64) else {
                self.slots[slot as usize].kept = true;
                self.leave_memory(slot);
                return Ok(());
            };
            at += header.length as usize;
        }
        Ok(())
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
        match self.peek(place) {
            Some(record) => Ok((place, record)),
            None => Err(damaged(0)),
        }
    }

    /// Reads an extent's value into memory if it is the one described, and intact.
    pub(crate) fn load_extent(
        &mut self,
        file: &mut impl File,
        extent: &ExtentRef,
    ) -> Result<bool, Error> {
        let geometry = self.geometry;
        let now = self.pool.now();
        let Some(slot) = self.slots.get_mut(extent.slot as usize) else { return Ok(false) };
        let room = u64::from(slot.span) << geometry.segment_log2;
        let described = slot.used == Use::Extent
            && slot.sequence == extent.sequence
            && slot.length == extent.length
            && extent.length + 2 * segment::SIZE as u64 <= room;
        if !described {
            return Ok(false);
        }
        slot.touched = now;
        if slot.value.is_some() {
            return Ok(true);
        }
        let salt = slot.salt;
        let start = geometry.slot_start(extent.slot) + segment::SIZE as u64;
        let length = extent.length as usize;
        let mut bytes = self.take_value(length)?;
        let read = read_full(file, &mut bytes[..length], start);
        let intact = read.is_ok_and(|there| there == length)
            && checksum(&bytes[..length], seed_at(salt, start)) == extent.check;
        let freed = match intact {
            true => self.slots[extent.slot as usize].value.replace(bytes),
            false => Some(bytes),
        };
        self.leave_value(freed);
        read?;
        Ok(intact)
    }

    /// The memory from a record's header to the end of its segment.
    #[inline]
    pub(crate) fn bytes_at(&mut self, place: Place) -> &mut [u8] {
        &mut self.pool.bytes_mut(place.buffer)[place.offset as usize..]
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

    /// Whether the value of an extent is whole; it stays in memory only if there is room.
    ///
    /// # Errors
    /// What the file said.
    pub fn verify_extent(
        &mut self,
        file: &mut impl File,
        extent: &ExtentRef,
    ) -> Result<bool, Error> {
        let whole = self.load_extent(file, extent);
        self.trim_extents(self.room_for_extents());
        whole
    }

    /// The value of the record at a place, from its extent where it has one.
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

    #[cold]
    fn extent_value(&mut self, file: &mut impl File, place: Place) -> Result<&[u8], Error> {
        // Only a lying checkpoint leads to a record of another shape.
        let Some(extent) = ExtentRef::decode(self.record_in(place).value) else {
            return Err(damaged(0));
        };
        // An extent of the open group is not sealed yet, and resident.
        let resident = self
            .slots
            .get(extent.slot as usize)
            .is_some_and(|slot| slot.value.is_some() && slot.sequence == extent.sequence);
        if !resident && !self.load_extent(file, &extent)? {
            return Err(damaged(self.geometry.slot_start(extent.slot) + segment::SIZE as u64));
        }
        let slot = &mut self.slots[extent.slot as usize];
        (slot.touched, slot.shown) = (self.pool.now(), true);
        let value = slot.value.as_ref().expect("it was loaded");
        Ok(&value[..extent.length as usize])
    }

    /// Keeps the value of the record at a place in memory until [`unpin`](Log::unpin).
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
            Pin::Extent(slot) => self.slots[slot as usize].pins += 1,
            Pin::Record(place) => self.pool.pin(place.buffer),
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
                self.pool.touch_for(place.buffer, Purpose::View);
                self.record_in(place).value
            }
            Pin::Extent(slot) => {
                let slot = &mut self.slots[slot as usize];
                slot.shown = true;
                &slot.value.as_ref().expect("a pinned value is resident")[..slot.length as usize]
            }
        }
    }

    /// Ends a pin.
    pub fn unpin(&mut self, pin: Pin) {
        match pin {
            Pin::Record(place) => self.pool.unpin(place.buffer),
            Pin::Extent(slot) => self.slots[slot as usize].pins -= 1,
        }
    }

    /// Memory for the value of an extent, its bytes undefined. What was let go last is used again:
    /// zeroing costs as much as a checksum.
    ///
    /// # Errors
    /// As for [`room_for_value`](Log::room_for_value).
    pub(super) fn take_value(&mut self, length: usize) -> Result<AlignedBytes, Error> {
        self.room_for_value(length)?;
        let fits = |spare: &mut AlignedBytes| (length..=2 * length).contains(&spare.len());
        let spare = self.spare_value.take_if(fits);
        let value = spare.unwrap_or_else(|| AlignedBytes::zeroed(align_up(length)));
        self.value_bytes += value.len();
        Ok(value)
    }

    /// Lets go of the memory of a value.
    pub(super) fn leave_value(&mut self, value: Option<AlignedBytes>) {
        let Some(value) = value else { return };
        self.value_bytes -= value.len();
        self.spare_value = Some(value);
    }

    /// Makes room for the value of an extent. Those that one turn looks at, writes or takes back may
    /// take as much as the budget; beyond it what nobody needs is let go, and if a view may show any
    /// of it, all views die.
    ///
    /// # Errors
    /// [`Error::ViewsHeld`] when one of the views is a running callback's.
    pub(super) fn room_for_value(&mut self, length: usize) -> Result<(), Error> {
        let held: usize = self.quarantine.iter().map(|bytes| bytes.len()).sum();
        let fits = self.value_bytes + held + length <= self.pool.budget();
        if fits || !self.pool.lends_views {
            return Ok(());
        }
        let mut allowed = self.pool.budget().saturating_sub(length);
        if held > 0 || self.slots.iter().any(|slot| slot.shown && slot.may_lose_value()) {
            self.pool.kill_views()?;
            self.slots.iter_mut().for_each(|slot| slot.shown = false);
            // Nothing shows any more what was rolled back in this turn.
            self.quarantine = Vec::new();
            allowed = self.pool.budget() / 4;
        }
        self.trim_extents(allowed);
        // The memory might have to grow, and under a callback it must not.
        if self.pool.callback_open && self.value_bytes + length > self.pool.budget() {
            return Err(Error::ViewsHeld);
        }
        Ok(())
    }

    /// Bytes that the values of extents may take between turns: what buffers leave of the budget, and
    /// at least a quarter of it.
    pub(super) fn room_for_extents(&self) -> usize {
        let budget = self.pool.budget();
        budget.saturating_sub(self.pool.memory()).max(budget / 4)
    }

    /// Lets go of the values of extents that were not looked at lately, when they hold more than
    /// `allowed` bytes. Returns whether any went that a view may show.
    pub(super) fn trim_extents(&mut self, allowed: usize) -> bool {
        if self.value_bytes <= allowed {
            return false;
        }
        let held = self.slots.iter().zip(0..).filter(|(slot, _)| slot.may_lose_value());
        let order = held.map(|(slot, i)| (slot.touched, i)).collect();
        let mut shown = false;
        for (_, index) in sort::by_number(order) {
            if self.value_bytes <= allowed {
                break;
            }
            let slot = &mut self.slots[index as usize];
            shown |= slot.shown;
            let value = slot.value.take();
            self.leave_value(value);
        }
        shown
    }
}

/// One record, or one value, is not what was written there.
pub(crate) fn damaged(position: u64) -> Error {
    Error::from(Damage { position, ..Damage::default() })
}
