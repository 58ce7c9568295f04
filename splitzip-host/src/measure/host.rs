//! Executors over host memory, by the clock of the host.

use super::{
    ALIGNMENT, COMPARED_BYTES, Effort, Measured, Parts, Subject, Times, check_frame, check_tiled,
    check_tiles, reserved, tile_to,
};
use crate::{CodebookChoice, Cpu, Error, Executor, Frame, FrameSpec, Reference, Result};
use rayon::prelude::*;
use std::time::Instant;

/// Frames of the CPU are compared with the reference's, which takes a second for so many bytes, not for [`COMPARED_BYTES`].
const COMPARED_WITH_REFERENCE: u64 = 1 << 20;

/// Times of a call by the clock of the host, after some to warm up.
///
/// # Errors
/// What the call returns.
pub fn clock(effort: &Effort, call: &mut dyn FnMut() -> Result<()>) -> Result<Times> {
    let mut once = || {
        let start = Instant::now();
        call()?;
        Ok::<_, Error>(start.elapsed().as_secs_f64())
    };
    let first = once()?;
    for _ in 1..effort.warm_ups_of(first) {
        once()?;
    }
    // The first run met cold memory: how many there are to be, a warm one says.
    let seconds = once()?;
    Times::of_runs(effort.runs_of(seconds), &mut once)
}

/// Copies in as many pieces as the pool has threads: what the memory can do.
pub fn copy_with(pool: &rayon::ThreadPool, to: &mut [u8], from: &[u8]) {
    let piece = from.len().div_ceil(pool.current_num_threads()).max(1);
    let pieces = to.par_chunks_mut(piece).zip(from.par_chunks(piece));
    pool.install(|| pieces.for_each(|(to, from)| to.copy_from_slice(from)));
}

/// An executor over host memory.
pub struct HostSubject {
    executor: Box<dyn Executor>,
    is_reference: bool,
    pool: rayon::ThreadPool,
    tiles: Vec<Vec<u8>>,
    loaded: u64,
    /// One input behind the other, each with room for `stride` bytes.
    input: Vec<u8>,
    stride: u64,
    frame: Vec<u8>,
    back: Vec<u8>,
}

impl HostSubject {
    /// An executor that works with so many threads; the copy beside it has as many.
    ///
    /// # Errors
    /// [`Error::Io`] when the threads cannot be started.
    pub fn new(executor: Box<dyn Executor>, threads: usize) -> Result<HostSubject> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).build();
        let pool = pool.map_err(|error| Error::Io(std::io::Error::other(error)))?;
        let is_reference = executor.name() == Reference.name();
        let empty = Vec::new;
        Ok(HostSubject {
            executor,
            is_reference,
            pool,
            tiles: Vec::new(),
            loaded: 0,
            input: empty(),
            stride: 0,
            frame: empty(),
            back: empty(),
        })
    }

    /// The frame beside which that of this executor is put.
    fn expected(
        &self,
        spec: &FrameSpec,
        codebooks: &[CodebookChoice],
        raw: &[&[u8]],
    ) -> Result<Option<(&'static str, Vec<u8>)>> {
        if spec.flags.arrival {
            return Ok(None);
        }
        let bytes = raw.iter().map(|raw| raw.len() as u64).sum::<u64>();
        let frame = |of: &dyn Executor| of.encode_to_vec(spec, codebooks, raw);
        Ok(match self.is_reference {
            true if bytes <= COMPARED_BYTES => Some(("cpu", frame(&Cpu::new())?)),
            false if bytes <= COMPARED_WITH_REFERENCE => Some(("reference", frame(&Reference)?)),
            _ => None,
        })
    }
}

impl Subject for HostSubject {
    fn load(&mut self, tiles: &[&[u8]], bytes: u64) -> Result<()> {
        check_tiles(tiles, bytes)?;
        let too_large = || Error::HostMemory { bytes: u64::MAX };
        let stride = bytes.checked_next_multiple_of(ALIGNMENT).ok_or_else(too_large)?;
        let all = stride.checked_mul(tiles.len() as u64).ok_or_else(too_large)?;
        (self.loaded, self.input) = (0, Vec::new());
        let mut input = reserved(all)?;
        for (number, tile) in (1..).zip(tiles) {
            tile_to(&mut input, tile, bytes as usize);
            input.resize((number * stride) as usize, 0);
        }
        self.tiles = tiles.iter().map(|tile| tile.to_vec()).collect();
        (self.input, self.stride, self.loaded) = (input, stride, bytes);
        Ok(())
    }

    /// Only Linux says what is free; elsewhere every size has room.
    fn check_room(&self, spec: &FrameSpec) -> Result<()> {
        let frame = spec.layout()?.max_frame_bytes;
        // Several threads code into a scratch that is as long as the frame.
        let needed = 2 * Parts::of(spec)?.room + 2 * frame;
        let held = [&self.input, &self.frame, &self.back].map(|buffer| buffer.capacity() as u64);
        match free_memory() {
            Some(free) if needed > free + held.iter().sum::<u64>() => {
                Err(Error::HostMemory { bytes: needed })
            }
            _ => Ok(()),
        }
    }

    fn measure(&mut self, spec: &FrameSpec, codebook: CodebookChoice, effort: &Effort) -> Result<Measured> {
        let parts = Parts::of(spec)?;
        parts.check(self.tiles.len(), self.loaded)?;
        grow(&mut self.frame, spec.layout()?.max_frame_bytes)?;
        grow(&mut self.back, parts.room)?;
        let codebooks = vec![codebook; parts.bytes.len()];
        let starts = (0..).map(|number| (number * self.stride) as usize);
        let raw: Vec<&[u8]> =
            starts.zip(&parts.bytes).map(|(at, &bytes)| &self.input[at..at + bytes as usize]).collect();
        let expected = self.expected(spec, &codebooks, &raw)?;
        let (executor, pool) = (&*self.executor, &self.pool);
        let (frame, back) = (&mut self.frame, &mut self.back[..parts.room as usize]);

        let raw_bytes = parts.raw_bytes;
        let copy = clock(effort, &mut || {
            copy_with(pool, &mut back[..raw_bytes as usize], &self.input[..raw_bytes as usize]);
            Ok(())
        })?;
        let mut length = 0;
        let encode = clock(effort, &mut || {
            length = executor.encode(spec, &codebooks, &raw, frame)?;
            Ok(())
        })?;
        let frame = &frame[..length];
        if let Some((_, expected)) = &expected {
            check_frame(&format!("the frame of {}", executor.name()), frame, expected)?;
        }
        let parsed = Frame::parse(frame)?;
        // Overwritten, so that nothing that was there before can be taken for the result.
        back.fill(0xa5);
        let mut outputs = Vec::new();
        let mut rest = back;
        for &bytes in &parts.bytes {
            let (output, behind) = rest.split_at_mut(bytes.next_multiple_of(ALIGNMENT) as usize);
            outputs.push(&mut output[..bytes as usize]);
            rest = behind;
        }
        let decode = clock(effort, &mut || executor.decode(&parsed, &mut outputs))?;
        let what = format!("the bytes that {} decodes", executor.name());
        for (output, tile) in outputs.iter().zip(&self.tiles) {
            check_tiled(&what, output, tile, 0)?;
        }
        Ok(Measured {
            raw_bytes,
            frame_bytes: length as u64,
            copy,
            encode,
            decode,
            device: None,
            compared_with: expected.map(|(name, _)| name),
        })
    }
}

/// Bytes that the system could give without taking any from others.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Makes a buffer at least so long.
fn grow(buffer: &mut Vec<u8>, bytes: u64) -> Result<()> {
    if (buffer.len() as u64) < bytes {
        *buffer = Vec::new();
        *buffer = reserved(bytes)?;
        buffer.resize(bytes as usize, 0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tiled;
    use super::*;
    use crate::{Bases, Dtype, Flags, Histogram, Scheme, TensorSpec};
    use std::ops::Range;

    fn spec(bytes: u64) -> FrameSpec {
        let tensor =
            TensorSpec::new("kv", Dtype::Bf16, Scheme::W2x3, &[bytes / 128, 64]).with_bases(Bases::Channel);
        FrameSpec::new(vec![tensor], Flags::default())
    }

    fn tile() -> Vec<u8> {
        (0..5000u32).flat_map(|i| (0x3f80 + (i * 37 % 512) as u16).to_le_bytes()).collect()
    }

    const EFFORT: Effort = Effort { runs: 3, seconds: 0.1 };

    #[test]
    fn both_host_executors_are_compared_with_each_other() {
        for (executor, other) in
            [(Box::new(Cpu::new()) as Box<dyn Executor>, "reference"), (Box::new(Reference), "cpu")]
        {
            let mut subject = HostSubject::new(executor, 2).unwrap();
            subject.load(&[&tile()], 1 << 17).unwrap();
            for bytes in [1 << 17, 1 << 10] {
                let measured = subject.measure(&spec(bytes), CodebookChoice::Auto, &EFFORT).unwrap();
                assert_eq!((measured.raw_bytes, measured.compared_with), (bytes, Some(other)));
                assert_eq!((measured.encode.runs(), measured.device), (3, None));
            }
            let arrival = FrameSpec { flags: Flags { arrival: true, ..Flags::default() }, ..spec(1 << 17) };
            let measured = subject.measure(&arrival, CodebookChoice::Auto, &EFFORT).unwrap();
            assert_eq!(measured.compared_with, None);
            assert!(measured.ratio() > 1.2 && measured.encode_share() > 0.0);
            let more = subject.measure(&spec(1 << 18), CodebookChoice::Auto, &EFFORT);
            assert!(matches!(more, Err(Error::BufferSize { .. })));
            assert!(matches!(subject.load(&[&[]], 1), Err(Error::BufferSize { .. })));
            let two =
                FrameSpec { tensors: [spec(1 << 10).tensors, spec(1 << 10).tensors].concat(), ..spec(0) };
            assert!(matches!(subject.measure(&two, CodebookChoice::Auto, &EFFORT), Err(Error::Count { .. })));
        }
    }

    /// Keys with channel bases and values with chunk bases, of different bits, in one frame.
    #[test]
    fn a_frame_has_a_tensor_for_every_input() {
        let bytes = 1 << 14;
        let mut two = spec(bytes);
        two.tensors.push(TensorSpec { bases: Bases::Chunk, ..two.tensors[0].clone() });
        two.tensors[1].shape = vec![bytes / 128 - 3, 64];
        let (keys, values) = (tile(), tile().into_iter().rev().collect::<Vec<u8>>());
        let mut subject = HostSubject::new(Box::new(Cpu::new()), 1).unwrap();
        subject.load(&[&keys, &values], bytes + 100).unwrap();
        let measured = subject.measure(&two, CodebookChoice::Auto, &EFFORT).unwrap();
        assert_eq!((measured.raw_bytes, measured.compared_with), (2 * bytes - 3 * 128, Some("reference")));
        let inputs = [&tiled(&keys, bytes).unwrap()[..], &tiled(&values, bytes - 3 * 128).unwrap()];
        let frame = Cpu::new().encode_to_vec(&two, &[], &inputs).unwrap();
        assert_eq!(measured.frame_bytes, frame.len() as u64);
        let one = subject.measure(&spec(bytes), CodebookChoice::Auto, &EFFORT);
        assert!(matches!(one, Err(Error::Count { expected: 1, got: 2, .. })));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn more_than_there_is_has_no_room() {
        let subject = HostSubject::new(Box::new(Cpu::new()), 1).unwrap();
        subject.check_room(&spec(1 << 20)).unwrap();
        let error = subject.check_room(&spec(1 << 46)).unwrap_err();
        assert!(matches!(error, Error::HostMemory { bytes } if bytes > 1 << 47), "{error}");
    }

    /// An executor with a fault: a bit of what it decodes, or of the frame.
    struct Faulty {
        decodes: bool,
    }

    impl Executor for Faulty {
        fn name(&self) -> String {
            "faulty".to_owned()
        }
        fn histogram(&self, dtype: Dtype, bytes: &[u8]) -> Result<Histogram> {
            Reference.histogram(dtype, bytes)
        }
        fn encode(
            &self,
            spec: &FrameSpec,
            codebooks: &[CodebookChoice],
            inputs: &[&[u8]],
            out: &mut [u8],
        ) -> Result<usize> {
            let length = Reference.encode(spec, codebooks, inputs, out)?;
            out[length - 1] ^= u8::from(!self.decodes);
            Ok(length)
        }
        fn decode(&self, frame: &Frame<'_>, outputs: &mut [&mut [u8]]) -> Result<()> {
            Reference.decode(frame, outputs)?;
            outputs[0][77] ^= 1;
            Ok(())
        }
        fn decode_range(&self, f: &Frame<'_>, t: usize, c: Range<u64>, o: &mut [u8]) -> Result<()> {
            Reference.decode_range(f, t, c, o)
        }
    }

    #[test]
    fn a_fault_is_no_measurement() {
        for decodes in [true, false] {
            let mut subject = HostSubject::new(Box::new(Faulty { decodes }), 1).unwrap();
            subject.load(&[&tile()], 1 << 14).unwrap();
            let error = subject.measure(&spec(1 << 14), CodebookChoice::Auto, &EFFORT).unwrap_err();
            let Error::Differs { what, at } = error else { panic!("{error}") };
            assert_eq!(what.contains("decodes"), decodes, "{what}");
            assert!(!decodes || at == 77, "{at}");
        }
    }
}
