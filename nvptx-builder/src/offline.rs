//! Making the library's workspace resolve without a registry.
//!
//! `-Zbuild-std=core` compiles two crates that need nothing, but cargo first resolves the whole workspace of the standard library, which
//! names some thirty crates of the registry. On a machine without a network and without cargo's cache that is the end, after four minutes
//! of retries. Both libraries that we know hold the sources of those crates in `vendor/`, with a `.cargo/config.toml` that says so; cargo
//! reads that file only when it is started inside, where it would also take the registry away from the kernel crate's own dependencies.
//!
//! So cargo gets a folder of links to the library's folders, with a manifest that has a line in `[patch.crates-io]` for each of them, as
//! it has for its own helper crates, and a lock file that forgets that they came from a registry. The library itself is not changed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// The folder to hand to cargo: a view of the library below `folder`, or the library itself if it holds no sources of its dependencies.
///
/// `hash` is the library's; a view that was made for the same library before is used again.
pub fn view(library: &Path, hash: &str, folder: &Path) -> Result<PathBuf> {
    let vendor = library.join("vendor");
    if !vendor.is_dir() || cfg!(not(unix)) {
        return Ok(library.to_path_buf());
    }
    // The place belongs to the name: the same library at another place needs other links.
    let place = crate::hash::bytes(library.as_os_str().as_encoded_bytes());
    let view = folder.join(format!("library-{}-{}", &hash[..8], &place[..8]));
    if view.is_dir() {
        return Ok(view);
    }
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let made = tempfile::Builder::new()
        .prefix(".view-")
        .tempdir_in(folder)
        .map_err(Error::io("create a folder in", folder))?;
    for item in fs::read_dir(library).map_err(Error::io("read", library))? {
        let path = item.map_err(Error::io("read", library))?.path();
        let Some(name) = path.file_name() else { continue };
        if name != "Cargo.toml" && name != "Cargo.lock" {
            link(&path, &made.path().join(name))?;
        }
    }
    let crates = vendored(&vendor)?;
    copy(library, made.path(), "Cargo.toml", |text| with_patches(text, &crates))?;
    copy(library, made.path(), "Cargo.lock", |text| Ok(without_sources(text)))?;
    match fs::rename(made.path(), &view) {
        // Another build was faster.
        Err(_) if view.is_dir() => Ok(view),
        result => result.map(|()| view.clone()).map_err(Error::io("create", view)),
    }
}

#[cfg(unix)]
fn link(from: &Path, to: &Path) -> Result<()> {
    std::os::unix::fs::symlink(from, to).map_err(Error::io("create", to))
}

#[cfg(not(unix))]
fn link(_: &Path, _: &Path) -> Result<()> {
    Ok(())
}

/// The crates below `vendor`, as (name, version, folder).
fn vendored(vendor: &Path) -> Result<Vec<(String, String, String)>> {
    let mut crates = Vec::new();
    for item in fs::read_dir(vendor).map_err(Error::io("read", vendor))? {
        let folder = item.map_err(Error::io("read", vendor))?.path();
        let manifest = folder.join("Cargo.toml");
        if !manifest.is_file() {
            continue;
        }
        let text = fs::read_to_string(&manifest).map_err(Error::io("read", &manifest))?;
        if let Some((name, version)) = name_and_version(&text) {
            crates.push((
                name,
                version,
                folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            ));
        }
    }
    crates.sort();
    Ok(crates)
}

fn copy(
    from: &Path,
    to: &Path,
    name: &str,
    change: impl FnOnce(&str) -> Result<String, String>,
) -> Result<()> {
    let (from, to) = (from.join(name), to.join(name));
    let text = fs::read_to_string(&from).map_err(Error::io("read", &from))?;
    let changed = change(&text).map_err(|message| Error::Config { manifest: from, message })?;
    fs::write(&to, changed).map_err(Error::io("write", &to))
}

/// Name and version in the `[package]` table of a manifest that cargo has normalised.
fn name_and_version(manifest: &str) -> Option<(String, String)> {
    let package = manifest
        .lines()
        .skip_while(|line| line.trim() != "[package]")
        .skip(1)
        .take_while(|line| !line.starts_with('['));
    let value = |key: &str| {
        let value =
            package.clone().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='))?;
        Some(value.trim().trim_matches('"').to_owned())
    };
    Some((value("name")?, value("version")?))
}

/// Crates as (name, version, folder below `vendor`).
fn with_patches(manifest: &str, crates: &[(String, String, String)]) -> Result<String, String> {
    const TABLE: &str = "[patch.crates-io]\n";
    if manifest.contains("path = \"vendor/") {
        return Ok(manifest.to_owned());
    }
    let (before, after) =
        manifest.split_once(TABLE).ok_or("the library's manifest has no [patch.crates-io]")?;
    let mut lines = String::new();
    for (name, version, folder) in crates {
        let twice = crates.iter().filter(|(other, ..)| other == name).count() > 1;
        lines.push_str(&match twice {
            // Two versions of one crate need names that differ.
            true => format!(
                "\"{name}-{}\" = {{ package = \"{name}\", path = \"vendor/{folder}\" }}\n",
                version.replace(['.', '+'], "-")
            ),
            false => format!("{name} = {{ path = \"vendor/{folder}\" }}\n"),
        });
    }
    Ok(format!("{before}{TABLE}{lines}{after}"))
}

fn without_sources(lock: &str) -> String {
    let is_source = |line: &&str| line.starts_with("source = ") || line.starts_with("checksum = ");
    lock.split_inclusive('\n').filter(|line| !is_source(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn every_vendored_crate_becomes_a_patch() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path();
        for (name, manifest) in [
            (
                "memchr-2.7.6",
                "# normalised\n[package]\nedition = \"2021\"\nname = \"memchr\"\nversion = \"2.7.6\"\n[dependencies]\nname = \"no\"\n",
            ),
            ("wasi-1.0.0", "[package]\nname = \"wasi\"\nversion = \"1.0.0\"\n"),
            ("wasi-2.0.0", "[package]\nname = \"wasi\"\nversion = \"2.0.0+b\"\n"),
        ] {
            fs::create_dir_all(library.join("vendor").join(name)).unwrap();
            fs::write(library.join("vendor").join(name).join("Cargo.toml"), manifest).unwrap();
        }
        fs::write(library.join("Cargo.toml"), "[workspace]\n\n[patch.crates-io]\nown = { path = \"own\" }\n")
            .unwrap();
        fs::write(
            library.join("Cargo.lock"),
            "[[package]]\nname = \"memchr\"\nsource = \"registry+x\"\nchecksum = \"y\"\ndependencies = []\n",
        )
        .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let view = view(library, "0123456789", folder.path()).unwrap();
        let patched = fs::read_to_string(view.join("Cargo.toml")).unwrap();
        assert_eq!(
            patched,
            "[workspace]\n\n[patch.crates-io]\nmemchr = { path = \"vendor/memchr-2.7.6\" }\n\
             \"wasi-1-0-0\" = { package = \"wasi\", path = \"vendor/wasi-1.0.0\" }\n\
             \"wasi-2-0-0-b\" = { package = \"wasi\", path = \"vendor/wasi-2.0.0\" }\nown = { path = \"own\" }\n"
        );
        assert_eq!(
            fs::read_to_string(view.join("Cargo.lock")).unwrap(),
            "[[package]]\nname = \"memchr\"\ndependencies = []\n"
        );
        assert!(view.join("vendor/memchr-2.7.6/Cargo.toml").is_file());
        // The library is as it was, the view is found again, and a manifest that is patched already stays as it is.
        assert!(!fs::read_to_string(library.join("Cargo.toml")).unwrap().contains("vendor"));
        assert_eq!(super::view(library, "0123456789", folder.path()).unwrap(), view);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(with_patches(&patched, &[]).unwrap(), patched);
    }

    #[test]
    #[cfg(unix)]
    fn a_library_without_vendored_crates_is_used_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(view(folder.path(), "0123456789", folder.path()).unwrap(), folder.path());
        fs::create_dir(folder.path().join("vendor")).unwrap();
        fs::write(folder.path().join("Cargo.toml"), "[workspace]\n").unwrap();
        let message = view(folder.path(), "0123456789", folder.path()).unwrap_err().to_string();
        assert!(message.contains("[patch.crates-io]"), "{message}");
    }
}
