//! Secondary indexes, maintained as their stored descriptors say, whichever program created them.

use serde_json::Value;

use crate::format::system_records::{DESCRIPTOR_BUILDING, IndexEntry};
use crate::schema::key::{KeyKind, Part, invert, put_bytes, put_float, put_signed, put_unsigned};
use crate::schema::{Kind, Malformed, Plain};

use super::descriptor::Descriptor;

/// An index of a collection.
#[derive(Debug)]
pub(super) struct Index {
    pub name: String,
    pub keyspace: u32,
    /// Whether it has the entries of all records.
    pub built: bool,
    /// Whether no two records may have the same entry.
    pub unique: bool,
    /// As it is declared.
    pub shape: Value,
    fields: Vec<IndexField>,
    /// Whether records state the size of their root.
    versioned: bool,
}

/// A field that an index sorts by.
#[derive(Debug)]
struct IndexField {
    kind: Kind,
    /// Its offset in the record.
    at: usize,
    descending: bool,
}

impl Index {
    /// Reads the descriptor of an index of records of a kind; none if it is unknown.
    pub(super) fn new(
        name: &str,
        Descriptor { head, json }: &Descriptor,
        value: &Kind,
    ) -> Option<Self> {
        let field = |field: &Value| {
            let (name, descending) = match field.get("desc") {
                Some(inner) => (inner.as_str()?, true),
                None => (field.as_str()?, false),
            };
            let (kind, at) = find(value, name)?;
            can_sort(kind).then(|| IndexField { kind: kind.clone(), at, descending })
        };
        Some(Index {
            name: name.to_string(),
            keyspace: head.keyspace,
            built: head.flags & DESCRIPTOR_BUILDING == 0,
            versioned: matches!(value, Kind::Struct { versioned: true, .. }),
            shape: json.clone(),
            unique: json.get("unique").and_then(Value::as_bool) == Some(true),
            fields: json.get("fields")?.as_array()?.iter().map(field).collect::<Option<_>>()?,
        })
    }

    /// The key type of its entries, for searches; the record's key follows in the actual keys.
    pub(super) fn key(&self) -> KeyKind {
        KeyKind::Tuple(self.fields.iter().map(IndexField::part).collect())
    }

    /// The tuple of a record: the prefix of the key of its entry.
    pub(super) fn tuple(&self, record: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut out = Vec::new();
        for IndexField { kind, at, descending } in &self.fields {
            let end = at + kind.size_and_align().0;
            if self.versioned && word(record, 0, 2)? < end as u64 {
                let reason =
                    "size: an earlier version of the struct wrote it without an indexed field";
                return Err(Malformed::new("", reason));
            }
            let start = out.len();
            put(kind, record, *at, &mut out)?;
            if *descending {
                invert(&mut out[start..]);
            }
        }
        Ok(out)
    }
}

/// The value of an entry with a tuple of this length.
pub(super) fn entry_value(tuple: usize) -> IndexEntry {
    IndexEntry { key_offset: tuple as u32, reserved: 0 }
}

/// The key of the record of an entry.
pub(super) fn record_key<'a>(key: &'a [u8], value: &[u8]) -> Option<&'a [u8]> {
    let offset = u32::from_le_bytes(*value.first_chunk()?);
    key.get(offset as usize..)
}

impl IndexField {
    fn part(&self) -> Part {
        let part = part_of(&self.kind);
        if self.descending { Part::Desc(Box::new(part)) } else { part }
    }
}

/// The field with this name, or at this path through structs.
fn find<'a>(value: &'a Kind, path: &str) -> Option<(&'a Kind, usize)> {
    let mut found = None;
    value.each_field(|name, kind, at| {
        let inner = match kind {
            Kind::Flatten(of) => find(of, path),
            _ if name == path => Some((kind, 0)),
            _ => path.strip_prefix(name).and_then(|rest| find(kind, rest.strip_prefix('.')?)),
        };
        found = found.or(inner.map(|(kind, offset)| (kind, at + offset)));
    });
    found
}

fn can_sort(kind: &Kind) -> bool {
    match kind {
        Kind::Plain(_) | Kind::Enum8(_) | Kind::Enum16(_) => true,
        Kind::Str | Kind::Blob | Kind::Bytes(_) | Kind::FixedStr(_) => true,
        Kind::Option(of) | Kind::OptNonZero(of) => can_sort(of),
        _ => false,
    }
}

fn part_of(kind: &Kind) -> Part {
    match kind {
        Kind::Plain(plain) => Part::Plain(*plain),
        Kind::Enum8(names) => Part::Enum8(names.clone()),
        Kind::Enum16(names) => Part::Enum16(names.clone()),
        Kind::Blob | Kind::Bytes(_) => Part::Bytes,
        Kind::Option(of) | Kind::OptNonZero(of) => Part::Option(Box::new(part_of(of))),
        _ => Part::Str,
    }
}

fn slice(record: &[u8], at: usize, size: usize) -> Result<&[u8], Malformed> {
    let end = at.checked_add(size);
    end.and_then(|end| record.get(at..end)).ok_or_else(|| {
        Malformed::new("", format!("range: {size} bytes at {at} exceed {}", record.len()))
    })
}

fn word(record: &[u8], at: usize, size: usize) -> Result<u64, Malformed> {
    let mut word = [0; 8];
    word[..size].copy_from_slice(slice(record, at, size)?);
    Ok(u64::from_le_bytes(word))
}

/// Appends the field at an offset of a record as a part of a key.
fn put(kind: &Kind, record: &[u8], at: usize, out: &mut Vec<u8>) -> Result<(), Malformed> {
    match kind {
        Kind::Plain(plain) => put_plain(*plain, word(record, at, plain.size())?, out)?,
        Kind::Enum8(_) => put_unsigned(out, word(record, at, 1)?, 1),
        Kind::Enum16(_) => put_unsigned(out, word(record, at, 2)?, 2),
        Kind::Bytes(n) => put_bytes(out, slice(record, at, *n)?),
        Kind::FixedStr(n) => {
            let bytes = slice(record, at, *n)?;
            let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(*n);
            put_bytes(out, &bytes[..end]);
        }
        Kind::Str | Kind::Blob => {
            let (from, length) = (word(record, at, 4)?, word(record, at + 4, 4)?);
            put_bytes(out, slice(record, from as usize, length as usize)?);
        }
        Kind::Option(of) => {
            let has_value = word(record, at, 1)? != 0;
            out.push(u8::from(has_value));
            if has_value {
                let align = of.size_and_align().1;
                put(of, record, at + align, out)?;
            }
        }
        Kind::OptNonZero(of) => {
            let has_value = word(record, at, of.size_and_align().0)? != 0;
            out.push(u8::from(has_value));
            if has_value {
                put(of, record, at, out)?;
            }
        }
        _ => return Err(Malformed::new("", "a field of this kind cannot be indexed")),
    }
    Ok(())
}

fn put_plain(plain: Plain, word: u64, out: &mut Vec<u8>) -> Result<(), Malformed> {
    let size = plain.size();
    match plain {
        Plain::F64 => put_float(out, f64::from_bits(word), false)?,
        Plain::F32 => put_float(out, f64::from(f32::from_bits(word as u32)), true)?,
        Plain::I8 | Plain::I16 | Plain::I32 | Plain::I64 | Plain::Timestamp => {
            put_signed(out, word.cast_signed(), size);
        }
        _ => put_unsigned(out, word, size),
    }
    Ok(())
}
