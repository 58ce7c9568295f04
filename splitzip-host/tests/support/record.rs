//! The PTX of a target as records name it.

use serde_json::{Map, Value};
use splitzip_host::cuda::PTX;

/// SHA-256 of every PTX file of a target, by entry.
pub fn ptx_hashes(target: &str) -> Map<String, Value> {
    let files = PTX.iter().filter(|ptx| ptx.target == target);
    files.map(|ptx| (ptx.entry.to_owned(), ptx.sha256().into())).collect()
}
