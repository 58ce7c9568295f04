//! Encoding and decoding on device memory: asynchronous, on any stream, without host synchronisation, allocation or read-back.
//!
//! A plan does once what needs the host: it lays out the frame, uploads its static part and the tables, and loads the kernels. Then it can be
//! used any number of times, also while a stream is captured into a graph.
//!
//! What a plan queues ([`EncodeWork`], [`DecodeWork`]) does not know who runs it: a [`Queue`] is a stream of the driver here, and the PTX interpreter
//! in the tests, which so run the very launches that a GPU gets.

mod decode;

pub use decode::{DecodePlan, DecodeWork};

use super::kernels::Function;
use super::pointers::{Buffer, check};
use super::{Cuda, DeviceBytes, StreamHandle, driver_error};
use crate::format::{DYNAMIC_BYTES, Layout, TensorLayout, write};
use crate::steps::{self, COUNTS_BYTES, Placing, Step, Steps, TABLE_BYTES};
use crate::workspace::{Workspace, order_at};
use crate::{Bases, CodebookChoice, Error, FrameSpec, Result, SAMPLED_CHUNKS, Scheme};
use cudarc::driver::result;
use splitzip_kernels::launch::{Entry, Launch};
use splitzip_kernels::scheme::encode_table;
use splitzip_kernels::tile::Order;
use std::collections::HashMap;

/// The kernels of a plan, by their entries: loaded when the plan is made, since a stream that is being captured cannot load any.
#[derive(Default)]
pub(super) struct Functions(HashMap<&'static str, Function>);

impl Functions {
    pub(super) fn load(cuda: &Cuda, entries: &[&'static Entry]) -> Result<Functions> {
        let load = |entry: &&'static Entry| Ok((entry.name, cuda.kernels.function(entry.name)?));
        entries.iter().map(load).collect::<Result<_>>().map(Functions)
    }
}

/// What runs the work of a plan, one thing after the other.
#[doc(hidden)]
pub trait Queue {
    /// Queues a kernel.
    ///
    /// # Safety
    /// The addresses in the launch are valid until it has run.
    unsafe fn launch(&self, launch: &Launch) -> Result<()>;

    /// Queues a copy of `bytes` bytes, which may be 0.
    ///
    /// # Safety
    /// Both are valid for so many bytes until it has run.
    unsafe fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<()>;

    /// Queues zeros for `bytes` bytes, which may be 0.
    ///
    /// # Safety
    /// Valid for so many bytes until it has run.
    unsafe fn clear(&self, at: u64, bytes: u64) -> Result<()>;
}

/// A stream of the driver, with the kernels of a plan.
pub(super) struct Stream<'p> {
    functions: &'p Functions,
    multiprocessors: u32,
    stream: StreamHandle,
}

impl<'p> Stream<'p> {
    /// A stream of the device, whose context becomes current.
    pub(super) fn of(cuda: &Cuda, functions: &'p Functions, stream: StreamHandle) -> Result<Stream<'p>> {
        cuda.bind()?;
        Ok(Stream { functions, multiprocessors: cuda.info().multiprocessors, stream })
    }
}

impl Queue for Stream<'_> {
    unsafe fn launch(&self, launch: &Launch) -> Result<()> {
        let function = self.functions.0.get(launch.entry.name);
        let function = function.ok_or_else(|| Error::Device {
            what: launch.entry.name.to_owned(),
            reason: "the plan has not loaded this kernel".to_owned(),
        })?;
        // SAFETY: by contract; the function is that of the entry.
        unsafe { function.launch(launch, self.multiprocessors, self.stream) }
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: by contract.
        unsafe { result::memcpy_dtod_async(to, from, bytes as usize, self.stream.raw()) }
            .map_err(driver_error("copying on the device"))
    }

    unsafe fn clear(&self, at: u64, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: by contract.
        unsafe { result::memset_d8_async(at, 0, bytes as usize, self.stream.raw()) }
            .map_err(driver_error("clearing device memory"))
    }
}

/// How to encode frames of one description on a device.
pub struct EncodePlan {
    cuda: Cuda,
    work: EncodeWork,
    functions: Functions,
    start: DeviceBytes,
}

impl EncodePlan {
    pub(super) fn new(cuda: &Cuda, spec: &FrameSpec, codebooks: &[CodebookChoice]) -> Result<EncodePlan> {
        cuda.bind()?;
        let work = EncodeWork::new("cuda", spec, codebooks)?;
        let (functions, start) = (Functions::load(cuda, work.entries())?, cuda.upload(work.start())?);
        Ok(EncodePlan { cuda: cuda.clone(), work, functions, start })
    }

    /// Where everything lies in the frame.
    pub fn layout(&self) -> &Layout {
        &self.work.layout
    }

    /// Bytes that the frame's buffer needs. How many of them are used stands in the frame: [`Layout::dense_bytes`] and 4
    /// for each of the words in the dynamic part.
    pub fn max_frame_bytes(&self) -> u64 {
        self.work.layout.max_frame_bytes
    }

    /// Bytes that the workspace needs. One workspace serves any number of calls on one stream, one after the other.
    pub fn workspace_bytes(&self) -> u64 {
        self.work.places.bytes
    }

    /// Queues what makes a workspace ready for this plan: once, before the first call with it. Encoding leaves it ready for the next one.
    ///
    /// # Errors
    /// A misaligned address, an error of the driver.
    ///
    /// # Safety
    /// As [`EncodePlan::encode`].
    pub unsafe fn prepare(&self, stream: StreamHandle, workspace: u64) -> Result<()> {
        let stream = Stream::of(&self.cuda, &self.functions, stream)?;
        check(&self.cuda, &[Buffer::written("the workspace", workspace, self.workspace_bytes())])?;
        // SAFETY: by contract; the plan owns the start.
        unsafe { self.work.prepare(&stream, self.start.address(), workspace) }
    }

    /// Queues the encoding of a frame on a stream and returns. The workspace was [prepared](EncodePlan::prepare) for this plan; a frame that is
    /// encoded with another one is not sealed, and nobody takes it for a frame.
    ///
    /// `inputs` are device addresses of the raw bytes of each tensor, `frame` and `workspace` device addresses of
    /// [`EncodePlan::max_frame_bytes`] and [`EncodePlan::workspace_bytes`]. Inputs are multiples of 16, the others of 128.
    ///
    /// # Errors
    /// A wrong number of inputs, an address that is misaligned or not that of enough memory of the device, buffers that overlap, an error of the driver.
    ///
    /// # Safety
    /// The addresses are valid on the device of the plan and used by nobody else until the work has run; the plan lives
    /// until then; the stream belongs to the plan's context.
    pub unsafe fn encode(
        &self,
        stream: StreamHandle,
        inputs: &[u64],
        frame: u64,
        workspace: u64,
    ) -> Result<()> {
        let stream = Stream::of(&self.cuda, &self.functions, stream)?;
        self.work.check(inputs, frame, workspace)?;
        let tensors = self.layout().tensors.iter().zip(inputs).enumerate();
        let input = |(number, (tensor, &address)): (usize, (&TensorLayout, &u64))| {
            Buffer::read("input", address, tensor.bytes).number(number)
        };
        let mut buffers: Vec<Buffer> = tensors.map(input).collect();
        buffers.push(Buffer::written("the frame", frame, self.max_frame_bytes()));
        buffers.push(Buffer::written("the workspace", workspace, self.workspace_bytes()));
        check(&self.cuda, &buffers)?;
        // SAFETY: by contract; the plan owns the start.
        unsafe { self.work.run(&stream, self.start.address(), inputs, frame, workspace) }
    }
}

/// What encoding frames of one description does, on whatever runs it.
#[doc(hidden)]
pub struct EncodeWork {
    layout: Layout,
    places: Workspace,
    entries: Vec<&'static Entry>,
    /// Which tensors get a codebook of their own sample.
    automatic: Vec<bool>,
    start: Vec<u8>,
    gaps: Vec<(u64, u64)>,
}

impl EncodeWork {
    /// The work of the executor with this name.
    ///
    /// # Errors
    /// As [`Cuda::plan_encode`].
    pub fn new(executor: &str, spec: &FrameSpec, codebooks: &[CodebookChoice]) -> Result<EncodeWork> {
        let layout = spec.layout()?;
        layout.tensors.iter().try_for_each(|tensor| steps::check_member(executor, tensor))?;
        if !codebooks.is_empty() && codebooks.len() != layout.tensors.len() {
            return Err(Error::Count {
                what: "codebooks",
                expected: layout.tensors.len(),
                got: codebooks.len(),
            });
        }
        let (mut entries, places) = (Vec::new(), Workspace::of(&layout));
        for number in 0..layout.tensors.len() {
            let steps =
                Steps { layout: &layout, number, frame: 0, workspace: 0, places, elements: 0, table: 0 };
            if steps.tensor().scheme == Scheme::Stored {
                entries.push(steps.checksum()?.entry());
            } else {
                entries.push(steps.histogram(0, 0)?.entry());
                entries.push(steps.pick().entry());
                entries.push(steps.bases(0)?.entry());
                entries.push(steps.encode(steps.placing())?.entry());
            }
        }
        entries.push(steps::seal_frame(&layout, 0).entry());
        let mut start = write::static_bytes(spec, &layout);
        let mut tables = vec![0u8; TABLE_BYTES as usize * layout.tensors.len()];
        let mut dynamic = vec![0u8; layout.dynamic_bytes as usize];
        let mut automatic = vec![false; layout.tensors.len()];
        for (number, tensor) in
            layout.tensors.iter().enumerate().filter(|(_, tensor)| tensor.scheme.has_codebook())
        {
            match codebooks.get(number) {
                Some(CodebookChoice::Given(codebook)) if codebook.dtype() != tensor.dtype => {
                    let what = format!("the codebook of tensor {number}");
                    return Err(Error::CodebookDtype {
                        what,
                        expected: tensor.dtype,
                        found: codebook.dtype(),
                    });
                }
                Some(CodebookChoice::Given(codebook)) => {
                    let at = DYNAMIC_BYTES as usize * (1 + number) + 16;
                    dynamic[at..at + 16].copy_from_slice(codebook.exponents());
                    let at = TABLE_BYTES as usize * number;
                    tables[at..at + TABLE_BYTES as usize]
                        .copy_from_slice(&encode_table(codebook.exponents()));
                }
                _ => automatic[number] = true,
            }
        }
        start.extend(dynamic);
        start.resize(start.len().next_multiple_of(16), 0);
        start.extend(tables);
        start.extend(Order::prepared().iter().flat_map(|word| word.to_le_bytes()));
        let gaps = layout.gaps();
        Ok(EncodeWork { layout, places, entries, automatic, start, gaps })
    }

    /// The kernels that may be launched.
    pub fn entries(&self) -> &[&'static Entry] {
        &self.entries
    }

    /// What a frame starts with: the static part and a dynamic part with the given codebooks; behind it the tables, and what an order starts with. To be put into the
    /// memory of whoever runs the work.
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// Does any tensor get a codebook of its own sample?
    pub(super) fn is_automatic(&self) -> bool {
        self.automatic.contains(&true)
    }

    /// Where the encoder's tables lie in the start.
    pub(super) fn tables_at(&self) -> u64 {
        (self.layout.static_bytes + self.layout.dynamic_bytes).next_multiple_of(16)
    }

    /// Where everything lies in the frame.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes that the frame's buffer needs. How many of them are used stands in the frame: [`Layout::dense_bytes`] and 4
    /// for each of the words in the dynamic part.
    pub fn max_frame_bytes(&self) -> u64 {
        self.layout.max_frame_bytes
    }

    /// Bytes that the workspace needs. One workspace serves any number of calls on one stream, one after the other.
    pub fn workspace_bytes(&self) -> u64 {
        self.places.bytes
    }

    /// Makes a workspace ready: as [`EncodePlan::prepare`], with the address of [`EncodeWork::start`] in front.
    ///
    /// # Errors
    /// A misaligned address, what the queue says.
    ///
    /// # Safety
    /// As [`EncodePlan::encode`], for the memory of the queue.
    pub unsafe fn prepare(&self, queue: &dyn Queue, start: u64, workspace: u64) -> Result<()> {
        check_alignment("the workspace", workspace, 128)?;
        let orders = workspace + self.places.orders_at;
        let header = start + self.start.len() as u64 - Order::HEADER_BYTES;
        // SAFETY: by contract and by the layout.
        unsafe {
            queue.clear(orders, self.places.bytes - self.places.orders_at)?;
            for number in 0..self.layout.tensors.len() {
                queue.copy(orders + order_at(&self.layout, number), header, Order::HEADER_BYTES)?;
            }
        }
        Ok(())
    }

    /// Does the work: as [`EncodePlan::encode`], with the address of [`EncodeWork::start`] in front.
    ///
    /// # Errors
    /// A wrong number of inputs, a misaligned address, what the queue says.
    ///
    /// # Safety
    /// As [`EncodePlan::encode`], for the memory of the queue.
    pub unsafe fn run(
        &self,
        queue: &dyn Queue,
        start: u64,
        inputs: &[u64],
        frame: u64,
        workspace: u64,
    ) -> Result<()> {
        self.check(inputs, frame, workspace)?;
        let start_bytes = self.layout.static_bytes + self.layout.dynamic_bytes;
        // SAFETY: addresses and sizes by contract and by the layout.
        unsafe {
            if !self.starts_itself() {
                queue.copy(frame, start, start_bytes)?;
            }
            for &(at, bytes) in &self.gaps {
                queue.clear(frame + at, bytes)?;
            }
            for (number, &elements) in inputs.iter().enumerate() {
                let steps = self.steps(number, start, elements, frame, workspace);
                self.encode_tensor(queue, steps, start)?;
            }
            if !self.seals_itself() {
                let seal = steps::seal_frame(&self.layout, frame);
                queue.launch(&seal.launch()?)?;
            }
            Ok(())
        }
    }

    /// Says whether there are as many inputs as tensors, and all addresses are aligned.
    fn check(&self, inputs: &[u64], frame: u64, workspace: u64) -> Result<()> {
        let (expected, got) = (self.layout.tensors.len(), inputs.len());
        if expected != got {
            return Err(Error::Count { what: "inputs", expected, got });
        }
        check_alignment("the frame", frame, 128)?;
        check_alignment("the workspace", workspace, 128)?;
        check_tensors(&self.layout, "input", inputs)
    }

    /// Is the launch that encodes the last tensor the last thing that writes to the dynamic part?
    fn seals_itself(&self) -> bool {
        let flags = self.layout.flags;
        let last = self.layout.tensors.last();
        last.is_some_and(|last| last.scheme != Scheme::Stored && last.elements != 0)
            && !(flags.tensor_checksums || flags.chunk_checksums)
    }

    /// Is one launch all there is to do? Then it writes the start of the frame as well.
    fn starts_itself(&self) -> bool {
        self.layout.tensors.len() == 1 && !self.automatic[0] && self.seals_itself()
    }

    fn steps(&self, number: usize, start: u64, elements: u64, frame: u64, workspace: u64) -> Steps<'_> {
        let table = match self.automatic[number] {
            true => workspace + self.places.table_at(number),
            false => start + self.tables_at() + TABLE_BYTES * number as u64,
        };
        Steps { layout: &self.layout, number, frame, workspace, places: self.places, elements, table }
    }

    /// # Safety
    /// As [`EncodeWork::run`].
    unsafe fn encode_tensor(&self, queue: &dyn Queue, steps: Steps<'_>, start: u64) -> Result<()> {
        let tensor = steps.tensor();
        let seal = steps.number + 1 == self.layout.tensors.len() && self.seals_itself();
        let mut placing = Placing { seal, checksums: true, ..steps.placing() };
        if self.starts_itself() {
            // The frame says how many words are before its first tensor only when it is complete. They are 0.
            let zero = start + self.layout.static_bytes + DYNAMIC_BYTES;
            placing = Placing { prologue: start, start: zero, ..placing };
        }
        let run = |step: &dyn Step| {
            // SAFETY: by contract; the steps are those of this layout.
            unsafe { queue.launch(&step.launch()?) }
        };
        // SAFETY: by contract.
        unsafe {
            if tensor.scheme == Scheme::Stored {
                let at = steps.frame + tensor.planes[0].at;
                queue.copy(at, steps.elements, tensor.bytes)?;
                queue.copy(placing.end, placing.start, 8)?;
                if steps.wants_checksum() {
                    // Of the copy: an odd last byte has a zero byte behind it there.
                    run(&*Steps { elements: at, ..steps }.checksum()?)?;
                }
                return Ok(());
            }
            if self.automatic[steps.number] {
                queue.clear(steps.workspace + steps.places.counts_at, COUNTS_BYTES)?;
                let samples = tensor.chunks.min(SAMPLED_CHUNKS);
                run(&*steps.histogram(samples, samples)?)?;
                run(&steps.pick())?;
            }
            if tensor.elements == 0 {
                return queue.copy(placing.end, placing.start, 8);
            }
            let summed = steps.summed_groups();
            if tensor.bases == Bases::Channel && summed != tensor.groups {
                run(&*steps.bases(summed)?)?;
            }
            run(&*steps.encode(placing)?)
        }
    }
}

pub(super) fn check_alignment(what: &str, address: u64, align: u64) -> Result<()> {
    if address.is_multiple_of(align) {
        return Ok(());
    }
    Err(Error::Device {
        what: format!("{what} is at {address:#x}"),
        reason: format!("it must be a multiple of {align}"),
    })
}

/// Kernels move 16 bytes at a time. All tensors are checked before anything is queued.
fn check_tensors(layout: &Layout, what: &str, addresses: &[u64]) -> Result<()> {
    for (number, (tensor, &address)) in layout.tensors.iter().zip(addresses).enumerate() {
        if tensor.bytes != 0 && tensor.scheme != Scheme::Stored {
            check_alignment(&format!("{what} {number}"), address, 16)?;
        }
    }
    Ok(())
}
