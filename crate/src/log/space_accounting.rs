//! Space accounting: how much of each segment is live, and which extents are.

use alloc::vec::Vec;

use crate::format::system_records::ExtentRef;
use crate::index::Position;
use crate::radix_sort;

use super::tombstones::UNKNOWN;
use super::{DiscardedTail, Log, Slot, SlotState};

/// The identity of an extent: its slot may contain another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExtentId {
    pub slot: u32,
    pub sequence: u32,
}

impl From<&ExtentRef> for ExtentId {
    fn from(extent: &ExtentRef) -> Self {
        ExtentId { slot: extent.slot, sequence: extent.sequence }
    }
}

/// An extent that no record refers to any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeadExtent {
    pub extent: ExtentId,
    /// The record that referred to it.
    pub record: Position,
    /// The frame that removed the last reference, once it has a number.
    pub frame: Option<u64>,
}

impl Log {
    fn slot_mut(&mut self, position: Position) -> &mut Slot {
        let slot = self.geometry.locate(position).0;
        &mut self.slots[slot as usize]
    }

    /// Accounts for a record of `size` bytes that became the current one of its key.
    #[inline]
    pub(crate) fn record_added(&mut self, position: Position, size: u32) {
        self.space.live += u64::from(size);
        let slot = self.slot_mut(position);
        slot.live += 1;
        slot.live_bytes += size;
    }

    /// Accounts for a record that is not current any more.
    #[inline]
    pub(crate) fn record_superseded(&mut self, position: Position, size: u32) {
        let slot = self.slot_mut(position);
        let before = slot.live_bytes;
        slot.live = slot.live.saturating_sub(1);
        // A malicious file may contain any numbers.
        slot.live_bytes = if slot.live == 0 { 0 } else { before.saturating_sub(size) };
        let removed_extents = before - slot.live_bytes;
        self.space.live -= u64::from(removed_extents);
    }

    /// Whether the record at `position` is current and its value lies in an extent.
    pub(crate) fn has_extent_reference(&self, position: Position) -> bool {
        self.extents.by_record.get(position).is_some()
    }

    /// Accounts for an appended tombstone of `size` bytes that covers segments from `oldest` to
    /// `newest`.
    pub(crate) fn tombstone_added(
        &mut self,
        position: Position,
        size: u32,
        oldest: u32,
        newest: u32,
    ) {
        self.slot_mut(position).tombstones.add(size, oldest, newest);
    }

    /// Undoes [`tombstone_added`](Log::tombstone_added).
    pub(crate) fn tombstone_removed(&mut self, position: Position, size: u32) {
        let oldest = self.record_at(position).header.oldest;
        self.slot_mut(position).tombstones.subtract(size, oldest);
    }

    /// The newest segment that a tombstone in `slot` may cover, given the `oldest`.
    pub(crate) fn newest_covered(&self, slot: u32, oldest: u32) -> u32 {
        let slot = &self.slots[slot as usize];
        if slot.from_this_session { slot.tombstones.newest(oldest) } else { UNKNOWN }
    }

    /// Records that the record at `position` refers to an extent.
    pub(crate) fn add_extent_reference(&mut self, position: Position, extent: ExtentId) {
        self.space.live += self.live_extent_bytes(extent);
        self.extents.by_record.insert(position, extent);
    }

    /// The bytes that count as live for an extent. One that exceeds the space factor counts with
    /// all of its slots, because moving it gains nothing.
    fn live_extent_bytes(&self, extent: ExtentId) -> u64 {
        let Some(slot) = self.slots.get(extent.slot as usize) else { return 0 };
        match self.exceeds_space_factor(slot.span, slot.length) {
            true => u64::from(slot.span) << self.geometry.segment_log2,
            false => slot.length,
        }
    }

    /// Sets the maximum size of the file, in percent of its live data. The extents that a
    /// checkpoint listed were counted by the previous factor.
    pub(crate) fn set_factor(&mut self, factor: u32) {
        self.space.live -= self.all_live_extent_bytes();
        self.space.factor = factor;
        self.space.live += self.all_live_extent_bytes();
    }

    #[inline(never)]
    fn all_live_extent_bytes(&self) -> u64 {
        self.extents.by_record.iter().map(|(_, id)| self.live_extent_bytes(*id)).sum()
    }

    /// Whether `span` slots for `length` bytes waste more than half of what the space factor
    /// allows.
    pub(crate) fn exceeds_space_factor(&self, span: u32, length: u64) -> bool {
        // Extents would be freed when their values are replaced.
        let bytes = u64::from(span) << self.geometry.segment_log2;
        self.keeps_history() || bytes * 200 > length * u64::from(100 + self.space.factor)
    }

    /// The extent that the record at `position` refers to.
    pub(crate) fn extent_of(&self, position: Position) -> Option<ExtentId> {
        self.extents.by_record.get(position).copied()
    }

    /// The record at `position` is not current any more. The slots of its extent may be reused once
    /// the frame that replaced the record is flushed.
    #[inline]
    pub(crate) fn remove_extent_reference(&mut self, position: Position) {
        if self.extents.by_record.is_empty() {
            return;
        }
        if let Some(extent) = self.extents.by_record.remove(position) {
            self.space.live -= self.live_extent_bytes(extent);
            self.extents.dead.push(DeadExtent { extent, record: position, frame: None });
        }
    }

    /// The record at `position` was cleared by an earlier commit and is now removed from the index.
    pub(crate) fn remove_cleared_extent_reference(&mut self, position: Position) {
        let before = self.extents.dead.len();
        self.remove_extent_reference(position);
        for dead in &mut self.extents.dead[before..] {
            dead.frame = Some(self.next_frame - 1);
        }
    }

    /// Positions of the records that refer to extents.
    pub(crate) fn records_with_extents(&self) -> Vec<Position> {
        self.extents.by_record.iter().map(|(position, _)| *position).collect()
    }

    /// Whether any record in a slot is live, or may be: how many a checkpoint says there are is only a hint as
    /// long as its entries were not counted.
    pub(crate) fn has_live_records(&self, slot: u32) -> bool {
        let slot = &self.slots[slot as usize];
        let is_estimate = self.space.live_is_estimate && !slot.from_this_session;
        slot.state == SlotState::Log && (slot.live > 0 || is_estimate)
    }

    /// The slots of all segments that may have live records, except for retired ones.
    pub(crate) fn live_slots(&self) -> Vec<u32> {
        let is_live =
            |slot: &u32| self.has_live_records(*slot) && !self.slots[*slot as usize].retired;
        (0..self.slot_count()).filter(is_live).collect()
    }

    /// Undoes the last [`remove_extent_reference`](Log::remove_extent_reference) of the record at `position`.
    pub(crate) fn restore_extent_reference(&mut self, position: Position) {
        if let Some(dead) = self.extents.dead.pop_if(|dead| dead.record == position) {
            self.add_extent_reference(position, dead.extent);
        }
    }

    /// The record that refers to an extent was relocated.
    pub(crate) fn move_extent_reference(&mut self, from: Position, to: Position) {
        if let Some(extent) = self.extents.by_record.remove(from) {
            self.extents.by_record.insert(to, extent);
        }
    }

    /// Undoes [`add_extent_reference`](Log::add_extent_reference) for the record at `position`, whose extent is
    /// dropped.
    pub(crate) fn undo_extent_reference(&mut self, position: Position) {
        if let Some(extent) = self.extents.by_record.remove(position) {
            self.space.live -= self.live_extent_bytes(extent);
        }
    }

    /// Bytes of live records including their headers, and of the values of their extents.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        let logs = self.slots.iter().filter(|slot| slot.state == SlotState::Log);
        let records: u64 = logs.map(|slot| u64::from(slot.live_bytes)).sum();
        let referenced =
            self.extents.by_record.iter().filter_map(|(_, id)| self.slots.get(id.slot as usize));
        records + referenced.map(|slot| slot.length).sum::<u64>()
    }
}

/// A segment, and how many bytes compacting it would gain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactionVictim {
    pub slot: u32,
    pub gain: usize,
}

impl Slot {
    /// Bytes of a segment that are needed, as far as is known. `sequences` are those of all
    /// existing segments.
    pub(super) fn needed(&self, sequences: &[u32]) -> usize {
        (self.live_bytes + self.tombstones.needed(sequences, self.sequence)) as usize
    }

    /// Bytes that compacting it gains. If its tail stayed empty because the next record was too
    /// long, the same would happen again. So the empty tail counts only if several of its records
    /// would fit there.
    fn gain(&self, segment: usize, sequences: &[u32]) -> usize {
        let needed = self.needed(sequences);
        let end = self.end as usize;
        let tail_stays_empty =
            (segment - end) * (self.live as usize) < MIN_RECORDS_IN_TAIL * needed;
        (if tail_stays_empty { end } else { segment }).saturating_sub(needed)
    }
}

/// The average record size includes short records, such as those of the engine, so several must
/// fit.
const MIN_RECORDS_IN_TAIL: usize = 4;

/// Frames that are being removed, or were removed, between two segments that stay.
#[derive(Debug)]
pub(crate) struct Gap {
    /// Number after the last frame of the segment before the gap; none if there is no such segment.
    pub from: Option<u64>,
    /// First frames of the segments that are being removed.
    pub inside: Vec<u64>,
    /// First frame of the segment after the gap.
    pub to: u64,
}

impl Log {
    /// Bytes of the file except for its checkpoints, including what is being erased.
    #[must_use]
    pub(crate) fn file_space(&self) -> u64 {
        let slots =
            (self.slots.len() as u64).saturating_sub(u64::from(self.space.checkpoint_slots));
        slots << self.geometry.segment_log2
    }

    /// The same without free slots and slots that will be free after the next checkpoint.
    pub(crate) fn used_space(&self) -> u64 {
        self.file_space()
            .saturating_sub(u64::from(self.space.spare_slots) << self.geometry.segment_log2)
    }

    /// Bytes of the file for checkpoints and runs of keys.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        u64::from(self.space.checkpoint_slots) << self.geometry.segment_log2
    }

    /// The live bytes, `percent` percent of the slack (the live bytes times what the space factor is above 1), and
    /// `segments` segments.
    pub(crate) fn space_target(&self, percent: u64, segments: u64) -> u64 {
        if self.keeps_history() {
            return u64::from(u32::MAX / 2) << self.geometry.segment_log2;
        }
        let live = self.space.live;
        let slack = u64::from(self.space.factor - 100);
        live + live / 100 * slack / 100 * percent + (segments << self.geometry.segment_log2)
    }

    /// Used bytes that are not live.
    pub(crate) fn dead_bytes(&self) -> u64 {
        self.used_space().saturating_sub(self.space.live)
    }

    /// Bytes of retired segments.
    pub(crate) fn retired_bytes(&self) -> u64 {
        let retired = self.slots.iter().filter(|slot| slot.retired).count();
        (retired as u64) << self.geometry.segment_log2
    }

    /// Bytes of live records, and of slots that live extents cover.
    #[must_use]
    pub(crate) fn live_total(&self) -> u64 {
        self.space.live
    }

    /// Bytes of tombstones.
    pub(crate) fn tombstone_bytes(&self) -> u64 {
        let logs = self.slots.iter().filter(|slot| slot.state == SlotState::Log && !slot.retired);
        logs.map(|slot| u64::from(slot.tombstones.bytes())).sum()
    }

    /// Segments that can be compacted, with their slots.
    fn candidates(&self, below: u32) -> impl Iterator<Item = (u32, &Slot)> {
        let busy = [self.open_frame.slot, self.batch.start.slot];
        (0..).zip(&self.slots).filter(move |&(index, slot)| {
            let is_candidate = slot.state == SlotState::Log
                && slot.written
                && !slot.retired
                && !slot.pinned_by_damage
                && !self.is_retained(index);
            is_candidate && slot.sequence < below && !busy.contains(&Some(index))
        })
    }

    /// The segment below a sequence from which compaction gains most. A [unflushed](Log::is_unflushed_segment) one
    /// is preferred if `prefer_unflushed` and most of it is not needed.
    pub(crate) fn pick_victim(
        &self,
        below: u32,
        prefer_unflushed: bool,
    ) -> Option<CompactionVictim> {
        let sequences = self.sequences();
        let segment = self.geometry.segment();
        let gains = self
            .candidates(below)
            .map(|(slot, it)| CompactionVictim { slot, gain: it.gain(segment, &sequences) });
        gains.max_by_key(|&CompactionVictim { slot, gain }| {
            (
                prefer_unflushed
                    && gain >= segment - segment / 4
                    && self.is_unflushed_segment(slot),
                gain,
            )
        })
    }

    /// The live bytes of a segment if nothing else in it is needed and that is known without
    /// reading its records.
    pub(crate) fn live_records_of(&self, slot: u32) -> Option<usize> {
        let slot = &self.slots[slot as usize];
        let live = slot.live_bytes as usize;
        (slot.from_this_session && slot.needed(&self.sequences()) == live).then_some(live)
    }

    /// Whether no durability guarantee depends on a segment: it was written after the last flush,
    /// so the checkpoint does not refer to it either. Another segment exists before it, where its gap
    /// can begin. On a full disk no segment counts as unflushed, because there all space is reclaimed
    /// together.
    pub(crate) fn is_unflushed_segment(&self, slot: u32) -> bool {
        let slot = &self.slots[slot as usize];
        let is_new =
            slot.from_this_session && slot.written && slot.first_frame >= self.watermarks.flushed;
        let was_flushed = slot.sequence < self.watermarks.segments_flushed_below;
        is_new
            && !was_flushed
            && !self.space.full
            && self.leftovers.dropped_tail == DiscardedTail::Nothing
            && self.is_reclaimed()
            && self.by_sequence().first().is_some_and(|&(oldest, _)| oldest < slot.sequence)
    }

    /// The last segment of the file, if it could move towards the front.
    pub(crate) fn last_movable_segment(&self, below: u32) -> Option<u32> {
        let last = self.candidates(below).last()?.0;
        self.can_move_forward(last).then_some(last)
    }

    /// Whether the segment in which the log ends is the last of the file and could move.
    pub(crate) fn log_end_is_last(&self) -> bool {
        self.open_frame
            .slot
            .is_some_and(|slot| self.slots[slot as usize].written && self.can_move_forward(slot))
    }

    /// Whether the checkpoint lies after all segments and would fit before them.
    pub(crate) fn checkpoint_can_move_forward(&self) -> bool {
        self.checkpoint.slot.is_some_and(|slot| self.can_move_forward(slot))
    }

    /// Whether the last part of a run lies after all segments, and all runs would fit before it together with
    /// the checkpoint that must be written for that. So each time the last part comes nearer to the front.
    pub(crate) fn key_runs_can_move_forward(&self) -> bool {
        let is_run = |s: &Slot| s.state == SlotState::KeyRun && s.written;
        let Some(last) = self.slots.iter().rposition(is_run) else { return false };
        let (before, after) = self.slots.split_at(last);
        let is_last = after.iter().all(|s| s.state != SlotState::Log || s.retired);
        let free = before.iter().filter(|s| s.is_free()).count();
        is_last && free >= self.space.checkpoint_slots as usize
    }

    /// Whether what begins in `slot` lies after all segments and would fit before itself. Without
    /// the first condition, things could be moved back and forth forever.
    #[inline(never)]
    fn can_move_forward(&self, slot: u32) -> bool {
        let span = self.slots[slot as usize].span;
        let after = &self.slots[slot as usize + 1..];
        self.best_fit(span, self.slots.len() as u32) < slot
            && after.iter().all(|slot| slot.state != SlotState::Log || slot.retired)
    }

    /// The oldest segment, if its sequence is below a limit.
    pub(crate) fn oldest_below(&self, below: u32) -> Option<u32> {
        self.candidates(below).min_by_key(|(_, slot)| slot.sequence).map(|(index, _)| index)
    }

    /// Sequences of all segments in the file, in order.
    pub(crate) fn sequences(&self) -> Vec<u32> {
        self.by_sequence().into_iter().map(|(sequence, _)| sequence).collect()
    }

    /// Sequences and slots of these segments, in order.
    pub(super) fn by_sequence(&self) -> Vec<(u32, u32)> {
        let order: Vec<(u32, u32)> = (0..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.state == SlotState::Log && slot.written)
            .map(|(index, slot)| (slot.sequence, index))
            .collect();
        radix_sort::by_number(order)
    }

    /// The sequence that the next segment gets.
    pub(crate) fn next_sequence(&self) -> u32 {
        self.next_sequence
    }

    /// The seed of the checksums in a slot.
    pub(crate) fn salt(&self, slot: u32) -> u64 {
        self.slots[slot as usize].salt
    }

    /// The sequence of a segment, and the offset after its last frame.
    pub(crate) fn segment_end(&self, slot: u32) -> (u32, usize) {
        let slot = &self.slots[slot as usize];
        (slot.sequence, slot.end as usize)
    }

    /// Retires a segment: everything that is needed of it has been copied.
    pub(crate) fn retire(&mut self, slot: u32) {
        let slot = &mut self.slots[slot as usize];
        slot.retired = true;
        self.space.live -= u64::from(slot.live_bytes);
        (slot.live, slot.live_bytes) = (0, 0);
        self.space.spare_slots += 1;
    }

    /// Pins a damaged segment: what is needed of it is unknown.
    pub(crate) fn pin_damaged(&mut self, slot: u32) {
        self.slots[slot as usize].pinned_by_damage = true;
    }

    /// The gaps in the frame numbers, including those that removing the retired segments will
    /// leave.
    pub(crate) fn gaps(&self) -> Vec<Gap> {
        let (mut gaps, mut inside, mut before) = (Vec::new(), Vec::new(), None);
        for (_, index) in self.by_sequence() {
            let slot = &self.slots[index as usize];
            if slot.retired {
                inside.push(slot.first_frame);
                continue;
            }
            let was_removed = before.is_some_and(|before| before < slot.first_frame);
            if was_removed || !inside.is_empty() {
                let inside = core::mem::take(&mut inside);
                gaps.push(Gap { from: before, inside, to: slot.first_frame });
            }
            before = Some(slot.end_frame);
        }
        gaps
    }

    /// Whether the segment in which the log ends has been written to the file.
    pub(crate) fn end_is_written(&self) -> bool {
        self.open_frame.slot.is_some_and(|slot| self.slots[slot as usize].written)
    }

    /// Whether frames were written that are not flushed.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.watermarks.flushed < self.next_frame
    }
}
