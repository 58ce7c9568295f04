//! Running other programs: every start goes through here, so that every failure reads alike.

use std::{
    ffi::OsStr,
    path::Path,
    process::{Command, Output},
};

use crate::error::{Error, Result};

/// A command in a clean environment: nothing that an outer `cargo run` or a user's shell sets may reach the compiler.
///
/// A build under `cargo test` inherits a dozen `CARGO_*` variables, `RUSTUP_TOOLCHAIN` and perhaps `RUSTFLAGS`; each of them can change
/// the bytes. What concerns the network, the registry cache and certificates stays.
pub(crate) fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let network = [
            "CARGO_HOME",
            "CARGO_HTTP_",
            "CARGO_NET_",
            "CARGO_REGISTRIES_",
            "CARGO_REGISTRY_",
            "CARGO_SOURCE_",
        ];
        let cargo = name.starts_with("CARGO") && !network.iter().any(|keep| name.starts_with(keep));
        let rust = name.starts_with("RUSTC")
            || ["RUSTFLAGS", "RUSTDOCFLAGS", "RUSTUP_TOOLCHAIN", "RUST_RECURSION_COUNT"].contains(&name);
        if cargo || rust || name.starts_with("__CARGO") || name == "LD_LIBRARY_PATH" {
            command.env_remove(name);
        }
    }
    command
}

/// Runs to the end and hands back what was written, whatever the exit status.
pub(crate) fn output(command: &mut Command) -> Result<Output> {
    tracing::debug!(?command, "run");
    command.output().map_err(|source| Error::Start {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })
}

/// Runs to the end; a failure is an error that holds the end of what was written. Hands back stdout.
pub(crate) fn stdout(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(Error::Failed { command: shown(command), status: output.status.to_string(), output: tail(&text, 60) })
}

/// The command line as a person would write it: the program's name without its folder.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// The last `count` lines that hold something.
pub(crate) fn tail(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let error = stdout(&mut Command::new("no-such-program-of-that-name")).unwrap_err().to_string();
        assert!(error.contains("cannot start `no-such-program-of-that-name`"), "{error}");
    }

    #[test]
    fn the_tail_drops_blank_lines() {
        assert_eq!(tail("a\n\nb\n \nc\n", 2), "b\nc");
    }
}
