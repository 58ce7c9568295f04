//! `check` and `bless`: what is committed is what the source builds, and every assembler that matters accepts it.
//!
//! `check` never writes; `bless` writes only when nothing but the comparison itself would fail. Both look at every file and report all
//! that is wrong at once. Without the pinned compiler, `committed` looks at the files as they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use similar::TextDiff;

use crate::{
    arch::Arch,
    compile::{self, Build, Entry},
    config::Package,
    error::{Error, Result},
    occupancy, pins,
    ptx::{Bounds, lint, module::Module, stamp},
    snapshot::{self, Row},
    toolchain::Tools,
};

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// What is wrong; empty if all is well.
    pub problems: Vec<String>,
    /// What is worth knowing.
    pub notes: Vec<String>,
    /// PTX files that were looked at.
    pub files: usize,
    /// How often a file was assembled.
    pub assembled: usize,
}

/// How strictly to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strictness {
    /// Bytes must be equal, except for the hash of the library in the stamp if the code below it is the same.
    ///
    /// Debian's library and the toolchain's own component differ in lines that no kernel uses. With the library that the committed
    /// files name, this is the same as [`Bytes`](Self::Bytes).
    #[default]
    Code,
    /// Bytes must be equal.
    Bytes,
}

/// One PTX file: what is looked at by the assembler and the lint.
struct Candidate {
    /// For example `sm_90/encode.ptx`.
    file: String,
    entry: String,
    target: Arch,
    bounds: Bounds,
    text: String,
    assemble: Vec<Arch>,
}

/// Rebuilds, compares with what is committed, and assembles.
pub fn check(package: &Package, build: &Build, tools: &Tools, strictness: Strictness) -> Result<Report> {
    let entries = build.run_package(package)?;
    let (mut report, rows) = examine(candidates(package, build, &entries)?, tools, &package.config.opcodes)?;
    compare_files(package, build, &entries, strictness, &mut report)?;
    compare_table(package, &rows, &mut report)?;
    Ok(report)
}

/// Looks at the committed files as they are, without compiling.
pub fn committed(package: &Package, build: &Build, tools: &Tools) -> Result<Report> {
    let mut problems = Vec::new();
    let mut found = Vec::new();
    let files = committed_files(package)?;
    if files.is_empty() {
        problems.push(format!(
            "there is no PTX file below {}; type `nvptx-builder bless`",
            package.config.output.display()
        ));
    }
    for target in build.chosen(package)? {
        let name = target.arch.to_string();
        for (file, text) in files.iter().filter(|(file, _)| file.starts_with(&format!("{name}/"))) {
            match read_candidate(file, text, target.arch) {
                Ok((entry, bounds)) => {
                    let assemble = target.assemble.clone();
                    found.push(Candidate {
                        file: file.clone(),
                        entry,
                        target: target.arch,
                        bounds,
                        text: text.clone(),
                        assemble,
                    });
                }
                Err(message) => problems.push(format!("{file}: {message}")),
            }
        }
    }
    problems.extend(orphans(package, &files));
    let (mut report, rows) = examine(found, tools, &package.config.opcodes)?;
    report.problems.splice(0..0, problems);
    compare_table(package, &rows, &mut report)?;
    Ok(report)
}

/// Builds, and writes files and table if nothing is wrong with them.
///
/// All targets of the manifest, always: a table of some of them would not be the table.
pub fn bless(package: &Package, build: &Build, tools: &Tools) -> Result<Report> {
    let build = &build.clone().all_targets();
    let entries = build.run_package(package)?;
    let (mut report, rows) = examine(candidates(package, build, &entries)?, tools, &package.config.opcodes)?;
    if !report.problems.is_empty() {
        report.notes.push("nothing was written".into());
        return Ok(report);
    }
    let before = committed_files(package)?;
    // A file whose code is the same from another library stays: what was recorded about it, by its hash, stays true.
    let mut entries = entries;
    for entry in &mut entries {
        if let Some(text) = before
            .get(&portable(&entry.file()))
            .filter(|text| without_core(text) == without_core(&entry.text))
        {
            entry.text.clone_from(text);
        }
    }
    let output = package.output();
    for folder in target_folders(&output)? {
        compile::clear(&folder)?;
        // Fails, as it should, where something else is in it.
        let _ = fs::remove_dir(&folder);
    }
    compile::write(&entries, &output)?;
    let table = package.table();
    if let Some(parent) = table.parent() {
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
    }
    fs::write(&table, snapshot::render(&rows, &package.config.opcodes))
        .map_err(Error::io("write", &table))?;
    let after = committed_files(package)?;
    let changed = |file: &&String| before.get(*file) != after.get(*file);
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for file in names.into_iter().filter(changed) {
        let what = match (before.contains_key(file), after.contains_key(file)) {
            (true, true) => "changed",
            (false, _) => "new",
            (true, false) => "removed",
        };
        report.notes.push(format!("{what}: {file}"));
    }
    Ok(report)
}

fn candidates(package: &Package, build: &Build, entries: &[Entry]) -> Result<Vec<Candidate>> {
    let targets = build.chosen(package)?;
    let assemble =
        |arch| targets.iter().find(|target| target.arch == arch).map(|target| target.assemble.clone());
    let candidate = |entry: &Entry| Candidate {
        file: portable(&entry.file()),
        entry: entry.name.clone(),
        target: entry.target,
        bounds: entry.bounds,
        text: entry.text.clone(),
        assemble: assemble(entry.target).unwrap_or_default(),
    };
    Ok(entries.iter().map(candidate).collect())
}

/// Checks what a committed file says of itself.
fn read_candidate(file: &str, text: &str, target: Arch) -> Result<(String, Bounds), String> {
    let module = Module::parse(text)?;
    let [entry] = &module.entries()?[..] else { return Err("it does not hold exactly one entry".into()) };
    let field = |name: &str| {
        stamp::field(text, name)
            .ok_or_else(|| format!("its stamp has no `{name}`; type `nvptx-builder bless`"))
    };
    if Path::new(file).file_stem().is_none_or(|stem| stem != &*entry.name) || field("entry")? != entry.name {
        return Err(format!("file, stamp and entry `{}` have different names", entry.name));
    }
    if module.target != target.to_string() {
        return Err(format!("it is for {}, but lies in the folder of {target}", module.target));
    }
    if !field("compiler")?.contains(pins::COMPILER_COMMIT) {
        return Err(format!("another compiler than the pinned one built it: {}", field("compiler")?));
    }
    if field("ptxas")? != pins::PTXAS.version {
        return Err(format!(
            "it was checked with ptxas {}, pinned is {}",
            field("ptxas")?,
            pins::PTXAS.version
        ));
    }
    let bounds = Bounds::parse(field("bounds")?)?;
    if !entry.body.starts_with('{') || !text.contains(&format!(")\n{}{{\n", bounds.directives())) {
        return Err(format!("its directives are not those of its stamp ({bounds})"));
    }
    Ok((entry.name.clone(), bounds))
}

/// Lints and assembles, on all processors.
fn examine(candidates: Vec<Candidate>, tools: &Tools, opcodes: &[String]) -> Result<(Report, Vec<Row>)> {
    let scratch = tempfile::tempdir().map_err(Error::io("create", std::env::temp_dir()))?;
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(candidates.len().max(1));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((index, candidate)) = at(&candidates, next.fetch_add(1, Ordering::Relaxed)) {
                    let result = candidate.examine(tools, opcodes, &scratch.path().join(index.to_string()));
                    if let Ok(mut done) = done.lock() {
                        done.insert(index, result);
                    }
                }
            });
        }
    });
    let mut report = Report { files: candidates.len(), ..Report::default() };
    let mut rows = Vec::new();
    for result in done.into_inner().unwrap_or_default().into_values() {
        let (problems, new_rows) = result?;
        report.problems.extend(problems);
        report.assembled += new_rows.len();
        rows.extend(new_rows);
    }
    Ok((report, rows))
}

fn at<T>(items: &[T], index: usize) -> Option<(usize, &T)> {
    items.get(index).map(|item| (index, item))
}

impl Candidate {
    /// Problems and rows of one file. An error is one of the tools, not of the file.
    fn examine(&self, tools: &Tools, opcodes: &[String], scratch: &Path) -> Result<(Vec<String>, Vec<Row>)> {
        let mut problems: Vec<_> = lint::lint(&self.entry, &self.text)
            .iter()
            .map(|finding| format!("{}: {finding}", self.target))
            .collect();
        if !problems.is_empty() {
            return Ok((problems, Vec::new()));
        }
        // The same problem on several architectures is told once.
        let mut found: Vec<(String, Vec<Arch>)> = Vec::new();
        let mut rows = Vec::new();
        for &arch in &self.assemble {
            let mut problem = |message: String| match found.iter_mut().find(|(other, _)| *other == message) {
                Some((_, archs)) => archs.push(arch),
                None => found.push((message, vec![arch])),
            };
            let (assembled, counts) = match tools.measure(&self.entry, &self.text, arch, opcodes, scratch) {
                Ok(measured) => measured,
                Err(Error::Failed { output, .. }) => {
                    problem(format!("ptxas refuses it:\n{output}"));
                    continue;
                }
                Err(other) => return Err(other),
            };
            let [resources] = &assembled.entries[..] else {
                problem(format!("ptxas reports {} entries instead of one", assembled.entries.len()));
                continue;
            };
            let floor = occupancy::floor(arch, self.bounds.threads, resources.shared, self.bounds.min_blocks);
            for warning in &assembled.warnings {
                // Where no multiprocessor of this kind can hold so many threads, the bound is meant for others.
                let is_expected = self.bounds.min_blocks.is_some()
                    && floor.is_none()
                    && warning.contains(".minnctapersm will be ignored");
                if !is_expected {
                    problem(format!("ptxas warns: {warning}"));
                }
            }
            if (resources.spill_stores, resources.spill_loads) != (0, 0) {
                problem(format!(
                    "it spills ({} bytes of stores, {} of loads); take fewer registers, or ask for fewer blocks than min_blocks={}",
                    resources.spill_stores,
                    resources.spill_loads,
                    self.bounds.min_blocks.unwrap_or(1)
                ));
            } else if resources.stack != 0 {
                problem(format!(
                    "it has a stack frame of {} bytes; no local array may be left in memory",
                    resources.stack
                ));
            }
            if counts.predicated_redux != 0 {
                problem(format!(
                    "{} reductions are under a predicate, and ptxas has been seen to take a wrong one, so that nothing was summed up; reduce always, and choose among results",
                    counts.predicated_redux
                ));
            }
            if let Some(shared) = self.bounds.shared.filter(|&shared| shared != resources.shared) {
                problem(format!("its bounds say shared={shared}, ptxas counts {} bytes", resources.shared));
            }
            let limits = arch.limits();
            let blocks = limits.map_or(0, |limits| {
                occupancy::resident_blocks(limits, self.bounds.threads, resources.registers, resources.shared)
            });
            if blocks < floor.unwrap_or(1) {
                problem(format!(
                    "{blocks} blocks are resident at once, fewer than {}: {} registers, {} bytes of shared memory, {} threads",
                    floor.unwrap_or(1),
                    resources.registers,
                    resources.shared,
                    self.bounds.threads
                ));
            }
            rows.push(Row {
                target: self.target,
                arch,
                entry: self.entry.clone(),
                registers: resources.registers,
                shared: resources.shared,
                blocks,
                floor,
                counts,
            });
        }
        problems.extend(found.into_iter().map(|(message, archs)| {
            let archs = archs.iter().map(Arch::to_string).collect::<Vec<_>>().join(", ");
            format!("{}, assembled for {archs}: {message}", self.file)
        }));
        Ok((problems, rows))
    }
}

fn compare_files(
    package: &Package,
    build: &Build,
    entries: &[Entry],
    strictness: Strictness,
    report: &mut Report,
) -> Result<()> {
    let files = committed_files(package)?;
    let targets = build.chosen(package)?;
    let mut left: BTreeSet<&String> = files.keys().collect();
    let mut other_core = BTreeSet::new();
    for entry in entries {
        let name = portable(&entry.file());
        left.remove(&name);
        let Some(text) = files.get(&name) else {
            report.problems.push(format!("{name} is missing; type `nvptx-builder bless`"));
            continue;
        };
        if *text == entry.text {
            continue;
        }
        let same_code = strictness == Strictness::Code && without_core(text) == without_core(&entry.text);
        match (same_code, stamp::field(text, "core")) {
            (true, Some(core)) => {
                other_core.insert(core.to_owned());
            }
            _ => report
                .problems
                .push(format!("{name} is not what the source builds:\n{}", diff(text, &entry.text))),
        }
    }
    for core in other_core {
        report.notes.push(format!(
            "same code from another library: the committed files name core {core}; `--strict` refuses that"
        ));
    }
    let built = |file: &str| targets.iter().any(|target| file.starts_with(&format!("{}/", target.arch)));
    for file in left.into_iter().filter(|file| built(file)) {
        report
            .problems
            .push(format!("{file} is committed, but no entry builds it; type `nvptx-builder bless`"));
    }
    report.problems.extend(orphans(package, &files));
    Ok(())
}

/// The lines of a file that may not differ between two libraries.
fn without_core(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with(stamp::CORE_LINE)).collect()
}

/// Files in folders of targets that the manifest does not name.
fn orphans(package: &Package, files: &BTreeMap<String, String>) -> Vec<String> {
    let known: Vec<_> = package.config.targets.iter().map(|target| format!("{}/", target.arch)).collect();
    let orphans = files.keys().filter(|file| !known.iter().any(|target| file.starts_with(target)));
    orphans
        .map(|file| {
            format!("{file} is committed, but its folder is none of `targets`; remove it, or add the target")
        })
        .collect()
}

/// The table of a check that built every target is compared whole; else only the parts of what was built.
fn compare_table(package: &Package, rows: &[Row], report: &mut Report) -> Result<()> {
    let table = package.table();
    let name = portable(&package.config.table);
    let committed = match fs::read_to_string(&table) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            report.problems.push(format!("the table {name} is missing; type `nvptx-builder bless`"));
            return Ok(());
        }
        Err(error) => return Err(Error::io("read", table)(error)),
    };
    let built: BTreeSet<_> = rows.iter().map(|row| row.target).collect();
    let all = package.config.targets.iter().all(|target| built.contains(&target.arch));
    let new = snapshot::render(rows, &package.config.opcodes);
    // Only the parts that were built, where not all were.
    let relevant = |text: &str| match all {
        true => text.to_owned(),
        false => {
            let built =
                |section: &&str| sections(&new).any(|other| other.lines().next() == section.lines().next());
            sections(text).filter(built).map(|section| format!("## {section}\n")).collect()
        }
    };
    let (old, new) = (relevant(&committed), relevant(&new));
    if old != new {
        report.problems.push(format!("the table {name} is not what the files give:\n{}", diff(&old, &new)));
    }
    Ok(())
}

fn sections(table: &str) -> impl Iterator<Item = &str> {
    table.split("\n## ").skip(1).map(str::trim_end)
}

/// A unified diff, cut where it becomes long.
fn diff(committed: &str, new: &str) -> String {
    const LINES: usize = 40;
    let diff = TextDiff::from_lines(committed, new)
        .unified_diff()
        .context_radius(2)
        .header("committed", "built")
        .to_string();
    let mut lines: Vec<_> = diff.lines().take(LINES).map(|line| format!("    {line}")).collect();
    let more = diff.lines().count().saturating_sub(LINES);
    if more > 0 {
        lines.push(format!("    ... and {more} lines more"));
    }
    lines.join("\n")
}

/// The folders `sm_*` below the output folder.
fn target_folders(output: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    if output.is_dir() {
        for item in fs::read_dir(output).map_err(Error::io("read", output))? {
            let path = item.map_err(Error::io("read", output))?.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sm_"))
            {
                folders.push(path);
            }
        }
    }
    folders.sort();
    Ok(folders)
}

/// Everything in the folders `sm_*`, by its name below the output folder.
fn committed_files(package: &Package) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for folder in target_folders(&package.output())? {
        for item in fs::read_dir(&folder).map_err(Error::io("read", &folder))? {
            let path = item.map_err(Error::io("read", &folder))?.path();
            // A folder in here is as foreign as an unknown file.
            let text =
                if path.is_dir() { Vec::new() } else { fs::read(&path).map_err(Error::io("read", &path))? };
            let parts = [folder.file_name(), path.file_name()]
                .map(|part| part.unwrap_or_default().to_string_lossy().into_owned());
            files.insert(parts.join("/"), String::from_utf8_lossy(&text).into_owned());
        }
    }
    Ok(files)
}

fn portable(path: &Path) -> String {
    path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_diff_is_cut() {
        let old: String = (0..100).map(|line| format!("{line}\n")).collect();
        let new: String = (0..100).map(|line| format!("{line}.\n")).collect();
        let text = diff(&old, &new);
        assert_eq!(text.lines().count(), 41);
        assert!(text.contains("--- committed") && text.ends_with("lines more"), "{text}");
    }
}
