//! Writing a batch to the file: its frames are sealed and written in order, or nothing of it
//! remains.

use crate::error::Error;
use crate::file::{File, read_full, write_all};
use crate::format::align_up;
use crate::format::checksum::{checksum, seed_at};
use crate::format::frame::{self, FrameHeader};
use crate::format::record::RecordHeader;
use crate::format::segment::{self, SegmentHeader};
use crate::format::system_records::ExtentRef;

use super::open_frame::OpenFrame;
use super::slot_allocator::AllocPriority;
use super::write_batch::FrameSpan;
use super::{DiscardedTail, Log, Slot, SlotState};

/// Large values are written in chunks of this many bytes.
const CHUNK: usize = 256 << 10;

/// Why a batch was not written.
#[derive(Clone, Debug)]
pub enum WriteError {
    /// No trace of it is in the file: the batch can be dropped, and writing can continue.
    RolledBack(Error),
    /// Its traces could not be removed: nothing may be written any more.
    Unclear(Error),
}

impl WriteError {
    /// The underlying error of the file.
    #[must_use]
    pub fn into_error(self) -> Error {
        match self {
            WriteError::RolledBack(error) | WriteError::Unclear(error) => error,
        }
    }
}

/// By default a failed call of the file can be rolled back; callers that cannot do so use `Unclear`
/// explicitly.
impl<E: Into<Error>> From<E> for WriteError {
    fn from(error: E) -> Self {
        WriteError::RolledBack(error.into())
    }
}

impl Log {
    /// Writes the open batch to the file as one commit. Returns whether there was anything to
    /// write. `is_moved` says whether maintenance wrote it.
    pub fn commit(
        &mut self,
        file: &mut impl File,
        next_version: u64,
        is_moved: bool,
    ) -> Result<bool, WriteError> {
        self.drop_note_end();
        let live = self.open_frame.live > 0 || !self.batch.frames.is_empty();
        if !live {
            return Ok(false);
        }
        self.write_open_batch(file, next_version, if is_moved { frame::FLAG_MOVED } else { 0 })?;
        if !is_moved {
            self.note_commit_end(next_version);
        }
        Ok(true)
    }

    /// Writes a frame without records that carries the watermark of the last flush.
    pub(crate) fn write_witness(
        &mut self,
        file: &mut impl File,
        need: AllocPriority,
        next_version: u64,
    ) -> Result<(), WriteError> {
        self.reserve_record(file, 0, need).map_err(WriteError::RolledBack)?;
        self.write_open_batch(file, next_version, 0)
    }

    fn write_open_batch(
        &mut self,
        file: &mut impl File,
        next_version: u64,
        flags: u32,
    ) -> Result<(), WriteError> {
        if self.leftovers.dropped_tail == DiscardedTail::NeedsZeroing {
            self.zero_log_tail(file)?;
            self.leftovers.dropped_tail = DiscardedTail::Nothing;
            (self.superblock_state.marked_open, self.superblock_state.unflushed) = (false, true);
        }
        if !self.superblock_state.marked_open {
            // The previous session may have erased its last write without a flush; power loss could
            // bring that back among what is written now. Or the superblock that it wrote last is
            // not flushed. A newly created file has both flushed.
            if self.superblock_state.unflushed {
                file.flush().map_err(|error| WriteError::Unclear(error.into()))?;
                self.superblock_state.unflushed = false;
            }
            self.write_superblock(file, None, next_version).map_err(WriteError::RolledBack)?;
            self.superblock_state.marked_open = true;
        }
        let mut frames = self.batch.frames.clone();
        let OpenFrame { slot, start, tail, records, .. } = self.open_frame;
        if records > 0 || frames.is_empty() {
            let slot = slot.expect("a batch has a frame");
            frames.push(FrameSpan { slot, start, end: tail, records });
        }
        let dropped_tail = self.leftovers.dropped_tail;
        if let Err(failure) = self.write_frames(file, &frames, flags) {
            self.leftovers.dropped_tail = dropped_tail;
            return Err(match (self.erase_batch(file, &frames), failure) {
                (Ok(()), failure) => failure,
                (Err(_), failure) => WriteError::Unclear(failure.into_error()),
            });
        }
        self.accept(&frames);
        Ok(())
    }

    fn write_frames(
        &mut self,
        file: &mut impl File,
        frames: &[FrameSpan],
        flags: u32,
    ) -> Result<(), WriteError> {
        for i in 0..self.batch.extents.len() {
            self.write_extent(file, self.batch.extents[i])?;
        }
        if self.batch.start.slot != Some(frames[0].slot) {
            self.zero_log_tail(file)?;
        }
        for (i, frame) in frames.iter().enumerate() {
            let number = self.next_frame + i as u64;
            let commits = if i + 1 == frames.len() { frame::FLAG_COMMIT } else { 0 };
            self.seal(frame, number, flags | commits);
            self.write_frame(file, frame, number)?;
            // The log may have moved on to another segment without appending.
            let next = frames.get(i + 1).map(|frame| frame.slot).or(self.open_frame.slot);
            if next != Some(frame.slot) {
                self.zero_segment_tail(file, frame.slot, frame.end)?;
            }
        }
        Ok(())
    }

    /// Computes the checksums of a frame and its records, once, after the last change.
    fn seal(&mut self, span: &FrameSpan, number: u64, flags: u32) {
        let start = self.geometry.slot_start(span.slot);
        let Slot { salt, buffer, .. } = self.slots[span.slot as usize];
        let bytes = self.pool.bytes_mut(buffer);
        let mut at = span.start + frame::SIZE;
        while at < span.end {
            let size = RecordHeader::at(&bytes[at..]).expect("records are aligned").size();
            RecordHeader::seal(&mut bytes[at..at + size], salt, start + at as u64);
            at += size;
        }
        let header = FrameHeader {
            length: (span.end - span.start) as u32,
            number,
            watermark: self.watermarks.flushed,
            records: span.records,
            flags,
            ..Default::default()
        };
        header.seal(&mut bytes[span.start..span.end], salt, start + span.start as u64);
    }

    /// The first frame of a segment is written together with the segment's header, and after its
    /// trailer.
    fn write_frame(
        &mut self,
        file: &mut impl File,
        span: &FrameSpan,
        number: u64,
    ) -> Result<(), WriteError> {
        let start = self.geometry.slot_start(span.slot);
        let buffer = self.slots[span.slot as usize].buffer;
        let mut from = span.start;
        if !self.slots[span.slot as usize].written {
            self.cancel_dropped_tail(file)?;
            let flags =
                if self.slots[span.slot as usize].dirty_tail { segment::FLAG_REUSED } else { 0 };
            let header = SegmentHeader { first_frame: number, flags, ..self.header_of(span.slot) }
                .encode(self.superblock.file_id[0], start);
            self.slots[span.slot as usize].first_frame = number;
            write_all(file, &header, start + self.geometry.frames_end() as u64)?;
            self.pool.bytes_mut(buffer)[..segment::SIZE].copy_from_slice(&header);
            from = 0;
        }
        write_all(file, &self.pool.bytes(buffer)[from..span.end], start + from as u64)?;
        Ok(())
    }

    /// The first segment after a dropped tail cancels that tail by reusing its numbers. It is
    /// flushed before the next segment begins. Otherwise power loss could remove this segment and
    /// keep the next one, whose frames would continue where the dropped ones end and complete a
    /// commit that never was one.
    fn cancel_dropped_tail(&mut self, file: &mut impl File) -> Result<(), WriteError> {
        match self.leftovers.dropped_tail {
            DiscardedTail::Nothing | DiscardedTail::NeedsZeroing => {}
            DiscardedTail::Present => self.leftovers.dropped_tail = DiscardedTail::Superseded,
            DiscardedTail::Superseded => {
                file.flush().map_err(|error| WriteError::Unclear(error.into()))?;
                self.cancelled_tail_is_flushed();
            }
        }
        Ok(())
    }

    pub(super) fn cancelled_tail_is_flushed(&mut self) {
        if self.leftovers.dropped_tail == DiscardedTail::Superseded {
            self.leftovers.dropped_tail = DiscardedTail::Nothing;
        }
    }

    pub(super) fn header_of(&self, slot: u32) -> SegmentHeader {
        let s = &self.slots[slot as usize];
        SegmentHeader {
            kind: segment::KIND_LOG,
            sequence: s.sequence,
            slot,
            salt: s.salt,
            span: s.span,
            ..Default::default()
        }
    }

    fn write_extent(&mut self, file: &mut impl File, first: u32) -> Result<(), Error> {
        let start = self.geometry.slot_start(first);
        let slot = &self.slots[first as usize];
        let value = slot.cached.value.as_ref().expect("a staged extent is resident");
        let value = &value[..align_up(slot.length as usize)];
        self.write_extent_headers(file, first)?;
        for (i, chunk) in value.chunks(CHUNK).enumerate() {
            write_all(file, chunk, start + (segment::SIZE + i * CHUNK) as u64)?;
        }
        Ok(())
    }

    pub(super) fn write_extent_headers(
        &self,
        file: &mut impl File,
        first: u32,
    ) -> Result<(), Error> {
        let start = self.geometry.slot_start(first);
        let slot = &self.slots[first as usize];
        let header = SegmentHeader {
            kind: segment::KIND_EXTENT,
            payload: slot.length,
            payload_check: slot.length_check,
            ..self.header_of(first)
        };
        let header = header.encode(self.superblock.file_id[0], start);
        let end = self.geometry.slot_start(first + slot.span);
        write_all(file, &header, end - segment::SIZE as u64)?;
        Ok(write_all(file, &header, start)?)
    }

    /// The descriptor of a staged extent with a value of `length` bytes that may still change.
    pub(crate) fn extent_ref(&self, first: u32, length: usize) -> ExtentRef {
        let slot = &self.slots[first as usize];
        ExtentRef {
            slot: first,
            span: slot.span,
            length: length as u64,
            check: 0,
            sequence: slot.sequence,
            reserved: 0,
        }
    }

    /// Ends the value of a staged extent at `length` and returns its final descriptor.
    pub(crate) fn seal_extent(&mut self, first: u32, length: usize) -> ExtentRef {
        let at = self.geometry.slot_start(first) + segment::SIZE as u64;
        let slot = &mut self.slots[first as usize];
        let value = slot.cached.value.as_mut().expect("a staged extent is resident");
        value[length..align_up(length)].fill(0);
        let check = checksum(&value[..length], seed_at(slot.salt, at));
        (slot.length, slot.length_check) = (length as u64, check);
        ExtentRef { check, ..self.extent_ref(first, length) }
    }

    /// Zeros whatever a failed batch may have left in the file, so that no later opening takes it
    /// for an acknowledged commit. The zeros are flushed before anything is written over them:
    /// otherwise power loss could bring back a frame of the failed batch among newer ones.
    fn erase_batch(&mut self, file: &mut impl File, frames: &[FrameSpan]) -> Result<(), Error> {
        let geometry = self.geometry;
        for span in frames {
            let start = geometry.slot_start(span.slot);
            erase(file, span.end - span.start, start + span.start as u64)?;
        }
        for slot in frames.iter().map(|span| span.slot) {
            if !self.slots[slot as usize].written {
                self.erase_headers(file, slot)?;
            }
        }
        for &slot in &self.batch.extents {
            self.erase_headers(file, slot)?;
        }
        file.flush()?;
        // This flush included all segments so far, although no frame will say so.
        self.watermarks.segments_flushed_below = self.next_sequence;
        Ok(())
    }

    fn accept(&mut self, frames: &[FrameSpan]) {
        for span in frames {
            self.next_frame += 1;
            let slot = &mut self.slots[span.slot as usize];
            (slot.end, slot.end_frame) = (span.end as u32, self.next_frame);
            if slot.first_frame == 0 {
                slot.first_frame = self.next_frame - 1;
            }
            self.checkpoint.frame_bytes_since += (span.end - span.start) as u64;
        }
        self.watermarks.written = self.watermarks.flushed;
        for dead in self.extents.dead.iter_mut().rev().take_while(|dead| dead.frame.is_none()) {
            dead.frame = Some(self.next_frame - 1);
        }
        for slot in frames.iter().map(|span| span.slot).chain(self.batch.extents.drain(..)) {
            let slot = &mut self.slots[slot as usize];
            slot.written = true;
            self.checkpoint.value_bytes_since +=
                if slot.state == SlotState::Extent { slot.length } else { 0 };
        }
        self.batch.frames.clear();
        self.batch.note_end = None;
        let slot = self.open_frame.slot.expect("a batch has a frame");
        // If the log moved on to another segment without appending, it keeps its position there.
        let start = if self.open_frame.records > 0 || frames.last().is_some_and(|f| f.slot == slot)
        {
            self.open_frame.tail
        } else {
            self.open_frame.start
        };
        self.open_frame = OpenFrame::at(slot, start);
        self.batch.start = self.open_frame;
        self.mutable_from = self.open_frame.tail;
    }
}

/// Writes zeros to `len` bytes at `at` where they are not zero already. On a full disk a hole
/// cannot be written to, and need not be.
pub(super) fn erase(file: &mut impl File, len: usize, at: u64) -> Result<(), Error> {
    // No platform has smaller blocks, so a block with a byte that is not zero is allocated.
    const BLOCK: u64 = 512;
    let (mut at, end) = (at, at + len as u64);
    while at < end {
        let mut bytes = [0; BLOCK as usize];
        let bytes = &mut bytes[..(BLOCK - at % BLOCK).min(end - at) as usize];
        let read_len = read_full(file, bytes, at)?;
        if bytes.iter().any(|&b| b != 0) {
            bytes.fill(0);
            write_all(file, &bytes[..read_len], at)?;
        }
        at += bytes.len() as u64;
    }
    Ok(())
}
