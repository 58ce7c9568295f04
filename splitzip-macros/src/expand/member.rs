//! Members: the description of each entry, and what the compiler checks about it, on the host, for all machines.

use super::tuple;
use crate::parse::Kernel;
use crate::parse::attribute::{Amount, MOST, MOST_WARPS_RESIDENT};
use crate::parse::member::{Axis, Member, short_name};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

/// Shared memory that a block may have without asking the driver for more.
const MOST_SHARED: u32 = 48 * 1024;

/// The trait, its implementations, the list and the checks.
pub fn expand(kernel: &Kernel) -> TokenStream {
    let documentation = match kernel.generics.len() {
        0 => format!(" The one entry of `{}`, under `()`.", kernel.plain_name()),
        1 => format!(
            " What `{}` is made for: implemented for `(X,)` when `X` is in its list.",
            kernel.plain_name()
        ),
        _ => format!(
            " What `{}` is made for: implemented for pairs of a dtype and a scheme.",
            kernel.plain_name()
        ),
    };
    let message = format!("`{{Self}}` is no member of `{}`", kernel.plain_name());
    let note =
        format!("the members are {}; they come from the lists of `#[kernel]`", spoken(&kernel.members));
    let tuples: Vec<_> = kernel.members.iter().map(|member| tuple(member.types())).collect();
    let members = kernel.members.iter().map(|member| implementation(kernel, member));
    let checks = kernel.members.iter().map(|member| check(kernel, member));
    let (names, by_name) = (names(kernel), by_name(kernel));
    quote! {
        #[doc = #documentation]
        #[cfg(not(target_arch = "nvptx64"))]
        #[diagnostic::on_unimplemented(message = #message, label = "the kernel has no such entry", note = #note)]
        pub trait Member {
            /// The entry of this member.
            const ENTRY: &'static ::splitzip_kernels::launch::Entry;
            #[doc(hidden)]
            unsafe fn __run(raw: <Self as __Parameters>::Raw, programs: ::core::ops::Range<u64>)
            where
                Self: __Parameters;
        }

        /// All entries, in the order of the lists.
        #[cfg(not(target_arch = "nvptx64"))]
        pub const ENTRIES: &[&::splitzip_kernels::launch::Entry] = &[#(<#tuples as Member>::ENTRY),*];

        #by_name

        #(#members)*
        #names
        #(#checks)*
    }
}

/// `(Bf16, W3)`, `(Bf16, W4)`: as people write them.
fn spoken(members: &[Member]) -> String {
    let members: Vec<_> = members
        .iter()
        .map(|member| match member.types().map(Ident::to_string).collect::<Vec<_>>().as_slice() {
            [one] => format!("`({one},)`"),
            types => format!("`({})`", types.join(", ")),
        })
        .collect();
    members.join(", ")
}

fn implementation(kernel: &Kernel, member: &Member) -> TokenStream {
    let tuple = tuple(member.types());
    let (entry, name) = (member.entry(&kernel.name), kernel.plain_name());
    let optional = |member: &Option<Ident>| match member.as_ref().map(short_name) {
        Some(name) => quote!(::core::option::Option::Some(#name)),
        None => quote!(::core::option::Option::None),
    };
    let (dtype, scheme) = (optional(&member.dtype), optional(&member.scheme));
    let parameters = kernel.arguments.iter().enumerate().map(|(number, argument)| {
        let (name, number) = (argument.plain_name(), kernel.type_name(number));
        let kind = quote!(<<#tuple as __Parameters>::#number as ::splitzip_kernels::launch::Argument>::KIND);
        quote!(::splitzip_kernels::launch::Parameter { name: #name, kind: #kind })
    });
    let (run, grid) = (super::cpu::run(kernel, member), kernel.type_name(0));
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        impl Member for #tuple {
            const ENTRY: &'static ::splitzip_kernels::launch::Entry = &::splitzip_kernels::launch::Entry {
                name: #entry,
                kernel: #name,
                dtype: #dtype,
                scheme: #scheme,
                parameters: &[#(#parameters),*],
                warps: <#tuple as __Parameters>::WARPS,
                min_blocks: <#tuple as __Parameters>::BLOCKS,
                shared_bytes: <#tuple as __Parameters>::WARPS * <#tuple as __Parameters>::SHARED + <#tuple as __Parameters>::BLOCK_SHARED,
                any_blocks: <<#tuple as __Parameters>::#grid as ::splitzip_kernels::launch::Grid>::ANY_BLOCKS,
            };
            #run
        }
    }
}

/// From the names of a dtype and a scheme to the types: the lists of the attribute are the only ones there are.
fn by_name(kernel: &Kernel) -> TokenStream {
    if kernel.generics.is_empty() {
        return TokenStream::new();
    }
    let axes: Vec<Ident> =
        kernel.generics.iter().map(|generic| Ident::new(generic.axis.key(), Span::call_site())).collect();
    let tuples: Vec<_> = kernel.members.iter().map(|member| tuple(member.types())).collect();
    let names = kernel.members.iter().map(|member| {
        let names = member.types().map(short_name);
        quote!((#(#names,)*))
    });
    let documentation = format!(
        " Does what `f` says for the member of `{}` with these names; `None` if there is no such member.",
        kernel.plain_name()
    );
    quote! {
        #[doc = #documentation]
        #[cfg(not(target_arch = "nvptx64"))]
        pub fn on_member<__Result, __Function>(#(#axes: &str,)* f: __Function) -> ::core::option::Option<__Result>
        where
            #(__Function: ::splitzip_kernels::launch::OnMember<#tuples, __Result>,)*
        {
            match (#(#axes,)*) {
                #(#names => ::core::option::Option::Some(<__Function as ::splitzip_kernels::launch::OnMember<#tuples, __Result>>::on_member(f)),)*
                _ => ::core::option::Option::None,
            }
        }
    }
}

/// Entries are called by names of types, everything else by `NAME`: they must be the same.
fn names(kernel: &Kernel) -> TokenStream {
    let mut checked: Vec<&Ident> = Vec::new();
    let mut checks = TokenStream::new();
    for member in &kernel.members {
        for (axis, r#type) in [(Axis::Dtype, &member.dtype), (Axis::Scheme, &member.scheme)] {
            let Some(r#type) = r#type else { continue };
            if checked.contains(&r#type) {
                continue;
            }
            checked.push(r#type);
            let name = short_name(r#type);
            let sentence = format!(
                "the entry of `{type}` is called `{name}`, and `{type}::NAME` says something else: give the type its NAME in \
                 camel case",
                r#type = r#type,
            );
            let of = of(axis, r#type);
            checks.extend(quote_spanned! {r#type.span()=>
                #[cfg(not(target_arch = "nvptx64"))]
                const _: () = ::core::assert!(::splitzip_kernels::launch::same_name(#of::NAME, #name), #sentence);
            });
        }
    }
    checks
}

/// What the properties of a member must allow.
fn check(kernel: &Kernel, member: &Member) -> TokenStream {
    let tuple = tuple(member.types());
    let entry = member.entry(&kernel.name);
    let sentence = format!(
        "a block of `{entry}` wants more than 48 KiB of shared memory (`warps` x `shared` + `block_shared`): lower one of them"
    );
    let most = u64::from(MOST_SHARED);
    let shared = quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        const _: () = ::core::assert!(
            <#tuple as __Parameters>::WARPS as u64 * <#tuple as __Parameters>::SHARED as u64 + <#tuple as __Parameters>::BLOCK_SHARED as u64 <= #most,
            #sentence
        );
    };
    let blocks = check_blocks(kernel, member);
    let (Some(dtype), Some(scheme)) = (&member.dtype, &member.scheme) else { return quote!(#shared #blocks) };
    let (of_dtype, of_scheme) = (of(Axis::Dtype, dtype), of(Axis::Scheme, scheme));
    let sentence = format!(
        "`{entry}` would save nothing: the codes of `{scheme}` are not narrower than the exponents of `{dtype}`; take the pair \
         out with `except = [({dtype}, {scheme})]`"
    );
    let pair = quote_spanned! {scheme.span()=>
        #[cfg(not(target_arch = "nvptx64"))]
        const _: () = ::splitzip_kernels::scheme::check_member(#of_dtype::EXPONENT_BITS, #of_scheme::CODE_BITS, #sentence);
    };
    quote!(#shared #blocks #pair)
}

/// What expressions give keeps the bounds of numbers, which have been checked.
fn check_blocks(kernel: &Kernel, member: &Member) -> TokenStream {
    let (tuple, entry) = (tuple(member.types()), member.entry(&kernel.name));
    let warps = match &kernel.warps {
        Amount::Number(_) => TokenStream::new(),
        Amount::Expression(expression) => {
            let sentence = format!(
                "`warps` of `{entry}` is the number of warps of a block, each of which runs one program: the expression must give a \
                 number from 1 to {MOST}"
            );
            quote_spanned! {expression.span()=>
                #[cfg(not(target_arch = "nvptx64"))]
                const _: () = ::core::assert!(::core::matches!(<#tuple as __Parameters>::WARPS, 1..=#MOST), #sentence);
            }
        }
    };
    let (span, sentence) = match (&kernel.blocks, &kernel.warps) {
        (Amount::Number(_), Amount::Number(_)) => return warps,
        (Amount::Expression(expression), Amount::Number(number)) => {
            let most = MOST.min(MOST_WARPS_RESIDENT / number);
            let sentence = format!(
                "`blocks` of `{entry}` is the number of blocks that must fit on a multiprocessor at once: with `warps = {number}` the expression \
                 must give a number from 1 to {most}, for a multiprocessor holds {MOST} blocks and {MOST_WARPS_RESIDENT} warps"
            );
            (expression.span(), sentence)
        }
        (_, Amount::Expression(expression)) => {
            let sentence = format!(
                "`warps` x `blocks` of `{entry}` is more than a multiprocessor holds, or `blocks` is not a number from 1 to {MOST}: there are \
                 {MOST_WARPS_RESIDENT} warps"
            );
            (expression.span(), sentence)
        }
    };
    quote_spanned! {span=>
        #warps
        #[cfg(not(target_arch = "nvptx64"))]
        const _: () = ::core::assert!(
            ::core::matches!(<#tuple as __Parameters>::BLOCKS, 1..=#MOST)
                && <#tuple as __Parameters>::BLOCKS * <#tuple as __Parameters>::WARPS <= #MOST_WARPS_RESIDENT,
            #sentence
        );
    }
}

/// `<Bf16 as ::splitzip_kernels::dtype::Dtype>`
fn of(axis: Axis, r#type: &Ident) -> TokenStream {
    match axis {
        Axis::Dtype => quote_spanned!(r#type.span()=> <#r#type as ::splitzip_kernels::dtype::Dtype>),
        Axis::Scheme => quote_spanned!(r#type.span()=> <#r#type as ::splitzip_kernels::scheme::Scheme>),
    }
}
