//! Records between their beginning and their end: the caller fills them in between.

use musli_zerocopy::ZeroCopy;

use crate::error::Error;
use crate::file::File;
use crate::format::payload::ExtentRef;
use crate::format::record::{self, KIND_EXTENT, KIND_SET, RecordHeader};
use crate::format::{align_up, inline_limit};
use crate::index::hash::Position;

use super::{At, Predecessor, Store};

/// What is open between a beginning and an end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Staged {
    /// Nothing.
    Nothing,
    /// A record at the tail that is not part of the group yet.
    New(NewRecord),
    /// A record of the group that is being changed where it lies; its old value is kept aside.
    InPlace(Changing),
}

/// A record of the group that is being changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changing {
    at: At,
    /// First slot of the extent that holds its value.
    extent: Option<u32>,
}

/// A record at the tail.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRecord {
    position: Position,
    hash: u32,
    /// The record that it takes the place of.
    old: Option<Predecessor>,
    /// First slot of its extent.
    extent: Option<u32>,
    /// Whether a caller's view may show it, so that its bytes must stay if it comes to nothing.
    viewed: bool,
    /// The record that was being changed in place, and has to get its bytes back.
    restores: Option<Changing>,
}

impl<F: File> Store<F> {
    /// Stages a record for `key` with room for `capacity` bytes of value, which the caller fills
    /// through [`staged_value`](Store::staged_value) and ends with [`finish`](Store::finish).
    ///
    /// # Errors
    /// As for [`set`](Store::set); nothing is staged then.
    pub fn begin_set(&mut self, keyspace: u32, key: &[u8], capacity: usize) -> Result<(), Error> {
        self.check_write(key)?;
        Self::check_value(capacity)?;
        let hash = self.hash(keyspace, key);
        let old = self.find_hashed(hash, keyspace, key)?.map(|at| self.predecessor(at));
        let staged = self.stage(hash, keyspace, key, capacity, old, false)?;
        self.staged = Staged::New(staged);
        Ok(())
    }

    /// Stages the record of `key` for change in place; false when there is none. A record that was
    /// already handed to the file is copied to the tail first, once.
    ///
    /// # Errors
    /// As for [`set`](Store::set); nothing is staged then.
    pub fn begin_update(&mut self, keyspace: u32, key: &[u8]) -> Result<bool, Error> {
        self.check_write(key)?;
        let Some(at) = self.find(keyspace, key)? else { return Ok(false) };
        // Kept aside: to restore from, and because the old record may have to make room.
        self.saved.clear();
        self.saved.extend_from_slice(self.log.value(&mut self.file, at.place)?);
        if self.log.is_mutable(at.position) {
            let extent = self.log.record_in(at.place).extent().map(|extent| extent.slot);
            self.staged = Staged::InPlace(Changing { at, extent });
        } else {
            let (length, old) = (self.saved.len(), self.predecessor(at));
            let hash = self.hash(keyspace, key);
            let staged = self.stage(hash, keyspace, key, length, Some(old), true)?;
            self.staged = Staged::New(staged);
            self.write_saved();
        }
        self.log.set_callback_open(true);
        Ok(true)
    }

    /// Stages a second record, with room for `capacity` bytes, in place of the one that
    /// [`begin_update`](Store::begin_update) staged. The first one's bytes stay where they are.
    ///
    /// # Errors
    /// As for [`set`](Store::set); the update is then aborted.
    pub fn resize_update(&mut self, capacity: usize) -> Result<(), Error> {
        let position = match self.staged {
            Staged::Nothing => return Err(Error::Misuse),
            Staged::New(staged) => staged.position,
            Staged::InPlace(changing) => changing.at.position,
        };
        let record = self.log.record_at(position);
        let (keyspace, key) = (record.header.keyspace, record.key.to_vec());
        let hash = self.hash(keyspace, &key);
        let (old, restores) = match self.staged {
            Staged::New(staged) => {
                self.void(staged);
                (staged.old, staged.restores)
            }
            Staged::InPlace(changing) => (Some(self.predecessor(changing.at)), Some(changing)),
            Staged::Nothing => return Err(Error::Misuse),
        };
        // The callback has returned, and what it gave back is not ours or was copied.
        self.log.set_callback_open(false);
        let next = Self::check_value(capacity)
            .and_then(|()| self.stage(hash, keyspace, &key, capacity, old, true));
        match next {
            Ok(next) => {
                self.staged = Staged::New(NewRecord { restores, ..next });
            }
            Err(error) => {
                self.staged = Staged::Nothing;
                self.restore(restores);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The value of the staged record: all of its room when new, its bytes when copied or in
    /// place.
    ///
    /// # Panics
    /// When nothing is staged.
    pub fn staged_value(&mut self) -> &mut [u8] {
        match self.staged {
            Staged::Nothing => panic!("nothing is staged"),
            Staged::New(NewRecord { position, extent: Some(slot), .. })
            | Staged::InPlace(Changing { at: At { position, .. }, extent: Some(slot) }) => {
                let length = self.extent_length(position);
                &mut self.log.extent_mut(slot)[..length]
            }
            Staged::InPlace(changing) => self.log.value_mut(changing.at.place),
            Staged::New(NewRecord { position, .. }) => {
                let bytes = self.log.record_mut(position);
                let header = RecordHeader::at(bytes).expect("a staged record has a header");
                let (from, length) = (header.value_offset(), header.value_len as usize);
                &mut bytes[from..from + length]
            }
        }
    }

    /// Ends the staged record with a value of `length` bytes: it is part of the group and the
    /// index shows it. Gives its version.
    ///
    /// # Errors
    /// Whatever a group that had become large met when it was handed to the file.
    pub fn finish(&mut self, length: usize) -> Result<u64, Error> {
        let version = match self.end_staged() {
            Staged::Nothing => return Err(Error::Misuse),
            Staged::New(staged) => self.finish_new(staged, length),
            // The group has not grown by it.
            Staged::InPlace(changing) => return Ok(self.finish_in_place(changing, length)),
        };
        self.hand_on_large_group()?;
        Ok(version)
    }

    /// Drops the staged record; every byte is as it was before.
    pub fn abort(&mut self) {
        match self.end_staged() {
            Staged::Nothing => {}
            Staged::New(staged) => {
                if staged.viewed && staged.restores.is_none() {
                    // A view that the caller kept shows its record's bytes, not half an update.
                    self.staged = Staged::New(staged);
                    if self.staged_value().len() == self.saved.len() {
                        self.write_saved();
                    }
                    self.staged = Staged::Nothing;
                }
                self.restore(staged.restores);
                self.void(staged);
            }
            Staged::InPlace(changing) => self.restore(Some(changing)),
        }
    }

    fn end_staged(&mut self) -> Staged {
        self.log.set_callback_open(false);
        std::mem::replace(&mut self.staged, Staged::Nothing)
    }

    fn stage(
        &mut self,
        hash: u32,
        keyspace: u32,
        key: &[u8],
        capacity: usize,
        old: Option<Predecessor>,
        viewed: bool,
    ) -> Result<NewRecord, Error> {
        let in_extent = capacity > inline_limit(self.log.geometry().segment_log2);
        let inline = if in_extent { size_of::<ExtentRef>() } else { capacity };
        let size = record::size_of_record(key.len(), align_up(inline));
        self.log.make_room(&mut self.file, size)?;
        let extent = match in_extent {
            true => Some(self.log.take_extent(&mut self.file, capacity)?),
            false => None,
        };
        let header = RecordHeader {
            kind: if in_extent { KIND_EXTENT } else { KIND_SET },
            key_len: key.len() as u16,
            keyspace,
            value_len: inline as u32,
            capacity: align_up(inline) as u32,
            oldest: old.map_or(0, |old| old.oldest),
            previous: old.map_or(0, |old| old.position),
            ..Default::default()
        };
        let position = self.log.stage(header, key);
        if let Some(slot) = extent {
            let open_ended = self.log.extent_ref(slot, capacity);
            self.write_descriptor(position, open_ended);
        }
        Ok(NewRecord { position, hash, old, extent, viewed, restores: None })
    }

    /// Leaves the bytes of a staged record behind as a void record if somebody may look at them.
    fn void(&mut self, staged: NewRecord) {
        if staged.viewed {
            let size = self.log.header_at(staged.position).size();
            self.log.append_void(size);
        }
        if staged.extent.is_some() {
            self.log.drop_extent();
        }
    }

    /// Writes the value that was kept aside into the staged record.
    fn write_saved(&mut self) {
        let saved = std::mem::take(&mut self.saved);
        self.staged_value().copy_from_slice(&saved);
        self.saved = saved;
    }

    /// Gives a record that was being changed in place its bytes back, also once others take its
    /// place: they are still written, and verified.
    fn restore(&mut self, changed: Option<Changing>) {
        if let Some(changed) = changed {
            self.staged = Staged::InPlace(changed);
            self.write_saved();
            self.staged = Staged::Nothing;
        }
    }

    fn finish_new(&mut self, staged: NewRecord, length: usize) -> u64 {
        self.restore(staged.restores);
        let version = self.take_version();
        let position = staged.position;
        match staged.extent {
            Some(slot) => self.end_extent(position, slot, length),
            None => self.end_value(position, length),
        }
        let header = self.header_mut(position);
        header.version = version;
        let size = header.size();
        self.log.advance(size, false);
        self.reindex(staged.hash, staged.old, position, Some(position));
        version
    }

    fn finish_in_place(&mut self, changing: Changing, length: usize) -> u64 {
        let version = self.take_version();
        let position = changing.at.position;
        if let Some(slot) = changing.extent {
            self.end_extent(position, slot, length);
        } else if length != self.saved.len() {
            self.end_value(position, length);
        }
        self.log.header_mut(changing.at.place).version = version;
        version
    }

    /// Ends an inline value at `length`: its slack is zeroed, and given back when at the tail.
    fn end_value(&mut self, position: Position, length: usize) {
        let in_group = self.log.is_committed_to_group(position);
        let header = self.header_mut(position);
        let (from, room) = (header.value_offset(), header.capacity as usize);
        header.value_len = length as u32;
        let kept = if in_group { room } else { align_up(length) };
        header.capacity = kept as u32;
        zero_slack(&mut self.log.record_mut(position)[from..from + kept], length);
    }

    /// Ends a value in an extent at `length`; from here on its checksum is fixed.
    fn end_extent(&mut self, position: Position, slot: u32, length: usize) {
        let sealed = self.log.seal_extent(slot, length);
        self.write_descriptor(position, sealed);
    }

    fn write_descriptor(&mut self, position: Position, extent: ExtentRef) {
        let from = self.header_mut(position).value_offset();
        let bytes = extent.to_bytes();
        self.log.record_mut(position)[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn header_mut(&mut self, position: Position) -> &mut RecordHeader {
        RecordHeader::at_mut(self.log.record_mut(position)).expect("a staged record has a header")
    }

    fn extent_length(&self, position: Position) -> usize {
        self.log.descriptor_at(position).map_or(0, |extent| extent.length as usize)
    }
}

/// Zeros what lies behind the first `length` of bytes whose number is a multiple of 8.
#[inline(always)]
fn zero_slack(bytes: &mut [u8], length: usize) {
    let whole = align_up(length);
    if whole > length
        && let Some(last) = bytes[..whole].last_chunk_mut::<8>()
    {
        let used = u64::MAX >> (8 * (whole - length));
        *last = (u64::from_le_bytes(*last) & used).to_le_bytes();
    }
    if whole < bytes.len() {
        bytes[whole..].fill(0);
    }
}
