//! The arguments of a launch, each under its name; and their types for the code behind, each under a number.

use super::tuple;
use crate::parse::Kernel;
use crate::parse::parameter::Argument;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;

/// What the page of the module says.
pub fn module_documentation(kernel: &Kernel) -> Vec<String> {
    let name = kernel.plain_name();
    let mut lines = vec![
        format!(" Launches of [`{name}`](fn@{name}): its arguments, its entries, its run on the CPU."),
        String::new(),
        " | entry | warps in a block | blocks on a multiprocessor |".to_string(),
        " | --- | --- | --- |".to_string(),
    ];
    for member in &kernel.members {
        lines.push(format!(" | `{}` | {} | {} |", member.entry(&kernel.name), kernel.warps, kernel.blocks));
    }
    lines
}

/// A hidden trait that knows the types of the parameters and the shared memory of a member. It is implemented for all
/// members at once, so that no type of the source needs to be rewritten.
pub fn hidden(kernel: &Kernel) -> TokenStream {
    let (declared, tuple) = (kernel.declared(), kernel.tuple());
    let names: Vec<_> = (0..kernel.arguments.len()).map(|number| kernel.type_name(number)).collect();
    let types = kernel.arguments.iter().map(|argument| &argument.r#type);
    let bounds = kernel.arguments.iter().enumerate().map(|(number, argument)| {
        let bound = if number == 0 { quote!(Grid) } else { quote!(Argument) };
        let span = argument.r#type.span().resolved_at(Span::call_site());
        quote_spanned!(span=> ::splitzip_kernels::launch::#bound)
    });
    let bytes = |expression: &Option<syn::Expr>| match expression {
        Some(expression) => expression.to_token_stream(),
        None => quote!(0),
    };
    let (shared, block_shared) = (bytes(&kernel.shared), bytes(&kernel.block_shared));
    quote! {
        #[doc(hidden)]
        pub trait __Parameters {
            #(type #names: #bounds;)*
            type Raw: ::core::marker::Copy;
            const SHARED: u32;
            const BLOCK_SHARED: u32;
        }
        impl<#declared> __Parameters for #tuple {
            #(type #names = #types;)*
            type Raw = (#(<Self::#names as ::splitzip_kernels::launch::Argument>::Raw,)*);
            const SHARED: u32 = #shared;
            const BLOCK_SHARED: u32 = #block_shared;
        }
    }
}

/// The struct that callers fill in, and what they do with it.
pub fn arguments(kernel: &Kernel) -> TokenStream {
    let (declared, names) = (kernel.declared(), kernel.names());
    let name = kernel.plain_name();
    let documentation = format!(" The arguments of a launch of [`{name}`](fn@super::{name}).");
    let fields = kernel.arguments.iter().map(field);
    let (checks, launch) = (checks(kernel), launch(kernel));
    let bound = kernel.members_only();
    quote! {
        #[doc = #documentation]
        ///
        /// Memory is borrowed until the struct is dropped; a launch that is still on its way is the caller's business.
        #[cfg(not(target_arch = "nvptx64"))]
        pub struct Arguments<'a, #declared> {
            #(#fields,)*
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl<#declared> Arguments<'_, #names> #bound {
            #checks
            #launch
        }
    }
}

impl Kernel {
    /// `where (D, S): Member`, for a kernel that has generics.
    pub(super) fn members_only(&self) -> TokenStream {
        if self.generics.is_empty() {
            return TokenStream::new();
        }
        let tuple = tuple(self.generics.iter().map(|generic| &generic.name));
        quote!(where #tuple: Member)
    }
}

fn field(argument: &Argument) -> TokenStream {
    let Argument { documentation, name, r#type } = argument;
    let text;
    let documentation = if documentation.is_empty() {
        text = format!(" What the kernel takes as `{}`.", argument.plain_name());
        quote!(#[doc = #text])
    } else {
        quote!(#(#documentation)*)
    };
    quote! {
        #documentation
        pub #name: <#r#type as ::splitzip_kernels::launch::Argument>::Host<'a>
    }
}

fn checks(kernel: &Kernel) -> TokenStream {
    let grid = &kernel.arguments[0];
    let (grid_name, grid_type) = (&grid.name, &grid.r#type);
    let checks = kernel.arguments.iter().map(|argument| {
        let Argument { name, r#type, .. } = argument;
        let plain = argument.plain_name();
        quote!(<#r#type as ::splitzip_kernels::launch::Argument>::check(&self.#name, #plain, elements)?;)
    });
    quote! {
        /// Are the arguments fit for the grid? The error names the parameter, what it has and what it needs.
        pub fn check(&self) -> ::core::result::Result<(), ::splitzip_kernels::launch::ArgumentError> {
            let elements = <#grid_type as ::splitzip_kernels::launch::Grid>::elements(&self.#grid_name);
            #(#checks)*
            ::core::result::Result::Ok(())
        }
    }
}

fn launch(kernel: &Kernel) -> TokenStream {
    let grid = &kernel.arguments[0];
    let (grid_name, grid_type) = (&grid.name, &grid.r#type);
    let (tuple, warps) = (kernel.tuple(), u64::from(kernel.warps));
    let slots = kernel.arguments.iter().map(|Argument { name, r#type, .. }| {
        quote!(<#r#type as ::splitzip_kernels::launch::Argument>::slot(&self.#name))
    });
    quote! {
        /// Checks the arguments, and describes the launch on a GPU.
        pub fn launch(&self)
            -> ::core::result::Result<::splitzip_kernels::launch::Launch, ::splitzip_kernels::launch::ArgumentError>
        {
            self.check()?;
            let programs = <#grid_type as ::splitzip_kernels::launch::Grid>::programs(&self.#grid_name);
            ::core::result::Result::Ok(::splitzip_kernels::launch::Launch {
                entry: <#tuple as Member>::ENTRY,
                blocks: programs.div_ceil(#warps),
                slots: ::splitzip_kernels::launch::Slots::new(&[#(#slots,)* 0]),
            })
        }
    }
}
