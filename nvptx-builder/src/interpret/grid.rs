//! Blocks and warps in turns.

use super::error::{Fault, FaultKind, LaunchError, Space};
use super::execute::{Context, Turn};
use super::memory::{Memory, Region};
use super::op::Op;
use super::order::Order;
use super::parse::{Entry, SHARED_BASE};
use super::warp::{Place, State, Stop, Warp, fault};
use super::{BlockOrder, Module, Options, Report};

/// `splitmix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
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

/// A barrier that some warps have come to.
#[derive(Clone, Copy, Default)]
struct Barrier {
    arrived: u32,
    expected: u32,
}

/// A block that is alive.
struct Block {
    index: u64,
    warps: Vec<Warp>,
    shared: Region,
    barriers: [Barrier; 16],
    /// Whose turn it is.
    next: usize,
}

/// A launch on its way.
struct Grid<'a> {
    module: &'a Module,
    entry: &'a Entry,
    blocks: u64,
    threads: [u32; 3],
    arguments: &'a [u64],
    variables: &'a [u64],
    memory: &'a mut Memory,
    options: &'a Options,
    order: Order,
    random: Random,
    counts: Vec<u64>,
    steps: u64,
}

pub(super) fn launch(
    module: &Module,
    entry: &Entry,
    blocks: u64,
    arguments: &[u64],
    memory: &mut Memory,
    options: &Options,
) -> Result<Report, LaunchError> {
    let wrong = |message: String| LaunchError::Arguments { entry: entry.name.clone(), message };
    if arguments.len() != entry.parameters.len() {
        let (expected, given) = (entry.parameters.len(), arguments.len());
        return Err(wrong(format!("it takes {expected} arguments, not {given} (one slot of 8 bytes each)")));
    }
    for (parameter, &argument) in entry.parameters.iter().zip(arguments) {
        if parameter.bytes > 8 {
            return Err(wrong(format!(
                "the parameter `{}` is larger than a slot of 8 bytes",
                parameter.name
            )));
        }
        if parameter.bytes < 8 && argument >> (8 * parameter.bytes) != 0 {
            let (name, bytes) = (&parameter.name, parameter.bytes);
            return Err(wrong(format!("{argument:#x} does not fit into the {bytes} bytes of `{name}`")));
        }
    }
    let threads = match (entry.threads, options.threads) {
        (Some(threads), None) => threads,
        (None, Some(threads)) => [threads, 1, 1],
        (Some(required), Some(given)) if required == [given, 1, 1] => required,
        (Some(required), Some(given)) => {
            return Err(wrong(format!("it requires {required:?} threads a block (`.reqntid`), not {given}")));
        }
        (None, None) => return Err(wrong(
            "its text does not say how many threads a block has (`.reqntid`); say so with `Options::threads`"
                .to_owned(),
        )),
    };
    let count = threads.iter().try_fold(1u32, |count, &axis| count.checked_mul(axis)).unwrap_or(u32::MAX);
    if count == 0 || count > 1024 {
        return Err(wrong(format!("a block has 1 to 1024 threads, not {count}")));
    }
    let warps = count.div_ceil(32);
    if blocks.saturating_mul(warps.into()) >= 1 << 31 {
        return Err(wrong(format!("{blocks} blocks are more than the interpreter runs")));
    }
    memory.begin();
    let variables: Vec<u64> = module
        .variables
        .iter()
        .map(|variable| match variable.writable {
            true => memory.upload(&variable.bytes),
            false => memory.upload_read_only(&variable.bytes),
        })
        .collect();
    let order = Order::new(memory.now, blocks as usize, warps, options.unordered);
    let (counts, random) = (vec![0; entry.code.len()], Random(options.seed()));
    let mut grid = Grid {
        module,
        entry,
        blocks,
        threads,
        arguments,
        variables: &variables,
        memory,
        options,
        order,
        random,
        counts,
        steps: 0,
    };
    let result = grid.run();
    let (counts, steps, now) = (std::mem::take(&mut grid.counts), grid.steps, grid.order.now);
    memory.now = now;
    variables.iter().for_each(|&address| memory.free(address));
    result?;
    let lines = entry.code.iter().map(|instruction| instruction.line).zip(counts).collect();
    Ok(Report { instructions: steps, lines })
}

impl Grid<'_> {
    fn run(&mut self) -> Result<(), Box<Fault>> {
        let mut waiting: Vec<u64> = (0..self.blocks).collect();
        match self.options.order {
            BlockOrder::Ascending => waiting.reverse(),
            BlockOrder::Descending => {}
            BlockOrder::Random(_) => {
                for last in (1..waiting.len()).rev() {
                    let other = self.random.below(last + 1);
                    waiting.swap(last, other);
                }
            }
        }
        let mut alive: Vec<Block> = Vec::new();
        let mut next = 0;
        loop {
            while alive.len() < self.options.resident {
                let Some(index) = waiting.pop() else { break };
                let block = self.block(index);
                alive.push(block);
            }
            if alive.is_empty() {
                return Ok(());
            }
            next = match self.options.order {
                BlockOrder::Random(_) => self.random.below(alive.len()),
                _ => next % alive.len(),
            };
            self.turn(&mut alive[next])?;
            if alive[next].warps.iter().any(|warp| warp.state != State::Done) {
                next += 1;
                continue;
            }
            match waiting.pop() {
                Some(index) => self.start(&mut alive[next], index),
                None => drop(alive.remove(next)),
            }
        }
    }

    fn block(&mut self, index: u64) -> Block {
        let warps = (0..self.order.warps).map(|_| Warp::new(self.entry)).collect();
        let shared = Region::new(Space::Shared, SHARED_BASE, self.entry.shared_bytes as usize);
        let mut block = Block { index, warps, shared, barriers: Default::default(), next: 0 };
        self.start(&mut block, index);
        block
    }

    fn start(&mut self, block: &mut Block, index: u64) {
        let threads: u32 = self.threads.iter().product();
        block.index = index;
        block.shared.forget(index ^ self.options.seed(), self.options.unwritten_shared, self.order.now);
        block.barriers = Default::default();
        for (number, warp) in block.warps.iter_mut().enumerate() {
            let id = index as u32 * self.order.warps + number as u32;
            warp.start(number as u32, id, threads, self.order.now);
        }
    }

    /// One warp of the block runs for a while.
    fn turn(&mut self, block: &mut Block) -> Result<(), Box<Fault>> {
        let count = block.warps.len();
        let ready = |warp: usize| block.warps[warp].state == State::Ready;
        let found = match self.options.order {
            BlockOrder::Ascending => (0..count).map(|i| (block.next + i) % count).find(|&warp| ready(warp)),
            BlockOrder::Descending => {
                (0..count).map(|i| (block.next + count - i) % count).find(|&warp| ready(warp))
            }
            BlockOrder::Random(_) => {
                let first = self.random.below(count);
                (0..count).map(|i| (first + i) % count).find(|&warp| ready(warp))
            }
        };
        let Some(number) = found else { return Err(self.stuck(block)) };
        block.next = match self.options.order {
            BlockOrder::Descending => (number + count - 1) % count,
            _ => (number + 1) % count,
        };
        let slice = match self.options.order {
            BlockOrder::Random(_) => 1 + self.random.below(self.options.slice as usize) as u32,
            _ => self.options.slice,
        };
        let warp = &mut block.warps[number];
        let mut context = Context {
            entry: self.entry,
            place: Place {
                block: block.index,
                blocks: self.blocks,
                threads: self.threads,
                shared_bytes: self.entry.shared_bytes,
                clock: self.steps,
                variables: self.variables,
            },
            arguments: self.arguments,
            memory: self.memory,
            shared: &mut block.shared,
            order: &mut self.order,
            barrier: None,
        };
        let code = &self.entry.code;
        let mut stop = None;
        for _ in 0..slice {
            warp.schedule();
            if warp.active == 0 {
                stop = Some(hangs(warp, self.entry, &context.place));
                break;
            }
            let Some(instruction) = code.get(warp.pc as usize) else {
                stop = Some(fault(None, FaultKind::FellOff));
                break;
            };
            if self.steps >= self.options.steps || context.order.now == u32::MAX {
                stop = Some(fault(None, FaultKind::Budget { steps: self.options.steps }));
                break;
            }
            self.steps += 1;
            self.counts[warp.pc as usize] += 1;
            match warp.step(&mut context, instruction) {
                Ok(Turn::Next) => {}
                Ok(Turn::Over) => break,
                Err(error) => {
                    stop = Some(error);
                    break;
                }
            }
        }
        if let Some(stop) = stop {
            let pc = warp.pc;
            return Err(self.fault(block.index, number as u32, pc, *stop));
        }
        if let Some((id, expected, waits)) = context.barrier {
            self.arrive(block, number, id, expected, waits);
        }
        Ok(())
    }

    /// A warp has come to a barrier; the last one opens it.
    fn arrive(&mut self, block: &mut Block, number: usize, id: u32, expected: u32, waits: bool) {
        let expected = expected.next_multiple_of(32);
        let barrier = &mut block.barriers[id as usize];
        barrier.arrived += 32;
        barrier.expected = expected;
        let open = barrier.arrived >= expected;
        self.order.now += 1;
        self.order.barrier(block.index as usize, number);
        if waits {
            block.warps[number].state = State::Barrier(id);
        }
        if !open {
            return;
        }
        *barrier = Barrier::default();
        for (number, warp) in block.warps.iter_mut().enumerate() {
            if warp.state == State::Barrier(id) {
                warp.state = State::Ready;
                warp.synced = [self.order.now; 32];
                self.order.barrier(block.index as usize, number);
            }
        }
    }

    /// No warp of the block can run: some wait at a barrier for others that are elsewhere, or gone.
    fn stuck(&self, block: &Block) -> Box<Fault> {
        let waits = |warp: &Warp| match warp.state {
            State::Barrier(id) => Some(id),
            _ => None,
        };
        let first = block.warps.iter().find_map(|warp| waits(warp).map(|id| (warp, id)));
        let Some((warp, barrier)) = first else {
            return self.fault(block.index, 0, 0, Stop { lane: None, kind: FaultKind::FellOff });
        };
        let others = block.warps.iter().filter(|other| waits(other) != Some(barrier));
        let why = others
            .map(|other| match other.state {
                State::Barrier(id) => format!("warp {} waits at barrier {id}", other.number),
                _ => format!("warp {} has returned", other.number),
            })
            .collect::<Vec<_>>();
        let Barrier { arrived, expected } = block.barriers[barrier as usize];
        let why = match why.is_empty() {
            true => format!("{arrived} of {expected} threads have come"),
            false => format!("{arrived} of {expected} threads have come; {}", why.join(", ")),
        };
        let stop = Stop { lane: None, kind: FaultKind::Barrier { barrier, why } };
        self.fault(block.index, warp.number, warp.pc - 1, stop)
    }

    #[cold]
    fn fault(&self, block: u64, warp: u32, pc: u32, stop: Stop) -> Box<Fault> {
        let pc = pc as usize;
        let last = self.entry.code.len().saturating_sub(1);
        let line = self.entry.code.get(pc.min(last)).map_or(0, |instruction| instruction.line);
        let (start, end) = self.entry.spans.get(pc.min(last)).copied().unwrap_or((0, 0));
        let text = self.module.text.get(start as usize..end as usize).unwrap_or("");
        let instruction = text.split_whitespace().collect::<Vec<_>>().join(" ");
        Box::new(Fault {
            entry: self.entry.name.clone(),
            block,
            warp,
            lane: stop.lane,
            line,
            instruction,
            kind: stop.kind,
        })
    }
}

/// All lanes of a warp wait: says for whom the first of them do, and goes there.
fn hangs(warp: &mut Warp, entry: &Entry, place: &Place<'_>) -> Box<Stop> {
    let Some(group) = warp.others.iter().min_by_key(|group| group.pc).copied() else {
        return fault(None, FaultKind::FellOff);
    };
    warp.pc = group.pc;
    let needed = match entry.code.get(group.pc as usize).map(|instruction| instruction.op) {
        Some(Op::Collective { mask, .. }) => warp
            .narrow(mask, group.lanes, entry, place)
            .map_or(u32::MAX, |masks| masks[group.lanes.trailing_zeros() as usize]),
        _ => u32::MAX,
    };
    let missing = needed & warp.live & !group.lanes;
    let line = |pc: u32| entry.code.get(pc as usize).map_or(0, |instruction| instruction.line);
    let others = warp.others.iter().filter(|other| other.pc != group.pc);
    let others = others.map(|other| format!("lanes {:#010x} wait at line {}", other.lanes, line(other.pc)));
    let why = match others.collect::<Vec<_>>().join(", ") {
        others if others.is_empty() => "pass another mask".to_owned(),
        others => format!("do not come: {others}"),
    };
    let lane = group.lanes.trailing_zeros();
    fault(lane, FaultKind::Collective { mask: group.lanes, missing, why })
}
