//! Loads, stores, atomics and asynchronous copies of a warp, lane by lane.

use super::decode::SHARED_WINDOW;
use super::error::FaultKind;
use super::execute::Context;
use super::memory::{Memory, Region};
use super::op::{Address, At, AtomicFn, Dst, Src, Strength};
use super::order::Who;
use super::warp::{Pending, Run, Warp, fault, lanes_of};

/// The memory that an address lies in, and the address there.
#[inline(always)]
fn find<'m>(
    memory: &'m mut Memory,
    shared: &'m mut Region,
    at: At,
    address: u64,
    bytes: u32,
) -> Result<(&'m mut Region, u64), Box<FaultKind>> {
    match at {
        At::Shared => Ok((shared, address & 0xffff_ffff)),
        At::Generic if address & SHARED_WINDOW != 0 => Ok((shared, address & !SHARED_WINDOW)),
        _ => Ok((memory.region(address, bytes)?, address)),
    }
}

impl Warp {
    fn addresses(&self, context: &Context<'_>, address: Address, lanes: u32) -> Run<[u64; 32]> {
        let base = self.wide(address.base, lanes, context.entry, &context.place)?;
        Ok(base.map(|base| base.wrapping_add(address.offset as u64)))
    }

    #[allow(clippy::too_many_arguments)]
    pub fn load(
        &mut self,
        context: &mut Context<'_>,
        dst: &[Dst; 4],
        parts: u8,
        (bytes, signed): (u8, bool),
        address: Address,
        strength: Strength,
        lanes: u32,
    ) -> Run<()> {
        let addresses = self.addresses(context, address, lanes)?;
        let (parts, bytes) = (usize::from(parts), usize::from(bytes));
        let total = (parts * bytes) as u32;
        let mut values = [[0; 32]; 4];
        context.order.now += 1;
        for lane in lanes_of(lanes) {
            let who = Who {
                warp: self.id,
                lane,
                strong: strength.strong,
                synced: &self.synced,
                order: context.order,
            };
            let wrong = |kind: Box<FaultKind>| fault(lane, *kind);
            let (region, place) =
                find(context.memory, context.shared, address.at, addresses[lane as usize], total)
                    .map_err(wrong)?;
            let loaded = region.load(place, total, &who, strength.nc).map_err(wrong)?;
            for (part, value) in loaded.chunks_exact(bytes).take(parts).enumerate() {
                let mut wide = [0; 8];
                wide[..bytes].copy_from_slice(value);
                let mut value = u64::from_le_bytes(wide);
                if signed {
                    let shift = 64 - 8 * bytes;
                    value = (((value << shift) as i64) >> shift) as u64;
                }
                values[part][lane as usize] = value;
            }
        }
        if strength.acquire {
            context.order.acquire(context.place.block as usize);
        }
        for (&dst, value) in dst.iter().zip(&values).take(parts) {
            self.set(dst, lanes, value);
        }
        Ok(())
    }

    pub fn store(
        &mut self,
        context: &mut Context<'_>,
        s: &[Src],
        bytes: u8,
        address: Address,
        strength: Strength,
        lanes: u32,
    ) -> Run<()> {
        let addresses = self.addresses(context, address, lanes)?;
        let bytes = usize::from(bytes);
        let mut values = [[0; 32]; 4];
        for (value, &s) in values.iter_mut().zip(s) {
            *value = self.wide(s, lanes, context.entry, &context.place)?;
        }
        context.order.now += 1;
        if strength.release {
            context.order.release(context.place.block as usize);
        }
        let total = s.len() * bytes;
        for lane in lanes_of(lanes) {
            let mut stored = [0; 16];
            for (part, value) in stored.chunks_exact_mut(bytes).take(s.len()).enumerate() {
                value.copy_from_slice(&values[part][lane as usize].to_le_bytes()[..bytes]);
            }
            let who = Who {
                warp: self.id,
                lane,
                strong: strength.strong,
                synced: &self.synced,
                order: context.order,
            };
            let wrong = |kind: Box<FaultKind>| fault(lane, *kind);
            let (region, place) =
                find(context.memory, context.shared, address.at, addresses[lane as usize], total as u32)
                    .map_err(wrong)?;
            region.store(place, &stored[..total], &who).map_err(wrong)?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    pub fn atomic(
        &mut self,
        context: &mut Context<'_>,
        (f, bytes): (AtomicFn, u8),
        dst: Dst,
        address: Address,
        (b, c): (Src, Src),
        strength: Strength,
        lanes: u32,
    ) -> Run<()> {
        let (entry, place) = (context.entry, context.place);
        let addresses = self.addresses(context, address, lanes)?;
        let (b, c) = (self.wide(b, lanes, entry, &place)?, self.wide(c, lanes, entry, &place)?);
        context.order.now += 1;
        if strength.release {
            context.order.release(place.block as usize);
        }
        let mut old = [0; 32];
        for lane in lanes_of(lanes) {
            let who = Who { warp: self.id, lane, strong: true, synced: &self.synced, order: context.order };
            let wrong = |kind: Box<FaultKind>| fault(lane, *kind);
            let at = lane as usize;
            let (region, place) =
                find(context.memory, context.shared, address.at, addresses[at], bytes.into())
                    .map_err(wrong)?;
            old[at] = region.update(place, bytes.into(), &who, |old| f(old, b[at], c[at])).map_err(wrong)?;
        }
        if strength.acquire {
            context.order.acquire(place.block as usize);
        }
        self.set(dst, lanes, &old);
        Ok(())
    }

    /// Notes a copy for each lane; its target holds nothing until it is waited for.
    pub fn start_copy(
        &mut self,
        context: &mut Context<'_>,
        to: Address,
        from: Address,
        bytes: u8,
        size: Src,
        lanes: u32,
    ) -> Run<()> {
        let (to, from) = (self.addresses(context, to, lanes)?, self.addresses(context, from, lanes)?);
        let size = self.narrow(size, lanes, context.entry, &context.place)?;
        for lane in lanes_of(lanes) {
            let (to, from, size) =
                (to[lane as usize] & 0xffff_ffff, from[lane as usize], size[lane as usize].min(bytes.into()));
            context.shared.expect(to, bytes.into()).map_err(|kind| fault(lane, *kind))?;
            self.pending.push(Pending { lane, to, from, bytes, size: size as u8, group: None });
        }
        Ok(())
    }

    pub fn commit(&mut self, lanes: u32) {
        for copy in self.pending.iter_mut().filter(|copy| lanes >> copy.lane & 1 == 1) {
            copy.group.get_or_insert(self.groups[copy.lane as usize]);
        }
        for lane in lanes_of(lanes) {
            self.groups[lane as usize] += 1;
        }
    }

    /// Does the copies of all groups but the last `pending` ones, or all copies.
    pub fn wait(&mut self, context: &mut Context<'_>, pending: Option<u64>, lanes: u32) -> Run<()> {
        context.order.now += 1;
        let groups = self.groups;
        let due = |copy: &Pending| {
            let in_time = match (pending, copy.group) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(pending), Some(group)) => {
                    u64::from(group) + pending < u64::from(groups[copy.lane as usize])
                }
            };
            lanes >> copy.lane & 1 == 1 && in_time
        };
        let (now, later) = std::mem::take(&mut self.pending).into_iter().partition(due);
        self.pending = later;
        for Pending { lane, to, from, bytes, size, .. } in now {
            let who = Who { warp: self.id, lane, strong: false, synced: &self.synced, order: context.order };
            let wrong = |kind: Box<FaultKind>| fault(lane, *kind);
            let mut value = [0; 16];
            // Byte by byte where it is not all of them: only as many are read.
            for place in 0..size {
                let from = from + u64::from(place);
                let region = context.memory.region(from, 1).map_err(wrong)?;
                value[usize::from(place)] = region.load(from, 1, &who, false).map_err(wrong)?[0];
            }
            context.shared.store(to, &value[..usize::from(bytes)], &who).map_err(wrong)?;
        }
        Ok(())
    }
}
