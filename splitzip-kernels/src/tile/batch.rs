//! Batches: the tensors of one launch, described in memory.
//!
//! A request is hundreds of tensors in thousands of pages. A launch for each would cost more than its bytes, so their groups are numbered through, and a
//! program finds in the batch which tensor its group belongs to: 8 bytes, the same for the sixteen chunks of a group, then the description of the tensor. What
//! differs between two calls (where the frame is) is an argument; what does not (where pages are, where planes lie in a frame) is in the description.

use super::{
    ChannelBases, ChannelBasesOut, Chunk, ChunkSums, Directory, DirectoryIn, Nothing, Program, Records,
    SumsInLanes, SumsWanted, Table, Tail, TensorSums, Tile, Update,
};
use crate::arch::{self, Shared};
use crate::dtype::Dtype;
use crate::launch::{Chunks, Extent, Size, memory_arguments};
use crate::scheme::Scheme;
use crate::stream::{CHUNK, GROUP};
use core::marker::PhantomData;
use core::mem::offset_of;

/// One tensor of a batch: where its elements lie, and where its parts lie in a frame. A launcher writes it, kernels read it.
///
/// Elements lie in runs of contiguous bytes, of which a row has some and a page some rows; a table says which pages. Byte `b` of the tensor, for `b` from
/// `from` to `to`, is number `skew + b` (modulo 2^64) of the bytes of these pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct BatchTensor {
    /// Elements of the tensor in the frame.
    pub elements: u64,
    /// The first byte that lies in the pages.
    pub from: u64,
    /// The byte behind the last one.
    pub to: u64,
    /// See the type.
    pub skew: u64,
    /// Address of the first run of page 0.
    pub pool: u64,
    /// Pages of the pool. A number that is none of them is reported, and what should lie there is neither read nor written.
    pub pages: u64,
    /// Bytes from a page to the next one of the pool.
    pub page_stride: u64,
    /// Bytes from a row to the next one of its page.
    pub row_stride: u64,
    /// Bytes from a run to the next one of its row.
    pub run_stride: u64,
    /// Bytes of a run.
    pub run_bytes: u64,
    /// Runs of a row.
    pub runs_in_row: u32,
    /// Rows of a page.
    pub rows_in_page: u32,
    /// Address of the numbers of the pages; without an array ([`BatchTensor::CONSECUTIVE`]), the first one.
    pub ids: u64,
    /// Bytes of such a number: 4 or 8, signed; or [`BatchTensor::CONSECUTIVE`].
    pub id_bytes: u32,
    /// Not 0: every whole chunk that is wanted lies within a run, at a multiple of 16.
    pub is_straight: u32,
    /// Bytes that may be moved at once in whole chunks: 1, 2, 4, 8 or 16.
    pub unit: u32,
    /// The same for chunks that are wanted in part.
    pub edge_unit: u32,
    /// The [inverse](BatchTensor::inverse) of `run_bytes`.
    pub run_inverse: u64,
    /// That of `runs_in_row`.
    pub row_inverse: u64,
    /// That of `rows_in_page`.
    pub page_inverse: u64,
    /// Channels of a group, with channel bases.
    pub channels: u32,
    /// The number of the tensor in the frame.
    pub number: u32,
    /// Where the plane of residuals lies in the frame.
    pub residuals: u64,
    /// That of the bits that do not fill a packed plane.
    pub upper_residuals: u64,
    /// That of codes; of a stored tensor, the tensor.
    pub codes: u64,
    /// The directory.
    pub directory: u64,
    /// Channel bases, or the codebook.
    pub known: u64,
    /// Address of the encoder's table.
    pub table: u64,
    /// Where in the workspace a short last chunk is put together.
    pub tail: u64,
    /// Where the frame says how many words are before this tensor, and before those without any in front of it: the first of these places,
    pub words_at: u64,
    /// and how many there are, [`BatchTensor::WORDS_STRIDE`] apart.
    pub words_places: u64,
    /// Where the checksums of chunks lie in the frame.
    pub chunk_sums: u64,
}

impl BatchTensor {
    /// No array: pages follow each other.
    pub const CONSECUTIVE: u32 = 0;
    /// Bytes between the places of words in a frame: of a record in its dynamic part.
    pub const WORDS_STRIDE: u64 = 32;
    /// The description, word by word.
    pub fn words(&self) -> [u64; size_of::<BatchTensor>() / 8] {
        // SAFETY: as long as the array, and without padding: fields of 4 bytes come in pairs.
        unsafe { core::mem::transmute(*self) }
    }

    /// What kernels divide by a divisor with: the largest number that times the divisor is below 2^64.
    pub const fn inverse(divisor: u64) -> u64 {
        u64::MAX / if divisor == 0 { 1 } else { divisor }
    }

    /// What addresses of descriptions are a multiple of.
    pub const ALIGN: u64 = 16;
    /// Bytes of a description in a batch.
    pub const BYTES: u64 = (size_of::<BatchTensor>() as u64).next_multiple_of(Self::ALIGN);
}

/// What every group of a launch belongs to: its tensor's description (how many times 16 bytes behind the start of the batch) and its number in that
/// tensor, a word each, group by group; behind them the descriptions.
#[derive(Clone, Copy)]
pub struct Batch(*const u8);

impl Extent for Batch {
    fn bytes(_: Size) -> u64 {
        0 // the launcher has made it
    }
    const ALIGN: u64 = BatchTensor::ALIGN;
}
memory_arguments! { source [] Batch = Batch; }

/// A batch whose tensors are all of one dtype and one scheme.
#[derive(Clone, Copy)]
pub struct BatchOf<D, S>(*const u8, PhantomData<(D, S)>);

impl<D: Dtype, S: Scheme> Extent for BatchOf<D, S> {
    fn bytes(_: Size) -> u64 {
        0 // as `Batch`
    }
    const ALIGN: u64 = BatchTensor::ALIGN;
}
memory_arguments! { source [D: Dtype, S: Scheme] BatchOf<D, S> = |p| BatchOf(p, PhantomData); }

impl<D, S> BatchOf<D, S> {
    /// The batch.
    #[inline(always)]
    pub fn tensors(self) -> Batch {
        Batch(self.0)
    }
}

/// A frame in which every tensor of a batch has its places.
#[derive(Clone, Copy)]
pub struct BatchFrame(*mut u8);

/// The same, read.
#[derive(Clone, Copy)]
pub struct BatchFrameIn(*const u8);

/// Memory that a batch needs besides the frame: short chunks, and chunks that do not lie in one piece.
#[derive(Clone, Copy)]
pub struct BatchWorkspace(*mut u8);

macro_rules! measured_by_the_launcher { ($($type:ident, $align:literal;)*) => { $(
    impl Extent for $type {
        fn bytes(_: Size) -> u64 {
            0 // offsets in descriptions stay inside
        }
        const ALIGN: u64 = $align;
    }
)* } }
measured_by_the_launcher! { BatchFrame, 128; BatchFrameIn, 128; BatchWorkspace, 128; }
memory_arguments! { target [] BatchFrame = BatchFrame; }
memory_arguments! { target [] BatchWorkspace = BatchWorkspace; }
memory_arguments! { source [] BatchFrameIn = BatchFrameIn; }

impl BatchFrame {
    /// Says at `places` places from offset `at` on how many words are before.
    #[inline(always)]
    pub(crate) fn store_words(self, mut at: u64, places: u64, words: u64) {
        let end = at + places * BatchTensor::WORDS_STRIDE;
        while at < end {
            Update::<8>(self.at(at)).store64(0, words);
            at += BatchTensor::WORDS_STRIDE;
        }
    }

    #[inline(always)]
    pub(crate) fn at(self, offset: u64) -> *mut u8 {
        self.0.wrapping_add(offset as usize)
    }
}

impl BatchFrameIn {
    #[inline(always)]
    pub(crate) fn at(self, offset: u64) -> *const u8 {
        self.0.wrapping_add(offset as usize)
    }
}

impl BatchWorkspace {
    #[inline(always)]
    pub(crate) fn at(self, offset: u64) -> *mut u8 {
        self.0.wrapping_add(offset as usize)
    }
}

impl Batch {
    /// The tensor of a group, and the number of the group in it.
    #[inline(always)]
    pub(in crate::tile) fn group(self, group: u32) -> (InBatch<Global>, u32) {
        // SAFETY: the launcher has an entry for every group.
        let [at, number] = unsafe { arch::load64(self.0.wrapping_add(group as usize * 8)) };
        (InBatch(Global(self.0.wrapping_add(at as usize * BatchTensor::ALIGN as usize))), number)
    }
}

/// Memory that holds the description of a tensor: that of the launch, or that of a block.
pub trait Described: Copy {
    /// Two words.
    fn pair(self, at: usize) -> [u32; 2];
    /// One word.
    fn word(self, at: usize) -> u32;
}

/// The memory of the launch.
#[derive(Clone, Copy)]
pub struct Global(*const u8);

impl Described for Global {
    #[inline(always)]
    fn pair(self, at: usize) -> [u32; 2] {
        // SAFETY: a field of a description, which is aligned.
        unsafe { arch::load64(self.0.wrapping_add(at)) }
    }
    #[inline(always)]
    fn word(self, at: usize) -> u32 {
        // SAFETY: as above.
        unsafe { arch::load32(self.0.wrapping_add(at)) }
    }
}

impl Described for Shared {
    #[inline(always)]
    fn pair(self, at: usize) -> [u32; 2] {
        self.at(at as u32).load64()
    }
    #[inline(always)]
    fn word(self, at: usize) -> u32 {
        self.at(at as u32).load32()
    }
}

/// A tensor of a batch, still described in memory: nobody holds in registers what is wanted once a chunk.
#[derive(Clone, Copy)]
pub struct InBatch<M = Shared>(M);

macro_rules! fields { ($($name:ident: $type:ident;)*) => { $(
    #[inline(always)]
    pub(crate) fn $name(self) -> $type {
        fields!(@ self, $type, $name)
    }
)* };
    (@ $self:ident, u64, $name:ident) => {{
        let [low, high] = $self.0.pair(offset_of!(BatchTensor, $name));
        (high as u64) << 32 | low as u64
    }};
    (@ $self:ident, u32, $name:ident) => { $self.0.word(offset_of!(BatchTensor, $name)) };
}

impl<M: Described> InBatch<M> {
    fields! {
        elements: u64; from: u64; to: u64; skew: u64;
        pool: u64; pages: u64; page_stride: u64; row_stride: u64; run_stride: u64; run_bytes: u64;
        runs_in_row: u32; rows_in_page: u32; ids: u64; id_bytes: u32; is_straight: u32; unit: u32; edge_unit: u32;
        run_inverse: u64; row_inverse: u64; page_inverse: u64; channels: u32; number: u32;
        residuals: u64; upper_residuals: u64; codes: u64; directory: u64; known: u64; table: u64; tail: u64;
        words_at: u64; words_places: u64; chunk_sums: u64;
    }

    /// A chunk of one of its groups.
    #[inline(always)]
    pub(crate) fn chunk(self, group: u32, seat: u32, workspace: BatchWorkspace) -> Chunk {
        let (index, chunks) = (group * GROUP + seat, Chunks { elements: self.elements() });
        let (mut valid, mut tail) = (chunks.valid(index), core::ptr::null_mut());
        if valid != CHUNK {
            arch::rare();
            valid = chunks.valid(index);
            tail = workspace.at(self.tail());
        }
        Chunk { index, valid, tail: Tail(tail) }
    }
}

/// A group of a batch in the memory of a block or of a program: the description of its tensor, where its chunks lie, its number. A program that looks it up
/// there has one instruction for a field, and none for a place.
#[derive(Clone, Copy)]
pub struct BatchGroup(Shared);

impl BatchGroup {
    /// Bytes that it takes.
    pub const BYTES: u32 = Self::NUMBER + 16;
    const WORDS: u32 = size_of::<BatchTensor>() as u32 / 8;
    const PLACES: u32 = BatchTensor::BYTES as u32;
    const NUMBER: u32 = Self::PLACES + GROUP * 8;

    /// One that a bookkeeper has prepared.
    #[inline(always)]
    pub fn prepared(shared: Shared) -> Self {
        BatchGroup(shared)
    }

    /// One of its chunks, and its place.
    #[inline(always)]
    pub fn chunk(self, seat: u32, workspace: BatchWorkspace) -> (Chunk, ChunkPlace) {
        let (number, place) = (self.number(), self.kept(seat) as usize as *mut u8);
        let mut chunk =
            Chunk { index: number * GROUP + seat, valid: CHUNK, tail: Tail(core::ptr::null_mut()) };
        if place.is_null() {
            arch::rare();
            chunk = self.tensor().chunk(number, seat, workspace);
        }
        (chunk, ChunkPlace(place))
    }

    /// Its tensor.
    #[inline(always)]
    pub fn tensor(self) -> InBatch {
        InBatch(self.0)
    }

    /// Its number in the tensor.
    #[inline(always)]
    pub fn number(self) -> u32 {
        self.0.at(Self::NUMBER).load32()
    }

    /// Keeps a number where the place of a chunk would be, until it is wanted: in memory, not in registers.
    #[inline(always)]
    pub(in crate::tile) fn keep(self, seat: u32, value: u64) {
        for lane in arch::lanes() {
            if lane == 0 {
                self.keep_in_lane(seat, value);
            }
        }
    }

    #[inline(always)]
    fn keep_in_lane(self, seat: u32, value: u64) {
        self.0.at(Self::PLACES + seat * 8).store64([value as u32, (value >> 32) as u32]);
    }

    /// What was kept.
    #[inline(always)]
    pub(in crate::tile) fn kept(self, seat: u32) -> u64 {
        let [low, high] = self.0.at(Self::PLACES + seat * 8).load64();
        (high as u64) << 32 | low as u64
    }

    /// Finds where the chunks of `chunk_bytes` bytes lie: a lane a chunk.
    #[inline(always)]
    pub(in crate::tile) fn find_places(self, program: &Program, chunk_bytes: u32) {
        let (tensor, number) = (self.tensor(), self.number());
        let (elements, straight) = (tensor.elements(), tensor.is_straight());
        for lane in arch::lanes() {
            if lane < GROUP {
                let index = (number * GROUP + lane) as u64;
                let mut place = core::ptr::null_mut();
                if straight != 0 && (index + 1) * CHUNK as u64 <= elements {
                    place = tensor.place(index * chunk_bytes as u64);
                }
                self.keep_in_lane(lane, place as usize as u64);
            }
        }
        program.sync();
    }
}

/// Where a whole chunk lies in one piece; null if it does not, or in no page.
#[derive(Clone, Copy)]
pub struct ChunkPlace(pub(in crate::tile) *mut u8);

impl Batch {
    /// Copies the description of the tensor of a group to `to`.
    #[inline(always)]
    pub(in crate::tile) fn describe(self, program: &Program, group: u32, to: Shared) -> BatchGroup {
        let (InBatch(Global(from)), number) = self.group(group);
        for lane in arch::lanes() {
            if lane < BatchGroup::WORDS {
                // SAFETY: a word of the description.
                to.at(lane * 8).store64(unsafe { arch::load64(from.wrapping_add(lane as usize * 8)) });
            }
            if lane == 31 {
                to.at(BatchGroup::NUMBER).store32(number);
            }
        }
        program.sync();
        BatchGroup(to)
    }

    /// The same in the memory of a program, from byte `at` on.
    #[inline(always)]
    pub fn describe_to_program(self, program: &Program, group: u32, at: u32) -> BatchGroup {
        self.describe(program, group, program.shared().at(at))
    }
}

/// What a scheme is given for a tensor of a batch: `F` is the frame, read or written.
pub trait OfBatch<F> {
    /// Finds it.
    fn of_batch(tensor: InBatch, frame: F) -> Self;
}

impl<F> OfBatch<F> for Nothing {
    #[inline(always)]
    fn of_batch(_: InBatch, _: F) -> Self {
        Nothing
    }
}

impl OfBatch<BatchFrame> for Table<256> {
    #[inline(always)]
    fn of_batch(tensor: InBatch, _: BatchFrame) -> Self {
        Table(tensor.table() as usize as *const u8)
    }
}

impl OfBatch<BatchFrame> for ChannelBasesOut {
    #[inline(always)]
    fn of_batch(tensor: InBatch, frame: BatchFrame) -> Self {
        ChannelBasesOut(frame.at(tensor.known()))
    }
}

impl OfBatch<BatchFrameIn> for Table<16> {
    #[inline(always)]
    fn of_batch(tensor: InBatch, frame: BatchFrameIn) -> Self {
        Table(frame.at(tensor.known()))
    }
}

impl OfBatch<BatchFrameIn> for ChannelBases {
    #[inline(always)]
    fn of_batch(tensor: InBatch, frame: BatchFrameIn) -> Self {
        ChannelBases(frame.at(tensor.known()))
    }
}

/// The directories of a batch, while it is encoded.
#[derive(Clone, Copy)]
pub struct BatchRecords {
    /// The batch.
    pub batch: Batch,
    /// The frame.
    pub frame: BatchFrame,
    /// Bytes of a whole chunk.
    pub chunk_bytes: u32,
    /// Checksums of tensors, in the frame.
    pub sums: TensorSums<{ BatchTensor::WORDS_STRIDE as usize }>,
    /// Which checksums the frame has.
    pub wanted: SumsWanted,
}

impl Records for BatchRecords {
    const PREPARED_BYTES: u32 = BatchGroup::BYTES;

    #[inline(always)]
    fn prepare(self, program: &Program, group: u32, to: Shared) {
        self.batch.describe(program, group, to).find_places(program, self.chunk_bytes);
    }

    #[inline(always)]
    fn of_group(self, group: u32) -> (Directory, u32) {
        let (tensor, number) = self.batch.group(group);
        (Directory(self.frame.at(tensor.directory())), number)
    }

    /// Also says how many words are before a tensor, when its first group starts.
    #[inline(always)]
    fn store_start(self, group: u32, start: u64) {
        let (tensor, number) = self.batch.group(group);
        Directory(self.frame.at(tensor.directory())).store_start(number, start);
        if number == 0 {
            self.frame.store_words(tensor.words_at(), tensor.words_places(), start);
        }
    }

    #[inline(always)]
    fn want_checksums(self) -> bool {
        self.wanted.any()
    }

    #[inline(always)]
    fn add_checksums(self, program: &Program, group: u32, seat: u32, lanes: u32, sums: &Tile<u32>) {
        let (tensor, number) = self.batch.group(group);
        let sums =
            SumsInLanes { elements: tensor.elements(), first: number * GROUP + seat, lanes, sums: *sums };
        let chunk_sums = || ChunkSums::at(self.frame.at(tensor.chunk_sums()));
        sums.keep(program, self.wanted, || self.sums.of(tensor.number()), chunk_sums);
    }
}

impl BatchFrameIn {
    /// The directory of a group, and the number of the group there: for who looks ahead.
    #[inline(always)]
    pub fn directory(self, batch: Batch, group: u32) -> (DirectoryIn, u32) {
        let (tensor, number) = batch.group(group);
        (DirectoryIn::from_start(self.at(tensor.directory())), number)
    }
}
