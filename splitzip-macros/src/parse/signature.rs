//! The function: what a kernel may look like as a whole. Its parameters are the business of [`super::parameter`].

use super::member::Axis;
use super::{Faults, Generic};
use proc_macro2::{TokenStream, TokenTree};
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Error, GenericParam, Meta, Path, Result, ReturnType, Safety, Signature, TypeParam,
    TypeParamBound, Visibility,
};

/// A function whose body is not looked into.
pub struct Function {
    /// Its attributes, without this one.
    pub attributes: Vec<Attribute>,
    /// Its visibility.
    pub visibility: Visibility,
    /// Its signature.
    pub signature: Signature,
    /// Its body, braces included.
    pub body: TokenTree,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Function> {
        let function = Function {
            attributes: input.call(Attribute::parse_outer)?,
            visibility: input.parse()?,
            signature: input.parse()?,
            body: input.parse()?,
        };
        match &function.body {
            TokenTree::Group(_) if input.is_empty() => Ok(function),
            // `function` below says it in a sentence.
            _ => Err(input.error("no body")),
        }
    }
}

/// Reads the item below the attribute.
pub fn function(item: TokenStream) -> Result<Function> {
    let place = item.clone();
    syn::parse2(item).map_err(|_| {
        Error::new_spanned(
            place,
            "`#[kernel(..)]` belongs on a function with a body: `fn name(program: &Program, chunks: Chunks, ..) { .. }`",
        )
    })
}

/// Checks everything but generics and parameters.
pub fn check(function: &Function) -> Result<()> {
    let Function { attributes, signature, .. } = function;
    let mut faults = Faults::default();
    for attribute in attributes {
        let mut refuse = |name: &str, reason: &str| {
            if is_called(attribute, name) {
                faults.add(Error::new_spanned(attribute, format!("`{name}` {reason}: remove it")));
            }
        };
        refuse("inline", "is set by `#[kernel]`, which puts the body of a kernel into each of its entries");
        refuse(
            "target_feature",
            "is set by `#[kernel]`, which makes a CPU run for each level of the machine",
        );
        refuse("no_mangle", "is set by `#[kernel]` on the entries, not on the function");
        refuse("export_name", "is chosen by `#[kernel]`: the function, the dtype and the scheme");
    }
    let mut refuse = |present: Option<&dyn quote::ToTokens>, sentence: &str| {
        if let Some(tokens) = present {
            faults.add(Error::new_spanned(tokens, sentence));
        }
    };
    refuse(
        signature.constness.as_ref().map(|token| token as _),
        "a kernel runs on a machine, not in the compiler: remove `const`",
    );
    refuse(
        signature.asyncness.as_ref().map(|token| token as _),
        "a kernel runs from its first line to its last: remove `async`; the launch is what is asynchronous",
    );
    if let Safety::Unsafe(token) = &signature.safety {
        refuse(
            Some(token),
            "a kernel is a safe function, its launcher checks the arguments: remove `unsafe`, and put what needs it \
             into an `unsafe` block with its reason",
        );
    }
    refuse(
        signature.abi.as_ref().map(|abi| abi as _),
        "a kernel is a Rust function, the entries get their ABI from `#[kernel]`: remove `extern`",
    );
    refuse(
        signature.variadic.as_ref().map(|dots| dots as _),
        "a kernel has a fixed list of arguments: remove `...`, and name each argument",
    );
    if let ReturnType::Type(_, output) = &signature.output {
        refuse(
            Some(output),
            "a kernel returns nothing, for there is nobody to return it to: store the result through an `Out<..>` argument",
        );
    }
    refuse(
        signature.generics.where_clause.as_ref().map(|clause| clause as _),
        "a kernel has no `where` clause, its generics are `D: Dtype` and `S: Scheme` and nothing else: move the demand \
         into one of these traits",
    );
    faults.finish()
}

/// `#[name ..]`, or `#[unsafe(name ..)]`, as some must be written.
fn is_called(attribute: &Attribute, name: &str) -> bool {
    let inner = match &attribute.meta {
        Meta::List(list) if list.path.is_ident("unsafe") => list.tokens.clone().into_iter().next(),
        _ => None,
    };
    attribute.path().is_ident(name) || matches!(inner, Some(TokenTree::Ident(inner)) if inner == name)
}

/// Reads the generics: at most `D: Dtype` and `S: Scheme`, in this order.
pub fn generics(signature: &Signature) -> Result<Vec<Generic>> {
    let mut faults = Faults::default();
    let mut generics: Vec<Generic> = Vec::new();
    for parameter in &signature.generics.params {
        let generic = match parameter {
            GenericParam::Type(parameter) => generic(parameter),
            GenericParam::Lifetime(lifetime) => Err(Error::new_spanned(
                lifetime,
                "a kernel has no lifetimes, its arguments are plain values: remove it; the launcher borrows what the \
                 arguments point to",
            )),
            GenericParam::Const(constant) => Err(Error::new_spanned(
                constant,
                "the generics of a kernel are `D: Dtype` and `S: Scheme`: make a number that is known when the kernel is \
                 compiled a constant of one of these traits",
            )),
        };
        let Some(generic) = faults.note(generic) else { continue };
        if let Some(other) = generics.iter().find(|other| other.axis == generic.axis) {
            faults.add(Error::new(
                generic.name.span(),
                format!(
                    "`{}` and `{}` are both a `{}`: a kernel has one generic for the dtype and one for the scheme, so \
                     remove one; a second type can be an associated type of the first",
                    other.name,
                    generic.name,
                    generic.axis.bound()
                ),
            ));
        } else if generic.axis == Axis::Dtype && !generics.is_empty() {
            faults.add(Error::new(
                generic.name.span(),
                "the dtype comes before the scheme, here as in the names of entries: write `<D: Dtype, S: Scheme>`",
            ));
        }
        generics.push(generic);
    }
    faults.finish()?;
    Ok(generics)
}

fn generic(parameter: &TypeParam) -> Result<Generic> {
    let name = parameter.ident.clone();
    let rule = format!(
        "`{name}` is not one of the generics that a kernel may have: they are `D: Dtype` with the list `dtype = [..]`, and \
         `S: Scheme` with `scheme = [..]`"
    );
    if name == "LEVEL" {
        return Err(Error::new(
            name.span(),
            "`LEVEL` is the name of a constant that `#[kernel]` adds to every kernel: choose another name",
        ));
    }
    if let Some((_, default)) = &parameter.default {
        return Err(Error::new_spanned(
            default,
            "a generic of a kernel has no default, the lists say what it stands for: remove it",
        ));
    }
    let bound = match parameter.bounds.first() {
        Some(TypeParamBound::Trait(bound)) if bound.maybe.is_none() && bound.lifetimes.is_none() => {
            &bound.path
        }
        Some(bound) => return Err(Error::new_spanned(bound, rule)),
        None => return Err(Error::new(name.span(), rule)),
    };
    let Some(axis) = axis(bound) else { return Err(Error::new_spanned(bound, rule)) };
    if parameter.bounds.len() > 1 {
        return Err(Error::new_spanned(
            &parameter.bounds,
            format!("a generic of a kernel has one bound: write `{name}: {}`", axis.bound()),
        ));
    }
    Ok(Generic { name, bound: bound.clone(), axis })
}

fn axis(bound: &Path) -> Option<Axis> {
    let last = bound.segments.last()?;
    [Axis::Dtype, Axis::Scheme]
        .into_iter()
        .find(|axis| last.arguments.is_none() && last.ident == axis.bound())
}
