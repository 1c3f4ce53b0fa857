//! Collections of records in an open store.

use std::borrow::Cow;
use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use musli_zerocopy::ZeroCopy;

use crate::aligned_buf::AlignedBytes;
use crate::format::KEYSPACE_ENGINE;
use crate::format::system_records::KEY_IDS;
use crate::schema::key::{Key, KeyKind, OwnedKey, Part};
use crate::schema::upgrade::{put_root, upgraded};
use crate::schema::{Malformed, Parts, Plain, Record, View};
use crate::store::SnapshotId;

use super::catalog::StoredCollection;
use super::expiry::check_version;
use super::index::{Index, entry_value, record_key};
use super::read_errors::read;
use super::walk::{End, Walk};
use super::{Error, Expiry, KeyRange, SetOptions, Slice, Store, Versioned};

/// Records of type `T` with their own keys, in a store.
///
/// Records are read in place. Every write updates the collection's indexes, which are stored in the
/// same file, in the same commit.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("varve-doc-c-{}", std::process::id()));
/// # let path = folder.join("shop.varve");
/// use musli_zerocopy::{Ref, ZeroCopy};
/// use varve::native::Store;
/// use varve::schema::Record;
///
/// #[derive(Clone, Copy, ZeroCopy, Record)]
/// #[repr(C)]
/// struct Product {
///     stock: u16,
///     name: Ref<str>,
/// }
///
/// let mut store = Store::open(&path)?;
/// let mut products = store.collection::<Product>("products")?;
/// products.set("yeezy", |parts| Product { stock: 20_001, name: parts.str("Yeezy Boost 350 V2") })?;
/// products.update_if("yeezy", |p| p.stock > 0, |p| p.stock -= 1)?;
/// let yeezy = products.get("yeezy")?.expect("it was set");
/// assert_eq!(yeezy.stock, 20_000);
/// assert_eq!(yeezy.load(yeezy.name)?, "Yeezy Boost 350 V2");
/// # store.close()?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Collection<'s, T> {
    pub(super) store: &'s mut Store,
    pub(super) stored: Arc<StoredCollection>,
    /// When records expire that are set without an expiry of their own.
    expiry: Expiry,
    record: PhantomData<T>,
}

/// The change of an index entry by a write.
struct EntryChange<'a> {
    index: &'a Index,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    /// Whether an earlier version of the struct wrote the old record.
    is_earlier: bool,
    /// When the new entry expires, in seconds since 1970; 0 for never.
    expiry: u32,
}

impl<'s, T: Record> Collection<'s, T> {
    pub(super) fn new(store: &'s mut Store, stored: Arc<StoredCollection>) -> Self {
        Collection { store, stored, expiry: Expiry::Never, record: PhantomData }
    }

    /// After how long records expire that are set through this `Collection` without an expiry of their own. It is not a
    /// part of the file.
    #[must_use]
    pub fn expire_in(mut self, after: Duration) -> Self {
        self.expiry = Expiry::In(after);
        self
    }

    pub(super) fn into_stored(self) -> Arc<StoredCollection> {
        self.stored
    }

    /// Returns the record of a key.
    ///
    /// # Errors
    /// A key that is not of this collection's type, a malformed record, or an error of the file.
    pub fn get(&mut self, key: impl Key) -> Result<Option<View<'_, T>>, Error> {
        let key = self.encode(&key)?;
        self.store.begin();
        let Store { engine, found, .. } = &mut *self.store;
        match read(found.as_ref(), engine.get(self.stored.keyspace, &key))? {
            Some(bytes) => View::new(bytes).map(Some).map_err(Error::MalformedValue),
            None => Ok(None),
        }
    }

    /// Returns the record of a key as one that belongs to the program, and stays when the store goes on.
    ///
    /// # Errors
    /// As for [`get`](Collection::get).
    pub fn get_owned(&mut self, key: impl Key) -> Result<Option<Owned<T>>, Error> {
        Ok(self.get(key)?.map(|view| Owned::of(&view)))
    }

    /// Returns the record of a key with its version and its expiry.
    ///
    /// # Errors
    /// As for [`get`](Collection::get).
    pub fn get_entry(&mut self, key: impl Key) -> Result<Option<Versioned<View<'_, T>>>, Error> {
        let key = self.encode(&key)?;
        self.store.begin();
        let Store { engine, found, .. } = &mut *self.store;
        let entry = read(found.as_ref(), engine.get_entry(self.stored.keyspace, &key))?;
        entry.map(|entry| entry.map(View::new)).transpose().map_err(Error::MalformedValue)
    }

    /// Whether a key exists.
    ///
    /// # Errors
    /// As for [`get`](Collection::get).
    pub fn has(&mut self, key: impl Key) -> Result<bool, Error> {
        let key = self.encode(&key)?;
        self.store.begin();
        let Store { engine, found, .. } = &mut *self.store;
        read(found.as_ref(), engine.lock().has(self.stored.keyspace, &key))
    }

    /// The number of records in a range of keys.
    ///
    /// # Errors
    /// A bound that is not a key of this collection; as for [`Store::count`].
    pub fn count<'k>(&mut self, range: impl Into<KeyRange<'k>>) -> Result<u64, Error> {
        let range = range.into();
        let bounds = range.encode(Some(self.stored.key()?))?;
        self.store.count_between(self.stored.keyspace, bounds, &range)
    }

    /// Sets the record of a key; returns the new version. `create` returns its root, and adds the
    /// texts and slices that it refers to, in the order of the fields.
    ///
    /// # Errors
    /// As for [`Store::set`]; a value that does not match its layout, such as one with a reference
    /// outside it or an invalid date; [`Error::NotUnique`]. Nothing is written then.
    pub fn set(
        &mut self,
        key: impl Key,
        make: impl FnOnce(&mut Parts<T>) -> T,
    ) -> Result<u64, Error> {
        self.set_with(key, SetOptions::new(), make)
    }

    /// As [`set`](Collection::set), with options: when the record expires, and which version the key must have.
    ///
    /// # Errors
    /// As for [`set`](Collection::set) and [`Store::set_with`].
    pub fn set_with(
        &mut self,
        key: impl Key,
        options: SetOptions,
        make: impl FnOnce(&mut Parts<T>) -> T,
    ) -> Result<u64, Error> {
        let mut parts = Parts::of::<T>();
        let root = make(&mut parts);
        let value = parts.finish(root).map_err(Error::BadArgument)?;
        self.set_bytes(key, options, &value)
    }

    /// Sets the record of a key to these bytes.
    pub(super) fn set_bytes(
        &mut self,
        key: impl Key,
        options: SetOptions,
        value: &[u8],
    ) -> Result<u64, Error> {
        let key = self.encode(&key)?;
        self.set_encoded(&key, options, value)
    }

    /// The same with an encoded key.
    pub(super) fn set_encoded(
        &mut self,
        key: &[u8],
        options: SetOptions,
        value: &[u8],
    ) -> Result<u64, Error> {
        self.store.begin_write()?;
        let stored = self.writable()?;
        stored.check(value)?;
        let expiry = self.store.seconds(options.expiry.unwrap_or(self.expiry))?;
        check_version(&mut self.store.engine(), stored.keyspace, key, options.if_version)?;
        if expiry != 0 {
            self.record_expiring_id(key)?;
        }
        if stored.indexes.is_empty() {
            let done = self.store.engine().set_with_expiry(stored.keyspace, key, value, expiry);
            return Ok(done?);
        }
        self.store.atomically(|store| {
            let old = store.engine().get(stored.keyspace, key)?.map(<[u8]>::to_vec);
            let version = store.engine().set_with_expiry(stored.keyspace, key, value, expiry)?;
            let is_there = store.engine().has(stored.keyspace, key)?;
            if is_there {
                reindex::<T>(store, &stored, key, old.as_deref(), Some(value), expiry)?;
            } else {
                // It has expired already, so it has no entries.
                reindex::<T>(store, &stored, key, old.as_deref(), None, expiry)?;
            }
            Ok(version)
        })
    }

    /// Changes when a record expires; its value stays. Returns whether the key exists.
    ///
    /// # Errors
    /// As for [`Store::touch`].
    pub fn touch(&mut self, key: impl Key, expiry: impl Into<Expiry>) -> Result<bool, Error> {
        let key = self.encode(&key)?;
        self.store.begin_write()?;
        let stored = self.writable()?;
        let expiry = self.store.seconds(expiry.into())?;
        if expiry != 0 {
            self.record_expiring_id(&key)?;
        }
        if stored.indexes.is_empty() {
            return Ok(self.store.engine().touch(stored.keyspace, &key, expiry)?);
        }
        self.store.atomically(|store| {
            let Some(old) = store.engine().get(stored.keyspace, &key)?.map(<[u8]>::to_vec) else {
                return Ok(false);
            };
            store.engine().touch(stored.keyspace, &key, expiry)?;
            let is_there = store.engine().has(stored.keyspace, &key)?;
            let new = Some(&old[..]).filter(|_| is_there);
            reindex::<T>(store, &stored, &key, Some(&old), new, expiry)?;
            Ok(true)
        })
    }

    /// Sets a record under a new key above all existing and former ones, and returns the key: for
    /// queues and logs, whose keys are numbers (`auto()` in TypeScript). No key is assigned twice,
    /// even after deletions, except one whose transaction was rolled back.
    ///
    /// # Errors
    /// As for [`set`](Collection::set), or a collection whose keys are not numbers.
    pub fn push(&mut self, make: impl FnOnce(&mut Parts<T>) -> T) -> Result<u64, Error> {
        let keyspace = self.stored.keyspace;
        self.store.begin_write()?;
        let used = self.used_ids()?;
        let mut last = None;
        self.store.engine().range(
            keyspace,
            (Bound::Unbounded, Bound::Unbounded),
            true,
            |key, _| {
                last = Some(key.to_vec());
                false
            },
        )?;
        let refused = |why: &str| {
            let reason = format!("push needs number keys, and {:?} {why}", self.stored.name);
            Error::BadArgument(Malformed::new("", reason))
        };
        let last = match last {
            None => 0,
            Some(last) => {
                u64::decode(self.stored.key()?, &last).ok_or_else(|| refused("has others"))?
            }
        };
        let next = last.max(used.unwrap_or(0)).checked_add(1);
        let next = next.ok_or_else(|| refused("has used up all there are"))?;
        self.set(next, make)?;
        if self.used_ids()?.is_none() {
            // From here on every deletion records its key, also those of TypeScript programs.
            self.record_ids(0)?;
        }
        Ok(next)
    }

    fn used_ids(&mut self) -> Result<Option<u64>, Error> {
        used_ids(self.store, &self.stored.name)
    }

    fn record_ids(&mut self, up_to: u64) -> Result<(), Error> {
        record_ids(self.store, &self.stored.name, up_to)
    }

    fn record_used_id(&mut self, key: &[u8]) -> Result<(), Error> {
        record_used_id(self.store, &self.stored, key)
    }

    /// Called before a record is given an expiry: the engine deletes it later by itself.
    fn record_expiring_id(&mut self, key: &[u8]) -> Result<(), Error> {
        let kind = self.stored.key()?;
        let Some(id) = u64::decode(kind, key) else { return Ok(()) };
        let is_auto =
            matches!(kind, KeyKind::Tuple(parts) if parts[..] == [Part::Plain(Plain::U53)]);
        let used = self.used_ids()?;
        if (is_auto || used.is_some()) && used < Some(id) {
            self.record_ids(id)?;
        }
        Ok(())
    }

    /// Deletes the records of a range with their index entries: all of them or, after an error, none. Returns how many.
    ///
    /// # Errors
    /// A bound that is not a key of this collection; as for [`Store::clear`].
    pub fn clear<'k>(&mut self, range: impl Into<KeyRange<'k>>) -> Result<u64, Error> {
        let range = range.into();
        let bounds = range.encode(Some(self.stored.key()?))?;
        self.store.begin_write()?;
        let stored = self.writable()?;
        if bounds.is_empty() || range.limit == Some(0) {
            return Ok(0);
        }
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut highest = None;
        self.store.engine().range(stored.keyspace, all, true, |key, _| {
            highest = Some(key.to_vec());
            false
        })?;
        let Some(highest) = highest else { return Ok(0) };
        self.record_used_id(&highest)?;
        let limit = range.limit.map_or(u64::MAX, |limit| limit as u64);
        if stored.indexes.is_empty() {
            let (bounds, reverse) = (bounds.slices(), range.reverse);
            return Ok(self.store.engine().clear(stored.keyspace, bounds, reverse, limit)?);
        }
        self.store.atomically(|store| {
            let count = store.engine().live_count(stored.keyspace)?;
            let in_range = store.engine().count_range(stored.keyspace, bounds.slices())?;
            if in_range == count && limit >= count {
                for index in &stored.indexes {
                    store.engine().clear(index.keyspace, all, false, u64::MAX)?;
                }
                return Ok(store.engine().clear(stored.keyspace, all, false, u64::MAX)?);
            }
            let mut keys = Vec::new();
            let Some(left) = usize::try_from(limit.min(in_range)).ok().filter(|&left| left > 0)
            else {
                return Ok(0);
            };
            store.engine().range(stored.keyspace, bounds.slices(), range.reverse, |key, _| {
                keys.push(key.to_vec());
                keys.len() < left
            })?;
            for key in &keys {
                let old = store.engine().get(stored.keyspace, key)?.map(<[u8]>::to_vec);
                reindex::<T>(store, &stored, key, old.as_deref(), None, 0)?;
                store.engine().delete(stored.keyspace, key)?;
            }
            Ok(keys.len() as u64)
        })
    }

    /// Deletes a record; returns whether it existed.
    ///
    /// # Errors
    /// As for [`Store::delete`].
    pub fn delete(&mut self, key: impl Key) -> Result<bool, Error> {
        let key = self.encode(&key)?;
        self.store.begin_write()?;
        let stored = self.writable()?;
        self.record_used_id(&key)?;
        if stored.indexes.is_empty() {
            return Ok(self.store.engine().delete(stored.keyspace, &key)?);
        }
        self.store.atomically(|store| {
            let Some(old) = store.engine().get(stored.keyspace, &key)?.map(<[u8]>::to_vec) else {
                return Ok(false);
            };
            reindex::<T>(store, &stored, &key, Some(&old), None, 0)?;
            Ok(store.engine().delete(stored.keyspace, &key)?)
        })
    }

    /// Changes the root of a record in place if `predicate` holds for it; returns whether it did,
    /// which is `false` for a missing key. The parts of the record do not change: to change a text,
    /// replace the record.
    ///
    /// # Errors
    /// As for [`set`](Collection::set); every byte is restored then.
    pub fn update_if(
        &mut self,
        key: impl Key,
        predicate: impl FnOnce(View<'_, T>) -> bool,
        change: impl FnOnce(&mut T),
    ) -> Result<bool, Error> {
        let key = self.encode(&key)?;
        self.store.begin_write()?;
        let stored = self.writable()?;
        let Some(old) = self.store.engine.get(stored.keyspace, &key)? else { return Ok(false) };
        let view = View::<T>::new(old).map_err(Error::MalformedValue)?;
        if !predicate(view) {
            return Ok(false);
        }
        let mut root = *view.root();
        if let Some((mut new, mut root)) = upgraded::<T>(old).map_err(Error::MalformedValue)? {
            let old = old.to_vec();
            let expiry = self.store.engine().expiry(stored.keyspace, &key)?.unwrap_or(0);
            return self.store.atomically(|store| {
                change(&mut root);
                put_root(&mut new, &mut root);
                stored.check(&new)?;
                store.engine().set_with_expiry(stored.keyspace, &key, &new, expiry)?;
                reindex::<T>(store, &stored, &key, Some(&old), Some(&new), expiry)?;
                Ok(true)
            });
        }
        if stored.indexes.is_empty() {
            change(&mut root);
            write_root(self.store, &stored, &key, &mut root)?;
            return Ok(true);
        }
        let old = old.to_vec();
        let expiry = self.store.engine().expiry(stored.keyspace, &key)?.unwrap_or(0);
        self.store.atomically(|store| {
            change(&mut root);
            let mut new = old.clone();
            put_root(&mut new, &mut root);
            write_root(store, &stored, &key, &mut root)?;
            reindex::<T>(store, &stored, &key, Some(&old), Some(&new), expiry)?;
            Ok(true)
        })
    }

    /// Iterates over the records of a range of keys, in order.
    ///
    /// # Errors
    /// A bound that is not a key of this collection.
    pub fn entries<'k>(&mut self, range: impl Into<KeyRange<'k>>) -> Result<Records<'_, T>, Error> {
        Records::of(self.store, Arc::clone(&self.stored), None, &range.into())
    }

    /// Iterates over the records in the order of an index. The range is one of the index's fields:
    /// their values, or the first of them as a prefix.
    ///
    /// # Errors
    /// An index that the collection does not have, or a bound that does not match it.
    pub fn entries_by<'k>(
        &mut self,
        index: &str,
        range: impl Into<KeyRange<'k>>,
    ) -> Result<Records<'_, T>, Error> {
        Records::by_index(self.store, Arc::clone(&self.stored), None, index, &range.into())
    }

    /// The names of its indexes, except for those that are being built.
    pub fn indexes(&self) -> impl Iterator<Item = &str> {
        self.stored.indexes.iter().filter(|index| index.built).map(|index| index.name.as_str())
    }

    /// The type of its keys.
    ///
    /// # Errors
    /// If it is unknown to this version.
    pub fn key_kind(&self) -> Result<&KeyKind, Error> {
        self.stored.key()
    }

    pub(super) fn check_value(&self, value: &[u8]) -> Result<(), Error> {
        self.stored.check(value)
    }

    pub(super) fn writable(&mut self) -> Result<Arc<StoredCollection>, Error> {
        self.stored.check_indexes()?;
        self.stored.interrupt_conversion(&mut self.store.engine())?;
        if self.stored.is_upgraded_by::<T>() {
            self.stored = self.store.upgrade_descriptor::<T>(&self.stored)?;
        }
        Ok(Arc::clone(&self.stored))
    }

    pub(super) fn encode(&self, key: &impl Key) -> Result<Vec<u8>, Error> {
        self.stored.encode(key)
    }
}

/// The largest id that must not be assigned again, if one is recorded.
fn used_ids(store: &mut Store, name: &str) -> Result<Option<u64>, Error> {
    let recorded = store.engine.get(KEYSPACE_ENGINE, &ids_key(name))?;
    Ok(recorded.and_then(<[u8]>::first_chunk).map(|bytes| u64::from_le_bytes(*bytes)))
}

fn record_ids(store: &mut Store, name: &str, up_to: u64) -> Result<(), Error> {
    store.engine().set(KEYSPACE_ENGINE, &ids_key(name), &up_to.to_le_bytes())?;
    Ok(())
}

/// Called before a key is deleted: records that it was used, so that [`push`](Collection::push) never assigns it again.
/// Number keys other than `auto()` are recorded only if a record was ever pushed.
pub(super) fn record_used_id(
    store: &mut Store,
    stored: &StoredCollection,
    key: &[u8],
) -> Result<(), Error> {
    let kind = stored.key()?;
    let Some(id) = u64::decode(kind, key) else { return Ok(()) };
    let is_auto = matches!(kind, KeyKind::Tuple(parts) if parts[..] == [Part::Plain(Plain::U53)]);
    let used = used_ids(store, &stored.name)?;
    let counts = is_auto || used.is_some();
    if !counts || used >= Some(id) || !store.engine().has(stored.keyspace, key)? {
        return Ok(());
    }
    record_ids(store, &stored.name, id)
}

fn ids_key(name: &str) -> Vec<u8> {
    [KEY_IDS, name.as_bytes()].concat()
}

fn write_root<T: Record>(
    store: &mut Store,
    stored: &StoredCollection,
    key: &[u8],
    root: &mut T,
) -> Result<(), Error> {
    let mut checked = Ok(());
    let done = store.engine().update_if(
        stored.keyspace,
        key,
        |_| true,
        |value| {
            put_root(value, root);
            checked = stored.check(value);
            checked.as_ref().map(|()| None).map_err(|_| ())
        },
    );
    checked?;
    done?;
    Ok(())
}

/// Moves the index entries of a record from its old value to its new one, which expire with it.
pub(super) fn reindex<T: Record>(
    store: &mut Store,
    stored: &StoredCollection,
    key: &[u8],
    old: Option<&[u8]>,
    new: Option<&[u8]>,
    expiry: u32,
) -> Result<(), Error> {
    // The entries of a record of an earlier version contain the defaults of the missing fields.
    let old = old.map(in_current_layout::<T>).transpose().map_err(Error::MalformedValue)?;
    let is_earlier = matches!(old, Some(Cow::Owned(_)));
    for index in &stored.indexes {
        let tuple = |record: Option<&[u8]>| record.map(|record| index.tuple(record)).transpose();
        let from = tuple(old.as_deref()).map_err(Error::MalformedValue)?;
        let to = tuple(new).map_err(Error::BadArgument)?;
        if from != to {
            EntryChange { index, from, to, is_earlier, expiry }.apply(store, stored, key)?;
        } else if let Some(to) = to
            && store.engine().expires()
        {
            store.engine().touch(index.keyspace, &[&to, key].concat(), expiry)?;
        }
    }
    Ok(())
}

/// Adds the entry of a record to an index that has none of it.
pub(super) fn index_record<T: Record>(
    store: &mut Store,
    stored: &StoredCollection,
    index: &str,
    key: &[u8],
) -> Result<(), Error> {
    let Some(index) = stored.indexes.iter().find(|one| one.name == index) else { return Ok(()) };
    let Some(record) = store.engine().get(stored.keyspace, key)?.map(<[u8]>::to_vec) else {
        return Ok(());
    };
    let expiry = store.engine().expiry(stored.keyspace, key)?.unwrap_or(0);
    let record = in_current_layout::<T>(&record).map_err(Error::MalformedValue)?;
    let to = Some(index.tuple(&record).map_err(Error::MalformedValue)?);
    EntryChange { index, from: None, to, is_earlier: false, expiry }.apply(store, stored, key)
}

/// A record in the layout of this version of its struct.
fn in_current_layout<T: Record>(record: &[u8]) -> Result<Cow<'_, [u8]>, Malformed> {
    Ok(upgraded::<T>(record)?.map_or(Cow::Borrowed(record), |(bytes, _)| Cow::Owned(bytes)))
}

impl EntryChange<'_> {
    fn apply(self, store: &mut Store, stored: &StoredCollection, key: &[u8]) -> Result<(), Error> {
        let EntryChange { index, from, to, is_earlier, expiry } = self;
        if let Some(from) = from {
            let existed = store.engine().delete(index.keyspace, &[&from, key].concat())?;
            if is_earlier && index.built && !existed {
                let reason = format!(
                    "an earlier version of the struct wrote this record, and the index {:?} has other values \
                     for its added fields than those declared here",
                    index.name
                );
                return Err(Error::MalformedValue(Malformed::new("", reason)));
            }
        }
        let Some(to) = to else { return Ok(()) };
        if index.unique && is_in_use(store, index.keyspace, &to)? {
            let (collection, index) = (stored.name.clone(), index.name.clone());
            return Err(Error::NotUnique { collection, index });
        }
        let value = entry_value(to.len());
        let entry = [&to, key].concat();
        store.engine().set_with_expiry(index.keyspace, &entry, value.to_bytes(), expiry)?;
        Ok(())
    }
}

/// Whether an entry has exactly this tuple. Parts are self-delimiting, so each key with this prefix
/// does.
fn is_in_use(store: &mut Store, keyspace: u32, tuple: &[u8]) -> Result<bool, Error> {
    let mut is_in_use = false;
    store.engine().range(
        keyspace,
        (Bound::Included(tuple), Bound::Unbounded),
        false,
        |key, _| {
            is_in_use = key.starts_with(tuple);
            false
        },
    )?;
    Ok(is_in_use)
}

/// Iterates over records, by [`Collection::entries`] and [`Collection::entries_by`]: from both ends.
///
/// As an [`Iterator`] it gives [`OwnedEntry`]s; [`next_entry`](Records::next_entry) borrows the next record instead, which
/// is read in the store's memory. What cannot be read is an error in its stead, and the iteration goes on behind it, unless the
/// order of the keys cannot be read: then it ends.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("varve-doc-records-{}", std::process::id()));
/// # let mut store = varve::Store::open(folder.join("shop.varve"))?;
/// use musli_zerocopy::ZeroCopy;
/// use varve::schema::Record;
///
/// #[derive(Clone, Copy, ZeroCopy, Record)]
/// #[repr(C)]
/// struct Stock {
///     count: u32,
/// }
///
/// let mut stocks = store.collection::<Stock>("stocks")?;
/// for (name, count) in [("a", 1), ("b", 2), ("c", 3)] {
///     stocks.set(name, |_| Stock { count })?;
/// }
/// for entry in stocks.entries("a"..="b")?.rev() {
///     let entry = entry?;
///     println!("{}: {}", entry.key::<String>()?, entry.value.view().count);
/// }
/// let mut entries = stocks.entries(..)?;
/// let mut sum = 0;
/// while let Some(entry) = entries.next_entry()? {
///     sum += entry.value.count;
/// }
/// assert_eq!(sum, 6);
/// # drop(entries);
/// # store.close()?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "iterators do nothing unless they are consumed"]
pub struct Records<'s, T> {
    store: &'s mut Store,
    walk: Walk,
    pub(super) stored: Arc<StoredCollection>,
    /// The keyspace of the records, as it is or as a snapshot shows it, if the walk is one over an index.
    records: Option<u32>,
    /// The key of the record to which an entry of an index leads.
    key: Vec<u8>,
    record: PhantomData<T>,
}

/// A record that belongs to the program, and stays when the store goes on.
///
/// Clones share its bytes. It may be sent to other threads.
pub struct Owned<T> {
    bytes: Arc<AlignedBytes>,
    length: usize,
    record: PhantomData<fn() -> T>,
}

impl<T: Record> Owned<T> {
    fn of(view: &View<'_, T>) -> Self {
        let length = view.bytes().len();
        let mut bytes = AlignedBytes::uninitialized(length);
        bytes[..length].copy_from_slice(view.bytes());
        Owned { bytes: Arc::new(bytes), length, record: PhantomData }
    }

    /// The record, read in place.
    #[must_use]
    pub fn view(&self) -> View<'_, T> {
        View::new(self.bytes()).expect("the same bytes were read before")
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl<T> Clone for Owned<T> {
    fn clone(&self) -> Self {
        let Owned { ref bytes, length, record } = *self;
        Owned { bytes: Arc::clone(bytes), length, record }
    }
}

impl<T: Record + fmt::Debug> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().root().fmt(f)
    }
}

/// A record and its key, both of which belong to the program.
#[derive(Clone, Debug)]
pub struct OwnedEntry<T: Record> {
    key: Slice,
    stored: Arc<StoredCollection>,
    /// The record.
    pub value: Owned<T>,
}

impl<T: Record> OwnedEntry<T> {
    /// The decoded key.
    ///
    /// # Errors
    /// If it is not of that type.
    pub fn key<K: OwnedKey>(&self) -> Result<K, Error> {
        decoded(self.stored.key()?, &self.key)
    }

    /// The key's bytes.
    #[must_use]
    pub fn key_bytes(&self) -> &Slice {
        &self.key
    }
}

/// A record and its key.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a, T> {
    key: &'a [u8],
    kind: &'a KeyKind,
    /// The record.
    pub value: View<'a, T>,
}

impl<'a, T: Record> Entry<'a, T> {
    pub(super) fn new(key: &'a [u8], kind: &'a KeyKind, bytes: &'a [u8]) -> Result<Self, Error> {
        Ok(Entry { key, kind, value: View::new(bytes).map_err(Error::MalformedValue)? })
    }

    /// The decoded key.
    ///
    /// # Errors
    /// If it is not of that type.
    pub fn key<K: OwnedKey>(&self) -> Result<K, Error> {
        decoded(self.kind, self.key)
    }

    /// The key's bytes.
    #[must_use]
    pub fn key_bytes(&self) -> &'a [u8] {
        self.key
    }
}

fn decoded<K: OwnedKey>(kind: &KeyKind, key: &[u8]) -> Result<K, Error> {
    K::decode(kind, key).ok_or_else(|| {
        let reason = format!("a key is not {}", kind.to_json());
        Error::MalformedValue(Malformed::new("", reason))
    })
}

impl<'s, T: Record> Records<'s, T> {
    /// The records of a range of keys, as they are or as a snapshot shows them.
    pub(super) fn of(
        store: &'s mut Store,
        stored: Arc<StoredCollection>,
        then: Option<SnapshotId>,
        range: &KeyRange<'_>,
    ) -> Result<Self, Error> {
        let bounds = range.encode(Some(stored.key()?))?;
        let keyspace = then.map_or(stored.keyspace, |then| then.keyspace(stored.keyspace));
        store.begin();
        let walk = Walk::new(keyspace, bounds, range, true);
        Ok(Records { store, walk, stored, records: None, key: Vec::new(), record: PhantomData })
    }

    /// The same in the order of an index.
    pub(super) fn by_index(
        store: &'s mut Store,
        stored: Arc<StoredCollection>,
        then: Option<SnapshotId>,
        index: &str,
        range: &KeyRange<'_>,
    ) -> Result<Self, Error> {
        let mut built = stored.indexes.iter().filter(|one| one.built);
        let found = built.find(|one| one.name == index).ok_or_else(|| {
            let reason = format!("{:?} has no index {index:?}", stored.name);
            Error::BadArgument(Malformed::new("", reason))
        })?;
        let bounds = range.encode(Some(&found.key()))?;
        let at = |keyspace| then.map_or(keyspace, |then| then.keyspace(keyspace));
        let (records, entries) = (Some(at(stored.keyspace)), at(found.keyspace));
        store.begin();
        let walk = Walk::new(entries, bounds, range, true);
        Ok(Records { store, walk, stored, records, key: Vec::new(), record: PhantomData })
    }

    /// The next record; none at the end. It is valid until the next call.
    ///
    /// # Errors
    /// As for [`Collection::get`].
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_, T>>, Error> {
        self.entry(End::Front)
    }

    /// As [`next_entry`](Records::next_entry), from the end of the range. With a limit the keys before it are read first.
    ///
    /// # Errors
    /// As for [`Collection::get`].
    pub fn next_entry_back(&mut self) -> Result<Option<Entry<'_, T>>, Error> {
        self.entry(End::Back)
    }

    fn entry(&mut self, end: End) -> Result<Option<Entry<'_, T>>, Error> {
        if !self.walk.step(self.store, end)? {
            return Ok(None);
        }
        let kind = self.stored.key()?;
        let Some(records) = self.records else {
            let missing = || dangling(&self.stored);
            let bytes = self.walk.value(self.store)?.ok_or_else(missing)?;
            return Entry::new(self.walk.key(), kind, bytes).map(Some);
        };
        let entry = self.walk.value(self.store)?;
        let leads_to = entry.and_then(|entry| record_key(self.walk.key(), entry));
        let key = leads_to.ok_or_else(|| dangling(&self.stored))?;
        self.key.clear();
        self.key.extend_from_slice(key);
        let Store { engine, found, .. } = &mut *self.store;
        let record = read(found.as_ref(), engine.get(records, &self.key))?;
        let bytes = record.ok_or_else(|| dangling(&self.stored))?;
        Entry::new(&self.key, kind, bytes).map(Some)
    }

    fn owned(&mut self, end: End) -> Option<Result<OwnedEntry<T>, Error>> {
        let stored = Arc::clone(&self.stored);
        let entry = self.entry(end).transpose()?;
        Some(entry.map(|Entry { key, value, .. }| OwnedEntry {
            key: Slice::new(key),
            stored,
            value: Owned::of(&value),
        }))
    }
}

fn dangling(stored: &StoredCollection) -> Error {
    let reason = format!("an entry of an index of {:?} leads to no record", stored.name);
    Error::MalformedValue(Malformed::new("", reason))
}

impl<T: Record> Iterator for Records<'_, T> {
    type Item = Result<OwnedEntry<T>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.owned(End::Front)
    }
}

impl<T: Record> DoubleEndedIterator for Records<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.owned(End::Back)
    }
}

impl<T: Record> FusedIterator for Records<'_, T> {}
