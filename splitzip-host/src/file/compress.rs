//! Safetensors to `.spz`. While a frame is encoded, its raw bytes are hashed and the frame before it is written.

use super::container::{Content, Header};
use super::plan::{self, CUT, Piece, Plan};
use super::report::{Accounts, Report, coded_bytes};
use super::tensors::Contents;
use super::{DEFAULT_FRAME_BYTES, FileError, MAGIC, MAX_FRAME_BYTES, Progress, Writer};
use crate::format::{Frame, pack};
use crate::{
    BasesChoice, CodebookChoice, CodebookFile, Dtype, Error, Executor, Result, Scheme, SchemeChoice,
    TensorSpec,
};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::thread;

/// How a file is compressed.
#[derive(Clone, Debug)]
pub struct Options {
    /// How tensors are coded.
    pub scheme: SchemeChoice,
    /// Whose mean places the window, for schemes that have one.
    pub bases: BasesChoice,
    /// The float format of tensors whose dtype says only how large an element is (U8, I8, U16, I16), and of those of another
    /// float format of that size. `None` leaves integers alone.
    pub dtype: Option<Dtype>,
    /// Where codebooks come from, for schemes that have one: `None` takes one from a sample of every piece.
    pub codebooks: Option<CodebookFile>,
    /// The most raw bytes of a frame: a multiple of 2048, at most [`MAX_FRAME_BYTES`].
    pub frame_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            scheme: SchemeChoice::Given(Scheme::W2x3),
            bases: BasesChoice::Auto,
            dtype: None,
            codebooks: None,
            frame_bytes: DEFAULT_FRAME_BYTES,
        }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        let refuse = |reason: String| Err(FileError::Options { reason }.into());
        if self.frame_bytes == 0
            || self.frame_bytes > MAX_FRAME_BYTES
            || !self.frame_bytes.is_multiple_of(CUT)
        {
            let given = self.frame_bytes;
            return refuse(format!(
                "frames of {given} bytes are not possible; use a multiple of {CUT}, at most {MAX_FRAME_BYTES}"
            ));
        }
        let schemes = self.scheme.schemes();
        if self.codebooks.is_some() && !schemes.iter().any(|scheme| scheme.has_codebook()) {
            let scheme = self.scheme;
            return refuse(format!(
                "{scheme} has no codebook: leave the codebook file out, or use w4 or auto"
            ));
        }
        if let Some(dtype) = self.dtype.filter(|dtype| !dtype.is_float()) {
            let floats = Dtype::floats().map(Dtype::name).collect::<Vec<_>>().join(", ");
            return refuse(format!("{dtype} is no float format; use one of {floats}"));
        }
        Ok(())
    }
}

/// The schemes that `executor` has for tensors of `dtype`: each is tried on one element.
pub fn schemes_of(executor: &dyn Executor, dtype: Dtype) -> Vec<Scheme> {
    let has = |scheme: &Scheme| {
        let spec = plan::spec(&[Piece { at: 0, bytes: 2, spec: TensorSpec::new("", dtype, *scheme, &[1]) }]);
        !matches!(
            executor.encode_to_vec(&spec, &[], &[&[0; 2][..dtype.bytes()]]),
            Err(Error::Unsupported { .. })
        )
    };
    Scheme::ALL.iter().copied().filter(has).collect()
}

/// Compresses a safetensors file. The same input and options give the same bytes on every executor.
///
/// # Errors
/// What is no safetensors file, options that do not go together, what the executor does not have, what the output returns, and
/// what `progress` returns.
pub fn compress(
    executor: &dyn Executor,
    input: &[u8],
    output: impl Write + Send,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Report> {
    options.check()?;
    refuse_container(input)?;
    let raw_bytes = input.len() as u64;
    let contents = Contents::read(input, raw_bytes)?;
    let Plan { frames, notes } = plan::plan(&contents, input, options)?;
    let header = Header { content: Content::Safetensors, frame_limit: options.frame_bytes as u32, raw_bytes };
    let mut writer = Writer::new(output, header)?;
    let mut accounts = Accounts::new(&contents);
    let mut digest = Sha256::new();
    let (mut scratch, mut ready) = (Vec::new(), Vec::new());
    for pieces in &frames {
        let (start, bytes) = (pieces[0].at, pieces.iter().map(|piece| piece.bytes).sum::<u64>());
        let raw = &input[start as usize..(start + bytes) as usize];
        let coded = thread::scope(|scope| {
            let hashed =
                thread::Builder::new().name("hash".to_owned()).spawn_scoped(scope, || digest.update(raw))?;
            let written = thread::Builder::new()
                .name("write".to_owned())
                .spawn_scoped(scope, || write(&mut writer, &ready))?;
            let coded = encode(executor, input, pieces, options, &mut scratch);
            join(hashed);
            join(written)?;
            coded
        })?;
        let frame = Frame::parse(&coded)?;
        accounts.add(&frame, start)?;
        tracing::debug!(
            raw_at = start,
            raw_bytes = bytes,
            coded_bytes = coded.len(),
            pieces = pieces.len(),
            "frame"
        );
        ready = coded;
        progress(start + bytes)?;
    }
    write(&mut writer, &ready)?;
    let sha256 = digest.finalize();
    let (_, coded_bytes) = writer.finish(sha256.into())?;
    let sha256 = super::decompress::hexadecimal(&sha256);
    let mut tensors = accounts.finish();
    tensors.iter_mut().zip(notes).for_each(|(tensor, note)| tensor.note = note);
    Ok(Report { raw_bytes, coded_bytes, sha256, frames: frames.len() as u64, tensors })
}

/// Encodes and packs one frame. Pieces that do not shrink are stored, which takes a second try.
fn encode(
    executor: &dyn Executor,
    input: &[u8],
    pieces: &[Piece],
    options: &Options,
    scratch: &mut Vec<u8>,
) -> Result<Vec<u8>> {
    let packed = encode_as(executor, input, pieces, options, scratch)?;
    let frame = Frame::parse(&packed)?;
    let grows = |number: usize, piece: &Piece| -> Result<bool> {
        Ok(piece.spec.scheme != Scheme::Stored && coded_bytes(&frame.tensor(number)?) >= piece.bytes)
    };
    let mut stored = pieces.to_vec();
    let mut again = false;
    for (number, piece) in stored.iter_mut().enumerate() {
        if grows(number, piece)? {
            tracing::debug!(tensor = piece.spec.name, "does not shrink: stored");
            let name = std::mem::take(&mut piece.spec.name);
            *piece = Piece::stored(piece.at, piece.bytes);
            piece.spec.name = name;
            again = true;
        }
    }
    if again { encode_as(executor, input, &stored, options, scratch) } else { Ok(packed) }
}

fn encode_as(
    executor: &dyn Executor,
    input: &[u8],
    pieces: &[Piece],
    options: &Options,
    scratch: &mut Vec<u8>,
) -> Result<Vec<u8>> {
    let spec = plan::spec(pieces);
    let choice = |piece: &Piece| match &options.codebooks {
        Some(file) if piece.spec.scheme.has_codebook() => {
            file.get(&piece.spec.name, piece.spec.dtype).map(CodebookChoice::Given)
        }
        _ => Ok(CodebookChoice::Auto),
    };
    let codebooks = pieces.iter().map(choice).collect::<Result<Vec<_>>>()?;
    let inputs: Vec<&[u8]> =
        pieces.iter().map(|piece| &input[piece.at as usize..(piece.at + piece.bytes) as usize]).collect();
    let needed = usize::try_from(spec.layout()?.max_frame_bytes)
        .map_err(|_| Error::TooLarge { what: "the size of the frame", bits: usize::BITS })?;
    if scratch.len() < needed {
        scratch.resize(needed, 0);
    }
    let length = executor.encode(&spec, &codebooks, &inputs, scratch)?;
    pack(&Frame::parse(&scratch[..length])?)
}

fn write(writer: &mut Writer<impl Write>, frame: &[u8]) -> Result<()> {
    if frame.is_empty() { Ok(()) } else { writer.push(&Frame::parse(frame)?) }
}

/// The result of a thread; its panic goes on in this one.
pub(crate) fn join<T>(handle: thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Refuses what is an `.spz` file where a safetensors file is wanted.
pub(super) fn refuse_container(input: &[u8]) -> Result<()> {
    if input.starts_with(&MAGIC) { Err(FileError::safetensors("it is an .spz file already")) } else { Ok(()) }
}
