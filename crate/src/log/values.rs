//! Values of extents in memory: read whole, verified, kept as long as there is room, and let go when they
//! were not looked at lately.

use alloc::vec::Vec;

use crate::error::Error;
use crate::file::{File, read_full};
use crate::format::checksum::{checksum, seed_at};
use crate::format::payload::ExtentRef;
use crate::format::segment;
use crate::memory::AlignedBytes;
use crate::sort;

use super::read::{Place, damaged};
use super::{Log, Use};

impl Log {
    /// Reads an extent's value into memory if it is the one described, and intact.
    pub(crate) fn load_extent(
        &mut self,
        file: &mut impl File,
        extent: &ExtentRef,
    ) -> Result<bool, Error> {
        let geometry = self.geometry;
        let now = self.pool.now();
        let Some(slot) = self.slots.get_mut(extent.slot as usize) else { return Ok(false) };
        let room = u64::from(slot.span) << geometry.segment_log2;
        let described = slot.used == Use::Extent
            && slot.sequence == extent.sequence
            && slot.length == extent.length
            && extent.length + 2 * segment::SIZE as u64 <= room;
        if !described {
            return Ok(false);
        }
        slot.touched = now;
        if slot.value.is_some() {
            return Ok(true);
        }
        let salt = slot.salt;
        let start = geometry.slot_start(extent.slot) + segment::SIZE as u64;
        let length = extent.length as usize;
        let mut bytes = self.take_value(length)?;
        let read = read_full(file, &mut bytes[..length], start);
        let intact = read.is_ok_and(|there| there == length)
            && checksum(&bytes[..length], seed_at(salt, start)) == extent.check;
        let freed = match intact {
            true => self.slots[extent.slot as usize].value.replace(bytes),
            false => Some(bytes),
        };
        self.leave_value(freed);
        read?;
        Ok(intact)
    }

    /// Whether the value of an extent is whole; it stays in memory only if there is room.
    ///
    /// # Errors
    /// What the file said.
    pub fn verify_extent(
        &mut self,
        file: &mut impl File,
        extent: &ExtentRef,
    ) -> Result<bool, Error> {
        let whole = self.load_extent(file, extent);
        self.trim_extents(self.room_for_extents());
        whole
    }

    #[cold]
    pub(super) fn extent_value(
        &mut self,
        file: &mut impl File,
        place: Place,
    ) -> Result<&[u8], Error> {
        // Only a lying checkpoint leads to a record of another shape.
        let Some(extent) = ExtentRef::decode(self.record_in(place).value) else {
            return Err(damaged(0));
        };
        // An extent of the open group is not sealed yet, and resident.
        let resident = self
            .slots
            .get(extent.slot as usize)
            .is_some_and(|slot| slot.value.is_some() && slot.sequence == extent.sequence);
        if !resident && !self.load_extent(file, &extent)? {
            return Err(damaged(self.geometry.slot_start(extent.slot) + segment::SIZE as u64));
        }
        let slot = &mut self.slots[extent.slot as usize];
        (slot.touched, slot.shown) = (self.pool.now(), true);
        let value = slot.value.as_ref().expect("it was loaded");
        Ok(&value[..extent.length as usize])
    }

    /// Memory for the value of an extent, its bytes undefined. What was let go last is used again:
    /// zeroing costs as much as a checksum.
    ///
    /// # Errors
    /// As for [`room_for_value`](Log::room_for_value).
    pub(super) fn take_value(&mut self, length: usize) -> Result<AlignedBytes, Error> {
        self.room_for_value(length)?;
        let fits = |spare: &mut AlignedBytes| (length..=2 * length).contains(&spare.len());
        let spare = self.spare_value.take_if(fits);
        let value = spare.unwrap_or_else(|| AlignedBytes::unwritten(length));
        self.value_bytes += value.len();
        Ok(value)
    }

    /// Lets go of the memory of a value.
    #[inline(never)]
    pub(super) fn leave_value(&mut self, value: Option<AlignedBytes>) {
        let Some(value) = value else { return };
        self.value_bytes -= value.len();
        self.spare_value = Some(value);
    }

    /// Makes room for the value of an extent. Those that one turn looks at, writes or takes back may
    /// take as much as the budget; beyond it what nobody needs is let go, and if a view may show any
    /// of it, all views die.
    ///
    /// # Errors
    /// [`Error::ViewsHeld`] when one of the views is a running callback's.
    pub(super) fn room_for_value(&mut self, length: usize) -> Result<(), Error> {
        let held: usize = self.quarantine.iter().map(|bytes| bytes.len()).sum();
        let fits = self.value_bytes + held + length <= self.pool.budget();
        if fits || !self.pool.lends_views {
            return Ok(());
        }
        let mut allowed = self.pool.budget().saturating_sub(length);
        if held > 0 || self.slots.iter().any(|slot| slot.shown && slot.may_lose_value()) {
            self.pool.kill_views()?;
            self.slots.iter_mut().for_each(|slot| slot.shown = false);
            // Nothing shows any more what was rolled back in this turn.
            self.quarantine = Vec::new();
            allowed = self.pool.budget() / 4;
        }
        self.trim_extents(allowed);
        // The memory might have to grow, and under a callback it must not.
        if self.pool.callback_open && self.value_bytes + length > self.pool.budget() {
            return Err(Error::ViewsHeld);
        }
        Ok(())
    }

    /// Bytes that the values of extents may take between turns: what buffers leave of the budget, and
    /// at least a quarter of it.
    pub(super) fn room_for_extents(&self) -> usize {
        let budget = self.pool.budget();
        budget.saturating_sub(self.pool.memory()).max(budget / 4)
    }

    /// Lets go of the values of extents that were not looked at lately, when they hold more than
    /// `allowed` bytes. Returns whether any went that a view may show.
    pub(super) fn trim_extents(&mut self, allowed: usize) -> bool {
        if self.value_bytes <= allowed {
            return false;
        }
        let held = self.slots.iter().zip(0..).filter(|(slot, _)| slot.may_lose_value());
        let order = held.map(|(slot, i)| (slot.touched, i)).collect();
        let mut shown = false;
        for (_, index) in sort::by_number(order) {
            if self.value_bytes <= allowed {
                break;
            }
            let slot = &mut self.slots[index as usize];
            shown |= slot.shown;
            let value = slot.value.take();
            self.leave_value(value);
        }
        shown
    }
}
