//! The comment at the head of a PTX file: all that decided its bytes, and nothing of the machine.

use super::{Bounds, Param};
use crate::{pins, toolchain::CompilerVersion};

/// The facts of a stamp.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stamp<'a> {
    /// Name of the entry.
    pub entry: &'a str,
    /// The compiler.
    pub compiler: &'a CompilerVersion,
    /// The target, for example `sm_90`.
    pub target: String,
    /// The version of PTX, for example `8.0`.
    pub version: &'a str,
    /// Flags of the compiler.
    pub flags: &'a [String],
    /// Features of the kernel crate.
    pub features: &'a [String],
    /// Hash of what `core` was compiled from.
    pub core: &'a str,
    /// The entry's bounds.
    pub bounds: Bounds,
    /// The entry's parameters.
    pub params: &'a [Param],
}

/// The line that differs between two libraries, and the only one that may.
pub const CORE_LINE: &str = "// core: ";

impl Stamp<'_> {
    /// The comment's lines.
    pub fn text(&self) -> String {
        let Self { entry, compiler, target, version, core, bounds, .. } = self;
        let list = |words: Vec<String>| if words.is_empty() { "none".to_owned() } else { words.join(" ") };
        let params = list(self.params.iter().map(Param::to_string).collect());
        let (flags, features) = (list(self.flags.to_vec()), list(self.features.to_vec()));
        format!(
            "// entry: {entry}\n\
             // compiler: rustc {} ({} {}), LLVM {}\n\
             // target: {target}, PTX {version}\n\
             // flags: {flags}\n\
             // features: {features}\n\
             {CORE_LINE}sha256 {core}\n\
             // ptxas: {}\n\
             // bounds: {bounds}\n\
             // params: {params}\n",
            compiler.release,
            compiler.commit,
            compiler.date,
            compiler.llvm,
            pins::PTXAS.version,
        )
    }
}

/// Reads one line of a file's stamp: `field(text, "bounds")`.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let stamp = text.lines().take_while(|line| line.starts_with("//"));
    stamp.filter_map(|line| line.strip_prefix("// ")?.strip_prefix(name)?.strip_prefix(": ")).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stamp_reads_back() {
        let compiler = CompilerVersion {
            release: "1.97.0-nightly".into(),
            commit: "e50a".into(),
            date: "2026-05-19".into(),
            llvm: "22.1.4".into(),
        };
        let stamp = Stamp {
            entry: "encode",
            compiler: &compiler,
            target: "sm_90".into(),
            version: "8.0",
            flags: &["-Copt-level=3".into(), "-Cpanic=abort".into()],
            features: &[],
            core: "00ff",
            bounds: Bounds::parse("threads=256 min_blocks=8").unwrap(),
            params: &[],
        };
        let text = stamp.text() + ".version 8.0\n// entry: other\n";
        let expected = "// entry: encode\n// compiler: rustc 1.97.0-nightly (e50a 2026-05-19), LLVM 22.1.4\n// target: sm_90, PTX 8.0\n\
                        // flags: -Copt-level=3 -Cpanic=abort\n// features: none\n// core: sha256 00ff\n// ptxas: 13.0.88\n\
                        // bounds: threads=256 min_blocks=8\n// params: none\n.version 8.0\n// entry: other\n";
        assert_eq!(text, expected);
        assert_eq!(field(&text, "bounds"), Some("threads=256 min_blocks=8"));
        assert_eq!(field(&text, "entry"), Some("encode"));
        assert_eq!(field(&text, "nothing"), None);
    }
}
