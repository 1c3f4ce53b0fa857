//! A log that replaces a damaged one in the same file.
//!
//! It begins after the end of the old log and has a file identity of its own, to which the headers
//! of its segments are bound. A reader that starts from the old superblocks does not recognize the
//! new segments, and one that starts from the new superblock does not recognize the old ones. So
//! writing one superblock switches logs, and a crash at any moment leaves one of the two.

use alloc::boxed::Box;

use crate::error::Error;
use crate::file::File;
use crate::format::checksum::checksum;
use crate::format::record::RecordHeader;
use crate::format::superblock::{COMPATIBLE_HISTORY, Superblock};

use super::buffer_pool::Pool;
use super::{Log, RecoveryState, Slot, SlotState};

impl Log {
    /// An empty log after this one.
    ///
    /// # Errors
    /// [`Error::UnsupportedFormat`] if there are segments of a kind that this build does not know,
    /// because it cannot say what would be lost with them.
    pub(crate) fn successor(&self, pool: Pool, next_version: u64) -> Result<Log, Error> {
        if self.slots.iter().any(|slot| slot.state == SlotState::UnknownKind) {
            let major = self.superblock.major;
            return Err(Error::UnsupportedFormat { major, features: Box::default() });
        }
        let old = &self.superblock;
        let identity = |i: usize| checksum(&old.file_id[i].to_le_bytes(), self.entropy);
        let superblock = Superblock {
            // Everything from the next version on is certain.
            uncertain_below: self.uncertain_below().min(next_version),
            compatible: old.compatible | COMPATIBLE_HISTORY,
            file_id: [identity(0), identity(1)],
            next_frame: self.next_frame,
            next_sequence: u64::from(self.next_sequence),
            first_sequence: u64::from(self.next_sequence),
            first_frame: self.next_frame,
            checkpoint_sequence: 0,
            checkpoint_frame: 0,
            checkpoint_slot: 0,
            ..*old
        };
        let mut log = Log::empty(superblock, self.entropy, pool);
        // The old log is not touched, and no superblock is written before the new log is complete.
        log.slots = self.slots.iter().map(|_| Slot::new(SlotState::UnknownKind)).collect();
        log.space.factor = self.space.factor;
        log.count_slots();
        log.superblock_state.marked_open = true;
        Ok(log)
    }

    /// Makes this log, which is complete and flushed, the current one. The old log becomes reclaimable.
    ///
    /// # Errors
    /// An error of the file: either log may be the current one then.
    pub(crate) fn activate(
        &mut self,
        file: &mut impl File,
        next_version: u64,
    ) -> Result<(), Error> {
        for _ in 0..2 {
            self.write_superblock(file, None, next_version)?;
            self.flush(file)?;
        }
        for index in 0..self.slots.len() {
            if self.slots[index].state == SlotState::UnknownKind {
                self.discard(index as u32);
            }
        }
        Ok(())
    }

    /// The recovery state: what was damaged.
    pub(crate) fn recovery_state(&self) -> RecoveryState {
        self.recovery
    }

    /// Whether lost frames may have changed or deleted the key of this record.
    pub(crate) fn is_uncertain(&self, header: &RecordHeader) -> bool {
        header.version < self.uncertain_below()
    }

    pub(crate) fn uncertain_below(&self) -> u64 {
        self.recovery.uncertain_below.max(self.superblock.uncertain_below)
    }
}
