//! The CPU executor: the kernels through the host backend of the tile language, chunks shared out by rayon.
//!
//! It is the product where there is no GPU. One binary holds the kernels for the plain target, AVX2 and AVX-512, and picks one
//! when it runs; on x86-64 whole chunks have fast paths of their own (`cpu/fast/`). Frames are the same bytes with any number of threads: chunks are coded in any order, and placed by the same second
//! step as on a GPU.

use crate::format::{Layout, RECORD_BYTES, write};
use crate::paged::Paged;
use crate::steps::{self, COUNTS_BYTES, Counting, Decoding, Placing, Steps, TABLE_BYTES};
use crate::workspace::Workspace;
use crate::{
    Bases, Codebook, CodebookChoice, Dtype, Error, Executor, Frame, FrameSpec, Histogram, Reference, Result,
    SAMPLED_CHUNKS, Scheme, executor,
};
use rayon::prelude::*;
use splitzip_kernels::scheme::encode_table;
use splitzip_kernels::tile::TAIL_BYTES;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

#[cfg(target_arch = "x86_64")]
mod fast;
mod level;
mod strip;
mod unpacked;
pub(crate) use unpacked::unpacks_within;

#[cfg(target_arch = "x86_64")]
use fast::{computes_bases, decode as decode_run, encode as encode_run};
#[cfg(not(target_arch = "x86_64"))]
use shared::{computes_bases, decode as decode_run, encode as encode_run};
use strip::Strip;
pub(crate) use unpacked::with_fixed_planes;

/// Chunks that a thread takes at once: 512 KiB of bf16, so that order and waiting cost little and small tensors still spread.
const PIECE: u64 = 256;
/// Groups that a thread takes at once when it computes channel bases.
const GROUP_PIECE: u64 = 256;
/// Chunks in a group.
const GROUP: u64 = crate::format::GROUP as u64;

/// The CPU executor.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    pool: Option<Arc<rayon::ThreadPool>>,
}

impl Cpu {
    /// An executor on rayon's global pool: a thread for each core, unless the program has set it up otherwise.
    pub fn new() -> Cpu {
        Cpu::default()
    }

    /// An executor with a pool of its own.
    ///
    /// # Errors
    /// [`Error::Io`] when the threads cannot be started.
    pub fn with_threads(threads: usize) -> Result<Cpu> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).build();
        let pool = pool.map_err(|error| {
            let reason = format!(
                "{threads} threads cannot be started: {error}; ask for fewer, or raise the limit of processes"
            );
            Error::Io(std::io::Error::other(reason))
        })?;
        Ok(Cpu { pool: Some(Arc::new(pool)) })
    }

    fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// The codebook of a sample, counted by the kernel.
    fn sampled_codebook(&self, steps: Steps<'_>, workspace: &mut Memory) -> Result<Codebook> {
        let tensor = steps.tensor();
        let histogram = Steps { workspace: workspace.address(), ..steps }
            .histogram(tensor.chunks.min(SAMPLED_CHUNKS), 1)?;
        histogram.check()?;
        // SAFETY: checked; the workspace and the input are as long as the layout says.
        unsafe { histogram.run(0..1) };
        let at = steps.places.counts_at as usize;
        let counts: Vec<u64> = (0..tensor.dtype.exponents())
            .map(|i| u64_at(workspace.bytes_mut(), (at + 8 * i) as u64))
            .collect();
        Codebook::from_histogram(&Histogram::from_counts(tensor.dtype, &counts)?)
    }

    fn encode_coded(&self, steps: Steps<'_>) -> Result<()> {
        let tensor = steps.tensor();
        if tensor.bases == Bases::Channel && !computes_bases(&steps) {
            let bases = steps.bases(0)?;
            bases.check()?;
            // SAFETY: as below.
            pieces(tensor.groups, GROUP_PIECE, |groups| unsafe { bases.run(groups) });
        }
        // One thread writes the parts one behind the other; several have a scratch for each piece, and move it.
        let whole = steps.encode(steps.placing())?;
        whole.check()?;
        if rayon::current_num_threads() == 1 || tensor.chunks <= PIECE {
            let frame_end = steps.frame + steps.layout.max_frame_bytes;
            // SAFETY: checked; the frame, the workspace and the input are as long as the layout says; the order is zero.
            unsafe { encode_run(&steps, steps.placing(), frame_end, &*whole, 0..tensor.groups * GROUP) };
            return Ok(());
        }
        Pieces::new(&steps)?.encode(&steps, |to, end, programs| {
            // SAFETY: the tensor was checked; the piece has an order and a place for parts of its own; chunks are disjoint.
            unsafe { encode_run(&steps, to, end, &*steps.encode(to)?, programs) };
            Ok(())
        })
    }

    fn tensor_checksum(&self, steps: Steps<'_>, keep: bool) -> Result<u64> {
        let mut sum = [0u64; 1];
        let checksum = steps.checksum_to(sum.as_mut_ptr() as u64, keep)?;
        checksum.check()?;
        // SAFETY: checked; additions to the sum are atomic, checksums of chunks disjoint.
        pieces(steps.tensor().chunks, PIECE, |chunks| unsafe { checksum.run(chunks) });
        Ok(sum[0])
    }
}

/// The variable parts of a tensor, by pieces of [`PIECE`] chunks, each with a place for the most words it can have.
struct Pieces {
    count: u64,
    /// Bytes of the parts of a piece.
    stride: u64,
    /// For each piece: the words so far, and two words that nobody asks for.
    orders: Memory,
    /// Not cleared, which would take as long as a quarter of encoding: all that is read of it is written before.
    parts: Vec<MaybeUninit<u128>>,
}

impl Pieces {
    /// Bytes of the order of a piece: words so far (16), start (8), end (8).
    const ORDER: u64 = 32;

    fn new(steps: &Steps<'_>) -> Result<Pieces> {
        let (tensor, count) = (steps.tensor(), steps.tensor().chunks.div_ceil(PIECE));
        let stride = PIECE * steps::most_words(tensor) * 4;
        let mut parts = Vec::new();
        let room = parts.try_reserve_exact(words_of(count * stride)?);
        room.map_err(|_| Error::Io(std::io::ErrorKind::OutOfMemory.into()))?;
        Ok(Pieces { count, stride, orders: Memory::new(count * Pieces::ORDER)?, parts })
    }

    /// `work` encodes the chunks of a range of programs, with parts that end before an address.
    fn encode(
        mut self,
        steps: &Steps<'_>,
        work: impl Fn(Placing, u64, Range<u64>) -> Result<()> + Sync,
    ) -> Result<()> {
        let (tensor, orders, parts) = (steps.tensor(), self.orders.address(), self.parts.as_mut_ptr() as u64);
        let programs = tensor.groups * GROUP;
        (0..self.count).into_par_iter().try_for_each(|piece| {
            let (order, parts) = (orders + piece * Pieces::ORDER, parts + piece * self.stride);
            let to = Placing { order, parts, start: order + 16, end: order + 24, ..steps.placing() };
            work(to, parts + self.stride, piece * PIECE..programs.min((piece + 1) * PIECE))
        })?;
        let words: Vec<u64> =
            (0..self.count).map(|piece| u64_at(self.orders.bytes_mut(), piece * Pieces::ORDER)).collect();
        // SAFETY: the word of the frame where the parts of this tensor start.
        let first = unsafe { (steps.placing().start as *const u64).read_unaligned() };
        let starts: Vec<u64> =
            words.iter().scan(first, |end, words| Some(std::mem::replace(end, *end + words))).collect();
        let end = first + words.iter().sum::<u64>();
        // SAFETY: the word where they end.
        unsafe { (steps.placing().end as *mut u64).write_unaligned(end) };
        let (to, records) = (steps.frame + steps.layout.dense_bytes, steps.frame + tensor.directory_at);
        let groups = PIECE / GROUP;
        (0..self.count).into_par_iter().for_each(|piece| {
            let (start, from) = (starts[piece as usize], parts + piece * self.stride);
            // SAFETY: the frame has room for the most words; records of the piece exist; pieces are disjoint.
            unsafe {
                let bytes = words[piece as usize] as usize * 4;
                std::ptr::copy_nonoverlapping(from as *const u8, (to + start * 4) as *mut u8, bytes);
                for group in piece * groups..tensor.groups.min((piece + 1) * groups) {
                    let record = (records + group * RECORD_BYTES) as *mut u64;
                    record.write_unaligned(record.read_unaligned() + start);
                }
            }
        });
        Ok(())
    }
}

/// Runs `work` over `0..count` in pieces, on the threads of the current pool.
fn pieces(count: u64, piece: u64, work: impl Fn(Range<u64>) + Sync) {
    (0..count.div_ceil(piece)).into_par_iter().for_each(|i| work(i * piece..count.min((i + 1) * piece)));
}

/// Words of 16 bytes that so many bytes take.
fn words_of(bytes: u64) -> Result<usize> {
    usize::try_from(bytes.div_ceil(16))
        .map_err(|_| Error::TooLarge { what: "the workspace", bits: usize::BITS })
}

/// Zeroed memory, aligned for the kernels. (`vec![0; n]` takes untouched pages from the system, so that slots nobody writes cost nothing.)
struct Memory(Vec<u128>);

impl Memory {
    fn new(bytes: u64) -> Result<Memory> {
        Ok(Memory(vec![0; words_of(bytes)?]))
    }

    fn address(&mut self) -> u64 {
        self.0.as_mut_ptr() as u64
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.0.len() * 16;
        // SAFETY: the same memory, as bytes.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), bytes) }
    }
}

impl Executor for Cpu {
    fn name(&self) -> String {
        "cpu".to_owned()
    }

    fn histogram(&self, dtype: Dtype, bytes: &[u8]) -> Result<Histogram> {
        if !steps::has_histogram(dtype) || !bytes.len().is_multiple_of(dtype.bytes()) {
            return Reference.histogram(dtype, bytes);
        }
        let elements = (bytes.len() / dtype.bytes()) as u64;
        let chunks = elements.div_ceil(crate::format::CHUNK as u64);
        let counts = self.install(|| {
            let parts = chunks.div_ceil(PIECE);
            (0..parts)
                .into_par_iter()
                .map(|part| {
                    let start = (part * PIECE) as usize * crate::format::CHUNK * dtype.bytes();
                    let end = bytes.len().min(start + PIECE as usize * crate::format::CHUNK * dtype.bytes());
                    count(dtype, &bytes[start..end])
                })
                .try_reduce(
                    || vec![0; 256],
                    |mut a, b| {
                        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
                        Ok(a)
                    },
                )
        })?;
        Histogram::from_counts(dtype, &counts[..dtype.exponents()])
    }

    fn encode(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        inputs: &[&[u8]],
        out: &mut [u8],
    ) -> Result<usize> {
        let layout = write::check_encode(spec, codebooks, inputs, out)?;
        self.encode_frame(spec, &layout, codebooks, out, |number| Input::Slice(inputs[number]))
    }

    fn encode_paged(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        from: &Paged<'_>,
        pools: &[&[u8]],
        out: &mut [u8],
    ) -> Result<usize> {
        from.check_spec(spec)?;
        from.check_pools(&pools.iter().map(|pool| pool.len() as u64).collect::<Vec<_>>(), false)?;
        let layout = write::check_encode_to(spec, codebooks, out)?;
        self.encode_frame(spec, &layout, codebooks, out, |number| {
            let tensor = &from.tensors()[number];
            // All pages lie in the pool, as was checked.
            Input::Strip(Strip::new(tensor, pools[tensor.place().pool].as_ptr() as u64))
        })
    }

    fn decode(&self, frame: &Frame<'_>, outputs: &mut [&mut [u8]]) -> Result<()> {
        write::check_decode(frame.layout(), outputs)?;
        with_fixed_planes(frame, |frame| {
            self.install(|| {
                for (number, output) in outputs.iter_mut().enumerate() {
                    let chunks = frame.layout().tensors[number].chunks;
                    self.decode_chunks(frame, number, 0..chunks, output)?;
                    self.verify(frame, number, output)?;
                }
                Ok(())
            })
        })
    }

    fn decode_range(
        &self,
        frame: &Frame<'_>,
        tensor: usize,
        chunks: Range<u64>,
        output: &mut [u8],
    ) -> Result<()> {
        let of = frame.layout().tensors.get(tensor);
        if of.is_none_or(|of| {
            !steps::has_member(of.dtype, of.scheme, of.bases)
                || chunks.end > of.chunks
                || chunks.start >= chunks.end
        }) || !unpacks_within(frame, output.len() as u64)?
        {
            return Reference.decode_range(frame, tensor, chunks, output);
        }
        let expected =
            chunks.clone().map(|chunk| frame.layout().tensors[tensor].chunk_len(chunk) as u64).sum();
        write::check_size("the output".to_owned(), expected, output.len())?;
        with_fixed_planes(frame, |frame| {
            self.install(|| self.decode_chunks(frame, tensor, chunks.clone(), output))?;
            frame.tensor(tensor)?.verify_chunks(chunks.start, output)
        })
    }

    fn decode_elements(
        &self,
        frame: &Frame<'_>,
        tensor: usize,
        elements: Range<u64>,
        output: &mut [u8],
    ) -> Result<()> {
        let bytes = executor::bytes_of(frame, tensor, elements)?;
        write::check_size("the output of the elements".to_owned(), bytes.end - bytes.start, output.len())?;
        if !unpacks_within(frame, output.len() as u64)? {
            output.copy_from_slice(&executor::decode_bytes(&Reference, frame, tensor, bytes)?);
            return Ok(());
        }
        let to = Strip::one_piece(output.as_mut_ptr() as u64, output.len() as u64);
        with_fixed_planes(frame, |frame| {
            // SAFETY: the output is ours, in one piece, and has the bytes of the range.
            self.install(|| unsafe { self.decode_strip(frame, tensor, bytes, &to) })
        })
    }

    fn decode_paged(
        &self,
        frame: &Frame<'_>,
        tokens: Option<Range<u64>>,
        to: &Paged<'_>,
        pools: &mut [&mut [u8]],
    ) -> Result<()> {
        let pairs = to.pair(frame.spec(), tokens.clone())?;
        to.check_pools(&pools.iter().map(|pool| pool.len() as u64).collect::<Vec<_>>(), true)?;
        if !unpacks_within(frame, pools.iter().map(|pool| pool.len() as u64).sum())? {
            return executor::decode_paged_naively(&Reference, frame, tokens, to, pools);
        }
        let pools: Vec<u64> = pools.iter_mut().map(|pool| pool.as_mut_ptr() as u64).collect();
        with_fixed_planes(frame, |frame| {
            self.install(|| {
                for ((number, bytes), tensor) in pairs.into_iter().zip(to.tensors()) {
                    let strip = Strip::new(tensor, pools[tensor.place().pool]);
                    // SAFETY: all pages lie in the pool, which is ours; no two heads share bytes, as the layout says, and no page is there twice. There is
                    // one tensor at a time.
                    unsafe { self.decode_strip(frame, number, bytes, &strip)? };
                }
                Ok(())
            })
        })
    }
}

/// Where the elements of a tensor come from.
enum Input<'a> {
    Slice(&'a [u8]),
    Strip(Strip<'a>),
}

impl Cpu {
    /// Encodes a frame of checked inputs.
    fn encode_frame<'i>(
        &self,
        spec: &FrameSpec,
        layout: &Layout,
        codebooks: &[CodebookChoice],
        out: &mut [u8],
        input: impl Fn(usize) -> Input<'i> + Sync,
    ) -> Result<usize> {
        layout.tensors.iter().try_for_each(|tensor| steps::check_member("cpu", tensor))?;
        let places = Workspace::of(layout);
        let mut workspace = Memory::new(places.bytes)?;
        let statics = write::static_bytes(spec, layout);
        out[..statics.len()].copy_from_slice(&statics);
        out[statics.len()..statics.len() + layout.dynamic_bytes as usize].fill(0);
        for (at, bytes) in layout.gaps() {
            out[at as usize..(at + bytes) as usize].fill(0);
        }
        let frame = out.as_mut_ptr() as u64;
        self.install(|| {
            for number in 0..layout.tensors.len() {
                let input = input(number);
                let elements = match input {
                    Input::Slice(bytes) => bytes.as_ptr() as u64,
                    Input::Strip(_) => 0,
                };
                let workspace_at = workspace.address();
                let steps =
                    Steps { layout, number, frame, workspace: workspace_at, places, elements, table: 0 };
                self.encode_tensor(steps, codebooks, &input, out, &mut workspace)?;
            }
            Ok::<_, Error>(())
        })?;
        write::seal_dynamic(layout, out)?;
        let words = u64_at(out, layout.static_bytes);
        Ok((layout.dense_bytes + 4 * words) as usize)
    }

    fn encode_tensor(
        &self,
        steps: Steps<'_>,
        codebooks: &[CodebookChoice],
        input: &Input<'_>,
        out: &mut [u8],
        workspace: &mut Memory,
    ) -> Result<()> {
        let (tensor, number) = (steps.tensor(), steps.number);
        let dynamic =
            (steps.layout.static_bytes + crate::format::DYNAMIC_BYTES * (1 + number as u64)) as usize;
        let flags = steps.layout.flags;
        if tensor.scheme == Scheme::Stored {
            let sum = match input {
                Input::Slice(bytes) => {
                    let at = tensor.planes[0].at as usize;
                    out[at..at + bytes.len()].copy_from_slice(bytes);
                    write::checksums(steps.layout, number, bytes, out)
                }
                Input::Strip(strip) => self.store_strip(steps, strip, out),
            };
            out[dynamic + 8..dynamic + 16].copy_from_slice(&sum.to_le_bytes());
            carry_words(Steps { frame: out.as_mut_ptr() as u64, workspace: workspace.address(), ..steps });
            return Ok(());
        }
        workspace.bytes_mut()[..COUNTS_BYTES as usize].fill(0);
        let at = steps.places.table_at(number) as usize;
        if tensor.scheme.has_codebook() {
            let codebook = match codebooks.get(number) {
                Some(CodebookChoice::Given(codebook)) => *codebook,
                _ => match input {
                    Input::Slice(_) => self.sampled_codebook(steps, workspace)?,
                    Input::Strip(strip) => self.sampled_codebook_of(steps, strip)?,
                },
            };
            out[dynamic + 16..dynamic + 32].copy_from_slice(codebook.exponents());
            workspace.bytes_mut()[at..at + TABLE_BYTES as usize]
                .copy_from_slice(&encode_table(codebook.exponents()));
        }
        let steps = Steps {
            frame: out.as_mut_ptr() as u64,
            workspace: workspace.address(),
            table: workspace.address() + at as u64,
            ..steps
        };
        if tensor.elements == 0 {
            carry_words(steps);
            return Ok(());
        }
        let sum = match input {
            Input::Slice(_) => {
                self.encode_coded(steps)?;
                let wanted = flags.tensor_checksums || flags.chunk_checksums;
                if wanted { self.tensor_checksum(steps, flags.chunk_checksums)? } else { 0 }
            }
            Input::Strip(strip) => self.encode_strip(steps, strip)?,
        };
        if flags.tensor_checksums {
            out[dynamic + 8..dynamic + 16].copy_from_slice(&sum.to_le_bytes());
        }
        Ok(())
    }

    /// Decodes chunks of a tensor of a frame with fixed planes into `output`, which starts with the first of them.
    fn decode_chunks(
        &self,
        frame: &Frame<'_>,
        number: usize,
        chunks: Range<u64>,
        output: &mut [u8],
    ) -> Result<()> {
        let tensor = &frame.layout().tensors[number];
        if tensor.scheme == Scheme::Stored {
            let stored = frame.tensor(number)?.stored();
            output.copy_from_slice(stored.unwrap_or_default());
            return Ok(());
        }
        if !steps::has_member(tensor.dtype, tensor.scheme, tensor.bases) {
            return Reference.decode_range(frame, number, chunks, output);
        }
        let mut memory = Memory::new(TAIL_BYTES)?;
        let mut status = [0u32; 1];
        let steps = Steps {
            layout: frame.layout(),
            number,
            frame: frame.bytes().as_ptr() as u64,
            workspace: memory.address(),
            places: Workspace::tail_only(),
            // So that the first chunk of the range lands at the start of the output.
            elements: (output.as_mut_ptr() as u64).wrapping_sub(chunks.start * tensor.chunk_bytes()),
            table: 0,
        };
        let decode =
            steps.decode(Decoding { words: frame.words(), status: status.as_mut_ptr() as u64, sum: 0 })?;
        decode.check()?;
        // SAFETY: the frame was checked against its layout; only chunks of the range are run, and they lie in the output.
        pieces(chunks.end - chunks.start, PIECE, |piece| unsafe {
            decode_run(&steps, frame.words(), &*decode, chunks.start + piece.start..chunks.start + piece.end)
        });
        if status[0] == 0 {
            return Ok(());
        }
        // Something is damaged: the reference knows what.
        Reference.decode_range(frame, number, chunks, output)?;
        Err(Error::Chunk { tensor: number, chunk: 0, reason: "a chunk is damaged".to_owned() })
    }

    fn verify(&self, frame: &Frame<'_>, number: usize, output: &[u8]) -> Result<()> {
        let tensor = frame.tensor(number)?;
        tensor.verify_chunks(0, output)?;
        if tensor.checksum().is_none() {
            return Ok(());
        }
        let layout = tensor.layout();
        let computed = if layout.dtype != Dtype::Bytes {
            let mut memory = Memory::new(TAIL_BYTES)?;
            let places = Workspace::tail_only();
            let elements = output.as_ptr() as u64;
            let layout = frame.layout();
            self.tensor_checksum(
                Steps { layout, number, frame: 0, workspace: memory.address(), places, elements, table: 0 },
                false,
            )?
        } else {
            crate::format::tensor_checksum(layout.dtype, output)
        };
        tensor.verify_checksum(computed)
    }
}

/// Says that a tensor has no variable parts: as many words are before the next one as before it.
fn carry_words(steps: Steps<'_>) {
    let to = steps.placing();
    // SAFETY: words of the frame or of the workspace, both of which are ours.
    unsafe { (to.end as *mut u64).write_unaligned((to.start as *const u64).read_unaligned()) };
}

/// Counts the exponents of a piece of a tensor.
fn count(dtype: Dtype, bytes: &[u8]) -> Result<Vec<u64>> {
    let mut counts = vec![0u64; COUNTS_BYTES as usize / 8];
    let mut tail = Memory::new(TAIL_BYTES)?;
    let step = Counting {
        words: bytes.as_ptr() as u64,
        bytes: bytes.len() as u64,
        samples: bytes.len().div_ceil(crate::format::CHUNK * dtype.bytes()) as u64,
        programs: 1,
        counts: counts.as_mut_ptr() as u64,
        tail: tail.address(),
    }
    .step(dtype)?;
    step.check()?;
    // SAFETY: checked; all memory outlives the run.
    unsafe { step.run(0..1) };
    Ok(counts)
}

/// Where there are no fast paths: the kernels as they are.
#[cfg(not(target_arch = "x86_64"))]
mod shared {
    use crate::steps::{Placing, Step, Steps};
    use std::ops::Range;

    pub(super) fn computes_bases(_: &Steps<'_>) -> bool {
        false
    }

    /// # Safety
    /// As `step.run`.
    pub(super) unsafe fn encode(_: &Steps<'_>, _: Placing, _: u64, step: &dyn Step, programs: Range<u64>) {
        // SAFETY: by contract.
        unsafe { step.run(programs) }
    }

    /// # Safety
    /// As `step.run`.
    pub(super) unsafe fn decode(_: &Steps<'_>, _: u64, step: &dyn Step, chunks: Range<u64>) {
        // SAFETY: by contract.
        unsafe { step.run(chunks) }
    }
}

fn u64_at(bytes: &[u8], at: u64) -> u64 {
    let at = at as usize;
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}
