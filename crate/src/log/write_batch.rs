//! The open batch: what the current turn has appended and not committed yet.

use crate::aligned_buf::copy_value;
use crate::error::Error;
use crate::file::File;
use crate::format::align_up;
use crate::format::checksum::checksum;
use crate::format::frame;
use crate::format::record::{self, RecordHeader};
use crate::format::segment;
use crate::index::hash_index::Position;

use super::buffer_pool::{BESIDE_SEGMENT, BufferContent};
use super::read::Place;
use super::slot_allocator::AllocPriority;
use super::{Log, NO_BUFFER, Slot, SlotState};

/// Where the frame under construction stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    /// Slot of the frame; none before the first append and after a recovery that dropped a tail.
    pub slot: Option<u32>,
    /// Offset of the frame.
    pub start: usize,
    /// Offset of the next record.
    pub tail: usize,
    /// Records so far.
    pub records: u32,
    /// Records that are not void.
    pub live: u32,
}

impl Cursor {
    /// A frame that starts at `start` and holds nothing.
    #[must_use]
    pub fn at(slot: u32, start: usize) -> Self {
        Cursor { slot: Some(slot), start, tail: start + frame::SIZE, records: 0, live: 0 }
    }
}

/// A frame that is complete but for its seal.
#[derive(Clone, Copy, Debug)]
pub struct FrameSpan {
    /// Slot of the frame.
    pub slot: u32,
    /// Offset of the frame.
    pub start: usize,
    /// Offset at which it ends.
    pub end: usize,
    /// Records in it.
    pub records: u32,
}

/// How far the group had come when a savepoint was made.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    cursor: Cursor,
    floor: usize,
    pending: usize,
    extents: usize,
}

impl Log {
    /// Bytes of the open batch, extents included; 0 when there is nothing to commit.
    #[must_use]
    pub fn batch_bytes(&self) -> usize {
        let open = if self.cursor.live > 0 { self.cursor.tail - self.cursor.start } else { 0 };
        // Most groups lie in one frame; every write asks.
        if self.pending.is_empty() && self.extents.is_empty() {
            return open;
        }
        let closed: usize = self.pending.iter().map(|f| f.end - f.start).sum();
        let extents = self.extents.iter().map(|&slot| self.slots[slot as usize].span as usize);
        closed + open + extents.sum::<usize>() * self.geometry.segment()
    }

    /// The longest record that fits into a segment.
    #[inline]
    pub(crate) fn longest_record(&self) -> usize {
        self.geometry.room_end() - segment::SIZE - frame::SIZE
    }

    /// Makes sure that a record of `size` bytes can be appended, taking a new segment when the
    /// current one is full. On failure nothing has changed.
    pub(crate) fn make_room(
        &mut self,
        file: &mut impl File,
        size: usize,
        need: AllocPriority,
    ) -> Result<(), Error> {
        let end = self.geometry.room_end();
        let fits = self.cursor.slot.is_some() && self.cursor.tail + size <= end;
        if fits
            && (self.free_slots > 0 || need == AllocPriority::Note || self.leaves_gap_room(size))
        {
            return Ok(());
        }
        if size > self.longest_record() {
            return Err(Error::KeyTooLong);
        }
        let slot = self.take_slot(file, need)?;
        self.close_frame();
        self.cursor = Cursor::at(slot, segment::SIZE);
        self.floor = self.cursor.tail;
        Ok(())
    }

    /// Goes on in another segment. There is no open batch.
    pub(crate) fn begin_segment(&mut self, file: &mut impl File) -> Result<(), Error> {
        self.blank_end(file)?;
        let slot = self.take_slot(file, AllocPriority::Relief)?;
        self.cursor = Cursor::at(slot, segment::SIZE);
        self.group = self.cursor;
        self.floor = self.cursor.tail;
        Ok(())
    }

    fn close_frame(&mut self) {
        let Cursor { slot, start, tail, records, .. } = self.cursor;
        if let (Some(slot), true) = (slot, records > 0) {
            self.pending.push(FrameSpan { slot, start, end: tail, records });
        }
    }

    pub(super) fn fresh_slot(&mut self, used: SlotState, span: u32) -> Slot {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let salt = checksum(&self.entropy.to_le_bytes(), u64::from(sequence));
        Slot { sequence, salt, span, from_this_session: true, ..Slot::new(used) }
    }

    /// Positions and sequences are 32 bits wide; a file that has used them up is full.
    pub(super) fn check_limits(&self, last_slot: u32) -> Result<(), Error> {
        let fits = last_slot < self.geometry.max_slots() && self.next_sequence < u32::MAX;
        if fits { Ok(()) } else { Err(Error::Full) }
    }

    fn take_slot(&mut self, file: &mut impl File, need: AllocPriority) -> Result<u32, Error> {
        if need == AllocPriority::Write && !self.may_take(BESIDE_SEGMENT) {
            return Err(Error::ViewsHeld);
        }
        let index = self.find_room(file, 1, need)?;
        let buffer = self.take_buffer(BufferContent::Segment(index))?;
        let stale = self.slots[index as usize].dirty_tail;
        let slot = Slot { buffer, dirty_tail: stale, ..self.fresh_slot(SlotState::Log, 1) };
        self.occupy_span(index, slot);
        Ok(index)
    }

    /// Puts what `slot` describes into its slots.
    pub(super) fn occupy_span(&mut self, first: u32, slot: Slot) {
        let (from, end) = (first as usize, (first + slot.span) as usize);
        self.slots[from..end].fill_with(|| Slot::new(SlotState::Continuation));
        self.slots[from] = slot;
        self.count_slots();
    }

    /// Reserves slots for `span` segments that begin with one header, and gives the first.
    pub(super) fn take_span(
        &mut self,
        file: &mut impl File,
        used: SlotState,
        span: u32,
        need: AllocPriority,
    ) -> Result<u32, Error> {
        let first = self.find_room(file, span, need)?;
        let slot = self.fresh_slot(used, span);
        self.occupy_span(first, slot);
        Ok(first)
    }

    /// Reserves an extent for a value of `length` bytes and gives its first slot.
    pub fn take_extent(&mut self, file: &mut impl File, length: usize) -> Result<u32, Error> {
        let value = self.take_value(length)?;
        let taken = self.take_span(
            file,
            SlotState::Extent,
            self.geometry.extent_span(length),
            AllocPriority::Write,
        );
        let first = match taken {
            Ok(first) => first,
            Err(error) => {
                self.leave_value(Some(value));
                return Err(error);
            }
        };
        let slot = &mut self.slots[first as usize];
        (slot.held.value, slot.held.touched) = (Some(value), self.pool.now());
        self.extents.push(first);
        Ok(first)
    }

    /// Takes back the extent that was reserved last and never became part of a record.
    pub fn drop_extent(&mut self) {
        if let Some(first) = self.extents.pop() {
            self.free(first);
        }
    }

    /// Frees slots of something of which no header stands.
    pub(super) fn free(&mut self, first: u32) {
        self.leave_memory(first);
        let Slot { span, state: used, dirty_tail: stale, .. } = self.slots[first as usize];
        let stale = stale || used != SlotState::Log;
        for slot in &mut self.slots[first as usize..(first + span) as usize] {
            *slot = Slot { dirty_tail: stale, ..Slot::new(SlotState::Free) };
        }
        self.count_slots();
    }

    /// Lets go of the memory of what begins at a slot. Views may still show it.
    pub(super) fn leave_memory(&mut self, first: u32) {
        let slot = &mut self.slots[first as usize];
        let shown = slot.held.shown == self.views;
        let (value, buffer) =
            (slot.held.value.take(), core::mem::replace(&mut slot.buffer, NO_BUFFER));
        if shown {
            self.value_bytes -= value.as_ref().map_or(0, |value| value.len());
            self.quarantine.extend(value);
        } else {
            self.leave_value(value);
        }
        if buffer != NO_BUFFER {
            self.pool.leave(buffer);
        }
    }

    /// Puts header and key of a record at the tail and gives its position, and where it lies. It
    /// becomes part of the group by [`advance`](Log::advance). Room must have been made.
    #[inline(always)]
    pub fn stage(&mut self, header: RecordHeader, key: &[u8]) -> (Position, Place) {
        let index = self.cursor.slot.expect("room was made");
        let slot = &self.slots[index as usize];
        let place = Place { buffer: slot.buffer, offset: self.cursor.tail as u32 };
        let oldest = if header.oldest == 0 { slot.sequence } else { header.oldest };
        let bytes = self.bytes_at(place);
        // What pads the key to 8 bytes lies within the last 8 of its room.
        if let Some(end) = bytes[..header.value_offset()].last_chunk_mut::<8>() {
            *end = [0; 8];
        }
        copy_value(&mut bytes[record::SIZE..record::SIZE + key.len()], key);
        let target = RecordHeader::at_mut(bytes).expect("the tail is aligned and has room");
        *target = RecordHeader { oldest, ..header };
        (self.geometry.position(index, self.cursor.tail), place)
    }

    /// Ends an inline value at `length` bytes, zeroing what is left of its room, which is given up
    /// but for the padding if it is `at_tail`. Gives the size of the record.
    pub fn end_value(&mut self, place: Place, length: usize, version: u64, at_tail: bool) -> usize {
        let bytes = self.bytes_at(place);
        let header = RecordHeader::at_mut(bytes).expect("a staged record has a header");
        header.version = version;
        header.value_len = length as u32;
        if at_tail {
            header.capacity = align_up(length) as u32;
        }
        let (from, size) = (header.value_offset(), header.size());
        let (padded, rest) = bytes[from..size].split_at_mut(align_up(length));
        if let Some(last) = padded.last_chunk_mut::<8>() {
            let used = u64::MAX >> (8 * (align_up(length) - length));
            *last = (u64::from_le_bytes(*last) & used).to_le_bytes();
        }
        if !rest.is_empty() {
            rest.fill(0);
        }
        size
    }

    /// Appends a record that stood at `from`, as it is. Room must have been made.
    pub(crate) fn append_copy(&mut self, bytes: &[u8], from: Position) -> Position {
        let slot = self.cursor.slot.expect("room was made");
        let position = self.geometry.position(slot, self.cursor.tail);
        let target = &mut self.record_mut(position)[..bytes.len()];
        target.copy_from_slice(bytes);
        let header = RecordHeader::at_mut(target).expect("the tail is aligned");
        (header.previous, header.replaced) = (from, record::in_words(bytes.len() as u32));
        self.advance(bytes.len(), false);
        position
    }

    /// Makes the staged record of `size` bytes part of the group.
    pub fn advance(&mut self, size: usize, is_void: bool) {
        self.cursor.tail += size;
        self.cursor.records += 1;
        self.cursor.live += u32::from(!is_void);
    }

    /// How far the group has come. Records before a mark are no longer changed in place, so that
    /// going back is cutting off.
    pub fn mark(&mut self) -> Mark {
        let mark = Mark {
            cursor: self.cursor,
            floor: self.floor,
            pending: self.pending.len(),
            extents: self.extents.len(),
        };
        self.floor = self.cursor.tail;
        mark
    }

    /// Forgets a mark; what came after it stays.
    pub fn release(&mut self, mark: &Mark) {
        if self.cursor.slot == mark.cursor.slot {
            self.floor = mark.floor;
        }
    }

    /// Goes back to a mark. What was appended since is left where views may show it: as a void
    /// record in the mark's own segment, in quarantine for segments taken since.
    pub fn rollback(&mut self, mark: &Mark) {
        let mut end = self.cursor.tail;
        if self.cursor.slot != mark.cursor.slot {
            self.close_frame();
            end = mark.cursor.tail;
            let current = self.cursor.slot.filter(|_| self.cursor.records == 0);
            for frame in self.pending.split_off(mark.pending) {
                if Some(frame.slot) == mark.cursor.slot {
                    end = frame.end;
                } else {
                    self.free(frame.slot);
                }
            }
            if let Some(slot) = current {
                self.free(slot);
            }
        }
        for first in self.extents.split_off(mark.extents) {
            self.free(first);
        }
        self.cursor = mark.cursor;
        self.floor = mark.floor;
        if end > mark.cursor.tail {
            self.append_void(end - mark.cursor.tail);
        }
    }

    /// Turns the next `size` bytes, whatever they hold, into a void record.
    pub fn append_void(&mut self, size: usize) {
        let slot = self.cursor.slot.expect("there are bytes to void");
        let position = self.geometry.position(slot, self.cursor.tail);
        let header = RecordHeader {
            kind: record::KIND_VOID,
            capacity: (size - record::SIZE) as u32,
            ..Default::default()
        };
        *RecordHeader::at_mut(self.record_mut(position)).expect("the tail is aligned") = header;
        self.advance(size, true);
    }

    /// Drops the whole open batch, whose write failed. Views of it must die before the next call.
    pub fn discard_batch(&mut self) {
        let mark = Mark { cursor: self.group, floor: self.group.tail, pending: 0, extents: 0 };
        self.rollback(&mark);
        self.cursor = self.group;
        self.floor = self.group.tail;
        self.views_stale = true;
    }
}
