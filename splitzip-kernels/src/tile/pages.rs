//! Elements in pages: where the bytes of a tensor of a batch lie, and how a chunk gets from there and back.
//!
//! Most chunks lie in one piece: a token of 8 heads of 128 bf16 is 2 KiB, and a page has 16 of them. Then a chunk costs one place, and is read and written
//! as any other. Where heads or tokens of other tensors lie between (`HND`, keys and values of a head in one row), a lane finds a place for every 16
//! bytes: read chunks are copied together, and coded from there, since coding reads its elements more than once; written chunks go by way of the program's memory.
//! Anything else (odd rows, addresses that are no multiple of 16, the first and the last chunk of a range) moves in smaller units the same way.

use super::batch::{BatchGroup, BatchWorkspace, ChunkPlace, Described, InBatch};
use super::{BatchTensor, Chunk, Fill, In, InChunk, Program, Status, TailArea, Tile, Words};
use crate::arch::{self, Shared};
use crate::stream::CHUNK;

/// Bytes that a program needs to copy a chunk together.
pub const PIECES_BYTES: u64 = 2048;

impl<M: Described> InBatch<M> {
    /// Where byte `byte` of the tensor lies; null if its page is none of the pool.
    #[inline(always)]
    pub(in crate::tile) fn place(self, byte: u64) -> *mut u8 {
        let (entry, at) = self.entry(byte);
        self.in_page(self.page(entry), at)
    }

    /// The entry of the page table for byte `byte`, and where it lies in that page.
    #[inline(always)]
    fn entry(self, byte: u64) -> (u64, u64) {
        let (run, inside) = divided(self.skew().wrapping_add(byte), self.run_bytes(), self.run_inverse());
        let (runs_in_row, rows_in_page) = (self.runs_in_row() as u64, self.rows_in_page() as u64);
        if runs_in_row * rows_in_page == 1 {
            return (run, inside);
        }
        let (row, run) = divided(run, runs_in_row, self.row_inverse());
        let (page, row) = divided(row, rows_in_page, self.page_inverse());
        (page, inside + run * self.run_stride() + row * self.row_stride())
    }

    /// A byte of a page; null if that is none of the pool.
    #[inline(always)]
    fn in_page(self, page: u64, at: u64) -> *mut u8 {
        if page >= self.pages() {
            return core::ptr::null_mut();
        }
        (self.pool() + page * self.page_stride() + at) as usize as *mut u8
    }

    /// The number of the page of an entry of the table.
    #[inline(always)]
    fn page(self, entry: u64) -> u64 {
        self.page_of(self.page_words(entry))
    }

    /// What memory holds of that number.
    #[inline(always)]
    fn page_words(self, entry: u64) -> [u32; 2] {
        let (ids, bytes) = (self.ids(), self.id_bytes());
        if bytes == BatchTensor::CONSECUTIVE {
            let page = ids.wrapping_add(entry);
            return [page as u32, (page >> 32) as u32];
        }
        let at = (ids + entry * bytes as u64) as usize as *const u8;
        // SAFETY: the table has this entry. Addresses of 8 bytes need not be a multiple of more than 4.
        unsafe { [arch::load32(at), if bytes == 8 { arch::load32(at.wrapping_add(4)) } else { 0 }] }
    }

    #[inline(always)]
    fn page_of(self, [low, high]: [u32; 2]) -> u64 {
        let high = if self.id_bytes() == 4 { ((low as i32) >> 31) as u32 } else { high };
        (high as u64) << 32 | low as u64
    }

    /// Asks for the page of a chunk that is wanted in whole and lies in one piece, and keeps where it lies there with `group`.
    #[inline(always)]
    pub fn ask_for_page<W: Words>(self, group: BatchGroup, chunk: &Chunk) -> Asked {
        let start = chunk.index as u64 * W::CHUNK_BYTES as u64;
        let mut asked = Asked { page: [0, 0], is_straight: 0 };
        if self.is_straight() != 0 && self.from() <= start && start + W::CHUNK_BYTES as u64 <= self.to() {
            let (entry, at) = self.entry(start);
            group.keep(1, at);
            asked = Asked { page: self.page_words(entry), is_straight: 1 };
        }
        asked
    }

    /// Keeps the place with `group`, once the page is known: null for another chunk, and if the page is none of the pool.
    #[inline(always)]
    pub fn keep_place(self, program: &Program, group: BatchGroup, asked: Asked) {
        let mut place = 0;
        if asked.is_straight != 0 {
            program.sync();
            place = self.in_page(self.page_of(asked.page), group.kept(1)) as usize as u64;
        }
        group.keep(0, place);
    }

    /// The chunk in one piece: where it lies, or a copy. Of a short one, a copy in `tail` that is filled up with its first element.
    #[inline(always)]
    pub fn load<W: Words>(
        self,
        program: &Program,
        chunk: &Chunk,
        place: ChunkPlace,
        workspace: BatchWorkspace,
        status: Status,
    ) -> InChunk<W> {
        let mut at: *const u8 = place.0;
        if at.is_null() {
            arch::rare();
            let bytes = chunk.valid * (W::CHUNK_BYTES / CHUNK);
            let unit = if chunk.is_whole() { self.unit() } else { self.edge_unit() };
            let copy = workspace.at(program.slot() as u64 * PIECES_BYTES);
            // Other lanes may still read the chunk before.
            program.sync();
            self.copy_together(chunk.index as u64 * W::CHUNK_BYTES as u64, bytes, unit, copy, status);
            program.sync();
            // A short one is filled up, in its tail.
            let start = copy.wrapping_sub(chunk.index as usize * W::CHUNK_BYTES as usize);
            at = In::<W>::from_start(start)
                .chunk(program, chunk, Fill::FirstElement, TailArea::Words)
                .address();
        }
        InChunk::at(at)
    }

    /// Copies `bytes` bytes from byte `start` on. What lies in no page becomes zero.
    #[inline(always)]
    fn copy_together(self, start: u64, bytes: u32, unit: u32, copy: *mut u8, status: Status) {
        for lane in arch::lanes() {
            let (mut at, mut missing) = (lane * unit, 0);
            while at < bytes {
                let from = self.place(start + at as u64);
                missing |= from.is_null() as u32;
                // SAFETY: a unit does not cross the end of its run; the copy has room for a chunk.
                unsafe { copy_unit(copy.wrapping_add(at as usize), from, unit) }
                at += 32 * unit;
            }
            if missing != 0 {
                status.report_in_lane(Status::DAMAGED);
            }
        }
    }

    /// Copies 2048 bytes of a stored tensor, piece `index` of it, from its pages to a plane, or (`to_plane` is 0) back: what is wanted of them.
    #[inline(always)]
    pub(crate) fn copy_piece(self, index: u32, plane: *mut u8, to_plane: u32, status: Status) {
        const BYTES: u32 = 2048;
        let start = index as u64 * BYTES as u64;
        let bytes = |byte: u64| byte.saturating_sub(start).min(BYTES as u64) as u32;
        let (from, to, plane) = (bytes(self.from()), bytes(self.to()), plane.wrapping_add(start as usize));
        let is_whole = from == 0 && to == BYTES;
        if is_whole && self.is_straight() != 0 {
            let place = self.place(start);
            if place.is_null() {
                status.report(Status::DAMAGED);
                return;
            }
            let (from, to) = if to_plane != 0 { (place, plane) } else { (plane, place) };
            for lane in arch::lanes() {
                let (own, mut words) = (lane as usize * 16, [[0; 4]; 4]);
                // SAFETY: a whole piece within a run, and of the plane.
                unsafe {
                    crate::unroll!(g < 4 => words[g] = arch::load128(from.wrapping_add(own + g * 512)));
                    crate::unroll!(g < 4 => arch::store128(to.wrapping_add(own + g * 512), words[g]));
                }
            }
            return;
        }
        let unit = if is_whole { self.unit() } else { self.edge_unit() };
        for lane in arch::lanes() {
            let mut at = from + lane * unit;
            while at < to {
                let (place, own) =
                    (self.place_or_report(start + at as u64, status), plane.wrapping_add(at as usize));
                let (to, from) = if to_plane != 0 { (own, place) } else { (place, own) };
                if !to.is_null() {
                    // SAFETY: a unit does not cross the end of its run, and is one of the plane.
                    unsafe { copy_unit(to, from, unit) }
                }
                at += 32 * unit;
            }
        }
    }

    /// A place for one lane; null, and reported, if there is none.
    #[inline(always)]
    fn place_or_report(self, byte: u64, status: Status) -> *mut u8 {
        let place = self.place(byte);
        if place.is_null() {
            status.report_in_lane(Status::DAMAGED);
        }
        place
    }

    /// Writes what is wanted of a chunk to its places (the one that was kept with `group`, if it has one), and nothing else. Takes the memory of the program for a chunk.
    #[inline(always)]
    pub fn store<W: Words>(
        self,
        program: &Program,
        chunk: &Chunk,
        group: BatchGroup,
        tile: &Tile<W>,
        status: Status,
    ) {
        let place = group.kept(0) as usize as *mut u8;
        if !place.is_null() {
            for lane in arch::lanes() {
                // SAFETY: a whole chunk within a run.
                unsafe { tile.at(lane).write(place, lane) }
            }
            return;
        }
        let start = chunk.index as u64 * W::CHUNK_BYTES as u64;
        let bytes = |byte: u64| byte.saturating_sub(start).min(W::CHUNK_BYTES as u64) as u32;
        let (from, to) = (bytes(self.from()), bytes(self.to()));
        let whole = from == 0 && to == W::CHUNK_BYTES;
        // Through the memory of the program: then a lane holds one unit and its place, and not all of its words.
        let (unit, shared) = (if whole { self.unit() } else { self.edge_unit() }, program.shared());
        program.sync();
        for lane in arch::lanes() {
            let words = tile.at(lane);
            crate::unroll!(g < 4 => {
                let ([a, b, c, d], own) = (words.run(g), shared.at((g as u32 * 32 + lane) * W::COUNT));
                own.store64([a, b]);
                if W::COUNT == 16 {
                    own.at(8).store64([c, d]);
                }
            });
        }
        program.sync();
        for lane in arch::lanes() {
            let mut at = from + lane * unit;
            while at < to {
                let place = self.place_or_report(start + at as u64, status);
                if !place.is_null() {
                    // SAFETY: the place is that of so many bytes, which do not cross the end of their run.
                    unsafe { store_unit(place, unit, shared.at(at)) }
                }
                at += 32 * unit;
            }
        }
    }
}

/// A page number on its way.
#[derive(Clone, Copy)]
pub struct Asked {
    page: [u32; 2],
    is_straight: u32,
}

/// Quotient and remainder by a divisor whose [inverse](BatchTensor::inverse) is known: a division of 64 bits is a call on a GPU, this is one multiplication,
/// whose quotient is right or one too small.
#[inline(always)]
fn divided(x: u64, divisor: u64, inverse: u64) -> (u64, u64) {
    let quotient = ((x as u128 * inverse as u128) >> 64) as u64;
    let rest = x.wrapping_sub(quotient.wrapping_mul(divisor));
    if rest >= divisor { (quotient + 1, rest - divisor) } else { (quotient, rest) }
}

/// Copies `unit` bytes, 1, 2, 4, 8 or 16; zeros from nowhere.
///
/// # Safety
/// Both are multiples of that, and valid for so many bytes; `from` may be null.
#[inline(always)]
unsafe fn copy_unit(to: *mut u8, from: *const u8, unit: u32) {
    let is_there = !from.is_null();
    // SAFETY: by contract.
    unsafe {
        // By bits: of a `match`, LLVM makes a table of jumps.
        if unit & 16 != 0 {
            arch::store128(to, if is_there { arch::load128(from) } else { [0; 4] })
        } else if unit & 8 != 0 {
            arch::store64(to, if is_there { arch::load64(from) } else { [0; 2] })
        } else if unit & 4 != 0 {
            arch::store32(to, if is_there { arch::load32(from) } else { 0 })
        } else if unit & 2 != 0 {
            arch::store16(to, if is_there { arch::load16(from) } else { 0 })
        } else {
            arch::store8(to, if is_there { arch::load8(from) } else { 0 })
        }
    }
}

/// Copies `unit` bytes, 1, 2, 4, 8 or 16.
///
/// # Safety
/// `p` is a multiple of that, and valid for writes of so many bytes.
#[inline(always)]
unsafe fn store_unit(p: *mut u8, unit: u32, from: Shared) {
    // SAFETY: by contract.
    unsafe {
        if unit & 16 != 0 {
            arch::store128(p, from.load128())
        } else if unit & 8 != 0 {
            arch::store64(p, from.load64())
        } else if unit & 4 != 0 {
            arch::store32(p, from.load32())
        } else if unit & 2 != 0 {
            arch::store16(p, from.load8() | from.at(1).load8() << 8)
        } else {
            arch::store8(p, from.load8())
        }
    }
}
