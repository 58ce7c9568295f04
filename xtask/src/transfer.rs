//! Frames between two processes, over NIXL and Mooncake. Both are large installs with parts of the system below them, so this is a task of its own and no part of `test`.

use crate::{python, root, target};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crate outside of the workspace: nixl-sys can be in a graph once only.
pub const MANIFEST: &str = "splitzip-nixl/Cargo.toml";

const PACKAGES: [&str; 6] =
    ["maturin>=1.9,<2", "numpy", "ml_dtypes", "pytest", "libclang", "mooncake-transfer-engine-non-cuda"];

/// Without what they depend on: that is PyTorch, which memory of the host does not need.
const NIXL: [&str; 3] = ["--no-deps", "nixl==1.5.1", "nixl-cu12==1.5.1"];

/// The loopback, and no more words than errors. UCX's module for InfiniBand brings a libnl that ends programs with a fault when they exit.
const LOOPBACK: [(&str, &str); 4] =
    [("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "lo"), ("UCX_MODULES", "^ib"), ("NIXL_LOG_LEVEL", "ERROR")];

/// Installs everything and runs the tests; what is missing fails them.
pub fn test() -> bool {
    let interpreter = target().join("transfer/venv/bin/python");
    let installed = python::environment(&interpreter)
        && python::pip(&interpreter, &PACKAGES)
        && python::pip(&interpreter, &NIXL)
        && python::install(&interpreter);
    installed && {
        let in_python = run_python(&interpreter);
        run_rust(&interpreter) && in_python
    }
}

fn run_python(interpreter: &Path) -> bool {
    let mut tests = Command::new(interpreter);
    tests.args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]);
    tests.args(
        ["test_transfer", "test_transfer_faults", "test_transfer_engines"]
            .map(|name| format!("splitzip-python/tests/{name}.py")),
    );
    python::run(tests.env("SPLITZIP_REQUIRE_TRANSFER", "1"))
}

/// Clippy and the tests of the crate. libclang is that of the environment, and so is the library that is looked for when the tests run.
fn run_rust(interpreter: &Path) -> bool {
    let Some(packages) = packages_of(interpreter) else {
        eprintln!("error: {} does not say where its packages are", interpreter.display());
        return false;
    };
    let headers = Command::new("g++").arg("-print-file-name=include").output();
    let Some(headers) = headers.ok().and_then(|output| String::from_utf8(output.stdout).ok()) else {
        eprintln!("error: nixl-sys needs g++ (on Debian: `apt-get install g++`)");
        return false;
    };
    let clang = format!("-I{}", headers.trim());
    [&["clippy", "--all-targets"][..], &["test"]].into_iter().all(|words| {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let (task, others) = words.split_at(1);
        command.args(task).args(["--manifest-path", MANIFEST]).args(others);
        if task == ["clippy"] {
            command.args(["--", "-D", "warnings"]);
        }
        command.current_dir(root()).env("CARGO_TARGET_DIR", target()).envs(LOOPBACK);
        command.env("LIBCLANG_PATH", packages.join("clang/native")).env("BINDGEN_EXTRA_CLANG_ARGS", &clang);
        command.env("LD_LIBRARY_PATH", packages.join(".nixl_cu12.mesonpy.libs"));
        command.env("NIXL_PLUGIN_DIR", packages.join("nixl_cu12.libs/nixl"));
        command.env("SPLITZIP_REQUIRE_TRANSFER", "1").env("SPLITZIP_PYTHON", interpreter);
        crate::run(&mut command)
    })
}

fn packages_of(interpreter: &Path) -> Option<PathBuf> {
    let script = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let output = Command::new(interpreter).args(["-c", script]).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(path.trim())).filter(|path| path.is_dir())
}
