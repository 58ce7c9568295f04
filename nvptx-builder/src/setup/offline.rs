//! Making the library's workspace resolve without a registry.
//!
//! `-Zbuild-std=core` compiles two crates that need nothing, but cargo first resolves the whole workspace of the standard library, which
//! names some twenty crates of the registry. Debian's library holds their sources in `vendor/`, with a `.cargo/config.toml` that says so;
//! cargo reads that file only when it is started inside, where it would also take the registry away from the kernel crate's own
//! dependencies. So the manifest itself gets a line in `[patch.crates-io]` for each of them, as it has for its own helper crates, and the
//! lock file forgets that they came from a registry. No network, no cache and no configuration take part any more.

use std::{fs, path::Path};

use crate::error::{Error, Result};

/// Changes manifest and lock file of a library that has a folder `vendor`; leaves others as they are.
pub fn patch(library: &Path) -> Result<()> {
    let vendor = library.join("vendor");
    if !vendor.is_dir() {
        return Ok(());
    }
    let mut crates = Vec::new();
    for item in fs::read_dir(&vendor).map_err(Error::io("read", &vendor))? {
        let folder = item.map_err(Error::io("read", &vendor))?.path();
        let manifest = folder.join("Cargo.toml");
        if !manifest.is_file() {
            continue;
        }
        let text = fs::read_to_string(&manifest).map_err(Error::io("read", &manifest))?;
        if let Some((name, version)) = name_and_version(&text) {
            crates.push((name, version, folder.file_name().unwrap_or_default().to_string_lossy().into_owned()));
        }
    }
    crates.sort();
    edit(&library.join("Cargo.toml"), |text| with_patches(text, &crates))?;
    edit(&library.join("Cargo.lock"), |text| Ok(without_sources(text)))
}

fn edit(path: &Path, change: impl FnOnce(&str) -> Result<String, String>) -> Result<()> {
    let text = fs::read_to_string(path).map_err(Error::io("read", path))?;
    let changed = change(&text).map_err(|message| Error::Config { manifest: path.to_path_buf(), message })?;
    fs::write(path, changed).map_err(Error::io("write", path))
}

/// Name and version in the `[package]` table of a manifest that cargo has normalised.
fn name_and_version(manifest: &str) -> Option<(String, String)> {
    let package = manifest.lines().skip_while(|line| line.trim() != "[package]").skip(1).take_while(|line| !line.starts_with('['));
    let value = |key: &str| {
        let value = package.clone().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='))?;
        Some(value.trim().trim_matches('"').to_owned())
    };
    Some((value("name")?, value("version")?))
}

/// Crates as (name, version, folder below `vendor`).
fn with_patches(manifest: &str, crates: &[(String, String, String)]) -> Result<String, String> {
    const TABLE: &str = "[patch.crates-io]\n";
    let (before, after) = manifest.split_once(TABLE).ok_or("the library's manifest has no [patch.crates-io]")?;
    let mut lines = String::new();
    for (name, version, folder) in crates {
        let twice = crates.iter().filter(|(other, ..)| other == name).count() > 1;
        lines.push_str(&match twice {
            // Two versions of one crate need names that differ.
            true => format!("\"{name}-{}\" = {{ package = \"{name}\", path = \"vendor/{folder}\" }}\n", version.replace(['.', '+'], "-")),
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
    fn every_vendored_crate_becomes_a_patch() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path();
        for (name, manifest) in [
            ("memchr-2.7.6", "# normalised\n[package]\nedition = \"2021\"\nname = \"memchr\"\nversion = \"2.7.6\"\n[dependencies]\nname = \"no\"\n"),
            ("wasi-1.0.0", "[package]\nname = \"wasi\"\nversion = \"1.0.0\"\n"),
            ("wasi-2.0.0", "[package]\nname = \"wasi\"\nversion = \"2.0.0+b\"\n"),
        ] {
            fs::create_dir_all(library.join("vendor").join(name)).unwrap();
            fs::write(library.join("vendor").join(name).join("Cargo.toml"), manifest).unwrap();
        }
        fs::write(library.join("Cargo.toml"), "[workspace]\n\n[patch.crates-io]\nown = { path = \"own\" }\n").unwrap();
        fs::write(library.join("Cargo.lock"), "[[package]]\nname = \"memchr\"\nsource = \"registry+x\"\nchecksum = \"y\"\ndependencies = []\n").unwrap();
        patch(library).unwrap();
        assert_eq!(
            fs::read_to_string(library.join("Cargo.toml")).unwrap(),
            "[workspace]\n\n[patch.crates-io]\nmemchr = { path = \"vendor/memchr-2.7.6\" }\n\
             \"wasi-1-0-0\" = { package = \"wasi\", path = \"vendor/wasi-1.0.0\" }\n\
             \"wasi-2-0-0-b\" = { package = \"wasi\", path = \"vendor/wasi-2.0.0\" }\nown = { path = \"own\" }\n"
        );
        assert_eq!(fs::read_to_string(library.join("Cargo.lock")).unwrap(), "[[package]]\nname = \"memchr\"\ndependencies = []\n");
    }

    #[test]
    fn a_library_without_vendored_crates_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        patch(folder.path()).unwrap();
        fs::create_dir(folder.path().join("vendor")).unwrap();
        fs::write(folder.path().join("Cargo.toml"), "[workspace]\n").unwrap();
        assert!(patch(folder.path()).unwrap_err().to_string().contains("[patch.crates-io]"));
    }
}
