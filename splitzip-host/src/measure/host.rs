//! Executors over host memory, by the clock of the host.

use super::{
    COMPARED_BYTES, Effort, Measured, Subject, Times, check_frame, check_loaded, check_tile, check_tiled,
    one_tensor, reserved, tiled,
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
    tile: Vec<u8>,
    input: Vec<u8>,
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
            tile: empty(),
            input: empty(),
            frame: empty(),
            back: empty(),
        })
    }

    /// The frame beside which that of this executor is put.
    fn expected(
        &self,
        spec: &FrameSpec,
        codebook: CodebookChoice,
        raw: &[u8],
    ) -> Result<Option<(&'static str, Vec<u8>)>> {
        if spec.flags.arrival {
            return Ok(None);
        }
        let bytes = raw.len() as u64;
        let frame = |of: &dyn Executor| of.encode_to_vec(spec, &[codebook], &[raw]);
        Ok(match self.is_reference {
            true if bytes <= COMPARED_BYTES => Some(("cpu", frame(&Cpu::new())?)),
            false if bytes <= COMPARED_WITH_REFERENCE => Some(("reference", frame(&Reference)?)),
            _ => None,
        })
    }
}

impl Subject for HostSubject {
    fn load(&mut self, tile: &[u8], bytes: u64) -> Result<()> {
        check_tile(tile, bytes)?;
        self.input = Vec::new();
        (self.tile, self.input) = (tile.to_vec(), tiled(tile, bytes)?);
        Ok(())
    }

    /// Only Linux says what is free; elsewhere every size has room.
    fn check_room(&self, spec: &FrameSpec) -> Result<()> {
        let frame = spec.layout()?.max_frame_bytes;
        // Several threads code into a scratch that is as long as the frame.
        let needed = 2 * one_tensor(spec)? + 2 * frame;
        let held = [&self.input, &self.frame, &self.back].map(|buffer| buffer.capacity() as u64);
        match free_memory() {
            Some(free) if needed > free + held.iter().sum::<u64>() => {
                Err(Error::HostMemory { bytes: needed })
            }
            _ => Ok(()),
        }
    }

    fn measure(&mut self, spec: &FrameSpec, codebook: CodebookChoice, effort: &Effort) -> Result<Measured> {
        let raw_bytes = one_tensor(spec)?;
        check_loaded(self.input.len() as u64, raw_bytes)?;
        grow(&mut self.frame, spec.layout()?.max_frame_bytes)?;
        grow(&mut self.back, raw_bytes)?;
        let expected = self.expected(spec, codebook, &self.input[..raw_bytes as usize])?;
        let raw = &self.input[..raw_bytes as usize];
        let (executor, pool) = (&*self.executor, &self.pool);
        let (frame, back) = (&mut self.frame, &mut self.back[..raw_bytes as usize]);

        let copy = clock(effort, &mut || {
            copy_with(pool, back, raw);
            Ok(())
        })?;
        let mut length = 0;
        let encode = clock(effort, &mut || {
            length = executor.encode(spec, &[codebook], &[raw], frame)?;
            Ok(())
        })?;
        let frame = &frame[..length];
        if let Some((_, expected)) = &expected {
            check_frame(&format!("the frame of {}", executor.name()), frame, expected)?;
        }
        let parsed = Frame::parse(frame)?;
        // Overwritten, so that nothing that was there before can be taken for the result.
        back.fill(0xa5);
        let decode = clock(effort, &mut || executor.decode(&parsed, &mut [back]))?;
        check_tiled(&format!("the bytes that {} decodes", executor.name()), back, &self.tile, 0)?;
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
            subject.load(&tile(), 1 << 17).unwrap();
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
            assert!(matches!(subject.load(&[], 1), Err(Error::BufferSize { .. })));
            let two =
                FrameSpec { tensors: [spec(1 << 10).tensors, spec(1 << 10).tensors].concat(), ..spec(0) };
            assert!(matches!(subject.measure(&two, CodebookChoice::Auto, &EFFORT), Err(Error::Count { .. })));
        }
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
            subject.load(&tile(), 1 << 14).unwrap();
            let error = subject.measure(&spec(1 << 14), CodebookChoice::Auto, &EFFORT).unwrap_err();
            let Error::Differs { what, at } = error else { panic!("{error}") };
            assert_eq!(what.contains("decodes"), decodes, "{what}");
            assert!(!decodes || at == 77, "{at}");
        }
    }
}
