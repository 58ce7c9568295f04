//! What is here and what is missing, and what to type for it. Works with nothing installed.

use std::{fmt, path::Path};

use serde::Serialize;

use crate::{
    error::Error,
    home::Home,
    pins::{self, Wheel},
    toolchain::{Compiler, Library, LibraryOrigin, Tools},
};

/// What a build and a check need, and whether it is here.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Diagnosis {
    /// Is everything here?
    pub ok: bool,
    /// The folder that `setup` fills.
    pub home: String,
    /// Every need.
    pub needs: Vec<Need>,
}

/// One need.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Need {
    /// For example `ptxas`.
    pub name: &'static str,
    /// Is it here, in the pinned version?
    pub found: bool,
    /// Its version.
    pub version: Option<String>,
    /// Where it is.
    pub path: Option<String>,
    /// Whose it is.
    pub origin: Option<String>,
    /// If it is missing: what was found instead, and what to type.
    pub hint: Option<String>,
}

impl Need {
    fn found(name: &'static str, version: String, path: &Path, origin: impl Into<String>) -> Self {
        let path = Some(path.display().to_string());
        Self { name, found: true, version: Some(version), path, origin: Some(origin.into()), hint: None }
    }

    fn missing(name: &'static str, error: &Error) -> Self {
        Self { name, found: false, version: None, path: None, origin: None, hint: Some(error.to_string()) }
    }
}

/// Looks for everything.
pub fn diagnose(home: &Home) -> Diagnosis {
    let compiler = Compiler::find();
    let mut needs = vec![match &compiler {
        Ok(compiler) => {
            let version = format!("{} ({})", compiler.version.release, &pins::COMPILER_COMMIT[..9]);
            let origin = if compiler.is_rustups() {
                format!("toolchain `{}`", compiler.name)
            } else {
                "on the path".into()
            };
            Need::found("compiler", version, &compiler.rustc, origin)
        }
        Err(error) => Need::missing("compiler", error),
    }];
    needs.push(match Library::find(compiler.as_ref().ok(), home) {
        Ok(library) => {
            let version = library
                .hash()
                .map_or_else(|error| error.to_string(), |hash| format!("core sha256 {}", &hash[..16]));
            let origin = match library.origin {
                LibraryOrigin::Variable => "variable NVPTX_BUILDER_LIBRARY",
                LibraryOrigin::Toolchain => "the toolchain's component",
                LibraryOrigin::Setup => "brought by setup",
            };
            Need::found("rust-src", version, &library.path, origin)
        }
        Err(error) => Need::missing("rust-src", &error),
    });
    needs.extend(pins::WHEELS.map(|wheel| tool(home, wheel)));
    Diagnosis { ok: needs.iter().all(|need| need.found), home: home.folder().display().to_string(), needs }
}

fn tool(home: &Home, wheel: Wheel) -> Need {
    match Tools::one(home, wheel) {
        Ok(path) => {
            let origin = if home.holds(&path) { "brought by setup" } else { "on the path" };
            Need::found(wheel.tool, wheel.version.to_owned(), &path, origin)
        }
        Err(error) => Need::missing(wheel.tool, &error),
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for need in &self.needs {
            let shown = |text: &Option<String>| text.clone().unwrap_or_default();
            if need.found {
                writeln!(f, "{:<10} ok       {}, {}", need.name, shown(&need.version), shown(&need.origin))?;
                writeln!(f, "{:<10}          {}", "", shown(&need.path))?;
            } else {
                writeln!(f, "{:<10} MISSING  {}", need.name, shown(&need.hint))?;
            }
        }
        match self.ok {
            true => write!(f, "all there"),
            false => write!(f, "`nvptx-builder setup` brings what is missing into {}", self.home),
        }
    }
}
