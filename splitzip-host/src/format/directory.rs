//! Directory records: 40 bytes for a group of 16 chunks, so that any chunk can be found alone for 2.5 bytes a chunk.

use super::{GROUP, RECORD_BYTES, TensorLayout};
use crate::{Bases, Scheme};

/// How a chunk is coded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// As its scheme says.
    Coded,
    /// With a code for exponent 0, and a base of its own.
    Zeros,
    /// Every exponent in full.
    Raw,
    /// All elements are equal; the variable part is the element.
    Equal,
}

impl Mode {
    /// All modes, in the order of their ids.
    pub const ALL: [Mode; 4] = [Mode::Coded, Mode::Zeros, Mode::Raw, Mode::Equal];
}

/// The entry of a chunk: its mode, and the words of its variable part.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// How the chunk is coded.
    pub mode: Mode,
    /// 4-byte words of its variable part, below 4096.
    pub words: u16,
}

impl Entry {
    /// The 16 bits in the directory.
    pub const fn bits(self) -> u16 {
        (self.mode as u16) << 12 | self.words
    }

    /// The entry of 16 bits; `None` for an unknown mode.
    pub fn from_bits(bits: u16) -> Option<Entry> {
        let mode = *Mode::ALL.get(usize::from(bits >> 12))?;
        Some(Entry { mode, words: bits & 0xfff })
    }

    /// Says what is wrong with this entry for a chunk of `elements` elements, if anything is.
    pub(crate) fn check(self, tensor: &TensorLayout, elements: usize) -> Result<(), String> {
        let words = u32::from(self.words);
        let raw = tensor.raw_words(elements);
        let own_base =
            self.mode == Mode::Zeros || (tensor.scheme.has_window() && tensor.bases == Bases::Chunk);
        let (least, most) = match self.mode {
            Mode::Zeros if tensor.scheme == Scheme::W4 => {
                return Err("w4 has no mode for zeros".to_owned());
            }
            Mode::Coded | Mode::Zeros => (u32::from(own_base), raw.saturating_sub(1)),
            Mode::Raw => (raw, raw),
            Mode::Equal => (1, 1),
        };
        if words < least || words > most {
            let mode = self.mode as u8;
            return Err(format!(
                "its part (mode {mode}) has {words} words, and it can have {least} to {most}"
            ));
        }
        Ok(())
    }
}

/// The record of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// The word, from the start of the variable parts, where the parts of the group start.
    pub start: u64,
    /// The 16 bits of its chunks; 0 for chunks that do not exist.
    pub entries: [u16; GROUP],
}

impl Group {
    /// The bytes of the record.
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES as usize] {
        let mut bytes = [0; RECORD_BYTES as usize];
        bytes[..8].copy_from_slice(&self.start.to_le_bytes());
        for (slot, entry) in bytes[8..].chunks_exact_mut(2).zip(self.entries) {
            slot.copy_from_slice(&entry.to_le_bytes());
        }
        bytes
    }

    /// The record in these bytes.
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES as usize]) -> Group {
        let mut start = [0; 8];
        start.copy_from_slice(&bytes[..8]);
        let mut entries = [0; GROUP];
        for (entry, slot) in entries.iter_mut().zip(bytes[8..].chunks_exact(2)) {
            *entry = u16::from_le_bytes([slot[0], slot[1]]);
        }
        Group { start: u64::from_le_bytes(start), entries }
    }

    /// Words of the parts of the group.
    pub fn words(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry & 0xfff)).sum()
    }
}
