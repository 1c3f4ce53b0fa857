//! What a file tells of what was flushed, read by brute force: every superblock, and every frame at
//! every place of every segment. It shares the layouts with the engine, and no way of reading them.

use varve::format::checksum::{checksum, seed_at};
use varve::format::frame::{self, FrameHeader};
use varve::format::record::{self, KIND_EXTENT};
use varve::format::segment::{self, KIND_EXTENT as KIND_EXTENT_SEGMENT, KIND_LOG, SegmentHeader};
use varve::format::superblock::{self, SLOT_STRIDE, Slot, Superblock};
use varve::format::system_records::ExtentRef;
use varve::format::{ALIGN, DATA_START};

/// A file as it lies there.
pub struct Medium<'a> {
    image: &'a [u8],
    superblocks: Vec<Superblock>,
    /// What stands in each slot, and belongs to it.
    segments: Vec<Option<SegmentHeader>>,
}

/// A frame whose checksum holds, and its place.
struct Found {
    header: FrameHeader,
    slot: usize,
    at: usize,
}

impl<'a> Medium<'a> {
    pub fn new(image: &'a [u8], segment_log2: u8) -> Self {
        let valid = |slot: u64| {
            let bytes = image.get((slot * SLOT_STRIDE) as usize..).unwrap_or_default();
            match Superblock::decode(&bytes[..bytes.len().min(superblock::SIZE)], slot) {
                Slot::Valid(superblock) => Some(*superblock),
                _ => None,
            }
        };
        let superblocks: Vec<_> = (0..2).filter_map(valid).collect();
        let size = 1 << segment_log2;
        let slots = image.len().saturating_sub(DATA_START as usize).div_ceil(size);
        let mut medium = Medium { image, superblocks, segments: vec![None; slots] };
        let Some(id) = medium.superblocks.first().map(|superblock| superblock.file_id[0]) else {
            return medium;
        };
        let at = |slot: usize| DATA_START as usize + slot * size;
        let header = |at: usize, start: usize| {
            SegmentHeader::decode(image.get(at..at + segment::SIZE)?, id, start as u64)
        };
        let mut headers = vec![];
        for slot in 0..slots {
            headers.extend(header(at(slot), at(slot)).filter(|h| h.slot as usize == slot));
            let end = at(slot + 1) - segment::SIZE;
            let told = image.get(end..).and_then(SegmentHeader::unverified);
            let trailer = told.and_then(|told| header(end, at(told.slot as usize)));
            headers.extend(trailer.filter(|h| (h.slot + h.span) as usize == slot + 1));
        }
        headers.sort_by_key(|header| std::cmp::Reverse(header.sequence));
        for header in headers {
            let first = header.slot as usize;
            let room = first..(first + header.span as usize).min(slots);
            let slots = &mut medium.segments[room];
            if slots.iter().all(Option::is_none) {
                slots.fill(Some(header));
            }
        }
        medium
    }

    fn start_of(&self, slot: usize) -> usize {
        DATA_START as usize + (slot << self.superblocks[0].segment_log2)
    }

    /// All frames, wherever they lie.
    fn frames(&self) -> Vec<Found> {
        let mut found = vec![];
        for (slot, header) in self.segments.iter().enumerate() {
            let Some(header) = header.filter(|header| header.kind == KIND_LOG) else { continue };
            let end = self.image.len().min(self.start_of(slot + 1) - segment::SIZE);
            for at in (self.start_of(slot) + segment::SIZE..end).step_by(ALIGN) {
                let frame = FrameHeader::open(&self.image[at..end], header.salt, at as u64);
                found.extend(frame.map(|header| Found { header, slot, at }));
            }
        }
        found
    }

    /// Frames below this number had been flushed: something says so.
    pub fn witnessed(&self) -> u64 {
        let told = self.superblocks.iter().map(|superblock| superblock.next_frame);
        let frames = self.frames();
        told.chain(frames.iter().map(|found| found.header.watermark)).max().unwrap_or(0)
    }

    /// The superblock that counts.
    pub fn superblock(&self) -> Option<&Superblock> {
        self.superblocks.iter().max_by_key(|superblock| superblock.generation)
    }

    /// Whether a frame from `number` on has a record of that kind.
    pub fn has_kind(&self, kind: u8, number: u64) -> bool {
        let frames = self.frames().into_iter().filter(|found| found.header.number >= number);
        let bytes = frames.map(|found| &self.image[found.at..][..found.header.length as usize]);
        bytes.flat_map(records_of).any(|(of, _)| of == kind)
    }

    /// Whether the commit that begins with frame `number` cannot count `now`: a frame of it is not there
    /// as it is here, or one of its extents does not hold. Where the frame was not here any more,
    /// whether that is so of anything behind it.
    pub fn has_lost(&self, number: u64, now: &Medium<'_>) -> bool {
        let mut frames = self.frames();
        frames.retain(|found| found.header.number >= number);
        // Of frames with one number the last counts.
        frames.sort_by_key(|found| {
            let sequence = self.segments[found.slot].map_or(0, |header| header.sequence);
            (found.header.number, std::cmp::Reverse(sequence))
        });
        frames.dedup_by_key(|found| found.header.number);
        let is_there = frames.first().is_some_and(|found| found.header.number == number);
        if let (true, Some(last)) = (is_there, frames.iter().position(|f| f.header.commits())) {
            frames.truncate(last + 1);
        }
        frames.iter().any(|found| {
            let bytes = found.at..found.at + found.header.length as usize;
            let frame = &self.image[bytes.clone()];
            let stands = now.segments.get(found.slot) == self.segments.get(found.slot);
            !stands
                || now.image.get(bytes) != Some(frame)
                || extents_of(frame).any(|extent| !now.holds(&extent))
        })
    }

    fn holds(&self, extent: &ExtentRef) -> bool {
        let first = self.segments.get(extent.slot as usize).copied().flatten();
        let of = first.filter(|header| {
            let name = (header.kind, header.sequence, header.slot, header.payload);
            name == (KIND_EXTENT_SEGMENT, extent.sequence, extent.slot, extent.length)
        });
        of.is_some_and(|header| {
            let at = self.start_of(extent.slot as usize) + segment::SIZE;
            let value = self.image.get(at..at + extent.length as usize);
            let sum = |value| checksum(value, seed_at(header.salt, at as u64));
            value.is_some_and(|value| sum(value) == extent.check)
        })
    }
}

/// Kinds and values of the records of a frame.
fn records_of(frame: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut at = frame::SIZE;
    std::iter::from_fn(move || {
        let (header, _, value) = record::parts(frame.get(at..)?)?;
        at += header.size();
        Some((header.kind, value))
    })
}

/// What the records of a frame name.
fn extents_of(frame: &[u8]) -> impl Iterator<Item = ExtentRef> {
    let extents = records_of(frame).filter(|(kind, _)| *kind == KIND_EXTENT);
    extents.filter_map(|(_, value)| ExtentRef::decode(value))
}
