//! Large values in memory, of extents and put together from pieces: read whole, verified, kept as long as
//! there is room, and let go when they were not looked at lately.

use alloc::vec::Vec;

use crate::aligned_buf::AlignedBytes;
use crate::error::Error;
use crate::file::{File, read_full};
use crate::format::checksum::{checksum, seed_at};
use crate::format::record::{self, KIND_SET, RecordHeader};
use crate::format::system_records::{ExtentRef, PIECE_KEY, PiecesRef};
use crate::format::{KEYSPACE_ENGINE, align_up, segment};
use crate::index::hash_index::Position;

use super::read::{Pin, Place, damaged};
use super::{Log, SlotState};

/// A large value in memory, if it is there.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub value: Option<AlignedBytes>,
    /// When it was looked at last, which generation of views may show it, and how many need it to stay.
    pub touched: u32,
    pub shown: u32,
    pub pins: u32,
}

/// A value that was put together from its pieces.
#[derive(Debug)]
pub(super) struct Assembled {
    pieces: PiecesRef,
    pub held: Held,
}

/// Bytes before a value that is put together, where the header and the key of its first piece go when that is
/// read.
const BEFORE: usize = record::SIZE + PIECE_KEY;

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
        let described = slot.state == SlotState::Extent
            && slot.sequence == extent.sequence
            && slot.length == extent.length
            && extent.length + 2 * segment::SIZE as u64 <= room;
        if !described {
            return Ok(false);
        }
        slot.held.touched = now;
        if slot.held.value.is_some() {
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
            true => self.slots[extent.slot as usize].held.value.replace(bytes),
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
        self.trim_values();
        whole
    }

    /// Lets go of values for which there is no room.
    pub(crate) fn trim_values(&mut self) {
        self.trim_to(self.room_for_values());
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
        // An extent of the open batch is not sealed yet, and resident.
        let resident = self
            .slots
            .get(extent.slot as usize)
            .is_some_and(|slot| slot.held.value.is_some() && slot.sequence == extent.sequence);
        if !resident && !self.load_extent(file, &extent)? {
            return Err(damaged(self.geometry.slot_start(extent.slot) + segment::SIZE as u64));
        }
        let held = &mut self.slots[extent.slot as usize].held;
        held.touched = self.pool.now();
        if !self.pool.is_crowded() {
            held.shown = self.views;
        }
        let value = held.value.as_ref().expect("it was loaded");
        // Two records that lie may name one extent.
        value.get(..extent.length as usize).ok_or(damaged(0))
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

    /// Makes room for a large value. Those that one turn looks at, writes or takes back may take as much
    /// as the budget. If views show all of it and have to live, values are given as copies from then on;
    /// else all views die.
    ///
    /// # Errors
    /// [`Error::ViewsHeld`] when memory would have to grow and a view has to live.
    pub(super) fn room_for_value(&mut self, length: usize) -> Result<(), Error> {
        let held: usize = self.quarantine.iter().map(|bytes| bytes.len()).sum();
        let (budget, needed) = (self.pool.budget(), held + length);
        if self.pool.lends_views && self.value_bytes + needed > budget {
            self.trim_hidden(budget.saturating_sub(needed));
            let is_shown = held > 0 || self.stalest(true).is_some();
            if self.value_bytes + needed > budget && is_shown {
                if self.pool.views_must_live() {
                    self.pool.crowd();
                } else {
                    self.pool.kill_views()?;
                    self.views += 1;
                    // Nothing shows any more what was rolled back in this turn.
                    self.quarantine = Vec::new();
                    self.trim_to(budget / 4);
                }
            }
        }
        let spare = self.spare_value.as_ref().map_or(0, |spare| spare.len());
        let is_spare = (length..=2 * length).contains(&spare);
        if is_spare || self.pool.may_take(length) { Ok(()) } else { Err(Error::ViewsHeld) }
    }

    /// Lets go of large values that no view shows, while they all hold more than `allowed` bytes.
    fn trim_hidden(&mut self, allowed: usize) {
        while self.value_bytes > allowed
            && let Some(held) = self.stalest(false)
        {
            let value = held.value.take();
            self.leave_value(value);
        }
    }

    /// Bytes that large values may take between turns: what buffers leave of the budget, and
    /// at least a quarter of it.
    pub(super) fn room_for_values(&self) -> usize {
        let budget = self.pool.budget();
        budget.saturating_sub(self.pool.memory()).max(budget / 4)
    }

    /// Lets go of large values that were not looked at lately, when they hold more than
    /// `allowed` bytes. Returns whether any went that a view may show.
    pub(super) fn trim_to(&mut self, allowed: usize) -> bool {
        if self.value_bytes <= allowed {
            return false;
        }
        self.trim_hidden(allowed);
        let mut shown = false;
        while self.value_bytes > allowed
            && let Some(held) = self.stalest(true)
        {
            shown = true;
            let value = held.value.take();
            self.leave_value(value);
        }
        shown
    }

    /// The value that was not looked at for longest, of those that could be read again and that nobody needs to
    /// stay: of those that views show, or of those that none does.
    #[inline(never)]
    fn stalest(&mut self, are_shown: bool) -> Option<&mut Held> {
        let views = self.views;
        let slots = self.slots.iter_mut().filter(|slot| slot.written).map(|slot| &mut slot.held);
        let assembled = self.assembled.iter_mut().map(|value| &mut value.held);
        let may_go = slots.chain(assembled).filter(|held| {
            held.pins == 0 && held.value.is_some() && are_shown == (held.shown == views)
        });
        may_go.min_by_key(|held| held.touched)
    }

    /// Whether a value in pieces is in memory, where it is to be looked at now.
    pub(crate) fn has_assembled(&mut self, pieces: &PiecesRef) -> bool {
        let now = self.pool.now();
        let found = find(&mut self.assembled, pieces);
        found.map(|value| value.held.touched = now).is_some()
    }

    /// Takes memory for a value in pieces, its bytes undefined.
    ///
    /// # Errors
    /// As for [`room_for_value`](Log::room_for_value).
    pub(crate) fn begin_assembly(&mut self, pieces: &PiecesRef) -> Result<(), Error> {
        let value = Some(self.take_value(BEFORE + pieces.length as usize)?);
        // It stays until it is complete.
        let held = Held { value, touched: self.pool.now(), shown: 0, pins: 1 };
        self.assembled.retain(|value| value.held.value.is_some());
        self.assembled.push(Assembled { pieces: *pieces, held });
        Ok(())
    }

    /// A value is complete, with so many bytes, and need not stay; or it came to nothing: then it goes, at once
    /// if no view shows it.
    #[inline(never)]
    pub(crate) fn end_assembly(&mut self, pieces: &PiecesRef, length: Option<u64>) {
        let views = self.views;
        let Some(Assembled { pieces, held }) = find(&mut self.assembled, pieces) else { return };
        held.pins -= 1;
        if let Some(length) = length {
            pieces.length = length;
            return;
        }
        // No value is as long, so that nobody finds it.
        (pieces.length, held.touched) = (u64::MAX, 0);
        let value = if held.shown == views { None } else { held.value.take() };
        self.leave_value(value);
    }

    /// The memory of a value in pieces.
    ///
    /// # Panics
    /// If it is not in memory.
    #[inline(never)]
    pub(crate) fn assembled_mut(&mut self, pieces: &PiecesRef) -> &mut [u8] {
        let value = find(&mut self.assembled, pieces).and_then(|value| value.held.value.as_mut());
        &mut value.expect("it is in memory")[BEFORE..][..pieces.length as usize]
    }

    /// The same, for a view, or for a copy where values are given so unless it `stays`.
    ///
    /// # Panics
    /// As for [`assembled_mut`](Log::assembled_mut).
    pub(crate) fn show_assembled(&mut self, pieces: &PiecesRef, stays: bool) -> &[u8] {
        if (stays || !self.pool.is_crowded())
            && let Some(value) = find(&mut self.assembled, pieces)
        {
            value.held.shown = self.views;
        }
        self.assembled_mut(pieces)
    }

    /// Keeps a value that is in memory there until [`unpin`](Log::unpin).
    pub(crate) fn pin_assembled(&mut self, pieces: PiecesRef) -> Pin {
        if let Some(value) = find(&mut self.assembled, &pieces) {
            value.held.pins += 1;
        }
        Pin::Pieces(pieces)
    }

    pub(crate) fn unpin_assembled(&mut self, pieces: &PiecesRef) {
        if let Some(value) = find(&mut self.assembled, pieces) {
            value.held.pins -= 1;
        }
    }

    /// Copies the piece at a place to where it belongs in its value in memory, behind the first `from` bytes,
    /// or from there if it `writes`: then as much as there is. Gives how many bytes it has; none if they are
    /// too many.
    #[inline(never)]
    pub(crate) fn copy_piece(
        &mut self,
        place: Place,
        pieces: &PiecesRef,
        from: usize,
        writes: bool,
    ) -> Option<usize> {
        let value = find(&mut self.assembled, pieces)?.held.value.as_mut()?;
        let rest = value[BEFORE..][..pieces.length as usize].get_mut(from..)?;
        let record = &mut self.pool.bytes_mut(place.buffer)[place.offset as usize..];
        let header = RecordHeader::at_mut(record)?;
        if header.kind != KIND_SET {
            return None;
        }
        if writes {
            header.value_len = header.value_len.min(rest.len() as u32);
        }
        let (length, at, size) = (header.value_len as usize, header.value_offset(), header.size());
        let (piece, behind) = record.get_mut(at..size)?.split_at_mut_checked(length)?;
        let part = rest.get_mut(..length)?;
        if writes {
            piece.copy_from_slice(part);
            behind.fill(0);
        } else {
            part.copy_from_slice(piece);
        }
        Some(length)
    }
}

impl Log {
    /// Reads the piece of so many bytes at a position of the file to where it belongs, behind the first `from`
    /// bytes of its value, by one call and without a copy: its header and its key come to lie over what is before
    /// it, which is put back. Says whether it is that piece, and intact.
    #[inline(never)]
    pub(crate) fn read_piece(
        &mut self,
        file: &mut impl File,
        position: Position,
        key: &[u8],
        pieces: &PiecesRef,
        from: usize,
        length: usize,
    ) -> bool {
        let (slot, offset) = self.geometry.locate(position);
        let at = self.geometry.slot_start(slot) + offset as u64;
        let salt = self.salt(slot);
        let value = find(&mut self.assembled, pieces).and_then(|value| value.held.value.as_mut());
        let to = from + record::size_of_record(PIECE_KEY, align_up(length));
        let Some(bytes) = value.and_then(|value| value.get_mut(from..to)) else { return false };
        let mut before = [0; BEFORE];
        before.copy_from_slice(&bytes[..BEFORE]);
        let there = read_full(file, bytes, at);
        let is_it = there.is_ok_and(|there| there == bytes.len())
            && RecordHeader::verify(bytes, salt, at)
            && record::parts(bytes).is_some_and(|(header, its_key, its_value)| {
                let shape = (header.kind, header.space(), header.size(), its_value.len());
                shape == (KIND_SET, KEYSPACE_ENGINE, bytes.len(), length) && its_key == key
            });
        bytes[..BEFORE].copy_from_slice(&before);
        is_it
    }
}

#[inline(never)]
fn find<'a>(assembled: &'a mut [Assembled], pieces: &PiecesRef) -> Option<&'a mut Assembled> {
    let name = (pieces.id, pieces.length);
    assembled
        .iter_mut()
        .find(|value| value.held.value.is_some() && (value.pieces.id, value.pieces.length) == name)
}
