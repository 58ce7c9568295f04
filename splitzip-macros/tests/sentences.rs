//! Every sentence has a case, and stands in the manual.
//!
//! The sentences are read from the sources: what `#[kernel]` may answer, and what the types of the language answer through
//! `diagnostic::on_unimplemented`. Each must be what the compiler says in some case of `tests/refused` or `tests/language`, so that none
//! can be added, or left behind, without one. `MESSAGES.md` is made from the cases (`SPLITZIP_BLESS=1` writes it) and is a part of the rustdoc.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Folders of cases, with what the manual says above them.
const CASES: [(&str, &str); 2] = [
    ("tests/refused", "What the attribute refuses:"),
    ("tests/language", "What the types of the tile language refuse:"),
];

/// Said only by a macro that is broken itself: they stand behind a check that has answered before.
const NEVER: [&str; 3] =
    ["this kernel could not be read", "this kernel has no program", "this parameter has no name"];

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// What the compiler says in all cases, line by line.
fn said() -> Vec<String> {
    let stderr = CASES.iter().flat_map(|(folder, _)| files(&here().join(folder), "stderr"));
    stderr.flat_map(|path| read(&path).lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// All string literals of a file, in macros and attributes too.
fn literals(tokens: TokenStream, found: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => literals(group.stream(), found),
            TokenTree::Literal(literal) => {
                if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                    found.push(text.value());
                }
            }
            _ => {}
        }
    }
}

/// The literals in `on_unimplemented(..)`, wherever it stands.
fn on_unimplemented(tokens: TokenStream, found: &mut Vec<String>) {
    let mut named = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) if named && group.delimiter() == Delimiter::Parenthesis => {
                literals(group.stream(), found)
            }
            TokenTree::Group(group) => on_unimplemented(group.stream(), found),
            TokenTree::Ident(ref ident) => {
                named = ident == "on_unimplemented";
                continue;
            }
            _ => {}
        }
        named = false;
    }
}

/// Texts for people, as they stand in the source: not documentation, names, or lines of PTX.
fn is_sentence(text: &str) -> bool {
    text.matches(' ').count() >= 2 && !text.starts_with([' ', '/', '|'])
}

/// The fixed pieces of a format string.
fn pieces(text: &str) -> Vec<String> {
    // What `format!` leaves for `on_unimplemented` to fill in.
    let text = text.replace("{{Self}}", "{}");
    let text = text.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let mut pieces = Vec::new();
    for (number, part) in text.split('{').enumerate() {
        let fixed = if number == 0 { part } else { part.split_once('}').map_or("", |(_, rest)| rest) };
        pieces.push(fixed.replace('\u{1}', "{").replace('\u{2}', "}"));
    }
    pieces.retain(|piece| !piece.trim().is_empty());
    pieces
}

/// Do the pieces stand in the line, one behind the other?
fn has(line: &str, pieces: &[String]) -> bool {
    let mut rest = line;
    pieces.iter().all(|piece| match rest.find(piece.as_str()) {
        Some(at) => {
            rest = &rest[at + piece.len()..];
            true
        }
        None => false,
    })
}

#[test]
fn every_sentence_has_a_case() {
    let mut sentences = Vec::new();
    for path in files(&here().join("src"), "rs") {
        if !path.ends_with("tests.rs") {
            literals(read(&path).parse().unwrap(), &mut sentences);
        }
    }
    for never in NEVER {
        assert!(sentences.iter().any(|text| text == never), "{never:?} is no exception any more");
    }
    sentences.retain(|text| is_sentence(text) && !NEVER.contains(&text.as_str()));
    let of_macro = sentences.len();
    for path in files(&here().join("../splitzip-kernels/src"), "rs") {
        on_unimplemented(read(&path).parse().unwrap(), &mut sentences);
    }
    assert!(of_macro > 50, "only {of_macro} sentences of the macro were found");
    assert!(sentences.len() - of_macro > 15, "only {} sentences of the types", sentences.len() - of_macro);

    let said = said();
    let without: Vec<&String> =
        sentences.iter().filter(|text| !said.iter().any(|line| has(line, &pieces(text)))).collect();
    assert!(
        without.is_empty(),
        "no case in tests/refused or tests/language is answered with these; add one for each: {without:#?}"
    );
}

/// `a_generic_has_no_default` as people write it.
fn spoken(case: &Path) -> String {
    let name = case.file_stem().unwrap().to_string_lossy().replace('_', " ");
    name[..1].to_uppercase() + &name[1..]
}

/// The errors of a case, each with the notes that are ours: what to do.
fn answers(stderr: &str) -> Vec<String> {
    let mut answers: Vec<String> = Vec::new();
    for line in stderr.lines() {
        if let Some(error) = line.strip_prefix("error") {
            let text = error.split_once(": ").map_or(error, |(_, text)| text);
            answers.push(text.trim_start_matches("evaluation panicked: ").to_owned());
        } else if let Some(note) = line.trim_start().strip_prefix("= note: ")
            && !["expected ", "this error", "required "].iter().any(|start| note.starts_with(start))
            && let Some(last) = answers.last_mut()
        {
            *last += &format!("; {note}");
        } else if let Some(last) = answers.last_mut().filter(|last| *last == "mismatched types")
            && let Some(at) = line.find("expected `")
        {
            *last += &format!(": {}", &line[at..]);
        }
    }
    let mut seen = Vec::new();
    answers.retain(|answer| !seen.contains(answer) && (seen.push(answer.clone()), true).1);
    answers
}

fn manual() -> String {
    let mut out = String::from(
        "# Messages\n\nEvery rule by the name of its case, and what the compiler says to who breaks it.\n",
    );
    for (folder, above) in CASES {
        out += &format!("\n{above}\n\n| rule | answer |\n| --- | --- |\n");
        for path in files(&here().join(folder), "stderr") {
            let answers = answers(&read(&path)).join("<br>").replace('|', "\\|");
            out += &format!("| {} | {answers} |\n", spoken(&path));
        }
    }
    out
}

#[test]
fn the_manual_has_every_message() {
    let (made, path) = (manual(), here().join("MESSAGES.md"));
    if env::var_os("SPLITZIP_BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == made, "splitzip-macros/MESSAGES.md is stale; `cargo xtask bless` writes it anew");
}

const MACHINERY: [&str; 9] =
    ["*const", "*mut", "PhantomData", "Outside", "Lanes", "arch::", "WholeProgram", "AnyMemory", "__"];

/// What a reader sees first is in the words of the language; how it is enforced may come behind.
#[test]
fn messages_do_not_begin_with_the_machinery() {
    for path in CASES.iter().flat_map(|(folder, _)| files(&here().join(folder), "stderr")) {
        let text = read(&path);
        let mut first = true;
        for line in text.lines() {
            if line.starts_with("error") {
                first = true;
            } else if ["= help", "= note", "help:", "note:"]
                .iter()
                .any(|mark| line.trim_start().starts_with(mark))
            {
                first = false;
            }
            // The reader's own source is no message.
            if line.starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            let line = line.trim_matches(['|', ' ', '_', '^', '-']);
            for word in MACHINERY {
                assert!(!first || !line.contains(word), "{} begins with `{word}`: {line}", path.display());
            }
        }
    }
}
