//! The reserve: blank slots that only deletions and housekeeping take, so that a full disk can be
//! emptied.

use crate::error::Error;
use crate::file::{File, write_all};
use crate::format::segment;

use super::reclaim::write_zeros;
use super::{Log, Slot, Use};

/// A file of fewer slots has no reserve.
const LEAST_SLOTS: u32 = 8;
/// One to move records into, and one for deletions meanwhile.
const RESERVE: u32 = 2;

/// What room is needed for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Need {
    /// The reserve stays as it is.
    #[default]
    Write,
    /// Deletions, and records that move, free more than they take: where the file cannot grow they
    /// take the reserve.
    Relief,
    /// The reserve stays, and room that is coming does not count: it may come by the checkpoint only.
    Checkpoint,
}

impl Log {
    /// Says what comes; answers what was said before.
    pub(crate) fn need(&mut self, need: Need) -> Need {
        std::mem::replace(&mut self.need, need)
    }

    /// Whether the file could not grow when it was asked last.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Whether blank slots are missing that should be there.
    pub(crate) fn lacks_reserve(&self) -> bool {
        self.blank_slots() < self.reserve_for(self.file_slots)
    }

    fn reserve_for(&self, slots: u32) -> u32 {
        if slots < LEAST_SLOTS { 0 } else { RESERVE }
    }

    /// Slots that housekeeping is about to make blank.
    fn coming_slots(&self) -> u32 {
        let comes = |s: &&Slot| matches!(s.used, Use::Garbage | Use::Dirty);
        self.slots.iter().filter(comes).count() as u32
    }

    fn blank_slots(&self) -> u32 {
        let is_blank = |slot: &&Slot| matches!(slot.used, Use::Spare | Use::Unknown);
        self.slots.iter().filter(is_blank).count() as u32
    }

    /// How many blank slots are worth keeping at the end of the file, of so many.
    pub(super) fn kept_at_end(&self, at_end: usize) -> usize {
        let elsewhere = self.blank_slots().saturating_sub(at_end as u32);
        let missing = self.reserve_for(self.slots.len() as u32).saturating_sub(elsewhere);
        at_end.min((missing as usize).max(1))
    }

    /// Finds `span` slots in a row and makes sure that the file has them, and the reserve beside them.
    ///
    /// # Errors
    /// What the file said; nothing has changed then, but for the file's length.
    #[inline(never)]
    pub(super) fn find_room(&mut self, file: &mut impl File, span: u32) -> Result<u32, Error> {
        let found = self.find_spare(file, span)?;
        let (mut first, mut missing) = (found, 0);
        let coming = if self.need == Need::Checkpoint { 0 } else { self.coming_slots() };
        let blank = self.blank_slots() + coming;
        let taken = (self.slots.len() as u32).saturating_sub(found).min(span);
        let reserve = self.reserve_for(self.file_slots.max(found + span));
        if blank.saturating_sub(taken) < reserve {
            first = self.slots.len() as u32;
            missing = reserve.saturating_sub(blank);
        }
        self.check_limits(first.saturating_add(span + missing - 1))?;
        let mut grown = self.extend(file, first, span, missing);
        if first + span > self.file_slots {
            self.full = grown == Err(Error::Quota);
        }
        let in_file = found + span <= self.slots.len() as u32;
        if self.need == Need::Relief && self.full && in_file {
            (first, missing) = (found, 0);
            grown = self.extend(file, first, span, 0);
        }
        grown?;
        if missing > 0 {
            let end = (first + span + missing) as usize;
            self.slots.resize_with(end, || Slot::new(Use::Spare));
        }
        self.file_slots = self.file_slots.max(first + span + missing);
        Ok(first)
    }

    /// The end of what is taken is written first, so that a full disk is known before anything is
    /// promised. A reserve is written whole: a hole in a file is no room.
    fn extend(
        &mut self,
        file: &mut impl File,
        first: u32,
        span: u32,
        missing: u32,
    ) -> Result<(), Error> {
        let end = self.geometry.slot_start(first + span);
        write_all(file, &[0; segment::SIZE], end - segment::SIZE as u64)?;
        let length = missing as usize * self.geometry.segment();
        let filled = write_zeros(file, end, length, |_, _, _| Err(Error::Quota));
        if filled.is_err() {
            // What cannot be cut off is found blank by the next opening.
            let _ = file.truncate(self.geometry.slot_start(self.file_slots));
        }
        filled
    }
}
