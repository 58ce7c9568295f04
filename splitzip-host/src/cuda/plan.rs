//! Encoding and decoding on device memory: asynchronous, on any stream, without host synchronisation, allocation or read-back.
//!
//! A plan does once what needs the host: it lays out the frame, uploads its static part and the tables, and loads the kernels. Then it can be
//! used any number of times, also while a stream is captured into a graph.

use super::kernels::Function;
use super::{Cuda, DeviceBytes, StreamHandle, driver_error};
use crate::format::{DYNAMIC_BYTES, Layout, write};
use crate::steps::{self, Step, Steps, TABLE_BYTES, Workspace};
use crate::{Bases, CodebookChoice, Error, FrameSpec, Result, SAMPLED_CHUNKS, Scheme};
use cudarc::driver::result;
use splitzip_kernels::scheme::encode_table;
use splitzip_kernels::tile::TAIL_BYTES;
use std::collections::HashMap;

/// The kernels of a plan, by their entries: loaded when the plan is made, since a stream that is being captured cannot load any.
#[derive(Default)]
struct Functions(HashMap<&'static str, Function>);

impl Functions {
    fn load(&mut self, cuda: &Cuda, step: &dyn Step) -> Result<()> {
        let entry = step.entry().name;
        self.0.insert(entry, cuda.kernels.function(entry)?);
        Ok(())
    }

    /// # Safety
    /// The addresses in the step are valid on the device until it has run.
    unsafe fn launch(&self, step: &dyn Step, stream: StreamHandle) -> Result<()> {
        let launch = step.launch()?;
        let function = self.0.get(launch.entry.name);
        let function = function.ok_or_else(|| Error::Device {
            what: launch.entry.name.to_owned(),
            reason: "the plan has not loaded this kernel".to_owned(),
        })?;
        // SAFETY: by contract; the function is that of the entry.
        unsafe { function.launch(&launch, stream) }
    }
}

/// How to encode frames of one description on a device.
pub struct EncodePlan {
    cuda: Cuda,
    layout: Layout,
    places: Workspace,
    functions: Functions,
    /// Programs that count a sample together.
    automatic: Vec<bool>,
    /// What a frame starts with: the static part and a dynamic part with the given codebooks; behind it the tables.
    start: DeviceBytes,
    gaps: Vec<(u64, u64)>,
}

impl EncodePlan {
    pub(super) fn new(cuda: &Cuda, spec: &FrameSpec, codebooks: &[CodebookChoice]) -> Result<EncodePlan> {
        let layout = spec.layout()?;
        layout.tensors.iter().try_for_each(|tensor| steps::check_member("cuda", tensor))?;
        if !codebooks.is_empty() && codebooks.len() != layout.tensors.len() {
            return Err(Error::Count {
                what: "codebooks",
                expected: layout.tensors.len(),
                got: codebooks.len(),
            });
        }
        cuda.bind()?;
        let (mut functions, places) = (Functions::default(), Workspace::of(&layout));
        for number in 0..layout.tensors.len() {
            let steps =
                Steps { layout: &layout, number, frame: 0, workspace: 0, places, elements: 0, table: 0 };
            functions.load(cuda, &*steps.checksum()?)?;
            if steps.tensor().scheme != Scheme::Stored {
                functions.load(cuda, &*steps.histogram(0, 0)?)?;
                functions.load(cuda, &steps.pick())?;
                functions.load(cuda, &*steps.bases()?)?;
                functions.load(cuda, &*steps.encode()?)?;
                functions.load(cuda, &steps.place())?;
            }
        }
        functions.load(cuda, &steps::seal_frame(&layout, 0, 0))?;
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
        let start = cuda.upload(&start)?;
        let gaps = steps::gaps(&layout);
        Ok(EncodePlan { cuda: cuda.clone(), layout, places, functions, automatic, start, gaps })
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

    /// Queues the encoding of a frame on a stream and returns.
    ///
    /// `inputs` are device addresses of the raw bytes of each tensor, `frame` and `workspace` device addresses of
    /// [`EncodePlan::max_frame_bytes`] and [`EncodePlan::workspace_bytes`]. Inputs are multiples of 16, the others of 128.
    ///
    /// # Errors
    /// A wrong number of inputs, a misaligned address, an error of the driver.
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
        if inputs.len() != self.layout.tensors.len() {
            return Err(Error::Count {
                what: "inputs",
                expected: self.layout.tensors.len(),
                got: inputs.len(),
            });
        }
        check_alignment("the frame", frame, 128)?;
        check_alignment("the workspace", workspace, 128)?;
        check_tensors(&self.layout, "input", inputs)?;
        self.cuda.bind()?;
        let start_bytes = (self.layout.static_bytes + self.layout.dynamic_bytes) as usize;
        // SAFETY: addresses and sizes by contract and by the layout.
        unsafe {
            copy(frame, self.start.address(), start_bytes, stream)?;
            for &(at, bytes) in &self.gaps {
                clear(frame + at, bytes as usize, stream)?;
            }
            for (number, &elements) in inputs.iter().enumerate() {
                self.encode_tensor(stream, self.steps(number, elements, frame, workspace))?;
            }
            let seal = steps::seal_frame(&self.layout, frame, workspace + self.places.tail_at);
            self.functions.launch(&seal, stream)
        }
    }

    fn steps(&self, number: usize, elements: u64, frame: u64, workspace: u64) -> Steps<'_> {
        let table = match self.automatic[number] {
            true => workspace + self.places.table_at(number),
            false => {
                let start = (self.layout.static_bytes + self.layout.dynamic_bytes).next_multiple_of(16);
                self.start.address() + start + TABLE_BYTES * number as u64
            }
        };
        Steps { layout: &self.layout, number, frame, workspace, places: self.places, elements, table }
    }

    /// # Safety
    /// As [`EncodePlan::encode`].
    unsafe fn encode_tensor(&self, stream: StreamHandle, steps: Steps<'_>) -> Result<()> {
        let tensor = steps.tensor();
        let run = |step: &dyn Step| {
            // SAFETY: by contract; the steps are those of this layout.
            unsafe { self.functions.launch(step, stream) }
        };
        // SAFETY: by contract.
        unsafe {
            if tensor.scheme == Scheme::Stored {
                let at = steps.frame + tensor.planes[0].at;
                copy(at, steps.elements, tensor.bytes as usize, stream)?;
                copy(steps.end_address(), steps.start_address(), 8, stream)?;
                if steps.wants_checksum() {
                    // Of the copy: an odd last byte has a zero byte behind it there.
                    run(&*Steps { elements: at, ..steps }.checksum()?)?;
                }
                return Ok(());
            }
            clear(steps.workspace + steps.places.counts_at, Workspace::zeroed(tensor) as usize, stream)?;
            if self.automatic[steps.number] {
                let samples = tensor.chunks.min(SAMPLED_CHUNKS);
                run(&*steps.histogram(samples, samples)?)?;
                run(&steps.pick())?;
            }
            if tensor.elements == 0 {
                return copy(steps.end_address(), steps.start_address(), 8, stream);
            }
            if tensor.bases == Bases::Channel {
                run(&*steps.bases()?)?;
            }
            run(&*steps.encode()?)?;
            run(&steps.place())?;
            if steps.wants_checksum() {
                run(&*steps.checksum()?)?;
            }
        }
        Ok(())
    }
}

/// How to decode frames of one description on a device.
pub struct DecodePlan {
    cuda: Cuda,
    layout: Layout,
    functions: Functions,
}

impl DecodePlan {
    pub(super) fn new(cuda: &Cuda, spec: &FrameSpec) -> Result<DecodePlan> {
        let layout = spec.layout()?;
        layout.tensors.iter().try_for_each(|tensor| steps::check_member("cuda", tensor))?;
        cuda.bind()?;
        let mut functions = Functions::default();
        for number in 0..layout.tensors.len() {
            let places = Workspace::tail_only();
            let steps =
                Steps { layout: &layout, number, frame: 0, workspace: 0, places, elements: 0, table: 0 };
            functions.load(cuda, &*steps.checksum()?)?;
            if steps.tensor().scheme != Scheme::Stored {
                functions.load(cuda, &*steps.decode(0, 0)?)?;
            }
        }
        Ok(DecodePlan { cuda: cuda.clone(), layout, functions })
    }

    /// Where everything lies in the frame.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes that the workspace needs.
    pub fn workspace_bytes(&self) -> u64 {
        TAIL_BYTES
    }

    /// Queues the decoding of a frame on a stream and returns.
    ///
    /// `frame` is the device address of a frame of `frame_bytes` bytes (or a buffer of which the frame is the start: nothing behind
    /// `frame_bytes` is read). `outputs` are device addresses for the raw bytes of each tensor; `status` of a word that
    /// is 0 before, and after it unless the frame is damaged (its bits are then of no use, but no other memory was
    /// touched). `sums`, if not 0, is the address of 8 bytes a tensor, 0 before, to which checksums of the decoded bits are added.
    ///
    /// # Errors
    /// A wrong number of outputs, a misaligned address, a frame shorter than its dense part, an error of the driver.
    ///
    /// # Safety
    /// As [`EncodePlan::encode`].
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn decode(
        &self,
        stream: StreamHandle,
        frame: u64,
        frame_bytes: u64,
        outputs: &[u64],
        workspace: u64,
        status: u64,
        sums: u64,
    ) -> Result<()> {
        if outputs.len() != self.layout.tensors.len() {
            return Err(Error::Count {
                what: "outputs",
                expected: self.layout.tensors.len(),
                got: outputs.len(),
            });
        }
        check_alignment("the frame", frame, 128)?;
        check_alignment("the workspace", workspace, 128)?;
        check_tensors(&self.layout, "output", outputs)?;
        if frame_bytes < self.layout.dense_bytes {
            let what = "the frame (its dense part at least)".to_owned();
            return Err(Error::BufferSize { what, expected: self.layout.dense_bytes, got: frame_bytes });
        }
        self.cuda.bind()?;
        let words = (frame_bytes - self.layout.dense_bytes) / 4;
        let places = Workspace::tail_only();
        for (number, &elements) in outputs.iter().enumerate() {
            let steps = Steps { layout: &self.layout, number, frame, workspace, places, elements, table: 0 };
            let tensor = steps.tensor();
            // SAFETY: by contract.
            unsafe {
                if tensor.scheme == Scheme::Stored {
                    copy(elements, frame + tensor.planes[0].at, tensor.bytes as usize, stream)?;
                } else if tensor.elements != 0 {
                    self.functions.launch(&*steps.decode(words, status)?, stream)?;
                }
                if sums != 0 && tensor.bytes != 0 {
                    // A stored tensor is read in the frame: an odd last byte has a zero byte behind it there.
                    let stored = tensor.scheme == Scheme::Stored;
                    let elements = if stored { frame + tensor.planes[0].at } else { elements };
                    let sum = sums + 8 * number as u64;
                    let checksum = Steps { elements, ..steps }.checksum_to(sum, false)?;
                    self.functions.launch(&*checksum, stream)?;
                }
            }
        }
        Ok(())
    }
}

fn check_alignment(what: &str, address: u64, align: u64) -> Result<()> {
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

/// # Safety
/// Both are valid for so many bytes.
unsafe fn copy(to: u64, from: u64, bytes: usize, stream: StreamHandle) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: by contract.
    unsafe { result::memcpy_dtod_async(to, from, bytes, stream.raw()) }
        .map_err(driver_error("copying on the device"))
}

/// # Safety
/// Valid for so many bytes.
unsafe fn clear(at: u64, bytes: usize, stream: StreamHandle) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: by contract.
    unsafe { result::memset_d8_async(at, 0, bytes, stream.raw()) }
        .map_err(driver_error("clearing device memory"))
}
