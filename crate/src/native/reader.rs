//! A database in memory that is read in place.

use std::borrow::Cow;
use std::collections::HashMap;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::Bound;
use std::slice;

use crate::file::{File, IoError};
use crate::format::{KEYSPACE_RAW, MAX_VALUE};
use crate::schema::key::{Key, KeyKind};
use crate::schema::{Malformed, Record, View};
use crate::store::Store as Engine;
use crate::store::live_records::Value;
use crate::store::{OnDamage, Options};

use super::catalog::{self, StoredCollection};
use super::collection::Entry;
use super::expiry::seconds_now;
use super::range::Bounds;
use super::{Error, KeyRange, Log, LogRange, Pair};

/// A read-only database in memory: a file that was mapped, downloaded, or embedded.
///
/// All of it is verified once, and then read in place: values are slices of the given bytes,
/// without a copy, except for chunked values, which are larger than half a MiB. Any number of
/// threads may read. Records that had expired when it was opened are absent.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    spaces: HashMap<u32, Vec<Found<'a>>>,
    collections_by_name: HashMap<String, StoredCollection>,
}

/// A key and its value.
type Found<'a> = (&'a [u8], Cow<'a, [u8]>);

/// The given bytes as a file for the engine while it opens them.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenBytes<'a>(&'a [u8]);

impl File for GivenBytes<'_> {
    fn read(&mut self, buf: &mut [u8], at: u64) -> Result<usize, IoError> {
        let from = usize::try_from(at).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let length = from.len().min(buf.len());
        buf[..length].copy_from_slice(&from[..length]);
        Ok(length)
    }

    fn write(&mut self, _: &[u8], _: u64) -> Result<usize, IoError> {
        Err(IoError::Other)
    }

    fn truncate(&mut self, _: u64) -> Result<(), IoError> {
        Err(IoError::Other)
    }

    fn size(&mut self) -> Result<u64, IoError> {
        Ok(self.0.len() as u64)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

fn engine_over(bytes: &[u8]) -> Result<Engine<GivenBytes<'_>>, Error> {
    // The bytes are in memory already, so little more is needed.
    let memory = 2 * MAX_VALUE;
    let options =
        Options { read_only: true, on_damage: OnDamage::Refuse, memory, ..Options::default() };
    let mut engine = Engine::open(GivenBytes(bytes), options)?;
    if engine.expires() {
        engine.set_now(seconds_now())?;
    }
    Ok(engine)
}

impl<'a> Reader<'a> {
    /// Opens the database in these bytes, which must start at a multiple of 8 because records are
    /// read in place.
    ///
    /// # Errors
    /// Misaligned bytes, damage of any kind, or bytes that are not a database.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, Error> {
        if bytes.is_empty() {
            return Err(crate::error::Error::NotADatabase.into());
        }
        if !bytes.as_ptr().addr().is_multiple_of(8) {
            let reason = "the bytes of a database must be aligned to 8 bytes";
            return Err(Error::BadArgument(Malformed::new("", reason)));
        }
        let mut engine = engine_over(bytes)?;
        let mut spaces = HashMap::new();
        for keyspace in engine.keyspaces() {
            let slice = |range: &std::ops::Range<u64>| {
                let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
                bytes.get(range)
            };
            let all = engine.all_in_file(keyspace)?;
            let pairs = all.into_iter().map(|found| {
                let value = match found.value {
                    Value::At(range) => Cow::Borrowed(slice(&range)?),
                    Value::Assembled(value) => Cow::Owned(value),
                };
                Some((slice(&found.key)?, value))
            });
            let pairs: Option<Vec<_>> = pairs.collect();
            spaces.insert(keyspace, pairs.ok_or(crate::error::Error::Io)?);
            engine.end_turn();
        }
        let mut collections_by_name = HashMap::new();
        for name in catalog::names(&mut engine)? {
            if let Some(stored) = catalog::find(&mut engine, &name)? {
                collections_by_name.insert(name, stored);
            }
        }
        Ok(Reader { bytes, spaces, collections_by_name })
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&[u8]> {
        self.find(KEYSPACE_RAW, key.as_ref())
    }

    /// The number of keys, without those of collections.
    #[must_use]
    pub fn count(&self) -> usize {
        self.space(KEYSPACE_RAW).len()
    }

    /// Iterates over keys and their values, in order.
    ///
    /// # Errors
    /// A bound that is not a valid key.
    pub fn entries<'k>(
        &self,
        range: impl Into<KeyRange<'k>>,
    ) -> Result<ReadEntries<'_, 'a>, Error> {
        let range = range.into();
        let bounds = range.encode(None)?;
        Ok(self.between(KEYSPACE_RAW, &bounds, &range))
    }

    /// The names of all collections.
    pub fn collections(&self) -> impl Iterator<Item = &str> {
        self.collections_by_name.keys().map(String::as_str)
    }

    /// Opens a collection of records of type `T`; none if there is none with this name.
    ///
    /// # Errors
    /// [`Error::SchemaMismatch`] if it has another schema.
    pub fn collection<T: Record>(
        &self,
        name: &str,
    ) -> Result<Option<ReadCollection<'_, 'a, T>>, Error> {
        let Some(stored) = self.collections_by_name.get(name) else { return Ok(None) };
        stored.check_schema::<T>(None)?;
        Ok(Some(ReadCollection { reader: self, stored, record: PhantomData }))
    }

    /// Walks over the log: as [`Store::log`](super::Store::log). Any number of threads may do so.
    ///
    /// # Errors
    /// As for [`from_bytes`](Reader::from_bytes), which has found the bytes to be intact.
    pub fn log(&self, range: LogRange) -> Result<Log<'a>, Error> {
        Ok(Log::of_bytes(engine_over(self.bytes)?, range))
    }

    fn space(&self, keyspace: u32) -> &[Found<'a>] {
        self.spaces.get(&keyspace).map_or(&[], Vec::as_slice)
    }

    fn find(&self, keyspace: u32, key: &[u8]) -> Option<&[u8]> {
        let space = self.space(keyspace);
        let at = space.binary_search_by_key(&key, |(key, _)| key).ok()?;
        Some(&space[at].1)
    }

    fn between(&self, keyspace: u32, bounds: &Bounds, range: &KeyRange<'_>) -> ReadEntries<'_, 'a> {
        let space = self.space(keyspace);
        let count_below = |key: &[u8], behind: bool| {
            space.partition_point(|(other, _)| *other < key || behind && *other == key)
        };
        let (lower, upper) = bounds.slices();
        let from = match lower {
            Bound::Unbounded => 0,
            Bound::Included(key) => count_below(key, false),
            Bound::Excluded(key) => count_below(key, true),
        };
        let to = match upper {
            Bound::Unbounded => space.len(),
            Bound::Included(key) => count_below(key, true),
            Bound::Excluded(key) => count_below(key, false),
        };
        let found = if bounds.is_empty() { &[] } else { space.get(from..to).unwrap_or_default() };
        let count = range.limit.map_or(found.len(), |limit| limit.min(found.len()));
        let found = if range.reverse { &found[found.len() - count..] } else { &found[..count] };
        ReadEntries { found: found.iter(), reverse: range.reverse }
    }
}

/// Iterates over the keys and values of a [`Reader`], from both ends.
#[derive(Clone, Debug)]
#[must_use = "iterators do nothing unless they are consumed"]
pub struct ReadEntries<'s, 'a> {
    found: slice::Iter<'s, Found<'a>>,
    reverse: bool,
}

impl<'s> Iterator for ReadEntries<'s, '_> {
    type Item = Pair<'s>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = if self.reverse { self.found.next_back() } else { self.found.next() };
        next.map(|(key, value)| (*key, &**value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.found.size_hint()
    }
}

impl DoubleEndedIterator for ReadEntries<'_, '_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let next = if self.reverse { self.found.next() } else { self.found.next_back() };
        next.map(|(key, value)| (*key, &**value))
    }
}

impl ExactSizeIterator for ReadEntries<'_, '_> {}
impl FusedIterator for ReadEntries<'_, '_> {}

/// A collection of a [`Reader`].
#[derive(Debug)]
pub struct ReadCollection<'r, 'a, T> {
    reader: &'r Reader<'a>,
    stored: &'r StoredCollection,
    record: PhantomData<T>,
}

impl<'r, 'a: 'r, T: Record> ReadCollection<'r, 'a, T> {
    /// Returns the record of a key.
    ///
    /// # Errors
    /// A key that is not of this collection's type, or a malformed record.
    pub fn get(&self, key: impl Key) -> Result<Option<View<'r, T>>, Error> {
        let mut encoded = Vec::new();
        key.encode(self.stored.key()?, false, &mut encoded).map_err(Error::BadArgument)?;
        let found = self.reader.find(self.stored.keyspace, &encoded);
        found.map(View::new).transpose().map_err(Error::MalformedValue)
    }

    /// The number of records.
    #[must_use]
    pub fn count(&self) -> usize {
        self.reader.space(self.stored.keyspace).len()
    }

    /// Iterates over the records of a range of keys, in order.
    ///
    /// # Errors
    /// A bound that is not a key of this collection; then each malformed record.
    pub fn entries<'k>(
        &self,
        range: impl Into<KeyRange<'k>>,
    ) -> Result<ReadRecords<'r, 'a, T>, Error> {
        let range = range.into();
        let kind = self.stored.key()?;
        let bounds = range.encode(Some(kind))?;
        let found = self.reader.between(self.stored.keyspace, &bounds, &range);
        Ok(ReadRecords { found, kind, record: PhantomData })
    }
}

/// Iterates over the records of a [`ReadCollection`], from both ends.
#[derive(Clone, Debug)]
#[must_use = "iterators do nothing unless they are consumed"]
pub struct ReadRecords<'r, 'a, T> {
    found: ReadEntries<'r, 'a>,
    kind: &'r KeyKind,
    record: PhantomData<T>,
}

impl<'r, T: Record> Iterator for ReadRecords<'r, '_, T> {
    type Item = Result<Entry<'r, T>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.found.next().map(|(key, value)| Entry::new(key, self.kind, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.found.size_hint()
    }
}

impl<T: Record> DoubleEndedIterator for ReadRecords<'_, '_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.found.next_back().map(|(key, value)| Entry::new(key, self.kind, value))
    }
}

impl<T: Record> ExactSizeIterator for ReadRecords<'_, '_, T> {}
impl<T: Record> FusedIterator for ReadRecords<'_, '_, T> {}
