//! Axes and members: which dtypes and schemes a kernel is made for.

use super::Faults;
use super::attribute::{List, Settings};
use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::{Error, Result};

/// What a generic may run through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// `D: Dtype`, `dtype = [..]`.
    Dtype,
    /// `S: Scheme`, `scheme = [..]`.
    Scheme,
}

impl Axis {
    /// The key of the list.
    pub fn key(self) -> &'static str {
        match self {
            Axis::Dtype => "dtype",
            Axis::Scheme => "scheme",
        }
    }

    /// The trait of the generic.
    pub fn bound(self) -> &'static str {
        match self {
            Axis::Dtype => "Dtype",
            Axis::Scheme => "Scheme",
        }
    }

    /// The usual name of the generic.
    pub fn letter(self) -> &'static str {
        match self {
            Axis::Dtype => "D",
            Axis::Scheme => "S",
        }
    }

    /// A member for examples.
    pub fn example(self) -> &'static str {
        match self {
            Axis::Dtype => "Bf16",
            Axis::Scheme => "W4",
        }
    }

    /// A type that uses the generic, for examples.
    pub fn use_of(self, generic: &Ident) -> String {
        match self {
            Axis::Dtype => format!("In<{generic}::Words>"),
            Axis::Scheme => format!("Out<{generic}::Codes>"),
        }
    }
}

/// What the generics of a kernel stand for in one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The dtype, where the kernel has that axis.
    pub dtype: Option<Ident>,
    /// The scheme, where the kernel has that axis.
    pub scheme: Option<Ident>,
}

impl Member {
    /// The types of the member, in the order of the generics.
    pub fn types(&self) -> impl Iterator<Item = &Ident> {
        self.dtype.iter().chain(&self.scheme)
    }

    /// Name of its entry.
    pub fn entry(&self, kernel: &Ident) -> String {
        self.types().fold(kernel.unraw().to_string(), |name, member| name + "_" + &short_name(member))
    }
}

/// What a dtype or a scheme is called in the name of an entry.
pub fn short_name(member: &Ident) -> String {
    member.unraw().to_string().to_lowercase()
}

/// The product of the lists, without its exceptions.
pub fn members(settings: &Settings) -> Result<Vec<Member>> {
    let axis = |list: &Option<List>| match list {
        Some(list) => list.members.iter().cloned().map(Some).collect(),
        None => vec![None],
    };
    let mut members = Vec::new();
    for dtype in axis(&settings.dtype) {
        for scheme in axis(&settings.scheme) {
            members.push(Member { dtype: dtype.clone(), scheme });
        }
    }
    except(&mut members, settings)?;
    Ok(members)
}

/// Takes the exceptions out.
fn except(members: &mut Vec<Member>, settings: &Settings) -> Result<()> {
    let Some(exceptions) = &settings.except else { return Ok(()) };
    if settings.dtype.is_none() || settings.scheme.is_none() {
        return Err(Error::new(
            exceptions.key.span(),
            "`except` takes pairs out of the product of two lists: it needs both `dtype` and `scheme`; with one list, \
             leave the member out of it",
        ));
    }
    let mut faults = Faults::default();
    for (dtype, scheme) in &exceptions.pairs {
        let before = members.len();
        members
            .retain(|member| member.dtype.as_ref() != Some(dtype) || member.scheme.as_ref() != Some(scheme));
        if members.len() == before {
            faults.add(Error::new(
                dtype.span(),
                format!(
                    "`({dtype}, {scheme})` is not in the product of the lists, or was taken out before: every exception \
                     is a pair of a listed dtype and a listed scheme, once"
                ),
            ));
        }
    }
    if members.is_empty() {
        faults.add(Error::new(
            exceptions.key.span(),
            "`except` takes out every member, so the kernel would have no entry: leave one, or remove the kernel",
        ));
    }
    faults.finish()
}
