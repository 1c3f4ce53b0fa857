//! Reclaiming space: slots that nothing refers to become free.
//!
//! The order matters. First the headers and trailers of all reclaimable slots are zeroed and flushed; only
//! then may other bytes overwrite what is between them. Otherwise power loss could leave a segment
//! with its header but without its frames, which is indistinguishable from damage. Nothing else is
//! erased, because a new salt distinguishes new content from old. Only if a log segment in a reused
//! slot is not the last one are zeros written after its last frame.

use alloc::vec::Vec;

use crate::error::Error;
use crate::file::{File, IoError, write_all};
use crate::format::segment;
use crate::radix_sort;

use super::append::{WriteError, erase};
use super::{Log, SlotState};

/// Zeros are written in chunks of this many bytes.
const ZERO_CHUNK: usize = 64 << 10;
static ZEROS: [u8; ZERO_CHUNK] = [0; ZERO_CHUNK];

fn write_zeros(file: &mut impl File, at: u64, length: usize) -> Result<(), Error> {
    for from in (0..length).step_by(ZERO_CHUNK) {
        let (at, length) = (at + from as u64, ZERO_CHUNK.min(length - from));
        match write_all(file, &ZEROS[..length], at) {
            Err(IoError::Quota) => erase(file, length, at)?,
            written => written?,
        }
    }
    Ok(())
}

/// Whether a list that is sorted by the first number of each pair contains a pair.
fn contains_pair(sorted: &[(u32, u32)], pair: (u32, u32)) -> bool {
    let first = sorted.partition_point(|other| other.0 < pair.0);
    sorted[first..].iter().take_while(|other| other.0 == pair.0).any(|&other| other == pair)
}

impl Log {
    /// Whether there may be anything to reclaim now.
    pub(crate) fn can_reclaim(&self) -> bool {
        self.reclaimable.may_exist && self.watermarks.confirmed >= self.reclaimable.from_frame
    }

    /// Whether everything that a recovery dropped is erased: then the segment that cancels it may
    /// be freed, and a checkpoint need not account for it.
    pub(crate) fn is_reclaimed(&self) -> bool {
        self.leftovers.discarded_ranges.is_empty()
            && self.watermarks.confirmed >= self.reclaimable.from_frame
    }

    /// Does one step of a few hundred microseconds. Returns whether there was anything to do.
    ///
    /// # Errors
    /// An error of the file. A failed step can be repeated unless a flush failed.
    pub(crate) fn reclaim(&mut self, file: &mut impl File) -> Result<bool, WriteError> {
        if !self.can_reclaim() {
            return Ok(false);
        }
        if let Some((at, length)) = self.leftovers.discarded_ranges.pop() {
            // Never more than a segment.
            if let Err(error) = write_zeros(file, at, length) {
                self.leftovers.discarded_ranges.push((at, length));
                return Err(error.into());
            }
            if self.leftovers.discarded_ranges.is_empty() {
                self.flush(file).map_err(WriteError::Unclear)?;
            }
            return Ok(true);
        }
        if self.slots.iter().any(|slot| slot.state == SlotState::Reclaimable) {
            self.remove_headers(file)?;
            return Ok(true);
        }
        // Slots at the end of the file are removed by truncation, without zeroing.
        let at_end = self.free_trailing_slots();
        if at_end > self.trailing_slots_to_keep(at_end) {
            let kept = self.slots.len() - at_end + self.trailing_slots_to_keep(at_end);
            file.truncate(self.geometry.slot_start(kept as u32))?;
            self.slots.truncate(kept);
            self.space.full = false;
            self.count_slots();
            return Ok(true);
        }
        self.reclaimable.may_exist = false;
        Ok(false)
    }

    /// Slots in which opening recognized nothing count as free too, whatever bytes they contain.
    fn free_trailing_slots(&self) -> usize {
        self.slots.iter().rev().take_while(|slot| slot.is_free()).count()
    }

    fn remove_headers(&mut self, file: &mut impl File) -> Result<(), WriteError> {
        for index in 0..self.slots.len() {
            if self.slots[index].state == SlotState::Reclaimable {
                self.erase_headers(file, index as u32)?;
            }
        }
        self.flush(file).map_err(WriteError::Unclear)?;
        self.forget_cached(|slot| slot.state == SlotState::Reclaimable);
        for index in 0..self.slots.len() {
            if self.slots[index].state == SlotState::Reclaimable {
                self.free(index as u32);
            }
        }
        Ok(())
    }

    /// Frees a retired segment that is [unflushed](Log::is_unflushed_segment) and whose gap record is committed.
    /// This needs no flush before or after: power loss may leave all of the segment, a part, or
    /// nothing. The log that is found then ends before it or within it, or continues after it if
    /// all of it is missing and the gap record counts.
    pub(crate) fn free_unflushed_segment(
        &mut self,
        file: &mut impl File,
        index: u32,
    ) -> Result<(), Error> {
        self.erase_headers(file, index)?;
        self.forget_cached(|slot| slot.retired);
        let slot = &mut self.slots[index as usize];
        slot.dirty_tail = true;
        self.checkpoint.frame_bytes_since =
            self.checkpoint.frame_bytes_since.saturating_sub(u64::from(slot.end));
        self.reclaimable.may_exist = true;
        self.free(index);
        Ok(())
    }

    /// Zeros the headers and trailers in all slots of what starts at `first`. Nothing refers to the
    /// bytes between them after that, and they stay until they are overwritten.
    pub(super) fn erase_headers(&self, file: &mut impl File, first: u32) -> Result<(), Error> {
        for index in first..first + self.slots[first as usize].span {
            let start = self.geometry.slot_start(index);
            write_zeros(file, start, segment::SIZE)?;
            write_zeros(file, start + self.geometry.frames_end() as u64, segment::SIZE)?;
        }
        Ok(())
    }

    /// Zeros what earlier uses of a slot left after the last frame of a segment. This is done
    /// before the log continues in another segment, because after a gap in the frame numbers
    /// anything except zeros counts as damage; and at a close.
    #[inline(never)]
    pub(super) fn zero_segment_tail(
        &mut self,
        file: &mut impl File,
        slot: u32,
        end: usize,
    ) -> Result<(), Error> {
        // A segment without frames is not where the log ends.
        if self.slots[slot as usize].dirty_tail && end > 0 {
            let at = self.geometry.slot_start(slot) + end as u64;
            write_zeros(file, at, self.geometry.frames_end() - end)?;
            self.slots[slot as usize].dirty_tail = false;
        }
        Ok(())
    }

    /// The same for the segment in which the log ends.
    #[inline(never)]
    pub(super) fn zero_log_tail(&mut self, file: &mut impl File) -> Result<(), Error> {
        match self.batch.start.slot {
            Some(slot) => {
                self.zero_segment_tail(file, slot, self.slots[slot as usize].end as usize)
            }
            None => Ok(()),
        }
    }

    /// Opening is finished: extents that no record refers to become reclaimable. Returns the file position
    /// of an extent that a record refers to but that is missing.
    pub(crate) fn discard_unreferenced_extents(&mut self) -> Option<u64> {
        self.extents.dead.clear();
        let referenced: Vec<(u32, u32)> =
            self.extents.by_record.iter().map(|(_, id)| (id.slot, id.sequence)).collect();
        let referenced = radix_sort::by_number(referenced);
        for (slot, index) in self.slots.iter_mut().zip(0..) {
            let id = (index, slot.sequence);
            if slot.state == SlotState::Extent && !contains_pair(&referenced, id) {
                slot.state = SlotState::Reclaimable;
            }
        }
        let exists = |&&(index, sequence): &&(u32, u32)| {
            let slot = self.slots.get(index as usize);
            slot.is_some_and(|slot| slot.state == SlotState::Extent && slot.sequence == sequence)
        };
        let missing = referenced.iter().find(|id| !exists(id));
        missing.map(|&(index, _)| self.geometry.slot_start(index) + segment::SIZE as u64)
    }

    /// Whether space may become free without further compaction.
    pub(crate) fn may_gain_space(&self) -> bool {
        self.reclaimable.may_exist || self.has_unconfirmed_extents()
    }

    /// Whether extents that no record refers to any more wait for a confirmed flush.
    pub(crate) fn has_unconfirmed_extents(&self) -> bool {
        !self.extents.are_kept
            && self
                .extents
                .dead
                .last()
                .is_some_and(|dead| dead.frame >= Some(self.watermarks.confirmed))
    }

    /// Extents that no record refers to any more become reclaimable once no crash can make the commit that
    /// dropped them look unflushed. Until then that commit might be undone and the extents needed.
    pub(crate) fn discard_dead_extents(&mut self) {
        if self.extents.are_kept {
            return;
        }
        let sure = self.watermarks.confirmed;
        let dead = core::mem::take(&mut self.extents.dead);
        for dead in dead {
            let index = dead.extent.slot as usize;
            let is_sure = dead.frame.is_some_and(|frame| frame < sure);
            let Some(slot) = self.slots.get_mut(index).filter(|slot| {
                slot.state == SlotState::Extent && slot.sequence == dead.extent.sequence
            }) else {
                continue;
            };
            if is_sure && slot.cached.pins == 0 {
                slot.state = SlotState::Reclaimable;
                (self.reclaimable.may_exist, self.reclaimable.extents_freed) = (true, true);
            } else {
                self.extents.dead.push(dead);
            }
        }
    }

    /// Keeps extents that no record refers to any more, or ends that.
    pub(crate) fn keep_dead_extents(&mut self, keeps: bool) {
        self.extents.are_kept = keeps;
        self.discard_dead_extents();
    }

    /// Makes a segment or a checkpoint reclaimable: nothing refers to it any more.
    pub(crate) fn discard(&mut self, slot: u32) {
        let slot = &mut self.slots[slot as usize];
        slot.state = SlotState::Reclaimable;
        slot.retired = false;
        self.reclaimable.may_exist = true;
    }
}
