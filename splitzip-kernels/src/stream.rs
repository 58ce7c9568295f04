//! The numbers of the frame format (`docs/format.md`) that kernels know.

/// Elements in a chunk: 32 in each of the 32 lanes of a program.
pub const CHUNK: u32 = 1024;
/// Chunks in a group, which has one record in the directory.
pub const GROUP: u32 = 16;
/// Bytes of the record of a group: the word where its variable parts start (u64), then an entry (u16) for every chunk.
pub const RECORD_BYTES: u32 = 40;
/// Where the entries start in a record.
pub const RECORD_ENTRIES: u32 = 8;
/// The bits of an entry that count the words of the variable part.
pub const ENTRY_WORDS: u32 = 0x0fff;
/// Where the mode is in an entry.
pub const ENTRY_MODE_SHIFT: u32 = 12;

/// The chunk is coded as its scheme says.
pub const MODE_CODED: u32 = 0;
/// The same, with a code for exponent 0.
pub const MODE_ZEROS: u32 = 1;
/// The exponents are stored as they are: low bits in the code plane, high bits in the variable part.
pub const MODE_RAW: u32 = 2;
/// All elements of the chunk are the one in its variable part.
pub const MODE_EQUAL: u32 = 3;

/// Chunks of a tensor.
#[inline(always)]
pub const fn chunks(elements: u64) -> u64 {
    elements.div_ceil(CHUNK as u64)
}

/// Groups of a tensor.
#[inline(always)]
pub const fn groups(elements: u64) -> u64 {
    elements.div_ceil((CHUNK * GROUP) as u64)
}
