//! Which parts of a memory are free.
//!
//! Frames have all sizes, so parts are handed out best fit and given back in any order; neighbours that are free become one.

use std::collections::BTreeMap;
use std::ops::Range;

/// Everything starts and ends at a multiple of this: a page, so that files can be written past the cache of the system, and no two frames share a line.
pub(super) const ALIGNMENT: u64 = 4096;

/// The free parts of a memory: where they start, and their lengths.
#[derive(Debug)]
pub(super) struct Extents {
    free: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Extents {
    /// A memory of which all is free: as many whole pages as `bytes` have.
    pub fn new(bytes: u64) -> Extents {
        let bytes = bytes / ALIGNMENT * ALIGNMENT;
        let free = if bytes == 0 { BTreeMap::new() } else { BTreeMap::from([(0, bytes)]) };
        Extents { free, bytes }
    }

    /// All of its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that are free, in however many parts.
    pub fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    /// What a request for so many bytes takes.
    pub fn rounded(bytes: u64) -> Option<u64> {
        bytes.max(1).checked_next_multiple_of(ALIGNMENT)
    }

    /// The smallest free part with room for so many bytes loses its start.
    pub fn take(&mut self, bytes: u64) -> Option<Range<u64>> {
        let bytes = Extents::rounded(bytes)?;
        let fitting = self.free.iter().filter(|&(_, &length)| length >= bytes);
        let (&start, &length) = fitting.min_by_key(|&(_, &length)| length)?;
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
        }
        Some(start..start + bytes)
    }

    /// Frees a part that was taken, or its end.
    pub fn give(&mut self, part: Range<u64>) {
        let Range { mut start, mut end } = part;
        if start >= end {
            return;
        }
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(length) = self.free.remove(&end) {
            end += length;
        }
        self.free.insert(start, end - start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_smallest_part_that_is_large_enough_is_taken() {
        let page = ALIGNMENT;
        let mut extents = Extents::new(10 * page + 1);
        assert_eq!(extents.bytes(), 10 * page);
        let parts: Vec<_> = [3, 1, 2, 1].map(|pages| extents.take(pages * page).unwrap()).into();
        extents.give(parts[0].clone());
        extents.give(parts[2].clone());
        // Free are 3, 2 and 3 pages.
        assert_eq!(extents.take(page + 1).unwrap(), parts[2]);
        assert_eq!(extents.take(4 * page), None);
        assert_eq!(extents.free_bytes(), 6 * page);
        extents.give(parts[1].clone());
        assert_eq!(extents.take(4 * page).unwrap(), 0..4 * page);
    }

    #[test]
    fn sizes_at_the_ends() {
        assert_eq!(Extents::new(ALIGNMENT - 1).take(1), None);
        let mut extents = Extents::new(ALIGNMENT);
        assert_eq!(extents.take(u64::MAX), None);
        assert_eq!(extents.take(0).unwrap(), 0..ALIGNMENT, "even nothing has a place of its own");
        assert_eq!(extents.take(0), None);
    }

    proptest! {
        /// Whatever is taken, given back in part or in whole: parts lie apart, and in the end all is one free part again.
        #[test]
        fn parts_never_overlap(steps in prop::collection::vec((0u64..9 * ALIGNMENT, any::<prop::sample::Index>(), 0u8..3), 1..200)) {
            let mut extents = Extents::new(64 * ALIGNMENT);
            let mut taken: Vec<Range<u64>> = Vec::new();
            for (bytes, index, kind) in steps {
                match kind {
                    0 if !taken.is_empty() => extents.give(taken.swap_remove(index.index(taken.len()))),
                    1 if !taken.is_empty() => {
                        let of = index.index(taken.len());
                        let kept = taken[of].start + bytes.min(taken[of].end - taken[of].start) / ALIGNMENT * ALIGNMENT;
                        extents.give(kept..taken[of].end);
                        taken[of].end = kept;
                    }
                    _ => taken.extend(extents.take(bytes)),
                }
                let held: u64 = taken.iter().map(|part| part.end - part.start).sum();
                prop_assert_eq!(held + extents.free_bytes(), extents.bytes());
                let mut sorted: Vec<_> = taken.iter().filter(|part| !part.is_empty()).cloned().collect();
                sorted.sort_by_key(|part| part.start);
                prop_assert!(sorted.windows(2).all(|pair| pair[0].end <= pair[1].start));
            }
            taken.into_iter().for_each(|part| extents.give(part));
            prop_assert_eq!(extents.take(64 * ALIGNMENT), Some(0..64 * ALIGNMENT));
        }
    }
}
