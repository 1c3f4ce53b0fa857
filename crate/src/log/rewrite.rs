//! A log that takes the place of a damaged one, in the same file.
//!
//! It begins behind the file's end and has an identity of its own, to which the headers of its
//! segments are bound: for whoever reads the file by the old superblocks it is not there, and by the
//! new one the old log is not. So one write of a superblock changes from the one to the other, and a
//! crash at any moment leaves either.

use alloc::boxed::Box;

use crate::error::Error;
use crate::file::File;
use crate::format::checksum::checksum;
use crate::format::record::RecordHeader;
use crate::format::superblock::{Superblock, UNCERTAIN_BELOW};

use super::buffer_pool::Pool;
use super::{Log, RecoveryState, Slot, SlotState};

impl Log {
    /// An empty log behind this one.
    ///
    /// # Errors
    /// [`Error::UnsupportedFormat`] when there are segments of a kind that this build does not know:
    /// nobody could tell what is lost with them.
    pub(crate) fn successor(&self, pool: Pool, next_version: u64) -> Result<Log, Error> {
        if self.slots.iter().any(|slot| slot.state == SlotState::UnknownKind) {
            let major = self.superblock.major;
            return Err(Error::UnsupportedFormat { major, features: Box::default() });
        }
        let old = &self.superblock;
        let identity = |i: usize| checksum(&old.file_id[i].to_le_bytes(), self.entropy);
        let mut reserved = old.reserved;
        // What comes next is certain.
        reserved[UNCERTAIN_BELOW] = self.uncertain_below().min(next_version);
        let superblock = Superblock {
            reserved,
            file_id: [identity(0), identity(1)],
            next_frame: self.next_frame,
            next_sequence: u64::from(self.next_sequence),
            first_sequence: u64::from(self.next_sequence),
            first_frame: self.next_frame,
            checkpoint_sequence: 0,
            checkpoint_frame: 0,
            ..*old
        };
        let mut log = Log::empty(superblock, self.entropy, pool);
        // Nothing of the old one is touched, and no superblock is written before all is there.
        log.slots = self.slots.iter().map(|_| Slot::new(SlotState::UnknownKind)).collect();
        log.factor = self.factor;
        log.count_slots();
        log.marked_open = true;
        Ok(log)
    }

    /// Makes a log that is complete and flushed the one that counts. The old one is garbage then.
    ///
    /// # Errors
    /// What the file said: either of the two may count.
    pub(crate) fn succeed(&mut self, file: &mut impl File, next_version: u64) -> Result<(), Error> {
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

    /// What is left of what was damaged.
    pub(crate) fn recovery_state(&self) -> RecoveryState {
        self.recovery
    }

    /// Whether lost frames may have changed or deleted the key of this record.
    pub(crate) fn is_uncertain(&self, header: &RecordHeader) -> bool {
        header.version < self.uncertain_below()
    }

    fn uncertain_below(&self) -> u64 {
        self.recovery.uncertain_below.max(self.superblock.reserved[UNCERTAIN_BELOW])
    }
}
