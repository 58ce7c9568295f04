//! The steps of encoding and decoding a tensor, with every address filled in.
//!
//! The CPU and the CUDA executor do the same things in the same order, on addresses of different machines. So the arguments
//! of the kernels are made here, once; the executors only differ in how they run them.

mod counting;

pub(crate) use counting::Counting;

use crate::format::{CHUNK, DYNAMIC_BYTES, Flags, GROUP, Layout, PlaneKind, RECORD_BYTES, TensorLayout};
use crate::workspace::{Workspace, order_at};
use crate::{Bases, Dtype, Error, Result, Scheme};
use splitzip_kernels::dtype;
use splitzip_kernels::kernels::{bases, checksum, decode, encode, encode_arrival, histogram, pick, seal};
use splitzip_kernels::launch::{
    Argument, ArgumentError, BlockForGroup, Chunks, Entry, Groups, Launch, OnMember, Programs, Queue, Source,
    Target,
};
use splitzip_kernels::scheme;
use splitzip_kernels::tile::{
    ChannelBases, ChannelBasesOut, GroupSums, Nothing, Order, SumsWanted, TAIL_BYTES, Table,
};
use std::ops::Range;

/// Bytes of the encoder's table of a codebook.
pub(crate) const TABLE_BYTES: u64 = 256;
/// Bytes of the counters of a histogram.
pub(crate) const COUNTS_BYTES: u64 = 2048;

/// Elements of a group.
const GROUP_ELEMENTS: u64 = (CHUNK * GROUP) as u64;

/// Memory that a step reads: whoever runs the step vouches for it.
pub(crate) fn source(address: u64, bytes: u64) -> Source<'static> {
    // SAFETY: by those who run the step.
    unsafe { Source::at(address, bytes) }
}

/// The same for memory that it writes.
pub(crate) fn target(address: u64, bytes: u64) -> Target<'static> {
    // SAFETY: by those who run the step.
    unsafe { Target::at(address, bytes) }
}

/// Arguments of some kernel, ready to be run or launched.
pub(crate) trait Step: Sync {
    /// What is run.
    fn entry(&self) -> &'static Entry;
    /// See `check` of the arguments.
    fn check(&self) -> Result<(), ArgumentError>;
    /// See `launch` of the arguments.
    fn launch(&self) -> Result<Launch, ArgumentError>;
    /// See `run` of the arguments.
    ///
    /// # Safety
    /// As there.
    unsafe fn run(&self, programs: Range<u64>);
}

macro_rules! steps {
    ($([$($generics:tt)*] $kernel:ident, $member:ty, $arguments:ty;)*) => { $(
        impl<$($generics)*> Step for $arguments
        where
            $member: $kernel::Member,
            $arguments: Sync,
        {
            fn entry(&self) -> &'static Entry {
                <$member as $kernel::Member>::ENTRY
            }
            fn check(&self) -> Result<(), ArgumentError> {
                self.check()
            }
            fn launch(&self) -> Result<Launch, ArgumentError> {
                self.launch()
            }
            unsafe fn run(&self, programs: Range<u64>) {
                // SAFETY: by contract.
                unsafe { self.run(programs) }
            }
        }
    )* };
}
pub(crate) use steps;
steps! {
    [D: dtype::Dtype] histogram, (D,), histogram::Arguments<'static, D>;
    [] pick, (), pick::Arguments<'static>;
    [D: dtype::Dtype] bases, (D,), bases::Arguments<'static, D>;
    [D: dtype::Dtype, S: scheme::Scheme] encode, (D, S), encode::Arguments<'static, D, S>;
    [D: dtype::Dtype, S: scheme::Scheme] decode, (D, S), decode::Arguments<'static, D, S>;
    [D: dtype::Dtype] checksum, (D,), checksum::Arguments<'static, D>;
    [] seal, (), seal::Arguments<'static>;
}

/// Encoding with parts as they come. Where programs run in order, they come in order: the CPU has no code of its own for it.
struct Arriving<D: dtype::Dtype, S: scheme::Scheme> {
    launched: encode_arrival::Arguments<'static, D, S>,
    run: encode::Arguments<'static, D, S>,
}

impl<D: dtype::Dtype, S: scheme::Scheme> Step for Arriving<D, S>
where
    (D, S): encode::Member + encode_arrival::Member,
    encode_arrival::Arguments<'static, D, S>: Sync,
    encode::Arguments<'static, D, S>: Sync,
{
    fn entry(&self) -> &'static Entry {
        <(D, S) as encode_arrival::Member>::ENTRY
    }
    fn check(&self) -> Result<(), ArgumentError> {
        self.launched.check()
    }
    fn launch(&self) -> Result<Launch, ArgumentError> {
        self.launched.launch()
    }
    unsafe fn run(&self, programs: Range<u64>) {
        // SAFETY: by contract.
        unsafe { self.run.run(programs) }
    }
}

/// Makes the step of a member that is known by its names: one for each kernel with lists, which alone say what members there are.
macro_rules! step_of_member {
    ($([$($generics:tt)*] $step:ident, $member:ty, |$self:ident: $of:ty| $make:expr, where [$($bounds:tt)*];)*) => { $(
        struct $step<T>(T);
        impl<$($generics)*> OnMember<$member, Box<dyn Step>> for $step<$of> where $($bounds)* {
            fn on_member(self) -> Box<dyn Step> {
                let $self = self.0;
                Box::new($make)
            }
        }
    )* };
}
step_of_member! {
    [D: dtype::Dtype] HistogramStep, (D,), |counting: &Counting| counting.of::<D>(),
        where [histogram::Arguments<'static, D>: Step];
    [D: dtype::Dtype] ChecksumStep, (D,), |of: (&Steps<'_>, u64, bool)| of.0.checksum_of::<D>(of.1, of.2),
        where [checksum::Arguments<'static, D>: Step];
    [D: dtype::Dtype, S: scheme::Scheme] BasesStep, (D, S), |of: (&Steps<'_>, u64)| of.0.bases_of::<D, S>(of.1),
        where [bases::Arguments<'static, D>: Step];
    [D: dtype::Dtype, S: scheme::Scheme] EncodeStep, (D, S), |of: (&Steps<'_>, Placing)| of.0.encode_of::<D, S>(of.1),
        where [S::Given: Given, encode::Arguments<'static, D, S>: Step];
    [D: dtype::Dtype, S: scheme::Scheme] ArrivalStep, (D, S), |of: (&Steps<'_>, Placing)| of.0.encode_arrival_of::<D, S>(of.1),
        where [S::Given: Given, Arriving<D, S>: Step];
    [D: dtype::Dtype, S: scheme::Scheme] DecodeStep, (D, S), |of: (&Steps<'_>, Decoding)| of.0.decode_of::<D, S>(of.1),
        where [S::Known: Given, decode::Arguments<'static, D, S>: Step];
}

/// How schemes get from a frame what they are given for a tensor.
pub(crate) trait Given: Argument {
    fn host(steps: &Steps<'_>) -> Self::Host<'static>;
}

impl Given for Table<256> {
    fn host(steps: &Steps<'_>) -> Source<'static> {
        source(steps.table, TABLE_BYTES)
    }
}

impl Given for Table<16> {
    fn host(steps: &Steps<'_>) -> Source<'static> {
        source(steps.start_address() + 16, 16)
    }
}

impl Given for Nothing {
    fn host(_: &Steps<'_>) -> Nothing {
        Nothing
    }
}

impl Given for ChannelBases {
    fn host(steps: &Steps<'_>) -> Source<'static> {
        let (at, bytes) = steps.bases_from(0);
        source(at, bytes)
    }
}

impl Given for ChannelBasesOut {
    fn host(steps: &Steps<'_>) -> Target<'static> {
        let (at, bytes) = steps.bases_from(0);
        target(at, bytes)
    }
}

/// Refuses a tensor that there is no kernel for.
pub(crate) fn check_member(executor: &str, tensor: &TensorLayout) -> Result<()> {
    if tensor.scheme == Scheme::Stored || has_member(tensor.dtype, tensor.scheme, tensor.bases) {
        return Ok(());
    }
    Err(unsupported(executor, tensor))
}

fn unsupported(executor: &str, tensor: &TensorLayout) -> Error {
    Error::Unsupported {
        executor: executor.to_owned(),
        what: format!("{} x {} with {} bases", tensor.dtype, tensor.scheme, tensor.bases.name()),
        instead: "reference".to_owned(),
    }
}

/// What kernels call a scheme with these bases.
pub(crate) fn kernel_scheme(scheme: Scheme, bases: Bases) -> String {
    match bases {
        Bases::Chunk => scheme.name().to_owned(),
        Bases::Channel => format!("{}channel", scheme.name()),
    }
}

/// What kernels call a dtype. A stored tensor is read as 16-bit elements.
pub(crate) fn kernel_dtype(dtype: Dtype) -> &'static str {
    if dtype.is_float() { dtype.name() } else { Dtype::Bf16.name() }
}

/// Is there a kernel for this member?
pub(crate) fn has_member(dtype: Dtype, scheme: Scheme, bases: Bases) -> bool {
    let name = kernel_scheme(scheme, bases);
    encode::ENTRIES.iter().any(|entry| entry.dtype == Some(dtype.name()) && entry.scheme == Some(&name))
}

/// Is there a histogram kernel for this dtype?
pub(crate) fn has_histogram(dtype: Dtype) -> bool {
    histogram::ENTRIES.iter().any(|entry| entry.dtype == Some(dtype.name()))
}

/// Words of the largest variable part of a chunk.
pub(crate) fn most_words(tensor: &TensorLayout) -> u64 {
    u64::from(tensor.raw_words(crate::format::CHUNK))
}

/// Where the variable parts of a tensor go, and what keeps count of them.
#[derive(Clone, Copy)]
pub(crate) struct Placing {
    /// See [`Order`].
    pub order: u64,
    /// The parts.
    pub parts: u64,
    /// The word of `parts` where those of this tensor start.
    pub start: u64,
    /// Where the word goes that is the end of them.
    pub end: u64,
    /// In the order of the chunks?
    pub in_order: bool,
    /// Is the frame complete with this tensor, so that its check can be computed?
    pub seal: bool,
    /// What the frame starts with (static part and dynamic part without words), if nobody else writes it; else 0.
    pub prologue: u64,
    /// Does who encodes add up the checksums that the frame has?
    pub checksums: bool,
}

/// What decoding a tensor needs besides its places.
#[derive(Clone, Copy, Default)]
pub(crate) struct Decoding {
    /// Words of all variable parts.
    pub words: u64,
    /// A word for what goes wrong.
    pub status: u64,
    /// A double word to which the checksum of what is decoded is added, or 0.
    pub sum: u64,
}

/// One tensor of a frame on its way: addresses of the machine that will run the steps.
///
/// # Safety
/// Whoever runs the arguments that the methods return vouches for the addresses: `frame` has `max_frame_bytes` (for
/// decoding: the bytes of the frame), `workspace` has [`Workspace::bytes`], `elements` the raw bytes of the tensor.
#[derive(Clone, Copy)]
pub(crate) struct Steps<'l> {
    pub layout: &'l Layout,
    pub number: usize,
    pub frame: u64,
    pub workspace: u64,
    pub places: Workspace,
    /// Where the raw elements are, or go to.
    pub elements: u64,
    /// Where the encoder's table is.
    pub table: u64,
}

impl<'l> Steps<'l> {
    pub fn tensor(&self) -> &'l TensorLayout {
        &self.layout.tensors[self.number]
    }

    fn dynamic(&self, number: usize) -> u64 {
        self.frame + self.layout.static_bytes + DYNAMIC_BYTES * number as u64
    }

    /// Where the words before this tensor are kept.
    pub fn start_address(&self) -> u64 {
        self.dynamic(1 + self.number)
    }

    fn tail(&self) -> Target<'static> {
        target(self.workspace + self.places.tail_at, TAIL_BYTES)
    }

    fn words(&self) -> Source<'static> {
        source(self.elements, self.tensor().bytes)
    }

    /// Counts the exponents of a sample.
    pub fn histogram(&self, samples: u64, programs: u64) -> Result<Box<dyn Step>> {
        let (tensor, counts) = (self.tensor(), self.workspace + self.places.counts_at);
        let tail = self.workspace + self.places.tail_at;
        Counting { words: self.elements, bytes: tensor.bytes, samples, programs, counts, tail }
            .step(tensor.dtype)
    }

    /// Makes the codebook (into the frame) and the table (into the workspace) of the sample.
    pub fn pick(&self) -> impl Step + use<> {
        pick::Arguments {
            programs: Programs { programs: 1 },
            counts: source(self.workspace + self.places.counts_at, COUNTS_BYTES),
            exponents: self.tensor().dtype.exponents() as u32,
            codebook: target(self.start_address() + 16, 16),
            table: target(self.table, TABLE_BYTES),
        }
    }

    /// Address and bytes of the channel bases of the groups from `first` on.
    fn bases_from(&self, first: u64) -> (u64, u64) {
        let tensor = self.tensor();
        (self.frame + tensor.bases_at + first * tensor.channels, (tensor.groups - first) * tensor.channels)
    }

    /// Groups, from the first one on, whose channel bases come from the launch that codes them. (Not on a CPU, where chunks are coded one after the
    /// other.)
    pub fn summed_groups(&self) -> u64 {
        let tensor = self.tensor();
        if GroupSums::takes(tensor.channels as u32) { tensor.elements / GROUP_ELEMENTS } else { 0 }
    }

    /// Computes the channel bases of the groups from `first` on, into the frame.
    pub fn bases(&self, first: u64) -> Result<Box<dyn Step>> {
        let (dtype, scheme) = self.names();
        encode::on_member(dtype, &scheme, BasesStep((self, first))).ok_or_else(|| self.unsupported())
    }

    /// A group starts with a row, if it is not the first one: [`GroupSums::takes`] no other numbers of channels.
    fn bases_of<D: dtype::Dtype, S: scheme::Scheme>(&self, first: u64) -> bases::Arguments<'static, D> {
        let tensor = self.tensor();
        let [mean_value, values] = S::WINDOW;
        let (elements, element_bytes) = (first * GROUP_ELEMENTS, tensor.dtype.bytes() as u64);
        let (before, (bases, bases_bytes)) = (elements * element_bytes, self.bases_from(first));
        bases::Arguments {
            grid: Groups { elements: tensor.elements - elements },
            words: source(self.elements + before, tensor.bytes - before),
            channels: tensor.channels as u32,
            mean_value,
            values,
            bases: target(bases, bases_bytes),
            tail: self.tail(),
        }
    }

    /// Where the order of a tensor is in the workspace.
    fn order_address(&self, number: usize) -> u64 {
        self.workspace + self.places.orders_at + order_at(self.layout, number)
    }

    /// Where the words before a tensor are kept while a frame is encoded, or (`number` of tensors) those of the frame. A frame in arrival order has zeros
    /// there, so they are kept in the header of an order.
    fn words_address(&self, number: usize) -> u64 {
        match number {
            0 => self.dynamic(1),
            n if n == self.layout.tensors.len() => self.dynamic(0),
            n if self.layout.flags.arrival => self.order_address(n) + Order::SPARE,
            n => self.dynamic(1 + n),
        }
    }

    /// Where the variable parts go in the frame.
    pub fn placing(&self) -> Placing {
        Placing {
            order: self.order_address(self.number),
            parts: self.frame + self.layout.dense_bytes,
            start: self.words_address(self.number),
            end: self.words_address(self.number + 1),
            in_order: !self.layout.flags.arrival,
            seal: false,
            prologue: 0,
            checksums: false,
        }
    }

    /// Encodes the chunks.
    pub fn encode(&self, to: Placing) -> Result<Box<dyn Step>> {
        let (dtype, scheme) = self.names();
        match to.in_order {
            true => encode::on_member(dtype, &scheme, EncodeStep((self, to))),
            false => encode_arrival::on_member(dtype, &scheme, ArrivalStep((self, to))),
        }
        .ok_or_else(|| self.unsupported())
    }

    /// What kernels call the dtype and the scheme of the tensor.
    fn names(&self) -> (&'static str, String) {
        let tensor = self.tensor();
        (kernel_dtype(tensor.dtype), kernel_scheme(tensor.scheme, tensor.bases))
    }

    /// For a tensor that [`check_member`] has not seen.
    fn unsupported(&self) -> Error {
        unsupported("kernel", self.tensor())
    }

    fn encode_of<D: dtype::Dtype, S: scheme::Scheme>(&self, to: Placing) -> encode::Arguments<'static, D, S>
    where
        S::Given: Given,
    {
        let tensor = self.tensor();
        let [(residuals, residual_bytes), (upper, upper_bytes), (codes, code_bytes)] = self.planes();
        let (dynamic, dynamic_bytes) = (self.dynamic(0), self.layout.dynamic_bytes);
        encode::Arguments {
            queue: Queue { elements: tensor.elements },
            words: self.words(),
            given: S::Given::host(self),
            channels: tensor.channels as u32,
            residuals: target(residuals, residual_bytes),
            upper_residuals: target(upper, upper_bytes),
            codes: target(codes, code_bytes),
            directory: target(self.frame + tensor.directory_at, self.directory_bytes()),
            parts: target(to.parts, 0),
            order: target(to.order, Order::bytes_for(tensor.elements)),
            prologue: source(to.prologue, 0),
            prologue_bytes: if to.prologue != 0 { self.layout.static_bytes + dynamic_bytes } else { 0 },
            header: target(self.frame, 0),
            start: target(to.start, 8),
            end: target(to.end, 8),
            dynamic: source(dynamic, dynamic_bytes),
            dynamic_bytes: if to.seal { dynamic_bytes } else { 0 },
            check: target(dynamic + 12, 4),
            sum: target(self.start_address() + 8, 0),
            chunk_sums: target(self.frame + tensor.checksums_at, 0),
            wanted: if to.checksums { sums_wanted(self.layout.flags) } else { 0 },
            tail: self.tail(),
        }
    }

    fn encode_arrival_of<D: dtype::Dtype, S: scheme::Scheme>(&self, to: Placing) -> Arriving<D, S>
    where
        S::Given: Given,
    {
        let of = self.encode_of::<D, S>(to);
        let launched = encode_arrival::Arguments {
            groups: BlockForGroup { elements: of.queue.elements },
            words: of.words,
            given: of.given,
            channels: of.channels,
            residuals: of.residuals,
            upper_residuals: of.upper_residuals,
            codes: of.codes,
            directory: of.directory,
            parts: of.parts,
            order: of.order,
            prologue: of.prologue,
            prologue_bytes: of.prologue_bytes,
            header: of.header,
            start: of.start,
            end: of.end,
            dynamic: of.dynamic,
            dynamic_bytes: of.dynamic_bytes,
            check: of.check,
            sum: of.sum,
            chunk_sums: of.chunk_sums,
            wanted: of.wanted,
            tail: of.tail,
        };
        Arriving { launched, run: self.encode_of::<D, S>(to) }
    }

    /// See [`planes`].
    pub fn planes(&self) -> [(u64, u64); 3] {
        planes(self.tensor(), self.frame)
    }

    fn directory_bytes(&self) -> u64 {
        self.tensor().groups * RECORD_BYTES
    }

    /// Adds up the checksums of the raw elements, into the frame.
    pub fn checksum(&self) -> Result<Box<dyn Step>> {
        // Without the flag its field stays zero: the sum goes where nobody looks.
        let unused = self.workspace + self.places.counts_at;
        let sum = if self.layout.flags.tensor_checksums { self.start_address() + 8 } else { unused };
        self.checksum_to(sum, self.layout.flags.chunk_checksums)
    }

    /// Does the frame have any checksums?
    pub fn wants_checksum(&self) -> bool {
        (self.layout.flags.tensor_checksums || self.layout.flags.chunk_checksums) && self.tensor().bytes != 0
    }

    /// Adds up the checksums, somewhere else.
    pub fn checksum_to(&self, sum: u64, keep: bool) -> Result<Box<dyn Step>> {
        checksum::on_member(kernel_dtype(self.tensor().dtype), ChecksumStep((self, sum, keep)))
            .ok_or_else(|| self.unsupported())
    }

    /// Adds up the checksum of a stored tensor, unless nobody wants it (`sum` is 0). It is read in the frame: an odd last byte has a zero byte behind it there.
    pub fn sum_of_stored(&self, sum: u64) -> Result<Option<Box<dyn Step>>> {
        let tensor = self.tensor();
        if sum == 0 || tensor.bytes == 0 {
            return Ok(None);
        }
        let elements = self.frame + tensor.planes[0].at;
        Steps { elements, ..*self }.checksum_to(sum, false).map(Some)
    }

    fn checksum_of<D: dtype::Dtype>(&self, sum: u64, keep: bool) -> checksum::Arguments<'static, D> {
        let tensor = self.tensor();
        let elements = tensor.bytes.div_ceil(u64::from(D::BITS / 8));
        checksum::Arguments {
            chunks: Chunks { elements },
            words: source(self.elements, elements * u64::from(D::BITS / 8)),
            tensor_sum: target(sum, 8),
            chunk_sums: target(self.frame + tensor.checksums_at, 0),
            keep: u32::from(keep),
            tail: self.tail(),
        }
    }

    /// Decodes the chunks.
    pub fn decode(&self, of: Decoding) -> Result<Box<dyn Step>> {
        let (dtype, scheme) = self.names();
        decode::on_member(dtype, &scheme, DecodeStep((self, of))).ok_or_else(|| self.unsupported())
    }

    fn decode_of<D: dtype::Dtype, S: scheme::Scheme>(
        &self,
        Decoding { words, status, sum }: Decoding,
    ) -> decode::Arguments<'static, D, S>
    where
        S::Known: Given,
    {
        let tensor = self.tensor();
        let [(residuals, residual_bytes), (upper, upper_bytes), (codes, code_bytes)] = self.planes();
        decode::Arguments {
            chunks: Chunks { elements: tensor.elements },
            words: target(self.elements, tensor.bytes),
            residuals: source(residuals, residual_bytes),
            upper_residuals: source(upper, upper_bytes),
            codes: source(codes, code_bytes),
            directory: source(self.frame + tensor.directory_at, self.directory_bytes()),
            parts: source(self.frame + self.layout.dense_bytes, words * 4),
            part_words: words,
            known: S::Known::host(self),
            channels: tensor.channels as u32,
            status: target(status, 4),
            sum: target(sum, 0),
            tail: self.tail(),
        }
    }
}

/// Address and bytes of the packed residuals of a tensor in a frame at an address, of the bit planes of residuals, of the codes; 0 bytes for what the
/// dtype does not have.
pub(crate) fn planes(tensor: &TensorLayout, frame: u64) -> [(u64, u64); 3] {
    let mut planes = [(frame, 0); 3];
    for plane in tensor.residuals() {
        planes[usize::from(matches!(plane.kind, PlaneKind::Bits(_)))] = (frame + plane.at, plane.bytes);
    }
    if let Some(codes) = tensor.codes() {
        planes[2] = (frame + codes.at, codes.bytes);
    }
    planes
}

/// Which checksums a frame has, as kernels are told.
pub(crate) fn sums_wanted(flags: Flags) -> u32 {
    let of = |wanted: bool, which: u32| if wanted { which } else { 0 };
    of(flags.tensor_checksums, SumsWanted::OF_TENSORS) | of(flags.chunk_checksums, SumsWanted::OF_CHUNKS)
}

/// Computes the check of the dynamic part of a frame at `frame`.
pub(crate) fn seal_frame(layout: &Layout, frame: u64) -> impl Step + use<> {
    let at = frame + layout.static_bytes;
    seal::Arguments {
        programs: Programs { programs: 1 },
        dynamic: source(at, layout.dynamic_bytes),
        bytes: layout.dynamic_bytes,
        check: target(at + 12, 4),
    }
}
