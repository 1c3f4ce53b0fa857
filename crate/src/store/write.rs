//! Staged records: begun and finished by separate calls, between which the caller writes the value.

use musli_zerocopy::ZeroCopy;

use crate::aligned_buf::copy_value;
use crate::error::Error;
use crate::file::File;
use crate::format::record::{self, KIND_CHUNKED, KIND_EXTENT, KIND_SET, RecordHeader};
use crate::format::system_records::{ChunksRef, ExtentRef, KEY_IDS};
use crate::format::{KEYSPACE_ENGINE, align_up, commit_size_limit, inline_limit};
use crate::index::Position;
use crate::log::ValueLocation;
use crate::log::slot_allocator::AllocPriority;
use crate::log::space_accounting::ExtentId;

use super::{BufferAddr, LOOKUP_BATCH, Located, Predecessor, Store, Undo};

/// More sets than can be queued at a time.
const MAX_QUEUED: usize = 256;

/// A key and its new value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Set<'a> {
    /// The keyspace of the key.
    pub keyspace: u32,
    /// The key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// The record that is staged between a begin and a finish.
///
/// The data are in the store and not in this enum: copying them between the two calls, field by
/// field into one location and as a whole out of it, makes the processor wait for its own writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Staged {
    /// Nothing.
    #[default]
    Nothing,
    /// `new`: a record at the tail that is not part of the batch yet.
    New,
    /// `changing`: a record of the batch that is being changed in place; its old value is saved.
    InPlace,
}

/// A record of the open batch that is being changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changing {
    pub at: Located,
    pub location: ValueLocation,
}

/// A record at the tail.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NewRecord {
    position: Position,
    /// Its address in memory: the tail's segment stays resident.
    addr: BufferAddr,
    hash: u32,
    /// The record that it replaces.
    pub old: Option<Predecessor>,
    location: ValueLocation,
    /// Whether a caller's view may show it, so that its bytes must stay if it is aborted.
    viewed: bool,
    /// Whether `changing` was being changed in place, and its bytes have to be restored.
    restores: bool,
}

impl<F: File> Store<F> {
    /// Sets a key; returns the new version. The old value's bytes are not changed if a view may show them.
    ///
    /// # Errors
    /// A bad key or value, a full disk (nothing was written), or a poisoned store.
    pub fn set(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<u64, Error> {
        self.put(keyspace, key, value)?;
        self.finish(value.len())
    }

    /// Sets several keys in order, as [`set`](Store::set) does; stops at the first that fails. The records
    /// that are replaced, and the index entries that lead to them, are prefetched for many keys at once.
    ///
    /// # Errors
    /// As for [`set`](Store::set), for the key that failed.
    pub fn set_many(&mut self, sets: &[Set<'_>]) -> Result<(), Error> {
        let mut hashes = [0; LOOKUP_BATCH];
        for sets in sets.chunks(LOOKUP_BATCH) {
            let hashes = &mut hashes[..sets.len()];
            for (hash, set) in hashes.iter_mut().zip(sets) {
                *hash = self.hash(set.keyspace, set.key);
            }
            self.prefetch_buckets(hashes);
            for (&mut hash, set) in hashes.iter_mut().zip(sets) {
                self.begin(hash, set.keyspace, set.key, set.value.len(), false)?;
                copy_value(self.staged_value(), set.value);
                self.finish(set.value.len())?;
            }
        }
        Ok(())
    }

    /// Bytes of records that [`set_many`](Store::set_many) can append now without a call of the file, so
    /// that nothing can fail: everything that it reads is in memory, there is space, and the batch does not
    /// become so large that it is committed.
    #[must_use]
    pub fn infallible_capacity(&self) -> usize {
        let limit = match self.savepoints.is_empty() {
            true => commit_size_limit(self.log.geometry().segment_log2),
            false => usize::MAX,
        };
        let may_fail = self.poisoned
            || self.expires()
            || self.unloaded.is_some()
            || self.check_growth(MAX_QUEUED).is_err();
        if may_fail { 0 } else { self.log.infallible_capacity(limit) }
    }

    /// Refuses further records if growing the index or the undo list would grow memory and so
    /// detach views that must stay valid.
    #[inline]
    fn check_growth(&self, records: usize) -> Result<(), Error> {
        let index = self.index_growth(records);
        let is_full = self.undo.len() + records > self.undo.capacity();
        if index == 0 && !is_full {
            return Ok(());
        }
        let undo = if is_full { 2 * size_of::<Undo>() * self.undo.capacity() } else { 0 };
        if self.log.can_allocate(index + undo) { Ok(()) } else { Err(Error::ViewsHeld) }
    }

    /// The same for a deletion, for which the index need not grow.
    #[inline(never)]
    pub(super) fn check_undo_growth(&self) -> Result<(), Error> {
        let is_full = self.undo.len() == self.undo.capacity();
        let bytes = 2 * size_of::<Undo>() * self.undo.capacity();
        if !is_full || self.log.can_allocate(bytes) { Ok(()) } else { Err(Error::ViewsHeld) }
    }

    /// Stages a record for `key` with its whole value; [`finish`](Store::finish) completes it.
    ///
    /// # Errors
    /// As for [`set`](Store::set); nothing is staged then.
    #[inline]
    pub fn put(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.begin(self.hash(keyspace, key), keyspace, key, value.len(), false)?;
        copy_value(self.staged_value(), value);
        Ok(())
    }

    /// Stages a record for `key` with space for `capacity` bytes of value, which the caller writes through
    /// [`staged_value`](Store::staged_value) and completes with [`finish`](Store::finish).
    ///
    /// # Errors
    /// As for [`set`](Store::set); nothing is staged then.
    pub fn begin_set(&mut self, keyspace: u32, key: &[u8], capacity: usize) -> Result<(), Error> {
        self.begin(self.hash(keyspace, key), keyspace, key, capacity, true)
    }

    /// Stages a record for `key`. If an existing value is overwritten in place and the new one `may_fail`,
    /// the old value is saved.
    #[inline(never)]
    fn begin(
        &mut self,
        hash: u32,
        keyspace: u32,
        key: &[u8],
        capacity: usize,
        may_fail: bool,
    ) -> Result<(), Error> {
        let expiry = core::mem::take(&mut self.expiry.next);
        self.check_write(keyspace, key)?;
        Self::check_value(capacity)?;
        let found = self.find_outlined(hash, keyspace, key)?;
        let old_expiry = match found {
            Some(at) if self.expires() => self.log.expiry_in(at.addr),
            _ => 0,
        };
        if expiry | old_expiry != 0 {
            return self.begin_expiring(hash, keyspace, key, capacity, may_fail, expiry);
        }
        if let Some(at) = found
            && self.log.can_overwrite(at.position, at.addr, capacity)
        {
            if may_fail {
                self.save_value(at)?;
            }
            self.staging.changing = Changing { at, location: ValueLocation::Record };
            self.staging.staged = Staged::InPlace;
            return Ok(());
        }
        self.staging.new.old = found.map(|at| self.predecessor(at));
        self.stage(None, hash, keyspace, key, capacity, false)
    }

    /// Saves the value of a record, to restore it on abort.
    pub(super) fn save_value(&mut self, at: Located) -> Result<(), Error> {
        self.staging.old_value.clear();
        let mut saved = core::mem::take(&mut self.staging.old_value);
        let value = self.value(at.addr).map(|value| saved.extend_from_slice(value));
        self.staging.old_value = saved;
        value
    }

    /// Stages the record of `key` for change in place; false when there is none. A record that is already
    /// written to the file is copied to the tail first, once.
    ///
    /// # Errors
    /// As for [`set`](Store::set); nothing is staged then.
    pub fn begin_update(&mut self, keyspace: u32, key: &[u8]) -> Result<bool, Error> {
        self.check_write(keyspace, key)?;
        let Some(at) = self.find(keyspace, key)? else { return Ok(false) };
        let old = self.predecessor(at);
        if old.expiry.wrapping_sub(1) < self.expired_until() {
            return Ok(false);
        }
        let chunks = self.log.record_in(at.addr).chunks();
        // Saved to restore it, and because the old record may be evicted for the new one.
        self.save_value(at)?;
        // The callback may read the value, whose chunks are deleted once the new record is staged.
        if let Some(chunks) = chunks {
            let _ = self.log.pin_assembled(chunks);
            self.staging.old_chunks = Some(chunks);
        }
        let location;
        if !old.is_chunked && self.log.is_mutable(at.position) {
            let extent = self.log.record_in(at.addr).extent().map(|extent| extent.slot);
            location = extent.map_or(ValueLocation::Record, ValueLocation::Extent);
            self.staging.changing = Changing { at, location };
            self.staging.staged = Staged::InPlace;
        } else {
            self.staging.new.old = Some(old);
            let hash = self.hash(keyspace, key);
            let staged = self.stage(None, hash, keyspace, key, self.staging.old_value.len(), true);
            if staged.is_err() {
                self.release_changing_chunks();
            }
            staged?;
            location = self.staging.new.location;
            self.write_saved();
            if old.expiry != 0 {
                self.stage_expiry(old.expiry);
            }
        }
        self.log.expose_staged(location);
        Ok(true)
    }

    /// Stages a second record, with space for `capacity` bytes, in place of the one that
    /// [`begin_update`](Store::begin_update) staged. The first one's bytes do not move.
    ///
    /// # Errors
    /// As for [`set`](Store::set); the update is then aborted.
    pub fn resize_update(&mut self, capacity: usize) -> Result<(), Error> {
        let position = match self.staging.staged {
            Staged::Nothing => return Err(Error::Misuse),
            Staged::New => self.staging.new.position,
            Staged::InPlace => self.staging.changing.at.position,
        };
        let record = self.log.record_at(position);
        let (keyspace, key) = (record.header.keyspace(), record.key.to_vec());
        let expiry = record.header.expiry;
        let hash = self.hash(keyspace, &key);
        let restores = match self.staging.staged {
            Staged::InPlace => {
                self.staging.new.old = Some(self.predecessor(self.staging.changing.at));
                true
            }
            _ => {
                self.void_new();
                self.staging.new.restores
            }
        };
        // The callback has returned, and its result is the caller's memory or was copied.
        self.end_staged();
        let next = Self::check_value(capacity)
            .and_then(|()| self.stage(None, hash, keyspace, &key, capacity, true));
        match next {
            Ok(()) => {
                self.staging.new.restores = restores;
                self.stage_expiry(expiry);
            }
            Err(_) if restores => self.restore(),
            Err(_) => {}
        }
        next
    }

    /// Sets the expiry of the staged record, if it is new.
    pub(super) fn stage_expiry(&mut self, expiry: u32) {
        if self.staging.staged == Staged::New {
            self.log.header_mut(self.staging.new.addr).expiry = expiry;
        }
    }

    /// The value of the staged record: its whole capacity when new, its bytes when copied or in place.
    ///
    /// # Panics
    /// When nothing is staged.
    pub fn staged_value(&mut self) -> &mut [u8] {
        let (at, addr, location) = match self.staging.staged {
            Staged::Nothing => panic!("nothing is staged"),
            Staged::New => {
                (self.staging.new.position, self.staging.new.addr, self.staging.new.location)
            }
            Staged::InPlace => (
                self.staging.changing.at.position,
                self.staging.changing.at.addr,
                self.staging.changing.location,
            ),
        };
        match location {
            ValueLocation::Record => self.log.value_mut(addr),
            ValueLocation::Extent(slot) => {
                let length = self.extent_length(at);
                &mut self.log.extent_mut(slot)[..length]
            }
            ValueLocation::Chunks => self.staged_chunks(),
        }
    }

    /// Finishes the staged record with a value of `length` bytes and adds it to the batch and the index.
    /// Returns its version.
    ///
    /// # Errors
    /// Whatever failed when a batch that had become large was committed.
    pub fn finish(&mut self, length: usize) -> Result<u64, Error> {
        match self.end_staged() {
            Staged::Nothing => Err(Error::Misuse),
            Staged::New => {
                let version = self.finish_new(length);
                if self.staging.new_chunks.is_some() {
                    self.end_chunked()?;
                } else {
                    self.commit_large_batch()?;
                }
                if self.staging.has_entry {
                    self.end_with_entry(true)?;
                }
                Ok(version)
            }
            // The change in place has not made the batch larger.
            Staged::InPlace => Ok(self.finish_in_place(length)),
        }
    }

    /// Aborts the staged record; every byte is as it was before.
    pub fn abort(&mut self) {
        let staged = self.staging.staged;
        if staged == Staged::New && self.staging.new.restores {
            self.restore();
        } else if staged == Staged::InPlace
            // A view that the caller kept must show its record's bytes, not half an update.
            || staged == Staged::New
                && self.staging.new.viewed
                && self.staged_value().len() == self.staging.old_value.len()
        {
            self.write_saved();
        }
        if self.end_staged() == Staged::New {
            self.void_new();
        }
        if self.staging.has_entry {
            let _ = self.end_with_entry(false);
        }
    }

    /// Unpins the chunked value that was being changed.
    fn release_changing_chunks(&mut self) {
        if let Some(chunks) = self.staging.old_chunks.take() {
            self.log.unpin_assembled(&chunks);
        }
    }

    fn end_staged(&mut self) -> Staged {
        self.release_changing_chunks();
        self.log.unexpose_staged();
        core::mem::replace(&mut self.staging.staged, Staged::Nothing)
    }

    /// Stages a record that replaces `new.old`. Its value is stored at `location`, or where it fits
    /// best if that is none.
    #[inline(never)]
    pub(super) fn stage(
        &mut self,
        location: Option<ValueLocation>,
        hash: u32,
        keyspace: u32,
        key: &[u8],
        capacity: usize,
        viewed: bool,
    ) -> Result<(), Error> {
        self.check_growth(1)?;
        let is_long = capacity > inline_limit(self.log.geometry().segment_log2)
            || record::size_of_record(key.len(), align_up(capacity)) > self.log.max_record_size();
        let is_chunked = is_long || self.staging.new.old.is_some_and(|old| old.is_chunked);
        let location = match location {
            Some(location) => location,
            None if is_chunked => {
                return self.stage_chunked(hash, keyspace, key, capacity, viewed, is_long);
            }
            None => ValueLocation::Record,
        };
        let (kind, inline) = match location {
            ValueLocation::Record => (KIND_SET, capacity),
            ValueLocation::Extent(_) => (KIND_EXTENT, size_of::<ExtentRef>()),
            ValueLocation::Chunks => (KIND_CHUNKED, size_of::<ChunksRef>()),
        };
        let size = record::size_of_record(key.len(), align_up(inline));
        let need = match self.maintenance.is_running {
            true => AllocPriority::Bookkeeping,
            // It precedes a deletion, which would otherwise find no space on a full disk.
            false if keyspace == KEYSPACE_ENGINE && key.starts_with(KEY_IDS) => {
                AllocPriority::Delete
            }
            false => AllocPriority::Write,
        };
        self.log.reserve_record(&mut self.file, size, need)?;
        let header = RecordHeader {
            kind,
            key_len: key.len() as u16,
            keyspace: keyspace as u16,
            value_len: inline as u32,
            capacity: align_up(inline) as u32,
            oldest: self.staging.new.old.map_or(0, |old| old.oldest),
            previous: self.staging.new.old.map_or(0, |old| old.position),
            replaced: record::size_in_words(self.staging.new.old.map_or(0, |old| old.size)),
            ..Default::default()
        };
        let (position, addr) = self.log.stage(header, key);
        if let ValueLocation::Extent(slot) = location {
            let open_ended = self.log.extent_ref(slot, capacity);
            self.write_descriptor(position, &open_ended);
        }
        let old = self.staging.new.old;
        self.staging.new =
            NewRecord { position, addr, hash, old, location, viewed, restores: false };
        self.staging.staged = Staged::New;
        Ok(())
    }

    /// Replaces the new record by a void record of the same bytes if a view may show it.
    fn void_new(&mut self) {
        if self.staging.new.viewed {
            let size = self.log.header_at(self.staging.new.position).size();
            self.log.append_void(size);
        }
        if self.staging.new_chunks.is_some() {
            self.drop_chunked();
        }
    }

    /// Writes the saved value into the staged record.
    fn write_saved(&mut self) {
        let saved = core::mem::take(&mut self.staging.old_value);
        self.staged_value().copy_from_slice(&saved);
        self.staging.old_value = saved;
    }

    /// Restores the bytes of the record that was being changed in place, also if another record replaces
    /// it: it is still written, and verified.
    fn restore(&mut self) {
        let staged = core::mem::replace(&mut self.staging.staged, Staged::InPlace);
        self.write_saved();
        self.staging.staged = staged;
    }

    fn finish_new(&mut self, length: usize) -> u64 {
        if self.staging.new.restores {
            self.restore();
        }
        let version = self.take_version();
        let NewRecord { position, addr, hash, old, location, .. } = self.staging.new;
        let size = match location {
            // At the tail, unused capacity is freed.
            ValueLocation::Record => self.log.end_value(addr, length, version, true),
            _ => {
                match location {
                    ValueLocation::Extent(slot) => self.end_extent(position, slot, length),
                    _ => self.end_chunks(position, length),
                }
                let header = self.log.header_mut(addr);
                header.version = version;
                header.size()
            }
        };
        self.log.advance(size, false);
        self.reindex(hash, old, position, size as u32, Some(position));
        if location != ValueLocation::Record
            && let Some(extent) = self.log.descriptor_at(position)
        {
            self.log.add_extent_reference(position, ExtentId::from(&extent));
        }
        version
    }

    fn finish_in_place(&mut self, length: usize) -> u64 {
        let version = self.take_version();
        let Changing { at: Located { position, addr }, location } = self.staging.changing;
        if let ValueLocation::Extent(slot) = location {
            let extent = self.log.extent_of(position);
            self.log.undo_extent_reference(position);
            self.end_extent(position, slot, length);
            if let Some(extent) = extent {
                self.log.add_extent_reference(position, extent);
            }
        } else if length != self.staging.old_value.len() {
            self.log.end_value(addr, length, version, false);
        }
        self.log.header_mut(addr).version = version;
        version
    }

    /// Ends a value in an extent at `length`, which fixes its checksum.
    fn end_extent(&mut self, position: Position, slot: u32, length: usize) {
        let sealed = self.log.seal_extent(slot, length);
        self.write_descriptor(position, &sealed);
    }

    pub(super) fn write_descriptor(&mut self, position: Position, descriptor: &impl ZeroCopy) {
        let from = self.header_mut(position).value_offset();
        let bytes = descriptor.to_bytes();
        self.log.record_mut(position)[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn header_mut(&mut self, position: Position) -> &mut RecordHeader {
        RecordHeader::at_mut(self.log.record_mut(position)).expect("a staged record has a header")
    }

    fn extent_length(&self, position: Position) -> usize {
        self.log.descriptor_at(position).map_or(0, |extent| extent.length as usize)
    }
}
