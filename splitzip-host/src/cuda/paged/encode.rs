//! Encoding from pages.

use super::super::plan::{EncodeWork, Functions, Queue, Stream, check_alignment};
use super::super::pointers::{Buffer, check};
use super::super::{Cuda, DeviceBytes, StreamHandle};
use super::{DevicePool, Launches, Over, Room, check_pools, is_one_member, no_member, pool_of};
use crate::batch::{
    Batch, BatchPlacing, BatchStep, IdArrays, PIECE, PlanMemory, begin_frame, has_batch_member, in_frame,
    in_pages, order_bytes, stored,
};
use crate::format::{CHUNK, DYNAMIC_BYTES, GROUP, Layout, TensorLayout};
use crate::paged::{PageIds, Paged};
use crate::steps::{self, Step, Steps, sums_wanted};
use crate::workspace::Workspace;
use crate::{Bases, CodebookChoice, Error, FrameSpec, Result, Scheme};
use splitzip_kernels::launch::Entry;
use splitzip_kernels::tile::{GroupSums, Order, PIECES_BYTES, TAIL_BYTES};

/// How to encode the pages of a request on a device.
pub struct EncodePagedPlan {
    cuda: Cuda,
    work: EncodePagedWork,
    functions: Functions,
    memory: DeviceBytes,
}

impl EncodePagedPlan {
    pub(in crate::cuda) fn new(
        cuda: &Cuda,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        from: &Paged<'_>,
        pools: &[DevicePool],
    ) -> Result<EncodePagedPlan> {
        cuda.bind()?;
        check(cuda, &DevicePool::buffers(pools))?;
        let work = EncodePagedWork::new("cuda", spec, codebooks, from, pools, cuda.info().multiprocessors)?;
        let functions = Functions::load(cuda, &work.entries)?;
        let memory = cuda.upload_at(work.memory_bytes(), |address| work.memory(address))?;
        Ok(EncodePagedPlan { cuda: cuda.clone(), work, functions, memory })
    }

    /// Where everything lies in the frame.
    pub fn layout(&self) -> &Layout {
        self.work.layout()
    }

    /// Bytes that the frame's buffer needs: as [`EncodePlan::max_frame_bytes`](crate::cuda::EncodePlan::max_frame_bytes).
    pub fn max_frame_bytes(&self) -> u64 {
        self.layout().max_frame_bytes
    }

    /// Bytes that the workspace needs. One workspace serves any number of calls on one stream, one after the other.
    pub fn workspace_bytes(&self) -> u64 {
        self.work.workspace_bytes
    }

    /// How many kernels a call launches.
    pub fn launches(&self) -> usize {
        self.work.launches()
    }

    /// Queues what makes a workspace ready for this plan: once, before the first call with it. Encoding leaves it ready for the next one.
    ///
    /// # Errors
    /// A misaligned address, an error of the driver.
    ///
    /// # Safety
    /// As [`EncodePagedPlan::encode`].
    pub unsafe fn prepare(&self, stream: StreamHandle, workspace: u64) -> Result<()> {
        let stream = Stream::of(&self.cuda, &self.functions, stream)?;
        check(&self.cuda, &[Buffer::written("the workspace", workspace, self.workspace_bytes())])?;
        // SAFETY: by contract; the plan owns its memory.
        unsafe { self.work.prepare(&stream, self.memory.address(), workspace) }
    }

    /// Queues the encoding of the pages into a frame on a stream and returns. The workspace was [prepared](EncodePagedPlan::prepare) for this plan.
    ///
    /// `frame` and `workspace` are device addresses of [`EncodePagedPlan::max_frame_bytes`] and [`EncodePagedPlan::workspace_bytes`] bytes, multiples of
    /// 128. If a page number in device memory is none of its pool, the frame is not sealed, and nobody takes it for one.
    ///
    /// # Errors
    /// A misaligned address, an error of the driver.
    ///
    /// # Safety
    /// The addresses, and those of the pools and page numbers that the plan was made with, are valid on the device of the plan and written by nobody else until the
    /// work has run; the plan lives until then; the stream belongs to the plan's context.
    pub unsafe fn encode(&self, stream: StreamHandle, frame: u64, workspace: u64) -> Result<()> {
        let stream = Stream::of(&self.cuda, &self.functions, stream)?;
        let buffers = [
            Buffer::written("the frame", frame, self.max_frame_bytes()),
            Buffer::written("the workspace", workspace, self.workspace_bytes()),
        ];
        check(&self.cuda, &buffers)?;
        // SAFETY: by contract; the plan owns its memory.
        unsafe { self.work.run(&stream, self.memory.address(), frame, workspace) }
    }
}

/// What encoding the pages of a request does, on whatever runs it.
#[doc(hidden)]
pub struct EncodePagedWork {
    inner: EncodeWork,
    memory: PlanMemory,
    entries: Vec<&'static Entry>,
    workspace_bytes: u64,
    way: EncodeWay,
}

enum EncodeWay {
    /// From the pages into the frame.
    Fused { gaps_at: u64, gap_count: u64, stored: Stored, launches: Vec<EncodeLaunch>, orders_at: u64 },
    /// By way of the workspace: where the elements of each tensor go there.
    Gathered { copied: Over, elements: Vec<u64>, status_at: u64 },
}

/// Tensors that are stored as they are.
struct Stored {
    copied: Option<Over>,
    /// Those that get checksums: of the copies in the frame, one after the other,
    summed: Vec<usize>,
    /// with this place in the workspace, of [`SUMMING_BYTES`].
    summed_at: u64,
}

/// What adding up checksums of a stored tensor takes: planes of a short chunk, and a sum that nobody wants.
const SUMMING_BYTES: u64 = TAIL_BYTES + 8;

#[derive(Clone, Copy)]
struct EncodeLaunch {
    over: Over,
    order_at: u64,
    /// Where in the workspace it says how many words are before.
    start_at: u64,
    /// Where it says how many are behind.
    end: Kept,
    behind: (u64, u64),
}

/// An offset in the frame, or in the workspace.
#[derive(Clone, Copy)]
enum Kept {
    Frame(u64),
    Workspace(u64),
}

impl Kept {
    fn address(self, frame: u64, workspace: u64) -> u64 {
        match self {
            Kept::Frame(at) => frame + at,
            Kept::Workspace(at) => workspace + at,
        }
    }
}

impl EncodePagedWork {
    /// The work of the executor with this name, on a device with so many multiprocessors.
    ///
    /// # Errors
    /// As [`Cuda::plan_encode_paged`].
    pub fn new(
        executor: &str,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        from: &Paged<'_>,
        pools: &[DevicePool],
        multiprocessors: u32,
    ) -> Result<EncodePagedWork> {
        from.check_spec(spec)?;
        check_pools(from, pools, false)?;
        EncodePagedWork::of_checked(executor, spec, codebooks, from, pools, multiprocessors)
    }

    /// The same for pages of which the pools are known to have all.
    pub(in crate::cuda) fn of_checked(
        executor: &str,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        from: &Paged<'_>,
        pools: &[DevicePool],
        multiprocessors: u32,
    ) -> Result<EncodePagedWork> {
        let inner = EncodeWork::new(executor, spec, codebooks)?;
        let memory = PlanMemory::starting_with(inner.start());
        let copied = Over { tensor: 0, batch_at: 0, groups: 0 };
        let way = EncodeWay::Gathered { copied, elements: Vec::new(), status_at: 0 };
        let mut work = EncodePagedWork { inner, memory, entries: Vec::new(), workspace_bytes: 0, way };
        match work.is_fused() {
            true => work.fuse(from, pools, multiprocessors)?,
            false => work.gather(from, pools)?,
        }
        Ok(work)
    }

    /// Can the kernels over batches do it?
    fn is_fused(&self) -> bool {
        let coded = |tensor: &TensorLayout| {
            let summed = GroupSums::takes(tensor.channels as u32)
                && tensor.elements.is_multiple_of((CHUNK * GROUP) as u64);
            has_batch_member(tensor) && (tensor.bases == Bases::Chunk || summed)
        };
        !self.inner.is_automatic()
            && self
                .layout()
                .tensors
                .iter()
                .all(|tensor| tensor.scheme == Scheme::Stored || tensor.elements == 0 || coded(tensor))
    }

    fn fuse(&mut self, from: &Paged<'_>, pools: &[DevicePool], multiprocessors: u32) -> Result<()> {
        let EncodePagedWork { inner, memory, entries, .. } = self;
        let layout = inner.layout();
        let gaps_at = memory.align(16);
        let gaps = layout.gaps();
        memory.bytes.extend(gaps.iter().flat_map(|&(at, bytes)| [at, bytes]).flat_map(u64::to_le_bytes));
        entries.push(begin_frame(layout, 0, 0, 0, 1).entry());

        // What follows each other of one member is one launch.
        let (mut copied, mut batches, mut summed) =
            (Batch::default(), Vec::<(usize, Batch)>::new(), Vec::new());
        let (mut ids, mut tails, mut without_words) = (IdArrays::default(), Room::default(), 0);
        for (number, (tensor, of)) in layout.tensors.iter().zip(from.tensors()).enumerate() {
            if tensor.bytes == 0 {
                continue;
            }
            let (ids, pool) = (ids.place(&of.ids(), memory), pool_of(pools, of));
            if tensor.scheme == Scheme::Stored {
                if sums_wanted(layout.flags) != 0 {
                    summed.push(number);
                    entries.push(stored_steps(layout, number, 0, 0, 0).checksum()?.entry());
                }
                let place = in_pages(of, 0..tensor.bytes, pool, ids, PIECE)?;
                copied.push(stored(place, tensor.bytes, tensor.planes[0].at), ids, PIECE);
                continue;
            }
            let place = in_pages(of, 0..tensor.bytes, pool, ids, tensor.chunk_bytes())?;
            let mut described = in_frame(place, layout, number, inner.tables_at());
            described.tail = tails.tail(tensor);
            if !layout.flags.arrival {
                described.words_at = words_at(layout, without_words);
                described.words_places = (number + 1 - without_words) as u64;
            }
            without_words = number + 1;
            match batches.last_mut() {
                Some((first, batch)) if is_one_member(&layout.tensors[*first], tensor) => {
                    batch.push(described, ids, tensor.chunk_bytes());
                }
                _ => {
                    let mut batch = Batch::default();
                    batch.push(described, ids, tensor.chunk_bytes());
                    batches.push((number, batch));
                }
            }
        }

        // In the workspace: chunks that are copied together, short chunks, orders.
        let mut room = Room::default();
        let mut pieces = 0;
        for (first, batch) in &batches {
            let entry = encode_step(layout, *first, batch.groups())?.entry();
            entries.push(entry);
            let blocks = u64::from(multiprocessors) * u64::from(entry.min_blocks);
            pieces = pieces.max(blocks.min(batch.groups()) * u64::from(entry.warps) * PIECES_BYTES);
        }
        room.take(pieces);
        let summed_at = room.take(if summed.is_empty() { 0 } else { SUMMING_BYTES });
        let tails_at = room.take(tails.0);
        let orders_at = room.take(0);
        let mut launches: Vec<EncodeLaunch> = Vec::with_capacity(batches.len());
        for (first, mut batch) in batches {
            batch.move_tails(tails_at);
            let over = Over::new(first, &batch, memory);
            let order_at = room.take(order_bytes(over.groups));
            // Where no launch is before, it stays 0: no words are before the first tensor.
            let start_at = order_at + Order::SPARE;
            if let Some(before) = launches.last_mut() {
                before.end = Kept::Workspace(start_at);
            }
            let end = Kept::Frame(layout.words_at());
            launches.push(EncodeLaunch { over, order_at, start_at, end, behind: (0, 0) });
        }
        if let Some(last) = launches.last_mut()
            && !layout.flags.arrival
        {
            last.behind = (words_at(layout, without_words), (layout.tensors.len() - without_words) as u64);
        }
        let copied = (copied.groups() != 0).then(|| Over::new(0, &copied, memory));
        if let Some(over) = &copied {
            entries.push(over.step(0, 0, 0, 0).copy(true).entry());
        }
        entries.push(steps::seal_frame(layout, 0).entry());
        self.workspace_bytes = room.0;
        let gap_count = gaps.len() as u64;
        let stored = Stored { copied, summed, summed_at };
        self.way = EncodeWay::Fused { gaps_at, gap_count, stored, launches, orders_at };
        Ok(())
    }

    fn gather(&mut self, from: &Paged<'_>, pools: &[DevicePool]) -> Result<()> {
        let EncodePagedWork { inner, memory, entries, .. } = self;
        let layout = inner.layout();
        if let Some(of) = from.tensors().iter().find(|of| matches!(of.ids(), PageIds::Device { .. })) {
            return Err(Error::Unsupported {
                executor: "cuda".to_owned(),
                what: format!(
                    "page numbers in device memory (tensor {:?}) with a codebook from a sample, channel bases of a part of a group, or a member \
                     without kernels over batches",
                    of.form().name
                ),
                instead: "cuda with page numbers in host memory".to_owned(),
            });
        }
        let (mut copied, mut ids, mut room) = (Batch::default(), IdArrays::default(), Room::default());
        room.take(inner.workspace_bytes());
        let status_at = room.take(8);
        let mut elements = Vec::with_capacity(layout.tensors.len());
        for (tensor, of) in layout.tensors.iter().zip(from.tensors()) {
            let at = room.take(tensor.bytes);
            elements.push(at);
            if tensor.bytes != 0 {
                let (ids, pool) = (ids.place(&of.ids(), memory), pool_of(pools, of));
                let place = in_pages(of, 0..tensor.bytes, pool, ids, PIECE)?;
                copied.push(stored(place, tensor.bytes, at), ids, PIECE);
            }
        }
        entries.extend(inner.entries());
        let copied = Over::new(0, &copied, memory);
        entries.push(copied.step(0, 0, 0, 0).copy(true).entry());
        self.workspace_bytes = room.0;
        self.way = EncodeWay::Gathered { copied, elements, status_at };
        Ok(())
    }

    /// The kernels that may be launched.
    pub fn entries(&self) -> &[&'static Entry] {
        &self.entries
    }

    /// Where everything lies in the frame.
    pub fn layout(&self) -> &Layout {
        self.inner.layout()
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

    /// Makes a workspace ready: as [`EncodePagedPlan::prepare`], with the address of the memory of the plan in front.
    ///
    /// # Errors
    /// A misaligned address, what the queue says.
    ///
    /// # Safety
    /// As [`EncodePagedPlan::encode`], for the memory of the queue.
    pub unsafe fn prepare(&self, queue: &dyn Queue, memory: u64, workspace: u64) -> Result<()> {
        check_alignment("the workspace", workspace, 128)?;
        // SAFETY: by contract and by the layout.
        unsafe {
            match &self.way {
                EncodeWay::Gathered { .. } => self.inner.prepare(queue, memory, workspace),
                EncodeWay::Fused { launches, orders_at, .. } => {
                    queue.clear(workspace + orders_at, self.workspace_bytes - orders_at)?;
                    let header = memory + self.inner.start().len() as u64 - Order::HEADER_BYTES;
                    for launch in launches {
                        queue.copy(workspace + launch.order_at, header, Order::HEADER_BYTES)?;
                    }
                    Ok(())
                }
            }
        }
    }

    /// Does the work: as [`EncodePagedPlan::encode`], with the address of the memory of the plan in front.
    ///
    /// # Errors
    /// A misaligned address, what the queue says.
    ///
    /// # Safety
    /// As [`EncodePagedPlan::encode`], for the memory of the queue.
    pub unsafe fn run(&self, queue: &dyn Queue, memory: u64, frame: u64, workspace: u64) -> Result<()> {
        check_alignment("the frame", frame, 128)?;
        check_alignment("the workspace", workspace, 128)?;
        let layout = self.layout();
        // A check that is not zero when the frame is sealed: something went wrong.
        let failed = frame + layout.static_bytes + 12;
        let run = |step: &dyn Step| {
            // SAFETY: by contract; the steps are those of this layout.
            unsafe { queue.launch(&step.launch()?) }
        };
        match &self.way {
            EncodeWay::Gathered { copied, elements, status_at } => {
                if copied.groups != 0 {
                    let step = copied.step(memory, workspace, 0, workspace + status_at);
                    run(&step.copy(true))?;
                }
                let inputs: Vec<u64> = elements.iter().map(|at| workspace + at).collect();
                // SAFETY: by contract.
                unsafe { self.inner.run(queue, memory, &inputs, frame, workspace) }
            }
            EncodeWay::Fused { gaps_at, gap_count, stored, launches, .. } => {
                run(&begin_frame(layout, memory, frame, memory + gaps_at, *gap_count))?;
                if let Some(over) = stored.copied {
                    run(&over.step(memory, frame, workspace, failed).copy(true))?;
                }
                for &number in &stored.summed {
                    run(&*stored_steps(layout, number, frame, workspace, stored.summed_at).checksum()?)?;
                }
                for launch in launches {
                    let over = launch.over;
                    let step = BatchStep {
                        parts: frame + layout.dense_bytes,
                        // Behind the words of each tensor in the dynamic part.
                        sums: frame + words_at(layout, 0) + 8,
                        ..over.step(memory, frame, workspace, failed)
                    };
                    let placing = BatchPlacing {
                        order: workspace + launch.order_at,
                        start: workspace + launch.start_at,
                        end: launch.end.address(frame, workspace),
                        behind: launch.behind,
                        sums_wanted: sums_wanted(layout.flags),
                    };
                    run(&*step.encode(&layout.tensors[over.tensor], placing).ok_or_else(no_member)?)?;
                }
                run(&steps::seal_frame(layout, frame))
            }
        }
    }

    /// How many kernels a call launches.
    pub fn launches(&self) -> usize {
        let queue = Launches::default();
        // SAFETY: nothing is run.
        let _ = unsafe { self.run(&queue, 0, 0, 0) };
        queue.0.get()
    }
}

/// Where a frame says how many words are before a tensor.
fn words_at(layout: &Layout, number: usize) -> u64 {
    layout.static_bytes + DYNAMIC_BYTES * (1 + number as u64)
}

/// The steps of a stored tensor, whose elements are already in the frame.
fn stored_steps(layout: &Layout, number: usize, frame: u64, workspace: u64, summed_at: u64) -> Steps<'_> {
    let places =
        Workspace { tail_at: summed_at, counts_at: summed_at + TAIL_BYTES, ..Workspace::tail_only() };
    let elements = frame + layout.tensors[number].planes[0].at;
    Steps { layout, number, frame, workspace, places, elements, table: 0 }
}

/// The step that encodes tensors like this one, without addresses.
fn encode_step(layout: &Layout, number: usize, groups: u64) -> Result<Box<dyn Step>> {
    let nothing =
        BatchStep { batch: 0, groups, frame: 0, workspace: 0, parts: 0, words: 0, status: 0, sums: 0 };
    let placing = BatchPlacing { order: 0, start: 0, end: 0, behind: (0, 0), sums_wanted: 0 };
    nothing.encode(&layout.tensors[number], placing).ok_or_else(no_member)
}
