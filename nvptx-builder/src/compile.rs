//! Compiling a kernel crate to PTX.
//!
//! Three things make this more than one `cargo rustc`:
//! - **Flags reach every crate.** `JumpThreading` copies a collective into both arms of an `if`, and MIR of an inline function is made
//!   where the function is defined. So target and MIR flags go to `core` and to all dependencies, by `CARGO_ENCODED_RUSTFLAGS`, which
//!   also shuts out the flags of a user's shell or cargo configuration. Profile keys go by `CARGO_PROFILE_RELEASE_*`.
//! - **Cargo does not know about the `.s` file.** Once compiled, a crate is fresh, and a deleted text is not written again. The
//!   fingerprint of the kernel crate (not of `core`, which takes 15 seconds) is removed before each build.
//! - **A failure leaves nothing.** Old texts are removed first, so what is there after a build is of that build.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use crate::{
    arch::Arch,
    config::{Package, TargetConfig},
    error::{Error, Result},
    home::Home,
    offline, process,
    ptx::{Bounds, Param, lint, module::Module, stamp::Stamp},
    toolchain::Toolchain,
};

/// One entry of a kernel crate, for one target.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its name, unmangled.
    pub name: String,
    /// What it was built for.
    pub target: Arch,
    /// Its launch bounds.
    pub bounds: Bounds,
    /// Its parameters.
    pub params: Vec<Param>,
    /// The whole file: stamp, header, declarations and the entry.
    pub text: String,
}

impl Entry {
    /// Where the file is, below the output folder: `sm_90/name.ptx`.
    pub fn file(&self) -> PathBuf {
        PathBuf::from(self.target.to_string()).join(format!("{}.ptx", self.name))
    }
}

/// A build of a kernel crate.
///
/// ```no_run
/// # fn main() -> Result<(), nvptx_builder::Error> {
/// let entries = nvptx_builder::Build::new("kernels/Cargo.toml").target("sm_90").run()?;
/// for entry in entries {
///     println!("{} {:?}", entry.name, entry.params);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Build {
    manifest: PathBuf,
    package: Option<String>,
    targets: Vec<String>,
    features: Vec<String>,
    offline: bool,
    locked: bool,
    lint: bool,
    toolchain: Option<Toolchain>,
    home: Option<Home>,
}

impl Build {
    /// A build of the package with this manifest, for the targets that it names.
    pub fn new(manifest: impl Into<PathBuf>) -> Self {
        Self {
            manifest: manifest.into(),
            package: None,
            targets: Vec::new(),
            features: Vec::new(),
            offline: false,
            locked: false,
            lint: true,
            toolchain: None,
            home: None,
        }
    }

    /// The package, where the manifest is that of a workspace.
    pub fn package(mut self, name: impl Into<String>) -> Self {
        self.package = Some(name.into());
        self
    }

    /// Only this target; call again for more. A target that the manifest does not name is built with the defaults.
    pub fn target(mut self, name: impl Into<String>) -> Self {
        self.targets.push(name.into());
        self
    }

    /// All targets that the manifest names, as if none had been chosen.
    pub fn all_targets(mut self) -> Self {
        self.targets.clear();
        self
    }

    /// A cargo feature for all targets, beside those of the manifest.
    pub fn feature(mut self, name: impl Into<String>) -> Self {
        self.features.push(name.into());
        self
    }

    /// Cargo's `--offline`.
    pub fn offline(mut self, offline: bool) -> Self {
        self.offline = offline;
        self
    }

    /// Cargo's `--locked`.
    pub fn locked(mut self, locked: bool) -> Self {
        self.locked = locked;
        self
    }

    /// Whether text that no shipped PTX may hold is an error; on unless switched off, which helps to find out where it comes from.
    pub fn lint(mut self, lint: bool) -> Self {
        self.lint = lint;
        self
    }

    /// A toolchain that was found before; else it is searched for.
    pub fn toolchain(mut self, toolchain: Toolchain) -> Self {
        self.toolchain = Some(toolchain);
        self
    }

    /// The home in which the toolchain is searched for; else the one around the package.
    pub fn home(mut self, home: Home) -> Self {
        self.home = Some(home);
        self
    }

    /// Compiles and splits; entries come by target, then by name.
    pub fn run(&self) -> Result<Vec<Entry>> {
        let package = Package::read(&self.manifest, self.package.as_deref())?;
        self.run_package(&package)
    }

    /// [`run`](Self::run) for a manifest that was read before.
    pub fn run_package(&self, package: &Package) -> Result<Vec<Entry>> {
        let toolchain = match &self.toolchain {
            Some(toolchain) => toolchain.clone(),
            None => Toolchain::find_in(self.home.clone().unwrap_or_else(|| Home::around(package.folder())))?,
        };
        let core = toolchain.library.hash()?;
        let library = offline::view(&toolchain.library.path, &core, &toolchain.home.folder().join("build"))?;
        let mut entries = Vec::new();
        for target in self.chosen(package)? {
            entries.extend(self.run_target(
                &Job { build: self, package, toolchain: &toolchain, target: &target, library: &library },
                &core,
            )?);
        }
        Ok(entries)
    }

    /// [`run_package`](Self::run_package), and writes what was built below `folder`.
    ///
    /// What an earlier build left there for the same targets is removed first, so that nothing is there when this one fails.
    pub fn run_into(&self, package: &Package, folder: &Path) -> Result<Vec<Entry>> {
        for target in self.chosen(package)? {
            clear(&folder.join(target.arch.to_string()))?;
        }
        let entries = self.run_package(package)?;
        write(&entries, folder)?;
        Ok(entries)
    }

    /// The targets to build.
    pub(crate) fn chosen(&self, package: &Package) -> Result<Vec<TargetConfig>> {
        if self.targets.is_empty() {
            return Ok(package.config.targets.clone());
        }
        let choose = |name: &String| {
            let arch: Arch = name
                .parse()
                .map_err(|message| Error::Config { manifest: package.manifest.clone(), message })?;
            let known = package.config.targets.iter().find(|target| target.arch == arch).cloned();
            let assemble = arch.assembled_for();
            Ok(known.unwrap_or_else(|| TargetConfig {
                arch,
                features: Vec::new(),
                ptx: "8.0".into(),
                assemble,
            }))
        };
        self.targets.iter().map(choose).collect()
    }

    fn run_target(&self, job: &Job, core: &str) -> Result<Vec<Entry>> {
        let Job { package, toolchain, target, .. } = job;
        let text = job.compile()?;
        let wrong = |message| Error::Ptx { target: target.arch.to_string(), message };
        let module = Module::parse(&text).map_err(wrong)?;
        if module.target != target.arch.to_string() || module.version != target.ptx {
            let (arch, ptx) = (target.arch, &target.ptx);
            let found = format!(
                "the compiler wrote PTX {} for {}, not {ptx} for {arch}",
                module.version, module.target
            );
            return Err(wrong(format!(
                "{found}; choose another version under `ptx` in [package.metadata.nvptx-builder]"
            )));
        }
        let mut texts = module.entries().map_err(wrong)?;
        if texts.is_empty() {
            let features = if target.features.is_empty() {
                String::new()
            } else {
                format!(" with features {:?}", target.features)
            };
            return Err(wrong(format!(
                "`{}`{features} has no entry; write `#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn`",
                package.name
            )));
        }
        texts.sort_by(|a, b| a.name.cmp(&b.name));
        if self.lint {
            let findings: Vec<_> = texts.iter().flat_map(lint::lint_entry).collect();
            if !findings.is_empty() {
                return Err(Error::Refused { findings });
            }
        }
        let (flags, features) = (job.flags(), job.features());
        texts
            .into_iter()
            .map(|mut entry| {
                let wrong = |message| Error::Bounds { entry: entry.name.clone(), message };
                let params = Param::list(&entry.head).map_err(wrong)?;
                let bounds = Bounds::take(&mut entry)
                    .map_err(|message| Error::Bounds { entry: entry.name.clone(), message })?;
                let stamp = Stamp {
                    entry: &entry.name,
                    compiler: &toolchain.compiler.version,
                    target: module.target.clone(),
                    version: &module.version,
                    flags: &flags,
                    features: &features,
                    core,
                    bounds,
                    params: &params,
                };
                let text = format!(
                    "{}\n.version {}\n.target {}\n.address_size {}\n\n{}{}\n{}{}",
                    stamp.text(),
                    module.version,
                    module.target,
                    module.address_size,
                    entry.declarations,
                    entry.head,
                    bounds.directives(),
                    entry.body,
                );
                Ok(Entry { name: entry.name, target: target.arch, bounds, params, text })
            })
            .collect()
    }
}

/// One run of cargo.
struct Job<'a> {
    build: &'a Build,
    package: &'a Package,
    toolchain: &'a Toolchain,
    target: &'a TargetConfig,
    library: &'a Path,
}

impl Job<'_> {
    fn features(&self) -> Vec<String> {
        let mut features: Vec<_> = self.target.features.iter().chain(&self.build.features).cloned().collect();
        features.sort();
        features.dedup();
        features
    }

    /// The flags that decide code, as the stamp shows them.
    fn flags(&self) -> Vec<String> {
        let named = PROFILE.iter().filter(|(flag, _, _)| !flag.is_empty());
        let mut flags: Vec<String> = named.map(|(flag, _, _)| (*flag).to_owned()).collect();
        flags.extend(self.rustflags());
        flags
    }

    /// What `core` and every crate are compiled with, beside the profile.
    fn rustflags(&self) -> Vec<String> {
        let mut flags = vec![
            format!("-Ctarget-cpu={}", self.target.arch),
            format!("-Ctarget-feature=+ptx{}", self.target.ptx.replace('.', "")),
            "-Zmir-enable-passes=-JumpThreading".to_owned(),
        ];
        flags.extend(self.package.config.llvm_args.iter().map(|arg| format!("-Cllvm-args={arg}")));
        flags
    }

    /// The module's text.
    fn compile(&self) -> Result<String> {
        let folder = self.toolchain.home.folder().join("build").join(self.target.arch.to_string());
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        // Two builds of one target would take each other's text.
        let lock = folder.join("lock");
        let lock = File::create(&lock).map_err(Error::io("create", &lock))?;
        lock.lock().map_err(Error::io("lock", &folder))?;
        self.forget(&folder)?;
        let run = process::stdout(&mut self.cargo(&folder)).map_err(without_library_noise);
        let result = run.and_then(|_| self.written(&folder));
        if result.is_err() {
            self.forget(&folder)?;
        }
        result
    }

    fn cargo(&self, folder: &Path) -> std::process::Command {
        let Self { build, package, toolchain, .. } = self;
        let mut cargo = process::clean(&toolchain.compiler.cargo);
        cargo.args([
            "rustc",
            "--release",
            "--lib",
            "--crate-type",
            "lib",
            "--target",
            "nvptx64-nvidia-cuda",
            "-Zbuild-std=core",
        ]);
        cargo
            .args(["--color", "never", "--manifest-path"])
            .arg(&package.manifest)
            .args(["--package", &package.name]);
        cargo.arg("--target-dir").arg(folder);
        let features = self.features();
        if !features.is_empty() {
            cargo.args(["--features", &features.join(",")]);
        }
        for (is_on, flag) in [(build.offline, "--offline"), (build.locked, "--locked")] {
            if is_on {
                cargo.arg(flag);
            }
        }
        cargo.args(["--", "--emit=asm"]);
        cargo.current_dir(package.folder());
        cargo
            .env("RUSTC", &toolchain.compiler.rustc)
            .env("RUSTC_WRAPPER", "")
            .env("RUSTC_WORKSPACE_WRAPPER", "");
        cargo.env("CARGO_ENCODED_RUSTFLAGS", self.rustflags().join("\x1f"));
        for (_, variable, value) in PROFILE {
            cargo.env(format!("CARGO_PROFILE_RELEASE_{variable}"), value);
        }
        // Cargo's own tests use it to put another library under `-Zbuild-std`; there is no other way to name one.
        cargo.env("__CARGO_TESTS_ONLY_SRC_ROOT", self.library);
        cargo
    }

    /// Removes the crate's texts and fingerprints, so that cargo compiles it and what is there afterwards is new.
    fn forget(&self, folder: &Path) -> Result<()> {
        for text in self.texts(folder)? {
            fs::remove_file(&text).map_err(Error::io("remove", &text))?;
        }
        let fingerprints = format!("{}-", self.package.name);
        let is_ours = |path: &Path| {
            let parent = path.parent().and_then(Path::file_name);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let hash = name.strip_prefix(&fingerprints);
            parent.is_some_and(|parent| parent == ".fingerprint")
                && hash.is_some_and(|hash| !hash.contains('-'))
        };
        for path in find(&folder.join("nvptx64-nvidia-cuda"), &is_ours)? {
            fs::remove_dir_all(&path).map_err(Error::io("remove", &path))?;
        }
        Ok(())
    }

    fn texts(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let prefix = format!("{}-", self.package.crate_name);
        let is_text = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            path.extension().is_some_and(|extension| extension == "s") && name.starts_with(&prefix)
        };
        find(&folder.join("nvptx64-nvidia-cuda"), &is_text)
    }

    /// Reads the text that cargo's run wrote.
    fn written(&self, folder: &Path) -> Result<String> {
        let wrong = |message| Error::Tool { tool: "cargo rustc".into(), message };
        match &self.texts(folder)?[..] {
            [text] => fs::read_to_string(text).map_err(Error::io("read", text)),
            [] => Err(wrong(format!(
                "it succeeded, but there is no assembly text of `{}`",
                self.package.crate_name
            ))),
            _ => Err(wrong(format!("it left more than one assembly text of `{}`", self.package.crate_name))),
        }
    }
}

/// Takes out what cargo says about the library's workspace and the compiler about the PTX version: it is always there.
fn without_library_noise(error: Error) -> Error {
    const NOISE: [&str; 9] = [
        "warning: patch `",
        "help: Check that the patched package version",
        "      with the dependency requirements.",
        "      what is locked in the Cargo.lock file",
        "      version. This may also occur",
        "warning: unstable feature specified for `-Ctarget-feature`",
        "  = note: this feature is not stably supported",
        "   Compiling ",
        "    Finished ",
    ];
    match error {
        Error::Failed { command, status, output } => {
            let kept = output.lines().filter(|line| !NOISE.iter().any(|noise| line.starts_with(noise)));
            Error::Failed { command, status, output: kept.collect::<Vec<_>>().join("\n") }
        }
        other => other,
    }
}

/// The profile: flag in the stamp, key, value. Debug information would put line numbers of the source into every file.
const PROFILE: [(&str, &str, &str); 9] = [
    ("-Copt-level=3", "OPT_LEVEL", "3"),
    ("-Cpanic=abort", "PANIC", "abort"),
    ("-Ccodegen-units=1", "CODEGEN_UNITS", "1"),
    ("-Cdebuginfo=0", "DEBUG", "false"),
    ("", "LTO", "false"),
    ("", "STRIP", "none"),
    ("", "INCREMENTAL", "false"),
    ("", "DEBUG_ASSERTIONS", "false"),
    ("", "OVERFLOW_CHECKS", "false"),
];

/// Paths below a folder; none where the folder does not exist.
fn find(folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if !folder.is_dir() {
        return Ok(found);
    }
    for item in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let path = item.map_err(Error::io("read", folder))?.path();
        if wanted(&path) {
            found.push(path);
        } else if path.is_dir() {
            found.extend(find(&path, wanted)?);
        }
    }
    found.sort();
    Ok(found)
}

/// Writes entries below `folder`, each as `sm_90/name.ptx`, and removes PTX files of those targets that are no longer built.
pub fn write(entries: &[Entry], folder: &Path) -> Result<()> {
    let mut targets: Vec<_> = entries.iter().map(|entry| entry.target).collect();
    targets.dedup();
    for target in targets {
        clear(&folder.join(target.to_string()))?;
    }
    for entry in entries {
        let path = folder.join(entry.file());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        }
        fs::write(&path, &entry.text).map_err(Error::io("write", &path))?;
    }
    Ok(())
}

/// Removes the PTX files of one folder.
pub(crate) fn clear(folder: &Path) -> Result<()> {
    let is_ptx = |path: &Path| path.extension().is_some_and(|extension| extension == "ptx");
    for path in find(folder, &is_ptx)? {
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    }
    Ok(())
}

/// Names, bounds and parameter lists, for programs: what a launcher must agree with.
pub fn json(entries: &[Entry]) -> String {
    let entry = |entry: &Entry| {
        serde_json::json!({
            "name": entry.name,
            "target": entry.target.to_string(),
            "threads": entry.bounds.threads,
            "min_blocks": entry.bounds.min_blocks,
            "shared": entry.bounds.shared,
            "params": entry.params,
        })
    };
    let list: Vec<_> = entries.iter().map(entry).collect();
    serde_json::to_string_pretty(&list).unwrap_or_default()
}
