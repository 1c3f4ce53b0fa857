//! Keys whose bytes lie in the order of their values: twin of `js/struct/key.ts`.
//!
//! Text alone is its UTF-8, bytes alone are themselves. All else is a tuple of parts, one number a
//! tuple of one; each part says by itself where it ends, so that tuples sort part by part.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::kind::Plain;
use super::{Malformed, Opt};

/// What a collection's keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyKind {
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// Several parts.
    Tuple(Vec<Part>),
}

/// What a part of a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// A number, a date or a truth value.
    Plain(Plain),
    /// One of some names, as a number of 8 bits.
    Enum8(Vec<String>),
    /// One of some names, as a number of 16 bits.
    Enum16(Vec<String>),
    /// Text.
    Str,
    /// Bytes.
    Bytes,
    /// Something, or nothing, which comes first.
    Option(Box<Part>),
    /// The other way round.
    Desc(Box<Part>),
}

impl KeyKind {
    /// Reads what is stored with a collection. None when it is not known here.
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

    /// As it is stored with a collection.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            KeyKind::Text => json!("string"),
            KeyKind::Bytes => json!("bytes"),
            KeyKind::Tuple(parts) => parts.iter().map(Part::to_json).collect(),
        }
    }
}

/// Parts nest at most so deep.
const DEEPEST: usize = 16;

impl Part {
    /// Reads a part as a descriptor has it. None when it is not known here.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Part> {
        Part::parse(value, DEEPEST)
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

    /// As a descriptor has it.
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

/// The smallest number that a double does not have exactly, with all below it.
const SAFE: u64 = 1 << 53;

/// Appends an unsigned number of so many bytes.
pub(crate) fn put_unsigned(out: &mut Vec<u8>, value: u64, size: usize) {
    out.extend_from_slice(&value.to_be_bytes()[8 - size..]);
}

/// Appends a signed number of so many bytes: negative ones come first.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64, size: usize) {
    let start = out.len();
    out.extend_from_slice(&value.to_be_bytes()[8 - size..]);
    out[start] ^= 0x80;
}

/// Appends the bits of a floating-point number that is a number: negative ones come first, the
/// largest of them last.
pub(crate) fn put_float(out: &mut Vec<u8>, value: f64, as_f32: bool) -> Result<(), Malformed> {
    if value.is_nan() {
        return Err(Malformed::new("", "NaN has no place in an order"));
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

/// Appends text or bytes with an end of their own.
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

/// What is left of a key that is being read, and whether its bytes are inverted.
#[derive(Clone, Copy, Debug)]
pub struct Rest<'a> {
    bytes: &'a [u8],
    inverted: bool,
}

impl<'a> Rest<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        let mut head = *head;
        if self.inverted {
            invert(&mut head);
        }
        Some(head)
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        loop {
            match self.take::<1>()? {
                [0] => match self.take::<1>()? {
                    [0xFF] => out.push(0),
                    [1] => return Some(out),
                    _ => return None,
                },
                [byte] => out.push(byte),
            }
        }
    }
}

/// A value that can be a part of a key.
///
/// Numbers, `bool`, text, bytes, `Option`, and [`Reverse`] for what is stored the other way round. An
/// enum is given as its number, a date as milliseconds since 1970 in an `i64`.
pub trait KeyPart {
    /// Whether it is what a part wants.
    fn fits(part: &Part) -> bool;

    /// Appends it.
    ///
    /// # Errors
    /// When this one value has no place in the order, or is out of range.
    fn put(&self, part: &Part, out: &mut Vec<u8>) -> Result<(), Malformed>;
}

/// A part of a key that can be read back.
pub trait OwnedPart: KeyPart + Sized {
    /// Takes it from the front of a key.
    fn take(rest: &mut Rest<'_>) -> Option<Self>;
}

fn out_of_range(value: impl std::fmt::Display) -> Malformed {
    Malformed::new("", format!("{value} is out of range"))
}

macro_rules! integers {
    ($put:ident as $wide:ident: $($of:ident fits $pattern:pat, reads |$bytes:ident| $read:expr;)*) => {
        $(impl KeyPart for $of {
            fn fits(part: &Part) -> bool {
                matches!(part, $pattern)
            }

            fn put(&self, part: &Part, out: &mut Vec<u8>) -> Result<(), Malformed> {
                let most = match part {
                    Part::Plain(Plain::U53) => SAFE as i128 - 1,
                    Part::Enum8(names) | Part::Enum16(names) => names.len() as i128 - 1,
                    _ => i128::MAX,
                };
                if i128::from(*self) > most {
                    return Err(out_of_range(self));
                }
                $put(out, $wide::from(*self), size_of::<$of>());
                Ok(())
            }
        }

        impl OwnedPart for $of {
            fn take(rest: &mut Rest<'_>) -> Option<Self> {
                let $bytes = rest.take()?;
                Some($read)
            }
        })*
    };
}

integers! { put_unsigned as u64:
    u8 fits Part::Plain(Plain::U8) | Part::Enum8(_), reads |b| u8::from_be_bytes(b);
    u16 fits Part::Plain(Plain::U16) | Part::Enum16(_), reads |b| u16::from_be_bytes(b);
    u32 fits Part::Plain(Plain::U32), reads |b| u32::from_be_bytes(b);
    u64 fits Part::Plain(Plain::U64 | Plain::U53), reads |b| u64::from_be_bytes(b);
}

integers! { put_signed as i64:
    i8 fits Part::Plain(Plain::I8), reads |b| i8::from_be_bytes(b) ^ i8::MIN;
    i16 fits Part::Plain(Plain::I16), reads |b| i16::from_be_bytes(b) ^ i16::MIN;
    i32 fits Part::Plain(Plain::I32), reads |b| i32::from_be_bytes(b) ^ i32::MIN;
    i64 fits Part::Plain(Plain::I64 | Plain::Timestamp), reads |b| i64::from_be_bytes(b) ^ i64::MIN;
}

macro_rules! floats {
    ($($of:ident, $plain:ident, $bits:ident, $as_f32:expr;)*) => {
        $(impl KeyPart for $of {
            fn fits(part: &Part) -> bool {
                matches!(part, Part::Plain(Plain::$plain))
            }

            fn put(&self, _: &Part, out: &mut Vec<u8>) -> Result<(), Malformed> {
                put_float(out, f64::from(*self), $as_f32)
            }
        }

        impl OwnedPart for $of {
            fn take(rest: &mut Rest<'_>) -> Option<Self> {
                let bits = $bits::from_be_bytes(rest.take()?);
                let is_positive = bits >> ($bits::BITS - 1) == 1;
                Some($of::from_bits(if is_positive { bits << 1 >> 1 } else { !bits }))
            }
        })*
    };
}

floats! { f32, F32, u32, true; f64, F64, u64, false; }

impl KeyPart for bool {
    fn fits(part: &Part) -> bool {
        matches!(part, Part::Plain(Plain::Bool))
    }

    fn put(&self, _: &Part, out: &mut Vec<u8>) -> Result<(), Malformed> {
        out.push(u8::from(*self));
        Ok(())
    }
}

impl OwnedPart for bool {
    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        match rest.take()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

macro_rules! texts {
    ($($of:ty, $part:ident, |$value:ident| $as_bytes:expr;)*) => {
        $(impl KeyPart for $of {
            fn fits(part: &Part) -> bool {
                matches!(part, Part::$part)
            }

            fn put(&self, _: &Part, out: &mut Vec<u8>) -> Result<(), Malformed> {
                let $value = self;
                put_bytes(out, $as_bytes);
                Ok(())
            }
        })*
    };
}

texts! {
    &str, Str, |text| text.as_bytes();
    String, Str, |text| text.as_bytes();
    &[u8], Bytes, |bytes| bytes;
    Vec<u8>, Bytes, |bytes| bytes;
}

impl OwnedPart for String {
    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        String::from_utf8(rest.text()?).ok()
    }
}

impl OwnedPart for Vec<u8> {
    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        rest.text()
    }
}

impl<T: KeyPart> KeyPart for Option<T> {
    fn fits(part: &Part) -> bool {
        matches!(part, Part::Option(of) if T::fits(of))
    }

    fn put(&self, part: &Part, out: &mut Vec<u8>) -> Result<(), Malformed> {
        out.push(u8::from(self.is_some()));
        match (self, part) {
            (Some(value), Part::Option(of)) => value.put(of, out),
            _ => Ok(()),
        }
    }
}

impl<T: OwnedPart> OwnedPart for Option<T> {
    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        match rest.take()? {
            [0] => Some(None),
            [1] => Some(Some(T::take(rest)?)),
            _ => None,
        }
    }
}

impl<T: KeyPart + Copy> KeyPart for Opt<T> {
    fn fits(part: &Part) -> bool {
        Option::<T>::fits(part)
    }

    fn put(&self, part: &Part, out: &mut Vec<u8>) -> Result<(), Malformed> {
        self.get().put(part, out)
    }
}

impl<T: KeyPart> KeyPart for Reverse<T> {
    fn fits(part: &Part) -> bool {
        matches!(part, Part::Desc(of) if T::fits(of))
    }

    fn put(&self, part: &Part, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let Part::Desc(of) = part else { return Ok(()) };
        let start = out.len();
        self.0.put(of, out)?;
        invert(&mut out[start..]);
        Ok(())
    }
}

impl<T: OwnedPart> OwnedPart for Reverse<T> {
    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        rest.inverted = !rest.inverted;
        let value = T::take(rest);
        rest.inverted = !rest.inverted;
        value.map(Reverse)
    }
}

/// A value that can be a key: text, bytes, a number, or a tuple of parts.
pub trait Key {
    /// Appends the key, or what all keys that begin with these parts begin with.
    ///
    /// # Errors
    /// When it is not what the collection's keys are.
    fn encode(&self, kind: &KeyKind, is_prefix: bool, out: &mut Vec<u8>) -> Result<(), Malformed>;
}

/// A key that can be read back.
pub trait OwnedKey: Key + Sized {
    /// The key in these bytes; none when they are no key of that kind.
    #[must_use]
    fn decode(kind: &KeyKind, bytes: &[u8]) -> Option<Self>;
}

fn mismatch(kind: &KeyKind) -> Malformed {
    Malformed::new("", format!("a key here has to be {}", kind.to_json()))
}

macro_rules! lone {
    ($($of:ty, $kind:ident, |$value:ident| $as_bytes:expr;)*) => {
        $(impl Key for $of {
            fn encode(&self, kind: &KeyKind, _: bool, out: &mut Vec<u8>) -> Result<(), Malformed> {
                let (KeyKind::$kind, $value) = (kind, self) else { return Err(mismatch(kind)) };
                out.extend_from_slice($as_bytes);
                Ok(())
            }
        })*
    };
}

lone! {
    &str, Text, |text| text.as_bytes();
    &String, Text, |text| text.as_bytes();
    String, Text, |text| text.as_bytes();
    &[u8], Bytes, |bytes| bytes;
    Vec<u8>, Bytes, |bytes| bytes;
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
                let mut rest = Rest { bytes, inverted: false };
                let key = ($($part::take(&mut rest)?,)+);
                let is_whole = rest.bytes.is_empty() && fits.len() == parts.len();
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
