//! The store: operations on keys, over a log and its index.

mod group;
mod replay;
mod update;

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::error::Error;
use crate::file::File;
use crate::format::checksum::checksum;
use crate::format::record::{self, KIND_DELETE, RecordHeader};
use crate::format::{DEFAULT_SEGMENT_LOG2, MAX_KEY, MAX_VALUE};
use crate::index::hash::{HashIndex, Position};
use crate::index::ordered::OrderedKeys;
use crate::log::Log;

pub use crate::log::recover::Recovery;
pub use group::Savepoint;
use group::{SavepointState, Undo};
use update::Staged;

/// How to open a store.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Binary logarithm of the segment size of a database that is created.
    pub segment_log2: u8,
    /// Random numbers: the identity and the secret hash seed of a database that is created, and
    /// the salts of this session. The engine has no randomness of its own.
    pub entropy: [u64; 4],
    /// Whether keys are to be had in order; without it ranges are refused.
    pub ordered: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_log2: DEFAULT_SEGMENT_LOG2,
            entropy: [0x7661_7276_6500_0001, 0x2D, 0x5EED_0F7A_B1E5, 0x5A17],
            ordered: true,
        }
    }
}

/// Sizes and states, for showing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Live keys in all keyspaces.
    pub count: u64,
    /// Bytes of live records with their headers and values.
    pub live_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of memory held for the log.
    pub memory_bytes: u64,
    /// Segments and extents in use.
    pub segments: u64,
    /// Number of the next frame.
    pub next_frame: u64,
    /// The next version.
    pub next_version: u64,
    /// Whether writes are refused.
    pub poisoned: bool,
    /// Bytes of the open group.
    pub pending_bytes: u64,
    /// Bytes of the hash index.
    pub index_bytes: u64,
}

/// A key-value store in one file.
///
/// Writes since the last [`commit`](Store::commit) form a group, which becomes one atomic commit.
#[derive(Debug)]
pub struct Store<F> {
    file: F,
    log: Log,
    index: HashIndex,
    /// Built when first asked for, kept up from then on.
    order: Option<BTreeMap<u32, OrderedKeys>>,
    ordered: bool,
    counts: BTreeMap<u32, u64>,
    live_bytes: u64,
    next_version: u64,
    undo: Vec<Undo>,
    savepoints: Vec<SavepointState>,
    staged: Staged,
    /// The value of a record that is being changed in place, as it was.
    saved: Vec<u8>,
    recovery: Recovery,
    poisoned: bool,
    unflushed: bool,
}

impl<F: File> Store<F> {
    /// The value of a key. The slice shows the engine's own memory.
    #[inline]
    #[must_use]
    pub fn get(&self, keyspace: u32, key: &[u8]) -> Option<&[u8]> {
        // As `find`, but for taking the value while its record is at hand.
        let mut value = None;
        self.index.find(self.hash(keyspace, key), |position| {
            let record = self.log.record_at(position);
            let found = record.key == key && record.header.keyspace == keyspace;
            if found {
                value = Some(self.log.value_of(&record));
            }
            found
        });
        value
    }

    /// The version of a key's record: it grows with every change.
    #[must_use]
    pub fn version(&self, keyspace: u32, key: &[u8]) -> Option<u64> {
        Some(self.log.header_at(self.find(keyspace, key)?).version)
    }

    /// Whether a key is there.
    #[must_use]
    pub fn has(&self, keyspace: u32, key: &[u8]) -> bool {
        self.find(keyspace, key).is_some()
    }

    /// How many keys a keyspace holds.
    #[must_use]
    pub fn count(&self, keyspace: u32) -> u64 {
        self.counts.get(&keyspace).copied().unwrap_or(0)
    }

    /// The keys of a keyspace in byte order. The first call sorts them all.
    pub fn keys(&mut self, keyspace: u32) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.build_order();
        let keys = self.order.as_ref().and_then(|order| order.get(&keyspace));
        keys.into_iter().flat_map(|k| k.range(Bound::Unbounded, Bound::Unbounded)).map(|k| &**k)
    }

    /// Keys between two bounds, at most `limit` of them, handed to `visit` in order.
    ///
    /// # Errors
    /// [`Error::PointsOnly`] when the store was opened without order.
    pub fn range(
        &mut self,
        keyspace: u32,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        limit: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        if !self.ordered {
            return Err(Error::PointsOnly);
        }
        self.build_order();
        let keys = self.order.as_ref().and_then(|order| order.get(&keyspace));
        let range = keys.into_iter().flat_map(|keys| keys.range(bounds.0, bounds.1));
        if reverse {
            range.rev().take(limit).for_each(|key| visit(key));
        } else {
            range.take(limit).for_each(|key| visit(key));
        }
        Ok(())
    }

    /// Sets a key; gives the new version. The old value's bytes are not touched.
    ///
    /// # Errors
    /// A bad key or value, a full disk (nothing was written), or a poisoned store.
    pub fn set(&mut self, keyspace: u32, key: &[u8], value: &[u8]) -> Result<u64, Error> {
        self.begin_set(keyspace, key, value.len())?;
        self.staged_value().copy_from_slice(value);
        self.finish(value.len())
    }

    /// Removes a key; tells whether it was there.
    ///
    /// # Errors
    /// As for [`set`](Store::set).
    pub fn delete(&mut self, keyspace: u32, key: &[u8]) -> Result<bool, Error> {
        self.check_write(key)?;
        let Some(old) = self.find(keyspace, key) else {
            return Ok(false);
        };
        let size = record::size_of_record(key.len(), 0);
        self.log.make_room(&mut self.file, size)?;
        let header = RecordHeader {
            kind: KIND_DELETE,
            key_len: key.len() as u16,
            keyspace,
            oldest: self.log.header_at(old).oldest,
            version: self.take_version(),
            ..Default::default()
        };
        self.log.stage(header, key);
        self.log.advance(size, false);
        self.reindex(keyspace, key, Some(old), None);
        self.hand_on_large_group()?;
        Ok(true)
    }

    /// Changes a key's value if `predicate` holds for it; tells whether it did.
    ///
    /// `update` changes the bytes in place, or returns others to take their place; its error
    /// restores every byte. A key that is missing answers `false`.
    ///
    /// # Errors
    /// [`Error::Aborted`] when `update` fails, else as for [`set`](Store::set).
    pub fn update_if(
        &mut self,
        keyspace: u32,
        key: &[u8],
        predicate: impl FnOnce(&[u8]) -> bool,
        update: impl FnOnce(&mut [u8]) -> Result<Option<Vec<u8>>, ()>,
    ) -> Result<bool, Error> {
        match self.get(keyspace, key) {
            Some(value) if predicate(value) => {}
            _ => return Ok(false),
        }
        if !self.begin_update(keyspace, key)? {
            return Ok(false);
        }
        // A panic in the callback is a failure like any other.
        let staged = AbortOnDrop(self);
        let store = &mut *staged.0;
        let length = store.staged_value().len();
        match update(store.staged_value()) {
            Ok(None) => store.finish(length)?,
            Ok(Some(bytes)) => {
                store.resize_update(bytes.len())?;
                store.staged_value().copy_from_slice(&bytes);
                store.finish(bytes.len())?
            }
            Err(()) => return Err(Error::Aborted),
        };
        Ok(true)
    }

    /// What opening found.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Sizes and states.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            count: self.index.len() as u64,
            live_bytes: self.live_bytes,
            file_bytes: self.log.file_bytes(),
            memory_bytes: self.log.memory_bytes(),
            segments: self.log.segments() as u64,
            next_frame: self.log.next_frame(),
            next_version: self.next_version,
            poisoned: self.poisoned,
            pending_bytes: self.log.group_bytes() as u64,
            index_bytes: self.index.bytes() as u64,
        }
    }

    #[inline]
    fn hash(&self, keyspace: u32, key: &[u8]) -> u32 {
        let seed = self.log.hash_seed() ^ u64::from(keyspace).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (checksum(key, seed) >> 32) as u32
    }

    #[inline]
    fn find(&self, keyspace: u32, key: &[u8]) -> Option<Position> {
        self.find_hashed(self.hash(keyspace, key), keyspace, key)
    }

    #[inline]
    fn find_hashed(&self, hash: u32, keyspace: u32, key: &[u8]) -> Option<Position> {
        self.index.find(hash, |position| {
            let record = self.log.record_at(position);
            record.key == key && record.header.keyspace == keyspace
        })
    }

    fn take_version(&mut self) -> u64 {
        let version = self.next_version;
        self.next_version += 1;
        version
    }

    fn check_write(&self, key: &[u8]) -> Result<(), Error> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        if !matches!(self.staged, Staged::Nothing) {
            return Err(Error::Reentrancy);
        }
        match key.len() {
            0 => Err(Error::EmptyKey),
            n if n > MAX_KEY => Err(Error::KeyTooLong),
            _ => Ok(()),
        }
    }

    fn check_value(length: usize) -> Result<(), Error> {
        if length > MAX_VALUE { Err(Error::ValueTooLong) } else { Ok(()) }
    }

    /// Enters that a key's record moved from `old` to `new`, and how to take that back.
    fn reindex(&mut self, keyspace: u32, key: &[u8], old: Option<Position>, new: Option<Position>) {
        let hash = self.hash(keyspace, key);
        self.undo.push(Undo { hash, old: old.unwrap_or(0), new: new.unwrap_or(0) });
        self.move_in_index(keyspace, key, hash, old, new);
    }

    fn replace_in_index(&mut self, hash: u32, old: Position, new: Position) {
        self.live_bytes += self.log.bytes_of(new);
        self.live_bytes -= self.log.bytes_of(old);
        self.index.replace(hash, old, new);
    }

    fn move_in_index(
        &mut self,
        keyspace: u32,
        key: &[u8],
        hash: u32,
        old: Option<Position>,
        new: Option<Position>,
    ) {
        match (old, new) {
            (Some(old), Some(new)) => self.replace_in_index(hash, old, new),
            (None, Some(new)) => {
                self.live_bytes += self.log.bytes_of(new);
                self.index.insert(hash, new);
                *self.counts.entry(keyspace).or_default() += 1;
                if let Some(order) = &mut self.order {
                    order.entry(keyspace).or_default().insert(key);
                }
            }
            (Some(old), None) => {
                self.live_bytes -= self.log.bytes_of(old);
                self.index.remove(hash, old);
                *self.counts.entry(keyspace).or_default() -= 1;
                if let Some(keys) = self.order.as_mut().and_then(|o| o.get_mut(&keyspace)) {
                    keys.remove(key);
                }
            }
            (None, None) => {}
        }
    }
}

/// Restores every byte of a staged record that did not come to its end.
struct AbortOnDrop<'a, F: File>(&'a mut Store<F>);

impl<F: File> Drop for AbortOnDrop<'_, F> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
