//! Keys whose byte order is the order of their values, as in `js/struct/key.ts`.
//!
//! A key of text alone is its UTF-8, and one of bytes alone is these bytes. All other keys are
//! tuples of parts; a single number is a tuple of one. The encoding of each part is
//! self-delimiting, so that tuples sort part by part.

use serde_json::{Value, json};

use super::Malformed;
use super::descriptor::Plain;

mod part;

pub use part::{KeyPart, OwnedPart, Rest};

/// The type of a collection's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyKind {
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// A tuple of parts.
    Tuple(Vec<Part>),
}

/// The type of a part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// A number, a date or a boolean.
    Plain(Plain),
    /// One of these names, as an 8-bit number.
    Enum8(Vec<String>),
    /// One of these names, as a 16-bit number.
    Enum16(Vec<String>),
    /// Text.
    Str,
    /// Bytes.
    Bytes,
    /// An optional part; none sorts first.
    Option(Box<Part>),
    /// A part in descending order.
    Desc(Box<Part>),
}

impl KeyKind {
    /// Reads the key type that is stored with a collection. None if it is unknown here.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<KeyKind> {
        match value {
            Value::String(name) if name == "string" => Some(KeyKind::Text),
            Value::String(name) if name == "bytes" => Some(KeyKind::Bytes),
            Value::Array(parts) => {
                Some(KeyKind::Tuple(parts.iter().map(Part::from_json).collect::<Option<_>>()?))
            }
            _ => None,
        }
    }

    /// The JSON that is stored with a collection.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            KeyKind::Text => json!("string"),
            KeyKind::Bytes => json!("bytes"),
            KeyKind::Tuple(parts) => parts.iter().map(Part::to_json).collect(),
        }
    }
}

/// The maximum nesting of parts.
const MAX_DEPTH: usize = 16;

impl Part {
    /// Reads a part of a descriptor. None if it is unknown here.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Part> {
        Part::parse(value, MAX_DEPTH)
    }

    fn parse(value: &Value, depth: usize) -> Option<Part> {
        let depth = depth.checked_sub(1)?;
        if let Some(inner) = value.get("desc") {
            return Some(Part::Desc(Box::new(Part::parse(inner, depth)?)));
        }
        let name = value.get("kind").unwrap_or(value).as_str()?;
        if let Some(plain) = Plain::named(name) {
            return Some(Part::Plain(plain));
        }
        let names = || -> Option<Vec<String>> {
            let names = value.get("variants")?.as_array()?;
            names.iter().map(|name| Some(name.as_str()?.to_string())).collect()
        };
        Some(match name {
            "enum8" => Part::Enum8(names()?),
            "enum16" => Part::Enum16(names()?),
            "str" => Part::Str,
            "blob" | "bytes" => Part::Bytes,
            "option" => Part::Option(Box::new(Part::parse(value.get("of")?, depth)?)),
            _ => return None,
        })
    }

    /// The JSON for a descriptor.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Part::Plain(plain) => json!({ "kind": plain.name() }),
            Part::Enum8(names) => json!({ "kind": "enum8", "variants": names }),
            Part::Enum16(names) => json!({ "kind": "enum16", "variants": names }),
            Part::Str => json!({ "kind": "str" }),
            Part::Bytes => json!({ "kind": "blob" }),
            Part::Option(of) => json!({ "kind": "option", "of": of.to_json() }),
            Part::Desc(of) => json!({ "desc": of.to_json() }),
        }
    }
}

/// Appends an unsigned number of `size` bytes.
pub(crate) fn put_unsigned(out: &mut Vec<u8>, value: u64, size: usize) {
    out.extend_from_slice(&value.to_be_bytes()[8 - size..]);
}

/// Appends a signed number of `size` bytes; negative numbers sort first.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64, size: usize) {
    let start = out.len();
    out.extend_from_slice(&value.to_be_bytes()[8 - size..]);
    out[start] ^= 0x80;
}

/// Appends a floating-point number other than NaN; negative numbers sort first.
pub(crate) fn put_float(out: &mut Vec<u8>, value: f64, as_f32: bool) -> Result<(), Malformed> {
    if value.is_nan() {
        return Err(Malformed::new("", "NaN cannot be part of a key"));
    }
    // -0 becomes 0.
    let value = value + 0.0;
    let start = out.len();
    if as_f32 {
        out.extend_from_slice(&(value as f32).to_be_bytes());
    } else {
        out.extend_from_slice(&value.to_be_bytes());
    }
    if value.is_sign_negative() {
        invert(&mut out[start..]);
    } else {
        out[start] ^= 0x80;
    }
    Ok(())
}

/// Appends self-delimiting text or bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend_from_slice(&[0, 1]);
}

pub(crate) fn invert(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

/// A value that can be a key: text, bytes, a number, or a tuple of parts.
pub trait Key {
    /// Appends the encoded key, or the common prefix of all keys that begin with these parts.
    ///
    /// # Errors
    /// If it is not of the collection's key type.
    fn encode(&self, kind: &KeyKind, is_prefix: bool, out: &mut Vec<u8>) -> Result<(), Malformed>;
}

/// A key that can be decoded.
pub trait OwnedKey: Key + Sized {
    /// Decodes a key; none if the bytes are not a key of that type.
    #[must_use]
    fn decode(kind: &KeyKind, bytes: &[u8]) -> Option<Self>;
}

fn mismatch(kind: &KeyKind) -> Malformed {
    Malformed::new("", format!("a key here must be {}", kind.to_json()))
}

/// Alone in a key it is the key. In a tuple of one part, or as the first part of a bound, it is a part.
macro_rules! lone {
    ($($of:ty, $kind:ident, |$value:ident| $borrowed:expr;)*) => {
        $(impl Key for $of {
            fn encode(
                &self,
                kind: &KeyKind,
                is_prefix: bool,
                out: &mut Vec<u8>,
            ) -> Result<(), Malformed> {
                let $value = self;
                match kind {
                    KeyKind::$kind => out.extend_from_slice($borrowed.as_ref()),
                    KeyKind::Tuple(_) => ($borrowed,).encode(kind, is_prefix, out)?,
                    _ => return Err(mismatch(kind)),
                }
                Ok(())
            }
        })*
    };
}

lone! {
    &str, Text, |text| *text;
    &String, Text, |text| text.as_str();
    String, Text, |text| text.as_str();
    &[u8], Bytes, |bytes| *bytes;
    Vec<u8>, Bytes, |bytes| bytes.as_slice();
}

impl<const N: usize> Key for &[u8; N] {
    fn encode(&self, kind: &KeyKind, is_prefix: bool, out: &mut Vec<u8>) -> Result<(), Malformed> {
        self.as_slice().encode(kind, is_prefix, out)
    }
}

impl OwnedKey for String {
    fn decode(kind: &KeyKind, bytes: &[u8]) -> Option<Self> {
        let bytes = matches!(kind, KeyKind::Text).then_some(bytes)?;
        String::from_utf8(bytes.to_vec()).ok()
    }
}

impl OwnedKey for Vec<u8> {
    fn decode(kind: &KeyKind, bytes: &[u8]) -> Option<Self> {
        matches!(kind, KeyKind::Bytes).then(|| bytes.to_vec())
    }
}

macro_rules! tuples {
    ($($(($part:ident $at:tt))+;)*) => {
        $(impl<$($part: KeyPart),+> Key for ($($part,)+) {
            fn encode(
                &self,
                kind: &KeyKind,
                is_prefix: bool,
                out: &mut Vec<u8>,
            ) -> Result<(), Malformed> {
                let KeyKind::Tuple(parts) = kind else { return Err(mismatch(kind)) };
                let given = [$($at),+].len();
                if given > parts.len() || given < parts.len() && !is_prefix {
                    return Err(mismatch(kind));
                }
                $(if !$part::fits(&parts[$at]) {
                    return Err(mismatch(kind));
                })+
                $(self.$at.put(&parts[$at], out)?;)+
                Ok(())
            }
        }

        impl<$($part: OwnedPart),+> OwnedKey for ($($part,)+) {
            fn decode(kind: &KeyKind, bytes: &[u8]) -> Option<Self> {
                let KeyKind::Tuple(parts) = kind else { return None };
                let fits = [$($part::fits(parts.get($at)?)),+];
                let mut rest = Rest::new(bytes);
                let key = ($($part::take(&mut rest)?,)+);
                let is_whole = rest.is_empty() && fits.len() == parts.len();
                (is_whole && fits.iter().all(|fit| *fit)).then_some(key)
            }
        })*
    };
}

tuples! {
    (A 0);
    (A 0) (B 1);
    (A 0) (B 1) (C 2);
    (A 0) (B 1) (C 2) (D 3);
    (A 0) (B 1) (C 2) (D 3) (E 4);
    (A 0) (B 1) (C 2) (D 3) (E 4) (F 5);
}

macro_rules! numbers {
    ($($of:ident)*) => {
        $(impl Key for $of {
            fn encode(
                &self,
                kind: &KeyKind,
                is_prefix: bool,
                out: &mut Vec<u8>,
            ) -> Result<(), Malformed> {
                (*self,).encode(kind, is_prefix, out)
            }
        }

        impl OwnedKey for $of {
            fn decode(kind: &KeyKind, bytes: &[u8]) -> Option<Self> {
                <($of,)>::decode(kind, bytes).map(|(number,)| number)
            }
        })*
    };
}

numbers! { u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 bool }
