//! Allocation of slots for new segments, and the reserve: free slots at the end of the file that
//! ordinary writes do not use, so that data can be deleted on a full disk.
//!
//! The first free slots that fit are used, so that the end of the file can be truncated. When the
//! file grows, it also grows by what is missing from the reserve. If it cannot grow, deletions and
//! relocated records may use the reserve. A file that has reached its bound need not grow for the
//! reserve, because there compaction is sure to free slots.

use crate::error::Error;
use crate::file::{File, write_all};
use crate::format::inline_limit;
use crate::format::segment;
use crate::format::superblock::INCOMPATIBLE_CHUNKS;

use super::open_frame::OpenFrame;
use super::{Log, Slot, SlotState};

/// One slot to move records into, and one for deletions meanwhile.
const RESERVE: u32 = 2;
/// One more slot of reserve for this many segments: deletions that are spread over all of them take
/// that much before compacting any one of them pays.
const SEGMENTS_PER_SLOT: u32 = 32;

/// The maximum size of the records that account for a removed segment: of its own gap and of a gap
/// before it. So many segments are removed at once as sixteen slots have, and three; a witness with
/// its frame takes as much as one of them.
const BOOKKEEPING_RECORD: usize = 128;

/// What slots are needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocPriority {
    /// Values: the reserve is not used.
    Write,
    /// The same. A checkpoint frees retired segments, so at the bound it may use what is left.
    Checkpoint,
    /// Deletions: they free more than they use.
    Delete,
    /// Records that account for removed segments: without these nothing can be removed.
    Bookkeeping,
    /// Records that compaction moves. They may use the reserve, but retired segments should be
    /// freed first.
    Move,
}

impl Log {
    /// Whether the file cannot or should not grow although free slots are missing.
    pub(crate) fn is_out_of_slots(&self) -> bool {
        let used = self.slots.len() as u32 - self.space.free_slots;
        self.space.free_slots < self.reserve() && self.space.full
            || used + RESERVE > self.target_slots()
    }

    /// Whether the file could not grow when this was last tried.
    pub(crate) fn is_full(&self) -> bool {
        self.space.full
    }

    /// The maximum number of slots that the file should have.
    fn target_slots(&self) -> u32 {
        (self.space_target(100, 4) >> self.geometry.segment_log2) as u32
            + self.space.checkpoint_slots
    }

    /// Bytes to keep free for the records without which no retired segment can be removed.
    fn bookkeeping_bytes(&self) -> usize {
        (self.slots.len() / 16 + 4) * BOOKKEEPING_RECORD
    }

    /// Bytes of short records that the batch can still take without a call of the file before it
    /// has `limit` bytes: they need no new segment, and nothing that they replace is cold or
    /// chunked.
    pub(crate) fn infallible_capacity(&self, limit: usize) -> usize {
        let OpenFrame { slot, start, tail, live, .. } = self.open_frame;
        let has_chunked = self.superblock.incompatible & INCOMPATIBLE_CHUNKS != 0;
        if slot.is_none() || !self.all_resident || has_chunked {
            return 0;
        }
        // A batch of nothing but voids counts as empty until a live record follows.
        let voids = if live == 0 { tail - start } else { 0 };
        let in_batch = limit.saturating_sub(self.batch_bytes() + voids + 1);
        let in_segment = self.geometry.frames_end().saturating_sub(tail + self.bookkeeping_bytes());
        in_batch.min(in_segment).min(inline_limit(self.geometry.segment_log2))
    }

    /// Whether the records that account for removed segments would still fit after `size` more
    /// bytes if no slot is left for them. Without them no space could ever be reclaimed.
    #[inline(never)]
    pub(super) fn leaves_bookkeeping_space(&self, size: usize) -> bool {
        let end = self.open_frame.tail + size + self.bookkeeping_bytes();
        self.space.log_slots < RESERVE || self.can_reclaim() || end <= self.geometry.frames_end()
    }

    /// Whether the segment in which the log ends is nearly full and less than half of it is needed.
    /// On a full disk (and after opening it is not known whether the disk is full) values do not
    /// use the last slots, so this segment must be compacted to make space.
    pub(crate) fn end_segment_is_wasteful(&self) -> bool {
        let is_waste = |slot: u32| {
            let slot = &self.slots[slot as usize];
            slot.written && 2 * slot.needed(&self.sequences()) < self.geometry.segment()
        };
        self.space.free_slots >= RESERVE
            && self.open_frame.tail > self.geometry.segment() / 4 * 3
            && self.open_frame.slot.is_some_and(is_waste)
    }

    /// Whether no slot is left on a full disk, and dropping the checkpoint would free some.
    pub(crate) fn needs_checkpoint_slots(&self) -> bool {
        self.space.full && self.space.free_slots == 0 && self.checkpoint.slot.is_some()
    }

    fn reserve(&self) -> u32 {
        if self.space.log_slots == 0 {
            0
        } else {
            RESERVE + self.space.log_slots / SEGMENTS_PER_SLOT
        }
    }

    /// How many of the free slots at the end of the file are worth keeping.
    pub(super) fn trailing_slots_to_keep(&self, at_end: usize) -> usize {
        let before = &self.slots[..self.slots.len() - at_end];
        let elsewhere = before.iter().filter(|slot| slot.is_free()).count();
        let missing = (self.reserve() as usize).saturating_sub(elsewhere);
        at_end.min(missing.max(1))
    }

    /// Counts the slots of each kind.
    pub(super) fn count_slots(&mut self) {
        let (mut free, mut spare, mut logs, mut checkpoints) = (0, 0, 0, 0);
        for slot in &self.slots {
            free += u32::from(slot.is_free());
            spare += u32::from(slot.is_free() || slot.retired);
            match slot.state {
                SlotState::Log => logs += 1,
                SlotState::Checkpoint | SlotState::KeyRun => checkpoints += slot.span,
                _ => {}
            }
        }
        (self.space.free_slots, self.space.spare_slots) = (free, spare);
        (self.space.log_slots, self.space.checkpoint_slots) = (logs, checkpoints);
    }

    /// Finds `span` free slots in a row, and makes sure that the file has them and the reserve
    /// beside them.
    ///
    /// # Errors
    /// An error of the file; nothing has changed then.
    pub(super) fn find_slots(
        &mut self,
        file: &mut impl File,
        span: u32,
        need: AllocPriority,
    ) -> Result<u32, Error> {
        self.find_slots_before(file, span, need, None)
    }

    /// The same, but only before a slot if one is given.
    #[inline(never)]
    pub(super) fn find_slots_before(
        &mut self,
        file: &mut impl File,
        span: u32,
        need: AllocPriority,
        before: Option<u32>,
    ) -> Result<u32, Error> {
        let slots = self.slots.len() as u32;
        let first = self.best_fit(span, before.unwrap_or(slots));
        if before.is_some_and(|before| first + span > before) {
            return Err(Error::Quota);
        }
        let end_slot = first.saturating_add(span);
        let end = slots.max(end_slot);
        let pending =
            self.slots.iter().filter(|s| s.state == SlotState::Reclaimable).count() as u32;
        let left = self.space.free_slots + (end - slots) - span;
        let least = if need == AllocPriority::Checkpoint { 0 } else { self.reserve().min(1) };
        let missing = |reserve: u32| end.saturating_add(reserve.saturating_sub(left + pending));
        let wanted = missing(self.reserve()).min(self.target_slots()).max(missing(least));
        if wanted > slots {
            if need == AllocPriority::Move
                && wanted > self.target_slots()
                && self.retired_bytes() > 0
            {
                return Err(Error::Quota);
            }
            let grown = self.grow(file, wanted);
            self.space.full = matches!(grown, Err(Error::Quota | Error::Full));
            match need {
                AllocPriority::Delete | AllocPriority::Bookkeeping | AllocPriority::Move
                    if self.space.full =>
                {
                    self.grow(file, end_slot)?
                }
                _ => grown?,
            }
        }
        self.check_limits(end_slot - 1)?;
        Ok(first)
    }

    /// The first slot of the shortest run of at least `span` free slots, so that longer runs stay
    /// for what needs them; the end of the file comes last.
    pub(super) fn best_fit(&self, span: u32, end: u32) -> u32 {
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

    /// The end of the file is written first, so that a full disk is detected before anything
    /// depends on the slots.
    fn grow(&mut self, file: &mut impl File, slots: u32) -> Result<(), Error> {
        let before = self.slots.len();
        if slots as usize <= before {
            return Ok(());
        }
        self.check_limits(slots - 1)?;
        let end = self.geometry.slot_start(slots) - segment::SIZE as u64;
        if let Err(error) = write_all(file, &[0; segment::SIZE], end) {
            // If truncation fails, the next opening finds these slots free.
            let _ = file.truncate(self.geometry.slot_start(before as u32));
            return Err(error.into());
        }
        self.slots.resize_with(slots as usize, || Slot::new(SlotState::Free));
        self.count_slots();
        Ok(())
    }
}
