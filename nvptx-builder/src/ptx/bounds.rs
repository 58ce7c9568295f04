//! Launch bounds: from a comment in the body of an entry to directives before it.
//!
//! Rust has no attribute for them, and the device code may hold no data from which a tool could read them. A comment line can be
//! emitted from anywhere in an entry and survives every optimisation:
//!
//! ```text
//! core::arch::asm!("// nvptx-builder: threads=256 min_blocks=8 shared=1234", options(nomem, nostack, preserves_flags));
//! ```
//!
//! `threads` becomes `.reqntid`, not `.maxntid`: the block size is a constant of the kernel, and so the driver refuses a wrong launch.

use super::module::EntryText;

/// What begins the comment line.
pub const MARK: &str = "// nvptx-builder:";

/// What an entry says about its launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// Threads of a block.
    pub threads: u32,
    /// Blocks that must be resident at once.
    pub min_blocks: Option<u32>,
    /// Bytes of shared memory that the entry believes to use; checked against what `ptxas` counts.
    pub shared: Option<u32>,
}

impl Bounds {
    /// Reads `threads=256 min_blocks=8 shared=1234`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let allowed = "allowed are threads (1 to 1024), min_blocks (1 to 32) and shared (bytes), for example \
                       `// nvptx-builder: threads=256 min_blocks=8 shared=1234`";
        let (mut threads, mut min_blocks, mut shared) = (None, None, None);
        for word in text.split_whitespace() {
            let (key, value) =
                word.split_once('=').ok_or_else(|| format!("`{word}` is not key=value; {allowed}"))?;
            let (place, range) = match key {
                "threads" => (&mut threads, 1..=1024),
                "min_blocks" => (&mut min_blocks, 1..=32),
                "shared" => (&mut shared, 0..=u32::MAX),
                _ => return Err(format!("unknown key `{key}` in the bounds comment; {allowed}")),
            };
            let number = value.parse().ok().filter(|number| range.contains(number));
            let number = number.ok_or_else(|| format!("`{value}` is no value for `{key}`; {allowed}"))?;
            if place.replace(number).is_some() {
                return Err(format!("`{key}` stands twice in the bounds comment"));
            }
        }
        let threads = threads.ok_or_else(|| format!("the bounds comment has no `threads`; {allowed}"))?;
        Ok(Self { threads, min_blocks, shared })
    }

    /// Takes the comment lines out of an entry's body.
    pub fn take(entry: &mut EntryText) -> Result<Self, String> {
        let mut found: Option<Self> = None;
        let mut kept = String::with_capacity(entry.body.len());
        for line in entry.body.lines() {
            let Some(text) = line.trim_start().strip_prefix(MARK) else {
                kept.push_str(line);
                kept.push('\n');
                continue;
            };
            let bounds = Self::parse(text)?;
            // LLVM may copy the comment with the code around it: copies are welcome, contradictions are not.
            if found.is_some_and(|found| found != bounds) {
                return Err(format!("two bounds comments differ, the second is `{}`; keep one", text.trim()));
            }
            found = Some(bounds);
        }
        entry.body = kept;
        found.ok_or_else(|| {
            format!(
                "no bounds comment in its body; emit one at its start: asm!(\"{MARK} threads=256\", options(nomem, nostack, preserves_flags))"
            )
        })
    }

    /// The directives that stand between the parameter list and the body.
    pub fn directives(self) -> String {
        let mut text = format!(".reqntid {}, 1, 1\n", self.threads);
        if let Some(blocks) = self.min_blocks {
            text.push_str(&format!(".minnctapersm {blocks}\n"));
        }
        text
    }
}

impl std::fmt::Display for Bounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "threads={}", self.threads)?;
        self.min_blocks.map_or(Ok(()), |blocks| write!(f, " min_blocks={blocks}"))?;
        self.shared.map_or(Ok(()), |bytes| write!(f, " shared={bytes}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(body: &str) -> EntryText {
        EntryText {
            name: "x".into(),
            declarations: String::new(),
            head: ".visible .entry x()".into(),
            body: body.into(),
        }
    }

    #[test]
    fn all_keys_and_only_threads() {
        let bounds = Bounds::parse(" threads=256 min_blocks=8 shared=1234").unwrap();
        assert_eq!(bounds, Bounds { threads: 256, min_blocks: Some(8), shared: Some(1234) });
        assert_eq!(bounds.to_string(), "threads=256 min_blocks=8 shared=1234");
        assert_eq!(bounds.directives(), ".reqntid 256, 1, 1\n.minnctapersm 8\n");
        let bounds = Bounds::parse("threads=32").unwrap();
        assert_eq!(bounds.directives(), ".reqntid 32, 1, 1\n");
    }

    #[test]
    fn wrong_keys_and_values_are_told_apart() {
        for (text, part) in [
            ("", "no `threads`"),
            ("min_blocks=8", "no `threads`"),
            ("threads=256 blocks=8", "unknown key `blocks`"),
            ("threads=0", "`0` is no value for `threads`"),
            ("threads=2048", "`2048` is no value"),
            ("threads=256 min_blocks=33", "`33` is no value for `min_blocks`"),
            ("threads=-1", "`-1` is no value"),
            ("threads 256", "`threads` is not key=value"),
            ("threads=1 threads=1", "stands twice"),
        ] {
            let message = Bounds::parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn the_comment_is_taken_out() {
        let mut one =
            entry("{\n\t// nvptx-builder: threads=256\n\tret;\n\t// nvptx-builder: threads=256\n}\n");
        assert_eq!(Bounds::take(&mut one).unwrap().threads, 256);
        assert_eq!(one.body, "{\n\tret;\n}\n");
        let mut two = entry("{\n\t// nvptx-builder: threads=256\n\t// nvptx-builder: threads=128\n}\n");
        assert!(Bounds::take(&mut two).unwrap_err().contains("differ"));
        assert!(Bounds::take(&mut entry("{\n\tret;\n}\n")).unwrap_err().contains("no bounds comment"));
    }
}
