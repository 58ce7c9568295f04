//! Promises about files.

use super::Choices;
use splitzip_host::conformance::Content;
use splitzip_host::file::{self, Options, OriginalStream, Part, Reader, Tokens};
use splitzip_host::{Bases, BasesChoice, CodebookFile, Cpu, Dtype, Error, Result, Scheme, SchemeChoice};
use std::io::{self, Write};

/// A codebook file is refused, or its text comes back.
pub fn codebook_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(file) = CodebookFile::from_json(text) else { return };
    let again = CodebookFile::from_json(&file.to_json()).unwrap();
    assert_eq!(again, file, "{text}");
    for (name, codebook) in file.iter() {
        assert_eq!(file.get(name, codebook.dtype()).unwrap(), *codebook);
    }
}

/// An original (a safetensors file, a `.npy` file, elements) is refused, or comes back; and so do the parts of it. Damage in what was made of it, under CRCs that
/// fit, is an error or changes nothing.
pub fn spz_file(data: &[u8]) {
    let mut choices = Choices(data);
    let options = Options {
        scheme: match choices.below(6) {
            0 => SchemeChoice::Auto,
            number => SchemeChoice::Given(Scheme::ALL[number - 1]),
        },
        bases: choices.one_of(&[
            BasesChoice::Auto,
            BasesChoice::Given(Bases::Chunk),
            BasesChoice::Given(Bases::Channel),
        ]),
        dtype: choices.one_of(&[None, None, Some(Dtype::Bf16), Some(Dtype::E4m3), Some(Dtype::E5m2)]),
        codebooks: None,
        frame_bytes: 2048 * (1 + choices.below(16) as u64),
    };
    let (damage, at) = (choices.byte(), choices.below(1 << 16));
    let (original, cpu) = (choices.0, Cpu::new());
    // Any bytes are read as a file of ours as well.
    let _ = restore(original);
    let mut made = Vec::new();
    let Ok(_) = file::compress(&cpu, original, &mut made, &options, &mut |_| Ok(())) else { return };
    assert!(restore(&made).unwrap() == original, "another original");
    // A stream is only taken when its header tells its size, and that is the right one.
    if let Ok(stream) = OriginalStream::open(original, options.dtype)
        && stream.raw_bytes() == Some(original.len() as u64)
    {
        let mut streamed = Vec::new();
        file::compress_stream(&cpu, stream, &mut streamed, &options, &mut |_| Ok(())).unwrap();
        assert!(streamed == made, "a stream gives another file");
    }
    let at = at % made.len();
    made[at] ^= damage;
    if at % 2 == 0 {
        mend(&mut made);
    }
    if let Ok(restored) = restore(&made) {
        assert!(restored == original, "damage at {at} gives another original, and no error");
    }
}

/// The original of a file, by its index and as a stream; and some tokens of its tensors, which only must not fail badly.
fn restore(bytes: &[u8]) -> Result<Vec<u8>> {
    let cpu = Cpu::new();
    let mut restored = Bounded(Vec::new());
    let seeking = Reader::from_bytes(bytes)
        .and_then(|mut reader| file::decompress(&cpu, &mut reader, &mut restored, &mut |_| Ok(())));
    let mut streamed = Bounded(Vec::new());
    let streaming = file::decompress_stream(&cpu, bytes, &mut streamed, &mut |_| Ok(()));
    if seeking.is_ok() {
        assert!(streaming.is_ok() && restored.0 == streamed.0, "a stream gives something else");
    }
    if let Ok(mut reader) = Reader::from_bytes(bytes) {
        let _ = reader.pieces();
        let tokens = Some(Tokens { start: 1, end: Some(2) });
        let part = Part { keep: &|_| true, tokens, token_axis: None };
        let _ = file::decompress_part(&cpu, &mut reader, &part, Bounded(Vec::new()), &mut |_| Ok(()));
    }
    seeking.map(|()| restored.0)
}

/// Bytes up to a bound: a packed file can describe 315 times as many as it has.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > 1 << 24 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the CRCs of the header, of the frames, of the index and of the footer, as far as these are there.
fn mend(file: &mut [u8]) {
    let put = |file: &mut [u8], at: usize, from: usize, to: usize| {
        if from <= to && to <= file.len() && at + 4 <= file.len() {
            let crc = crc32fast::hash(&file[from..to]);
            file[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        }
    };
    put(file, 124, 0, 124);
    let Some(footer) = file.len().checked_sub(32) else { return };
    let number = |file: &[u8], at: usize| {
        file.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    let Ok(index) = usize::try_from(number(file, footer)) else { return };
    for record in (index.saturating_add(48)..footer.saturating_sub(39)).step_by(40) {
        let (at, bytes) = (number(file, record), number(file, record + 8));
        if let (Ok(at), Some(end)) = (usize::try_from(at), at.checked_add(bytes))
            && let Some(end) = end.checked_next_multiple_of(128).and_then(|end| usize::try_from(end).ok())
        {
            put(file, record + 36, at, end);
        }
    }
    put(file, footer + 16, index, footer);
    put(file, footer + 20, footer, footer + 20);
}

pub fn codebook_seeds() -> Vec<Vec<u8>> {
    let mut file = CodebookFile::new();
    let empty = file.to_json();
    for (dtype, first) in [(Dtype::Bf16, 110), (Dtype::Fp16, 2), (Dtype::E5m2, 16)] {
        let codebook = splitzip_host::Codebook::new(dtype, std::array::from_fn(|i| first + i as u8)).unwrap();
        file.insert(&format!("layers.0.{dtype} \"\u{e9}\""), codebook);
        file.set_default(Some(codebook));
    }
    vec![empty.into_bytes(), file.to_json().into_bytes()]
}

pub fn spz_seeds() -> Vec<Vec<u8>> {
    let choices = |number: u8| [number, number, number, number, 1 << (number % 8), 17 * number, number];
    let bf16 = Content::Mixed.bytes(Dtype::Bf16, 3000, 64);
    let header = br#"{"__metadata__":{"a":"b"},"k":{"dtype":"BF16","shape":[3,1000],"data_offsets":[0,6000]},"v":{"dtype":"U8","shape":[2,5,10],"data_offsets":[6000,6100]}}"#;
    let safetensors = [&(header.len() as u64).to_le_bytes()[..], header, &bf16, &bf16[..100]].concat();
    let text = "{'descr': '<f2', 'fortran_order': False, 'shape': (30, 100), }\n";
    let npy = [b"\x93NUMPY\x01\0", &(text.len() as u16).to_le_bytes()[..], text.as_bytes(), &bf16].concat();
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for original in [&safetensors, &npy, &bf16] {
        seeds.extend((0..6).map(|number| [&choices(number)[..], original].concat()));
    }
    let mut made = Vec::new();
    let compressed: Result<_, Error> =
        file::compress(&Cpu::new(), &safetensors, &mut made, &Options::default(), &mut |_| Ok(()));
    compressed.unwrap();
    seeds.push([&choices(0)[..], &made].concat());
    seeds
}
