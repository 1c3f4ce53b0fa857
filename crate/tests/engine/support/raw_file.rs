//! What a file states about flushed frames, read by brute force: every superblock, and every frame
//! at every offset of every segment. It shares the layouts with the engine, but no code that reads
//! them.

use varve::engine::format::checksum::{checksum, seed_at};
use varve::engine::format::frame::{self, FrameHeader};
use varve::engine::format::record::{self, KIND_EXTENT};
use varve::engine::format::segment::{
    self, KIND_EXTENT as KIND_EXTENT_SEGMENT, KIND_LOG, SegmentHeader,
};
use varve::engine::format::superblock::{self, SLOT_STRIDE, Slot, Superblock};
use varve::engine::format::system_records::ExtentRef;
use varve::engine::format::{ALIGN, DATA_START};

/// The raw bytes of a file.
pub struct RawFile<'a> {
    image: &'a [u8],
    superblocks: Vec<Superblock>,
    /// The segment that each slot belongs to.
    segments: Vec<Option<SegmentHeader>>,
}

/// A frame with a correct checksum, and its position.
struct FoundFrame {
    header: FrameHeader,
    slot: usize,
    at: usize,
}

impl<'a> RawFile<'a> {
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
        let mut file = RawFile { image, superblocks, segments: vec![None; slots] };
        let Some(id) = file.superblocks.first().map(|superblock| superblock.file_id[0]) else {
            return file;
        };
        let at = |slot: usize| DATA_START as usize + slot * size;
        let header = |at: usize, start: usize| {
            SegmentHeader::decode(image.get(at..at + segment::SIZE)?, id, start as u64)
        };
        let mut headers = vec![];
        for slot in 0..slots {
            headers.extend(header(at(slot), at(slot)).filter(|h| h.slot as usize == slot));
            let end = at(slot + 1) - segment::SIZE;
            let header_bytes = image.get(end..).and_then(SegmentHeader::unverified);
            let trailer =
                header_bytes.and_then(|header_bytes| header(end, at(header_bytes.slot as usize)));
            headers.extend(trailer.filter(|h| (h.slot + h.span) as usize == slot + 1));
        }
        headers.sort_by_key(|header| std::cmp::Reverse(header.sequence));
        for header in headers {
            let first = header.slot as usize;
            let span = first..(first + header.span as usize).min(slots);
            let slots = &mut file.segments[span];
            if slots.iter().all(Option::is_none) {
                slots.fill(Some(header));
            }
        }
        file
    }

    fn start_of(&self, slot: usize) -> usize {
        DATA_START as usize + (slot << self.superblocks[0].segment_log2)
    }

    /// All frames, wherever they are.
    fn frames(&self) -> Vec<FoundFrame> {
        let mut found = vec![];
        for (slot, header) in self.segments.iter().enumerate() {
            let Some(header) = header.filter(|header| header.kind == KIND_LOG) else { continue };
            let end = self.image.len().min(self.start_of(slot + 1) - segment::SIZE);
            for at in (self.start_of(slot) + segment::SIZE..end).step_by(ALIGN) {
                let frame = FrameHeader::open(&self.image[at..end], header.salt, at as u64);
                found.extend(frame.map(|header| FoundFrame { header, slot, at }));
            }
        }
        found
    }

    /// Frames below this number had been flushed according to the file.
    pub fn witnessed(&self) -> u64 {
        let header_bytes = self.superblocks.iter().map(|superblock| superblock.next_frame);
        let frames = self.frames();
        header_bytes.chain(frames.iter().map(|found| found.header.watermark)).max().unwrap_or(0)
    }

    /// The current superblock.
    pub fn superblock(&self) -> Option<&Superblock> {
        self.superblocks.iter().max_by_key(|superblock| superblock.generation)
    }

    /// Whether a frame from `number` on has a record of this kind.
    pub fn has_kind(&self, kind: u8, number: u64) -> bool {
        let frames = self.frames().into_iter().filter(|found| found.header.number >= number);
        let bytes = frames.map(|found| &self.image[found.at..][..found.header.length as usize]);
        bytes.flat_map(records_of).any(|(of, _)| of == kind)
    }

    /// Whether the commit that begins with frame `number` cannot count in `now`: one of its frames
    /// is missing or different there, or one of its extents is damaged. If the frame was not in
    /// this file any more, whether that holds for any later commit.
    pub fn has_lost(&self, number: u64, now: &RawFile<'_>) -> bool {
        let mut frames = self.frames();
        frames.retain(|found| found.header.number >= number);
        // Of several frames with the same number, the last one counts.
        frames.sort_by_key(|found| {
            let sequence = self.segments[found.slot].map_or(0, |header| header.sequence);
            (found.header.number, std::cmp::Reverse(sequence))
        });
        frames.dedup_by_key(|found| found.header.number);
        let exists = frames.first().is_some_and(|found| found.header.number == number);
        if let (true, Some(last)) = (exists, frames.iter().position(|f| f.header.commits())) {
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

/// The extents that the records of a frame name.
fn extents_of(frame: &[u8]) -> impl Iterator<Item = ExtentRef> {
    let extents = records_of(frame).filter(|(kind, _)| *kind == KIND_EXTENT);
    extents.filter_map(|(_, value)| ExtentRef::decode(value))
}
