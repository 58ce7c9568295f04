//! Every rule of `#[kernel]` and its sentence. `TRYBUILD=overwrite` blesses them, with the Rust version of the workspace:
//! what stands around the sentences is the compiler's.

#[test]
fn misuse_is_answered_with_a_sentence() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}

/// No word of the machinery in a sentence: whoever reads it knows kernels, not how macros are made.
#[test]
fn sentences_speak_of_kernels() {
    let mut cases = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/refused")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "stderr") {
            assert!(path.with_extension("stderr").exists(), "{} has no sentence", path.display());
            continue;
        }
        assert!(path.with_extension("rs").exists(), "{} belongs to no case", path.display());
        cases += 1;
        let said = std::fs::read_to_string(&path).unwrap();
        for word in [
            "__Parameters",
            "__programs",
            "__level",
            "__Scratch",
            "syn::",
            "PatType",
            "TokenStream",
            "ItemFn",
            "proc macro panicked",
            "could not be read",
            "Type0",
            "Type1",
        ] {
            assert!(!said.contains(word), "{} says `{word}`", path.display());
        }
        let first = said.lines().next().unwrap_or_default();
        assert!(first.starts_with("error"), "{}: {first}", path.display());
    }
    assert!(cases > 50, "only {cases} cases");
}
