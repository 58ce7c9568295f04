//! What a kernel crate says about its PTX, in its own manifest.
//!
//! ```toml
//! [package.metadata.nvptx-builder]
//! targets = ["sm_80", "sm_90"]          # what is built; this is the default
//! features = { sm_80 = ["no-simd16"] }  # cargo features of each target
//! ptx = { sm_80 = "8.0" }               # PTX version of each target; default 8.0
//! assemble = { sm_80 = ["sm_80"] }      # what each target's files are assembled for; default: itself and the generations above
//! output = "ptx"                        # folder of the committed files, relative to the manifest
//! table = "ptx/resources.md"            # the resource table, relative to the manifest
//! opcodes = ["LDG.128", "BAR"]          # opcodes that the table counts
//! llvm-args = []                        # each becomes a -Cllvm-args=
//! ```
//!
//! Every key may be left out, and so may the whole table. An unknown key is an error.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use serde::Deserialize;

use crate::{
    arch::Arch,
    error::{Error, Result},
    process,
};

/// A kernel crate: where it is and what its manifest says.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Package {
    /// The manifest.
    pub manifest: PathBuf,
    /// The package's name.
    pub name: String,
    /// The library's crate name, with underscores.
    pub crate_name: String,
    /// The table `[package.metadata.nvptx-builder]`.
    pub config: Config,
}

/// The table `[package.metadata.nvptx-builder]`, with defaults filled in.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// What is built.
    pub targets: Vec<TargetConfig>,
    /// Folder of the committed files.
    pub output: PathBuf,
    /// The resource table.
    pub table: PathBuf,
    /// Opcodes that the table counts, for example `LDG.128`.
    pub opcodes: Vec<String>,
    /// Arguments for LLVM.
    pub llvm_args: Vec<String>,
}

/// One target.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TargetConfig {
    /// Its architecture.
    pub arch: Arch,
    /// Cargo features.
    pub features: Vec<String>,
    /// Version of PTX, for example `8.0`.
    pub ptx: String,
    /// What its files are assembled for.
    pub assemble: Vec<Arch>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Raw {
    targets: Option<Vec<String>>,
    features: BTreeMap<String, Vec<String>>,
    ptx: BTreeMap<String, String>,
    assemble: BTreeMap<String, Vec<String>>,
    output: Option<String>,
    table: Option<String>,
    opcodes: Option<Vec<String>>,
    llvm_args: Vec<String>,
}

/// Memory accesses by width, barriers and collectives, and the atomics: what a change of a kernel moves first.
const OPCODES: [&str; 17] = [
    "LDG", "LDG.128", "STG", "STG.128", "LDS", "LDS.128", "STS", "STS.128", "ATOMS", "ATOMG", "RED", "BAR",
    "WARPSYNC", "SHFL", "VOTE", "REDUX", "BRA",
];

impl Package {
    /// Reads the manifest, by `cargo metadata`. `name` picks a member where the manifest is a workspace.
    pub fn read(manifest: &Path, name: Option<&str>) -> Result<Self> {
        let manifest = if manifest.is_dir() { manifest.join("Cargo.toml") } else { manifest.to_path_buf() };
        let manifest = std::path::absolute(&manifest).map_err(Error::io("find", &manifest))?;
        if !manifest.is_file() {
            return Err(config_error(
                &manifest,
                "there is no such manifest; name one with `--manifest-path`".into(),
            ));
        }
        let mut command = process::clean("cargo");
        command.args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]).arg(&manifest);
        let text = process::stdout(&mut command)?;
        Self::from_metadata(&text, &manifest, name)
    }

    fn from_metadata(text: &str, manifest: &Path, name: Option<&str>) -> Result<Self> {
        let unexpected = |error: serde_json::Error| Error::Tool {
            tool: "cargo metadata".into(),
            message: error.to_string(),
        };
        let metadata: Metadata = serde_json::from_str(text).map_err(unexpected)?;
        let has_config = |package: &&PackageMetadata| package.metadata.get("nvptx-builder").is_some();
        let (packages, same) =
            (&metadata.packages, |package: &&PackageMetadata| same_file(&package.manifest_path, manifest));
        let package = match name {
            Some(name) => packages.iter().find(|package| package.name == name),
            // The root of a workspace, run without `-p`: the member that has a table, if only one has.
            None => packages
                .iter()
                .find(same)
                .filter(has_config)
                .or_else(|| {
                    let mut with_config = packages.iter().filter(has_config);
                    with_config.next().filter(|_| {
                        with_config.next().is_none()
                            && !packages.iter().any(|p| same(&p) && is_member_only(p, &metadata))
                    })
                })
                .or_else(|| packages.iter().find(same)),
        };
        let package = package.ok_or_else(|| {
            let names = packages.iter().map(|package| &*package.name).collect::<Vec<_>>().join(", ");
            config_error(manifest, format!("which package is meant? Choose with `--package`: {names}"))
        })?;
        let manifest = &package.manifest_path;
        let library =
            package.targets.iter().find(|target| target.kind.iter().any(|kind| kind.ends_with("lib")));
        let library = library.ok_or_else(|| {
            config_error(manifest, "the package has no library; kernels are built from `src/lib.rs`".into())
        })?;
        let raw = match package.metadata.get("nvptx-builder") {
            Some(table) => serde_json::from_value(table.clone()).map_err(|error| {
                config_error(manifest, format!("[package.metadata.nvptx-builder]: {error}"))
            })?,
            None => Raw::default(),
        };
        let config = Config::new(raw).map_err(|message| {
            config_error(manifest, format!("[package.metadata.nvptx-builder]: {message}"))
        })?;
        Ok(Self {
            manifest: manifest.clone(),
            name: package.name.clone(),
            crate_name: library.name.replace('-', "_"),
            config,
        })
    }

    /// The folder of the manifest.
    pub fn folder(&self) -> &Path {
        self.manifest.parent().unwrap_or(Path::new("."))
    }

    /// The folder of the committed files.
    pub fn output(&self) -> PathBuf {
        self.folder().join(&self.config.output)
    }

    /// The committed resource table.
    pub fn table(&self) -> PathBuf {
        self.folder().join(&self.config.table)
    }
}

/// Is this package an ordinary member, not the root of its workspace?
fn is_member_only(package: &PackageMetadata, metadata: &Metadata) -> bool {
    package.manifest_path.parent() != Some(&metadata.workspace_root)
}

fn same_file(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn config_error(manifest: &Path, message: String) -> Error {
    Error::Config { manifest: manifest.to_path_buf(), message }
}

impl Config {
    fn new(raw: Raw) -> Result<Self, String> {
        let archs =
            |names: &[String]| names.iter().map(|name| name.parse()).collect::<Result<Vec<Arch>, String>>();
        let targets = match &raw.targets {
            Some(names) if names.is_empty() => {
                return Err("`targets` is empty; write [\"sm_80\", \"sm_90\"], or leave the key out".into());
            }
            Some(names) => archs(names)?,
            None => vec![Arch::new(80), Arch::new(90)],
        };
        let keys = raw.features.keys().chain(raw.ptx.keys()).chain(raw.assemble.keys());
        let is_target = |key: &&String| targets.iter().any(|target| target.to_string() == **key);
        if let Some(key) = keys.into_iter().find(|key| !is_target(key)) {
            return Err(format!("`{key}` has settings but is not one of `targets`"));
        }
        let mut built: Vec<TargetConfig> = Vec::new();
        for arch in targets {
            if built.iter().any(|target| target.arch == arch) {
                return Err(format!("`{arch}` stands twice in `targets`"));
            }
            let name = arch.to_string();
            let ptx = raw.ptx.get(&name).map_or("8.0", String::as_str);
            let is_version = |text: &str| {
                let (major, minor) = text.split_once('.')?;
                Some((major.parse::<u8>().ok()?, minor.parse::<u8>().ok().filter(|minor| *minor < 10)?))
            };
            is_version(ptx)
                .ok_or_else(|| format!("`{ptx}` is not a version of PTX; write for example \"8.0\""))?;
            let assemble = raw.assemble.get(&name).map_or(Ok(arch.assembled_for()), |names| archs(names))?;
            if assemble.first() != Some(&arch) {
                return Err(format!("`assemble` for `{name}` must begin with `{name}` itself"));
            }
            let features = raw.features.get(&name).cloned().unwrap_or_default();
            built.push(TargetConfig { arch, features, ptx: ptx.to_owned(), assemble });
        }
        let relative = |key: &str, value: Option<String>, default: &str| {
            let path = PathBuf::from(value.unwrap_or_else(|| default.to_owned()));
            let is_relative = path
                .components()
                .all(|part| matches!(part, Component::Normal(_) | Component::ParentDir | Component::CurDir));
            match is_relative && path.file_name().is_some() {
                true => Ok(path),
                false => {
                    Err(format!("`{key}` is `{}`; write a path relative to the manifest", path.display()))
                }
            }
        };
        let output = relative("output", raw.output, "ptx")?;
        let table = raw.table.or_else(|| Some(output.join("resources.md").to_string_lossy().into_owned()));
        Ok(Self {
            targets: built,
            table: relative("table", table, "")?,
            output,
            opcodes: raw.opcodes.unwrap_or_else(|| OPCODES.map(str::to_owned).to_vec()),
            llvm_args: raw.llvm_args,
        })
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<PackageMetadata>,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct PackageMetadata {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<TargetMetadata>,
    #[serde(default)]
    metadata: serde_json::Value,
}

#[derive(Deserialize)]
struct TargetMetadata {
    name: String,
    kind: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, table: &str) -> String {
        format!(
            r#"{{"name": "{name}", "manifest_path": "/w/{name}/Cargo.toml", "metadata": {table},
                "targets": [{{"name": "{name}", "kind": ["lib"]}}]}}"#
        )
    }

    fn read(packages: &[String], manifest: &str, name: Option<&str>) -> Result<Package, String> {
        let text = format!(r#"{{"workspace_root": "/w", "packages": [{}]}}"#, packages.join(","));
        Package::from_metadata(&text, Path::new(manifest), name).map_err(|error| error.to_string())
    }

    fn config(table: &str) -> Result<Config, String> {
        let packages = [package("my-kernels", &format!(r#"{{"nvptx-builder": {table}}}"#))];
        read(&packages, "/w/my-kernels/Cargo.toml", None).map(|package| package.config)
    }

    #[test]
    fn everything_has_a_default() {
        let package = read(&[package("my-kernels", "null")], "/w/my-kernels/Cargo.toml", None).unwrap();
        assert_eq!(package.crate_name, "my_kernels");
        assert_eq!(package.output(), Path::new("/w/my-kernels/ptx"));
        assert_eq!(package.table(), Path::new("/w/my-kernels/ptx/resources.md"));
        let targets: Vec<_> =
            package.config.targets.iter().map(|target| (target.arch.to_string(), &*target.ptx)).collect();
        assert_eq!(targets, [("sm_80".to_owned(), "8.0"), ("sm_90".to_owned(), "8.0")]);
    }

    #[test]
    fn every_key_is_read() {
        let config = config(
            r#"{"targets": ["sm_80"], "features": {"sm_80": ["plain"]}, "ptx": {"sm_80": "7.5"}, "assemble": {"sm_80": ["sm_80", "sm_86"]},
                "output": "../host/ptx", "table": "../host/table.md", "opcodes": ["BAR"], "llvm-args": ["-x"]}"#,
        )
        .unwrap();
        let target = &config.targets[0];
        assert_eq!(
            (&*target.ptx, &target.features[..], target.assemble.len()),
            ("7.5", &["plain".to_owned()][..], 2)
        );
        assert_eq!(
            (config.output, config.table),
            (PathBuf::from("../host/ptx"), PathBuf::from("../host/table.md"))
        );
    }

    #[test]
    fn mistakes_are_told_with_what_is_allowed() {
        for (table, part) in [
            (r#"{"target": []}"#, "unknown field `target`, expected one of `targets`"),
            (r#"{"targets": []}"#, "`targets` is empty"),
            (r#"{"targets": ["90"]}"#, "write `sm_` and a number"),
            (r#"{"targets": ["sm_90", "sm_90"]}"#, "stands twice"),
            (r#"{"features": {"sm_70": []}}"#, "`sm_70` has settings but is not one of `targets`"),
            (r#"{"ptx": {"sm_90": "eight"}}"#, "not a version of PTX"),
            (r#"{"assemble": {"sm_90": ["sm_100"]}}"#, "must begin with `sm_90`"),
            (r#"{"output": "/tmp/x"}"#, "write a path relative to the manifest"),
        ] {
            let message = config(table).unwrap_err();
            assert!(message.contains(part), "{table}: {message}");
        }
    }

    #[test]
    fn the_package_is_found_or_asked_for() {
        let packages = [package("a", "null"), package("b", r#"{"nvptx-builder": {}}"#)];
        assert_eq!(read(&packages, "/w/Cargo.toml", None).unwrap().name, "b");
        assert_eq!(read(&packages, "/w/a/Cargo.toml", None).unwrap().name, "a");
        assert_eq!(read(&packages, "/w/Cargo.toml", Some("a")).unwrap().name, "a");
        assert!(read(&packages, "/w/Cargo.toml", Some("c")).unwrap_err().contains("a, b"));
        assert!(
            read(&[package("a", "null"), package("b", "null")], "/w/Cargo.toml", None)
                .unwrap_err()
                .contains("--package")
        );
    }
}
