//! Where new segments go, and the reserve: free slots at the end of the file that no ordinary write
//! takes, so that a full disk can be emptied.
//!
//! The first room there is is taken, so that the file can be cut off behind it, and the file grows by
//! as much as is missing from the reserve then. Where it cannot grow, deletions and records that move
//! take the reserve. A file that has reached its bound need not grow for it: there compaction is sure to
//! make room.

use crate::error::Error;
use crate::file::{File, write_all};
use crate::format::inline_limit;
use crate::format::segment;
use crate::format::superblock::INCOMPATIBLE_PIECES;

use super::write_batch::Cursor;
use super::{Log, Slot, SlotState};

/// One to move records into, and one for deletions meanwhile.
const RESERVE: u32 = 2;
/// And one for so many segments: deletions that are spread over all of them take as much before there
/// is anything to gain in one of them.
const SEGMENTS_PER_SLOT: u32 = 32;

/// Bytes that are noted of an emptied segment at most: of the gap that it leaves, and of one before it. So
/// many go at once as there are for sixteen slots, and three; a witness and a frame take as much as one.
const NOTE: usize = 128;

/// What room is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocPriority {
    /// Values: the reserve stays.
    Write,
    /// Likewise; it lets the emptied go, so at the bound it may take what is left.
    Checkpoint,
    /// Deletions: they free more than they take.
    Relief,
    /// What maintenance notes: without it nothing goes.
    Note,
    /// Records that move: likewise, but what was emptied before them may make room first.
    Move,
}

impl Log {
    /// Whether the file cannot or should not grow, and free slots are missing that should be there.
    pub(crate) fn is_out_of_slots(&self) -> bool {
        let taken = self.slots.len() as u32 - self.free_slots;
        self.free_slots < self.reserve() && self.full || taken + RESERVE > self.bound()
    }

    /// How many slots the file should have at most.
    fn bound(&self) -> u32 {
        (self.allowed(100, 4) >> self.geometry.segment_log2) as u32 + self.checkpoint_slots
    }

    /// Bytes of the notes without which nothing emptied can go.
    fn notes(&self) -> usize {
        (self.slots.len() / 16 + 4) * NOTE
    }

    /// Bytes of short records that the group can take in without a call of the file before it has `limit` bytes:
    /// no segment has to be begun for them, and nothing that they take the place of is cold or in pieces.
    pub(crate) fn infallible_capacity(&self, limit: usize) -> usize {
        let Cursor { slot, start, tail, live, .. } = self.cursor;
        let has_pieces = self.superblock.incompatible & INCOMPATIBLE_PIECES != 0;
        if slot.is_none() || !self.all_at_hand || has_pieces {
            return 0;
        }
        // A group of nothing but voids has no bytes until something comes.
        let voids = if live == 0 { tail - start } else { 0 };
        let in_group = limit.saturating_sub(self.batch_bytes() + voids + 1);
        let in_segment = self.geometry.room_end().saturating_sub(tail + self.notes());
        in_group.min(in_segment).min(inline_limit(self.geometry.segment_log2))
    }

    /// Whether the notes without which nothing emptied can go would find room behind so many bytes, where
    /// there is no slot left for them: else nothing would ever fit again.
    #[inline(never)]
    pub(super) fn leaves_gap_room(&self, size: usize) -> bool {
        let end = self.cursor.tail + size + self.notes();
        self.log_slots < RESERVE || self.can_reclaim() || end <= self.geometry.room_end()
    }

    /// Whether the segment in which the log ends is nearly full, and half of that is not needed. On a full
    /// disk, and behind an opening nobody knows whether it is one, values do not take the slots that are
    /// left, so that it has to make room for them itself.
    pub(crate) fn ends_in_waste(&self) -> bool {
        let is_waste = |slot: u32| {
            let slot = &self.slots[slot as usize];
            slot.written && 2 * slot.needed(&self.sequences()) < self.geometry.segment()
        };
        self.free_slots >= RESERVE
            && self.cursor.tail > self.geometry.segment() / 4 * 3
            && self.cursor.slot.is_some_and(is_waste)
    }

    /// Whether no slot is left on a full disk, and the checkpoint has one that it could do without.
    pub(crate) fn needs_room_of_checkpoint(&self) -> bool {
        self.full && self.free_slots == 0 && self.checkpoint.is_some()
    }

    fn reserve(&self) -> u32 {
        if self.log_slots == 0 { 0 } else { RESERVE + self.log_slots / SEGMENTS_PER_SLOT }
    }

    /// How many slots are worth keeping at the end of the file, of so many that are free.
    pub(super) fn kept_at_end(&self, at_end: usize) -> usize {
        let before = &self.slots[..self.slots.len() - at_end];
        let elsewhere = before.iter().filter(|slot| slot.is_free()).count();
        let missing = (self.reserve() as usize).saturating_sub(elsewhere);
        at_end.min(missing.max(1))
    }

    /// Counts what there is of each kind.
    pub(super) fn count_slots(&mut self) {
        let (mut free, mut spare, mut logs, mut checkpoints) = (0, 0, 0, 0);
        for slot in &self.slots {
            free += u32::from(slot.is_free());
            spare += u32::from(slot.is_free() || slot.pending_free);
            match slot.state {
                SlotState::Log => logs += 1,
                SlotState::Checkpoint => checkpoints += slot.span,
                _ => {}
            }
        }
        (self.free_slots, self.spare_slots) = (free, spare);
        (self.log_slots, self.checkpoint_slots) = (logs, checkpoints);
    }

    /// Finds `span` slots in a row and makes sure that the file has them, and the reserve beside them.
    ///
    /// # Errors
    /// What the file said; nothing has changed then.
    pub(super) fn find_room(
        &mut self,
        file: &mut impl File,
        span: u32,
        need: AllocPriority,
    ) -> Result<u32, Error> {
        self.find_room_before(file, span, need, None)
    }

    /// The same before a slot: elsewhere there is none then.
    #[inline(never)]
    pub(super) fn find_room_before(
        &mut self,
        file: &mut impl File,
        span: u32,
        need: AllocPriority,
        before: Option<u32>,
    ) -> Result<u32, Error> {
        let slots = self.slots.len() as u32;
        let first = self.best_row(span, before.unwrap_or(slots));
        if before.is_some_and(|before| first + span > before) {
            return Err(Error::Quota);
        }
        let taken = first.saturating_add(span);
        let end = slots.max(taken);
        let coming = self.slots.iter().filter(|s| s.state == SlotState::PendingFree).count() as u32;
        let left = self.free_slots + (end - slots) - span;
        let least = if need == AllocPriority::Checkpoint { 0 } else { self.reserve().min(1) };
        let missing = |reserve: u32| end.saturating_add(reserve.saturating_sub(left + coming));
        let wanted = missing(self.reserve()).min(self.bound()).max(missing(least));
        if wanted > slots {
            if need == AllocPriority::Move && wanted > self.bound() && self.pending_free_bytes() > 0
            {
                return Err(Error::Quota);
            }
            let grown = self.grow(file, wanted);
            self.full = matches!(grown, Err(Error::Quota | Error::Full));
            match need {
                AllocPriority::Relief | AllocPriority::Note | AllocPriority::Move if self.full => {
                    self.grow(file, taken)?
                }
                _ => grown?,
            }
        }
        self.check_limits(taken - 1)?;
        Ok(first)
    }

    /// The first of `span` free slots in a row: where the fewest are, so that more are left together
    /// for what needs more, and only then at the end and beyond.
    pub(super) fn best_row(&self, span: u32, end: u32) -> u32 {
        let (mut best, mut first) = ((u32::MAX, 0), 0);
        for (slot, index) in self.slots.iter().zip(0..end) {
            if !slot.is_free() {
                let row = (index - first, first);
                if row.0 >= span {
                    best = best.min(row);
                }
                first = index + 1;
            }
        }
        if best.0 < u32::MAX { best.1 } else { first }
    }

    /// The end is written first, so that a full disk is known before anything is promised.
    fn grow(&mut self, file: &mut impl File, slots: u32) -> Result<(), Error> {
        let before = self.slots.len();
        if slots as usize <= before {
            return Ok(());
        }
        self.check_limits(slots - 1)?;
        let end = self.geometry.slot_start(slots) - segment::SIZE as u64;
        if let Err(error) = write_all(file, &[0; segment::SIZE], end) {
            // What cannot be cut off is found free by the next opening.
            let _ = file.truncate(self.geometry.slot_start(before as u32));
            return Err(error.into());
        }
        self.slots.resize_with(slots as usize, || Slot::new(SlotState::Free));
        self.count_slots();
        Ok(())
    }
}
