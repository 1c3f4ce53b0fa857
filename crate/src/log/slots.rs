//! Which slots of the file are used for what: told by headers, and by trailers where those are gone.

use crate::error::Error;
use crate::file::{File, read_full};
use crate::format::DATA_START;
use crate::format::segment::{self, SegmentHeader};
use crate::memory::AlignedBytes;
use crate::sort;

use super::{Log, Slot, Use};

impl Log {
    /// Reads headers, or trailers where headers are gone, of every slot of the file.
    pub(super) fn find_slots(&mut self, file: &mut impl File, size: u64) -> Result<(), Error> {
        let segment = self.geometry.segment() as u64;
        let count = size.saturating_sub(DATA_START).div_ceil(segment);
        let count = u32::try_from(count).ok().filter(|&n| n <= self.geometry.max_slots());
        let count = count.ok_or(Error::NotADatabase)?;
        self.file_slots = count;
        self.slots = (0..count).map(|_| Slot::new(Use::Unknown)).collect();
        let mut headers = Vec::new();
        for index in 0..count {
            self.read_headers(file, index, &mut headers)?;
        }
        // The newest use of a slot counts: a crash may leave one copy of an older header there.
        let order = headers.iter().zip(0..).map(|(header, i)| (header.sequence, i)).collect();
        for (_, i) in sort::by_number(order).into_iter().rev() {
            self.occupy(&headers[i as usize], count);
        }
        Ok(())
    }

    /// Adds the headers that stand at the start of slot `index` and, as trailers, at its end.
    fn read_headers(
        &self,
        file: &mut impl File,
        index: u32,
        found: &mut Vec<SegmentHeader>,
    ) -> Result<(), Error> {
        let file_id = self.superblock.file_id[0];
        let start = self.geometry.slot_start(index);
        let mut bytes = [0; segment::SIZE];
        read_full(file, &mut bytes, start)?;
        found.extend(SegmentHeader::decode(&bytes, file_id, start).filter(|h| h.slot == index));
        bytes.fill(0);
        read_full(file, &mut bytes, start + self.geometry.room_end() as u64)?;
        // A trailer names its first slot, which its checksum is bound to.
        let first = u32::from_le_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]);
        if first <= index {
            let trailer = SegmentHeader::decode(&bytes, file_id, self.geometry.slot_start(first));
            let ends_here = |h: &SegmentHeader| first.checked_add(h.span) == Some(index + 1);
            found.extend(trailer.filter(|h| h.slot == first && ends_here(h)));
        }
        Ok(())
    }

    /// Enters a header's slots, unless a newer header has one of them.
    fn occupy(&mut self, header: &SegmentHeader, count: u32) {
        let end = header.slot.saturating_add(header.span.max(1)).min(count);
        let range = header.slot as usize..end as usize;
        self.next_sequence = self.next_sequence.max(header.sequence.saturating_add(1));
        if self.slots[range.clone()].iter().any(|slot| slot.used != Use::Unknown) {
            return;
        }
        let used = match header.kind {
            segment::KIND_LOG => Use::Log,
            segment::KIND_EXTENT => Use::Extent,
            segment::KIND_CHECKPOINT => Use::Checkpoint,
            _ => Use::Foreign,
        };
        self.slots[range].fill_with(|| Slot::new(Use::Body));
        self.slots[header.slot as usize] = Slot {
            written: true,
            sequence: header.sequence,
            salt: header.salt,
            first_frame: header.first_frame,
            span: end - header.slot,
            length: header.payload,
            length_check: header.payload_check,
            ..Slot::new(used)
        };
    }

    /// Makes a slot of which nothing is known spare if it holds only zeros, so that using it
    /// overwrites nothing. Otherwise it is garbage: all that is needed has been found.
    pub(super) fn look_at(&mut self, file: &mut impl File, index: u32) -> Result<(), Error> {
        let mut bytes = AlignedBytes::zeroed(self.geometry.segment());
        read_full(file, &mut bytes, self.geometry.slot_start(index))?;
        let is_blank = bytes.iter().all(|&b| b == 0);
        self.slots[index as usize].used = if is_blank { Use::Spare } else { Use::Garbage };
        self.untidy |= !is_blank;
        self.count_spare();
        Ok(())
    }
}
