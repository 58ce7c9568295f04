//! `docs/kernel-language.md` has every public item of `tile`, and none that is not there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::{Attribute, ImplItem, Item, TraitItem, Visibility};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Not for readers of the documentation.
fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("doc")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "hidden")
    })
}

/// `Program::sum`, `bits::weave`, `Chunk`: what a file makes public, as people write it.
fn public(file: &Path, found: &mut BTreeSet<String>) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let module = if file.ends_with("bits.rs") { "bits::" } else { "" };
    for item in syn::parse_file(&text).unwrap().items {
        match item {
            Item::Fn(of) if is_public(&of.vis) && !is_hidden(&of.attrs) => {
                found.insert(format!("{module}{}", of.sig.ident));
            }
            Item::Struct(of) if is_public(&of.vis) && !is_hidden(&of.attrs) => {
                found.insert(of.ident.to_string());
            }
            Item::Enum(of) if is_public(&of.vis) => {
                found.insert(of.ident.to_string());
            }
            Item::Type(of) if is_public(&of.vis) => {
                found.insert(of.ident.to_string());
            }
            Item::Const(of) if is_public(&of.vis) => {
                found.insert(of.ident.to_string());
            }
            Item::Macro(of) if of.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) => {
                found.extend(of.ident.map(|name| format!("{name}!")));
            }
            Item::Trait(of) if is_public(&of.vis) && !is_hidden(&of.attrs) => {
                found.insert(of.ident.to_string());
                for item in of.items {
                    let (name, attributes) = match item {
                        TraitItem::Fn(function) => (function.sig.ident, function.attrs),
                        TraitItem::Const(constant) => (constant.ident, constant.attrs),
                        _ => continue,
                    };
                    if !is_hidden(&attributes) {
                        found.insert(format!("{}::{name}", of.ident));
                    }
                }
            }
            Item::Impl(of) if of.trait_.is_none() => {
                let syn::Type::Path(path) = &*of.self_ty else { continue };
                let name = &path.path.segments.last().unwrap().ident;
                for item in of.items {
                    match item {
                        ImplItem::Fn(function) if is_public(&function.vis) && !is_hidden(&function.attrs) => {
                            found.insert(format!("{name}::{}", function.sig.ident));
                        }
                        ImplItem::Const(constant) if is_public(&constant.vis) => {
                            found.insert(format!("{name}::{}", constant.ident));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

#[test]
fn the_page_has_every_operation() {
    let mut found = BTreeSet::new();
    for folder in ["splitzip-kernels/src/tile", "splitzip-kernels/src/tile/turn"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                public(&path, &mut found);
            }
        }
    }
    assert!(found.len() > 100, "only {} items were found", found.len());

    let page = std::fs::read_to_string(root().join("docs/kernel-language.md")).unwrap();
    let code: BTreeSet<&str> = page.split('`').skip(1).step_by(2).collect();
    let missing: Vec<_> = found.iter().filter(|item| !code.contains(item.as_str())).collect();
    assert!(
        missing.is_empty(),
        "docs/kernel-language.md does not have {missing:?}: give each a row with what it does, its PTX, its cost and what it \
         means on a CPU"
    );

    let of_tile = |item: &&&str| {
        item.split_once("::").is_some_and(|(of, _)| of == "bits" || found.contains(of))
            && !item.contains(['(', ' ', '<'])
    };
    let gone: Vec<_> = code.iter().filter(of_tile).filter(|item| !found.contains(**item)).collect();
    assert!(gone.is_empty(), "docs/kernel-language.md has {gone:?}, which are not in `tile` any more");
}
