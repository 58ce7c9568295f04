//! Where things lie.
//!
//! Everything that the builder brings or makes is under one folder, the home, inside the cargo target folder, so that `cargo clean`
//! removes it and git never sees it:
//!
//! ```text
//! <target>/nvptx-builder/
//!     rust-src/library/     the standard library's sources, where the toolchain has none
//!     rust-src/ORIGIN.txt   where they came from
//!     cuda/bin/             ptxas, nvdisasm, cuobjdump
//!     cuda/ORIGIN.txt       where they came from
//!     build/<target>/       cargo's folder for each target
//!     build/library-<hash>/ a view of the library that needs no registry
//!     cache/                what the assembler said about texts it has seen
//!     ptx/<package>/        what `build` writes when no folder is named
//! ```

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The folders that are searched for what `setup` brought, and the one that is written.
#[derive(Debug, Clone)]
pub struct Home {
    folders: Vec<PathBuf>,
}

impl Home {
    /// The home for the package or workspace around `start`, a folder or a manifest.
    ///
    /// `NVPTX_BUILDER_HOME` names it outright. Else it is in the target folder (`CARGO_TARGET_DIR`, or `target` of the workspace), and
    /// where `CARGO_TARGET_DIR` points elsewhere, what was set up in the workspace's own target folder is found too.
    pub fn around(start: &Path) -> Self {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(folder) = set("NVPTX_BUILDER_HOME") {
            return Self::at(folder);
        }
        let own = workspace_root(start).join("target");
        let mut folders: Vec<_> = set("CARGO_TARGET_DIR")
            .into_iter()
            .chain([own])
            .map(|target| target.join("nvptx-builder"))
            .collect();
        folders.dedup();
        Self { folders: folders.into_iter().map(absolute).collect() }
    }

    /// The home at exactly this folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folders: vec![absolute(folder.into())] }
    }

    /// The folder that is written.
    pub fn folder(&self) -> &Path {
        &self.folders[0]
    }

    /// Is this path in the home?
    pub(crate) fn holds(&self, path: &Path) -> bool {
        self.folders.iter().any(|folder| path.starts_with(folder))
    }

    /// The first folder that holds this path.
    pub(crate) fn find(&self, path: &str) -> Option<PathBuf> {
        self.folders.iter().map(|folder| folder.join(path)).find(|path| path.exists())
    }
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// The nearest folder upwards whose manifest says `[workspace]`, else the nearest with a manifest, else `start`.
///
/// Not `cargo metadata`: `doctor` must work on a machine without cargo.
fn workspace_root(start: &Path) -> PathBuf {
    let start = absolute(start.to_path_buf());
    let with_manifest = || start.ancestors().filter(|folder| folder.join("Cargo.toml").is_file());
    let is_root = |folder: &&Path| {
        let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        text.lines().any(|line| line.trim().starts_with("[workspace]"))
    };
    with_manifest().find(is_root).or_else(|| with_manifest().next()).unwrap_or(&start).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_the_nearest_folder_that_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let member = folder.path().join("a/member");
        fs::create_dir_all(member.join("src")).unwrap();
        fs::write(folder.path().join("Cargo.toml"), "[workspace]\n").unwrap();
        fs::write(member.join("Cargo.toml"), "[package]\n").unwrap();
        assert_eq!(workspace_root(&member.join("src")), folder.path());
        fs::write(member.join("Cargo.toml"), "[package]\n[workspace]\n").unwrap();
        assert_eq!(workspace_root(&member.join("src")), member);
    }
}
