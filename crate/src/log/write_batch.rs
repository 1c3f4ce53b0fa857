//! The open batch: what was appended since the last commit.

use crate::aligned_buf::copy_value;
use crate::error::Error;
use crate::file::File;
use crate::format::checksum::checksum;
use crate::format::frame;
use crate::format::record::{self, RecordHeader};
use crate::format::segment;
use crate::format::system_records::Transaction;
use crate::format::{KEYSPACE_ENGINE, align_up};
use crate::index::Position;
use musli_zerocopy::ZeroCopy;

use super::buffer_pool::BufferAddr;
use super::buffer_pool::{BufferContent, HEAP_PER_SEGMENT};
use super::open_frame::OpenFrame;
use super::slot_allocator::AllocPriority;
use super::{Log, NO_BUFFER, Slot, SlotState};

/// Bytes of the record that ends what a note is about.
const NOTE_END: usize = record::SIZE + size_of::<Transaction>();

/// A frame that is complete except for its checksums.
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

/// The extent of the batch when a savepoint was made.
#[derive(Clone, Copy, Debug)]
pub struct BatchMark {
    open_frame: OpenFrame,
    mutable_from: usize,
    pending: usize,
    extents: usize,
}

impl Log {
    /// Bytes of the open batch, including extents; 0 if there is nothing to commit.
    #[must_use]
    pub fn batch_bytes(&self) -> usize {
        let open =
            if self.open_frame.live > 0 { self.open_frame.tail - self.open_frame.start } else { 0 };
        // A fast path, because every write calls this and most batches fit in one frame.
        if self.batch.frames.is_empty() && self.batch.extents.is_empty() {
            return open;
        }
        let closed: usize = self.batch.frames.iter().map(|f| f.end - f.start).sum();
        let extents =
            self.batch.extents.iter().map(|&slot| self.slots[slot as usize].span as usize);
        closed + open + extents.sum::<usize>() * self.geometry.segment()
    }

    /// The size of the longest record that fits in a segment.
    #[inline]
    pub(crate) fn max_record_size(&self) -> usize {
        self.geometry.frames_end() - segment::SIZE - frame::SIZE
    }

    /// Makes sure that a record of `size` bytes can be appended, and starts a new segment if the
    /// current one is full. Nothing has changed if this fails.
    pub(crate) fn reserve_record(
        &mut self,
        file: &mut impl File,
        size: usize,
        need: AllocPriority,
    ) -> Result<(), Error> {
        let end = self.geometry.frames_end();
        let fits = self.open_frame.slot.is_some() && self.open_frame.tail + size <= end;
        if fits
            && (self.space.free_slots > 0
                || need == AllocPriority::Bookkeeping
                || self.leaves_bookkeeping_space(size))
        {
            return Ok(());
        }
        if size > self.max_record_size() {
            return Err(Error::KeyTooLong);
        }
        let slot = self.allocate_segment(file, need)?;
        self.close_frame();
        self.open_frame = OpenFrame::at(slot, segment::SIZE);
        self.mutable_from = self.open_frame.tail;
        Ok(())
    }

    /// Continues in another segment. There is no open batch.
    pub(crate) fn begin_segment(&mut self, file: &mut impl File) -> Result<(), Error> {
        self.zero_log_tail(file)?;
        let slot = self.allocate_segment(file, AllocPriority::Delete)?;
        self.open_frame = OpenFrame::at(slot, segment::SIZE);
        self.batch.start = self.open_frame;
        self.mutable_from = self.open_frame.tail;
        Ok(())
    }

    fn close_frame(&mut self) {
        let OpenFrame { slot, start, tail, records, .. } = self.open_frame;
        if let (Some(slot), true) = (slot, records > 0) {
            self.batch.frames.push(FrameSpan { slot, start, end: tail, records });
        }
    }

    pub(super) fn fresh_slot(&mut self, used: SlotState, span: u32) -> Slot {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let salt = checksum(&self.entropy.to_le_bytes(), u64::from(sequence));
        Slot { sequence, salt, span, from_this_session: true, ..Slot::new(used) }
    }

    /// Checks the limits of 32-bit positions and sequences: a file that has used them up is full.
    pub(super) fn check_limits(&self, last_slot: u32) -> Result<(), Error> {
        let fits = last_slot < self.geometry.max_slots() && self.next_sequence < u32::MAX;
        if fits { Ok(()) } else { Err(Error::Full) }
    }

    fn allocate_segment(
        &mut self,
        file: &mut impl File,
        need: AllocPriority,
    ) -> Result<u32, Error> {
        let is_change = matches!(need, AllocPriority::Write | AllocPriority::Delete);
        if is_change && !self.can_allocate(HEAP_PER_SEGMENT) {
            return Err(Error::ViewsHeld);
        }
        let index = self.find_slots(file, 1, need)?;
        let buffer = self.acquire_buffer(BufferContent::Segment(index))?;
        let stale = self.slots[index as usize].dirty_tail;
        let slot = Slot { buffer, dirty_tail: stale, ..self.fresh_slot(SlotState::Log, 1) };
        self.occupy_span(index, slot);
        Ok(index)
    }

    /// Records `slot` as the content of the slots that it covers.
    pub(super) fn occupy_span(&mut self, first: u32, slot: Slot) {
        let (from, end) = (first as usize, (first + slot.span) as usize);
        self.slots[from..end].fill_with(|| Slot::new(SlotState::Continuation));
        self.slots[from] = slot;
        self.count_slots();
    }

    /// Allocates `span` slots in a row that share one header, and returns the first.
    pub(super) fn allocate_span(
        &mut self,
        file: &mut impl File,
        used: SlotState,
        span: u32,
        need: AllocPriority,
    ) -> Result<u32, Error> {
        let first = self.find_slots(file, span, need)?;
        let slot = self.fresh_slot(used, span);
        self.occupy_span(first, slot);
        Ok(first)
    }

    /// Allocates an extent for a value of `length` bytes and returns its first slot.
    pub fn allocate_extent(&mut self, file: &mut impl File, length: usize) -> Result<u32, Error> {
        let value = self.allocate_value(length)?;
        let allocated = self.allocate_span(
            file,
            SlotState::Extent,
            self.geometry.extent_span(length),
            AllocPriority::Write,
        );
        let first = match allocated {
            Ok(first) => first,
            Err(error) => {
                self.release_value(Some(value));
                return Err(error);
            }
        };
        let slot = &mut self.slots[first as usize];
        (slot.cached.value, slot.cached.touched) = (Some(value), self.pool.now());
        self.batch.extents.push(first);
        Ok(first)
    }

    /// Frees the extent that was allocated last and did not become part of a record.
    pub fn free_last_extent(&mut self) {
        if let Some(first) = self.batch.extents.pop() {
            self.free(first);
        }
    }

    /// Frees the slots of something that has no header in the file.
    pub(super) fn free(&mut self, first: u32) {
        self.release_memory(first);
        let Slot { span, state: used, dirty_tail: stale, .. } = self.slots[first as usize];
        let stale = stale || used != SlotState::Log;
        for slot in &mut self.slots[first as usize..(first + span) as usize] {
            *slot = Slot { dirty_tail: stale, ..Slot::new(SlotState::Free) };
        }
        self.count_slots();
    }

    /// Releases the memory of what starts at a slot. Views may still show it.
    pub(super) fn release_memory(&mut self, first: u32) {
        let slot = &mut self.slots[first as usize];
        let shown = slot.cached.shown == self.views.generation;
        let (value, buffer) =
            (slot.cached.value.take(), core::mem::replace(&mut slot.buffer, NO_BUFFER));
        if shown {
            self.large.bytes -= value.as_ref().map_or(0, |value| value.len());
            self.large.kept_for_views.extend(value);
        } else {
            self.release_value(value);
        }
        if buffer != NO_BUFFER {
            self.pool.release(buffer);
        }
    }

    /// Writes the header and the key of a record at the tail, and returns its position and its
    /// address in memory. [`advance`](Log::advance) adds it to the batch. The caller has reserved
    /// the space.
    #[inline(always)]
    pub fn stage(&mut self, header: RecordHeader, key: &[u8]) -> (Position, BufferAddr) {
        let index = self.open_frame.slot.expect("space reserved");
        let slot = &self.slots[index as usize];
        let addr = BufferAddr { buffer: slot.buffer, offset: self.open_frame.tail as u32 };
        let oldest = if header.oldest == 0 { slot.sequence } else { header.oldest };
        let bytes = self.bytes_at(addr);
        // The padding of the key lies within the last 8 bytes before the value.
        if let Some(end) = bytes[..header.value_offset()].last_chunk_mut::<8>() {
            *end = [0; 8];
        }
        copy_value(&mut bytes[record::SIZE..record::SIZE + key.len()], key);
        let target = RecordHeader::at_mut(bytes).expect("the tail is aligned");
        *target = RecordHeader { oldest, ..header };
        (self.geometry.position(index, self.open_frame.tail), addr)
    }

    /// Ends an inline value at `length` bytes and zeros the rest of its capacity. If it is
    /// `at_tail`, the record also gives up that rest except for the padding. Returns the size of
    /// the record.
    pub fn end_value(
        &mut self,
        addr: BufferAddr,
        length: usize,
        version: u64,
        at_tail: bool,
    ) -> usize {
        let bytes = self.bytes_at(addr);
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

    /// Appends a copy of a record from the position `from`. The caller has reserved the space.
    pub(crate) fn append_copy(&mut self, bytes: &[u8], from: Position) -> Position {
        let slot = self.open_frame.slot.expect("space reserved");
        let position = self.geometry.position(slot, self.open_frame.tail);
        let target = &mut self.record_mut(position)[..bytes.len()];
        target.copy_from_slice(bytes);
        let header = RecordHeader::at_mut(target).expect("the tail is aligned");
        (header.previous, header.replaced) = (from, record::size_in_words(bytes.len() as u32));
        self.advance(bytes.len(), false);
        position
    }

    /// Adds the staged record of `size` bytes to the batch.
    pub fn advance(&mut self, size: usize, is_void: bool) {
        self.open_frame.tail += size;
        self.open_frame.records += 1;
        self.open_frame.live += u32::from(!is_void);
    }

    /// Marks the current end of the batch. Records before a mark are not changed in place any more,
    /// so that a rollback only has to truncate.
    pub fn mark(&mut self) -> BatchMark {
        let mark = BatchMark {
            open_frame: self.open_frame,
            mutable_from: self.mutable_from,
            pending: self.batch.frames.len(),
            extents: self.batch.extents.len(),
        };
        self.mutable_from = self.open_frame.tail;
        mark
    }

    /// Forgets a mark and keeps what came after it.
    pub fn release(&mut self, mark: &BatchMark) {
        if self.open_frame.slot == mark.open_frame.slot {
            self.mutable_from = mark.mutable_from;
        }
    }

    /// Goes back to a mark. Views may show what was appended since, so those bytes stay: as a void
    /// record in the segment of the mark, and in buffers kept for views for newer segments.
    pub fn rollback(&mut self, mark: &BatchMark) {
        let mut end = self.open_frame.tail;
        if self.open_frame.slot != mark.open_frame.slot {
            self.close_frame();
            end = mark.open_frame.tail;
            let current = self.open_frame.slot.filter(|_| self.open_frame.records == 0);
            for frame in self.batch.frames.split_off(mark.pending) {
                if Some(frame.slot) == mark.open_frame.slot {
                    end = frame.end;
                } else {
                    self.free(frame.slot);
                }
            }
            if let Some(slot) = current {
                self.free(slot);
            }
        }
        for first in self.batch.extents.split_off(mark.extents) {
            self.free(first);
        }
        self.open_frame = mark.open_frame;
        self.mutable_from = mark.mutable_from;
        if end > mark.open_frame.tail {
            self.append_void(end - mark.open_frame.tail);
        }
    }

    /// Appends the record of a transaction with its note: it is about the records after it. The caller has reserved
    /// the space.
    pub(crate) fn append_note(&mut self, transaction: &Transaction, note: &[u8]) {
        let value_len = size_of::<Transaction>() + note.len();
        let header = RecordHeader {
            kind: record::KIND_TRANSACTION,
            keyspace: KEYSPACE_ENGINE as u16,
            value_len: value_len as u32,
            capacity: align_up(value_len) as u32,
            ..Default::default()
        };
        let (_, addr) = self.stage(header, &[]);
        let value = &mut self.bytes_at(addr)[record::SIZE..header.size()];
        value[value_len..].fill(0);
        value[..size_of::<Transaction>()].copy_from_slice(transaction.to_bytes());
        value[size_of::<Transaction>()..value_len].copy_from_slice(note);
        // The record that ends it counts as void: without others there is nothing to commit.
        self.advance(header.size(), transaction.number == 0);
    }

    /// Ends what the last note is about; returns false if that needs a commit because the segment is full. What was
    /// written under the note is not changed in place by later writes.
    pub(crate) fn end_note(&mut self) -> bool {
        let end = self.open_frame.tail + NOTE_END;
        let fits = end <= self.geometry.frames_end();
        if let Some(slot) = self.open_frame.slot.filter(|_| fits) {
            self.append_note(&Transaction::default(), &[]);
            self.batch.note_end = Some((slot, end));
        }
        self.mutable_from = self.open_frame.tail;
        fits
    }

    /// Removes the record that ends a note if nothing follows it: the end of the commit says the same.
    pub(super) fn drop_note_end(&mut self) {
        let end = self.batch.note_end.take();
        if end.is_some() && end == self.open_frame.slot.map(|slot| (slot, self.open_frame.tail)) {
            self.open_frame.tail -= NOTE_END;
            self.open_frame.records -= 1;
        }
    }

    /// Where the next record goes, to compare.
    pub(crate) fn tail(&self) -> (Option<u32>, usize) {
        (self.open_frame.slot, self.open_frame.tail)
    }

    /// Turns the next `size` bytes into a void record, whatever they contain.
    pub fn append_void(&mut self, size: usize) {
        let slot = self.open_frame.slot.expect("space reserved");
        let position = self.geometry.position(slot, self.open_frame.tail);
        let header = RecordHeader {
            kind: record::KIND_VOID,
            capacity: (size - record::SIZE) as u32,
            ..Default::default()
        };
        *RecordHeader::at_mut(self.record_mut(position)).expect("the tail is aligned") = header;
        self.advance(size, true);
    }

    /// Drops the whole open batch after its write failed. Views of it must be detached before the
    /// next call.
    pub fn discard_batch(&mut self) {
        let mark = BatchMark {
            open_frame: self.batch.start,
            mutable_from: self.batch.start.tail,
            pending: 0,
            extents: 0,
        };
        self.rollback(&mark);
        self.open_frame = self.batch.start;
        self.mutable_from = self.batch.start.tail;
        self.batch.note_end = None;
        self.views.stale = true;
    }
}
