//! `#[varve(json(…))]`: the JSON form of a type, as an expression.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Expr, ExprLit, Fields, Lit, LitStr, Token};

use crate::attributes::{OfField, OfType, Repr};

/// The form of a type.
#[derive(Default)]
pub struct FormOfType {
    rename_all: Option<LitStr>,
    tag: Option<LitStr>,
    content: Option<LitStr>,
}

impl FormOfType {
    pub fn parse(&mut self, meta: &ParseNestedMeta<'_>) -> Result<(), Error> {
        meta.parse_nested_meta(|meta| {
            let to = if meta.path.is_ident("rename_all") {
                &mut self.rename_all
            } else if meta.path.is_ident("tag") {
                &mut self.tag
            } else if meta.path.is_ident("content") {
                &mut self.content
            } else {
                return Err(
                    meta.error("unknown in json(…) of a type: use rename_all, tag or content")
                );
            };
            *to = Some(meta.value()?.parse()?);
            Ok(())
        })
    }

    fn spelling(&self) -> Result<Option<TokenStream>, Error> {
        let Some(name) = &self.rename_all else { return Ok(None) };
        Ok(Some(match name.value().as_str() {
            "camelCase" => quote!(Camel),
            "snake_case" => quote!(Snake),
            "kebab-case" => quote!(Kebab),
            "PascalCase" => quote!(Pascal),
            "SCREAMING_SNAKE_CASE" => quote!(ScreamingSnake),
            _ => {
                let message =
                    "use camelCase, snake_case, kebab-case, PascalCase or SCREAMING_SNAKE_CASE";
                return Err(Error::new(name.span(), message));
            }
        }))
    }
}

/// The form of a field.
#[derive(Default)]
pub struct FormOfField {
    is_given: bool,
    rename: Option<LitStr>,
    aliases: Vec<LitStr>,
    skip: bool,
    default: FieldDefault,
}

#[derive(Default)]
enum FieldDefault {
    #[default]
    No,
    Zero,
    With(Expr),
}

impl FormOfField {
    pub fn parse(&mut self, meta: &ParseNestedMeta<'_>) -> Result<(), Error> {
        self.is_given = true;
        meta.parse_nested_meta(|meta| {
            if meta.path.is_ident("rename") {
                self.rename = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("alias") {
                self.aliases.push(meta.value()?.parse()?);
            } else if meta.path.is_ident("skip") {
                self.skip = true;
            } else if meta.path.is_ident("default") && meta.input.peek(Token![=]) {
                let value: Expr = meta.value()?.parse()?;
                if let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &value {
                    let message = "a default text is empty: write json(default)";
                    return Err(Error::new(text.span(), message));
                }
                self.default = FieldDefault::With(value);
            } else if meta.path.is_ident("default") {
                self.default = FieldDefault::Zero;
            } else {
                return Err(
                    meta.error("unknown in json(…) of a field: use rename, alias, skip or default")
                );
            }
            Ok(())
        })
    }
}

/// The form of a type as an expression.
pub fn form(
    of_type: &OfType,
    repr: Option<Repr>,
    input: &DeriveInput,
) -> Result<TokenStream, Error> {
    let krate = &of_type.krate;
    let module = quote!(#krate::schema::json_form);
    let FormOfType { tag, content, .. } = &of_type.json;
    let parts: Vec<TokenStream> = match &input.data {
        Data::Struct(data) if repr == Some(Repr::Transparent) => {
            let of = data.fields.iter().next().map(|field| &field.ty);
            return Ok(quote!(<#of as #krate::schema::Record>::FORM));
        }
        Data::Struct(data) => {
            if let Some(name) = tag.as_ref().or(content.as_ref()) {
                return Err(Error::new(name.span(), "only an enum with data can have this"));
            }
            let fields = data.fields.iter().skip(usize::from(of_type.versioned));
            fields.map(|field| part(of_type, field)).collect::<Result<_, Error>>()?
        }
        Data::Enum(data) => {
            let mut parts = Vec::new();
            let carries = of_type.union
                || data.variants.iter().any(|one| !matches!(one.fields, Fields::Unit));
            if let (false, Some(name)) = (carries, tag.as_ref().or(content.as_ref())) {
                return Err(Error::new(name.span(), "only an enum with data can have this"));
            }
            for variant in &data.variants {
                let of_field = OfField::parse(&variant.attrs)?;
                if of_field.json.is_given {
                    let message = "a variant has no json(…): use rename_all of the enum";
                    return Err(Error::new(variant.ident.span(), message));
                }
                let of = variant.fields.iter().next().map(|field| &field.ty);
                let form = match of {
                    Some(of) => quote!(<#of as #krate::schema::Record>::FORM),
                    None => quote!(&#module::Form::PLAIN),
                };
                parts.push(quote!(#module::PartForm {
                    form: #form,
                    rename: ::core::option::Option::None,
                    aliases: &[],
                    skip: false,
                    default: ::core::option::Option::None,
                }));
            }
            parts
        }
        Data::Union(_) => Vec::new(),
    };
    let spelling = of_type.json.spelling()?.map(|name| quote!(#module::Spelling::#name));
    let [spelling, tag, content] =
        [spelling, tag.as_ref().map(|tag| quote!(#tag)), content.as_ref().map(|one| quote!(#one))]
            .map(optional);
    Ok(quote!(&#module::Form {
        spelling: #spelling,
        tag: #tag,
        content: #content,
        parts: &[#(#parts),*],
    }))
}

fn part(of_type: &OfType, field: &syn::Field) -> Result<TokenStream, Error> {
    let krate = &of_type.krate;
    let module = quote!(#krate::schema::json_form);
    let OfField { json, flatten, .. } = OfField::parse(&field.attrs)?;
    if flatten && json.is_given {
        let message =
            "a flattened field has no name in JSON: write json(…) at the fields of its struct";
        return Err(Error::new(field.span(), message));
    }
    let FormOfField { rename, aliases, skip, default, .. } = json;
    let of = &field.ty;
    let rename = optional(rename.map(|name| quote!(#name)));
    let default = optional(match default {
        FieldDefault::No => None,
        FieldDefault::Zero => Some(quote!(#module::Fill::Zero)),
        FieldDefault::With(value) => {
            Some(quote!(#module::Fill::With(|bytes| #module::fill::<#of>(#value, bytes))))
        }
    });
    Ok(quote!(#module::PartForm {
        form: <#of as #krate::schema::Record>::FORM,
        rename: #rename,
        aliases: &[#(#aliases),*],
        skip: #skip,
        default: #default,
    }))
}

fn optional(value: Option<TokenStream>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}
