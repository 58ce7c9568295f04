//! A warp: 32 lanes with their registers, and where each of them is.
//!
//! Lanes that are at the same instruction run it together. When they diverge, the lowest instruction runs first: code that LLVM lays out
//! has the place where branches meet again behind both of them, so lanes meet there. A collective waits for all lanes of its
//! mask; when nobody can go on, that is a fault, and not something that a device may or may not survive.

use super::error::FaultKind;
use super::op::{Dst, Pred, Special, Src};
use super::parse::Entry;

/// Why a lane cannot go on.
pub(super) struct Stop {
    pub lane: Option<u32>,
    pub kind: FaultKind,
}

pub(super) type Run<T> = Result<T, Box<Stop>>;

/// A fault of one lane.
#[cold]
pub(super) fn fault(lane: impl Into<Option<u32>>, kind: FaultKind) -> Box<Stop> {
    Box::new(Stop { lane: lane.into(), kind })
}

/// Lanes at one instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub pc: u32,
    pub lanes: u32,
    /// For other lanes of a collective.
    pub waits: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum State {
    Ready,
    /// At a barrier of the block.
    Barrier(u32),
    Done,
}

/// A copy that was started and not waited for.
pub(super) struct Pending {
    pub lane: u32,
    pub to: u64,
    pub from: u64,
    pub bytes: u8,
    pub size: u8,
    /// The number of its group, once it is committed.
    pub group: Option<u32>,
}

/// What is the same for all lanes of a block.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub block: u64,
    pub blocks: u64,
    pub threads: [u32; 3],
    pub shared_bytes: u32,
    pub clock: u64,
    /// Addresses of the variables of the module.
    pub variables: &'a [u64],
}

pub(super) struct Warp {
    /// In the block, and in the grid.
    pub number: u32,
    pub id: u32,
    pub w: Vec<[u32; 32]>,
    pub d: Vec<[u64; 32]>,
    pub p: Vec<u32>,
    /// Lanes that have written each register: `w`, `d`, `p`.
    known: [Vec<u32>; 3],
    pub carry: u32,
    /// The last time that each lane was put in order with others.
    pub synced: [u32; 32],
    /// The lanes that run, and the others.
    pub pc: u32,
    pub active: u32,
    pub others: Vec<Group>,
    /// Lanes that have not returned.
    pub live: u32,
    pub state: State,
    pub pending: Vec<Pending>,
    pub groups: [u32; 32],
}

impl Warp {
    pub fn new(entry: &Entry) -> Warp {
        let [w, d, p] = entry.names.each_ref().map(Vec::len);
        Warp {
            number: 0,
            id: 0,
            w: vec![[0; 32]; w],
            d: vec![[0; 32]; d],
            p: vec![0; p],
            known: [vec![0; w], vec![0; d], vec![0; p]],
            carry: 0,
            synced: [0; 32],
            pc: 0,
            active: 0,
            others: Vec::new(),
            live: 0,
            state: State::Done,
            pending: Vec::new(),
            groups: [0; 32],
        }
    }

    /// Starts the warp anew.
    pub fn start(&mut self, number: u32, id: u32, threads: u32, now: u32) {
        let lanes = threads.saturating_sub(32 * number).min(32);
        let live = if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 };
        self.known.iter_mut().for_each(|known| known.fill(0));
        (self.number, self.id, self.synced, self.carry) = (number, id, [now; 32], 0);
        (self.pc, self.active, self.live, self.state) = (0, live, live, State::Ready);
        self.others.clear();
        self.pending.clear();
        self.groups = [0; 32];
    }

    /// Makes the lanes with the lowest instruction the ones that run; none are left when all of them wait.
    #[inline]
    pub fn schedule(&mut self) {
        if self.others.is_empty() {
            return;
        }
        let pc = self.pc;
        let stays = self.active != 0
            && self.others.iter().all(|other| other.pc > pc || other.waits && other.pc != pc);
        if !stays {
            self.reschedule();
        }
    }

    fn reschedule(&mut self) {
        if self.active != 0 {
            self.others.push(Group { pc: self.pc, lanes: self.active, waits: false });
        }
        self.others.sort_unstable_by_key(|group| group.pc);
        self.others.dedup_by(|next, group| {
            let same = next.pc == group.pc;
            if same {
                group.lanes |= next.lanes;
                group.waits &= next.waits;
            }
            same
        });
        self.active = 0;
        if let Some(first) = self.others.iter().position(|group| !group.waits) {
            let group = self.others.remove(first);
            (self.pc, self.active) = (group.pc, group.lanes);
        }
    }

    /// The lanes that run go on at two places.
    pub fn split(&mut self, lanes: u32, pc: u32, waits: bool) {
        self.active &= !lanes;
        if lanes != 0 {
            self.others.push(Group { pc, lanes, waits });
        }
    }

    /// Lanes return. Who waited for them does no longer.
    pub fn exit(&mut self, lanes: u32) {
        self.active &= !lanes;
        self.live &= !lanes;
        self.others.iter_mut().for_each(|group| group.waits = false);
        if self.live == 0 {
            self.state = State::Done;
        }
    }

    fn check(&self, file: usize, slot: u16, lanes: u32, entry: &Entry) -> Run<()> {
        let missing = lanes & !self.known[file][slot as usize];
        if missing == 0 {
            return Ok(());
        }
        let register = entry.names[file][slot as usize].clone();
        Err(fault(missing.trailing_zeros(), FaultKind::UninitialisedRegister { register }))
    }

    /// An operand of up to 32 bits.
    #[inline(always)]
    pub fn narrow(&self, s: Src, lanes: u32, entry: &Entry, place: &Place<'_>) -> Run<[u32; 32]> {
        match s {
            Src::W(slot) => {
                if lanes & !self.known[0][slot as usize] != 0 {
                    self.check(0, slot, lanes, entry)?;
                }
                Ok(self.w[slot as usize])
            }
            Src::Imm(value) => Ok([value as u32; 32]),
            other => Ok(self.wide(other, lanes, entry, place)?.map(|value| value as u32)),
        }
    }

    /// An operand of up to 64 bits.
    #[inline(always)]
    pub fn wide(&self, s: Src, lanes: u32, entry: &Entry, place: &Place<'_>) -> Run<[u64; 32]> {
        match s {
            Src::D(slot) => {
                if lanes & !self.known[1][slot as usize] != 0 {
                    self.check(1, slot, lanes, entry)?;
                }
                Ok(self.d[slot as usize])
            }
            Src::W(slot) => {
                if lanes & !self.known[0][slot as usize] != 0 {
                    self.check(0, slot, lanes, entry)?;
                }
                Ok(self.w[slot as usize].map(u64::from))
            }
            Src::Imm(value) => Ok([value; 32]),
            Src::Variable(number) => Ok([place.variables[number as usize]; 32]),
            Src::Special(special) => Ok(self.special(special, place)),
        }
    }

    fn special(&self, special: Special, place: &Place<'_>) -> [u64; 32] {
        let [x, y, z] = place.threads;
        let threads = x * y * z;
        let first = |axis: u8, value: u64| if axis == 0 { value } else { 0 };
        let all = |value: u64| [value; 32];
        let each = |f: fn(u32) -> u32| std::array::from_fn(|lane| u64::from(f(lane as u32)));
        match special {
            Special::Tid(axis) => std::array::from_fn(|lane| {
                let thread = 32 * self.number + lane as u32;
                u64::from(match axis {
                    0 => thread % x,
                    1 => thread / x % y,
                    _ => thread / (x * y),
                })
            }),
            Special::Ntid(axis) => all(place.threads[usize::from(axis)].into()),
            Special::Ctaid(axis) => all(first(axis, place.block)),
            Special::Nctaid(axis) => all(if axis == 0 { place.blocks } else { 1 }),
            Special::LaneId => each(|lane| lane),
            Special::WarpId => all(self.number.into()),
            Special::NWarpId => all(threads.div_ceil(32).into()),
            Special::SmId => all(place.block % 2),
            Special::NSmId => all(2),
            Special::GridId => all(1),
            Special::Clock => all(place.clock),
            Special::LaneMaskEq => each(|lane| 1 << lane),
            Special::LaneMaskLt => each(|lane| (1 << lane) - 1),
            Special::LaneMaskLe => each(|lane| u32::MAX >> (31 - lane)),
            Special::LaneMaskGt => each(|lane| !(u32::MAX >> (31 - lane))),
            Special::LaneMaskGe => each(|lane| u32::MAX << lane),
            Special::SharedBytes => all(place.shared_bytes.into()),
        }
    }

    /// The lanes where a predicate holds.
    #[inline(always)]
    pub fn pred(&self, pred: Pred, lanes: u32, entry: &Entry) -> Run<u32> {
        let (slot, not) = match pred {
            Pred::P(slot) => (slot, false),
            Pred::Not(slot) => (slot, true),
            Pred::Const(value) => return Ok(if value { u32::MAX } else { 0 }),
        };
        if lanes & !self.known[2][slot as usize] != 0 {
            self.check(2, slot, lanes, entry)?;
        }
        let value = self.p[slot as usize];
        Ok(if not { !value } else { value })
    }

    #[inline(always)]
    pub fn set_narrow(&mut self, slot: u16, lanes: u32, value: &[u32; 32]) {
        let register = &mut self.w[slot as usize];
        if lanes == u32::MAX {
            *register = *value;
        } else {
            for lane in 0..32 {
                register[lane] = if lanes >> lane & 1 == 1 { value[lane] } else { register[lane] };
            }
        }
        self.known[0][slot as usize] |= lanes;
    }

    #[inline(always)]
    pub fn set_wide(&mut self, slot: u16, lanes: u32, value: &[u64; 32]) {
        let register = &mut self.d[slot as usize];
        if lanes == u32::MAX {
            *register = *value;
        } else {
            for lane in 0..32 {
                register[lane] = if lanes >> lane & 1 == 1 { value[lane] } else { register[lane] };
            }
        }
        self.known[1][slot as usize] |= lanes;
    }

    /// A register of any width.
    pub fn set(&mut self, dst: Dst, lanes: u32, value: &[u64; 32]) {
        match dst {
            Dst::W(slot) => self.set_narrow(slot, lanes, &value.map(|value| value as u32)),
            Dst::D(slot) => self.set_wide(slot, lanes, value),
            Dst::Sink => {}
        }
    }

    #[inline(always)]
    pub fn set_pred(&mut self, slot: u16, lanes: u32, value: u32) {
        let register = &mut self.p[slot as usize];
        *register = *register & !lanes | value & lanes;
        self.known[2][slot as usize] |= lanes;
    }
}

/// The lanes of a mask.
pub(super) fn lanes_of(mut mask: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane)
    })
}
