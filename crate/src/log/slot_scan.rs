//! Which slots of the file are used for what: told by headers, and by trailers where those are gone.

use alloc::vec::Vec;

use crate::error::Error;
use crate::file::{File, read_full, write_all};
use crate::format::segment::{self, SegmentHeader};
use crate::format::superblock::Superblock;
use crate::format::system_records::ExtentRef;
use crate::format::{DATA_START, MAX_VALUE};
use crate::radix_sort;

use super::frame_chain::{Chain, NamedExtent};
use super::{Log, LostCopy, Slot, SlotState};

impl Log {
    /// Reads headers, or trailers where headers are gone, of every slot of the file.
    pub(super) fn find_slots(&mut self, file: &mut impl File, size: u64) -> Result<(), Error> {
        let segment = self.geometry.segment() as u64;
        let count = size.saturating_sub(DATA_START).div_ceil(segment);
        let count = u32::try_from(count).ok().filter(|&n| n <= self.geometry.max_slots());
        let count = count.ok_or(Error::NotADatabase)?;
        self.slots = (0..count).map(|_| Slot::new(SlotState::Unknown)).collect();
        let mut headers = Vec::new();
        for index in 0..=count {
            self.read_headers(file, index, &mut headers)?;
        }
        // The newest use of a slot counts: a crash may leave one copy of an older header there.
        let order = headers.iter().zip(0..).map(|((header, _), i)| (header.sequence, i)).collect();
        for (_, i) in radix_sort::by_number(order).into_iter().rev() {
            self.occupy(&headers[i as usize].0, count);
        }
        self.note_lost_copies(&headers);
        self.count_slots();
        Ok(())
    }

    /// Notes which headers and trailers were not found of what has the other one.
    #[inline(never)]
    fn note_lost_copies(&mut self, headers: &[(SegmentHeader, bool)]) {
        let mut found = alloc::vec![[false; 2]; self.slots.len()];
        for &(SegmentHeader { slot, sequence, .. }, is_trailer) in headers {
            let is_it = self.slots.get(slot as usize).is_some_and(|it| it.sequence == sequence);
            if is_it {
                found[slot as usize][usize::from(is_trailer)] = true;
            }
        }
        for (found, slot) in found.into_iter().zip(0..) {
            let Slot { state: used, sequence, .. } = self.slots[slot as usize];
            if matches!(used, SlotState::Log | SlotState::Extent | SlotState::Checkpoint)
                && found[0] != found[1]
            {
                let is_trailer = found[0];
                self.lost_copies.push(LostCopy { slot, sequence, is_trailer, by_crash: false });
            }
        }
    }

    /// Finds out which of them a crash may have taken: those of what came with frames of which nothing says
    /// that they were flushed, since a flush takes headers along; and where nothing but the lack of a
    /// checkpoint had segments go, of those that were going.
    #[inline(never)]
    pub(super) fn classify_lost_copies(&mut self, chain: &Chain) {
        let flushed = self.flushed_frames;
        let Superblock { checkpoint_sequence, checkpoint_frame, .. } = self.superblock;
        let going = if checkpoint_sequence == 0 { checkpoint_frame } else { 0 };
        for lost in &mut self.lost_copies {
            let slot = &self.slots[lost.slot as usize];
            let is_unflushed = |named: &&NamedExtent| {
                let ExtentRef { slot, sequence, .. } = named.extent;
                let number = chain.frames.get(named.frame).map_or(0, |frame| frame.number);
                (slot, sequence) == (lost.slot, lost.sequence) && number >= flushed
            };
            lost.by_crash = match slot.state {
                SlotState::Log => slot.first_frame >= flushed || slot.first_frame < going,
                SlotState::Extent => chain.extents.iter().any(|named| is_unflushed(&named)),
                _ => false,
            };
        }
    }

    /// Writes headers and trailers anew that opening did not find, by the other copy: before the flush from
    /// which on nothing tells any more that it was a crash that took them. What cannot be written now stays
    /// as it is, which harms nothing.
    pub(super) fn restore_copies(&mut self, file: &mut impl File) {
        let mut lost = core::mem::take(&mut self.lost_copies);
        lost.retain(|lost| self.restore_copy(file, *lost).is_err());
        self.lost_copies = lost;
    }

    #[inline(never)]
    fn restore_copy(&self, file: &mut impl File, lost: LostCopy) -> Result<(), Error> {
        let slot = &self.slots.get(lost.slot as usize);
        let is_used = |s: &&&Slot| {
            let used =
                matches!(s.state, SlotState::Log | SlotState::Extent | SlotState::Checkpoint);
            used && s.written && s.sequence == lost.sequence
        };
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

    /// Adds what stands where slot `index` begins, as far as it is valid, and whether it is a trailer: the trailer
    /// of the slot before it and its own header. They lie side by side, so that one call reads both.
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
            // A trailer names its first slot, which its checksum is bound to.
            let SegmentHeader { slot, span, .. } = header;
            let here = match is_trailer {
                true => slot < index && slot.checked_add(span) == Some(index),
                false => slot == index,
            };
            if here && self.is_ours(file, &header, bytes, is_trailer)? {
                found.push((header, is_trailer));
            }
        }
        Ok(())
    }

    /// Whether a header or trailer is one of this file. Without a superblock the other copy has to
    /// confirm it, or be gone; where the header of the first slot stands does not even tell how large
    /// segments are.
    fn is_ours(
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
        let tells = is_trailer || header.slot > 0;
        Ok(other == bytes || is_gone && tells && header.span == 1)
    }

    /// Enters a header's slots, unless a newer header has one of them. Of a file of `count` slots the last
    /// thing may be longer than what power loss left of the file: what is missing is not given to others.
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
            _ => SlotState::UnknownKind,
        };
        self.slots[range].fill_with(|| Slot::new(SlotState::Continuation));
        self.slots[header.slot as usize] = Slot {
            written: true,
            sequence: header.sequence,
            salt: header.salt,
            first_frame: header.first_frame,
            span: end - header.slot,
            // More than there is room for it cannot be, whatever the header says.
            length: header.payload.min(self.geometry.room_of(end - header.slot)),
            length_check: header.payload_check,
            dirty_tail: header.flags & segment::FLAG_REUSED != 0,
            ..Slot::new(used)
        };
    }
}
