//! Collections of records in an open store.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use musli_zerocopy::ZeroCopy;

use crate::format::KEYSPACE_ENGINE;
use crate::format::system_records::KEY_IDS;
use crate::schema::key::{Key, KeyKind, OwnedKey, Part};
use crate::schema::upgrade::{put_root, renewed};
use crate::schema::{Malformed, Parts, Plain, Record, View};

use super::catalog::Form;
use super::index::{Index, entry_value, record_key};
use super::store::Walk;
use super::{Entries, Error, KeyRange, Store};

/// Records of type `T` under keys of their own, in a store.
///
/// A record is read where it lies. Every write keeps the collection's indexes, which lie in the file
/// with it, in the same commit.
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
    store: &'s mut Store,
    form: Arc<Form>,
    record: PhantomData<T>,
}

/// What a write does to an index.
struct Move<'a> {
    index: &'a Index,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    /// Whether an earlier version of the struct wrote what is changed.
    is_earlier: bool,
}

impl<'s, T: Record> Collection<'s, T> {
    pub(super) fn new(store: &'s mut Store, form: Arc<Form>) -> Self {
        Collection { store, form, record: PhantomData }
    }

    pub(super) fn into_form(self) -> Arc<Form> {
        self.form
    }

    /// The record under a key.
    ///
    /// # Errors
    /// A key that is none of this collection's, a record that is malformed, or what the file says.
    pub fn get(&mut self, key: impl Key) -> Result<Option<View<'_, T>>, Error> {
        let key = self.encode(&key)?;
        self.store.begin();
        match self.store.engine().get(self.form.keyspace, &key)? {
            Some(bytes) => View::new(bytes).map(Some).map_err(Error::MalformedValue),
            None => Ok(None),
        }
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// As for [`get`](Collection::get).
    pub fn has(&mut self, key: impl Key) -> Result<bool, Error> {
        let key = self.encode(&key)?;
        Ok(self.store.engine().has(self.form.keyspace, &key)?)
    }

    /// How many records there are.
    #[must_use]
    pub fn count(&mut self) -> u64 {
        self.store.engine().count(self.form.keyspace)
    }

    /// Sets the record under a key; gives the new version. `make` gives its root, and adds the texts
    /// and slices that it refers to, in the order of the fields.
    ///
    /// # Errors
    /// As for [`Store::set`], a value that is not what its types say, such as a reference that leads out of
    /// it or a date that is none, and [`Error::NotUnique`]; nothing is written then.
    pub fn set(
        &mut self,
        key: impl Key,
        make: impl FnOnce(&mut Parts<T>) -> T,
    ) -> Result<u64, Error> {
        let mut parts = Parts::of::<T>();
        let root = make(&mut parts);
        let value = parts.finish(root).map_err(Error::BadArgument)?;
        let key = self.encode(&key)?;
        self.store.begin();
        let form = self.writable()?;
        form.check(&value)?;
        if form.indexes.is_empty() {
            return Ok(self.store.engine().set(form.keyspace, &key, &value)?);
        }
        self.store.atomically(|store| {
            let old = store.engine().get(form.keyspace, &key)?.map(<[u8]>::to_vec);
            let version = store.engine().set(form.keyspace, &key, &value)?;
            reindex::<T>(store, &form, &key, old.as_deref(), Some(&value))?;
            Ok(version)
        })
    }

    /// Sets a record under a key above all that are or were there, and gives that: for queues and logs,
    /// whose keys are numbers, `auto()` in TypeScript. No key is given out twice, also after deletions;
    /// one that was taken back with its transaction was never given out.
    ///
    /// # Errors
    /// As for [`set`](Collection::set), and a collection whose keys are something else.
    pub fn push(&mut self, make: impl FnOnce(&mut Parts<T>) -> T) -> Result<u64, Error> {
        let keyspace = self.form.keyspace;
        let used = self.used_ids()?;
        let last = self.store.engine().keys(keyspace)?.next_back().map(<[u8]>::to_vec);
        let refused = |why: &str| {
            let reason = format!("push needs number keys, and {:?} {why}", self.form.name);
            Error::BadArgument(Malformed::new("", reason))
        };
        let last = match last {
            None => 0,
            Some(last) => {
                u64::decode(self.form.key()?, &last).ok_or_else(|| refused("has others"))?
            }
        };
        let next = last.max(used.unwrap_or(0)).checked_add(1);
        let next = next.ok_or_else(|| refused("has used up all there are"))?;
        self.set(next, make)?;
        if used.is_none() {
            // From here on every deletion looks, also one of a program in TypeScript.
            self.note_ids(0)?;
        }
        Ok(next)
    }

    /// Up to which id none may be given out again, where that is noted.
    fn used_ids(&mut self) -> Result<Option<u64>, Error> {
        let key = ids_key(&self.form.name);
        let noted = self.store.engine().get(KEYSPACE_ENGINE, &key)?;
        Ok(noted.and_then(<[u8]>::first_chunk).map(|bytes| u64::from_le_bytes(*bytes)))
    }

    fn note_ids(&mut self, up_to: u64) -> Result<(), Error> {
        let key = ids_key(&self.form.name);
        self.store.engine().set(KEYSPACE_ENGINE, &key, &up_to.to_le_bytes())?;
        Ok(())
    }

    /// Before a key is deleted: notes that it was in use, so that [`push`](Collection::push) never gives
    /// it out again. In collections of other numbers than `auto()` only if something was ever pushed.
    fn keep_id(&mut self, key: &[u8]) -> Result<(), Error> {
        let kind = self.form.key()?;
        let Some(id) = u64::decode(kind, key) else { return Ok(()) };
        let is_auto =
            matches!(kind, KeyKind::Tuple(parts) if parts[..] == [Part::Plain(Plain::U53)]);
        let used = self.used_ids()?;
        let counts = is_auto || used.is_some();
        if !counts || used >= Some(id) || !self.store.engine().has(self.form.keyspace, key)? {
            return Ok(());
        }
        self.note_ids(id)
    }

    /// Removes a record; tells whether it was there.
    ///
    /// # Errors
    /// As for [`Store::delete`].
    pub fn delete(&mut self, key: impl Key) -> Result<bool, Error> {
        let key = self.encode(&key)?;
        self.store.begin();
        let form = self.writable()?;
        self.keep_id(&key)?;
        if form.indexes.is_empty() {
            return Ok(self.store.engine().delete(form.keyspace, &key)?);
        }
        self.store.atomically(|store| {
            let Some(old) = store.engine().get(form.keyspace, &key)?.map(<[u8]>::to_vec) else {
                return Ok(false);
            };
            reindex::<T>(store, &form, &key, Some(&old), None)?;
            Ok(store.engine().delete(form.keyspace, &key)?)
        })
    }

    /// Changes the root of a record in place if `predicate` holds for it; tells whether it did. A key
    /// that is missing answers `false`. What the root refers to stays as it is: to change a text, set
    /// the record anew.
    ///
    /// # Errors
    /// As for [`set`](Collection::set); every byte is then as it was.
    pub fn update_if(
        &mut self,
        key: impl Key,
        predicate: impl FnOnce(View<'_, T>) -> bool,
        change: impl FnOnce(&mut T),
    ) -> Result<bool, Error> {
        let key = self.encode(&key)?;
        self.store.begin();
        let form = self.writable()?;
        let Some(old) = self.store.engine().get(form.keyspace, &key)? else { return Ok(false) };
        let view = View::<T>::new(old).map_err(Error::MalformedValue)?;
        if !predicate(view) {
            return Ok(false);
        }
        let mut root = *view.root();
        if let Some((mut new, mut root)) = renewed::<T>(old).map_err(Error::MalformedValue)? {
            let old = old.to_vec();
            return self.store.atomically(|store| {
                change(&mut root);
                put_root(&mut new, &mut root);
                form.check(&new)?;
                store.engine().set(form.keyspace, &key, &new)?;
                reindex::<T>(store, &form, &key, Some(&old), Some(&new))?;
                Ok(true)
            });
        }
        if form.indexes.is_empty() {
            change(&mut root);
            write_root(self.store, &form, &key, &mut root)?;
            return Ok(true);
        }
        let old = old.to_vec();
        self.store.atomically(|store| {
            change(&mut root);
            let mut new = old.clone();
            put_root(&mut new, &mut root);
            write_root(store, &form, &key, &mut root)?;
            reindex::<T>(store, &form, &key, Some(&old), Some(&new))?;
            Ok(true)
        })
    }

    /// Goes over the records of these keys, in order.
    ///
    /// # Errors
    /// A bound that is none of this collection's keys.
    pub fn entries(&mut self, range: KeyRange<'_>) -> Result<Records<'_, T>, Error> {
        let bounds = range.encode(Some(self.form.key()?))?;
        let Entries { store, walk } = self.store.walk(self.form.keyspace, bounds, &range);
        let form = Arc::clone(&self.form);
        Ok(Records { store, walk, form, is_index: false, key: Vec::new(), record: PhantomData })
    }

    /// Goes over the records in the order of an index. The range is one of the index's fields: their
    /// values, or the first of them as a prefix.
    ///
    /// # Errors
    /// An index that the collection does not have, or a bound that is none of it.
    pub fn entries_by(
        &mut self,
        index: &str,
        range: KeyRange<'_>,
    ) -> Result<Records<'_, T>, Error> {
        let mut built = self.form.indexes.iter().filter(|one| one.built);
        let found = built.find(|one| one.name == index).ok_or_else(|| {
            let reason = format!("{:?} has no index {index:?}", self.form.name);
            Error::BadArgument(Malformed::new("", reason))
        })?;
        let bounds = range.encode(Some(&found.key()))?;
        let Entries { store, walk } = self.store.walk(found.keyspace, bounds, &range);
        let form = Arc::clone(&self.form);
        Ok(Records { store, walk, form, is_index: true, key: Vec::new(), record: PhantomData })
    }

    /// The names of its indexes, but for those that are being built.
    pub fn indexes(&self) -> impl Iterator<Item = &str> {
        self.form.indexes.iter().filter(|index| index.built).map(|index| index.name.as_str())
    }

    /// What its keys are.
    ///
    /// # Errors
    /// When they are of a kind that this version does not know.
    pub fn key_kind(&self) -> Result<&KeyKind, Error> {
        self.form.key()
    }

    fn writable(&mut self) -> Result<Arc<Form>, Error> {
        self.form.refuse_unkept()?;
        self.form.interrupt_conversion(self.store.engine())?;
        if self.form.is_grown_by::<T>() {
            self.form = self.store.grow::<T>(&self.form)?;
        }
        Ok(Arc::clone(&self.form))
    }

    fn encode(&self, key: &impl Key) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        key.encode(self.form.key()?, false, &mut out).map_err(Error::BadArgument)?;
        Ok(out)
    }
}

fn ids_key(name: &str) -> Vec<u8> {
    [KEY_IDS, name.as_bytes()].concat()
}

fn write_root<T: Record>(
    store: &mut Store,
    form: &Form,
    key: &[u8],
    root: &mut T,
) -> Result<(), Error> {
    let mut checked = Ok(());
    let done = store.engine().update_if(
        form.keyspace,
        key,
        |_| true,
        |value| {
            put_root(value, root);
            checked = form.check(value);
            checked.as_ref().map(|()| None).map_err(|_| ())
        },
    );
    checked?;
    done?;
    Ok(())
}

/// Moves the entries of a record from what it was to what it is.
fn reindex<T: Record>(
    store: &mut Store,
    form: &Form,
    key: &[u8],
    old: Option<&[u8]>,
    new: Option<&[u8]>,
) -> Result<(), Error> {
    // Entries are of the values that stand for what an earlier record does not have.
    let old = old.map(upright::<T>).transpose().map_err(Error::MalformedValue)?;
    let is_earlier = matches!(old, Some(Cow::Owned(_)));
    for index in &form.indexes {
        let tuple = |record: Option<&[u8]>| record.map(|record| index.tuple(record)).transpose();
        let from = tuple(old.as_deref()).map_err(Error::MalformedValue)?;
        let to = tuple(new).map_err(Error::BadArgument)?;
        if from != to {
            Move { index, from, to, is_earlier }.perform(store, form, key)?;
        }
    }
    Ok(())
}

/// A record as this version of its struct has it.
fn upright<T: Record>(record: &[u8]) -> Result<Cow<'_, [u8]>, Malformed> {
    Ok(renewed::<T>(record)?.map_or(Cow::Borrowed(record), |(bytes, _)| Cow::Owned(bytes)))
}

impl Move<'_> {
    fn perform(self, store: &mut Store, form: &Form, key: &[u8]) -> Result<(), Error> {
        let Move { index, from, to, is_earlier } = self;
        if let Some(from) = from {
            let was_there = store.engine().delete(index.keyspace, &[&from, key].concat())?;
            if is_earlier && index.built && !was_there {
                let reason = format!(
                    "an earlier version of the struct wrote this record, and the index {:?} has other values \
                     for its added fields than those declared here",
                    index.name
                );
                return Err(Error::MalformedValue(Malformed::new("", reason)));
            }
        }
        let Some(to) = to else { return Ok(()) };
        if index.unique && is_taken(store, index.keyspace, &to)? {
            let (collection, index) = (form.name.clone(), index.name.clone());
            return Err(Error::NotUnique { collection, index });
        }
        let value = entry_value(to.len());
        store.engine().set(index.keyspace, &[&to, key].concat(), value.to_bytes())?;
        Ok(())
    }
}

/// Whether an entry has exactly this tuple: each part says by itself where it ends, so whatever
/// begins so does.
fn is_taken(store: &mut Store, keyspace: u32, tuple: &[u8]) -> Result<bool, Error> {
    use std::ops::Bound;
    let bounds = (Bound::Included(tuple), Bound::Unbounded);
    let mut keys = store.engine().range_keys(keyspace, bounds)?;
    Ok(keys.next().is_some_and(|key| key.starts_with(tuple)))
}

/// Goes over records. They lie in the store's memory, so each is good until the next.
#[derive(Debug)]
pub struct Records<'s, T> {
    store: &'s mut Store,
    walk: Walk,
    form: Arc<Form>,
    is_index: bool,
    key: Vec<u8>,
    record: PhantomData<T>,
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

    /// The key, as a value.
    ///
    /// # Errors
    /// When it is no such key.
    pub fn key<K: OwnedKey>(&self) -> Result<K, Error> {
        K::decode(self.kind, self.key).ok_or_else(|| {
            let reason = format!("a key is not {}", self.kind.to_json());
            Error::MalformedValue(Malformed::new("", reason))
        })
    }

    /// The key's bytes.
    #[must_use]
    pub fn key_bytes(&self) -> &'a [u8] {
        self.key
    }
}

impl<T: Record> Records<'_, T> {
    /// The next record; none at the end.
    ///
    /// # Errors
    /// As for [`Collection::get`].
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Entry<'_, T>>, Error> {
        if !self.walk.step(self.store)? {
            return Ok(None);
        }
        self.key.clear();
        if self.is_index {
            let entry = self.store.engine().get(self.walk.keyspace, &self.walk.key)?;
            let leads_to = entry.and_then(|entry| record_key(&self.walk.key, entry));
            self.key.extend_from_slice(leads_to.ok_or_else(|| self.dangling())?);
        } else {
            self.key.extend_from_slice(&self.walk.key);
        }
        let missing = self.dangling();
        let bytes = self.store.engine().get(self.form.keyspace, &self.key)?.ok_or(missing)?;
        Entry::new(&self.key, self.form.key()?, bytes).map(Some)
    }

    fn dangling(&self) -> Error {
        let reason = format!("an entry of an index of {:?} leads to no record", self.form.name);
        Error::MalformedValue(Malformed::new("", reason))
    }
}
