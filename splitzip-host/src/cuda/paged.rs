//! Requests in pages on a device: gathered and encoded in one pass, decoded and scattered in one.
//!
//! A plan describes every tensor of a request once (where its pages are, where its planes lie in the frame) and uploads that; then a request is one launch that
//! begins the frame, one for all tensors of a dtype and scheme that follow each other in it, one for those that are stored and one for the checksum of each, and one that seals it. Page numbers that are in
//! device memory already stay there: they may change between calls, and kernels check each against the pool.
//!
//! What the kernels over batches cannot do (codebooks from a sample, channel bases of a group that is not whole, members that only the kernels for
//! one tensor have) takes a detour: the elements are copied to the workspace, and encoded from there.

mod decode;
mod encode;

pub use decode::{DecodePagedPlan, DecodePagedWork};
pub use encode::{EncodePagedPlan, EncodePagedWork};

use super::DeviceBytes;
use super::plan::Queue;
use super::pointers::Buffer;
use crate::batch::{Batch, BatchStep, PlanMemory};
use crate::format::{CHUNK, TensorLayout};
use crate::paged::{Paged, PagedTensor};
use crate::{Error, Result};
use splitzip_kernels::launch::Launch;
use splitzip_kernels::tile::TAIL_BYTES;
use std::cell::Cell;

/// A pool in device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DevicePool {
    /// Its address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl DevicePool {
    /// The pools as buffers of a call. Whether they overlap is the layout's to say: those of layers that lie interleaved in one memory do, and their elements do not.
    fn buffers(pools: &[DevicePool]) -> Vec<Buffer> {
        let buffer = |(number, pool): (usize, &DevicePool)| {
            Buffer::read("pool", pool.address, pool.bytes).number(number)
        };
        pools.iter().enumerate().map(buffer).collect()
    }

    /// Pools that are all of some memory.
    pub(super) fn of(memory: &[DeviceBytes]) -> Vec<DevicePool> {
        let pool = |of: &DeviceBytes| DevicePool { address: of.address(), bytes: of.bytes() };
        memory.iter().map(pool).collect()
    }
}

/// The pool of a tensor; it was checked that there is one.
fn pool_of(pools: &[DevicePool], tensor: &PagedTensor<'_>) -> u64 {
    pools.get(tensor.place().pool).map_or(0, |pool| pool.address)
}

/// Says whether the pools hold all pages that the host knows of.
fn check_pools(of: &Paged<'_>, pools: &[DevicePool], unique: bool) -> Result<()> {
    let bytes: Vec<u64> = pools.iter().map(|pool| pool.bytes).collect();
    Ok(of.check_pools_on(&bytes, unique, true)?)
}

/// A launch over a batch: a tensor of its member, where its batch lies in the memory of the plan, and its groups.
#[derive(Clone, Copy, Debug)]
struct Over {
    tensor: usize,
    batch_at: u64,
    groups: u64,
}

impl Over {
    fn new(tensor: usize, batch: &Batch, memory: &mut PlanMemory) -> Over {
        Over { tensor, batch_at: batch.write(memory), groups: batch.groups() }
    }

    fn step(&self, memory: u64, frame: u64, workspace: u64, status: u64) -> BatchStep {
        let (batch, groups) = (memory + self.batch_at, self.groups);
        BatchStep { batch, groups, frame, workspace, parts: 0, words: 0, status, sums: 0 }
    }
}

/// Memory of a workspace, one piece behind the other.
#[derive(Default)]
struct Room(u64);

impl Room {
    fn take(&mut self, bytes: u64) -> u64 {
        let at = self.0.next_multiple_of(128);
        self.0 = at + bytes;
        at
    }

    /// Room for a short last chunk, if there is one.
    fn tail(&mut self, tensor: &TensorLayout) -> u64 {
        if tensor.elements.is_multiple_of(CHUNK as u64) { 0 } else { self.take(TAIL_BYTES) }
    }
}

/// Are these coded by one kernel?
fn is_one_member(first: &TensorLayout, second: &TensorLayout) -> bool {
    (first.dtype, first.scheme, first.bases) == (second.dtype, second.scheme, second.bases)
}

fn no_member() -> Error {
    Error::Device {
        what: "a launch over a batch".to_owned(),
        reason: "there is no kernel for this dtype and scheme".to_owned(),
    }
}

/// A queue that runs nothing and counts kernels.
#[derive(Default)]
struct Launches(Cell<usize>);

impl Queue for Launches {
    unsafe fn launch(&self, launch: &Launch) -> Result<()> {
        self.0.set(self.0.get() + usize::from(launch.blocks != 0));
        Ok(())
    }
    unsafe fn copy(&self, _: u64, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    unsafe fn clear(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
}
