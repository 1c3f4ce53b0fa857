//! Records that Rust and TypeScript share: structs that are stored as their in-memory bytes.
//!
//! ```
//! use musli_zerocopy::{Ref, ZeroCopy};
//! use varve::schema::{Parts, Record};
//!
//! #[derive(Clone, Copy, ZeroCopy, Record)]
//! #[repr(C)]
//! struct Product {
//!     stock: u16,
//!     name: Ref<str>,
//! }
//!
//! let mut parts = Parts::of::<Product>();
//! let name = parts.str("Yeezy Boost 350 V2");
//! let value = parts.finish(Product { stock: 20_001, name })?;
//! assert_eq!(value.len(), 30);
//! # Ok::<_, varve::schema::Malformed>(())
//! ```
//!
//! The same in TypeScript is `struct("Product", { stock: u16, name: str })`:
//! [`Record::FINGERPRINT`] is the same number there, and `toRust(Product)` of `varve/rust` prints
//! the struct above.

#[cfg(not(target_endian = "little"))]
compile_error!("varve reads records in place, which needs a little-endian target");

mod descriptor;
mod fixed_types;
#[cfg(feature = "json")]
pub mod json;
#[doc(hidden)]
pub mod json_form;
pub mod key;
mod layout;
pub(crate) mod upgrade;
mod validate;
pub(crate) mod view;

use std::num::{NonZeroI8, NonZeroI16, NonZeroI32, NonZeroI64};
use std::num::{NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64};

use musli_zerocopy::{Ref, ZeroCopy};

use json_form::{Form, PartForm};

pub use descriptor::{Field, Kind, Malformed, Plain, Variant};
pub use fixed_types::{FixedStr, FixedStrError, Opt};
pub use layout::{Layout, Shape};
pub use varve_derive::Record;
pub use view::{Parts, View};

/// A type whose bytes are read in place, here and in TypeScript.
///
/// Derive it, beside musli's `ZeroCopy`, for structs with `#[repr(C)]` and for enums with
/// `#[repr(u8)]` or (without data) `#[repr(u16)]`. Attributes: `#[varve(rename = "…")]` on the
/// type, a field or a variant; `#[varve(rename_all = "camelCase")]` on the type;
/// `#[varve(flatten)]`, `#[varve(timestamp)]` and `#[varve(u53)]` on a field; `#[varve(union)]` on
/// an enum that is a union although no variant has data; `#[varve(versioned)]` on a struct whose
/// first field is `root_size: u16`; `#[varve(added)]` or `#[varve(added = 5)]` on the fields that
/// only its later versions have: in records of earlier versions they are read as zero, none, an
/// empty text, or the given value, and are added to the record with its next update;
/// `#[varve(json(…))]`, which changes only the record's JSON, as the module `json` describes.
///
/// ```
/// use musli_zerocopy::{Ref, ZeroCopy};
/// #[derive(Clone, Copy, ZeroCopy, varve::schema::Record)]
/// #[repr(C)]
/// #[varve(versioned)]
/// struct Product {
///     root_size: u16,
///     stock: u16,
///     name: Ref<str>,
///     #[varve(added = 9.5)]
///     price: f32,
/// }
/// ```
///
/// Types without a meaning in a file that other machines read do not compile:
///
/// ```compile_fail
/// use musli_zerocopy::ZeroCopy;
/// #[derive(Clone, Copy, ZeroCopy, varve::schema::Record)]
/// #[repr(C)]
/// struct Wrong {
///     size: usize, // as large as the machine's addresses
/// }
/// ```
///
/// ```compile_fail
/// #[derive(Clone, Copy, varve::schema::Record)]
/// struct Wrong { // without repr(C) its fields lie anywhere
///     stock: u16,
/// }
/// ```
///
/// ```compile_fail
/// use musli_zerocopy::ZeroCopy;
/// #[derive(Clone, Copy, ZeroCopy, varve::schema::Record)]
/// #[repr(C)]
/// #[varve(versioned)]
/// struct Wrong {
///     root_size: u16,
///     a: u8,
///     #[varve(added = 1)]
///     b: u8, // lies in what was padding, which was zero
/// }
/// fn f() -> Option<usize> { <Wrong as varve::schema::Record>::whole_fields(4) }
/// ```
///
/// ```compile_fail
/// use musli_zerocopy::ZeroCopy;
/// #[derive(Clone, Copy, ZeroCopy, varve::schema::Record)]
/// #[repr(C)]
/// struct Page {
///     limit: u8,
/// }
/// #[derive(Clone, Copy, ZeroCopy, varve::schema::Record)]
/// #[repr(C)]
/// struct Wrong {
///     limit: u8,
///     #[varve(flatten)]
///     page: Page, // hoists a second limit
/// }
/// ```
///
/// ```compile_fail
/// use musli_zerocopy::{Ref, ZeroCopy, endian::Big};
/// #[derive(Clone, Copy, ZeroCopy, varve::schema::Record)]
/// #[repr(C)]
/// struct Wrong {
///     name: Ref<str, Big>, // files are little-endian
/// }
/// ```
///
/// ```compile_fail
/// use musli_zerocopy::ZeroCopy;
/// #[derive(Clone, Copy, ZeroCopy, varve::schema::Record)]
/// #[repr(C)]
/// struct Wrong {
///     #[varve(flatten)]
///     stock: u16, // only a struct has names to hoist
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no layout that other programs can read",
    label = "not a varve record, nor a part of one",
    note = "numbers of fixed size, bool, arrays, `FixedStr`, `Opt`, `Option<NonZero…>`, musli's little-endian \
            `Ref<str>` and `Ref<[T]>`, and types with `#[derive(ZeroCopy, Record)]` have one"
)]
pub trait Record: ZeroCopy + Copy + 'static {
    /// The layout of its bytes.
    const LAYOUT: &'static Layout;

    /// How its JSON differs from its layout.
    #[doc(hidden)]
    const FORM: &'static Form = &Form::PLAIN;

    /// FNV-1a-64 of the canonical layout string: equal for types that can read each other's bytes.
    const FINGERPRINT: u64 = Self::LAYOUT.fingerprint();

    /// The end of the last field that is complete in a record with a root of this size; none if a
    /// field of the first version is missing. Only for versioned structs.
    #[doc(hidden)]
    #[must_use]
    fn whole_fields(_root_size: usize) -> Option<usize> {
        None
    }

    /// Sets the fields that such a record does not have, which are zero, to their default values.
    #[doc(hidden)]
    fn complete(&mut self, _root_size: usize) {}
}

macro_rules! plain {
    ($($of:ty => $layout:ident),* $(,)?) => {
        $(impl Record for $of {
            const LAYOUT: &'static Layout = &Layout::$layout;
        })*
    };
}

plain! {
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    f32 => F32, f64 => F64, bool => Bool,
    Ref<str> => Str,
}

macro_rules! non_zero {
    ($($of:ty => $layout:ident),* $(,)?) => {
        $(impl Record for Option<$of> {
            const LAYOUT: &'static Layout = &Layout::OptNonZero(&Layout::$layout);
        })*
    };
}

non_zero! {
    NonZeroU8 => U8, NonZeroU16 => U16, NonZeroU32 => U32, NonZeroU64 => U64,
    NonZeroI8 => I8, NonZeroI16 => I16, NonZeroI32 => I32, NonZeroI64 => I64,
}

/// The form of a type with elements of another.
macro_rules! around {
    ($of:ty) => {
        &Form {
            spelling: None,
            tag: None,
            content: None,
            parts: &[PartForm {
                form: <$of as Record>::FORM,
                rename: None,
                aliases: &[],
                skip: false,
                default: None,
            }],
        }
    };
}

impl<T: Record, const N: usize> Record for [T; N] {
    const FORM: &'static Form = around!(T);
    const LAYOUT: &'static Layout = &match T::LAYOUT {
        Layout::U8 => Layout::Bytes(N),
        of => Layout::Array(of, N),
    };
}

impl<T: Record> Record for Ref<[T]> {
    const FORM: &'static Form = around!(T);
    const LAYOUT: &'static Layout = &match T::LAYOUT {
        Layout::U8 => Layout::Blob,
        of => Layout::Vec(of),
    };
}

impl<T: Record> Record for Opt<T> {
    const FORM: &'static Form = around!(T);
    const LAYOUT: &'static Layout = &Layout::Option(T::LAYOUT);
}

impl<const N: usize> Record for FixedStr<N> {
    const LAYOUT: &'static Layout = &Layout::FixedStr(N);
}
