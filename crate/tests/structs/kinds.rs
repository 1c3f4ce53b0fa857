//! The schema of a Rust type: its descriptor, its layout string, and its loaded values as JSON.
//! Written by hand, independently of what the crate derives.

use std::mem::size_of;
use std::num::{
    NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64, NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64,
};

use musli_zerocopy::{Buf, Ref, ZeroCopy};

/// Why a value is invalid: the field, and a word for the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub at: String,
    pub why: String,
}

impl Wrong {
    /// The error of musli, which does not know fields.
    fn musli(error: musli_zerocopy::Error) -> Wrong {
        let text = error.to_string();
        let why = [
            ("Alignment", "alignment"),
            ("Layout mismatch", "range"),
            ("out of bound", "range"),
            ("utf-8", "UTF-8"),
            ("bool", "bool"),
            ("discriminant", "discriminant"),
        ]
        .into_iter()
        .find(|(part, _)| text.contains(part))
        .map_or(text.clone(), |(_, word)| word.to_owned());
        Wrong { at: String::new(), why }
    }

    fn below(self, name: &str) -> Wrong {
        let dot = if self.at.is_empty() || self.at.starts_with('[') { "" } else { "." };
        Wrong { at: format!("{name}{dot}{}", self.at), why: self.why }
    }
}

pub type Json = Result<String, Wrong>;

pub trait Type: ZeroCopy {
    /// The descriptor, as JSON.
    fn kind() -> String;

    /// The part of the layout string.
    fn layout() -> String;

    fn json(&self, buf: &Buf) -> Json;

    /// The prefix of a field's name in the layout string if it has this type.
    const PREFIX: &'static str = "";

    /// Adds a field of this type to the JSON of its struct.
    fn members(&self, name: &str, buf: &Buf, out: &mut Vec<String>) -> Result<(), Wrong> {
        let json = self.json(buf).map_err(|wrong| wrong.below(name))?;
        out.push(format!("{}:{json}", quoted(name)));
        Ok(())
    }

    /// Adds the names, offsets and sizes of a field of this type to those of its struct.
    fn offsets(name: &str, offset: usize, out: &mut Vec<String>) {
        out.push(format!("[{},{offset},{}]", quoted(name), size_of::<Self>()));
    }
}

/// Loads a struct with all checks of musli.
pub fn load<T: Type>(buf: &Buf) -> Json {
    buf.load_at::<T>(0).map_err(Wrong::musli)?.json(buf)
}

pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            letter if letter < ' ' => out.push_str(&format!("\\u{:04x}", letter as u32)),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// Standard base64, with padding.
pub fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for part in bytes.chunks(3) {
        let at = |index: usize| u32::from(part.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let shown = digit <= part.len();
            let index = (bits >> (18 - 6 * digit) & 63) as usize;
            out.push(if shown { DIGITS[index] as char } else { '=' });
        }
    }
    out
}

/// Escapes characters that are special in layout strings with a backslash.
pub fn escaped(name: &str) -> String {
    let special = "\\,:;()[]{}|&.";
    name.chars()
        .flat_map(|letter| special.contains(letter).then_some('\\').into_iter().chain([letter]))
        .collect()
}

/// 64-bit FNV-1a in 16 digits.
pub fn fingerprint(layout: &str) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in layout.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")
}

fn simple(name: &str) -> String {
    format!("{{\"kind\":\"{name}\"}}")
}

macro_rules! plain {
    ($($type:ident)*) => {$(
        impl Type for $type {
            fn kind() -> String {
                simple(stringify!($type))
            }
            fn layout() -> String {
                stringify!($type).into()
            }
            fn json(&self, _: &Buf) -> Json {
                Ok(self.to_string())
            }
        }
    )*};
}
plain!(u8 u16 u32 i8 i16 i32 bool);

/// 64-bit numbers are written as strings, because JSON readers round numbers above 2^53.
macro_rules! long {
    ($($type:ident)*) => {$(
        impl Type for $type {
            fn kind() -> String {
                simple(stringify!($type))
            }
            fn layout() -> String {
                stringify!($type).into()
            }
            fn json(&self, _: &Buf) -> Json {
                Ok(format!("\"{self}\""))
            }
        }
    )*};
}
long!(u64 i64);

/// Numbers that are not finite are written as strings with their names.
macro_rules! float {
    ($($type:ident)*) => {$(
        impl Type for $type {
            fn kind() -> String {
                simple(stringify!($type))
            }
            fn layout() -> String {
                stringify!($type).into()
            }
            fn json(&self, _: &Buf) -> Json {
                let value = f64::from(*self);
                Ok(match value {
                    f64::INFINITY => "\"Infinity\"".into(),
                    f64::NEG_INFINITY => "\"-Infinity\"".into(),
                    value if value.is_nan() => "\"NaN\"".into(),
                    value => format!("{value:?}"),
                })
            }
        }
    )*};
}
float!(f32 f64);

/// A newtype for numbers that JavaScript represents exactly.
macro_rules! safe {
    ($name:ident($of:ident), $kind:literal, $why:literal, $range:expr) => {
        #[derive(ZeroCopy, Clone, Copy)]
        #[repr(transparent)]
        pub struct $name(pub $of);

        impl Type for $name {
            fn kind() -> String {
                simple($kind)
            }
            fn layout() -> String {
                stringify!($of).into()
            }
            fn json(&self, _: &Buf) -> Json {
                let wrong = || Wrong { at: String::new(), why: $why.into() };
                $range.contains(&self.0).then(|| self.0.to_string()).ok_or_else(wrong)
            }
        }
    };
}
safe!(U53(u64), "u53", "number", (0..=(1 << 53) - 1));
safe!(Timestamp(i64), "timestamp", "number", (-8_640_000_000_000_000..=8_640_000_000_000_000));

impl<const N: usize> Type for [u8; N] {
    fn kind() -> String {
        format!("{{\"kind\":\"bytes\",\"length\":{N}}}")
    }
    fn layout() -> String {
        format!("[u8;{N}]")
    }
    fn json(&self, _: &Buf) -> Json {
        Ok(format!("\"{}\"", base64(self)))
    }
}

/// `[T; N]` as a newtype, because `[u8; N]` is `bytes`.
#[derive(ZeroCopy, Clone, Copy)]
#[repr(transparent)]
#[zero_copy(bounds = {T: ZeroCopy})]
pub struct Array<T, const N: usize>(pub [T; N]);

impl<T: Type, const N: usize> Type for Array<T, N> {
    fn kind() -> String {
        format!("{{\"kind\":\"array\",\"of\":{},\"length\":{N}}}", T::kind())
    }
    fn layout() -> String {
        format!("[{};{N}]", T::layout())
    }
    fn json(&self, buf: &Buf) -> Json {
        list(&self.0, buf)
    }
}

fn list<T: Type>(items: &[T], buf: &Buf) -> Json {
    let shown: Result<Vec<_>, _> = items
        .iter()
        .enumerate()
        .map(|(index, item)| item.json(buf).map_err(|wrong| wrong.below(&format!("[{index}]"))))
        .collect();
    Ok(format!("[{}]", shown?.join(",")))
}

/// Text in UTF-8, padded with zeros.
#[derive(ZeroCopy, Clone, Copy)]
#[repr(transparent)]
pub struct FixedStr<const N: usize>(pub [u8; N]);

impl<const N: usize> From<&str> for FixedStr<N> {
    fn from(text: &str) -> FixedStr<N> {
        let mut bytes = [0; N];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        FixedStr(bytes)
    }
}

impl<const N: usize> Type for FixedStr<N> {
    fn kind() -> String {
        format!("{{\"kind\":\"fixedStr\",\"length\":{N}}}")
    }
    fn layout() -> String {
        format!("str;{N}")
    }
    fn json(&self, _: &Buf) -> Json {
        let end = self.0.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let wrong = |why: &str| Wrong { at: String::new(), why: why.into() };
        let text = std::str::from_utf8(&self.0[..end]).map_err(|_| wrong("UTF-8"))?;
        if text.contains('\0') { Err(wrong("zero")) } else { Ok(quoted(text)) }
    }
}

impl Type for Ref<str> {
    fn kind() -> String {
        simple("str")
    }
    fn layout() -> String {
        "&str".into()
    }
    fn json(&self, buf: &Buf) -> Json {
        Ok(quoted(buf.load(*self).map_err(Wrong::musli)?))
    }
}

#[derive(ZeroCopy, Clone, Copy)]
#[repr(transparent)]
pub struct Blob(pub Ref<[u8]>);

impl Type for Blob {
    fn kind() -> String {
        simple("blob")
    }
    fn layout() -> String {
        "&[u8]".into()
    }
    fn json(&self, buf: &Buf) -> Json {
        Ok(format!("\"{}\"", base64(buf.load(self.0).map_err(Wrong::musli)?)))
    }
}

impl<T: Type> Type for Ref<[T]> {
    fn kind() -> String {
        format!("{{\"kind\":\"vec\",\"of\":{}}}", T::kind())
    }
    fn layout() -> String {
        format!("&[{}]", T::layout())
    }
    fn json(&self, buf: &Buf) -> Json {
        list(buf.load(*self).map_err(Wrong::musli)?, buf)
    }
}

/// A substitute for `Option`, whose layout Rust does not specify.
#[derive(ZeroCopy, Clone, Copy)]
#[repr(u8)]
#[zero_copy(bounds = {T: ZeroCopy})]
pub enum Opt<T> {
    None = 0,
    Some(T) = 1,
}

impl<T: Type> Type for Opt<T> {
    fn kind() -> String {
        format!("{{\"kind\":\"option\",\"of\":{}}}", T::kind())
    }
    fn layout() -> String {
        format!("opt({})", T::layout())
    }
    fn json(&self, buf: &Buf) -> Json {
        match self {
            Opt::None => Ok("null".into()),
            Opt::Some(value) => value.json(buf),
        }
    }
}

macro_rules! non_zero {
    ($($type:ident($of:ident))*) => {$(
        impl Type for Option<$type> {
            fn kind() -> String {
                format!("{{\"kind\":\"optNonZero\",\"of\":{}}}", $of::kind())
            }
            fn layout() -> String {
                format!("nz({})", stringify!($of))
            }
            fn json(&self, buf: &Buf) -> Json {
                self.map_or(Ok("null".into()), |value| value.get().json(buf))
            }
        }
    )*};
}
non_zero!(NonZeroU8(u8) NonZeroU16(u16) NonZeroU32(u32) NonZeroU64(u64));
non_zero!(NonZeroI8(i8) NonZeroI16(i16) NonZeroI32(i32) NonZeroI64(i64));

/// A struct whose fields belong to its parent.
#[derive(ZeroCopy, Clone, Copy)]
#[repr(transparent)]
#[zero_copy(bounds = {T: ZeroCopy})]
pub struct Flat<T>(pub T);

/// The fields of a struct, for flattening.
pub trait Fields: Type {
    const NAME: &'static str;
    fn all_members(&self, buf: &Buf, out: &mut Vec<String>) -> Result<(), Wrong>;
    fn all_offsets(base: usize, out: &mut Vec<String>);
}

impl<T: Fields> Type for Flat<T> {
    const PREFIX: &'static str = "..";
    fn kind() -> String {
        format!("{{\"kind\":\"flatten\",\"of\":{}}}", T::kind())
    }
    fn layout() -> String {
        T::layout()
    }
    fn json(&self, buf: &Buf) -> Json {
        self.0.json(buf)
    }
    fn members(&self, _: &str, buf: &Buf, out: &mut Vec<String>) -> Result<(), Wrong> {
        self.0.all_members(buf, out)
    }
    fn offsets(_: &str, offset: usize, out: &mut Vec<String>) {
        T::all_offsets(offset, out);
    }
}

/// The end of a struct's descriptor, and the start of its layout string.
pub struct Shape(pub &'static str, pub &'static str);
pub const PLAIN: Shape = Shape("", "{");
pub const VERSIONED: Shape = Shape(",\"versioned\":true", "v{");
