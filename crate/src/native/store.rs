//! A database file that this process has open.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::format::{KEYSPACE_RAW, MAX_KEY};
use crate::schema::Record;
use crate::schema::key::KeyKind;
use crate::store::Store as Engine;
use crate::{OnDamage, Options, Recovery, Stats};

use super::catalog::{self, Form};
use super::lock_file::random;
use super::locked_file::HeldFile;
use super::range::Bounds;
use super::{Collection, Error, KeyRange};

/// After so many calls memory that they needed is let go.
const TURN: u32 = 256;

/// A database file, open in this process and nowhere else.
///
/// Writes form a group until [`commit`](Store::commit) hands it to the file as one atomic commit. A
/// group that becomes large is handed on earlier, so what belongs together goes into a
/// [`transaction`](Store::transaction). Dropping a store commits and flushes; [`close`](Store::close)
/// does too and tells whether that succeeded.
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
    engine: Engine<HeldFile>,
    forms: HashMap<String, Arc<Form>>,
    calls: u32,
    is_closed: bool,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Whether it is only read: nothing is written, not even beside the file, and any number of
    /// processes may do so at once.
    pub read_only: bool,
    /// Bytes of memory for what was read or is about to be written; the file may be much larger.
    pub memory: usize,
    /// What is done when flushed data is damaged.
    pub on_damage: OnDamage,
}

impl Default for OpenOptions {
    fn default() -> Self {
        let Options { memory, on_damage, .. } = Options::default();
        OpenOptions { read_only: false, memory, on_damage }
    }
}

impl Store {
    /// Opens the database in the file at `path`, creating it when missing. While it is open, a lock
    /// lies beside it that Node, Deno and Bun heed as well.
    ///
    /// # Errors
    /// [`Error::Busy`] when another process, or this one, has it open; what the file system says; and
    /// the engine's errors for damage and for files that are none of its own.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Store::open_with(path, OpenOptions::default())
    }

    /// As [`open`](Store::open), with options.
    ///
    /// # Errors
    /// As for [`open`](Store::open), and [`Error::NotFound`] for a missing file that is only read.
    pub fn open_with(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, Error> {
        let OpenOptions { read_only, memory, on_damage } = options;
        let path = path.as_ref();
        let file = if read_only { HeldFile::read(path)? } else { HeldFile::open(path)? };
        let entropy = std::array::from_fn(|_| random());
        let fresh = file.is_taken_over();
        let options =
            Options { read_only, fresh, memory, on_damage, entropy, ..Options::default() };
        let engine = Engine::open(file, options)?;
        Ok(Store { engine, forms: HashMap::new(), calls: 0, is_closed: false })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Damage, or what the file says.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<&[u8]>, Error> {
        self.begin();
        Ok(self.engine.get(KEYSPACE_RAW, key.as_ref())?)
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn has(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.begin();
        Ok(self.engine.has(KEYSPACE_RAW, key.as_ref())?)
    }

    /// How many keys there are, those of collections not counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.engine.count(KEYSPACE_RAW)
    }

    /// Sets a key; gives the new version.
    ///
    /// # Errors
    /// A bad key or value, a full disk (nothing was written), or a store that refuses writes.
    pub fn set(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<u64, Error> {
        self.begin();
        let done = self.engine.set(KEYSPACE_RAW, key.as_ref(), value.as_ref());
        self.explained(done)
    }

    /// Removes a key; tells whether it was there.
    ///
    /// # Errors
    /// As for [`set`](Store::set).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.begin();
        let done = self.engine.delete(KEYSPACE_RAW, key.as_ref());
        self.explained(done)
    }

    /// Deletes the keys of a range: all of them or, after an error, none. Tells how many these were. All keys
    /// together cost as much as one, however many they are.
    ///
    /// # Errors
    /// A bound that is no key; as for [`set`](Store::set).
    pub fn clear(&mut self, range: KeyRange<'_>) -> Result<u64, Error> {
        self.begin();
        let bounds = range.encode(None)?;
        if bounds.is_empty() {
            return Ok(0);
        }
        let KeyRange { reverse, limit, .. } = range;
        let limit = limit.map_or(u64::MAX, |limit| limit as u64);
        Ok(self.engine.clear(KEYSPACE_RAW, bounds.slices(), reverse, limit)?)
    }

    /// Changes a value in place if `predicate` holds for it; tells whether it did. A key that is
    /// missing answers `false`, and a panic of `change` leaves every byte as it was.
    ///
    /// # Errors
    /// As for [`set`](Store::set).
    pub fn update_if(
        &mut self,
        key: impl AsRef<[u8]>,
        predicate: impl FnOnce(&[u8]) -> bool,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Error> {
        self.begin();
        let change = |value: &mut [u8]| {
            change(value);
            Ok(None)
        };
        let done = self.engine.update_if(KEYSPACE_RAW, key.as_ref(), predicate, change);
        self.explained(done)
    }

    /// Goes over keys and their values, in order.
    ///
    /// # Errors
    /// A bound that is no key.
    pub fn entries(&mut self, range: KeyRange<'_>) -> Result<Entries<'_>, Error> {
        let bounds = range.encode(None)?;
        Ok(self.walk(KEYSPACE_RAW, bounds, &range))
    }

    /// A collection of records of type `T`, made with keys of text when it is missing.
    ///
    /// # Errors
    /// [`Error::SchemaMismatch`] when what is stored under this name is something else.
    pub fn collection<T: Record>(&mut self, name: &str) -> Result<Collection<'_, T>, Error> {
        self.collection_by(name, None)
    }

    /// A collection whose keys are of this kind: what is stored is compared with it, or made so.
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

    fn collection_by<T: Record>(
        &mut self,
        name: &str,
        key: Option<&KeyKind>,
    ) -> Result<Collection<'_, T>, Error> {
        self.begin();
        let form = match self.forms.get(name) {
            Some(form) => Arc::clone(form),
            None => {
                let form = match catalog::find(&mut self.engine, name)? {
                    Some(form) => form,
                    None => {
                        let key = key.unwrap_or(&KeyKind::Text);
                        self.atomically(|store| catalog::make::<T>(&mut store.engine, name, key))?
                    }
                };
                let form = Arc::new(form);
                self.forms.insert(name.to_string(), Arc::clone(&form));
                form
            }
        };
        form.refuse_other::<T>(key)?;
        Ok(Collection::new(self, form))
    }

    /// The collection as a later version of its struct has it.
    pub(super) fn grow<T: Record>(&mut self, form: &Form) -> Result<Arc<Form>, Error> {
        catalog::grow::<T>(&mut self.engine, form)?;
        self.forms.remove(&form.name);
        Ok(self.collection_by::<T>(&form.name, None)?.into_form())
    }

    /// The names of all collections.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn collections(&mut self) -> Result<Vec<String>, Error> {
        self.begin();
        catalog::names(&mut self.engine)
    }

    /// Runs `work`, all of whose writes to this store and its collections are one: an error, or a
    /// panic, takes them all back. Transactions may be nested.
    ///
    /// # Errors
    /// That of `work`, or what the file says when a group that became large is handed to it.
    pub fn transaction<R, E: From<Error>>(
        &mut self,
        work: impl FnOnce(&mut Store) -> Result<R, E>,
    ) -> Result<R, E> {
        self.begin();
        self.atomically(work)
    }

    pub(super) fn atomically<R, E: From<Error>>(
        &mut self,
        work: impl FnOnce(&mut Store) -> Result<R, E>,
    ) -> Result<R, E> {
        let savepoint = self.engine.savepoint();
        let mut undoing = UndoOnDrop { store: self, ended: false };
        let result = work(undoing.store)?;
        undoing.ended = true;
        undoing.store.engine.release(savepoint).map_err(Error::from)?;
        drop(undoing);
        Ok(result)
    }

    /// Hands all writes so far to the file, as one atomic commit: they survive the end of this
    /// process, however it comes.
    ///
    /// # Errors
    /// What the file says; the group is then taken back. [`crate::Error::Reentrancy`] in a
    /// transaction.
    pub fn commit(&mut self) -> Result<(), Error> {
        if self.engine.depth() > 0 {
            return Err(crate::Error::Reentrancy.into());
        }
        let done = self.engine.commit();
        self.explained(done)?;
        if self.engine.wants_maintenance() {
            // The commit has succeeded whatever fails here: after what poisons, writes are refused, and
            // all else is tried again.
            drop(self.engine.maintain(false));
        }
        Ok(())
    }

    /// Commits, and returns when everything survives power loss.
    ///
    /// # Errors
    /// As for [`commit`](Store::commit). After a failed flush writes are refused. [`Error::FileLost`] when the file
    /// was removed or replaced, or its lock taken over, since it was opened.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.commit()?;
        // What was flushed before may be lost since: whoever asks for a flush is told.
        let was_flushed = !self.engine.is_unflushed();
        let mut done = self.engine.flush();
        if was_flushed && done.is_ok() {
            done = self.engine.file().assert_there().map_err(crate::Error::from);
        }
        self.explained(done)
    }

    /// What was lost is told by what happened to it.
    fn explained<T>(&self, done: Result<T, crate::Error>) -> Result<T, Error> {
        done.map_err(|error| match (error, self.engine.file().loss()) {
            (crate::Error::Lost | crate::Error::Poisoned, Some((path, reason))) => {
                Error::FileLost { path: path.to_path_buf(), reason }
            }
            (error, _) => error.into(),
        })
    }

    /// Makes the file as small as it can be.
    ///
    /// # Errors
    /// As for [`commit`](Store::commit).
    pub fn compact(&mut self) -> Result<(), Error> {
        let mut more = Ok(true);
        let mut all = true;
        while self.explained(more)? {
            more = self.engine.maintain(all);
            all = false;
            self.engine.end_turn();
        }
        Ok(())
    }

    /// Commits, flushes, and gives the lock back.
    ///
    /// # Errors
    /// What the file says. What was committed before stands.
    pub fn close(mut self) -> Result<(), Error> {
        self.is_closed = true;
        let mut done = self.engine.shut();
        if done.is_ok() && self.engine.stats().poisoned {
            done = self.engine.file().assert_there().map_err(crate::Error::from);
        }
        self.explained(done)
    }

    /// What opening found.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        self.engine.recovery()
    }

    /// Sizes and states.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    pub(super) fn engine(&mut self) -> &mut Engine<HeldFile> {
        &mut self.engine
    }

    /// A call begins, so that nothing shows a value any more that was read before.
    pub(super) fn begin(&mut self) {
        self.calls += 1;
        if self.calls >= TURN && self.engine.depth() == 0 {
            self.calls = 0;
            self.engine.end_turn();
        }
    }

    pub(super) fn walk(
        &mut self,
        keyspace: u32,
        bounds: Bounds,
        range: &KeyRange<'_>,
    ) -> Entries<'_> {
        let KeyRange { reverse, limit, .. } = *range;
        let left = limit.unwrap_or(usize::MAX);
        let walk = Walk { keyspace, bounds, reverse, left, key: Vec::new() };
        Entries { store: self, walk }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if !self.is_closed {
            // Who wants to know calls `close`.
            drop(self.engine.shut());
        }
    }
}

/// Takes back what came since a savepoint, also when a panic passes by.
struct UndoOnDrop<'a> {
    store: &'a mut Store,
    ended: bool,
}

impl Drop for UndoOnDrop<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.store.engine.rollback_last();
            // A collection that was made since is gone with it.
            self.store.forms.clear();
        }
    }
}

/// Where a walk over keys has come to.
#[derive(Debug)]
pub(super) struct Walk {
    pub keyspace: u32,
    bounds: Bounds,
    reverse: bool,
    left: usize,
    /// The key that it came to last.
    pub key: Vec<u8>,
}

impl Walk {
    /// Goes to the next key; false when there is none.
    pub(super) fn step(&mut self, store: &mut Store) -> Result<bool, Error> {
        if self.left == 0 || self.bounds.is_empty() {
            return Ok(false);
        }
        store.begin();
        let mut keys = store.engine.range_keys(self.keyspace, self.bounds.slices())?;
        let Some(key) = (if self.reverse { keys.next_back() } else { keys.next() }) else {
            return Ok(false);
        };
        debug_assert!(key.len() <= MAX_KEY);
        self.key.clear();
        self.key.extend_from_slice(key);
        self.bounds.go_behind(&self.key, self.reverse);
        self.left -= 1;
        Ok(true)
    }
}

/// A key and its value.
pub type Pair<'a> = (&'a [u8], &'a [u8]);

/// Goes over keys and values. Values lie in the store's memory, so each is good until the next.
#[derive(Debug)]
pub struct Entries<'s> {
    pub(super) store: &'s mut Store,
    pub(super) walk: Walk,
}

impl Entries<'_> {
    /// The next key and its value; none at the end.
    ///
    /// # Errors
    /// As for [`Store::get`].
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Pair<'_>>, Error> {
        if !self.walk.step(self.store)? {
            return Ok(None);
        }
        let value = self.store.engine.get(self.walk.keyspace, &self.walk.key)?;
        Ok(value.map(|value| (self.walk.key.as_slice(), value)))
    }
}
