//! What holds for any bytes, as functions of bytes: the fuzz targets in `fuzz/`, and what `tests/promises.rs` replays without a fuzzer.
//!
//! A promise that is broken panics. Each has seeds that reach its inside, made of the golden frames.
#![allow(dead_code, reason = "each fuzz target uses one of them")]

mod files;
mod frames;
mod pages;

/// A promise by its name, which is that of its fuzz target.
pub struct Promise {
    pub name: &'static str,
    pub keep: fn(&[u8]),
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const ALL: [Promise; 8] = [
    Promise { name: "round_trip", keep: frames::round_trip, seeds: frames::element_seeds },
    Promise { name: "executors_agree", keep: frames::executors_agree, seeds: frames::element_seeds },
    Promise { name: "any_bytes", keep: frames::any_bytes, seeds: frames::frame_seeds },
    Promise { name: "damaged_frame", keep: frames::damaged_frame, seeds: frames::damage_seeds },
    Promise { name: "header", keep: frames::header, seeds: frames::header_seeds },
    Promise { name: "codebook_file", keep: files::codebook_file, seeds: files::codebook_seeds },
    Promise { name: "spz_file", keep: files::spz_file, seeds: files::spz_seeds },
    Promise { name: "pages", keep: pages::pages, seeds: pages::seeds },
];

/// Choices from the front of the bytes, 0 when there are no more.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// A number below `count`.
    fn below(&mut self, count: usize) -> usize {
        match count {
            0 | 1 => 0,
            2..=256 => usize::from(self.byte()) % count,
            _ => usize::from(u16::from_le_bytes([self.byte(), self.byte()])) % count,
        }
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}
