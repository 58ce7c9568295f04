//! Which accesses of a byte are in an order, and which are a race.
//!
//! Each byte keeps who wrote it last and who read it last, and when. "When" is a count of warp instructions that touch memory or order it. An earlier access is
//! ordered before a later one
//!
//! - of the same lane always;
//! - of another lane of the warp when both have passed a `bar.warp.sync` (or a barrier of the block) since. Shuffles, votes and reductions
//!   do not order memory (PTX ISA, `bar.warp.sync` does), so they do not count;
//! - of another warp of the block when both have passed a barrier of the block since;
//! - of another block, and of another warp as well, when the block of the earlier one has released (`.release`, `.acq_rel`, a fence)
//!   and the block of the later one has acquired since, in this order of time. Real order is stronger (it goes through one address), so
//!   this never reports what is right, and may miss some of what is wrong.
//!
//! Everything before the launch is in order. Strong accesses (atomics, relaxed, volatile) do not race with each other.

/// What is remembered of a byte. Times of 0 are never.
///
/// Plain numbers: a vector of zeros then costs nothing until it is touched, where one of 24 bytes for each byte of an allocation would be most
/// of a short launch.
pub(super) type Touch = [u32; 6];

const WRITE_WARP: usize = 0;
const WRITE_LANES: usize = 1;
const WRITE_TIME: usize = 2;
const READ_WARP: usize = 3;
const READ_LANES: usize = 4;
const READ_TIME: usize = 5;

/// The bit of a warp's number that says that its access was strong.
const STRONG: u32 = 1 << 31;

/// What a block has done to order memory.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockOrder {
    /// Times of its releases, ascending.
    releases: Vec<u32>,
    acquired: u32,
    /// The last barrier of each warp.
    barriers: Vec<u32>,
}

/// What has ordered memory in a launch.
#[derive(Default)]
pub(super) struct Order {
    pub now: u32,
    /// The time of the launch.
    pub start: u32,
    pub warps: u32,
    /// Whether races are let pass.
    pub lenient: bool,
    pub blocks: Vec<BlockOrder>,
}

impl Order {
    pub fn new(start: u32, blocks: usize, warps: u32, lenient: bool) -> Order {
        let block = BlockOrder { barriers: vec![0; warps as usize], ..BlockOrder::default() };
        Order { now: start + 1, start, warps, lenient, blocks: vec![block; blocks] }
    }

    pub fn release(&mut self, block: usize) {
        let now = self.now;
        let releases = &mut self.blocks[block].releases;
        if releases.last() != Some(&now) {
            releases.push(now);
        }
    }

    pub fn acquire(&mut self, block: usize) {
        self.blocks[block].acquired = self.now;
    }

    pub fn barrier(&mut self, block: usize, warp: usize) {
        self.blocks[block].barriers[warp] = self.now;
    }

    /// Is an access of another warp in the past ordered before one of `warp` now?
    fn across(&self, earlier: u32, time: u32, warp: u32) -> bool {
        let (from, to) = ((earlier / self.warps) as usize, (warp / self.warps) as usize);
        if from == to {
            let barrier = |warp: u32| self.blocks[from].barriers[(warp % self.warps) as usize];
            if barrier(earlier) > time && barrier(warp) > time {
                return true;
            }
        }
        let releases = &self.blocks[from].releases;
        let next = releases.partition_point(|&release| release <= time);
        releases.get(next).is_some_and(|&release| self.blocks[to].acquired > release)
    }
}

/// Who accesses.
pub(super) struct Who<'a> {
    /// The number of the warp in the grid.
    pub warp: u32,
    pub lane: u32,
    pub strong: bool,
    /// The last time that each lane of the warp was put in order with others.
    pub synced: &'a [u32; 32],
    pub order: &'a Order,
}

/// An access that is in no order with an earlier one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Race {
    /// What the earlier one was.
    pub wrote: bool,
    pub warp: u32,
    pub lane: u32,
}

impl Who<'_> {
    /// The lane of an earlier access that is in no order with this one.
    #[inline]
    fn unordered(&self, [warp, lanes, time]: [u32; 3], since: u32) -> Option<u32> {
        if time <= since || self.order.lenient || (self.strong && warp & STRONG != 0) {
            return None;
        }
        let warp = warp & !STRONG;
        if warp == self.warp {
            let others = lanes & !(1 << self.lane);
            if others == 0 {
                return None;
            }
            if self.synced[self.lane as usize] <= time {
                return Some(others.trailing_zeros());
            }
            return (0..32).find(|&lane| others >> lane & 1 == 1 && self.synced[lane as usize] <= time);
        }
        if self.order.across(warp, time, self.warp) { None } else { Some(lanes.trailing_zeros()) }
    }

    fn mark(&self) -> u32 {
        if self.strong { self.warp | STRONG } else { self.warp }
    }
}

/// A read; accesses up to `since` are in order before everything.
#[inline]
pub(super) fn read(touch: &mut Touch, who: &Who<'_>, since: u32) -> Result<(), Race> {
    let writer = [touch[WRITE_WARP], touch[WRITE_LANES], touch[WRITE_TIME]];
    if let Some(lane) = who.unordered(writer, since) {
        return Err(Race { wrote: true, warp: writer[0] & !STRONG, lane });
    }
    let mark = who.mark();
    if touch[READ_WARP] == mark && who.synced[who.lane as usize] < touch[READ_TIME] {
        touch[READ_LANES] |= 1 << who.lane;
    } else {
        (touch[READ_WARP], touch[READ_LANES]) = (mark, 1 << who.lane);
    }
    touch[READ_TIME] = who.order.now;
    Ok(())
}

/// A write; `same` says that the byte is not changed by it.
#[inline]
pub(super) fn write(touch: &mut Touch, who: &Who<'_>, since: u32, same: bool) -> Result<(), Race> {
    let reader = [touch[READ_WARP], touch[READ_LANES], touch[READ_TIME]];
    if let Some(lane) = who.unordered(reader, since) {
        return Err(Race { wrote: false, warp: reader[0] & !STRONG, lane });
    }
    let mark = who.mark();
    let writer = [touch[WRITE_WARP], touch[WRITE_LANES], touch[WRITE_TIME]];
    match who.unordered(writer, since) {
        Some(lane) if !same => return Err(Race { wrote: true, warp: writer[0] & !STRONG, lane }),
        Some(_) if writer[0] == mark => touch[WRITE_LANES] |= 1 << who.lane,
        _ => (touch[WRITE_WARP], touch[WRITE_LANES]) = (mark, 1 << who.lane),
    }
    // Earlier reads are in order before this write, which stands for them from now on.
    (touch[READ_TIME], touch[WRITE_TIME]) = (0, who.order.now);
    Ok(())
}

/// Has the launch that began at `start` written it?
pub(super) fn written_since(touch: &Touch, start: u32) -> bool {
    touch[WRITE_TIME] > start
}
