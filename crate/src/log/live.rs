//! What is alive: how much of each segment, and which extents.

use crate::format::payload::ExtentRef;
use crate::index::hash::Position;

use super::{Log, Slot, Use};

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
    pub(crate) fn born(&mut self, position: Position, size: u32) {
        let slot = self.slot_of(position);
        slot.live += 1;
        slot.live_bytes += size;
    }

    /// It no longer is.
    #[inline]
    pub(crate) fn died(&mut self, position: Position, size: u32) {
        let slot = self.slot_of(position);
        slot.live = slot.live.saturating_sub(1);
        // Sizes that replay guessed may not add up.
        slot.live_bytes = if slot.live == 0 { 0 } else { slot.live_bytes.saturating_sub(size) };
    }

    /// Bytes of the record at `position`; when it is cold, what those of its segment take on
    /// average.
    pub(crate) fn size_or_guess(&mut self, position: Position) -> u32 {
        if let Some(place) = self.resident(position) {
            return self.record_in(place).header.size() as u32;
        }
        let slot = self.slot_of(position);
        slot.live_bytes / slot.live.max(1)
    }

    /// Whether the record at `position` counts and its value lies in an extent.
    pub(crate) fn names_extent(&self, position: Position) -> bool {
        self.extent_of.contains_key(&position)
    }

    /// A deletion of `size` bytes was appended, covering segments from `oldest` on.
    pub(crate) fn buried(&mut self, position: Position, size: u32, oldest: u32) {
        let slot = self.slot_of(position);
        slot.grave_bytes += size;
        slot.grave_oldest = slot.grave_oldest.min(oldest);
    }

    /// It was taken back.
    pub(crate) fn unburied(&mut self, position: Position, size: u32) {
        let slot = self.slot_of(position);
        slot.grave_bytes = slot.grave_bytes.saturating_sub(size);
    }

    /// The record at `position` names an extent.
    pub(crate) fn name_extent(&mut self, position: Position, extent: ExtentName) {
        self.extent_of.insert(position, extent);
    }

    /// The extent that the record at `position` names.
    pub(crate) fn extent_of(&self, position: Position) -> Option<ExtentName> {
        self.extent_of.get(&position).copied()
    }

    /// The record at `position` no longer counts; its extent may be used again once the frame that
    /// says so is flushed.
    #[inline]
    pub(crate) fn drop_name(&mut self, position: Position) {
        if self.extent_of.is_empty() {
            return;
        }
        if let Some(extent) = self.extent_of.remove(&position) {
            self.dead_extents.push(DeadExtent { extent, record: position, frame: None });
        }
    }

    /// Takes back what was said last of the record at `position`.
    pub(crate) fn restore_name(&mut self, position: Position) {
        if let Some(dead) = self.dead_extents.pop_if(|dead| dead.record == position) {
            self.extent_of.insert(position, dead.extent);
        }
    }

    /// The record that names an extent has moved.
    pub(crate) fn move_name(&mut self, from: Position, to: Position) {
        if let Some(extent) = self.extent_of.remove(&from) {
            self.extent_of.insert(to, extent);
        }
    }

    /// Takes back that the record at `position` names an extent, which is going.
    pub(crate) fn forget_name(&mut self, position: Position) {
        self.extent_of.remove(&position);
    }

    /// Bytes of live records with their headers, and of their extents' values.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        let logs = self.slots.iter().filter(|slot| slot.used == Use::Log);
        let records: u64 = logs.map(|slot| u64::from(slot.live_bytes)).sum();
        let named = self.extent_of.values().filter_map(|name| self.slots.get(name.slot as usize));
        records + named.map(|slot| slot.length).sum::<u64>()
    }
}
