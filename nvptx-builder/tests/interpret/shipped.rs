//! The PTX of the repository is read, all of it.

use nvptx_builder::interpret::{BlockOrder, Memory, Module, Options};
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

fn fixture(entry: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kernels/ptx/sm_80");
    std::fs::read_to_string(folder.join(format!("{entry}.ptx"))).unwrap()
}

#[test]
fn the_kernels_of_the_fixture() {
    let (mut memory, options) = (Memory::new(), Options::default().order(BlockOrder::Random(9)));
    let numbers: Vec<u8> = (0..256u32).flat_map(u32::to_le_bytes).collect();
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[4 * at..4 * at + 4].try_into().unwrap());

    let (from, to) = (memory.upload_read_only(&numbers.repeat(8)), memory.allocate(8192));
    let copy = Module::parse(&fixture("copy")).unwrap();
    copy.launch("copy", 2, &[from, to, 511], &mut memory, &options).unwrap();
    let copied = memory.read(to, 8176).unwrap();
    assert!((0..2044).all(|at| word(&copied, at) == !(at as u32 % 256)));
    assert!(memory.read(to, 8192).is_err(), "16 bytes were not to be written");

    let turned = memory.upload(&numbers);
    let reverse = Module::parse(&fixture("reverse")).unwrap();
    reverse.launch("reverse", 1, &[turned], &mut memory, &options).unwrap();
    let found = memory.read(turned, 1024).unwrap();
    assert!((0..256).all(|at| word(&found, at) == 255 - at as u32));

    let folded = memory.upload(&numbers);
    let shuffle = Module::parse(&fixture("shuffle_once")).unwrap();
    shuffle.launch("shuffle_once", 1, &[folded, 20], &mut memory, &options).unwrap();
    let found = memory.read(folded, 1024).unwrap();
    assert!((0..20).all(|at| word(&found, at) == 1) && word(&found, 20) == 20);
}

/// The sentence in the README is what one gets.
#[test]
fn a_barrier_that_is_missing() {
    let text = fixture("reverse").replace("bar.sync \t0;", "");
    let mut memory = Memory::new();
    let numbers = memory.upload(&[7; 1024]);
    let options = Options::default().unwritten_shared(true);
    let error =
        Module::parse(&text).unwrap().launch("reverse", 1, &[numbers], &mut memory, &options).unwrap_err();
    let readme = include_str!("../../README.md");
    assert!(readme.contains(&error.to_string()), "{error}");
}
