//! A directory as an input: a checkpoint of several safetensors files with an index, a configuration and a tokenizer.

use crate::failure::{Failure, Result};
use crate::output::shown;
use serde::Deserialize;
use splitzip_host::file::FileError;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What hubs append to the name of a checkpoint for its index.
const INDEX: &str = ".safetensors.index.json";

/// Paths below a directory, relative to it, in their order.
pub struct Tree {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

/// Whether a name ends as those of safetensors files do.
pub fn is_safetensors(path: &Path) -> bool {
    has_extension(path, "safetensors")
}

/// Whether a name ends as those of compressed files do.
pub fn is_compressed(path: &Path) -> bool {
    has_extension(path, "spz")
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}

/// The part of an index that says where tensors are.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, PathBuf>,
}

impl Tree {
    /// Lists a directory, and those in it. Links to files are followed: caches of hubs are made of them.
    ///
    /// # Errors
    /// What is neither a file nor a directory; links to directories, which may lead back; what the system says.
    pub fn read(root: &Path) -> Result<Tree> {
        let mut tree = Tree { files: Vec::new(), directories: Vec::new() };
        tree.list(root, Path::new(""))?;
        tree.files.sort();
        tree.directories.sort();
        Ok(tree)
    }

    fn list(&mut self, root: &Path, below: &Path) -> Result {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| {
                Failure::at(&path)(FileError::Io { action: "open", path: path.clone(), source }.into())
            }
        };
        let directory = root.join(below);
        for entry in fs::read_dir(&directory).map_err(failed(&directory))? {
            let entry = entry.map_err(failed(&directory))?;
            let (path, below) = (entry.path(), below.join(entry.file_name()));
            let kind = entry.file_type().map_err(failed(&path))?;
            let target = fs::metadata(&path).map_err(failed(&path))?;
            if kind.is_dir() {
                self.list(root, &below)?;
                self.directories.push(below);
            } else if target.is_file() {
                self.files.push(below);
            } else {
                let what = if target.is_dir() { "a link to a directory" } else { "a device, pipe or socket" };
                return Err(Failure::Failed(format!(
                    "{} is {what}: take it out of the directory, which must have files and directories only",
                    shown(&path)
                )));
            }
        }
        Ok(())
    }

    /// Those files that `coded` picks, and the others.
    pub fn split(&self, coded: impl Fn(&Path) -> bool) -> (Vec<&PathBuf>, Vec<&PathBuf>) {
        self.files.iter().partition(|file| coded(file))
    }

    /// Makes the same directories elsewhere.
    ///
    /// # Errors
    /// What the system says.
    pub fn make_directories(&self, elsewhere: &Path) -> Result {
        let make = |directory: &PathBuf| {
            let directory = elsewhere.join(directory);
            fs::create_dir_all(&directory)
                .map_err(|error| Failure::Failed(format!("cannot create {}: {error}", shown(&directory))))
        };
        self.directories.iter().try_for_each(make)
    }

    /// Says whether this can be compressed so that all of it comes back.
    ///
    /// # Errors
    /// No safetensors file; one that an index names and that is not there; one that is compressed already.
    pub fn check_checkpoint(&self, root: &Path) -> Result {
        let refuse = |reason: String| Err(Failure::Failed(format!("{}: {reason}", shown(root))));
        if let Some(file) = self.files.iter().find(|file| is_compressed(file)) {
            return refuse(format!(
                "{} is compressed already: it would come back as its original",
                shown(file)
            ));
        }
        if !self.files.iter().any(|file| is_safetensors(file)) {
            return refuse(
                "it is a directory without a .safetensors file; name a file, or another directory".to_owned(),
            );
        }
        for index in self.files.iter().filter(|file| file.to_string_lossy().ends_with(INDEX)) {
            let text = fs::read(root.join(index)).unwrap_or_default();
            let parsed: Index = match serde_json::from_slice(&text) {
                Ok(parsed) => parsed,
                Err(error) => {
                    return refuse(format!("{} is not the index of a checkpoint: {error}", shown(index)));
                }
            };
            for file in parsed.weight_map.values() {
                let file = index.with_file_name(file);
                if !self.files.contains(&file) {
                    let index = shown(index);
                    return refuse(format!(
                        "{index} names {}, which is not there; get it first",
                        shown(&file)
                    ));
                }
            }
        }
        Ok(())
    }

    /// Says whether there is something to restore.
    ///
    /// # Errors
    /// No compressed file.
    pub fn check_compressed(&self, root: &Path) -> Result {
        if self.files.iter().any(|file| is_compressed(file)) {
            return Ok(());
        }
        let reason = "it is a directory without an .spz file; name a file, or another directory";
        Err(Failure::Failed(format!("{}: {reason}", shown(root))))
    }

    /// Says whether all of it can stand side by side when it is restored.
    ///
    /// # Errors
    /// A name that a compressed file comes back to and that something else has.
    pub fn check_restored(&self, root: &Path) -> Result {
        let (coded, mut others) = self.split(is_compressed);
        others.extend(&self.directories);
        for (number, file) in coded.iter().enumerate() {
            let name = file.with_extension("");
            let same = coded[..number].iter().find(|before| before.with_extension("") == name);
            if let Some(other) = same.or_else(|| others.iter().find(|other| ***other == name)) {
                return Err(Failure::Failed(format!(
                    "{}: {} would come back as {}, and so would {}; take one of them out of the directory",
                    shown(root),
                    shown(file),
                    shown(&name),
                    shown(other)
                )));
            }
        }
        Ok(())
    }
}
