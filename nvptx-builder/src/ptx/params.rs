//! The parameter list of an entry, so that tests can compare it with what a launcher pushes.
//!
//! The driver reads as many argument slots as the kernel declares; one argument too few is a crash of the host, not an error.

use super::{without_comments, words};

/// One parameter.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Param {
    /// Its type in PTX: `u64`, `u32`, `b8`, ...
    pub kind: String,
    /// Is it marked as a pointer?
    pub pointer: bool,
    /// For an array (an aggregate by value), the number of its elements.
    pub elements: Option<u32>,
}

impl Param {
    /// Reads the parameter list in the head of an entry.
    pub fn list(head: &str) -> Result<Vec<Self>, String> {
        let head = without_comments(head);
        let list = head
            .split_once('(')
            .map_or("", |(_, after)| after.rsplit_once(')').map_or(after, |(list, _)| list));
        list.split(',').filter(|text| !text.trim().is_empty()).map(Self::parse).collect()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("cannot read the parameter `{}`", text.trim());
        let (declared, elements) = match text.split_once('[') {
            Some((declared, count)) => {
                (declared, Some(count.trim_end().trim_end_matches(']').trim().parse().map_err(|_| wrong())?))
            }
            None => (text, None),
        };
        let mut fields = words(declared);
        if fields.next() != Some(".param") {
            return Err(wrong());
        }
        let is_kind = |word: &&str| {
            word.strip_prefix(['.']).is_some_and(|kind| {
                kind.starts_with(['u', 's', 'b', 'f']) && kind[1..].parse::<u32>().is_ok()
            })
        };
        let kind = words(declared).find(is_kind).ok_or_else(wrong)?[1..].to_owned();
        Ok(Self { kind, pointer: words(declared).any(|word| word == ".ptr"), elements })
    }
}

impl std::fmt::Display for Param {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.pointer { "ptr" } else { &self.kind })?;
        self.elements.map_or(Ok(()), |elements| write!(f, "[{elements}]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(head: &str) -> String {
        Param::list(head).unwrap().iter().map(Param::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn lists_are_read() {
        assert_eq!(shown(".visible .entry x()"), "");
        assert_eq!(
            shown(".visible .entry x(\n\t.param .u64 .ptr .align 1 x_param_0,\n\t.param .u32 x_param_1\n)"),
            "ptr u32"
        );
        assert_eq!(
            shown(".visible .entry x(\n\t.param .u64 x_param_0,\n\t.param .align 8 .b8 x_param_1[24]\n)"),
            "u64 b8[24]"
        );
        assert!(Param::list(".visible .entry x(\n\t.reg .u64 y\n)").is_err());
    }
}
