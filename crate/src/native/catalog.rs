//! The collections of a file: see also `js/collection/catalog.ts`.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::file::File;
use crate::format::system_records::{
    CollectionDescriptor, DESCRIPTOR_DROPPED, DESCRIPTOR_INDEX, KEY_COLLECTION, KEY_INDEX,
    KEY_INDEX_KEYSPACES, KEY_MIGRATION,
};
use crate::format::{KEYSPACE_ENGINE, KEYSPACE_FIRST_COLLECTION, LAST_KEYSPACE};
use crate::schema::key::{Key, KeyKind};
use crate::schema::upgrade::defaults;
use crate::schema::{Kind, Malformed, Record};
use crate::store::{SnapshotId, Store as Engine};

use super::Error;
use super::descriptor::Descriptor;
use super::index::Index;
use super::schema_diff::difference;

/// The key in the engine's keyspace of the number of the next keyspace that was never assigned.
const NEXT_KEYSPACE_KEY: &[u8] = b"keyspaces";
const MAX_NAME_LENGTH: usize = 200;

/// A collection as described by its stored descriptor.
#[derive(Debug)]
pub(super) struct StoredCollection {
    pub name: String,
    pub keyspace: u32,
    fingerprint: u64,
    /// The layout of its values; none if they are not structs, or of unknown kinds.
    pub value: Option<Kind>,
    /// The type of its keys; none if it is unknown.
    key: Option<KeyKind>,
    json: Value,
    pub indexes: Vec<Index>,
    /// The name of an index of an unknown kind, which cannot be maintained.
    unknown_index: Option<String>,
    /// Whether another program's conversion of its values may have been interrupted.
    is_converted: AtomicBool,
}

impl StoredCollection {
    fn new(name: &str, bytes: &[u8]) -> Result<StoredCollection, Error> {
        let unreadable = || {
            let reason = "its descriptor is unknown to this version; update varve".to_string();
            Error::SchemaMismatch { collection: name.to_string(), reason }
        };
        let Descriptor { head, json } = Descriptor::decode(bytes).ok_or_else(unreadable)?;
        Ok(StoredCollection {
            name: name.to_string(),
            keyspace: head.keyspace,
            fingerprint: head.fingerprint,
            value: json.get("value").and_then(Kind::from_json),
            key: json.get("key").and_then(KeyKind::from_json),
            json,
            indexes: Vec::new(),
            unknown_index: None,
            is_converted: AtomicBool::new(false),
        })
    }

    /// The type of its keys.
    pub(super) fn key(&self) -> Result<&KeyKind, Error> {
        self.key.as_ref().ok_or_else(|| {
            self.mismatch(format!(
                "its keys are {}, which is unknown to this version",
                self.json["key"]
            ))
        })
    }

    #[cfg(feature = "json")]
    pub(super) fn key_if_known(&self) -> Option<&KeyKind> {
        self.key.as_ref()
    }

    pub(super) fn encode(&self, key: &impl Key) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        key.encode(self.key()?, false, &mut out).map_err(Error::BadArgument)?;
        Ok(out)
    }

    /// Checks that its values can be read as `T`, and that its keys are of the given type.
    pub(super) fn check_schema<T: Record>(&self, key: Option<&KeyKind>) -> Result<(), Error> {
        if self.fingerprint != T::FINGERPRINT {
            self.check_value_schema(&Kind::from(T::LAYOUT))?;
        }
        let stored = self.key()?;
        match key {
            Some(key) if key != stored => {
                let (stored, key) = (stored.to_json(), key.to_json());
                Err(self.mismatch(format!("its keys are {stored}, not {key}")))
            }
            _ => Ok(()),
        }
    }

    fn check_value_schema(&self, expected: &Kind) -> Result<(), Error> {
        match &self.value {
            Some(stored) if is_version(stored, expected) => Ok(()),
            Some(stored) => Err(self.mismatch(difference(stored, expected).join("; "))),
            None => {
                let json = &self.json["value"];
                Err(self.mismatch(format!("it holds {json}, not {}", expected.layout())))
            }
        }
    }

    /// Whether `T` is a later version of the stored struct.
    pub(super) fn is_upgraded_by<T: Record>(&self) -> bool {
        self.fingerprint != T::FINGERPRINT
            && fields_of(&Kind::from(T::LAYOUT)) > self.value.as_ref().map_or(0, fields_of)
    }

    /// Rejects a value that others could not read, such as one with a reference outside it or an
    /// invalid date.
    pub(super) fn check(&self, value: &[u8]) -> Result<(), Error> {
        self.value.as_ref().map_or(Ok(()), |kind| kind.check(value)).map_err(Error::BadArgument)
    }

    /// Rejects writes that would leave an index outdated.
    pub(super) fn check_indexes(&self) -> Result<(), Error> {
        match &self.unknown_index {
            Some(name) => {
                Err(self.mismatch(format!("its index {name:?} is unknown to this version")))
            }
            None => Ok(()),
        }
    }

    /// Called before a write. A conversion of the collection in progress does not contain this
    /// write, so its target keyspaces are listed for clearing.
    pub(super) fn interrupt_conversion(&self, engine: &mut Engine<impl File>) -> Result<(), Error> {
        if !self.is_converted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let key = migration_key(&self.name);
        let recorded = engine.get(KEYSPACE_ENGINE, &key)?.map(serde_json::from_slice::<Value>);
        let Some(mut recorded) = recorded.transpose().ok().flatten() else { return Ok(()) };
        let Some(to) = recorded.as_object_mut().and_then(|recorded| recorded.remove("to")) else {
            return Ok(());
        };
        let mut clear = recorded["clear"].as_array().cloned().unwrap_or_default();
        clear.push(to["keyspace"].clone());
        let indexes = to["indexes"].as_array().into_iter().flatten();
        clear.extend(indexes.map(|index| index[2].clone()));
        recorded["clear"] = Value::Array(clear);
        engine.set(KEYSPACE_ENGINE, &key, recorded.to_string().as_bytes())?;
        Ok(())
    }

    /// Its keyspace and those of its indexes; none while an index is being built.
    pub(super) fn keyspaces(&self) -> Option<Vec<u32>> {
        if self.json.get("building").is_some() {
            return None;
        }
        let mut numbers: Vec<u32> = self.indexes.iter().map(|index| index.keyspace).collect();
        numbers.sort_unstable();
        numbers.insert(0, self.keyspace);
        Some(numbers)
    }

    fn mismatch(&self, reason: String) -> Error {
        Error::SchemaMismatch { collection: self.name.clone(), reason }
    }
}

fn fields_of(kind: &Kind) -> usize {
    if let Kind::Struct { fields, .. } = kind { fields.len() } else { 0 }
}

/// Whether both are versions of one struct. Structs grow at the end, so the shorter version is a
/// prefix of the longer one.
fn is_version(stored: &Kind, expected: &Kind) -> bool {
    let (
        Kind::Struct { fields: old_fields, versioned: true, .. },
        Kind::Struct { fields: new_fields, versioned: true, .. },
    ) = (stored, expected)
    else {
        return false;
    };
    old_fields.iter().zip(new_fields).all(|(old, new)| old.name == new.name && old.kind == new.kind)
}

fn key_of(name: &str) -> Result<Vec<u8>, Error> {
    if name.is_empty() || name.encode_utf16().count() > MAX_NAME_LENGTH {
        let reason = format!("a collection name must have 1 to {MAX_NAME_LENGTH} characters");
        return Err(Error::BadArgument(Malformed::new("", reason)));
    }
    Ok([KEY_COLLECTION, name.as_bytes()].concat())
}

/// Loads the collection with this name, including its indexes.
pub(super) fn find<F: File>(
    engine: &mut Engine<F>,
    name: &str,
) -> Result<Option<StoredCollection>, Error> {
    find_at(engine, name, None)
}

/// The engine's own keyspace, as it is or as a snapshot shows it.
fn engine_keyspace(then: Option<SnapshotId>) -> u32 {
    then.map_or(KEYSPACE_ENGINE, |then| then.keyspace(KEYSPACE_ENGINE))
}

/// As [`find`], as a snapshot shows it.
pub(super) fn find_at<F: File>(
    engine: &mut Engine<F>,
    name: &str,
    then: Option<SnapshotId>,
) -> Result<Option<StoredCollection>, Error> {
    let own = engine_keyspace(then);
    let Some(bytes) = engine.get(own, &key_of(name)?)? else { return Ok(None) };
    let mut stored = StoredCollection::new(name, bytes)?;
    let named = |field: &str| stored.json[field].as_array().cloned().unwrap_or_default();
    let names = [named("indexes"), named("building")].concat();
    for name in names.iter().filter_map(Value::as_str) {
        let key = [KEY_INDEX, &stored.keyspace.to_be_bytes(), name.as_bytes()].concat();
        let Some(bytes) = engine.get(own, &key)? else { continue };
        match Descriptor::decode(bytes) {
            Some(found) if found.head.flags & DESCRIPTOR_DROPPED != 0 => {}
            found => {
                let known = found.zip(stored.value.as_ref());
                match known.and_then(|(found, value)| Index::new(name, &found, value)) {
                    Some(index) => stored.indexes.push(index),
                    None => stored.unknown_index = Some(name.to_string()),
                }
            }
        }
    }
    stored.is_converted = AtomicBool::new(engine.has(own, &migration_key(name))?);
    Ok(Some(stored))
}

fn migration_key(name: &str) -> Vec<u8> {
    [KEY_MIGRATION, name.as_bytes()].concat()
}

/// The records of the engine's keyspace whose keys have a prefix, by the rest of the key.
fn records_with_prefix<F: File>(
    engine: &mut Engine<F>,
    prefix: &[u8],
    own: u32,
) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let mut keys = Vec::new();
    let bounds = (Bound::Included(prefix), Bound::Unbounded);
    engine.range(own, bounds, false, |key, _| {
        let is_inside = key.starts_with(prefix);
        keys.extend(is_inside.then(|| key.to_vec()));
        is_inside
    })?;
    let mut found = Vec::new();
    for key in keys {
        let Some(bytes) = engine.get(own, &key)? else { continue };
        let name = String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
        found.push((name, bytes.to_vec()));
    }
    Ok(found)
}

/// The names of all collections that were not dropped.
pub(super) fn names<F: File>(engine: &mut Engine<F>) -> Result<Vec<String>, Error> {
    names_at(engine, None)
}

/// As [`names`], as a snapshot shows them.
pub(super) fn names_at<F: File>(
    engine: &mut Engine<F>,
    then: Option<SnapshotId>,
) -> Result<Vec<String>, Error> {
    let is_collection = |bytes: &[u8]| {
        let not_collections = DESCRIPTOR_INDEX | DESCRIPTOR_DROPPED;
        Descriptor::decode(bytes).is_some_and(|found| found.head.flags & not_collections == 0)
    };
    let all = records_with_prefix(engine, KEY_COLLECTION, engine_keyspace(then))?.into_iter();
    Ok(all.filter(|(_, bytes)| is_collection(bytes)).map(|(name, _)| name).collect())
}

/// The names of all collections that were not dropped, each with its keyspace and the type of its keys, if it is known.
pub(super) fn keyspaces<F: File>(
    engine: &mut Engine<F>,
) -> Result<Vec<(String, u32, Option<KeyKind>)>, Error> {
    let described = |(name, bytes): (String, Vec<u8>)| {
        let Descriptor { head, json } = Descriptor::decode(&bytes)?;
        let is_collection = head.flags & (DESCRIPTOR_INDEX | DESCRIPTOR_DROPPED) == 0;
        let key = json.get("key").and_then(KeyKind::from_json);
        is_collection.then_some((name, head.keyspace, key))
    };
    let all = records_with_prefix(engine, KEY_COLLECTION, KEYSPACE_ENGINE)?;
    Ok(all.into_iter().filter_map(described).collect())
}

/// The keyspaces of all indexes, also of former ones.
pub(super) fn index_keyspaces<F: File>(engine: &mut Engine<F>) -> Result<Vec<u32>, Error> {
    let list = engine.get(KEYSPACE_ENGINE, KEY_INDEX_KEYSPACES)?.unwrap_or_default();
    Ok(list.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
}

/// The descriptor of a collection's values, with the defaults of added fields.
fn value_of<T: Record>() -> Value {
    let mut value = Kind::from(T::LAYOUT).to_json();
    let added: Vec<String> = defaults::<T>().iter().map(|bytes| base64(bytes)).collect();
    if !added.is_empty() {
        value["added"] = json!(added);
    }
    value
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | usize::from(*three.get(at).unwrap_or(&0)));
        for at in 0..4 {
            let digit = char::from(DIGITS[bits >> (18 - 6 * at) & 63]);
            text.push(if at <= three.len() { digit } else { '=' });
        }
    }
    text
}

/// A keyspace for a new collection: one that was never assigned or, if there is none left, one that
/// is empty and not referenced any more.
fn free_keyspace(engine: &mut Engine<impl File>, recorded: u32) -> Result<u32, Error> {
    // A damaged file may have lost the stored number or have an outdated one, so key counts are
    // checked as well.
    let mut fresh = recorded.max(KEYSPACE_FIRST_COLLECTION)..=LAST_KEYSPACE;
    if let Some(keyspace) = fresh.find(|&keyspace| engine.count(keyspace) == 0) {
        return Ok(keyspace);
    }
    let mut named = BTreeSet::new();
    for prefix in [KEY_COLLECTION, KEY_INDEX] {
        for (_, bytes) in records_with_prefix(engine, prefix, KEYSPACE_ENGINE)? {
            let bytes = bytes.get(KEYSPACE_AT..).and_then(<[u8]>::first_chunk);
            named.extend(bytes.map(|bytes| u32::from_le_bytes(*bytes)));
        }
    }
    for (_, bytes) in records_with_prefix(engine, KEY_MIGRATION, KEYSPACE_ENGINE)? {
        let recorded: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let indexes = list(&recorded["to"]["indexes"]).into_iter().map(|index| index[2].clone());
        let all = list(&recorded["clear"]).into_iter().chain(indexes);
        let numbers = all.chain([recorded["to"]["keyspace"].clone()]);
        named.extend(numbers.filter_map(|number| u32::try_from(number.as_u64()?).ok()));
    }
    let mut old = KEYSPACE_FIRST_COLLECTION..=LAST_KEYSPACE;
    let free = old.find(|keyspace| !named.contains(keyspace) && engine.count(*keyspace) == 0);
    free.ok_or(Error::TooManyCollections)
}

/// Offset of the keyspace in a descriptor.
const KEYSPACE_AT: usize = 8;

/// Assigns a keyspace.
fn take_keyspace(engine: &mut Engine<impl File>) -> Result<u32, Error> {
    let recorded =
        match engine.get(KEYSPACE_ENGINE, NEXT_KEYSPACE_KEY)?.and_then(<[u8]>::first_chunk) {
            Some(next) => u32::from_le_bytes(*next),
            None => KEYSPACE_FIRST_COLLECTION,
        };
    let keyspace = free_keyspace(engine, recorded)?;
    engine.set(KEYSPACE_ENGINE, NEXT_KEYSPACE_KEY, &recorded.max(keyspace + 1).to_le_bytes())?;
    Ok(keyspace)
}

/// Creates an index of a collection, without entries: first its descriptor, and then the name in that of the collection.
pub(super) fn create_index(
    engine: &mut Engine<impl File>,
    stored: &StoredCollection,
    name: &str,
    shape: Value,
) -> Result<(), Error> {
    check_index_name(name, MAX_NAME_LENGTH)?;
    let (fingerprint, keyspace) = (stored.fingerprint, take_keyspace(engine)?);
    let (flags, parent) = (DESCRIPTOR_INDEX, stored.keyspace);
    let head = CollectionDescriptor { fingerprint, keyspace, flags, parent, ..Default::default() };
    let descriptor = Descriptor { head, json: shape };
    let known = stored.value.as_ref().and_then(|value| Index::new(name, &descriptor, value));
    if known.is_none() {
        let reason = format!(
            "the index {name:?} of {:?} is by {}, one of which is no field of the record, or has no order",
            stored.name, descriptor.json["fields"]
        );
        return Err(Error::BadArgument(Malformed::new("", reason)));
    }
    let key = [KEY_INDEX, &stored.keyspace.to_be_bytes(), name.as_bytes()].concat();
    engine.set(KEYSPACE_ENGINE, &key, &descriptor.encode())?;
    let mut keyspaces = index_keyspaces(engine)?;
    keyspaces.retain(|one| *one != stored.keyspace && *one != keyspace);
    keyspaces.push(keyspace);
    let list: Vec<u8> = keyspaces.iter().flat_map(|one| one.to_le_bytes()).collect();
    engine.set(KEYSPACE_ENGINE, KEY_INDEX_KEYSPACES, &list)?;
    let mut json = stored.json.clone();
    match json["indexes"].as_array_mut() {
        Some(names) => names.push(json!(name)),
        None => json["indexes"] = json!([name]),
    }
    let head = CollectionDescriptor { fingerprint, keyspace: parent, ..Default::default() };
    engine.set(KEYSPACE_ENGINE, &key_of(&stored.name)?, &Descriptor { head, json }.encode())?;
    Ok(())
}

/// Creates a collection with this name.
pub(super) fn create<T: Record>(
    engine: &mut Engine<impl File>,
    name: &str,
    key: &KeyKind,
) -> Result<StoredCollection, Error> {
    let keyspace = take_keyspace(engine)?;
    let head = CollectionDescriptor { fingerprint: T::FINGERPRINT, keyspace, ..Default::default() };
    let json = json!({ "value": value_of::<T>(), "key": key.to_json() });
    let bytes = Descriptor { head, json }.encode();
    engine.set(KEYSPACE_ENGINE, &key_of(name)?, &bytes)?;
    StoredCollection::new(name, &bytes)
}

/// Replaces the stored struct of a collection by `T`, a later version of it.
pub(super) fn upgrade_descriptor<T: Record>(
    engine: &mut Engine<impl File>,
    stored: &StoredCollection,
) -> Result<(), Error> {
    let fingerprint = T::FINGERPRINT;
    let head =
        CollectionDescriptor { fingerprint, keyspace: stored.keyspace, ..Default::default() };
    let mut json = stored.json.clone();
    json["value"] = value_of::<T>();
    engine.set(KEYSPACE_ENGINE, &key_of(&stored.name)?, &Descriptor { head, json }.encode())?;
    Ok(())
}

/// Rejects a name that an index cannot have.
fn check_index_name(name: &str, longest: usize) -> Result<(), Error> {
    let length = name.encode_utf16().count();
    if length == 0 || length > longest || name.contains('\0') {
        let reason =
            format!("the name of an index must have 1 to {longest} characters, without U+0000");
        return Err(Error::BadArgument(Malformed::new("", reason)));
    }
    Ok(())
}
