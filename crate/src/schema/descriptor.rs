//! Layouts as stored in a file: the descriptor of a collection.

use std::fmt;

use serde_json::{Value, json};

use super::layout::{Layout, Shape, is_special};

/// A layout as a tree that was read from a file or made from a [`Layout`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A number, a date or a boolean.
    Plain(Plain),
    /// One of these names, as an 8-bit number.
    Enum8(Vec<String>),
    /// One of these names, as a 16-bit number.
    Enum16(Vec<String>),
    /// A fixed number of bytes.
    Bytes(usize),
    /// Text in a fixed number of bytes, padded with zeros.
    FixedStr(usize),
    /// Text stored after the root.
    Str,
    /// Bytes stored after the root.
    Blob,
    /// A fixed number of elements.
    Array(Box<Kind>, usize),
    /// Any number of elements, stored after the root.
    Vec(Box<Kind>),
    /// Fields in order.
    Struct {
        /// Its name, which is not part of its fingerprint.
        name: String,
        /// Its fields, in order.
        fields: Vec<Field>,
        /// Whether a `u16` with the size of the root precedes them.
        versioned: bool,
    },
    /// A struct whose field names belong to the enclosing struct.
    Flatten(Box<Kind>),
    /// An optional value.
    Option(Box<Kind>),
    /// A number for which 0 means none.
    OptNonZero(Box<Kind>),
    /// One of several variants, selected by an 8-bit number.
    Union {
        /// Its name, which is not part of its fingerprint.
        name: String,
        /// Its variants, numbered from 0.
        variants: Vec<Variant>,
    },
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its layout.
    pub kind: Kind,
}

/// A variant of a union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// The kind of its data; `None` for a variant without data.
    pub kind: Option<Kind>,
}

/// A type of fixed size without parts.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    U8,
    U16,
    U32,
    U64,
    U53,
    I8,
    I16,
    I32,
    I64,
    Timestamp,
    F32,
    F64,
    Bool,
}

use Plain::{Bool, F32, F64, I8, I16, I32, I64, Timestamp, U8, U16, U32, U53, U64};

/// The name in descriptors, the name in layout strings, and the size of each type.
const PLAIN: [(Plain, &str, &str, usize); 13] = [
    (U8, "u8", "u8", 1),
    (U16, "u16", "u16", 2),
    (U32, "u32", "u32", 4),
    (U64, "u64", "u64", 8),
    (U53, "u53", "u64", 8),
    (I8, "i8", "i8", 1),
    (I16, "i16", "i16", 2),
    (I32, "i32", "i32", 4),
    (I64, "i64", "i64", 8),
    (Timestamp, "timestamp", "i64", 8),
    (F32, "f32", "f32", 4),
    (F64, "f64", "f64", 8),
    (Bool, "bool", "bool", 1),
];

impl Plain {
    /// The name in descriptors, which is that in TypeScript.
    #[must_use]
    pub fn name(self) -> &'static str {
        PLAIN[self as usize].1
    }

    /// The name in layout strings.
    fn layout(self) -> &'static str {
        PLAIN[self as usize].2
    }

    /// The size in bytes.
    #[must_use]
    pub fn size(self) -> usize {
        PLAIN[self as usize].3
    }

    /// The type with this name in descriptors.
    #[must_use]
    pub fn named(name: &str) -> Option<Plain> {
        PLAIN.iter().find(|plain| plain.1 == name).map(|plain| plain.0)
    }
}

/// What is wrong with bytes, a value, or a descriptor, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The field as a path; empty for the whole value.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Malformed {
    pub(crate) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Malformed { field: field.into(), reason: reason.into() }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.reason),
            field => write!(f, "{field}: {}", self.reason),
        }
    }
}

impl std::error::Error for Malformed {}

impl From<musli_zerocopy::Error> for Malformed {
    fn from(error: musli_zerocopy::Error) -> Self {
        Malformed::new("", error.to_string())
    }
}

impl From<&Layout> for Kind {
    fn from(layout: &Layout) -> Kind {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let of = |layout: &Layout| Box::new(Kind::from(layout));
        match *layout {
            Layout::U8 => Kind::Plain(U8),
            Layout::U16 => Kind::Plain(U16),
            Layout::U32 => Kind::Plain(U32),
            Layout::U64 => Kind::Plain(U64),
            Layout::U53 => Kind::Plain(U53),
            Layout::I8 => Kind::Plain(I8),
            Layout::I16 => Kind::Plain(I16),
            Layout::I32 => Kind::Plain(I32),
            Layout::I64 => Kind::Plain(I64),
            Layout::Timestamp => Kind::Plain(Timestamp),
            Layout::F32 => Kind::Plain(F32),
            Layout::F64 => Kind::Plain(F64),
            Layout::Bool => Kind::Plain(Bool),
            Layout::Enum8(variants) => Kind::Enum8(names(variants)),
            Layout::Enum16(variants) => Kind::Enum16(names(variants)),
            Layout::Bytes(n) => Kind::Bytes(n),
            Layout::FixedStr(n) => Kind::FixedStr(n),
            Layout::Str => Kind::Str,
            Layout::Blob => Kind::Blob,
            Layout::Array(inner, n) => Kind::Array(of(inner), n),
            Layout::Vec(inner) => Kind::Vec(of(inner)),
            Layout::Struct(ref shape) => Kind::from(shape),
            Layout::Flatten(inner) => Kind::Flatten(of(inner)),
            Layout::Option(inner) => Kind::Option(of(inner)),
            Layout::OptNonZero(inner) => Kind::OptNonZero(of(inner)),
            Layout::Union(name, variants) => {
                let variant = |&(name, kind): &(&str, Option<&'static Layout>)| Variant {
                    name: name.to_string(),
                    kind: kind.map(Kind::from),
                };
                Kind::Union {
                    name: name.to_string(),
                    variants: variants.iter().map(variant).collect(),
                }
            }
        }
    }
}

impl From<&Shape> for Kind {
    fn from(shape: &Shape) -> Kind {
        let field = |&(name, layout): &(&str, &'static Layout)| Field {
            name: name.to_string(),
            kind: Kind::from(layout),
        };
        Kind::Struct {
            name: shape.name.to_string(),
            fields: shape.fields.iter().map(field).collect(),
            versioned: shape.versioned,
        }
    }
}

/// The maximum nesting of layouts.
const MAX_DEPTH: usize = 64;

impl Kind {
    /// Reads a descriptor. None if it is invalid, or of a newer version with kinds that are unknown
    /// here.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Kind> {
        Kind::parse(value, MAX_DEPTH)
    }

    fn parse(value: &Value, depth: usize) -> Option<Kind> {
        let depth = depth.checked_sub(1)?;
        let name = value.get("kind")?.as_str()?;
        if let Some(plain) = Plain::named(name) {
            return Some(Kind::Plain(plain));
        }
        let of = || Some(Box::new(Kind::parse(value.get("of")?, depth)?));
        let length = || usize::try_from(value.get("length")?.as_u64()?).ok();
        Some(match name {
            "enum8" => Kind::Enum8(names_in(value)?),
            "enum16" => Kind::Enum16(names_in(value)?),
            "bytes" => Kind::Bytes(length()?),
            "fixedStr" => Kind::FixedStr(length()?),
            "str" => Kind::Str,
            "blob" => Kind::Blob,
            "array" => Kind::Array(of()?, length()?),
            "vec" => Kind::Vec(of()?),
            "struct" => Kind::Struct {
                name: name_of(value),
                fields: fields_in(value, depth)?,
                versioned: value.get("versioned").and_then(Value::as_bool) == Some(true),
            },
            "flatten" => Kind::Flatten(of()?),
            "option" => Kind::Option(of()?),
            "optNonZero" => Kind::OptNonZero(of()?),
            "union" => Kind::Union { name: name_of(value), variants: variants_in(value, depth)? },
            _ => return None,
        })
    }

    /// The descriptor, as it is stored with a collection.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Kind::Plain(plain) => json!({ "kind": plain.name() }),
            Kind::Enum8(names) => json!({ "kind": "enum8", "variants": names }),
            Kind::Enum16(names) => json!({ "kind": "enum16", "variants": names }),
            Kind::Bytes(n) => json!({ "kind": "bytes", "length": n }),
            Kind::FixedStr(n) => json!({ "kind": "fixedStr", "length": n }),
            Kind::Str => json!({ "kind": "str" }),
            Kind::Blob => json!({ "kind": "blob" }),
            Kind::Array(of, n) => json!({ "kind": "array", "of": of.to_json(), "length": n }),
            Kind::Vec(of) => json!({ "kind": "vec", "of": of.to_json() }),
            Kind::Struct { name, fields, versioned } => {
                let fields: Vec<Value> =
                    fields.iter().map(|field| json!([field.name, field.kind.to_json()])).collect();
                let mut value = json!({ "kind": "struct", "name": name, "fields": fields });
                if *versioned {
                    value["versioned"] = json!(true);
                }
                value
            }
            Kind::Flatten(of) => json!({ "kind": "flatten", "of": of.to_json() }),
            Kind::Option(of) => json!({ "kind": "option", "of": of.to_json() }),
            Kind::OptNonZero(of) => json!({ "kind": "optNonZero", "of": of.to_json() }),
            Kind::Union { name, variants } => {
                let variant =
                    |one: &Variant| json!([one.name, one.kind.as_ref().map(Kind::to_json)]);
                let variants: Vec<Value> = variants.iter().map(variant).collect();
                json!({ "kind": "union", "name": name, "variants": variants })
            }
        }
    }

    /// The canonical layout string.
    #[must_use]
    pub fn layout(&self) -> String {
        let mut out = String::new();
        self.write_layout(&mut out);
        out
    }

    /// FNV-1a-64 of the canonical layout string.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        super::layout::Fnv::NEW.text(&self.layout()).0
    }

    fn write_layout(&self, out: &mut String) {
        let wrapped = |out: &mut String, open: &str, of: &Kind, close: &str| {
            out.push_str(open);
            of.write_layout(out);
            out.push_str(close);
        };
        match self {
            Kind::Plain(plain) => out.push_str(plain.layout()),
            Kind::Enum8(names) => write_names(out, "e8(", names),
            Kind::Enum16(names) => write_names(out, "e16(", names),
            Kind::Bytes(n) => out.push_str(&format!("[u8;{n}]")),
            Kind::FixedStr(n) => out.push_str(&format!("str;{n}")),
            Kind::Str => out.push_str("&str"),
            Kind::Blob => out.push_str("&[u8]"),
            Kind::Array(of, n) => wrapped(out, "[", of, &format!(";{n}]")),
            Kind::Vec(of) => wrapped(out, "&[", of, "]"),
            Kind::Struct { fields, versioned, .. } => {
                out.push_str(if *versioned { "v{" } else { "{" });
                for (at, Field { name, kind }) in fields.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    out.push_str(if matches!(kind, Kind::Flatten(_)) { ".." } else { "" });
                    write_name(out, name);
                    wrapped(out, ":", kind, "");
                }
                out.push('}');
            }
            Kind::Flatten(of) => of.write_layout(out),
            Kind::Option(of) => wrapped(out, "opt(", of, ")"),
            Kind::OptNonZero(of) => wrapped(out, "nz(", of, ")"),
            Kind::Union { variants, .. } => {
                out.push_str("{|");
                for (at, Variant { name, kind }) in variants.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    write_name(out, name);
                    if let Some(kind) = kind {
                        wrapped(out, ":", kind, "");
                    }
                }
                out.push_str("|}");
            }
        }
    }

    /// Size and alignment of a value's root.
    #[must_use]
    pub fn size_and_align(&self) -> (usize, usize) {
        match self {
            Kind::Plain(plain) => (plain.size(), plain.size()),
            Kind::Enum8(_) => (1, 1),
            Kind::Enum16(_) => (2, 2),
            Kind::Bytes(n) | Kind::FixedStr(n) => (*n, 1),
            Kind::Str | Kind::Blob | Kind::Vec(_) => (8, 4),
            Kind::Array(of, n) => {
                let (size, align) = of.size_and_align();
                (size.saturating_mul(*n), align)
            }
            Kind::Struct { .. } => {
                let (mut end, mut most) = (0, 1);
                self.each_field(|_, kind, at| {
                    let (size, align) = kind.size_and_align();
                    (end, most) = (at.saturating_add(size), most.max(align));
                });
                if let Kind::Struct { versioned: true, .. } = self {
                    (end, most) = (end.max(2), most.max(2));
                }
                (aligned(end, most), most)
            }
            Kind::Flatten(of) | Kind::OptNonZero(of) => of.size_and_align(),
            Kind::Option(of) => tagged([Some(&**of)].into_iter()),
            Kind::Union { variants, .. } => tagged(variants.iter().map(|one| one.kind.as_ref())),
        }
    }

    /// Calls `visit` with each field of a struct, its kind and its offset.
    pub(crate) fn each_field<'a>(&'a self, mut visit: impl FnMut(&'a str, &'a Kind, usize)) {
        let Kind::Struct { fields, versioned, .. } = self else { return };
        let mut end = if *versioned { 2 } else { 0 };
        for Field { name, kind } in fields {
            let (size, align) = kind.size_and_align();
            let at = aligned(end, align);
            visit(name, kind, at);
            end = at.saturating_add(size);
        }
    }

    /// The field with this name, including those of flattened structs, and its offset.
    #[must_use]
    pub fn field(&self, wanted: &str) -> Option<(&Kind, usize)> {
        let mut found = None;
        self.each_field(|name, kind, at| {
            if let Kind::Flatten(of) = kind {
                let inner = of.field(wanted).map(|(kind, offset)| (kind, at + offset));
                found = found.or(inner);
            } else if name == wanted {
                found = found.or(Some((kind, at)));
            }
        });
        found
    }
}

/// `n` rounded up to a power of two.
pub(super) fn aligned(n: usize, align: usize) -> usize {
    n.checked_next_multiple_of(align).unwrap_or(usize::MAX)
}

/// The size and alignment of a one-byte tag followed by one of several payloads, each at its own
/// alignment.
fn tagged<'a>(payloads: impl Iterator<Item = Option<&'a Kind>>) -> (usize, usize) {
    let (mut end, mut most) = (1, 1);
    for kind in payloads.flatten() {
        let (size, align) = kind.size_and_align();
        end = end.max(aligned(1, align).saturating_add(size));
        most = most.max(align);
    }
    (aligned(end, most), most)
}

fn write_name(out: &mut String, name: &str) {
    for character in name.chars() {
        if u8::try_from(character).is_ok_and(is_special) {
            out.push('\\');
        }
        out.push(character);
    }
}

fn write_names(out: &mut String, open: &str, names: &[String]) {
    out.push_str(open);
    for (at, name) in names.iter().enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        write_name(out, name);
    }
    out.push(')');
}

fn name_of(value: &Value) -> String {
    value.get("name").and_then(Value::as_str).unwrap_or_default().to_string()
}

fn names_in(value: &Value) -> Option<Vec<String>> {
    let names = value.get("variants")?.as_array()?;
    names.iter().map(|name| Some(name.as_str()?.to_string())).collect()
}

fn pairs<'a>(value: &'a Value, under: &str) -> Option<Vec<(String, &'a Value)>> {
    let pairs = value.get(under)?.as_array()?;
    pairs.iter().map(|pair| Some((pair.get(0)?.as_str()?.to_string(), pair.get(1)?))).collect()
}

fn fields_in(value: &Value, depth: usize) -> Option<Vec<Field>> {
    let field = |(name, value)| Some(Field { name, kind: Kind::parse(value, depth)? });
    pairs(value, "fields")?.into_iter().map(field).collect()
}

fn variants_in(value: &Value, depth: usize) -> Option<Vec<Variant>> {
    let variant = |(name, value): (String, &Value)| {
        let kind = match value {
            Value::Null => None,
            value => Some(Kind::parse(value, depth)?),
        };
        Some(Variant { name, kind })
    };
    pairs(value, "variants")?.into_iter().map(variant).collect()
}
