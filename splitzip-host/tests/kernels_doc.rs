//! `docs/kernels.md` is made from `snapshots/resources.md`; `SPLITZIP_BLESS=1` writes it.

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

const HEAD: &str = "\
# Kernels

Every entry that ships, and what one block of it takes: made from `snapshots/resources.md` (which has all architectures that each file is
assembled for, and counts of opcodes) by `splitzip-host/tests/kernels_doc.rs`. No entry spills, has a stack, or calls a function. *Blocks* are resident
on a multiprocessor at once; *instructions* are machine instructions.

";

/// Entry to (registers, shared bytes, blocks, instructions), of the PTX for a target assembled for that target.
fn resources(text: &str, target: &str) -> BTreeMap<String, [String; 4]> {
    let heading = format!("## PTX for {target}, assembled for {target}");
    let section = text.split("\n## ").find(|section| format!("## {section}").starts_with(&heading));
    let mut rows = section.expect("a section for the target").lines().filter(|line| line.starts_with('|'));
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let head = cells(rows.next().expect("a table"));
    let column = |name: &str| head.iter().position(|cell| cell == name).expect("a column");
    let columns = ["regs", "shared", "blocks", "sass"].map(column);
    let rows = rows.skip(1).map(cells);
    rows.map(|row| (row[0].clone(), columns.map(|column| row[column].clone()))).collect()
}

fn document(text: &str) -> String {
    let targets = ["sm_80", "sm_90"].map(|target| resources(text, target));
    let mut out = HEAD.to_owned();
    out += "| entry | sm_80: registers | shared | blocks | instructions | sm_90: registers | shared | blocks | instructions |\n";
    out += "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for (entry, sm_80) in &targets[0] {
        let sm_90 = targets[1].get(entry).expect("every entry for every target");
        out += &format!("| `{entry}` | {} | {} |\n", sm_80.join(" | "), sm_90.join(" | "));
    }
    out
}

#[test]
fn the_table_of_kernels_is_that_of_the_resources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let made = document(&fs::read_to_string(root.join("snapshots/resources.md")).unwrap());
    let path = root.join("docs/kernels.md");
    if env::var_os("SPLITZIP_BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == made, "docs/kernels.md is stale; `cargo xtask bless` writes it anew");
}
