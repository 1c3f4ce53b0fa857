//! Snapshots of a store: everything as it was, to be read while the store goes on.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::format::KEYSPACE_RAW;
use crate::schema::key::Key;
use crate::schema::{Record, View};
use crate::store::SnapshotId;

use super::catalog::{self, StoredCollection};
use super::read_errors::read;
use super::{Entries, Error, KeyRange, Keys, Records, Slice, Store, Versioned};

/// The snapshots that were dropped since the store looked last.
#[derive(Debug, Default)]
pub(super) struct DroppedSnapshots {
    is_any: AtomicBool,
    ids: Mutex<Vec<SnapshotId>>,
}

impl DroppedSnapshots {
    fn add(&self, id: SnapshotId) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        self.is_any.store(true, Ordering::Release);
    }

    pub(super) fn take(&self) -> Vec<SnapshotId> {
        if !self.is_any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut self.ids.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Everything as it was when [`Store::snapshot`] was called, until it is dropped.
///
/// It borrows nothing, like a read transaction of redb: it may be kept, moved to another thread, and dropped there, and the
/// store is written to meanwhile. [`Store::at`] reads it, with the store's memory, and gives borrowed values.
///
/// Taking one copies nothing. While any is open, the first change of a key notes where its record was (some 50 bytes), no
/// compaction runs, and nothing that was replaced or deleted is overwritten, so that the file grows by what is written.
#[derive(Debug)]
pub struct Snapshot {
    id: SnapshotId,
    last_commit: u64,
    dropped: Arc<DroppedSnapshots>,
}

impl Snapshot {
    pub(super) fn new(id: SnapshotId, last_commit: u64, dropped: Arc<DroppedSnapshots>) -> Self {
        Snapshot { id, last_commit, dropped }
    }

    /// The number of the newest commit that it shows: a cursor.
    #[must_use]
    pub fn last_commit(&self) -> u64 {
        self.last_commit
    }

    pub(super) fn is_of(&self, store: &Store) -> bool {
        store.dropped_snapshots.as_ref().is_some_and(|own| Arc::ptr_eq(own, &self.dropped))
    }

    pub(super) fn id(&self) -> SnapshotId {
        self.id
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.dropped.add(self.id);
    }
}

impl Store {
    /// Everything as it is now, to be read by [`at`](Store::at) while the store goes on. It commits first.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-snapshot-{}", std::process::id()));
    /// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
    /// use varve::KeyRange;
    ///
    /// store.set("price", "12")?;
    /// let then = store.snapshot()?;
    /// store.set("price", "13")?;
    /// store.set("stock", "7")?;
    /// assert_eq!(store.at(&then)?.get("price")?, Some(&b"12"[..]));
    /// assert_eq!(store.at(&then)?.count(KeyRange::all())?, 1);
    /// assert_eq!(store.get("price")?, Some(&b"13"[..]));
    /// drop(then); // what it kept is freed
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`commit`](Store::commit); [`crate::error::Error::TooManySnapshots`] with 16,383 open ones.
    pub fn snapshot(&mut self) -> Result<Snapshot, Error> {
        self.begin();
        let taken = self.engine.lock().snapshot();
        let last_commit = self.engine.look().last_commit();
        self.taken(taken, last_commit)
    }

    /// As [`snapshot`](Store::snapshot), of the content as it was after a past transaction: that with this number, or that which
    /// gave a key this version, or the last one before. The file has to keep its history, and the log since then is walked.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-past-{}", std::process::id()));
    /// # let path = folder.join("shop.varve");
    /// use varve::native::{OpenOptions, Store};
    ///
    /// let options = OpenOptions { keep_history: Some(true), ..OpenOptions::default() };
    /// let mut store = Store::open_with(&path, options)?;
    /// let version = store.set("price", b"12")?;
    /// store.commit()?;
    /// store.set("price", b"13")?;
    /// let past = store.snapshot_at(version)?;
    /// assert_eq!(store.at(&past)?.get("price")?, Some(&b"12"[..]));
    /// # drop(past);
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// With the code `VARVE_BAD_ARGUMENT` if the file does not keep its history, or for a number that no commit has reached;
    /// `VARVE_CURSOR_EXPIRED` if the history was packed or salvaged since; otherwise as for [`snapshot`](Store::snapshot).
    pub fn snapshot_at(&mut self, number: u64) -> Result<Snapshot, Error> {
        self.begin();
        let taken = self.engine.lock().at(number);
        self.taken(taken, number)
    }

    /// Reads a snapshot of this store.
    ///
    /// # Errors
    /// [`Error::SnapshotClosed`] if it is of another store.
    pub fn at(&mut self, snapshot: &Snapshot) -> Result<SnapshotReader<'_>, Error> {
        if !snapshot.is_of(self) {
            return Err(Error::SnapshotClosed);
        }
        self.begin();
        Ok(SnapshotReader::new(self, snapshot.id()))
    }

    /// What the engine has taken, until it is dropped.
    pub(super) fn taken(
        &mut self,
        taken: Result<SnapshotId, crate::error::Error>,
        last_commit: u64,
    ) -> Result<Snapshot, Error> {
        let id = self.with_loss_reason(taken)?;
        let dropped = Arc::clone(self.dropped_snapshots.get_or_insert_default());
        Ok(Snapshot::new(id, last_commit, dropped))
    }
}

/// A [`Snapshot`] that is being read, by [`Store::at`].
#[derive(Debug)]
pub struct SnapshotReader<'s> {
    store: &'s mut Store,
    id: SnapshotId,
}

impl<'s> SnapshotReader<'s> {
    pub(super) fn new(store: &'s mut Store, id: SnapshotId) -> Self {
        SnapshotReader { store, id }
    }

    /// Returns the value that a key had.
    ///
    /// # Errors
    /// As for [`Store::get`].
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<&[u8]>, Error> {
        self.store.begin();
        let Store { engine, found, .. } = &mut *self.store;
        read(found.as_ref(), engine.get(self.id.keyspace(KEYSPACE_RAW), key.as_ref()))
    }

    /// As [`Store::get_slice`].
    ///
    /// # Errors
    /// As for [`Store::get`].
    pub fn get_slice(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Slice>, Error> {
        Ok(self.get(key)?.map(Slice::new))
    }

    /// Whether a key existed.
    ///
    /// # Errors
    /// As for [`Store::get`].
    pub fn has(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.store.begin();
        let (keyspace, key) = (self.id.keyspace(KEYSPACE_RAW), key.as_ref());
        let Store { engine, found, .. } = &mut *self.store;
        read(found.as_ref(), engine.lock().has(keyspace, key))
    }

    /// As [`Store::get_entry`].
    ///
    /// # Errors
    /// As for [`Store::get`].
    pub fn get_entry(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Versioned<&[u8]>>, Error> {
        self.store.begin();
        let Store { engine, found, .. } = &mut *self.store;
        let keyspace = self.id.keyspace(KEYSPACE_RAW);
        read(found.as_ref(), engine.get_entry(keyspace, key.as_ref()))
    }

    /// The number of keys in a range, without those of collections.
    ///
    /// # Errors
    /// As for [`Store::count`].
    pub fn count<'k>(&mut self, range: impl Into<KeyRange<'k>>) -> Result<u64, Error> {
        let range = range.into();
        self.store.count_between(self.id.keyspace(KEYSPACE_RAW), range.encode(None)?, &range)
    }

    /// Iterates over keys and their values, in order.
    ///
    /// # Errors
    /// A bound that is not a valid key.
    pub fn entries<'k>(&mut self, range: impl Into<KeyRange<'k>>) -> Result<Entries<'_>, Error> {
        self.store.pairs(self.id.keyspace(KEYSPACE_RAW), &range.into())
    }

    /// Iterates over keys, in order. No value is read.
    ///
    /// # Errors
    /// A bound that is not a valid key.
    pub fn keys<'k>(&mut self, range: impl Into<KeyRange<'k>>) -> Result<Keys<'_>, Error> {
        self.store.keys_of(self.id.keyspace(KEYSPACE_RAW), &range.into())
    }

    /// The names of the collections that there were.
    ///
    /// # Errors
    /// As for [`Store::get`].
    pub fn collections(&mut self) -> Result<Vec<String>, Error> {
        self.store.begin();
        let Store { engine, found, .. } = &mut *self.store;
        read(found.as_ref(), catalog::names_at(&mut engine.lock(), Some(self.id)))
    }

    /// Opens a collection as it was; none if there was none with this name.
    ///
    /// # Errors
    /// [`Error::SchemaMismatch`] if it had another schema.
    pub fn collection<T: Record>(
        &mut self,
        name: &str,
    ) -> Result<Option<SnapshotCollection<'_, T>>, Error> {
        self.store.begin();
        let Store { engine, found, .. } = &mut *self.store;
        let stored =
            read(found.as_ref(), catalog::find_at(&mut engine.lock(), name, Some(self.id)))?;
        let Some(stored) = stored else { return Ok(None) };
        stored.check_schema::<T>(None)?;
        let (store, id, record) = (&mut *self.store, self.id, PhantomData);
        Ok(Some(SnapshotCollection { store, id, stored: Arc::new(stored), record }))
    }
}

/// A collection of a [`SnapshotReader`].
#[derive(Debug)]
pub struct SnapshotCollection<'s, T> {
    store: &'s mut Store,
    id: SnapshotId,
    stored: Arc<StoredCollection>,
    record: PhantomData<T>,
}

impl<T: Record> SnapshotCollection<'_, T> {
    /// Returns the record that a key had.
    ///
    /// # Errors
    /// As for [`Collection::get`](super::Collection::get).
    pub fn get(&mut self, key: impl Key) -> Result<Option<View<'_, T>>, Error> {
        let key = self.stored.encode(&key)?;
        self.store.begin();
        let Store { engine, found, .. } = &mut *self.store;
        let value = read(found.as_ref(), engine.get(self.id.keyspace(self.stored.keyspace), &key))?;
        value.map(View::new).transpose().map_err(Error::MalformedValue)
    }

    /// As [`Collection::get_entry`](super::Collection::get_entry).
    ///
    /// # Errors
    /// As for [`get`](SnapshotCollection::get).
    pub fn get_entry(&mut self, key: impl Key) -> Result<Option<Versioned<View<'_, T>>>, Error> {
        let key = self.stored.encode(&key)?;
        self.store.begin();
        let Store { engine, found, .. } = &mut *self.store;
        let keyspace = self.id.keyspace(self.stored.keyspace);
        let entry = read(found.as_ref(), engine.get_entry(keyspace, &key))?;
        entry.map(|entry| entry.map(View::new)).transpose().map_err(Error::MalformedValue)
    }

    /// Whether a key existed.
    ///
    /// # Errors
    /// As for [`get`](SnapshotCollection::get).
    pub fn has(&mut self, key: impl Key) -> Result<bool, Error> {
        let key = self.stored.encode(&key)?;
        self.store.begin();
        let Store { engine, found, .. } = &mut *self.store;
        read(found.as_ref(), engine.lock().has(self.id.keyspace(self.stored.keyspace), &key))
    }

    /// The number of records in a range of keys.
    ///
    /// # Errors
    /// A bound that is not a key of this collection; as for [`Store::count`].
    pub fn count<'k>(&mut self, range: impl Into<KeyRange<'k>>) -> Result<u64, Error> {
        let range = range.into();
        let bounds = range.encode(Some(self.stored.key()?))?;
        self.store.count_between(self.id.keyspace(self.stored.keyspace), bounds, &range)
    }

    /// Iterates over the records of a range of keys, in order.
    ///
    /// # Errors
    /// A bound that is not a key of this collection.
    pub fn entries<'k>(&mut self, range: impl Into<KeyRange<'k>>) -> Result<Records<'_, T>, Error> {
        Records::of(self.store, Arc::clone(&self.stored), Some(self.id), &range.into())
    }

    /// Iterates over the records in the order of an index.
    ///
    /// # Errors
    /// As for [`Collection::entries_by`](super::Collection::entries_by).
    pub fn entries_by<'k>(
        &mut self,
        index: &str,
        range: impl Into<KeyRange<'k>>,
    ) -> Result<Records<'_, T>, Error> {
        Records::by_index(self.store, Arc::clone(&self.stored), Some(self.id), index, &range.into())
    }
}
