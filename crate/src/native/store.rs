//! A database file that this process has open.

use std::collections::HashMap;
use std::iter::FusedIterator;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::format::{KEYSPACE_RAW, MAX_NOTE};
use crate::schema::key::KeyKind;
use crate::schema::{Malformed, Record};
use crate::store::Since;
use crate::store::{OnDamage, Options, Recovery, Stats};

use super::catalog::{self, StoredCollection};
use super::changes::checked_mark;
use super::expiry::seconds_now;
use super::range::Bounds;
use super::read_errors::read;
use super::snapshots::DroppedSnapshots;
use super::system::{self, InUse, OpenEngine, ReadOnlyFile};
use super::walk::{End, Walk};
use super::{Changes, Collection, Error, FollowFrom, Follower, KeyRange, Log, LogRange, Slice};

/// Memory that calls needed is freed after this many of them.
const TURN: u32 = 256;

/// A database file that is open in this process and nowhere else.
///
/// Writes are collected until [`commit`](Store::commit) writes them to the file as one atomic
/// commit. A write batch that becomes large is committed earlier, so writes that belong together
/// need a [`transaction`](Store::transaction). Dropping a store commits and flushes;
/// [`close`](Store::close) does too and returns whether that succeeded.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("varve-doc-{}", std::process::id()));
/// # let path = folder.join("shop.varve");
/// use varve::native::Store;
///
/// let mut store = Store::open(&path)?;
/// store.set("greeting", b"hello")?;
/// store.flush()?; // survives power loss from here on
/// assert_eq!(store.get("greeting")?, Some(&b"hello"[..]));
/// store.close()?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Store {
    pub(crate) engine: OpenEngine,
    /// The file as it was found, if it is open for reading only.
    pub(super) found: Option<ReadOnlyFile>,
    collections_by_name: HashMap<String, Arc<StoredCollection>>,
    /// The snapshots that were dropped; none before the first one is taken.
    pub(super) dropped_snapshots: Option<Arc<DroppedSnapshots>>,
    /// Why uncommitted writes were lost when a call gave the engine the time: the next commit returns it.
    lost_writes: Option<crate::error::Error>,
    calls: u32,
    pub(crate) is_closed: bool,
}

/// The options of opening a file.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Whether it is read-only: nothing is written, not even a lock file, and any number of
    /// processes may read at once. That keeps no writer out: one that comes later may use space again whose data is
    /// still to be read here. Reading that fails with [`Error::FileChanged`].
    pub read_only: bool,
    /// Bytes of memory for data that was read or will be written; the file may be much larger.
    pub memory: usize,
    /// The reaction to damage in flushed data.
    pub on_damage: OnDamage,
    /// Whether a file that is created keeps its history, for [`Store::snapshot_at`]: it grows by all that is written. Fixed then: a file
    /// that differs is refused, unless this is none.
    pub keep_history: Option<bool>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let Options { memory, on_damage, .. } = Options::default();
        OpenOptions { read_only: false, memory, on_damage, keep_history: None }
    }
}

impl Store {
    /// The store of an engine that has opened its file; `found` is the file if it is open for reading only.
    pub(crate) fn of(engine: OpenEngine, found: Option<ReadOnlyFile>) -> Self {
        Store {
            engine,
            found,
            collections_by_name: HashMap::new(),
            dropped_snapshots: None,
            lost_writes: None,
            calls: 0,
            is_closed: false,
        }
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Damage, or an error of the file. [`Error::FileChanged`] if it was opened for reading only.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<&[u8]>, Error> {
        self.begin();
        read(self.found.as_ref(), self.engine.get(KEYSPACE_RAW, key.as_ref()))
    }

    /// Returns the value of a key as bytes of the program's own, which stay when the store goes on.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-slice-{}", std::process::id()));
    /// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
    /// store.set("price", "12")?;
    /// let before = store.get_slice("price")?;
    /// store.set("price", "13")?;
    /// assert_eq!(before.expect("it was set"), "12");
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn get_slice(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Slice>, Error> {
        Ok(self.get(key)?.map(Slice::new))
    }

    /// Whether a key exists.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn has(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.begin();
        let key = key.as_ref();
        read(self.found.as_ref(), self.engine.lock().has(KEYSPACE_RAW, key))
    }

    /// The number of keys in a range, without those of collections. Counting all keys takes no time by their number.
    ///
    /// # Errors
    /// A bound that is not a valid key; damage, or an error of the file.
    pub fn count<'k>(&mut self, range: impl Into<KeyRange<'k>>) -> Result<u64, Error> {
        let range = range.into();
        self.count_between(KEYSPACE_RAW, range.encode(None)?, &range)
    }

    pub(super) fn count_between(
        &mut self,
        keyspace: u32,
        bounds: Bounds,
        range: &KeyRange<'_>,
    ) -> Result<u64, Error> {
        self.begin();
        if bounds.is_empty() {
            return Ok(0);
        }
        let count = self.engine.lock().count_range(keyspace, bounds.slices());
        let count = read(self.found.as_ref(), count)?;
        Ok(count.min(range.limit.map_or(u64::MAX, |limit| limit as u64)))
    }

    /// Sets a key; returns the new version.
    ///
    /// # Errors
    /// A bad key or value, a full disk (nothing was written), or a store that refuses writes.
    pub fn set(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<u64, Error> {
        self.begin_write()?;
        let (key, value) = (key.as_ref(), value.as_ref());
        let done = self.engine.lock().set(KEYSPACE_RAW, key, value);
        self.with_loss_reason(done)
    }

    /// Deletes a key; returns whether it existed.
    ///
    /// # Errors
    /// As for [`set`](Store::set).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.begin_write()?;
        let key = key.as_ref();
        let done = self.engine.lock().delete(KEYSPACE_RAW, key);
        self.with_loss_reason(done)
    }

    /// Deletes the keys of a range: all of them or, after an error, none. Returns how many.
    /// Deleting all keys costs as much as deleting one.
    ///
    /// # Errors
    /// A bound that is not a valid key; as for [`set`](Store::set).
    pub fn clear<'k>(&mut self, range: impl Into<KeyRange<'k>>) -> Result<u64, Error> {
        let range = range.into();
        self.begin_write()?;
        let bounds = range.encode(None)?;
        if bounds.is_empty() {
            return Ok(0);
        }
        let KeyRange { reverse, limit, .. } = range;
        let limit = limit.map_or(u64::MAX, |limit| limit as u64);
        let done = self.engine.lock().clear(KEYSPACE_RAW, bounds.slices(), reverse, limit);
        self.with_loss_reason(done)
    }

    /// Changes a value in place if `predicate` holds for it; returns whether it did, which is
    /// `false` for a missing key. A panic of `change` restores every byte.
    ///
    /// # Errors
    /// As for [`set`](Store::set).
    pub fn update_if(
        &mut self,
        key: impl AsRef<[u8]>,
        predicate: impl FnOnce(&[u8]) -> bool,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Error> {
        self.begin_write()?;
        let done = self.engine.update_if(KEYSPACE_RAW, key.as_ref(), predicate, change);
        self.with_loss_reason(done)
    }

    /// Iterates over keys and their values, in order: all of them by `..`, or those of a range such as `"a".."b"`, or of a
    /// [`KeyRange`], which also has prefixes, limits and the reverse order.
    ///
    /// # Errors
    /// A bound that is not a valid key.
    pub fn entries<'k>(&mut self, range: impl Into<KeyRange<'k>>) -> Result<Entries<'_>, Error> {
        self.pairs(KEYSPACE_RAW, &range.into())
    }

    /// Iterates over keys, in order. No value is read.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-keys-{}", std::process::id()));
    /// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
    /// use varve::{KeyRange, Slice};
    ///
    /// store.set("user/1", "Ann")?;
    /// store.set("user/2", "Bob")?;
    /// let users = store.keys(KeyRange::all().prefix("user/"))?.collect::<Result<Vec<Slice>, _>>()?;
    /// assert_eq!(users, ["user/1", "user/2"]);
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A bound that is not a valid key.
    pub fn keys<'k>(&mut self, range: impl Into<KeyRange<'k>>) -> Result<Keys<'_>, Error> {
        self.keys_of(KEYSPACE_RAW, &range.into())
    }

    /// Opens a collection of records of type `T`, creating it with text keys if it is missing.
    ///
    /// # Errors
    /// [`Error::SchemaMismatch`] if the stored collection with this name has another schema.
    pub fn collection<T: Record>(&mut self, name: &str) -> Result<Collection<'_, T>, Error> {
        self.collection_by(name, None)
    }

    /// Opens a collection with keys of this type, creating it if it is missing; the stored type
    /// must be the same.
    ///
    /// # Errors
    /// As for [`collection`](Store::collection).
    pub fn keyed_collection<T: Record>(
        &mut self,
        name: &str,
        key: &KeyKind,
    ) -> Result<Collection<'_, T>, Error> {
        self.collection_by(name, Some(key))
    }

    /// Has a collection read again when it is opened next.
    pub(super) fn forget_collection(&mut self, name: &str) {
        self.collections_by_name.remove(name);
    }

    pub(super) fn collection_by<T: Record>(
        &mut self,
        name: &str,
        key: Option<&KeyKind>,
    ) -> Result<Collection<'_, T>, Error> {
        self.begin();
        let stored = match self.collections_by_name.get(name) {
            Some(stored) => Arc::clone(stored),
            None => {
                let found = catalog::find(&mut self.engine.lock(), name);
                let stored = match read(self.found.as_ref(), found)? {
                    Some(stored) => stored,
                    None => {
                        let key = key.unwrap_or(&KeyKind::Text);
                        self.atomically(|store| {
                            catalog::create::<T>(&mut store.engine.lock(), name, key)
                        })?
                    }
                };
                let stored = Arc::new(stored);
                self.collections_by_name.insert(name.to_string(), Arc::clone(&stored));
                stored
            }
        };
        stored.check_schema::<T>(key)?;
        Ok(Collection::new(self, stored))
    }

    /// Upgrades the stored descriptor of a collection to a later version of its struct.
    pub(super) fn upgrade_descriptor<T: Record>(
        &mut self,
        stored: &StoredCollection,
    ) -> Result<Arc<StoredCollection>, Error> {
        catalog::upgrade_descriptor::<T>(&mut self.engine.lock(), stored)?;
        self.collections_by_name.remove(&stored.name);
        Ok(self.collection_by::<T>(&stored.name, None)?.into_stored())
    }

    /// The names of all collections.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn collections(&mut self) -> Result<Vec<String>, Error> {
        self.begin();
        read(self.found.as_ref(), catalog::names(&mut self.engine.lock()))
    }

    /// Runs `work`, all of whose writes to this store and its collections are atomic: an error or a
    /// panic rolls them all back. Transactions may be nested.
    ///
    /// # Errors
    /// The error of `work`, or that of the file if a batch that became large is committed.
    pub fn transaction<R, E: From<Error>>(
        &mut self,
        work: impl FnOnce(&mut Store) -> Result<R, E>,
    ) -> Result<R, E> {
        self.begin();
        self.atomically(work)
    }

    /// As [`transaction`](Store::transaction), with a note that says why: up to 65,536 bytes. It is kept in the log with
    /// the time, as long as compaction keeps the transaction there; [`log`](Store::log) shows it. In the log it is one
    /// transaction, whatever else is committed together with it.
    ///
    /// # Errors
    /// As for [`transaction`](Store::transaction); [`Error::BadArgument`] for a note that is too long, and inside
    /// another transaction.
    pub fn transaction_with_note<R, E: From<Error>>(
        &mut self,
        note: &str,
        work: impl FnOnce(&mut Store) -> Result<R, E>,
    ) -> Result<R, E> {
        self.begin();
        let refused = |reason: &str| Error::BadArgument(Malformed::new("", reason));
        if self.engine.look().depth() > 0 {
            let reason = "a transaction inside another takes no note: give it to the outermost one";
            return Err(refused(reason).into());
        }
        if note.len() > MAX_NOTE {
            return Err(refused("a note must have at most 65,536 bytes").into());
        }
        self.run_atomically(Some(note), work)
    }

    /// Walks over the log of the file as history: its transactions, the oldest first, and in each its records. It shows
    /// what was committed until now, as far as compaction left it, and verifies every byte that it reads.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-log-{}", std::process::id()));
    /// # let path = folder.join("shop.varve");
    /// use varve::native::{LogRange, Store};
    ///
    /// let mut store = Store::open(&path)?;
    /// store.transaction_with_note("price rise", |store| store.set("price", b"12"))?;
    /// store.commit()?;
    ///
    /// let mut log = store.log(LogRange::all());
    /// while let Some(mut transaction) = log.next()? {
    ///     assert_eq!(transaction.note.as_deref(), Some("price rise"));
    ///     while let Some(mut record) = transaction.next()? {
    ///         assert_eq!(record.key, b"price");
    ///         assert_eq!(record.value()?, Some(&b"12"[..]));
    ///     }
    /// }
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn log(&mut self, range: LogRange) -> Log<'_> {
        self.begin();
        Log::of_store(self, range)
    }

    /// The number of the newest commit: a cursor. What was committed until now has versions up to it, and what will be
    /// has greater ones. It may be kept elsewhere.
    #[must_use]
    pub fn last_commit(&self) -> u64 {
        self.engine.look().last_commit()
    }

    /// What is different since a cursor, each key once, as it is now, deletions included. It commits first, and takes time
    /// by what was written since. With a name, only what belongs to that collection.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-changes-{}", std::process::id()));
    /// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
    /// use varve::ChangeKind;
    ///
    /// store.set("a", "1")?;
    /// store.set("b", "1")?;
    /// store.commit()?;
    /// let cursor = store.last_commit();
    /// store.set("a", "2")?;
    /// store.set("a", "3")?;
    /// store.delete("b")?;
    ///
    /// let mut changes = store.changes(cursor, None)?;
    /// let mut found = changes.next()?.expect("a was set");
    /// assert_eq!((found.key, found.value()?), (&b"a"[..], Some(&b"3"[..])));
    /// let found = changes.next()?.expect("b was deleted");
    /// assert_eq!((found.key, found.kind), (&b"b"[..], ChangeKind::Delete));
    /// assert!(changes.next()?.is_none());
    /// # drop(changes);
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::error::Error::CursorExpired`] if compaction has removed a deletion since: begin again with the whole
    /// content, or keep what follows a cursor by [`retain`](Store::retain). [`crate::error::Error::CursorInFuture`] if no
    /// commit has reached it. As for [`commit`](Store::commit).
    pub fn changes(&mut self, since: u64, collection: Option<&str>) -> Result<Changes<'_>, Error> {
        self.begin();
        Changes::of(self, since, collection)
    }

    /// Sets the durable mark of this name to a cursor, or moves it there; `None` drops it. As long as it is there, nothing
    /// that was written after the cursor is compacted. It is written with the open batch.
    ///
    /// # Errors
    /// [`crate::error::Error::CursorExpired`] if a part of what followed the cursor is gone already,
    /// [`crate::error::Error::CursorInFuture`] if no commit has reached it, [`Error::BadArgument`] for a name that has not
    /// 1 to 255 bytes; as for [`set`](Store::set).
    pub fn retain(&mut self, name: &str, cursor: Option<u64>) -> Result<(), Error> {
        self.begin_write()?;
        let done = self.engine.lock().retain(checked_mark(name)?, cursor);
        self.with_loss_reason(done)
    }

    /// The marks, with their cursors, in the order in which they were set.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn retained(&mut self) -> Result<Vec<(String, u64)>, Error> {
        self.begin();
        let mut marks = Vec::new();
        let done = self.engine.lock().each_mark(|name, cursor| {
            marks.push((String::from_utf8_lossy(name).into_owned(), cursor));
        });
        read(self.found.as_ref(), done)?;
        Ok(marks)
    }

    /// Follows the transactions of this store: those after a cursor, then each that is committed, none twice and none left
    /// out, also across restarts, if the program keeps the number of the last one that it handled.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-follow-{}", std::process::id()));
    /// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
    /// use varve::FollowFrom;
    ///
    /// let mut follower = store.follow(FollowFrom::cursor(0).retain("replica"))?;
    /// store.set("a", "1")?;
    /// store.commit()?;
    /// let mut seen = 0;
    /// let mut news = follower.poll(&mut store)?;
    /// while let Some(mut transaction) = news.next()? {
    ///     while let Some(mut record) = transaction.next()? {
    ///         assert_eq!(record.value()?, Some(&b"1"[..]));
    ///         seen += 1;
    ///     }
    /// }
    /// assert_eq!(seen, 1);
    /// assert!(follower.poll(&mut store)?.next()?.is_none());
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`retain`](Store::retain).
    pub fn follow(&mut self, from: FollowFrom) -> Result<Follower, Error> {
        let FollowFrom { cursor, mark } = from;
        let mut since = cursor;
        if let Some(mark) = &mark {
            checked_mark(mark)?;
            let marked = self.retained()?.into_iter().find(|(name, _)| name == mark);
            since = since.or(marked.map(|(_, cursor)| cursor));
        }
        let since = since.unwrap_or(self.last_commit());
        self.known_since(since)?;
        if let Some(mark) = &mark {
            self.retain(mark, Some(since))?;
        }
        Ok(Follower::new(since, mark))
    }

    /// What the log says about the time since a cursor.
    pub(super) fn known_since(&mut self, cursor: u64) -> Result<Since, Error> {
        read(self.found.as_ref(), self.engine.lock().since(cursor))
    }

    pub(super) fn atomically<R, E: From<Error>>(
        &mut self,
        work: impl FnOnce(&mut Store) -> Result<R, E>,
    ) -> Result<R, E> {
        self.run_atomically(None, work)
    }

    fn run_atomically<R, E: From<Error>>(
        &mut self,
        note: Option<&str>,
        work: impl FnOnce(&mut Store) -> Result<R, E>,
    ) -> Result<R, E> {
        self.engine.commit_later();
        let savepoint = self.engine.lock().savepoint();
        let mut undoing = UndoOnDrop { store: self, ended: false };
        if let Some(note) = note {
            let now = system::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let noted = undoing.store.engine.lock().note(now.as_millis() as u64, note.as_bytes());
            undoing.store.with_loss_reason(noted)?;
        }
        let result = work(undoing.store)?;
        undoing.ended = true;
        undoing.store.engine.lock().release(savepoint).map_err(Error::from)?;
        drop(undoing);
        Ok(result)
    }

    /// Writes everything so far to the file as one atomic commit, which survives the end of this
    /// process, even a crash.
    ///
    /// # Errors
    /// An error of the file; the batch is rolled back then. [`crate::error::Error::Reentrancy`] in a
    /// transaction.
    pub fn commit(&mut self) -> Result<(), Error> {
        if self.engine.look().depth() > 0 {
            return Err(crate::error::Error::Reentrancy.into());
        }
        self.end_snapshots();
        let done =
            self.take_lost_writes().map_or(Ok(()), Err).and_then(|()| self.engine.lock().commit());
        self.with_loss_reason(done)?;
        if self.engine.look().wants_maintenance() {
            // The commit has succeeded, whatever fails here: if it poisons the store, writes are
            // refused, and anything else is tried again.
            drop(self.engine.lock().maintain(false));
        }
        Ok(())
    }

    /// Commits, and returns when everything survives power loss.
    ///
    /// # Errors
    /// As for [`commit`](Store::commit). After a failed flush, writes are refused.
    /// [`Error::FileLost`] if the file was removed or replaced, or its lock taken over, since it
    /// was opened.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.commit()?;
        // The file may have been lost since the last flush, and then this flush must fail.
        let was_flushed = !self.engine.look().is_unflushed();
        let mut done = self.engine.lock().flush();
        if was_flushed && done.is_ok() {
            done = self.engine.look().file().assert_current().map_err(crate::error::Error::from);
        }
        self.with_loss_reason(done)
    }

    /// Replaces the error of a lost file by one that says how it was lost.
    pub(super) fn with_loss_reason<T>(
        &self,
        done: Result<T, crate::error::Error>,
    ) -> Result<T, Error> {
        done.map_err(|error| match (error, self.engine.look().file().loss()) {
            (crate::error::Error::Lost | crate::error::Error::Poisoned, Some((path, reason))) => {
                Error::FileLost { path: path.to_path_buf(), reason }
            }
            (error, _) => error.into(),
        })
    }

    /// Makes the file as small as possible.
    ///
    /// # Errors
    /// As for [`commit`](Store::commit).
    pub fn compact(&mut self) -> Result<(), Error> {
        self.begin();
        let mut more = Ok(true);
        let mut all = true;
        while self.with_loss_reason(more)? {
            more = self.engine.lock().maintain(all);
            all = false;
            self.engine.lock().end_turn();
        }
        Ok(())
    }

    /// Commits, flushes, and records the end of the log.
    pub(crate) fn shut(&mut self) -> Result<(), Error> {
        self.is_closed = true;
        let mut done = self.engine.lock().shut();
        if let Some(error) = self.take_lost_writes() {
            done = Err(error);
        }
        if done.is_ok() && self.engine.look().stats().poisoned {
            done = self.engine.look().file().assert_current().map_err(crate::error::Error::from);
        }
        self.with_loss_reason(done)
    }

    /// The result of opening.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        self.engine.recovery()
    }

    /// Sizes and states.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.look().stats()
    }

    pub(super) fn engine(&mut self) -> InUse<'_> {
        self.engine.lock()
    }

    /// Starts a call: no value that was read before is in use any more.
    pub(super) fn begin(&mut self) {
        self.begin_step();
        if self.needs_clock() {
            self.update_clock();
        }
        if self.dropped_snapshots.is_some() {
            self.end_snapshots();
        }
    }

    /// All calls of a transaction see one time.
    fn needs_clock(&self) -> bool {
        let engine = self.engine.look();
        engine.expires() && engine.depth() == 0
    }

    #[cold]
    pub(super) fn update_clock(&mut self) {
        if let Err(error) = self.engine.lock().set_now(seconds_now()) {
            self.lost_writes = Some(error);
        }
    }

    #[cold]
    fn end_snapshots(&mut self) {
        let Some(dropped) = &self.dropped_snapshots else { return };
        for id in dropped.take() {
            self.engine.lock().end_snapshot(id);
        }
    }

    /// Starts a step of an iteration, all of which sees one time.
    pub(super) fn begin_step(&mut self) {
        self.calls += 1;
        if self.calls >= TURN && self.engine.look().depth() == 0 {
            self.calls = 0;
            self.engine.lock().end_turn();
        }
    }

    /// Starts a call that reads what it then changes.
    pub(super) fn begin_write(&mut self) -> Result<(), Error> {
        self.begin();
        // Nothing is written after a batch that was lost before the program knows of it.
        if let Some(error) = self.take_lost_writes() {
            return self.with_loss_reason(Err(error));
        }
        match self.found {
            Some(_) => Err(crate::error::Error::ReadOnly.into()),
            None => {
                self.engine.commit_later();
                Ok(())
            }
        }
    }

    /// Why uncommitted writes were lost outside of a commit, if they were. It is returned once.
    fn take_lost_writes(&mut self) -> Option<crate::error::Error> {
        self.lost_writes.take().or_else(|| self.engine.take_failure())
    }

    pub(super) fn pairs(
        &mut self,
        keyspace: u32,
        range: &KeyRange<'_>,
    ) -> Result<Entries<'_>, Error> {
        let walk = Walk::new(keyspace, range.encode(None)?, range, true);
        self.begin();
        Ok(Entries { store: self, walk })
    }

    pub(super) fn keys_of(
        &mut self,
        keyspace: u32,
        range: &KeyRange<'_>,
    ) -> Result<Keys<'_>, Error> {
        let walk = Walk::new(keyspace, range.encode(None)?, range, false);
        self.begin();
        Ok(Keys { store: self, walk })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if !self.is_closed {
            // Callers that need the result use `close`.
            drop(self.engine.lock().shut());
        }
    }
}

/// Rolls back to a savepoint when dropped, also by a panic.
struct UndoOnDrop<'a> {
    store: &'a mut Store,
    ended: bool,
}

impl Drop for UndoOnDrop<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.store.engine.lock().rollback_last();
            // A collection that was created since the savepoint is gone too.
            self.store.collections_by_name.clear();
        }
    }
}

/// A key and its value.
pub type Pair<'a> = (&'a [u8], &'a [u8]);

/// Iterates over keys and values, by [`Store::entries`]: from both ends, one after the other.
///
/// As an [`Iterator`] it gives owned [`Slice`]s. [`next_pair`](Entries::next_pair) borrows the next key and its value
/// instead, which copies neither. What cannot be read is an error in its stead, and the iteration goes on behind it, unless
/// the order of the keys cannot be read: then it ends.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("varve-doc-pairs-{}", std::process::id()));
/// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
/// for name in ["a", "b", "c"] {
///     store.set(name, name.to_uppercase())?;
/// }
/// for entry in store.entries("a".."c")? {
///     let (key, value) = entry?;
///     assert_eq!(value, key.to_ascii_uppercase());
/// }
/// let (last, _) = store.entries(..)?.next_back().expect("there are three")?;
/// assert_eq!(last, "c");
///
/// let mut entries = store.entries("b"..)?;
/// while let Some((key, value)) = entries.next_pair()? {
///     assert_eq!(value, key.to_ascii_uppercase());
/// }
/// # drop(entries);
/// # store.close()?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "iterators do nothing unless they are consumed"]
pub struct Entries<'s> {
    store: &'s mut Store,
    walk: Walk,
}

impl Entries<'_> {
    /// The next key and its value; none at the end. They are valid until the next call.
    ///
    /// # Errors
    /// As for [`Store::get`].
    pub fn next_pair(&mut self) -> Result<Option<Pair<'_>>, Error> {
        self.pair(End::Front)
    }

    /// As [`next_pair`](Entries::next_pair), from the end of the range. With a limit the keys before it are read first.
    ///
    /// # Errors
    /// As for [`Store::get`].
    pub fn next_pair_back(&mut self) -> Result<Option<Pair<'_>>, Error> {
        self.pair(End::Back)
    }

    fn pair(&mut self, end: End) -> Result<Option<Pair<'_>>, Error> {
        if !self.walk.step(self.store, end)? {
            return Ok(None);
        }
        let value = self.walk.value(self.store)?;
        Ok(value.map(|value| (self.walk.key(), value)))
    }

    fn owned(&mut self, end: End) -> Option<Result<(Slice, Slice), Error>> {
        let pair = self.pair(end).transpose()?;
        Some(pair.map(|(key, value)| (Slice::new(key), Slice::new(value))))
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<(Slice, Slice), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.owned(End::Front)
    }
}

impl DoubleEndedIterator for Entries<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.owned(End::Back)
    }
}

impl FusedIterator for Entries<'_> {}

/// Iterates over keys, by [`Store::keys`]: from both ends, without reading any value.
///
/// As an [`Iterator`] it gives owned [`Slice`]s; [`next_key`](Keys::next_key) borrows the next key instead. An error ends it.
#[derive(Debug)]
#[must_use = "iterators do nothing unless they are consumed"]
pub struct Keys<'s> {
    store: &'s mut Store,
    walk: Walk,
}

impl Keys<'_> {
    /// The next key; none at the end. It is valid until the next call.
    ///
    /// # Errors
    /// As for [`Store::get`].
    pub fn next_key(&mut self) -> Result<Option<&[u8]>, Error> {
        Ok(self.walk.step(self.store, End::Front)?.then(|| self.walk.key()))
    }

    fn owned(&mut self, end: End) -> Option<Result<Slice, Error>> {
        let step = self.walk.step(self.store, end);
        step.map(|is_one| is_one.then(|| Slice::new(self.walk.key()))).transpose()
    }
}

impl Iterator for Keys<'_> {
    type Item = Result<Slice, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.owned(End::Front)
    }
}

impl DoubleEndedIterator for Keys<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.owned(End::Back)
    }
}

impl FusedIterator for Keys<'_> {}
