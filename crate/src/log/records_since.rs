//! Going over all records of the log from some point on, the engine's own among them.

use alloc::vec::Vec;

use crate::error::{Error, damaged};
use crate::file::File;
use crate::format::frame;
use crate::format::record::{self, RecordHeader};
use crate::format::segment;
use crate::format::superblock::MODE_KEEP_HISTORY;
use crate::index::Position;

use super::log_start::WalkStart;
use super::log_walk::Loaded;
use super::{Log, Slot, SlotState};

/// A record of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundRecord<'a> {
    /// Where it is.
    pub position: Position,
    pub header: &'a RecordHeader,
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// Whether it is the first one of a commit.
    pub begins: bool,
    /// Whether maintenance wrote it.
    pub is_moved: bool,
    /// The sequence of its segment.
    pub sequence: u32,
}

/// The memory of a walk: the segment that was read last.
#[derive(Debug)]
pub(crate) struct WalkMemory(Loaded);

impl WalkMemory {
    pub(crate) fn new() -> Self {
        WalkMemory(Loaded::empty())
    }
}

impl Log {
    /// Whether nothing that was replaced or deleted is dropped.
    #[inline]
    pub(crate) fn keeps_history(&self) -> bool {
        self.superblock.mode & MODE_KEEP_HISTORY != 0
    }

    /// As [`start_of`](Log::start_of), with the memory of the walk that follows.
    pub(crate) fn start_in(
        &self,
        file: &mut impl File,
        memory: &mut WalkMemory,
        since: u64,
    ) -> Result<Option<WalkStart>, Error> {
        self.walk_start(file, &mut memory.0, since)
    }

    /// Passes the records from a start on to `visit`, in the order of the log, until it returns false. The open batch
    /// is not part of the log.
    ///
    /// # Errors
    /// An error of the file; [`Error::Corruption`] for a frame that is damaged or missing.
    pub(crate) fn records_since(
        &self,
        file: &mut impl File,
        memory: &mut WalkMemory,
        start: WalkStart,
        visit: &mut dyn FnMut(FoundRecord<'_>) -> bool,
    ) -> Result<(), Error> {
        let loaded = &mut memory.0;
        let (mut at, mut expected, mut begins) = (start.offset, start.frame, true);
        for (sequence, index) in self.by_sequence() {
            if sequence < start.sequence {
                continue;
            }
            if !loaded.is_whole(self, index) {
                self.load_walked(file, loaded, index, segment::SIZE)?;
            }
            let first = self.geometry.slot_start(index);
            let end = self.slots[index as usize].end as usize;
            while at < end {
                let header = loaded.frame(self, at, expected);
                let Some(header) = header.filter(|it| at + it.length as usize <= end) else {
                    return Err(damaged(first + at as u64));
                };
                let (frame_end, is_moved) = (at + header.length as usize, header.is_moved());
                let commits = header.commits();
                let mut offset = at + frame::SIZE;
                while offset < frame_end {
                    let Ok((header, key, value)) =
                        record::validate(&loaded.bytes[offset..frame_end])
                    else {
                        return Err(damaged(first + offset as u64));
                    };
                    let position = self.geometry.position(index, offset);
                    offset += header.size();
                    let found =
                        FoundRecord { position, header, key, value, begins, is_moved, sequence };
                    if !visit(found) {
                        return Ok(());
                    }
                    begins = false;
                }
                begins = commits;
                (at, expected) = (frame_end, expected + 1);
            }
            at = segment::SIZE;
        }
        Ok(())
    }

    /// The sequences of the segments that may be replayed beside one that is being emptied: those that are about to be
    /// freed together with it are not among them if none precedes it that stays.
    pub(crate) fn kept_sequences(&self, slot: u32) -> Vec<u32> {
        let stays = |index: u32| !self.slots[index as usize].retired;
        let order = self.by_sequence();
        let is_first =
            order.iter().find(|&&(_, index)| stays(index)).is_some_and(|it| it.1 == slot);
        let kept = order.into_iter().filter(|&(_, index)| !is_first || stays(index));
        kept.map(|(sequence, _)| sequence).collect()
    }

    /// Turns a copy at the end of the open batch into a record that only the past has.
    pub(crate) fn make_past(&mut self, position: Position) {
        if let Some(header) = RecordHeader::at_mut(self.record_mut(position)) {
            header.kind |= record::KIND_PAST;
            (header.previous, header.replaced) = (0, [0; 3]);
        }
    }

    /// The position of the record of `size` bytes that was appended last.
    pub(crate) fn last_appended(&self, size: usize) -> Position {
        let (slot, tail) = self.tail();
        self.geometry.position(slot.unwrap_or_default(), tail - size)
    }

    /// How many segments there are from a sequence on, and whether any of them has a tombstone.
    pub(crate) fn segments_from(&self, sequence: u32) -> (u32, bool) {
        let later = self.by_sequence().into_iter().filter(|&(other, _)| other >= sequence);
        later.fold((0, false), |(count, has_any), (_, index)| {
            (count + 1, has_any || self.slots[index as usize].tombstones.bytes() > 0)
        })
    }

    /// The sequence of the segment of a position, if the record there is still the one that a record in the segment of
    /// `sequence` replaced: it was not begun later, and is not about to be freed.
    pub(crate) fn kept_in(&self, position: Position, sequence: u32) -> Option<u32> {
        let slot = self.slots.get(self.geometry.locate(position).0 as usize);
        let is_kept = |slot: &&Slot| {
            slot.state == SlotState::Log
                && slot.written
                && !slot.retired
                && slot.sequence <= sequence
        };
        slot.filter(is_kept).map(|slot| slot.sequence)
    }
}
