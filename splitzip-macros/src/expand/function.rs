//! The function itself: as it was written, with one more generic.
//!
//! The body of a kernel is compiled once for each level of the CPU. Its closures must not be shared between the levels: one
//! with three callers stays a call, and costs a factor of 3 to 10. A constant in the generics of the function makes them
//! different, for a closure belongs to its function with all generics.

use crate::parse::Kernel;
use crate::parse::signature::Function;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{FnArg, Signature, Type, TypeParam, parse_quote};

/// The function.
pub fn expand(kernel: &Kernel) -> TokenStream {
    let Function { attributes, visibility, signature, body } = &kernel.function;
    let mut signature = without_attributes(signature);
    signature.generics.params.push(parse_quote!(const LEVEL: u32));
    quote! {
        #(#attributes)*
        #[inline(always)]
        #[allow(clippy::too_many_arguments)]
        #visibility #signature #body
    }
}

/// The function behind a sentence, for editors: unchanged, or nothing where rustc would add sentences of its own.
pub fn kept_after_a_fault(function: &Function) -> TokenStream {
    let Function { attributes, visibility, signature, body } = function;
    let has_default = |generic: &TypeParam| generic.default.is_some();
    let is_slice =
        |input: &FnArg| matches!(input, FnArg::Typed(input) if matches!(&*input.ty, Type::Slice(_)));
    if signature.variadic.is_some()
        || signature.generics.type_params().any(has_default)
        || signature.inputs.iter().any(is_slice)
    {
        return TokenStream::new();
    }
    let signature = without_attributes(signature);
    quote! {
        #(#attributes)*
        #[allow(unused)]
        #visibility #signature #body
    }
}

/// Documentation of a parameter is no Rust; it has moved to a field.
fn without_attributes(signature: &Signature) -> Signature {
    let mut signature = signature.clone();
    for input in &mut signature.inputs {
        if let FnArg::Typed(parameter) = input {
            parameter.attrs.clear();
        }
    }
    signature
}
