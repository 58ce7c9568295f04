//! The expansion, as a person would read it. `INSTA_UPDATE=always` blesses it.

use super::kernel;
use proc_macro2::TokenStream;
use quote::quote;

fn pretty(attribute: TokenStream, item: TokenStream) -> String {
    prettyplease::unparse(&syn::parse2(kernel(attribute, item)).unwrap())
}

macro_rules! snapshot {
    ($code:expr $(,)?) => {
        insta::with_settings!({
            omit_expression => true,
            prepend_module_to_snapshot => false,
            snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/../snapshots/expansions"),
        }, { insta::assert_snapshot!($code) })
    };
}

#[test]
fn a_kernel_with_both_axes() {
    snapshot!(pretty(
        quote!(
            dtype = [Bf16, E4m3],
            scheme = [W3, W4],
            except = [(E4m3, W4)],
            warps = 8,
            blocks = 6,
            shared = 64,
            block_shared = S::TABLE_BYTES
        ),
        quote! {
            /// Encodes a chunk.
            pub fn encode<D: Dtype, S: Scheme>(
                program: &Program,
                chunks: Chunks,
                /// The raw words.
                words: In<D::Words>,
                codes: Out<S::Codes>,
                flags: u32,
            ) {
                let words = words.load(program);
                codes.store(program, &map(&words, |words| S::code(words, flags)));
            }
        },
    ));
}

#[test]
fn a_kernel_with_one_axis() {
    snapshot!(pretty(
        quote!(dtype = [Bf16], warps = 4, blocks = 16),
        quote! {
            /// Counts exponents.
            pub(crate) fn histogram<D: Dtype>(program: &Program, grid: Programs, words: In<D::Words>, counts: Out<u32>) {
                count::<D>(program, grid, words, counts)
            }
        },
    ));
}

#[test]
fn a_kernel_without_generics() {
    snapshot!(pretty(
        quote!(warps = 1, blocks = 32),
        quote! {
            /// Closes a frame.
            #[cfg(feature = "seal")]
            pub fn seal(program: &Program, grid: Programs, header: Out<u32>) {
                header.store(program, LEVEL);
            }
        },
    ));
}

#[test]
fn a_kernel_with_blocks_of_its_members() {
    snapshot!(pretty(
        quote!(dtype = [Bf16], scheme = [W4], warps = 8, blocks = decode_blocks::<D, S>() | S::BLOCKS),
        quote! {
            /// Decodes a chunk.
            pub fn decode<D: Dtype, S: Scheme>(program: &Program, chunks: Chunks, codes: In<S::Codes>, words: Out<D::Words>) {}
        },
    ));
}

#[test]
fn a_kernel_of_blocks() {
    snapshot!(pretty(
        quote!(warps = 8, blocks = 4, shared = 64, block_shared = 32),
        quote! {
            /// The maximum of every row.
            pub fn maximum(block: &mut Block, rows: Rows, values: In<u32>, maxima: Out<u32>) {
                block.each_warp(|warp| maxima.store(warp, values.load(warp)));
            }
        },
    ));
}

#[test]
fn a_fault_keeps_the_function() {
    snapshot!(pretty(
        quote!(warps = 8),
        quote! {
            pub fn seal(program: &Program, mut grid: Programs) {
                grid.close(program);
            }
        },
    ));
}
