//! The log of a database as history: its transactions, and in each its records.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::Damage;
use crate::format::record::{self, KIND_CHUNKED, KIND_CLEAR, KIND_DELETE, KIND_EXTENT};
use crate::format::{KEYSPACE_ENGINE, KEYSPACE_RAW};
use crate::log::log_walk::{LogWalk, PartKind, WalkPart};
use crate::schema::Malformed;
use crate::schema::key::{KeyKind, OwnedKey};
use crate::store::Store as Engine;

use super::catalog;
use super::read_errors::{change_of, read};
use super::reader::GivenBytes;
use super::{Error, Store};

/// A point in the log: a transaction by its number, or a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogPoint {
    /// A transaction by its number, or by any version that it gave to a key.
    Number(u64),
    /// A time. Only transactions with a note have one; the others count as having that of the last one before
    /// them that has.
    Time(SystemTime),
}

impl From<u64> for LogPoint {
    fn from(number: u64) -> Self {
        LogPoint::Number(number)
    }
}

impl From<SystemTime> for LogPoint {
    fn from(time: SystemTime) -> Self {
        LogPoint::Time(time)
    }
}

/// Which transactions a walk over the log shows.
///
/// ```
/// use varve::native::LogRange;
///
/// let ten_after_this = LogRange::all().since(4_711).limit(10);
/// # drop(ten_after_this);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LogRange {
    since: Option<LogPoint>,
    until: Option<LogPoint>,
    limit: Option<usize>,
}

impl LogRange {
    /// All transactions.
    #[must_use]
    pub fn all() -> Self {
        LogRange::default()
    }

    /// Only transactions after this one, or with a later time.
    #[must_use]
    pub fn since(mut self, point: impl Into<LogPoint>) -> Self {
        self.since = Some(point.into());
        self
    }

    /// Only transactions up to this one and with it, or up to this time.
    #[must_use]
    pub fn until(mut self, point: impl Into<LogPoint>) -> Self {
        self.until = Some(point.into());
        self
    }

    /// At most this many transactions.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The numbers between which the engine walks.
    fn numbers(&self) -> (u64, u64) {
        let number = |point| match point {
            Some(LogPoint::Number(number)) => Some(number),
            _ => None,
        };
        (number(self.since).unwrap_or(0), number(self.until).unwrap_or(u64::MAX))
    }

    /// Whether the time of a transaction is wanted. None is before all times.
    fn has_time(&self, time: Option<SystemTime>) -> bool {
        let is_early = |since| time.is_none_or(|time| time <= since);
        let is_late = |until| time.is_some_and(|time| time > until);
        !matches!(self.since, Some(LogPoint::Time(since)) if is_early(since))
            && !matches!(self.until, Some(LogPoint::Time(until)) if is_late(until))
    }
}

/// What the log says about a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transaction {
    /// Its number, which grows: the version of its first change. [`LogRange::since`] takes it.
    pub number: u64,
    /// When it was written; only transactions with a note have a time.
    pub time: Option<SystemTime>,
    /// The note that it was given.
    pub note: Option<String>,
    /// The client that asked for it, if that is known.
    pub client: Option<u64>,
    /// Whether these are no transaction but records that compaction moved here. Which transactions wrote them is not
    /// known any more. Of several records of a key, the one with the largest version counts.
    pub moved: bool,
    /// Whether compaction removed a part of the log just before it.
    pub after_gap: bool,
}

/// What a record did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// A key was set.
    Set,
    /// A key was deleted.
    Delete,
    /// A collection, or all keys outside of collections, were deleted.
    Clear,
}

/// Where the log is damaged. The transactions that these bytes belong to are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogDamage {
    /// The position of the damaged bytes in the file.
    pub position: u64,
    /// How many bytes.
    pub length: u64,
}

/// A walk over the transactions of the log, the oldest first, by [`Store::log`] and [`Reader::log`](super::Reader::log).
///
/// It shows what was committed when it began, as far as compaction left it. Every byte that it reads is verified. Memory
/// is bounded: 2 MiB, and one value above half a MiB.
#[derive(Debug)]
pub struct Log<'s> {
    walk: LogWalk,
    source: Source<'s>,
    range: LogRange,
    names: Names,
    /// The index of the current part.
    part: usize,
    /// Offsets of the next record and of the end of the part.
    at: usize,
    end: usize,
    is_moved: bool,
    is_after_gap: bool,
    /// Whether the current transaction may have more records.
    is_inside: bool,
    /// A transaction whose first record is not found yet.
    pending: Option<Transaction>,
    /// The time of the last transaction that has one.
    time: Option<SystemTime>,
    left: usize,
}

/// Whose log it is.
#[derive(Debug)]
enum Source<'s> {
    Store(&'s mut Store),
    Bytes(Box<Engine<GivenBytes<'s>>>),
}

impl Source<'_> {
    fn walk(&mut self, walk: &mut LogWalk) -> Result<bool, Error> {
        Ok(match self {
            Source::Store(Store { engine, found, .. }) => {
                read(found.as_ref(), engine.lock().walk_log(walk))?
            }
            Source::Bytes(engine) => engine.walk_log(walk)?,
        })
    }

    /// The names of the collections, and the keyspaces of indexes, as of now.
    fn names(&mut self) -> Result<BTreeMap<u32, Named>, Error> {
        match self {
            Source::Store(store) => read(store.found.as_ref(), names_in(&mut store.engine.lock())),
            Source::Bytes(engine) => names_in(engine),
        }
    }

    /// Why what seems to be damage is none.
    fn change(&self) -> Option<Error> {
        match self {
            Source::Store(store) => change_of(store.found.as_ref()),
            Source::Bytes(_) => None,
        }
    }

    /// A value that lies outside of its record.
    fn value(
        &mut self,
        header: &record::RecordHeader,
        key: &[u8],
        described: &[u8],
    ) -> Result<Option<&[u8]>, Error> {
        // Such values share the store's memory, and the ones before this are not in use any more.
        Ok(match self {
            Source::Store(store) => {
                store.begin_step();
                read(store.found.as_ref(), store.engine.walked_value(header, key, described))?
            }
            Source::Bytes(engine) => {
                engine.end_turn();
                engine.walked_value(header, key, described)?
            }
        })
    }
}

/// What is known of a keyspace.
#[derive(Debug)]
enum Named {
    /// Entries of an index, which are left out.
    Index,
    /// A collection. Without a name it is not there any more.
    Collection { name: Option<String>, key: Option<KeyKind> },
}

#[derive(Debug, Default)]
struct Names(BTreeMap<u32, Named>);

impl Names {
    /// Adds what is known of a keyspace.
    fn learn(&mut self, keyspace: u32, source: &mut Source<'_>) -> Result<&Named, Error> {
        if !self.0.contains_key(&keyspace) {
            for (keyspace, named) in source.names()? {
                self.0.entry(keyspace).or_insert(named);
            }
        }
        let unknown = Named::Collection { name: None, key: None };
        Ok(self.0.entry(keyspace).or_insert(unknown))
    }
}

fn names_in<F: crate::file::File>(engine: &mut Engine<F>) -> Result<BTreeMap<u32, Named>, Error> {
    let mut names = BTreeMap::new();
    names.insert(KEYSPACE_RAW, Named::Collection { name: None, key: None });
    for keyspace in catalog::index_keyspaces(engine)? {
        names.insert(keyspace, Named::Index);
    }
    for (name, keyspace, key) in catalog::keyspaces(engine)? {
        names.insert(keyspace, Named::Collection { name: Some(name), key });
    }
    Ok(names)
}

impl<'s> Log<'s> {
    pub(super) fn of_store(store: &'s mut Store, range: LogRange) -> Self {
        let (since, until) = range.numbers();
        let walk = store.engine().begin_log_walk(since, until);
        Log::new(walk, Source::Store(store), range)
    }

    pub(super) fn of_bytes(engine: Engine<GivenBytes<'s>>, range: LogRange) -> Self {
        let (since, until) = range.numbers();
        let walk = engine.begin_log_walk(since, until);
        Log::new(walk, Source::Bytes(Box::new(engine)), range)
    }

    fn new(walk: LogWalk, source: Source<'s>, range: LogRange) -> Self {
        Log {
            walk,
            source,
            range,
            names: Names::default(),
            part: 0,
            at: 0,
            end: 0,
            is_moved: false,
            is_after_gap: false,
            is_inside: false,
            pending: None,
            time: None,
            left: range.limit.unwrap_or(usize::MAX),
        }
    }

    /// The next transaction; none at the end. What is left of the one before is skipped.
    ///
    /// # Errors
    /// Damage: [`crate::error::Error::Corruption`] with its position. The next call goes on behind it, where all
    /// transactions are that the damaged bytes do not belong to. An error of the file, after which the same step can be
    /// repeated.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<LogTransaction<'_, 's>>, Error> {
        loop {
            match self.next_step()? {
                None => return Ok(None),
                Some(LogStep::Gap) => {}
                Some(LogStep::Damage(LogDamage { position, .. })) => {
                    let damage = Damage { position, ..Damage::default() };
                    return Err(crate::error::Error::from(damage).into());
                }
                Some(LogStep::Transaction(info)) => {
                    return Ok(Some(LogTransaction { info, log: self }));
                }
            }
        }
    }

    /// The same walk as one stream of transactions, their records, gaps and damage.
    #[must_use]
    pub fn flat(self) -> FlatLog<'s> {
        FlatLog { log: self }
    }

    pub(super) fn next_step(&mut self) -> Result<Option<LogStep>, Error> {
        // An error of the file came before its first record.
        if self.pending.is_some()
            && let Some(info) = self.first_record()?
        {
            return Ok(Some(LogStep::Transaction(info)));
        }
        self.is_inside = false;
        self.at = self.end;
        loop {
            let Some(part) = self.next_part()? else { return Ok(None) };
            match part.kind {
                PartKind::Continuation => self.at = self.end,
                PartKind::Gap => {
                    self.is_after_gap = true;
                    return Ok(Some(LogStep::Gap));
                }
                PartKind::Damage => {
                    if let Some(change) = self.source.change() {
                        return Err(change);
                    }
                    let (position, length) = (part.number, part.to.into());
                    return Ok(Some(LogStep::Damage(LogDamage { position, length })));
                }
                PartKind::Transaction | PartKind::Moved => {
                    if self.left == 0 {
                        return Ok(None);
                    }
                    self.begin_transaction(&part);
                    if let Some(info) = self.first_record()? {
                        return Ok(Some(LogStep::Transaction(info)));
                    }
                }
            }
        }
    }

    /// Goes to the next record, in whatever transaction: [`peeked`](Log::peeked). Damage is an error.
    pub(super) fn step_record(&mut self) -> Result<bool, Error> {
        loop {
            if self.pending.is_none() && self.find_record()? {
                return Ok(true);
            }
            match self.next_step()? {
                None => return Ok(false),
                Some(LogStep::Damage(LogDamage { position, .. })) => {
                    let damage = Damage { position, ..Damage::default() };
                    return Err(crate::error::Error::from(damage).into());
                }
                Some(LogStep::Gap | LogStep::Transaction(_)) => {}
            }
        }
    }

    /// The record that the walk is at.
    pub(super) fn peeked(&self) -> OwnedRecord {
        let bytes = self.walk.bytes().get(self.at..).unwrap_or_default();
        let Some((header, key, _)) = record::parts(bytes) else { return OwnedRecord::default() };
        let kind = kind_of(header);
        let is_clear = kind == ChangeKind::Clear;
        let keyspace = keyspace_of(header, key);
        let key = if is_clear { Vec::new() } else { key.to_vec() };
        OwnedRecord { kind, keyspace, key, version: header.version, header: *header }
    }

    /// Goes past it.
    pub(super) fn skip_record(&mut self) {
        let bytes = self.walk.bytes().get(self.at..).unwrap_or_default();
        self.at += record::parts(bytes).map_or(0, |(header, ..)| header.size());
    }

    /// Whether it says what its key is now.
    pub(super) fn is_current(&mut self) -> Result<bool, Error> {
        let Log { walk, source, at, .. } = self;
        let bytes = walk.bytes().get(*at..).unwrap_or_default();
        let Some((header, key, _)) = record::parts(bytes) else { return Ok(false) };
        match source {
            Source::Store(Store { engine, found, .. }) => {
                read(found.as_ref(), engine.lock().walked_is_current(walk, *at, header, key))
            }
            Source::Bytes(engine) => Ok(engine.walked_is_current(walk, *at, header, key)?),
        }
    }

    /// Whether a keyspace is that of a collection; without a name, any is.
    pub(super) fn is_in(&self, keyspace: u32, collection: Option<&str>) -> bool {
        let Some(wanted) = collection else { return true };
        let found = self.names.0.get(&keyspace);
        matches!(found, Some(Named::Collection { name: Some(name), .. }) if name == wanted)
    }

    /// A record that was met before, without a value.
    pub(super) fn shown<'l>(&'l mut self, record: &'l OwnedRecord) -> LogRecord<'l, 's> {
        let (collection, key_kind) = described(&self.names, record.keyspace);
        LogRecord {
            kind: record.kind,
            collection,
            keyspace: record.keyspace,
            key: &record.key,
            version: record.version,
            header: &record.header,
            key_kind,
            described: &[],
            source: &mut self.source,
        }
    }

    /// The store whose log this is.
    pub(super) fn store(&mut self) -> Option<&mut Store> {
        match &mut self.source {
            Source::Store(store) => Some(store),
            Source::Bytes(_) => None,
        }
    }

    /// Begins the transaction of a part.
    fn begin_transaction(&mut self, part: &WalkPart) {
        self.is_moved = part.kind == PartKind::Moved;
        let mut info = Transaction {
            number: part.number,
            time: None,
            note: None,
            client: None,
            moved: self.is_moved,
            after_gap: self.is_after_gap,
        };
        if let Some((own, note)) = self.walk.transaction(part) {
            info.time = UNIX_EPOCH.checked_add(Duration::from_millis(own.time_ms));
            info.note = Some(String::from_utf8_lossy(note).into_owned());
            info.client = Some(own.client).filter(|&client| client != 0);
            self.time = info.time;
        }
        self.is_inside = self.range.has_time(self.time);
        self.pending = Some(info);
    }

    /// The transaction that was begun; none if it is not wanted or has no records: it may have only some of the database's
    /// own, such as entries of an index.
    fn first_record(&mut self) -> Result<Option<Transaction>, Error> {
        let is_shown = self.find_record()?;
        let info = self.pending.take();
        if !is_shown {
            self.at = self.end;
            return Ok(None);
        }
        self.left -= 1;
        self.is_after_gap = false;
        Ok(info)
    }

    /// Goes to the next part, in the next segment if need be.
    fn next_part(&mut self) -> Result<Option<WalkPart>, Error> {
        while self.part >= self.walk.parts().len() {
            (self.part, self.at, self.end) = (0, 0, 0);
            if !self.source.walk(&mut self.walk)? {
                return Ok(None);
            }
        }
        let part = self.walk.parts()[self.part];
        self.part += 1;
        (self.at, self.end) = (part.from as usize, part.to as usize);
        if matches!(part.kind, PartKind::Gap | PartKind::Damage) {
            self.at = self.end;
        }
        Ok(Some(part))
    }

    /// Goes to the next record of the current transaction that is shown, and returns whether there is one.
    fn find_record(&mut self) -> Result<bool, Error> {
        while self.is_inside {
            while self.at < self.end {
                let bytes = self.walk.bytes().get(self.at..).unwrap_or_default();
                let Some((header, key, _)) = record::parts(bytes) else { break };
                let is_visible = (1..=KIND_CHUNKED).contains(&header.kind)
                    && header.keyspace() != KEYSPACE_ENGINE
                    || header.kind == KIND_CLEAR;
                let (since, until) = self.range.numbers();
                let is_wanted = !self.is_moved || header.version > since && header.version <= until;
                if is_visible && is_wanted {
                    let keyspace = keyspace_of(header, key);
                    if !matches!(self.names.learn(keyspace, &mut self.source)?, Named::Index) {
                        return Ok(true);
                    }
                }
                self.at += header.size();
            }
            self.is_inside = self.goes_on()?;
        }
        Ok(false)
    }

    /// Whether the transaction goes on in the next part, which is then the current one.
    fn goes_on(&mut self) -> Result<bool, Error> {
        let Some(part) = self.next_part()? else { return Ok(false) };
        if part.kind == PartKind::Continuation {
            return Ok(true);
        }
        // It is taken again by the next step.
        self.part -= 1;
        self.at = self.end;
        Ok(false)
    }

    pub(super) fn next_record(&mut self) -> Result<Option<LogRecord<'_, 's>>, Error> {
        if !self.find_record()? {
            return Ok(None);
        }
        let Log { walk, source, names, at, .. } = self;
        let bytes = walk.bytes().get(*at..).unwrap_or_default();
        let Some((header, key, described)) = record::parts(bytes) else { return Ok(None) };
        *at += header.size();
        let kind = kind_of(header);
        let keyspace = keyspace_of(header, key);
        let (collection, key_kind) = self::described(names, keyspace);
        Ok(Some(LogRecord {
            kind,
            collection,
            keyspace,
            key: if kind == ChangeKind::Clear { &[] } else { key },
            version: header.version,
            header,
            key_kind,
            described,
            source,
        }))
    }
}

/// A record of a walk, without its value.
#[derive(Debug)]
pub(super) struct OwnedRecord {
    pub kind: ChangeKind,
    pub keyspace: u32,
    pub key: Vec<u8>,
    pub version: u64,
    header: record::RecordHeader,
}

impl Default for OwnedRecord {
    fn default() -> Self {
        let header = record::RecordHeader { kind: KIND_DELETE, ..Default::default() };
        let (kind, keyspace) = (ChangeKind::Delete, KEYSPACE_RAW);
        OwnedRecord { kind, keyspace, key: Vec::new(), version: 0, header }
    }
}

fn kind_of(header: &record::RecordHeader) -> ChangeKind {
    match header.kind {
        KIND_CLEAR => ChangeKind::Clear,
        KIND_DELETE => ChangeKind::Delete,
        _ => ChangeKind::Set,
    }
}

/// The name of the collection of a keyspace, and the type of its keys.
fn described(names: &Names, keyspace: u32) -> (Option<&str>, Option<&KeyKind>) {
    match names.0.get(&keyspace) {
        Some(Named::Collection { name, key }) => (name.as_deref(), key.as_ref()),
        _ => (None, None),
    }
}

/// The keyspace that a record is about. The key of a clear ends with it.
fn keyspace_of(header: &record::RecordHeader, key: &[u8]) -> u32 {
    if header.kind != KIND_CLEAR {
        return header.keyspace();
    }
    key.last_chunk().map_or(KEYSPACE_RAW, |number| u32::from_be_bytes(*number))
}

/// What a walk comes to.
#[derive(Debug)]
pub(super) enum LogStep {
    Transaction(Transaction),
    Gap,
    Damage(LogDamage),
}

/// A transaction of a walk, with its records in the order in which they were written.
#[derive(Debug)]
pub struct LogTransaction<'l, 's> {
    info: Transaction,
    log: &'l mut Log<'s>,
}

impl<'l, 's> LogTransaction<'l, 's> {
    pub(super) fn new(info: Transaction, log: &'l mut Log<'s>) -> Self {
        LogTransaction { info, log }
    }

    /// The next record; none at the end of the transaction.
    ///
    /// # Errors
    /// An error of the file.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<LogRecord<'_, 's>>, Error> {
        self.log.next_record()
    }

    /// What the log says about it, to keep.
    #[must_use]
    pub fn info(&self) -> &Transaction {
        &self.info
    }
}

impl Deref for LogTransaction<'_, '_> {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        &self.info
    }
}

/// A record of the log: a key that was set or deleted, or a collection that was cleared.
#[derive(Debug)]
pub struct LogRecord<'l, 's> {
    /// What it did.
    pub kind: ChangeKind,
    /// The collection; none for keys outside of collections, and for a collection that is not there any more.
    pub collection: Option<&'l str>,
    /// The number of the collection in the file; 0 for keys outside of collections.
    pub keyspace: u32,
    /// The bytes of the key; none for a clear.
    pub key: &'l [u8],
    /// The version that the change gave the key.
    pub version: u64,
    header: &'l record::RecordHeader,
    key_kind: Option<&'l KeyKind>,
    described: &'l [u8],
    source: &'l mut Source<'s>,
}

impl LogRecord<'_, '_> {
    /// The value. None for a deletion and a clear, and for a value above half a MiB that was replaced since: such values
    /// are kept outside of the log.
    ///
    /// # Errors
    /// An error of the file.
    pub fn value(&mut self) -> Result<Option<&[u8]>, Error> {
        match self.header.kind {
            KIND_DELETE | KIND_CLEAR => Ok(None),
            KIND_EXTENT | KIND_CHUNKED => self.source.value(self.header, self.key, self.described),
            _ => Ok(Some(self.described)),
        }
    }

    /// The key in the type that its collection has.
    ///
    /// # Errors
    /// If it is not of that type, or if its collection is not there any more.
    pub fn typed_key<K: OwnedKey>(&self) -> Result<K, Error> {
        let kind = if self.keyspace == KEYSPACE_RAW { Some(&KeyKind::Text) } else { self.key_kind };
        kind.and_then(|kind| K::decode(kind, self.key)).ok_or_else(|| {
            let reason = match kind {
                Some(kind) => format!("a key is not {}", kind.to_json()),
                None => "the type of its keys is not known any more".to_string(),
            };
            Error::MalformedValue(Malformed::new("", reason))
        })
    }
}

/// What a flat walk gives.
#[derive(Debug)]
#[non_exhaustive]
pub enum LogItem<'l, 's> {
    /// A transaction begins. Its records follow.
    Transaction(Transaction),
    /// A record of the last transaction.
    Record(LogRecord<'l, 's>),
    /// Compaction removed a part of the log here.
    Gap,
    /// The log is damaged here. The walk goes on behind it.
    Damage(LogDamage),
}

/// A walk over the log as one stream, by [`Log::flat`].
#[derive(Debug)]
pub struct FlatLog<'s> {
    log: Log<'s>,
}

impl<'s> FlatLog<'s> {
    /// The next item; none at the end.
    ///
    /// # Errors
    /// An error of the file, after which the same step can be repeated. Damage is an item.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<LogItem<'_, 's>>, Error> {
        if self.log.pending.is_none() && self.log.find_record()? {
            return Ok(self.log.next_record()?.map(LogItem::Record));
        }
        Ok(self.log.next_step()?.map(|step| match step {
            LogStep::Transaction(info) => LogItem::Transaction(info),
            LogStep::Gap => LogItem::Gap,
            LogStep::Damage(damage) => LogItem::Damage(damage),
        }))
    }
}
