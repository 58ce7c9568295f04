//! Decoding into pages.

use super::super::plan::{Functions, Queue, Stream, check_alignment};
use super::super::pointers::{Buffer, check};
use super::super::{Cuda, DeviceBytes, StreamHandle};
use super::{DevicePool, Launches, Over, Room, check_pools, is_one_member, no_member, pool_of};
use crate::batch::{
    Batch, BatchStep, IdArrays, PIECE, PlanMemory, has_batch_member, in_frame, in_pages, stored,
};
use crate::format::Layout;
use crate::paged::Paged;
use crate::steps::{self, Decoding, Step, Steps};
use crate::workspace::Workspace;
use crate::{Error, FrameSpec, Result, Scheme};
use splitzip_kernels::launch::Entry;
use splitzip_kernels::tile::TAIL_BYTES;
use std::ops::Range;

/// How to decode frames of one description into the pages of a request.
pub struct DecodePagedPlan {
    cuda: Cuda,
    work: DecodePagedWork,
    functions: Functions,
    memory: DeviceBytes,
}

impl DecodePagedPlan {
    pub(in crate::cuda) fn new(
        cuda: &Cuda,
        spec: &FrameSpec,
        tokens: Option<Range<u64>>,
        to: &Paged<'_>,
        pools: &[DevicePool],
    ) -> Result<DecodePagedPlan> {
        cuda.bind()?;
        check(cuda, &DevicePool::buffers(pools))?;
        let work = DecodePagedWork::new("cuda", spec, tokens, to, pools)?;
        let functions = Functions::load(cuda, &work.entries)?;
        let memory = cuda.upload_at(work.memory_bytes(), |address| work.memory(address))?;
        Ok(DecodePagedPlan { cuda: cuda.clone(), work, functions, memory })
    }

    /// Where everything lies in the frame.
    pub fn layout(&self) -> &Layout {
        &self.work.layout
    }

    /// Bytes that the workspace needs.
    pub fn workspace_bytes(&self) -> u64 {
        self.work.workspace_bytes
    }

    /// How many kernels a call launches.
    pub fn launches(&self) -> usize {
        self.work.launches()
    }

    /// Numbers of the tensors of the frame that the request takes in whole.
    pub fn whole_tensors(&self) -> &[usize] {
        self.work.whole_tensors()
    }

    /// Are all tensors of which the request takes anything among the [`whole_tensors`](DecodePagedPlan::whole_tensors)?
    pub fn takes_whole_tensors(&self) -> bool {
        self.work.takes_whole_tensors()
    }

    /// Queues the decoding of a frame into its pages on a stream and returns. Bytes of the pools that are not those of wanted tokens are not touched.
    ///
    /// `frame` is the device address of a frame of `frame_bytes` bytes (or a buffer of which the frame is the start), `sums`, if not 0, that of 8 bytes a tensor of the
    /// frame, 0 before, to which checksums of what was decoded are added: those of the tensors are there for [`DecodePagedPlan::whole_tensors`], what is there for
    /// others is of no use. `status` is the address of a word that is 0 before, and after it unless the frame is damaged or a page number in device memory is none of its pool. Page numbers in device memory that are twice in a table are not
    /// found: their page has bytes of both.
    ///
    /// # Errors
    /// A misaligned address, a frame shorter than its dense part, an error of the driver.
    ///
    /// # Safety
    /// As [`EncodePagedPlan::encode`](super::EncodePagedPlan::encode), with pools that are written.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn decode(
        &self,
        stream: StreamHandle,
        frame: u64,
        frame_bytes: u64,
        workspace: u64,
        status: u64,
        sums: u64,
    ) -> Result<()> {
        let stream = Stream::of(&self.cuda, &self.functions, stream)?;
        let mut buffers = vec![
            Buffer::read("the frame", frame, frame_bytes),
            Buffer::written("the workspace", workspace, self.workspace_bytes()),
            Buffer::written("the status", status, 4),
        ];
        if sums != 0 {
            buffers.push(Buffer::written("the sums", sums, 8 * self.layout().tensors.len() as u64));
        }
        check(&self.cuda, &buffers)?;
        // SAFETY: by contract; the plan owns its memory.
        unsafe { self.work.run(&stream, self.memory.address(), frame, frame_bytes, workspace, status, sums) }
    }
}

/// What decoding into the pages of a request does, on whatever runs it.
#[doc(hidden)]
pub struct DecodePagedWork {
    layout: Layout,
    memory: PlanMemory,
    entries: Vec<&'static Entry>,
    workspace_bytes: u64,
    launches: Vec<Over>,
    /// Stored tensors.
    copied: Option<Over>,
    /// Tensors without a kernel over batches, and where in the workspace they are decoded to; then they are copied.
    through: Vec<(usize, u64)>,
    from_workspace: Option<Over>,
    /// Tensors of which all is wanted, and whether there are others of which something is.
    whole: Vec<usize>,
    takes_parts: bool,
    /// Those of the whole ones that are stored.
    whole_stored: Vec<usize>,
}

impl DecodePagedWork {
    /// The work of the executor with this name.
    ///
    /// # Errors
    /// As [`Cuda::plan_decode_paged`].
    pub fn new(
        executor: &str,
        spec: &FrameSpec,
        tokens: Option<Range<u64>>,
        to: &Paged<'_>,
        pools: &[DevicePool],
    ) -> Result<DecodePagedWork> {
        let pairs = to.pair(spec, tokens)?;
        check_pools(to, pools, true)?;
        DecodePagedWork::of_pairs(executor, spec, pairs, to, pools)
    }

    /// The same for pages of which the pools are known to have all, none of them twice; `pairs` are those of `to` and the frame.
    pub(in crate::cuda) fn of_pairs(
        executor: &str,
        spec: &FrameSpec,
        pairs: Vec<(usize, Range<u64>)>,
        to: &Paged<'_>,
        pools: &[DevicePool],
    ) -> Result<DecodePagedWork> {
        let layout = spec.layout()?;
        let (mut memory, mut ids, mut entries) = (PlanMemory::default(), IdArrays::default(), Vec::new());
        let mut room = Room::default();
        // One short chunk at a time of what is decoded tensor by tensor.
        room.take(TAIL_BYTES);
        let (mut stored_ones, mut through_ones, mut through) =
            (Batch::default(), Batch::default(), Vec::new());
        let mut batches: Vec<(usize, Batch)> = Vec::new();
        let (mut whole, mut whole_stored, mut takes_parts) = (Vec::new(), Vec::new(), false);
        for (of, (number, wanted)) in to.tensors().iter().zip(pairs) {
            let tensor = &layout.tensors[number];
            steps::check_member(executor, tensor)?;
            if wanted.is_empty() {
                continue;
            }
            let is_whole = wanted == (0..tensor.bytes);
            whole.extend(is_whole.then_some(number));
            takes_parts |= !is_whole;
            let (ids, pool) = (ids.place(&of.ids(), &mut memory), pool_of(pools, of));
            if has_batch_member(tensor) {
                let place = in_pages(of, wanted, pool, ids, tensor.chunk_bytes())?;
                let mut described = in_frame(place, &layout, number, 0);
                described.tail = room.tail(tensor);
                let found =
                    batches.iter_mut().find(|(first, _)| is_one_member(&layout.tensors[*first], tensor));
                match found {
                    Some((_, batch)) => batch.push(described, ids, tensor.chunk_bytes()),
                    None => {
                        let mut batch = Batch::default();
                        batch.push(described, ids, tensor.chunk_bytes());
                        batches.push((number, batch));
                    }
                }
                continue;
            }
            let place = in_pages(of, wanted, pool, ids, PIECE)?;
            if tensor.scheme == Scheme::Stored {
                whole_stored.extend(is_whole.then_some(number));
                stored_ones.push(stored(place, tensor.bytes, tensor.planes[0].at), ids, PIECE);
            } else {
                let at = room.take(tensor.bytes);
                through.push((number, at));
                through_ones.push(stored(place, tensor.bytes, at), ids, PIECE);
            }
        }
        let launches: Vec<Over> =
            batches.iter().map(|(first, batch)| Over::new(*first, batch, &mut memory)).collect();
        for over in &launches {
            let step = over.step(0, 0, 0, 0).decode(&layout.tensors[over.tensor]);
            entries.push(step.ok_or_else(no_member)?.entry());
        }
        let mut copies = |batch: &Batch| (batch.groups() != 0).then(|| Over::new(0, batch, &mut memory));
        let (copied, from_workspace) = (copies(&stored_ones), copies(&through_ones));
        if let Some(over) = copied.as_ref().or(from_workspace.as_ref()) {
            entries.push(over.step(0, 0, 0, 0).copy(false).entry());
        }
        let steps = |number| Steps {
            layout: &layout,
            number,
            frame: 0,
            workspace: 0,
            places: Workspace::tail_only(),
            elements: 0,
            table: 0,
        };
        for &number in &whole_stored {
            entries.push(steps(number).checksum()?.entry());
        }
        for &(number, _) in &through {
            entries.push(steps(number).decode(Decoding::default())?.entry());
        }
        let workspace_bytes = room.0;
        Ok(DecodePagedWork {
            layout,
            memory,
            entries,
            workspace_bytes,
            launches,
            copied,
            through,
            from_workspace,
            whole,
            takes_parts,
            whole_stored,
        })
    }

    /// The kernels that may be launched.
    pub fn entries(&self) -> &[&'static Entry] {
        &self.entries
    }

    /// Where everything lies in the frame.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// As [`DecodePagedPlan::whole_tensors`].
    pub fn whole_tensors(&self) -> &[usize] {
        &self.whole
    }

    /// As [`DecodePagedPlan::takes_whole_tensors`].
    pub fn takes_whole_tensors(&self) -> bool {
        !self.takes_parts
    }

    /// Bytes of the memory of the plan.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.bytes.len() as u64
    }

    /// What must be in the memory of the plan, which is at an address.
    pub fn memory(&self, address: u64) -> Vec<u8> {
        self.memory.at(address)
    }

    /// Bytes that the workspace needs.
    pub fn workspace_bytes(&self) -> u64 {
        self.workspace_bytes
    }

    /// Does the work: as [`DecodePagedPlan::decode`], with the address of the memory of the plan in front.
    ///
    /// # Errors
    /// A misaligned address, a frame shorter than its dense part, what the queue says.
    ///
    /// # Safety
    /// As [`DecodePagedPlan::decode`], for the memory of the queue.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn run(
        &self,
        queue: &dyn Queue,
        memory: u64,
        frame: u64,
        frame_bytes: u64,
        workspace: u64,
        status: u64,
        sums: u64,
    ) -> Result<()> {
        check_alignment("the frame", frame, 128)?;
        check_alignment("the workspace", workspace, 128)?;
        if frame_bytes < self.layout.dense_bytes {
            let what = "the frame (its dense part at least)".to_owned();
            return Err(Error::BufferSize { what, expected: self.layout.dense_bytes, got: frame_bytes });
        }
        let words = (frame_bytes - self.layout.dense_bytes) / 4;
        let run = |step: &dyn Step| {
            // SAFETY: by contract; the steps are those of this layout.
            unsafe { queue.launch(&step.launch()?) }
        };
        for over in &self.launches {
            let parts = frame + self.layout.dense_bytes;
            let step = BatchStep { parts, words, sums, ..over.step(memory, frame, workspace, status) };
            run(&*step.decode(&self.layout.tensors[over.tensor]).ok_or_else(no_member)?)?;
        }
        if let Some(over) = &self.copied {
            run(&over.step(memory, frame, workspace, status).copy(false))?;
        }
        let sum = |number: usize| if sums == 0 { 0 } else { sums + 8 * number as u64 };
        let steps = |number, elements| {
            let places = Workspace::tail_only();
            Steps { layout: &self.layout, number, frame, workspace, places, elements, table: 0 }
        };
        for &number in &self.whole_stored {
            steps(number, 0).sum_of_stored(sum(number))?.map_or(Ok(()), |step| run(&*step))?;
        }
        for &(number, at) in &self.through {
            let decoding = Decoding { words, status, sum: sum(number) };
            run(&*steps(number, workspace + at).decode(decoding)?)?;
        }
        if let Some(over) = &self.from_workspace {
            run(&over.step(memory, workspace, 0, status).copy(false))?;
        }
        Ok(())
    }

    /// How many kernels a call launches.
    pub fn launches(&self) -> usize {
        let queue = Launches::default();
        // SAFETY: nothing is run.
        let _ = unsafe { self.run(&queue, 0, 0, self.layout.dense_bytes, 0, 0, 0) };
        queue.0.get()
    }
}
