//! How the JSON of a type differs from its layout, as constants that the derive makes.

use super::Record;

/// The JSON form of a type.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// How the names of its fields or variants are spelled.
    pub spelling: Option<Spelling>,
    /// Of a union: the field that names the variant.
    pub tag: Option<&'static str>,
    /// Of a union with a tag: the field with the data of the variant; none if its fields are beside
    /// the tag.
    pub content: Option<&'static str>,
    /// The forms of its fields, variants or elements; none if they have none.
    pub parts: &'static [PartForm],
}

impl Form {
    /// That of a type without a form.
    pub const PLAIN: Form = Form { spelling: None, tag: None, content: None, parts: &[] };
}

/// The JSON form of a field, a variant or an element.
#[derive(Clone, Copy, Debug)]
pub struct PartForm {
    /// That of its type.
    pub form: &'static Form,
    /// The name in JSON.
    pub rename: Option<&'static str>,
    /// More names by which it is read.
    pub aliases: &'static [&'static str],
    /// Whether it is not in JSON.
    pub skip: bool,
    /// Its value if the JSON does not have it.
    pub default: Option<Fill>,
}

/// The value of a field that JSON does not have.
#[derive(Clone, Copy, Debug)]
pub enum Fill {
    /// Zero, none, or empty.
    Zero,
    /// Writes a value to the bytes of the field.
    With(fn(&mut [u8])),
}

/// Writes a value to the bytes of a field.
pub fn fill<T: Record>(mut value: T, bytes: &mut [u8]) {
    bytes.copy_from_slice(value.to_bytes_padded());
}

/// How names are spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// camelCase
    Camel,
    /// snake_case
    Snake,
    /// kebab-case
    Kebab,
    /// PascalCase
    Pascal,
    /// SCREAMING_SNAKE_CASE
    ScreamingSnake,
}
