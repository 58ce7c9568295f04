//! Measuring executors: what `splitzip bench` and the criterion benches share.
//!
//! A time alone says little: it changes with the machine, with its other users and with the clock of the day. So everything here is measured beside a copy
//! of the same bytes, on the same machine, within the same second, and [`share_of_copy`] puts one over the other. A [`Subject`] is something
//! that is measured: [`HostSubject`] by the clock of the host, [`DeviceSubject`] by events of a CUDA stream. Neither returns a time for bytes that did
//! not come back: every measurement ends with a round trip into overwritten memory, and canonical frames of up to [`COMPARED_BYTES`] are
//! compared with those of another executor.
//!
//! ```
//! use splitzip_host::measure::{Effort, HostSubject, Subject};
//! use splitzip_host::{CodebookChoice, Cpu, Dtype, Flags, FrameSpec, Scheme, TensorSpec};
//!
//! # fn main() -> splitzip_host::Result<()> {
//! let tile: Vec<u8> = (0..4096u32).flat_map(|i| (0x3f80 + (i * 37 % 512) as u16).to_le_bytes()).collect();
//! let mut subject = HostSubject::new(Box::new(Cpu::with_threads(1)?), 1)?;
//! subject.load(&[&tile], 1 << 16)?; // the tile again and again
//! let tensor = TensorSpec::new("kv", Dtype::Bf16, Scheme::W2x3, &[512, 64]);
//! let spec = FrameSpec::new(vec![tensor], Flags::default());
//! let measured = subject.measure(&spec, CodebookChoice::Auto, &Effort { runs: 5, ..Effort::default() })?;
//! assert_eq!(measured.raw_bytes, 1 << 16);
//! assert!(measured.encode_share() > 0.0 && measured.decode.median() > 0.0);
//! # Ok(())
//! # }
//! ```

mod device;
mod host;
mod times;
pub mod transfer;

pub use device::{DeviceSubject, GRAPH_CALLS, Timer};
pub use host::{HostSubject, clock, copy_with};
pub use times::{Effort, Times};

use crate::{CodebookChoice, Error, FrameSpec, Result};

/// Canonical frames of up to so many raw bytes are compared with those of another executor: the CPU's frames with the reference's, a
/// GPU's with the CPU's.
pub const COMPARED_BYTES: u64 = 32 << 20;

/// Something that can be measured.
pub trait Subject {
    /// Makes an input of each tile: `bytes` bytes, those of the tile again and again. Every later measurement takes the start of each, one for
    /// each tensor of its frame.
    ///
    /// # Errors
    /// [`Error::BufferSize`] for an empty tile; no memory.
    fn load(&mut self, tiles: &[&[u8]], bytes: u64) -> Result<()>;

    /// Says whether there is room for the inputs, their frame and what comes back.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] when there is not; a description that no frame can hold.
    fn check_room(&self, spec: &FrameSpec) -> Result<()>;

    /// Encodes and decodes the start of the inputs, as often as `effort` says, and copies as many bytes as well. All tensors take the same choice
    /// of a codebook.
    ///
    /// # Errors
    /// A frame of more or fewer tensors than there are inputs, more bytes than are loaded, what the executor refuses; [`Error::Differs`] when other
    /// bytes come back, or when the frame is another one than it must be.
    fn measure(&mut self, spec: &FrameSpec, codebook: CodebookChoice, effort: &Effort) -> Result<Measured>;
}

/// What one description of a frame gave.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Measured {
    /// Bytes of the inputs.
    pub raw_bytes: u64,
    /// Bytes of the frame.
    pub frame_bytes: u64,
    /// Copying as many bytes to other memory of the same kind.
    pub copy: Times,
    /// Encoding it.
    pub encode: Times,
    /// Decoding the frame.
    pub decode: Times,
    /// What only a device has.
    pub device: Option<DeviceTimes>,
    /// The executor whose frame it was compared with, if it was.
    pub compared_with: Option<&'static str>,
}

/// The same work in a CUDA graph, and what it costs the host outside of one.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct DeviceTimes {
    /// A copy in a graph that holds it [`GRAPH_CALLS`] times, by the call.
    pub graph_copy: Times,
    /// An encode in such a graph.
    pub graph_encode: Times,
    /// A decode in such a graph.
    pub graph_decode: Times,
    /// Encoding outside of a graph, a frame with checksums of its tensors.
    pub checked_encode: Times,
    /// Decoding outside of a graph, with checksums of what is decoded; clearing them before is part of it.
    pub checked_decode: Times,
    /// Time of the host to queue one encode on an idle stream.
    pub call_encode: Times,
    /// Time of the host to queue one decode on an idle stream.
    pub call_decode: Times,
}

impl Measured {
    /// A measurement on host memory by other means than [`HostSubject`], to be put beside others.
    pub fn on_host(raw_bytes: u64, frame_bytes: u64, copy: Times, encode: Times, decode: Times) -> Measured {
        Measured { raw_bytes, frame_bytes, copy, encode, decode, device: None, compared_with: None }
    }

    /// Raw bytes over bytes of the frame.
    pub fn ratio(&self) -> f64 {
        self.raw_bytes as f64 / self.frame_bytes as f64
    }

    /// The share of a copy that encoding reaches; see [`share_of_copy`].
    pub fn encode_share(&self) -> f64 {
        self.share(&self.encode, &self.copy)
    }

    /// The share of a copy that decoding reaches.
    pub fn decode_share(&self) -> f64 {
        self.share(&self.decode, &self.copy)
    }

    /// The share of a copy measured in the same way.
    pub fn share(&self, times: &Times, copy: &Times) -> f64 {
        share_of_copy(self.raw_bytes, self.frame_bytes, times.median(), copy.median())
    }
}

/// The speed at which a codec moves bytes (`raw_bytes` and `frame_bytes`, one read and the other written) over that of a copy of `raw_bytes` (read
/// and written) in `copy_seconds`.
pub fn share_of_copy(raw_bytes: u64, frame_bytes: u64, seconds: f64, copy_seconds: f64) -> f64 {
    let moved = (raw_bytes + frame_bytes) as f64 / seconds;
    moved / (2.0 * raw_bytes as f64 / copy_seconds)
}

/// Where inputs, and what is decoded, start in the memory that holds them all: at multiples of this.
const ALIGNMENT: u64 = 256;

/// Bytes of the tensors of a frame, and where they start behind each other.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Parts {
    bytes: Vec<u64>,
    starts: Vec<u64>,
    /// Bytes of all, and those that they take with the gaps between them.
    raw_bytes: u64,
    room: u64,
}

impl Parts {
    /// # Errors
    /// [`Error::TooLarge`].
    fn of(spec: &FrameSpec) -> Result<Parts> {
        let too_large = || Error::TooLarge { what: "the number of bytes", bits: 64 };
        let mut parts = Parts { bytes: Vec::new(), starts: Vec::new(), raw_bytes: 0, room: 0 };
        for tensor in &spec.tensors {
            let bytes = tensor.elements()?.checked_mul(tensor.dtype.bytes() as u64).ok_or_else(too_large)?;
            parts.starts.push(parts.room);
            parts.bytes.push(bytes);
            parts.raw_bytes = parts.raw_bytes.checked_add(bytes).ok_or_else(too_large)?;
            let room = bytes.checked_next_multiple_of(ALIGNMENT).ok_or_else(too_large)?;
            parts.room = parts.room.checked_add(room).ok_or_else(too_large)?;
        }
        Ok(parts)
    }

    /// One input for each tensor, with as many bytes as it takes.
    ///
    /// # Errors
    /// [`Error::Count`], [`Error::BufferSize`].
    fn check(&self, inputs: usize, loaded: u64) -> Result<()> {
        if self.bytes.len() != inputs {
            return Err(Error::Count { what: "inputs", expected: self.bytes.len(), got: inputs });
        }
        self.bytes.iter().try_for_each(|&bytes| check_loaded(loaded, bytes))
    }
}

/// The first byte from `at` (a place in the tiled input) on at which `bytes` are not those of the tile.
fn differs(bytes: &[u8], tile: &[u8], at: u64) -> Option<u64> {
    let mut done = 0;
    while done < bytes.len() {
        let from = ((at + done as u64) % tile.len() as u64) as usize;
        let length = (tile.len() - from).min(bytes.len() - done);
        let (found, expected) = (&bytes[done..done + length], &tile[from..from + length]);
        if found != expected {
            let first = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(0);
            return Some(at + (done + first) as u64);
        }
        done += length;
    }
    None
}

/// An error unless `bytes`, which start at `at`, are those of the tile.
fn check_tiled(what: &str, bytes: &[u8], tile: &[u8], at: u64) -> Result<()> {
    use rayon::prelude::*;
    const PIECE: usize = 1 << 20;
    let pieces = bytes.par_chunks(PIECE).enumerate();
    let first = pieces.find_map_first(|(number, piece)| differs(piece, tile, at + (number * PIECE) as u64));
    first.map_or(Ok(()), |at| Err(Error::Differs { what: what.to_owned(), at }))
}

/// An error unless a frame is the one that it must be.
fn check_frame(what: &str, frame: &[u8], expected: &[u8]) -> Result<()> {
    if frame == expected {
        return Ok(());
    }
    let first = frame.iter().zip(expected).position(|(a, b)| a != b);
    let at = first.unwrap_or(frame.len().min(expected.len())) as u64;
    Err(Error::Differs { what: what.to_owned(), at })
}

/// An empty tile fills nothing.
fn check_tiles(tiles: &[&[u8]], bytes: u64) -> Result<()> {
    if bytes != 0 && tiles.iter().any(|tile| tile.is_empty()) {
        let what = "the bytes to fill the input with".to_owned();
        return Err(Error::BufferSize { what, expected: 1, got: 0 });
    }
    Ok(())
}

/// As many bytes of the input as a measurement takes must be loaded.
fn check_loaded(loaded: u64, bytes: u64) -> Result<()> {
    if bytes <= loaded {
        return Ok(());
    }
    Err(Error::BufferSize { what: "the loaded input".to_owned(), expected: bytes, got: loaded })
}

/// `bytes` bytes of the tile, again and again.
///
/// # Errors
/// [`Error::HostMemory`].
fn tiled(tile: &[u8], bytes: u64) -> Result<Vec<u8>> {
    let mut out = reserved(bytes)?;
    tile_to(&mut out, tile, bytes as usize);
    Ok(out)
}

/// Appends `bytes` bytes of the tile, again and again.
fn tile_to(out: &mut Vec<u8>, tile: &[u8], bytes: usize) {
    let end = out.len() + bytes;
    while out.len() < end {
        out.extend_from_slice(&tile[..tile.len().min(end - out.len())]);
    }
}

/// An empty vector with room for `bytes` bytes, or an error where `vec!` would end the process.
fn reserved(bytes: u64) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let failed = || Error::HostMemory { bytes };
    out.try_reserve_exact(usize::try_from(bytes).map_err(|_| failed())?).map_err(|_| failed())?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_counts_what_is_moved() {
        // Half the size: a codec as fast as the copy moves three quarters of its bytes.
        assert_eq!(share_of_copy(100, 50, 1.0, 1.0), 0.75);
        assert_eq!(share_of_copy(100, 100, 2.0, 1.0), 0.5);
        assert_eq!(share_of_copy(100, 50, 0.5, 1.0), 1.5);
    }

    #[test]
    fn a_difference_is_found_wherever_it_is() {
        let tile: Vec<u8> = (0..7).collect();
        let whole = tiled(&tile, 100).unwrap();
        assert_eq!(&whole[..9], [0, 1, 2, 3, 4, 5, 6, 0, 1]);
        assert_eq!((whole.len(), whole[99]), (100, 1));
        for at in 0..30 {
            assert_eq!(differs(&whole[at..], &tile, at as u64), None, "{at}");
            for wrong in at..100 {
                let mut other = whole[at..].to_vec();
                other[wrong - at] ^= 0x80;
                assert_eq!(differs(&other, &tile, at as u64), Some(wrong as u64), "{at}");
            }
        }
        let mut large = tiled(&tile, 5 << 20).unwrap();
        check_tiled("it", &large, &tile, 0).unwrap();
        (large[3 << 20], large[4 << 20]) = (99, 99);
        let error = check_tiled("it", &large, &tile, 0).unwrap_err().to_string();
        assert!(error.starts_with("it: byte 3145728 is not what it must be"), "{error}");
    }

    #[test]
    fn a_frame_that_is_cut_off_differs() {
        check_frame("it", b"abc", b"abc").unwrap();
        let at = |frame: &[u8]| match check_frame("it", frame, b"abc") {
            Err(Error::Differs { at, .. }) => at,
            other => panic!("{other:?}"),
        };
        assert_eq!([at(b"ab"), at(b"xbc"), at(b"abcd"), at(b"")], [2, 0, 3, 0]);
    }

    #[test]
    fn parts_lie_behind_each_other() {
        use crate::{Dtype, Flags, Scheme, TensorSpec};
        let tensor = |rows| TensorSpec::new("kv", Dtype::Bf16, Scheme::W2x3, &[rows, 64]);
        let spec = FrameSpec::new(vec![tensor(3), tensor(2), tensor(0)], Flags::default());
        let parts = Parts::of(&spec).unwrap();
        assert_eq!((&parts.bytes[..], &parts.starts[..]), (&[384, 256, 0][..], &[0, 512, 768][..]));
        assert_eq!((parts.raw_bytes, parts.room), (640, 768));
        parts.check(3, 384).unwrap();
        assert!(matches!(parts.check(2, 384), Err(Error::Count { expected: 3, got: 2, .. })));
        assert!(matches!(parts.check(3, 383), Err(Error::BufferSize { expected: 384, got: 383, .. })));
    }

    #[test]
    fn what_cannot_be_measured() {
        assert!(matches!(check_tiles(&[&[0], &[]], 1), Err(Error::BufferSize { .. })));
        assert!(matches!(check_loaded(10, 11), Err(Error::BufferSize { expected: 11, got: 10, .. })));
        assert!(matches!(reserved(u64::MAX), Err(Error::HostMemory { bytes: u64::MAX })));
    }
}
