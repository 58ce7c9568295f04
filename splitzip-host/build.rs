//! Lists the PTX files of the package, so that the library can embed them.
//!
//! They are committed (what ships is what is tested), one entry a file, in a folder for each target: users of the library need neither
//! nightly nor a PTX toolchain.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("ptx");
    println!("cargo::rerun-if-changed={}", root.display());
    let (mut table, mut files) = (String::from("&[\n"), 0);
    for target in sorted(&root) {
        for file in sorted(&target) {
            let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if file.extension().is_some_and(|extension| extension == "ptx") {
                println!("cargo::rerun-if-changed={}", file.display());
                files += 1;
                let _ = writeln!(
                    table,
                    "    Ptx {{ target: {:?}, entry: {:?}, text: include_str!({:?}) }},",
                    name(&target),
                    name(&file),
                    file
                );
            }
        }
    }
    table.push_str("]\n");
    // A library without kernels would say so on a machine with a GPU only.
    if files == 0 {
        println!("cargo::error=no PTX file in {}: is the link to snapshots/ptx there?", root.display());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("ptx.rs");
    if let Err(error) = fs::write(&out, table) {
        println!("cargo::error=cannot write {}: {error}", out.display());
    }
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
