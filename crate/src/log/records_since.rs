//! Going over all records of the log from some point on, the engine's own among them.

use crate::error::{Error, damaged};
use crate::file::File;
use crate::format::frame;
use crate::format::record::{self, RecordHeader};
use crate::format::segment;
use crate::format::superblock::MODE_KEEP_HISTORY;
use crate::index::hash_index::Position;

use super::log_start::WalkStart;
use super::log_walk::Loaded;
use super::{Log, SlotState};

/// A record of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundRecord<'a> {
    /// Where it is.
    pub position: Position,
    pub header: &'a RecordHeader,
    pub key: &'a [u8],
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
                self.load_walked(file, loaded, index)?;
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
                    let Ok((header, key, _)) = record::validate(&loaded.bytes[offset..frame_end])
                    else {
                        return Err(damaged(first + offset as u64));
                    };
                    let position = self.geometry.position(index, offset);
                    offset += header.size();
                    let found =
                        FoundRecord { position, header, key, begins, is_moved, sequence };
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

    /// Whether the record at a position is still the one that a record in the segment of this sequence replaced: the
    /// segment was not begun later, and is not about to be freed.
    pub(crate) fn has_kept(&self, position: Position, sequence: u32) -> bool {
        let slot = self.slots.get(self.geometry.locate(position).0 as usize);
        slot.is_some_and(|slot| {
            slot.state == SlotState::Log
                && slot.written
                && !slot.retired
                && slot.sequence <= sequence
        })
    }
}
