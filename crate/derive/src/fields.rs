//! The layout of a type as an expression.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{DataEnum, Error, Field, Fields, Ident, Path, Type};

use crate::attributes::{OfField, OfType, Repr};

/// A newtype that has the layout of its field.
pub fn transparent(krate: &Path, fields: &Fields, ident: &Ident) -> Result<TokenStream, Error> {
    let mut fields = fields.iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Err(Error::new(ident.span(), "a transparent record must have one field"));
    };
    let of = &field.ty;
    Ok(quote!(<#of as #krate::schema::Record>::LAYOUT))
}

pub fn structure(
    of_type: &OfType,
    name: &str,
    fields: &Fields,
    ident: &Ident,
) -> Result<TokenStream, Error> {
    let Fields::Named(named) = fields else {
        return Err(Error::new(ident.span(), "the fields of a varve record need names"));
    };
    let OfType { krate, versioned, .. } = of_type;
    let mut fields = named.named.iter();
    if *versioned && !fields.next().is_some_and(is_root_size) {
        let message =
            "the first field of a versioned record must be root_size: u16, the size of its root";
        return Err(Error::new(named.span(), message));
    }
    let fields: Vec<TokenStream> = fields
        .map(|field| {
            let of_field = OfField::parse(&field.attrs)?;
            let ident = field.ident.as_ref().ok_or_else(|| {
                Error::new(field.span(), "the fields of a varve record need names")
            })?;
            let name = of_type.name_within(ident, &of_field);
            let layout = layout_of(krate, field, &of_field)?;
            Ok(quote!((#name, #layout)))
        })
        .collect::<Result<_, Error>>()?;
    Ok(quote! {
        &#krate::schema::Layout::Struct(#krate::schema::Shape {
            name: #name,
            fields: &[#(#fields),*],
            versioned: #versioned,
        }.checked())
    })
}

fn is_root_size(field: &Field) -> bool {
    let is_u16 = matches!(&field.ty, Type::Path(of) if of.path.is_ident("u16"));
    is_u16 && field.ident.as_ref().is_some_and(|ident| ident == "root_size")
}

fn layout_of(krate: &Path, field: &Field, of_field: &OfField) -> Result<TokenStream, Error> {
    let of = &field.ty;
    let layout = quote!(<#of as #krate::schema::Record>::LAYOUT);
    let OfField { flatten, timestamp, u53, .. } = of_field;
    match (flatten, timestamp, u53) {
        (false, false, false) => Ok(layout),
        (true, false, false) => Ok(quote!(&#layout.flattened())),
        (false, true, false) => Ok(quote!(&#layout.as_timestamp())),
        (false, false, true) => Ok(quote!(&#layout.as_u53())),
        _ => Err(Error::new(field.span(), "flatten, timestamp and u53 cannot be combined")),
    }
}

pub fn enumeration(
    of_type: &OfType,
    name: &str,
    data: &DataEnum,
    bits: Repr,
    ident: &Ident,
) -> Result<TokenStream, Error> {
    let krate = &of_type.krate;
    let mut names = Vec::new();
    let mut payloads = Vec::new();
    for variant in &data.variants {
        if let Some((_, value)) = &variant.discriminant {
            return Err(Error::new(
                value.span(),
                "variants are numbered from 0: leave their numbers out",
            ));
        }
        names.push(of_type.name_within(&variant.ident, &OfField::parse(&variant.attrs)?));
        payloads.push(match &variant.fields {
            Fields::Unit => None,
            Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
                fields.unnamed.first().map(|field| field.ty.clone())
            }
            fields => {
                let message =
                    "a variant can hold at most one value: put its fields in a struct of their own";
                return Err(Error::new(fields.span(), message));
            }
        });
    }
    let carries = of_type.union || payloads.iter().any(Option::is_some);
    match (bits, carries) {
        _ if names.is_empty() => {
            Err(Error::new(ident.span(), "an enum needs at least one variant"))
        }
        (Repr::U16, true) => {
            Err(Error::new(ident.span(), "an enum with data needs #[repr(u8)] in a varve record"))
        }
        (Repr::U16, false) => Ok(quote!(&#krate::schema::Layout::Enum16(&[#(#names),*]))),
        (_, false) => Ok(quote!(&#krate::schema::Layout::Enum8(&[#(#names),*]))),
        (_, true) => {
            let variants = names.iter().zip(&payloads).map(|(name, payload)| match payload {
                Some(of) => quote!(
                    (#name, ::core::option::Option::Some(<#of as #krate::schema::Record>::LAYOUT))
                ),
                None => quote!((#name, ::core::option::Option::None)),
            });
            Ok(quote!(&#krate::schema::Layout::Union(#name, &[#(#variants),*])))
        }
    }
}
