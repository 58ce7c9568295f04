//! Codes of one chunk: from elements to codes and a variable part, and back.

use super::bits::{BitReader, Bits};
use super::window::{Window, mean};
use crate::format::{CHUNK, ChunkPlace, Entry, Mode, PlaneKind, coding_order};
use crate::{Bases, Codebook, Dtype, Scheme};

/// What the chunks of a tensor are coded with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coder {
    pub dtype: Dtype,
    pub scheme: Scheme,
    pub bases: Bases,
    pub codebook: Option<Codebook>,
}

/// A coded chunk.
pub(crate) struct EncodedChunk {
    pub entry: Entry,
    /// What the code plane holds for every element.
    pub codes: Vec<u8>,
    /// The variable part, whole words.
    pub variable: Vec<u8>,
}

/// One way to code a chunk.
struct Try {
    mode: Mode,
    codes: Vec<u8>,
    variable: Vec<u8>,
    escapes: usize,
}

impl Coder {
    /// Codes a chunk as a canonical encoder must. `lows` has the low end of the window of every element for channel bases.
    pub fn encode(&self, words: &[u16], lows: &[u8]) -> EncodedChunk {
        let exponents: Vec<u8> = words.iter().map(|&word| self.dtype.split(word).0).collect();
        let raw_words = crate::format::raw_words(self.dtype, self.scheme, words.len()) as usize;
        let mut best = match self.scheme {
            Scheme::W4 => self.with_codebook(&exponents),
            _ => self.with_window(&exponents, lows, Mode::Coded, mean(exponents.iter().copied())),
        };
        if words.iter().all(|&word| word == words[0]) {
            let variable = u32::from(words[0]).to_le_bytes().to_vec();
            return EncodedChunk {
                entry: Entry { mode: Mode::Equal, words: 1 },
                codes: best.codes,
                variable,
            };
        }
        let many = best.escapes >= Window::new(self.dtype, self.scheme).many_escapes();
        if self.scheme.has_window() && (many || best.variable.len() / 4 >= raw_words) {
            let second = self.without_zeros(&exponents, lows);
            if second.variable.len() < best.variable.len() {
                best = second;
            }
        }
        if best.variable.len() / 4 >= raw_words {
            best = self.raw(&exponents);
        }
        let entry = Entry { mode: best.mode, words: (best.variable.len() / 4) as u16 };
        EncodedChunk { entry, codes: best.codes, variable: best.variable }
    }

    /// `w4`: an index into the codebook, or 0 and a record of position and exponent.
    fn with_codebook(&self, exponents: &[u8]) -> Try {
        let code = |exponent: u8| self.codebook.and_then(|codebook| codebook.code(exponent));
        let mut variable = Bits::default();
        let mut escapes = 0;
        for element in coding_order(exponents.len()) {
            if code(exponents[element]).is_none() {
                variable.push(element as u32, 16);
                variable.push(exponents[element].into(), 16);
                escapes += 1;
            }
        }
        let codes = exponents.iter().map(|&exponent| code(exponent).unwrap_or(0)).collect();
        Try { mode: Mode::Coded, codes, variable: variable.into_words(), escapes }
    }

    /// The other schemes, with a base of its own from `mean`, or with `lows`.
    fn with_window(&self, exponents: &[u8], lows: &[u8], mode: Mode, mean: u8) -> Try {
        let window = Window::new(self.dtype, self.scheme);
        let zeros = mode == Mode::Zeros;
        let mut variable = Bits::default();
        let own = self.own_base(mode);
        if own {
            variable.push(window.low(mean).into(), 8);
        }
        let low = |element: usize| if own { window.low(mean) } else { lows[element] };
        let value = |(element, &exponent): (usize, &u8)| window.value(low(element), zeros, exponent);
        let values: Vec<u8> = exponents.iter().enumerate().map(value).collect();

        let [first, more @ ..] = window.levels() else { unreachable!("every window has a level") };
        let codes = values.iter().map(|&value| first.code(value)).collect();
        let mut marked = coding_order(exponents.len());
        marked.retain(|&element| first.value(first.code(values[element])).is_none());
        for level in more {
            let level_codes: Vec<u8> = marked.iter().map(|&element| level.code(values[element])).collect();
            for bit in 0..level.bits {
                for code in &level_codes {
                    variable.push(u32::from(code >> bit), 1);
                }
            }
            marked.retain(|&element| level.value(level.code(values[element])).is_none());
        }
        variable.fill(8);
        for &element in &marked {
            variable.push(exponents[element].into(), self.dtype.exponent_bits());
        }
        Try { mode, codes, variable: variable.into_words(), escapes: marked.len() }
    }

    /// The second try: exponent 0 does not enter the mean, and has a code if it is a sixteenth of the chunk. With channel bases,
    /// always with a code and a base of the chunk.
    fn without_zeros(&self, exponents: &[u8], lows: &[u8]) -> Try {
        let others = exponents.iter().copied().filter(|&exponent| exponent != 0);
        let zeros = exponents.len() - others.clone().count();
        let coded = self.bases == Bases::Channel || 16 * zeros >= exponents.len();
        self.with_window(exponents, lows, if coded { Mode::Zeros } else { Mode::Coded }, mean(others))
    }

    /// The low bits of every exponent as codes, the high ones in the variable part.
    fn raw(&self, exponents: &[u8]) -> Try {
        let bits = self.scheme.code_bits();
        let kind = self.raw_kind();
        let mut variable = vec![0; kind.part_bytes(exponents.len()).next_multiple_of(4)];
        for (element, exponent) in exponents.iter().enumerate() {
            kind.set(&mut variable, exponents.len(), element, u16::from(exponent >> bits));
        }
        let codes = exponents.iter().map(|exponent| exponent & ((1 << bits) - 1)).collect();
        Try { mode: Mode::Raw, codes, variable, escapes: 0 }
    }

    fn raw_kind(&self) -> PlaneKind {
        self.scheme.plane(self.dtype.exponent_bits() - self.scheme.code_bits())
    }

    fn own_base(&self, mode: Mode) -> bool {
        mode == Mode::Zeros || self.bases == Bases::Chunk
    }

    /// The element that all elements of a chunk of mode *equal* are equal to; `None` for other modes.
    pub fn equal(&self, place: &ChunkPlace<'_>) -> Result<Option<u16>, String> {
        if place.entry.mode != Mode::Equal {
            return Ok(None);
        }
        let word = BitReader::new(place.variable).take(32)?;
        if word >> self.dtype.bits() != 0 {
            return Err(format!(
                "the element that all are equal to has more than {} bits",
                self.dtype.bits()
            ));
        }
        Ok(Some(word as u16))
    }

    /// The exponents of a chunk from its codes and variable part.
    pub fn decode(&self, codes: &[u16], place: &ChunkPlace<'_>, lows: &[u8]) -> Result<Vec<u8>, String> {
        match (place.entry.mode, self.scheme) {
            (Mode::Raw, _) => self.decode_raw(codes, place.variable),
            (_, Scheme::W4) => self.decode_codebook(codes, place.variable),
            (mode, _) => self.decode_window(codes, place.variable, lows, mode),
        }
    }

    fn decode_raw(&self, codes: &[u16], variable: &[u8]) -> Result<Vec<u8>, String> {
        let kind = self.raw_kind();
        let filling = variable.get(kind.part_bytes(codes.len())..).ok_or("its raw part is too short")?;
        // With fewer than 1024 elements even the last byte may have filling bits.
        let used = codes.len() * kind.bits() as usize % 8;
        let last = if used == 0 || codes.len() == CHUNK {
            0
        } else {
            variable[kind.part_bytes(codes.len()) - 1] >> used
        };
        if last != 0 || filling.iter().any(|&byte| byte != 0) {
            return Err("filling bits of its raw part are not zero".to_owned());
        }
        let exponent = |(element, &code): (usize, &u16)| {
            code as u8 | (kind.get(variable, codes.len(), element) << self.scheme.code_bits()) as u8
        };
        Ok(codes.iter().enumerate().map(exponent).collect())
    }

    fn decode_codebook(&self, codes: &[u16], variable: &[u8]) -> Result<Vec<u8>, String> {
        let codebook = self.codebook.ok_or("its tensor has no codebook")?;
        let mut exponents: Vec<u8> =
            codes.iter().map(|&code| codebook.exponents()[usize::from(code)]).collect();
        let mut reader = BitReader::new(variable);
        for _ in 0..variable.len() / 4 {
            let (position, exponent) = (reader.take(16)? as usize, reader.take(16)? as usize);
            if exponent >= self.dtype.exponents() {
                return Err(format!(
                    "it escapes exponent {exponent}, and {} has {}",
                    self.dtype,
                    self.dtype.exponents()
                ));
            }
            let count = exponents.len();
            let slot = exponents.get_mut(position);
            *slot.ok_or_else(|| format!("it escapes element {position} of {count}"))? = exponent as u8;
        }
        Ok(exponents)
    }

    fn decode_window(
        &self,
        codes: &[u16],
        variable: &[u8],
        lows: &[u8],
        mode: Mode,
    ) -> Result<Vec<u8>, String> {
        let window = Window::new(self.dtype, self.scheme);
        let mut reader = BitReader::new(variable);
        let own = if self.own_base(mode) { Some(reader.take(8)? as u8) } else { None };
        let low = |element: usize| match (own, lows.get(element)) {
            (Some(low), _) | (None, Some(&low)) if low <= window.limit() => Ok(low),
            (Some(low), _) | (None, Some(&low)) => {
                Err(format!("its base is {low}, above {}", window.limit()))
            }
            (None, None) => Err("its bases are missing".to_owned()),
        };
        let exponent = |element: usize, value: u8| {
            low(element).map(|low| window.exponent(low, mode == Mode::Zeros, value))
        };
        let [first, more @ ..] = window.levels() else { unreachable!("every window has a level") };
        let mut exponents = vec![0; codes.len()];
        let mut marked = Vec::new();
        for element in coding_order(codes.len()) {
            match first.value(codes[element] as u8) {
                Some(value) => exponents[element] = exponent(element, value)?,
                None => marked.push(element),
            }
        }
        for level in more {
            let mut level_codes = vec![0; marked.len()];
            for bit in 0..level.bits {
                for code in &mut level_codes {
                    *code |= (reader.take(1)? as u8) << bit;
                }
            }
            let mut left = Vec::new();
            for (element, code) in marked.into_iter().zip(level_codes) {
                match level.value(code) {
                    Some(value) => exponents[element] = exponent(element, value)?,
                    None => left.push(element),
                }
            }
            marked = left;
        }
        reader.fill(8)?;
        for element in marked {
            exponents[element] = reader.take(self.dtype.exponent_bits())? as u8;
        }
        reader.finish()?;
        Ok(exponents)
    }
}
