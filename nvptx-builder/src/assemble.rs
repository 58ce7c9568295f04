//! Handing PTX to the vendor's assembler. A golden file that nobody's assembler accepts is worthless.

use std::{fs, path::Path, process::Command};

use serde::{Deserialize, Serialize};

use crate::{
    arch::Arch,
    error::{Error, Result},
    hash, pins, process, ptx,
    sass::{self, Counts},
    toolchain::Tools,
};

/// What `ptxas -v` says about one entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Resources {
    /// The entry.
    pub entry: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of stack frame of a thread.
    pub stack: u32,
    /// Bytes of spill stores.
    pub spill_stores: u32,
    /// Bytes of spill loads.
    pub spill_loads: u32,
    /// Bytes of static shared memory of a block.
    pub shared: u32,
}

/// What the assembler made of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Assembled {
    /// The entries.
    pub entries: Vec<Resources>,
    /// Warnings, without the tool's name.
    pub warnings: Vec<String>,
}

impl Tools {
    /// Assembles a text and counts its instructions; `name` is for messages, `scratch` a folder of the caller's.
    ///
    /// The disassembler takes half a second to start, a minute for a crate of 18 entries and two targets. The result is a function of
    /// the text and of pinned tools, so it is kept in the home under a hash of both.
    pub fn measure(
        &self,
        name: &str,
        text: &str,
        arch: Arch,
        opcodes: &[String],
        scratch: &Path,
    ) -> Result<(Assembled, Counts)> {
        let versions = pins::WHEELS.map(|wheel| wheel.version).join(" ");
        let key = format!("{versions}\n{arch}\n{}\n{}", opcodes.join(" "), ptx::without_comments(text));
        let key = hash::bytes(key.as_bytes());
        let kept = self.cache.join(format!("{key}.json"));
        if let Some(measured) =
            fs::read_to_string(&kept).ok().and_then(|text| serde_json::from_str(&text).ok())
        {
            return Ok(measured);
        }
        fs::create_dir_all(scratch).map_err(Error::io("create", scratch))?;
        let (file, cubin) = (scratch.join(format!("{name}.ptx")), scratch.join("cubin"));
        fs::write(&file, text).map_err(Error::io("write", &file))?;
        let assembled = self.assemble(&file, arch, &cubin)?;
        let measured = (assembled, sass::count(&self.machine_code(&cubin)?, opcodes));
        if let Ok(json) = serde_json::to_string(&measured) {
            // A cache that cannot be written is only slow. Renamed, so that no reader sees half a file.
            let made = scratch.join("kept.json");
            let _ = fs::create_dir_all(&self.cache).and_then(|()| fs::write(&made, json)).and_then(|()| {
                let beside = self.cache.join(format!("{key}.{}", std::process::id()));
                fs::copy(&made, &beside)?;
                fs::rename(&beside, &kept)
            });
        }
        Ok(measured)
    }

    /// Assembles a file for one architecture, which may be above its target.
    pub fn assemble(&self, ptx: &Path, arch: Arch, cubin: &Path) -> Result<Assembled> {
        let mut command = Command::new(&self.ptxas);
        command.arg("-v").arg(format!("-arch={arch}")).arg(ptx).arg("-o").arg(cubin);
        let output = process::output(&mut command)?;
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            let name = ptx.file_name().unwrap_or_default().to_string_lossy();
            let command = format!("ptxas -arch={arch} {name}");
            // The path of a temporary file helps nobody.
            let text = text.replace(&*ptx.to_string_lossy(), &name);
            return Err(Error::Failed {
                command,
                status: output.status.to_string(),
                output: process::tail(&text, 20),
            });
        }
        Assembled::parse(&text).map_err(|message| Error::Tool { tool: "ptxas -v".into(), message })
    }

    /// The machine code of a cubin, as text.
    pub fn machine_code(&self, cubin: &Path) -> Result<String> {
        let mut command = Command::new(&self.cuobjdump);
        // It looks for nvdisasm on the path.
        let folder = self.nvdisasm.parent().unwrap_or(Path::new("."));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths(std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&path)));
        command.env("PATH", path.unwrap_or_else(|_| folder.into()));
        process::stdout(command.arg("-sass").arg(cubin))
    }
}

impl Assembled {
    /// Reads what `ptxas -v` wrote.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut assembled = Self::default();
        for line in text.lines() {
            if let Some((_, warning)) = line.split_once("warning :").or_else(|| line.split_once("warning:")) {
                assembled.warnings.push(warning.trim().to_owned());
            } else if let Some((_, rest)) = line.split_once("Compiling entry function '") {
                let entry = rest.split('\'').next().unwrap_or_default().to_owned();
                assembled.entries.push(Resources { entry, ..Resources::default() });
            } else if line.contains("bytes stack frame") {
                let resources = assembled.entries.last_mut().ok_or("a stack frame before the first entry")?;
                resources.stack = before(line, " bytes stack frame")?;
                resources.spill_stores = before(line, " bytes spill stores")?;
                resources.spill_loads = before(line, " bytes spill loads")?;
            } else if line.contains("Used ") && line.contains(" registers") {
                let resources = assembled.entries.last_mut().ok_or("registers before the first entry")?;
                resources.registers = before(line, " registers")?;
                resources.shared =
                    if line.contains(" bytes smem") { before(line, " bytes smem")? } else { 0 };
            }
        }
        match assembled.entries.iter().find(|entry| entry.registers == 0) {
            Some(entry) => Err(format!("no registers for entry `{}`", entry.entry)),
            None => Ok(assembled),
        }
    }
}

/// The number before these words.
fn before(line: &str, words: &str) -> Result<u32, String> {
    let wrong = || format!("no number before `{words}` in `{line}`");
    let number = line.split_once(words).ok_or_else(wrong)?.0;
    let digits = number.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_read() {
        let text = "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'tagged' for 'sm_90'\n\
                    ptxas info    : Function properties for tagged\n    56 bytes stack frame, 92 bytes spill stores, 148 bytes spill loads\n\
                    ptxas info    : Used 32 registers, used 1 barriers, 56 bytes cumulative stack size, 6320 bytes smem\n\
                    ptxas info    : Compile time = 97.748 ms\nptxas info    : Compiling entry function 'plain' for 'sm_90'\n\
                    ptxas info    : Function properties for plain\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                    ptxas info    : Used 10 registers, 360 bytes cmem[0]\n\
                    ptxas warning : Value of threads per SM for entry plain is out of range. .minnctapersm will be ignored\n";
        let assembled = Assembled::parse(text).unwrap();
        let tagged = Resources {
            entry: "tagged".into(),
            registers: 32,
            stack: 56,
            spill_stores: 92,
            spill_loads: 148,
            shared: 6320,
        };
        let plain = Resources { entry: "plain".into(), registers: 10, ..Resources::default() };
        assert_eq!(assembled.entries, [tagged, plain]);
        assert_eq!(
            assembled.warnings,
            ["Value of threads per SM for entry plain is out of range. .minnctapersm will be ignored"]
        );
    }

    #[test]
    fn a_report_without_numbers_is_refused() {
        assert!(
            Assembled::parse("ptxas info    : Compiling entry function 'x' for 'sm_90'\n")
                .unwrap_err()
                .contains("`x`")
        );
        assert!(Assembled::parse("ptxas info    : Used 3 registers\n").is_err());
    }
}
