//! Hashes of files and folders that do not depend on the machine.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// SHA-256 of bytes, in lower-case hexadecimal.
pub fn bytes(data: &[u8]) -> String {
    hexadecimal(Sha256::digest(data))
}

/// SHA-256 of folders below `root`: for every file, in the order of its path, the path (with `/`), its length and its bytes.
///
/// Times, owners and the order of the file system do not enter; a renamed file does. A folder that does not exist is empty.
pub fn tree(root: &Path, folders: &[&str]) -> Result<String> {
    let mut files = Vec::new();
    for folder in folders {
        let path = root.join(folder);
        if path.is_dir() {
            collect(&path, folder, &mut files)?;
        }
    }
    files.sort();
    let mut hash = Sha256::new();
    for (name, path) in files {
        let data = fs::read(&path).map_err(Error::io("read", &path))?;
        hash.update(format!("{name}\0{}\0", data.len()));
        hash.update(data);
    }
    Ok(hexadecimal(hash.finalize()))
}

fn collect(folder: &Path, name: &str, files: &mut Vec<(String, PathBuf)>) -> Result<()> {
    for item in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let path = item.map_err(Error::io("read", folder))?.path();
        let below = format!("{name}/{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            collect(&path, &below, files)?;
        } else {
            files.push((below, path));
        }
    }
    Ok(())
}

fn hexadecimal(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_of_names_and_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/x.rs", "1");
        write("a/b/y.rs", "2");
        write("other", "3");
        let first = tree(folder.path(), &["a", "missing"]).unwrap();
        write("other", "4");
        assert_eq!(first, tree(folder.path(), &["a"]).unwrap());
        write("a/x.rs", "5");
        assert_ne!(first, tree(folder.path(), &["a"]).unwrap());
        assert_eq!(bytes(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
