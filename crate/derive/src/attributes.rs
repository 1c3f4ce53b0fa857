//! `#[repr(…)]` and `#[varve(…)]`.

use syn::meta::ParseNestedMeta;
use syn::{Attribute, Error, Expr, Ident, LitStr, Path, Token, parse_quote};

use crate::json::{FormOfField, FormOfType};

/// The representation of a type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Repr {
    C,
    Transparent,
    U8,
    U16,
}

/// The representation, if it is one with a specified layout.
pub fn repr_of(attributes: &[Attribute]) -> Result<Option<Repr>, Error> {
    let mut found = None;
    for attribute in attributes.iter().filter(|one| one.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            found = match meta.path.get_ident().map(ToString::to_string).as_deref() {
                Some("C") => Some(Repr::C),
                Some("transparent") => Some(Repr::Transparent),
                Some("u8") => Some(Repr::U8),
                Some("u16") => Some(Repr::U16),
                _ => {
                    let message = "a varve record is #[repr(C)] and nothing else: neither packed nor aligned, \
                                   and its enums are #[repr(u8)] or #[repr(u16)]";
                    return Err(meta.error(message));
                }
            };
            Ok(())
        })?;
    }
    Ok(found)
}

/// The case of names in other languages.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Case {
    #[default]
    AsTheyAre,
    Camel,
}

/// The attributes of a type.
pub struct OfType {
    rename: Option<String>,
    case: Case,
    pub versioned: bool,
    /// An enum is a union although no variant has data.
    pub union: bool,
    pub json: FormOfType,
    pub krate: Path,
}

impl OfType {
    pub fn parse(attributes: &[Attribute]) -> Result<Self, Error> {
        let krate = parse_quote!(::varve);
        let case = Case::default();
        let json = FormOfType::default();
        let mut this = OfType { rename: None, case, versioned: false, union: false, json, krate };
        each(attributes, |meta| {
            if meta.path.is_ident("rename") {
                this.rename = Some(text(meta)?);
            } else if meta.path.is_ident("rename_all") {
                let case: LitStr = meta.value()?.parse()?;
                if case.value() != "camelCase" {
                    return Err(Error::new(case.span(), "only \"camelCase\" is known"));
                }
                this.case = Case::Camel;
            } else if meta.path.is_ident("versioned") {
                this.versioned = true;
            } else if meta.path.is_ident("union") {
                this.union = true;
            } else if meta.path.is_ident("json") {
                this.json.parse(meta)?;
            } else if meta.path.is_ident("crate") {
                this.krate = meta.value()?.parse()?;
            } else {
                return Err(meta.error(
                    "unknown attribute: use rename, rename_all, versioned, union, json or crate",
                ));
            }
            Ok(())
        })?;
        Ok(this)
    }

    pub fn name(&self, ident: &Ident) -> String {
        self.rename.clone().unwrap_or_else(|| plain(ident))
    }

    /// The name of a field or variant.
    pub fn name_within(&self, ident: &Ident, of_field: &OfField) -> String {
        match (&of_field.rename, self.case) {
            (Some(name), _) => name.clone(),
            (None, Case::AsTheyAre) => plain(ident),
            (None, Case::Camel) => camel(&plain(ident)),
        }
    }
}

/// The attributes of a field or a variant.
#[derive(Default)]
pub struct OfField {
    rename: Option<String>,
    pub flatten: bool,
    pub timestamp: bool,
    pub u53: bool,
    pub added: Added,
    pub json: FormOfField,
}

/// Whether only later versions of a struct have a field, and its default in records of earlier
/// ones.
#[derive(Default)]
pub enum Added {
    #[default]
    No,
    AsZero,
    As(Expr),
}

impl OfField {
    pub fn parse(attributes: &[Attribute]) -> Result<Self, Error> {
        let mut this = OfField::default();
        each(attributes, |meta| {
            if meta.path.is_ident("rename") {
                this.rename = Some(text(meta)?);
            } else if meta.path.is_ident("flatten") {
                this.flatten = true;
            } else if meta.path.is_ident("timestamp") {
                this.timestamp = true;
            } else if meta.path.is_ident("u53") {
                this.u53 = true;
            } else if meta.path.is_ident("added") && meta.input.peek(Token![=]) {
                this.added = Added::As(meta.value()?.parse()?);
            } else if meta.path.is_ident("added") {
                this.added = Added::AsZero;
            } else if meta.path.is_ident("json") {
                this.json.parse(meta)?;
            } else {
                return Err(meta.error(
                    "unknown attribute: use rename, flatten, timestamp, u53, added or json",
                ));
            }
            Ok(())
        })?;
        Ok(this)
    }
}

fn each(
    attributes: &[Attribute],
    mut take: impl FnMut(&ParseNestedMeta<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    for attribute in attributes.iter().filter(|one| one.path().is_ident("varve")) {
        attribute.parse_nested_meta(|meta| take(&meta))?;
    }
    Ok(())
}

fn text(meta: &ParseNestedMeta<'_>) -> Result<String, Error> {
    Ok(meta.value()?.parse::<LitStr>()?.value())
}

fn plain(ident: &Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#").map_or(name.clone(), ToString::to_string)
}

/// Converts `root_size` to `rootSize`.
fn camel(name: &str) -> String {
    let mut out = String::new();
    let mut raise = false;
    for character in name.chars() {
        if character == '_' && !out.is_empty() {
            raise = true;
        } else if raise {
            out.extend(character.to_uppercase());
            raise = false;
        } else {
            out.push(character);
        }
    }
    out
}
