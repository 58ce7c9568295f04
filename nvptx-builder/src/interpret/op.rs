//! Instructions as they are run: operands are slots of register files, targets are numbers of instructions.
//!
//! Arithmetic that kernels are full of has a case of its own, which runs as a loop over 32 lanes that LLVM vectorises; everything else is a
//! [`Op::Call`] of a function of scalars. That is the difference between 3 and 30 ns an instruction, and of no consequence for what it computes.

/// An operand that is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Src {
    /// A register of up to 32 bits.
    W(u16),
    /// A register of 64 bits.
    D(u16),
    /// A number.
    Imm(u64),
    /// A special register.
    Special(Special),
    /// The address of a variable of the module.
    Variable(u16),
}

/// A register that is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Dst {
    /// Of up to 32 bits.
    W(u16),
    /// Of 64 bits.
    D(u16),
    /// `_`: nowhere.
    Sink,
}

/// Registers that are only read.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub(super) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NWarpId,
    SmId,
    NSmId,
    GridId,
    Clock,
    LaneMaskEq,
    LaneMaskLt,
    LaneMaskLe,
    LaneMaskGt,
    LaneMaskGe,
    SharedBytes,
}

impl Special {
    /// The register with this name.
    pub fn parse(word: &str) -> Option<Special> {
        let axis = |word: &str, of: fn(u8) -> Special| {
            ["x", "y", "z"].iter().position(|&axis| axis == word).map(|axis| of(axis as u8))
        };
        if let Some((register, of)) = word.split_once('.') {
            return match register {
                "%tid" => axis(of, Special::Tid),
                "%ntid" => axis(of, Special::Ntid),
                "%ctaid" => axis(of, Special::Ctaid),
                "%nctaid" => axis(of, Special::Nctaid),
                _ => None,
            };
        }
        Some(match word {
            "%laneid" => Special::LaneId,
            "%warpid" => Special::WarpId,
            "%nwarpid" => Special::NWarpId,
            "%smid" => Special::SmId,
            "%nsmid" => Special::NSmId,
            "%gridid" => Special::GridId,
            "%clock" | "%clock64" | "%clock_hi" | "%globaltimer" | "%globaltimer_lo" => Special::Clock,
            "%lanemask_eq" => Special::LaneMaskEq,
            "%lanemask_lt" => Special::LaneMaskLt,
            "%lanemask_le" => Special::LaneMaskLe,
            "%lanemask_gt" => Special::LaneMaskGt,
            "%lanemask_ge" => Special::LaneMaskGe,
            "%total_smem_size" | "%dynamic_smem_size" => Special::SharedBytes,
            _ => return None,
        })
    }
}

/// A predicate, or its negation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pred {
    /// A register.
    P(u16),
    /// Its negation.
    Not(u16),
    /// A constant.
    Const(bool),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fast32 {
    Mov,
    Not,
    Popc,
    And,
    Or,
    Xor,
    Add,
    Sub,
    Mul,
    MulHi,
    MinU,
    MaxU,
    Shl,
    ShrU,
    ShrS,
    Mad,
    Lop3(u8),
    Prmt,
    ShfLWrap,
    ShfRWrap,
    BfeU,
    Dp4aU,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fast64 {
    Mov,
    And,
    Or,
    Xor,
    Add,
    Sub,
    Mul,
    MinU,
    MaxU,
    Mad,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// How operands are compared.
#[derive(Clone, Copy, Debug)]
pub(super) enum CmpKind {
    U32(Cmp),
    U64(Cmp),
    /// Everything else: signed numbers, 16 bits, floats.
    Call(fn(u64, u64) -> bool),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bool {
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum At {
    Global,
    Shared,
    Generic,
}

/// How an access is ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Strength {
    /// Relaxed, volatile or atomic: no data race with others like it.
    pub strong: bool,
    pub acquire: bool,
    pub release: bool,
    /// Through the non-coherent cache.
    pub nc: bool,
}

impl Strength {
    pub const WEAK: Strength = Strength { strong: false, acquire: false, release: false, nc: false };
}

/// An address: a base and an offset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Address {
    pub at: At,
    pub base: Src,
    pub offset: i64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shuffle {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Vote {
    Any,
    All,
    Uni,
    Ballot,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reduce {
    Add,
    MinU,
    MaxU,
    MinS,
    MaxS,
    And,
    Or,
    Xor,
}

/// What happens to memory in an atomic: old value, operands.
pub(super) type AtomicFn = fn(u64, u64, u64) -> u64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Collective {
    Sync,
    Shfl { kind: Shuffle, dst: Dst, pred: Option<u16>, a: Src, b: Src, c: Src },
    Vote { kind: Vote, dst: Dst, pred: Option<u16>, source: Pred },
    Redux { kind: Reduce, dst: Dst, a: Src },
    MatchAny { dst: Dst, a: Src },
    MatchAll { dst: Dst, pred: Option<u16>, a: Src },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Fast32 {
        f: Fast32,
        dst: u16,
        s: [Src; 3],
    },
    Fast64 {
        f: Fast64,
        dst: u16,
        s: [Src; 3],
    },
    /// Shifts of 64 bits by a number of 32: left, or right without a sign.
    Shift64 {
        left: bool,
        dst: u16,
        a: Src,
        b: Src,
    },
    /// 32 bits to 64 without a sign.
    Widen {
        dst: u16,
        a: Src,
    },
    /// The low half of 64 bits.
    Narrow {
        dst: u16,
        a: Src,
    },
    /// A product of 64 bits, without a sign.
    MulWide {
        dst: u16,
        a: Src,
        b: Src,
    },
    Sel {
        dst: Dst,
        a: Src,
        b: Src,
        pred: Pred,
    },
    /// Everything else that computes; no value is a division by zero.
    Call {
        f: fn(&[u64; 4]) -> Option<u64>,
        dst: Dst,
        s: [Src; 4],
    },
    /// Addition or subtraction with the carry flag.
    Carry {
        bits64: bool,
        subtract: bool,
        carry_in: bool,
        carry_out: bool,
        dst: Dst,
        a: Src,
        b: Src,
    },
    Unpack {
        parts: u8,
        bits: u8,
        dst: [Dst; 4],
        a: Src,
    },
    SetP {
        kind: CmpKind,
        dst: Option<u16>,
        other: Option<u16>,
        a: Src,
        b: Src,
        with: Option<(Bool, Pred)>,
    },
    MovePred {
        dst: u16,
        a: Pred,
    },
    Combine {
        f: Bool,
        dst: u16,
        a: Pred,
        b: Pred,
    },
    LdParam {
        dst: Dst,
        slot: u16,
        offset: u8,
        bytes: u8,
        signed: bool,
    },
    Ld {
        dst: [Dst; 4],
        parts: u8,
        bytes: u8,
        signed: bool,
        address: Address,
        strength: Strength,
    },
    St {
        s: [Src; 4],
        parts: u8,
        bytes: u8,
        address: Address,
        strength: Strength,
    },
    Atom {
        f: AtomicFn,
        dst: Dst,
        bytes: u8,
        address: Address,
        b: Src,
        c: Src,
        strength: Strength,
    },
    /// An asynchronous copy from global to shared memory; `size` bytes are read, zeros fill the rest.
    CopyAsync {
        to: Address,
        from: Address,
        bytes: u8,
        size: Src,
    },
    CommitGroup,
    WaitGroup {
        pending: u64,
    },
    WaitAll,
    Fence,
    Collective {
        kind: Collective,
        mask: Src,
    },
    ActiveMask {
        dst: Dst,
    },
    Bar {
        id: Src,
        threads: Option<Src>,
        arrive: bool,
    },
    Bra {
        target: u32,
    },
    Exit,
    Trap,
    /// Gives the turn to others.
    Yield,
    Nop,
}

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    pub op: Op,
    pub guard: Option<(u16, bool)>,
    pub line: u32,
}
