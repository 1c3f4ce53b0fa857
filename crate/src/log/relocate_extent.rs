//! Relocation of extents towards the front of the file, so that its end can be truncated.
//!
//! The value is copied in chunks and verified on the way. Only after all of it was copied and found
//! intact are its headers written and a record appended that refers to it. The old extent is freed like
//! any other whose record was replaced, once no crash can bring that record back.

use alloc::boxed::Box;

use crate::aligned_buf::AlignedBytes;
use crate::error::Error;
use crate::file::{File, read_full, write_all};
use crate::format::checksum::{Checksum, seed_at};
use crate::format::segment;
use crate::format::system_records::ExtentRef;
use crate::index::Position;
use crate::radix_sort;

use super::slot_allocator::AllocPriority;
use super::space_accounting::ExtentId;
use super::{Log, Slot, SlotState};

/// An extent that is being relocated.
#[derive(Debug)]
pub(crate) struct Relocation {
    /// The record that refers to it.
    pub record: Position,
    from: ExtentId,
    to: u32,
    /// Bytes copied so far, and their checksums under the old seed and the new one.
    copied: u64,
    checks: [Checksum; 2],
    /// The checksums of the whole value, once it is copied.
    sums: [u64; 2],
}

impl Log {
    /// Starts with the last extent of the file that fits into free slots before it. If there are
    /// free slots but no run is long enough and the file `may_grow`, an extent behind such a run is
    /// moved to the end, so that the run becomes longer. The reserve stays as it is, and nothing
    /// moves if only the reserve is left.
    pub(crate) fn begin_relocation(
        &mut self,
        file: &mut impl File,
        may_grow: bool,
    ) -> Result<Option<Box<Relocation>>, Error> {
        let exists = |id: &ExtentId| {
            let slot = self.slots.get(id.slot as usize);
            slot.is_some_and(|slot| slot.state == SlotState::Extent && slot.sequence == id.sequence)
        };
        let extents = self.extents.by_record.iter().filter(|(_, id)| exists(id));
        let order = extents.map(|(record, id)| (id.slot, *record)).collect();
        let (mut at, mut run, mut longest_run) = (0, 0, 0);
        let (mut fits, mut blocks) = (None, None);
        for (first, record) in radix_sort::by_number(order) {
            for slot in self.slots.iter().take(first as usize).skip(at) {
                run = if slot.is_free() { run + 1 } else { 0 };
                longest_run = longest_run.max(run);
            }
            at = at.max(first as usize);
            match self.slots.get(at) {
                Some(slot) if !slot.written || slot.pinned_by_damage || slot.cached.pins > 0 => {}
                Some(slot) if slot.span <= longest_run => fits = Some((first, record)),
                Some(_) if run > 0 && blocks.is_none() => blocks = Some((first, record)),
                _ => {}
            }
        }
        let Some((first, record)) = fits.or(blocks.filter(|_| may_grow)) else { return Ok(None) };
        let span = self.slots[first as usize].span;
        let before = fits.map(|_| first);
        let to = match self.find_slots_before(file, span, AllocPriority::Write, before) {
            Err(Error::Quota | Error::Full) => return Ok(None),
            to => to?,
        };
        Ok(self.extent_of(record).map(|from| Box::new(self.relocation_of(record, from, to))))
    }

    fn relocation_of(&mut self, record: Position, from: ExtentId, to: u32) -> Relocation {
        let Slot { span, length, salt, .. } = self.slots[from.slot as usize];
        let slot = Slot { length, ..self.fresh_slot(SlotState::Extent, span) };
        let checks = [(from.slot, salt), (to, slot.salt)]
            .map(|(slot, salt)| Checksum::new(seed_at(salt, self.value_start(slot))));
        self.occupy_span(to, slot);
        Relocation { record, from, to, copied: 0, checks, sums: [0; 2] }
    }

    fn value_start(&self, slot: u32) -> u64 {
        self.geometry.slot_start(slot) + segment::SIZE as u64
    }

    /// Copies a chunk. Returns whether there is more, or none if there is nothing to move any more.
    pub(crate) fn relocate_chunk(
        &self,
        file: &mut impl File,
        relocation: &mut Relocation,
    ) -> Result<Option<bool>, Error> {
        // The record may have been replaced meanwhile.
        if self.extent_of(relocation.record) != Some(relocation.from) {
            return Ok(None);
        }
        let length = self.slots[relocation.to as usize].length;
        // Small enough for one maintenance step, and a multiple of what checksums need.
        let size = (self.geometry.segment() / 8).max(1024);
        let left = (length - relocation.copied) as usize;
        let is_last = left < 2 * size;
        let mut chunk = AlignedBytes::zeroed(if is_last { left } else { size });
        // The padding of the last chunk to 8 bytes is zero in both extents.
        read_full(file, &mut chunk, self.value_start(relocation.from.slot) + relocation.copied)?;
        write_all(file, &chunk, self.value_start(relocation.to) + relocation.copied)?;
        if is_last {
            relocation.sums = relocation.checks.each_mut().map(|check| check.end(&chunk[..left]));
        } else {
            relocation.checks.iter_mut().for_each(|check| check.add(&chunk));
        }
        relocation.copied += chunk.len() as u64;
        Ok(Some(!is_last))
    }

    /// Writes the headers of the copied value if it is the one that `old` describes, and returns
    /// the new descriptor.
    pub(crate) fn end_relocation(
        &mut self,
        file: &mut impl File,
        relocation: &Relocation,
        old: ExtentRef,
    ) -> Result<Option<ExtentRef>, Error> {
        let [before, check] = relocation.sums;
        if before != old.check || self.slots[relocation.to as usize].length != old.length {
            self.pin_source(relocation);
            return Ok(None);
        }
        self.slots[relocation.to as usize].length_check = check;
        self.write_extent_headers(file, relocation.to)?;
        self.slots[relocation.to as usize].written = true;
        self.checkpoint.value_bytes_since += old.length;
        Ok(Some(ExtentRef { check, ..self.extent_ref(relocation.to, old.length as usize) }))
    }

    /// Pins an extent whose value or record is damaged. Its readers get the error.
    pub(crate) fn pin_source(&mut self, relocation: &Relocation) {
        self.pin_damaged(relocation.from.slot);
    }

    /// Frees the target of a relocation that is abandoned.
    pub(crate) fn abandon_relocation(&mut self, relocation: &Relocation) {
        self.discard(relocation.to);
    }
}
