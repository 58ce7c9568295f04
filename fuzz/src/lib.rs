//! What the fuzz targets share: the promises, which the tests of the library replay as well.

#[path = "../../splitzip-host/tests/support/promises/mod.rs"]
mod promises;

use std::path::Path;

fn promise(name: &str) -> &'static promises::Promise {
    let promise = promises::ALL.iter().find(|promise| promise.name == name);
    promise.unwrap_or_else(|| panic!("there is no promise {name}"))
}

/// Panics when the bytes break a promise.
pub fn keep(name: &str, data: &[u8]) {
    (promise(name).keep)(data);
}

/// Writes the seeds of a promise to the folder that `SPLITZIP_SEEDS` names, if any: before libFuzzer reads its corpus.
pub fn write_seeds(name: &str) {
    let Some(folder) = std::env::var_os("SPLITZIP_SEEDS") else { return };
    let folder = Path::new(&folder);
    for (number, seed) in (promise(name).seeds)().iter().enumerate() {
        let path = folder.join(format!("seed-{number:03}"));
        std::fs::write(&path, seed).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}
