//! The assembler and its sisters from PyPI, by pip.
//!
//! A CUDA toolkit is gigabytes and an installer that wants root; the same binaries are in three wheels. Without their dependencies, and
//! only the binaries are kept: 44 MB of the 140 that the wheels unpack to.

use std::{fs, path::Path, process::Command};

use super::{files, finish, workshop};
use crate::{
    error::{Error, Result},
    home::Home,
    pins, process,
};

/// Puts the three binaries into the home.
pub fn bring(home: &Home) -> Result<()> {
    let workshop = workshop(home)?;
    let wheels = workshop.path().join("wheels");
    install(workshop.path(), &wheels)?;
    let made = workshop.path().join("cuda");
    let bin = made.join("bin");
    fs::create_dir_all(&bin).map_err(Error::io("create", &bin))?;
    let all = files(&wheels)?;
    let copy = |from: &Path, to: &Path| fs::copy(from, to).map(|_| ()).map_err(Error::io("write", to));
    let mut origin = String::new();
    for wheel in pins::WHEELS {
        let binary = format!("{}{}", wheel.tool, std::env::consts::EXE_SUFFIX);
        let is_binary = |path: &&std::path::PathBuf| {
            path.file_name().is_some_and(|name| name == &*binary)
                && path.parent().is_some_and(|folder| folder.ends_with("bin"))
        };
        let found = all.iter().find(is_binary).ok_or_else(|| Error::Tool {
            tool: "pip".into(),
            message: format!("{} {} holds no {binary}", wheel.package, wheel.version),
        })?;
        copy(found, &bin.join(&binary))?;
        let metadata = format!("{}-{}.dist-info", wheel.package.replace('-', "_"), wheel.version);
        let is_licence = |path: &&std::path::PathBuf| {
            let named = path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().to_ascii_lowercase().starts_with("license"));
            named && path.iter().any(|part| part == &*metadata)
        };
        if let Some(licence) = all.iter().find(is_licence) {
            copy(licence, &made.join(format!("LICENSE-{}.txt", wheel.package)))?;
        }
        origin.push_str(&format!("{}: {} {} of PyPI\n", wheel.tool, wheel.package, wheel.version));
    }
    let note = made.join("ORIGIN.txt");
    fs::write(&note, origin).map_err(Error::io("write", &note))?;
    finish(&workshop, &made, &home.folder().join("cuda"))
}

/// Unpacks the wheels by the first pip that can: one of a fresh environment, else whatever pip there is.
fn install(workshop: &Path, wheels: &Path) -> Result<()> {
    let environment = workshop.join("venv");
    let python = environment.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let mut tried = Vec::new();
    let made = process::stdout(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    let module = |program: &Path| (program.to_path_buf(), &["-m", "pip"][..]);
    let mut pips = vec![module("python3".as_ref()), ("pip3".into(), &[][..]), ("pip".into(), &[][..])];
    match made {
        Ok(_) => pips.insert(0, module(&python)),
        Err(error) => tried.push(error.to_string()),
    }
    let wanted = pins::WHEELS.map(|wheel| format!("{}=={}", wheel.package, wheel.version));
    for (program, arguments) in pips {
        let mut command = Command::new(&program);
        command.args(arguments).args([
            "install",
            "--quiet",
            "--no-deps",
            "--no-compile",
            "--only-binary",
            ":all:",
            "--target",
        ]);
        command.arg(wheels).args(&wanted);
        command.env_remove("PIP_REQUIRE_VIRTUALENV").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        match process::stdout(&mut command) {
            Ok(_) => return Ok(()),
            Err(error) => tried.push(error.to_string()),
        }
        if wheels.exists() {
            fs::remove_dir_all(wheels).map_err(Error::io("remove", wheels))?;
        }
    }
    Err(Error::Setup {
        what: pins::WHEELS.map(|wheel| format!("{} {}", wheel.tool, wheel.version)).join(", "),
        tried: tried.join("\n"),
        hint: format!(
            "install Python's pip (on Debian: `apt-get install python3-venv`), or install {} with any pip and put the bin folder on the path",
            wanted.join(" ")
        ),
    })
}
