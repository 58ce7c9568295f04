//! `arch/nvptx.rs` and `arch/cpu.rs` have the same list of functions.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::BTreeMap;
use std::path::Path;
use syn::{FnArg, ImplItem, Item, Signature, Visibility};

/// What one machine has and the other cannot have. Here: what blocks need that run at the same time (`tile/turn/block.rs`).
const ONLY_GPU: [&str; 15] = [
    "Program::on_gpu",
    "Block::on_gpu",
    "Program::rank",
    "Program::block_index",
    "Program::block_shared",
    "Program::sync_block",
    "Program::arrive",
    "Program::wait",
    "Program::wait_among",
    "pause",
    "take32",
    "take64",
    "finish32",
    "load_shared64",
    "store_shared64",
];
const ONLY_CPU: [&str; 3] = ["Program::on_cpu", "Block::on_cpu", "level"];

/// Public functions of a machine, with the types of their arguments where the text has them (macros do not).
fn functions(machine: &str) -> BTreeMap<String, Option<Vec<String>>> {
    let files = [format!("{machine}.rs"), format!("{machine}/block.rs"), format!("{machine}/memory.rs")];
    files.iter().flat_map(|file| functions_of(file)).collect()
}

fn functions_of(file: &str) -> BTreeMap<String, Option<Vec<String>>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/arch").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut found = BTreeMap::new();
    for item in syn::parse_file(&text).unwrap().items {
        match item {
            Item::Fn(function) if is_public(&function.vis) => {
                found.insert(function.sig.ident.to_string(), Some(types(&function.sig)));
            }
            Item::Impl(of) if of.trait_.is_none() => {
                let of_type = of.self_ty.to_token_stream().to_string().replace(' ', "");
                let of_type = of_type.split('<').next().unwrap_or_default().to_owned();
                for item in of.items {
                    if let ImplItem::Fn(function) = item
                        && is_public(&function.vis)
                    {
                        found
                            .insert(format!("{of_type}::{}", function.sig.ident), Some(types(&function.sig)));
                    }
                }
            }
            // A call that makes functions, not the definition of a macro.
            Item::Macro(call) if call.ident.is_none() => {
                found.extend(made_by(call.mac.tokens).into_iter().map(|name| (name, None)));
            }
            _ => {}
        }
    }
    found
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn types(signature: &Signature) -> Vec<String> {
    let text = |argument: &FnArg| match argument {
        FnArg::Receiver(receiver) => receiver.to_token_stream().to_string(),
        FnArg::Typed(argument) => argument.ty.to_token_stream().to_string(),
    };
    signature.inputs.iter().map(text).collect()
}

/// The names in front of `=` or of an argument list, in calls like `load! { /// Doc. load8 = "..." }`.
fn made_by(tokens: TokenStream) -> Vec<String> {
    let (mut names, mut in_front) = (Vec::new(), true);
    for token in tokens {
        match token {
            TokenTree::Ident(name) if in_front => names.push(name.to_string()),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => in_front = false,
            TokenTree::Punct(sign) if sign.as_char() == '=' => in_front = false,
            TokenTree::Punct(sign) if sign.as_char() == ';' => in_front = true,
            _ => {}
        }
    }
    names
}

#[test]
fn both_machines_have_the_same_functions() {
    let (mut gpu, mut cpu) = (functions("nvptx"), functions("cpu"));
    for name in ONLY_GPU {
        assert!(gpu.remove(name).is_some() && !cpu.contains_key(name), "{name} is no exception any more");
    }
    for name in ONLY_CPU {
        assert!(cpu.remove(name).is_some() && !gpu.contains_key(name), "{name} is no exception any more");
    }
    let missing = |of: &BTreeMap<_, _>, other: &BTreeMap<String, _>| {
        other.keys().filter(|name| !of.contains_key(*name)).cloned().collect::<Vec<_>>()
    };
    assert!(missing(&gpu, &cpu).is_empty(), "only in arch/cpu.rs: {:?}", missing(&gpu, &cpu));
    assert!(missing(&cpu, &gpu).is_empty(), "only in arch/nvptx.rs: {:?}", missing(&cpu, &gpu));
    for (name, types) in &gpu {
        if let (Some(gpu), Some(cpu)) = (types, &cpu[name]) {
            assert_eq!(gpu, cpu, "{name} takes other arguments on the CPU");
        }
    }
    assert!(
        gpu.len() > 40,
        "only {} functions were found; the files are written in a way this test cannot read",
        gpu.len()
    );
    for known in [
        "load128",
        "even_bytes",
        "Program::scan",
        "Block::each_warp",
        "Shared::load8",
        "Lanes::get",
        "select",
    ] {
        assert!(gpu.contains_key(known), "{known} was not found");
    }
}
