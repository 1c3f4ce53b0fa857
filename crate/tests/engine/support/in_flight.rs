//! What each write of a history contains: crash states that concern only small commits would prove
//! little.

use varve::engine::aligned_buf::AlignedBytes;
use varve::engine::format::record::{self, KIND_CHUNKED};
use varve::engine::format::{frame, segment};

use super::fault_file::Event;
use super::oracle::Mark;

/// What a crash may have torn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// A value in an extent.
    pub extent: bool,
    /// A chunked value.
    pub chunks: bool,
    /// A commit of more than one frame.
    pub frames: bool,
}

impl InFlight {
    fn add(&mut self, other: InFlight) {
        self.extent |= other.extent;
        self.chunks |= other.chunks;
        self.frames |= other.frames;
    }

    fn of(bytes: &[u8]) -> Self {
        let magic = |at: usize| {
            let word = bytes.get(at + 8..at + 12)?;
            word.try_into().ok().map(u32::from_le_bytes)
        };
        let is_segment = magic(0) == Some(segment::MAGIC);
        let start = if is_segment { segment::SIZE } else { 0 };
        // The commit flag is set only in the last frame of a commit.
        let incomplete = magic(start) == Some(frame::MAGIC)
            && bytes
                .get(start + 36)
                .is_some_and(|flags| u32::from(*flags) & frame::FLAG_COMMIT == 0);
        let extent = is_segment && bytes.get(12) == Some(&segment::KIND_EXTENT);
        let is_frame = magic(start) == Some(frame::MAGIC);
        let chunks = is_frame && has_chunks(bytes.get(start + frame::SIZE..).unwrap_or_default());
        InFlight { extent, chunks, frames: incomplete }
    }
}

/// Whether one of these records has a chunked value.
fn has_chunks(records: &[u8]) -> bool {
    // The bytes may be unaligned.
    let mut aligned = AlignedBytes::zeroed(records.len());
    aligned[..records.len()].copy_from_slice(records);
    let mut rest = &aligned[..records.len()];
    while let Some((header, _, _)) = record::parts(rest) {
        if header.kind == KIND_CHUNKED {
            return true;
        }
        rest = rest.get(header.size()..).unwrap_or_default();
    }
    false
}

/// For each event: what the call that it belongs to writes in all, and what was written and not
/// flushed after it.
pub fn in_flight_writes(events: &[Event]) -> Vec<[InFlight; 2]> {
    let mut all = vec![[InFlight::default(); 2]; events.len()];
    let (mut begin, mut call, mut unflushed) = (0, InFlight::default(), InFlight::default());
    for (i, event) in events.iter().enumerate() {
        match event {
            Event::Write { bytes, .. } => {
                call.add(InFlight::of(bytes));
                unflushed.add(InFlight::of(bytes));
            }
            Event::Flush => unflushed = InFlight::default(),
            Event::Mark(Mark::Trying(_)) => (begin, call) = (i, InFlight::default()),
            Event::Mark(_) => {
                all[begin..i].iter_mut().for_each(|[during, _]| *during = call);
                (begin, call) = (i, InFlight::default());
            }
            Event::Truncate(_) => {}
        }
        all[i][1] = unflushed;
    }
    all
}
