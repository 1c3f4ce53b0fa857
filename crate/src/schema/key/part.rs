//! Values that can be parts of keys: encoded so that their byte order is their order, and decoded.

use std::cmp::Reverse;

use super::{Part, invert, put_bytes, put_float, put_signed, put_unsigned};
use crate::schema::descriptor::Plain;
use crate::schema::{Malformed, Opt};

/// 2^53: a double represents all smaller integers exactly.
const SAFE: u64 = 1 << 53;

/// The rest of a key that is being decoded, and whether its bytes are inverted.
#[derive(Clone, Copy, Debug)]
pub struct Rest<'a> {
    bytes: &'a [u8],
    inverted: bool,
}

impl<'a> Rest<'a> {
    pub(in crate::schema) fn new(bytes: &'a [u8]) -> Self {
        Rest { bytes, inverted: false }
    }

    pub(in crate::schema) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What follows is inverted, or not any more.
    #[cfg(feature = "json")]
    pub(in crate::schema) fn turn(&mut self) {
        self.inverted = !self.inverted;
    }

    pub(in crate::schema) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        let mut head = *head;
        if self.inverted {
            invert(&mut head);
        }
        Some(head)
    }

    pub(in crate::schema) fn text(&mut self) -> Option<Vec<u8>> {
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
/// Numbers, `bool`, text, bytes, `Option`, and [`Reverse`] for descending order. An enum is passed
/// as its number, a date as milliseconds since 1970 in an `i64`.
pub trait KeyPart {
    /// Whether the type matches a part.
    fn fits(part: &Part) -> bool;

    /// Appends the encoded value.
    ///
    /// # Errors
    /// If this value has no order, or is out of range.
    fn put(&self, part: &Part, out: &mut Vec<u8>) -> Result<(), Malformed>;
}

/// A part of a key that can be decoded.
pub trait OwnedPart: KeyPart + Sized {
    /// Decodes it from the front of a key.
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
