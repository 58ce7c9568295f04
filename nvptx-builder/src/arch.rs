//! Targets and multiprocessors: names, and what limits the number of resident blocks.

use std::{fmt, str::FromStr};

/// A target such as `sm_90` or `sm_90a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    number: u32,
    suffix: Option<char>,
}

/// Newer multiprocessors that a PTX file is assembled for, beside its own target: one of each generation that has its own limits.
const ABOVE: [u32; 4] = [80, 90, 100, 120];

impl Arch {
    /// The architecture of this number, without suffix.
    pub const fn new(number: u32) -> Self {
        Self { number, suffix: None }
    }

    /// For example 90.
    pub fn number(self) -> u32 {
        self.number
    }

    /// What PTX for this target is assembled for unless the manifest says otherwise: itself and the generations above it.
    ///
    /// PTX for an architecture-specific target (`sm_90a`) runs on that one only.
    pub fn assembled_for(self) -> Vec<Arch> {
        let above =
            ABOVE.into_iter().filter(|&number| self.suffix.is_none() && number > self.number).map(Self::new);
        std::iter::once(self).chain(above).collect()
    }

    /// What a multiprocessor of this architecture holds; `None` for a number that is not known here.
    pub fn limits(self) -> Option<Limits> {
        // From NVIDIA's table of technical specifications per compute capability.
        let (warps, blocks, shared_kib) = match self.number {
            75 => (32, 16, 64),
            80 => (64, 32, 164),
            86 => (48, 16, 100),
            87 => (48, 16, 164),
            89 => (48, 24, 100),
            90 | 100 | 103 => (64, 32, 228),
            110 => (48, 24, 228),
            120 | 121 => (48, 24, 100),
            _ => return None,
        };
        // From 8.0 on the driver keeps 1 KiB of shared memory for itself in every block.
        let shared_reserved = if self.number >= 80 { 1024 } else { 0 };
        Some(Limits { warps, blocks, registers: 65536, shared: shared_kib * 1024, shared_reserved })
    }
}

impl FromStr for Arch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a target; write `sm_` and a number, for example `sm_80` or `sm_90`");
        let rest = text.strip_prefix("sm_").ok_or_else(wrong)?;
        let digits = rest.trim_end_matches(['a', 'f']);
        let suffix = match &rest[digits.len()..] {
            "" => None,
            "a" => Some('a'),
            "f" => Some('f'),
            _ => return Err(wrong()),
        };
        let arch = Self { number: digits.parse().map_err(|_| wrong())?, suffix };
        let known = "sm_75, sm_80, sm_86, sm_87, sm_89, sm_90, sm_100, sm_103, sm_110, sm_120, sm_121";
        match arch.limits() {
            Some(_) => Ok(arch),
            None => Err(format!(
                "`{text}` is not a target that is known here; known are {known}, with `a` or `f` behind"
            )),
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.number)?;
        self.suffix.map_or(Ok(()), |suffix| write!(f, "{suffix}"))
    }
}

/// What a multiprocessor holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Resident warps.
    pub warps: u32,
    /// Resident blocks.
    pub blocks: u32,
    /// 32-bit registers.
    pub registers: u32,
    /// Bytes of shared memory.
    pub shared: u32,
    /// Bytes of shared memory that the driver takes in every block.
    pub shared_reserved: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for name in ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100f", "sm_121"] {
            assert_eq!(name.parse::<Arch>().unwrap().to_string(), name);
        }
        for name in ["", "90", "sm_", "sm_90x", "sm_90aa", "compute_90", "sm_-1", "sm_99"] {
            assert!(name.parse::<Arch>().unwrap_err().contains("sm_80"), "{name}");
        }
    }

    #[test]
    fn ptx_is_assembled_for_its_target_and_those_above() {
        let names = |name: &str| {
            let archs = name.parse::<Arch>().unwrap().assembled_for();
            archs.iter().map(|arch| arch.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names("sm_80"), "sm_80 sm_90 sm_100 sm_120");
        assert_eq!(names("sm_90"), "sm_90 sm_100 sm_120");
        assert_eq!(names("sm_90a"), "sm_90a");
        assert_eq!(names("sm_86"), "sm_86 sm_90 sm_100 sm_120");
    }
}
