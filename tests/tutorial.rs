//! `docs/tutorial.md` shows what is in `examples/own-kernels/`, and commands that exist.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Language and text of every block of code.
fn blocks() -> Vec<(String, String)> {
    let (mut blocks, mut open) = (Vec::new(), None);
    for line in read(&root().join("docs/tutorial.md")).lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => open = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some((_, text))) => *text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "the last block is not closed");
    blocks
}

fn sources(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for item in fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            found.extend(sources(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_block_of_code_stands_in_the_example() {
    let mut seen = 0;
    for (language, text) in blocks() {
        let extension = match language.as_str() {
            "rust" => "rs",
            "toml" => "toml",
            "sh" => continue,
            other => panic!("a block of {other:?} cannot be compared with the example"),
        };
        seen += 1;
        let files = sources(&root().join("examples/own-kernels"), extension);
        assert!(
            files.iter().any(|file| read(file).contains(&text)),
            "no file of examples/own-kernels has\n{text}"
        );
    }
    assert!(seen >= 9, "only {seen} blocks");
}

/// Not run here (`cargo xtask test` does), but what they name is there.
#[test]
fn every_command_names_what_exists() {
    let mut seen = 0;
    for (_, text) in blocks().into_iter().filter(|(language, _)| language == "sh") {
        for line in text.lines() {
            seen += 1;
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words[0], "cargo", "{line}");
            let value = |key: &str| words.iter().position(|word| *word == key).map(|at| words[at + 1]);
            let package = match (value("--manifest-path"), value("-p")) {
                (Some(manifest), _) if words[1] != "run" || value("-p").is_none() => {
                    root().join(manifest).parent().unwrap().to_path_buf()
                }
                (_, Some(package)) => root().join(package),
                _ => panic!("{line}: of which package?"),
            };
            assert!(package.join("Cargo.toml").is_file(), "{line}");
            for (key, folder) in [("--test", "tests"), ("--example", "examples")] {
                if let Some(name) = value(key) {
                    assert!(package.join(folder).join(format!("{name}.rs")).is_file(), "{line}");
                }
            }
            if value("-p") == Some("nvptx-builder") {
                let subcommand = words[words.iter().position(|word| *word == "--").unwrap() + 1];
                let main = read(&package.join("src/main.rs"));
                let variant = subcommand[..1].to_uppercase() + &subcommand[1..];
                assert!(main.contains(&format!("    {variant}")), "{line}");
            }
        }
    }
    assert!(seen >= 5, "only {seen} commands");
}
