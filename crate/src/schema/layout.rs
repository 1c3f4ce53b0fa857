//! The layout of a record as a constant, and its fingerprint.
//!
//! The canonical layout string is that of the TypeScript package: programs with the same one can
//! read each other's bytes. It is hashed while it is generated, so that a fingerprint is a
//! constant.

/// A layout as a tree of constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// An unsigned 8-bit number.
    U8,
    /// An unsigned 16-bit number.
    U16,
    /// An unsigned 32-bit number.
    U32,
    /// An unsigned 64-bit number; a `bigint` in TypeScript.
    U64,
    /// An unsigned 64-bit number of at most 2^53 - 1; a number in TypeScript.
    U53,
    /// A signed 8-bit number.
    I8,
    /// A signed 16-bit number.
    I16,
    /// A signed 32-bit number.
    I32,
    /// A signed 64-bit number.
    I64,
    /// Milliseconds since 1970 as an `i64`; a number in TypeScript, which also accepts a `Date`.
    Timestamp,
    /// A 32-bit floating-point number.
    F32,
    /// A 64-bit floating-point number.
    F64,
    /// A boolean in one byte.
    Bool,
    /// One of these names, as an 8-bit number.
    Enum8(&'static [&'static str]),
    /// One of these names, as a 16-bit number.
    Enum16(&'static [&'static str]),
    /// A fixed number of bytes.
    Bytes(usize),
    /// Text in a fixed number of bytes, padded with zeros.
    FixedStr(usize),
    /// Text stored after the root.
    Str,
    /// Bytes stored after the root.
    Blob,
    /// A fixed number of elements.
    Array(&'static Layout, usize),
    /// Any number of elements, stored after the root.
    Vec(&'static Layout),
    /// Fields in order.
    Struct(Shape),
    /// A struct whose field names belong to the enclosing struct.
    Flatten(&'static Layout),
    /// An optional value.
    Option(&'static Layout),
    /// A number for which 0 means none.
    OptNonZero(&'static Layout),
    /// One of several variants, selected by an 8-bit number.
    Union(&'static str, &'static [(&'static str, Option<&'static Layout>)]),
}

/// The description of a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its name, which is not part of its fingerprint.
    pub name: &'static str,
    /// The names and layouts of its fields, in order.
    pub fields: &'static [(&'static str, &'static Layout)],
    /// Whether a `u16` with the size of the root precedes all fields.
    pub versioned: bool,
}

impl Shape {
    /// Returns the shape after checking it.
    ///
    /// # Panics
    /// If it has no fields, two with the same name (including those of flattened structs), or
    /// contains a versioned struct. In a constant, this is a compile error.
    #[must_use]
    pub const fn checked(self) -> Shape {
        let count = self.leaves();
        assert!(count > 0, "a varve record needs at least one field");
        let mut at = 0;
        while at < count {
            let name = self.leaf(at);
            let mut other = 0;
            while other < at {
                assert!(
                    !is_same(name, self.leaf(other)),
                    "two fields have the same name: fields of flattened structs count too"
                );
                other += 1;
            }
            at += 1;
        }
        let mut at = 0;
        while at < self.fields.len() {
            assert!(
                !self.fields[at].1.contains_versioned(),
                "a struct cannot contain a versioned one"
            );
            at += 1;
        }
        self
    }

    /// How many fields it has, including those of flattened structs.
    const fn leaves(&self) -> usize {
        let (mut at, mut count) = (0, 0);
        while at < self.fields.len() {
            count += self.fields[at].1.leaves();
            at += 1;
        }
        count
    }

    /// The name of one of these fields.
    const fn leaf(&self, mut index: usize) -> &'static str {
        let mut at = 0;
        while index >= self.fields[at].1.leaves() {
            index -= self.fields[at].1.leaves();
            at += 1;
        }
        match self.fields[at].1 {
            Layout::Flatten(Layout::Struct(shape)) => shape.leaf(index),
            _ => self.fields[at].0,
        }
    }
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// FNV-1a of 64 bits.
#[derive(Clone, Copy)]
pub(super) struct Fnv(pub(super) u64);

impl Fnv {
    pub(super) const NEW: Fnv = Fnv(0xCBF2_9CE4_8422_2325);

    pub(super) const fn byte(self, byte: u8) -> Fnv {
        Fnv((self.0 ^ byte as u64).wrapping_mul(0x0100_0000_01B3))
    }

    pub(super) const fn text(mut self, text: &str) -> Fnv {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            self = self.byte(bytes[at]);
            at += 1;
        }
        self
    }

    /// Adds a name, with a backslash before each character that separates names elsewhere.
    const fn name(mut self, name: &str) -> Fnv {
        let bytes = name.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            if is_special(bytes[at]) {
                self = self.byte(b'\\');
            }
            self = self.byte(bytes[at]);
            at += 1;
        }
        self
    }

    const fn number(self, number: usize) -> Fnv {
        let this = if number >= 10 { self.number(number / 10) } else { self };
        this.byte(b'0' + (number % 10) as u8)
    }

    const fn names(mut self, open: &str, names: &[&str]) -> Fnv {
        self = self.text(open);
        let mut at = 0;
        while at < names.len() {
            if at > 0 {
                self = self.byte(b',');
            }
            self = self.name(names[at]);
            at += 1;
        }
        self.byte(b')')
    }

    const fn shape(mut self, shape: &Shape) -> Fnv {
        self = self.text(if shape.versioned { "v{" } else { "{" });
        let mut at = 0;
        while at < shape.fields.len() {
            if at > 0 {
                self = self.byte(b',');
            }
            let (name, layout) = shape.fields[at];
            if let Layout::Flatten(_) = layout {
                self = self.text("..");
            }
            self = self.name(name).byte(b':').layout(layout);
            at += 1;
        }
        self.byte(b'}')
    }

    const fn variants(mut self, variants: &[(&str, Option<&'static Layout>)]) -> Fnv {
        self = self.text("{|");
        let mut at = 0;
        while at < variants.len() {
            if at > 0 {
                self = self.byte(b',');
            }
            self = self.name(variants[at].0);
            if let Some(payload) = variants[at].1 {
                self = self.byte(b':').layout(payload);
            }
            at += 1;
        }
        self.text("|}")
    }

    const fn layout(self, layout: &Layout) -> Fnv {
        match layout {
            Layout::U8 => self.text("u8"),
            Layout::U16 => self.text("u16"),
            Layout::U32 => self.text("u32"),
            Layout::U64 | Layout::U53 => self.text("u64"),
            Layout::I8 => self.text("i8"),
            Layout::I16 => self.text("i16"),
            Layout::I32 => self.text("i32"),
            Layout::I64 | Layout::Timestamp => self.text("i64"),
            Layout::F32 => self.text("f32"),
            Layout::F64 => self.text("f64"),
            Layout::Bool => self.text("bool"),
            Layout::Enum8(names) => self.names("e8(", names),
            Layout::Enum16(names) => self.names("e16(", names),
            Layout::Bytes(n) => self.text("[u8;").number(*n).byte(b']'),
            Layout::FixedStr(n) => self.text("str;").number(*n),
            Layout::Str => self.text("&str"),
            Layout::Blob => self.text("&[u8]"),
            Layout::Array(of, n) => self.byte(b'[').layout(of).byte(b';').number(*n).byte(b']'),
            Layout::Vec(of) => self.text("&[").layout(of).byte(b']'),
            Layout::Struct(shape) => self.shape(shape),
            Layout::Flatten(of) => self.layout(of),
            Layout::Option(of) => self.text("opt(").layout(of).byte(b')'),
            Layout::OptNonZero(of) => self.text("nz(").layout(of).byte(b')'),
            Layout::Union(_, variants) => self.variants(variants),
        }
    }
}

/// Whether a name needs a backslash before this byte.
pub(super) const fn is_special(byte: u8) -> bool {
    matches!(
        byte,
        b'\\' | b',' | b':' | b';' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'|' | b'&' | b'.'
    )
}

impl Layout {
    /// How many fields this is in the enclosing struct.
    const fn leaves(&self) -> usize {
        match self {
            Layout::Flatten(Layout::Struct(shape)) => shape.leaves(),
            _ => 1,
        }
    }

    /// Whether it contains a versioned struct, whose size is not recorded there.
    const fn contains_versioned(&self) -> bool {
        match self {
            Layout::Struct(shape) => shape.versioned,
            Layout::Array(of, _) | Layout::Vec(of) | Layout::Flatten(of) | Layout::Option(of) => {
                of.contains_versioned()
            }
            Layout::Union(_, variants) => {
                let mut at = 0;
                while at < variants.len() {
                    match variants[at].1 {
                        Some(of) if of.contains_versioned() => return true,
                        _ => at += 1,
                    }
                }
                false
            }
            _ => false,
        }
    }

    /// FNV-1a-64 of the canonical layout string.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        Fnv::NEW.layout(self).0
    }

    /// The layout of a flattened field.
    ///
    /// # Panics
    /// If it is not a struct. In a constant, this is a compile error.
    #[must_use]
    pub const fn flattened(&'static self) -> Layout {
        assert!(matches!(self, Layout::Struct(_)), "only a struct can be flattened");
        Layout::Flatten(self)
    }

    /// The layout of a `u64` that TypeScript represents exactly as a number.
    ///
    /// # Panics
    /// If it is not a `u64`. In a constant, this is a compile error.
    #[must_use]
    pub const fn as_u53(&self) -> Layout {
        assert!(matches!(self, Layout::U64), "only a u64 can be marked as u53");
        Layout::U53
    }

    /// The layout of an `i64` that contains milliseconds since 1970.
    ///
    /// # Panics
    /// If it is not an `i64`. In a constant, this is a compile error.
    #[must_use]
    pub const fn as_timestamp(&self) -> Layout {
        assert!(matches!(self, Layout::I64), "only an i64 can be marked as timestamp");
        Layout::Timestamp
    }
}
