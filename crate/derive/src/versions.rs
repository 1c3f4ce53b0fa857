//! Versioned structs: which fields a record of an earlier version has, and the defaults of the
//! others.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{DeriveInput, Error, Expr, ExprLit, Field, Lit};

use crate::attributes::{Added, OfField, OfType};

/// The methods of `Record` that only versioned structs have.
pub fn methods(of_type: &OfType, input: &DeriveInput) -> Result<TokenStream, Error> {
    let syn::Data::Struct(data) = &input.data else { return Ok(TokenStream::new()) };
    let mut required = Vec::new();
    let mut added = Vec::new();
    for field in &data.fields {
        let of_field = OfField::parse(&field.attrs)?;
        match of_field.added {
            Added::No if added.is_empty() => required.push(field),
            Added::No => {
                let message = "a field after an added one must be #[varve(added)] too";
                return Err(Error::new(field.span(), message));
            }
            _ if !of_type.versioned => {
                let message = "only a #[varve(versioned)] struct can have added fields";
                return Err(Error::new(field.span(), message));
            }
            Added::AsZero => added.push((field, None)),
            Added::As(value) => added.push((field, Some(not_text(value)?))),
        }
    }
    if !of_type.versioned {
        return Ok(TokenStream::new());
    }
    let ends: Vec<TokenStream> = required.iter().copied().map(end).collect();
    let added_ends: Vec<TokenStream> = added.iter().map(|(field, _)| end(field)).collect();
    let completions = added.iter().enumerate().filter_map(|(at, (field, value))| {
        let before: Vec<&Field> =
            required.iter().copied().chain(added[..at].iter().map(|(field, _)| *field)).collect();
        Some(completion(field, value.as_ref()?, &before))
    });
    Ok(quote! {
        fn whole_fields(root_size: usize) -> ::core::option::Option<usize> {
            let mut whole = 0;
            #(if root_size < #ends { return ::core::option::Option::None; }
            whole = #ends;)*
            #(if root_size >= #added_ends { whole = #added_ends; })*
            ::core::option::Option::Some(whole)
        }

        fn complete(&mut self, root_size: usize) {
            self.root_size = ::core::mem::size_of::<Self>() as u16;
            #(#completions)*
        }
    })
}

fn end(field: &Field) -> TokenStream {
    let (ident, of) = (&field.ident, &field.ty);
    quote!((::core::mem::offset_of!(Self, #ident) + ::core::mem::size_of::<#of>()))
}

/// Sets a field in a record that does not have it. If the struct ended in padding, earlier records
/// seem to have fields that now lie there, with zeros.
fn completion(field: &Field, value: &Expr, before: &[&Field]) -> TokenStream {
    let (ident, field_end) = (&field.ident, end(field));
    let last = before.last().map(|field| end(field));
    let types = before.iter().map(|field| &field.ty);
    quote! {
        const {
            let mut align = 1;
            #(if ::core::mem::align_of::<#types>() > align {
                align = ::core::mem::align_of::<#types>();
            })*
            ::core::assert!(
                ::core::mem::offset_of!(Self, #ident) >= (#last).next_multiple_of(align),
                "this field lies in what was padding, so that it is zero in earlier records: leave its \
                 value out, or put an added [u8; N] in front of it"
            );
        }
        if root_size < #field_end {
            self.#ident = #value;
        }
    }
}

/// A text is stored after the root, and an earlier record has none there.
fn not_text(value: Expr) -> Result<Expr, Error> {
    match &value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            let message = "an added text is empty in earlier records: write #[varve(added)]";
            Err(Error::new(text.span(), message))
        }
        _ => Ok(value),
    }
}
