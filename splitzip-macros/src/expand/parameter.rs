//! The arguments of a launch, each under its name; and their types for the code behind, each under a number.

use super::tuple;
use crate::parse::Kernel;
use crate::parse::attribute::Amount;
use crate::parse::parameter::{Argument, Runner};
use proc_macro2::TokenStream;
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
    let (warps, blocks) = (spoken(&kernel.warps), spoken(&kernel.blocks));
    for member in &kernel.members {
        lines.push(format!(" | `{}` | {warps} | {blocks} |", member.entry(&kernel.name)));
    }
    lines
}

/// `8`, or the expression as code, fit for a cell of a table.
fn spoken(amount: &Amount) -> String {
    match amount {
        Amount::Number(number) => number.to_string(),
        Amount::Expression(expression) => {
            let tokens = expression.to_token_stream().to_string();
            let tidy =
                [(" :: ", "::"), ("::< ", "::<"), (" > (", ">("), (" ()", "()"), (" , ", ", "), ("|", "\\|")]
                    .iter()
                    .fold(tokens, |text, (from, to)| text.replace(from, to));
            format!("`{tidy}`")
        }
    }
}

/// A hidden trait that knows the types of the parameters, the blocks and the shared memory of a member. It is implemented
/// for all members at once, so that no type of the source needs to be rewritten.
pub fn hidden(kernel: &Kernel) -> TokenStream {
    let (declared, tuple) = (kernel.declared(), kernel.tuple());
    let names: Vec<_> = (0..kernel.arguments.len()).map(|number| kernel.type_name(number)).collect();
    let types = kernel.arguments.iter().map(|argument| &argument.r#type);
    let raws = kernel.arguments.iter().map(|argument| argument.as_argument("Raw"));
    let bytes = |expression: &Option<syn::Expr>| match expression {
        Some(expression) => expression.to_token_stream(),
        None => quote!(0),
    };
    let (shared, block_shared) = (bytes(&kernel.shared), bytes(&kernel.block_shared));
    let amount = |amount: &Amount| match amount {
        Amount::Number(number) => number.to_token_stream(),
        Amount::Expression(expression) => expression.to_token_stream(),
    };
    let (warps, blocks) = (amount(&kernel.warps), amount(&kernel.blocks));
    quote! {
        #[doc(hidden)]
        pub trait __Parameters {
            #(type #names;)*
            type Raw: ::core::marker::Copy;
            const WARPS: u32;
            const BLOCKS: u32;
            const SHARED: u32;
            const BLOCK_SHARED: u32;
        }
        impl<#declared> __Parameters for #tuple {
            #(type #names = #types;)*
            type Raw = (#(#raws,)*);
            const WARPS: u32 = #warps;
            const BLOCKS: u32 = #blocks;
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
    quote! {
        #[doc = #documentation]
        ///
        /// Memory is borrowed until the struct is dropped; a launch that is still on its way is the caller's business.
        #[cfg(not(target_arch = "nvptx64"))]
        pub struct Arguments<'a, #declared> {
            #(#fields,)*
        }

        #[cfg(not(target_arch = "nvptx64"))]
        impl<#declared> Arguments<'_, #names> {
            #checks
            #launch
        }
    }
}

impl Kernel {
    /// A warp is a program, unless the whole block is one.
    fn programs_in_a_block(&self) -> TokenStream {
        match self.program.runner {
            Runner::Warp => {
                let tuple = self.tuple();
                quote!(<#tuple as __Parameters>::WARPS as u64)
            }
            Runner::Block => quote!(1u64),
        }
    }

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
    let Argument { documentation, name, .. } = argument;
    let (host, span) = (argument.as_argument("Host"), argument.r#type.span());
    let host = quote_spanned!(span=> #host<'a>);
    let text;
    let documentation = if documentation.is_empty() {
        text = format!(" What the kernel takes as `{}`.", argument.plain_name());
        quote!(#[doc = #text])
    } else {
        quote!(#(#documentation)*)
    };
    quote! {
        #documentation
        pub #name: #host
    }
}

fn checks(kernel: &Kernel) -> TokenStream {
    let grid = &kernel.arguments[0];
    let (grid_name, size) = (&grid.name, grid.as_grid("size"));
    let checks = kernel.arguments.iter().map(|argument| {
        let (name, plain, check) = (&argument.name, argument.plain_name(), argument.as_argument("check"));
        quote!(#check(&self.#name, #plain, size)?;)
    });
    quote! {
        /// Are the arguments fit for the grid? The error names the parameter, what it has and what it needs.
        pub fn check(&self) -> ::core::result::Result<(), ::splitzip_kernels::launch::ArgumentError> {
            let size = #size(&self.#grid_name);
            #(#checks)*
            ::core::result::Result::Ok(())
        }
    }
}

fn launch(kernel: &Kernel) -> TokenStream {
    let grid = &kernel.arguments[0];
    let (grid_name, blocks) = (&grid.name, grid.as_grid("blocks"));
    let size = grid.as_grid("size");
    let (tuple, bound) = (kernel.tuple(), kernel.members_only());
    let in_a_block = kernel.programs_in_a_block();
    let addresses = kernel.arguments.iter().map(|argument| {
        let (name, plain, check) =
            (&argument.name, argument.plain_name(), argument.as_argument("check_address"));
        quote!(#check(&self.#name, #plain, size)?;)
    });
    let slots = kernel.arguments.iter().map(|argument| {
        let (name, slot) = (&argument.name, argument.as_argument("slot"));
        quote!(#slot(&self.#name))
    });
    quote! {
        /// Checks the arguments and their addresses, and describes the launch on a GPU.
        pub fn launch(&self)
            -> ::core::result::Result<::splitzip_kernels::launch::Launch, ::splitzip_kernels::launch::ArgumentError>
        #bound
        {
            self.check()?;
            let size = #size(&self.#grid_name);
            #(#addresses)*
            ::core::result::Result::Ok(::splitzip_kernels::launch::Launch {
                entry: <#tuple as Member>::ENTRY,
                blocks: #blocks(&self.#grid_name, #in_a_block),
                slots: ::splitzip_kernels::launch::Slots::new(&[#(#slots,)* 0]),
            })
        }
    }
}
