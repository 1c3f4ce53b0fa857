//! `#[derive(Record)]` of varve: gives a type its layout as a constant. It generates no unsafe
//! code: reading in place is sound because of musli's `#[derive(ZeroCopy)]` beside it.

mod attributes;
mod fields;
mod json;
mod versions;

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, GenericParam, parse_macro_input, parse_quote};

use attributes::{OfType, Repr, repr_of};

/// See `varve::schema::Record`.
#[proc_macro_derive(Record, attributes(varve))]
pub fn record(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(mut input: DeriveInput) -> Result<TokenStream, Error> {
    let of_type = OfType::parse(&input.attrs)?;
    let repr = repr_of(&input.attrs)?;
    let name = of_type.name(&input.ident);
    let krate = &of_type.krate;
    for parameter in &mut input.generics.params {
        if let GenericParam::Type(parameter) = parameter {
            parameter.bounds.push(parse_quote!(#krate::schema::Record));
        }
    }
    let layout = match &input.data {
        Data::Struct(data) if repr == Some(Repr::Transparent) => {
            fields::transparent(krate, &data.fields, &input.ident)?
        }
        Data::Struct(data) if repr == Some(Repr::C) => {
            fields::structure(&of_type, &name, &data.fields, &input.ident)?
        }
        Data::Struct(_) => {
            let message =
                "a varve record needs #[repr(C)]: without it the compiler may move its fields";
            return Err(Error::new(input.ident.span(), message));
        }
        Data::Enum(data) => {
            let Some(bits @ (Repr::U8 | Repr::U16)) = repr else {
                let message =
                    "an enum in a varve record needs #[repr(u8)], or #[repr(u16)] without data";
                return Err(Error::new(input.ident.span(), message));
            };
            fields::enumeration(&of_type, &name, data, bits, &input.ident)?
        }
        Data::Union(data) => {
            let message =
                "a union does not store which variant it holds: use an enum with #[repr(u8)]";
            return Err(Error::new(data.union_token.span(), message));
        }
    };
    let form = json::form(&of_type, repr, &input)?;
    let methods = versions::methods(&of_type, &input)?;
    let ident = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #krate::schema::Record for #ident #type_generics #where_clause {
            const LAYOUT: &'static #krate::schema::Layout = #layout;
            const FORM: &'static #krate::schema::json_form::Form = #form;
            #methods
        }
    })
}
