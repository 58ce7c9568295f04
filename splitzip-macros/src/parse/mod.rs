//! From tokens to a [`Kernel`] that keeps every rule of the manual.
//!
//! Each file checks what it can see alone: [`attribute`] the settings, [`signature`] the function, [`parameter`] one
//! parameter. This one checks what takes two of them: generics against lists. All faults are reported together.

pub mod attribute;
pub mod member;
pub mod parameter;
pub mod signature;

use attribute::{Amount, Settings};
use member::{Axis, Member};
use parameter::{Argument, Program, is_mentioned};
use proc_macro2::{Ident, TokenStream};
use signature::Function;
use syn::{Error, Expr, Result, Signature};

/// A kernel, checked.
pub struct Kernel {
    /// The function as it was written.
    pub function: Function,
    /// Its name.
    pub name: Ident,
    /// The first parameter.
    pub program: Program,
    /// The others; the first of them is the grid.
    pub arguments: Vec<Argument>,
    /// The generics, in the order of the source.
    pub generics: Vec<Generic>,
    /// What the generics stand for: the product of the lists, without its exceptions.
    pub members: Vec<Member>,
    /// Warps (programs) in a block.
    pub warps: Amount,
    /// Amount that must fit on a multiprocessor, may use the generics.
    pub blocks: Amount,
    /// Shared bytes of a program, may use the generics.
    pub shared: Option<Expr>,
    /// Shared bytes of a block, may use the generics.
    pub block_shared: Option<Expr>,
}

/// A generic of a kernel.
pub struct Generic {
    /// Its name, `D`.
    pub name: Ident,
    /// Its bound as written, `Dtype`.
    pub bound: syn::Path,
    /// The list that it runs through.
    pub axis: Axis,
}

impl Kernel {
    /// Reads attribute and item.
    pub fn parse(attribute: TokenStream, function: Function) -> Result<Kernel> {
        let mut faults = Faults::default();
        let settings = faults.note(syn::parse2::<Settings>(attribute));
        faults.note(signature::check(&function));
        let generics = faults.note(signature::generics(&function.signature));
        let (program, arguments) = faults.note(parameter::parameters(&function.signature)).unzip();
        if let (Some(settings), Some(generics)) = (&settings, &generics) {
            for axis in [Axis::Dtype, Axis::Scheme] {
                faults.note(pair(axis, settings, generics, &function.signature));
            }
        }
        if let (Some(generics), Some(arguments)) = (&generics, &arguments) {
            for generic in generics {
                faults.note(used(generic, arguments));
            }
        }
        let members = settings.as_ref().and_then(|settings| faults.note(member::members(settings)));
        faults.finish()?;

        // Nothing is missing when there is no fault.
        let missing = || Error::new(function.signature.ident.span(), "this kernel could not be read");
        let settings = settings.ok_or_else(missing)?;
        Ok(Kernel {
            name: function.signature.ident.clone(),
            program: program.ok_or_else(missing)?,
            arguments: arguments.ok_or_else(missing)?,
            generics: generics.ok_or_else(missing)?,
            members: members.ok_or_else(missing)?,
            warps: settings.warps,
            blocks: settings.blocks,
            shared: settings.shared,
            block_shared: settings.block_shared,
            function,
        })
    }
}

/// A list needs its generic, a generic needs its list.
fn pair(axis: Axis, settings: &Settings, generics: &[Generic], signature: &Signature) -> Result<()> {
    let (key, bound) = (axis.key(), axis.bound());
    let generic = generics.iter().find(|generic| generic.axis == axis);
    match (settings.list(axis), generic) {
        (Some(list), None) => Err(Error::new(
            list.key.span(),
            format!(
                "`{key}` is a list for a generic, but `{}` has no generic with the bound `{bound}`: add one, such as \
                 `{}: {bound}`, or remove the list",
                signature.ident,
                axis.letter(),
            ),
        )),
        (None, Some(generic)) => Err(Error::new(
            generic.name.span(),
            format!(
                "nothing says what `{}` stands for: add the list `{key} = [{}, ..]` to the attribute",
                generic.name,
                axis.example(),
            ),
        )),
        _ => Ok(()),
    }
}

/// A generic must be known from the arguments of a launch.
fn used(generic: &Generic, arguments: &[Argument]) -> Result<()> {
    if arguments.iter().any(|argument| is_mentioned(&generic.name, &argument.r#type)) {
        return Ok(());
    }
    Err(Error::new(
        generic.name.span(),
        format!(
            "`{}` occurs in no parameter, so a launch could not tell which member it means: use it in the type of an \
             argument, such as `{}`",
            generic.name,
            generic.axis.use_of(&generic.name),
        ),
    ))
}

/// Faults found so far.
#[derive(Default)]
pub struct Faults(Option<Error>);

impl Faults {
    /// Adds a fault.
    pub fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(faults) => faults.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Keeps the fault of a result, hands on its value.
    pub fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    /// All faults as one error.
    pub fn finish(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
