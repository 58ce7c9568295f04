//! What an instruction means: opcode, modifiers and operands become an [`Op`].
//!
//! Every modifier must be known: an instruction that is not understood in full is refused by name when the module is parsed, never run as
//! something like it. Arithmetic is in `decode_number`, memory in `decode_memory`.

use super::op::{Bool, Collective, Dst, Fast32, Fast64, Op, Reduce, Shuffle, Src, Vote};
use super::parse::{Body, Name, Operand};
use super::{decode_memory, decode_number};

pub(super) type Decoded<T> = Result<T, String>;

/// An opcode, cut at its dots, and the operands.
pub(super) struct Call<'b, 'm, 't> {
    pub body: &'b Body<'m>,
    pub opcode: &'t str,
    pub words: Vec<&'t str>,
    pub operands: &'b [Operand<'t>],
}

/// A type of operands.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Type {
    /// `b`, `u`, `s` or `f`.
    pub kind: u8,
    pub bits: u32,
}

impl Type {
    pub fn parse(word: &str) -> Option<Type> {
        let kind = *word.as_bytes().first()?;
        let bits: u32 = word.get(1..)?.parse().ok()?;
        (b"busf".contains(&kind) && [8, 16, 32, 64].contains(&bits)).then_some(Type { kind, bits })
    }

    pub fn signed(self) -> bool {
        self.kind == b's'
    }

    pub fn bytes(self) -> u8 {
        (self.bits / 8) as u8
    }
}

impl<'t> Call<'_, '_, 't> {
    pub fn unknown<T>(&self) -> Decoded<T> {
        Err(format!("the interpreter does not know the instruction `{}`", self.opcode))
    }

    /// Takes a modifier away, if it is there.
    pub fn has(&mut self, word: &str) -> bool {
        let found = self.words.iter().position(|&found| found == word);
        found.map(|at| self.words.remove(at)).is_some()
    }

    /// Takes the first of these modifiers away that is there, and says which.
    pub fn one_of(&mut self, words: &[&'static str]) -> Option<&'static str> {
        words.iter().copied().find(|word| self.has(word))
    }

    /// The type at the end.
    pub fn ty(&mut self) -> Decoded<Type> {
        match self.words.last().and_then(|word| Type::parse(word)) {
            Some(ty) => {
                self.words.pop();
                Ok(ty)
            }
            None => self.unknown(),
        }
    }

    /// Nothing is left that was not understood.
    pub fn done(&self) -> Decoded<()> {
        if self.words.is_empty() { Ok(()) } else { self.unknown() }
    }

    /// The number of operands is right.
    pub fn count(&self, count: usize) -> Decoded<()> {
        if self.operands.len() == count {
            return Ok(());
        }
        Err(format!("`{}` takes {count} operands, not {}", self.opcode, self.operands.len()))
    }

    pub fn src(&self, number: usize) -> Decoded<Src> {
        match self.operands.get(number) {
            Some(operand) => self.body.src(operand),
            None => Err(format!("`{}` takes more operands than {}", self.opcode, self.operands.len())),
        }
    }

    pub fn dst(&self, number: usize) -> Decoded<Dst> {
        match self.operands.get(number) {
            Some(operand) => self.body.dst(operand),
            None => Err(format!("`{}` takes more operands than {}", self.opcode, self.operands.len())),
        }
    }

    /// `d` or `d|p`.
    fn dst_and_pred(&self) -> Decoded<(Dst, Option<u16>)> {
        match self.operands.first() {
            Some(Operand::Pair(dst, pred)) => {
                Ok((self.body.dst(&Operand::Word(dst))?, self.body.pred_dst(pred)?))
            }
            _ => Ok((self.dst(0)?, None)),
        }
    }
}

pub(super) fn decode<'t>(body: &Body<'_>, opcode: &'t str, operands: &[Operand<'t>]) -> Decoded<Op> {
    let mut words: Vec<&str> = opcode.split('.').collect();
    let name = words.remove(0);
    let mut call = Call { body, opcode, words, operands };
    let call = &mut call;
    let op = match name {
        "mov" => mov(call)?,
        "ret" | "exit" => {
            call.has("uni");
            call.count(0)?;
            Op::Exit
        }
        "trap" => Op::Trap,
        "brkpt" => Op::Nop,
        "nanosleep" => {
            call.has("u32");
            call.src(0)?;
            Op::Yield
        }
        "cvta" => cvta(call)?,
        "bar" | "barrier" => barrier(call)?,
        "shfl" => shuffle(call)?,
        "vote" => vote(call)?,
        "redux" => redux(call)?,
        "match" => matching(call)?,
        "activemask" => {
            call.has("b32");
            call.count(1)?;
            Op::ActiveMask { dst: call.dst(0)? }
        }
        "griddepcontrol" => {
            if call.one_of(&["launch_dependents", "wait"]).is_none() {
                return call.unknown();
            }
            Op::Nop
        }
        "ld" | "ldu" | "st" | "atom" | "red" | "fence" | "membar" | "cp" | "prefetch" | "prefetchu"
        | "applypriority" | "discard" => decode_memory::decode(name, call)?,
        _ => decode_number::decode(name, call)?,
    };
    call.done()?;
    Ok(op)
}

fn mov(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    call.count(2)?;
    if call.has("pred") {
        let Operand::Word(dst) = call.operands[0] else { return call.unknown() };
        let Some(dst) = call.body.pred_dst(dst)? else { return call.unknown() };
        return Ok(Op::MovePred { dst, a: call.body.pred(&call.operands[1])? });
    }
    let ty = call.ty()?;
    match (&call.operands[0], &call.operands[1]) {
        (Operand::Vector(parts), _) => {
            let count = parts.len() as u32;
            if !matches!(count, 2 | 4) || ty.bits / count < 8 {
                return call.unknown();
            }
            let mut dst = [Dst::Sink; 4];
            for (dst, part) in dst.iter_mut().zip(parts) {
                *dst = call.body.dst(part)?;
            }
            Ok(Op::Unpack { parts: count as u8, bits: (ty.bits / count) as u8, dst, a: call.src(1)? })
        }
        (_, Operand::Vector(parts)) => {
            let mut s = [Src::Imm(0); 4];
            for (s, part) in s.iter_mut().zip(parts) {
                *s = call.body.src(part)?;
            }
            let f: fn(&[u64; 4]) -> Option<u64> = match (parts.len(), ty.bits) {
                (2, 64) => |s| Some(s[0] & 0xffff_ffff | s[1] << 32),
                (2, 32) => |s| Some(s[0] & 0xffff | (s[1] & 0xffff) << 16),
                (2, 16) => |s| Some(s[0] & 0xff | (s[1] & 0xff) << 8),
                (4, 64) => |s| Some((0..4).fold(0, |sum, i| sum | (s[i] & 0xffff) << (16 * i))),
                (4, 32) => |s| Some((0..4).fold(0, |sum, i| sum | (s[i] & 0xff) << (8 * i))),
                _ => return call.unknown(),
            };
            Ok(Op::Call { f, dst: call.dst(0)?, s })
        }
        _ => move_of(call, ty),
    }
}

/// A move of a register of a type, as fast as its registers allow.
pub(super) fn move_of(call: &Call<'_, '_, '_>, ty: Type) -> Decoded<Op> {
    let (dst, a) = (call.dst(0)?, call.src(1)?);
    let none = Src::Imm(0);
    Ok(match (dst, a, ty.bits) {
        (Dst::W(dst), Src::W(_) | Src::Imm(_) | Src::Special(_), 32) => {
            Op::Fast32 { f: Fast32::Mov, dst, s: [a, none, none] }
        }
        (Dst::D(dst), Src::D(_) | Src::Imm(_) | Src::Variable(_), 64) => {
            Op::Fast64 { f: Fast64::Mov, dst, s: [a, none, none] }
        }
        _ => {
            let f: fn(&[u64; 4]) -> Option<u64> = match ty.bits {
                16 => |s| Some(s[0] & 0xffff),
                32 => |s| Some(s[0] & 0xffff_ffff),
                64 => |s| Some(s[0]),
                _ => return call.unknown(),
            };
            Op::Call { f, dst, s: [a, none, none, none] }
        }
    })
}

/// Where the shared memory of a block is among generic addresses.
pub(super) const SHARED_WINDOW: u64 = 1 << 60;

fn cvta(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    call.count(2)?;
    let to = call.has("to");
    let ty = call.ty()?;
    let space = call.one_of(&["global", "const", "param", "shared", "shared::cta"]);
    let (dst, a, none) = (call.dst(0)?, call.src(1)?, Src::Imm(0));
    match space {
        Some("shared" | "shared::cta") => {
            let f: fn(&[u64; 4]) -> Option<u64> = match to {
                true => |s| Some(s[0] & (SHARED_WINDOW - 1)),
                false => |s| Some(s[0] | SHARED_WINDOW),
            };
            Ok(Op::Call { f, dst, s: [a, none, none, none] })
        }
        Some("global" | "const") => move_of(call, ty),
        _ => call.unknown(),
    }
}

fn barrier(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    if call.has("warp") {
        if !call.has("sync") {
            return call.unknown();
        }
        call.count(1)?;
        return Ok(Op::Collective { kind: Collective::Sync, mask: call.src(0)? });
    }
    call.has("cta");
    call.has("aligned");
    let arrive = match call.one_of(&["sync", "arrive"]) {
        Some(kind) => kind == "arrive",
        None => return call.unknown(),
    };
    let threads = if call.operands.len() > 1 { Some(call.src(1)?) } else { None };
    if arrive && threads.is_none() {
        return Err(format!("`{}` needs the number of threads", call.opcode));
    }
    Ok(Op::Bar { id: call.src(0)?, threads, arrive })
}

fn shuffle(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    call.count(5)?;
    if !call.has("sync") || !call.has("b32") {
        return call.unknown();
    }
    let kind = match call.one_of(&["up", "down", "bfly", "idx"]) {
        Some("up") => Shuffle::Up,
        Some("down") => Shuffle::Down,
        Some("bfly") => Shuffle::Bfly,
        Some("idx") => Shuffle::Idx,
        _ => return call.unknown(),
    };
    let (dst, pred) = call.dst_and_pred()?;
    let kind = Collective::Shfl { kind, dst, pred, a: call.src(1)?, b: call.src(2)?, c: call.src(3)? };
    Ok(Op::Collective { kind, mask: call.src(4)? })
}

fn vote(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    call.count(3)?;
    if !call.has("sync") {
        return call.unknown();
    }
    let kind = match call.one_of(&["any", "all", "uni", "ballot"]) {
        Some("any") => Vote::Any,
        Some("all") => Vote::All,
        Some("uni") => Vote::Uni,
        Some("ballot") => Vote::Ballot,
        _ => return call.unknown(),
    };
    let (mut dst, mut pred) = (Dst::Sink, None);
    match (kind, &call.operands[0]) {
        (Vote::Ballot, _) if call.has("b32") => dst = call.dst(0)?,
        (Vote::Any | Vote::All | Vote::Uni, Operand::Word(word)) if call.has("pred") => {
            pred = call.body.pred_dst(word)?;
        }
        _ => return call.unknown(),
    }
    let source = call.body.pred(&call.operands[1])?;
    Ok(Op::Collective { kind: Collective::Vote { kind, dst, pred, source }, mask: call.src(2)? })
}

fn redux(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    call.count(3)?;
    let ty = call.ty()?;
    if !call.has("sync") || ty.bits != 32 || ty.kind == b'f' {
        return call.unknown();
    }
    let kind = match (call.one_of(&["add", "min", "max", "and", "or", "xor"]), ty.kind) {
        (Some("add"), b'u' | b's') => Reduce::Add,
        (Some("min"), b'u') => Reduce::MinU,
        (Some("max"), b'u') => Reduce::MaxU,
        (Some("min"), b's') => Reduce::MinS,
        (Some("max"), b's') => Reduce::MaxS,
        (Some("and"), b'b') => Reduce::And,
        (Some("or"), b'b') => Reduce::Or,
        (Some("xor"), b'b') => Reduce::Xor,
        _ => return call.unknown(),
    };
    let kind = Collective::Redux { kind, dst: call.dst(0)?, a: call.src(1)? };
    Ok(Op::Collective { kind, mask: call.src(2)? })
}

fn matching(call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    call.count(3)?;
    let ty = call.ty()?;
    if !call.has("sync") || ty.kind != b'b' || ty.bits < 32 {
        return call.unknown();
    }
    let kind = match call.one_of(&["any", "all"]) {
        Some("any") => Collective::MatchAny { dst: call.dst(0)?, a: call.src(1)? },
        Some("all") => {
            let (dst, pred) = call.dst_and_pred()?;
            Collective::MatchAll { dst, pred, a: call.src(1)? }
        }
        _ => return call.unknown(),
    };
    Ok(Op::Collective { kind, mask: call.src(2)? })
}

/// `and`, `or`, `xor`, `not` of predicates.
pub(super) fn predicates(name: &str, call: &mut Call<'_, '_, '_>) -> Decoded<Op> {
    let Some(Operand::Word(dst)) = call.operands.first() else { return call.unknown() };
    let Some(dst) = call.body.pred_dst(dst)? else { return call.unknown() };
    let source = |number: usize| match call.operands.get(number) {
        Some(operand) => call.body.pred(operand),
        None => Err(format!("`{}` takes more operands", call.opcode)),
    };
    let f = match name {
        "and" => Bool::And,
        "or" => Bool::Or,
        "xor" => Bool::Xor,
        "not" => {
            call.count(2)?;
            return Ok(match source(1)? {
                super::op::Pred::P(slot) => Op::MovePred { dst, a: super::op::Pred::Not(slot) },
                super::op::Pred::Not(slot) => Op::MovePred { dst, a: super::op::Pred::P(slot) },
                super::op::Pred::Const(value) => Op::MovePred { dst, a: super::op::Pred::Const(!value) },
            });
        }
        _ => return call.unknown(),
    };
    call.count(3)?;
    Ok(Op::Combine { f, dst, a: source(1)?, b: source(2)? })
}

/// The place of a parameter that a name stands for.
pub(super) fn parameter(body: &Body<'_>, name: &str) -> Option<u16> {
    match body.name(name) {
        Some(Name::Parameter(number)) => Some(number),
        _ => None,
    }
}
