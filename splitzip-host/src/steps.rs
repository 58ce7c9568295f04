//! The steps of encoding and decoding a tensor, with every address filled in.
//!
//! The CPU and the CUDA executor do the same things in the same order, on addresses of different machines. So the arguments
//! of the kernels are made here, once; the executors only differ in how they run them.

use crate::format::{DYNAMIC_BYTES, Layout, TensorLayout};
use crate::{Dtype, Error, Result, Scheme};
use splitzip_kernels::dtype::Bf16;
use splitzip_kernels::kernels::{checksum, decode, encode, histogram, pick, place, seal};
use splitzip_kernels::launch::{Chunks, Groups, Programs, Source, Target};
use splitzip_kernels::scheme::W4;
use splitzip_kernels::tile::{Slots, TAIL_BYTES, Totals};

/// Bytes of the encoder's table of a codebook.
pub(crate) const TABLE_BYTES: u64 = 256;
/// Bytes of the counters of a histogram.
pub(crate) const COUNTS_BYTES: u64 = 2048;

/// Refuses a tensor that there is no kernel for.
pub(crate) fn check_member(executor: &str, tensor: &TensorLayout) -> Result<()> {
    if tensor.scheme == Scheme::Stored || has_member(tensor.dtype, tensor.scheme) {
        return Ok(());
    }
    Err(Error::Unsupported {
        executor: executor.to_owned(),
        what: format!("{} x {}", tensor.dtype, tensor.scheme),
        instead: "reference; or use w4 for bf16".to_owned(),
    })
}

/// Is there a kernel for this pair?
pub(crate) fn has_member(dtype: Dtype, scheme: Scheme) -> bool {
    encode::ENTRIES
        .iter()
        .any(|entry| entry.dtype == Some(dtype.name()) && entry.scheme == Some(scheme.name()))
}

/// Is there a histogram kernel for this dtype?
pub(crate) fn has_histogram(dtype: Dtype) -> bool {
    histogram::ENTRIES.iter().any(|entry| entry.dtype == Some(dtype.name()))
}

/// Where things lie in the memory that encoding a frame needs besides the frame. Tensors are encoded one after the other and share it,
/// but for their tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workspace {
    /// Counters of the sample, then [`Totals`]: what must be zero before each tensor.
    pub counts_at: u64,
    /// Planes of a short chunk.
    pub tail_at: u64,
    /// Tables of the codebooks, one a tensor.
    pub tables_at: u64,
    /// Slots of the variable parts.
    pub slots_at: u64,
    /// All of it.
    pub bytes: u64,
}

impl Workspace {
    /// The workspace of a frame.
    pub fn of(layout: &Layout) -> Workspace {
        let coded = || layout.tensors.iter().filter(|tensor| tensor.scheme != Scheme::Stored);
        let totals = coded().map(|tensor| Totals::bytes_for(tensor.elements)).max().unwrap_or(0);
        let slots = coded().map(|tensor| tensor.chunks * slot_words(tensor) * 4).max().unwrap_or(0);
        let tail_at = COUNTS_BYTES + totals;
        let tables_at = tail_at + TAIL_BYTES;
        let slots_at = (tables_at + TABLE_BYTES * layout.tensors.len() as u64).next_multiple_of(128);
        Workspace { counts_at: 0, tail_at, tables_at, slots_at, bytes: slots_at + slots }
    }

    /// Bytes at the start that must be zero before a tensor is encoded.
    pub fn zeroed(tensor: &TensorLayout) -> u64 {
        COUNTS_BYTES + Totals::bytes_for(tensor.elements)
    }

    /// Where the table of a tensor lies.
    pub fn table_at(&self, number: usize) -> u64 {
        self.tables_at + TABLE_BYTES * number as u64
    }
}

fn slot_words(tensor: &TensorLayout) -> u64 {
    u64::from(tensor.raw_words(crate::format::CHUNK))
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

    /// Where the words before the next tensor are kept: the words of the frame after the last one.
    pub fn end_address(&self) -> u64 {
        self.dynamic((2 + self.number) % (1 + self.layout.tensors.len()))
    }

    fn source(address: u64, bytes: u64) -> Source<'static> {
        // SAFETY: the contract of the type.
        unsafe { Source::at(address, bytes) }
    }

    fn target(address: u64, bytes: u64) -> Target<'static> {
        // SAFETY: the contract of the type.
        unsafe { Target::at(address, bytes) }
    }

    fn tail(&self) -> Target<'static> {
        Self::target(self.workspace + self.places.tail_at, TAIL_BYTES)
    }

    fn words(&self) -> Source<'static> {
        Self::source(self.elements, self.tensor().bytes)
    }

    /// Counts the exponents of a sample.
    pub fn histogram(&self, samples: u64, programs: u64) -> histogram::Arguments<'static, Bf16> {
        histogram::Arguments {
            programs: Programs { programs },
            words: self.words(),
            elements: self.tensor().elements,
            samples,
            counts: Self::target(self.workspace + self.places.counts_at, COUNTS_BYTES),
            tail: self.tail(),
        }
    }

    /// Makes the codebook (into the frame) and the table (into the workspace) of the sample.
    pub fn pick(&self) -> pick::Arguments<'static> {
        pick::Arguments {
            programs: Programs { programs: 1 },
            counts: Self::source(self.workspace + self.places.counts_at, COUNTS_BYTES),
            exponents: self.tensor().dtype.exponents() as u32,
            codebook: Self::target(self.start_address() + 16, 16),
            table: Self::target(self.table, TABLE_BYTES),
        }
    }

    /// Codes the chunks.
    pub fn encode(&self) -> encode::Arguments<'static, Bf16, W4> {
        let tensor = self.tensor();
        let (residuals, codes) = (tensor.planes[0], tensor.planes[tensor.planes.len() - 1]);
        encode::Arguments {
            chunks: Chunks { elements: tensor.elements },
            words: self.words(),
            table: Self::source(self.table, TABLE_BYTES),
            residuals: Self::target(self.frame + residuals.at, residuals.bytes),
            codes: Self::target(self.frame + codes.at, codes.bytes),
            directory: Self::target(self.frame + tensor.directory_at, self.directory_bytes()),
            slots: self.slots(),
            totals: self.totals(),
            tail: self.tail(),
        }
    }

    fn slots(&self) -> Target<'static> {
        Self::target(
            self.workspace + self.places.slots_at,
            self.tensor().chunks * u64::from(Slots::<Bf16, W4>::WORDS) * 4,
        )
    }

    fn totals(&self) -> Target<'static> {
        let at = self.workspace + self.places.counts_at + COUNTS_BYTES;
        Self::target(at, Totals::bytes_for(self.tensor().elements))
    }

    fn directory_bytes(&self) -> u64 {
        self.tensor().groups * crate::format::RECORD_BYTES
    }

    /// Moves the variable parts to their places.
    pub fn place(&self) -> place::Arguments<'static> {
        let tensor = self.tensor();
        place::Arguments {
            grid: Groups { elements: tensor.elements },
            slots: Self::source(self.workspace + self.places.slots_at, 0),
            slot_words: slot_words(tensor) as u32,
            totals: self.totals(),
            directory: Self::target(self.frame + tensor.directory_at, self.directory_bytes()),
            start: Self::target(self.start_address(), 8),
            end: Self::target(self.end_address(), 8),
            parts: Self::target(self.frame + self.layout.dense_bytes, 0),
        }
    }

    /// Adds up the checksums of the raw elements, into the frame.
    pub fn checksum(&self) -> checksum::Arguments<'static, Bf16> {
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
    pub fn checksum_to(&self, sum: u64, keep: bool) -> checksum::Arguments<'static, Bf16> {
        let tensor = self.tensor();
        // A stored tensor is read as 16-bit elements.
        let elements =
            if tensor.scheme == Scheme::Stored { tensor.bytes.div_ceil(2) } else { tensor.elements };
        checksum::Arguments {
            chunks: Chunks { elements },
            words: Self::source(self.elements, elements * 2),
            tensor_sum: Self::target(sum, 8),
            chunk_sums: Self::target(self.frame + tensor.checksums_at, 0),
            keep: u32::from(keep),
            tail: self.tail(),
        }
    }

    /// Decodes the chunks. `words` are the words of all variable parts.
    pub fn decode(&self, words: u64, status: u64) -> decode::Arguments<'static, Bf16, W4> {
        let tensor = self.tensor();
        let (residuals, codes) = (tensor.planes[0], tensor.planes[tensor.planes.len() - 1]);
        decode::Arguments {
            chunks: Chunks { elements: tensor.elements },
            words: Self::target(self.elements, tensor.bytes),
            residuals: Self::source(self.frame + residuals.at, residuals.bytes),
            codes: Self::source(self.frame + codes.at, codes.bytes),
            directory: Self::source(self.frame + tensor.directory_at, self.directory_bytes()),
            parts: Self::source(self.frame + self.layout.dense_bytes, words * 4),
            part_words: words,
            codebook: Self::source(self.start_address() + 16, 16),
            status: Self::target(status, 4),
            tail: self.tail(),
        }
    }
}

/// Computes the check of the dynamic part of a frame at `frame`.
pub(crate) fn seal_frame(layout: &Layout, frame: u64, tail: u64) -> seal::Arguments<'static> {
    let at = frame + layout.static_bytes;
    seal::Arguments {
        programs: Programs { programs: 1 },
        dynamic: Steps::source(at, layout.dynamic_bytes),
        elements: layout.dynamic_bytes / 2,
        check: Steps::target(at + 12, 4),
        tail: Steps::target(tail, TAIL_BYTES),
    }
}

/// The gaps between the parts of the dense part: what an encoder that does not clear it must fill with zeros. Start and length.
pub(crate) fn gaps(layout: &Layout) -> Vec<(u64, u64)> {
    let mut parts = vec![(0, layout.static_bytes + layout.dynamic_bytes)];
    for tensor in &layout.tensors {
        if tensor.groups != 0 {
            parts.push((tensor.directory_at, tensor.groups * crate::format::RECORD_BYTES));
        }
        if tensor.bases_at != 0 {
            parts.push((tensor.bases_at, tensor.groups * tensor.channels));
        }
        if tensor.checksums_at != 0 {
            parts.push((tensor.checksums_at, tensor.chunks * 4));
        }
        parts.extend(tensor.planes.iter().map(|plane| (plane.at, plane.bytes)));
    }
    parts.sort_unstable();
    let mut gaps = Vec::new();
    let mut end = 0;
    for (at, bytes) in parts {
        if at > end {
            gaps.push((end, at - end));
        }
        end = end.max(at + bytes);
    }
    if layout.dense_bytes > end {
        gaps.push((end, layout.dense_bytes - end));
    }
    gaps
}
