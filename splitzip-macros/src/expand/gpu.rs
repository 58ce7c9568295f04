//! The entries of the PTX, one for each member.
//!
//! Launch bounds cannot be said in Rust, and data in device code is not allowed; so an entry carries them in a comment, which
//! `nvptx-builder` reads and takes out.

use super::tuple;
use crate::parse::Kernel;
use crate::parse::member::Member;
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

/// All entries.
pub fn expand(kernel: &Kernel) -> TokenStream {
    let entries = kernel.members.iter().map(|member| entry(kernel, member));
    quote!(#(#entries)*)
}

fn entry(kernel: &Kernel, member: &Member) -> TokenStream {
    let (tuple, types, kernel_name) = (tuple(member.types()), member.types(), &kernel.name);
    let entry = format_ident!("{}", member.entry(&kernel.name));
    let (program, mutable) = (&kernel.program.r#type, kernel.mutable());
    let names: Vec<_> =
        (0..kernel.arguments.len()).map(|number| format_ident!("argument_{number}")).collect();
    let parameters = (0..kernel.arguments.len())
        .map(|number| {
            let number = kernel.type_name(number);
            quote!(<#tuple as __Parameters>::#number)
        })
        .collect::<Vec<_>>();
    quote! {
        #[cfg(target_arch = "nvptx64")]
        #[doc(hidden)]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn #entry(
            #(#names: <#parameters as ::splitzip_kernels::launch::Argument>::Raw,)*
            zero: u32,
        ) {
            unsafe {
                ::core::arch::asm!(
                    "// nvptx-builder: threads={threads} min_blocks={blocks} shared={shared}",
                    threads = const <#tuple as __Parameters>::WARPS * 32,
                    blocks = const <#tuple as __Parameters>::BLOCKS,
                    shared = const <#tuple as __Parameters>::WARPS * <#tuple as __Parameters>::SHARED + <#tuple as __Parameters>::BLOCK_SHARED,
                    options(nomem, nostack, preserves_flags),
                );
                let #mutable program = <#program>::on_gpu::<
                    { <#tuple as __Parameters>::WARPS },
                    { <#tuple as __Parameters>::SHARED },
                    { <#tuple as __Parameters>::BLOCK_SHARED },
                >(zero);
                super::#kernel_name::<#(#types,)* 0>(
                    &#mutable program,
                    #(<#parameters as ::splitzip_kernels::launch::Argument>::from_raw(#names)),*
                );
            }
        }
    }
}
