//! From a [`Kernel`] to code.
//!
//! The function keeps its place; all else stands in a module of the same name (functions and modules do not clash):
//! [`function`] the body, [`parameter`] the arguments of a launch, [`member`] the description of each entry, [`cpu`] the
//! runs on the host and [`gpu`] the entries of the PTX. No name of the source stands where it could meet a name of ours:
//! arguments are fields, or numbered.

mod cpu;
mod function;
mod gpu;
mod member;
mod parameter;

use crate::parse::parameter::Runner;
use crate::parse::signature::{self, Function};
use crate::parse::{Generic, Kernel};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::Error;
use syn::ext::IdentExt;

/// The whole expansion: code, or sentences.
pub fn kernel(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let function = match signature::function(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let error = error.to_compile_error();
            return quote!(#item #error);
        }
    };
    let kept = function::kept_after_a_fault(&function);
    match Kernel::parse(attribute, function) {
        Ok(kernel) => expand(&kernel),
        Err(faults) => refused(faults, kept),
    }
}

/// The sentences; and the function, so that an editor knows what stands in its body.
fn refused(faults: Error, kept: TokenStream) -> TokenStream {
    let faults = faults.to_compile_error();
    quote!(#faults #kept)
}

fn expand(kernel: &Kernel) -> TokenStream {
    let Function { attributes, visibility, .. } = &kernel.function;
    let name = &kernel.name;
    let body = function::expand(kernel);
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    let documentation = parameter::module_documentation(kernel);
    let parameters = parameter::hidden(kernel);
    let arguments = parameter::arguments(kernel);
    let members = member::expand(kernel);
    let cpu = cpu::expand(kernel);
    let gpu = gpu::expand(kernel);
    quote! {
        #body

        #(#conditions)*
        #(#[doc = #documentation])*
        #[allow(dead_code, unused_imports, clippy::undocumented_unsafe_blocks, clippy::too_many_arguments)]
        #visibility mod #name {
            use super::*;

            #parameters
            #arguments
            #members
            #cpu
            #gpu
        }
    }
}

/// The generics in the forms that code needs.
impl Kernel {
    /// `D: Dtype, S: Scheme,`
    fn declared(&self) -> TokenStream {
        let generics = self.generics.iter().map(|Generic { name, bound, .. }| quote!(#name: #bound));
        quote!(#(#generics,)*)
    }

    /// `D, S,`
    fn names(&self) -> TokenStream {
        let names = self.generics.iter().map(|generic| &generic.name);
        quote!(#(#names,)*)
    }

    /// `(D, S,)`: what stands for a member in an `impl`.
    fn tuple(&self) -> TokenStream {
        tuple(self.generics.iter().map(|generic| &generic.name))
    }

    /// `mut`, where the body may change its first parameter.
    fn mutable(&self) -> TokenStream {
        match self.program.runner {
            Runner::Warp => TokenStream::new(),
            Runner::Block => quote!(mut),
        }
    }

    /// Name of the kernel as people say it.
    fn plain_name(&self) -> String {
        self.name.unraw().to_string()
    }

    /// Name of the hidden type that stands for the type of a parameter.
    fn type_name(&self, number: usize) -> Ident {
        format_ident!("Type{}", number, span = Span::call_site())
    }
}

/// `()`, `(Bf16,)`, `(Bf16, W4)`.
fn tuple<'a>(types: impl Iterator<Item = &'a Ident>) -> TokenStream {
    let types: Vec<_> = types.collect();
    match types.as_slice() {
        [one] => quote!((#one,)),
        types => quote!((#(#types),*)),
    }
}

#[cfg(test)]
mod tests;
