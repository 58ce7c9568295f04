//! The Python package: its wheel, and the tests that need NumPy and ml_dtypes only.
//!
//! The wheel is compiled without optimisation: with it the library alone takes minutes again, since cargo compiles it anew for other
//! features of its dependencies than those of the whole workspace. What the optimised library does is tested without Python.

use crate::{root, target};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What pip is asked for, by name.
const PACKAGES: [&str; 4] = ["maturin>=1.9,<2", "numpy", "ml_dtypes", "pytest"];

/// LMCache as a whole (with PyTorch: gigabytes), and of vLLM and SGLang what their tiers of storage and the pools behind them import.
const ENGINES: [&str; 3] = ["lmcache==0.5.6", "numpy", "pytest"];
const ENGINES_ALONE: [&str; 14] = [
    "vllm==0.33.0",
    "sglang==0.5.23",
    "apache-tvm-ffi",
    "compressed-tensors",
    "dill",
    "gguf",
    "ipython",
    "loguru",
    "orjson",
    "pillow",
    "pybase64",
    "sentencepiece",
    "torchvision",
    "traitlets",
];

/// Builds the wheel and runs its tests, in an environment in the target folder.
pub fn test() -> bool {
    let python = target().join("python/venv/bin/python");
    environment(&python) && pip(&python, &PACKAGES) && install(&python) && run_tests(&python)
}

/// The same with serving engines, in an environment of their own: one that is named, or one in the target folder.
pub fn integrations(environment_folder: Option<&str>) -> bool {
    let folder = environment_folder.map_or_else(|| target().join("python/integrations"), PathBuf::from);
    let python = folder.join("bin/python");
    environment(&python)
        && pip(&python, &PACKAGES[..1])
        && pip(&python, &ENGINES)
        && pip(&python, &[&["--no-deps"], &ENGINES_ALONE[..]].concat())
        && install(&python)
        && run(Command::new(&python)
            .args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "splitzip-python/integrations"])
            .env("LMCACHE_TRACK_USAGE", "false"))
}

/// Builds the wheel and installs it.
pub fn install(python: &Path) -> bool {
    let wheels = target().join("python/wheels");
    build(python, &wheels)
        && wheel_in(&wheels).is_some_and(|wheel| pip(python, &["--force-reinstall", "--no-deps", &wheel]))
}

pub fn environment(python: &Path) -> bool {
    if python.exists() {
        return true;
    }
    let folder = python.ancestors().nth(2).unwrap_or(Path::new("."));
    let made = run(Command::new("python3").args(["-m", "venv"]).arg(folder));
    if !made {
        // What a Python without pip has begun would be taken for one that has it.
        let _ = fs::remove_dir_all(folder);
        eprintln!(
            "error: the tests of the Python package need Python 3.10 or newer with venv (on Debian: `apt-get install python3-venv`)"
        );
    }
    made
}

/// Pip says itself what it takes, and from where.
pub fn pip(python: &Path, arguments: &[&str]) -> bool {
    run(Command::new(python).args(["-m", "pip", "install", "--disable-pip-version-check"]).args(arguments))
}

fn build(python: &Path, wheels: &Path) -> bool {
    // One wheel is there at a time, so that it is the one that is installed.
    let _ = fs::remove_dir_all(wheels);
    let mut maturin = Command::new(python);
    maturin.args(["-m", "maturin", "build", "--locked", "--profile", "dev"]);
    for package in ["splitzip-kernels", "splitzip-host"] {
        maturin.arg("--config").arg(format!("profile.dev.package.{package}.opt-level=0"));
    }
    maturin.args(["--manifest-path", "splitzip-python/Cargo.toml", "--interpreter"]).arg(python);
    run(maturin.arg("--out").arg(wheels).env("CARGO_TARGET_DIR", target()))
}

fn wheel_in(wheels: &Path) -> Option<String> {
    let mut names = fs::read_dir(wheels).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = names.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    Some(wheel?.to_string_lossy().into_owned())
}

fn run_tests(python: &Path) -> bool {
    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "splitzip-python/tests"]);
    // The tests of the command line have built it.
    let binary: PathBuf = target().join("debug/splitzip");
    if env::var_os("SPLITZIP_BIN").is_none() && binary.exists() {
        tests.env("SPLITZIP_BIN", binary);
    }
    run(&mut tests)
}

pub fn run(command: &mut Command) -> bool {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    eprintln!("$ python {}", words.join(" "));
    match command.current_dir(root()).env("PYTHONDONTWRITEBYTECODE", "1").status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("error: cannot start {}: {error}", command.get_program().display());
            false
        }
    }
}
