//! What is alive: how much of each segment, and which extents.

use alloc::vec::Vec;

use crate::format::system_records::ExtentRef;
use crate::index::hash_index::Position;
use crate::radix_sort;

use super::tombstones::UNKNOWN;
use super::{DiscardedTail, Log, Slot, SlotState};

/// Which extent: a slot may hold another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExtentName {
    pub slot: u32,
    pub sequence: u32,
}

impl From<&ExtentRef> for ExtentName {
    fn from(extent: &ExtentRef) -> Self {
        ExtentName { slot: extent.slot, sequence: extent.sequence }
    }
}

/// An extent that no record names any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeadExtent {
    pub extent: ExtentName,
    /// The record that named it.
    pub record: Position,
    /// The frame that says so, once it has a number.
    pub frame: Option<u64>,
}

impl Log {
    fn slot_of(&mut self, position: Position) -> &mut Slot {
        let slot = self.geometry.locate(position).0;
        &mut self.slots[slot as usize]
    }

    /// A record of `size` bytes is what counts for its key.
    #[inline]
    pub(crate) fn record_added(&mut self, position: Position, size: u32) {
        self.live_total += u64::from(size);
        let slot = self.slot_of(position);
        slot.live += 1;
        slot.live_bytes += size;
    }

    /// It no longer is.
    #[inline]
    pub(crate) fn record_superseded(&mut self, position: Position, size: u32) {
        let slot = self.slot_of(position);
        let before = slot.live_bytes;
        slot.live = slot.live.saturating_sub(1);
        // A file that was made by somebody else may say anything.
        slot.live_bytes = if slot.live == 0 { 0 } else { before.saturating_sub(size) };
        let removed_extents = before - slot.live_bytes;
        self.live_total -= u64::from(removed_extents);
    }

    /// Whether the record at `position` counts and its value lies in an extent.
    pub(crate) fn names_extent(&self, position: Position) -> bool {
        self.extent_of.get(position).is_some()
    }

    /// A deletion of `size` bytes was appended, covering segments from `oldest` to `newest`.
    pub(crate) fn tombstone_added(
        &mut self,
        position: Position,
        size: u32,
        oldest: u32,
        newest: u32,
    ) {
        self.slot_of(position).tombstones.add(size, oldest, newest);
    }

    /// It was taken back.
    pub(crate) fn tombstone_removed(&mut self, position: Position, size: u32) {
        let oldest = self.record_at(position).header.oldest;
        self.slot_of(position).tombstones.take_back(size, oldest);
    }

    /// The last segment that a deletion in `slot` may cover of which `oldest` is the first.
    pub(crate) fn newest_covered(&self, slot: u32, oldest: u32) -> u32 {
        let slot = &self.slots[slot as usize];
        if slot.from_this_session { slot.tombstones.newest(oldest) } else { UNKNOWN }
    }

    /// The sequence of the segment in which the record at `position` stands.
    pub(crate) fn sequence_at(&self, position: Position) -> u32 {
        self.slots[self.geometry.locate(position).0 as usize].sequence
    }

    /// The record at `position` names an extent.
    pub(crate) fn name_extent(&mut self, position: Position, extent: ExtentName) {
        self.live_total += self.named_bytes(extent);
        self.extent_of.insert(position, extent);
    }

    /// What counts as alive of an extent. One that is wasteful counts with all that it covers, which no
    /// moving gains.
    fn named_bytes(&self, extent: ExtentName) -> u64 {
        let Some(slot) = self.slots.get(extent.slot as usize) else { return 0 };
        match self.is_wasteful(slot.span, slot.length) {
            true => u64::from(slot.span) << self.geometry.segment_log2,
            false => slot.length,
        }
    }

    /// Sets how large the file may become, in per cent of what lives in it. What a checkpoint told of extents was
    /// counted by another factor.
    pub(crate) fn set_factor(&mut self, factor: u32) {
        self.live_total -= self.all_named_bytes();
        self.factor = factor;
        self.live_total += self.all_named_bytes();
    }

    #[inline(never)]
    fn all_named_bytes(&self) -> u64 {
        self.extent_of.iter().map(|(_, name)| self.named_bytes(*name)).sum()
    }

    /// Whether so many slots for so many bytes are more than half of what may be dead allows.
    pub(crate) fn is_wasteful(&self, span: u32, length: u64) -> bool {
        let bytes = u64::from(span) << self.geometry.segment_log2;
        bytes * 200 > length * u64::from(100 + self.factor)
    }

    /// The extent that the record at `position` names.
    pub(crate) fn extent_of(&self, position: Position) -> Option<ExtentName> {
        self.extent_of.get(position).copied()
    }

    /// The record at `position` no longer counts; its extent may be used again once the frame that
    /// says so is flushed.
    #[inline]
    pub(crate) fn drop_name(&mut self, position: Position) {
        if self.extent_of.is_empty() {
            return;
        }
        if let Some(extent) = self.extent_of.remove(position) {
            self.live_total -= self.named_bytes(extent);
            self.dead_extents.push(DeadExtent { extent, record: position, frame: None });
        }
    }

    /// The record at `position` was ended by a commit that is behind us, and is taken out of the index now.
    pub(crate) fn drop_cleared_name(&mut self, position: Position) {
        let before = self.dead_extents.len();
        self.drop_name(position);
        for dead in &mut self.dead_extents[before..] {
            dead.frame = Some(self.next_frame - 1);
        }
    }

    /// Positions of the records that name extents.
    pub(crate) fn naming_extents(&self) -> Vec<Position> {
        self.extent_of.iter().map(|(position, _)| *position).collect()
    }

    /// Whether any record in a slot counts.
    pub(crate) fn has_live_records(&self, slot: u32) -> bool {
        let slot = &self.slots[slot as usize];
        slot.state == SlotState::Log && slot.live > 0
    }

    /// The slots of segments in which records count, but for those that are damaged.
    pub(crate) fn live_slots(&self) -> Vec<u32> {
        let is_one =
            |slot: &u32| self.has_live_records(*slot) && !self.slots[*slot as usize].pending_free;
        (0..self.slot_count()).filter(is_one).collect()
    }

    /// Takes back what was said last of the record at `position`.
    pub(crate) fn restore_name(&mut self, position: Position) {
        if let Some(dead) = self.dead_extents.pop_if(|dead| dead.record == position) {
            self.name_extent(position, dead.extent);
        }
    }

    /// The record that names an extent has moved.
    pub(crate) fn move_name(&mut self, from: Position, to: Position) {
        if let Some(extent) = self.extent_of.remove(from) {
            self.extent_of.insert(to, extent);
        }
    }

    /// Takes back that the record at `position` names an extent, which is going.
    pub(crate) fn forget_name(&mut self, position: Position) {
        if let Some(extent) = self.extent_of.remove(position) {
            self.live_total -= self.named_bytes(extent);
        }
    }

    /// Bytes of live records with their headers, and of their extents' values.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        let logs = self.slots.iter().filter(|slot| slot.state == SlotState::Log);
        let records: u64 = logs.map(|slot| u64::from(slot.live_bytes)).sum();
        let named =
            self.extent_of.iter().filter_map(|(_, name)| self.slots.get(name.slot as usize));
        records + named.map(|slot| slot.length).sum::<u64>()
    }
}

/// A segment, and what compacting it would give.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactionVictim {
    pub slot: u32,
    pub gain: usize,
}

impl Slot {
    /// Bytes of what is needed of a segment, as far as is known; with the sequences of all that stand.
    pub(super) fn needed(&self, sequences: &[u32]) -> usize {
        (self.live_bytes + self.tombstones.needed(sequences, self.sequence)) as usize
    }

    /// Bytes that emptying it gains. What was left at its end since the next record was too long would be
    /// left again: a tail counts only if some of its records would fit there.
    fn gain(&self, room: usize, sequences: &[u32]) -> usize {
        let needed = self.needed(sequences);
        let end = self.end as usize;
        let is_left = (room - end) * (self.live as usize) < RECORDS_THAT_FIT * needed;
        (if is_left { end } else { room }).saturating_sub(needed)
    }
}

/// So many: beside long records there are short ones, of the engine too, and the average is of all.
const RECORDS_THAT_FIT: usize = 4;

/// Frames that are going or have gone, between two segments that stay.
#[derive(Debug)]
pub(crate) struct Gap {
    /// Number behind the last frame of the segment before; none when there is no segment before.
    pub from: Option<u64>,
    /// First frames of the segments that go.
    pub inside: Vec<u64>,
    /// First frame of the segment behind.
    pub to: u64,
}

impl Log {
    /// Bytes of the file but for its checkpoints, what is being erased included.
    #[must_use]
    pub(crate) fn space(&self) -> u64 {
        let slots = (self.slots.len() as u64).saturating_sub(u64::from(self.checkpoint_slots));
        slots << self.geometry.segment_log2
    }

    /// The same without what can be used again, or soon can.
    pub(crate) fn used_space(&self) -> u64 {
        self.space().saturating_sub(u64::from(self.spare_slots) << self.geometry.segment_log2)
    }

    /// What lives, that part of the slack, and so many segments.
    pub(crate) fn allowed(&self, part: u64, segments: u64) -> u64 {
        let live = self.live_total;
        let slack = u64::from(self.factor - 100);
        live + live / 100 * slack / 100 * part + (segments << self.geometry.segment_log2)
    }

    /// Bytes of what is used that nothing lives in.
    pub(crate) fn dead_bytes(&self) -> u64 {
        self.used_space().saturating_sub(self.live_total)
    }

    /// Bytes that retired segments take.
    pub(crate) fn pending_free_bytes(&self) -> u64 {
        let retired = self.slots.iter().filter(|slot| slot.pending_free).count();
        (retired as u64) << self.geometry.segment_log2
    }

    /// Bytes of live records, and of slots that live extents cover.
    #[must_use]
    pub(crate) fn live_total(&self) -> u64 {
        self.live_total
    }

    /// Bytes of deletions.
    pub(crate) fn tombstone_bytes(&self) -> u64 {
        let logs =
            self.slots.iter().filter(|slot| slot.state == SlotState::Log && !slot.pending_free);
        logs.map(|slot| u64::from(slot.tombstones.bytes())).sum()
    }

    /// Segments that can be emptied, with their slots.
    fn candidates(&self, below: u32) -> impl Iterator<Item = (u32, &Slot)> {
        let busy = [self.cursor.slot, self.group.slot];
        (0..).zip(&self.slots).filter(move |(index, slot)| {
            let is_still = slot.state == SlotState::Log
                && slot.written
                && !slot.pending_free
                && !slot.pinned_by_damage;
            is_still && slot.sequence < below && !busy.contains(&Some(*index))
        })
    }

    /// The segment of which least is needed, among those below a sequence. A [fresh](Log::is_fresh) one
    /// comes first if that `helps` and not much of it is needed.
    pub(crate) fn pick_victim(&self, below: u32, helps: bool) -> Option<CompactionVictim> {
        let sequences = self.sequences();
        let room = self.geometry.segment();
        let gains = self
            .candidates(below)
            .map(|(slot, it)| CompactionVictim { slot, gain: it.gain(room, &sequences) });
        gains.max_by_key(|&CompactionVictim { slot, gain }| {
            (helps && gain >= room - room / 4 && self.is_fresh(slot), gain)
        })
    }

    /// Bytes that live in a segment, if nothing else in it is needed, and no record need be looked at to know
    /// that.
    pub(crate) fn live_records_of(&self, slot: u32) -> Option<usize> {
        let slot = &self.slots[slot as usize];
        let live = slot.live_bytes as usize;
        (slot.from_this_session && slot.needed(&self.sequences()) == live).then_some(live)
    }

    /// Whether no promise leans on a segment: it came since the last flush, and so does the checkpoint not
    /// name it. One stands before it, where its gap can begin. On a full disk none is: there all room that
    /// can be gained is gained together.
    pub(crate) fn is_fresh(&self, slot: u32) -> bool {
        let slot = &self.slots[slot as usize];
        let is_ours =
            slot.from_this_session && slot.written && slot.first_frame >= self.flushed_frames;
        is_ours
            && !self.full
            && self.dropped_tail == DiscardedTail::Nothing
            && self.is_reclaimed()
            && self.in_order().first().is_some_and(|&(oldest, _)| oldest < slot.sequence)
    }

    /// The last segment of the file, if it could move to the front.
    pub(crate) fn last_in_file(&self, below: u32) -> Option<u32> {
        let last = self.candidates(below).last()?.0;
        self.could_move(last).then_some(last)
    }

    /// Whether the segment in which the log ends is the last of the file and could move.
    pub(crate) fn ends_at_the_end(&self) -> bool {
        self.cursor
            .slot
            .is_some_and(|slot| self.slots[slot as usize].written && self.could_move(slot))
    }

    /// Whether the checkpoint is behind all segments, and there is room for it before them.
    pub(crate) fn checkpoint_could_move(&self) -> bool {
        self.checkpoint.is_some_and(|slot| self.could_move(slot))
    }

    /// Whether what begins in `slot` is behind all segments, and room for as much would be found before it:
    /// elsewhere it might go to and fro without end.
    #[inline(never)]
    fn could_move(&self, slot: u32) -> bool {
        let span = self.slots[slot as usize].span;
        let after = &self.slots[slot as usize + 1..];
        self.best_row(span, self.slots.len() as u32) < slot
            && after.iter().all(|slot| slot.state != SlotState::Log || slot.pending_free)
    }

    /// The oldest segment, if its sequence is below that.
    pub(crate) fn oldest_below(&self, below: u32) -> Option<u32> {
        self.candidates(below).min_by_key(|(_, slot)| slot.sequence).map(|(index, _)| index)
    }

    /// Sequences of all segments that stand in the file, in order.
    pub(crate) fn sequences(&self) -> Vec<u32> {
        self.in_order().into_iter().map(|(sequence, _)| sequence).collect()
    }

    /// Sequences and slots of those segments, in order.
    fn in_order(&self) -> Vec<(u32, u32)> {
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

    /// Seed of the checksums in a slot.
    pub(crate) fn salt(&self, slot: u32) -> u64 {
        self.slots[slot as usize].salt
    }

    /// Sequence of a segment, and the offset behind its last frame.
    pub(crate) fn extent_of_segment(&self, slot: u32) -> (u32, usize) {
        let slot = &self.slots[slot as usize];
        (slot.sequence, slot.end as usize)
    }

    /// Everything that is needed of a segment stands elsewhere.
    pub(crate) fn retire(&mut self, slot: u32) {
        let slot = &mut self.slots[slot as usize];
        slot.pending_free = true;
        self.live_total -= u64::from(slot.live_bytes);
        (slot.live, slot.live_bytes) = (0, 0);
        self.spare_slots += 1;
    }

    /// A segment stays as it is: nobody knows what is needed of it.
    pub(crate) fn keep(&mut self, slot: u32) {
        self.slots[slot as usize].pinned_by_damage = true;
    }

    /// The gaps in the numbers of frames, those included that retired segments leave.
    pub(crate) fn gaps(&self) -> Vec<Gap> {
        let (mut gaps, mut inside, mut before) = (Vec::new(), Vec::new(), None);
        for (_, index) in self.in_order() {
            let slot = &self.slots[index as usize];
            if slot.pending_free {
                inside.push(slot.first_frame);
                continue;
            }
            let has_gone = before.is_some_and(|before| before < slot.first_frame);
            if has_gone || !inside.is_empty() {
                let inside = core::mem::take(&mut inside);
                gaps.push(Gap { from: before, inside, to: slot.first_frame });
            }
            before = Some(slot.end_frame);
        }
        gaps
    }

    /// Whether the log's end lies in a segment that stands in the file.
    pub(crate) fn is_anchored(&self) -> bool {
        self.cursor.slot.is_some_and(|slot| self.slots[slot as usize].written)
    }

    /// Whether frames were written that are not flushed.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.flushed_frames < self.next_frame
    }
}
