//! Shuffles, votes, reductions and matches, for lanes that are all there.

use super::error::FaultKind;
use super::execute::Context;
use super::op::{Collective, Dst, Reduce, Shuffle, Src, Vote};
use super::warp::{Run, Warp, fault, lanes_of};

impl Warp {
    pub fn together(&mut self, context: &mut Context<'_>, kind: Collective, members: u32) -> Run<()> {
        let (entry, place) = (context.entry, context.place);
        match kind {
            Collective::Sync => {
                context.order.now += 1;
                for lane in lanes_of(members) {
                    self.synced[lane as usize] = context.order.now;
                }
            }
            Collective::Shfl { kind, dst, pred, a, b, c } => {
                self.shuffle(context, kind, (dst, pred), [a, b, c], members)?;
            }
            Collective::Vote { kind, dst, pred, source } => {
                let votes = self.pred(source, members, entry)? & members;
                let result = match kind {
                    Vote::Any => votes != 0,
                    Vote::All => votes == members,
                    Vote::Uni => votes == 0 || votes == members,
                    Vote::Ballot => false,
                };
                self.set(dst, members, &[votes.into(); 32]);
                if let Some(pred) = pred {
                    self.set_pred(pred, members, if result { u32::MAX } else { 0 });
                }
            }
            Collective::Redux { kind, dst, a } => {
                let a = self.narrow(a, members, entry, &place)?;
                let values = lanes_of(members).map(|lane| a[lane as usize]);
                let result = match kind {
                    Reduce::Add => values.fold(0, u32::wrapping_add),
                    Reduce::MinU => values.min().unwrap_or(0),
                    Reduce::MaxU => values.max().unwrap_or(0),
                    Reduce::MinS => values.map(|value| value as i32).min().unwrap_or(0) as u32,
                    Reduce::MaxS => values.map(|value| value as i32).max().unwrap_or(0) as u32,
                    Reduce::And => values.fold(u32::MAX, |a, b| a & b),
                    Reduce::Or => values.fold(0, |a, b| a | b),
                    Reduce::Xor => values.fold(0, |a, b| a ^ b),
                };
                self.set(dst, members, &[result.into(); 32]);
            }
            Collective::MatchAny { dst, a } => {
                let a = self.wide(a, members, entry, &place)?;
                let same = |value: u64| {
                    lanes_of(members)
                        .filter(|&lane| a[lane as usize] == value)
                        .fold(0, |mask, lane| mask | 1u64 << lane)
                };
                self.set(dst, members, &a.map(same));
            }
            Collective::MatchAll { dst, pred, a } => {
                let a = self.wide(a, members, entry, &place)?;
                let first = a[members.trailing_zeros() as usize];
                let all = lanes_of(members).all(|lane| a[lane as usize] == first);
                self.set(dst, members, &[if all { members.into() } else { 0 }; 32]);
                if let Some(pred) = pred {
                    self.set_pred(pred, members, if all { u32::MAX } else { 0 });
                }
            }
        }
        Ok(())
    }

    fn shuffle(
        &mut self,
        context: &Context<'_>,
        kind: Shuffle,
        (dst, pred): (Dst, Option<u16>),
        [a, b, c]: [Src; 3],
        members: u32,
    ) -> Run<()> {
        let (entry, place) = (context.entry, &context.place);
        let a = self.narrow(a, members, entry, place)?;
        let (b, c) = (self.narrow(b, members, entry, place)?, self.narrow(c, members, entry, place)?);
        let (mut value, mut inside) = ([0; 32], 0);
        for lane in lanes_of(members) {
            let at = lane as usize;
            let (distance, clamp, segment) = (b[at] & 31, c[at] & 31, c[at] >> 8 & 31);
            let last = ((lane & segment) | (clamp & !segment)) as i32;
            let (from, lane_number) = (lane as i32, lane);
            let (source, holds) = match kind {
                Shuffle::Up => (from - distance as i32, from - distance as i32 >= last),
                Shuffle::Down => (from + distance as i32, from + distance as i32 <= last),
                Shuffle::Bfly => ((lane ^ distance) as i32, (lane ^ distance) as i32 <= last),
                Shuffle::Idx => {
                    let source = ((lane & segment) | (distance & !segment)) as i32;
                    (source, source <= last)
                }
            };
            let source = if holds { source as u32 } else { lane_number };
            inside |= u32::from(holds) << lane;
            if members >> source & 1 == 0 {
                return Err(fault(lane, FaultKind::InactiveLane { source_lane: source }));
            }
            value[at] = u64::from(a[source as usize]);
        }
        self.set(dst, members, &value);
        if let Some(pred) = pred {
            self.set_pred(pred, members, inside);
        }
        Ok(())
    }
}
