//! What collections a file has, and where: twin of `js/collection/catalog.ts`.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::file::File;
use crate::format::system_records::{
    CollectionDescriptor, DESCRIPTOR_DROPPED, DESCRIPTOR_INDEX, KEY_COLLECTION, KEY_INDEX,
    KEY_MIGRATION,
};
use crate::format::{KEYSPACE_ENGINE, KEYSPACE_FIRST_COLLECTION, LAST_KEYSPACE};
use crate::schema::key::KeyKind;
use crate::schema::upgrade::defaults;
use crate::schema::{Kind, Malformed, Record};
use crate::store::Store as Engine;

use super::Error;
use super::index::Index;
use super::schema_diff::difference;

/// Under this key in the engine's keyspace lies the number of the next keyspace that was never given
/// out.
const NEXT: &[u8] = b"keyspaces";
const HEAD: usize = size_of::<CollectionDescriptor>();
const LONGEST_NAME: usize = 200;

/// A collection as its descriptor tells of it.
#[derive(Debug)]
pub(super) struct Form {
    pub name: String,
    pub keyspace: u32,
    fingerprint: u64,
    /// Its values; none when they are no structs, or of kinds that are not known here.
    pub value: Option<Kind>,
    /// Its keys; none when they are of kinds that are not known here.
    key: Option<KeyKind>,
    told: Value,
    pub indexes: Vec<Index>,
    /// An index that is of no form known here, so that it cannot be kept.
    unknown_index: Option<String>,
    /// Whether its values may be being converted by another program, which was interrupted.
    is_converted: AtomicBool,
}

/// The bytes of a descriptor, taken apart.
pub(super) struct Descriptor {
    pub head: CollectionDescriptor,
    pub json: Value,
}

impl Descriptor {
    pub(super) fn decode(bytes: &[u8]) -> Option<Descriptor> {
        let word = |at: usize| {
            let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_le_bytes(bytes))
        };
        let head = CollectionDescriptor {
            fingerprint: u64::from_le_bytes(bytes.first_chunk().copied()?),
            keyspace: word(8)?,
            flags: word(12)?,
            parent: word(16)?,
            json_len: word(20)?,
        };
        let text = bytes.get(HEAD..)?.get(..head.json_len as usize)?;
        Some(Descriptor { head, json: serde_json::from_slice(text).ok()? })
    }

    fn encode(&self) -> Vec<u8> {
        use musli_zerocopy::ZeroCopy;
        let text = self.json.to_string();
        let head = CollectionDescriptor { json_len: text.len() as u32, ..self.head };
        [head.to_bytes(), text.as_bytes()].concat()
    }
}

impl Form {
    fn new(name: &str, bytes: &[u8]) -> Result<Form, Error> {
        let unreadable = || {
            let reason = "its descriptor is unknown to this version; update varve".to_string();
            Error::SchemaMismatch { collection: name.to_string(), reason }
        };
        let Descriptor { head, json } = Descriptor::decode(bytes).ok_or_else(unreadable)?;
        Ok(Form {
            name: name.to_string(),
            keyspace: head.keyspace,
            fingerprint: head.fingerprint,
            value: json.get("value").and_then(Kind::from_json),
            key: json.get("key").and_then(KeyKind::from_json),
            told: json,
            indexes: Vec::new(),
            unknown_index: None,
            is_converted: AtomicBool::new(false),
        })
    }

    /// The kind of its keys.
    pub(super) fn key(&self) -> Result<&KeyKind, Error> {
        self.key.as_ref().ok_or_else(|| {
            self.mismatch(format!(
                "its keys are {}, which is unknown to this version",
                self.told["key"]
            ))
        })
    }

    /// Refuses to read as `T` what is something else, or with other keys.
    pub(super) fn refuse_other<T: Record>(&self, key: Option<&KeyKind>) -> Result<(), Error> {
        if self.fingerprint != T::FINGERPRINT {
            self.refuse_other_value(&Kind::from(T::LAYOUT))?;
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

    fn refuse_other_value(&self, asked: &Kind) -> Result<(), Error> {
        match &self.value {
            Some(stored) if is_version(stored, asked) => Ok(()),
            Some(stored) => Err(self.mismatch(difference(stored, asked).join("; "))),
            None => {
                let told = &self.told["value"];
                Err(self.mismatch(format!("it holds {told}, not {}", asked.layout())))
            }
        }
    }

    /// Whether `T` is a later version of the struct that its descriptor tells of.
    pub(super) fn is_grown_by<T: Record>(&self) -> bool {
        self.fingerprint != T::FINGERPRINT
            && fields_of(&Kind::from(T::LAYOUT)) > self.value.as_ref().map_or(0, fields_of)
    }

    /// Refuses a value that others could not read: a reference that leads out of it, a date that is none.
    pub(super) fn check(&self, value: &[u8]) -> Result<(), Error> {
        self.value.as_ref().map_or(Ok(()), |kind| kind.check(value)).map_err(Error::BadArgument)
    }

    /// Refuses to write what would leave an index behind.
    pub(super) fn refuse_unkept(&self) -> Result<(), Error> {
        match &self.unknown_index {
            Some(name) => {
                Err(self.mismatch(format!("its index {name:?} is unknown to this version")))
            }
            None => Ok(()),
        }
    }

    /// Before a write: what was converted of the collection so far is no longer all, so the keyspaces
    /// that it lies in are named as what is to be emptied.
    pub(super) fn interrupt_conversion(&self, engine: &mut Engine<impl File>) -> Result<(), Error> {
        if !self.is_converted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let key = migration_key(&self.name);
        let noted = engine.get(KEYSPACE_ENGINE, &key)?.map(serde_json::from_slice::<Value>);
        let Some(mut noted) = noted.transpose().ok().flatten() else { return Ok(()) };
        let Some(to) = noted.as_object_mut().and_then(|noted| noted.remove("to")) else {
            return Ok(());
        };
        let mut clear = noted["clear"].as_array().cloned().unwrap_or_default();
        clear.push(to["keyspace"].clone());
        let indexes = to["indexes"].as_array().into_iter().flatten();
        clear.extend(indexes.map(|index| index[2].clone()));
        noted["clear"] = Value::Array(clear);
        engine.set(KEYSPACE_ENGINE, &key, noted.to_string().as_bytes())?;
        Ok(())
    }

    fn mismatch(&self, reason: String) -> Error {
        Error::SchemaMismatch { collection: self.name.clone(), reason }
    }
}

fn fields_of(kind: &Kind) -> usize {
    if let Kind::Struct { fields, .. } = kind { fields.len() } else { 0 }
}

/// Whether both are versions of one struct: it grows at its end, so the shorter one is where the longer
/// one began.
fn is_version(stored: &Kind, asked: &Kind) -> bool {
    let (
        Kind::Struct { fields: there, versioned: true, .. },
        Kind::Struct { fields: here, versioned: true, .. },
    ) = (stored, asked)
    else {
        return false;
    };
    there.iter().zip(here).all(|(old, new)| old.name == new.name && old.kind == new.kind)
}

fn key_of(name: &str) -> Result<Vec<u8>, Error> {
    if name.is_empty() || name.encode_utf16().count() > LONGEST_NAME {
        let reason = format!("a collection name must have 1 to {LONGEST_NAME} characters");
        return Err(Error::BadArgument(Malformed::new("", reason)));
    }
    Ok([KEY_COLLECTION, name.as_bytes()].concat())
}

/// The collection of this name, with its indexes.
pub(super) fn find<F: File>(engine: &mut Engine<F>, name: &str) -> Result<Option<Form>, Error> {
    let Some(bytes) = engine.get(KEYSPACE_ENGINE, &key_of(name)?)? else { return Ok(None) };
    let mut form = Form::new(name, bytes)?;
    let named = |under: &str| form.told[under].as_array().cloned().unwrap_or_default();
    let names = [named("indexes"), named("building")].concat();
    for name in names.iter().filter_map(Value::as_str) {
        let key = [KEY_INDEX, &form.keyspace.to_be_bytes(), name.as_bytes()].concat();
        let Some(bytes) = engine.get(KEYSPACE_ENGINE, &key)? else { continue };
        match Descriptor::decode(bytes) {
            Some(found) if found.head.flags & DESCRIPTOR_DROPPED != 0 => {}
            found => match found.and_then(|found| Index::new(name, &found, &form)) {
                Some(index) => form.indexes.push(index),
                None => form.unknown_index = Some(name.to_string()),
            },
        }
    }
    form.is_converted = AtomicBool::new(engine.has(KEYSPACE_ENGINE, &migration_key(name))?);
    Ok(Some(form))
}

fn migration_key(name: &str) -> Vec<u8> {
    [KEY_MIGRATION, name.as_bytes()].concat()
}

/// What is stored in the engine's keyspace under keys that begin so, by the rest of the key.
fn under<F: File>(engine: &mut Engine<F>, prefix: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let keys: Vec<Vec<u8>> = engine
        .keys(KEYSPACE_ENGINE)?
        .filter(|key| key.starts_with(prefix))
        .map(<[u8]>::to_vec)
        .collect();
    let mut found = Vec::new();
    for key in keys {
        let Some(bytes) = engine.get(KEYSPACE_ENGINE, &key)? else { continue };
        let name = String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
        found.push((name, bytes.to_vec()));
    }
    Ok(found)
}

/// The names of all collections that were not dropped.
pub(super) fn names<F: File>(engine: &mut Engine<F>) -> Result<Vec<String>, Error> {
    let is_there = |bytes: &[u8]| {
        let gone = DESCRIPTOR_INDEX | DESCRIPTOR_DROPPED;
        Descriptor::decode(bytes).is_some_and(|found| found.head.flags & gone == 0)
    };
    let all = under(engine, KEY_COLLECTION)?.into_iter();
    Ok(all.filter(|(_, bytes)| is_there(bytes)).map(|(name, _)| name).collect())
}

/// The descriptor of a collection's values, with what stands for added fields in earlier records.
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

/// A keyspace for something new: one that was never given out or, when all were, one that is empty and
/// that nothing names any more.
fn free_keyspace(engine: &mut Engine<impl File>, noted: u32) -> Result<u32, Error> {
    // A damaged file may have lost the note, or its newest form. What is in use shows in the counts.
    let mut fresh = noted.max(KEYSPACE_FIRST_COLLECTION)..=LAST_KEYSPACE;
    if let Some(keyspace) = fresh.find(|&keyspace| engine.count(keyspace) == 0) {
        return Ok(keyspace);
    }
    let mut named = BTreeSet::new();
    for prefix in [KEY_COLLECTION, KEY_INDEX] {
        for (_, bytes) in under(engine, prefix)? {
            let bytes = bytes.get(KEYSPACE_AT..).and_then(<[u8]>::first_chunk);
            named.extend(bytes.map(|bytes| u32::from_le_bytes(*bytes)));
        }
    }
    for (_, bytes) in under(engine, KEY_MIGRATION)? {
        let noted: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let indexes = list(&noted["to"]["indexes"]).into_iter().map(|index| index[2].clone());
        let all = list(&noted["clear"]).into_iter().chain(indexes);
        let numbers = all.chain([noted["to"]["keyspace"].clone()]);
        named.extend(numbers.filter_map(|number| u32::try_from(number.as_u64()?).ok()));
    }
    let mut old = KEYSPACE_FIRST_COLLECTION..=LAST_KEYSPACE;
    let free = old.find(|keyspace| !named.contains(keyspace) && engine.count(*keyspace) == 0);
    free.ok_or(Error::TooManyCollections)
}

/// Where a descriptor has its keyspace.
const KEYSPACE_AT: usize = 8;

/// Makes a collection of this name.
pub(super) fn make<T: Record>(
    engine: &mut Engine<impl File>,
    name: &str,
    key: &KeyKind,
) -> Result<Form, Error> {
    let noted = match engine.get(KEYSPACE_ENGINE, NEXT)?.and_then(<[u8]>::first_chunk) {
        Some(next) => u32::from_le_bytes(*next),
        None => KEYSPACE_FIRST_COLLECTION,
    };
    let keyspace = free_keyspace(engine, noted)?;
    let head = CollectionDescriptor { fingerprint: T::FINGERPRINT, keyspace, ..Default::default() };
    let json = json!({ "value": value_of::<T>(), "key": key.to_json() });
    let bytes = Descriptor { head, json }.encode();
    engine.set(KEYSPACE_ENGINE, NEXT, &noted.max(keyspace + 1).to_le_bytes())?;
    engine.set(KEYSPACE_ENGINE, &key_of(name)?, &bytes)?;
    Form::new(name, &bytes)
}

/// Has the descriptor of a collection tell of `T`, a later version of its struct.
pub(super) fn grow<T: Record>(engine: &mut Engine<impl File>, form: &Form) -> Result<(), Error> {
    let fingerprint = T::FINGERPRINT;
    let head = CollectionDescriptor { fingerprint, keyspace: form.keyspace, ..Default::default() };
    let mut json = form.told.clone();
    json["value"] = value_of::<T>();
    engine.set(KEYSPACE_ENGINE, &key_of(&form.name)?, &Descriptor { head, json }.encode())?;
    Ok(())
}
