//! What every command says, when it succeeds and when it fails: all of it, so that a change of a sentence is read by somebody.

mod common;

use common::{Place, bf16, command, noise, safetensors_of, untimed};
use std::fs;
use std::process::Command;

/// A directory with one file of every kind.
fn place() -> Place {
    let place = Place::new();
    let kv = safetensors_of(&[
        ("layers.0.k", "BF16", &[2, 32, 64], bf16(4096, 1)),
        ("layers.1.k", "BF16", &[2, 32, 64], bf16(4096, 2)),
        ("noise", "BF16", &[2048], noise(4096, 3)),
        ("ids", "I64", &[3], noise(24, 4)),
    ]);
    place.file("kv.safetensors", &kv);
    place.file("pool.safetensors", &safetensors_of(&[("pool", "F8_E4M3", &[4096], noise(4096, 5))]));
    place.file("cut.safetensors", &kv[..kv.len() - 5]);
    place.file("plain.bin", &bf16(4096, 1));
    place.file("text.spz", b"this is a text");
    place.file("model.pt", b"PK\x03\x04");
    place.file("escape\u{1b}[31m", b"x");
    place.file("out", b"");
    fs::create_dir(place.path("empty")).expect("a directory");
    place
}

/// What a call prints, with its exit code when it is not 0. The reference runs everywhere alike.
fn say(place: &Place, out: &mut String, line: &str) {
    let arguments: Vec<String> =
        line.split_whitespace().map(|word| word.replace("ESC", "\u{1b}[31m")).collect();
    let mut command = command();
    command.args(&arguments).current_dir(place.path(""));
    let coding = !["devices", "completions", "man", "plan", "help"].contains(&arguments[0].as_str());
    if coding && !line.contains("--device") {
        command.args(["--device", "reference"]);
    }
    let said = command.output().expect("the program starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    *out += &format!("$ splitzip {line}\n{}{stderr}", untimed(&stdout));
    if let Some(code) = said.status.code().filter(|&code| code != 0) {
        *out += &format!("(exit code {code})\n");
    }
    *out += "\n";
}

#[test]
fn what_is_said_of_success() {
    let (place, mut out) = (place(), String::new());
    for line in [
        "compress kv.safetensors --verify",
        "compress kv.safetensors --scheme auto -o auto.spz",
        "compress plain.bin --dtype bf16",
        "compress pool.safetensors kv.safetensors --force",
        "inspect plain.bin.spz",
        "decompress kv.safetensors.spz -o back",
        "decompress kv.safetensors.spz pool.safetensors.spz --force",
        "verify kv.safetensors.spz --against kv.safetensors",
        "verify kv.safetensors.spz plain.bin.spz",
        "calibrate kv.safetensors -o book",
        "compress kv.safetensors --codebook book --scheme w4 --force",
        "calibrate kv.safetensors -o -",
        "decompress kv.safetensors.spz --tensors ids --tensors layers.0.* -o part",
        "report kv.safetensors -o report.html",
        "plan kv.safetensors --link 100g",
    ] {
        say(&place, &mut out, line);
    }
    insta::assert_snapshot!("success", out);
}

#[test]
fn what_is_said_of_failure() {
    let (place, mut out) = (place(), String::new());
    for line in [
        "compress missing",
        "compress cut.safetensors",
        "compress cut.safetensors --dtype bf16",
        "compress plain.bin",
        "compress plain.bin --dtype fp4",
        "compress plain.bin --dtype bytes",
        "compress escapeESC",
        "compress model.pt",
        "compress text.spz -o x",
        "compress kv.safetensors -o out",
        "compress kv.safetensors -o kv.safetensors --force",
        "compress kv.safetensors -o no/such",
        "compress kv.safetensors -o empty",
        "compress kv.safetensors -o /dev/null --force",
        "compress kv.safetensors -o new/",
        "compress kv.safetensors --scheme w9",
        "compress pool.safetensors --scheme w4",
        "compress kv.safetensors --codebook kv.safetensors --scheme w4",
        "compress kv.safetensors --device cuda:x",
        "compress kv.safetensors --threads 0",
        "compress kv.safetensors plain.bin -o out",
        "compress kv.safetensors empty",
        "compress empty",
        "compress - kv.safetensors",
        "compress - -",
        "compress kv.safetensors kv.safetensors",
        "compress -",
        "compress kv.safetensors -o - --json",
        "decompress text.spz",
        "decompress kv.safetensors",
        "decompress kv.safetensors -o x",
        "decompress empty",
        "decompress .spz",
        "decompress text.spz --tensors a[ -o x",
        "decompress text.spz --tokens 5..2 -o x",
        "decompress text.spz --tensors *",
        "verify text.spz",
        "verify text.spz kv.safetensors",
        "verify text.spz kv.safetensors --against out",
        "inspect text.spz",
        "inspect missing --json",
        "calibrate pool.safetensors -o book",
        "calibrate kv.safetensors",
        "bench --schemes w9",
        "bench --data plain.bin",
        "bench --data empty",
        "bench --threads 0",
        "bench --sizes NaN",
        "bench --bases row",
        "devices x",
        "report missing -o x",
        "report kv.safetensors -o kv.safetensors --force",
        "report kv.safetensors -o - --json",
        "plan",
        "plan empty",
        "plan kv.safetensors --link NaN",
        "plan kv.safetensors --rates text.spz",
        "plan kv.safetensors --encode-on tpu",
        "help squeeze",
        "man squeeze",
        "completions tcsh",
    ] {
        say(&place, &mut out, line);
    }
    insta::assert_snapshot!("failure", out);
    // Nothing was written, and nothing is left.
    let names =
        ["cut.safetensors", "empty", "escape\u{1b}[31m", "kv.safetensors", "model.pt", "out", "plain.bin"];
    assert_eq!(place.names(), [&names[..], &["pool.safetensors", "text.spz"]].concat());
}

/// The help of the program and of every command, as `-h` and as `--help` say it.
#[test]
fn what_the_help_says() {
    let (place, mut out) = (place(), String::new());
    let commands = [
        "compress",
        "decompress",
        "verify",
        "inspect",
        "calibrate",
        "devices",
        "bench",
        "plan",
        "report",
        "completions",
        "man",
    ];
    let nested = std::iter::once("help bench transfer".to_owned());
    for line in
        std::iter::once("help".to_owned()).chain(commands.map(|name| format!("help {name}"))).chain(nested)
    {
        say(&place, &mut out, &line);
        let said = |arguments: &[&str]| {
            let output = command().args(arguments).output().expect("the program starts");
            untimed(&common::Run::from(output).succeeds().stdout)
        };
        let name = line.strip_prefix("help ");
        let long: Vec<&str> = name.into_iter().flat_map(str::split_whitespace).chain(["--help"]).collect();
        assert!(
            out.ends_with(&format!("$ splitzip {line}\n{}\n", said(&long))),
            "{line} says something else"
        );
    }
    // All commands that there are.
    let listed =
        out.split_once("Commands:\n").and_then(|(_, rest)| rest.split_once("\n\n")).expect("the commands").0;
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, [&commands[..], &["help"]].concat());
    insta::assert_snapshot!("help", out);
}

#[test]
fn colours_are_for_terminals() {
    let place = place();
    let escapes = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = command();
        command.args(arguments).current_dir(place.path("")).envs(variables.iter().copied());
        let said = command.output().expect("the program starts");
        [said.stdout, said.stderr].map(|said| said.contains(&0x1b))
    };
    let forced = ("CLICOLOR_FORCE", "1");
    let inspect = ["inspect", "kv.safetensors", "--device", "reference"];
    assert_eq!(escapes(&inspect, &[]), [false, false]);
    assert_eq!(escapes(&inspect, &[forced]), [true, false]);
    assert_eq!(escapes(&["inspect", "missing"], &[]), [false, false]);
    assert_eq!(escapes(&["inspect", "missing"], &[forced]), [false, true]);
    assert_eq!(escapes(&["--help"], &[]), [false, false]);
    // Not in objects, and the name of a file cannot bring its own.
    assert_eq!(escapes(&[&inspect[..], &["--json"]].concat(), &[forced]), [false, false]);
    assert_eq!(escapes(&["inspect", "escape\u{1b}[31m"], &[]), [false, false]);

    // `script` gives it a terminal.
    let on_a_terminal = |no_color: bool| {
        let mut script = Command::new("script");
        let line = format!("'{}' inspect kv.safetensors --device reference", env!("CARGO_BIN_EXE_splitzip"));
        script.args(["-qec", &line, "/dev/null"]).current_dir(place.path(""));
        script.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("CLICOLOR");
        if no_color {
            script.env("NO_COLOR", "1");
        }
        script.output().ok().filter(|said| said.status.success()).map(|said| said.stdout)
    };
    let (Some(coloured), Some(plain)) = (on_a_terminal(false), on_a_terminal(true)) else {
        eprintln!("SKIPPED colours on a terminal: there is no script(1)");
        return;
    };
    let bold = |said: &[u8]| String::from_utf8_lossy(said).contains("\u{1b}[1m");
    assert!(bold(&coloured) && String::from_utf8_lossy(&coloured).contains("layers.0.k"));
    assert!(!bold(&plain) && String::from_utf8_lossy(&plain).contains("layers.0.k"));
}
