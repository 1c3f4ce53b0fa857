//! Giving space back: what nobody needs any more is made free, so that it can be used again.
//!
//! The order matters. First the headers and trailers of all garbage are zeroed, and that is
//! flushed; only then other bytes go over what is between them. Else power loss could leave a segment
//! whose header stands and whose frames are gone, which is what damage looks like. Nothing else is
//! erased: a new salt tells what is new. Only where the log goes on from a segment in a slot that had
//! been used do zeros follow its last frame.

use alloc::vec::Vec;

use crate::error::Error;
use crate::file::{File, IoError, write_all};
use crate::format::segment;
use crate::radix_sort;

use super::append::{WriteError, erase};
use super::{Log, SlotState};

/// Zeros are written in pieces of this many bytes.
const PIECE: usize = 64 << 10;
static ZEROS: [u8; PIECE] = [0; PIECE];

fn write_zeros(file: &mut impl File, at: u64, length: usize) -> Result<(), Error> {
    for from in (0..length).step_by(PIECE) {
        let (at, length) = (at + from as u64, PIECE.min(length - from));
        match write_all(file, &ZEROS[..length], at) {
            Err(IoError::Quota) => erase(file, length, at)?,
            written => written?,
        }
    }
    Ok(())
}

/// Whether a pair is among others that are sorted by their first.
fn is_among(sorted: &[(u32, u32)], pair: (u32, u32)) -> bool {
    let first = sorted.partition_point(|other| other.0 < pair.0);
    sorted[first..].iter().take_while(|other| other.0 == pair.0).any(|&other| other == pair)
}

impl Log {
    /// Whether there may be anything to give back now.
    pub(crate) fn can_reclaim(&self) -> bool {
        self.has_garbage && self.confirmed_frames >= self.garbage_after
    }

    /// Whether nothing is left of what a recovery dropped: a segment that cancels it may go, and a
    /// checkpoint need not speak of it.
    pub(crate) fn is_reclaimed(&self) -> bool {
        self.stale.is_empty() && self.confirmed_frames >= self.garbage_after
    }

    /// Does one step of a few hundred microseconds. Answers whether it did anything.
    ///
    /// # Errors
    /// What the file said. A step that failed can be done again, but not after a failed flush.
    pub(crate) fn reclaim(&mut self, file: &mut impl File) -> Result<bool, WriteError> {
        if !self.can_reclaim() {
            return Ok(false);
        }
        if let Some((at, length)) = self.stale.pop() {
            // Never more than a segment.
            if let Err(error) = write_zeros(file, at, length) {
                self.stale.push((at, length));
                return Err(error.into());
            }
            if self.stale.is_empty() {
                self.flush(file).map_err(WriteError::Unclear)?;
            }
            return Ok(true);
        }
        if self.slots.iter().any(|slot| slot.state == SlotState::PendingFree) {
            self.remove_headers(file)?;
            return Ok(true);
        }
        // At the end of the file nothing needs to be zeroed to be gone.
        let at_end = self.free_at_end();
        if at_end > self.kept_at_end(at_end) {
            let kept = self.slots.len() - at_end + self.kept_at_end(at_end);
            file.truncate(self.geometry.slot_start(kept as u32))?;
            self.slots.truncate(kept);
            self.full = false;
            self.count_slots();
            return Ok(true);
        }
        self.has_garbage = false;
        Ok(false)
    }

    /// What opening found nothing in is of no use either, whatever its bytes are.
    fn free_at_end(&self) -> usize {
        self.slots.iter().rev().take_while(|slot| slot.is_free()).count()
    }

    fn remove_headers(&mut self, file: &mut impl File) -> Result<(), WriteError> {
        for index in 0..self.slots.len() {
            if self.slots[index].state == SlotState::PendingFree {
                self.erase_headers(file, index as u32)?;
            }
        }
        self.flush(file).map_err(WriteError::Unclear)?;
        self.forget_cached(|slot| slot.state == SlotState::PendingFree);
        for index in 0..self.slots.len() {
            if self.slots[index].state == SlotState::PendingFree {
                self.free(index as u32);
            }
        }
        Ok(())
    }

    /// Gives a retired segment back that is [fresh](Log::is_fresh), whose gap is committed. No flush
    /// comes before that or after it: power loss may leave all of it, some or nothing, and the log
    /// that is then found ends before it, within it, or goes on behind it where all of it is missing
    /// and the record about the gap counts.
    pub(crate) fn let_go(&mut self, file: &mut impl File, index: u32) -> Result<(), Error> {
        self.erase_headers(file, index)?;
        self.forget_cached(|slot| slot.pending_free);
        let slot = &mut self.slots[index as usize];
        slot.dirty_tail = true;
        self.tail_bytes = self.tail_bytes.saturating_sub(u64::from(slot.end));
        self.has_garbage = true;
        self.free(index);
        Ok(())
    }

    /// Zeroes the places of headers and trailers in all slots of what begins at one. What lies between
    /// is told by nothing then, and stays until it is written over.
    pub(super) fn erase_headers(&self, file: &mut impl File, first: u32) -> Result<(), Error> {
        for index in first..first + self.slots[first as usize].span {
            let start = self.geometry.slot_start(index);
            write_zeros(file, start, segment::SIZE)?;
            write_zeros(file, start + self.geometry.room_end() as u64, segment::SIZE)?;
        }
        Ok(())
    }

    /// Zeroes what earlier uses of a slot left behind the last frame of a segment, which ends there:
    /// before the log goes on elsewhere, since behind a gap in the numbers anything but zeros is
    /// damage; and at a close.
    #[inline(never)]
    pub(super) fn blank_behind(
        &mut self,
        file: &mut impl File,
        slot: u32,
        end: usize,
    ) -> Result<(), Error> {
        // A segment that has no frames yet is not the one in which the log ends.
        if self.slots[slot as usize].dirty_tail && end > 0 {
            let at = self.geometry.slot_start(slot) + end as u64;
            write_zeros(file, at, self.geometry.room_end() - end)?;
            self.slots[slot as usize].dirty_tail = false;
        }
        Ok(())
    }

    /// The same for the segment in which the log ends.
    #[inline(never)]
    pub(super) fn blank_end(&mut self, file: &mut impl File) -> Result<(), Error> {
        match self.group.slot {
            Some(slot) => self.blank_behind(file, slot, self.slots[slot as usize].end as usize),
            None => Ok(()),
        }
    }

    /// Opening is over: extents that no record names are garbage. Answers the position of one that
    /// is named and not there.
    pub(crate) fn settle_extents(&mut self) -> Option<u64> {
        self.dead_extents.clear();
        let named: Vec<(u32, u32)> =
            self.extent_of.iter().map(|(_, name)| (name.slot, name.sequence)).collect();
        let named = radix_sort::by_number(named);
        for (slot, index) in self.slots.iter_mut().zip(0..) {
            let name = (index, slot.sequence);
            if slot.state == SlotState::Extent && !is_among(&named, name) {
                slot.state = SlotState::PendingFree;
            }
        }
        let is_there = |&&(index, sequence): &&(u32, u32)| {
            let slot = self.slots.get(index as usize);
            slot.is_some_and(|slot| slot.state == SlotState::Extent && slot.sequence == sequence)
        };
        let missing = named.iter().find(|name| !is_there(name));
        missing.map(|&(index, _)| self.geometry.slot_start(index) + segment::SIZE as u64)
    }

    /// Whether something is going that may leave room.
    pub(crate) fn is_leaving(&self) -> bool {
        self.has_garbage || self.has_unsure_extents()
    }

    /// Whether extents that no record names any more wait for a flush that tells of it.
    pub(crate) fn has_unsure_extents(&self) -> bool {
        self.dead_extents.last().is_some_and(|dead| dead.frame >= Some(self.confirmed_frames))
    }

    /// Extents that no record names any more become garbage once no crash could make
    /// the commit that dropped them count as unflushed: else it would count only with them.
    pub(crate) fn discard_dead_extents(&mut self) {
        let sure = self.confirmed_frames;
        let dead = core::mem::take(&mut self.dead_extents);
        for dead in dead {
            let index = dead.extent.slot as usize;
            let is_sure = dead.frame.is_some_and(|frame| frame < sure);
            let Some(slot) = self.slots.get_mut(index).filter(|slot| {
                slot.state == SlotState::Extent && slot.sequence == dead.extent.sequence
            }) else {
                continue;
            };
            if is_sure && slot.held.pins == 0 {
                slot.state = SlotState::PendingFree;
                (self.has_garbage, self.holes_came) = (true, true);
            } else {
                self.dead_extents.push(dead);
            }
        }
    }

    /// A segment or checkpoint that nothing leads to any more becomes garbage.
    pub(crate) fn discard(&mut self, slot: u32) {
        let slot = &mut self.slots[slot as usize];
        slot.state = SlotState::PendingFree;
        slot.pending_free = false;
        self.has_garbage = true;
    }
}
