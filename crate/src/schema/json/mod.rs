//! Records to JSON and back: directly between bytes and text, without objects in between. The text
//! is that of `toJson` in TypeScript, byte for byte.
//!
//! ```
//! use musli_zerocopy::{Ref, ZeroCopy};
//! use varve::schema::{Record, json::Json};
//!
//! #[derive(Clone, Copy, ZeroCopy, Record)]
//! #[repr(C)]
//! struct Card {
//!     number: Ref<str>,
//! }
//!
//! #[derive(Clone, Copy, ZeroCopy, Record)]
//! #[repr(u8)]
//! #[varve(json(tag = "type", rename_all = "camelCase"))]
//! enum Payment {
//!     Card(Card),
//!     PaidBefore,
//! }
//!
//! #[derive(Clone, Copy, ZeroCopy, Record)]
//! #[repr(C)]
//! #[varve(json(rename_all = "camelCase"))]
//! struct Order {
//!     order_id: u32,
//!     #[varve(json(rename = "paidBy", alias = "payment"))]
//!     by: Payment,
//!     #[varve(json(skip, default = 7))]
//!     seen: u32,
//!     #[varve(json(default))]
//!     note: Ref<str>,
//! }
//!
//! let orders = Json::<Order>::new();
//! let bytes = orders.read(r#"{"orderId":1,"payment":{"number":"42","type":"card"}}"#)?;
//! assert_eq!(
//!     orders.write(&bytes)?,
//!     r#"{"orderId":1,"paidBy":{"type":"card","number":"42"},"note":""}"#
//! );
//! let wrong = orders.read(r#"{"orderId":-1}"#).unwrap_err();
//! assert_eq!(wrong.to_string(), "$.orderId: -1 is out of range for u32");
//! # Ok::<_, varve::schema::Malformed>(())
//! ```
//!
//! Attributes within `#[varve(json(…))]`, which change neither bytes nor fingerprints:
//!
//! - of a struct or an enum: `rename_all`, one of `camelCase`, `snake_case`, `kebab-case`, `PascalCase`
//!   and `SCREAMING_SNAKE_CASE`;
//! - of an enum with data, which is `{"Name":data}` without it: `tag = "type"`, the field that names
//!   the variant, beside the fields of its struct; and `content = "value"`, the field with its data;
//! - of a field: `rename`; `alias`, which may be repeated; `skip`: not written, and unknown when it is
//!   read; `default` or `default = 5`: its value where the text has none.
//!
//! What is renamed is also read by its own name, as the JSON of a snapshot in TypeScript has it. A text
//! has no default but the empty one.
//!
//! Where the layout is the same, so is the JSON: `Ref<[u8]>` and `[u8; N]` are bytes, in base64, and
//! `i64` and `u64` within lists and options are 64-bit numbers, in quotes, also if TypeScript calls them
//! `vec(u8)`, `timestamp` or `u53`.
//!
//! ```compile_fail
//! use musli_zerocopy::ZeroCopy;
//! #[derive(Clone, Copy, ZeroCopy, varve::schema::Record)]
//! #[repr(C)]
//! #[varve(json(tag = "type"))]
//! struct Wrong { // a tag is for enums with data
//!     stock: u16,
//! }
//! ```
//!
//! ```compile_fail
//! use musli_zerocopy::ZeroCopy;
//! #[derive(Clone, Copy, ZeroCopy, varve::schema::Record)]
//! #[repr(C)]
//! struct Wrong {
//!     #[varve(json(renamed = "count"))] // it is called rename
//!     stock: u16,
//! }
//! ```
//!
//! (`#[varve(rename)]` and `#[varve(rename_all)]` without `json` name a field in the layout, which
//! TypeScript and other programs of the file share.)

mod escape;
pub(crate) mod lines;
mod plan;
mod read;
mod tokens;
mod write;

use std::marker::PhantomData;

use super::upgrade::{placed_defaults, upgraded};
use super::{Layout, Malformed, Record, Shape, View};
use crate::format::MAX_VALUE;
use plan::Node;
use read::Reader;
use tokens::Tokens;

/// Converts records of a type to JSON and back. Make it once: it has the plan of the type.
#[derive(Debug)]
pub struct Json<T> {
    node: Node,
    defaults: Vec<(usize, Vec<u8>)>,
    lenient: bool,
    of: PhantomData<fn() -> T>,
}

impl<T: Record> Json<T> {
    /// The plan of a type.
    ///
    /// # Panics
    /// If it cannot have the form that it declares, such as two fields with the same name in JSON, a
    /// tag that is also a field of a variant, or no field that is not skipped.
    #[must_use]
    pub fn new() -> Self {
        let node = match plan::plan(T::LAYOUT, T::FORM) {
            Ok(node) => node,
            Err(reason) => match T::LAYOUT {
                Layout::Struct(Shape { name, .. }) | Layout::Union(name, _) => {
                    panic!("the JSON of {name}: {reason}")
                }
                _ => panic!("{reason}"),
            },
        };
        Json { node, defaults: placed_defaults::<T>(), lenient: false, of: PhantomData }
    }

    /// Skips fields that the type does not have. Otherwise they are an error.
    #[must_use]
    pub fn ignore_unknown(mut self) -> Self {
        self.lenient = true;
        self
    }

    /// The JSON of a record. `u64` and `i64` are strings of digits, since most JSON parsers would
    /// round them; timestamps are milliseconds; bytes are base64; floats that are not finite are
    /// `"NaN"`, `"Infinity"` or `"-Infinity"`; none is `null`.
    ///
    /// # Errors
    /// If the bytes are not such a record: the field and what is wrong with it.
    pub fn write(&self, bytes: &[u8]) -> Result<String, Malformed> {
        let mut out = Vec::new();
        self.write_to(bytes, &mut out)?;
        String::from_utf8(out).map_err(|error| Malformed::new("", format!("UTF-8: {error}")))
    }

    /// Appends the JSON of a record to `out`.
    ///
    /// # Errors
    /// As [`Json::write`]; what was appended before the error is there then.
    pub fn write_to(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
        match upgraded::<T>(bytes)? {
            Some((bytes, _)) => write::write(&self.node, &bytes, out),
            None => write::write(&self.node, bytes, out),
        }
    }

    /// The record that a JSON text describes, in the form that [`Json::write`] writes. Fields may
    /// come in any order; `u64` and `i64` may be numbers, and timestamps ISO 8601 times. A variant
    /// may also be `{"type":"Name","value":…}`, as in a snapshot in TypeScript.
    ///
    /// # Errors
    /// If the text is not such JSON: the field as a path such as `$.lines[3].price`, and why.
    pub fn read(&self, json: &str) -> Result<Vec<u8>, Malformed> {
        let mut out = Vec::new();
        self.read_into(json, &mut out)?;
        Ok(out)
    }

    /// The same into a vector, whose content is replaced.
    ///
    /// # Errors
    /// As [`Json::read`]; the vector's content is worthless then.
    pub fn read_into(&self, json: &str, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let tokens = Tokens { text: json.as_bytes(), at: 0 };
        let mut reader = Reader { tokens, out, lenient: self.lenient, defaults: &self.defaults };
        reader.root(&self.node).map_err(read::at_root)?;
        if out.len() > MAX_VALUE {
            return Err(Malformed::new("$", "a value may have at most 16,777,216 bytes"));
        }
        Ok(())
    }
}

impl<T: Record> Default for Json<T> {
    fn default() -> Self {
        Json::new()
    }
}

impl<T: Record> View<'_, T> {
    /// The JSON of the record, as [`Json::write`] makes it. For many records, make a [`Json`] once.
    ///
    /// # Errors
    /// The field and what is wrong with it.
    pub fn to_json(&self) -> Result<String, Malformed> {
        Json::<T>::new().write(self.bytes())
    }
}
