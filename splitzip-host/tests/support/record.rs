//! The PTX of a target as records name it.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use splitzip_host::cuda::PTX;

/// SHA-256 of every PTX file of a target, by entry.
pub fn ptx_hashes(target: &str) -> Map<String, Value> {
    let hash = |text: &str| Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let files = PTX.iter().filter(|ptx| ptx.target == target);
    files.map(|ptx| (ptx.entry.to_owned(), hash(ptx.text).into())).collect()
}
