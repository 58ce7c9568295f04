//! The committed PTX, and its hashes as records have them.
#![allow(dead_code)]

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The text of an entry.
pub fn text(target: &str, entry: &str) -> Result<String, String> {
    // Cargo says where the package is; for a binary that was copied to another machine, whoever runs it.
    let package =
        std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    let path = format!("{package}/ptx/{target}/{entry}.ptx");
    std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))
}

/// SHA-256 of every PTX file of a target, by entry.
pub fn hashes(target: &str) -> Result<Map<String, Value>, String> {
    let hash =
        |text: String| Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    own_kernels::entries()
        .map(|entry| Ok((entry.name.to_owned(), hash(text(target, entry.name)?).into())))
        .collect()
}
