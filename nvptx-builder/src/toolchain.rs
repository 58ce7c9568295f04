//! Finding the pinned compiler, the library it compiles, and the assembler.
//!
//! Finding never installs and never guesses: what is not the pinned version is reported as what it is. The compiler is known by its
//! commit, so a toolchain that was installed under another name counts, and a `nightly` that has moved on does not.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    error::{Error, Result},
    hash,
    home::Home,
    pins::{self, Wheel},
    process,
};

/// The pinned compiler, where it was found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Compiler {
    /// Name of the toolchain; `rustc` when it was found on the path, without rustup.
    pub name: String,
    /// The compiler itself, not rustup's proxy.
    pub rustc: PathBuf,
    /// The cargo that belongs to it.
    pub cargo: PathBuf,
    /// Its installation.
    pub sysroot: PathBuf,
    /// What it says of itself.
    pub version: CompilerVersion,
}

/// The name of a compiler that is no toolchain of rustup's.
const ON_PATH: &str = "rustc";

/// What `rustc -vV` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CompilerVersion {
    /// For example `1.97.0-nightly`.
    pub release: String,
    /// The full commit hash; empty for a compiler built from a tarball.
    pub commit: String,
    /// Date of the commit.
    pub date: String,
    /// For example `22.1.4`.
    pub llvm: String,
}

impl CompilerVersion {
    /// Reads the output of `rustc -vV`.
    pub fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name));
            value.map(|value| value.trim().to_owned()).unwrap_or_default()
        };
        Self {
            release: field("release:"),
            commit: field("commit-hash:"),
            date: field("commit-date:"),
            llvm: field("LLVM version:"),
        }
    }

    /// Is it the pinned compiler?
    pub fn is_pinned(&self) -> bool {
        self.commit == pins::COMPILER_COMMIT
    }
}

impl Compiler {
    /// Was it found through rustup?
    pub fn is_rustups(&self) -> bool {
        self.name != ON_PATH
    }

    /// Looks through rustup's toolchains, then at plain `rustc`.
    pub fn find() -> Result<Self> {
        Self::rustup().into_iter().chain([String::new()]).find_map(|name| Self::named(&name)).ok_or_else(
            || Error::Missing {
                what: format!("the compiler with commit {}", &pins::COMPILER_COMMIT[..9]),
                hint: format!(
                    "type `rustup toolchain install {}`, or `nvptx-builder setup`",
                    pins::TOOLCHAIN_NAME
                ),
            },
        )
    }

    /// Names of the toolchains that rustup knows; none where there is no rustup.
    fn rustup() -> Vec<String> {
        let list = process::stdout(process::clean("rustup").args(["toolchain", "list"])).unwrap_or_default();
        let mut names: Vec<String> =
            list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
        // Usually it is a nightly: ask those first, each question starts a compiler.
        names.sort_by_key(|name| !name.contains("nightly"));
        names.retain(|name| name != "no");
        names
    }

    /// The toolchain of this name if it is the pinned one.
    fn named(name: &str) -> Option<Self> {
        let command = || {
            let mut command = process::clean(if name.is_empty() { "rustc" } else { "rustup" });
            if !name.is_empty() {
                command.args(["run", name, "rustc"]);
            }
            command
        };
        let version = CompilerVersion::parse(&process::stdout(command().arg("-vV")).ok()?);
        if !version.is_pinned() {
            return None;
        }
        let sysroot = PathBuf::from(process::stdout(command().args(["--print", "sysroot"])).ok()?.trim());
        let binary = |name: &str| {
            let path = sysroot.join("bin").join(format!("{name}{}", env::consts::EXE_SUFFIX));
            if path.is_file() { path } else { PathBuf::from(name) }
        };
        let name = if name.is_empty() { ON_PATH.to_owned() } else { name.to_owned() };
        Some(Self { name, rustc: binary("rustc"), cargo: binary("cargo"), sysroot, version })
    }
}

/// The standard library's sources.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Library {
    /// The folder `library`.
    pub path: PathBuf,
    /// Whose it is.
    pub origin: LibraryOrigin,
}

/// Whose the standard library's sources are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LibraryOrigin {
    /// Named by the variable `NVPTX_BUILDER_LIBRARY`.
    Variable,
    /// The toolchain's own component.
    Toolchain,
    /// Brought by `setup`.
    Setup,
}

impl Library {
    /// Where the component of a toolchain is, in its sysroot.
    pub(crate) const IN_SYSROOT: &str = "lib/rustlib/src/rust/library";
    /// Where `setup` puts it, in the home.
    pub(crate) const IN_HOME: &str = "rust-src/library";

    /// `NVPTX_BUILDER_LIBRARY`, else the toolchain's component, else what `setup` brought.
    pub fn find(compiler: Option<&Compiler>, home: &Home) -> Result<Self> {
        if let Some(path) = env::var_os("NVPTX_BUILDER_LIBRARY").filter(|path| !path.is_empty()) {
            let path = PathBuf::from(path);
            return match Self::is_at(&path) {
                true => Ok(Self { path, origin: LibraryOrigin::Variable }),
                false => Err(Error::Missing {
                    what: "`core` in the folder that NVPTX_BUILDER_LIBRARY names".into(),
                    hint: format!(
                        "{} has no core/src/lib.rs; name the folder `library` of rust-src, or unset it",
                        path.display()
                    ),
                }),
            };
        }
        let own =
            compiler.map(|compiler| compiler.sysroot.join(Self::IN_SYSROOT)).filter(|path| Self::is_at(path));
        if let Some(path) = own {
            return Ok(Self { path, origin: LibraryOrigin::Toolchain });
        }
        match home.find(Self::IN_HOME).filter(|path| Self::is_at(path)) {
            Some(path) => Ok(Self { path, origin: LibraryOrigin::Setup }),
            None => Err(Error::Missing {
                what: "the standard library's sources (rust-src)".into(),
                hint: match compiler {
                    Some(compiler) if !compiler.is_rustups() => {
                        "type `nvptx-builder setup`, which takes Debian's package".into()
                    }
                    _ => format!(
                        "type `rustup component add rust-src --toolchain {}`, or `nvptx-builder setup`, which also knows Debian's package",
                        compiler.map_or(pins::TOOLCHAIN_NAME, |compiler| &compiler.name)
                    ),
                },
            }),
        }
    }

    fn is_at(path: &Path) -> bool {
        path.join("core/src/lib.rs").is_file() && path.join("Cargo.toml").is_file()
    }

    /// The hash of everything that `core` is compiled from.
    ///
    /// Three folders, because `core` takes `core::arch` and `core::simd` from beside it by `#[path]`.
    pub fn hash(&self) -> Result<String> {
        hash::tree(
            &self.path,
            &["core/src", "portable-simd/crates/core_simd/src", "stdarch/crates/core_arch/src"],
        )
    }
}

/// The assembler and the disassemblers, each of the pinned version.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Tools {
    /// The assembler.
    pub ptxas: PathBuf,
    /// The disassembler.
    pub nvdisasm: PathBuf,
    /// Prints the machine code of a cubin; calls `nvdisasm`.
    pub cuobjdump: PathBuf,
    /// Where results are kept.
    pub cache: PathBuf,
}

impl Tools {
    /// Finds all three, in the home or on the path.
    pub fn find(home: &Home) -> Result<Self> {
        Ok(Self {
            ptxas: Self::one(home, pins::PTXAS)?,
            nvdisasm: Self::one(home, pins::NVDISASM)?,
            cuobjdump: Self::one(home, pins::CUOBJDUMP)?,
            cache: home.folder().join("cache"),
        })
    }

    /// Finds one: the first of the pinned version, what `setup` brought before what is on the path.
    pub fn one(home: &Home, wheel: Wheel) -> Result<PathBuf> {
        let binary = format!("{}{}", wheel.tool, env::consts::EXE_SUFFIX);
        let brought = home.find(&format!("cuda/bin/{binary}"));
        let paths = env::var_os("PATH").unwrap_or_default();
        let on_path =
            env::split_paths(&paths).map(|folder| folder.join(&binary)).filter(|path| path.is_file());
        let mut others = Vec::new();
        for path in brought.into_iter().chain(on_path) {
            match tool_version(&path) {
                Some(version) if version == wheel.version => return Ok(path),
                Some(version) => others.push(format!("{} is {version}", path.display())),
                None => others.push(format!("{} does not run", path.display())),
            }
        }
        let found = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
        Err(Error::Missing {
            what: format!("{} {}{found}", wheel.tool, wheel.version),
            hint: format!(
                "type `nvptx-builder setup`, or install {}=={} with pip and put its bin folder on the path",
                wheel.package, wheel.version
            ),
        })
    }
}

/// The version of a CUDA tool, from its `--version`: `... release 13.0, V13.0.88`.
fn tool_version(path: &Path) -> Option<String> {
    let text = process::stdout(Command::new(path).arg("--version")).ok()?;
    parse_tool_version(&text)
}

fn parse_tool_version(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.contains("release "))?;
    Some(line.rsplit_once(", V")?.1.trim().to_owned())
}

/// All that a build and a check need.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Toolchain {
    /// The pinned compiler.
    pub compiler: Compiler,
    /// The library it compiles.
    pub library: Library,
    /// Where things lie.
    pub home: Home,
}

impl Toolchain {
    /// Finds compiler and library for the package or workspace around `start`, or says what is missing and what to type.
    pub fn find(start: &Path) -> Result<Self> {
        Self::find_in(Home::around(start))
    }

    /// Finds compiler and library with this home.
    pub fn find_in(home: Home) -> Result<Self> {
        let compiler = Compiler::find()?;
        let library = Library::find(Some(&compiler), &home)?;
        Ok(Self { compiler, library, home })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_compiler_says() {
        let text = "rustc 1.97.0-nightly (e50aa6fba 2026-05-19)\nbinary: rustc\ncommit-hash: e50aa6fba4e63ab34c72bf9acfd2c307c1155d1a\n\
                    commit-date: 2026-05-19\nhost: x86_64-unknown-linux-gnu\nrelease: 1.97.0-nightly\nLLVM version: 22.1.4\n";
        let version = CompilerVersion::parse(text);
        assert!(version.is_pinned());
        assert_eq!(
            (&*version.release, &*version.date, &*version.llvm),
            ("1.97.0-nightly", "2026-05-19", "22.1.4")
        );
        assert!(
            !CompilerVersion::parse("rustc 1.95.0 (Debian)\nrelease: 1.95.0\ncommit-hash: unknown\n")
                .is_pinned()
        );
        assert!(!CompilerVersion::parse("").is_pinned());
    }

    #[test]
    fn tool_versions_are_read_to_the_last_digit() {
        let text = "ptxas: NVIDIA (R) Ptx optimizing assembler\nCuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0\n";
        assert_eq!(parse_tool_version(text).as_deref(), Some("13.0.88"));
        assert_eq!(parse_tool_version("ptxas 1"), None);
    }

    #[test]
    fn an_empty_home_has_no_library_and_the_message_says_what_to_type() {
        let folder = tempfile::tempdir().unwrap();
        if env::var_os("NVPTX_BUILDER_LIBRARY").is_some() {
            return;
        }
        let error = Library::find(None, &Home::at(folder.path())).unwrap_err().to_string();
        assert!(error.contains("rustup component add rust-src --toolchain nightly-2026-05-20"), "{error}");
    }
}
