//! One instruction of one warp.

use super::error::FaultKind;
use super::memory::{Memory, Region};
use super::op::{Bool, Cmp, CmpKind, Collective, Dst, Fast32, Fast64, Instruction, Op, Pred, Src};
use super::order::Order;
use super::parse::Entry;
use super::scalar as x;
use super::warp::{Place, Run, State, Warp, fault, lanes_of};

/// What a warp runs in.
pub(super) struct Context<'a> {
    pub entry: &'a Entry,
    pub place: Place<'a>,
    pub arguments: &'a [u64],
    pub memory: &'a mut Memory,
    pub shared: &'a mut Region,
    pub order: &'a mut Order,
    /// Threads that the barrier a warp has come to waits for, and whether the warp waits as well.
    pub barrier: Option<(u32, u32, bool)>,
}

/// Does the warp go on?
#[derive(PartialEq)]
pub(super) enum Turn {
    Next,
    Over,
}

impl Warp {
    /// Runs the next instruction. The lanes that run have been chosen.
    #[inline(always)]
    pub fn step(&mut self, context: &mut Context<'_>, instruction: &Instruction) -> Run<Turn> {
        let (entry, place) = (context.entry, context.place);
        let mut lanes = self.active;
        if let Some((slot, not)) = instruction.guard {
            lanes &= self.pred(if not { Pred::Not(slot) } else { Pred::P(slot) }, lanes, entry)?;
            if lanes == 0 {
                self.pc += 1;
                return Ok(Turn::Next);
            }
        }
        match instruction.op {
            Op::Fast32 { f, dst, ref s } => self.fast32(context, f, dst, s, lanes)?,
            Op::Fast64 { f, dst, ref s } => self.fast64(context, f, dst, s, lanes)?,
            Op::Shift64 { left, dst, a, b } => {
                let (a, b) = (self.wide(a, lanes, entry, &place)?, self.narrow(b, lanes, entry, &place)?);
                let value = match left {
                    true => std::array::from_fn(|lane| x::shl64(a[lane], b[lane])),
                    false => std::array::from_fn(|lane| x::shr64(a[lane], b[lane])),
                };
                self.set_wide(dst, lanes, &value);
            }
            Op::Widen { dst, a } => {
                let a = self.narrow(a, lanes, entry, &place)?;
                self.set_wide(dst, lanes, &a.map(u64::from));
            }
            Op::Narrow { dst, a } => {
                let a = self.wide(a, lanes, entry, &place)?;
                self.set_narrow(dst, lanes, &a.map(|a| a as u32));
            }
            Op::MulWide { dst, a, b } => {
                let (a, b) = (self.narrow(a, lanes, entry, &place)?, self.narrow(b, lanes, entry, &place)?);
                let value = std::array::from_fn(|lane| u64::from(a[lane]) * u64::from(b[lane]));
                self.set_wide(dst, lanes, &value);
            }
            Op::Sel { dst: Dst::W(dst), a, b, pred } => {
                let pred = self.pred(pred, lanes, entry)?;
                let a = self.narrow(a, lanes & pred, entry, &place)?;
                let b = self.narrow(b, lanes & !pred, entry, &place)?;
                let value = std::array::from_fn(|lane| if pred >> lane & 1 == 1 { a[lane] } else { b[lane] });
                self.set_narrow(dst, lanes, &value);
            }
            Op::Sel { dst, a, b, pred } => {
                let pred = self.pred(pred, lanes, entry)?;
                let a = self.wide(a, lanes & pred, entry, &place)?;
                let b = self.wide(b, lanes & !pred, entry, &place)?;
                let value = std::array::from_fn(|lane| if pred >> lane & 1 == 1 { a[lane] } else { b[lane] });
                self.set(dst, lanes, &value);
            }
            Op::Call { f, dst, ref s } => {
                let mut values = [[0; 32]; 4];
                for (value, &s) in values.iter_mut().zip(s) {
                    *value = self.wide(s, lanes, entry, &place)?;
                }
                let mut results = [0; 32];
                for lane in lanes_of(lanes) {
                    let result = f(&values.map(|value| value[lane as usize]));
                    let result = result.ok_or_else(|| fault(lane, FaultKind::DivisionByZero))?;
                    results[lane as usize] = result;
                }
                self.set(dst, lanes, &results);
            }
            Op::Carry { bits64, subtract, carry_in, carry_out, dst, a, b } => {
                let (a, b) = (self.wide(a, lanes, entry, &place)?, self.wide(b, lanes, entry, &place)?);
                let (bits, mut value, mut carry) = (if bits64 { 64 } else { 32 }, [0; 32], self.carry);
                for lane in lanes_of(lanes) {
                    let mask = u128::from(u64::MAX >> (64 - bits));
                    let (a, b) = (u128::from(a[lane as usize]) & mask, u128::from(b[lane as usize]) & mask);
                    let c = if carry_in { u128::from(self.carry >> lane & 1) } else { 0 };
                    let sum = if subtract { a.wrapping_sub(b).wrapping_sub(c) } else { a + b + c };
                    value[lane as usize] = (sum & mask) as u64;
                    carry = carry & !(1 << lane) | ((sum >> bits & 1) as u32) << lane;
                }
                if carry_out {
                    self.carry = carry;
                }
                self.set(dst, lanes, &value);
            }
            Op::Unpack { parts, bits, ref dst, a } => {
                let a = self.wide(a, lanes, entry, &place)?;
                let mask = u64::MAX >> (64 - bits);
                for (part, &dst) in dst.iter().enumerate().take(usize::from(parts)) {
                    self.set(dst, lanes, &a.map(|a| a >> (part * usize::from(bits)) & mask));
                }
            }
            Op::SetP { kind, dst, other, a, b, with } => {
                let result = self.compare(context, kind, a, b, lanes)?;
                let (mut yes, mut no) = (result, !result);
                if let Some((f, with)) = with {
                    let with = self.pred(with, lanes, entry)?;
                    (yes, no) = (combine(f, yes, with), combine(f, no, with));
                }
                if let Some(dst) = dst {
                    self.set_pred(dst, lanes, yes);
                }
                if let Some(other) = other {
                    self.set_pred(other, lanes, no);
                }
            }
            Op::MovePred { dst, a } => {
                let a = self.pred(a, lanes, entry)?;
                self.set_pred(dst, lanes, a);
            }
            Op::Combine { f, dst, a, b } => {
                let (a, b) = (self.pred(a, lanes, entry)?, self.pred(b, lanes, entry)?);
                self.set_pred(dst, lanes, combine(f, a, b));
            }
            Op::LdParam { dst, slot, offset, bytes, signed } => {
                let argument = context.arguments[usize::from(slot)] >> (8 * offset);
                let shift = 64 - 8 * u32::from(bytes);
                let value = argument << shift;
                let value = if signed { ((value as i64) >> shift) as u64 } else { value >> shift };
                self.set(dst, lanes, &[value; 32]);
            }
            Op::Ld { ref dst, parts, bytes, signed, address, strength } => {
                self.load(context, dst, parts, (bytes, signed), address, strength, lanes)?;
            }
            Op::St { ref s, parts, bytes, address, strength } => {
                self.store(context, &s[..usize::from(parts)], bytes, address, strength, lanes)?;
            }
            Op::Atom { f, dst, bytes, address, b, c, strength } => {
                self.atomic(context, (f, bytes), dst, address, (b, c), strength, lanes)?;
            }
            Op::CopyAsync { to, from, bytes, size } => {
                self.start_copy(context, to, from, bytes, size, lanes)?;
            }
            Op::CommitGroup => self.commit(lanes),
            Op::WaitGroup { pending } => self.wait(context, Some(pending), lanes)?,
            Op::WaitAll => self.wait(context, None, lanes)?,
            Op::Fence => {
                context.order.now += 1;
                context.order.release(place.block as usize);
                context.order.acquire(place.block as usize);
            }
            Op::Collective { kind, mask } => return self.collective(context, kind, mask, lanes),
            Op::ActiveMask { dst } => self.set(dst, lanes, &[lanes.into(); 32]),
            Op::Bar { id, threads, arrive } => return self.barrier(context, id, threads, arrive, lanes),
            Op::Bra { target } => {
                if lanes == self.active {
                    self.pc = target;
                } else {
                    self.split(lanes, target, false);
                    self.pc += 1;
                }
                return Ok(Turn::Next);
            }
            Op::Exit => {
                self.exit(lanes);
                self.pc += 1;
                return Ok(if self.state == State::Done { Turn::Over } else { Turn::Next });
            }
            Op::Trap => return Err(fault(lanes.trailing_zeros(), FaultKind::Trap)),
            Op::Yield => {
                self.pc += 1;
                return Ok(Turn::Over);
            }
            Op::Nop => {}
        }
        self.pc += 1;
        Ok(Turn::Next)
    }

    #[inline(always)]
    fn fast32(&mut self, context: &Context<'_>, f: Fast32, dst: u16, s: &[Src; 3], lanes: u32) -> Run<()> {
        let (entry, place) = (context.entry, &context.place);
        macro_rules! one {
            ($f:expr) => {{
                let a = self.narrow(s[0], lanes, entry, place)?;
                self.set_narrow(dst, lanes, &std::array::from_fn(|lane| $f(a[lane])));
            }};
        }
        macro_rules! two {
            ($f:expr) => {{
                let (a, b) =
                    (self.narrow(s[0], lanes, entry, place)?, self.narrow(s[1], lanes, entry, place)?);
                self.set_narrow(dst, lanes, &std::array::from_fn(|lane| $f(a[lane], b[lane])));
            }};
        }
        macro_rules! three {
            ($f:expr) => {{
                let (a, b) =
                    (self.narrow(s[0], lanes, entry, place)?, self.narrow(s[1], lanes, entry, place)?);
                let c = self.narrow(s[2], lanes, entry, place)?;
                self.set_narrow(dst, lanes, &std::array::from_fn(|lane| $f(a[lane], b[lane], c[lane])));
            }};
        }
        match f {
            Fast32::Mov => one!(|a: u32| a),
            Fast32::Not => one!(|a: u32| !a),
            Fast32::Popc => one!(|a: u32| a.count_ones()),
            Fast32::And => two!(|a: u32, b: u32| a & b),
            Fast32::Or => two!(|a: u32, b: u32| a | b),
            Fast32::Xor => two!(|a: u32, b: u32| a ^ b),
            Fast32::Add => two!(|a: u32, b: u32| a.wrapping_add(b)),
            Fast32::Sub => two!(|a: u32, b: u32| a.wrapping_sub(b)),
            Fast32::Mul => two!(|a: u32, b: u32| a.wrapping_mul(b)),
            Fast32::MulHi => two!(|a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32),
            Fast32::MinU => two!(|a: u32, b: u32| a.min(b)),
            Fast32::MaxU => two!(|a: u32, b: u32| a.max(b)),
            Fast32::Shl => two!(x::shl32),
            Fast32::ShrU => two!(x::shr32),
            Fast32::ShrS => two!(x::sar32),
            Fast32::Mad => three!(|a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c)),
            Fast32::Lop3(table) => three!(|a, b, c| x::lop3(a, b, c, table)),
            Fast32::Prmt => three!(x::prmt),
            Fast32::ShfLWrap => three!(|a, b, c: u32| x::shf_l(a, b, c & 31)),
            Fast32::ShfRWrap => three!(|a, b, c: u32| x::shf_r(a, b, c & 31)),
            Fast32::BfeU => three!(x::bfe_u32),
            Fast32::Dp4aU => three!(x::dp4a_u),
        }
        Ok(())
    }

    #[inline(always)]
    fn fast64(&mut self, context: &Context<'_>, f: Fast64, dst: u16, s: &[Src; 3], lanes: u32) -> Run<()> {
        let (entry, place) = (context.entry, &context.place);
        let a = self.wide(s[0], lanes, entry, place)?;
        if f == Fast64::Mov {
            self.set_wide(dst, lanes, &a);
            return Ok(());
        }
        let b = self.wide(s[1], lanes, entry, place)?;
        macro_rules! two {
            ($f:expr) => {
                self.set_wide(dst, lanes, &std::array::from_fn(|lane| $f(a[lane], b[lane])))
            };
        }
        match f {
            Fast64::Mov => {}
            Fast64::And => two!(|a: u64, b: u64| a & b),
            Fast64::Or => two!(|a: u64, b: u64| a | b),
            Fast64::Xor => two!(|a: u64, b: u64| a ^ b),
            Fast64::Add => two!(|a: u64, b: u64| a.wrapping_add(b)),
            Fast64::Sub => two!(|a: u64, b: u64| a.wrapping_sub(b)),
            Fast64::Mul => two!(|a: u64, b: u64| a.wrapping_mul(b)),
            Fast64::MinU => two!(|a: u64, b: u64| a.min(b)),
            Fast64::MaxU => two!(|a: u64, b: u64| a.max(b)),
            Fast64::Mad => {
                let c = self.wide(s[2], lanes, entry, place)?;
                let value = std::array::from_fn(|lane| a[lane].wrapping_mul(b[lane]).wrapping_add(c[lane]));
                self.set_wide(dst, lanes, &value);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn compare(&self, context: &Context<'_>, kind: CmpKind, a: Src, b: Src, lanes: u32) -> Run<u32> {
        let (entry, place) = (context.entry, &context.place);
        fn mask(f: impl Fn(usize) -> bool) -> u32 {
            (0..32).fold(0, |mask, lane| mask | u32::from(f(lane)) << lane)
        }
        macro_rules! by {
            ($cmp:expr, $read:ident) => {{
                let (a, b) = (self.$read(a, lanes, entry, place)?, self.$read(b, lanes, entry, place)?);
                match $cmp {
                    Cmp::Eq => mask(|lane| a[lane] == b[lane]),
                    Cmp::Ne => mask(|lane| a[lane] != b[lane]),
                    Cmp::Lt => mask(|lane| a[lane] < b[lane]),
                    Cmp::Le => mask(|lane| a[lane] <= b[lane]),
                    Cmp::Gt => mask(|lane| a[lane] > b[lane]),
                    Cmp::Ge => mask(|lane| a[lane] >= b[lane]),
                }
            }};
        }
        Ok(match kind {
            CmpKind::U32(cmp) => by!(cmp, narrow),
            CmpKind::U64(cmp) => by!(cmp, wide),
            CmpKind::Call(f) => {
                let (a, b) = (self.wide(a, lanes, entry, place)?, self.wide(b, lanes, entry, place)?);
                mask(|lane| f(a[lane], b[lane]))
            }
        })
    }

    /// The lanes come to a barrier of the block, all together.
    fn barrier(
        &mut self,
        context: &mut Context<'_>,
        id: Src,
        threads: Option<Src>,
        arrive: bool,
        lanes: u32,
    ) -> Run<Turn> {
        let (entry, place) = (context.entry, context.place);
        if lanes != self.live {
            self.split(lanes, self.pc, true);
            self.pc += 1;
            return Ok(Turn::Next);
        }
        let first = lanes.trailing_zeros() as usize;
        let id = self.narrow(id, lanes, entry, &place)?[first];
        let all: u32 = place.threads.iter().product();
        let count = match threads {
            Some(threads) => self.narrow(threads, lanes, entry, &place)?[first],
            None => all,
        };
        if id > 15 || count == 0 || !count.is_multiple_of(32) && threads.is_some() {
            let message = format!(
                "barrier {id} for {count} threads; there are barriers 0 to 15, for multiples of 32 threads"
            );
            return Err(fault(None, FaultKind::Operand { message }));
        }
        self.pc += 1;
        context.barrier = Some((id, count, !arrive));
        Ok(Turn::Over)
    }

    /// The lanes for which all lanes of their masks are there, with the same mask.
    fn complete(&self, masks: &[u32; 32], lanes: u32) -> Run<u32> {
        let first = masks[lanes.trailing_zeros() as usize & 31];
        if lanes & !first == 0 && lanes_of(lanes).all(|lane| masks[lane as usize] == first) {
            return Ok(if first & self.live & !lanes == 0 { lanes } else { 0 });
        }
        let mut ready = 0u32;
        for lane in lanes_of(lanes) {
            let mask = masks[lane as usize];
            if mask >> lane & 1 == 0 {
                return Err(fault(lane, FaultKind::NotInMask { mask }));
            }
            let needed = mask & self.live;
            if needed & !lanes == 0 && lanes_of(needed).all(|other| masks[other as usize] == mask) {
                ready |= 1 << lane;
            }
        }
        Ok(ready)
    }

    /// A collective, for the lanes whose masks are complete; the others wait.
    fn collective(
        &mut self,
        context: &mut Context<'_>,
        kind: Collective,
        mask: Src,
        lanes: u32,
    ) -> Run<Turn> {
        let masks = self.narrow(mask, lanes, context.entry, &context.place)?;
        let ready = self.complete(&masks, lanes)?;
        let mut left = ready;
        while left != 0 {
            let mask = masks[left.trailing_zeros() as usize];
            let members = left & mask;
            self.together(context, kind, members)?;
            left &= !members;
        }
        self.split(lanes & !ready, self.pc, true);
        self.pc += 1;
        Ok(Turn::Next)
    }
}

fn combine(f: Bool, a: u32, b: u32) -> u32 {
    match f {
        Bool::And => a & b,
        Bool::Or => a | b,
        Bool::Xor => a ^ b,
    }
}
