//! Decoding on device memory.

use super::super::pointers::{Buffer, check};
use super::super::{Cuda, StreamHandle};
use super::{Functions, Queue, Stream, check_alignment, check_tensors};
use crate::format::{Layout, TensorLayout};
use crate::steps::{Decoding, Steps};
use crate::workspace::Workspace;
use crate::{Error, FrameSpec, Result, Scheme, steps};
use splitzip_kernels::launch::Entry;
use splitzip_kernels::tile::TAIL_BYTES;

/// How to decode frames of one description on a device.
pub struct DecodePlan {
    cuda: Cuda,
    work: DecodeWork,
    functions: Functions,
}

impl DecodePlan {
    pub(in crate::cuda) fn new(cuda: &Cuda, spec: &FrameSpec) -> Result<DecodePlan> {
        cuda.bind()?;
        let work = DecodeWork::new("cuda", spec)?;
        let functions = Functions::load(cuda, work.entries())?;
        Ok(DecodePlan { cuda: cuda.clone(), work, functions })
    }

    /// Where everything lies in the frame.
    pub fn layout(&self) -> &Layout {
        &self.work.layout
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
    /// A wrong number of outputs, an address that is misaligned or not that of enough memory of the device, buffers that overlap, a frame shorter than its dense part, an error of
    /// the driver.
    ///
    /// # Safety
    /// As [`EncodePlan::encode`](crate::cuda::EncodePlan::encode).
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
        let stream = Stream::of(&self.cuda, &self.functions, stream)?;
        self.work.check(frame, frame_bytes, outputs, workspace)?;
        let tensors = self.layout().tensors.iter().zip(outputs).enumerate();
        let output = |(number, (tensor, &address)): (usize, (&TensorLayout, &u64))| {
            Buffer::written("output", address, tensor.bytes).number(number)
        };
        let mut buffers: Vec<Buffer> = tensors.map(output).collect();
        buffers.push(Buffer::read("the frame", frame, frame_bytes));
        buffers.push(Buffer::written("the workspace", workspace, self.workspace_bytes()));
        buffers.push(Buffer::written("the status", status, 4));
        if sums != 0 {
            buffers.push(Buffer::written("the sums", sums, 8 * outputs.len() as u64));
        }
        check(&self.cuda, &buffers)?;
        // SAFETY: by contract.
        unsafe { self.work.run(&stream, frame, frame_bytes, outputs, workspace, status, sums) }
    }
}

/// What decoding frames of one description does, on whatever runs it.
#[doc(hidden)]
pub struct DecodeWork {
    layout: Layout,
    entries: Vec<&'static Entry>,
}

impl DecodeWork {
    /// The work of the executor with this name.
    ///
    /// # Errors
    /// As [`Cuda::plan_decode`].
    pub fn new(executor: &str, spec: &FrameSpec) -> Result<DecodeWork> {
        let layout = spec.layout()?;
        layout.tensors.iter().try_for_each(|tensor| steps::check_member(executor, tensor))?;
        let mut entries = Vec::new();
        for number in 0..layout.tensors.len() {
            let places = Workspace::tail_only();
            let steps =
                Steps { layout: &layout, number, frame: 0, workspace: 0, places, elements: 0, table: 0 };
            entries.push(match steps.tensor().scheme {
                Scheme::Stored => steps.checksum()?.entry(),
                _ => steps.decode(Decoding::default())?.entry(),
            });
        }
        Ok(DecodeWork { layout, entries })
    }

    /// The kernels that may be launched.
    pub fn entries(&self) -> &[&'static Entry] {
        &self.entries
    }

    /// Where everything lies in the frame.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes that the workspace needs.
    pub fn workspace_bytes(&self) -> u64 {
        TAIL_BYTES
    }

    /// Says whether there are as many outputs as tensors, all addresses are aligned, and the frame is not too short.
    fn check(&self, frame: u64, frame_bytes: u64, outputs: &[u64], workspace: u64) -> Result<()> {
        let (expected, got) = (self.layout.tensors.len(), outputs.len());
        if expected != got {
            return Err(Error::Count { what: "outputs", expected, got });
        }
        check_alignment("the frame", frame, 128)?;
        check_alignment("the workspace", workspace, 128)?;
        check_tensors(&self.layout, "output", outputs)?;
        if frame_bytes < self.layout.dense_bytes {
            let what = "the frame (its dense part at least)".to_owned();
            return Err(Error::BufferSize { what, expected: self.layout.dense_bytes, got: frame_bytes });
        }
        Ok(())
    }

    /// Does the work: as [`DecodePlan::decode`].
    ///
    /// # Errors
    /// A wrong number of outputs, a misaligned address, a frame shorter than its dense part, what the queue says.
    ///
    /// # Safety
    /// As [`EncodeWork::run`].
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn run(
        &self,
        queue: &dyn Queue,
        frame: u64,
        frame_bytes: u64,
        outputs: &[u64],
        workspace: u64,
        status: u64,
        sums: u64,
    ) -> Result<()> {
        self.check(frame, frame_bytes, outputs, workspace)?;
        let words = (frame_bytes - self.layout.dense_bytes) / 4;
        let places = Workspace::tail_only();
        for (number, &elements) in outputs.iter().enumerate() {
            let steps = Steps { layout: &self.layout, number, frame, workspace, places, elements, table: 0 };
            let tensor = steps.tensor();
            let sum = if sums == 0 { 0 } else { sums + 8 * number as u64 };
            // SAFETY: by contract.
            unsafe {
                if tensor.scheme == Scheme::Stored {
                    queue.copy(elements, frame + tensor.planes[0].at, tensor.bytes)?;
                    steps.sum_of_stored(sum)?.map_or(Ok(()), |step| queue.launch(&step.launch()?))?;
                } else if tensor.elements != 0 {
                    queue.launch(&steps.decode(Decoding { words, status, sum })?.launch()?)?;
                }
            }
        }
        Ok(())
    }
}
