//! `docs/cli.md` is made from the help of every command; `SPLITZIP_BLESS=1` writes it. Completions and man pages, and the session that the
//! README shows.

mod common;

use common::{Place, command, fixture, run, untimed};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

const HEAD: &str = "\
# The command line

Made from the help by `tests/manual.rs`; `cargo xtask bless` writes it anew. `splitzip man` and `splitzip man COMMAND` are the same as man
pages, `splitzip completions SHELL` writes completions.

## Inputs

- **Files** say by their first bytes what they are: safetensors, `.npy`, or `.spz`. With `--dtype` a file that is none of these is taken for elements
  of that dtype and nothing else (one that is called `.safetensors` has to be one). Whatever it is, it comes back byte for byte, header and all. What
  Python pickled (`.pt`, `.bin`, `.npz`) is refused, with the line that converts it: reading a pickle means running it.
- **`-`** is stdin, once in a call, or stdout, for whatever is one file: compressed or restored ones, parts, codebooks, reports. A compressed file starts with the size of its original. That of a safetensors or `.npy` file follows from its header, so it
  streams through bounded memory, and so does every `.spz` file; the compressed bytes are those that the file would give. Elements without a header do not tell
  their number, and parts, `--against` and all commands but `compress`, `decompress` and `verify` read an input in any order: such inputs are kept in a temporary file without a name (in `TMPDIR`) first. What a
  stream has handed on before an error shows is not to be used: look at the exit code.
- **Several files** are compressed, restored or verified one after the other. One that fails is said on stderr, the others go on, a table sums them
  up, and the exit code is 1.
- **A directory**, such as a checkpoint in shards with its index, becomes a directory: `.safetensors` files are compressed, all others copied, and `decompress`
  gives the same directory back, with files where links to files were. It lies outside of the one that it is made of, appears in one step when all is done, and never replaces one that is there. Shards that the index names must be there.

## Outputs

Files are written beside their target and get its name when they are complete and on disk: an interrupt, an error or a full disk leaves the target as it was and
nothing half done. (What is killed outright, or by the system for want of memory, leaves `.NAME.XXXXXX.tmp` beside it, which can be removed.) Existing files are replaced with `--force` only, and
keep their mode; new ones have that of the umask, whatever the input has; a name that ends in a slash is that of a directory. Memory is that of a few frames of 64 MiB, whatever the size of the file: some 400 MB
([measured](performance.md#large-files)).

Results go to stdout, errors, warnings and progress (on a terminal) to stderr. With `--json` stdout has one object; fields of schema 1 do not go away or change
their meaning. Colours are for terminals only; `NO_COLOR` turns them off.

Exit codes: 0 all is well, 1 it failed, 2 it was called wrongly.
";

/// Help as it is printed.
fn help(arguments: &[&str]) -> String {
    let output = command().args(arguments).arg("--help").output().expect("the program starts");
    common::Run::from(output).succeeds().stdout
}

/// Commands that a help lists.
fn listed(arguments: &[&str]) -> Vec<String> {
    let help = help(arguments);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

fn commands() -> Vec<String> {
    listed(&[])
}

/// Those of a command that has commands of its own.
fn commands_of(name: &str) -> Vec<String> {
    listed(&[name]).into_iter().map(|inner| format!("{name} {inner}")).collect()
}

/// The help of a command in Markdown: arguments and options as a table, without those that all commands have.
fn section(name: &str, shared: &[String]) -> String {
    let help = help(&name.split_whitespace().collect::<Vec<_>>());
    let mut out = if name.is_empty() { String::new() } else { format!("\n## {name}\n\n") };
    let mut table = false;
    for line in help.lines() {
        let row = line.strip_prefix("  ").map(str::trim_start).filter(|_| !line.contains("Usage:"));
        if let Some(row) = row {
            let (what, meaning) = row.split_once("  ").unwrap_or((row, ""));
            if shared.contains(&what.to_owned()) {
                continue;
            }
            if !table {
                out += "| | |\n| --- | --- |\n";
                table = true;
            }
            out += &format!("| `{what}` | {} |\n", meaning.trim().replace('|', "\\|"));
        } else if let Some(usage) = line.strip_prefix("Usage: ") {
            out += &format!("```text\n{usage}\n```\n");
        } else if !line.ends_with(':') && !line.starts_with("Exit codes") {
            // One table for arguments and options.
            if !(table && line.is_empty()) {
                out += &format!("{line}\n");
            }
        } else {
            table = table && line == "Options:";
        }
    }
    out.trim_end().to_owned() + "\n"
}

#[test]
fn the_page_of_the_command_line_is_that_of_the_help() {
    let shared: Vec<String> = ["-v, --verbose...", "-h, --help", "-V, --version"].map(str::to_owned).to_vec();
    let names = commands();
    assert!(names.len() >= 9, "{names:?}");
    let mut made = HEAD.to_owned() + "\n## splitzip\n\n" + &section("", &[]);
    for name in names.iter().flat_map(|name| std::iter::once(name.clone()).chain(commands_of(name))) {
        made += &section(&name, &shared);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    if env::var_os("SPLITZIP_BLESS").is_some() {
        fs::write(&path, &made).expect("write docs/cli.md");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == made, "docs/cli.md is stale; `cargo xtask bless` writes it anew");
}

#[test]
fn completions_for_every_shell() {
    let names = commands();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run([&"completions", &shell]).succeeds().stdout;
        for name in &names {
            assert!(script.contains(name.as_str()), "{shell} does not complete {name}");
        }
        assert!(script.contains("--threads") || script.contains("threads"), "{shell}");
        if shell == "bash" {
            let place = Place::new();
            let file = place.file("completions", script.as_bytes());
            match Command::new("bash").arg("-n").arg(file).output() {
                Ok(checked) => assert!(checked.status.success(), "{checked:?}"),
                Err(error) => eprintln!("SKIPPED bash -n: {error}"),
            }
        }
    }
    run([&"completions", &"tcsh"]).fails(2, &["tcsh", "bash"]);
}

#[test]
fn man_pages_of_every_command() {
    let page = run([&"man"]).succeeds().stdout;
    assert!(page.contains(".TH splitzip 1"), "{page}");
    for name in commands() {
        let page = run([&"man", &name]).succeeds().stdout;
        assert!(page.contains(&format!(".TH splitzip-{name} 1")), "{page}");
        assert!(page.contains(&format!("splitzip {name}")) || page.contains(&format!("splitzip\\-{name}")));
    }
    run([&"man", &"squeeze"]).fails(2, &["there is no command \"squeeze\"", "compress, decompress"]);
}

/// The commands of the README's session are run where it runs them, and print what it shows, but for times and rates.
#[test]
fn the_session_of_the_readme_is_real() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).expect("the README");
    let session = readme.split("```console\n").nth(1).and_then(|rest| rest.split("```").next());
    let session = session.expect("a session in the README");
    let place = Place::new();
    fs::copy(fixture(), place.path("kv.safetensors")).expect("copy the fixture");
    let directory = place.path("");
    let binary = Path::new(env!("CARGO_BIN_EXE_splitzip")).parent().expect("a directory");
    let path = env::join_paths(
        std::iter::once(binary.to_owned()).chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())),
    );
    let path = path.expect("a path");
    let mut said = String::new();
    for line in session.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let mut shell = Command::new("sh");
        // The session is that of a machine without a GPU.
        shell.args(["-c", line]).current_dir(&directory).env("PATH", &path).env("CUDA_VISIBLE_DEVICES", "");
        let output = shell.output().expect("a shell");
        assert!(output.status.success(), "{line}: {output:?}");
        said += &format!("$ {line}\n{}", String::from_utf8_lossy(&output.stdout));
    }
    assert!(said.lines().filter(|line| line.starts_with("$ ")).count() >= 3, "no session in the README");
    assert!(untimed(&said) == untimed(session), "the README does not show this:\n{said}");
}
