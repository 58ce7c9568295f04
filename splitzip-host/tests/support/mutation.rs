//! PTX with one instruction changed.
//!
//! A test that no change of the code makes fail tests nothing. So code is changed, as a slip of the hand or a bug of a compiler would, and
//! the tests have to notice. The same seed gives the same changes, for each entry on its own: a kernel that is rewritten leaves those of the
//! others as they were.

use splitzip_host::cuda::Ptx;
use std::collections::BTreeSet;
use std::fmt;

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Shuffle,
    Barrier,
    Offset,
    Immediate,
    Swap,
    Comparison,
    Store,
    Shift,
    Selector,
    Table,
    Reduction,
    Guard,
}

impl Kind {
    pub const ALL: [Kind; 12] = [
        Kind::Shuffle,
        Kind::Barrier,
        Kind::Offset,
        Kind::Immediate,
        Kind::Swap,
        Kind::Comparison,
        Kind::Store,
        Kind::Shift,
        Kind::Selector,
        Kind::Table,
        Kind::Reduction,
        Kind::Guard,
    ];
}

/// One change.
#[derive(Clone, Debug)]
pub struct Mutant {
    pub ptx: &'static Ptx,
    pub kind: Kind,
    /// The line, from 1.
    pub line: u32,
    pub before: String,
    /// Nothing where the instruction is gone.
    pub after: String,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mutant { ptx, kind, line, before, after } = self;
        let after = if after.is_empty() { "nothing" } else { after };
        write!(f, "{} {} line {line}: {kind:?}: `{before}` -> `{after}`", ptx.target, ptx.entry)
    }
}

impl Mutant {
    /// The text with the change.
    pub fn text(&self) -> String {
        let lines = self.ptx.text.lines().enumerate();
        let change =
            |(number, line)| if number + 1 == self.line as usize { self.after.as_str() } else { line };
        lines.map(change).collect::<Vec<_>>().join("\n")
    }
}

/// `splitmix64`, seeded by names.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64, names: &[&str]) -> Random {
        let bytes = names.iter().flat_map(|name| name.bytes());
        Random(bytes.fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }
}

/// `count` changes of lines that were run: kinds in turns, from a random one on, each on a random line.
pub fn mutants(ptx: &'static Ptx, live: &BTreeSet<u32>, count: usize, seed: u64) -> Vec<Mutant> {
    let mut random = Random::new(seed, &[ptx.target, ptx.entry]);
    let lines: Vec<&str> = ptx.text.lines().collect();
    let (mut found, mut seen): (Vec<Mutant>, BTreeSet<(u32, String)>) = Default::default();
    let first = random.below(Kind::ALL.len());
    for kind in Kind::ALL.into_iter().cycle().skip(first).take(20 * Kind::ALL.len()) {
        if found.len() == count {
            break;
        }
        // A barrier next to another one, or at the end, orders nothing by itself.
        let alone = |line: u32| {
            let next = lines[line as usize..].iter().find(|line| !line.starts_with('$')).unwrap_or(&"");
            let before = lines[..line as usize - 1].last().unwrap_or(&"");
            !next.contains("bar.") && !next.contains("ret;") && !before.contains("bar.")
        };
        let fits: Vec<u32> = live
            .iter()
            .copied()
            .filter(|&line| kind != Kind::Barrier || alone(line))
            .filter(|&line| mutate(kind, lines[line as usize - 1], &mut Random(1)).is_some())
            .collect();
        if fits.is_empty() {
            continue;
        }
        let line = fits[random.below(fits.len())];
        let before = lines[line as usize - 1];
        let Some(after) = mutate(kind, before, &mut random) else { continue };
        if seen.insert((line, after.clone())) {
            let before = before.trim().replace('\t', " ");
            found.push(Mutant { ptx, kind, line, before, after: after.trim().replace('\t', " ") });
        }
    }
    found
}

/// The number that an operand is.
fn immediate(operand: &str) -> Option<i64> {
    match operand.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => operand.parse().ok(),
    }
}

/// The line with a change of this kind, where one fits.
fn mutate(kind: Kind, line: &str, random: &mut Random) -> Option<String> {
    let text = line.trim();
    if text.starts_with('{') {
        return (kind == Kind::Store && text.contains("red.")).then(String::new);
    }
    let text = text.strip_suffix(';')?;
    let (guard, rest) = match text.strip_prefix('@') {
        Some(guarded) => {
            let (guard, rest) = guarded.split_once(char::is_whitespace)?;
            (Some(guard), rest.trim())
        }
        None => (None, text),
    };
    if let (Kind::Guard, Some(guard)) = (kind, guard) {
        let guard = guard.strip_prefix('!').map_or(format!("!{guard}"), str::to_owned);
        return Some(format!("@{guard} {rest};"));
    }
    let (opcode, rest) = rest.split_once(char::is_whitespace)?;
    let mut operands: Vec<String> = rest.trim().split(", ").map(str::to_owned).collect();
    let words: Vec<&str> = opcode.split('.').collect();
    let number = |at: usize| operands.get(at).and_then(|operand| immediate(operand));
    let mut opcode = opcode.to_owned();
    match (kind, words[0]) {
        (Kind::Barrier, "bar") | (Kind::Store, "st" | "red") => return Some(String::new()),
        (Kind::Shuffle, "shfl") => operands[2] = ((number(2)? + 1) & 31).to_string(),
        (Kind::Offset, "ld" | "st") if words[1] != "param" => {
            let vector =
                words.iter().find_map(|word| word.strip_prefix('v')).map_or(Some(1), |n| n.parse().ok())?;
            let bits: u32 = words.last()?.get(1..)?.parse().ok()?;
            let address = operands.iter_mut().find(|operand| operand.starts_with('['))?;
            *address = address.replace(']', &format!("+{}]", vector * bits / 8));
        }
        (
            Kind::Immediate,
            "and" | "or" | "xor" | "add" | "sub" | "mul" | "mad" | "min" | "max" | "setp" | "mov" | "selp",
        ) => {
            let at = operands.iter().rposition(|operand| immediate(operand).is_some())?;
            let value = number(at)?;
            let highest = 63 - value.unsigned_abs().leading_zeros().min(63);
            operands[at] = (value ^ (1 << highest)).to_string();
        }
        (Kind::Swap, "sub" | "shl" | "shr" | "div" | "rem" | "prmt" | "shf" | "selp") => {
            if operands[1] == operands[2] || !operands[1].starts_with('%') || !operands[2].starts_with('%') {
                return None;
            }
            // The shift of 64 bits takes registers of two widths.
            if opcode.ends_with("64") && words[0].starts_with("sh") {
                return None;
            }
            operands.swap(1, 2);
        }
        (Kind::Comparison, "setp") => {
            let other = match words[1] {
                "lt" => "ge",
                "le" => "gt",
                "gt" => "le",
                "ge" => "lt",
                "eq" => "ne",
                "ne" => "eq",
                _ => return None,
            };
            opcode = opcode.replacen(words[1], other, 1);
        }
        (Kind::Shift, "shl" | "shr" | "shf") => {
            let at = operands.len() - 1;
            operands[at] = (number(at)? + if random.below(2) == 0 { 1 } else { -1 }).to_string();
        }
        (Kind::Selector, "prmt") => {
            let value = number(3)?;
            operands[3] = format!("{:#x}", value ^ (0x1111 << random.below(3)));
        }
        (Kind::Table, "lop3") => {
            operands[4] = format!("{:#x}", number(4)? ^ [0x0f, 0xf0, 0x33, 0xcc, 0x55, 0xaa][random.below(6)])
        }
        (Kind::Reduction, "redux") => {
            opcode = match words[2] {
                // Not `max`: many sums are of one lane that has something, and 31 that have zero.
                "add" => opcode.replace("add.s32", "min.u32"),
                _ => opcode.replacen(words[2], "add", 1),
            };
        }
        (Kind::Reduction, "vote") => opcode = opcode.replace("any", "all"),
        _ => return None,
    }
    let guard = guard.map(|guard| format!("@{guard} ")).unwrap_or_default();
    Some(format!("{guard}{opcode} {};", operands.join(", ")))
}
