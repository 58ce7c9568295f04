//! Counting machine instructions.
//!
//! Registers and spills do not show that a 16-byte load fell apart into four, that a barrier was copied, or that a shared access
//! became a generic one. A few counts do, and they read well in a diff.

/// Counts over the machine code of one entry.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// All instructions, without the `NOP`s that fill up the end.
    pub instructions: u32,
    /// For each wanted opcode, how often it stands.
    pub opcodes: Vec<u32>,
    /// `REDUX` under a predicate. ptxas 13.0 makes them of a reduction that is the whole of a branch, and in a loop has been seen to take a predicate
    /// that was not the condition: the sum was then not computed when it was wanted.
    pub predicated_redux: u32,
}

/// Counts in the output of `cuobjdump -sass`.
///
/// `LDG` counts every load from global memory, `LDG.128` those that have `128` among their modifiers.
pub fn count(text: &str, wanted: &[String]) -> Counts {
    let mut counts = Counts { instructions: 0, opcodes: vec![0; wanted.len()], predicated_redux: 0 };
    for (is_predicated, opcode) in text.lines().filter_map(opcode) {
        if opcode == "NOP" {
            continue;
        }
        counts.predicated_redux += u32::from(is_predicated && is(opcode, "REDUX"));
        counts.instructions += 1;
        for (wanted, count) in wanted.iter().zip(&mut counts.opcodes) {
            *count += u32::from(is(opcode, wanted));
        }
    }
    counts
}

/// The opcode with its modifiers in a line such as `/*00f0*/  @!P0 LDG.E.128 R4, [R2] ;  /* 0x... */`, and whether it has a predicate.
fn opcode(line: &str) -> Option<(bool, &str)> {
    let (address, rest) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
    // The second half of an encoding stands alone on its line, as `/* 0x... */`.
    let is_address = !address.is_empty() && address.chars().all(|c| c.is_ascii_hexdigit());
    let mut words = rest.split_whitespace();
    let first = words.next().filter(|_| is_address)?;
    let is_predicated = first.starts_with('@');
    let opcode = if is_predicated { words.next()? } else { first };
    Some((is_predicated, opcode.trim_end_matches(';')))
}

fn is(opcode: &str, wanted: &str) -> bool {
    let mut parts = opcode.split('.');
    let mut wanted = wanted.split('.');
    parts.next() == wanted.next()
        && wanted.all(|modifier| opcode.split('.').skip(1).any(|part| part == modifier))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predicates_encodings_and_padding_do_not_count() {
        let text = "\tcode for sm_90\n\t\tFunction : x\n\t.headerflags\t@\"EF_CUDA_SM90\"\n\
                    \x20       /*0000*/                   LDC R1, c[0x0][0x28] ;                /* 0x00000a00ff017b82 */\n\
                    \x20                                                                        /* 0x000e220000000800 */\n\
                    \x20       /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ; /* 0x1 */\n\
                    \x20       /*0020*/                   LDG.E.U8 R4, [R2] ;                    /* 0x1 */\n\
                    \x20       /*0030*/                   EXIT ;                                 /* 0x1 */\n\
                    \x20       /*0040*/                   BRA 0x40;                              /* 0x1 */\n\
                    \x20       /*0050*/                   NOP;                                   /* 0x1 */\n";
        let counts = count(text, &["LDG".into(), "LDG.128".into(), "LDG.E.U8".into(), "BAR".into()]);
        assert_eq!(counts, Counts { instructions: 5, opcodes: vec![2, 1, 1, 0], predicated_redux: 0 });
    }

    #[test]
    fn reductions_under_a_predicate_are_counted() {
        let text = "        /*0000*/              @P1 REDUX.SUM.S32 UR9, R16 ; /* 0x1 */\n\
                    \x20       /*0010*/                   REDUX.SUM.S32 UR8, R15 ; /* 0x1 */\n\
                    \x20       /*0020*/              @P1 VOTE.ANY P6, P2 ; /* 0x1 */\n";
        assert_eq!(count(text, &[]), Counts { instructions: 3, opcodes: vec![], predicated_redux: 1 });
    }
}
