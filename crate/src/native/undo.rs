//! [`Store::undo`]: takes back what a transaction changed. It works on the records of the log, entries of indexes among
//! them: if no record that the transaction wrote was written since, its entries were not either, so restoring the records
//! of both keeps them in accord. See also `js/database/undo.ts`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::format::record::{KIND_CHUNKED, KIND_DELETE};
use crate::format::{KEYSPACE_ENGINE, KEYSPACE_RAW};
use crate::log::log_walk::PartKind;
use crate::schema::Malformed;
use crate::schema::key::{KeyKind, OwnedKey};

use super::catalog::{self, StoredCollection};
use super::collection::record_used_id;
use super::{Error, Snapshot, Store};

/// At most so many keys are named by an error.
const NAMED: usize = 10;

/// The last records of keys in some transactions, by keyspace and key.
type Written = BTreeMap<(u32, Vec<u8>), LastRecord>;

struct LastRecord {
    version: u64,
    is_deletion: bool,
}

/// The collections by their keyspaces.
type Names = BTreeMap<u32, (String, Option<KeyKind>)>;

impl Store {
    /// Takes back the transaction with this number, which [`log`](Store::log) gives: a new transaction gives each key that
    /// it wrote the value that it had before, with its expiry. The file has to keep its history. It is written with the open
    /// batch; with a note, which is as for [`transaction_with_note`](Store::transaction_with_note), it is a transaction of
    /// its own in the log. Undoing can be undone.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("varve-doc-undo-{}", std::process::id()));
    /// # let path = folder.join("shop.varve");
    /// use varve::native::{OpenOptions, Store};
    ///
    /// let options = OpenOptions { keep_history: Some(true), ..OpenOptions::default() };
    /// let mut store = Store::open_with(&path, options)?;
    /// store.set("price", b"12")?;
    /// store.commit()?;
    /// let number = store.set("price", b"99")?;
    /// store.commit()?;
    /// store.undo(number, Some("wrong price"))?;
    /// assert_eq!(store.get("price")?, Some(&b"12"[..]));
    /// # store.close()?;
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Nothing is changed by any of them. [`Error::CannotUndo`] if later transactions have written any of its keys, or one
    /// of its collections was migrated; [`Error::NotUnique`] if another record has the values now that would come back in a
    /// unique index; [`Error::BadArgument`] if no transaction has this number, and for a note that is too long. With the
    /// code `VARVE_BAD_ARGUMENT` if the file does not keep its history, `VARVE_CURSOR_EXPIRED` if it was packed since, and
    /// `VARVE_REENTRANCY` in a transaction; otherwise as for [`set`](Store::set).
    pub fn undo(&mut self, number: u64, note: Option<&str>) -> Result<(), Error> {
        self.begin_write()?;
        if number == 0 {
            return Err(refused("undo needs the number of a transaction, as the log gives it"));
        }
        let before = self.engine.lock().before(number);
        let before = self.taken(before, number)?;
        let written = self.written_by(number, number)?;
        let indexes: BTreeSet<u32> =
            catalog::index_keyspaces(&mut self.engine.lock())?.into_iter().collect();
        // As in the log, what has only entries of indexes is none: a migration wrote them.
        if written.keys().all(|(keyspace, _)| indexes.contains(keyspace)) {
            let reason =
                format!("there is no transaction {number} in the log that changed anything");
            return Err(refused(&reason));
        }
        let names: Names = catalog::keyspaces(&mut self.engine.lock())?
            .into_iter()
            .map(|(name, keyspace, key)| (keyspace, (name, key)))
            .collect();
        self.refuse_changed(number, &written, &names, &indexes)?;
        let after = self.engine.lock().at(number);
        let after = self.taken(after, number)?;
        let work = |store: &mut Store| {
            let collections = store.undo_collections(number, &after, &written, &names, &indexes)?;
            for (keyspace, key) in written.keys() {
                store.give_back(&before, *keyspace, key, collections.get(keyspace))?;
            }
            store.refuse_taken(&written, collections.values())
        };
        match note {
            Some(note) => self.transaction_with_note(note, work),
            None => self.transaction(work),
        }
    }

    /// The last record of each key that transactions with numbers from `first` to `last` have written.
    fn written_by(&mut self, first: u64, last: u64) -> Result<Written, Error> {
        let mut written = Written::new();
        let mut walk = self.engine.lock().begin_log_walk(first - 1, last);
        let mut is_moved = false;
        while self.engine.lock().walk_log(&mut walk)? {
            for part in walk.parts() {
                match part.kind {
                    PartKind::Gap | PartKind::Damage => {
                        return Err(crate::error::Error::CursorExpired.into());
                    }
                    PartKind::Continuation => {}
                    kind => is_moved = kind == PartKind::Moved,
                }
                for record in walk.records(part).filter(|_| !is_moved) {
                    let (kind, keyspace) = (record.header.kind, record.header.keyspace());
                    if (1..=KIND_CHUNKED).contains(&kind) && keyspace != KEYSPACE_ENGINE {
                        let (version, is_deletion) = (record.header.version, kind == KIND_DELETE);
                        let last = LastRecord { version, is_deletion };
                        written.insert((keyspace, record.key.to_vec()), last);
                    }
                }
            }
        }
        Ok(written)
    }

    /// Fails if a later transaction has written any of the records, or what they belong to is not there any more.
    fn refuse_changed(
        &mut self,
        number: u64,
        written: &Written,
        names: &Names,
        indexes: &BTreeSet<u32>,
    ) -> Result<(), Error> {
        let mut later: Option<Written> = None;
        let mut changed = BTreeSet::new();
        for (at, LastRecord { version, is_deletion }) in written {
            let (keyspace, key) = at;
            if indexes.contains(keyspace) {
                continue;
            }
            let mut now = self.engine.lock().version(*keyspace, key)?;
            if *is_deletion && now.is_none() {
                if later.is_none() {
                    later = Some(self.written_by(number + 1, u64::MAX)?);
                }
                // It may have been set and deleted again.
                let was_written = later.as_ref().is_some_and(|later| later.contains_key(at));
                now = (!was_written).then_some(*version);
            }
            let named = names.get(keyspace);
            let is_there = *keyspace == KEYSPACE_RAW || named.is_some();
            if now != Some(*version) || !is_there {
                changed.insert(match (is_there, named) {
                    (false, _) => "a collection that is not there any more".to_string(),
                    (true, None) => format!("{:?}", String::from_utf8_lossy(key)),
                    (true, Some((name, kind))) => format!("{name}: {}", shown(kind.as_ref(), key)),
                });
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        let more = match changed.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let keys: Vec<String> = changed.into_iter().take(NAMED).collect();
        let reason = format!("later ones have changed what it wrote: {}{more}", keys.join(", "));
        Err(Error::CannotUndo { number, reason })
    }

    /// The collections of the records, by their keyspaces, ready for writes. Fails if the records and the index entries of the
    /// transaction are not in accord: if after it, a collection of its was stored elsewhere than now, had other indexes, or
    /// had some that were being built.
    fn undo_collections(
        &mut self,
        number: u64,
        after: &Snapshot,
        written: &Written,
        names: &Names,
        indexes: &BTreeSet<u32>,
    ) -> Result<BTreeMap<u32, StoredCollection>, Error> {
        let mut collections = BTreeMap::new();
        let (mut known, mut migrated) = (BTreeSet::new(), BTreeSet::new());
        let keyspaces: BTreeSet<u32> = written.keys().map(|(keyspace, _)| *keyspace).collect();
        for (name, _) in keyspaces.iter().filter_map(|keyspace| names.get(keyspace)) {
            let then = catalog::find_at(&mut self.engine.lock(), name, Some(after.id()))?;
            let Some(now) = catalog::find(&mut self.engine.lock(), name)? else { continue };
            // What every write to it does first.
            now.check_indexes()?;
            now.interrupt_conversion(&mut self.engine.lock())?;
            let numbers = now.keyspaces();
            if numbers.is_none() || then.and_then(|then| then.keyspaces()) != numbers {
                migrated.insert(name.as_str());
            }
            known.extend(numbers.into_iter().flatten());
            collections.insert(now.keyspace, now);
        }
        // The entries of an index that was being built come without their records.
        let is_of_build = |keyspace: &u32| indexes.contains(keyspace) && !known.contains(keyspace);
        if migrated.is_empty() && !keyspaces.iter().any(is_of_build) {
            return Ok(collections);
        }
        let list: Vec<&str> = migrated.into_iter().collect();
        let list = if list.is_empty() { String::new() } else { format!(": {}", list.join(", ")) };
        let reason = format!("a collection was migrated during or after it{list}");
        Err(Error::CannotUndo { number, reason })
    }

    /// Gives a key the value back that it had, with its expiry.
    fn give_back(
        &mut self,
        before: &Snapshot,
        keyspace: u32,
        key: &[u8],
        collection: Option<&StoredCollection>,
    ) -> Result<(), Error> {
        let then = before.id().keyspace(keyspace);
        let expiry = self.engine.lock().expiry(then, key)?;
        let value = self.engine.lock().get(then, key)?.map(<[u8]>::to_vec);
        if let (Some(expiry), Some(value)) = (expiry, value) {
            let done = self.engine.lock().set_with_expiry(keyspace, key, &value, expiry);
            return self.with_loss_reason(done).map(drop);
        }
        if let Some(collection) = collection {
            // No id is assigned twice.
            record_used_id(self, collection, key)?;
        }
        let done = self.engine.lock().delete(keyspace, key);
        self.with_loss_reason(done).map(drop)
    }

    /// Fails if an entry of a unique index came back of which another record has the values now.
    fn refuse_taken<'c>(
        &mut self,
        written: &Written,
        collections: impl Iterator<Item = &'c StoredCollection>,
    ) -> Result<(), Error> {
        for collection in collections {
            for index in collection.indexes.iter().filter(|index| index.unique) {
                let entries = written.keys().filter(|(keyspace, _)| *keyspace == index.keyspace);
                for (keyspace, key) in entries {
                    if self.is_taken(*keyspace, key)? {
                        let (collection, index) = (collection.name.clone(), index.name.clone());
                        return Err(Error::NotUnique { collection, index });
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether two entries of an index have the same values.
    fn is_taken(&mut self, keyspace: u32, key: &[u8]) -> Result<bool, Error> {
        let Some(entry) = self.engine.get(keyspace, key)? else { return Ok(false) };
        let tuple = entry.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
        let tuple = key.get(..tuple).unwrap_or(key);
        let mut count = 0;
        let bounds = (Bound::Included(tuple), Bound::Unbounded);
        self.engine.lock().range(keyspace, bounds, false, |key, _| {
            count += usize::from(key.starts_with(tuple));
            key.starts_with(tuple) && count < 2
        })?;
        Ok(count > 1)
    }
}

fn refused(reason: &str) -> Error {
    Error::BadArgument(Malformed::new("", reason))
}

/// A key of a collection, for an error.
fn shown(kind: Option<&KeyKind>, key: &[u8]) -> String {
    let text = kind.and_then(|kind| String::decode(kind, key)).map(|text| format!("{text:?}"));
    let number = || kind.and_then(|kind| u64::decode(kind, key)).map(|number| number.to_string());
    text.or_else(number).unwrap_or_else(|| format!("\"{}\"", key.escape_ascii()))
}
