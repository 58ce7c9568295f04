//! The run on the CPU: the same body, once for each level of the machine.
//!
//! One binary holds all levels. `arch::level()` says which one the machine has, asked once for each range of programs; it
//! tests every feature that is enabled here. The code of a member stands in its `impl`, not in a generic function, so that
//! it is compiled with the crate of the kernel and its optimisation, not with the caller's.

use super::tuple;
use crate::parse::Kernel;
use crate::parse::member::Member;
use crate::parse::parameter::Runner;
use proc_macro2::{Literal, TokenStream};
use quote::quote;

/// x86-64-v3, and v4 with VBMI2 and what comes with it.
const LEVEL_1: &str = "avx2,bmi1,bmi2,fma,lzcnt,movbe,popcnt,f16c";
const LEVEL_2: &str = "avx2,bmi1,bmi2,fma,lzcnt,movbe,popcnt,f16c,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,\
                       avx512vbmi,avx512vbmi2,avx512bitalg,avx512vpopcntdq,gfni";

/// What the runs of all members share, and the methods of the arguments.
pub fn expand(kernel: &Kernel) -> TokenStream {
    let (declared, names, tuple, name) = (kernel.declared(), kernel.names(), kernel.tuple(), &kernel.name);
    let (program, mutable) = (&kernel.program.r#type, kernel.mutable());
    // A warp alone needs its own memory only; a block has that of all its warps.
    let on_cpu = match kernel.program.runner {
        Runner::Warp => quote!(<#program>::on_cpu(index, scratch.0.as_mut_ptr(), LEVEL)),
        Runner::Block => {
            let parameters = quote!(<#tuple as __Parameters>);
            let sizes = quote!(#parameters::WARPS, #parameters::SHARED, #parameters::BLOCK_SHARED);
            quote!(<#program>::on_cpu(index, scratch.0.as_mut_ptr(), LEVEL, #sizes))
        }
    };
    let arguments = kernel.arguments.iter().enumerate().map(|(number, argument)| {
        let (number, from_raw) = (Literal::usize_unsuffixed(number), argument.as_argument("from_raw"));
        quote!(unsafe { #from_raw(raw.#number) })
    });
    let methods = methods(kernel);
    let levels = [(1u32, LEVEL_1), (2, LEVEL_2)].map(|(level, features)| {
        let wrapper = quote::format_ident!("__level_{level}");
        quote! {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = #features)]
            unsafe fn #wrapper<#declared const BYTES: usize>(
                raw: <#tuple as __Parameters>::Raw,
                programs: ::core::ops::Range<u64>,
            ) {
                unsafe { __programs::<#names #level, BYTES>(raw, programs) }
            }
        }
    });
    quote! {
        /// Shared memory of one program and of its block.
        #[cfg(not(target_arch = "nvptx64"))]
        #[repr(align(64))]
        struct __Scratch<const BYTES: usize>([u8; BYTES]);

        #[cfg(not(target_arch = "nvptx64"))]
        #[inline(always)]
        unsafe fn __programs<#declared const LEVEL: u32, const BYTES: usize>(
            raw: <#tuple as __Parameters>::Raw,
            programs: ::core::ops::Range<u64>,
        ) {
            let mut scratch = __Scratch([0; BYTES]);
            for index in programs {
                let #mutable program = unsafe { #on_cpu };
                super::#name::<#names LEVEL>(&#mutable program, #(#arguments),*);
            }
        }

        #(#levels)*
        #methods
    }
}

/// The run of one member.
pub fn run(kernel: &Kernel, member: &Member) -> TokenStream {
    let (tuple, types) = (tuple(member.types()), member.types());
    let types = quote!(#(#types,)*);
    let shared = match kernel.program.runner {
        Runner::Block => quote!(<#tuple as __Parameters>::WARPS * <#tuple as __Parameters>::SHARED),
        Runner::Warp => quote!(<#tuple as __Parameters>::SHARED),
    };
    quote! {
        unsafe fn __run(raw: <Self as __Parameters>::Raw, programs: ::core::ops::Range<u64>) {
            const BYTES: usize =
                (#shared + <#tuple as __Parameters>::BLOCK_SHARED) as usize;
            match ::splitzip_kernels::arch::level() {
                #[cfg(target_arch = "x86_64")]
                2 => unsafe { __level_2::<#types BYTES>(raw, programs) },
                #[cfg(target_arch = "x86_64")]
                1 => unsafe { __level_1::<#types BYTES>(raw, programs) },
                _ => unsafe { __programs::<#types 0, BYTES>(raw, programs) },
            }
        }
    }
}

fn methods(kernel: &Kernel) -> TokenStream {
    let (declared, names, tuple, bound) =
        (kernel.declared(), kernel.names(), kernel.tuple(), kernel.members_only());
    let grid = &kernel.arguments[0];
    let (grid_name, programs) = (&grid.name, grid.as_grid("programs"));
    let raw = kernel.arguments.iter().map(|argument| {
        let (name, raw) = (&argument.name, argument.as_argument("raw"));
        quote!(#raw(&self.#name))
    });
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        impl<#declared> Arguments<'_, #names> {
            /// Runs some of the programs on this thread, in order; other threads may run others of the same arguments.
            ///
            /// # Safety
            /// [`check`](Self::check) has accepted the arguments, all memory is memory of the host, the grid has these
            /// programs, and no program runs twice at a time or shares what it writes with one that runs at the same time.
            pub unsafe fn run(&self, programs: ::core::ops::Range<u64>)
            #bound
            {
                unsafe { <#tuple as Member>::__run((#(#raw,)*), programs) }
            }

            /// Checks the arguments, and runs every program on this thread, in order.
            pub fn run_all(&mut self) -> ::core::result::Result<(), ::splitzip_kernels::launch::ArgumentError>
            #bound
            {
                self.check()?;
                let programs = #programs(&self.#grid_name);
                unsafe { self.run(0..programs) };
                ::core::result::Result::Ok(())
            }
        }
    }
}
