//! Transfers between a device and its host, by the clock of the host: from the call until all has arrived, on a device that does nothing else.
//!
//! Beside every row stands what can be done without a codec. In one piece that is one copy to page-locked memory; in pages it is a copy for every page, and a
//! gather into slices that are copied (the pipeline of the codec itself, with tensors stored): the faster one is what a codec has to be compared with.

mod file;

pub use file::{FileFolder, MeasuredFile};

use super::{Effort, Times, check_tiles};
use crate::cuda::offload::{
    DeviceKv, OffloadOptions, OffloadPolicy, Offloaded, Offloader, PinnedBlock, PinnedPool,
};
use crate::cuda::{Cuda, DeviceBytes, DevicePool, StreamHandle, driver_error};
use crate::paged::{KvLayout, KvShape, PageIds, PageTable, Paged};
use crate::policy::Policy;
use crate::{Bases, Codebook, CodebookChoice, Dtype, Error, Flags, FrameSpec, Result, Scheme, TensorSpec};
use cudarc::driver::{CudaStream, result, sys};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Layers of the request that is moved, unless one asks for less: that of Llama-3-8B.
pub const LAYERS: u64 = 32;

/// A layer of it: keys and values of 8 heads of 128 elements of bf16.
const LAYER: KvShape =
    KvShape { layers: 1, pages: 0, page_tokens: 16, heads: 8, head_dim: 128, dtype: Dtype::Bf16 };

/// Bytes of a token in a layer.
pub const TOKEN_BYTES: u64 = 2 * LAYER.heads * LAYER.head_dim * 2;

/// Where KV lies on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KvPlace {
    /// Tensors in one piece each, one behind the other.
    OnePiece,
    /// Pages of 16 tokens in random order, of pools half as large again: vLLM's `[2, blocks, block, heads, hd]`.
    Pages,
}

/// The times of a way to move a request out and back.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct MeasuredTransfer {
    /// Bytes in front of the codec.
    pub raw_bytes: u64,
    /// Bytes on the link.
    pub coded_bytes: u64,
    /// From the device to the host.
    pub out: Times,
    /// From the host to the device.
    pub back: Times,
}

impl MeasuredTransfer {
    /// Raw bytes by coded bytes.
    pub fn ratio(&self) -> f64 {
        self.raw_bytes as f64 / self.coded_bytes.max(1) as f64
    }
}

/// A device with a request that is moved.
pub struct TransferSubject {
    cuda: Cuda,
    pool: PinnedPool,
    stream: Arc<CudaStream>,
    layers: u64,
    tokens: u64,
    place: KvPlace,
    layout: KvLayout,
    /// The pages of the request, and those that it comes back to. In one piece: page 0.
    pages: [Vec<i32>; 2],
    source: Vec<DeviceBytes>,
    target: Vec<DeviceBytes>,
    codebook: Codebook,
}

impl TransferSubject {
    /// Fills pools with bytes of a tile of bf16 elements, again and again.
    ///
    /// # Errors
    /// [`Error::Device`] without enough memory; an empty tile.
    pub fn new(
        cuda: &Cuda,
        pool: &PinnedPool,
        place: KvPlace,
        (layers, tokens): (u64, u64),
        tile: &[u8],
    ) -> Result<TransferSubject> {
        check_tiles(&[tile], tokens)?;
        let stream = cuda.context().new_stream().map_err(driver_error("making a stream"))?;
        let used = tokens.div_ceil(LAYER.page_tokens);
        let (layout, pages) = match place {
            // A page that holds all tokens.
            KvPlace::OnePiece => {
                let shape = KvShape { layers, pages: 1, page_tokens: tokens, ..LAYER };
                (KvLayout::vllm(&shape)?, [vec![0], vec![0]])
            }
            KvPlace::Pages => {
                let pages = used + used / 2;
                let layout = KvLayout::vllm(&KvShape { layers, pages, ..LAYER })?;
                (layout, [shuffled(pages, used, 1), shuffled(pages, used, 2)])
            }
        };
        let sizes = layout.pool_bytes()?;
        let memory = || sizes.iter().map(|&bytes| cuda.allocate(bytes)).collect::<Result<Vec<_>>>();
        let (source, target) = (memory()?, memory()?);
        let histogram =
            crate::Executor::histogram(&crate::Cpu::new(), Dtype::Bf16, &tile[..tile.len() & !1])?;
        let codebook = Codebook::from_histogram(&histogram)?;
        let subject = TransferSubject {
            cuda: cuda.clone(),
            pool: pool.clone(),
            stream,
            layers,
            tokens,
            place,
            layout,
            pages,
            source,
            target,
            codebook,
        };
        for (number, pool) in subject.source.iter().enumerate() {
            // Every pool starts elsewhere in the tile.
            let at = ((number * 0x1_0000) % tile.len()) & !1;
            subject.fill(pool, &[&tile[at..], &tile[..at]].concat())?;
        }
        Ok(subject)
    }

    /// Raw bytes of the request.
    pub fn raw_bytes(&self) -> u64 {
        self.layers * self.tokens * TOKEN_BYTES
    }

    fn fill(&self, memory: &DeviceBytes, tile: &[u8]) -> Result<()> {
        self.cuda.bind()?;
        let mut done = (tile.len() as u64).min(memory.bytes());
        // SAFETY: inside of the memory.
        unsafe { result::memcpy_htod_sync(memory.address(), &tile[..done as usize]) }
            .map_err(driver_error("copying to the device"))?;
        while done < memory.bytes() {
            let more = done.min(memory.bytes() - done);
            // SAFETY: both lie in the memory, one behind the other.
            unsafe { result::memcpy_dtod_sync(memory.address() + done, memory.address(), more as usize) }
                .map_err(driver_error("copying on the device"))?;
            done += more;
        }
        self.cuda.context().synchronize().map_err(driver_error("waiting for the device"))
    }

    fn bind(&self, back: bool) -> Result<Paged<'_>> {
        let page_tokens = match self.place {
            KvPlace::OnePiece => self.tokens,
            KvPlace::Pages => LAYER.page_tokens,
        };
        let table = PageTable::new(PageIds::I32(&self.pages[usize::from(back)]), page_tokens, self.tokens)?;
        // Keys, then values: each one launch a slice.
        Ok(self.layout.bind(table)?.arranged(|form| form.name.ends_with(".v")))
    }

    /// The addresses of the tensors of a request in one piece.
    fn addresses(&self, memory: &[DeviceBytes]) -> Result<Vec<u64>> {
        let of = self.bind(false)?;
        let address = |tensor: &crate::paged::PagedTensor<'_>| {
            memory.get(tensor.place().pool).map_or(0, |pool| pool.address() + tensor.runs().base)
        };
        Ok(of.tensors().iter().map(address).collect())
    }

    /// A frame for the request, its keys with channel bases where they are wanted.
    pub fn spec(&self, scheme: Scheme, keys: Bases) -> Result<FrameSpec> {
        let mut spec = self.bind(false)?.spec(scheme, Flags::default());
        let is_key = |tensor: &&mut TensorSpec| tensor.name.ends_with(".k");
        spec.tensors.iter_mut().filter(is_key).for_each(|tensor| tensor.bases = keys);
        Ok(spec)
    }

    /// The choices of codebooks for a frame, whose tensors have one scheme.
    fn codebooks(&self, spec: &FrameSpec) -> Vec<CodebookChoice> {
        let has = spec.tensors.iter().any(|tensor| tensor.scheme.has_codebook());
        if has { vec![CodebookChoice::Given(self.codebook); spec.tensors.len()] } else { Vec::new() }
    }

    /// What a policy measures with the request, which lies in one piece.
    ///
    /// # Errors
    /// As [`Offloader::measure_policy`].
    pub fn policy(&self, scheme: Scheme, options: OffloadOptions) -> Result<OffloadPolicy> {
        let offloader = Offloader::new(&self.cuda, &self.pool, options)?;
        let (spec, addresses) = (self.spec(scheme, Bases::Chunk)?, self.addresses(&self.source)?);
        let stream = StreamHandle::from(&*self.stream);
        // SAFETY: the subject keeps the memory, and nobody writes to it.
        unsafe { offloader.measure_policy(Policy::default(), &spec, &[], &addresses, stream) }
    }

    /// Moves the request through a codec, out and back; what comes back is compared.
    ///
    /// # Errors
    /// What the offloader says; [`Error::Differs`].
    pub fn codec(
        &self,
        scheme: Scheme,
        keys: Bases,
        options: OffloadOptions,
        effort: &Effort,
    ) -> Result<MeasuredTransfer> {
        let offloader = Offloader::new(&self.cuda, &self.pool, options)?;
        let spec = self.spec(scheme, keys)?;
        let codebooks = self.codebooks(&spec);
        let (from, to) = (self.bind(false)?, self.bind(true)?);
        let (source, target) = (pools(&self.source), pools(&self.target));
        let addresses = [self.addresses(&self.source)?, self.addresses(&self.target)?];
        let (from, to) = match self.place {
            KvPlace::OnePiece => (DeviceKv::Tensors(&addresses[0]), DeviceKv::Tensors(&addresses[1])),
            KvPlace::Pages => {
                (DeviceKv::Pages { of: &from, pools: &source }, DeviceKv::Pages { of: &to, pools: &target })
            }
        };
        let stream = StreamHandle::from(&*self.stream);
        let out = || {
            // SAFETY: the subject keeps the memory; every call is waited for.
            let offloading = unsafe { offloader.offload(&spec, &codebooks, from, stream) }?;
            offloading.wait()
        };
        let offloaded = Arc::new(out()?);
        let back = || {
            // SAFETY: as above.
            let reloading = unsafe { offloader.reload(&offloaded, None, to, stream) }?;
            reloading.wait()
        };
        self.spoil()?;
        back()?;
        self.compare(0..self.tokens)?;
        let measured = MeasuredTransfer {
            raw_bytes: self.raw_bytes(),
            coded_bytes: offloaded.coded_bytes(),
            back: timed(effort, &mut || back())?,
            // The memory is full of what was offloaded before: it goes first.
            out: {
                drop(offloaded);
                timed(effort, &mut || out().map(drop))?
            },
        };
        tracing::debug!(counters = ?offloader.counters(), "transfers");
        Ok(measured)
    }

    /// The request, which lies in one piece, as it is and as a policy decides, in turns: what else the machine does meets both alike. What comes back is compared.
    ///
    /// # Errors
    /// As [`TransferSubject::codec`].
    pub fn beside_raw(
        &self,
        scheme: Scheme,
        options: OffloadOptions,
        policy: OffloadPolicy,
        effort: &Effort,
    ) -> Result<[MeasuredTransfer; 2]> {
        let offloader = Offloader::new(&self.cuda, &self.pool, options)?;
        offloader.set_policy(Some(policy));
        let specs = [self.spec(Scheme::Stored, Bases::Chunk)?, self.spec(scheme, Bases::Chunk)?];
        let [from, to] = [self.addresses(&self.source)?, self.addresses(&self.target)?];
        let stream = StreamHandle::from(&*self.stream);
        let out = |spec: &FrameSpec| {
            // SAFETY: the subject keeps the memory; every call is waited for.
            unsafe { offloader.offload(spec, &[], DeviceKv::Tensors(&from), stream) }?.wait()
        };
        let back = |kept: &Arc<Offloaded>| {
            // SAFETY: as above.
            unsafe { offloader.reload(kept, None, DeviceKv::Tensors(&to), stream) }?.wait()
        };
        let kept = [Arc::new(out(&specs[0])?), Arc::new(out(&specs[1])?)];
        for kept in &kept {
            self.spoil()?;
            back(kept)?;
            self.compare(0..self.tokens)?;
        }
        let mut seconds = [const { [Vec::new(), Vec::new()] }; 2];
        for _ in 0..effort.runs.max(1) {
            for ((spec, kept), [outs, backs]) in specs.iter().zip(&kept).zip(&mut seconds) {
                let start = Instant::now();
                let offloaded = out(spec)?;
                outs.push(start.elapsed().as_secs_f64());
                drop(offloaded);
                let start = Instant::now();
                back(kept)?;
                backs.push(start.elapsed().as_secs_f64());
            }
        }
        let measured = |number: usize| {
            Ok::<_, Error>(MeasuredTransfer {
                raw_bytes: self.raw_bytes(),
                coded_bytes: kept[number].coded_bytes(),
                out: times_of(&seconds[number][0])?,
                back: times_of(&seconds[number][1])?,
            })
        };
        Ok([measured(0)?, measured(1)?])
    }

    /// One copy of a request in one piece, tensor by tensor.
    ///
    /// # Errors
    /// [`Error::Device`]; a pool that is full.
    pub fn plain(&self, effort: &Effort) -> Result<MeasuredTransfer> {
        let block = self.block()?;
        let runs = self.runs(false)?;
        let back_runs = self.runs(true)?;
        let out = || self.copies(&block, &runs, true);
        let back = || self.copies(&block, &back_runs, false);
        out()?;
        self.spoil()?;
        back()?;
        self.compare(0..self.tokens)?;
        Ok(MeasuredTransfer {
            raw_bytes: self.raw_bytes(),
            coded_bytes: self.raw_bytes(),
            out: timed(effort, &mut || out())?,
            back: timed(effort, &mut || back())?,
        })
    }

    fn block(&self) -> Result<PinnedBlock> {
        let bytes = self.raw_bytes();
        self.pool.try_take(bytes).ok_or(Error::HostMemory { bytes })
    }

    /// Addresses and lengths of everything that lies in one piece, in the order of the request.
    fn runs(&self, back: bool) -> Result<Vec<(u64, u64)>> {
        let of = self.bind(back)?;
        let memory = if back { &self.target } else { &self.source };
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut pool_of_last = None;
        for tensor in of.tensors() {
            let pool = memory.get(tensor.place().pool).map_or(0, DeviceBytes::address);
            let bytes = tensor.tokens() * tensor.form().token_bytes()?;
            tensor.runs().segments(&tensor.ids(), 0..bytes, |at, length| {
                match runs.last_mut() {
                    // Keys and values that follow each other are one copy; one of two allocations is none.
                    Some((start, before)) if pool_of_last == Some(pool) && *start + *before == pool + at => {
                        *before += length;
                    }
                    _ => runs.push((pool + at, length)),
                }
                pool_of_last = Some(pool);
                true
            });
        }
        Ok(runs)
    }

    fn copies(&self, block: &PinnedBlock, runs: &[(u64, u64)], out: bool) -> Result<()> {
        self.cuda.bind()?;
        let mut at = block.address();
        for &(address, bytes) in runs {
            let (to, from) = if out { (at, address) } else { (address, at) };
            // SAFETY: both have so many bytes. Addresses of page-locked memory are those of the device.
            unsafe { sys::cuMemcpyAsync(to, from, bytes as usize, self.stream.cu_stream()) }
                .result()
                .map_err(driver_error("copying"))?;
            at += bytes;
        }
        self.stream.synchronize().map_err(driver_error("waiting for a copy"))
    }

    /// Overwrites where the request comes back to.
    fn spoil(&self) -> Result<()> {
        self.cuda.bind()?;
        for pool in &self.target {
            // SAFETY: as long as the pool.
            unsafe { result::memset_d8_sync(pool.address(), 0xa5, pool.bytes() as usize) }
                .map_err(driver_error("overwriting device memory"))?;
        }
        self.cuda.context().synchronize().map_err(driver_error("waiting for the device"))
    }

    /// Compares what came back of some tokens with what was sent: the frame of both has to be the same.
    fn compare(&self, tokens: Range<u64>) -> Result<()> {
        let flags = Flags { tensor_checksums: true, ..Flags::default() };
        let frame = |back: bool| {
            let (of, memory) = (self.bind(back)?, pools(if back { &self.target } else { &self.source }));
            let of = of.slice(tokens.clone())?;
            let stored = of.spec(Scheme::Stored, flags);
            let plan = self.cuda.plan_encode_paged(&stored, &[], &of, &memory)?;
            let frame = self.cuda.allocate(plan.max_frame_bytes())?;
            let workspace = self.cuda.allocate(plan.workspace_bytes())?;
            let stream = StreamHandle::from(&*self.stream);
            // SAFETY: all lives until the stream was waited for.
            unsafe {
                plan.prepare(stream, workspace.address())?;
                plan.encode(stream, frame.address(), workspace.address())?;
            }
            self.stream.synchronize().map_err(driver_error("waiting for a comparison"))?;
            Ok::<_, Error>(frame)
        };
        let (sent, received) = (frame(false)?, frame(true)?);
        let pieces = 64 << 20;
        let (mut a, mut b) = (self.piece(pieces)?, self.piece(pieces)?);
        for at in (0..sent.bytes()).step_by(pieces as usize) {
            let bytes = pieces.min(sent.bytes() - at) as usize;
            // SAFETY: nobody else uses the blocks.
            let (a, b) = unsafe { (&mut a.as_mut_slice()[..bytes], &mut b.as_mut_slice()[..bytes]) };
            // SAFETY: inside of both.
            unsafe {
                result::memcpy_dtoh_sync(a, sent.address() + at)
                    .and_then(|()| result::memcpy_dtoh_sync(b, received.address() + at))
            }
            .map_err(driver_error("reading what came back"))?;
            if let Some(first) = a.iter().zip(&*b).position(|(a, b)| a != b) {
                let what = "KV that was moved to the host and back".to_owned();
                return Err(Error::Differs { what, at: at + first as u64 });
            }
        }
        Ok(())
    }

    fn piece(&self, bytes: u64) -> Result<PinnedBlock> {
        self.pool.try_take(bytes).ok_or(Error::HostMemory { bytes })
    }
}

fn pools(memory: &[DeviceBytes]) -> Vec<DevicePool> {
    memory.iter().map(|of| DevicePool { address: of.address(), bytes: of.bytes() }).collect()
}

/// The times of runs that took so many seconds.
fn times_of(seconds: &[f64]) -> Result<Times> {
    let mut seconds = seconds.iter().copied();
    Times::of_runs(seconds.len() as u32, &mut || Ok(seconds.next().unwrap_or(f64::NAN)))
}

/// Seconds of every call.
fn timed(effort: &Effort, call: &mut dyn FnMut() -> Result<()>) -> Result<Times> {
    let mut once = || {
        let start = Instant::now();
        call()?;
        Ok(start.elapsed().as_secs_f64())
    };
    let seconds = once()?;
    for _ in 0..effort.warm_ups_of(seconds) {
        once()?;
    }
    Times::of_runs(effort.runs_of(seconds), &mut once)
}

/// `used` of `pages` pages in some order, the same for the same seed.
pub fn shuffled(pages: u64, used: u64, seed: u64) -> Vec<i32> {
    let mut all: Vec<i32> = (0..pages as i32).collect();
    let mut state = seed;
    for i in (1..all.len()).rev() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        all.swap(i, (state >> 33) as usize % (i + 1));
    }
    all.truncate(used as usize);
    all
}
