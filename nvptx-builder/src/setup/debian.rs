//! The library from Debian's archive, without installing anything.
//!
//! apt does all that matters: it verifies the signature of the suite and the hash of the package, and uses the system's proxies. Lists
//! and cache are temporary, so no lock of the system's is taken, nothing of the system changes, and an ordinary user can do it.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use super::{finish, sources, workshop};
use crate::{
    error::{Error, Result},
    home::Home,
    pins, process,
};

/// What was brought.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Brought {
    /// The package's full version.
    pub version: String,
    /// The suite it came from.
    pub suite: String,
}

/// Downloads and unpacks the package's folder `library` into the home.
pub fn bring(home: &Home) -> Result<Brought> {
    let sources = system_sources("/etc/apt".as_ref())?;
    let workshop = workshop(home)?;
    let mut tried = Vec::new();
    for suite in pins::LIBRARY_SUITES {
        for source in &sources {
            match Apt::new(workshop.path(), source, suite).and_then(|apt| apt.download()) {
                Ok(version) => {
                    unpack(workshop.path())?;
                    let made = workshop.path().join("rust-src");
                    let origin = format!("{} {version} of Debian, suite {suite}\n", pins::LIBRARY_PACKAGE);
                    let note = made.join("ORIGIN.txt");
                    fs::write(&note, origin).map_err(Error::io("write", &note))?;
                    finish(&workshop, &made, &home.folder().join("rust-src"))?;
                    return Ok(Brought { version, suite: suite.to_owned() });
                }
                Err(error) => tried.push(format!("suite {suite}: {error}")),
            }
        }
    }
    Err(Error::Setup {
        what: format!("{} {} from Debian's archive", pins::LIBRARY_PACKAGE, pins::LIBRARY_VERSION),
        tried: tried.join("\n"),
        hint: "the system's own package sources were used; does `apt-get update` work?".into(),
    })
}

/// The system's entries for the main archive, each archive once.
fn system_sources(folder: &Path) -> Result<Vec<sources::Source>> {
    let mut files = vec![folder.join("sources.list")];
    if let Ok(items) = fs::read_dir(folder.join("sources.list.d")) {
        let mut more: Vec<_> = items.filter_map(|item| Some(item.ok()?.path())).collect();
        more.sort();
        files.extend(more);
    }
    let mut found: Vec<sources::Source> = Vec::new();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let read = match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => sources::parse_one_line(&text),
            Some("sources") => sources::parse_deb822(&text),
            _ => continue,
        };
        for source in read.into_iter().filter(sources::Source::is_debian) {
            if !found.iter().any(|other| other.uris == source.uris && other.trust == source.trust) {
                found.push(source);
            }
        }
    }
    match found.is_empty() {
        false => Ok(found),
        true => Err(Error::Missing {
            what: "an entry for Debian's main archive among the system's package sources".into(),
            hint: "on another system, rustup's component is the way: `rustup component add rust-src`".into(),
        }),
    }
}

/// apt with lists, cache and sources of its own.
struct Apt<'a> {
    folder: &'a Path,
    suite: &'a str,
}

impl<'a> Apt<'a> {
    fn new(folder: &'a Path, source: &sources::Source, suite: &'a str) -> Result<Self> {
        // Another source of the same suite starts from nothing.
        for name in ["lists", "cache", "sources"] {
            let path = folder.join(name);
            if path.exists() {
                fs::remove_dir_all(&path).map_err(Error::io("remove", &path))?;
            }
        }
        for name in ["lists/partial", "cache/archives/partial", "sources"] {
            let path = folder.join(name);
            fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
        }
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(Error::io("write", &path))
        };
        write("sources/debian.sources", &source.with_suite(suite))?;
        // The system's hooks are for the system's lists.
        let hooks = ["Pre-Invoke", "Post-Invoke", "Post-Invoke-Success"]
            .map(|hook| format!("#clear APT::Update::{hook};\n"))
            .concat();
        write("apt.conf", &hooks)?;
        Ok(Self { folder, suite })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = process::clean(program);
        let at = |name: &str| self.folder.join(name).display().to_string();
        command.current_dir(self.folder).env("LC_ALL", "C").args(["-c", &at("apt.conf")]);
        for option in [
            format!("Dir::State::Lists={}", at("lists")),
            format!("Dir::Cache={}", at("cache")),
            format!("Dir::Etc::SourceParts={}", at("sources")),
            "Dir::Etc::SourceList=/dev/null".into(),
            "Dir::Etc::Preferences=/dev/null".into(),
            "Dir::Etc::PreferencesParts=/dev/null".into(),
            // As root, apt hands downloads to a user of its own, who cannot enter this folder.
            "APT::Sandbox::User=root".into(),
            "Acquire::Languages=none".into(),
        ] {
            command.args(["-o", &option]);
        }
        command
    }

    /// Downloads the package; hands back its full version.
    fn download(&self) -> Result<String> {
        process::stdout(self.command("apt-get").args(["-q", "update"]))?;
        let list = process::stdout(self.command("apt-cache").args(["madison", pins::LIBRARY_PACKAGE]))?;
        let version = pinned_version(&list).ok_or_else(|| Error::Missing {
            what: format!("{} {} in suite {}", pins::LIBRARY_PACKAGE, pins::LIBRARY_VERSION, self.suite),
            hint: format!("it has {}", process::tail(&list, 5)),
        })?;
        process::stdout(self.command("apt-get").args([
            "-q",
            "download",
            &format!("{}={version}", pins::LIBRARY_PACKAGE),
        ]))?;
        Ok(version)
    }
}

/// The full version in `rust-src | 1.97.1+dfsg1-1~bpo13+1 | archive suite/main amd64 Packages`.
fn pinned_version(madison: &str) -> Option<String> {
    let versions = madison.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim);
    let is_pinned = |version: &&str| {
        let rest = version.strip_prefix(pins::LIBRARY_VERSION);
        rest.is_some_and(|rest| rest.starts_with(['+', '-', '~']) || rest.is_empty())
    };
    versions.filter(is_pinned).map(str::to_owned).next()
}

/// Takes `library`, a sixth of the package, and the licences out of the package that lies in the folder.
fn unpack(folder: &Path) -> Result<()> {
    let is_package = |path: &std::path::PathBuf| path.extension().is_some_and(|extension| extension == "deb");
    let items = fs::read_dir(folder).map_err(Error::io("read", folder))?;
    let package = items.filter_map(|item| Some(item.ok()?.path())).find(is_package);
    let package = package.ok_or_else(|| Error::Tool {
        tool: "apt-get download".into(),
        message: "there is no package".into(),
    })?;
    let made = folder.join("rust-src");
    fs::create_dir_all(&made).map_err(Error::io("create", &made))?;
    let start = |source| Error::Start { program: "dpkg-deb".into(), source };
    let mut archive = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(&package)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(start)?;
    let mut tar = Command::new("tar");
    tar.arg("-x").arg("-C").arg(&made).args([
        "--no-same-owner",
        "--strip-components=4",
        "--wildcards",
        "--no-wildcards-match-slash",
    ]);
    tar.args(["./usr/src/rustc-*/library", "./usr/src/rustc-*/COPYRIGHT", "./usr/src/rustc-*/LICENSE-*"]);
    if let Some(stdout) = archive.stdout.take() {
        tar.stdin(stdout);
    }
    let unpacked = process::stdout(&mut tar);
    // Its pipe is closed by now, and so it ends.
    archive.wait().map_err(start)?;
    unpacked.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_version_is_chosen_among_others() {
        let list = "  rust-src | 1.97.10+dfsg1-1 | x sid/main\n  rust-src | 1.97.1+dfsg1-1~bpo13+1 | x trixie-backports/main amd64 Packages\n";
        assert_eq!(pinned_version(list).as_deref(), Some("1.97.1+dfsg1-1~bpo13+1"));
        assert_eq!(pinned_version("  rust-src | 1.98.0+dfsg1-1 | x sid/main\n"), None);
        assert_eq!(pinned_version(""), None);
    }

    #[test]
    fn the_systems_entries_are_found_once_in_both_forms() {
        let folder = tempfile::tempdir().unwrap();
        let parts = folder.path().join("sources.list.d");
        fs::create_dir(&parts).unwrap();
        fs::write(folder.path().join("sources.list"), "deb http://mirror.example/debian trixie main\n")
            .unwrap();
        fs::write(
            parts.join("more.list"),
            "deb http://mirror.example/debian trixie-updates main\ndeb http://x.example/apt x main\n",
        )
        .unwrap();
        fs::write(
            parts.join("b.sources"),
            "Types: deb\nURIs: http://b.example/debian\nSuites: sid\nComponents: main\n",
        )
        .unwrap();
        fs::write(
            parts.join("b.sources.save"),
            "Types: deb\nURIs: http://c.example/debian\nSuites: sid\nComponents: main\n",
        )
        .unwrap();
        let found: Vec<_> =
            system_sources(folder.path()).unwrap().into_iter().flat_map(|source| source.uris).collect();
        assert_eq!(found, ["http://mirror.example/debian", "http://b.example/debian"]);
        assert!(
            system_sources(&folder.path().join("none"))
                .unwrap_err()
                .to_string()
                .contains("rustup component add rust-src")
        );
    }
}
