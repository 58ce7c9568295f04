use super::Kernel;
use super::attribute::Amount;
use super::signature::function;
use proc_macro2::TokenStream;
use quote::quote;

fn kernel(attribute: TokenStream, item: TokenStream) -> Kernel {
    Kernel::parse(attribute, function(item).unwrap()).unwrap_or_else(|faults| panic!("{faults}"))
}

fn faults(attribute: TokenStream, item: TokenStream) -> Vec<String> {
    match Kernel::parse(attribute, function(item).unwrap()) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.into_iter().map(|fault| fault.to_string()).collect(),
    }
}

fn entries(kernel: &Kernel) -> Vec<String> {
    kernel.members.iter().map(|member| member.entry(&kernel.name)).collect()
}

fn encode() -> TokenStream {
    quote!(
        pub fn encode<D: Dtype, S: Scheme>(
            program: &Program,
            grid: Chunks,
            words: In<D::Words>,
            codes: Out<S::Codes>,
        ) {
        }
    )
}

#[test]
fn a_kernel_without_generics_has_one_member() {
    let kernel = kernel(
        quote!(warps = 4, blocks = 16),
        quote!(
            fn seal(program: &Program, grid: Programs) {}
        ),
    );
    assert_eq!(entries(&kernel), ["seal"]);
    assert!(matches!(kernel.warps, Amount::Number(4)) && matches!(kernel.blocks, Amount::Number(16)));
    assert!(kernel.shared.is_none() && kernel.block_shared.is_none() && kernel.generics.is_empty());
}

#[test]
fn members_are_the_product_in_the_order_of_the_lists() {
    let kernel = kernel(quote!(dtype = [Bf16, E5m2], scheme = [W4, W2x3], warps = 8, blocks = 8), encode());
    let expected = ["encode_bf16_w4", "encode_bf16_w2x3", "encode_e5m2_w4", "encode_e5m2_w2x3"];
    assert_eq!(entries(&kernel), expected);
}

#[test]
fn exceptions_are_taken_out() {
    let kernel = kernel(
        quote!(scheme = [W4, W3,], except = [(E4m3, W4),], dtype = [Bf16, E4m3,], blocks = 8, warps = 8,),
        encode(),
    );
    assert_eq!(entries(&kernel), ["encode_bf16_w4", "encode_bf16_w3", "encode_e4m3_w3"]);
}

#[test]
fn one_axis_alone_is_enough() {
    let kernel = kernel(
        quote!(scheme = [W4], warps = 1, blocks = 1, shared = S::BYTES + 4),
        quote!(
            fn pick<T: crate::scheme::Scheme>(p: &crate::tile::Program, grid: Chunks, table: Table<T>) {}
        ),
    );
    assert_eq!(entries(&kernel), ["pick_w4"]);
    assert!(kernel.shared.is_some());
    assert_eq!(kernel.generics[0].name, "T");
}

#[test]
fn the_body_is_not_read() {
    let body = quote!(this is @ not ; Rust);
    let kernel = kernel(
        quote!(warps = 1, blocks = 1),
        quote!(pub(crate) fn copy(program: &Program, grid: Chunks,) { #body }),
    );
    assert_eq!(kernel.function.body.to_string(), quote!({ #body }).to_string());
}

#[test]
fn raw_names_lose_their_mark() {
    let kernel = kernel(
        quote!(warps = 1, blocks = 1),
        quote!(
            fn r#move(program: &Program, grid: Chunks, r#type: u32) {}
        ),
    );
    assert_eq!(entries(&kernel), ["move"]);
    assert_eq!(kernel.arguments[1].plain_name(), "type");
}

#[test]
fn documentation_of_parameters_is_kept() {
    let kernel = kernel(
        quote!(warps = 1, blocks = 1),
        quote!(
            fn copy(
                program: &Program,
                grid: Chunks,
                /// Zero.
                flags: u32,
            ) {
            }
        ),
    );
    assert_eq!(
        kernel.arguments.iter().map(|argument| argument.documentation.len()).collect::<Vec<_>>(),
        [0, 1]
    );
}

#[test]
fn twenty_three_arguments_fit() {
    let numbers = (2..=23).map(|number| quote::format_ident!("number_{number}"));
    let item = quote!(fn copy(program: &Program, grid: Chunks, #(#numbers: u32),*) {});
    assert_eq!(kernel(quote!(warps = 1, blocks = 1), item).arguments.len(), 23);
}

#[test]
fn the_bounds_of_warps_and_blocks_are_allowed() {
    let item = || {
        quote!(
            fn copy(program: &Program, grid: Chunks) {}
        )
    };
    for (warps, blocks) in [(1u32, 32u32), (32, 1), (32, 2), (2, 32)] {
        assert_eq!(faults(quote!(warps = #warps, blocks = #blocks), item()), [""; 0]);
    }
    assert_eq!(faults(quote!(warps = 32u32, blocks = 3), item()).len(), 1);
}

#[test]
fn blocks_may_be_an_expression() {
    let kernel =
        kernel(quote!(blocks = decode_blocks::<D, S>(), dtype = [Bf16], scheme = [W4], warps = 32), encode());
    assert!(matches!(kernel.blocks, Amount::Expression(_)));
}

#[test]
fn an_expression_of_blocks_keeps_the_rules_of_paths_and_literals() {
    let item = || {
        quote!(
            fn copy(program: &Program, grid: Chunks) {}
        )
    };
    let said = faults(quote!(warps = 1, blocks = self::BLOCKS + super::BLOCKS), item());
    assert!(
        said.len() == 2 && said.iter().all(|fault| fault.contains("begin the path with `crate`")),
        "{said:?}"
    );
    for literal in [quote!("8"), quote!(8.0), quote!(true), quote!(0)] {
        let said = faults(quote!(warps = 1, blocks = #literal), item());
        assert!(said.len() == 1 && said[0].contains("from 1 to 32"), "{said:?}");
    }
}

#[test]
fn a_wrong_number_is_not_a_missing_one() {
    let faults = faults(
        quote!(warps = 0, blocks = 33),
        quote!(
            fn copy(program: &Program, grid: Chunks) {}
        ),
    );
    assert_eq!(faults.len(), 2);
    assert!(faults.iter().all(|fault| fault.contains("from 1 to 32")), "{faults:?}");
}

#[test]
fn every_fault_is_reported() {
    let faults = faults(
        quote!(dtype = [], warps = 4, threads = 128),
        quote!(
            async fn copy<S: Scheme>(program: Program, _: Chunks, words: &[u32]) -> u32 {}
        ),
    );
    // The key, the list, the missing number; async, the result; the program, the name, the reference.
    assert_eq!(faults.len(), 8, "{faults:#?}");
}

#[test]
fn a_generic_may_stand_anywhere_in_a_type() {
    let item = quote!(
        fn copy<D: Dtype>(program: &Program, grid: Chunks, words: In<[<D as Dtype>::Words; 2]>) {}
    );
    assert_eq!(faults(quote!(dtype = [Bf16], warps = 1, blocks = 1), item), [""; 0]);
}

#[test]
fn paths_below_the_crate_are_allowed() {
    let item = quote!(
        fn copy(program: &Program, grid: crate::launch::Chunks, word: other::Arguments) {}
    );
    assert_eq!(faults(quote!(warps = 1, blocks = 1, shared = { crate::BYTES }), item), [""; 0]);
}
