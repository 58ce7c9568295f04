//! The committed PTX is what the sources build, and what the launchers push is what it takes.

use nvptx_builder::{
    Build, Home, Package, Toolchain, Tools,
    check::{self, Strictness},
    ptx::Param,
};
use own_kernels::entries;
use splitzip_kernels::launch::Kind;
use std::collections::BTreeSet;
use std::path::Path;

const TARGETS: [&str; 2] = ["sm_80", "sm_90"];

#[test]
fn there_is_a_file_for_every_entry_and_no_other() {
    let names: BTreeSet<String> = entries().map(|entry| format!("{}.ptx", entry.name)).collect();
    for target in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ptx").join(target);
        let files: BTreeSet<String> = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}; run `nvptx-builder bless`", folder.display()))
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(files, names, "{target}; run `nvptx-builder bless`");
    }
}

#[test]
fn launchers_push_what_the_ptx_takes() {
    for (entry, target) in entries().flat_map(|entry| TARGETS.map(|target| (entry, target))) {
        let path = format!("{}/ptx/{target}/{}.ptx", env!("CARGO_MANIFEST_DIR"), entry.name);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let head = text.split_once("\n{").map(|(head, _)| &head[head.find(".visible .entry").unwrap()..]);
        let taken: Vec<String> = Param::list(head.unwrap()).unwrap().iter().map(Param::to_string).collect();
        let kind = |kind| match kind {
            Kind::Source | Kind::Target => "ptr",
            Kind::U32 => "u32",
            Kind::U64 => "u64",
            Kind::F32 => "f32",
            other => panic!("{other:?} is new"),
        };
        let mut pushed: Vec<&str> = entry.parameters.iter().map(|parameter| kind(parameter.kind)).collect();
        pushed.push("u32"); // the hidden one
        assert_eq!(taken, pushed, "{path}");
    }
}

/// A product and a sum stay two roundings: every operation on floats says how it rounds, so that no assembler may fuse two of them.
#[test]
fn no_float_operation_is_left_to_the_assembler() {
    for (entry, target) in entries().flat_map(|entry| TARGETS.map(|target| (entry, target))) {
        let path = format!("{}/ptx/{target}/{}.ptx", env!("CARGO_MANIFEST_DIR"), entry.name);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        for line in text.lines().map(str::trim) {
            let free = ["add.f32", "sub.f32", "mul.f32", "mad.f32"];
            let flushed = line.contains(".ftz") || line.contains(".approx");
            assert!(!flushed && !free.iter().any(|free| line.starts_with(free)), "{path}: {line}");
        }
        let counts =
            ["mul.rn.f32", "add.rn.f32", "fma.rn.f32"].map(|operation| text.matches(operation).count());
        match entry.name {
            "saxpy" => assert_eq!(counts, [4, 4, 0], "{path}"),
            "saxpy_fused" => assert_eq!(counts, [0, 0, 4], "{path}"),
            // Of a kernel that is not here, only that nothing is left to the assembler.
            "split_bytes" | "join_bytes" | "row_maximum" => assert_eq!(counts, [0; 3], "{path}"),
            _ => {}
        }
    }
}

/// Needs what `nvptx-builder setup` brings. Without it, it says on stderr that it was skipped; with `NVPTX_BUILDER_REQUIRE=1` it fails.
#[test]
fn the_committed_ptx_is_what_the_sources_build() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Its own home, or the one of the repository that it lies in.
    let found = [folder.to_path_buf(), folder.join("../..")].map(|start| {
        let home = Home::around(&start);
        Tools::find(&home).and_then(|tools| Ok((tools, Toolchain::find_in(home)?)))
    });
    let (tools, toolchain) = match found {
        [Ok(found), _] | [Err(_), Ok(found)] => found,
        [Err(error), Err(_)] => {
            let required = std::env::var_os("NVPTX_BUILDER_REQUIRE").is_some_and(|value| value == "1");
            assert!(!required, "{error}");
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "\n!!! SKIPPED, the PTX was not rebuilt: {error}\n");
            return;
        }
    };
    let package = Package::read(folder, None).unwrap();
    let build = Build::new(folder).toolchain(toolchain).offline(true);
    let report = check::check(&package, &build, &tools, Strictness::Code).unwrap();
    assert_eq!(report.problems, <[&str; 0]>::default(), "accept it with `nvptx-builder bless`");
}
