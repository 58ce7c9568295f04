//! The golden frames, as they are committed.

use splitzip_host::conformance::Victim;
use std::path::PathBuf;

/// Where they lie.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// All of them, by name.
pub fn victims() -> Vec<Victim> {
    let mut paths: Vec<_> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let victim = |path: &PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        Victim::new(&name, std::fs::read(path).unwrap()).unwrap_or_else(|error| panic!("{error}"))
    };
    let victims: Vec<_> = paths.iter().map(victim).collect();
    assert!(victims.len() >= 49, "golden frames are missing: there are {}", victims.len());
    victims
}

/// All of them, and each without checksums.
pub fn victims_of_both_kinds() -> Vec<Victim> {
    let both = |victim: Victim| {
        let without = victim.without_checksums().unwrap_or_else(|error| panic!("{error}"));
        [victim, without]
    };
    victims().into_iter().flat_map(both).collect()
}
