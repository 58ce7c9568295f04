//! The parameters: the program, the grid, and arguments by value.

use super::Faults;
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Error, FnArg, Pat, PatType, Result, Signature, Type};

/// Slots of a launch, but for the hidden one.
const MOST: usize = 23;

/// The first parameter.
pub struct Program {
    /// What it refers to.
    pub r#type: Type,
    /// Who runs the body.
    pub runner: Runner,
}

/// Who runs the body of a kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Runner {
    /// Every warp alone: `program: &Program`.
    Warp,
    /// The warps of a block together: `block: &mut Block`.
    Block,
}

/// Any other parameter.
pub struct Argument {
    /// What is said about it.
    pub documentation: Vec<Attribute>,
    /// Its name.
    pub name: Ident,
    /// Its type.
    pub r#type: Type,
}

impl Argument {
    /// Its name as people say it.
    pub fn plain_name(&self) -> String {
        self.name.unraw().to_string()
    }

    /// `<Type as Argument>::item`: an error about it points at the type.
    pub fn as_argument(&self, item: &str) -> TokenStream {
        let (r#type, item) = (&self.r#type, Ident::new(item, self.r#type.span()));
        quote_spanned!(r#type.span()=> <#r#type as ::splitzip_kernels::launch::Argument>::#item)
    }

    /// `<Type as Grid>::item`, for the first one.
    pub fn as_grid(&self, item: &str) -> TokenStream {
        let (r#type, item) = (&self.r#type, Ident::new(item, self.r#type.span()));
        quote_spanned!(r#type.span()=> <#r#type as ::splitzip_kernels::launch::Grid>::#item)
    }
}

/// Reads all parameters.
pub fn parameters(signature: &Signature) -> Result<(Program, Vec<Argument>)> {
    let mut faults = Faults::default();
    let mut inputs = signature.inputs.iter();
    let program = match inputs.next() {
        Some(FnArg::Receiver(receiver)) => {
            return Err(Error::new_spanned(
                receiver,
                "a kernel is a function, not a method: move it out of the `impl` or `trait`, and make what it needs of \
                 `self` an argument",
            ));
        }
        Some(FnArg::Typed(first)) => program(first),
        None => Err(Error::new_spanned(
            &signature.ident,
            "the first parameter of a kernel is its program: write `program: &Program`, or `block: &mut Block` where several warps \
             work together, and the grid behind it",
        )),
    };
    let program = faults.note(program);
    let mut arguments = Vec::new();
    for input in inputs {
        let FnArg::Typed(parameter) = input else { continue };
        arguments.extend(faults.note(argument(parameter)));
        if arguments.len() == MOST + 1 {
            faults.add(Error::new_spanned(
                &parameter.pat,
                format!(
                    "a kernel has at most {MOST} arguments behind its program: put numbers that belong together into memory, \
                     or packed into one"
                ),
            ));
        }
    }
    if program.is_some() && signature.inputs.len() == 1 {
        faults.add(Error::new_spanned(
            &signature.inputs,
            "the second parameter of a kernel is its grid, which says how many programs run: write `chunks: Chunks`, for \
             example",
        ));
    }
    faults.finish()?;
    match program {
        Some(program) => Ok((program, arguments)),
        None => Err(Error::new_spanned(&signature.ident, "this kernel has no program")),
    }
}

fn program(parameter: &PatType) -> Result<Program> {
    refuse_attributes(parameter)?;
    match plain(&parameter.ty) {
        Type::Reference(reference) => {
            let Some(runner) = runner(&reference.elem) else { return Err(no_program(parameter)) };
            let is_mut = reference.mutability.is_some();
            if reference.lifetime.is_some() || is_mut != (runner == Runner::Block) {
                let sentence = match runner {
                    Runner::Warp => {
                        "a kernel borrows its program, and nothing more: write `program: &Program`"
                    }
                    Runner::Block => {
                        "a kernel has its block to itself, so that no warp meets a barrier of another one: write `block: &mut \
                         Block`"
                    }
                };
                return Err(Error::new_spanned(reference, sentence));
            }
            check_paths(reference.elem.to_token_stream())?;
            plain_name(parameter)?;
            Ok(Program { r#type: (*reference.elem).clone(), runner })
        }
        r#type => match runner(r#type) {
            Some(Runner::Warp) => Err(Error::new_spanned(
                r#type,
                "a kernel borrows its program, which belongs to the machine: write `program: &Program`",
            )),
            Some(Runner::Block) => Err(Error::new_spanned(
                r#type,
                "a kernel borrows its block, which belongs to the machine: write `block: &mut Block`",
            )),
            None => Err(no_program(parameter)),
        },
    }
}

/// By the name of the type; what stands in front of it does not matter.
fn runner(r#type: &Type) -> Option<Runner> {
    let Type::Path(path) = plain(r#type) else { return None };
    let last = path.path.segments.last()?;
    if path.qself.is_some() || !last.arguments.is_none() {
        return None;
    }
    match last.ident.to_string().as_str() {
        "Program" => Some(Runner::Warp),
        "Block" => Some(Runner::Block),
        _ => None,
    }
}

fn no_program(parameter: &PatType) -> Error {
    Error::new_spanned(
        parameter,
        "the first parameter of a kernel is its program: write `program: &Program` in front of this one, or `block: &mut Block` \
         where several warps work together",
    )
}

fn argument(parameter: &PatType) -> Result<Argument> {
    let documentation = refuse_attributes(parameter)?;
    let mut faults = Faults::default();
    let name = faults.note(plain_name(parameter));
    if let Some(name) = &name {
        faults.note(check_name(name));
    }
    faults.note(check_type(&parameter.ty));
    faults.finish()?;
    let name = name.ok_or_else(|| Error::new_spanned(parameter, "this parameter has no name"))?;
    Ok(Argument { documentation, name, r#type: (*parameter.ty).clone() })
}

/// Only documentation may stand at a parameter; it moves to the field of the launcher.
fn refuse_attributes(parameter: &PatType) -> Result<Vec<Attribute>> {
    match parameter.attrs.iter().find(|attribute| !attribute.path().is_ident("doc")) {
        Some(attribute) => Err(Error::new_spanned(
            attribute,
            "a parameter of a kernel has documentation and no other attribute, for every entry has the same arguments: \
             remove it",
        )),
        None => Ok(parameter.attrs.clone()),
    }
}

fn plain_name(parameter: &PatType) -> Result<Ident> {
    match &*parameter.pat {
        Pat::Ident(pattern) if pattern.by_ref.is_none() && pattern.subpat.is_none() => {
            if let Some(keyword) = &pattern.mutability {
                let name = &pattern.ident;
                return Err(Error::new_spanned(
                    keyword,
                    format!(
                        "the name of a parameter is a field of the launcher: write it without `mut`, and `let mut {name} = \
                         {name};` in the body"
                    ),
                ));
            }
            Ok(pattern.ident.clone())
        }
        pattern => Err(Error::new_spanned(
            pattern,
            "the name of a parameter is a field of the launcher: write a plain name here, and take the value apart in the \
             body",
        )),
    }
}

fn check_name(name: &Ident) -> Result<()> {
    let plain = name.unraw().to_string();
    let sentence = match plain.as_str() {
        "zero" => {
            "`zero` is the name of a parameter that `#[kernel]` adds to every entry: choose another name"
                .to_string()
        }
        "LEVEL" => {
            "`LEVEL` is the name of a constant that `#[kernel]` adds to every kernel: choose another name"
                .to_string()
        }
        _ if plain.starts_with('_') => format!(
            "`{plain}` is the name of a field of the launcher, and stands in its messages: choose a name that does not begin \
             with `_`; for an argument that is not used yet, write `let _ = name;` in the body"
        ),
        _ => return Ok(()),
    };
    Err(Error::new(name.span(), sentence))
}

fn check_type(r#type: &Type) -> Result<()> {
    let sentence = match plain(r#type) {
        Type::Path(_) | Type::Macro(_) => return check_paths(r#type.to_token_stream()),
        Type::Reference(reference) if reference.mutability.is_some() => {
            "a reference of the host means nothing on a GPU, and all programs of a launch run at once, so none of them can \
             have memory to itself: take memory that is written as `Out<..>`, by value"
        }
        Type::Reference(_) => {
            "a reference of the host means nothing on a GPU: take memory that is read as `In<..>`, a number by value"
        }
        Type::Slice(_) => {
            "a slice carries a length that a launch would have to trust: take memory as `In<..>` or `Out<..>`, by value; the \
             launcher checks its length"
        }
        Type::Ptr(_) => {
            "a bare pointer has no length that the launcher could check: take memory that is read as `In<..>`, memory that is \
             written as `Out<..>`"
        }
        _ => {
            "an argument of a kernel is a named type that crosses a launch by value: `In<..>` for memory that is read, \
             `Out<..>` for memory that is written, `u32` or `u64` for a number"
        }
    };
    Err(Error::new_spanned(r#type, sentence))
}

/// Names that the module of a kernel defines itself.
const TAKEN: [&str; 2] = ["Arguments", "Member"];

/// The types of a signature are looked up in the module of the kernel, one level below: refuses what means something else
/// there.
pub fn check_paths(tokens: TokenStream) -> Result<()> {
    let mut faults = Faults::default();
    let mut at_start = true;
    let mut after_quote = false;
    for token in tokens {
        match &token {
            TokenTree::Group(group) => {
                faults.note(check_paths(group.stream()));
            }
            TokenTree::Ident(ident) if after_quote && ident != "static" => {
                faults.add(Error::new(
                    ident.span(),
                    "an argument of a kernel has no lifetime, it is a plain value: remove it; the launcher borrows what the \
                     argument points to",
                ));
            }
            TokenTree::Ident(ident) if at_start && (ident == "self" || ident == "super") => {
                faults.add(Error::new(
                    ident.span(),
                    format!(
                        "a path in the signature of a kernel is looked up in a module of the kernel's own, where `{ident}` means \
                         something else: begin the path with `crate`, or import what it names"
                    ),
                ));
            }
            TokenTree::Ident(ident) if at_start && TAKEN.iter().any(|taken| ident == taken) => {
                faults.add(Error::new(
                    ident.span(),
                    format!(
                        "`{ident}` is also the name of an item in the module that `#[kernel]` makes, where this path is looked up: \
                         write a path that begins with `crate`, or import the type under another name"
                    ),
                ));
            }
            _ => {}
        }
        at_start = !matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ':');
        after_quote = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '\'');
    }
    faults.finish()
}

/// Does the generic stand somewhere in the type?
pub fn is_mentioned(generic: &Ident, r#type: &Type) -> bool {
    fn search(generic: &Ident, tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => ident == *generic,
            TokenTree::Group(group) => search(generic, group.stream()),
            _ => false,
        })
    }
    search(generic, r#type.to_token_stream())
}

/// Looks through parentheses.
fn plain(r#type: &Type) -> &Type {
    match r#type {
        Type::Paren(inner) => plain(&inner.elem),
        Type::Group(inner) => plain(&inner.elem),
        r#type => r#type,
    }
}
