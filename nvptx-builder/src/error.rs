//! One error type. A message says what was wrong, what is allowed, and what to type.

use std::{io, path::PathBuf};

use crate::ptx::lint::Finding;

/// Why a build, a setup or a check could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: "read", "write", "create", ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A program could not be started.
    #[error("cannot start `{program}`: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A program ran and failed.
    #[error("`{command}` failed ({status}):\n{output}")]
    Failed {
        /// The command line, shortened to what matters.
        command: String,
        /// Its exit status.
        status: String,
        /// What it wrote, the end of it when it is long.
        output: String,
    },
    /// Something that the build needs is not installed.
    #[error("{what} is missing: {hint}")]
    Missing {
        /// The need.
        what: String,
        /// What to type.
        hint: String,
    },
    /// The manifest or its `[package.metadata.nvptx-builder]` table is wrong.
    #[error("{}: {message}", manifest.display())]
    Config {
        /// The manifest.
        manifest: PathBuf,
        /// What is wrong and what is allowed.
        message: String,
    },
    /// The compiler wrote PTX that cannot be taken apart.
    #[error("PTX for {target}: {message}")]
    Ptx {
        /// The target that was built.
        target: String,
        /// What was not understood.
        message: String,
    },
    /// An entry's bounds comment is missing or wrong.
    #[error("entry `{entry}`: {message}")]
    Bounds {
        /// The entry.
        entry: String,
        /// What is wrong and what is allowed.
        message: String,
    },
    /// The PTX holds what no shipped PTX may hold.
    #[error("the PTX of {} is refused:\n{}", plural(findings), lines(findings))]
    Refused {
        /// One sentence for each entry and rule.
        findings: Vec<Finding>,
    },
    /// A tool printed something that cannot be understood.
    #[error("`{tool}` wrote something unexpected: {message}")]
    Tool {
        /// The tool.
        tool: String,
        /// What was expected.
        message: String,
    },
    /// Setup could not bring a need by any way it knows.
    #[error("cannot bring {what}:\n{tried}\n{hint}")]
    Setup {
        /// The need.
        what: String,
        /// Every way that was tried, with its error.
        tried: String,
        /// What to type.
        hint: String,
    },
}

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

fn plural(findings: &[Finding]) -> String {
    let mut names: Vec<_> = findings.iter().map(|finding| &finding.entry).collect();
    names.dedup();
    if let [name] = names[..] { format!("`{name}`") } else { format!("{} entries", names.len()) }
}

fn lines(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("  {finding}")).collect::<Vec<_>>().join("\n")
}
