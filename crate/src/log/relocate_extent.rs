//! Extents that move to where the file has room before them, so that it can be cut off behind them.
//!
//! The value is copied piece by piece, and verified on the way. Only when all of it is there and whole
//! do headers tell of it, and a record is appended that leads to it. The old extent is given back like
//! any other whose record was replaced, once no crash could bring that record back.

use alloc::boxed::Box;

use crate::aligned_buf::AlignedBytes;
use crate::error::Error;
use crate::file::{File, read_full, write_all};
use crate::format::checksum::{Checksum, seed_at};
use crate::format::segment;
use crate::format::system_records::ExtentRef;
use crate::index::hash_index::Position;
use crate::radix_sort;

use super::slot_allocator::AllocPriority;
use super::space_accounting::ExtentName;
use super::{Log, Slot, SlotState};

/// An extent on its way.
#[derive(Debug)]
pub(crate) struct Relocation {
    /// The record that names it.
    pub record: Position,
    from: ExtentName,
    to: u32,
    /// Bytes that have been copied, and their checksums under the old seed and the new one.
    done: u64,
    checks: [Checksum; 2],
    /// Those of the whole, once it was copied.
    sums: [u64; 2],
}

impl Log {
    /// Begins with the last extent of the file that has room before it. When there is room, but in no
    /// place enough, and the file `may_grow`, one is taken out of the way behind which it lies open.
    /// The reserve stays as it is, and nothing moves where there is no room beside it.
    pub(crate) fn begin_relocation(
        &mut self,
        file: &mut impl File,
        may_grow: bool,
    ) -> Result<Option<Box<Relocation>>, Error> {
        let is_there = |name: &ExtentName| {
            let slot = self.slots.get(name.slot as usize);
            slot.is_some_and(|slot| {
                slot.state == SlotState::Extent && slot.sequence == name.sequence
            })
        };
        let there = self.extent_of.iter().filter(|(_, name)| is_there(name));
        let order = there.map(|(record, name)| (name.slot, *record)).collect();
        let (mut at, mut row, mut longest) = (0, 0, 0);
        let (mut fits, mut blocks) = (None, None);
        for (first, record) in radix_sort::by_number(order) {
            for slot in self.slots.iter().take(first as usize).skip(at) {
                row = if slot.is_free() { row + 1 } else { 0 };
                longest = longest.max(row);
            }
            at = at.max(first as usize);
            match self.slots.get(at) {
                Some(slot) if !slot.written || slot.pinned_by_damage || slot.held.pins > 0 => {}
                Some(slot) if slot.span <= longest => fits = Some((first, record)),
                Some(_) if row > 0 && blocks.is_none() => blocks = Some((first, record)),
                _ => {}
            }
        }
        let Some((first, record)) = fits.or(blocks.filter(|_| may_grow)) else { return Ok(None) };
        let span = self.slots[first as usize].span;
        let before = fits.map(|_| first);
        let to = match self.find_room_before(file, span, AllocPriority::Write, before) {
            Err(Error::Quota | Error::Full) => return Ok(None),
            to => to?,
        };
        Ok(self.extent_of(record).map(|from| Box::new(self.relocation_of(record, from, to))))
    }

    fn relocation_of(&mut self, record: Position, from: ExtentName, to: u32) -> Relocation {
        let Slot { span, length, salt, .. } = self.slots[from.slot as usize];
        let slot = Slot { length, ..self.fresh_slot(SlotState::Extent, span) };
        let checks = [(from.slot, salt), (to, slot.salt)]
            .map(|(slot, salt)| Checksum::new(seed_at(salt, self.value_start(slot))));
        self.occupy_span(to, slot);
        Relocation { record, from, to, done: 0, checks, sums: [0; 2] }
    }

    fn value_start(&self, slot: u32) -> u64 {
        self.geometry.slot_start(slot) + segment::SIZE as u64
    }

    /// Copies a piece. Answers whether there is more, or that there is nothing any more to move.
    pub(crate) fn relocate_chunk(
        &self,
        file: &mut impl File,
        relocation: &mut Relocation,
    ) -> Result<Option<bool>, Error> {
        // The record may have been replaced since.
        if self.extent_of(relocation.record) != Some(relocation.from) {
            return Ok(None);
        }
        let length = self.slots[relocation.to as usize].length;
        // Little enough for a slice, and as much as checksums can go on with.
        let size = (self.geometry.segment() / 8).max(1024);
        let left = (length - relocation.done) as usize;
        let is_last = left < 2 * size;
        let mut piece = AlignedBytes::zeroed(if is_last { left } else { size });
        // What pads the last one to 8 bytes is zero in both places.
        read_full(file, &mut piece, self.value_start(relocation.from.slot) + relocation.done)?;
        write_all(file, &piece, self.value_start(relocation.to) + relocation.done)?;
        if is_last {
            relocation.sums = relocation.checks.each_mut().map(|check| check.end(&piece[..left]));
        } else {
            relocation.checks.iter_mut().for_each(|check| check.add(&piece));
        }
        relocation.done += piece.len() as u64;
        Ok(Some(!is_last))
    }

    /// Writes the headers of a value that is there as a whole, if it is the one that `old` describes,
    /// and describes the new one.
    pub(crate) fn end_relocation(
        &mut self,
        file: &mut impl File,
        relocation: &Relocation,
        old: ExtentRef,
    ) -> Result<Option<ExtentRef>, Error> {
        let [before, check] = relocation.sums;
        if before != old.check || self.slots[relocation.to as usize].length != old.length {
            self.keep_relocated(relocation);
            return Ok(None);
        }
        self.slots[relocation.to as usize].length_check = check;
        self.write_extent_headers(file, relocation.to)?;
        self.slots[relocation.to as usize].written = true;
        self.tail_values += old.length;
        Ok(Some(ExtentRef { check, ..self.extent_ref(relocation.to, old.length as usize) }))
    }

    /// A value that is damaged, or its record, stays where it is: whoever reads it will be told.
    pub(crate) fn keep_relocated(&mut self, relocation: &Relocation) {
        self.keep(relocation.from.slot);
    }

    /// Gives back what was taken for an extent that does not move after all.
    pub(crate) fn abandon_relocation(&mut self, relocation: &Relocation) {
        self.discard(relocation.to);
    }
}
