//! Finding the use of each slot of a file from its headers, or from its trailers if headers are
//! missing.

use alloc::vec::Vec;

use crate::error::Error;
use crate::file::{File, read_full, write_all};
use crate::format::frame::FrameHeader;
use crate::format::segment::{self, SegmentHeader};
use crate::format::superblock::Superblock;
use crate::format::system_records::ExtentRef;
use crate::format::{ALIGN, DATA_START, MAX_VALUE};
use crate::radix_sort;

use super::frame_chain::{Chain, ReferencedExtent};
use super::{Log, MissingHeader, Slot, SlotState};

impl Log {
    /// Makes the slots of a file of `size` bytes, of whose use nothing is known.
    pub(super) fn reset_slots(&mut self, size: u64) -> Result<(), Error> {
        let segment = self.geometry.segment() as u64;
        let count = size.saturating_sub(DATA_START).div_ceil(segment);
        let count = u32::try_from(count).ok().filter(|&n| n <= self.geometry.max_slots());
        let count = count.ok_or(Error::NotADatabase)?;
        self.slots = (0..count).map(|_| Slot::new(SlotState::Unknown)).collect();
        self.next_sequence = self.superblock.next_sequence as u32;
        Ok(())
    }

    /// Takes the use of the slots of a checkpoint, and the salt, from its header in its first slot. Returns
    /// whether that is the header of the checkpoint that the superblock names.
    pub(super) fn occupy_checkpoint(
        &mut self,
        file: &mut impl File,
        first: u32,
    ) -> Result<bool, Error> {
        let mut bytes = [0; segment::SIZE];
        let start = self.geometry.slot_start(first);
        read_full(file, &mut bytes, start)?;
        let header = SegmentHeader::decode(&bytes, self.superblock.file_id[0], start);
        let wanted = self.superblock.checkpoint_sequence;
        let is_named = |it: &SegmentHeader| {
            it.kind == segment::KIND_CHECKPOINT
                && it.slot == first
                && u64::from(it.sequence) == wanted
        };
        let Some(header) = header.filter(is_named) else { return Ok(false) };
        self.occupy(&header, self.slots.len() as u32);
        Ok(true)
    }

    /// Reads the headers and trailers of all slots whose use is not known yet.
    pub(super) fn scan_slots(&mut self, file: &mut impl File) -> Result<(), Error> {
        let count = self.slots.len() as u32;
        let mut headers = Vec::new();
        let is_known = |log: &Log, i: u32| {
            log.slots.get(i as usize).is_none_or(|slot| slot.state != SlotState::Unknown)
        };
        for index in 0..=count {
            // A header and the trailer before it are read at once.
            if !is_known(self, index) || index > 0 && !is_known(self, index - 1) {
                self.read_headers(file, index, &mut headers)?;
            }
        }
        headers.retain(|(header, _)| !is_known(self, header.slot));
        // The newest use of a slot counts: a crash may leave one copy of an older header.
        let order = headers.iter().zip(0..).map(|((header, _), i)| (header.sequence, i)).collect();
        for (_, i) in radix_sort::by_number(order).into_iter().rev() {
            self.occupy(&headers[i as usize].0, count);
        }
        self.record_missing_headers(&headers);
        self.count_slots();
        Ok(())
    }

    /// The largest watermark in log segments that lie where the checkpoint says that older segments are. There are such
    /// only if flushes lied: a newer checkpoint freed these slots, and did not reach the medium.
    ///
    /// # Errors
    /// An error of the file.
    #[cold]
    pub(super) fn watermark_of_overwriting_segments(
        &self,
        file: &mut impl File,
    ) -> Result<u64, Error> {
        let mut headers = Vec::new();
        for index in 0..=self.slots.len() as u32 {
            let before = headers.len();
            self.read_headers(file, index, &mut headers)?;
            let mut after = headers.split_off(before);
            after.retain(|(header, _)| {
                let slot = self.slots.get(header.slot as usize);
                header.kind == segment::KIND_LOG
                    && slot.is_some_and(|slot| {
                        matches!(
                            slot.state,
                            SlotState::Log | SlotState::KeyRun | SlotState::Checkpoint
                        ) && header.sequence > slot.sequence
                    })
            });
            headers.append(&mut after);
        }
        let mut watermark = 0;
        let mut bytes = alloc::vec![0; self.geometry.frames_end() - segment::SIZE];
        for (header, _) in headers {
            let start = self.geometry.slot_start(header.slot) + segment::SIZE as u64;
            let end = read_full(file, &mut bytes, start)?;
            let mut at = 0;
            while at < end {
                let frame = FrameHeader::open(&bytes[at..end], header.salt, start + at as u64);
                watermark = frame.map_or(0, |frame| frame.watermark).max(watermark);
                at += frame.map_or(ALIGN, |frame| frame.length as usize);
            }
        }
        Ok(watermark)
    }

    /// Records which headers or trailers are missing although their counterparts exist.
    #[inline(never)]
    fn record_missing_headers(&mut self, headers: &[(SegmentHeader, bool)]) {
        let mut found = alloc::vec![[false; 2]; self.slots.len()];
        for &(SegmentHeader { slot, sequence, .. }, is_trailer) in headers {
            let is_match = self.slots.get(slot as usize).is_some_and(|it| it.sequence == sequence);
            if is_match {
                found[slot as usize][usize::from(is_trailer)] = true;
            }
        }
        for (found, slot) in found.into_iter().zip(0..) {
            let Slot { state: used, sequence, .. } = self.slots[slot as usize];
            if used.has_headers() && found[0] != found[1] {
                let is_trailer = found[0];
                self.leftovers.missing_headers.push(MissingHeader {
                    slot,
                    sequence,
                    is_trailer,
                    by_crash: false,
                });
            }
        }
    }

    /// Decides which of them a crash may have taken: those of segments and extents that no frame
    /// states as flushed, because a flush includes headers; and, if segments were removed without a
    /// checkpoint, those of the segments that were being removed.
    #[inline(never)]
    pub(super) fn classify_missing_headers(&mut self, chain: &Chain) {
        let flushed = self.watermarks.flushed;
        let Superblock { checkpoint_sequence, checkpoint_frame, .. } = self.superblock;
        let going = if checkpoint_sequence == 0 { checkpoint_frame } else { 0 };
        for lost in &mut self.leftovers.missing_headers {
            let slot = &self.slots[lost.slot as usize];
            let is_unflushed = |referenced: &&ReferencedExtent| {
                let ExtentRef { slot, sequence, .. } = referenced.extent;
                let number = chain.frames.get(referenced.frame).map_or(0, |frame| frame.number);
                (slot, sequence) == (lost.slot, lost.sequence) && number >= flushed
            };
            lost.by_crash = match slot.state {
                SlotState::Log => slot.first_frame >= flushed || slot.first_frame < going,
                SlotState::Extent => {
                    chain.extents.iter().any(|referenced| is_unflushed(&referenced))
                }
                _ => false,
            };
        }
    }

    /// Rewrites missing headers and trailers from their counterparts. This is done before the next
    /// flush, because after that a crash does not explain them any more. What cannot be written now
    /// stays missing, which is harmless.
    pub(super) fn rewrite_missing_headers(&mut self, file: &mut impl File) {
        let mut lost = core::mem::take(&mut self.leftovers.missing_headers);
        lost.retain(|lost| self.rewrite_header(file, *lost).is_err());
        self.leftovers.missing_headers = lost;
    }

    #[inline(never)]
    fn rewrite_header(&self, file: &mut impl File, lost: MissingHeader) -> Result<(), Error> {
        let slot = &self.slots.get(lost.slot as usize);
        let is_used =
            |s: &&&Slot| s.state.has_headers() && s.written && s.sequence == lost.sequence;
        let Some(slot) = slot.as_ref().filter(is_used) else { return Ok(()) };
        let start = self.geometry.slot_start(lost.slot);
        let end = self.geometry.slot_start(lost.slot + slot.span) - segment::SIZE as u64;
        let (from, to) = if lost.is_trailer { (start, end) } else { (end, start) };
        let mut bytes = [0; segment::SIZE];
        read_full(file, &mut bytes, from)?;
        let header = SegmentHeader::decode(&bytes, self.superblock.file_id[0], start);
        if header.is_some_and(|it| it.sequence == lost.sequence && it.span == slot.span) {
            write_all(file, &bytes, to)?;
        }
        Ok(())
    }

    /// Adds the valid headers at the start of slot `index` to `found`, and whether each is a
    /// trailer: the trailer of the previous slot and the slot's own header. They are adjacent, so
    /// that one call reads both.
    fn read_headers(
        &self,
        file: &mut impl File,
        index: u32,
        found: &mut Vec<(SegmentHeader, bool)>,
    ) -> Result<(), Error> {
        let mut both = [0; 2 * segment::SIZE];
        read_full(file, &mut both, self.geometry.slot_start(index) - segment::SIZE as u64)?;
        for is_trailer in [true, false] {
            let bytes = &both[if is_trailer { 0 } else { segment::SIZE }..][..segment::SIZE];
            let Some(header) = SegmentHeader::unverified(bytes) else { continue };
            // A trailer refers to its first slot, and its checksum is bound to that.
            let SegmentHeader { slot, span, .. } = header;
            let is_at_slot = match is_trailer {
                true => slot < index && slot.checked_add(span) == Some(index),
                false => slot == index,
            };
            if is_at_slot && self.belongs_to_file(file, &header, bytes, is_trailer)? {
                found.push((header, is_trailer));
            }
        }
        Ok(())
    }

    /// Whether a header or trailer belongs to this file. Without a superblock, its counterpart must
    /// be identical, or missing; and the header of the first slot alone is not accepted, because
    /// its position does not even imply the segment size.
    fn belongs_to_file(
        &self,
        file: &mut impl File,
        header: &SegmentHeader,
        bytes: &[u8],
        is_trailer: bool,
    ) -> Result<bool, Error> {
        let start = self.geometry.slot_start(header.slot);
        if self.superblock.generation > 0 {
            return Ok(SegmentHeader::decode(bytes, self.superblock.file_id[0], start).is_some());
        }
        let end = self.geometry.slot_start(header.slot.saturating_add(header.span));
        let mut other = [0; segment::SIZE];
        read_full(file, &mut other, if is_trailer { start } else { end - segment::SIZE as u64 })?;
        let is_gone = SegmentHeader::unverified(&other).is_none();
        let is_conclusive = is_trailer || header.slot > 0;
        Ok(other == bytes || is_gone && is_conclusive && header.span == 1)
    }

    /// Records the slots of a header unless a newer header has one of them. After power loss the
    /// last item may extend beyond the `count` slots of the file: its missing slots are not given
    /// to others.
    fn occupy(&mut self, header: &SegmentHeader, count: u32) {
        let most = count.saturating_add(self.geometry.extent_span(MAX_VALUE));
        let most = most.min(self.geometry.max_slots());
        let end = header.slot.saturating_add(header.span.max(1)).min(most);
        let range = header.slot as usize..end as usize;
        self.next_sequence = self.next_sequence.max(header.sequence.saturating_add(1));
        if self.slots[range.start..]
            .iter()
            .take(range.len())
            .any(|slot| slot.state != SlotState::Unknown)
        {
            return;
        }
        if range.end > self.slots.len() {
            self.slots.resize_with(range.end, || Slot::new(SlotState::Unknown));
        }
        let used = match header.kind {
            segment::KIND_LOG => SlotState::Log,
            segment::KIND_EXTENT => SlotState::Extent,
            segment::KIND_CHECKPOINT => SlotState::Checkpoint,
            segment::KIND_RUN => SlotState::KeyRun,
            _ => SlotState::UnknownKind,
        };
        self.slots[range].fill_with(|| Slot::new(SlotState::Continuation));
        self.slots[header.slot as usize] = Slot {
            written: true,
            sequence: header.sequence,
            salt: header.salt,
            first_frame: header.first_frame,
            span: end - header.slot,
            // Limited to what fits, whatever the header says.
            length: header.payload.min(self.geometry.payload_capacity(end - header.slot)),
            length_check: header.payload_check,
            dirty_tail: header.flags & segment::FLAG_REUSED != 0,
            ..Slot::new(used)
        };
    }
}
