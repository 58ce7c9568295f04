//! The tasks of the repository: `cargo xtask test`, `cargo xtask bless`, `cargo xtask ci`, `cargo xtask python`, `cargo xtask integrations`,
//! `cargo xtask transfer`, `cargo xtask large`, `cargo xtask soak`, and the recipes that are kept as patches.
//!
//! Every task is a few commands, each printed before it runs, so that anybody can type them one by one.

mod fuzz;
mod python;
mod recipe;
mod sanitize;
mod transfer;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const HELP: &str = "\
Usage: cargo xtask TASK

  test   bring what the kernels need to compile, rebuild the PTX and compare it with what ships, run all tests
  bless  accept what the sources give: PTX and its resource table, macro expansions, refusals, frames, output of the command line
  ci     rustfmt and clippy, then `test`

  python  build the wheel of the Python package and run its tests (a part of `test`)
  integrations [ENVIRONMENT]  the same with LMCache, vLLM and SGLang, installed into an environment of their own: 7.5 GB of disk
  transfer  install NIXL and Mooncake into an environment in the target folder (600 MB), and run what sends frames between two processes, in Python and
         in Rust (the crate splitzip-nixl, outside of the workspace); needs g++, and libibverbs1 for Mooncake
  large  tensors and requests around 2^32 bytes on the CPU, and a checkpoint of 20 GiB through files under 2 GiB of memory: takes 10 GB of
         memory, 40 GB of disk, and 10 minutes once it is built
  soak [PIPES[,FILES]]  compress and restore so many GiB through pipes and through files under 2 GiB of memory [default: 20,4]
  soak random [--seconds N]  random frames and pages on the CPU, every bit compared [default: 3600]; `--example soak -- --device cuda:0` on a GPU
  damage  the whole damage list on all golden frames, through the reference and the CPU
  sanitize [thread]  the tests of the CPU path's unsafe code under AddressSanitizer; those that share work between threads under ThreadSanitizer, which
         builds the standard library: with the nightly toolchain, or the one that SPLITZIP_NIGHTLY names
  deny    licences, duplicates, sources and advisories of all dependencies; wants cargo-deny
  package  `cargo package` of everything that is published
  fuzz [--seconds N [TARGET]]  build the fuzz targets and run all of them for so long together, or one [default: 3600]

  recipes            apply the patches in docs/recipes to copies of the repository, build and test these (`test` type-checks them)
  recipe open NAME   make the copy target/recipes/NAME, with the patch as far as it fits
  recipe write NAME  write docs/recipes/NAME.patch from what differs in the copy
";

fn main() -> ExitCode {
    let tasks: Vec<String> = env::args().skip(1).collect();
    let done = match tasks.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test(),
        ["bless"] => bless(),
        ["ci"] => format() && lint() && test(),
        ["python"] => python::test(),
        ["integrations"] => python::integrations(None),
        ["integrations", environment] => python::integrations(Some(environment)),
        ["transfer"] => transfer::test(),
        ["large"] => large(),
        ["soak"] => soak("20,4"),
        ["soak", "random"] => soak_random("3600"),
        ["soak", "random", "--seconds", seconds] => soak_random(seconds),
        ["soak", sizes] => soak(sizes),
        ["sanitize"] => sanitize::sanitize(),
        ["sanitize", "thread"] => sanitize::sanitize_threads(),
        ["damage"] => damage(),
        ["deny"] => deny(),
        ["package"] => package(),
        ["fuzz"] => fuzz::fuzz("3600", None),
        ["fuzz", "--seconds", seconds] => fuzz::fuzz(seconds, None),
        ["fuzz", "--seconds", seconds, target] => fuzz::fuzz(seconds, Some(target)),
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

/// A package outside of the workspace: what a stranger's kernels look like.
const OWN_KERNELS: &str = "examples/own-kernels/Cargo.toml";

/// With the peers of `splitzip bench`, which a plain build leaves out.
const TESTS: [&str; 5] = ["test", "--workspace", "--features", "splitzip/peers", "--no-fail-fast"];

/// The tests run even when the PTX differs, so that one run says everything.
fn test() -> bool {
    let ptx = setup() && nvptx_builder(&["check", "--package", "splitzip-kernels"]);
    let recipe = recipe::apply();
    let tests = run(cargo(&TESTS).env("NVPTX_BUILDER_REQUIRE", "1"));
    let own = run(own_kernels(&["test", "--no-fail-fast"]).env("NVPTX_BUILDER_REQUIRE", "1"));
    let python = python::test();
    if !ptx {
        eprintln!(
            "error: the PTX that ships is not what the kernels give (see above); `cargo xtask bless` accepts it"
        );
    }
    ptx && recipe && tests && own && python
}

/// PTX first: the library embeds it, and a test compares it with the entries that exist.
fn bless() -> bool {
    setup()
        && nvptx_builder(&["bless", "--package", "splitzip-kernels"])
        && nvptx_builder(&["bless", "--manifest-path", OWN_KERNELS])
        && run(cargo(&TESTS)
            .env("INSTA_UPDATE", "always")
            .env("TRYBUILD", "overwrite")
            .env("SPLITZIP_BLESS", "1")
            .env("NVPTX_BUILDER_REQUIRE", "1"))
}

/// Optimised: debug builds take minutes for as many bytes. One test at a time: the first part takes most of the memory.
fn large() -> bool {
    let test = ["test", "--release", "--package", "splitzip-host", "--test", "large"];
    let harness = ["--", "--ignored", "--nocapture", "--test-threads", "1"];
    run(&mut cargo(&[&test[..], &harness].concat())) && soak("0,20")
}

/// Minutes of work and gigabytes of disk, so no part of `test`, which runs the same on a small one.
fn soak(sizes: &str) -> bool {
    let test = ["test", "--release", "--package", "splitzip", "--test", "soak"];
    let all = [&test[..], &["--", "--ignored", "--nocapture"]].concat();
    run(cargo(&all).env("SPLITZIP_SOAK", sizes))
}

fn soak_random(seconds: &str) -> bool {
    example("soak", &["--seconds", seconds])
}

fn damage() -> bool {
    example("damage", &["--device", "reference"]) & example("damage", &["--device", "cpu"])
}

fn example(name: &str, arguments: &[&str]) -> bool {
    let command = ["run", "--release", "--package", "splitzip-host", "--example", name, "--"];
    run(&mut cargo(&[&command, arguments].concat()))
}

/// What is outside of the workspace has dependencies of its own.
fn deny() -> bool {
    let check = |manifest: &str| {
        run(&mut cargo(&["deny", "--config", "deny.toml", "--manifest-path", manifest, "check"]))
    };
    let good = ["Cargo.toml", fuzz::MANIFEST, OWN_KERNELS].map(check);
    if good.contains(&false) {
        eprintln!(
            "note: `cargo install --locked cargo-deny` brings cargo-deny; where no network is, add `--offline` and leave advisories out"
        );
    }
    !good.contains(&false)
}

/// Packages are built from what they hold, in the order in which they need each other.
fn package() -> bool {
    run(&mut cargo(&["package", "--workspace", "--exclude", "xtask", "--exclude", "splitzip-python"]))
}

fn format() -> bool {
    run(&mut cargo(&["fmt", "--all", "--check"]))
        && run(&mut own_kernels(&["fmt", "--check"]))
        && run(&mut cargo(&["fmt", "--manifest-path", transfer::MANIFEST, "--check"]))
        && run(&mut cargo(&["fmt", "--manifest-path", fuzz::MANIFEST, "--check"]))
}

fn lint() -> bool {
    run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
        && run(&mut own_kernels(&["clippy", "--all-targets", "--", "-D", "warnings"]))
}

/// Brings the compiler's parts and the assembler into the target folder, and says what it took and from where.
fn setup() -> bool {
    nvptx_builder(&["setup"])
}

fn nvptx_builder(arguments: &[&str]) -> bool {
    let mut command = cargo(&["run", "--quiet", "--package", "nvptx-builder", "--"]);
    run(in_our_target_folder(command.args(arguments)))
}

/// Cargo in the root of the repository, wherever the task was started.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// The same for the package outside of the workspace, in the same target folder: what is compiled for both is compiled once, and what
/// `setup` has brought is found.
fn own_kernels(arguments: &[&str]) -> Command {
    let (subcommand, others) = arguments.split_at(1.min(arguments.len()));
    let mut command = cargo(subcommand);
    in_our_target_folder(command.args(["--manifest-path", OWN_KERNELS]).args(others));
    command
}

fn in_our_target_folder(command: &mut Command) -> &mut Command {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(_) => command,
        None => command.env("CARGO_TARGET_DIR", root().join("target")),
    }
}

fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
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
