//! Recipes of CONTRIBUTING.md that are kept as patches, so that they cannot rot: each is applied to a copy of the repository, which is
//! then built and tested.
//!
//! The copy lies in `target/recipes/`; it shares the target folder, so that no dependency is compiled again, and is compiled without
//! optimisation, which is most of the time. It has a version of its own: cargo tells packages apart by their names, versions and places in the
//! workspace, and would take those of the copy for those of the repository.

use crate::{cargo, root, run, target};
use diffy::Patch;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A patch, and what shows that it works.
struct Recipe {
    name: &'static str,
    /// Arguments of cargo in the copy.
    tests: &'static [&'static [&'static str]],
    /// Value of `SPLITZIP_MEMBERS`: only what is new is tested.
    members: &'static str,
    /// Entries of which there must be PTX.
    entries: &'static [&'static str],
}

const RECIPES: [Recipe; 1] = [Recipe {
    name: "w5",
    tests: &[
        &["test", "--package", "splitzip-kernels", "--lib", "scheme"],
        &["test", "--package", "splitzip-host", "--lib", "window"],
        &["test", "--package", "splitzip-host", "--test", "cpu", "--", "--skip", "any_bytes"],
    ],
    members: "w5",
    entries: &["encode_bf16_w5", "decode_bf16_w5", "encode_bf16_w5channel", "decode_bf16_w5channel"],
}];

/// Applies every patch to a copy, and has it type-checked with its tests: what rots first, and half a minute where the whole takes three.
pub fn apply() -> bool {
    RECIPES.iter().all(|recipe| {
        let open = report(recipe.name, open(recipe.name));
        let mut check = cargo(&["check", "--package", "splitzip-host", "--tests"]);
        open && run(check.current_dir(copy(recipe.name)).env("CARGO_TARGET_DIR", target()))
    })
}

/// Applies every patch to a copy, builds and tests it.
pub fn check() -> bool {
    RECIPES.iter().all(|recipe| {
        let open = report(recipe.name, open(recipe.name));
        open && ptx(recipe) && test(recipe)
    })
}

/// Makes the copy and applies the patch, as far as it goes.
pub fn open_copy(name: &str) -> bool {
    known(name) && report(name, open(name))
}

/// Writes the patch anew, from what differs in the copy.
pub fn write(name: &str) -> bool {
    if !known(name) {
        return false;
    }
    let written = patch_of(&copy(name)).and_then(|text| fs::write(patch(name), text));
    match written {
        Ok(()) => eprintln!("wrote {}; `cargo xtask recipes` tests it", patch(name).display()),
        Err(ref error) => eprintln!("error: {error}"),
    }
    written.is_ok()
}

fn known(name: &str) -> bool {
    let known = RECIPES.iter().any(|recipe| recipe.name == name);
    if !known {
        let names: Vec<_> = RECIPES.iter().map(|recipe| recipe.name).collect();
        eprintln!("error: there is no recipe {name:?}; it must be one of {}", names.join(", "));
    }
    known
}

fn patch(name: &str) -> PathBuf {
    root().join("docs/recipes").join(format!("{name}.patch"))
}

fn copy(name: &str) -> PathBuf {
    target().join("recipes").join(name)
}

fn report(name: &str, opened: io::Result<Vec<String>>) -> bool {
    let faults = match opened {
        Ok(faults) => faults,
        Err(error) => vec![error.to_string()],
    };
    for fault in &faults {
        eprintln!("error: {fault}");
    }
    if !faults.is_empty() {
        eprintln!(
            "The code has moved away from docs/recipes/{name}.patch. Make the change by hand in {}, by the recipe in CONTRIBUTING.md, \
             and type `cargo xtask recipe write {name}`.",
            copy(name).display()
        );
    }
    faults.is_empty()
}

/// Brings the copy up to date, and patches it. Returns what does not fit.
fn open(name: &str) -> io::Result<Vec<String>> {
    let (text, copy) = (fs::read_to_string(patch(name))?, copy(name));
    let (mut patched, mut faults) = (Vec::new(), Vec::new());
    for piece in pieces(&text) {
        let fault =
            |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", patch(name).display()));
        let parsed = Patch::from_str(&piece).map_err(|error| fault(&error))?;
        let path = parsed
            .modified()
            .and_then(|path| path.strip_prefix("b/"))
            .ok_or_else(|| fault(&"no file name"))?;
        let before = match parsed.original() {
            Some("/dev/null") => String::new(),
            _ => fs::read_to_string(root().join(path))?,
        };
        match diffy::apply(&before, &parsed) {
            Ok(after) => patched.push((PathBuf::from(path), after)),
            Err(error) => faults.push(format!("{path}: {error}")),
        }
    }
    synchronise(root(), &copy, Path::new(""), &patched)?;
    Ok(faults)
}

/// The patch, file by file.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with("--- ") {
            pieces.push(String::new());
        }
        if let Some(piece) = pieces.last_mut() {
            *piece += line;
            piece.push('\n');
        }
    }
    pieces
}

/// Makes `to` what `from` is with the patched files in place of theirs. A file that is as it should be stays as old as it is, so that cargo
/// compiles nothing twice.
fn synchronise(from: &Path, to: &Path, below: &Path, patched: &[(PathBuf, String)]) -> io::Result<()> {
    fs::create_dir_all(to.join(below))?;
    let mut wanted: Vec<PathBuf> =
        names(&from.join(below))?.into_iter().map(|name| below.join(name)).collect();
    wanted.extend(patched.iter().map(|(path, _)| path.clone()).filter(|path| path.parent() == Some(below)));
    for path in &wanted {
        if from.join(path).is_dir() {
            synchronise(from, to, path, patched)?;
            continue;
        }
        let contents = match patched.iter().find(|(other, _)| other == path) {
            Some((_, text)) => text.clone().into_bytes(),
            None if path.as_os_str() == "Cargo.toml" => {
                other_version(&fs::read_to_string(from.join(path))?).into_bytes()
            }
            // Cargo has changed the versions in the copy, and does so again.
            None if path.as_os_str() == "Cargo.lock" && to.join(path).exists() => continue,
            None => fs::read(from.join(path))?,
        };
        if fs::read(to.join(path)).ok().as_ref() != Some(&contents) {
            fs::write(to.join(path), contents)?;
        }
    }
    for name in names(&to.join(below))? {
        let path = below.join(name);
        if !wanted.contains(&path) {
            let path = to.join(path);
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
    }
    Ok(())
}

/// The manifest of the workspace with a version that the repository never has, and that its requirements allow.
fn other_version(manifest: &str) -> String {
    let lines = manifest.lines().map(|line| {
        match line.strip_prefix("version = ").and_then(|of| of.rsplit_once('.')) {
            Some((start, _)) => format!("version = {start}.999\"\n"),
            None => format!("{line}\n"),
        }
    });
    lines.collect()
}

/// What is in a folder, in order, without what git does not keep.
fn names(folder: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if ![".git", ".tools", "target"].iter().any(|other| name == *other) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// What differs between the repository and its copy.
fn patch_of(copy: &Path) -> io::Result<String> {
    let mut text = String::new();
    differences(copy, Path::new(""), &mut text)?;
    Ok(text)
}

fn differences(copy: &Path, below: &Path, text: &mut String) -> io::Result<()> {
    for name in names(&copy.join(below))? {
        let path = below.join(name);
        // These have another version; a recipe does not change them.
        if path.as_os_str() == "Cargo.toml" || path.as_os_str() == "Cargo.lock" {
            continue;
        }
        if copy.join(&path).is_dir() {
            differences(copy, &path, text)?;
            continue;
        }
        let (before, after) = (fs::read(root().join(&path)).ok(), fs::read(copy.join(&path))?);
        if before.as_ref() == Some(&after) {
            continue;
        }
        let is_text = |bytes: Vec<u8>| {
            String::from_utf8(bytes).map_err(|_| io::Error::other(format!("{} is no text", path.display())))
        };
        let original =
            if before.is_some() { format!("a/{}", path.display()) } else { "/dev/null".to_owned() };
        let (before, after) = (is_text(before.unwrap_or_default())?, is_text(after)?);
        // One line around a change: a patch that is kept for years should depend on little.
        let mut options = diffy::DiffOptions::new();
        options
            .set_context_len(1)
            .set_original_filename(original)
            .set_modified_filename(format!("b/{}", path.display()));
        *text += &options.create_patch(&before, &after).to_string();
    }
    Ok(())
}

fn test(recipe: &Recipe) -> bool {
    let plain = ["splitzip-kernels", "splitzip-host"]
        .map(|package| format!("profile.dev.package.{package}.opt-level=0"));
    recipe.tests.iter().all(|arguments| {
        let mut command = cargo(&["--config", &plain[0], "--config", &plain[1]]);
        command.args(*arguments).current_dir(copy(recipe.name));
        run(command.env("CARGO_TARGET_DIR", target()).env("SPLITZIP_MEMBERS", recipe.members))
    })
}

/// Compiles the kernels of the copy for one target, and looks for the new entries.
fn ptx(recipe: &Recipe) -> bool {
    let (manifest, out) = (
        copy(recipe.name).join("splitzip-kernels/Cargo.toml"),
        target().join("recipes/ptx").join(recipe.name),
    );
    let (manifest, out) = (manifest.to_string_lossy(), out.to_string_lossy());
    let home = target().join("nvptx-builder");
    let home = std::env::var_os("NVPTX_BUILDER_HOME").map_or(home, PathBuf::from);
    let arguments = [
        "build",
        "--manifest-path",
        &manifest,
        "--home",
        &home.to_string_lossy(),
        "--target",
        "sm_90",
        "--out",
        &out,
    ];
    let mut build = cargo(&["run", "--quiet", "--package", "nvptx-builder", "--"]);
    run(build.args(arguments).stdout(Stdio::null()))
        && recipe.entries.iter().all(|entry| {
            let there = Path::new(&*out).join(format!("sm_90/{entry}.ptx")).exists();
            if !there {
                eprintln!("error: the recipe gives no entry {entry}");
            }
            there
        })
}
