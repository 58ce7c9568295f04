//! The tasks of the repository: `cargo xtask test`, `cargo xtask bless`, `cargo xtask ci`, and the recipes that are kept as patches.
//!
//! Every task is a few commands, each printed before it runs, so that anybody can type them one by one.

mod recipe;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const HELP: &str = "\
Usage: cargo xtask TASK

  test   bring what the kernels need to compile, rebuild the PTX and compare it with what ships, run all tests
  bless  accept what the sources give: PTX and its resource table, macro expansions, refusals, frames, output of the command line
  ci     rustfmt and clippy, then `test`

  recipes            apply the patches in docs/recipes to copies of the repository, build and test these (a part of `test`)
  recipe open NAME   make the copy target/recipes/NAME, with the patch as far as it fits
  recipe write NAME  write docs/recipes/NAME.patch from what differs in the copy
";

fn main() -> ExitCode {
    let tasks: Vec<String> = env::args().skip(1).collect();
    let done = match tasks.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test(),
        ["bless"] => bless(),
        ["ci"] => format() && lint() && test(),
        ["recipes"] => recipe::check(),
        ["recipe", "open", name] => recipe::open_copy(name),
        ["recipe", "write", name] => recipe::write(name),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            true
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The tests run even when the PTX differs, so that one run says everything.
fn test() -> bool {
    let ptx = setup() && nvptx_builder(&["check", "--package", "splitzip-kernels"]);
    let tests = run(cargo(&["test", "--workspace", "--no-fail-fast"]).env("NVPTX_BUILDER_REQUIRE", "1"));
    if !ptx {
        eprintln!(
            "error: the PTX that ships is not what the kernels give (see above); `cargo xtask bless` accepts it"
        );
    }
    ptx && tests && recipe::check()
}

/// PTX first: the library embeds it, and a test compares it with the entries that exist.
fn bless() -> bool {
    let tests = ["test", "--workspace", "--no-fail-fast"];
    setup()
        && nvptx_builder(&["bless", "--package", "splitzip-kernels"])
        && run(cargo(&tests)
            .env("INSTA_UPDATE", "always")
            .env("TRYBUILD", "overwrite")
            .env("SPLITZIP_BLESS", "1")
            .env("NVPTX_BUILDER_REQUIRE", "1"))
}

fn format() -> bool {
    run(&mut cargo(&["fmt", "--all", "--check"]))
}

fn lint() -> bool {
    run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// Brings the compiler's parts and the assembler into the target folder, and says what it took and from where.
fn setup() -> bool {
    nvptx_builder(&["setup"])
}

fn nvptx_builder(arguments: &[&str]) -> bool {
    run(cargo(&["run", "--quiet", "--package", "nvptx-builder", "--"]).args(arguments))
}

/// Cargo in the root of the repository, wherever the task was started.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.unwrap_or(Path::new(".")).to_owned()
}

fn run(command: &mut Command) -> bool {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    eprintln!("$ cargo {}", words.join(" "));
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("error: cannot start cargo: {error}");
            false
        }
    }
}
