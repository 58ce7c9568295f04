//! The PTX of the repository is read, all of it.

use nvptx_builder::interpret::Module;
use std::path::Path;

#[test]
fn all_committed_ptx_is_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut read = 0;
    for folder in ["../snapshots/ptx/sm_80", "../snapshots/ptx/sm_90", "tests/fixtures/kernels/ptx/sm_80"] {
        for file in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let module = Module::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let stem = path.file_stem().unwrap().to_str().unwrap();
            assert_eq!(module.entries().collect::<Vec<_>>(), [stem]);
            read += 1;
        }
    }
    assert!(read > 100, "{read}");
}
